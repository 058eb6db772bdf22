//! `atlas explain`: the chosen config and the reason for it, the grid, pipelined loops, placement and resources.

mod file;
mod fused;
mod page;
mod plot;
mod time;

use self::page::Page;
use self::time::{On, Time};
use super::input::{self, ProblemArgs};
use super::print::tell;
use super::ptxas::Resources;
use super::stages::{self, Stage, Texts};
use super::sweep::Sweep;
use super::{archs, counts, ptxas, sizes};
use anyhow::{Context, Result, bail};
use atlas_codegen::{Card, Machine, Platform, Target};
use atlas_dsl::ir::{DimSize, GridExtent};
use atlas_dsl::{Kernel, KernelDef};
use atlas_runtime::records::Records;
use atlas_runtime::{check_grid, files};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct ExplainArgs {
    /// A kernel's name, or a file of Tile IR (`FILE.tile`).
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
    /// List every config, also those that are refused, with the reasons. Without it, the best ten.
    #[arg(long, conflicts_with = "json")]
    all: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Explains and prints.
pub(super) fn run(args: &ExplainArgs) -> Result<bool> {
    check_plot(args)?;
    let (on, card) = place(args)?;
    let path = Path::new(&args.kernel);
    let page = match path.extension().is_some_and(|e| e == "tile") {
        true => file::explain(path, args, on)?,
        false => explain(args, on, card)?,
    };
    match args.json {
        true => page.print_json(),
        false => page.print(args.all),
    }
    Ok(true)
}

/// Explains a kernel of this program.
fn explain(args: &ExplainArgs, on: Platform, card: &'static Card) -> Result<Page> {
    let def = input::kernel(&args.kernel)?;
    let types = input::types(def, args.problem.dtype.as_deref())?;
    let dims = sizes::dims(def, args.problem.dims.as_deref())?;
    sizes::required(def, &dims)?;
    let spec = input::specialization_of(def, &dims, &types)?;
    sizes::runs(def, &dims)?;
    let dtype = input::types_text(&types);
    let records = records(args.gpu.as_deref());
    let chosen = input::chosen(def, &spec, &dims, on.machine, args.problem.config.as_deref(), &records)?;
    let (config, (kernel, placement, texts)) = chosen.first(|c| {
        let kernel = (def.build)(&spec, c)?;
        if let Some(programs) = grid(&kernel, &dims).1 {
            check_grid(def.name, programs, c.schedule.split_k)?;
        }
        let kernel = atlas_dsl::verify(kernel)?;
        let texts = stages::texts(&kernel, &c.schedule, on, ptx_if_possible())?;
        let placement = stages::placement(&kernel, &c.schedule, on)?;
        Ok((kernel, placement, texts))
    })?;
    let all_sizes: Option<Vec<u64>> = def.dims.iter().map(|d| dims.get(d.name).copied()).collect();
    let place = On { machine: on.machine, card, records: &records };
    let time = chosen.ranking.as_ref().zip(all_sizes);
    let time = time.and_then(|(r, sizes)| Time::of(def, &spec, &sizes, place, r, &config));
    let times = match &args.sweep {
        Some(sweep) => swept(def, &types, &dims, sweep, place)?,
        None => Vec::new(),
    };
    let swept = args.sweep.as_ref().map_or_else(String::new, |sweep| sweep.dim.clone());
    if let Some(file) = &args.plot {
        plot::draw(file, &format!("{} {dtype} on {on}", def.name), &swept, &times)?;
    }
    let counted = match args.simulate {
        true => Some(counts::count(def, &kernel, on.machine, &spec, &dims, &config)?),
        false => None,
    };
    Ok(Page {
        kernel: def.name.to_owned(),
        dtype,
        on,
        why: chosen.why,
        grid: grid(&kernel, &dims),
        removed: input::declared(&args.kernel)?.removed(&spec, &config)?,
        resources: assembled(&texts, on)?,
        time,
        sweep: (swept, times),
        ranking: chosen.ranking,
        loops: stages::loops(&kernel, &config.schedule, on, &dims)?,
        placement,
        counted,
        config,
        dims,
    })
}

/// The tuning records of a GPU, with warnings about what is wrong with them.
fn records(gpu: Option<&str>) -> Records {
    let records = gpu.map_or_else(Records::default, Records::of_gpu);
    for problem in records.problems() {
        tell!("warning: {problem}");
    }
    if let Some(gpu) = gpu.filter(|_| records.iter().next().is_none()) {
        tell!("warning: {}", input::no_records_of(gpu, records.other_gpus()));
    }
    records
}

/// PTX, if this program can compile.
fn ptx_if_possible() -> &'static [Stage] {
    if stages::CAN_COMPILE { &[Stage::Ptx] } else { &[] }
}

/// What ptxas says about the PTX among some stages, if it is found.
fn assembled(texts: &Texts, on: Platform) -> Result<Option<Resources>> {
    match (ptxas::find(), texts.first()) {
        (Some(ptxas), Some((_, ptx))) => Ok(Some(ptxas::assemble(&ptxas, ptx, &on.to_string())?)),
        _ => Ok(None),
    }
}

/// Fails if the plot could not be written, before its data are computed.
fn check_plot(args: &ExplainArgs) -> Result<()> {
    let Some(file) = &args.plot else { return Ok(()) };
    files::check(file).with_context(|| format!("--plot: cannot write {}", file.display()))?;
    input::spare_records("--plot", file, None)
}

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
