//! `atlas explain`: the chosen config and the reason for it, the grid, placement and resources.

mod plot;
mod time;

use self::time::{On, Time};
use super::input::{self, ProblemArgs};
use super::print::{say, tell};
use super::stages::{self, Stage};
use super::sweep::Sweep;
use super::{archs, counts, ptxas, show, sizes};
use anyhow::{Context, Result, bail};
use atlas_codegen::notes::Note;
use atlas_codegen::{Card, Explained, Machine, Platform, Target};
use atlas_dsl::def::Removed;
use atlas_dsl::ir::{DimSize, GridExtent};
use atlas_dsl::{Kernel, KernelDef};
use atlas_runtime::records::Records;
use atlas_runtime::{LaunchError, files};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct ExplainArgs {
    /// A kernel's name.
    kernel: String,
    /// The GPU, such as sm_86 (code is for the best target that runs on it and on later ones), or a target such as
    /// sm_90a. Without it, the arch of --gpu if that is known, else sm_80.
    #[arg(long)]
    arch: Option<String>,
    /// Choose by the tuning records of this GPU, such as "NVIDIA H200" (its name in the driver): those that this
    /// program carries, and those in the folders of ATLAS_RECORDS. Its data sheet gives the bound.
    #[arg(long, value_name = "NAME")]
    gpu: Option<String>,
    #[command(flatten)]
    problem: ProblemArgs,
    /// Also explain the times at sizes of one dim, such as N=1..65536: each twice the one before.
    #[arg(long, value_name = "DIM=FIRST..LAST")]
    sweep: Option<Sweep>,
    /// Plot these times against the size, as SVG.
    #[arg(long, value_name = "FILE", requires = "sweep")]
    plot: Option<PathBuf>,
    /// Run the kernel on a few tiles in the simulator, and count instructions, accesses and conflicts.
    #[arg(long)]
    simulate: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Explains and prints.
pub(super) fn run(args: &ExplainArgs) -> Result<bool> {
    check_plot(args)?;
    let (on, card) = place(args)?;
    let def = input::kernel(&args.kernel)?;
    let types = input::types(def, args.problem.dtype.as_deref())?;
    let dims = sizes::dims(def, args.problem.dims.as_deref())?;
    sizes::required(def, &dims)?;
    let spec = input::specialization_of(def, &dims, &types)?;
    sizes::runs(def, &dims)?;
    let dtype = input::types_text(&types);
    let records = args.gpu.as_deref().map_or_else(Records::default, Records::of_gpu);
    for problem in records.problems() {
        tell!("warning: {problem}");
    }
    if let Some(gpu) = args.gpu.as_deref().filter(|_| records.iter().next().is_none()) {
        tell!("warning: {}", input::no_records_of(gpu, records.other_gpus()));
    }
    let chosen = input::chosen(def, &spec, &dims, on.machine, args.problem.config.as_deref(), &records)?;
    let (config, (kernel, placement, texts)) = chosen.first(|c| {
        let kernel = (def.build)(&spec, c)?;
        if let Some(programs) = grid(&kernel, &dims).1.filter(|n| i32::try_from(*n).is_err()) {
            return Err(LaunchError::GridTooLarge { kernel: def.name, programs }.into());
        }
        let want: &[Stage] = if stages::CAN_COMPILE { &[Stage::Ptx] } else { &[] };
        let texts = stages::print(kernel.clone(), &c.schedule, on, want)?;
        Ok((kernel.clone(), stages::placement(kernel, &c.schedule, on)?, texts))
    })?;
    let schedule = config.schedule;
    let (axes, programs) = grid(&kernel, &dims);
    let removed = input::declared(&args.kernel)?.removed(&spec, &config)?;
    let resources = match (ptxas::find(), texts.first()) {
        (Some(ptxas), Some((_, ptx))) => Some(ptxas::assemble(&ptxas, ptx, &on.to_string())?),
        _ => None,
    };
    let sizes: Option<Vec<u64>> = def.dims.iter().map(|d| dims.get(d.name).copied()).collect();
    let place = On { machine: on.machine, card, records: &records };
    let time = chosen.ranking.as_ref().zip(sizes);
    let time = time.and_then(|(r, sizes)| Time::of(def, &spec, &sizes, place, r, &config));
    let times = match &args.sweep {
        Some(sweep) => swept(def, &types, &dims, sweep, place)?,
        None => Vec::new(),
    };
    if let (Some(file), Some(sweep)) = (&args.plot, &args.sweep) {
        plot::draw(file, &format!("{} {dtype} on {on}", def.name), &sweep.dim, &times)?;
    }
    let counted = match args.simulate {
        true => Some(counts::count(def, &kernel, on.machine, &spec, &dims, &config)?),
        false => None,
    };
    if args.json {
        show::json(&json!({
            "kernel": def.name, "dtype": dtype, "dims": dims, "arch": on.to_string(),
            "config": config.to_string(), "why": chosen.why, "ranking": chosen.ranking.as_ref().map(ToString::to_string),
            "time": time.map(|t| t.json()),
            "sweep": times.iter().map(|(n, t)| json!([n, t.config().to_string(), t.json()])).collect::<Vec<_>>(), "grid": axes, "programs": programs,
            "fused": (0..removed.len()).map(|at| removed_json(&removed, at, &dims)).collect::<Vec<_>>(),
            "threads": schedule.warps * 32, "placement": placement.to_string(), "notes": notes(&placement),
            "sim": counted.map(|c| c.json()),
            "ptxas": resources.map(|r| json!({ "registers": r.registers, "spills": r.spills, "shared": r.shared })),
        }));
        return Ok(true);
    }
    let shape: Vec<String> = dims.iter().map(|(name, n)| format!("{name}={n}")).collect();
    let shape = shape.join(" ");
    let of: Vec<&str> = [def.name, &dtype, &shape].into_iter().filter(|part| !part.is_empty()).collect();
    say!("kernel   {} on {on}", of.join(" "));
    say!("config   {config}");
    say!("why      {}", chosen.why);
    say!(
        "grid     {axes} = {} programs of {} threads",
        programs.map_or_else(|| "?".to_owned(), |n| n.to_string()),
        schedule.warps * 32
    );
    if !removed.is_empty() {
        let makers: BTreeSet<&str> = removed.iter().map(|r| r.maker.as_str()).collect();
        say!("fused    1 launch for {}\n{}", makers.len() + 1, removed_text(&removed, &dims));
    }
    say!(
        "ptxas    {}",
        resources.map_or_else(
            || "not asked, because it was not found (`atlas doctor` says where it is looked for)".to_owned(),
            |r| format!(
                "{} registers, {} bytes spilled, {} bytes of static shared memory",
                r.registers, r.spills, r.shared
            )
        )
    );
    if let Some(time) = time {
        say!("{}", time.text().trim_end_matches('\n'));
    }
    if !times.is_empty() {
        say!("\n{}", sweep_table(args.sweep.as_ref().map_or("", |s| &s.dim), &times));
    }
    if let Some(ranking) = &chosen.ranking {
        say!("\nconfigs, best first: {}\n{REGISTERS}", ranking.to_string().trim_end());
    }
    say!("\n{}", placement.to_string().trim_end());
    if let Some(counted) = counted {
        say!("\n{}", counted.text().trim_end());
    }
    Ok(true)
}

/// Fails if the plot could not be written, before its data are computed.
fn check_plot(args: &ExplainArgs) -> Result<()> {
    let Some(file) = &args.plot else { return Ok(()) };
    files::check(file).with_context(|| format!("--plot: cannot write {}", file.display()))?;
    input::spare_records("--plot", file, None)
}

/// A note about the registers in the ranking.
const REGISTERS: &str = "     registers here are estimates of all that a thread needs, below of its tiles alone; ptxas counts those that it uses";

/// The platform of `--arch` or `--gpu`, and the card whose data sheet gives the bound.
fn place(args: &ExplainArgs) -> Result<(Platform, &'static Card)> {
    let named = args.gpu.as_deref().and_then(Card::named);
    let on = match (&args.arch, named.and_then(Card::machine)) {
        (Some(arch), _) => archs::platform(arch)?,
        // As a driver that is not older than its CUDA 12 compiles for that GPU.
        (None, Some(machine)) => {
            let target = Target::for_device(machine.sm / 10, machine.sm % 10, (12, 0)).unwrap_or(machine.target);
            Machine { target, ..machine }.into()
        }
        (None, None) => archs::platform("sm_80")?,
    };
    let here = |card: &&Card| card.sm == on.machine.sm;
    if let (Some(gpu), Some(card)) = (&args.gpu, named.filter(|card| !here(card))) {
        tell!(
            "warning: --gpu: `{gpu}` is sm_{}, and what is explained is for {on}: its records are of another machine; leave out --arch, \
             or the GPU",
            card.sm
        );
    }
    let card = named.filter(here).or_else(|| Card::usual(&on.machine));
    Ok((on, card.with_context(|| format!("no GPU like {on} is in the table of cards"))?))
}

/// The times at the sizes of a sweep.
fn swept(
    def: &'static KernelDef,
    types: &input::Types,
    dims: &BTreeMap<String, u64>,
    sweep: &Sweep,
    on: On<'_>,
) -> Result<Vec<(u64, Time)>> {
    let at = |&n: &u64| {
        let sizes = def.dims.iter().map(|d| {
            let size = if d.name == sweep.dim { Some(n) } else { dims.get(d.name).copied() };
            Ok((d.name.to_owned(), size.with_context(|| format!("--sweep needs a size of `{}` too", d.name))?))
        });
        let sizes = sizes.collect::<Result<BTreeMap<String, u64>>>()?;
        sizes::possible(def, &sizes)?;
        if sizes::required(def, &sizes).is_err() {
            return Ok(None);
        }
        let spec = input::specialization_of(def, &sizes, types)?;
        Ok(Some((n, spec, def.dims.iter().map(|d| sizes[d.name]).collect())))
    };
    if !def.dims.iter().any(|d| d.name == sweep.dim) {
        bail!("`{}` has no dim `{}`", def.name, sweep.dim);
    }
    // Sizes that the kernel does not support are left out.
    let sizes = sweep.sizes.iter().map(at).filter_map(Result::transpose).collect::<Result<Vec<_>>>()?;
    if sizes.is_empty() {
        bail!("--sweep: the `require` of `{}` holds for none of its sizes", def.name);
    }
    Ok(time::along(def, &sizes, on))
}

fn sweep_table(dim: &str, times: &[(u64, Time)]) -> String {
    let mut table = show::table(&[dim, "config", "model cycles", "us", "recorded us", "bound us"]);
    for (n, t) in times {
        let us = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.2}"));
        table.add_row(vec![
            n.to_string(),
            t.config().to_string(),
            format!("{:.0}", t.cycles()),
            us(t.predicted_us()),
            us(t.recorded_us()),
            us(t.bound_us()),
        ]);
    }
    table.to_string()
}

