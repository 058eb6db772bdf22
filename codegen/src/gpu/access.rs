//! How a fragment meets a shared buffer: what of it fits, and whether whole 8x8 blocks move by one instruction.
//!
//! # Promise
//! [`writable`] is a rectangle at the access's origin that no other range of the buffer's tile meets: stores drop what
//! lies outside, and loads read 0 there. [`is_read_by_matrix`] and [`is_written_by_matrix`] hold of exactly the accesses
//! that the emitter makes by matrix instructions, by which a lane touches elements that its layout gives to others.
//!
//! # Argument
//! Ranges of one tile differ in one axis of the buffer, and are padded to 16 there as buffers are. A range that begins
//! past 0, or ends 16 or more before the buffer, has neighbours: its own extent is the limit. Any other access has the
//! buffer to itself, and what it writes past its tile is padding, which nothing else of the buffer keeps. Emission and
//! barriers ask these functions and decide nothing for themselves.
//!
//! # Breaks it
//! - Padding of a range written over the next one: tests/agreement/exchanges.rs::columns_of_a_product_stay_in_their_buffers.
//! - A matrix access taken for one of each thread's own elements:
//!   tests/agreement/wrong_code.rs::matrix_accesses_belong_to_no_thread.
//! - Padding of an operand that no range writes:
//!   tests/agreement/arguments.rs::padding_of_an_operand_is_zero_whatever_ranges_write_it.

use super::{Kernel, SharedRef};
use crate::layout::{Fragment, Mode};
use atlas_dsl::DType;

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

/// True if a fragment is read by `ldmatrix`. A lane then reads rows of which other lanes hold the elements.
pub fn is_read_by_matrix(k: &Kernel, at: &SharedRef, dtype: DType, layout: &Fragment) -> bool {
    dtype.is_half() && is_blocks(at, layout, &writable(k, at, layout))
}

/// True if a fragment is written by `stmatrix`. A lane then writes rows of which other lanes hold the elements.
pub fn is_written_by_matrix(k: &Kernel, at: &SharedRef, dtype: DType, layout: &Fragment) -> bool {
    let repeats = layout.threads.iter().any(|m| m.axis.is_none() && m.extent > 1);
    k.target.has_stmatrix() && !repeats && is_read_by_matrix(k, at, dtype, layout)
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
