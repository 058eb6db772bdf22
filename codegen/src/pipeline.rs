//! The compiler on one page: the passes of each target family, in order.

use crate::error::CompileError;
use crate::gpu::{self, Kernel};
use crate::passes::{
    allocate_shared, check_registers, choose_caching, insert_barriers, lower_converts, lower_tiles, split_casts,
};
use crate::target::Target;
use atlas_dsl::{Schedule, Verified};

/// A pass: its name, and what it does to a kernel.
struct Pass {
    name: &'static str,
    run: fn(&mut Kernel) -> Result<(), CompileError>,
}

/// Ampere and later, one role: products by `mma.sync`, rings by `cp.async`.
const AMPERE: &[Pass] = &[
    // `lower_tiles` comes first and makes the kernel.
    Pass {
        name: "split_casts",
        run: |k| {
            split_casts(k);
            Ok(())
        },
    },
    Pass { name: "lower_converts", run: lower_converts },
    Pass {
        name: "choose_caching",
        run: |k| {
            choose_caching(k);
            Ok(())
        },
    },
    Pass { name: "check_registers", run: check_registers },
    Pass { name: "allocate_shared", run: allocate_shared },
    Pass {
        name: "insert_barriers",
        run: |k| {
            insert_barriers(k);
            Ok(())
        },
    },
];

/// Runs every pass; `watch` sees the kernel after each.
pub fn run(
    tile: &Verified<atlas_dsl::Kernel>,
    schedule: &Schedule,
    target: Target,
    mut watch: impl FnMut(&'static str, &Kernel),
) -> Result<Kernel, CompileError> {
    let mut k = lower_tiles(tile, schedule, target)?;
    check("lower_tiles", &k)?;
    watch("lower_tiles", &k);
    for pass in AMPERE {
        (pass.run)(&mut k)?;
        check(pass.name, &k)?;
        watch(pass.name, &k);
    }
    Ok(k)
}

/// What a pass leaves must verify; anything else is a defect of the pass.
fn check(pass: &str, k: &Kernel) -> Result<(), CompileError> {
    gpu::verify_gpu(k).map_err(|d| CompileError::bug(format!("after {pass}: {d}")))
}
