//! Tuning records: the measured times of a kernel's configs on a model of GPU, and the conclusions for other sizes.
//!
//! A record is a text file for one kernel and one GPU. `atlas tune` writes it and people review it. A launch looks for
//! its own sizes first. `Guide` gives the config that the record chose for them, and the error of the cost model for
//! each config at nearby sizes. Records can only help: if one is missing, stale or damaged, the cost model decides.
//!
//! The room may depend on `cost` for the number of the cost model, on `compile` for a kernel's Tile IR, and on `files`.
//! It knows no devices.
//!
//! | file | holds |
//! |---|---|
//! | `record`, `merged` | a record as a value and as text; several records of one kernel as one |
//! | `residual` | the error of the cost model, as a function of the config and the size |
//! | `guide` | what the records say about one problem |
//! | `sizes` | records the problems that a program launches in a file, for tuning and bundling |

mod guide;
mod merged;
mod record;
mod residual;
pub mod sizes;

pub use crate::compile::specialization_class::{class_text, of_launch, parse_class};
pub use crate::cost::MODEL;
pub(crate) use guide::Guide;
pub use record::{
    MOST_CONFIGS, MOST_SIZES, Record, RecordError, Timed, TunedSize, ir_hash, is_of_target, is_simulated, launch_hash,
    machine_of, row_target, target_text, tune_hash,
};

use self::merged::Merged;
use crate::files;
use atlas_codegen::Machine;
use atlas_dsl::{KernelDef, Specialization};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The environment variable that lists folders with records, separated as in `PATH`. If several records have a size,
/// the first row counts that still matches its kernel.
pub const RECORDS_VARIABLE: &str = "ATLAS_RECORDS";

/// The text of a record that is part of a program.
#[derive(Clone, Copy, Debug)]
pub struct ShippedRecord {
    /// Where it came from, for messages.
    pub origin: &'static str,
    /// The record.
    pub text: &'static str,
}

/// Re-exported so that crates can carry records: `inventory::submit! { ShippedRecord { .. } }`.
pub use inventory;
inventory::collect!(ShippedRecord);

/// The records of one model of GPU.
#[derive(Clone, Debug, Default)]
pub struct Records {
    gpu: String,
    /// For each kernel, the records of each of its tune spaces, in the order in which they were added.
    by_kernel: BTreeMap<String, Vec<Arc<Merged>>>,
    problems: Vec<RecordError>,
    /// Other GPUs that had records among those that were added.
    others: BTreeSet<String>,
    fits: guide::Fits,
}

impl Records {
    /// No records, for the GPU of this name.
    pub fn none(gpu: &str) -> Records {
        Records { gpu: gpu.to_owned(), ..Records::default() }
    }

    /// The records of a GPU: those in the folders of `ATLAS_RECORDS`, followed by those that crates of this program
    /// carry. Records that cannot be read are left out and listed in [`Records::problems`].
    pub fn of_gpu(gpu: &str) -> Records {
        let mut records = Records::none(gpu);
        for folder in std::env::var_os(RECORDS_VARIABLE).iter().flat_map(std::env::split_paths) {
            if !folder.as_os_str().is_empty() {
                records.add_folder(&folder);
            }
        }
        for shipped in inventory::iter::<ShippedRecord> {
            records.add_or_note(shipped.origin, shipped.text);
        }
        records
    }

    /// Adds the records of this GPU in a folder and in its immediate subfolders, which may be named after GPUs. A
    /// folder that cannot be read is listed in [`Records::problems`].
    pub fn add_folder(&mut self, folder: &Path) {
        let mut found = self.entries(folder);
        for inner in found.clone().iter().filter(|p| p.is_dir()) {
            found.extend(self.entries(inner));
        }
        found.retain(|p| p.extension().is_some_and(|e| e == "toml"));
        for file in found {
            let origin = file.display().to_string();
            match files::read_regular_text(&file) {
                Ok(text) => self.add_or_note(&origin, &text),
                Err(e) => self.problems.push(RecordError::new(&origin, e.to_string())),
            }
        }
    }

