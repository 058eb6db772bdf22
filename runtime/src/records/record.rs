//! A record as a value and as text.

use crate::files::toml_text::{number, quoted};
use atlas_codegen::arch::Capability;
use atlas_codegen::packing::LaunchKernels;
use atlas_codegen::{Machine, Target};
use atlas_dsl::op::Precision;
use atlas_dsl::{Config, Kernel, KernelDef, Op};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fmt;

/// The most sizes of a record.
pub const MOST_SIZES: usize = 4096;
/// The most configs of a size.
pub const MOST_CONFIGS: usize = 4096;

/// The measured times of one kernel's configs on one model of GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The kernel's name.
    pub kernel: String,
    /// The GPU's name, as its driver gives it.
    pub gpu: String,
    /// The hash of the kernel's tune space when it was measured: see [`tune_hash`].
    pub tune: String,
    /// The measurements, by size.
    #[serde(default, rename = "size")]
    pub sizes: Vec<TunedSize>,
}

/// The configs that were measured at one size, and the one that should run there.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunedSize {
    /// Element types in the format of [`class_text`](super::class_text).
    #[serde(default)]
    pub types: String,
    /// Tensors that are not usual, in the same format.
    #[serde(default)]
    pub tensors: String,
    /// `N=32768 D=8192`: all dims in the signature's order.
    pub dims: String,
    /// The hash of the Tile IR of the chosen config's kernel: see [`ir_hash`].
    pub ir: String,
    /// The interquartile range of the chosen config's times, divided by their median.
    pub spread: f64,
    /// The time of a copy of the same number of bytes divided by the chosen config's time; 0 if unknown.
    #[serde(default)]
    pub of_copy: f64,
    /// Date, driver, clocks and compiler.
    pub measured: String,
    /// The version of the [`MODEL`](super::MODEL) that gave the cycles; 0 for models before versions were counted.
    #[serde(default)]
    pub model: u32,
    /// The target whose code was measured, such as `sm_90a`, if one compute capability alone runs it; empty for others.
    #[serde(default)]
    pub target: String,
    /// The chosen config first, then the others from the fastest on.
    pub configs: Vec<Timed>,
}

/// A config with its time in microseconds, and the clock cycles that the cost model predicted.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "(String, f64, f64)")]
pub struct Timed {
    /// The config's text.
    pub config: String,
    /// The median time in microseconds, or, on a simulated GPU, the number of warp instructions.
    pub us: f64,
    /// The prediction of the cost model, without any correction.
    pub cycles: f64,
}

impl From<(String, f64, f64)> for Timed {
    fn from((config, us, cycles): (String, f64, f64)) -> Timed {
        Timed { config, us, cycles }
    }
}

/// Why a text is not a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// The path of the file, or another origin of the text.
    pub origin: String,
    /// What is wrong.
    pub message: String,
}

impl RecordError {
    pub(super) fn new(origin: &str, message: impl Into<String>) -> RecordError {
        RecordError { origin: origin.to_owned(), message: message.into() }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tuning records of {} cannot be used: {}", self.origin, self.message)
    }
}

impl std::error::Error for RecordError {}

impl Record {
    /// Parses a record.
    ///
    /// # Errors
    /// [`RecordError`]: what is wrong, with its line if that is known.
    pub fn parse(origin: &str, text: &str) -> Result<Record, RecordError> {
        let wrong = |message: String| RecordError::new(origin, message);
        let mut record: Record = toml::from_str(text).map_err(|e| wrong(e.to_string().trim().to_owned()))?;
        if record.sizes.len() > MOST_SIZES {
            return Err(wrong(format!("it has more than {MOST_SIZES} sizes")));
        }
        // In the order in which `atlas tune` writes them, whoever wrote this file.
        for size in &mut record.sizes {
            if let Some(pairs) = size.dim_sizes() {
                size.dims = pairs.iter().map(|(name, n)| format!("{name}={n}")).collect::<Vec<_>>().join(" ");
            }
        }
        let mut seen = HashSet::new();
        for size in &record.sizes {
            let at = |what: &str| wrong(format!("[{}] {}: {what}", size.types, size.dims));
            if !seen.insert((&size.types, &size.tensors, &size.dims, &size.target)) {
                return Err(at("it stands there twice"));
            }
            if size.configs.is_empty() || size.configs.len() > MOST_CONFIGS {
                return Err(at(&format!("it needs 1 to {MOST_CONFIGS} configs")));
            }
            if let Some(t) = size.configs.iter().find(|t| !(good(t.us) && good(t.cycles))) {
                return Err(at(&format!("`{}` has no time, or no cycles", t.config)));
            }
            if size.dim_sizes().is_none() {
                return Err(at("the dims are not NAME=SIZE, each once"));
            }
            for t in &size.configs {
                t.config.parse::<Config>().map_err(|e| at(&format!("config `{}`: {e}", t.config)))?;
            }
        }
        Ok(record)
    }

