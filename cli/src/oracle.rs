//! Compares any kernel with the interpreter, knowing only its signature, on a small problem of its class whose last
//! tiles are ragged.

use super::arguments::{Arguments, Output, Values, bound};
use super::jobs::{Job, Scalars};
use anyhow::{Context, Result, bail};
use atlas_dsl::def::{DimDef, ParamDef};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::op::{BinaryOp, Predicate};
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, DType, Kernel, KernelDef, Quantity, Requirement, Specialization};
use atlas_runtime::{Device, Launch, MAX_DIM, build_kernel};
use atlas_tile_interp::{InterpError, Mode};

/// The most operations of the interpreter for a problem: some seconds.
pub(super) const WORK: u64 = 1 << 30;
/// The largest product of all dims, and the most elements of one tensor, of a problem that is tried.
const MOST_WORK: u64 = 1 << 28;
const MOST_ELEMENTS: u64 = 1 << 21;
/// How many multiples of a dim's divisor are tried to meet the kernel's requirements, and how many sizes of each scale.
const MOST_MULTIPLES: u64 = 1024;
const MOST_TRIES: u32 = 1 << 18;
/// How often the wanted sizes are halved if none fit.
const HALVINGS: u32 = 7;
/// The factor by which a single element may exceed the bound for all elements.
pub(super) const ELEMENT: f64 = 16.0;

/// The element types of a class, in the order of the kernel's type parameters.
pub(super) fn types(def: &KernelDef, spec: &Specialization) -> Vec<DType> {
    def.types.iter().map(|t| spec.types.get(t.name).copied().unwrap_or(DType::F32)).collect()
}

/// Refuses a config whose results on a device differ from the interpreter's. Returns the kind of numbers that were
/// used. A class without a small problem is accepted.
pub(super) fn check(job: &Job, config: &Config, device: &Device) -> Result<Values> {
    let (def, spec) = (job.def, &job.spec);
    let kernel = build_kernel(def, spec, config)?;
    let Some(dims) = small(def, spec, &kernel, config, Some(&job.dims)) else { return Ok(Values::default()) };
    let small = Small { def, spec, kernel: &kernel, dims: &dims, config, scalars: &job.scalars };
    let (values, wanted) = match small.wanted() {
        Err(e) if is_too_much(&e) => return Ok(Values::default()),
        wanted => wanted?,
    };
    let found = small.outputs(device, values).context("on a small problem")?;
    let verdict = small.judge(values, &wanted, &found);
    if verdict.is_wrong() {
        bail!("it is not what the interpreter computes: {:.1e} apart, bound {:.1e}", verdict.error, verdict.bound);
    }
    Ok(values)
}

/// Refuses the results of a config if they differ from those of another by more than the kernel's roundings explain.
pub(super) fn check_beside(job: &Job, config: &Config, first: &[Output], found: &[Output]) -> Result<()> {
    let (def, spec) = (job.def, &job.spec);
    let kernel = build_kernel(def, spec, config)?;
    let Err(apart) = agree(first, found, bound(&kernel)) else { return Ok(()) };
    let Some(dims) = small(def, spec, &kernel, config, Some(&job.dims)) else { return Err(apart) };
    let small = Small { def, spec, kernel: &kernel, dims: &dims, config, scalars: &job.scalars };
    let (values, wanted) = small.wanted()?;
    match small.rounding_bound(values, &wanted)? {
        Some(bound) => agree(first, found, bound),
        None => Ok(()),
    }
}

/// Whether an error says that a problem takes the interpreter too long.
pub(super) fn is_too_much(e: &anyhow::Error) -> bool {
    matches!(e.downcast_ref(), Some(InterpError::Work { .. }))
}

/// A problem that a CPU solves quickly.
#[derive(Clone, Copy)]
pub(super) struct Small<'a> {
    pub(super) def: &'static KernelDef,
    pub(super) spec: &'a Specialization,
    pub(super) kernel: &'a Kernel,
    pub(super) dims: &'a [u64],
    pub(super) config: &'a Config,
    pub(super) scalars: &'a Scalars,
}

