//! `atlas compile`: prints any stage of a kernel as text.

mod all;

use super::archs::{once, platform};
use super::artifact::{slug, write};
use super::input::{self, ProblemArgs};
use super::print::say;
use super::stages::{self, Stage, Texts};
use super::{show, sizes};
use anyhow::{Context, Result, bail};
use atlas_codegen::Platform;
use atlas_dsl::Config;
use atlas_runtime::records::Records;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct CompileArgs {
    /// A kernel's name, or a file of Tile IR (`FILE.tile`).
    #[arg(required_unless_present = "all")]
    kernel: Option<String>,
    /// The GPU, such as sm_86 (code is for the best target that runs on it and on later ones), or a target such as
    /// sm_90a.
    #[arg(long, default_value = "sm_80")]
    arch: String,
    /// What to print: tile, gpu, llvm, ptx.
    #[arg(long, value_delimiter = ',', default_value = "ptx")]
    emit: Vec<String>,
    #[command(flatten)]
    problem: ProblemArgs,
    /// Write files into this folder.
    #[arg(long, value_name = "DIR")]
    out_dir: Option<PathBuf>,
    /// Every kernel, in every element type and a spread of configs, as PTX, with an index.json.
    #[arg(long, requires = "out_dir", conflicts_with_all = ["kernel", "dims", "dtype", "config", "json"])]
    all: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "out_dir")]
    json: bool,
}

/// Compiles and prints or writes.
pub(super) fn run(args: &CompileArgs) -> Result<bool> {
    let on = platform(&args.arch)?;
    if let (true, Some(dir)) = (args.all, &args.out_dir) {
        if args.emit != ["ptx"] {
            bail!("--all writes PTX: leave --emit out, or name a kernel");
        }
        return all::run(on, dir);
    }
    let name = args.kernel.as_deref().context("name a kernel or a .tile file")?;
    once("--emit", &args.emit)?;
    let want = args
        .emit
        .iter()
        .map(|s| s.parse().map_err(|e: String| anyhow::anyhow!("--emit: {e}")))
        .collect::<Result<Vec<Stage>>>()?;
    let (stem, config, texts, packers) =
        texts(name, &args.problem, on, &want).with_context(|| format!("cannot compile `{name}` for {on}"))?;
    if let Some(dir) = &args.out_dir {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
        for (stage, text) in &texts {
            let path = dir.join(format!("{stem}.{}.{on}.{}", slug(&config), stage.ending()));
            input::spare("--out-dir", &path, &[("the kernel", Path::new(name))])?;
            write(&path, text)?;
            say!("{}", path.display());
        }
        for (n, (stage, text)) in
            packers.iter().enumerate().flat_map(|(n, texts)| texts.iter().map(move |t| (n + 1, t)))
        {
            let path = dir.join(format!("{stem}.{}.{on}.packer{n}.{}", slug(&config), stage.ending()));
            write(&path, text)?;
            say!("{}", path.display());
        }
    } else if args.json {
        let stages =
            |texts: &Texts| texts.iter().map(|(s, t)| (s.to_string(), json!(t))).collect::<serde_json::Map<_, _>>();
        let mut page = json!({
            "kernel": name, "arch": on.to_string(), "config": config.to_string(), "stages": stages(&texts),
        });
        if !packers.is_empty() {
            page["packers"] = packers.iter().map(stages).collect();
        }
        show::json(&page);
    } else {
        for (stage, text) in &texts {
            if texts.len() > 1 {
                say!("// ---- {stage}");
            }
            say!("{}", text.trim_end());
        }
        for (stage, text) in packers.iter().flatten() {
            say!("// ---- {stage} of a kernel that packs an operand, before it\n{}", text.trim_end());
        }
    }
    Ok(true)
}

/// The stages of a kernel from its name or its file and those of the kernels that pack its operands, the stem of output files, and the
/// config.
fn texts(
    name: &str,
    problem: &ProblemArgs,
    on: Platform,
    want: &[Stage],
) -> Result<(String, Config, Texts, Vec<Texts>)> {
    let path = Path::new(name);
    if path.extension().is_some_and(|e| e == "tile") {
        if problem.dims.is_some() {
            bail!("--dims does not apply to a .tile file: its dims are written in it");
        }
        let config = input::file_config(problem)?;
        let kernel = stages::read(path)?;
        let texts = stages::texts(&kernel, &config.schedule, on, want)?;
        let packers = stages::packers(kernel.into_inner(), &config.schedule, on, want)?;
        let stem = path.file_stem().map_or_else(|| name.to_owned(), |s| s.to_string_lossy().into_owned());
        return Ok((stem, config, texts, packers));
    }
    let def = input::kernel(name)?;
    let types = input::types(def, problem.dtype.as_deref())?;
    input::has_types(def, problem.dtype.as_deref())?;
    let dims = sizes::dims(def, problem.dims.as_deref())?;
    let spec = input::specialization_of(def, &dims, &types)?;
    sizes::runs(def, &dims)?;
    let chosen = input::chosen(def, &spec, &dims, on.machine, problem.config.as_deref(), &Records::default())?;
    let (config, (texts, packers)) = chosen.first(|c| {
        let texts = stages::print((def.build)(&spec, c)?, &c.schedule, on, want)?;
        Ok((texts, stages::packers((def.build)(&spec, c)?, &c.schedule, on, want)?))
    })?;
    let types = types.values().map(ToString::to_string).collect::<BTreeSet<String>>();
    let stem = std::iter::once(name.to_owned()).chain(types).collect::<Vec<_>>().join(".");
    Ok((stem, config, texts, packers))
}
