//! A pairwise cover: few candidates in which every two levels of two factors that can stand together do so.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Picks candidates until every pair of levels that an accepted candidate has is in one that was picked.
///
/// Greedy and deterministic: the candidate with most new pairs goes first, among equals the earlier one. `levels` gives
/// the level of each factor, of which all candidates have as many; `accept` is asked of each candidate at most once, when it is
/// about to be picked.
pub fn pairwise<T>(candidates: Vec<T>, levels: impl Fn(&T) -> Vec<u64>, mut accept: impl FnMut(&T) -> bool) -> Vec<T> {
    let table = PairTable::new(candidates.iter().map(levels));
    // The new pairs of each candidate, kept as pairs are covered.
    let mut gains = vec![table.pairs.len(); candidates.len()];
    // By gain. A gain may be out of date here, and then it is too large.
    let mut order: BinaryHeap<(usize, Reverse<usize>)> =
        gains.iter().enumerate().map(|(at, &gain)| (gain, Reverse(at))).collect();
    let mut left: Vec<Option<T>> = candidates.into_iter().map(Some).collect();
    let mut covered = vec![false; table.size];
    let mut picked = Vec::new();
    while let Some((gain, Reverse(at))) = order.pop() {
        let new = gains[at];
        if new == 0 {
            continue;
        }
        if new < gain {
            order.push((new, Reverse(at)));
            continue;
        }
        gains[at] = 0;
        let Some(candidate) = left[at].take() else { continue };
        if !accept(&candidate) {
            continue;
        }
        for pair in 0..table.pairs.len() {
            if !std::mem::replace(&mut covered[table.number(at, pair)], true) {
                table.each_with(at, pair, |holder| gains[holder] = gains[holder].saturating_sub(1));
            }
        }
        picked.push(candidate);
    }
    picked
}

/// Which levels candidates have, with a number for each pair of levels.
struct PairTable {
    /// The factors of a row.
    factors: usize,
    /// The levels of each candidate, by their numbers within a factor: a row for each.
    levels: Vec<u32>,
    /// The candidates with each level of each factor.
    holders: Vec<Vec<Vec<u32>>>,
    /// Every two factors. A single one is paired with itself.
    pairs: Vec<FactorPair>,
    /// Pairs of levels in all.
    size: usize,
}

/// Two factors, the number of their first pair of levels, and how many levels the second has.
struct FactorPair {
    factors: [usize; 2],
    first: usize,
    width: usize,
}

impl PairTable {
    fn new(rows: impl Iterator<Item = Vec<u64>>) -> PairTable {
        let mut numbers: Vec<HashMap<u64, u32>> = Vec::new();
        let mut holders: Vec<Vec<Vec<u32>>> = Vec::new();
        let mut levels = Vec::new();
        for (at, row) in (0..).zip(rows) {
            numbers.resize_with(row.len().max(numbers.len()), HashMap::new);
            holders.resize_with(numbers.len(), Vec::new);
            for ((level, numbers), holders) in row.into_iter().zip(&mut numbers).zip(&mut holders) {
                let next = holders.len() as u32;
                let number = *numbers.entry(level).or_insert(next);
                if number == next {
                    holders.push(Vec::new());
                }
                holders[number as usize].push(at);
                levels.push(number);
            }
        }
        let factors = holders.len();
        let later = |i: usize| if factors == 1 { i } else { i + 1 };
        let (mut pairs, mut size) = (Vec::new(), 0);
        for (i, j) in (0..factors).flat_map(|i| (later(i)..factors).map(move |j| (i, j))) {
            pairs.push(FactorPair { factors: [i, j], first: size, width: holders[j].len() });
            size += holders[i].len() * holders[j].len();
        }
        PairTable { factors, levels, holders, pairs, size }
    }

    fn level(&self, candidate: usize, factor: usize) -> usize {
        self.levels[candidate * self.factors + factor] as usize
    }

    /// The number of the levels that a candidate has in a pair of factors.
    fn number(&self, candidate: usize, pair: usize) -> usize {
        let FactorPair { factors: [i, j], first, width } = self.pairs[pair];
        first + self.level(candidate, i) * width + self.level(candidate, j)
    }

