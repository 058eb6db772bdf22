//! Which values are known before an iteration of a loop starts, so that loads may run ahead of it.
//!
//! # Promise
//! A scalar that is called known has the same value in its iteration and any number of iterations ahead.
//!
//! # Argument
//! Before an iteration, only the index is known of the parameters of a body. Carried values are not known, except to the loads
//! of the iteration itself. Operations of the body on known scalars give known scalars, unless they read memory or are loops.
//!
//! # Breaks it
//! Loads whose address depends on a carried number: tests/agreement/wrong_code.rs and sequences of the gallery.

use super::super::Uses;
use super::super::sources::sources;
use crate::gpu::{gcd, vector_elements};
use atlas_dsl::ir::{ParamKind, ValueDef};
use atlas_dsl::op::{LoopKind, Slice};
use atlas_dsl::{Block, DType, Inst, Kernel, Op, Param, Value};
use std::collections::BTreeSet;

/// The shared memory that rings may take for tiles which registers could hold: what every GPU has for a CTA, and a little more.
const ROOM: u32 = 96 * 1024;

/// True if the address of a load in a loop's body is known when an iteration starts or, if carried values are excluded, before
/// that.
pub(crate) fn is_place_known(kernel: &Kernel, uses: &Uses, load: Inst, body: Block, carried: bool) -> bool {
    let mut known = true;
    kernel.insts[load].visit_operands(|v| known &= is_known_before(kernel, uses, v, body, carried));
    known
}

/// True if a scalar is known when an iteration starts or, if carried values are excluded, before that.
fn is_known_before(kernel: &Kernel, uses: &Uses, v: Value, body: Block, carried: bool) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![v]);
    while let Some(v) = open.pop() {
        if !seen.insert(v) {
            continue;
        }
        match kernel.values[v].def {
            ValueDef::Grid(_) => {}
            ValueDef::BlockParam(of, n) if n == 0 || of != body || carried => {}
            ValueDef::BlockParam(..) => return false,
            ValueDef::Result(inst, _) if uses.block_of(inst) != Some(body) => {}
            ValueDef::Result(inst, _) => {
                let op = &kernel.insts[inst];
                let is_of_its_turn = matches!(op, Op::Loop { .. } | Op::Load { .. } | Op::Dot { .. })
                    || matches!(op, Op::Reduce { .. } | Op::Scan { .. } | Op::ClusterSum(_));
                if is_of_its_turn {
                    return false;
                }
                op.visit_operands(|o| open.push(o));
            }
        }
    }
    true
}

/// The loads of pipelined loops that run ahead of their iterations although only registers read them. They read inputs at
/// addresses that depend on the index and are known before, in chunks that `cp.async` takes, and are used where they are
/// loaded. Of each loop, as many as fit beside the tiles that are staged in any case.
pub(crate) fn running_ahead(
    kernel: &Kernel,
    uses: &Uses,
    stages: u32,
    is_staged: impl Fn(Value) -> bool,
) -> BTreeSet<Value> {
    let mut found = BTreeSet::new();
    if stages < 2 {
        return found;
    }
    for op in kernel.insts.values() {
        let Op::Loop { kind: LoopKind::Pipeline, body, .. } = *op else { continue };
        let loads = kernel.blocks[body].insts.iter().filter(|&&i| matches!(kernel.insts[i], Op::Load { .. }));
        let loads: Vec<(Inst, Value)> = loads.map(|&i| (i, kernel.results[i][0])).collect();
        let bytes = |v: Value| {
            let ty = kernel.ty(v);
            u32::try_from(ty.elements() * u64::from(ty.dtype.bytes() * stages)).unwrap_or(u32::MAX)
        };
        let staged = loads.iter().filter(|(_, v)| is_staged(*v)).map(|&(_, v)| bytes(v));
        let mut taken = staged.fold(0, u32::saturating_add);
        for &(load, v) in loads.iter().filter(|(_, v)| !is_staged(*v)) {
            if can_run_ahead(kernel, uses, load, body) && taken.saturating_add(bytes(v)) <= ROOM {
                taken += bytes(v);
                found.insert(v);
            }
        }
    }
    found
}

fn can_run_ahead(kernel: &Kernel, uses: &Uses, load: Inst, body: Block) -> bool {
    let Op::Load { param, slices } = &kernel.insts[load] else { return false };
    let kind = &kernel.params[*param].kind;
    let v = kernel.results[load][0];
    let ty = kernel.ty(v);
    if !kind.is_read_only() || kernel.insts[load].gathers() || ty.dtype == DType::Bool || !(1..=2).contains(&ty.rank())
    {
        return false;
    }
    // A loop inside would read it from shared memory in each of its iterations.
    if uses.get(v).is_empty() || uses.get(v).iter().any(|u| u.block != body) {
        return false;
    }
    let mut known = true;
    kernel.insts[load].visit_operands(|o| known &= is_known_before(kernel, uses, o, body, false));
    let by_index = sources(kernel, &kernel.insts[load]).contains(&kernel.blocks[body].params[0]);
    known && by_index && vector_elements(kind, inner_extent(kernel, *param, slices)) * ty.dtype.bytes() >= 4
}

/// A number that is known to divide the first element and the extent of an access along the last axis of its tensor.
pub(super) fn inner_extent(kernel: &Kernel, param: Param, slices: &[Slice]) -> u64 {
    let ParamKind::Tensor { dims, .. } = &kernel.params[param].kind else { return 1 };
    let (Some(slice), Some(&dim)) = (slices.last(), dims.last()) else { return 1 };
    let divisor = kernel.dims[dim].size.divisor();
    match *slice {
        Slice::Tile { size, .. } => gcd(u64::from(size), divisor),
        Slice::Whole => divisor,
        Slice::At(_) | Slice::Span { .. } | Slice::Gather(_) => 1,
    }
}