    /// The row for the sizes of a launch, if they were measured.
    pub fn at(&self, types: &str, tensors: &str, dims: &str) -> Option<&TunedSize> {
        self.sizes.iter().find(|s| s.is_of(types, tensors, dims))
    }
}

fn good(x: f64) -> bool {
    x.is_finite() && x > 0.0
}

/// Rounds a number to multiples of `1 / per`, unless that turns a nonzero number into 0, or the reverse.
fn rounded(x: f64, per: f64) -> f64 {
    let round = (x * per).round() / per;
    if good(round) { round } else { x }
}

impl TunedSize {
    /// The same with rounded numbers. A number that would become 0 keeps its digits.
    #[must_use]
    pub fn rounded(mut self) -> TunedSize {
        self.spread = rounded(self.spread, 1e4);
        self.of_copy = rounded(self.of_copy, 1e3);
        for t in &mut self.configs {
            (t.us, t.cycles) = (rounded(t.us, 1e3), rounded(t.cycles, 10.0));
        }
        self
    }

    /// The config that runs at this size.
    pub fn chosen(&self) -> &Timed {
        // A record has at least one: `Record::parse` refuses others, and `atlas tune` measures before it writes.
        &self.configs[0]
    }

    /// Whether this row has these sizes, in any order: no name occurs twice.
    pub fn is_of(&self, types: &str, tensors: &str, dims: &str) -> bool {
        let pairs = |dims: &'_ str| -> usize { dims.split(' ').count() };
        let has = |pair: &str| self.dims.split(' ').any(|p| p == pair);
        let same = || pairs(&self.dims) == pairs(dims) && dims.split(' ').all(has);
        self.types == types && self.tensors == tensors && (self.dims == dims || same())
    }

    /// The sizes of the dims by name.
    pub(crate) fn dim_sizes(&self) -> Option<Vec<(&str, u64)>> {
        let pair = |p: &'_ str| -> Option<(usize, u64)> {
            let (name, size) = p.split_once('=')?;
            Some((name.len(), size.parse().ok()?))
        };
        let pairs: Vec<(&str, u64)> = self
            .dims
            .split_whitespace()
            .map(|p| pair(p).map(|(end, size)| (&p[..end], size)))
            .collect::<Option<_>>()?;
        let names: HashSet<&str> = pairs.iter().map(|p| p.0).collect();
        (names.len() == pairs.len()).then_some(pairs)
    }
}

impl fmt::Display for Record {
    /// The text from which [`Record::parse`] reads the same record.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Written by `atlas tune`. Of each size the config that runs, then others that were measured:")?;
        let what = if is_simulated(&self.gpu) {
            "warp instructions of a simulator, which are no times"
        } else {
            "microseconds"
        };
        writeln!(f, "# the config, {what}, and what the cost model said, in clock cycles.")?;
        let [kernel, gpu, tune] = [&self.kernel, &self.gpu, &self.tune].map(|text| quoted(text));
        writeln!(f, "kernel = {kernel}\ngpu = {gpu}\ntune = {tune}")?;
        for s in &self.sizes {
            writeln!(f, "\n[[size]]")?;
            for (key, text) in [("types", &s.types), ("tensors", &s.tensors)] {
                if !text.is_empty() {
                    writeln!(f, "{key} = {}", quoted(text))?;
                }
            }
            writeln!(f, "dims = {}\nir = {}\nspread = {}", quoted(&s.dims), quoted(&s.ir), number(s.spread, 4))?;
            if s.of_copy != 0.0 {
                writeln!(f, "of_copy = {}", number(s.of_copy, 3))?;
            }
            writeln!(f, "measured = {}\nmodel = {}", quoted(&s.measured), s.model)?;
            if !s.target.is_empty() {
                writeln!(f, "target = {}", quoted(&s.target))?;
            }
            writeln!(f, "configs = [")?;
            for t in &s.configs {
                writeln!(f, "    [{}, {}, {}],", quoted(&t.config), number(t.us, 3), number(t.cycles, 1))?;
            }
            writeln!(f, "]")?;
        }
        Ok(())
    }
}

