//! Which functions may be computed by approximate instructions: those whose results reach memory rounded to 16 bits, and
//! through nothing that magnifies an error.
//!
//! # Promise
//! The approximate forms of the functions and quotients that [`Approximations`] calls so change what the kernel writes to a 16-bit
//! tensor, and every number that it casts to 16 bits, by a relative error of at most 2^-12, that of a rounding to f16 or less. Three
//! results have an absolute error instead. It comes to what is written multiplied by what they are multiplied and divided by:
//!
//! - gelu and its slope, where they are below 2^-10: 2^-24;
//! - `1 + erf` and `1 + tanh`: 2^-23, which is what roundings near 1 make of the precise form;
//! - the logarithm of the sum of a softmax, with what is added to it: 2^-15.
//!
//! The first and the third are never inverted, rooted or added up by a reduction, nor the argument of a function, not even after a cast to
//! bf16 (the third: to f16). Products of matrices take them as they were cast. Three things count as no change:
//!
//! - what an element would be had numbers that the kernel casts to 16 bits for a product of matrices alone been off by 2^-12, each number
//!   once;
//! - what it would be had scalar arguments that are added to what is never negative been off by 2^-19;
//! - in a product that a loop carries, 2^-22 for each factor that is an exponential of a difference to a running maximum,
//!   which the roundings of the precise form come to as well.
//!
//! What the kernel writes to other tensors, but for what casts to 16 bits make of it, they do not change. Numbers below 2^-126
//! count as 0.
//!
//! # Argument
//! A function that a wider tensor depends on, by a way without a rounding to 16 bits, is precise, and so is one that a comparison, a whole
//! number, `floor` or `round` depends on: a quotient that is exact, 1 say, must not fall below it (`dependence`).
//!
//! For the others every value has a number of steps of 2^-22 that bounds its error, counted from operands to results. Steps are relative
//! to the value itself; gelu and its slope have a smaller *scale*, and logarithms of sums that of the number 1. An approximate form
//! (`math::approximate`, codegen/tests/math.rs) has steps of its own:
//!
//! - 1 for exp2, sqrt, rsqrt and a division, whose instructions the ISA bounds by 2^-22;
//! - 32 for exp and sigmoid: the argument is multiplied by log2(e), and a rounding of the product is magnified by its size;
//! - 256 for tanh, erf, sin, cos, gelu and its slope; gelu and its slope down to 2^-10, and below that 2^-24, the least number of f16.
//!   log has one form, for near 1, where log is small, its instruction is off by 2^-22 whatever the argument.
//!
//! What an operation makes of its operands' steps:
//!
//! - a product or quotient has those of both;
//! - exp, exp2 and sigmoid, approximate or not, have 89 times those of the argument, since `x f'(x) / f(x)` is at most that where the
//!   result is a normal number; tanh and erf have those of the argument, for which it is at most 1; roots have half;
//! - choices, the greater and the lesser, reductions by these, and changes of shape have the most of their operands;
//! - so has a sum whose terms cannot cancel, that is, have no sign. Nothing is assumed of the sign of what is loaded; what a
//!   loop carries has none if it starts with none and no iteration gives it one (`facts`). `1 + erf` and `1 + tanh` have the step of the
//!   function, since both are computed from their distance to 1, to which the precise form is rounded as well; steps of the argument are
//!   magnified there;
//! - so has a sum of terms that *absorb*. Each is a sum of products with a factor that the kernel casts to 16 bits for it alone, so
//!   an error of the term is one of that cast. A second use of the cast, or of a term, would see another error, so there must be none:
//!   no use in a loop in which it is not computed, no other cast of the same number, and no loop around it in which that number stays
//!   the same;
//! - what is never negative and has at most 4 steps has twice as many after a scalar argument is added. Where they cancel, the argument is
//!   at least half as large, and the error is one of the argument; elsewhere the sum is half as large as either;
//! - a product with `exp(a - max(a, ..))` or exp2 of it, each element with that at its own place, has the steps of the other factor, and 64
//!   once for any number of such factors. Their exponents are never positive. While nothing else multiplies the product, those of any term
//!   that counts add up to less than 254 binades, and so their roundings to twice what one exponential has. What else multiplies it, a
//!   reduction, and a sum of two such products, each may make it large again: there the 64 are steps, and count anew from then on. (A loop
//!   that adds such a product to itself doubles its terms, which are small only one by one.);
//! - the logarithm of the sum of a softmax has an absolute error of the relative one of the sum: `log(s (1 + e)) = log(s) + log(1 + e)`,
//!   whatever the sum is and however many of its terms are 0;
//! - a value of 16 bits has none, for it is rounded, but keeps its scale if its error may be more than that rounding;
//! - what a loop carries has the most of what it starts as and of what the body leaves, by iterating up. What still grows after a
//!   walk for each carried value grows for ever, and has the most there is at once.
//!
//! Of another scale than the value's, errors are kept by choices, changes of shape, and a product or quotient with a divisor of the value's
//! scale; those of the number 1 by a sum, product or quotient with what is right. Both scales never meet.
//!
//! Anything else magnifies: other sums, comparisons, conversions to integers, logarithms, sines, products of matrices. If it meets a
//! step, or if a value comes to more than [`MOST`], that is a fault. Every function that its operands have a step of becomes precise,
//! and the function at fault too, unless its operands' steps alone are too many. All faults of a walk are decided in one round, but for
//! those of *stale* numbers, which count a function that became precise since. A walk in which no function became precise has no stale
//! numbers, meets no fault, and is the last. A value has a step only of a function or of an operand that has one, so a walk back
//! along such values meets one of them at least; the first fault of a round is not stale, so each round leaves fewer approximate functions.
//!
//! # Breaks it
//! - `exp(a) / exp(b) - 1`, a product of a thousand exponentials: tests/agreement/magnified.rs, in the simulator with approximate instructions as far off as they may be.
//! - Any tree of functions: `random_trees_keep_the_promise` below, with each as far off as its steps say.
//! - `1 - cos(x)`, `x - tanh(x)`: tests/agreement/wrong_code.rs::differences_of_nearly_equal_numbers_keep_their_digits.
//! - A sum of a sine and its series, a comparison: tests/agreement/arguments.rs::what_cancels_is_precise.
//! - `1 + tanh(5 * tanh(x))`, squares of squares: the tests below.
//! - A product over iterations, and a square of a square: tests/agreement/arguments.rs::what_iterates_magnify_is_precise.
//! - One tanh that a sum and a product read, another that a product alone reads: `functions_are_judged_apart` below.
//! - Steps of what one function's fault made precise, counted still: `a_fault_spares_what_it_does_not_depend_on` below.
//! - A cast that is read twice, a factor that does not fall off: `what_is_rounded_for_a_product_takes_up_errors` below.
//! - An absolute error that is inverted or added up, a cast that a loop uses again, a row less its column, a product that is scaled in
//!   between, a sum of few exponentials: tests/agreement/absolute.rs, and the tests below.
//! - `log(x)` near 1, divided by `x - 1`: tests/agreement/arguments.rs::a_logarithm_near_one_keeps_its_digits on a GPU, and
//!   codegen/tests/math.rs, which bounds every approximate form with the hardware as far off as the ISA lets it.

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

/// Steps of 2^-22 that a relative error may come to.
const MOST: u32 = 1024;

/// Steps that the roundings of arguments come to in a product of exponentials of which none is above 1, and of nothing else. They grow with
/// the sum of the exponents, which for any term of a sum that counts is at most 253 binades: twice what they are in one exponential.
const DECAY: u32 = 64;

/// What is to be said of a function that has an approximate form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// All that depends on it is rounded to 16 bits, and nothing magnifies its error.
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
    /// Judges every function of a kernel that has an approximate form and that something written depends on.
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

    /// What is to be said of an operation; `None` if it has one form.
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
