//! Scheduling policies, deterministic for a seed.

/// The order in which warps run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Each warp until it blocks, in order; asynchronous operations happen at once.
    #[default]
    RoundRobin,
    /// One warp is starved as long as others can run, turns change at each access, and asynchronous operations are late.
    Adversarial,
    /// Everything depends on the seed.
    Random,
}

/// The number of picks in a row that may pass over the starved warp.
const STARVED: u32 = 512;
/// Instructions in a row without an access, for policies that do not change turns sooner.
const QUANTUM: u64 = 4096;

/// How long a strand may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantum {
    pub(crate) instructions: u64,
    /// The number of these that may reach beyond the warp.
    pub(crate) accesses: u64,
}

/// The state of a policy.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    policy: Policy,
    seed: u64,
    state: u64,
    cursor: usize,
    /// The starved warp, as a position among all, and the number of picks for which it has been starved.
    victim: usize,
    starved: u32,
}

impl Schedule {
    /// A policy from its seed.
    pub(crate) fn new(policy: Policy, seed: u64) -> Schedule {
        Schedule { policy, seed, state: seed, cursor: 0, victim: 0, starved: 0 }
    }

    /// A number below `n`, by the seed.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % (n as u64).max(1)) as usize
    }

    /// The order in which clusters start: a permutation of `0..n`, by position.
    pub(crate) fn start(&self, at: u64, n: u64) -> u64 {
        match self.policy {
            Policy::RoundRobin => at,
            Policy::Adversarial => n - 1 - at,
            Policy::Random => {
                // A step prime to `n` visits each once.
                let mut step = ((self.seed.wrapping_mul(0x9e37_79b9) >> 7) % n.max(1)) | 1;
                while gcd(step, n) != 1 {
                    step += 2;
                }
                ((u128::from(at) * u128::from(step) + u128::from(self.seed % n.max(1))) % u128::from(n)) as u64
            }
        }
    }

    /// The next warp among `n`, if any is ready.
    pub(crate) fn pick(&mut self, n: usize, ready: impl Fn(usize) -> bool) -> Option<usize> {
        let from = match self.policy {
            Policy::RoundRobin => self.cursor,
            Policy::Adversarial | Policy::Random => self.below(n),
        };
        let victim = self.victim % n.max(1);
        let starving = self.policy == Policy::Adversarial && self.starved < STARVED;
        let around = || (0..n).map(|i| (from + i) % n);
        let mut found = around().find(|&w| ready(w) && !(starving && w == victim));
        if found.is_some() && starving {
            self.starved += u32::from(ready(victim));
        } else if self.policy == Policy::Adversarial {
            found = Some(victim).filter(|&w| ready(w)).or(found);
            self.starved = 0;
            self.victim = self.below(n);
        }
        self.cursor = found.unwrap_or(0);
        found
    }

    /// Picks one of `n` ready strands of a warp, at its `turn`.
    pub(crate) fn strand(&mut self, turn: u64, n: usize) -> usize {
        match self.policy {
            Policy::RoundRobin => (turn % n.max(1) as u64) as usize,
            Policy::Adversarial | Policy::Random => self.below(n),
        }
    }

    /// Leaves the warp that was picked last.
    pub(crate) fn next_warp(&mut self) {
        self.cursor += 1;
    }

    /// How long the picked strand may run.
    pub(crate) fn quantum(&mut self) -> Quantum {
        match self.policy {
            Policy::RoundRobin => Quantum { instructions: QUANTUM, accesses: QUANTUM },
            Policy::Adversarial => Quantum { instructions: QUANTUM, accesses: 1 },
            Policy::Random => {
                let most = [1, 4, 16, 256][self.below(4)];
                Quantum { instructions: 1 + self.below(most * 4) as u64, accesses: 1 + self.below(most) as u64 }
            }
        }
    }

    /// True if an asynchronous operation is postponed.
    pub(crate) fn late(&mut self) -> bool {
        match self.policy {
            Policy::RoundRobin => false,
            Policy::Adversarial => true,
            Policy::Random => self.below(2) == 1,
        }
    }

    /// True if one of the postponed operations happens now, while some threads can still run.
    pub(crate) fn lands(&mut self) -> bool {
        match self.policy {
            Policy::RoundRobin => false,
            // Threads that look at memory for what only the landing brings must not look for ever.
            Policy::Adversarial => self.below(1024) == 0,
            Policy::Random => self.below(4) == 0,
        }
    }

    /// True if a wait that might succeed fails once.
    pub(crate) fn spurious(&mut self) -> bool {
        match self.policy {
            Policy::RoundRobin => false,
            Policy::Adversarial => self.below(3) == 0,
            Policy::Random => self.below(8) == 0,
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cluster_starts_once() {
        for policy in [Policy::RoundRobin, Policy::Adversarial, Policy::Random] {
            for (n, seed) in [(1, 0), (12, 7), (97, 3), (360, 11)] {
                let schedule = Schedule::new(policy, seed);
                let mut order: Vec<u64> = (0..n).map(|at| schedule.start(at, n)).collect();
                order.sort_unstable();
                assert_eq!(order, (0..n).collect::<Vec<_>>(), "{policy:?} {n}");
            }
        }
    }

    #[test]
    fn the_starved_warp_runs_in_the_end() {
        let mut schedule = Schedule::new(Policy::Adversarial, 1);
        let picks: Vec<_> = (0..4096).filter_map(|_| schedule.pick(3, |_| true)).collect();
        assert!((0..3).all(|w| picks.contains(&w)));
        assert!(picks.iter().take(500).all(|&w| w != 0), "the first victim is warp 0");
        assert_eq!(schedule.pick(3, |w| w == 2), Some(2));
        assert_eq!(schedule.pick(3, |_| false), None);
    }
}
