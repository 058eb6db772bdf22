//! Short expansions with the hardware's approximate instructions, for results that are rounded to 16 bits.

use super::coefficients as c;
use super::{Arith, MAGIC, poly};
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, UnaryOp};
use std::f32::consts::{FRAC_1_PI, LOG2_E};

/// `op(x)` with a relative error of at most 2^-14, or `None` if `op` has no such form.
///
/// NaN gives NaN. An approximate instruction treats arguments and results below 2^-126 as zero. exp, sigmoid and silu are
/// within 2^-17, exp2, sqrt and rsqrt within 2^-22; sin and cos are bounded up to 2^20. gelu and its slope are bounded absolutely
/// below 2^-10 (2^-24). x/2 (1 + erf(x / sqrt 2)) is within 2^-12 max(|gelu|, 2^-6). log has no such form, because `lg2.approx`
/// is off by 2^-22 near 1, where log is that small.
///
/// Operations: exp 2, exp2 1, tanh 8, erf 12, sigmoid 4, silu 7, rsqrt 1, sin 14, cos 16, gelu 11, gelu_slope 15.
pub fn approximate<A: Arith>(a: &mut A, op: UnaryOp, x: A::F) -> Option<A::F> {
    Some(match op {
        UnaryOp::Exp => exp(a, x),
        UnaryOp::Exp2 => a.approx_ex2(x),
        UnaryOp::Tanh => tanh(a, x),
        UnaryOp::Erf => erf(a, x),
        UnaryOp::Rsqrt => a.approx_rsqrt(x),
        UnaryOp::Sin => sin(a, x),
        UnaryOp::Cos => cos(a, x),
        UnaryOp::Sigmoid => sigmoid(a, x),
        UnaryOp::Silu => silu(a, x),
        UnaryOp::Gelu => gelu(a, x),
        UnaryOp::GeluSlope => gelu_slope(a, x),
        UnaryOp::Sqrt => a.approx_sqrt(x),
        _ => return None,
    })
}

/// True if a function on elements of this type has an approximate form. 16-bit elements are computed in f32.
pub fn has_approximate(op: UnaryOp, dtype: DType) -> bool {
    !op.row().exact && op.row().has_approximate_form && is_single(dtype)
}

/// True for a division that has an approximate form.
pub fn divides_approximately(op: BinaryOp, dtype: DType) -> bool {
    op == BinaryOp::Div && is_single(dtype)
}

fn is_single(dtype: DType) -> bool {
    dtype.is_half() || dtype == DType::F32
}

/// 2^(x log2 e). The rounding of the product makes the error grow with |x|, to 2^-17 at the ends.
fn exp<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let k = a.f(LOG2_E);
    let z = a.mul(x, k);
    a.approx_ex2(z)
}

/// x near 0, otherwise 1 - 2 / (1 + 2^(2 x log2 e)), which is correct at both ends without a clamp.
fn tanh<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (k, one, minus_two) = (a.f(2.0 * LOG2_E), a.f(1.0), a.f(-2.0));
    let z = a.mul(x, k);
    let e = a.approx_ex2(z);
    let d = a.add(e, one);
    let q = a.approx_rcp(d);
    let y = a.fma(q, minus_two, one);
    let t = a.abs(x);
    let edge = a.f(c::TANH_SHORT_EDGE);
    let is_small = a.lt(t, edge);
    a.select(is_small, x, y)
}

/// 2 x / sqrt(pi) near 0, otherwise 1 - 2^Q(|x|) with the sign of x. Q falls without limit, so no clamp is needed.
fn erf<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let one = a.f(1.0);
    let t = a.abs(x);
    let q = poly(a, t, &c::ERF_SHORT);
    let q = a.mul(q, t);
    let e = a.approx_ex2(q);
    let y = a.sub(one, e);
    let y = a.copysign(y, x);
    let (slope, edge) = (a.f(std::f32::consts::FRAC_2_SQRT_PI), a.f(c::ERF_SHORT_EDGE));
    let small = a.mul(x, slope);
    let is_small = a.lt(t, edge);
    a.select(is_small, small, y)
}

