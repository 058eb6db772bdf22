//! `select_copy_atoms`: selects the instruction by which each copy moves its tile.
//!
//! Needs: copies without an atom. Establishes: an atom on each: the copy engine's, with a tensor map, in rings that it fills; in
//! others `cp.async` of the most bytes that fit every row, otherwise element by element. Never: moves anything, or looks at the readers of the copy. Refuses: nothing. Constructs: removes
//! open-copies; adds nothing.
//!
//! # Promise
//! The same bytes arrive, in pieces of another size.
//!
//! # Argument
//! A chunk size fits if the base, the first column and every stride but the innermost (which is 1) are multiples of it, and no
//! edge of the tensor splits a chunk. `access_elements` decides that from the promises of the kernel's signature, and the
//! verifier checks it again (444).
//!
//! # Breaks it
//! Rows of an odd pitch, columns that are not contiguous, edges within a chunk: tests/agreement/fitting.rs::
//! chunks_of_rows_of_any_length and tests/agreement/grids.rs.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Cache, CopyAtom, Kernel, Op, SharedRef, Slice, TensorMap, access_elements};
use atlas_dsl::Param;
use atlas_dsl::ir::ParamKind;

/// Gives every copy an atom.
pub fn select_copy_atoms(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let made = k.insts.iter().filter_map(|(inst, op)| {
        let Op::Copy { atom: CopyAtom::Open, param, slices, to } = op else { return None };
        Some((inst, *param, slices.clone(), *to))
    });
    for (inst, param, slices, to) in made.collect::<Vec<_>>() {
        let made = match to.token.is_some_and(|token| k.ring_of_engine(token).is_some()) {
            true => CopyAtom::Tma(map_for(k, param, &slices, &to)?, Cache::Normal),
            false => atom_for(k, param, &slices),
        };
        if let Op::Copy { atom, .. } = &mut k.insts[inst] {
            *atom = made;
        }
        // One note for all panels of a buffer.
        if to.origin != (0, 0) {
            continue;
        }
        cx.notes.push(format!("copy {}", k.params[param].name), k.locs[inst], || match made {
            CopyAtom::Tma(map, _) => {
                let (buffer, elements) = (&k.buffers[to.buffer], k.maps[map].box_elements());
                let boxes = buffer.layout.rows * buffer.layout.cols / elements;
                let why = match boxes {
                    1 => "the copy engine takes it as one box".to_owned(),
                    n => format!("the copy engine takes it as {n} boxes of {} columns", buffer.layout.panel),
                };
                (format!("{made} of {} bytes", elements * buffer.dtype.bytes()), why)
            }
            CopyAtom::CpAsync(bytes) => (made.to_string(), format!("{bytes} bytes fit its strides and edges")),
            _ => ("element by element".to_owned(), "no 4 bytes fit its strides and edges".to_owned()),
        });
    }
    Ok(())
}

/// The map of a tensor whose box is the part of a tile that a copy brings. Copies of one box share a map.
fn map_for(k: &mut Kernel, param: Param, slices: &[Slice], to: &SharedRef) -> Result<TensorMap, CompileError> {
    let buffer = &k.buffers[to.buffer];
    let panel = buffer.layout.engine_box(buffer.dtype.bytes());
    let panel = panel.ok_or_else(|| CompileError::bug("the copy engine fills a buffer that it does not take"))?;
    Ok(k.map_of_box(param, slices, panel.span))
}

/// The widest atom that fits a part of a tensor.
fn atom_for(k: &Kernel, param: Param, slices: &[Slice]) -> CopyAtom {
    let ParamKind::Tensor { dtype, .. } = k.params[param].kind else { return CopyAtom::Direct };
    match access_elements(k, param, slices) * dtype.bytes() {
        bytes @ (4 | 8 | 16) => CopyAtom::CpAsync(bytes),
        _ => CopyAtom::Direct,
    }
}
