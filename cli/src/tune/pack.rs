//! Packs: candidates that are compiled on a machine with a compiler, to be measured on a machine with a GPU. A pack is
//! a bundle with all candidates of each class and a list of the problems to tune, each with its candidates.

use super::super::bundle::{Assembler, Compiled};
use super::super::jobs::{self, Job};
use super::super::print::{say, tell};
use super::super::{ptxas, show, stages};
use super::{measured, ranked};
use anyhow::{Context, Result, bail};
use atlas_codegen::{Machine, Platform, Target};
use atlas_dsl::Config;
use atlas_runtime::bundle::{Bundle, BundleWriter, ClassEntry, KernelEntry, Table, Variant};
use atlas_runtime::files;
use atlas_runtime::records::Records;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A problem to tune, and the only configs to try. Without configs, those that the model ranks first are tried.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) job: Job,
    pub(super) only: Option<Vec<Config>>,
}

/// The problems of one kernel and specialization, each with its candidates.
struct ClassCandidates {
    of: Vec<(Job, Vec<Config>)>,
}

impl ClassCandidates {
    /// All candidates, each once.
    fn configs(&self) -> Vec<Config> {
        let mut all: Vec<Config> = Vec::new();
        for config in self.of.iter().flat_map(|(_, configs)| configs) {
            if !all.contains(config) {
                all.push(config.clone());
            }
        }
        all
    }
}

/// Compiles the first configs of each problem into a file. Configs that the compiler refuses, or that spill, are left
/// out.
pub(super) fn make(file: &Path, jobs: &[Job], on: Platform, records: &Records, share: f64) -> Result<bool> {
    if !stages::CAN_COMPILE {
        bail!(
            "--pack compiles, and this program was built without its code generator: build it with the feature `jit`"
        );
    }
    files::check(file).with_context(|| format!("--pack: cannot write {}", file.display()))?;
    let mut classes: Vec<ClassCandidates> = Vec::new();
    for job in jobs {
        let candidates = match ranked(job, on.machine, records) {
            Ok(candidates) => candidates,
            Err(e) => {
                tell!("warning: {}: {e:#}", job.text());
                continue;
            }
        };
        let first = candidates.iter().take(measured(candidates.len(), share)).map(|c| c.config.clone()).collect();
        let same = |c: &&mut ClassCandidates| c.of[0].0.def.name == job.def.name && c.of[0].0.spec == job.spec;
        match classes.iter_mut().find(same) {
            Some(class) => class.of.push((job.clone(), first)),
            None => classes.push(ClassCandidates { of: vec![(job.clone(), first)] }),
        }
    }
    let assembler = Assembler { ptxas: ptxas::find(), cubin: false };
    let mut progress = show::Progress::new(classes.len());
    let mut writer = BundleWriter::new();
    let mut entries: BTreeMap<&'static str, KernelEntry> = BTreeMap::new();
    let (mut tasks, mut kernels, mut left_out) = (Vec::new(), 0, 0);
    for class in &classes {
        let (first, configs) = (&class.of[0].0, class.configs());
        progress.step(&first.text());
        let compiled: Vec<Result<Option<Compiled>>> =
            configs.par_iter().map(|c| assembler.compile(first.def, &first.spec, c, on, false)).collect();
        let compiled: Vec<Option<Compiled>> = compiled.into_iter().collect::<Result<_>>()?;
        let good: Vec<Config> =
            configs.iter().zip(&compiled).filter(|(_, c)| c.is_some()).map(|(c, _)| c.clone()).collect();
        left_out += configs.len() - good.len();
        kernels += good.len();
        if good.is_empty() {
            tell!("warning: {}: no candidate can be compiled", first.text());
            continue;
        }
        let order: Vec<u16> = (0..good.len() as u16).collect();
        let machine = on.machine.to_string();
        let table =
            Table { machine, exact: Vec::new(), bounds: vec![Vec::new(); first.dims.len()], cells: vec![0], order };
        let mut of_class = ClassEntry::new(first.def, &first.spec);
        assembler.add(&mut of_class, &mut writer, on, table, compiled.into_iter().flatten().collect());
        entries.entry(first.def.name).or_default().classes.push(of_class);
        for (job, configs) in &class.of {
            let only = configs.iter().filter(|c| good.contains(c)).cloned().collect();
            tasks.push(Task { job: job.clone(), only: Some(only) });
        }
    }
    drop(progress);
    for (name, entry) in &entries {
        writer.kernel(name, entry);
    }
    writer.problems(&jobs::launches_text(tasks.iter().map(|t| (&t.job, t.only.as_deref().unwrap_or_default()))));
    let bytes = writer.finish();
    files::write(file, &bytes).with_context(|| format!("cannot write {}", file.display()))?;
    say!(
        "{}: {kernels} kernels for {} problems on {on}, {} KB; {left_out} are refused by the compiler, or spill",
        file.display(),
        tasks.len(),
        bytes.len() / 1024
    );
    Ok(tasks.len() == jobs.len())
}

/// The problems of a pack.
pub(super) fn tasks(file: &Path) -> Result<Vec<Task>> {
    let bundle = Bundle::open(file)?;
    bundle.check()?;
    let Some(text) = bundle.problems()? else {
        bail!("{} is no pack: `atlas tune --pack FILE` makes one", file.display());
    };
    let listed = jobs::launches(&text).with_context(|| format!("the problems of {}", file.display()))?;
    Ok(listed.into_iter().map(|(job, configs)| Task { job, only: Some(configs) }).collect())
}

/// The machine with the target of a pack's kernels. Refuses a pack that has nothing that runs on the machine.
pub(super) fn machine_of(file: &Path, machine: Machine) -> Result<Machine> {
    let bundle = Bundle::open(file)?;
    let mut targets = BTreeSet::new();
    for name in bundle.kernels() {
        let entry = bundle.entry(name).transpose()?.unwrap_or_default();
        targets.extend(entry.classes.iter().flat_map(|c| &c.variants).map(|v| v.target.clone()));
    }
    let runs = |t: &Target| t.runs_on(machine.sm) && (!t.specific || *t == machine.target());
    let best = targets.iter().filter_map(|text| text.parse().ok()).filter(runs).max();
    match best {
        Some(target) => Ok(Machine { target, ..machine }),
        None if targets.is_empty() => Ok(machine),
        None => {
            let targets: Vec<String> = targets.into_iter().collect();
            bail!(
                "{} is a pack for {}, and this GPU is {machine}: `atlas tune --pack FILE --arch {machine}` makes one",
                file.display(),
                targets.join(", ")
            );
        }
    }
}

/// The compiled kernel of a config in a pack.
pub(super) fn variant(pack: &Bundle, job: &Job, config: &Config) -> Result<Variant> {
    let entry = pack.entry(job.def.name).transpose()?.context("the pack has no such kernel")?;
    let wanted = ClassEntry::new(job.def, &job.spec);
    let same = |c: &&ClassEntry| (&c.types, &c.dims, &c.tensors) == (&wanted.types, &wanted.dims, &wanted.tensors);
    let of = |c: &ClassEntry| c.variants.iter().find(|v| v.config == config.to_string()).cloned();
    entry.classes.iter().filter(same).find_map(of).context("the pack has no kernel with this config")
}
