//! Successive halving: runs all candidates in turn, then the better half with more runs each, until the times of the
//! remaining ones are known well.
//!
//! Source: Jamieson and Talwalkar, arXiv 1502.07943. Candidates are timed in turn, so that a changing clock affects all
//! of them.

/// For each round, the runs of each candidate, and how much slower than the best a candidate may be to stay.
const RUNS: [(usize, f64); ROUNDS] = [(4, 0.30), (6, 0.12), (10, 0.05), (20, 0.02)];
/// The rounds of a search.
pub(super) const ROUNDS: usize = 4;
/// At least this many stay, however slow they are, because the runner-up is worth knowing.
const LEAST: usize = 2;
/// The resolution of a GPU's clock in microseconds. An H200's times are multiples of it, so smaller differences cannot
/// be measured.
const STEP: f64 = 0.032;

/// The times of a candidate in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Times {
    /// The median; infinite if it could not be timed.
    pub(super) median: f64,
    /// The interquartile range divided by the median, at least one step of the clock.
    pub(super) spread: f64,
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = (sorted.len().saturating_sub(1)) as f64 * q;
    sorted.get(at.round() as usize).copied().unwrap_or(f64::INFINITY)
}

/// The sorted times of several rounds.
fn sorted(rounds: &[Vec<f64>]) -> Vec<f64> {
    let mut all = rounds.concat();
    all.sort_by(f64::total_cmp);
    all
}

fn median(rounds: &[Vec<f64>]) -> f64 {
    quantile(&sorted(rounds), 0.5)
}

/// Times `candidates` with `time`, which runs each of the given ones a number of times and returns its times, or none
/// for one that failed. The result is in the candidates' order.
///
/// A clock may change between rounds, so times are only compared within the same rounds. The best candidate is one that
/// took part in all rounds. For a candidate that was dropped early, what counts is how far it was behind the best one
/// in its rounds.
pub(super) fn halving<E>(
    candidates: usize,
    mut time: impl FnMut(&[usize], usize) -> Result<Vec<Vec<f64>>, E>,
) -> Result<Vec<Times>, E> {
    let mut rounds: Vec<Vec<Vec<f64>>> = vec![Vec::new(); candidates];
    let mut alive: Vec<usize> = (0..candidates).collect();
    for (runs, slack) in RUNS {
        for (&at, us) in alive.iter().zip(time(&alive, runs)?) {
            rounds[at].push(us);
        }
        alive.retain(|&at| rounds[at].last().is_some_and(|last| !last.is_empty()));
        // All remaining candidates took part in the same rounds.
        alive.sort_by(|&a, &b| median(&rounds[a]).total_cmp(&median(&rounds[b])));
        let Some(best) = alive.first().map(|&at| median(&rounds[at])) else { break };
        let near = alive.iter().filter(|&&at| median(&rounds[at]) <= best * (1.0 + slack)).count();
        alive.truncate(near.max(LEAST).min(alive.len().div_ceil(2).max(LEAST)));
    }
    let none = || Times { median: f64::INFINITY, spread: 0.0 };
    let Some(&best) = alive.first() else { return Ok(vec![none(); candidates]) };
    let whole = median(&rounds[best]);
    let one = |at: usize| {
        if rounds[at].iter().any(Vec::is_empty) {
            return none();
        }
        let all = sorted(&rounds[at]);
        let spread = (quantile(&all, 0.75) - quantile(&all, 0.25)).max(STEP) / quantile(&all, 0.5);
        let behind = median(&rounds[at]) / median(&rounds[best][..rounds[at].len()]);
        // A dropped candidate was not ahead. If its times in those rounds say so, that is noise.
        Times { median: whole * if at == best { 1.0 } else { behind.max(1.0) }, spread }
    };
    Ok((0..candidates).map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Times candidates with the given true costs and noise of 2 %, and counts the runs of each.
    fn run(costs: &[f64]) -> (Vec<Times>, Vec<usize>) {
        let mut runs = vec![0; costs.len()];
        let mut noise = 1_u64;
        let times = halving(costs.len(), |alive, count| {
            let mut one = |at: usize| {
                runs[at] += 1;
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                costs[at] * (1.0 + 0.02 * (noise >> 33) as f64 / f64::from(u32::MAX >> 1))
            };
            Ok::<_, Infallible>(alive.iter().map(|&at| (0..count).map(|_| one(at)).collect()).collect())
        });
        (times.unwrap_or_default(), runs)
    }

    #[test]
    fn the_best_is_found_and_the_slow_are_left_early() {
        let costs: Vec<f64> = (0..32).map(|i| 100.0 + f64::from((i * 13) % 32) * 5.0).collect();
        let (times, runs) = run(&costs);
        let best = (0..32).min_by(|&a, &b| times[a].median.total_cmp(&times[b].median));
        assert_eq!(best, Some(0));
        // The slowest one is the 27th.
        assert_eq!((runs[0], runs[27]), (40, 4));
        assert!(runs.iter().sum::<usize>() < 300);
    }

    /// All are equal except one that is best by 3 %, on a clock that slows down by 3 % after the first round. The
    /// earlier, faster times of dropped candidates must not beat it.
    #[test]
    fn a_clock_that_slows_down_changes_no_choice() {
        let mut round = 0;
        let times = halving(32, |alive, count| {
            round += 1;
            let clock = if round == 1 { 1.0 } else { 1.04 };
            let cost = |at: usize| clock * if at == 7 { 97.0 } else { 100.0 };
            Ok::<_, Infallible>(alive.iter().map(|&at| vec![cost(at); count]).collect())
        });
        let times = times.unwrap_or_default();
        assert!((0..32).all(|at| at == 7 || times[at].median > 1.02 * times[7].median), "{times:?}");
    }

    #[test]
    fn what_fails_is_left_out() {
        let times = halving(3, |alive, n| {
            Ok::<_, Infallible>(
                alive.iter().map(|&at| if at == 1 { vec![] } else { vec![at as f64 + 1.0; n] }).collect(),
            )
        });
        let medians: Vec<f64> = times.unwrap_or_default().iter().map(|t| t.median).collect();
        assert_eq!(medians, [1.0, f64::INFINITY, 3.0]);
    }

    /// Equal times are reported as equal up to the resolution of the clock.
    #[test]
    fn short_times_are_known_to_a_step_of_the_clock() {
        let times = halving(1, |alive, n| Ok::<_, Infallible>(alive.iter().map(|_| vec![4.0; n]).collect()));
        assert_eq!(times.unwrap_or_default()[0].spread, STEP / 4.0);
    }
}
