//! Which config of a bundle runs a problem, looked up in a table that was made with the bundle.
//!
//! A table is for one class of problems (a specialization) on one machine. Sizes that were asked for when the bundle
//! was made have rows of their own. All others fall into regions: each dim is cut at a few bounds, and each cell of the
//! lattice names the config that the cost model, corrected by tuning records, ranked first at the middle of the cell.
//! Sizes beyond the outermost bounds use the cell at the edge. A lookup measures nothing and lowers nothing.

use serde::{Deserialize, Serialize};

/// The most cells of a table. A larger table in a file was not made by this crate.
pub const MOST_CELLS: usize = 4096;

/// The choices for one class on one machine. Configs are given by their index among the class's variants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The machine that it was made for: a GPU's name if there were records of it, else an arch.
    pub machine: String,
    /// Sizes with a config of their own, sorted.
    pub exact: Vec<(Vec<u64>, u16)>,
    /// For each dim, the first size of each region but the first, ascending. Empty if all sizes are one region.
    pub bounds: Vec<Vec<u64>>,
    /// The config of each cell, with the last dim fastest.
    pub cells: Vec<u16>,
    /// All variants for this machine, those that are best most often first. They are tried in this order if a choice is
    /// refused.
    pub order: Vec<u16>,
}

impl Table {
    /// True if the table is consistent: it has as many cells as its bounds imply, and every config exists.
    pub(super) fn is_sound(&self, dims: usize, variants: usize) -> bool {
        let cells = self.bounds.iter().try_fold(1_usize, |n, b| n.checked_mul(b.len() + 1));
        let known = |&v: &u16| usize::from(v) < variants;
        self.bounds.len() == dims
            && cells.is_some_and(|n| n == self.cells.len() && n <= MOST_CELLS)
            && self.bounds.iter().all(|b| b.windows(2).all(|w| w[0] < w[1]))
            && self.exact.windows(2).all(|w| w[0].0 < w[1].0)
            && self.exact.iter().all(|(sizes, v)| sizes.len() == dims && known(v))
            && self.cells.iter().chain(&self.order).all(known)
            && !self.order.is_empty()
    }

    /// The variant for these sizes, and whether they have a row of their own.
    pub fn choose(&self, dims: &[u64]) -> Option<(u16, bool)> {
        if let Ok(at) = self.exact.binary_search_by(|(sizes, _)| sizes.as_slice().cmp(dims)) {
            return Some((self.exact[at].1, true));
        }
        let cell = self
            .bounds
            .iter()
            .zip(dims)
            .fold(0, |cell, (bounds, n)| cell * (bounds.len() + 1) + bounds.partition_point(|bound| bound <= n));
        self.cells.get(cell).map(|&v| (v, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            machine: "sm_90".to_owned(),
            exact: vec![(vec![5, 5], 3), (vec![100, 7], 2)],
            bounds: vec![vec![8, 64], vec![16]],
            cells: vec![0, 1, 2, 3, 4, 5],
            order: vec![0, 1, 2, 3, 4, 5],
        }
    }

    #[test]
    fn sizes_of_their_own_come_before_regions() {
        let choices = [[5, 5], [100, 7], [5, 6], [1, 16], [8, 15], [63, 99], [64, 0], [1 << 40, 1 << 40]];
        let chosen = choices.map(|dims| table().choose(&dims).unwrap());
        let expected = [(3, true), (2, true), (0, false), (1, false), (2, false), (3, false), (4, false), (5, false)];
        assert_eq!(chosen, expected);
    }

    #[test]
    fn a_table_that_does_not_hold_together_is_found_out() {
        assert!(table().is_sound(2, 6));
        assert!(!table().is_sound(2, 5) && !table().is_sound(3, 6));
        let broken = |change: fn(&mut Table)| {
            let mut t = table();
            change(&mut t);
            !t.is_sound(2, 6)
        };
        assert!(broken(|t| t.cells.truncate(5)));
        assert!(broken(|t| t.bounds[0].reverse()));
        assert!(broken(|t| t.exact.reverse()));
        assert!(broken(|t| t.order.clear()));
        assert!(broken(|t| t.bounds = vec![(0..5000).collect(), vec![16]]));
    }
}
