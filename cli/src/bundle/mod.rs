//! `atlas bundle`: compiles kernels ahead of time into one file, with the tables that choose between them and evidence
//! of their correctness.
//!
//! Problems are grouped into classes: one for each specialization, and one more for all sizes of a kernel's element
//! types and whole dims. For each class and machine a few configs are chosen (`atlas_runtime::regions`), compiled,
//! assembled if NVIDIA's assembler is available, and run in the simulator from the file itself.

mod evidence;
mod make;
mod report;
mod variant;

pub(super) use self::evidence::verify;
pub(super) use self::variant::{Assembler, Compiled};

use self::make::BundleOptions;
use super::jobs;
use super::{archs, input, ptxas};
use anyhow::{Context, Result, bail};
use atlas_codegen::Platform;
use atlas_runtime::Card;
use atlas_runtime::bundle::Bundle;
use atlas_runtime::files;
use atlas_runtime::records::Records;
use std::path::{Path, PathBuf};

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct BundleArgs {
    #[command(flatten)]
    asked: jobs::Asked,
    /// What to compile for: archs, whose code runs on later GPUs too, or targets such as sm_90a. An arch may name the
    /// GPU whose tuning records decide, `sm_90:NVIDIA H200`.
    #[arg(long, value_delimiter = ',', value_name = "ARCH[:GPU],..", default_value = "sm_80,sm_89,sm_90")]
    arch: Vec<String>,
    /// The file to write.
    #[arg(long, value_name = "FILE", default_value = "kernels.atlas")]
    out: PathBuf,
    /// A folder with tuning records, in addition to those that this program carries.
    #[arg(long, value_name = "FOLDER")]
    records: Option<PathBuf>,
    /// Configs of each class and machine, beside those that records chose.
    #[arg(long, default_value_t = 6)]
    variants: usize,
    /// Only the classes of the sizes given: no class for all other sizes.
    #[arg(long)]
    only_these: bool,
    /// Leave out what a machine has no room for, with a warning, instead of making no bundle.
    #[arg(long)]
    skip_refused: bool,
    /// Machine code beside the PTX, for exactly these archs; needs NVIDIA's assembler.
    #[arg(long)]
    cubin: bool,
    /// Do not run the compiled kernels in the simulator.
    #[arg(long)]
    no_evidence: bool,
    /// Print the content of a bundle, and make none.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernels", "dims", "dtype", "set", "sizes", "arch", "out", "records",
        "variants", "only_these", "skip_refused", "cubin", "no_evidence"])]
    show: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Makes a bundle, or shows one.
pub(super) fn run(args: &BundleArgs, warn: &mut dyn FnMut(&str)) -> Result<bool> {
    if let Some(path) = &args.show {
        let bundle = Bundle::open(path)?;
        bundle.check()?;
        report::print(&bundle, size(path), args.json)?;
        return Ok(true);
    }
    if args.records.is_some() && !args.arch.iter().any(|a| a.contains(':')) {
        bail!("--records are of a GPU: name it, such as --arch \"sm_90:NVIDIA H200\"");
    }
    if args.variants == 0 {
        bail!("--variants 0 leaves a bundle of nothing: each class has at least 1");
    }
    archs::once("--arch", &args.arch)?;
    let platforms = args.arch.iter().map(|text| platform(text, args.records.as_deref(), warn));
    let options = BundleOptions {
        platforms: platforms.collect::<Result<_>>()?,
        variants: args.variants,
        for_all_sizes: !args.only_these,
        skips_refused: args.skip_refused,
        assembler: Assembler { ptxas: ptxas::find(), cubin: args.cubin },
        evidence: !args.no_evidence,
    };
    if args.cubin && options.assembler.ptxas.is_none() {
        bail!("--cubin needs NVIDIA's assembler, ptxas of CUDA 13, which is not here: {}", ptxas::missing());
    }
    files::check(&args.out).with_context(|| format!("--out: cannot write {}", args.out.display()))?;
    args.asked.spare("--out", &args.out)?;
    input::spare_records("--out", &args.out, args.records.as_deref())?;
    let bytes = options.make(&args.asked.jobs()?, warn)?;
    files::write(&args.out, &bytes).with_context(|| format!("cannot write {}", args.out.display()))?;
    let size = bytes.len() as u64;
    // The bytes are reused, because a pipe cannot be read again.
    let bundle = Bundle::read(&args.out.display().to_string(), bytes)?;
    for what in report::untried(&bundle)? {
        warn(&what);
    }
    // Otherwise the report would follow the bundle on stdout.
    if !files::is_stdout(&args.out) {
        report::print(&bundle, size, args.json)?;
    }
    Ok(true)
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// A machine to compile for, and the records of its GPU. Those in the user's folder come first.
fn platform(text: &str, folder: Option<&Path>, warn: &mut dyn FnMut(&str)) -> Result<(Platform, Records)> {
    if text.ends_with(':') {
        bail!("--arch {text} names no GPU: leave the colon out, or write such as \"{text}NVIDIA H200\"");
    }
    let Some((arch, gpu)) = text.split_once(':') else { return Ok((archs::platform(text)?, Records::default())) };
    let mut known = Records::none(gpu);
    if let Some(folder) = folder {
        std::fs::read_dir(folder).with_context(|| format!("--records: cannot read {}", folder.display()))?;
        known.add_folder(folder);
        if known.iter().next().is_none() {
            let what = input::no_records_of(gpu, known.other_gpus());
            warn(&format!("--records {}: {what}", folder.display()));
        }
    }
    let others = Records::of_gpu(gpu);
    for record in others.iter() {
        known.add_record(&record.kernel, record.clone());
    }
    for problem in known.problems().iter().chain(others.problems()) {
        warn(&problem.to_string());
    }
    if folder.is_none() && known.iter().next().is_none() {
        warn(&input::no_records_of(gpu, others.other_gpus()));
    }
    let on = archs::platform(arch)?;
    if let Some(of) = Card::named(gpu).filter(|of| of.sm != on.machine.sm) {
        warn(&format!("--arch {text}: `{gpu}` is sm_{}, and its records are of another machine than {arch}", of.sm));
    }
    Ok((on, known))
}