impl Small<'_> {
    /// The interpreter's results, and the kind of input numbers. These are signed, unless another kind gives more
    /// finite results.
    pub(super) fn wanted(&self) -> Result<(Values, Vec<Output>)> {
        let Small { def, spec, kernel, dims, scalars, .. } = *self;
        let mut arguments = Arguments::new(def, &types(def, spec), dims, &spec.tensors, scalars, &Device::cpu())?;
        let mut of = |values| -> Result<Vec<Output>> {
            arguments.renew(kernel, values)?;
            arguments.interpret(kernel, dims, Mode::Native, WORK)
        };
        let signed = of(Values::Signed)?;
        if numberless(&signed) > 0 {
            let positive = of(Values::Positive)?;
            if numberless(&positive) < numberless(&signed) {
                return Ok((Values::Positive, positive));
            }
        }
        Ok((Values::Signed, signed))
    }

    /// The outputs of the kernel.
    pub(super) fn outputs(&self, device: &Device, values: Values) -> Result<Vec<Output>> {
        let Small { def, spec, kernel, dims, config, scalars } = *self;
        let mut arguments = Arguments::new(def, &types(def, spec), dims, &spec.tensors, scalars, device)?;
        arguments.renew(kernel, values)?;
        def.launch_with(device, config, arguments.args())?;
        arguments.outputs(usize::MAX)
    }
}

/// The number of elements that are not finite.
fn numberless(outputs: &[Output]) -> usize {
    let one = |o: &Output| match o {
        Output::Whole(_) => 0,
        Output::Real(values) => values.iter().filter(|x| !x.is_finite()).count(),
    };
    outputs.iter().map(one).sum()
}

/// Whether any result is a finite number. Without one, equal results prove nothing.
pub(super) fn says_something(outputs: &[Output]) -> bool {
    outputs.iter().any(|o| match o {
        Output::Whole(values) => !values.is_empty(),
        Output::Real(values) => values.iter().any(|x| x.is_finite()),
    })
}

/// Sizes of a class that give a few tiles for each dim, with a ragged last tile if the class allows it. Other sizes are
/// used if the kernel's requirements demand them. A dim that is not distributed over programs, such as that of a loop,
/// is no larger than was asked for.
pub(super) fn small(
    def: &KernelDef,
    spec: &Specialization,
    kernel: &Kernel,
    config: &Config,
    asked: Option<&[u64]>,
) -> Option<Vec<u64>> {
    let ragged = |tile: u32| u64::from(tile) + u64::from(tile / 2);
    let largest = config.tile.values().copied().max().unwrap_or(1).min(64);
    let of_grid = |d: &DimDef| {
        kernel.grid.iter().find_map(|axis| match axis.extent {
            GridExtent::Points(dim) => (kernel.dims[dim].name == d.name).then_some(2),
            GridExtent::Tiles { dim, size } | GridExtent::UpTo { dim, size } => {
                // More than one element, because otherwise the strides of its axes would have no effect.
                (kernel.dims[dim].name == d.name).then(|| ragged(size).max(2))
            }
        })
    };
    let asked_of = |d: &DimDef| def.dims.iter().position(|other| other.name == d.name).and_then(|at| asked?.get(at));
    let most = |d: &DimDef| if of_grid(d).is_none() { asked_of(d).copied().unwrap_or(u64::MAX) } else { u64::MAX };
    // An odd multiple of the divisor does not belong to a narrower class.
    let odd = |divisor: u64, at_least: u64| divisor * (at_least.div_ceil(divisor) | 1);
    let is_free = |d: &DimDef| !def.requires.iter().any(|r| r.dims().iter().any(|&at| def.dims[at].name == d.name));
    let divisor = |d: &DimDef| match spec.dims.get(d.name) {
        Some(DimFact::Dynamic(divisor)) => u64::from(*divisor),
        _ => 1,
    };
    // The sizes closest to the wanted one first, on a logarithmic scale, and larger ones before smaller ones. Which of
    // them fit depends on the other dims.
    let sizes = |d: &DimDef, usual: [u64; 2]| -> Vec<u64> {
        if let Some(DimFact::Const(n)) = spec.dims.get(d.name) {
            return vec![*n];
        }
        let divisor = divisor(d);
        let usual = usual.map(|least| odd(divisor, least));
        if is_free(d) {
            return usual.into_iter().chain([divisor]).collect();
        }
        let mut others: Vec<u64> = (1..=MOST_MULTIPLES).map(|n| n * divisor).filter(|n| !usual.contains(n)).collect();
        let far = |n: u64| match n as f64 / usual[0] as f64 {
            times if times < 1.0 => 2.0 / times,
            times => times,
        };
        others.sort_by(|&a, &b| far(a).total_cmp(&far(b)));
        usual.into_iter().chain(others).collect()
    };
    // Requirements that relate dims are met by equal sizes.
    let alike = def.dims.iter().filter(|d| !is_free(d)).map(divisor).max().unwrap_or(1);
    let wanted = |d: &DimDef| {
        let usual = of_grid(d).unwrap_or_else(|| ragged(largest));
        (if is_free(d) { usual } else { usual.max(alike) }).min(most(d))
    };
    // Dims that follow from others come after them.
    let follows = |d: &usize| {
        def.requires.iter().any(|r| r.is == Predicate::Eq && r.left == Quantity::Dim(*d) && r.dims().len() > 1)
    };
    let mut order: Vec<usize> = (0..def.dims.len()).collect();
    order.sort_by_key(follows);
    let search = Search { def, order: &order };
    // The sizes shrink step by step, because the first dims that a search tries may leave no room for the last.
    (0..HALVINGS)
        .find_map(|halved| {
            let wanted = |d: &DimDef| (wanted(d) >> halved).max(1);
            let largest = def.dims.iter().map(&wanted).max().unwrap_or(1);
            let options = |d: &DimDef| Options {
                sizes: sizes(d, [wanted(d), largest.min(most(d))]),
                divisor: (!matches!(spec.dims.get(d.name), Some(DimFact::Const(_)))).then(|| divisor(d)),
            };
            let options: Vec<Options> = def.dims.iter().map(options).collect();
            let at = |o: &Options, n: usize| *o.sizes.get(n).unwrap_or(&o.sizes[0]);
            let mut usual = (0..2).map(|n| options.iter().map(|o| at(o, n)).collect::<Vec<u64>>());
            let mut tries = MOST_TRIES;
            usual
                .find(|dims| fits(def, dims))
                .or_else(|| search.first(&options, &mut KnownSizes::default(), &mut tries))
        })
        // The sizes that were asked for are among those that the kernel accepts.
        .or_else(|| asked.filter(|dims| is_of_class(def, spec, dims)).map(<[u64]>::to_vec))
}

