//! Checks the arguments, runs the grid on all cores and applies the stores of the programs.

use crate::cluster;
use crate::disjoint::Stored;
use crate::error::InterpError;
use crate::eval::{LaunchState, Program, Work};
use crate::eval_control::deferred_transposes;
use crate::memory::PendingStore;
use crate::noise::inexact;
use crate::pool::Threads;
use crate::ring::check_ring;
use crate::{Arg, Mode, Scalar};
use atlas_dsl::ir::{Access, DimSize, GridExtent, ParamKind};
use atlas_dsl::op::Update;
use atlas_dsl::validity::Validity;
use atlas_dsl::{DType, Kernel};
use std::sync::atomic::AtomicU64;

/// Bytes of stored tiles that a batch of programs may hold before they are applied.
const BATCH_BYTES: u64 = 64 << 20;

/// Runs `kernel` with one size per dim and one argument per parameter, both in the kernel's order.
///
/// A grid without programs is not an error. Nothing runs then.
pub fn run(kernel: &Kernel, dim_sizes: &[u64], args: Vec<Arg<'_>>, mode: Mode) -> Result<(), InterpError> {
    run_within(kernel, dim_sizes, args, mode, u64::MAX)
}

/// The same with a limit on the number of operations. Counted are elements of results and of reduced operands, an eighth of the
/// multiplications of products, and a few operations for each instruction. Nothing else decides whether the limit is reached.
///
/// # Errors
/// [`InterpError::Work`] if the limit is reached, and those of [`run`].
pub fn run_within(
    kernel: &Kernel,
    dim_sizes: &[u64],
    mut args: Vec<Arg<'_>>,
    mode: Mode,
    most: u64,
) -> Result<(), InterpError> {
    check_dims(kernel, dim_sizes)?;
    check_args(kernel, dim_sizes, &args, mode)?;
    if mode == Mode::Ring {
        check_ring(kernel)?;
    }
    let axes: Vec<GridExtent> = kernel.grid.iter().map(|axis| axis.extent).collect();
    let programs = GridExtent::programs(&axes, dim_sizes);
    if programs == u64::MAX {
        return Err(InterpError::argument(&kernel.name, "the grid has over 2^64 programs"));
    }
    let deferred = deferred_transposes(kernel);
    let validity = Validity::of(kernel);
    let inexact = if let Mode::Noisy(noise) = mode { inexact(kernel, noise) } else { Vec::new() };
    let done = AtomicU64::new(0);
    // The programs that run in step.
    let together = axes.last().filter(|_| kernel.cluster).map_or(1, |axis| axis.count(dim_sizes).max(1));
    let groups = programs / together;
    let threads = Threads::of(groups);
    let count = threads.count();
    let (mut first, mut batch) = (0, count * 2);
    let mut disjoint = Stored::default();
    while first < groups {
        let last = first.saturating_add(batch).min(groups);
        let stores = {
            let launch = LaunchState {
                kernel,
                mode,
                dims: dim_sizes,
                args: &args,
                deferred: &deferred,
                validity: &validity,
                inexact: &inexact,
                work: Work { done: &done, most },
            };
            let at = |index| coordinates(&axes, dim_sizes, index);
            let run = |group: u64| match kernel.cluster {
                false => Program::at(&launch, &at(group)).run(),
                true => {
                    let programs: Vec<_> = (group * together..(group + 1) * together).map(at).collect();
                    cluster::run(&launch, &programs)
                }
            };
            threads.map(first..last, run)?
        };
        let bytes: u64 = stores.iter().flatten().map(PendingStore::bytes).sum();
        for stored in stores.into_iter().flatten() {
            if let Some(Arg::Out(view)) = args.get_mut(stored.param) {
                let (region, places, data) = (&stored.region, stored.places.as_ref(), &stored.tile.data);
                if stored.update == Update::Disjoint {
                    disjoint.add(kernel, stored.param, view, (region, places))?;
                }
                match stored.update.is_atomic() {
                    false => view.write(region, places, data)?,
                    true => view.update(stored.update, region, places, data)?,
                }
            }
        }
        let mean = (bytes / (last - first)).max(1024);
        batch = (BATCH_BYTES / mean).max(count);
        first = last;
    }
    Ok(())
}

