//! Parts of several expansions: arguments in a short interval, and powers of two.

use super::coefficients as c;
use super::{Arith, MAGIC, poly};

/// `(r, t)`: exp(x) = exp(r) * 2^n with r in [-0.347, 0.347] and n in the low bits of `t`. For |x| < 2^20.
///
/// n = round(x log2 e); r = x - n ln 2 by a two-part ln 2 and FMA.
pub(super) fn exp_reduced<A: Arith>(a: &mut A, x: A::F) -> (A::F, A::I) {
    let (log2e, magic) = (a.f(std::f32::consts::LOG2_E), a.f(MAGIC));
    let t = a.fma(x, log2e, magic);
    let n = a.sub(t, magic);
    let (hi, lo) = (a.f(-c::LN2_HI), a.f(-c::LN2_LO));
    let r = a.fma(n, hi, x);
    let r = a.fma(n, lo, r);
    let t = a.bits(t);
    (r, t)
}

/// `base * 2^n` with n in the low bits of `t`. The sum of n and the exponent of `base` is in [-126, 127].
pub(super) fn power_of_two<A: Arith>(a: &mut A, t: A::I, base: f32) -> A::F {
    let n = a.shl(t, 23);
    let base = a.i(base.to_bits() as i32);
    let s = a.iadd(n, base);
    a.from_bits(s)
}

/// Two numbers whose sum is n: a half of it and the rest.
pub(super) fn halves<A: Arith>(a: &mut A, t: A::I) -> [A::I; 2] {
    let half = a.ashr(t, 1);
    [half, a.isub(t, half)]
}

/// Two factors whose product is 2^n, for n in [-252, 254]. A product with the first one is exact, so only the second may round.
pub(super) fn scales<A: Arith>(a: &mut A, t: A::I) -> [A::F; 2] {
    halves(a, t).map(|n| power_of_two(a, n, 1.0))
}

/// `(m - 1, e)` for x = 2^e m with m in [2/3, 4/3).
pub(super) fn log_reduced<A: Arith>(a: &mut A, x: A::F) -> (A::F, A::F) {
    let one = a.f(1.0);
    // Denormals are scaled by 2^24, and 24 is taken off the exponent through the bias.
    let least = a.f(f32::MIN_POSITIVE);
    let tiny = a.lt(x, least);
    let up = a.f(16_777_216.0);
    let scaled = a.mul(x, up);
    let m = a.select(tiny, scaled, x);
    let (bias, bias_tiny) = (a.f(-MAGIC), a.f(-MAGIC - 24.0));
    let bias = a.select(tiny, bias_tiny, bias);

    let m = a.bits(m);
    let two_thirds = a.i((2.0f32 / 3.0).to_bits() as i32);
    let e = a.isub(m, two_thirds);
    let e = a.ashr(e, 23);
    let whole = a.shl(e, 23);
    let m = a.isub(m, whole);
    let m = a.from_bits(m);
    let magic = a.i(MAGIC.to_bits() as i32);
    let e = a.iadd(e, magic);
    let e = a.from_bits(e);
    let e = a.add(e, bias);
    (a.sub(m, one), e)
}

/// log(1 + f) for f in [-1/3, 1/3], by a polynomial of degree 10.
pub(super) fn log1p_reduced<A: Arith>(a: &mut A, f: A::F) -> A::F {
    let p = poly(a, f, &c::LOG);
    let minus_half = a.f(-0.5);
    let p = a.fma(p, f, minus_half);
    let f2 = a.mul(f, f);
    a.fma(p, f2, f)
}
