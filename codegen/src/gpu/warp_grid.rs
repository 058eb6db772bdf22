//! How the warps of a CTA share out the tile that a product makes.

use crate::layout::Fragment;

pub use atlas_dsl::config::WarpGrid;

/// What a grid is chosen for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// Rows before columns: a warp has whole rows, which it reduces alone and which feed the next product from registers.
    #[default]
    Rows,
    /// The shape of part that takes the fewest operand blocks for a block of products.
    Both,
    /// The config's, with as many columns as there are.
    Given(WarpGrid),
}

/// The grid that an accumulator's layout says. Warps left over repeat what others do.
pub fn warp_grid_of(layout: &Fragment) -> WarpGrid {
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
