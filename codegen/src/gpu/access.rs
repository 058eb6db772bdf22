//! What of a fragment an access moves, and which forms of instruction can move it.
//!
//! # Promise
//! [`writable`] is a rectangle at the access's origin that no other range of the buffer's tile meets: stores drop what
//! lies outside, and loads read 0 there. [`widest`] and [`moves_by_matrix`] hold of instructions that move each element
//! between its register and its place, at addresses that are aligned for them.
//!
//! # Argument
//! *Rectangle.* Ranges of one tile differ in one axis of the buffer, and are padded to 16 there as buffers are. A range that
//! begins past 0, or ends 16 or more before the buffer, has neighbours: its own extent is the limit. Any other access has
//! the buffer to itself, and what it writes past its tile is padding, which nothing else of the buffer keeps.
//!
//! *Vectors.* Registers that follow one another hold neighbours along the axis that is contiguous in memory, and all else
//! that moves along it moves by whole vectors. Of a tensor, what is known divides the address; of a buffer, its pitch and
//! the origin do, and a swizzle keeps 16 bytes together. Where a layout reaches past the rectangle, no vector crosses its edge.
//!
//! *Matrices.* 16 x 16 blocks whose 8x8 quarters lie over a warp as `ldmatrix` deals them, all of them in the buffer. A lane
//! touches elements that its layout gives to others: `insert_barriers` asks for the form.
//!
//! `select_accesses` chooses among these forms and the verifier holds it to them; whoever counts accesses reads the form.
//!
//! # Breaks it
//! - Padding of a range written over the next one: tests/agreement/exchanges.rs::columns_of_a_product_stay_in_their_buffers.
//! - A matrix access taken for one of each thread's own elements:
//!   tests/agreement/wrong_code.rs::matrix_accesses_belong_to_no_thread.
//! - Padding of an operand that no range writes:
//!   tests/agreement/arguments.rs::padding_of_an_operand_is_zero_whatever_ranges_write_it.
//! - Vectors wider than what is aligned, and matrices of single elements: tests/gpu_interp/mutants.rs.

use super::vectors::access_elements;
use super::{Inst, Kernel, Op, SharedRef, Value};
use crate::arch::Capability;
use crate::gpu_ops;
use crate::layout::{Fragment, Mode};

/// What of a layout fits its rectangle of the buffer: the buffer's extents for tiles of rank 2, which may be padded, else
/// the tile's own.
pub fn writable(k: &Kernel, at: &SharedRef, layout: &Fragment) -> Vec<u32> {
    let shared = &k.buffers[at.buffer].layout;
    match layout.shape[..] {
        [first, second] => {
            // A range must not spill into its neighbour; across it, and beyond a tile that is no range, the padding is
            // its own. Buffers are padded to 16 rows and columns, and so are ranges.
            let (rows, cols) = if at.transposed { (second, first) } else { (first, second) };
            let part = |origin: u32, len: u32, of: u32| origin != 0 || len.next_multiple_of(16) < of;
            let rows = if part(at.origin.0, rows, shared.rows) { rows } else { shared.rows };
            let cols = if part(at.origin.1, cols, shared.cols) { cols } else { shared.cols };
            if at.transposed { vec![cols, rows] } else { vec![rows, cols] }
        }
        _ => layout.shape.clone(),
    }
}

/// The fragment that a load makes or a store takes; `None` for what is neither.
pub fn accessed(k: &Kernel, inst: Inst) -> Option<Value> {
    match &k.insts[inst] {
        Op::LoadGlobal { .. } | Op::LoadShared(_) | Op::LoadMatrix { .. } => k.results[inst].first().copied(),
        Op::StoreGlobal { value, .. } | Op::StoreShared { value, .. } => Some(*value),
        Op::Copy { .. } | Op::ZeroShared(_) | Op::SumCluster(..) => None,
        gpu_ops!(sources elementwise views fragments products rings orders control) => None,
    }
}

/// Bytes of the widest vectors by which a load or a store can move its fragment; `None` for what is neither.
pub fn widest(k: &Kernel, inst: Inst) -> Option<u32> {
    let (dtype, layout) = k.values[accessed(k, inst)?].ty.tile()?;
    let mut elements = 1;
    if let Some(last) = layout.shape.len().checked_sub(1) {
        if let Op::LoadGlobal { param, slices, .. } | Op::StoreGlobal { param, slices, .. } = &k.insts[inst] {
            elements = layout.run(last as u8, access_elements(k, *param, slices));
        } else if let Op::LoadShared(at) | Op::StoreShared { to: at, .. } = &k.insts[inst] {
            let along = if at.transposed { 0 } else { last };
            elements = layout.run(along as u8, 16 / dtype.bytes());
            let pitch = k.buffers[at.buffer].layout.pitch;
            let extent = writable(k, at, layout)[along];
            let is_cut = |run: u32| layout.cover(along as u8) > extent && !extent.is_multiple_of(run);
            while elements > 1
                && (is_cut(elements)
                    || !at.origin.1.is_multiple_of(elements)
                    || !pitch.is_multiple_of(elements * dtype.bytes()))
            {
                elements /= 2;
            }
        }
    }
    Some(elements * dtype.bytes())
}

/// True if matrix instructions can move the fragment of a load or a store.
pub fn moves_by_matrix(k: &Kernel, inst: Inst) -> bool {
    let Some((dtype, layout)) = accessed(k, inst).and_then(|v| k.values[v].ty.tile()) else { return false };
    let repeats = || layout.threads.iter().any(|m| m.axis.is_none() && m.extent > 1);
    dtype.is_half()
        && match &k.insts[inst] {
            Op::LoadMatrix { .. } => true,
            Op::LoadShared(from) => is_blocks(from, layout, &writable(k, from, layout)),
            Op::StoreShared { to, .. } => {
                k.target.has(Capability::Stmatrix) && !repeats() && is_blocks(to, layout, &writable(k, to, layout))
            }
            Op::ZeroShared(_)
            | Op::SumCluster(..)
            | gpu_ops!(sources elementwise views fragments global products rings orders control) => false,
        }
}

/// True if a layout is made of 16x16 blocks whose 8x8 quarters lie over a warp as `ldmatrix` deals them, and all of it
/// lies in the buffer: an accumulator's layout, read or written along rows.
fn is_blocks(at: &SharedRef, layout: &Fragment, limits: &[u32]) -> bool {
    let lanes = [Mode::new(4, 2, 1), Mode::new(8, 1, 0)];
    layout.shape.len() == 2
        && !at.transposed
        && at.origin.1.is_multiple_of(8)
        && layout.threads.len() >= 2
        && layout.threads[..2] == lanes
        && layout.threads[2..].iter().all(|m| m.stride.is_multiple_of(8))
        && layout.reg_count().is_multiple_of(8)
        && (0..layout.reg_count()).step_by(8).all(|r| {
            let base = layout.reg_coord(r);
            (0..8).all(|i| {
                let c = layout.reg_coord(r + i);
                c[0] == base[0] + i / 2 % 2 * 8 && c[1] == base[1] + i % 2 + i / 4 * 8
            })
        })
        && (0..2).all(|a| layout.cover(a as u8) <= limits[a])
}
