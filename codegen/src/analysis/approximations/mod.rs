//! Which functions may be computed by approximate instructions: those whose results are rounded to 16 bits before they reach
//! memory, and whose errors nothing magnifies on the way.
//!
//! # Promise
//! Use the approximate forms of the functions and quotients that [`Approximations`] marks. Then every value that the kernel
//! writes to a 16-bit tensor, and every number that it casts to 16 bits, changes by a relative error of at most 2^-12, which is
//! at most a rounding to f16. Three results have an absolute error instead. The factors and divisors of these results scale it
//! on the way to memory:
//!
//! - gelu and its slope, where they are below 2^-10: 2^-24;
//! - `1 + erf` and `1 + tanh`: 2^-23, which is the rounding of the precise form near 1;
//! - the logarithm of the sum of a softmax, with values that are added to it: 2^-15.
//!
//! The first and the third are never inverted, rooted, summed by a reduction or passed to a function, not even after a cast to
//! bf16 (the third: to f16). Matrix products take them after their cast. Three things do not count as a change:
//!
//! - a change that an error of 2^-12 in numbers which the kernel casts to 16 bits only for a matrix product would cause, once
//!   per number;
//! - a change that an error of 2^-19 in scalar arguments which are added to values that are never negative would cause;
//! - in a product that a loop carries, 2^-22 for each factor that is an exponential of a difference to a running maximum. The
//!   roundings of the precise form add up to the same.
//!
//! Values written to wider tensors do not change, except through casts to 16 bits. Numbers below 2^-126 count as 0.
//!
//! # Argument
//! A function is precise if a wider tensor depends on it without a rounding to 16 bits in between. It is also precise if a
//! comparison, a whole number, `floor` or `round` depends on it, because a quotient that is exactly 1, for example, must not
//! fall below 1 (`dependence`).
//!
//! For the other functions, each value has a number of steps of 2^-22 that bounds its error, propagated from operands to
//! results. Steps are relative to the value itself. gelu and its slope have a smaller *scale*, and logarithms of sums have the
//! scale of the number 1. An approximate form (`math::approximate`, codegen/tests/math.rs) adds steps of its own:
//!
//! - 1 for exp2, sqrt, rsqrt and a division, whose instructions the ISA bounds by 2^-22;
//! - 32 for exp and sigmoid: the argument is multiplied by log2(e), and the rounding of that product is magnified by its size;
//! - 256 for tanh, erf, sin, cos, gelu and its slope; gelu and its slope down to 2^-10, and below that 2^-24, the least number
//!   of f16. log has only one form, because near 1, where log is small, its instruction is off by 2^-22 whatever the argument.
//!
//! How operations propagate the steps of their operands:
//!
//! - a product or quotient has the sum of both;
//! - exp, exp2 and sigmoid, approximate or not, have 89 times those of the argument, since `x f'(x) / f(x)` is at most that where the
//!   result is a normal number; tanh and erf have those of the argument, for which it is at most 1; roots have half;
//! - choices, `max`, `min`, reductions by these, and changes of shape have the maximum of their operands;
//! - so has a sum whose terms cannot cancel, that is, are never negative. Nothing is assumed about the sign of loaded values. A
//!   carried value is never negative if it starts so and each iteration keeps it so (`facts`). `1 + erf` and `1 + tanh` have
//!   the step of the function, because both are computed from their distance to 1, to which the precise form is rounded as
//!   well. Steps of the argument are magnified there;
//! - so has a sum of terms that *absorb*. Each is a sum of products with a factor that the kernel casts to 16 bits only for it,
//!   so an error of the term is equivalent to an error of that cast. A second use of the cast, or of a term, would see another
//!   error, so there must be none: no use in a loop in which it is not computed, no other cast of the same number, and no loop
//!   around it in which that number stays the same;
//! - a value that is never negative and has at most 4 steps has twice as many after a scalar argument is added. Where they
//!   cancel, the argument is at least half as large, and the error counts as an error of the argument. Elsewhere, the sum is at
//!   least half as large as either;
//! - an element-wise product with `exp(a - max(a, ..))` or exp2 of it has the steps of the other factor, and 64 once for any
//!   number of such factors. Their exponents are never positive. While nothing else multiplies the product, the exponents of
//!   any term that matters add up to less than 254 binades, so their roundings add up to at most twice those of one
//!   exponential. Any other factor, a reduction, or a sum of two such products may make it large again. There the 64 become
//!   steps, and further factors count again. (A loop that adds such a product to itself doubles the number of terms, which are
//!   small only individually.);
//! - the logarithm of the sum of a softmax has an absolute error equal to the relative error of the sum: `log(s (1 + e)) =
//!   log(s) + log(1 + e)`, whatever the sum is and however many of its terms are 0;
//! - a 16-bit value has no steps, because it is rounded, but keeps its scale if its error may be larger than that rounding;
//! - a carried value has the maximum of its initial value and of the value that the body yields, by iterating upwards. A bound
//!   that still grows after one walk per carried value grows forever, and is set to the maximum at once.
//!
//! Errors of another scale than the value's are kept by choices, changes of shape, and products or quotients whose divisor has
//! the value's scale. Errors of the scale of 1 are kept by a sum, product or quotient with a value without error. The two
//! scales are never mixed.
//!
//! Everything else magnifies: other sums, comparisons, conversions to integers, logarithms, sines, matrix products. A fault is
//! a step at such an operation, or a value with more steps than [`MOST`]. Then every function that contributed a step to the
//! operands becomes precise. So does the function at fault, unless the steps of its operands alone are too many. All faults of
//! a walk are decided in one round, except those of *stale* bounds, which count a function that became precise since. A walk in
//! which no function became precise has no stale bounds and no fault, and is the last. A value only has a step from a function
//! or from an operand with a step, so a walk back along such values finds at least one function. The first fault of a round is
//! not stale, so each round leaves fewer approximate functions.
//!
//! # Breaks it
//! - `exp(a) / exp(b) - 1`, a product of a thousand exponentials: tests/agreement/magnified.rs, in the simulator with approximate instructions as far off as they may be.
//! - Any tree of functions: `random_trees_keep_the_promise` below, where each is off by as much as its steps allow.
//! - `1 - cos(x)`, `x - tanh(x)`: tests/agreement/wrong_code.rs::differences_of_nearly_equal_numbers_keep_their_digits.
//! - A sum of a sine and its series, a comparison: tests/agreement/arguments.rs::what_cancels_is_precise.
//! - `1 + tanh(5 * tanh(x))`, squares of squares: the tests below.
//! - A product over iterations, and a square of a square: tests/agreement/arguments.rs::what_iterates_magnify_is_precise.
//! - One tanh that a sum and a product read, and another that only a product reads: `functions_are_judged_apart` below.
//! - Steps of a function that became precise because of another's fault, but that are still counted:
//!   `a_fault_spares_what_it_does_not_depend_on` below.
//! - A cast that is read twice, a factor that does not decay: `what_is_rounded_for_a_product_takes_up_errors` below.
//! - An absolute error that is inverted or summed, a cast that a loop uses again, a row minus its column, a product that is
//!   scaled in between, a sum of few exponentials: tests/agreement/absolute.rs, and the tests below.
//! - `log(x)` near 1, divided by `x - 1`: tests/agreement/arguments.rs::a_logarithm_near_one_keeps_its_digits on a GPU, and
//!   codegen/tests/math.rs, which bounds every approximate form with hardware errors as large as the ISA allows.