/// The target of a machine as rows of kernels with products name it: that of one compute capability alone, if it multiplies tiles
/// in a way of its own; else nothing.
pub fn target_text(machine: &Machine) -> String {
    let target = machine.target();
    if target.specific && target.has(Capability::Wgmma) { target.to_string() } else { String::new() }
}

/// What a row of a kernel says of the target that it was measured for: nothing if the kernel's code is the same for others.
pub fn row_target(kernel: &Kernel, machine: &Machine) -> String {
    if differs_by_target(kernel) { target_text(machine) } else { String::new() }
}

/// Whether a row tells of the code that a kernel has for a target, as [`target_text`] names it.
pub fn is_of_target(kernel: &Kernel, row: &TunedSize, target: &str) -> bool {
    row.target == target || !differs_by_target(kernel)
}

/// True for a kernel that multiplies tiles on tensor cores: targets differ in how they do that.
fn differs_by_target(kernel: &Kernel) -> bool {
    let differs = |op: &Op| match op {
        Op::Dot { a, precision, .. } => kernel.ty(*a).dtype.is_half() || *precision != Precision::Default,
        _ => false,
    };
    kernel.insts.values().any(differs)
}

/// The machine that a row is of: `usual`, with the row's target; with the portable target of its generation if the row names none.
pub fn machine_of(row: &TunedSize, usual: Machine) -> Machine {
    match row.target.parse::<Target>() {
        Ok(target) if target.sm == usual.sm => Machine { target, ..usual },
        Ok(target) => target.into(),
        Err(_) => {
            let target = Target::for_capability(usual.sm / 10, usual.sm % 10).unwrap_or(usual.target);
            Machine { target, ..usual }
        }
    }
}

/// Whether a GPU of this name is a simulated one, whose records have counts of instructions where others have times.
pub fn is_simulated(gpu: &str) -> bool {
    gpu.starts_with("simulator ")
}

/// The SHA-256 of a text in hexadecimal digits.
fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Its first 16 digits.
pub(super) fn short_hash(text: &str) -> String {
    hash(text)[..16].to_owned()
}

/// The whole hash of the canonical Tile IR of a launch's kernels, those that pack operands included.
pub fn launch_hash(launch: &LaunchKernels) -> String {
    let texts: Vec<String> = launch.packers.iter().chain([&launch.kernel]).map(|kernel| kernel.to_string()).collect();
    hash(&texts.join("\n"))
}

/// The hash of a kernel's tune space, by its text.
pub fn tune_hash(def: &KernelDef) -> String {
    let knob = |t: &atlas_dsl::def::TuneDef| {
        let values: Vec<String> = t.values.iter().map(ToString::to_string).collect();
        format!("{}=[{}]", t.name, values.join(","))
    };
    short_hash(&def.tune.iter().map(knob).collect::<Vec<_>>().join(" "))
}

