//! How the warps of a CTA share out the tile that a product makes.

use super::atom::MmaAtom;
use crate::layout::Fragment;

/// Warps along the rows and the columns of an accumulator. Those left over repeat what others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarpGrid {
    /// Warps along the rows; each has every so-manieth block of rows.
    pub rows: u32,
    /// Warps along the columns; each has a range of them.
    pub cols: u32,
}

/// What a grid is chosen for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// Rows before columns: a warp has whole rows, which it folds alone and which feed the next product from registers.
    #[default]
    Rows,
    /// The shape of part that takes the fewest operand blocks for a block of products.
    Both,
}

impl WarpGrid {
    /// Warps in use.
    pub fn warps(self) -> u32 {
        self.rows * self.cols
    }

    /// The grid of `warps` warps over a tile `[m, n]`: fewest products first, then as asked.
    pub fn choose(atom: MmaAtom, m: u32, n: u32, warps: u32, split: Split) -> WarpGrid {
        let blocks_n = n.div_ceil(atom.warp_block().1);
        let mut grids = Vec::new();
        for rows in (1..=warps).rev().filter(|m| warps.is_multiple_of(*m)) {
            let mut cols = (warps / rows).min(blocks_n.next_power_of_two());
            while !(warps / rows).is_multiple_of(cols) {
                cols -= 1;
            }
            grids.push(WarpGrid { rows, cols });
        }
        let key = |g: &WarpGrid| {
            let (m, n) = g.blocks(atom, m, n);
            (m * n, if split == Split::Both { atom.operand_reads(m, n) } else { 0 })
        };
        // Of equals the first, which has most rows.
        grids.into_iter().min_by_key(key).unwrap_or(WarpGrid { rows: 1, cols: 1 })
    }

    /// The grid that an accumulator's layout says.
    pub fn of(layout: &Fragment) -> WarpGrid {
        let (mut lanes, mut grid) = (1, WarpGrid { rows: 1, cols: 1 });
        for m in &layout.threads {
            match m.axis {
                Some(0) if lanes >= 32 => grid.rows *= m.extent,
                Some(1) if lanes >= 32 => grid.cols *= m.extent,
                _ => {}
            }
            lanes *= m.extent;
        }
        grid
    }

    /// Blocks of rows and of columns of a product `[m, n]` that a warp has.
    pub fn blocks(self, atom: MmaAtom, m: u32, n: u32) -> (u32, u32) {
        let (block_m, block_n) = atom.warp_block();
        (m.div_ceil(block_m * self.rows), n.div_ceil(block_n * self.cols))
    }
}
