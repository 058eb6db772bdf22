//! How a fragment meets a shared buffer: what of it fits, and whether whole 8x8 blocks move by one instruction.

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
            // its own. Buffers are padded to 16 columns, and so are ranges.
            let (rows, cols) = if at.transposed { (second, first) } else { (first, second) };
            let partial = at.origin.1 != 0 || (!at.transposed && cols.next_multiple_of(16) < shared.cols);
            let rows = if at.origin.0 == 0 { shared.rows } else { rows };
            let cols = if partial { cols } else { shared.cols };
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
