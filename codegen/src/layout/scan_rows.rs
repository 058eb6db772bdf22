//! Rows of a tile within a warp, along which scans go.

use super::fragment::{Fragment, Mode, largest_divisor};

/// Lanes of a warp.
const LANES: u32 = 32;

/// Who holds the elements of a row that differ in one digit of their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowDigit {
    /// The registers of a thread whose numbers differ by a multiple of `step`.
    Registers {
        /// Number of values of the digit.
        extent: u32,
        /// Registers per unit of the digit.
        step: u32,
    },
    /// The lanes of a warp whose numbers differ by a multiple of `step`. Both are powers of two.
    Lanes {
        /// Number of values of the digit.
        extent: u32,
        /// Lanes per unit of the digit.
        step: u32,
    },
}

impl Fragment {
    /// The digits of an index along an axis, the one of the smallest steps first; `None` if warps share a row, or if elements of
    /// one digit lie between those of another.
    pub fn row_digits(&self, axis: u8) -> Option<Vec<RowDigit>> {
        if usize::from(axis) >= self.shape.len() {
            return None;
        }
        let mut digits: Vec<(u32, RowDigit)> = Vec::new();
        let along = |m: &Mode| m.axis == Some(axis) && m.extent > 1;
        let mut step = 1;
        for m in &self.regs {
            if along(m) {
                digits.push((m.stride, RowDigit::Registers { extent: m.extent, step }));
            }
            step *= m.extent;
        }
        step = 1;
        for m in &self.threads {
            if along(m) {
                if step * m.extent > LANES || !m.extent.is_power_of_two() || !step.is_power_of_two() {
                    return None;
                }
                digits.push((m.stride, RowDigit::Lanes { extent: m.extent, step }));
            }
            step *= m.extent;
        }
        digits.sort_by_key(|&(stride, _)| stride);
        let mut expected = 1;
        for &(stride, digit) in &digits {
            if stride != expected {
                return None;
            }
            let (RowDigit::Registers { extent, .. } | RowDigit::Lanes { extent, .. }) = digit;
            expected *= extent;
        }
        Some(digits.into_iter().map(|(_, digit)| digit).collect())
    }

    /// A layout each of whose rows along an axis is in one warp. A thread has consecutive elements of a row. The fewer lanes share
    /// one, the fewer shuffles a scan takes, so they are as many as leave no thread without a row.
    pub fn of_scan(shape: &[u32], axis: u8, warps: u32) -> Fragment {
        let extent = shape[usize::from(axis)];
        let others = || (0..shape.len() as u8).rev().filter(|&a| a != axis);
        let rows: u32 = others().map(|a| shape[usize::from(a)]).product();
        let mut lanes = 1;
        while lanes < LANES && lanes < extent && rows * lanes < LANES * warps {
            lanes *= 2;
        }
        let in_thread = extent.div_ceil(lanes);
        let mut threads = vec![Mode::new(lanes, in_thread, axis)];
        let mut used = vec![1; shape.len()];
        let mut take = |threads: &mut Vec<Mode>, left: u32, share: &dyn Fn(u32, u32) -> u32| {
            let left = others().fold(left, |left, a| {
                let used = &mut used[usize::from(a)];
                let taken = share(left, shape[usize::from(a)].div_ceil(*used));
                threads.push(Mode::new(taken, *used, a));
                *used *= taken;
                left / taken
            });
            threads.push(Mode::replicated(left));
        };
        take(&mut threads, LANES / lanes, &|left, rows| left.min(rows.next_power_of_two()));
        take(&mut threads, warps, &largest_divisor);
        let mut regs = vec![Mode::new(in_thread, 1, axis)];
        regs.extend(others().map(|a| {
            let used = used[usize::from(a)];
            Mode::new(shape[usize::from(a)].div_ceil(used), used, a)
        }));
        Fragment { shape: shape.to_vec(), threads, regs }.canonical()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_layout_of_a_scan_has_every_element_and_rows_within_warps() {
        let shapes: [&[u32]; 9] =
            [&[1], &[7], &[4096], &[64, 64], &[1, 1000], &[1000, 1], &[5, 40], &[3, 17, 33], &[128, 2]];
        for shape in shapes {
            for axis in 0..shape.len() as u8 {
                for warps in [1, 4, 8] {
                    let layout = Fragment::of_scan(shape, axis, warps);
                    assert_eq!(layout.thread_count(), 32 * warps, "{layout}");
                    assert!(layout.row_digits(axis).is_some(), "{layout} along {axis}");
                    let of_thread = |t| (0..layout.reg_count()).map(move |r| (t, r));
                    let all: BTreeSet<Vec<u32>> =
                        (0..32 * warps).flat_map(of_thread).map(|(t, r)| layout.coord(t, r)).collect();
                    let inside = |c: &&Vec<u32>| c.iter().zip(shape).all(|(c, extent)| c < extent);
                    assert_eq!(all.iter().filter(inside).count() as u32, shape.iter().product::<u32>(), "{layout}");
                }
            }
        }
    }

    #[test]
    fn rows_that_warps_share_are_none_of_a_scan() {
        let of = |threads: &[Mode], regs: &[Mode]| {
            Fragment { shape: vec![64], threads: threads.to_vec(), regs: regs.to_vec() }.row_digits(0)
        };
        assert_eq!(of(&[Mode::new(32, 1, 0), Mode::new(2, 32, 0)], &[]), None);
        assert_eq!(of(&[Mode::new(64, 1, 0)], &[]), None);
        // The elements of a thread lie between those of the next.
        assert_eq!(of(&[Mode::new(32, 4, 0)], &[Mode::new(2, 1, 0)]), None);
        let digits = of(&[Mode::new(32, 1, 0)], &[Mode::new(2, 32, 0)]);
        let lanes = RowDigit::Lanes { extent: 32, step: 1 };
        assert_eq!(digits, Some(vec![lanes, RowDigit::Registers { extent: 2, step: 1 }]));
    }
}
