//! The user's arguments, resolved: kernels, dims, element types and configs; and what to write instead of those that are not understood.

use super::print::tell;
use anyhow::{Context, Result, anyhow, bail};
use atlas_codegen::Machine;
use atlas_dsl::def::{Declared, TypeParamDef};
use atlas_dsl::specialization::{DimFact, largest_class};
use atlas_dsl::{Config, DType, KernelDef, Schedule, Specialization, distance, key_elsewhere};
use atlas_ops::Problem;
use atlas_runtime::bundle::Bundles;
use atlas_runtime::records::{RECORDS_VARIABLE, Records};
use atlas_runtime::{Device, Selection, choose_with, files};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// `--dims`, `--dtype` and `--config`: the problem that a kernel is compiled for.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct ProblemArgs {
    /// Sizes of dims, such as N=2048,D=64. Dims not named keep the kernel's usual size.
    #[arg(long, value_name = "NAME=SIZE,..")]
    pub(super) dims: Option<String>,
    /// Element type: bf16, f16 or f32, or one for each type parameter, T=bf16,U=f32. Without it, bf16 or a benchmark's
    /// own type.
    #[arg(long)]
    pub(super) dtype: Option<String>,
    /// Tile sizes and schedule, such as "BN=64 stages=2 warps=4". Keys not named keep their default.
    #[arg(long, value_name = "KEY=VALUE ..")]
    pub(super) config: Option<String>,
}

/// So many names are shown for one that is not known.
const NEAREST: usize = 6;

/// A kernel by name.
pub(super) fn kernel(name: &str) -> Result<&'static KernelDef> {
    let def = declared(name)?.declared();
    match def.refusal() {
        Some(why) => bail!("kernel `{name}`: {why}"),
        None => Ok(def),
    }
}

/// The declaration of a kernel with this name. A program's own kernel takes precedence over one that ships with Atlas.
pub(super) fn declared(name: &str) -> Result<&'static dyn Declared> {
    let mut found: Vec<&'static dyn Declared> =
        atlas_dsl::def::declarations().filter(|d| d.declared().name == name).collect();
    if found.len() > 1 {
        found.retain(|d| !atlas_ops::op::ships(d.declared()));
    }
    match found[..] {
        [one] => Ok(one),
        [] => {
            let names = nearest_first(name, atlas_dsl::registry().iter().map(|k| k.name).collect());
            bail!(
                "this program has no kernel `{name}`. The nearest of the {} names here: {}; `atlas list` lists all. If a crate of yours \
                 declares it, the program is not linked to that crate: write `use my_crate as _;`, with the crate's name, beside the \
                 `main` that calls `atlas_cli::main()`; the command `atlas` itself has the kernels of Atlas alone",
                names.len(),
                names[..names.len().min(NEAREST)].join(", ")
            )
        }
        _ => {
            let mut files: Vec<&str> = found.iter().map(|d| d.declared().file).collect();
            files.dedup();
            bail!(
                "there are {} kernels `{name}`, in {}: give them names of their own",
                found.len(),
                files.join(" and ")
            )
        }
    }
}

/// Known names, those first that are nearest to one that is not known.
pub(super) fn nearest_first<'n>(name: &str, mut known: Vec<&'n str>) -> Vec<&'n str> {
    known.sort_by_cached_key(|known| (!known.contains(name), distance(name, known)));
    known
}

/// The requested element type, or a default.
pub(super) fn dtype_or(asked: &ProblemArgs, usual: DType) -> Result<DType> {
    asked.dtype.as_deref().map_or(Ok(usual), dtype)
}

/// An element type by name.
fn dtype(name: &str) -> Result<DType> {
    DType::from_name(name).with_context(|| format!("there is no element type `{name}`; use bf16, f16 or f32"))
}

/// bf16, or the first element type that a kernel takes if it does not take bf16.
pub(super) fn usual_dtype(def: &KernelDef) -> DType {
    let takes = |dtype: DType| def.types.iter().all(|t| t.allowed.contains(&dtype));
    let first = def.types.first().and_then(|t| t.allowed.first().copied());
    if takes(DType::Bf16) { DType::Bf16 } else { first.unwrap_or(DType::Bf16) }
}

/// Refuses a requested element type for a kernel whose element types are fixed.
pub(super) fn has_types(def: &KernelDef, text: Option<&str>) -> Result<()> {
    match text {
        Some(text) if def.types.is_empty() => {
            bail!("--dtype {text}: the element types of `{}` are written in it, and none can be chosen", def.name)
        }
        _ => Ok(()),
    }
}

