//! The legal configs of a tune space for one problem, best first.

use super::config_source::ConfigSource;
use super::selection::{Candidate, Outcome, Selection};
use crate::compile::KernelKey;
use crate::cost::{Cost, Found, Point, Space, Terms};
use crate::error::RuntimeError;
use crate::records::{Guide, TunedSize};
use atlas_codegen::{Machine, Target};
use std::cell::OnceCell;
use std::sync::Arc;

/// The legal points of a space for one problem, best first: the part of a [`Selection`] that a launch needs.
///
/// Most launches need only the first point, so the others are ranked on demand.
pub(crate) struct Ranking {
    pub(crate) space: Arc<Space>,
    pub(crate) source: ConfigSource,
    notes: Vec<String>,
    /// Whether a record chose the first point.
    is_recorded: bool,
    first: Option<usize>,
    legal: OnceCell<Vec<Ranked>>,
    /// The data for the costs; `None` if there are no costs.
    costs: Option<Costs>,
    /// Points that the device's driver refused in earlier launches, with the reasons.
    recalled: Vec<(usize, String)>,
}

/// The costs of a problem on a machine, as records correct them. If a record decides, they may never be needed.
struct Costs {
    dims: Vec<u64>,
    machine: Machine,
    guide: Guide,
    /// The cost terms of the points that were lowered.
    terms: OnceCell<Vec<(usize, Terms)>>,
}

/// A point of a space and its cost; `None` if no cost was estimated.
#[derive(Clone, Copy)]
pub(crate) struct Ranked {
    pub(crate) point: usize,
    cost: Option<Cost>,
}

impl Ranking {
    /// Ranks the points of an explored space by their costs on a machine, as records correct them. On the CPU there are
    /// no costs, and the default config comes first.
    pub(crate) fn of(space: Arc<Space>, dims: &[u64], machine: Option<Machine>, guide: Guide) -> Ranking {
        if let Some(machine) = machine.filter(|_| space.has_lowered()) {
            let mut notes: Vec<String> = guide.stale.iter().cloned().collect();
            let recorded = recorded(&space, &guide, &mut notes);
            let costs = Costs { dims: dims.to_vec(), machine, guide, terms: OnceCell::new() };
            let source = if recorded.is_some() { ConfigSource::Record } else { costs.source() };
            if source == ConfigSource::Nearby {
                notes.push(format!("measured nearby: {}", costs.guide.asked().join("; ")));
            }
            let first = recorded.or_else(|| best(costs.terms(&space)));
            let (is_recorded, legal, recalled) = (recorded.is_some(), OnceCell::new(), Vec::new());
            return Ranking { space, source, notes, is_recorded, first, legal, costs: Some(costs), recalled };
        }
        let mut legal: Vec<usize> = (0..space.points.len()).filter(|&p| space.points[p].is_legal()).collect();
        let default = space.def.default_config();
        if let Some(at) = legal.iter().position(|&p| space.points[p].config == default) {
            legal[..=at].rotate_right(1);
        }
        Ranking::in_order(space, legal, ConfigSource::Default)
    }

    /// A ranking of the one config that the caller gave.
    pub(crate) fn given(space: Arc<Space>) -> Ranking {
        Ranking::in_order(space, vec![0], ConfigSource::Given)
    }

    /// A ranking without costs.
    fn in_order(space: Arc<Space>, legal: Vec<usize>, source: ConfigSource) -> Ranking {
        let first = legal.first().copied();
        let legal: Vec<Ranked> = legal.into_iter().map(|point| Ranked { point, cost: None }).collect();
        let (notes, recalled, is_recorded, legal) = (Vec::new(), Vec::new(), false, legal.into());
        Ranking { space, source, notes, is_recorded, first, legal, costs: None, recalled }
    }

    /// The source of the configs that follow the recorded one.
    pub(crate) fn behind(&self) -> ConfigSource {
        self.costs.as_ref().map_or(self.source, Costs::source)
    }

