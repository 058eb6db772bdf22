//! Invalid elements neither leave an iteration nor are stored.
//!
//! Which elements of a carried value are valid must not depend on values of its loop's body, because then the last iteration
//! would decide it. And the indices of a store must leave out every element that may lie outside of the tensor from which it
//! was loaded. Otherwise a reader would find a number that no kernel computed.
//!
//! The check treats every tile and span as ragged, even tiles of one element. So whether a kernel is legal depends neither on
//! the sizes of a problem nor on a config. Stores have one exception: a slice whose position depends on sizes only. The caller
//! of the kernel can see what it reaches.

use super::Verifier;
use crate::diag::Diagnostic;
use crate::entity::{Dim, Param, Value};
use crate::ir::{Kernel, Loc, ParamKind};
use crate::op::{Op, Slice};
use crate::reach::constant;
use crate::validity::{Constraint, Validity, depends_on, same_number, same_slice, yields};
use cranelift_entity::EntitySet;
use std::collections::BTreeSet;

impl Verifier<'_> {
    /// 226 and 227.
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
        for (inst, op) in k.insts.iter() {
            if let Op::Store { param, slices, value, .. } = op
                && let Some((c, from)) = shown(k, &validity, *param, slices, *value)
            {
                let (_, _, name) = source(k, &c, from);
                self.errors.push(writes_invalid(k, &c, k.locs[inst], &name, *param));
            }
        }
    }
}

/// A constraint on what a store writes that its own slices do not imply, and the value that has the constraint.
fn shown(k: &Kernel, validity: &Validity, to: Param, slices: &[Slice], value: Value) -> Option<(Constraint, Value)> {
    let ParamKind::Tensor { dims, .. } = &k.params[to].kind else { return None };
    let places: Vec<(Slice, Dim)> = slices.iter().copied().zip(dims.iter().copied()).collect();
    let kept: Vec<(Slice, Dim)> = places.iter().copied().filter(|p| !matches!(p.0, Slice::At(_))).collect();
    // What has no valid place is dropped.
    let of_places = |s: Slice| if let Slice::Gather(at) = s { validity.constraints(at) } else { &[] };
    let left_out = |c: &Constraint, shape: &[u32]| {
        let axis = usize::from(c.axis);
        // One element, however often it is repeated: left out if an index of the store picks the same.
        let point = point(c.slice);
        let one = point.is_some_and(|v| {
            let is_same = |w| same_number(k, v, w);
            let is_same = |s: Slice, d: Dim| d == c.dim && self::point(s).is_some_and(is_same);
            places.iter().any(|&(s, d)| is_same(s, d) || of_places(s).iter().any(|own| is_same(own.slice, own.dim)))
        });
        let wide = !c.whole_axis && shape.get(axis) != Some(&1);
        let is_same = |s: Slice, d: Dim| d == c.dim && same_slice(k, s, c.slice);
        let at = kept.get(axis).filter(|_| wide);
        one || at.is_some_and(|&(s, d)| is_same(s, d) || of_places(s).iter().any(|own| is_same(own.slice, own.dim)))
    };
    let is_sized = |c: &Constraint| c.coordinate().is_some_and(|v| is_sized(k, v));
    let find = |v: Value, among: &dyn Fn(u8) -> bool| {
        let shape = &k.ty(v).shape;
        let all = validity.constraints(v).iter().filter(|c| among(c.axis));
        all.copied().find(|c| !is_sized(c) && !left_out(c, shape)).map(|c| (c, v))
    };
    // The axes that a reshape drops are known behind it alone.
    let mut inner = None;
    let mut behind = value;
    while let (None, Some((_, Op::Reshape { value, axes }))) = (inner, k.def_op(behind)) {
        inner = find(*value, &|axis| !axes.contains(&Some(axis)));
        behind = *value;
    }
    inner.or_else(|| find(value, &|_| true))
}

/// True for a number that depends on the sizes of dims only. A constant must not be negative.
fn is_sized(k: &Kernel, v: Value) -> bool {
    let (mut open, mut seen) = (vec![v], EntitySet::new());
    while let Some(v) = open.pop() {
        if !seen.insert(v) {
            continue;
        }
        match (constant(k, v), k.def_op(v).map(|d| d.1)) {
            (Some(number), _) if number >= 0 => {}
            (None, Some(Op::DimSize(_) | Op::DimTiles { .. })) => {}
            (None, Some(Op::Binary(_, a, b))) => open.extend([*a, *b]),
            _ => return false,
        }
    }
    true
}

/// The element that a slice of one element picks.
fn point(slice: Slice) -> Option<Value> {
    match slice {
        Slice::At(v) | Slice::Tile { index: v, size: 1 } | Slice::Span { start: v, len: 1 } => Some(v),
        _ => None,
    }
}

/// The load from which a constraint of a value comes: its number, location and tensor.
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

fn slice_text(c: &Constraint) -> (&'static str, u32) {
    match c.slice {
        Slice::Tile { size, .. } => ("tile", size),
        Slice::Span { len, .. } => ("span", len),
        Slice::At(_) | Slice::Whole | Slice::Gather(_) => ("slice", 1),
    }
}

fn writes_invalid(k: &Kernel, c: &Constraint, loc: Loc, tensor: &str, to: Param) -> Diagnostic {
    let (dim, to, (what, len)) = (&k.dims[c.dim].name, &k.params[to].name, slice_text(c));
    let message = format!(
        "the store to `{to}` writes elements that are not valid: this {what} of `{tensor}`, of {len} elements of \
         `{dim}`, may reach outside of `{dim}` where the store does not"
    );
    Diagnostic::new(227, loc, message)
        .note(format!(
            "say what stands there, `load({tensor}[..]).or(v)`: `v` is 0 for what is added, 1 for a factor, the least number \
             for a side of `max`; or store to the same {what} of `{dim}`, whose place is known to be the same if both have the \
             name of a `let`, or one formula"
        ))
}

fn leaves_its_loop(k: &Kernel, c: &Constraint, loc: Loc, tensor: &str) -> Diagnostic {
    let (dim, (what, len)) = (&k.dims[c.dim].name, slice_text(c));
    let message = format!(
        "the loop carries out what it computes from this {what} of `{tensor}`, of {len} elements of `{dim}`; where it \
         reaches past the end of `{dim}`, no element is valid, and which ones these are differs between iterations"
    );
    Diagnostic::new(226, loc, message)
        .note("reduction inside the loop: `total += sum(.., axis = ..)` in the place of a reduction after it")
        .note(
            "or say what stands past the edge, by `.or(v)` of what the loop combines with what it carries: `v` is 0 for a sum, 1 \
             for a product, the least number for `max` and the greatest for `min`",
        )
}
