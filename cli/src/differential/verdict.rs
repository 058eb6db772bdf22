//! In what two executions of the same PTX may differ, and how a difference is judged.

use atlas_ops::Comparison;

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The same bits.
    Equal,
    /// Within the precision that the instructions guarantee.
    Within,
    /// Outside of it.
    Disagrees,
}

impl Verdict {
    /// The name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Verdict::Equal => "bit-equal",
            Verdict::Within => "within",
            Verdict::Disagrees => "disagrees",
        }
    }
}

/// Instructions whose results the ISA does not define to the bit: the order and the rounding of sums in a matrix
/// product, and approximations.
const LOOSE: [&str; 3] = ["mma.sync", "wgmma.mma_async", ".approx"];

/// The largest difference between two results of this PTX: 0 if every instruction is defined to the bit, else the bound
/// for either result against the exact one.
pub(super) fn bound(ptx: &str, of_op: f64) -> f64 {
    if LOOSE.iter().any(|word| ptx.contains(word)) { of_op } else { 0.0 }
}

/// Judges elements that are not all bit-equal.
pub(super) fn of_elements(comparison: &Comparison, bound: f64) -> Verdict {
    if bound > 0.0 && comparison.passes(bound) { Verdict::Within } else { Verdict::Disagrees }
}

/// The largest difference of two results, relative to the larger of the two and to a thousandth of the largest of all.
pub(super) fn largest_relative(found: &[f64], expected: &[f64]) -> f64 {
    let finite = || found.iter().zip(expected).filter(|(f, e)| f.is_finite() && e.is_finite());
    let largest = finite().fold(0.0_f64, |m, (f, e)| m.max(f.abs()).max(e.abs()));
    let relative = |f: f64, e: f64| (f - e).abs() / f.abs().max(e.abs()).max(1e-3 * largest);
    finite().filter(|(f, e)| f != e).fold(0.0, |m, (f, e)| m.max(relative(*f, *e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fixed_to_the_bit_has_no_bound() {
        assert_eq!(bound("fma.rn.f32 %f1, %f2, %f3, %f4;", 0.01), 0.0);
        assert_eq!(bound("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 0.01), 0.01);
        assert_eq!(bound("ex2.approx.ftz.f32 %f1, %f2;", 0.01), 0.01);
    }

    #[test]
    fn verdicts_follow_the_bound() {
        let near = Comparison::new(&[1.0, 2.0, 3.001], &[1.0, 2.0, 3.0]);
        assert_eq!(of_elements(&near, 1e-2), Verdict::Within);
        assert_eq!(of_elements(&near, 1e-6), Verdict::Disagrees);
        assert_eq!(of_elements(&Comparison::new(&[1.0], &[1.0]), 0.0), Verdict::Disagrees);
    }

    #[test]
    fn differences_are_relative_to_what_is_not_tiny() {
        assert_eq!(largest_relative(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(largest_relative(&[1.0, f64::NAN], &[2.0, 1.0]), 0.5);
        assert!(largest_relative(&[1e-9, 1000.0], &[2e-9, 1000.0]) < 1e-8);
    }
}