    /// The entries of a folder, sorted by name.
    fn entries(&mut self, folder: &Path) -> Vec<PathBuf> {
        let found = fs::read_dir(folder).and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect());
        let mut found: Vec<PathBuf> = found.unwrap_or_else(|e| {
            let origin = folder.display().to_string();
            self.problems.push(RecordError::new(&origin, format!("it is no folder to read: {e}")));
            Vec::new()
        });
        found.sort();
        found
    }

    fn add_or_note(&mut self, origin: &str, text: &str) {
        if let Err(e) = self.add(origin, text) {
            self.problems.push(e);
        }
    }

    /// Adds a record, unless it belongs to another GPU. If several records have a size, the first row counts that still
    /// matches its kernel. Records of a kernel's other tune spaces are kept too, and each kernel follows those of its
    /// own tune space. Sizes beyond the bound are left out and listed in [`Records::problems`]. Returns true if
    /// something was added.
    ///
    /// # Errors
    /// [`RecordError`] if the text is not a record.
    pub fn add(&mut self, origin: &str, text: &str) -> Result<bool, RecordError> {
        Ok(self.add_record(origin, Record::parse(origin, text)?))
    }

    /// The same for a parsed record.
    pub fn add_record(&mut self, origin: &str, record: Record) -> bool {
        if record.gpu != self.gpu {
            self.others.insert(record.gpu);
            return false;
        }
        let spaces = self.by_kernel.entry(record.kernel.clone()).or_default();
        self.fits = guide::Fits::default();
        let Some(known) = spaces.iter_mut().find(|known| known.record.tune == record.tune) else {
            spaces.push(Arc::new(Merged::new(record)));
            return true;
        };
        let (added, left_out) = Arc::make_mut(known).add(record.sizes);
        if left_out > 0 {
            let kernel = &record.kernel;
            let message = format!("with others, `{kernel}` has more than {MOST_SIZES} sizes; {left_out} are left out");
            self.problems.push(RecordError::new(origin, message));
        }
        added > 0
    }

    /// Replaces the records of a kernel by this one, whatever its GPU.
    pub fn insert(&mut self, record: Record) {
        self.by_kernel.insert(record.kernel.clone(), vec![Arc::new(Merged::new(record))]);
        self.fits = guide::Fits::default();
    }

    /// The name of the GPU that they belong to.
    pub fn gpu(&self) -> &str {
        &self.gpu
    }

    /// The record of a kernel, for a tune space that a kernel of this program has, if there is one.
    pub fn of_kernel(&self, kernel: &str) -> Option<&Record> {
        let spaces = self.by_kernel.get(kernel)?;
        let named: Vec<String> =
            atlas_dsl::registry().iter().filter(|d| d.name == kernel).map(|d| tune_hash(d)).collect();
        let now = spaces.iter().find(|known| named.contains(&known.record.tune));
        now.or(spaces.first()).map(|known| &known.record)
    }

    /// All records, by the names of their kernels.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.by_kernel.values().flatten().map(|known| &known.record)
    }

    /// Other GPUs that had records in the same places.
    pub fn other_gpus(&self) -> impl Iterator<Item = &str> {
        self.others.iter().map(String::as_str)
    }

    /// The errors of the records that could not be read.
    pub fn problems(&self) -> &[RecordError] {
        &self.problems
    }

    /// Whether a size was measured on a machine and has not changed since.
    pub(crate) fn has_exactly(
        &self,
        def: &'static KernelDef,
        spec: &Specialization,
        dims: &[u64],
        machine: Option<&Machine>,
    ) -> bool {
        self.by_kernel.contains_key(def.name) && self.guide(def, spec, dims, machine).exact.is_some()
    }

    /// What the records say for a problem of a kernel on a machine.
    pub(crate) fn guide(
        &self,
        def: &'static KernelDef,
        spec: &Specialization,
        dims: &[u64],
        machine: Option<&Machine>,
    ) -> Guide {
        let Some(spaces) = self.by_kernel.get(def.name) else { return Guide::default() };
        let tune = tune_hash(def);
        match spaces.iter().find(|known| known.record.tune == tune) {
            Some(known) => {
                Guide::new(known, &self.fits, def, spec, dims, &machine.map(target_text).unwrap_or_default())
            }
            None => Guide::of_other_tune(),
        }
    }
}
