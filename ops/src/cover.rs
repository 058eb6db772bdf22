//! A pairwise cover: few candidates in which every two levels of two factors that can stand together do so.

use std::collections::HashMap;

/// Picks candidates until every pair of levels that an accepted candidate has is in one that was picked.
///
/// Greedy and deterministic: the candidate with most new pairs goes first, among equals the earlier one. `levels` gives
/// the level of each factor; `accept` is asked of each candidate at most once, when it is about to be picked.
pub fn pairwise<T>(candidates: Vec<T>, levels: impl Fn(&T) -> Vec<u64>, mut accept: impl FnMut(&T) -> bool) -> Vec<T> {
    let mut numbers: HashMap<Pair, usize> = HashMap::new();
    let mut holders: Vec<Vec<usize>> = Vec::new();
    let mut left: Vec<Option<(T, Vec<usize>)>> = Vec::new();
    for (at, candidate) in candidates.into_iter().enumerate() {
        let numbered = pairs(&levels(&candidate)).into_iter().map(|pair| {
            let next = numbers.len();
            *numbers.entry(pair).or_insert(next)
        });
        let numbered: Vec<usize> = numbered.collect();
        holders.resize_with(numbers.len(), Vec::new);
        numbered.iter().for_each(|&pair| holders[pair].push(at));
        left.push(Some((candidate, numbered)));
    }
    // The new pairs of each candidate, kept as pairs are covered.
    let mut gains: Vec<usize> = left.iter().flatten().map(|(_, pairs)| pairs.len()).collect();
    let mut covered = vec![false; holders.len()];
    let mut picked = Vec::new();
    loop {
        let mut best = (0, 0);
        for (at, &new) in gains.iter().enumerate() {
            if new > best.1 {
                best = (at, new);
            }
        }
        if best.1 == 0 {
            return picked;
        }
        gains[best.0] = 0;
        let Some((candidate, pairs)) = left[best.0].take() else { continue };
        if !accept(&candidate) {
            continue;
        }
        for pair in pairs.into_iter().filter(|&pair| !std::mem::replace(&mut covered[pair], true)) {
            for &holder in &holders[pair] {
                gains[holder] = gains[holder].saturating_sub(1);
            }
        }
        picked.push(candidate);
    }
}

/// Two factors, each with its level.
type Pair = (usize, u64, usize, u64);

/// The pairs of a candidate; for a single factor its level, paired with itself.
fn pairs(levels: &[u64]) -> Vec<Pair> {
    let later = |i: usize| if levels.len() == 1 { i } else { i + 1 };
    (0..levels.len()).flat_map(|i| (later(i)..levels.len()).map(move |j| (i, levels[i], j, levels[j]))).collect()
}

#[cfg(test)]
mod tests {
    use super::pairwise;

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
}
