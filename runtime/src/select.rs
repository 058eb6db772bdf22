//! Which config runs a problem: every point of the tune space, ranked by the cost model.
//!
//! The choice depends on the kernel, the problem and the target alone, never on timing. Each config is lowered to
//! GPU IR, which tells its work, and the cheapest work is chosen; among works within 2 % of it, that with most threads
//! resident. A config that the builder, the verifier or a pass
//! refuses is a value with its reason and is never chosen. Equal costs go in the order of the tune space. If nothing
//! is left, the kernel's default config is compiled all the same, so that the compiler says what is wrong. On the CPU,
//! where tiles cost little, the default comes first.

use crate::bind::BoundLaunch;
use crate::compile::{build_kernel, kernel_key};
use crate::cost::{Cost, estimate};
use crate::device::Device;
use crate::error::RuntimeError;
use crate::launch_error::LaunchError;
use crate::plans::{Remembered, Source};
use crate::problem::specialize;
use atlas_codegen::analysis::Work;
use atlas_codegen::{Machine, Target, pipeline};
use atlas_dsl::{Config, Kernel, KernelDef, Schedule, Specialization, Verified};
use std::fmt;
use std::sync::Arc;

/// Costs that differ by no more than this share are equal as far as the model can tell.
const RESOLUTION: f64 = 0.02;

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Given => "given by the caller",
            Source::CostModel => "cost model",
            Source::Default => "default",
        })
    }
}

/// One config and what the model says of it.
#[derive(Clone)]
pub struct Candidate {
    /// The config.
    pub config: Config,
    /// Its cost, or why it cannot run.
    pub outcome: Outcome,
    /// What an earlier launch on this device found against it, short of a refusal: that its registers spill.
    pub drawback: Option<String>,
    pub(crate) kernel: Option<Arc<Verified<Kernel>>>,
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
    pub source: Source,
}

/// Ranks the tune space of a bound launch for its device.
pub fn choose(bound: &BoundLaunch) -> Selection {
    let device = bound.device();
    let mut selection = choose_for(bound.def(), &specialize(bound), bound.dims(), device.machine());
    if let Some(target) = device.target() {
        recall(&mut selection, device, target);
    }
    selection
}

/// Adds what earlier launches on the device found out: refusals of the driver, and spills.
fn recall(selection: &mut Selection, device: &Device, target: Target) {
    if device.plans().is_new() {
        return;
    }
    for c in &mut selection.candidates {
        let Some(kernel) = c.kernel.as_ref().filter(|_| matches!(c.outcome, Outcome::Legal(_))) else { continue };
        match device.plans().remembered(&kernel_key(kernel, c.config.schedule, target)) {
            Some(Remembered::Refused(reason)) => c.outcome = Outcome::Refused(reason),
            Some(Remembered::Spills(bytes)) => {
                c.drawback = Some(format!("its registers spill {bytes} bytes per thread"))
            }
            None => {}
        }
    }
    // The ranking among the rest stays.
    selection.candidates.sort_by_key(|c| matches!(c.outcome, Outcome::Refused(_)));
}

