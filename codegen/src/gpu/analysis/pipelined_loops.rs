//! The loops of a kernel whose loads run ahead, in the order in which the work of a program lists them.

use crate::gpu::{Block, Kernel, Op};
use atlas_dsl::ir::Loc;

/// Where each loop whose loads run ahead stands in the source. A loop comes after those in its body, as in
/// [`Sample::prefetched`](super::Sample::prefetched).
pub fn pipelined_loops(k: &Kernel) -> Vec<Loc> {
    let mut loops = Vec::new();
    k.roles.values().for_each(|role| visit(k, role.body, &mut loops));
    loops
}

fn visit(k: &Kernel, block: Block, loops: &mut Vec<Loc>) {
    for &inst in &k.blocks[block].insts {
        if let Op::Loop { body, .. } | Op::If(_, body, _) | Op::Once(body) = k.insts[inst] {
            visit(k, body, loops);
        }
        if let Op::Loop { body, .. } = k.insts[inst]
            && runs_ahead(k, body).is_some()
        {
            loops.push(k.locs[inst]);
        }
    }
}

/// The number of iterations by which the loads of a loop run ahead, if they do: one less than the stages of its longest ring.
pub(super) fn runs_ahead(k: &Kernel, body: Block) -> Option<f64> {
    let stages = k.blocks[body].insts.iter().filter_map(|&i| {
        let Op::Wait(ring, _) = k.insts[i] else { return None };
        Some(k.rings[ring].stages)
    });
    stages.max().filter(|&s| s > 1).map(|s| f64::from(s - 1))
}
