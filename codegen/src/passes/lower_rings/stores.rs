//! Stages that the copy engine stores: one thread starts their copies and ends their group.

use crate::gpu::{BlockData, Inst, Kernel, Mover, Op};

/// Puts the copies of each stage that the engine stores, and their commit, into a region of one thread.
pub(super) fn start_once(k: &mut Kernel) {
    for block in k.blocks.keys().collect::<Vec<_>>() {
        let insts = std::mem::take(&mut k.blocks[block].insts);
        let (mut out, mut copies): (Vec<Inst>, Vec<Inst>) = (Vec::new(), Vec::new());
        for inst in insts {
            let is_store = matches!(k.insts[inst], Op::Copy { atom, .. } if atom.is_store());
            let is_end = matches!(k.insts[inst], Op::Commit(ring, _) if k.rings[ring].read_by == Mover::Engine);
            if !is_store && !is_end {
                out.push(inst);
                continue;
            }
            copies.push(inst);
            if is_end {
                let body = BlockData { params: Vec::new(), insts: std::mem::take(&mut copies) };
                let (body, loc) = (k.blocks.push(body), k.locs[inst]);
                out.push(k.new_inst(Op::Once(body), vec![], loc));
            }
        }
        out.append(&mut copies);
        k.blocks[block].insts = out;
    }
}
