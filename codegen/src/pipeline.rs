//! The compiler on one page: the passes of each target family, in order.

use crate::error::CompileError;
use crate::gpu::{self, Kernel};
use crate::machine::Machine;
use crate::passes::{
    allocate_shared, check_registers, choose_caching, insert_barriers, lower_converts, lower_tiles, split_casts,
};
use atlas_dsl::{Schedule, Verified};

/// A pass: its name, and what it does to a kernel.
struct Pass {
    name: &'static str,
    run: fn(&mut Kernel, &Machine) -> Result<(), CompileError>,
}

/// Ampere and later, one role: products by `mma.sync`, rings by `cp.async`.
const AMPERE: &[Pass] = &[
    // `lower_tiles` comes first and makes the kernel.
    Pass {
        name: "split_casts",
        run: |k, _| {
            split_casts(k);
            Ok(())
        },
    },
    Pass { name: "lower_converts", run: lower_converts },
    Pass {
        name: "choose_caching",
        run: |k, _| {
            choose_caching(k);
            Ok(())
        },
    },
    Pass { name: "check_registers", run: check_registers },
    Pass { name: "allocate_shared", run: allocate_shared },
    Pass {
        name: "insert_barriers",
        run: |k, _| {
            insert_barriers(k);
            Ok(())
        },
    },
];

/// Runs every pass; `watch` sees the kernel after each. The machine decides what is refused, its target what is emitted.
pub fn run(
    tile: &Verified<atlas_dsl::Kernel>,
    schedule: &Schedule,
    machine: impl Into<Machine>,
    mut watch: impl FnMut(&'static str, &Kernel),
) -> Result<Kernel, CompileError> {
    let machine = machine.into();
    let mut k = lower_tiles(tile, schedule, &machine)?;
    check("lower_tiles", &k)?;
    watch("lower_tiles", &k);
    for pass in AMPERE {
        (pass.run)(&mut k, &machine)?;
        check(pass.name, &k)?;
        watch(pass.name, &k);
    }
    emittable(&k)?;
    Ok(k)
}

/// What the emitter has no instructions for is a defect of the passes, which refuse what they cannot lower.
pub(crate) fn emittable(k: &Kernel) -> Result<gpu::Emittable<'_>, CompileError> {
    gpu::verify_emittable(k).map_err(CompileError::bug)
}

/// What a pass leaves must verify; anything else is a defect of the pass.
fn check(pass: &str, k: &Kernel) -> Result<(), CompileError> {
    gpu::verify_gpu(k).map_err(|d| CompileError::bug(format!("after {pass}: {d}")))
}
