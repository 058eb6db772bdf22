//! What to write where the extents of two tiles differ.

use crate::check::Checker;
use crate::symbolic::{Size, Ty, list};

/// Two tiles of which one has a tile of a dim along an axis that is the whole dim in the other one.
pub(crate) struct PartAndWhole {
    /// Whether the first of the two has the tile.
    pub(crate) is_first: bool,
    /// The name of the tile's coordinate.
    pub(crate) tile: String,
    pub(crate) dim: String,
}

impl Checker<'_> {
    /// Finds such an axis. Axes are aligned at the last one.
    pub(crate) fn part_and_whole(&self, x: &Ty, y: &Ty) -> Option<PartAndWhole> {
        let (a, b) = (x.shape.as_deref()?, y.shape.as_deref()?);
        (1..=a.len().min(b.len())).find_map(|from_end| {
            let (p, q) = (a.len() - from_end, b.len() - from_end);
            if a[p].agrees(&b[q]) {
                return None;
            }
            let of = |part: &Ty, axis: usize, whole: &Size, is_first: bool| {
                let Size::Named { name, .. } = whole else { return None };
                let edge = part.edges.iter().find(|e| e.axis == axis && !e.repeats && e.cut.dim_name == *name)?;
                Some(PartAndWhole { is_first, tile: edge.tile.clone()?, dim: name.clone() })
            };
            of(x, p, &b[q], true).or_else(|| of(y, q, &a[p], false))
        })
    }

    /// The end of a message about two operands whose extents differ.
    pub(crate) fn extents_mend(&self, x: &Ty, y: &Ty) -> String {
        let (Some(a), Some(b)) = (&x.shape, &y.shape) else { return String::new() };
        let turned = |row: &[Size], tile: &[Size]| row.len() == 1 && tile.len() == 2 && row[0] == tile[0];
        let row = if turned(a, b) { Some(list(a)) } else { turned(b, a).then(|| list(b)) };
        if let Some(row) = row {
            return format!("; `.t()` makes a column of {row}");
        }
        let Some(PartAndWhole { is_first, tile, dim }) = self.part_and_whole(x, y) else { return String::new() };
        let (part, whole) = if is_first { ("left", "right") } else { ("right", "left") };
        format!(
            "; the {part} one has tile `{tile}` of {dim} there, and the {whole} one all of {dim}: load the {whole} one at `{tile}`, not `..`"
        )
    }
}
