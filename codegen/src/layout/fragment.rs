//! Register layouts: which thread holds which elements, in which of its registers.

use atlas_dsl::DType;
use std::collections::BTreeSet;
use std::fmt;

/// Threads of a warpgroup.
const WARPGROUP_THREADS: u32 = 128;

/// One digit of a mixed-radix number and what it adds to a coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mode {
    /// Number of values of the digit.
    pub extent: u32,
    /// Elements per unit of the digit.
    pub stride: u32,
    /// The tile axis it moves along; `None` repeats the same elements.
    pub axis: Option<u8>,
}

impl Mode {
    /// A mode along an axis.
    pub const fn new(extent: u32, stride: u32, axis: u8) -> Mode {
        Mode { extent, stride, axis: Some(axis) }
    }

    /// A mode that repeats the same elements.
    pub const fn replicated(extent: u32) -> Mode {
        Mode { extent, stride: 0, axis: None }
    }
}

impl fmt::Display for Mode {
    /// `4:2@1`, or `32:_` where elements repeat.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.axis {
            Some(axis) => write!(f, "{}:{}@{axis}", self.extent, self.stride),
            None => write!(f, "{}:_", self.extent),
        }
    }
}

/// A distribution of a tile over the threads of a CTA and their registers.
///
/// Post-conditions of every constructor: each element of `shape` is held by some (thread, register);
/// the product of the thread extents is the number of threads; elements outside `shape` are padding.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fragment {
    /// The tile's extents.
    pub shape: Vec<u32>,
    /// Digits of the thread index, fastest first; a warp's 32 lanes are a prefix of the list.
    pub threads: Vec<Mode>,
    /// Digits of the register index, fastest first; none is replicated.
    pub regs: Vec<Mode>,
}

impl fmt::Display for Fragment {
    /// `[64, 64] threads (4:2@1, 8:1@0, 4:16@0) regs (2:1@1, 2:8@0, 8:8@1)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |m: &[Mode]| m.iter().map(Mode::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "{:?} threads ({}) regs ({})", self.shape, list(&self.threads), list(&self.regs))
    }
}

/// Merges neighbouring digits that continue each other and drops digits of one value.
fn coalesced(modes: &[Mode]) -> impl Iterator<Item = Mode> {
    let mut rest = modes.iter().copied().filter(|m| m.extent != 1).peekable();
    std::iter::from_fn(move || {
        let mut digit = rest.next()?;
        let continues = |digit: &Mode, m: &Mode| {
            m.axis == digit.axis && (m.axis.is_none() || m.stride == digit.stride * digit.extent)
        };
        while let Some(m) = rest.next_if(|m| continues(&digit, m)) {
            digit.extent *= m.extent;
        }
        Some(digit)
    })
}

/// What digits add to the coordinate along one axis.
fn along(modes: &[Mode], mut index: u32, axis: u8) -> u32 {
    let mut coord = 0;
    for m in modes {
        if m.axis == Some(axis) {
            coord += index % m.extent * m.stride;
        }
        index /= m.extent;
    }
    coord
}

impl Fragment {
    /// Every thread holds the whole tile of one element: the layout of a scalar.
    pub fn scalar(threads: u32, rank: usize) -> Fragment {
        Fragment { shape: vec![1; rank], threads: vec![Mode::replicated(threads)], regs: Vec::new() }
    }

    /// Number of registers of each thread.
    pub fn reg_count(&self) -> u32 {
        self.regs.iter().map(|m| m.extent).product()
    }

    /// Number of threads.
    pub fn thread_count(&self) -> u32 {
        self.threads.iter().map(|m| m.extent).product()
    }

    /// The coordinates that a register adds to its thread's.
    pub fn reg_coord(&self, reg: u32) -> Vec<u32> {
        Self::digits(&self.regs, reg, self.shape.len())
    }

    /// The coordinates of a thread's register 0.
    pub fn thread_coord(&self, thread: u32) -> Vec<u32> {
        Self::digits(&self.threads, thread, self.shape.len())
    }

    /// The coordinates of a register of a thread.
    pub fn coord(&self, thread: u32, reg: u32) -> Vec<u32> {
        self.thread_coord(thread).iter().zip(self.reg_coord(reg)).map(|(a, b)| a + b).collect()
    }

