//! Elementary functions of f32 as straight-line code, written once over [`Arith`].
//!
//! The emitter implements [`Arith`] with one instruction per method. [`Host`] implements it with f32 arithmetic of exactly the
//! same meaning, so the tests on the CPU measure what the GPU runs. Expansions do not branch: pieces are joined by selects, so
//! that code vectorises. No method may have fast-math flags, because the reductions rely on the exact value of `(x + c) - c`.
//!
//! There are two families. [`precise`] stays within 2 ulp of the true value over all of f32 (sin and cos: up to
//! [`SIN_COS_DOMAIN`]) and needs IEEE denormals. [`approximate`] uses the hardware's approximate instructions, and is for
//! results that are rounded to 16 bits. Its relative error is below 2^-14, and for exponentials, roots and the logistic
//! function below 2^-17. Measured errors are in the documentation of both; tests/math.rs asserts the bounds and the lengths.
//!
//! Coefficients come from `fit.py` in this directory.
#![warn(clippy::too_many_lines)]

mod approximate;
mod arctangent;
#[allow(clippy::approx_constant, reason = "a fitted coefficient may lie near a constant that it is not")]
mod coefficients;
mod count;
mod host;
mod logistic;
mod power;
mod precise;
mod reduced;

pub use approximate::{approximate, divides_approximately, has_approximate};
pub use count::InstructionCount;
pub use host::Host;
pub use precise::{SIN_COS_DOMAIN, precise, precise_of_two};

/// Arithmetic on f32 (`F`), 32-bit integers (`I`) and truth values (`B`).
///
/// Except for the `approx_` methods every operation is IEEE: rounded to nearest even, denormals kept,
/// NaN in the operands gives NaN.
pub trait Arith {
    /// A value of f32.
    type F: Copy;
    /// A value of 32 bits.
    type I: Copy;
    /// A truth value.
    type B: Copy;

    /// The constant `x`.
    fn f(&mut self, x: f32) -> Self::F;
    /// The constant `x`.
    fn i(&mut self, x: i32) -> Self::I;

    /// `x + y`.
    fn add(&mut self, x: Self::F, y: Self::F) -> Self::F;
    /// `x - y`.
    fn sub(&mut self, x: Self::F, y: Self::F) -> Self::F;
    /// `x * y`.
    fn mul(&mut self, x: Self::F, y: Self::F) -> Self::F;
    /// `x * y + z`, rounded once.
    fn fma(&mut self, x: Self::F, y: Self::F, z: Self::F) -> Self::F;
    /// `x / y`, correctly rounded.
    fn div(&mut self, x: Self::F, y: Self::F) -> Self::F;
    /// Square root, correctly rounded.
    fn sqrt(&mut self, x: Self::F) -> Self::F;
    /// `-x` (the sign bit flipped).
    fn neg(&mut self, x: Self::F) -> Self::F;
    /// `|x|` (the sign bit cleared).
    fn abs(&mut self, x: Self::F) -> Self::F;
    /// The magnitude of `x` with the sign bit of `sign`.
    fn copysign(&mut self, x: Self::F, sign: Self::F) -> Self::F;
    /// The smaller; NaN if either is NaN (`llvm.minimum`, PTX `min.NaN`).
    fn minimum(&mut self, x: Self::F, y: Self::F) -> Self::F;
    /// The larger; NaN if either is NaN (`llvm.maximum`, PTX `max.NaN`).
    fn maximum(&mut self, x: Self::F, y: Self::F) -> Self::F;

    /// `x < y`; false if either is NaN.
    fn lt(&mut self, x: Self::F, y: Self::F) -> Self::B;
    /// `x == y`; false if either is NaN.
    fn eq(&mut self, x: Self::F, y: Self::F) -> Self::B;
    /// `c ? x : y`.
    fn select(&mut self, c: Self::B, x: Self::F, y: Self::F) -> Self::F;

    /// The bits of `x`.
    fn bits(&mut self, x: Self::F) -> Self::I;
    /// The number whose bits are `x`.
    #[allow(clippy::wrong_self_convention, reason = "the arithmetic is the receiver of every operation")]
    fn from_bits(&mut self, x: Self::I) -> Self::F;
    /// `x + y`, wrapping.
    fn iadd(&mut self, x: Self::I, y: Self::I) -> Self::I;
    /// `x - y`, wrapping.
    fn isub(&mut self, x: Self::I, y: Self::I) -> Self::I;
    /// Bitwise exclusive or.
    fn ixor(&mut self, x: Self::I, y: Self::I) -> Self::I;
    /// `x << by`.
    fn shl(&mut self, x: Self::I, by: u32) -> Self::I;
    /// `x >> by`, filling with the sign.
    fn ashr(&mut self, x: Self::I, by: u32) -> Self::I;

    /// About 2^x: PTX `ex2.approx.ftz.f32`, relative error at most 2^-22.
    fn approx_ex2(&mut self, x: Self::F) -> Self::F;
    /// About 1 / x: PTX `rcp.approx.ftz.f32`, at most 1 ulp.
    fn approx_rcp(&mut self, x: Self::F) -> Self::F;
    /// About 1 / sqrt x: PTX `rsqrt.approx.ftz.f32`, relative error at most 2^-22.
    fn approx_rsqrt(&mut self, x: Self::F) -> Self::F;
    /// About sqrt x: PTX `sqrt.approx.ftz.f32`, relative error at most 2^-22.
    fn approx_sqrt(&mut self, x: Self::F) -> Self::F;
}

/// 1.5 * 2^23. For |x| < 2^22, `x + MAGIC` has round(x) in its low bits, and subtracting `MAGIC` again gives it as a float.
/// These are two full-rate instructions, while `rint` and a conversion are quarter-rate.
const MAGIC: f32 = 12_582_912.0;

/// `sum coefficients[k] * x^k` by Horner's rule.
fn poly<A: Arith>(a: &mut A, x: A::F, coefficients: &[f32]) -> A::F {
    let mut rest = coefficients.iter().rev();
    let mut acc = match rest.next() {
        Some(&c) => a.f(c),
        None => a.f(0.0),
    };
    for &c in rest {
        let c = a.f(c);
        acc = a.fma(acc, x, c);
    }
    acc
}