/// A kernel's element types from the user's text: one for all, `bf16`, or some by name, `T=bf16,U=f32`. Others get
/// their defaults.
pub(super) fn types(def: &KernelDef, text: Option<&str>) -> Result<Types> {
    let all = |dtype: DType| def.types.iter().map(|t| (t.name, dtype)).collect();
    let text = match text {
        None => return Ok(all(usual_dtype(def))),
        Some(text) if !text.contains('=') => return Ok(all(dtype(text)?)),
        Some(text) => text,
    };
    let mut types: Types = all(usual_dtype(def));
    let mut given = BTreeSet::new();
    for pair in text.split([',', ' ']).filter(|p| !p.is_empty()) {
        let (name, of) = pair.split_once('=').with_context(|| format!("`{pair}` is not NAME=TYPE, such as T=bf16"))?;
        let Some(t) = def.types.iter().find(|t| t.name == name) else {
            let names: Vec<&str> = def.types.iter().map(|t| t.name).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            bail!("`{}` has no element type `{name}`; those that it has by name are {names}", def.name)
        };
        if !given.insert(t.name) {
            bail!("`{name}` is given twice in `{text}`; each element type of `{}` once", def.name);
        }
        types.insert(t.name, DType::from_name(of).with_context(|| format!("`{of}` is no element type{}", may_be(t)))?);
    }
    Ok(types)
}

/// Element types by the names of a kernel's type parameters.
pub(super) type Types = BTreeMap<&'static str, DType>;

/// `; T may be f16, bf16, f32`.
fn may_be(t: &TypeParamDef) -> String {
    let allowed: Vec<&str> = t.allowed.iter().map(|d| d.name()).collect();
    format!("; `{}` may be {}", t.name, allowed.join(", "))
}

/// `bf16` if all are the same type, else `T=bf16 U=f32`. Empty for a kernel with fixed types.
pub(super) fn types_text(types: &Types) -> String {
    let first = types.values().next();
    match types.values().all(|t| Some(t) == first) {
        true => first.map(ToString::to_string).unwrap_or_default(),
        false => types.iter().map(|(name, t)| format!("{name}={t}")).collect::<Vec<_>>().join(" "),
    }
}

/// The specialization for contiguous, aligned tensors of these sizes, all of one element type.
pub(super) fn specialization(def: &KernelDef, dims: &BTreeMap<String, u64>, dtype: DType) -> Result<Specialization> {
    specialization_of(def, dims, &def.types.iter().map(|t| (t.name, dtype)).collect())
}

/// The same for several element types.
pub(super) fn specialization_of(
    def: &KernelDef,
    dims: &BTreeMap<String, u64>,
    types: &Types,
) -> Result<Specialization> {
    let mut spec = Specialization::default();
    for t in def.types {
        let dtype = types.get(t.name).copied().unwrap_or(DType::Bf16);
        if !t.allowed.contains(&dtype) {
            let allowed: Vec<&str> = t.allowed.iter().map(|d| d.name()).collect();
            bail!("`{}` of `{}` cannot be {dtype}; it may be {}", t.name, def.name, allowed.join(", "));
        }
        spec = spec.with_type(t.name, dtype);
    }
    for d in def.dims {
        let fact = match (d.whole, dims.get(d.name)) {
            (true, Some(0)) => bail!("dim `{}` of `{}` is used whole, so it cannot be 0", d.name, def.name),
            (true, Some(&n)) => DimFact::Const(n),
            (true, None) => {
                bail!("`{}` uses dim `{}` whole: give its size, such as --dims {}=64", def.name, d.name, d.name)
            }
            (false, Some(&n)) => DimFact::Dynamic(largest_class(n)),
            (false, None) => DimFact::Dynamic(1),
        };
        spec = spec.with_dim(d.name, fact);
    }
    Ok(spec)
}

/// A config from the user's text, on top of the kernel's default; every key must be a knob of the kernel.
pub(super) fn config(def: &KernelDef, text: &str) -> Result<Config> {
    let typed: Config = text.parse().map_err(|e| anyhow!("--config: {e}"))?;
    let mut config = def.default_config();
    for key in text.split([' ', ',']).filter_map(|pair| pair.split_once('=')).map(|(key, _)| key) {
        if !Schedule::KEYS.contains(&key) && !def.tune.iter().any(|k| k.name == key) {
            let mut knobs: Vec<&str> = def.tune.iter().map(|k| k.name).collect();
            knobs.extend(Schedule::KEYS.iter().filter(|key| !def.tune.iter().any(|k| k.name == **key)));
            let mend = key_elsewhere(key);
            bail!("--config: `{}` has no knob `{key}`{mend}; its knobs are {}", def.name, knobs.join(", "));
        }
        if let Some(value) = typed.get(key) {
            config.set(key, value);
        }
    }
    Ok(config)
}