/// The decisions as JSON.
fn notes(explained: &Explained) -> Vec<serde_json::Value> {
    let row = |n: &Note| {
        json!({
            "pass": n.pass, "subject": n.subject, "line": n.loc.line, "column": n.loc.column,
            "decision": n.decision, "because": n.because,
        })
    };
    explained.notes.iter().map(row).collect()
}

/// The bytes saved by removing a tensor: it is not read, and, at its first occurrence, not written either.
fn saved(removed: &[Removed], at: usize, dims: &BTreeMap<String, u64>) -> Option<u64> {
    let r = &removed[at];
    let elements = r.dims.iter().try_fold(1, |n, d| dims.get(d).map(|size| n * size));
    let known = removed[..at].iter().any(|o| (&o.maker, &o.tensor) == (&r.maker, &r.tensor));
    elements.map(|n| if known { 1 } else { 2 } * n * u64::from(r.dtype.bytes()))
}

fn removed_json(removed: &[Removed], at: usize, dims: &BTreeMap<String, u64>) -> serde_json::Value {
    let r = &removed[at];
    json!({
        "tensor": r.tensor, "dims": r.dims, "dtype": r.dtype.name(), "maker": r.maker, "reader": r.reader,
        "rule": r.rule.0, "algebra": r.rule.1, "loops": r.loops, "again": r.again, "bytes_saved": saved(removed, at, dims),
    })
}