mod errors;
mod facts;
#[cfg(test)]
mod tests;
mod views;

use super::Uses;
use super::dependence::Dependence;
use crate::gpu::Accuracy;
use crate::math::{divides_approximately, has_approximate};
use atlas_dsl::ir::Kernel;
use atlas_dsl::op::Op;
use atlas_dsl::{Inst, Param};
use cranelift_entity::SecondaryMap;
use errors::Errors;
use facts::Facts;

/// The most steps of 2^-22 of a relative error.
const MOST: u32 = 1024;

/// The steps that argument roundings add up to in a product that only has exponentials of at most 1. They grow with the sum of
/// the exponents. For any term of a sum that matters, that is at most 253 binades, so they are twice those of one exponential.
const DECAY: u32 = 64;

/// The verdict on a function that has an approximate form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Approximate: everything that depends on it is rounded to 16 bits, and nothing magnifies its error.
    Approximate,
    /// Precise: this tensor of more than 16 bits depends on it.
    Reaches(Param),
    /// Precise: this operation would magnify its error.
    Magnified(Inst),
}

/// Which functions and divisions of a kernel may be approximate.
#[derive(Clone, Debug)]
pub struct Approximations {
    verdicts: SecondaryMap<Inst, Option<Verdict>>,
}

impl Approximations {
    /// Judges every function of a kernel that has an approximate form and on which a stored value depends.
    pub fn of(kernel: &Kernel, uses: &Uses) -> Approximations {
        let (dependence, discontinuous) = (Dependence::of(kernel, uses), Dependence::of_discontinuous(kernel, uses));
        let mut verdicts: SecondaryMap<Inst, Option<Verdict>> = SecondaryMap::new();
        for (inst, op) in kernel.insts.iter().filter(|&(inst, _)| uses.is_live(inst)) {
            let Some(&result) = kernel.results[inst].first() else { continue };
            let dtype = kernel.ty(result).dtype;
            let is_judged = match op {
                Op::Unary(f, _) => has_approximate(*f, dtype),
                Op::Binary(f, ..) => divides_approximately(*f, dtype),
                _ => false,
            };
            if is_judged {
                let magnified = discontinuous.by(result).map_or(Verdict::Approximate, Verdict::Magnified);
                verdicts[inst] = Some(dependence.by(result).map_or(magnified, Verdict::Reaches));
            }
        }
        let mut approximations = Approximations { verdicts };
        let facts = Facts::of(kernel, uses);
        while Errors::round(kernel, uses, &facts, &mut approximations) {}
        approximations
    }

    /// The verdict on an operation; `None` if it has only one form.
    pub fn verdict(&self, inst: Inst) -> Option<Verdict> {
        self.verdicts[inst]
    }

    /// The form of an operation.
    pub fn accuracy(&self, inst: Inst) -> Accuracy {
        match self.verdicts[inst] {
            Some(Verdict::Approximate) => Accuracy::Approximate,
            _ => Accuracy::Precise,
        }
    }
}
