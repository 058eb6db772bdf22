//! Compares a result with its reference: relative Frobenius error, largest error, non-finite values.

use crate::tolerance::{MAX_ERROR_FACTOR, OWN_ROUNDING};

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// `||y - r|| / ||r||` over the elements that are finite in both; where `r` is 0, 0 or infinity.
    pub rel_f: f64,
    /// `max |y - r| / max(rms(r), |r|)` over the same elements: of one that is above the root mean square relative to itself,
    /// since rounding it is.
    pub max_error: f64,
    /// Non-finite values of the result and of the reference.
    pub non_finite: [usize; 2],
    /// True if what is not finite is the same in both: NaN, or the same infinity.
    pub same_places: bool,
    /// True if the lengths agree.
    pub same_length: bool,
    /// The least bound on `rel_f` that admits what was found: 0 where it is no further from the reference than the roundings of
    /// its arithmetic are.
    pub least_bound: f64,
}

impl Comparison {
    /// Compares `result` with `reference`.
    pub fn new(result: &[f64], reference: &[f64]) -> Comparison {
        let finite_pairs = || result.iter().zip(reference).filter(|(y, r)| y.is_finite() && r.is_finite());
        let (mut error, mut norm, mut finite) = (0.0, 0.0, 0usize);
        let (mut non_finite, mut same_places) = ([0; 2], true);
        for (y, r) in result.iter().zip(reference) {
            non_finite[0] += usize::from(!y.is_finite());
            non_finite[1] += usize::from(!r.is_finite());
            same_places &= (y.is_finite() && r.is_finite()) || (y.is_nan() && r.is_nan()) || y == r;
        }
        for (y, r) in finite_pairs() {
            error += (y - r) * (y - r);
            norm += r * r;
            finite += 1;
        }
        let ratio = |e: f64, n: f64| if e == 0.0 { 0.0 } else { e / n };
        let rms = (norm / finite.max(1) as f64).sqrt();
        let of_one = |(y, r): (&f64, &f64)| ratio((y - r).abs(), rms.max(r.abs()));
        let rel_f = ratio(error.sqrt(), norm.sqrt());
        let max_error = finite_pairs().map(of_one).fold(0.0, f64::max);
        let same_length = result.len() == reference.len();
        let least_bound = rel_f.max(max_error / MAX_ERROR_FACTOR);
        Comparison { rel_f, max_error, non_finite, same_places, same_length, least_bound }
    }

    /// Compares `result` with `reference`, of an arithmetic that magnifies its roundings: `rounded` is what the reference becomes
    /// when it is rounded as the result is, and a result that is about as near as that is right.
    pub fn beside(result: &[f64], reference: &[f64], rounded: &[f64]) -> Comparison {
        let (found, own) = (Comparison::new(result, reference), Comparison::new(rounded, reference));
        let beyond = |found: f64, own: f64, times: f64| if found <= times * own { 0.0 } else { found };
        let [of_all, of_one] = OWN_ROUNDING;
        let least_bound = beyond(found.rel_f, own.rel_f, of_all)
            .max(beyond(found.max_error, own.max_error, of_one) / MAX_ERROR_FACTOR);
        Comparison { least_bound, ..found }
    }

    /// What two comparisons found together: the worse of each figure.
    #[must_use]
    pub fn and(self, other: Comparison) -> Comparison {
        Comparison {
            rel_f: self.rel_f.max(other.rel_f),
            max_error: self.max_error.max(other.max_error),
            non_finite: std::array::from_fn(|i| self.non_finite[i] + other.non_finite[i]),
            same_places: self.same_places && other.same_places,
            same_length: self.same_length && other.same_length,
            least_bound: self.least_bound.max(other.least_bound),
        }
    }

    /// Compares results with their references, one by one; the worst of each figure.
    pub fn of_all<'a>(pairs: impl IntoIterator<Item = (&'a [f64], &'a [f64])>) -> Comparison {
        let nothing = Comparison::new(&[], &[]);
        pairs.into_iter().fold(nothing, |worst, (y, r)| worst.and(Comparison::new(y, r)))
    }

    /// True if the result is as good as the bound on `rel_f` asks.
    pub fn passes(&self, bound: f64) -> bool {
        self.same_length && self.same_places && self.least_bound <= bound
    }
}

