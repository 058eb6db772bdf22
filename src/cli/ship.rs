//! `atlas compile --all`: every kernel, in every element type and a spread of configs, to a folder.

use super::compile::{slug, write};
use super::input;
use super::show::Progress;
use super::stages::{self, Stage};
use anyhow::{Context, Result};
use atlas_codegen::Target;
use atlas_dsl::{Config, DType, KernelDef};
use serde_json::{Value, json};
use std::path::Path;

/// Writes `KERNEL.DTYPE.CONFIG.ARCH.ptx` for each, and `index.json` with what was refused and why.
pub(super) fn run(target: Target, dir: &Path) -> Result<bool> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    let jobs = jobs();
    let mut progress = Progress::new(jobs.len());
    let (mut index, mut written) = (Vec::new(), 0);
    for (def, dtype, config) in jobs {
        progress.step(&format!("{} {dtype} {config}", def.name));
        let mut row = json!({ "kernel": def.name, "dtype": dtype.name(), "config": config.to_string(), "arch": target.to_string() });
        match compile(def, dtype, &config, target) {
            Ok((dims, ptx)) => {
                let file = format!("{}.{dtype}.{}.{target}.ptx", def.name, slug(&config));
                write(&dir.join(&file), &ptx)?;
                written += 1;
                row["dims"] = dims;
                row["file"] = json!(file);
            }
            // A config that is not legal for the target is a value with a reason; the default must be legal.
            Err(e) if config != def.default_config() => row["refused"] = json!(format!("{e:#}")),
            Err(e) => {
                return Err(
                    e.context(format!("cannot compile `{}` in {dtype} with its default config `{config}`", def.name))
                );
            }
        }
        index.push(row);
    }
    drop(progress);
    let total = index.len();
    write(&dir.join("index.json"), &format!("{:#}\n", Value::Array(index)))?;
    println!(
        "{written} kernels in {}; {} configs refused, with reasons, in its index.json",
        dir.display(),
        total - written
    );
    Ok(true)
}

/// Each kernel in each of its element types: its default config, and those that differ from it in one knob.
fn jobs() -> Vec<(&'static KernelDef, DType, Config)> {
    let mut jobs = Vec::new();
    for def in atlas_dsl::registry() {
        let base = def.default_config();
        let near = |c: &Config| def.tune.iter().filter(|k| c.get(k.name) != base.get(k.name)).count() <= 1;
        let configs: Vec<Config> = def.configs().into_iter().filter(near).collect();
        for &dtype in def.types.first().map_or(&[][..], |t| t.allowed) {
            jobs.extend(configs.iter().map(|c| (def, dtype, c.clone())));
        }
    }
    jobs
}

fn compile(def: &KernelDef, dtype: DType, config: &Config, target: Target) -> Result<(Value, String)> {
    let dims = input::dims(def, None)?;
    let spec = input::specialization(def, &dims, dtype)?;
    let kernel = (def.build)(&spec, config)?;
    let texts = stages::print(kernel, &config.schedule, target, &[Stage::Ptx])?;
    Ok((json!(dims), texts.into_iter().next().map(|(_, text)| text).unwrap_or_default()))
}