/// Whether sizes belong to a class and are small enough for a CPU to solve quickly.
pub(super) fn is_of_class(def: &KernelDef, spec: &Specialization, dims: &[u64]) -> bool {
    let is_of = |(d, &n): (&DimDef, &u64)| match spec.dims.get(d.name) {
        Some(DimFact::Const(size)) => *size == n,
        Some(DimFact::Dynamic(divisor)) => n > 0 && n.is_multiple_of(u64::from(*divisor)),
        None => false,
    };
    dims.len() == def.dims.len() && def.dims.iter().zip(dims).all(is_of) && fits(def, dims)
}

/// The sizes of a dim that may be tried.
struct Options {
    sizes: Vec<u64>,
    /// The known divisor of its size; `None` if the size is known.
    divisor: Option<u64>,
}

/// The sizes of some dims, by their index in the signature.
#[derive(Default)]
struct KnownSizes {
    known: Vec<(usize, u64)>,
}

impl KnownSizes {
    /// All sizes in the signature's order, with 0 for unknown ones.
    fn all(&self, count: usize) -> Vec<u64> {
        let mut all = vec![0; count];
        self.known.iter().for_each(|&(d, n)| all[d] = n);
        all
    }

    fn has(&self, dims: &[usize]) -> bool {
        dims.iter().all(|d| self.known.iter().any(|(known, _)| known == d))
    }
}

/// A search for sizes, one dim after the other.
struct Search<'a> {
    def: &'a KernelDef,
    order: &'a [usize],
}

