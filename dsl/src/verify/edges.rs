//! Which elements of a carried value are valid does not depend on what its loop's body defines.
//!
//! Else it would be a matter of the last iterate. Judged as if every tile and span were ragged, so that what is legal
//! does not depend on the sizes of a problem.

use super::Verifier;
use crate::diag::Diagnostic;
use crate::entity::Value;
use crate::ir::{Kernel, Loc};
use crate::op::{Op, Slice};
use crate::validity::{Constraint, Validity, depends_on, yields};
use cranelift_entity::EntitySet;
use std::collections::BTreeSet;

impl Verifier<'_> {
    /// 226.
    pub(super) fn edges(&mut self) {
        let k = self.kernel;
        let validity = Validity::by_source(k);
        let mut reported = BTreeSet::new();
        for body in k.insts.values().filter_map(|op| if let Op::Loop { body, .. } = op { Some(*body) } else { None }) {
            for &v in yields(k, body) {
                for c in validity.constraints(v).iter().filter(|c| depends_on(k, c, body)) {
                    let (load, loc, name) = source(k, c, v);
                    if reported.insert(load) {
                        self.errors.push(leaves_its_loop(k, c, loc, &name));
                    }
                }
            }
        }
    }
}

/// The load that a constraint of a value comes from: its number, place and tensor.
fn source(k: &Kernel, c: &Constraint, v: Value) -> (u32, Loc, String) {
    let (mut open, mut seen) = (vec![v], EntitySet::new());
    while let Some(v) = open.pop() {
        if !seen.insert(v) {
            continue;
        }
        let Some((inst, op)) = k.def_op(v) else { continue };
        match op {
            Op::Load { param, slices } if slices.contains(&c.slice) => {
                return (inst.as_u32(), k.locs[inst], k.params[*param].name.clone());
            }
            Op::Loop { body, .. } => open.extend(yields(k, *body)),
            _ => {}
        }
        op.visit_operands(|v| open.push(v));
    }
    (v.as_u32(), Loc::default(), "a tensor".to_owned())
}

fn leaves_its_loop(k: &Kernel, c: &Constraint, loc: Loc, tensor: &str) -> Diagnostic {
    let dim = &k.dims[c.dim].name;
    let (what, len) = match c.slice {
        Slice::Tile { size, .. } => ("tile", size),
        Slice::Span { len, .. } => ("span", len),
        Slice::At(_) | Slice::Whole => ("slice", 1),
    };
    let message = format!(
        "the loop carries out what it computes from this {what} of `{tensor}`, of {len} elements of `{dim}`; where it \
         reaches past the end of `{dim}`, no element is valid, and which ones these are differs between iterates"
    );
    Diagnostic::new(226, loc, message)
        .note("fold inside the loop: `total += sum(.., axis = ..)` in the place of a fold after it")
        .note(format!("or say what stands past the edge: `load({tensor}[..]).or(0.0)`"))
}
