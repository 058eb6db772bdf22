//! Compares results with the interpreter's, with a bound from how far a kernel's own roundings move them.
//!
//! Most kernels are within a bound that follows from their element types. If a result is not, the interpreter runs the
//! kernel again with each inexact operation off by about as much as a device's may be. An element that moves by a large
//! part of itself leaps, and is not judged. Any other element may be off by as much as it moved, with some slack. If
//! most of a tensor leaps, nothing can be said about the kernel.

use super::arguments::{Arguments, Output, Values, bound};
use super::oracle::{ELEMENT, Small, WORK, apart, types};
use anyhow::Result;
use atlas_runtime::Device;
use atlas_tile_interp::{Mode, Noise};

/// Runs with noise for each sign.
const SEEDS: u64 = 3;
/// A device may differ by this factor times the effect of the noise.
const SLACK: f64 = 4.0;
/// An element leaps if it moves by this fraction of itself, or of the usual size of its tensor.
const LEAP: f64 = 0.125;
/// A bound above this proves nothing.
const MOST: f64 = 0.25;

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RoundingVerdict {
    /// The difference, and the largest difference that is allowed.
    pub(super) error: f64,
    pub(super) bound: f64,
    /// Why neither number is meaningful, if so.
    pub(super) doubt: Option<String>,
}

impl RoundingVerdict {
    /// True if the results are wrong, whatever the roundings.
    pub(super) fn is_wrong(&self) -> bool {
        self.doubt.is_none() && self.error > self.bound
    }
}

/// How far each element of each output moves; infinite if it is a number in some runs and not in others.
type Moved = Vec<Vec<f64>>;

impl Small<'_> {
    /// Compares results with the interpreter's for the same inputs.
    pub(super) fn judge(&self, values: Values, wanted: &[Output], found: &[Output]) -> RoundingVerdict {
        let bound = bound(self.kernel);
        let (all, one) = apart(wanted, found);
        let error = all.max(one / ELEMENT);
        if error <= bound {
            return RoundingVerdict { error, bound, doubt: None };
        }
        match self.moved(values, wanted) {
            Ok(moved) => judged(wanted, found, &moved, bound),
            Err(e) => RoundingVerdict {
                error,
                bound,
                doubt: Some(format!("how far roundings move its results is not known: {e:#}")),
            },
        }
    }

    /// The largest difference of two configs' results that roundings alone explain. `None` if they may differ
    /// arbitrarily.
    pub(super) fn rounding_bound(&self, values: Values, wanted: &[Output]) -> Result<Option<f64>> {
        let moved = self.moved(values, wanted)?;
        let leaps = |(o, moved): (&Output, &Vec<f64>)| match o {
            Output::Whole(_) => moved.iter().any(|m| *m > 0.0),
            Output::Real(values) => values.iter().zip(moved).any(|(x, m)| *m > LEAP * size(*x, usual(values))),
        };
        if wanted.iter().zip(&moved).any(leaps) {
            return Ok(None);
        }
        let verdict = judged(wanted, wanted, &moved, bound(self.kernel));
        Ok(verdict.doubt.is_none().then_some(verdict.bound))
    }

    fn moved(&self, values: Values, wanted: &[Output]) -> Result<Moved> {
        let Small { def, spec, kernel, dims, scalars, .. } = *self;
        let mut arguments = Arguments::new(def, &types(def, spec), dims, &spec.tensors, scalars, &Device::cpu())?;
        arguments.renew(kernel, values)?;
        let approximate = kernel.values.values().any(|v| v.ty.dtype.is_half());
        let mut moved: Moved = wanted.iter().map(|o| vec![0.0; o.len()]).collect();
        for seed in 0..SEEDS {
            for negative in [false, true] {
                let noise = Noise { seed, negative, approximate };
                let noisy = arguments.interpret(kernel, dims, Mode::Noisy(noise), WORK)?;
                for ((moved, wanted), noisy) in moved.iter_mut().zip(wanted).zip(&noisy) {
                    let distances = distances(wanted, noisy);
                    moved.iter_mut().zip(distances).for_each(|(m, d)| *m = m.max(d));
                }
            }
        }
        Ok(moved)
    }
}

/// The difference of each pair of elements; infinite if only one of them is a number.
fn distances(a: &Output, b: &Output) -> Vec<f64> {
    match (a, b) {
        (Output::Whole(a), Output::Whole(b)) => a.iter().zip(b).map(|(a, b)| a.abs_diff(*b) as f64).collect(),
        (Output::Real(a), Output::Real(b)) => a.iter().zip(b).map(|(&a, &b)| distance(a, b)).collect(),
        _ => Vec::new(),
    }
}

fn distance(a: f64, b: f64) -> f64 {
    match (a, b) {
        (a, b) if a == b || (a.is_nan() && b.is_nan()) => 0.0,
        (a, b) if a.is_finite() && b.is_finite() => (a - b).abs(),
        _ => f64::INFINITY,
    }
}

/// The usual size of a tensor's numbers.
fn usual(values: &[f64]) -> f64 {
    let numbers = || values.iter().filter(|x| x.is_finite());
    (numbers().map(|x| x * x).sum::<f64>() / numbers().count().max(1) as f64).sqrt()
}

fn size(x: f64, usual: f64) -> f64 {
    if x.is_finite() { x.abs().max(usual) } else { usual }
}