/// A line for each tensor that fusion removed.
fn removed_text(removed: &[Removed], dims: &BTreeMap<String, u64>) -> String {
    let line = |(at, r): (usize, &Removed)| {
        let saved = saved(removed, at, dims).map_or_else(|| "?".to_owned(), |n| n.to_string());
        let again =
            if r.again.is_empty() { String::new() } else { format!(", made again along {}", r.again.join(", ")) };
        let looped = if r.loops == 0 { "" } else { ", in a loop" };
        let (tensor, shape) = (&r.tensor, r.dims.join(", "));
        format!(
            "         {tensor} {}[{shape}] of {} for {} ({}: {}){looped}{again}: {saved} bytes less",
            r.dtype, r.maker, r.reader, r.rule.0, r.rule.1
        )
    };
    removed.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// The grid as text, and its number of programs if every size is known.
fn grid(kernel: &Kernel, dims: &BTreeMap<String, u64>) -> (String, Option<u64>) {
    let size = |d| match kernel.dims[d].size {
        DimSize::Const(n) => Some(n),
        DimSize::Dynamic { .. } => dims.get(&kernel.dims[d].name).copied(),
    };
    let mut programs = Some(1);
    let mut axes = Vec::new();
    for axis in &kernel.grid {
        let count = match axis.extent {
            GridExtent::Points(d) => {
                axes.push(kernel.dims[d].name.clone());
                size(d)
            }
            GridExtent::Tiles { dim, size: tile } => {
                axes.push(format!("tiles({}, {tile})", kernel.dims[dim].name));
                size(dim).map(|n| n.div_ceil(u64::from(tile)))
            }
            // Tiles of the same dim, so the count before is one factor of two.
            GridExtent::UpTo { dim, size: tile } => {
                axes.pop();
                axes.push(format!("pairs(tiles({}, {tile}))", kernel.dims[dim].name));
                let count = size(dim).map(|n| n.div_ceil(u64::from(tile)));
                programs = programs.zip(count).map(|(a, n)| a * (n + 1) / 2);
                continue;
            }
        };
        programs = programs.zip(count).map(|(a, b)| a * b);
    }
    (axes.join(" x "), programs)
}