impl Search<'_> {
    /// The first combination of sizes, one for each dim, that fits. `None` after too many tries.
    fn first(&self, options: &[Options], sizes: &mut KnownSizes, tries: &mut u32) -> Option<Vec<u64>> {
        let count = self.def.dims.len();
        let Some(&d) = self.order.get(sizes.known.len()) else { return Some(sizes.all(count)) };
        let solved = self.solved(d, &options[d], sizes);
        for &size in solved.as_ref().unwrap_or(&options[d].sizes) {
            *tries = tries.checked_sub(1)?;
            sizes.known.push((d, size));
            let found = if self.is_small(d, sizes) { self.first(options, sizes, tries) } else { None };
            sizes.known.pop();
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The sizes of a dim that satisfy the conditions on it, if all other dims in these conditions are known: those
    /// among its options, or the least possible size if none is. `None` if the conditions exclude nothing, or nothing
    /// that this finds: conditions on sums, differences and products hold on one side of some size.
    fn solved(&self, d: usize, of: &Options, sizes: &KnownSizes) -> Option<Vec<u64>> {
        let divisor = of.divisor?;
        let mut dims = sizes.all(self.def.dims.len());
        let (mut least, mut most) = (1, MAX_DIM as u64 / divisor);
        let others = |r: &Requirement| r.dims().into_iter().filter(|&at| at != d).collect::<Vec<_>>();
        for r in self.def.requires.iter().filter(|r| r.dims().contains(&d) && sizes.has(&others(r))) {
            let sides = match r.is {
                Predicate::Eq => [Predicate::Ge, Predicate::Le],
                Predicate::Ne => continue,
                is => [is, is],
            };
            if !is_polynomial(r.left) || !is_polynomial(r.right) {
                continue;
            }
            for is in sides {
                let mut holds = |n: u64| {
                    dims[d] = n * divisor;
                    Requirement { is, ..*r }.holds(&dims)
                };
                let (at_least, at_most) = (holds(least), holds(most));
                if at_least && at_most {
                    continue;
                }
                if !at_least && !at_most {
                    return None;
                }
                let (mut low, mut high) = (least, most);
                while high - low > 1 {
                    let middle = low + (high - low) / 2;
                    if holds(middle) == at_least { low = middle } else { high = middle }
                }
                if at_least { most = low } else { least = high }
            }
        }
        if (least, most) == (1, MAX_DIM as u64 / divisor) {
            return None;
        }
        let fits = |n: &u64| (least * divisor..=most * divisor).contains(n);
        let some: Vec<u64> = of.sizes.iter().copied().filter(fits).collect();
        Some(if some.is_empty() { vec![least * divisor] } else { some })
    }

    /// Whether the conditions that the sizes decide, up to the dim `last`, hold, and the problem is not too large.
    fn is_small(&self, last: usize, sizes: &KnownSizes) -> bool {
        let dims = sizes.all(self.def.dims.len());
        let decides = |of: &[usize]| of.contains(&last) && sizes.has(of);
        product(sizes.known.iter().map(|(_, n)| *n)) <= MOST_WORK
            && self.def.requires.iter().all(|r| !decides(&r.dims()) || r.holds(&dims))
            && self.def.params.iter().all(|p| match p {
                ParamDef::Tensor { dims: axes, .. } if decides(axes) => {
                    product(axes.iter().map(|&d| dims[d])) <= MOST_ELEMENTS
                }
                _ => true,
            })
    }
}

fn is_polynomial(q: Quantity) -> bool {
    match q {
        Quantity::Of(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, sides) => sides.iter().all(|q| is_polynomial(*q)),
        Quantity::Of(..) => false,
        _ => true,
    }
}

/// Whether a kernel accepts these sizes and a CPU solves the problem quickly.
fn fits(def: &KernelDef, dims: &[u64]) -> bool {
    let order: Vec<usize> = (0..dims.len()).collect();
    let search = Search { def, order: &order };
    let mut sizes = KnownSizes::default();
    order.iter().all(|&d| {
        sizes.known.push((d, dims[d]));
        search.is_small(d, &sizes)
    }) && def.requires.iter().all(|r| r.holds(dims))
}

fn product(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(1, u64::saturating_mul)
}

/// Refuses results that differ by more than summation in another order explains.
///
/// # Errors
/// The size of the difference.
pub(super) fn agree(wanted: &[Output], found: &[Output], bound: f64) -> Result<()> {
    let (apart, element) = apart(wanted, found);
    if apart > bound || element > ELEMENT * bound {
        bail!("{apart:.1e} apart, one element {element:.1e}, bound {bound:.1e}");
    }
    Ok(())
}

/// The largest difference of the results, relative to the first ones: over all elements of a tensor, and of a single
/// element relative to the larger of its size and the tensor's usual size. Both are maxima over all tensors. They are
/// infinite if whole numbers differ, if only one of two elements is a number, or if they are different infinities.
pub(super) fn apart(a: &[Output], b: &[Output]) -> (f64, f64) {
    let worst = |(all, one): (f64, f64), (x, y): (f64, f64)| (all.max(x), one.max(y));
    let of = |(a, b): (&Output, &Output)| match (a, b) {
        (Output::Real(a), Output::Real(b)) if a.len() == b.len() => apart_real(a, b),
        (Output::Whole(a), Output::Whole(b)) if a == b => (0.0, 0.0),
        _ => (f64::INFINITY, f64::INFINITY),
    };
    a.iter().zip(b).map(of).fold((0.0, 0.0), worst)
}

fn apart_real(a: &[f64], b: &[f64]) -> (f64, f64) {
    let pairs = || a.iter().copied().zip(b.iter().copied());
    let numbers = || pairs().filter(|(x, y)| x.is_finite() && y.is_finite());
    let is_same = |(x, y): (f64, f64)| x == y || (x.is_nan() && y.is_nan()) || (x.is_finite() && y.is_finite());
    if !pairs().all(is_same) {
        return (f64::INFINITY, f64::INFINITY);
    }
    let sum = |f: &dyn Fn(f64, f64) -> f64| numbers().map(|(x, y)| f(x, y)).sum::<f64>();
    let (square, size) = (sum(&|x, y| (x - y).powi(2)), sum(&|x, _| x.powi(2)));
    let usual = (size / numbers().count().max(1) as f64).sqrt();
    let one = numbers().filter(|(x, y)| x != y).map(|(x, y)| (x - y).abs() / x.abs().max(usual));
    (if square == 0.0 { 0.0 } else { (square / size).sqrt() }, one.fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn real(values: Vec<f64>) -> Vec<Output> {
        vec![Output::Real(values)]
    }

    /// The number of monomials of 64 variables exceeds the multiples that are searched.
    #[test]
    fn sizes_that_other_dims_decide_are_found() {
        let def = crate::input::kernel("monomials2").unwrap();
        let job = Job::of_class("monomials2", "", "N=65536 D=64 E=2145", "", None).unwrap();
        let config = def.default_config();
        let kernel = build_kernel(def, &job.spec, &config).unwrap();
        let dims = small(def, &job.spec, &kernel, &config, None).unwrap();
        assert!(def.requires.iter().all(|r| r.holds(&dims)) && fits(def, &dims), "{dims:?}");
    }

    #[test]
    fn one_row_that_is_lost_among_many_is_seen() {
        let right = vec![0.5; 1536 * 8];
        let mut lost = right.clone();
        lost[8 * 700..8 * 701].fill(0.0);
        let (right, lost) = (real(right), real(lost));
        let (all, one) = apart(&right, &lost);
        assert!(all < 3e-2 && one > ELEMENT * 3e-2, "{all} {one}");
        assert_eq!(apart(&right, &right), (0.0, 0.0));
    }

    #[test]
    fn a_small_output_is_not_lost_beside_a_large_one() {
        let right = [real(vec![1.0; 100_000]), real(vec![0.5; 4])].concat();
        let wrong = [right[..1].to_vec(), real(vec![0.0; 4])].concat();
        assert!(apart(&right, &wrong).0 >= 1.0);
    }

    #[test]
    fn what_is_no_number_on_both_sides_is_equal_and_proves_nothing() {
        let none = real(vec![f64::NAN; 4]);
        assert_eq!(apart(&none, &none), (0.0, 0.0));
        assert!(!says_something(&none) && says_something(&real(vec![f64::NAN, 1.0])));
        assert_eq!(apart(&real(vec![1.0, f64::NAN]), &real(vec![1.0, 2.0])).0, f64::INFINITY);
        assert_eq!(apart(&real(vec![f64::INFINITY]), &real(vec![f64::NEG_INFINITY])).0, f64::INFINITY);
    }

    #[test]
    fn whole_numbers_are_equal_or_not() {
        let of = |n: i64| vec![Output::Whole(vec![1_000_000, n])];
        assert_eq!(apart(&of(1 << 60), &of(1 << 60)), (0.0, 0.0));
        assert_eq!(apart(&of(1 << 60), &of((1 << 60) + 1)).0, f64::INFINITY);
    }
}