    /// True if the tile is a matrix and no row belongs to two warpgroups: warpgroups take turns at blocks of `block` rows.
    pub fn warpgroups_have_rows(&self, block: u32) -> bool {
        let (&[rows, _], threads) = (&self.shape[..], self.thread_count()) else { return false };
        let warpgroups = threads / WARPGROUP_THREADS;
        let of_regs: BTreeSet<u32> = (0..self.reg_count()).map(|reg| along(&self.regs, reg, 0)).collect();
        let of_regs = Vec::from_iter(of_regs);
        let is_own = |thread: u32| {
            let first = along(&self.threads, thread, 0);
            of_regs.iter().all(|row| (first + row) / block % warpgroups == thread / WARPGROUP_THREADS)
        };
        threads.is_multiple_of(WARPGROUP_THREADS) && rows.is_multiple_of(block) && (0..threads).all(is_own)
    }

    fn digits(modes: &[Mode], mut index: u32, rank: usize) -> Vec<u32> {
        let mut coord = vec![0; rank];
        for m in modes {
            if let Some(axis) = m.axis {
                coord[usize::from(axis)] += index % m.extent * m.stride;
            }
            index /= m.extent;
        }
        coord
    }

    /// The largest coordinate along an axis that a thread contributes.
    pub fn max_thread_coord(&self, axis: u8) -> u32 {
        self.threads.iter().filter(|m| m.axis == Some(axis)).map(|m| (m.extent - 1) * m.stride).sum()
    }

    /// One past the largest coordinate along an axis: the extent with padding.
    pub fn cover(&self, axis: u8) -> u32 {
        1 + self
            .threads
            .iter()
            .chain(&self.regs)
            .filter(|m| m.axis == Some(axis))
            .map(|m| (m.extent - 1) * m.stride)
            .sum::<u32>()
    }

    /// Elements that registers which follow one another hold side by side along an axis: a power of two, at most `limit`.
    /// All that threads and other registers move along the axis is a multiple of it.
    pub fn run(&self, axis: u8, limit: u32) -> u32 {
        let Some(first) = self.regs.first() else { return 1 };
        if first.axis != Some(axis) || first.stride != 1 {
            return 1;
        }
        let mut run = 1;
        while run * 2 <= limit && first.extent.is_multiple_of(run * 2) {
            run *= 2;
        }
        let others = self.regs[1..].iter().chain(&self.threads).filter(|m| m.axis == Some(axis));
        while run > 1 && !others.clone().all(|m| m.stride.is_multiple_of(run)) {
            run /= 2;
        }
        run
    }

    /// True if some (thread, register) lies outside the tile along the axis.
    pub fn is_padded(&self, axis: u8) -> bool {
        self.cover(axis) > self.shape[usize::from(axis)]
    }

    /// The same map in canonical form: equal maps written with other digits become equal values.
    #[must_use]
    pub fn canonical(&self) -> Fragment {
        let (threads, regs) = (coalesced(&self.threads).collect(), coalesced(&self.regs).collect());
        Fragment { shape: self.shape.clone(), threads, regs }
    }

    /// True if both give every (thread, register) the same element.
    pub fn same_map(&self, other: &Fragment) -> bool {
        // Most layouts that are compared are the same one, and values of one layout share it.
        let same_digits = |a: &[Mode], b: &[Mode]| coalesced(a).eq(coalesced(b));
        std::ptr::eq(self, other)
            || self == other
            || (self.shape == other.shape
                && same_digits(&self.threads, &other.threads)
                && same_digits(&self.regs, &other.regs))
    }

    /// The layout of this tile after reducing `axes`, which stay with extent 1. Registers along the
    /// axes are gone; threads along them hold the same element.
    #[must_use]
    pub fn reduce(&self, axes: &[u8]) -> Fragment {
        let on = |m: &Mode| m.axis.is_some_and(|a| axes.contains(&a));
        Fragment {
            shape: self.shape.iter().enumerate().map(|(i, &e)| if axes.contains(&(i as u8)) { 1 } else { e }).collect(),
            threads: self.threads.iter().map(|m| if on(m) { Mode::replicated(m.extent) } else { *m }).collect(),
            regs: self.regs.iter().filter(|m| !on(m)).copied().collect(),
        }
    }

