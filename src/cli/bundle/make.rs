//! How a bundle is made: classes of problems, configs for each, compiled and assembled.

use super::super::jobs::Job;
use super::super::ptxas;
use super::super::show::Progress;
use super::super::stages::{self, Failure};
use super::evidence;
use anyhow::{Result, anyhow, bail};
use atlas_codegen::{KernelImage, Platform};
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, KernelDef, Specialization};
use atlas_runtime::bundle::{BundleWriter, ClassEntry, KernelEntry, MachineTable, Resources, Variant};
use atlas_runtime::records::{Records, tile_ir_hash};
use atlas_runtime::{Choices, build_kernel, regions};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Rounds in which configs that cannot be compiled, or spill, are left out and others chosen.
const ROUNDS: usize = 8;

/// What a bundle is made with.
pub(super) struct Recipe {
    pub(super) platforms: Vec<(Platform, Records)>,
    pub(super) variants: usize,
    pub(super) for_all_sizes: bool,
    pub(super) ptxas: Option<PathBuf>,
    pub(super) cubin: bool,
    pub(super) evidence: bool,
}

/// The problems of one specialization.
struct Class {
    spec: Specialization,
    sizes: Vec<Vec<u64>>,
}

/// A config of a class, compiled for a platform.
struct Compiled {
    config: Config,
    tile_ir: String,
    image: KernelImage,
    resources: Option<Resources>,
    cubin: Option<Vec<u8>>,
}