/// The hash of the canonical Tile IR of a kernel at one config and specialization, shortened.
pub fn ir_hash(kernel: &Kernel) -> String {
    short_hash(&kernel.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// Any text, including characters that quotes escape in one language and not in another.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof![any::<String>(), "[ -~\u{7f}\u{a0}\u{0}-\u{1f}'\"\\\\\u{feff}]{0,12}", "[a-z =:*0-9]{0,12}"]
    }

    fn time() -> impl Strategy<Value = f64> {
        let small = (1_u32..1_000_000).prop_map(|n| f64::from(n) / 1e3);
        prop_oneof![small, any::<f64>().prop_map(f64::abs).prop_filter("a time", |x| good(*x)), Just(0.0004)]
    }

    fn any_number() -> impl Strategy<Value = f64> {
        prop_oneof![any::<f64>(), Just(f64::NAN), Just(f64::INFINITY), Just(0.0), Just(0.000_04), Just(-1.0)]
    }

    fn timed() -> impl Strategy<Value = Timed> {
        let config = select(vec!["BN=4 stages=2 warps=8", "BN=1", "", "BN\u{a0}\"=1", "warps=4,BN=2"]);
        (config, time(), time()).prop_map(|(config, us, cycles)| Timed { config: config.to_owned(), us, cycles })
    }

    fn size() -> impl Strategy<Value = TunedSize> {
        let texts = (text(), text(), text(), text(), text(), select(vec!["N=8 D=64", "N=8", "", "N\"=8 D\u{7f}=1"]));
        let numbers = (any_number(), any_number(), any::<u32>());
        (texts, numbers, vec(timed(), 1..4)).prop_map(
            |((types, tensors, ir, measured, target, dims), numbers, configs)| {
                let (spread, of_copy, model) = numbers;
                TunedSize {
                    types,
                    tensors,
                    dims: dims.to_owned(),
                    ir,
                    spread,
                    of_copy,
                    measured,
                    model,
                    target,
                    configs,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_is_printed(kernel in text(), gpu in text(), tune in text(), sizes in vec(size(), 0..3)) {
            let mut record = Record { kernel, gpu, tune, sizes };
            let mut seen = HashSet::new();
            record.sizes.retain(|s| seen.insert((s.types.clone(), s.tensors.clone(), s.dims.clone(), s.target.clone())));
            let read = Record::parse("printed", &record.to_string());
            prop_assert!(read.is_ok(), "{:?}\n{}", read, record);
            let read = read.unwrap_or_else(|_| unreachable!());
            // NaN equals nothing, so the bits are compared where there may be one.
            prop_assert_eq!(read.to_string(), record.to_string());
            let without_none = |mut r: Record| {
                for s in &mut r.sizes {
                    for x in [&mut s.spread, &mut s.of_copy] {
                        *x = if x.is_nan() { 0.5 } else { *x };
                    }
                }
                r
            };
            prop_assert_eq!(without_none(read), without_none(record));
        }
    }

    #[test]
    fn what_is_measured_is_rounded_and_stays() {
        let configs = vec![Timed { config: "BN=1".to_owned(), us: 0.0004, cycles: 1234.5678 }];
        let size = |spread, of_copy, configs| TunedSize {
            types: String::new(),
            tensors: String::new(),
            dims: "N=8".to_owned(),
            ir: String::new(),
            spread,
            of_copy,
            measured: String::new(),
            model: 0,
            target: String::new(),
            configs,
        };
        let rounded = size(0.012_345, 0.876_54, configs).rounded();
        assert_eq!((rounded.spread, rounded.of_copy), (0.0123, 0.877));
        assert_eq!((rounded.configs[0].us, rounded.configs[0].cycles), (0.0004, 1234.6));
        let record = Record { kernel: "k".into(), gpu: "g".into(), tune: "t".into(), sizes: vec![rounded] };
        assert!(record.to_string().contains("[\"BN=1\", 0.0004, 1234.6]"), "{record}");
    }

    /// Records from earlier versions keep their text.
    #[test]
    fn the_shipped_records_are_printed_as_they_stand() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../ops/records");
        let folders = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir());
        let files = folders.flat_map(|p| std::fs::read_dir(p).unwrap().map(|e| e.unwrap().path()));
        let mut read = 0;
        for file in files.filter(|p| p.extension().is_some_and(|e| e == "toml")) {
            let text = std::fs::read_to_string(&file).unwrap();
            assert_eq!(Record::parse("shipped", &text).unwrap().to_string(), text, "{}", file.display());
            read += 1;
        }
        assert!(read > 10, "{read}");
    }
}