    /// The layout in which a tile of extents `source` broadcasts to this layout for free.
    ///
    /// `source` is aligned with this shape at the last axis; its axes of extent 1 repeat.
    #[must_use]
    pub fn broadcast_source(&self, source: &[u32]) -> Fragment {
        let lead = self.shape.len() - source.len();
        let axes: Vec<u8> = (0..self.shape.len())
            .filter(|&i| i < lead || (source[i - lead] == 1 && self.shape[i] != 1))
            .map(|i| i as u8)
            .collect();
        let reduced = self.reduce(&axes);
        let drop = |m: &Mode| Mode { axis: m.axis.map(|a| a - lead as u8), ..*m };
        // Axes of extent 1 in the source hold one element, whatever padding the result had there.
        let keep_unit = |m: &Mode| m.axis.is_some_and(|a| source[usize::from(a)] == 1);
        let threads =
            reduced.threads.iter().map(drop).map(|m| if keep_unit(&m) { Mode::replicated(m.extent) } else { m });
        let threads = threads.collect();
        let regs = reduced.regs.iter().map(drop).filter(|m| !keep_unit(m)).collect();
        Fragment { shape: source.to_vec(), threads, regs }
    }

    /// The layout in which every thread and register that is padding along an axis of extent 1 holds that axis's element.
    #[must_use]
    pub fn without_unit_padding(&self) -> Fragment {
        let unit = |m: &Mode| m.axis.is_some_and(|a| self.shape[usize::from(a)] == 1);
        Fragment {
            shape: self.shape.clone(),
            threads: self.threads.iter().map(|m| if unit(m) { Mode::replicated(m.extent) } else { *m }).collect(),
            regs: self.regs.iter().filter(|m| !unit(m)).copied().collect(),
        }
    }

    /// True if threads are padding along an axis of extent 1: what they hold is no element.
    pub fn has_unit_padding(&self) -> bool {
        self.threads.iter().any(|m| m.extent > 1 && m.axis.is_some_and(|a| self.shape[usize::from(a)] == 1))
    }

    /// The layout after adding or dropping axes of extent 1, of a fragment without unit padding; `None` if `shape` asks for more than that.
    pub fn reshape(&self, shape: &[u32]) -> Option<Fragment> {
        let from: Vec<usize> = (0..self.shape.len()).filter(|&i| self.shape[i] != 1).collect();
        let to: Vec<usize> = (0..shape.len()).filter(|&i| shape[i] != 1).collect();
        if from.len() != to.len() || !from.iter().zip(&to).all(|(&i, &j)| self.shape[i] == shape[j]) {
            return None;
        }
        let map = |m: &Mode| match m.axis {
            None => Some(*m),
            Some(a) => from.iter().position(|&i| i == usize::from(a)).map(|k| Mode { axis: Some(to[k] as u8), ..*m }),
        };
        Some(Fragment {
            shape: shape.to_vec(),
            threads: self.threads.iter().map(|m| map(m).unwrap_or(Mode::replicated(m.extent))).collect(),
            // A digit along an axis of extent 1 is padding: only its first register is an element.
            regs: self.regs.iter().filter_map(map).collect(),
        })
    }

    /// Exchanges the axes of a rank-2 layout.
    #[must_use]
    pub fn transpose(&self) -> Fragment {
        let swap = |m: &Mode| Mode { axis: m.axis.map(|a| 1 - a), ..*m };
        Fragment {
            shape: self.shape.iter().rev().copied().collect(),
            threads: self.threads.iter().map(swap).collect(),
            regs: self.regs.iter().map(swap).collect(),
        }
    }

