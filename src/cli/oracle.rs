//! A kernel of which nothing is known but its signature, beside the interpreter: on a small problem of its class whose last
//! tiles are ragged.

use super::arguments::{Arguments, bound};
use anyhow::{Context, Result, bail};
use atlas_dsl::def::{DimDef, ParamDef};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, DType, Kernel, KernelDef, Specialization};
use atlas_runtime::{Device, Launch, build_kernel};

/// The product of all dims, and elements of one tensor, past which a problem is too large to try.
const MOST_WORK: u64 = 1 << 28;
const MOST_ELEMENTS: u64 = 1 << 21;
/// How much further one element may lie apart than all together, in bounds.
pub(super) const ELEMENT: f64 = 16.0;

/// The element types of a class, in the kernel's order.
pub(super) fn types(def: &KernelDef, spec: &Specialization) -> Vec<DType> {
    def.types.iter().map(|t| spec.types.get(t.name).copied().unwrap_or(DType::F32)).collect()
}

/// Refuses a config whose results on a device are not the interpreter's. A class without a small problem passes.
pub(super) fn check(def: &'static KernelDef, spec: &Specialization, config: &Config, device: &Device) -> Result<()> {
    let kernel = build_kernel(def, spec, config)?;
    let Some(dims) = small(def, spec, &kernel, config) else { return Ok(()) };
    let on_cpu = outputs(def, spec, &dims, &Device::cpu(), config)?;
    let found = outputs(def, spec, &dims, device, config).context("on a small problem")?;
    let ((apart, element), bound) = (apart(&on_cpu, &found), bound(def, &types(def, spec)));
    if apart > bound || element > ELEMENT * bound {
        bail!(
            "it is not what the interpreter computes: {apart:.1e} apart, one element {element:.1e}, bound {bound:.1e}"
        );
    }
    Ok(())
}

/// What a kernel writes, given small numbers.
pub(super) fn outputs(
    def: &'static KernelDef,
    spec: &Specialization,
    dims: &[u64],
    device: &Device,
    config: &Config,
) -> Result<Vec<Vec<f64>>> {
    let mut arguments = Arguments::new(def, &types(def, spec), dims, &spec.tensors, device)?;
    def.launch_with(device, config, arguments.args())?;
    arguments.outputs(usize::MAX)
}

/// Sizes of a class that make a few tiles of each dim, the last of them ragged where the class admits it.
pub(super) fn small(def: &KernelDef, spec: &Specialization, kernel: &Kernel, config: &Config) -> Option<Vec<u64>> {
    let ragged = |tile: u32| u64::from(tile) + u64::from(tile / 2);
    let largest = config.tile.values().copied().max().unwrap_or(1).min(64);
    let wanted = |d: &DimDef| {
        let own = kernel.grid.iter().find_map(|axis| match axis.extent {
            GridExtent::Points(dim) => (kernel.dims[dim].name == d.name).then_some(2),
            GridExtent::Tiles { dim, size } | GridExtent::UpTo { dim, size } => {
                (kernel.dims[dim].name == d.name).then(|| ragged(size))
            }
        });
        own.unwrap_or_else(|| ragged(largest))
    };
    // An odd multiple of the divisor is of no narrower class.
    let odd = |divisor: u64, at_least: u64| divisor * (at_least.div_ceil(divisor) | 1);
    let sizes = |least: &dyn Fn(&DimDef) -> u64| -> Vec<u64> {
        let size = |d: &DimDef| match spec.dims.get(d.name) {
            Some(DimFact::Const(n)) => *n,
            Some(DimFact::Dynamic(divisor)) => odd(u64::from(*divisor), least(d)),
            None => odd(1, least(d)),
        };
        def.dims.iter().map(size).collect()
    };
    let most = def.dims.iter().map(&wanted).max().unwrap_or(1);
    let within = |sizes: Vec<u64>, most: u64| {
        sizes.iter().try_fold(1_u64, |n, size| n.checked_mul(*size)).is_some_and(|n| n <= most)
    };
    let fits = |dims: &Vec<u64>| {
        def.requires.iter().all(|r| r.holds(dims))
            && within(dims.clone(), MOST_WORK)
            && def.params.iter().all(|p| match p {
                ParamDef::Tensor { dims: axes, .. } => within(axes.iter().map(|&d| dims[d]).collect(), MOST_ELEMENTS),
                ParamDef::Scalar { .. } => true,
            })
    };
    [sizes(&wanted), sizes(&|_| most), sizes(&|_| 1)].into_iter().find(fits)
}

/// The distance of results, relative to those of the first: of each tensor over all elements, and of one element over the
/// larger of its size and the tensor's usual one; the worst of all tensors. Infinite where one has a number and the other none, and
/// where less than half of a tensor is numbers.
pub(super) fn apart(a: &[Vec<f64>], b: &[Vec<f64>]) -> (f64, f64) {
    let worst = |(all, one): (f64, f64), (x, y): (f64, f64)| (all.max(x), one.max(y));
    let of = |(a, b): (&Vec<f64>, &Vec<f64>)| {
        let pairs: Vec<(f64, f64)> = a.iter().copied().zip(b.iter().copied()).collect();
        let numbers: Vec<(f64, f64)> = pairs.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        if a.len() != b.len()
            || pairs.iter().any(|(x, y)| x.is_finite() != y.is_finite())
            || 2 * numbers.len() < a.len()
        {
            return (f64::INFINITY, f64::INFINITY);
        }
        let sum = |f: &dyn Fn(f64, f64) -> f64| numbers.iter().map(|(x, y)| f(*x, *y)).sum::<f64>();
        let (square, size) = (sum(&|x, y| (x - y).powi(2)), sum(&|x, _| x.powi(2)));
        let usual = (size / numbers.len().max(1) as f64).sqrt();
        let one = numbers.iter().filter(|(x, y)| x != y).map(|(x, y)| (x - y).abs() / x.abs().max(usual));
        (if square == 0.0 { 0.0 } else { (square / size).sqrt() }, one.fold(0.0, f64::max))
    };
    a.iter().zip(b).map(of).fold((0.0, 0.0), worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_that_is_lost_among_many_is_seen() {
        let right = vec![vec![0.5; 1536 * 8]];
        let mut lost = right.clone();
        lost[0][8 * 700..8 * 701].fill(0.0);
        let (all, one) = apart(&right, &lost);
        assert!(all < 3e-2 && one > ELEMENT * 3e-2, "{all} {one}");
        assert_eq!(apart(&right, &right), (0.0, 0.0));
    }

    #[test]
    fn a_small_output_is_not_lost_beside_a_large_one() {
        let right = vec![vec![1.0; 100_000], vec![0.5; 4]];
        let wrong = vec![right[0].clone(), vec![0.0; 4]];
        assert!(apart(&right, &wrong).0 >= 1.0);
    }

    #[test]
    fn what_is_no_number_proves_nothing() {
        let none = vec![vec![f64::NAN; 4]];
        assert_eq!(apart(&none, &none).0, f64::INFINITY);
        assert_eq!(apart(&[vec![1.0, f64::NAN]], &[vec![1.0, 2.0]]).0, f64::INFINITY);
    }
}
