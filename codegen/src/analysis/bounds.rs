//! What a config takes at the least, from the extents of its tiles alone: what is too much is refused before it is lowered.
//!
//! # Promise
//! A bound is never above what the passes find: no config is refused here that they would accept.
//!
//! # Argument
//! *Registers.* Where a loop's body begins, all that it carries in registers and uses is live, each tile by the layout of its
//! class: tiles that a loop carries are made whole, but for what repeats an element. The estimate of `registers.rs` counts
//! the same words, and `check_registers` leaves out operands of products that come round with the loop, and so does this.
//!
//! *Shared memory.* What a loop copies at places that are known is one ring, filled before anything else that an iteration
//! does. So its buffers live at once, each in every stage.
//!
//! # Breaks it
//! tests/bounds.rs compares the two for every shipped config, and has some that are refused.

use super::{Home, Placement, StagingReason, Uses, is_place_known, words};
use crate::error::CompileError;
use crate::layout::SharedLayout;
use crate::limits::Limits;
use atlas_dsl::op::LoopKind;
use atlas_dsl::validity::yields;
use atlas_dsl::{Block, DType, Inst, Kernel, Op, Schedule, Value};
use std::collections::BTreeSet;

/// What a config takes at the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Registers of a thread for the tiles that a loop carries, of the loop that carries most.
    pub registers: u32,
    /// Bytes of shared memory of a CTA for what a loop copies, of the loop that copies most.
    pub shared_bytes: u64,
}

impl Bounds {
    /// The bounds of a kernel whose tiles have places.
    pub fn of(kernel: &Kernel, uses: &Uses, placement: &Placement, schedule: &Schedule) -> Bounds {
        let operands: BTreeSet<Value> = kernel.insts.values().flat_map(operands).collect();
        let mut bounds = Bounds::default();
        for inst in kernel.insts.keys().filter(|&i| uses.is_live(i)) {
            let Op::Loop { kind, body, .. } = kernel.insts[inst] else { continue };
            let carried = kernel.blocks[body].params.iter().skip(1).zip(yields(kernel, body));
            let held = carried.filter(|(v, next)| !operands.contains(v) && !is_repeated(kernel, **next));
            let registers = held.filter_map(|(&v, _)| in_registers(kernel, uses, placement, v)).sum();
            bounds.registers = bounds.registers.max(registers);
            let stages = if kind == LoopKind::Pipeline { schedule.stages } else { 1 };
            let copied = kernel.blocks[body].insts.iter();
            let bytes = copied.filter_map(|&i| copied_bytes(kernel, uses, placement, (i, body), stages == 1));
            bounds.shared_bytes = bounds.shared_bytes.max(bytes.sum::<u64>() * u64::from(stages));
        }
        bounds
    }

    /// Refuses what a machine does not have.
    pub(crate) fn check(&self, schedule: &Schedule, limits: &Limits<'_>) -> Result<(), CompileError> {
        limits.check_registers(self.registers, "the tiles that a loop carries need")?;
        limits.check_shared(self.shared_bytes, schedule.stages, "the tiles that a loop loads need")
    }
}

/// What a product reads.
fn operands(op: &Op) -> Vec<Value> {
    if let Op::Dot { a, b, .. } = *op { vec![a, b] } else { vec![] }
}

/// True for what no thread holds element by element.
fn is_repeated(kernel: &Kernel, v: Value) -> bool {
    matches!(kernel.def_op(v), Some((_, Op::Broadcast { .. } | Op::Splat { .. } | Op::Iota { .. })))
}

/// Words of a thread for a carried tile, if it lives in registers.
fn in_registers(kernel: &Kernel, uses: &Uses, placement: &Placement, v: Value) -> Option<u32> {
    let dtype = kernel.ty(v).dtype;
    let held = *placement.home(v) == Home::Registers && !uses.get(v).is_empty() && dtype != DType::Bool;
    placement.layout(v).filter(|_| held).map(|layout| words((dtype, layout)))
}

/// Bytes of a stage of what an instruction of a loop's body copies, if it is known where from; with what the loop carries,
/// where nothing runs ahead.
fn copied_bytes(
    kernel: &Kernel,
    uses: &Uses,
    placement: &Placement,
    (inst, body): (Inst, Block),
    carried: bool,
) -> Option<u64> {
    let Op::Load { .. } = kernel.insts[inst] else { return None };
    let v = kernel.results[inst][0];
    let Home::Copied(reason) = placement.home(v) else { return None };
    let known = !uses.get(v).is_empty() && is_place_known(kernel, uses, inst, body, carried);
    let ty = kernel.ty(v);
    let operand = *reason == StagingReason::Operand;
    let bytes = |layout: SharedLayout| u64::from(layout.rows) * u64::from(layout.pitch);
    known.then(|| bytes(SharedLayout::of_tile(&ty.shape, ty.dtype.bytes(), operand)))
}