/// The schedule for a `.tile` file. Its element types and tile sizes are in the file.
pub(super) fn file_config(problem: &ProblemArgs) -> Result<Config> {
    if problem.dtype.is_some() {
        bail!("--dtype does not apply to a .tile file: its element types are written in it");
    }
    let config: Config = problem.config.as_deref().unwrap_or("").parse().map_err(|e| anyhow!("--config: {e}"))?;
    if let Some(key) = config.tile.keys().next() {
        bail!(
            "--config: a .tile file has no knob `{key}`: its tile sizes are written in it; its knobs are {}",
            Schedule::KEYS.join(", ")
        );
    }
    Ok(config)
}

/// A device by name: cpu, cuda:N, sim:ARCH or best; `sim` is sim:sm_90.
pub(super) fn device(name: &str) -> Result<Device> {
    device_or(name, "--device cpu")
}

/// The same for a verb whose error should suggest something other than the CPU.
pub(super) fn device_or(name: &str, instead: &str) -> Result<Device> {
    // The library's message is for programs, not for command lines.
    open(name).map_err(|e| match e.to_string() {
        text if text.contains("Device::cpu()") => anyhow!("{}", text.replace("Device::cpu()", instead)),
        _ => e,
    })
}

/// Refuses to overwrite a file that is read, whatever name it has. `option` names the option for the output.
pub(super) fn spare(option: &str, out: &Path, inputs: &[(&str, &Path)]) -> Result<()> {
    match inputs.iter().find(|(_, input)| files::is_same(out, input)) {
        Some((of, _)) => bail!("{option}: {} is the file of {of}, and would be overwritten", out.display()),
        None => Ok(()),
    }
}

/// Refuses to overwrite a record in a folder or in those of `ATLAS_RECORDS`.
pub(super) fn spare_records(option: &str, out: &Path, folder: Option<&Path>) -> Result<()> {
    let named = std::env::var_os(RECORDS_VARIABLE);
    let folders = folder.map(Path::to_owned).into_iter().chain(named.iter().flat_map(std::env::split_paths));
    let entries = |folder: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect()
    };
    for folder in folders.filter(|f| !f.as_os_str().is_empty()) {
        let mut all = entries(&folder);
        let inner: Vec<PathBuf> = all.iter().filter(|p| p.is_dir()).flat_map(|p| entries(p)).collect();
        all.extend(inner);
        let records = all.iter().filter(|p| p.extension().is_some_and(|e| e == "toml"));
        let records: Vec<(&str, &Path)> = records.map(|p| ("a tuning record", p.as_path())).collect();
        spare(option, out, &records)?;
    }
    Ok(())
}

fn open(name: &str) -> Result<Device> {
    // A launch continues without them.
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        for problem in Bundles::of_program().problems() {
            tell!("warning: {problem}");
        }
        // Records that are part of the program cannot change, and take time to read.
        if std::env::var_os(RECORDS_VARIABLE).is_some() {
            for problem in Records::of_gpu("").problems() {
                tell!("warning: {problem}");
            }
        }
    });
    if let Some(arch) = (name == "sim").then_some("sm_90").or(name.strip_prefix("sim:")) {
        return Ok(Device::sim(arch)?);
    }
    match (name, name.strip_prefix("cuda:").map(str::parse)) {
        ("best", _) => Ok(Device::best()?),
        ("cpu", _) => Ok(Device::cpu()),
        (_, Some(Ok(ordinal))) => Ok(Device::cuda(ordinal)?),
        _ => bail!(
            "there is no device `{name}`; the devices are cpu, cuda:0, cuda:1 and so on, sim:sm_80, sim:sm_89, sim:sm_90 or sim, and best"
        ),
    }
}

/// The message if a GPU has no tuning records, with the GPUs that have some.
pub(super) fn no_records_of<'a>(gpu: &str, others: impl Iterator<Item = &'a str>) -> String {
    let others: BTreeSet<String> = others.map(|name| format!("`{name}`")).collect();
    let others: Vec<String> = others.into_iter().collect();
    match others.is_empty() {
        true => format!("there are no tuning records of `{gpu}`, nor of any other GPU"),
        false => format!("there are no tuning records of `{gpu}`; there are some of {}", others.join(", ")),
    }
}

/// The most configs to try before the code generator's refusal of the best one is final.
const TRIES: usize = 8;

