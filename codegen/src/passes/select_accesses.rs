//! `select_accesses`: selects the instructions by which each load and store moves its fragment.
//!
//! Needs: nothing. Establishes: each load and store of a fragment has a form. Never: moves anything, or changes which elements
//! are moved. Refuses: nothing. Constructs: removes open-accesses; adds access-kinds.
//!
//! It selects the form that moves most at once: matrix instructions if possible, otherwise the widest vectors.
//!
//! # Promise
//! The same elements are moved as before, to and from the same registers.
//!
//! # Argument
//! `gpu/access.rs` says which forms can move a fragment. A predicate leaves out padding of the layout outside of `writable`. It
//! is omitted if no thread has such padding.
//!
//! # Breaks it
//! As in `gpu/access.rs`.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{AccessKind, Inst, Kernel, Op, accessed, moves_by_matrix, widest, writable};

/// Gives every load and store its form.
pub fn select_accesses(k: &mut Kernel, _: &mut Cx<'_>) -> Result<(), CompileError> {
    let insts: Vec<Inst> = k.blocks.values().flat_map(|b| b.insts.iter().copied()).collect();
    for inst in insts {
        k.access_kinds[inst] = form(k, inst);
    }
    Ok(())
}

fn form(k: &Kernel, inst: Inst) -> Option<AccessKind> {
    let bytes = widest(k, inst)?;
    Some(if moves_by_matrix(k, inst) {
        AccessKind::Matrix
    } else {
        AccessKind::Vector { bytes, within: within(k, inst) }
    })
}

/// The extents within which an access of shared memory stays, if its layout reaches past them.
fn within(k: &Kernel, inst: Inst) -> Option<Vec<u32>> {
    let (Op::LoadShared(at) | Op::StoreShared { to: at, .. }) = &k.insts[inst] else { return None };
    let layout = k.tile(accessed(k, inst)?).1;
    let extents = writable(k, at, layout);
    (0..extents.len()).any(|axis| layout.cover(axis as u8) > extents[axis]).then_some(extents)
}
