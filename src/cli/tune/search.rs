//! Successive halving: all candidates in turn, then the better half with more runs each, until what is left is known well.
//!
//! Source: Jamieson and Talwalkar, arXiv 1502.07943. Candidates are timed in turn, so that a clock that changes meets all of them.

/// Runs of each candidate in a round, and how much slower than the best it may be to see the next.
const ROUNDS: [(usize, f64); 4] = [(4, 0.30), (6, 0.12), (10, 0.05), (20, 0.02)];
/// So many stay however slow they are: the runner-up is worth knowing.
const LEAST: usize = 2;

/// The times of a candidate in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(Vec<f64>);

impl Times {
    pub(super) fn push(&mut self, us: impl IntoIterator<Item = f64>) {
        self.0.extend(us);
        self.0.sort_by(f64::total_cmp);
    }

    fn quantile(&self, q: f64) -> f64 {
        let at = (self.0.len().saturating_sub(1)) as f64 * q;
        self.0.get(at.round() as usize).copied().unwrap_or(f64::INFINITY)
    }

    /// The median; infinite without any.
    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Interquartile range over the median.
    pub(super) fn spread(&self) -> f64 {
        (self.quantile(0.75) - self.quantile(0.25)) / self.median()
    }
}

/// Times `candidates` with `time`, which runs each of the given ones so often and gives their times, none for one that failed.
/// The answer is in the candidates' order.
pub(super) fn halving<E>(
    candidates: usize,
    mut time: impl FnMut(&[usize], usize) -> Result<Vec<Vec<f64>>, E>,
) -> Result<Vec<Times>, E> {
    let mut times = vec![Times::default(); candidates];
    let mut alive: Vec<usize> = (0..candidates).collect();
    for (runs, slack) in ROUNDS {
        for (&at, us) in alive.iter().zip(time(&alive, runs)?) {
            times[at].push(us);
        }
        alive.retain(|&at| times[at].median().is_finite());
        alive.sort_by(|&a, &b| times[a].median().total_cmp(&times[b].median()));
        let Some(best) = alive.first().map(|&at| times[at].median()) else { break };
        let near = alive.iter().filter(|&&at| times[at].median() <= best * (1.0 + slack)).count();
        alive.truncate(near.max(LEAST).min(alive.len().div_ceil(2).max(LEAST)));
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Times a list of true costs with noise of 2 %, and counts the runs of each.
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
        let best = (0..32).min_by(|&a, &b| times[a].median().total_cmp(&times[b].median()));
        assert_eq!(best, Some(0));
        // The slowest of all is the 27th.
        assert_eq!((runs[0], runs[27]), (40, 4));
        assert!(runs.iter().sum::<usize>() < 300);
    }

    #[test]
    fn what_fails_is_left_out() {
        let times = halving(3, |alive, n| {
            Ok::<_, Infallible>(
                alive.iter().map(|&at| if at == 1 { vec![] } else { vec![at as f64 + 1.0; n] }).collect(),
            )
        });
        let medians: Vec<f64> = times.unwrap_or_default().iter().map(Times::median).collect();
        assert_eq!(medians, [1.0, f64::INFINITY, 3.0]);
    }
}
