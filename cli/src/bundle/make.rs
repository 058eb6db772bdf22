//! Makes a bundle: classes of problems, configs for each class, compiled and assembled.

use super::super::jobs::Job;
use super::super::show::Progress;
use super::super::stages;
use super::evidence;
use super::variant::{Assembler, Compiled};
use anyhow::{Result, bail};
use atlas_codegen::Platform;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, KernelDef, Specialization};
use atlas_runtime::bundle::{BundleWriter, ClassEntry, KernelEntry};
use atlas_runtime::records::{Records, class_text};
use atlas_runtime::{Choices, ConfigSource, choose_with, regions};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// The most rounds in which configs that do not compile, or spill, are replaced by others.
const ROUNDS: usize = 8;

/// The options of a bundle.
pub(super) struct BundleOptions {
    pub(super) platforms: Vec<(Platform, Records)>,
    pub(super) variants: usize,
    pub(super) for_all_sizes: bool,
    pub(super) skips_refused: bool,
    pub(super) assembler: Assembler,
    pub(super) evidence: bool,
}

/// The problems of one specialization.
struct SpecializationClass {
    spec: Specialization,
    sizes: Vec<Vec<u64>>,
}

/// `softmax T=bf16 N=*8 D=64`.
fn class_name(def: &KernelDef, class: &ClassEntry) -> String {
    let parts = [def.name, &class.types, &class.dims, &class.tensors];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A warning if a problem's record has another config than the bundle chooses, with the reason.
fn dropped(job: &Job, on: Platform, records: &Records, choices: &Choices) -> Option<String> {
    let (types, tensors) = class_text(job.def, &job.spec);
    let row = records.of_kernel(job.def.name)?.at(&types, &tensors, &job.dims_text())?;
    let (_, at) = choices.table.exact.iter().find(|(dims, _)| *dims == job.dims)?;
    let selection = choose_with(job.def, &job.spec, &job.dims, on.machine, records);
    let followed = selection.chosen().filter(|_| selection.source == ConfigSource::Record);
    if followed == choices.configs.get(usize::from(*at)) {
        return None;
    }
    let why = match (followed, selection.notes.first()) {
        (None, Some(note)) => note,
        _ => "the compiler refuses it, or its registers spill",
    };
    let (config, gpu) = (&row.chosen().config, records.gpu());
    Some(format!("the record of `{}` on {gpu} has `{config}`, which is left out: {why}", job.text()))
}

impl BundleOptions {
    /// The bytes of the file.
    pub(super) fn make(&self, jobs: &[Job], warn: &mut dyn FnMut(&str)) -> Result<Vec<u8>> {
        if !stages::CAN_COMPILE {
            bail!(
                "a bundle holds compiled kernels, and this program was built without its code generator: build it with the feature `jit`"
            );
        }
        let mut by_kernel: BTreeMap<&'static str, Vec<&Job>> = BTreeMap::new();
        for job in jobs {
            by_kernel.entry(job.def.name).or_default().push(job);
        }
        let all: Vec<(&'static KernelDef, Vec<SpecializationClass>)> =
            by_kernel.values().map(|jobs| (jobs[0].def, self.classes(jobs))).collect();
        let mut progress = Progress::new(all.iter().map(|(_, classes)| classes.len() * self.platforms.len()).sum());
        let mut writer = BundleWriter::new();
        let mut entries = Vec::new();
        for (def, classes) in &all {
            let mut entry = KernelEntry::default();
            for class in classes {
                let mut of_class = ClassEntry::new(def, &class.spec);
                for (platform, records) in &self.platforms {
                    progress.step(&format!("{} on {platform}", class_name(def, &of_class)));
                    let (choices, compiled) = match self.compile(def, class, *platform, records)? {
                        Ok(made) => made,
                        Err(why) if self.skips_refused => {
                            warn(&format!("{} is left out: {why}", class_name(def, &of_class)));
                            continue;
                        }
                        Err(why) => bail!("{why}"),
                    };
                    let asked = jobs.iter().filter(|j| j.def.name == def.name && j.spec == class.spec);
                    for what in asked.filter_map(|job| dropped(job, *platform, records, &choices)) {
                        warn(&what);
                    }
                    self.assembler.add(&mut of_class, &mut writer, *platform, choices.table, compiled);
                }
                if !of_class.tables.is_empty() {
                    entry.classes.push(of_class);
                }
            }
            if !entry.classes.is_empty() {
                entries.push((*def, entry));
            }
        }
        drop(progress);
        if entries.is_empty() {
            bail!("every kernel is left out, and a bundle of nothing serves no launch");
        }
        let used = entries.iter().map(|(def, _)| def.name);
        for name in used {
            for record in self.platforms.iter().filter_map(|(_, records)| records.of_kernel(name)) {
                writer.record(&record.to_string());
            }
        }
        for (def, entry) in &entries {
            writer.kernel(def.name, entry);
        }
        if !self.evidence {
            return Ok(writer.finish());
        }
        // The trials read the file itself, as programs will.
        for (name, entry) in evidence::gather(writer.finish(), &entries, jobs)? {
            writer.kernel(name, &entry);
        }
        Ok(writer.finish())
    }

    /// The specializations of a kernel's problems, and one for all sizes for each combination of types and whole dims.
    fn classes(&self, jobs: &[&Job]) -> Vec<SpecializationClass> {
        let mut classes: Vec<SpecializationClass> = Vec::new();
        let mut add = |spec: Specialization, dims: &[u64]| match classes.iter_mut().find(|c| c.spec == spec) {
            Some(class) if class.sizes.iter().any(|s| s == dims) => {}
            Some(class) => class.sizes.push(dims.to_vec()),
            None => classes.push(SpecializationClass { spec, sizes: vec![dims.to_vec()] }),
        };
        for job in jobs {
            add(job.spec.clone(), &job.dims);
        }
        for job in jobs.iter().filter(|_| self.for_all_sizes) {
            let mut wide = job.spec.clone();
            wide.tensors.clear();
            for fact in wide.dims.values_mut() {
                if let DimFact::Dynamic(divisor) = fact {
                    *divisor = 1;
                }
            }
            add(wide, &job.dims);
        }
        classes
    }

    /// The compiled configs of a class. Configs that do not compile, or spill, are replaced by others. Within it, why the machine can
    /// run none.
    fn compile(
        &self,
        def: &'static KernelDef,
        class: &SpecializationClass,
        on: Platform,
        records: &Records,
    ) -> Result<Result<(Choices, Vec<Compiled>), String>> {
        let (mut refused, mut takes_spills): (Vec<Config>, bool) = (Vec::new(), false);
        for round in 0..ROUNDS {
            let (spec, sizes) = (&class.spec, &class.sizes);
            let chosen = regions(def, spec, sizes, on.machine, records, self.variants, &refused);
            let choices = match chosen {
                Ok(choices) => choices,
                // All that is legal spills. A device with a compiler launches such a config then.
                Err(_) if !refused.is_empty() && !takes_spills => {
                    (refused, takes_spills) = (Vec::new(), true);
                    continue;
                }
                Err(why) => return Ok(Err(format!("`{}`: {why}", def.name))),
            };
            takes_spills |= round + 1 == ROUNDS;
            let done: Vec<Result<Option<Compiled>>> =
                choices.configs.par_iter().map(|c| self.assembler.compile(def, spec, c, on, takes_spills)).collect();
            let done: Vec<Option<Compiled>> = done.into_iter().collect::<Result<_>>()?;
            if done.iter().all(Option::is_some) {
                return Ok(Ok((choices, done.into_iter().flatten().collect())));
            }
            let without = choices.configs.iter().zip(&done).filter(|(_, c)| c.is_none());
            refused.extend(without.map(|(config, _)| config.clone()));
        }
        Ok(Err(format!("`{}` for {on}: every config that was tried is refused by the compiler", def.name)))
    }
}
