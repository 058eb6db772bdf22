//! Which config runs a problem: every point of the tune space, ranked by the cost model.
//!
//! The choice depends on the kernel, the problem, the GPU and the tuning records at hand, never on timing. A record of these very
//! sizes decides; else the cost model does, corrected by records of sizes nearby where there are any. Each config is lowered to
//! GPU IR once for a specialization, which tells its work as a formula (`space.rs`); for the sizes of a launch the
//! cheapest work is chosen. A config that the builder, the verifier or a pass refuses is a value with its reason and is never chosen. Equal costs go in the
//! order of the tune space. If nothing is left, the kernel's default config is compiled all the same, so that the compiler says what is wrong. On the CPU,
//! where tiles cost little, the default comes first.

use crate::bind::BoundLaunch;
use crate::compile::build_kernel;
use crate::config_source::ConfigSource;
use crate::cost::{Cost, Terms};
use crate::device::Device;
use crate::error::RuntimeError;
use crate::explore::{Found, Point, reason};
use crate::launch_error::LaunchError;
use crate::problem::specialize;
use crate::records::{Guide, Records, TunedSize};
use crate::space::Space;
use atlas_codegen::{Machine, Target, pipeline};
use atlas_dsl::{Config, KernelDef, Schedule, Specialization};
use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

/// One config and what the model says of it.
#[derive(Clone)]
pub struct Candidate {
    /// The config.
    pub config: Config,
    /// Its cost, or why it cannot run.
    pub outcome: Outcome,
    /// What an earlier launch on this device found against it, short of a refusal: that its registers spill.
    pub drawback: Option<String>,
}

/// What the model says of a config.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Legal, at this cost; no cost where none was estimated (on the CPU, or given by the caller).
    Legal(Option<Cost>),
    /// Illegal, with the reason.
    Refused(String),
}

/// The configs of a kernel for one problem, best first, those refused last.
#[derive(Clone)]
pub struct Selection {
    /// The kernel.
    pub kernel: &'static str,
    /// Best first; refused ones last, in the order of the tune space.
    pub candidates: Vec<Candidate>,
    /// How the first came to be first.
    pub source: ConfigSource,
    /// What tuning records had to say, a line each.
    pub notes: Vec<String>,
}

/// The legal points of a space for one problem, best first: what a launch needs of a [`Selection`].
///
/// Most launches need the first alone, so the rest is ranked when somebody asks for it.
pub(crate) struct Ranking {
    pub(crate) space: Arc<Space>,
    pub(crate) source: ConfigSource,
    notes: Vec<String>,
    /// Whether a record has the first.
    is_recorded: bool,
    first: Option<usize>,
    legal: OnceCell<Vec<Ranked>>,
    /// What their costs follow from; none where there are no costs.
    costs: Option<Costs>,
    /// Refused by the device's driver in earlier launches, with the reason.
    recalled: Vec<(usize, String)>,
}

/// A problem's costs on a machine, as records correct them. Where a record decides nobody may ask for them.
struct Costs {
    dims: Vec<u64>,
    machine: Machine,
    guide: Guide,
    /// Of the points that were lowered, what their costs are made of.
    terms: OnceCell<Vec<(usize, Terms)>>,
}

/// A point of a space and its cost; none where none was estimated.
#[derive(Clone, Copy)]
pub(crate) struct Ranked {
    pub(crate) point: usize,
    cost: Option<Cost>,
}

/// Ranks the tune space of a bound launch for its device, or takes the config that the caller gave.
///
/// # Errors
/// As [`choose_given`].
pub(crate) fn rank(bound: &BoundLaunch, given: Option<&Config>) -> Result<Ranking, RuntimeError> {
    let (def, device) = (bound.def(), bound.device());
    if let Some(config) = given {
        let space = Space::given(def, specialize(bound), device.machine(), complete(def, config)?)?;
        return Ok(Ranking::in_order(space, vec![0], ConfigSource::Given));
    }
    let space = Space::explored(def, specialize(bound), device.machine());
    let guide = device.records().guide(def, space.spec(), bound.dims());
    let mut ranking = Ranking::of(space, bound.dims(), device.machine(), guide);
    if let Some(target) = device.target().filter(|_| device.plans().has_refused()) {
        ranking.recall(device, target)?;
    }
    Ok(ranking)
}

