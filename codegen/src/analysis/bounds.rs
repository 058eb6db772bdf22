//! Lower bounds on the resources of a config, from the extents of its tiles only. A config that takes too much is refused
//! before it is lowered.
//!
//! # Promise
//! A bound is never above what the passes find, so no config is refused here that they would accept.
//!
//! # Argument
//! *Registers.* At the start of a loop's body, every tile that the loop carries in registers and uses is live, in the layout of
//! its class. Carried tiles are complete, except those that repeat an element. The estimate of `registers.rs` counts the same
//! words. `check_registers` leaves out operands of products that the loop carries, and so does this analysis.
//!
//! *Shared memory.* The copies of a loop from known addresses form one ring, which is filled before anything else in an
//! iteration. So its buffers are live at the same time, each in every stage.
//!
//! # Breaks it
//! tests/bounds.rs compares the two for every shipped config, and has some that are refused.

use super::{Home, Placement, Uses, is_place_known};
use crate::arch::limits::{Limits, registers_of_tiles};
use crate::error::CompileError;
use crate::layout::{SharedLayout, words};
use atlas_dsl::op::LoopKind;
use atlas_dsl::validity::yields;
use atlas_dsl::{Block, DType, Inst, Kernel, Op, Schedule, Value};
use std::collections::BTreeSet;

/// Lower bounds on the resources of a config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Registers of a thread for carried tiles, in the loop that carries most.
    pub registers: u32,
    /// Bytes of shared memory of a CTA for copies, in the loop that copies most.
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

    /// True if a multiprocessor may have registers for two CTAs.
    pub(crate) fn leaves_registers_for_two(&self, schedule: &Schedule) -> bool {
        self.registers <= registers_of_tiles(schedule.warps * 32, 2)
    }

    /// Refuses a config that needs more than a machine has.
    pub(crate) fn check(&self, schedule: &Schedule, limits: &Limits<'_>) -> Result<(), CompileError> {
        limits.check_registers(self.registers, "the tiles that a loop carries need")?;
        limits.check_shared(self.shared_bytes, schedule.stages, "the tiles that a loop loads need")
    }
}

/// The operands of a product.
fn operands(op: &Op) -> Vec<Value> {
    if let Op::Dot { a, b, .. } = *op { vec![a, b] } else { vec![] }
}

/// True for values that no thread holds element by element.
fn is_repeated(kernel: &Kernel, v: Value) -> bool {
    matches!(kernel.def_op(v), Some((_, Op::Broadcast { .. } | Op::Splat { .. } | Op::Iota { .. })))
}

/// Words of a thread for a carried tile, if it lives in registers.
fn in_registers(kernel: &Kernel, uses: &Uses, placement: &Placement, v: Value) -> Option<u32> {
    let dtype = kernel.ty(v).dtype;
    let held = *placement.home(v) == Home::Registers && !uses.get(v).is_empty() && dtype != DType::Bool;
    placement.layout(v).filter(|_| held).map(|layout| words((dtype, layout)))
}

/// Bytes of a stage for the copy of an instruction in a loop's body, if its address is known. If nothing runs ahead, the
/// address may depend on carried values.
fn copied_bytes(
    kernel: &Kernel,
    uses: &Uses,
    placement: &Placement,
    (inst, body): (Inst, Block),
    carried: bool,
) -> Option<u64> {
    let Op::Load { .. } = kernel.insts[inst] else { return None };
    let v = kernel.results[inst][0];
    let Home::Copied(_) = placement.home(v) else { return None };
    let known = !uses.get(v).is_empty() && is_place_known(kernel, uses, inst, body, carried);
    let bytes = |layout: SharedLayout| {
        u64::from(layout.rows) * u64::from(layout.pitch) * u64::from(layout.cols.div_ceil(layout.panel))
    };
    known.then(|| bytes(placement.buffer_layout(kernel, v)))
}