/// Configs for a problem, and the reason for their order.
pub(super) struct RankedConfigs {
    /// Best first; never empty.
    pub(super) configs: Vec<Config>,
    /// Why the first one is first.
    pub(super) why: String,
    /// The whole ranking, if there is one.
    pub(super) ranking: Option<Selection>,
}

impl RankedConfigs {
    fn one(config: Config, why: impl Into<String>) -> RankedConfigs {
        RankedConfigs { configs: vec![config], why: why.into(), ranking: None }
    }

    /// The first config for which `build` succeeds, with its result. Otherwise the error of the first config.
    pub(super) fn first<T>(&self, mut build: impl FnMut(&Config) -> Result<T>) -> Result<(Config, T)> {
        let mut refusal = None;
        for config in &self.configs {
            match build(config) {
                Ok(built) => return Ok((config.clone(), built)),
                Err(e) => refusal = refusal.or(Some(e.context(format!("config `{config}`")))),
            }
        }
        Err(refusal.unwrap_or_else(|| anyhow!("there is no config to try")))
    }
}

/// The user's config, else the order of the records and the cost model for the machine, else the default.
pub(super) fn chosen(
    def: &'static KernelDef,
    spec: &Specialization,
    dims: &BTreeMap<String, u64>,
    machine: Machine,
    text: Option<&str>,
    records: &Records,
) -> Result<RankedConfigs> {
    if let Some(text) = text {
        return Ok(RankedConfigs::one(config(def, text)?, "given by --config"));
    }
    let sizes: Option<Vec<u64>> = def.dims.iter().map(|d| dims.get(d.name).copied()).collect();
    let Some(sizes) = sizes else {
        return Ok(RankedConfigs::one(
            def.default_config(),
            "the kernel's default; with --dims for every dim the cost model chooses",
        ));
    };
    let selection = choose_with(def, spec, &sizes, machine, records);
    let configs: Vec<Config> = selection.legal().map(|c| c.config.clone()).take(TRIES).collect();
    if configs.is_empty() {
        let reasons: Vec<String> = selection.refused().take(3).map(|(c, why)| format!("{c}: {why}")).collect();
        bail!("no config of `{}` is legal for this problem on {machine}: {}", def.name, reasons.join("; "));
    }
    let why = format!("{}, for {} multiprocessors", selection.source, machine.sms);
    Ok(RankedConfigs { configs, why, ranking: Some(selection) })
}

/// Sizes of a problem by dim.
pub(super) fn dims_of(p: &Problem) -> BTreeMap<String, u64> {
    p.kernel.dims.iter().map(|d| d.name.to_owned()).zip(p.dims.iter().copied()).collect()
}

/// An error in the command line, with a tip that is right or with none: what clap suggests of itself is near in its letters, not in its
/// meaning.
pub(super) fn with_tip(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => of_verb(&text_of(&error, ContextKind::InvalidSubcommand)).map(str::to_owned),
        ErrorKind::UnknownArgument => {
            // `-- --device` would be a kernel of this name.
            error.remove(ContextKind::Suggested);
            let found = text_of(&error, ContextKind::InvalidArg);
            of_argument(args.get(1).and_then(|verb| verb.to_str()).unwrap_or(""), &found)
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn text_of(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Verbs of other tools.
fn of_verb(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "run" | "exec" | "launch" | "test" | "check" => {
            "`atlas verify --only OP` runs the kernels of an op and compares their results, `atlas bench --only OP` measures them"
        }
        "profile" | "time" | "measure" | "benchmark" => "`atlas bench` measures kernels",
        "simulate" | "sim" | "emulate" => "`atlas verify --device sim` runs kernels in the simulator",
        "build" => "`atlas compile KERNEL` prints a stage of a kernel, `atlas bundle` compiles kernels into a file",
        "show" | "dump" | "emit" | "ptx" | "disassemble" => {
            "`atlas compile KERNEL --emit ptx` prints a stage of a kernel"
        }
        "ls" | "kernels" | "ops" => "`atlas list` lists the kernels",
        _ => return None,
    })
}

fn of_argument(verb: &str, found: &str) -> Option<String> {
    Some(match (verb, found) {
        ("verify" | "bench", name) if !name.starts_with('-') => {
            format!("one op is selected by its name: `atlas {verb} --only {name}`")
        }
        ("compile" | "explain", "--device") => {
            format!("`atlas {verb}` runs nothing; the GPU that it is for is said by `--arch sm_90`")
        }
        ("compile" | "explain" | "tune", "--kernel" | "--name" | "--only") => {
            format!("the kernel's name stands alone: `atlas {verb} KERNEL`")
        }
        ("list", "--filter" | "--only" | "--name") => "the text stands alone: `atlas list TEXT`".to_owned(),
        _ => return None,
    })
}
