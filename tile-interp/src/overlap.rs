//! Whether two strided views share a byte, and whether one view holds an element twice.
//!
//! # Promise
//! `overlaps` is false only if no byte is in both views. `overlaps_itself` is false only if no byte is in two elements of the
//! view. True means that there is such a byte, or that the search gave up.
//!
//! # Argument
//! The addresses of a view are `base + Σ i·stride + byte`, each index in a range of its own. An axis with a negative stride is
//! counted from its other end. An axis that does not move is dropped (or it repeats its elements, which is an overlap with
//! itself). Two views overlap if an equation `Σ c·u = target` with `c > 0` and `0 ≤ u ≤ most` has a solution. It is the
//! difference of two addresses. The indices and bytes of the second view are counted from their ends, so that all terms are
//! added.
//!
//! A view overlaps itself if one of several such equations has a solution, one for each axis. Order the axes from fine to
//! coarse. Two elements differ in a coarsest axis, in which one of them is ahead by 1 to `size - 1`. The finer axes have to
//! compensate by differences of either sign, which are counted from their minimum. If every axis steps past everything that the
//! finer ones reach, they cannot compensate.
//!
//! The search goes from the largest coefficient down and tries each `u` between two bounds, because the finer terms add up to
//! at least 0 and at most `rest`. It only skips impossible cases: targets outside of that range, or not divisible by the
//! greatest common divisor of the remaining coefficients. In views made by slicing, permuting and expanding, at most two values
//! of each `u` survive. Beyond a budget, the answer is "overlap". Numbers are i128, which hold sums of a few offsets in an
//! address space of 64 bits.
//!
//! # Breaks it
//! - Strides of either sign, steps of 0, elements wider than steps: `agrees_with_every_byte_looked_at` (all small views).
//! - Interleaved columns and elements, windows, and knapsacks: the tests below it.
//! - Sharing at launch: runtime/tests/suite/binding.rs::an_output_shares_no_memory and an_output_repeats_no_element.
//! - The runtime and this interpreter use the same check for a written view, so they give the same answer:
//!   tests/chains.rs::an_interleaved_output_is_written.

/// Values that a search may try before it gives up.
const BUDGET: u32 = 4096;

/// A view as numbers: where its first element starts, the size of an element, and (size, stride in bytes) per axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    base: i128,
    element: i128,
    axes: Vec<(i128, i128)>,
}

impl Span {
    /// A view of elements of this many bytes whose first one is at `address`. Strides count elements.
    pub fn new(address: u64, element: u32, axes: impl Iterator<Item = (u64, i64)>) -> Span {
        let element = i128::from(element);
        let axes = axes.map(|(size, stride)| (i128::from(size), i128::from(stride) * element)).collect();
        Span { base: i128::from(address), element, axes }
    }

    /// True if this view and another share a byte, or if that is too hard to decide.
    pub fn overlaps(self, other: Span) -> bool {
        meet(self, other)
    }

    /// True if two elements of the view share a byte, or if that is too hard to decide.
    pub fn overlaps_itself(self) -> bool {
        meets_itself(self)
    }

    fn is_empty(&self) -> bool {
        self.axes.iter().any(|&(size, _)| size == 0)
    }

    /// The same addresses with every stride at least 0, and without axes that do not move.
    fn ascending(mut self) -> Span {
        self.base +=
            self.axes.iter().filter(|(_, stride)| *stride < 0).map(|(size, stride)| (size - 1) * stride).sum::<i128>();
        self.axes.iter_mut().for_each(|(_, stride)| *stride = stride.abs());
        self.axes.retain(|&(size, stride)| size > 1 && stride > 0);
        self
    }

    /// First byte, and one past the last.
    fn range(&self) -> (i128, i128) {
        let reach: i128 = self.axes.iter().map(|(size, stride)| (size - 1) * stride).sum();
        (self.base, self.base + reach + self.element)
    }
}

fn meet(a: Span, b: Span) -> bool {
    if a.is_empty() || b.is_empty() {
        return false;
    }
    let (a, b) = (a.ascending(), b.ascending());
    let ((a_start, a_end), (b_start, b_end)) = (a.range(), b.range());
    if a_end <= b_start || b_end <= a_start {
        return false;
    }
    // base_a + Σ i·s + x = base_b + Σ j·t + y. With j counted from its end, y from its end, all terms are positive.
    let target = b_end - 1 - a.base;
    let axes = a.axes.iter().chain(&b.axes).map(|&(size, stride)| (stride, size - 1));
    let bytes = (1, a.element - 1 + b.element - 1);
    Equation::new(axes.chain([bytes]).collect()).may_hold(target)
}

fn meets_itself(view: Span) -> bool {
    if view.is_empty() {
        return false;
    }
    if view.axes.iter().any(|&(size, stride)| size > 1 && stride == 0) {
        return true;
    }
    let Span { element, mut axes, .. } = view.ascending();
    axes.sort_unstable_by_key(|&(_, stride)| stride);
    // Axes that step past all that the finer ones reach: the usual view, and no search.
    let mut reach = element;
    let nested = axes.iter().all(|&(size, stride)| {
        let steps_past = stride >= reach;
        reach += stride * (size - 1);
        steps_past
    });
    // Two elements differ first in some axis, in which the one is ahead by 1 to size - 1; the finer axes make up for it.
    !nested
        && (0..axes.len()).any(|first| {
            let (size, stride) = axes[first];
            let finer = &axes[..first];
            let terms = finer.iter().map(|&(size, stride)| (stride, 2 * (size - 1)));
            let bytes = (1, 2 * (element - 1));
            let target = finer.iter().map(|(size, stride)| (size - 1) * stride).sum::<i128>() + element - 1 - stride;
            Equation::new(terms.chain([(stride, size - 2), bytes]).collect()).may_hold(target)
        })
}