/// Ranks the tune space of a kernel for a problem and a GPU, which need not be here; `None` is the CPU.
///
/// `dims` are the sizes of the kernel's dims in the signature's order.
pub fn choose_for(def: &'static KernelDef, spec: &Specialization, dims: &[u64], machine: Option<Machine>) -> Selection {
    let default = def.default_config();
    let mut legal: Vec<Candidate> = Vec::new();
    let mut refused: Vec<Candidate> = Vec::new();
    for config in def.configs() {
        let kernel = match build_kernel(def, spec, &config) {
            Ok(kernel) => Arc::new(kernel),
            Err(e) => {
                refused.push(Candidate { config, outcome: Outcome::Refused(reason(&e)), drawback: None, kernel: None });
                continue;
            }
        };
        let Some(machine) = machine else {
            legal.push(Candidate { config, outcome: Outcome::Legal(None), drawback: None, kernel: Some(kernel) });
            continue;
        };
        let lowered = pipeline::run(&kernel, &config.schedule, machine, |_, _| {});
        let outcome = match lowered {
            Ok(lowered) => Outcome::Legal(Some(estimate(&Work::of(&lowered, dims), &machine))),
            Err(e) => Outcome::Refused(e.to_string()),
        };
        let of = if matches!(outcome, Outcome::Legal(_)) { &mut legal } else { &mut refused };
        of.push(Candidate { config, outcome, drawback: None, kernel: Some(kernel) });
    }
    let source = if machine.is_some() && !legal.is_empty() {
        legal.sort_by(|a, b| cycles(a).total_cmp(&cycles(b)));
        prefer_threads(&mut legal);
        Source::CostModel
    } else {
        if let Some(at) = legal.iter().position(|c| c.config == default) {
            legal[..=at].rotate_right(1);
        }
        Source::Default
    };
    legal.append(&mut refused);
    Selection { kernel: def.name, candidates: legal, source }
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

/// An error of building a kernel without its config, which stands beside it.
fn reason(error: &RuntimeError) -> String {
    match error {
        RuntimeError::Kernel { diagnostics, .. } => diagnostics.to_string(),
        other => other.to_string(),
    }
}

/// A selection of one: the caller's config, with the tile sizes that it leaves out at their defaults.
///
/// # Errors
/// [`LaunchError::UnknownKnob`]; `RuntimeError::Kernel` if the kernel cannot be built with it.
pub fn choose_given(bound: &BoundLaunch, config: &Config) -> Result<Selection, RuntimeError> {
    let def = bound.def();
    let config = complete(def, config)?;
    let kernel = Arc::new(build_kernel(def, &specialize(bound), &config)?);
    let candidate = Candidate { config, outcome: Outcome::Legal(None), drawback: None, kernel: Some(kernel) };
    Ok(Selection { kernel: def.name, candidates: vec![candidate], source: Source::Given })
}

/// A caller's config with the tile sizes that it leaves out; refuses keys that are no knob of the kernel.
pub(crate) fn complete(def: &'static KernelDef, config: &Config) -> Result<Config, LaunchError> {
    let is_knob = |key: &str| def.tune.iter().any(|knob| knob.name == key);
    if let Some(key) = config.tile.keys().find(|key| !is_knob(key)) {
        let names: Vec<&str> = def.tune.iter().map(|k| k.name).filter(|n| !Schedule::KEYS.contains(n)).collect();
        let known = [names, Schedule::KEYS.to_vec()].concat().join(", ");
        return Err(LaunchError::UnknownKnob { kernel: def.name, key: key.clone(), known });
    }
    let mut full = config.clone();
    for (key, size) in def.default_config().tile {
        full.tile.entry(key).or_insert(size);
    }
    Ok(full)
}

/// Moves to the front, of the configs that the model cannot tell from the cheapest, the one with most threads on an SM:
/// more of them hide what the model does not know.
fn prefer_threads(sorted: &mut [Candidate]) {
    let Some(least) = sorted.first().map(cycles) else { return };
    let near = sorted.iter().take_while(|c| cycles(c) <= least * (1.0 + RESOLUTION)).count();
    let threads = |c: &Candidate| match c.outcome {
        Outcome::Legal(Some(cost)) => cost.resident_threads,
        _ => 0,
    };
    let most = sorted[..near].iter().map(threads).max();
    if let Some(at) = sorted[..near].iter().position(|c| Some(threads(c)) == most) {
        sorted[..=at].rotate_right(1);
    }
}

fn cycles(candidate: &Candidate) -> f64 {
    match candidate.outcome {
        Outcome::Legal(Some(cost)) => cost.cycles,
        _ => f64::INFINITY,
    }
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

    /// The default config where it could be built but nothing is legal: the compiler then says why.
    pub(crate) fn fallback(&self, def: &KernelDef) -> Option<&Candidate> {
        let default = def.default_config();
        let nothing_legal = self.legal().next().is_none();
        self.candidates.iter().find(|c| nothing_legal && c.config == default && c.kernel.is_some())
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
        for (rank, c) in self.candidates.iter().enumerate() {
            write!(f, "{:>3}  {}", rank + 1, c.config)?;
            match &c.outcome {
                Outcome::Refused(reason) => write!(f, "  refused: {reason}")?,
                Outcome::Legal(None) => {}
                Outcome::Legal(Some(cost)) => write!(
                    f,
                    "  {:.0} cycles, {} programs in {} waves of {} per SM, {} bytes shared, about {} registers",
                    cost.cycles, cost.programs, cost.waves, cost.held, cost.shared_bytes, cost.registers,
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