/// The grid coordinates of the `index`-th program; the last axis is the fastest, and pairs are counted row by row.
fn coordinates(axes: &[GridExtent], dims: &[u64], mut index: u64) -> Vec<i32> {
    let mut at = vec![0; axes.len()];
    let mut left = axes.len();
    if let [.., GridExtent::UpTo { .. }] = axes {
        left -= 2;
        let pairs = GridExtent::programs(&axes[left..], dims);
        let pair = index % pairs;
        let row = ((8 * pair + 1).isqrt() - 1) / 2;
        (at[left], at[left + 1]) = (row as i32, (pair - row * (row + 1) / 2) as i32);
        index /= pairs;
    }
    for (c, axis) in at[..left].iter_mut().zip(axes).rev() {
        let count = axis.count(dims);
        *c = (index % count) as i32;
        index /= count;
    }
    at
}

fn check_dims(kernel: &Kernel, sizes: &[u64]) -> Result<(), InterpError> {
    if sizes.len() != kernel.dims.len() {
        let message = format!("has {} dims, but the number of sizes given is {}", kernel.dims.len(), sizes.len());
        return Err(InterpError::argument(&kernel.name, message));
    }
    for (dim, &size) in kernel.dims.values().zip(sizes) {
        let wrong = match dim.size {
            _ if size > i32::MAX as u64 => Some("more than 2^31 - 1".to_owned()),
            DimSize::Const(n) if n != size => Some(format!("but the kernel is built for {n}")),
            DimSize::Dynamic { divisor } if size % u64::from(divisor.max(1)) != 0 => {
                Some(format!("but the kernel is built for multiples of {divisor}"))
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err(InterpError::argument(&dim.name, format!("the size is {size}, {wrong}")));
        }
    }
    Ok(())
}

fn check_args(kernel: &Kernel, sizes: &[u64], args: &[Arg<'_>], mode: Mode) -> Result<(), InterpError> {
    if args.len() != kernel.params.len() {
        let message =
            format!("has {} parameters, but the number of arguments given is {}", kernel.params.len(), args.len());
        return Err(InterpError::argument(&kernel.name, message));
    }
    for (param, arg) in kernel.params.values().zip(args) {
        let fail = |message: String| Err(InterpError::argument(&param.name, message));
        let (found, dims, written) = match arg {
            Arg::In(view) => (view.dtype(), view.dims(), Access::In),
            Arg::Out(view) => (view.dtype(), view.dims(), Access::Out),
            Arg::Scalar(scalar) => {
                let ParamKind::Scalar { dtype } = param.kind else {
                    return fail("a tensor is wanted, but a scalar is given".to_owned());
                };
                if !fits(*scalar, dtype) {
                    return fail(format!("a scalar {dtype} is wanted, but {scalar:?} is given"));
                }
                continue;
            }
        };
        let ParamKind::Tensor { dtype, dims: wanted, access, .. } = &param.kind else {
            return fail("a scalar is wanted, but a tensor is given".to_owned());
        };
        if *access != written {
            let wanted = if *access == Access::In { "read" } else { "written" };
            return fail(format!("a tensor that is {wanted} must be given as such"));
        }
        let any_float = mode == Mode::F64 && dtype.is_float() && found.is_float();
        if found != *dtype && !any_float {
            return fail(format!("a tensor of {dtype} is wanted, but one of {found} is given"));
        }
        let wanted: Vec<u64> = wanted.iter().map(|d| sizes[d.as_u32() as usize]).collect();
        if dims != wanted {
            return fail(format!("dims {wanted:?} are wanted, but {dims:?} are given"));
        }
    }
    Ok(())
}

fn fits(scalar: Scalar, dtype: DType) -> bool {
    match scalar {
        Scalar::I32(_) => dtype.is_int(),
        Scalar::I64(_) => dtype == DType::I64,
        Scalar::F32(_) | Scalar::F64(_) => dtype.is_float(),
    }
}