#[cfg(test)]
mod tests {
    use super::Comparison;

    #[test]
    fn equal_results_pass_at_bound_zero() {
        assert!(Comparison::new(&[1.0, -2.0], &[1.0, -2.0]).passes(0.0));
    }

    #[test]
    fn zero_reference_asks_for_zero() {
        assert!(Comparison::new(&[0.0, 0.0], &[0.0, 0.0]).passes(1e-6));
        assert!(!Comparison::new(&[1e-30, 0.0], &[0.0, 0.0]).passes(1e-2));
    }

    #[test]
    fn non_finite_values_must_sit_at_the_same_places() {
        let nan = f64::NAN;
        assert!(Comparison::new(&[nan, 1.0], &[nan, 1.0]).passes(1e-6));
        assert!(!Comparison::new(&[nan, 1.0], &[1.0, nan]).passes(1e-2));
        assert!(!Comparison::new(&[1.0, 1.0], &[nan, 1.0]).passes(1e-2));
        let inf = f64::INFINITY;
        assert!(Comparison::new(&[inf, -inf], &[inf, -inf]).passes(0.0));
        for (found, wanted) in [(nan, inf), (inf, nan), (inf, -inf), (1.0, inf), (-inf, nan)] {
            assert!(!Comparison::new(&[found], &[wanted]).passes(1e-2), "{found} for {wanted}");
        }
    }

    #[test]
    fn one_large_error_fails_where_the_norm_hides_it() {
        let reference = vec![1.0; 1_000_000];
        let mut result = reference.clone();
        result[7] += 1.0;
        let c = Comparison::new(&result, &reference);
        assert!(c.rel_f <= 1e-2 && !c.passes(1e-2));
    }

    /// 900 elements of 1 and one of 1000: 30 times the root mean square.
    #[test]
    fn an_element_above_the_root_mean_square_is_judged_by_its_own_size() {
        let mut reference = vec![1.0; 900];
        reference.push(1000.0);
        let with_last = |last: f64| {
            let mut result = reference.clone();
            result[900] = last;
            Comparison::new(&result, &reference).max_error
        };
        // Half a unit of the last place in bf16.
        assert_eq!(with_last(1002.0), 2e-3);
        assert_eq!(with_last(0.0), 1.0);
        // What is below it is still judged by it: an error of 1 of a number of 1.
        let mut result = reference.clone();
        result[7] = 2.0;
        let c = Comparison::new(&result, &reference);
        assert!((0.02..0.04).contains(&c.max_error), "{c:?}");
    }

    /// What a rounding moves by 9 %, another one may move by as much, and a mistake by more.
    #[test]
    fn what_magnifies_its_roundings_is_judged_by_them() {
        let reference = vec![1.0; 100];
        let moved = |by: f64| (0..100).map(|i| if i % 2 == 0 { 1.0 + by } else { 1.0 - by }).collect::<Vec<f64>>();
        let c = |by: f64| Comparison::beside(&moved(by), &reference, &moved(-0.09));
        assert!(c(0.1).passes(1e-2) && !c(0.15).passes(1e-2));
        // Where roundings are small the bound decides.
        let c = |by: f64| Comparison::beside(&moved(by), &reference, &moved(1e-4));
        assert!(c(9e-3).passes(1e-2) && !c(1.1e-2).passes(1e-2));
        // One element that is far off is no rounding of all.
        let mut one = reference.clone();
        one[7] = 1.5;
        assert!(!Comparison::beside(&one, &reference, &moved(0.09)).passes(1e-2));
    }

    #[test]
    fn one_wrong_result_of_several_fails() {
        let (right, wrong) = ([1.0, 2.0], [1.0, 3.0]);
        let pairs = |second: &'static [f64]| [([1.0].as_slice(), [1.0].as_slice()), (second, &[1.0, 2.0])];
        assert!(Comparison::of_all(pairs(&[1.0, 2.0])).passes(0.0));
        assert!(!Comparison::of_all([(&right[..], &right[..]), (&wrong[..], &right[..])]).passes(1e-2));
        assert!(!Comparison::of_all(pairs(&[1.0])).passes(1.0));
    }

    #[test]
    fn missing_elements_fail() {
        assert!(!Comparison::new(&[1.0], &[1.0, 2.0]).passes(1.0));
    }
}
