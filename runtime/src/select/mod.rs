//! Which config runs a problem: every point of the tune space, ranked by the cost model.
//!
//! The choice depends on the kernel, the problem, the GPU and the tuning records at hand, never on timing. A record of these very
//! sizes decides; else the cost model does, corrected by records of sizes nearby where there are any. Each config is lowered to
//! GPU IR once for a specialization, which tells its work as a formula (the room `cost`); for the sizes of a launch the
//! cheapest work is chosen. A config that the builder, the verifier or a pass refuses is a value with its reason and is never
//! chosen. Equal costs go in the order of the tune space. If nothing is left, the kernel's default config is compiled all the same,
//! so that the compiler says what is wrong. On the CPU, where tiles cost little, the default comes first.

//!
//! The room may depend on `records`, `cost`, `compile` and `error`. It knows no devices: a launch tells it the machine, the records and
//! what was refused.
//!
//! | file | holds |
//! |---|---|
//! | `ranking` | the legal configs of a tune space, best first |
//! | `selection` | the same as data for people |
//! | `config_source` | how a config came to be chosen |

mod config_source;
mod ranking;
mod selection;

pub use config_source::ConfigSource;
pub(crate) use ranking::Ranking;
pub use selection::{Candidate, Outcome, Selection};

use crate::cost::Space;
use crate::error::LaunchError;
use crate::records::{Guide, Records};
use atlas_codegen::Machine;
use atlas_dsl::{Config, KernelDef, Schedule, Specialization};

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
    let guide = records.guide(def, spec, dims, Some(&machine));
    Ranking::of(Space::explored(def, spec.clone(), Some(machine)), dims, Some(machine), guide).selection()
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