/// 1 / (1 + 2^(-x log2 e)).
fn sigmoid<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (k, one) = (a.f(-LOG2_E), a.f(1.0));
    let z = a.mul(x, k);
    let e = a.approx_ex2(z);
    let d = a.add(e, one);
    a.approx_rcp(d)
}

/// x / (1 + 2^(-x log2 e)). Both parts of the quotient are 2^-8 of that, so that the reciprocal of the divisor is a normal number
/// wherever the result is. The maximum avoids infinity times 0.
fn silu<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (k, part, bits, limit) = (a.f(-LOG2_E), a.f(1.0 / 256.0), a.f(-8.0), a.f(-1024.0));
    let z = a.fma(x, k, bits);
    let e = a.approx_ex2(z);
    let d = a.add(e, part);
    let r = a.approx_rcp(d);
    let t = a.maximum(x, limit);
    let t = a.mul(t, part);
    a.mul(t, r)
}

/// max(x, 0) - t 2^Q(t) with t = |x|, where 2^Q is the tail probability of a normal variable beyond t. The clamp avoids
/// infinity times 0; past it, 2^Q is 0. The maximum is taken with -0, so that -0 stays -0.
fn gelu<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (limit, zero) = (a.f(c::GELU_SHORT_END), a.f(-0.0));
    let t = a.abs(x);
    let t = a.minimum(t, limit);
    let q = poly(a, t, &c::GELU_SHORT);
    let e = a.approx_ex2(q);
    let e = a.neg(e);
    let above = a.maximum(x, zero);
    a.fma(t, e, above)
}

/// (root - t) 2^Q(t) with t = |x| for a negative x, and 1 minus that otherwise. Past the clamp 2^Q is 0.
fn gelu_slope<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (limit, zero, one, root) = (a.f(c::GELU_SHORT_END), a.f(0.0), a.f(1.0), a.f(c::SLOPE_ROOT_HI));
    let t = a.abs(x);
    let t = a.minimum(t, limit);
    let q = poly(a, t, &c::SLOPE_SHORT);
    let e = a.approx_ex2(q);
    let d = a.sub(root, t);
    let below = a.mul(d, e);
    let above = a.sub(one, below);
    let negative = a.lt(x, zero);
    a.select(negative, below, above)
}

/// `sin(x - n pi)` with the sign flipped if `t` is odd.
fn sin_reduced<A: Arith>(a: &mut A, x: A::F, n: A::F, t: A::F) -> A::F {
    let (p1, p2, p3) = (a.f(-c::PI_1), a.f(-c::PI_2), a.f(-c::PI_3));
    let r = a.fma(n, p1, x);
    let r = a.fma(n, p2, r);
    // Near a root what is left of a large argument is so small that the third part counts.
    let r = a.fma(n, p3, r);
    // Past the domain n is far off; the result then still lies in [-1, 1].
    let (lo, hi) = (a.f(-c::SIN_EDGE), a.f(c::SIN_EDGE));
    let r = a.maximum(r, lo);
    let r = a.minimum(r, hi);
    let u = a.mul(r, r);
    let p = poly(a, u, &c::SIN_SHORT);
    let one = a.f(1.0);
    let p = a.fma(p, u, one);
    let t = a.bits(t);
    let flip = a.shl(t, 31);
    let r = a.bits(r);
    let r = a.ixor(r, flip);
    let r = a.from_bits(r);
    a.mul(p, r)
}

/// An odd polynomial of degree 7 in x - n pi. Its relative error is 2^-14 for |x| <= 2^20. Past that, the result is between
/// about -1 and 1 with no bound on its error. ±inf gives NaN.
fn sin<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (inv, magic) = (a.f(FRAC_1_PI), a.f(MAGIC));
    let t = a.fma(x, inv, magic);
    let n = a.sub(t, magic);
    sin_reduced(a, x, n, t)
}

/// As sin, with n = round(x / pi + 1/2) - 1/2.
fn cos<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (inv, magic, half) = (a.f(FRAC_1_PI), a.f(MAGIC), a.f(0.5));
    let t = a.fma(x, inv, half);
    let t = a.add(t, magic);
    let n = a.sub(t, magic);
    let n = a.sub(n, half);
    sin_reduced(a, x, n, t)
}
