//! What is known before an iterate of a loop starts, so that loads may run ahead of it.
//!
//! # Promise
//! A scalar that is called known has, however many iterates ahead it is computed, the value that it has in its iterate.
//!
//! # Argument
//! Of what a body is given only the index is known before the iterate, and, an iterate's own loads apart, what the loop
//! carries is not. Operations of the body on known scalars give known ones, but for those that read memory or loop.
//!
//! # Breaks it
//! Loads whose place a carried number decides: tests/agreement/wrong_code.rs and sequences of the gallery.

use super::Uses;
use super::placement::vector_elements;
use atlas_dsl::ir::ValueDef;
use atlas_dsl::op::{LoopKind, Slice};
use atlas_dsl::{Block, DType, Inst, Kernel, Op, Value};

/// True if a scalar is known where an iterate starts, or, without what the loop carries, before that.
pub(crate) fn is_known_before(kernel: &Kernel, uses: &Uses, v: Value, body: Block, carried: bool) -> bool {
    match kernel.values[v].def {
        ValueDef::Grid(_) => true,
        ValueDef::BlockParam(of, n) => n == 0 || of != body || carried,
        ValueDef::Result(inst, _) => {
            let op = &kernel.insts[inst];
            let mut known = !matches!(op, Op::Loop { .. } | Op::Load { .. } | Op::Reduce { .. } | Op::Dot { .. });
            op.visit_operands(|o| known &= is_known_before(kernel, uses, o, body, carried));
            known || uses.block_of(inst) != Some(body)
        }
    }
}

/// True if a load of a pipelined loop can be copied ahead of its iterate: an input, at a place known before, in chunks that
/// `cp.async` takes.
pub(crate) fn can_run_ahead(kernel: &Kernel, uses: &Uses, load: Inst) -> bool {
    let Op::Load { param, slices } = &kernel.insts[load] else { return false };
    let Some(body) = uses.block_of(load) else { return false };
    let pipelined = uses
        .loop_of(body)
        .is_some_and(|owner| matches!(kernel.insts[owner], Op::Loop { kind: LoopKind::Pipeline, .. }));
    let kind = &kernel.params[*param].kind;
    let ty = kernel.ty(kernel.results[load][0]);
    if !pipelined || !kind.is_read_only() || ty.dtype == DType::Bool || !(1..=2).contains(&ty.rank()) {
        return false;
    }
    let mut known = true;
    kernel.insts[load].visit_operands(|v| known &= is_known_before(kernel, uses, v, body, false));
    known && vector_elements(kind, inner_extent(kernel, *param, slices)) * ty.dtype.bytes() >= 4
}

/// What is known to divide the first element and the extent of a load along the last axis of its tensor.
fn inner_extent(kernel: &Kernel, param: atlas_dsl::Param, slices: &[Slice]) -> u64 {
    let atlas_dsl::ir::ParamKind::Tensor { dims, .. } = &kernel.params[param].kind else { return 1 };
    let (Some(slice), Some(&dim)) = (slices.last(), dims.last()) else { return 1 };
    let divisor = kernel.dims[dim].size.divisor();
    match *slice {
        Slice::Tile { size, .. } => gcd(u64::from(size), divisor),
        Slice::Whole => divisor,
        Slice::At(_) | Slice::Span { .. } => 1,
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
