//! `atlas compile --all`: compiles every kernel, in every element type and its likely configs, to a folder.

use super::super::artifact::{slug, write};
use super::super::print::{say, tell};
use super::super::show::Progress;
use super::super::{input, sizes, stages};
use anyhow::{Context, Result, bail};
use atlas_codegen::Platform;
use atlas_dsl::{Config, DType, KernelDef, Specialization};
use atlas_runtime::records::Records;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many configs of each kernel are compiled beside its default: those that the cost model ranks first.
const LIKELY: usize = 3;

/// One kernel to compile.
struct CompileJob {
    def: &'static KernelDef,
    dtype: DType,
    dims: BTreeMap<String, u64>,
    spec: Specialization,
    config: Config,
}

/// Writes `KERNEL.DTYPE.CONFIG.ARCH.ptx` for each, and `index.json`, which includes refused configs with their reasons.
pub(super) fn run(on: Platform, dir: &Path) -> Result<bool> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    let jobs = jobs(on)?;
    let progress = Mutex::new(Progress::new(jobs.len()));
    let next = AtomicUsize::new(0);
    let worker = || -> Result<Vec<(usize, Value)>> {
        let mut rows = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else { return Ok(rows) };
            let what = format!("{} {} {}", job.def.name, job.dtype, job.config);
            progress.lock().unwrap_or_else(PoisonError::into_inner).step(&what);
            rows.push((at, compile(job, on, dir)?));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut rows = std::thread::scope(|scope| -> Result<Vec<(usize, Value)>> {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        let mut rows = Vec::new();
        for worker in workers {
            match worker.join() {
                Ok(done) => rows.extend(done?),
                Err(_) => bail!("a compilation panicked; this is a defect of Atlas"),
            }
        }
        Ok(rows)
    })?;
    drop(progress);
    rows.sort_by_key(|(at, _)| *at);
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    let written = rows.iter().filter(|r| r["file"].is_string()).count();
    let refused = rows.len() - written;
    write(&dir.join("index.json"), &format!("{:#}\n", Value::Array(rows)))?;
    say!("{written} kernels in {}; {refused} configs refused, with reasons, in its index.json", dir.display());
    Ok(written > 0)
}

/// Each kernel in each of its element types at its usual size, with its default config and the likely ones.
fn jobs(on: Platform) -> Result<Vec<CompileJob>> {
    let mut jobs = Vec::new();
    for def in atlas_dsl::registry() {
        if let Some(why) = def.refused {
            tell!("skipped: {}: {why}", def.name);
            continue;
        }
        let dims = sizes::dims(def, None)?;
        for &dtype in def.types.first().map_or(&[DType::F32][..], |t| t.allowed) {
            // A user's kernel has no usual sizes. One that uses a dim whole cannot be compiled without them.
            let spec = match input::specialization(def, &dims, dtype) {
                Ok(spec) => spec,
                Err(e) => {
                    tell!("skipped: {e:#}");
                    continue;
                }
            };
            let mut configs = vec![def.default_config()];
            // Where none is legal, the default's reason stands in the index.
            let likely = match input::chosen(def, &spec, &dims, on.machine, None, &Records::default()) {
                Ok(likely) => likely.configs,
                Err(e) => {
                    tell!("none compiled: {e:#}");
                    Vec::new()
                }
            };
            // A file holds one kernel.
            let of_one = likely.into_iter().filter(|config| !config.schedule.packs_operands());
            for config in of_one.take(LIKELY) {
                if !configs.contains(&config) {
                    configs.push(config);
                }
            }
            jobs.extend(configs.into_iter().map(|config| CompileJob {
                def,
                dtype,
                dims: dims.clone(),
                spec: spec.clone(),
                config,
            }));
        }
    }
    Ok(jobs)
}

/// Compiles one kernel to its file. If the config is not legal for the machine, the row has the reason.
fn compile(job: &CompileJob, on: Platform, dir: &Path) -> Result<Value> {
    let CompileJob { def, dtype, dims, spec, config } = job;
    let mut row = json!({
        "kernel": def.name, "dtype": dtype.name(), "dims": dims, "config": config.to_string(), "arch": on.to_string(),
    });
    let kernel = match (def.build)(spec, config) {
        Ok(kernel) => kernel,
        Err(why) => {
            row["refused"] = json!(why.to_string());
            return Ok(row);
        }
    };
    match stages::image(kernel, &config.schedule, on) {
        Ok(image) => {
            let file = format!("{}.{dtype}.{}.{on}.ptx", def.name, slug(config));
            write(&dir.join(&file), &image.ptx)?;
            row["shared_bytes"] = json!(image.shared_bytes);
            row["file"] = json!(file);
        }
        Err(stages::CompileFailure::Refused(reason)) => row["refused"] = json!(reason),
        Err(stages::CompileFailure::Other(e)) => {
            return Err(e.context(format!("cannot compile `{}` in {dtype} with config `{config}`", def.name)));
        }
    }
    Ok(row)
}