/// The worst verdict of all tensors. Definite verdicts come before doubtful ones.
fn judged(wanted: &[Output], found: &[Output], moved: &Moved, bound: f64) -> RoundingVerdict {
    let none = RoundingVerdict { error: 0.0, bound, doubt: None };
    let all = wanted.iter().zip(found).zip(moved).map(|((a, b), moved)| match (a, b) {
        (Output::Whole(a), Output::Whole(b)) if a.len() == b.len() => judged_whole(a, b, moved, bound),
        (Output::Real(a), Output::Real(b)) if a.len() == b.len() => judged_real(a, b, moved, bound),
        _ => RoundingVerdict { error: f64::INFINITY, ..none.clone() },
    });
    let share = |v: &RoundingVerdict| v.error / v.bound;
    // Wrong is worse than doubtful, and doubtful is worse than right.
    all.fold(none.clone(), |worst, v| match (worst.is_wrong(), v.is_wrong()) {
        (true, false) => worst,
        (false, true) => v,
        _ if worst.doubt.is_some() => worst,
        _ if v.doubt.is_some() || share(&v) >= share(&worst) => v,
        _ => worst,
    })
}

/// Whole numbers that move may be off by as much. Others must be equal.
fn judged_whole(a: &[i64], b: &[i64], moved: &[f64], bound: f64) -> RoundingVerdict {
    let still = moved.iter().filter(|m| **m == 0.0).count();
    let is_wrong = a.iter().zip(b).zip(moved).any(|((a, b), m)| a.abs_diff(*b) as f64 > SLACK * m);
    let error = if is_wrong { f64::INFINITY } else { 0.0 };
    RoundingVerdict { error, bound, doubt: doubt(still, a.len()) }
}

fn judged_real(a: &[f64], b: &[f64], moved: &[f64], bound: f64) -> RoundingVerdict {
    let usual = usual(a);
    let kept: Vec<usize> = (0..a.len()).filter(|&i| moved[i] <= LEAP * size(a[i], usual)).collect();
    let of = |values: &[f64]| vec![Output::Real(kept.iter().map(|&i| values[i]).collect())];
    let (all, one) = apart(&of(a), &of(b));
    let finite = || kept.iter().filter(|&&i| a[i].is_finite());
    let square = finite().map(|&i| a[i] * a[i]).sum::<f64>();
    let noise = finite().map(|&i| moved[i] * moved[i]).sum::<f64>();
    let noise = if noise == 0.0 { 0.0 } else { (noise / square).sqrt() };
    let farthest = finite().filter(|&&i| moved[i] > 0.0).map(|&i| moved[i] / size(a[i], usual)).fold(0.0, f64::max);
    let bound = bound.max(SLACK * noise).max(SLACK * farthest / ELEMENT);
    let error = all.max(one / ELEMENT);
    // No rounding turns an element that is a number in all runs into a NaN.
    let is_number = |i: &usize| a[*i].is_finite() == b[*i].is_finite();
    let doubt = doubt(kept.len(), a.len()).or_else(|| (bound > MOST).then(|| LEAPS.to_owned()));
    RoundingVerdict { error, bound, doubt: doubt.filter(|_| kept.iter().all(is_number)) }
}

const LEAPS: &str = "roundings alone move its results by a large part of themselves";

fn doubt(judged: usize, of: usize) -> Option<String> {
    (2 * judged < of).then(|| LEAPS.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_by_rounding_may_be_as_far_off_and_no_further() {
        let (a, moved) = (vec![1.0, 2.0, 4.0, 8.0], vec![vec![1e-2, 2e-2, 4e-2, 8e-2]]);
        let of = |times: f64| vec![Output::Real(a.iter().map(|x| x * times).collect())];
        let near = judged(&of(1.0), &of(1.02), &moved, 1e-4);
        assert!(!near.is_wrong() && near.doubt.is_none() && near.bound > 1e-2 && near.bound < 0.1, "{near:?}");
        assert!(judged(&of(1.0), &of(1.2), &moved, 1e-4).is_wrong());
        // If nothing moves, the bound is that of the element types.
        assert!(judged(&of(1.0), &of(1.001), &vec![vec![0.0; 4]], 1e-4).is_wrong());
    }

    #[test]
    fn where_most_leaps_nothing_is_said() {
        let (a, b) = (vec![Output::Real(vec![1e-7, -2e-7, 1e-7])], vec![Output::Real(vec![3e-7, 2e-7, 0.0])]);
        let verdict = judged(&a, &b, &vec![vec![2e-7; 3]], 1e-4);
        assert!(!verdict.is_wrong() && verdict.doubt.is_some(), "{verdict:?}");
        // An element that is a number in all runs is one on a device too.
        let none = vec![Output::Real(vec![1e-7, f64::NAN, 1e-7])];
        assert!(judged(&a, &none, &vec![vec![1e-9; 3]], 1e-4).is_wrong());
    }

    #[test]
    fn one_element_that_leaps_is_not_judged_and_the_others_are() {
        let of = |last: f64, third: f64| vec![Output::Real(vec![1.0, 1.0, third, last])];
        let moved = vec![vec![0.0, 0.0, 0.0, 2.0]];
        assert_eq!(judged(&of(1.0, 1.0), &of(-1.0, 1.0), &moved, 1e-4).error, 0.0);
        assert!(judged(&of(1.0, 1.0), &of(-1.0, -1.0), &moved, 1e-4).is_wrong());
        let whole = |last: i64, third: i64| vec![Output::Whole(vec![7, 7, third, last])];
        let moved = vec![vec![0.0, 0.0, 0.0, 1.0]];
        assert!(!judged(&whole(7, 7), &whole(8, 7), &moved, 1e-10).is_wrong());
        assert!(judged(&whole(7, 7), &whole(8, 8), &moved, 1e-10).is_wrong());
        assert!(judged(&whole(7, 7), &whole(70, 7), &moved, 1e-10).is_wrong());
    }
}