/// `Σ c·u` with `0 ≤ u ≤ most`, the largest `c` first, no `c` twice.
struct Equation {
    terms: Vec<(i128, i128)>,
    /// For each position, the largest sum of the terms from there on, and their greatest common divisor.
    rest: Vec<(i128, i128)>,
    budget: u32,
}

impl Equation {
    fn new(mut terms: Vec<(i128, i128)>) -> Equation {
        terms.retain(|&(c, most)| c > 0 && most > 0);
        terms.sort_unstable_by(|a, b| b.cmp(a));
        // Equal coefficients are one term: two column blocks of a matrix have one row stride.
        let mut merged: Vec<(i128, i128)> = Vec::with_capacity(terms.len());
        for (c, most) in terms {
            match merged.last_mut() {
                Some((last, sum)) if *last == c => *sum += most,
                _ => merged.push((c, most)),
            }
        }
        let mut rest = vec![(0, 0); merged.len() + 1];
        for (i, &(c, most)) in merged.iter().enumerate().rev() {
            let (reach, divisor) = rest[i + 1];
            rest[i] = (reach + c * most, gcd(c, divisor));
        }
        Equation { terms: merged, rest, budget: BUDGET }
    }

    /// False if no values make the sum the target.
    fn may_hold(mut self, target: i128) -> bool {
        self.search(0, target)
    }

    fn search(&mut self, at: usize, target: i128) -> bool {
        let (reach, divisor) = self.rest[at];
        if target < 0 || target > reach || (divisor > 0 && target % divisor != 0) {
            return false;
        }
        let Some(&(c, most)) = self.terms.get(at) else { return target == 0 };
        // What is left of the target after this term must be within reach of the finer ones.
        let (finer, _) = self.rest[at + 1];
        let least = (target - finer + c - 1).div_euclid(c).max(0);
        for u in least..=(target / c).min(most) {
            if self.budget == 0 {
                return true;
            }
            self.budget -= 1;
            if self.search(at + 1, target - c * u) {
                return true;
            }
        }
        false
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn view(base: i128, element: i128, axes: &[(i128, i128)]) -> Span {
        Span { base, element, axes: axes.to_vec() }
    }

    /// Addresses of the bytes of each element.
    fn elements(v: &Span) -> Vec<i128> {
        v.axes.iter().fold(vec![v.base], |starts, &(size, stride)| {
            starts.iter().flat_map(|&at| (0..size).map(move |i| at + i * stride)).collect()
        })
    }

    fn bytes(v: &Span) -> BTreeSet<i128> {
        elements(v).iter().flat_map(|&at| at..at + v.element).collect()
    }

    fn repeats(v: &Span) -> bool {
        bytes(v).len() as i128 != elements(v).len() as i128 * v.element
    }

    prop_compose! {
        fn any_view()(
            base in 0..60_i128,
            element in prop::sample::select(vec![1_i128, 2, 4, 8]),
            axes in prop::collection::vec((0..5_i128, -12..24_i128), 0..5),
        ) -> Span {
            Span { base, element, axes }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn agrees_with_every_byte_looked_at(a in any_view(), b in any_view()) {
            let share = !bytes(&a).is_disjoint(&bytes(&b));
            prop_assert_eq!(meet(a.clone(), b.clone()), share, "{:?} {:?}", a, b);
            prop_assert_eq!(meets_itself(a.clone()), repeats(&a), "{:?}", a);
        }
    }

    #[test]
    fn column_blocks_of_a_large_matrix_are_apart() {
        let block = |from: i128, columns: i128| view(from * 2, 2, &[(1 << 20, 8192), (columns, 2)]);
        assert!(!meet(block(0, 2048), block(2048, 2048)));
        assert!(meet(block(0, 2049), block(2048, 2048)));
        assert!(!meets_itself(block(0, 4096)));
        assert!(meets_itself(block(0, 4097)));
    }

    #[test]
    fn even_and_odd_elements_are_apart() {
        let every_other = |from: i128| view(from * 4, 4, &[(1 << 30, 8)]);
        assert!(!meet(every_other(0), every_other(1)));
        // Read as 8 bytes they are not.
        assert!(meet(Span { element: 8, ..every_other(0) }, every_other(1)));
    }

    #[test]
    fn windows_of_a_row_overlap() {
        assert!(meets_itself(view(0, 4, &[(8, 4), (3, 4)])));
        assert!(meets_itself(view(0, 4, &[(2, 0)])));
        assert!(!meets_itself(view(0, 4, &[(1, 0), (3, 4)])));
    }

    #[test]
    fn what_is_too_hard_counts_as_overlapping() {
        // A knapsack of coprime strides.
        let hard: Vec<(i128, i128)> = (0..6).map(|i| (1 << 20, 1_000_003 + 1009 * i * i)).collect();
        assert!(meet(view(0, 1, &hard), view(7, 1, &hard)));
    }
}
