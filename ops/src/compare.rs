//! Compares a result with its reference: relative Frobenius error, largest error, non-finite values.

use crate::tolerance::MAX_ERROR_FACTOR;

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// `||y - r|| / ||r||` over the elements that are finite in both; where `r` is 0, 0 or infinity.
    pub rel_f: f64,
    /// `max |y - r| / rms(r)` over the same elements.
    pub max_error: f64,
    /// Non-finite values of the result and of the reference.
    pub non_finite: [usize; 2],
    /// True if what is not finite is the same in both: NaN, or the same infinity.
    pub same_places: bool,
    /// True if the lengths agree.
    pub same_length: bool,
}

impl Comparison {
    /// Compares `result` with `reference`.
    pub fn new(result: &[f64], reference: &[f64]) -> Comparison {
        let (mut error, mut norm, mut largest, mut finite) = (0.0, 0.0, 0.0_f64, 0usize);
        let (mut non_finite, mut same_places) = ([0; 2], true);
        for (y, r) in result.iter().zip(reference) {
            non_finite[0] += usize::from(!y.is_finite());
            non_finite[1] += usize::from(!r.is_finite());
            same_places &= (y.is_finite() && r.is_finite()) || (y.is_nan() && r.is_nan()) || y == r;
            if y.is_finite() && r.is_finite() {
                error += (y - r) * (y - r);
                norm += r * r;
                largest = largest.max((y - r).abs());
                finite += 1;
            }
        }
        let ratio = |e: f64, n: f64| if e == 0.0 { 0.0 } else { e / n };
        Comparison {
            rel_f: ratio(error.sqrt(), norm.sqrt()),
            max_error: ratio(largest, (norm / finite.max(1) as f64).sqrt()),
            non_finite,
            same_places,
            same_length: result.len() == reference.len(),
        }
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
        }
    }

    /// Compares results with their references, one by one; the worst of each figure.
    pub fn of_all<'a>(pairs: impl IntoIterator<Item = (&'a [f64], &'a [f64])>) -> Comparison {
        let nothing = Comparison::new(&[], &[]);
        pairs.into_iter().fold(nothing, |worst, (y, r)| worst.and(Comparison::new(y, r)))
    }

    /// True if the result is as good as the bound on `rel_f` asks.
    pub fn passes(&self, bound: f64) -> bool {
        self.same_length && self.same_places && self.rel_f <= bound && self.max_error <= MAX_ERROR_FACTOR * bound
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
