//! A lower bound on the time of a launch: its bytes over the rate of DRAM, and its products over the rates of the units
//! that compute them.
//!
//! # Promise
//!
//! No launch takes less than this time if its tensors are in no cache when it starts and do not overlap.
//!
//! # Argument
//!
//! The bytes and products are those that a launch cannot avoid ([`Compulsory`](atlas_codegen::gpu::analysis::Compulsory)).
//! The rates are those of the card's data sheet, which no clock exceeds. Written data may stay in the L2 cache when a
//! launch ends, but it displaces lines that others wrote, in programs as in benchmarks.
//!
//! # Breaks it
//!
//! - Tensors that are in the L2 cache, if they fit: [`Roofline::fits_l2`] tells.
//! - One tensor passed for two inputs, which is read once. The bound does not know the arguments, so the promise
//!   excludes this.
//! - An index that is not a whole dim, such as `n / 64`:
//!   tests/roofline.rs::parts_of_coordinates_come_to_parts_of_a_dim.

use crate::compile::build_launch;
use crate::error::{CompileFailure, Result};
use atlas_codegen::gpu::analysis::compulsory;
use atlas_codegen::packing::LaunchKernels;
use atlas_codegen::{Card, Machine, pipeline};
use atlas_dsl::ir::ParamKind;
use atlas_dsl::{Config, KernelDef, Param, Specialization};
use std::collections::BTreeSet;
use std::fmt;

/// A lower bound on the time of a launch on a card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Microseconds of the unit with the most work.
    pub us: f64,
    /// That unit.
    pub unit: Unit,
    /// Bytes that cross DRAM: each element that is read counts once, and each element that is written counts once.
    pub bytes: f64,
    /// Floating-point operations of the products with this config, two per multiply-add.
    pub flops: f64,
    /// The card whose data sheet gives the rates.
    pub card: &'static Card,
    /// Whether all of the bytes fit in the L2 cache, so that a launch that finds them there may be faster.
    pub fits_l2: bool,
    /// Whether there may be more work, depending on data, on numbers that the caller gives, or on indices that the
    /// analysis does not understand.
    pub is_open: bool,
}

/// The units of a GPU that may bound a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Memory outside the chip.
    #[default]
    Dram,
    /// Tensor cores.
    TensorCores,
    /// Multiply-adds of products that do not use tensor cores.
    MultiplyAdds,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Dram => "DRAM",
            Unit::TensorCores => "tensor cores",
            Unit::MultiplyAdds => "multiply-adds",
        })
    }
}

/// How many more bytes packed operands have than their workspaces, which may stay in the L2 cache between the kernels of a launch.
fn operands_instead(launch: &LaunchKernels, dims: &[u64]) -> f64 {
    let bytes = |p: Param| match &launch.kernel.params[p].kind {
        ParamKind::Tensor { dtype, dims: of, .. } => {
            let sizes = of.iter().map(|d| dims.get(d.as_u32() as usize).copied().unwrap_or(1) as f64);
            f64::from(dtype.bytes()) * sizes.product::<f64>()
        }
        ParamKind::Scalar { .. } => 0.0,
    };
    let operands: BTreeSet<Param> = launch.workspaces.iter().map(|w| w.of).collect();
    operands.into_iter().map(bytes).sum::<f64>() - launch.workspaces.iter().map(|w| bytes(w.param)).sum::<f64>()
}

/// The lower bound on a launch of a kernel with a config, for the sizes of its dims in the signature's order.
///
/// # Errors
/// If the kernel cannot be built with the config, or if a pass refuses it.
pub fn roofline(
    def: &'static KernelDef,
    spec: &Specialization,
    dims: &[u64],
    config: &Config,
    machine: Machine,
    card: &'static Card,
) -> Result<Roofline> {
    let launch = build_launch(def, spec, config, machine.target())?;
    let refused = |e: atlas_codegen::CompileError| CompileFailure {
        kernel: def.name.to_owned(),
        message: format!("refused for {machine}"),
        refused: vec![(config.clone(), e.to_string())],
        compiler_present: true,
    };
    let lowered = pipeline::run(&launch.kernel, &config.schedule, machine, |_, _| {}).map_err(refused)?;
    let least = compulsory(&lowered, dims);
    let bytes = least.bytes() + operands_instead(&launch, dims);
    let each = |products: f64, rate: f64| 2.0 * products / rate * 1e6;
    let units = [
        (Unit::Dram, bytes / card.dram_bytes * 1e6),
        (Unit::TensorCores, each(least.tensor, card.tensor) + each(least.tensor_f64, card.tensor_f64)),
        (Unit::MultiplyAdds, each(least.fma, card.f32) + each(least.fma_f64, card.f64)),
    ];
    let (unit, us) = units.into_iter().fold((Unit::Dram, 0.0), |most, one| if one.1 > most.1 { one } else { most });
    let fits_l2 = bytes <= machine.l2_bytes as f64;
    Ok(Roofline { us, unit, bytes, flops: 2.0 * least.products, card, fits_l2, is_open: least.is_open })
}
