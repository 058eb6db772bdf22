//! Which config runs a problem: every point of the tune space, ranked by the cost model.
//!
//! The choice depends on the kernel, the problem, the GPU and the available tuning records, never on timing. A record
//! of exactly these sizes decides. Otherwise the cost model decides, corrected by records of nearby sizes if there are
//! any. Each config is lowered to GPU IR once per specialization, which gives its work as a formula (the room `cost`).
//! For the sizes of a launch, the config with the lowest cost is chosen. A config that the builder, the verifier or a
//! pass refuses is kept with its reason and is never chosen. Equal costs keep the order of the tune space. If no config
//! is legal, the default config is compiled anyway, so that the compiler says what is wrong. On the CPU, where tiles
//! have little cost, the default comes first.

//!
//! The room may depend on `records`, `cost`, `compile` and `error`. It knows no devices: a launch passes in the
//! machine, the records and the refused configs.
//!
//! | file | holds |
//! |---|---|
//! | `ranking` | the legal configs of a tune space, best first |
//! | `selection` | the same ranking in a readable form |
//! | `config_source` | how a config was chosen |

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
use atlas_dsl::{Config, KernelDef, Schedule, Specialization, key_elsewhere};

/// Ranks the tune space of a kernel for a problem and a GPU, which need not be present. `None` is the CPU.
///
/// `dims` are the sizes of the kernel's dims in the signature's order.
pub fn choose_for(def: &'static KernelDef, spec: &Specialization, dims: &[u64], machine: Option<Machine>) -> Selection {
    Ranking::of(Space::explored(def, spec.clone(), machine), dims, machine, Guide::default()).selection()
}

/// The same for a GPU with tuning records.
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

/// Completes a caller's config with the tile sizes that it leaves out. Refuses keys that are not knobs of the kernel,
/// and schedules that no machine can run.
pub(crate) fn complete(def: &'static KernelDef, config: &Config) -> Result<Config, LaunchError> {
    let is_knob = |key: &str| !Schedule::KEYS.contains(&key) && def.tune.iter().any(|knob| knob.name == key);
    if let Some(key) = config.tile.keys().find(|key| !is_knob(key)) {
        let names: Vec<&str> = def.tune.iter().map(|k| k.name).filter(|n| !Schedule::KEYS.contains(n)).collect();
        let tiles = names.iter().find(|name| **name == key.to_uppercase());
        let hint = tiles.map_or_else(|| key_elsewhere(key), |name| format!("; did you mean `{name}`?"));
        let known = [names, Schedule::KEYS.to_vec()].concat().join(", ") + &hint;
        return Err(LaunchError::UnknownKnob { kernel: def.name, key: key.clone(), known });
    }
    config.schedule.check().map_err(|why| LaunchError::ImpossibleSchedule { kernel: def.name, why })?;
    let mut full = config.clone();
    for (key, size) in def.default_config().tile {
        full.tile.entry(key).or_insert(size);
    }
    Ok(full)
}