    /// A coalesced layout for global memory: `vector` consecutive elements of the last axis per register
    /// group, lanes along the last axis first, then rows; warps over rows while there are rows, then columns.
    pub fn blocked(shape: &[u32], vector: u32, warps: u32) -> Fragment {
        let rank = shape.len();
        if rank == 0 {
            return Fragment::scalar(warps * 32, 0);
        }
        let inner = (rank - 1) as u8;
        let cols = shape[rank - 1];
        let mut vector = vector.max(1);
        while !cols.is_multiple_of(vector) {
            vector /= 2;
        }
        let chunks = cols / vector;
        // Lanes along the row: a power of two that wastes at most a third of them.
        let mut lanes = 1;
        while lanes < 32 && lanes < chunks {
            let next = lanes * 2;
            let padded = chunks.div_ceil(next) * next;
            if (padded - chunks) * 3 > padded {
                break;
            }
            lanes = next;
        }
        let mut threads = vec![Mode::new(lanes, vector, inner)];
        let mut regs = vec![Mode::new(vector, 1, inner)];
        // Rows: all outer axes, last first.
        let mut left = 32 / lanes;
        let mut row_of_lane = Vec::new();
        let outer: Vec<(u8, u32)> = (0..rank - 1).rev().map(|i| (i as u8, shape[i])).collect();
        let mut used = vec![1u32; rank];
        for &(axis, extent) in &outer {
            let take = left.min(extent.next_power_of_two());
            row_of_lane.push(Mode::new(take, 1, axis));
            used[usize::from(axis)] = take;
            left /= take;
        }
        threads.extend(row_of_lane);
        threads.push(Mode::replicated(left));
        // Warps: over the remaining rows, then over the remaining columns, else repeated.
        let mut warps_left = warps;
        for &(axis, extent) in &outer {
            let rows = extent.div_ceil(used[usize::from(axis)]);
            let take = largest_divisor(warps_left, rows);
            threads.push(Mode::new(take, used[usize::from(axis)], axis));
            used[usize::from(axis)] *= take;
            warps_left /= take;
        }
        let column_groups = chunks.div_ceil(lanes);
        let take = largest_divisor(warps_left, column_groups);
        threads.push(Mode::new(take, lanes * vector, inner));
        warps_left /= take;
        threads.push(Mode::replicated(warps_left));
        regs.push(Mode::new(chunks.div_ceil(lanes * take), lanes * take * vector, inner));
        for &(axis, extent) in &outer {
            let done = used[usize::from(axis)];
            regs.push(Mode::new(extent.div_ceil(done), done, axis));
        }
        let keep = |m: &Mode| m.extent != 1;
        Fragment {
            shape: shape.to_vec(),
            threads: threads.into_iter().filter(keep).collect(),
            regs: regs.into_iter().filter(keep).collect(),
        }
    }
}

/// The largest divisor of `n` that is at most `limit`.
pub(super) fn largest_divisor(n: u32, limit: u32) -> u32 {
    (1..=n.min(limit.max(1))).rev().find(|d| n.is_multiple_of(*d)).unwrap_or(1)
}

/// 32-bit registers of a thread that a tile takes, packed.
pub(crate) fn words((dtype, layout): (DType, &Fragment)) -> u32 {
    (layout.reg_count() * dtype.bytes()).div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holds_everything(f: &Fragment) -> bool {
        let total: u32 = f.shape.iter().product();
        let mut seen = vec![false; total as usize];
        for t in 0..f.thread_count() {
            for r in 0..f.reg_count() {
                let c = f.coord(t, r);
                if c.iter().zip(&f.shape).all(|(c, e)| c < e) {
                    let i = c.iter().zip(&f.shape).fold(0, |i, (c, e)| i * e + c);
                    seen[i as usize] = true;
                }
            }
        }
        seen.into_iter().all(|s| s)
    }

    proptest! {
        #[test]
        fn blocked_holds_every_element(rows in 1u32..40, cols in 1u32..300, log in 0u32..5, warps in 1u32..9) {
            let f = Fragment::blocked(&[rows, cols], 1 << log, warps);
            prop_assert_eq!(f.thread_count(), warps * 32);
            prop_assert!(holds_everything(&f));
        }

        #[test]
        fn canonical_form_is_the_same_map(rows in 1u32..33, cols in 1u32..130, warps in 1u32..9) {
            let f = Fragment::blocked(&[rows, cols], 4, warps);
            let g = f.canonical();
            for t in (0..f.thread_count()).step_by(7) {
                for r in 0..f.reg_count() {
                    prop_assert_eq!(f.coord(t, r), g.coord(t, r));
                }
            }
        }

        #[test]
        fn transpose_swaps_coordinates(rows in 1u32..33, cols in 1u32..66) {
            let f = Fragment::blocked(&[rows, cols], 2, 4);
            let g = f.transpose();
            for t in 0..128 {
                for r in 0..f.reg_count() {
                    let mut c = f.coord(t, r);
                    c.reverse();
                    prop_assert_eq!(c, g.coord(t, r));
                }
            }
        }

        #[test]
        fn broadcast_source_agrees_with_its_result(rows in 1u32..33, cols in 1u32..66, by_row: bool) {
            let f = Fragment::blocked(&[rows, cols], 2, 4);
            let source = if by_row { vec![rows, 1] } else { vec![cols] };
            let g = f.broadcast_source(&source);
            // Register digits of the source are a sub-list of the result's.
            prop_assert!(holds_everything(&g));
            prop_assert_eq!(g.thread_count(), f.thread_count());
        }
    }

    #[test]
    fn a_missing_thread_is_noticed() {
        let mut f = Fragment::blocked(&[8, 64], 4, 4);
        f.regs.pop();
        f.threads[0].extent = 1;
        assert!(!holds_everything(&f));
    }
}
