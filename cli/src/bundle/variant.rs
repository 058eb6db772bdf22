//! One config of a class, compiled for a platform and added to a bundle.

use super::super::ptxas;
use super::super::stages::{self, CompileFailure};
use anyhow::{Context, Result};
use atlas_codegen::{KernelImage, Platform, packing};
use atlas_dsl::{Config, Kernel, KernelDef, Schedule, Specialization, Verified};
use atlas_runtime::build_launch;
use atlas_runtime::bundle::{BundleWriter, ClassEntry, MachineTable, Resources, Table, Variant, VariantCode};
use atlas_runtime::records::launch_hash;
use std::path::PathBuf;

/// A compiled config: the kernels of its launch.
pub(in super::super) struct Compiled {
    config: Config,
    tile_ir: String,
    kernel: CompiledOne,
    packers: Vec<CompiledOne>,
}

/// A compiled kernel.
struct CompiledOne {
    image: KernelImage,
    resources: Option<Resources>,
    cubin: Option<Vec<u8>>,
}

/// NVIDIA's assembler, if available, and whether its code is kept.
#[derive(Default)]
pub(in super::super) struct Assembler {
    pub(in super::super) ptxas: Option<PathBuf>,
    pub(in super::super) cubin: bool,
}

impl Assembler {
    /// Compiles one config. `None` if the compiler refuses it or its registers spill; `spills` allows the latter.
    pub(in super::super) fn compile(
        &self,
        def: &'static KernelDef,
        spec: &Specialization,
        config: &Config,
        on: Platform,
        spills: bool,
    ) -> Result<Option<Compiled>> {
        let launch = build_launch(def, spec, config, on.target)?;
        let tile_ir = launch_hash(&launch);
        let one = |kernel: Verified<Kernel>, schedule: &Schedule| {
            let compiled = self.compile_one(kernel.into_inner(), schedule, on, spills);
            compiled.with_context(|| format!("`{}` with `{config}` for {on}", def.name))
        };
        let mut packers = Vec::new();
        for packer in launch.packers {
            match one(packer, &packing::packer_schedule())? {
                Some(packer) => packers.push(packer),
                None => return Ok(None),
            }
        }
        let kernel = one(launch.kernel, &config.schedule)?;
        Ok(kernel.map(|kernel| Compiled { config: config.clone(), tile_ir, kernel, packers }))
    }

    fn compile_one(
        &self,
        kernel: Kernel,
        schedule: &Schedule,
        on: Platform,
        spills: bool,
    ) -> Result<Option<CompiledOne>> {
        let image = match stages::image(kernel, schedule, on) {
            Ok(image) => image,
            Err(CompileFailure::Refused(_)) => return Ok(None),
            Err(CompileFailure::Other(e)) => return Err(e),
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
        let is_kept = spills || resources.is_none_or(|r| r.spills == 0);
        Ok(is_kept.then_some(CompiledOne { image, resources, cubin }))
    }

    /// The lowest CUDA version whose drivers load the machine code.
    fn driver(&self) -> i32 {
        let version = self.ptxas.as_deref().and_then(ptxas::version).unwrap_or_default();
        let mut parts = version.split('.').map(|p| p.parse().unwrap_or(0));
        parts.next().unwrap_or(0) * 1000 + parts.next().unwrap_or(0) * 10
    }

    /// Adds the variants for one machine to a class, and the table that refers to them by their index in `compiled`.
    pub(in super::super) fn add(
        &self,
        class: &mut ClassEntry,
        writer: &mut BundleWriter,
        on: Platform,
        mut table: Table,
        compiled: Vec<Compiled>,
    ) {
        let target = on.target.to_string();
        let mut places: Vec<u16> = Vec::new();
        for c in compiled {
            let mut add = |one: CompiledOne| VariantCode {
                image: writer.image(&one.image),
                cubin: one.cubin.map(|code| writer.cubin(on.machine.sm, self.driver(), &code)),
            };
            let (config, target) = (c.config.to_string(), target.clone());
            let resources = c.kernel.resources;
            let packers = c.packers.into_iter().map(&mut add).collect();
            let VariantCode { image, cubin } = add(c.kernel);
            let variant = Variant {
                config,
                tile_ir: c.tile_ir,
                target,
                image,
                resources,
                cubin,
                packers,
                evidence: Vec::new(),
                no_evidence: None,
            };
            let same = class.variants.iter().position(|v| *v == variant);
            places.push(same.unwrap_or(class.variants.len()) as u16);
            if same.is_none() {
                class.variants.push(variant);
            }
        }
        let place = |v: &mut u16| *v = places[usize::from(*v)];
        table.exact.iter_mut().for_each(|(_, v)| place(v));
        table.cells.iter_mut().for_each(place);
        table.order.iter_mut().for_each(place);
        class.tables.push(MachineTable { target, table });
    }
}