/// Ranks the tune space of a bound launch for its device.
///
/// # Errors
/// `RuntimeError::Kernel` if a kernel that was built once cannot be built again.
pub fn choose(bound: &BoundLaunch) -> Result<Selection, RuntimeError> {
    let ranking = rank(bound, None)?;
    let mut selection = ranking.selection();
    let Some(target) = bound.device().target() else { return Ok(selection) };
    for (c, ranked) in selection.candidates.iter_mut().zip(ranking.legal()) {
        if let Some(bytes) = bound.device().plans().spills(&ranking.space.key(ranked.point, target)?) {
            c.drawback = Some(format!("its registers spill {bytes} bytes per thread"));
        }
    }
    Ok(selection)
}

/// Ranks the tune space of a kernel for a problem and a GPU, which need not be here; `None` is the CPU.
///
/// `dims` are the sizes of the kernel's dims in the signature's order.
pub fn choose_for(def: &'static KernelDef, spec: &Specialization, dims: &[u64], machine: Option<Machine>) -> Selection {
    Ranking::of(Space::explored(def, spec.clone(), machine), dims, machine, Guide::default()).selection()
}

/// The same for a GPU of which there are tuning records.
pub fn choose_with(
    def: &'static KernelDef,
    spec: &Specialization,
    dims: &[u64],
    machine: Machine,
    records: &Records,
) -> Selection {
    let guide = records.guide(def, spec, dims);
    Ranking::of(Space::explored(def, spec.clone(), Some(machine)), dims, Some(machine), guide).selection()
}