    /// All legal points, best first.
    pub(crate) fn legal(&self) -> &[Ranked] {
        self.legal.get_or_init(|| {
            let mut ranked = by_cost(self.costs.as_ref().map_or(&[], |costs| costs.terms(&self.space)));
            if self.is_recorded
                && let Some(at) = ranked.iter().position(|r| Some(r.point) == self.first)
            {
                ranked[..=at].rotate_right(1);
            }
            ranked
        })
    }

    /// The legal points, best first. Those after the first are ranked on demand.
    pub(crate) fn points(&self) -> impl Iterator<Item = usize> {
        let rest = std::iter::once_with(|| self.legal().iter().skip(1)).flatten();
        self.first.into_iter().chain(rest.map(|r| r.point))
    }

    /// Removes the kernels that a device refused in earlier launches. `refusal` gives the reason. The order of the
    /// others stays. If the recorded config is among the removed ones, the record decides nothing.
    pub(crate) fn recall(
        &mut self,
        target: Target,
        refusal: impl Fn(&KernelKey) -> Option<String>,
    ) -> Result<(), RuntimeError> {
        let (mut legal, mut recalled) = (Vec::new(), Vec::new());
        for &ranked in self.legal() {
            match refusal(&self.space.key(ranked.point, target)?) {
                Some(reason) => recalled.push((ranked.point, reason)),
                None => legal.push(ranked),
            }
        }
        if self.is_recorded
            && let Some((point, reason)) = recalled.iter().find(|(point, _)| Some(*point) == self.first)
        {
            let config = &self.space.points[*point].config;
            self.notes = vec![format!("the record of these sizes has `{config}`, which is refused: {reason}")];
            (self.source, self.is_recorded) = (self.behind(), false);
        }
        self.first = legal.first().map(|r| r.point);
        (self.legal, self.recalled) = (legal.into(), recalled);
        Ok(())
    }

    /// The default config if it could be built but no config is legal: the compiler then says why.
    pub(crate) fn fallback(&self) -> Option<usize> {
        let default = self.space.def.default_config();
        let points = self.space.points.iter();
        let could_be = |p: &Point| p.config == default && !matches!(p.found, Found::Refused { built: false, .. });
        points.enumerate().find(|(_, p)| self.first.is_none() && could_be(p)).map(|(i, _)| i)
    }

    /// The ranking in a readable form.
    pub(crate) fn selection(&self) -> Selection {
        let candidate = |point: usize, outcome: Outcome| {
            let config = self.space.points[point].config.clone();
            Candidate { config, outcome, drawback: None }
        };
        let legal = self.legal().iter().map(|r| candidate(r.point, Outcome::Legal(r.cost)));
        let recalled = self.recalled.iter().map(|(i, reason)| candidate(*i, Outcome::Refused(reason.clone())));
        let refused = self.space.points.iter().enumerate().filter_map(|(i, p)| match &p.found {
            Found::Refused { reason, .. } => Some(candidate(i, Outcome::Refused(reason.clone()))),
            Found::Lowered | Found::Built => None,
        });
        let candidates = legal.chain(recalled).chain(refused).collect();
        Selection { kernel: self.space.def.name, candidates, source: self.source, notes: self.notes.clone() }
    }
}

impl Costs {
    fn terms(&self, space: &Space) -> &[(usize, Terms)] {
        let Costs { dims, machine, guide, terms } = self;
        let corrected = |(p, t): (usize, Terms)| (p, t.corrected(guide.factor(&space.points[p].config)));
        terms.get_or_init(|| space.terms(dims, machine).map(corrected).collect())
    }

    /// The source of the first config.
    fn source(&self) -> ConfigSource {
        if self.guide.asked().is_empty() { ConfigSource::CostModel } else { ConfigSource::Nearby }
    }
}

impl Ranked {
    fn cycles(&self) -> f64 {
        self.cost.map_or(f64::INFINITY, |cost| cost.cycles)
    }
}