    /// Calls `f` for all candidates with the levels that one has in a pair of factors.
    fn each_with(&self, candidate: usize, pair: usize, mut f: impl FnMut(usize)) {
        let [i, j] = self.pairs[pair].factors;
        let [of_i, of_j] = [i, j].map(|factor| &self.holders[factor][self.level(candidate, factor)]);
        let (few, other) = if of_i.len() < of_j.len() { (of_i, j) } else { (of_j, i) };
        let level = self.level(candidate, other);
        for &holder in few {
            if self.level(holder as usize, other) == level {
                f(holder as usize);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::pairwise;
    use std::cmp::Reverse;
    use std::collections::BTreeSet;

    fn grid() -> Vec<Vec<u64>> {
        let all = |n: u64| 0..n;
        all(4).flat_map(|a| all(3).flat_map(move |b| all(3).map(move |c| vec![a, b, c]))).collect()
    }

    #[test]
    fn every_pair_is_covered_by_few() {
        let cover = pairwise(grid(), Vec::clone, |_| true);
        for (i, j) in [(0, 1), (0, 2), (1, 2)] {
            for row in grid() {
                assert!(cover.iter().any(|c| (c[i], c[j]) == (row[i], row[j])), "{row:?}");
            }
        }
        assert!((12..=15).contains(&cover.len()), "{} of 36", cover.len());
        assert_eq!(cover, pairwise(grid(), Vec::clone, |_| true));
    }

    #[test]
    fn what_is_refused_is_covered_by_others() {
        let cover = pairwise(grid(), Vec::clone, |c| c[0] + c[1] != 3);
        assert!(cover.iter().all(|c| c[0] + c[1] != 3));
        assert!(cover.iter().any(|c| c[1..] == [2, 2]), "a pair that stays possible");
        assert!(pairwise(grid(), Vec::clone, |_| false).is_empty());
    }

    #[test]
    fn one_factor_is_covered_by_its_levels() {
        assert_eq!(pairwise(vec![3, 1, 3, 2], |&n| vec![n], |_| true), [3, 1, 2]);
    }

    /// The same, by its definition.
    fn by_definition(candidates: &[Vec<u64>], mut accept: impl FnMut(&Vec<u64>) -> bool) -> Vec<Vec<u64>> {
        let pairs = |c: &Vec<u64>| -> BTreeSet<_> {
            (0..c.len()).flat_map(|i| (i + 1..c.len()).map(move |j| (i, j))).map(|(i, j)| (i, c[i], j, c[j])).collect()
        };
        let (mut covered, mut picked, mut refused) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
        loop {
            let gain = |at: usize| pairs(&candidates[at]).difference(&covered).count();
            let open = (0..candidates.len()).filter(|at| !refused.contains(at));
            let Some(best) = open.max_by_key(|&at| (gain(at), Reverse(at))).filter(|&at| gain(at) > 0) else {
                return picked;
            };
            if accept(&candidates[best]) {
                covered.extend(pairs(&candidates[best]));
                picked.push(candidates[best].clone());
            } else {
                refused.insert(best);
            }
        }
    }

    #[test]
    fn the_cover_is_the_greedy_one() {
        let mut seed = 1u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..30 {
            // Levels are few, so that many candidates have equal gains, and some candidates are the same.
            let counts: Vec<u64> = (0..2 + next(4)).map(|_| 1 + next(4)).collect();
            let candidates: Vec<Vec<u64>> =
                (0..40).map(|_| counts.iter().map(|&count| 7 * next(count)).collect()).collect();
            let accept = |c: &Vec<u64>| c.iter().sum::<u64>() % 3 != 1;
            let (mut asked, mut wanted) = (Vec::new(), Vec::new());
            let found = pairwise(candidates.clone(), Vec::clone, |c| {
                asked.push(c.clone());
                accept(c)
            });
            let by_definition = by_definition(&candidates, |c| {
                wanted.push(c.clone());
                accept(c)
            });
            assert_eq!((found, asked), (by_definition, wanted), "{candidates:?}");
        }
    }
}
