//! How the warps of a CTA share out the tile that a product makes.

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
}