/// The point that the record of exactly these sizes chose, if it can run. Otherwise adds a note that says why not.
fn recorded(space: &Space, guide: &Guide, notes: &mut Vec<String>) -> Option<usize> {
    let (config, size) = guide.exact.as_ref()?;
    let found = space.points.iter().position(|p| p.config == *config);
    let is_lowered = |at: &usize| matches!(space.points[*at].found, Found::Lowered);
    match found.filter(is_lowered) {
        Some(at) => {
            notes.push(recorded_text(size));
            Some(at)
        }
        None => {
            let refused = found.map(|at| match &space.points[at].found {
                Found::Refused { reason, .. } => format!("is refused: {reason}"),
                Found::Lowered | Found::Built => "was not lowered".to_owned(),
            });
            let why = refused.unwrap_or_else(|| "is none of the tune space".to_owned());
            notes.push(format!("the record of these sizes has `{config}`, which {why}"));
            None
        }
    }
}

/// The measurement of a size in one line.
fn recorded_text(size: &TunedSize) -> String {
    let chosen = size.chosen();
    let behind = size.configs.get(1).map_or_else(String::new, |next| {
        format!(", `{}` {:.1} % behind", next.config, 100.0 * (next.us / chosen.us - 1.0))
    });
    let copy = match size.of_copy {
        share if share > 0.0 => format!(", {:.0} % of the rate of a copy", 100.0 * share),
        _ => String::new(),
    };
    format!("{:.2} us{copy}, best of {} configs measured{behind}; {}", chosen.us, size.configs.len(), size.measured)
}

/// The points, sorted by cost.
fn by_cost(terms: &[(usize, Terms)]) -> Vec<Ranked> {
    let mut ranked: Vec<Ranked> =
        terms.iter().map(|(point, terms)| Ranked { point: *point, cost: Some(terms.cost()) }).collect();
    ranked.sort_by(|a, b| a.cycles().total_cmp(&b.cycles()));
    ranked
}

/// The first point of [`by_cost`].
pub(crate) fn best(terms: &[(usize, Terms)]) -> Option<usize> {
    let costs = terms.iter().map(|(point, t)| (*point, t.cycles()));
    costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(point, _)| point)
}

#[cfg(test)]
mod tests {
    use super::*;
    use atlas_codegen::gpu::analysis::{Counts, Sample, TensorReads, Work};
    use proptest::prelude::*;

    fn work() -> impl Strategy<Value = Work> {
        let sizes = (1..5_u32, 0..200_u32, 16..300_u32);
        // Few distinct numbers, so that costs are often close or equal.
        let amounts = (0..4_u32, 0..4_u32, 0..4_u32, 0..3_u32);
        (sizes, amounts).prop_map(|((warps, shared, registers), (products, other, bytes, latency_waits))| {
            let total = Counts {
                tensor: f64::from(products) * 1e6,
                element_wise: f64::from(other) * 4096.0,
                global: f64::from(bytes) * 16384.0,
                latency_waits: f64::from(latency_waits),
                ..Counts::default()
            };
            Work {
                programs: 1 << 14,
                threads: warps * 64,
                shared_bytes: shared * 1024,
                registers,
                total,
                samples: vec![Sample { total, prefetched: Vec::new() }],
                reads: vec![TensorReads { bytes: total.global, tensor: 1e9, past_l1: 0.0 }],
                ..Work::default()
            }
        })
    }

    proptest! {
        #[test]
        fn the_best_is_the_first_of_the_ranking(works in proptest::collection::vec(work(), 0..60), programs in 1..1_000_000_u64) {
            let machine: Machine = "sm_90".parse().unwrap();
            let terms = works.into_iter().enumerate().map(|(i, w)| (i, Terms::of(&Work { programs, ..w }, &machine)));
            let terms: Vec<(usize, Terms)> = terms.collect();
            prop_assert_eq!(best(&terms), by_cost(&terms).first().map(|r| r.point));
        }
    }
}
