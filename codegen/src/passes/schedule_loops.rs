//! `schedule_loops`: how many iterations of a loop are in flight at once.
//!
//! Needs: rings of one stage, filled and waited for in their loop. Establishes: a ring that a pipelined loop fills has the
//! stages of the schedule, unless the address of its fill is computed in the iteration. Never: moves anything. Refuses: stages
//! that are too large for any CTA. Constructs: removes nothing; adds nothing.
//!
//! `expand_loops` reads the number of stages: a ring of several stages runs ahead by all but one.

use super::allocate_shared::refuse_large_buffers;
use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{At, Block, Kernel, Mover, Op, Ring, Value, ValueDef};
use atlas_dsl::ir::Loc;
use atlas_dsl::op::LoopKind;

/// Gives the rings of pipelined loops their stages.
pub fn schedule_loops(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let bodies: Vec<Block> = k.blocks.values().flat_map(|b| &b.insts).filter_map(|&i| pipelined(&k.insts[i])).collect();
    for ring in bodies.into_iter().flat_map(|body| filled_in(k, body)).collect::<Vec<_>>() {
        k.rings[ring].stages = cx.schedule.stages;
        for buffer in k.rings[ring].buffers.clone() {
            k.buffers[buffer].stages = cx.schedule.stages;
        }
    }
    for ring in k.rings.values() {
        cx.notes.push("ring", Loc::default(), || {
            let names: Vec<&str> = ring.buffers.iter().map(|&b| k.buffers[b].name.as_str()).collect();
            let bytes: u32 = ring.buffers.iter().map(|&b| k.buffers[b].layout.bytes()).sum();
            let because = match ring.stages {
                _ if ring.read_by == Mover::Engine => "the copy engine stores from it",
                1 => "its loads do not run ahead",
                _ => "a pipelined loop; the config",
            };
            (format!("{} stages of {bytes} bytes: {}", ring.stages, names.join(", ")), because.to_owned())
        });
    }
    refuse_large_buffers(k, cx.machine)
}

/// The body of a pipelined loop.
fn pipelined(op: &Op) -> Option<Block> {
    if let Op::Loop { kind: LoopKind::Pipeline, body, .. } = *op { Some(body) } else { None }
}

/// The rings that a block fills itself, by the number of the iteration. A ring that is always filled as in the first iteration
/// has an address that is computed in the iteration, so it cannot be filled earlier.
fn filled_in(k: &Kernel, block: Block) -> Vec<Ring> {
    let counts =
        |v: Value| !matches!(k.values[v].def, ValueDef::Result(inst, _) if matches!(k.insts[inst], Op::Const(_)));
    let filled = |op: &Op| {
        let Op::Acquire(ring, At::Iteration(n)) = *op else { return None };
        counts(n).then_some(ring)
    };
    k.blocks[block].insts.iter().filter_map(|&i| filled(&k.insts[i])).collect()
}
