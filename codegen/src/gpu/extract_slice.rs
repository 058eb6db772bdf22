//! The layout of a part of a tile (`Op::ExtractSlice`).

use crate::layout::{Fragment, Mode};

/// The layout of `len` elements from `offset` on along an axis, if every thread holds them in the same
/// registers; `None` otherwise. They may reach into the layout's padding. Register digits that leave the part are cut off.
pub fn slice_layout(layout: &Fragment, axis: u8, offset: u32, len: u32) -> Option<Fragment> {
    // Padding is a part too.
    let extent = (*layout.shape.get(usize::from(axis))?).max(layout.cover(axis));
    if len == 0 || offset.checked_add(len)? > extent || !offset.is_multiple_of(len) {
        return None;
    }
    let mut regs = Vec::new();
    for m in &layout.regs {
        if m.axis != Some(axis) {
            regs.push(*m);
        } else if m.stride < len {
            // A digit that crosses the end of the part keeps what lies inside.
            let inside = m.extent.min(len / m.stride.max(1));
            if inside < m.extent && !len.is_multiple_of(m.stride) {
                return None;
            }
            if inside > 1 {
                regs.push(Mode { extent: inside, ..*m });
            }
        }
    }
    let mut shape = layout.shape.clone();
    shape[usize::from(axis)] = len;
    let cut = Fragment { shape, threads: layout.threads.clone(), regs };
    (cut.cover(axis) == len).then_some(cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::atom::MmaAtom;
    use crate::gpu::warp_grid::{Split, WarpGrid};
    use std::collections::BTreeSet;

    #[test]
    fn a_thread_holds_of_a_part_what_it_holds_of_the_tile() {
        for (atom, warps, len) in
            [(MmaAtom::M16N8K16Bf16, 8, 64), (MmaAtom::M16N8K16Bf16, 4, 16), (MmaAtom::FmaF32, 4, 32)]
        {
            let whole = atom.accumulator(64, 256, atom.warp_grid(64, 256, warps, Split::Rows), warps);
            for offset in (0..256).step_by(len as usize) {
                let Some(part) = slice_layout(&whole, 1, offset, len) else { continue };
                for thread in 0..whole.thread_count() {
                    let inside = |c: &Vec<u32>| (offset..offset + len).contains(&c[1]);
                    let held: BTreeSet<_> =
                        (0..whole.reg_count()).map(|r| whole.coord(thread, r)).filter(inside).collect();
                    let found: BTreeSet<_> = (0..part.reg_count())
                        .map(|r| part.coord(thread, r))
                        .map(|c| vec![c[0], c[1] + offset])
                        .collect();
                    assert_eq!(held, found, "{part} at {offset} of {whole}");
                }
            }
        }
        assert!(
            slice_layout(&MmaAtom::M16N8K16Bf16.accumulator(64, 256, WarpGrid { rows: 4, cols: 1 }, 4), 1, 64, 64)
                .is_some()
        );
    }

    #[test]
    fn threads_that_hold_different_columns_have_no_common_part() {
        // Two warps along the columns: the second holds nothing of the first half.
        let split = MmaAtom::M16N8K16Bf16.accumulator(16, 64, WarpGrid { rows: 1, cols: 2 }, 2);
        assert_eq!(slice_layout(&split, 1, 0, 32), None);
        assert_eq!(slice_layout(&split, 0, 8, 16), None);
    }
}
