//! The layout of fewer columns of a tile.

use super::{Fragment, Mode};

impl Fragment {
    /// The layout of a tile of so many columns, which threads share as they do here, in vectors as long: the outermost
    /// register digit of the last axis is cut. `None` if it does not divide or is the vector, or if there is padding.
    pub fn narrowed(&self, len: u32) -> Option<Fragment> {
        let axis = self.shape.len().checked_sub(1)?;
        let cols = self.shape[axis];
        let last = Some(axis as u8);
        if len == 0 || !cols.is_multiple_of(len) || self.is_padded(axis as u8) {
            return None;
        }
        let parts = cols / len;
        let outer = self.regs.iter().filter(|m| m.axis == last && m.stride > 1).max_by_key(|m| m.stride)?;
        if !outer.extent.is_multiple_of(parts) {
            return None;
        }
        // What lay beyond the digit moves up.
        let narrower = |m: &Mode| match m.axis == last {
            true if m == outer => Mode { extent: m.extent / parts, ..*m },
            true if m.stride > outer.stride => Mode { stride: m.stride / parts, ..*m },
            _ => *m,
        };
        let narrower = |modes: &[Mode]| modes.iter().map(narrower).filter(|m| m.extent != 1).collect();
        let mut shape = self.shape.clone();
        shape[axis] = len;
        let cut = Fragment { shape, threads: narrower(&self.threads), regs: narrower(&self.regs) };
        (cut.cover(axis as u8) == len).then_some(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::atom::MmaAtom;
    use crate::gpu::{Split, WarpGrid, warp_grid_of};

    #[test]
    fn columns_of_an_accumulator_are_one() {
        for atom in [MmaAtom::M16N8K16Bf16, MmaAtom::M16N8K8Tf32, MmaAtom::FmaF32] {
            for split in [Split::Rows, Split::Both] {
                let grid = atom.warp_grid(64, 512, 8, split);
                for len in [128, 256] {
                    let cut = atom.accumulator(64, 512, grid, 8).narrowed(len).expect("columns");
                    assert_eq!(cut, atom.accumulator(64, len, grid, 8));
                    assert_eq!(warp_grid_of(&cut), grid);
                }
            }
        }
    }

    #[test]
    fn every_element_is_held_still() {
        for shape in [[4, 4096], [1, 2048], [3, 2048]] {
            let whole = Fragment::blocked(&shape, 8, 4);
            let cut = whole.narrowed(shape[1] / 2).expect("half");
            let mut held: Vec<_> = (0..128)
                .flat_map(|t| (0..cut.reg_count()).map(move |r| (t, r)))
                .map(|(t, r)| cut.coord(t, r))
                .collect();
            held.sort();
            held.dedup();
            held.retain(|c| c[0] < shape[0]);
            assert_eq!(held.len() as u32, shape[0] * shape[1] / 2, "{cut}");
        }
    }

    #[test]
    fn vectors_are_not_cut() {
        assert_eq!(Fragment::blocked(&[64, 256], 8, 2).narrowed(64), None);
        // Padded: 40 columns in blocks of 16.
        let padded = MmaAtom::M16N8K16Bf16.accumulator(16, 40, WarpGrid { rows: 1, cols: 1 }, 1);
        assert_eq!(padded.narrowed(20), None);
    }
}