impl Recipe {
    /// The file.
    pub(super) fn make(&self, jobs: &[Job]) -> Result<Vec<u8>> {
        if !stages::CAN_COMPILE {
            bail!(
                "a bundle holds compiled kernels, and this program was built without its code generator: build it with the feature `jit`"
            );
        }
        let mut by_kernel: BTreeMap<&'static str, Vec<&Job>> = BTreeMap::new();
        for job in jobs {
            by_kernel.entry(job.def.name).or_default().push(job);
        }
        let all: Vec<(&'static KernelDef, Vec<Class>)> =
            by_kernel.values().map(|jobs| (jobs[0].def, self.classes(jobs))).collect();
        let mut progress = Progress::new(all.iter().map(|(_, classes)| classes.len() * self.platforms.len()).sum());
        let mut writer = BundleWriter::new();
        let mut entries = Vec::new();
        for (def, classes) in &all {
            let mut entry = KernelEntry::default();
            for class in classes {
                let mut of_class = ClassEntry::new(def, &class.spec);
                for (platform, records) in &self.platforms {
                    progress.step(&format!("{} {} {} on {platform}", def.name, of_class.types, of_class.dims));
                    let (choices, compiled) = self.compile(def, class, *platform, records)?;
                    add(&mut of_class, &mut writer, *platform, &choices, compiled, self.driver());
                }
                entry.classes.push(of_class);
            }
            entries.push((*def, entry));
        }
        drop(progress);
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
        // What is tried is the file, as programs will read it.
        let machines: Vec<Platform> = self.platforms.iter().map(|(p, _)| *p).collect();
        for (name, entry) in evidence::gather(writer.finish(), &entries, &machines)? {
            writer.kernel(name, &entry);
        }
        Ok(writer.finish())
    }

    /// The CUDA version whose drivers take the machine code.
    fn driver(&self) -> i32 {
        let version = self.ptxas.as_deref().and_then(ptxas::version).unwrap_or_default();
        let mut parts = version.split('.').map(|p| p.parse().unwrap_or(0));
        parts.next().unwrap_or(0) * 1000 + parts.next().unwrap_or(0) * 10
    }

    /// The specializations of the problems of a kernel, and one for all sizes of each list of types and whole dims.
    fn classes(&self, jobs: &[&Job]) -> Vec<Class> {
        let mut classes: Vec<Class> = Vec::new();
        let mut add = |spec: Specialization, dims: &[u64]| match classes.iter_mut().find(|c| c.spec == spec) {
            Some(class) if class.sizes.iter().any(|s| s == dims) => {}
            Some(class) => class.sizes.push(dims.to_vec()),
            None => classes.push(Class { spec, sizes: vec![dims.to_vec()] }),
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

    /// The configs of a class, compiled. Configs that cannot be compiled, or spill, are left out, and others chosen.
    fn compile(
        &self,
        def: &'static KernelDef,
        class: &Class,
        on: Platform,
        records: &Records,
    ) -> Result<(Choices, Vec<Compiled>)> {
        let mut refused: Vec<Config> = Vec::new();
        for round in 0..ROUNDS {
            let (spec, sizes) = (&class.spec, &class.sizes);
            let chosen = regions(def, spec, sizes, on.machine, records, self.variants, &refused);
            let choices = chosen.map_err(|why| anyhow!("`{}`: {why}", def.name))?;
            let done: Vec<Result<Option<Compiled>>> =
                choices.configs.par_iter().map(|c| self.compile_one(def, spec, c, on, round + 1 == ROUNDS)).collect();
            let done: Vec<Option<Compiled>> = done.into_iter().collect::<Result<_>>()?;
            if done.iter().all(Option::is_some) {
                return Ok((choices, done.into_iter().flatten().collect()));
            }
            let without = choices.configs.iter().zip(&done).filter(|(_, c)| c.is_none());
            refused.extend(without.map(|(config, _)| config.clone()));
        }
        bail!("`{}` for {on}: every config that was tried is refused by the compiler", def.name)
    }

    /// One config, unless the compiler refuses it or its registers spill; `spills` admits the latter.
    fn compile_one(
        &self,
        def: &'static KernelDef,
        spec: &Specialization,
        config: &Config,
        on: Platform,
        spills: bool,
    ) -> Result<Option<Compiled>> {
        let kernel = build_kernel(def, spec, config)?;
        let tile_ir = tile_ir_hash(&kernel);
        let image = match stages::image(kernel.into_inner(), &config.schedule, on) {
            Ok(image) => image,
            Err(Failure::Refused(_)) => return Ok(None),
            Err(Failure::Other(e)) => return Err(e.context(format!("`{}` with `{config}` for {on}", def.name))),
        };
        let arch = format!("sm_{}{}", on.machine.sm, if on.target.specific { "a" } else { "" });
        let (cubin, resources) = match (&self.ptxas, self.cubin) {
            (None, _) => (None, None),
            (Some(ptxas), false) => (None, Some(ptxas::assemble(ptxas, &image.ptx, &arch)?)),
            (Some(ptxas), true) => {
                let (code, resources) = ptxas::machine_code(ptxas, &image.ptx, &arch)?;
                (Some(code), Some(resources))
            }
        };
        let resources = resources.map(|r| Resources { registers: r.registers, spills: r.spills });
        if resources.is_some_and(|r| r.spills > 0) && !spills {
            return Ok(None);
        }
        Ok(Some(Compiled { config: config.clone(), tile_ir, image, resources, cubin }))
    }
}

/// Adds the choices for one machine to a class.
fn add(
    class: &mut ClassEntry,
    writer: &mut BundleWriter,
    on: Platform,
    choices: &Choices,
    compiled: Vec<Compiled>,
    driver: i32,
) {
    let target = on.target.to_string();
    let mut places: Vec<u16> = Vec::new();
    for c in compiled {
        let image = writer.image(&c.image);
        let cubin = c.cubin.map(|code| writer.cubin(on.machine.sm, driver, &code));
        let (config, target) = (c.config.to_string(), target.clone());
        let variant =
            Variant { config, tile_ir: c.tile_ir, target, image, resources: c.resources, cubin, evidence: Vec::new() };
        let same = class.variants.iter().position(|v| *v == variant);
        places.push(same.unwrap_or(class.variants.len()) as u16);
        if same.is_none() {
            class.variants.push(variant);
        }
    }
    let mut table = choices.table.clone();
    let place = |v: &mut u16| *v = places[usize::from(*v)];
    table.exact.iter_mut().for_each(|(_, v)| place(v));
    table.cells.iter_mut().for_each(place);
    table.order.iter_mut().for_each(place);
    class.tables.push(MachineTable { target, table });
}