impl Ranking {
    fn of(space: Arc<Space>, dims: &[u64], machine: Option<Machine>, guide: Guide) -> Ranking {
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

    /// A ranking without costs.
    fn in_order(space: Arc<Space>, legal: Vec<usize>, source: ConfigSource) -> Ranking {
        let first = legal.first().copied();
        let legal: Vec<Ranked> = legal.into_iter().map(|point| Ranked { point, cost: None }).collect();
        let (notes, recalled, is_recorded, legal) = (Vec::new(), Vec::new(), false, legal.into());
        Ranking { space, source, notes, is_recorded, first, legal, costs: None, recalled }
    }

    /// How those came to be chosen that stand behind the one that a record has.
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

    /// The legal points, best first; those behind the first are ranked when they are asked for.
    pub(crate) fn points(&self) -> impl Iterator<Item = usize> {
        let rest = std::iter::once_with(|| self.legal().iter().skip(1)).flatten();
        self.first.into_iter().chain(rest.map(|r| r.point))
    }

    /// Takes out what the driver refused in earlier launches. The ranking among the rest stays; if the one that a record has
    /// is among them, the record decides nothing.
    fn recall(&mut self, device: &Device, target: Target) -> Result<(), RuntimeError> {
        let (mut legal, mut recalled) = (Vec::new(), Vec::new());
        for &ranked in self.legal() {
            match device.plans().refusal(&self.space.key(ranked.point, target)?) {
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

    /// The default config where it could be built but nothing is legal: the compiler then says why.
    pub(crate) fn fallback(&self) -> Option<usize> {
        let default = self.space.def.default_config();
        let points = self.space.points.iter();
        let could_be = |p: &Point| p.config == default && !matches!(p.found, Found::Refused { built: false, .. });
        points.enumerate().find(|(_, p)| self.first.is_none() && could_be(p)).map(|(i, _)| i)
    }

    /// The ranking as data for people.
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

    /// How a config comes to be chosen by these.
    fn source(&self) -> ConfigSource {
        if self.guide.asked().is_empty() { ConfigSource::CostModel } else { ConfigSource::Nearby }
    }
}

impl Ranked {
    fn cycles(&self) -> f64 {
        self.cost.map_or(f64::INFINITY, |cost| cost.cycles)
    }
}

/// Why a config cannot run a bound launch on its device; `None` if it can.
pub fn refusal(bound: &BoundLaunch, config: &Config) -> Option<String> {
    let kernel = match build_kernel(bound.def(), &specialize(bound), config) {
        Ok(kernel) => kernel,
        Err(e) => return Some(reason(&e)),
    };
    let machine = bound.device().machine()?;
    pipeline::run(&kernel, &config.schedule, machine, |_, _| {}).err().map(|e| e.to_string())
}

/// A selection of one: the caller's config, with the tile sizes that it leaves out at their defaults.
///
/// # Errors
/// [`LaunchError::UnknownKnob`], [`LaunchError::ImpossibleSchedule`]; `RuntimeError::Kernel` if the kernel cannot be built with it.
pub fn choose_given(bound: &BoundLaunch, config: &Config) -> Result<Selection, RuntimeError> {
    Ok(rank(bound, Some(config))?.selection())
}

/// A caller's config with the tile sizes that it leaves out; refuses keys that are no knob of the kernel, and schedules
/// that no machine runs.
pub(crate) fn complete(def: &'static KernelDef, config: &Config) -> Result<Config, LaunchError> {
    let is_knob = |key: &str| !Schedule::KEYS.contains(&key) && def.tune.iter().any(|knob| knob.name == key);
    if let Some(key) = config.tile.keys().find(|key| !is_knob(key)) {
        let names: Vec<&str> = def.tune.iter().map(|k| k.name).filter(|n| !Schedule::KEYS.contains(n)).collect();
        let known = [names, Schedule::KEYS.to_vec()].concat().join(", ");
        return Err(LaunchError::UnknownKnob { kernel: def.name, key: key.clone(), known });
    }
    config.schedule.check().map_err(|why| LaunchError::ImpossibleSchedule { kernel: def.name, why })?;
    let mut full = config.clone();
    for (key, size) in def.default_config().tile {
        full.tile.entry(key).or_insert(size);
    }
    Ok(full)
}

/// The point that the record of these very sizes chose, if it is one that can run; else why not, as a note.
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

/// What was measured at a size, in a line.
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

/// The points by their costs.
fn by_cost(terms: &[(usize, Terms)]) -> Vec<Ranked> {
    let mut ranked: Vec<Ranked> =
        terms.iter().map(|(point, terms)| Ranked { point: *point, cost: Some(terms.cost()) }).collect();
    ranked.sort_by(|a, b| a.cycles().total_cmp(&b.cycles()));
    ranked
}

/// The point that [`by_cost`] has first.
pub(crate) fn best(terms: &[(usize, Terms)]) -> Option<usize> {
    let costs = terms.iter().map(|(point, t)| (*point, t.cycles()));
    costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(point, _)| point)
}

impl Selection {
    /// The chosen config, if any is legal.
    pub fn chosen(&self) -> Option<&Config> {
        self.legal().next().map(|c| &c.config)
    }

    /// Legal candidates, best first.
    pub fn legal(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter().filter(|c| matches!(c.outcome, Outcome::Legal(_)))
    }

    /// Refused configs with their reasons.
    pub fn refused(&self) -> impl Iterator<Item = (&Config, &str)> {
        self.candidates.iter().filter_map(|c| match &c.outcome {
            Outcome::Refused(reason) => Some((&c.config, reason.as_str())),
            Outcome::Legal(_) => None,
        })
    }
}

impl fmt::Display for Selection {
    /// One line per config: what `explain` prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: chosen by {}", self.kernel, self.source)?;
        for note in &self.notes {
            writeln!(f, "     {note}")?;
        }
        for (rank, c) in self.candidates.iter().enumerate() {
            write!(f, "{:>3}  {}", rank + 1, c.config)?;
            match &c.outcome {
                Outcome::Refused(reason) => write!(f, "  refused: {reason}")?,
                Outcome::Legal(None) => {}
                Outcome::Legal(Some(cost)) => write!(
                    f,
                    "  {:.0} cycles, {} programs in {} waves of {} per SM, {} bytes shared, about {} registers",
                    cost.cycles, cost.programs, cost.waves, cost.ctas_per_sm, cost.shared_bytes, cost.registers,
                )?,
            }
            match &c.drawback {
                Some(drawback) => writeln!(f, "; {drawback}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atlas_codegen::analysis::{Counts, Read, Sample, Work};
    use proptest::prelude::*;

    fn work() -> impl Strategy<Value = Work> {
        let sizes = (1..5_u32, 0..200_u32, 16..300_u32);
        // Few numbers, so that costs come close to one another.
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
                reads: vec![Read { bytes: total.global, tensor: 1e9, past_l1: 0.0 }],
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
