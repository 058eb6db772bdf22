//! Expansions within 2 ulp.

use super::arctangent::{atan, atan2};
use super::coefficients as c;
use super::logistic::{cosh, silu, sinh, softplus};
use super::power::pow;
use super::reduced::{exp_reduced, halves, log_reduced, log1p_reduced, power_of_two};
use super::{Arith, MAGIC, poly};
use atlas_dsl::op::{BinaryOp, UnaryOp};

/// Up to this magnitude sin and cos keep their bound.
pub const SIN_COS_DOMAIN: f32 = 1_048_576.0;

/// `op(x)` within 2 ulp, or `None` if `op` is one instruction and needs no expansion.
///
/// NaN gives NaN. Results that overflow are infinite, and denormal arguments and results are handled correctly.
///
/// | op | largest error over all f32, ulp | operations |
/// |---|---|---|
/// | exp | 0.895 | 20 |
/// | exp2 | 0.949 | 19 |
/// | log | 0.941 | 28 |
/// | tanh | 1.324 | 28, one a division |
/// | erf | 1.250 | 30 |
/// | sigmoid | 1.480 | 32, one a division |
/// | rsqrt | 1.491 | a square root and a division |
/// | sin | 1.660 up to [`SIN_COS_DOMAIN`] | 22 |
/// | cos | 1.826 up to [`SIN_COS_DOMAIN`] | 24 |
/// | gelu | 1.934 with the reciprocal as far off as it may be, 1.790 with none | 56, one an approximate reciprocal |
/// | tan | 1.213 up to [`SIN_COS_DOMAIN`] | 42, one a division |
/// | atan | 1.382 | 20, one a division |
/// | sinh | 1.053 | 42, one a division |
/// | cosh | 0.875 | 33, one a division |
/// | log2 | 1.032 | 32 |
/// | log1p | 1.548 | 28 |
/// | expm1 | 1.455 | 20 |
/// | erfc | 1.728, however far off the reciprocal is | 76, one an approximate reciprocal |
/// | softplus | 1.932 | 50 |
/// | silu | 0.878 | 55, one a division |
/// | gelu_slope | 1.67 over samples with the reciprocal as far off as it may be | 63, one an approximate reciprocal |
pub fn precise<A: Arith>(a: &mut A, op: UnaryOp, x: A::F) -> Option<A::F> {
    Some(match op {
        UnaryOp::Exp => exp(a, x),
        UnaryOp::Exp2 => exp2(a, x),
        UnaryOp::Log => log(a, x),
        UnaryOp::Log2 => log2(a, x),
        UnaryOp::Log1p => log1p(a, x),
        UnaryOp::Expm1 => expm1(a, x),
        UnaryOp::Erfc => erfc(a, x),
        UnaryOp::Tan => tan(a, x),
        UnaryOp::Atan => atan(a, x),
        UnaryOp::Sinh => sinh(a, x),
        UnaryOp::Cosh => cosh(a, x),
        UnaryOp::Softplus => softplus(a, x),
        UnaryOp::Silu => silu(a, x),
        UnaryOp::Tanh => tanh(a, x),
        UnaryOp::Erf => erf(a, x),
        UnaryOp::Rsqrt => rsqrt(a, x),
        UnaryOp::Sin => sin(a, x),
        UnaryOp::Cos => cos(a, x),
        UnaryOp::Sigmoid => sigmoid(a, x),
        UnaryOp::Gelu => gelu(a, x),
        UnaryOp::GeluSlope => gelu_slope(a, x),
        UnaryOp::Sqrt => a.sqrt(x),
        _ => return None,
    })
}

/// `op(x, y)` for a function of two operands, or `None` if `op` needs no expansion.
///
/// | function | error in ulp | instructions |
/// |---|---|---|
/// | pow | 1.079 over 690 million pairs, however far off the reciprocal is | 112, one an approximate reciprocal |
/// | atan2 | 1.482 over 300 million pairs | 39, nine of them a division |
pub fn precise_of_two<A: Arith>(a: &mut A, op: BinaryOp, x: A::F, y: A::F) -> Option<A::F> {
    Some(match op {
        BinaryOp::Pow => pow(a, x, y),
        BinaryOp::Atan2 => atan2(a, x, y),
        _ => return None,
    })
}

/// `(p, t)`: exp(x) = p * 2^n with p in [0.7, 1.42] and n in the low bits of `t`. For |x| < 2^20.
///
/// Reduces the argument, then applies a polynomial of degree 6.
fn exp_parts<A: Arith>(a: &mut A, x: A::F) -> (A::F, A::I) {
    let (r, t) = exp_reduced(a, x);
    let q = poly(a, r, &c::EXP);
    let one = a.f(1.0);
    let q = a.fma(q, r, one);
    let p = a.fma(q, r, one);
    (p, t)
}

/// The same for 2^x, with the polynomial `q` of (2^r - 1) / r.
fn exp2_parts<A: Arith>(a: &mut A, x: A::F, q: &[f32]) -> (A::F, A::I) {
    let (one, magic) = (a.f(1.0), a.f(MAGIC));
    let t = a.add(x, magic);
    let n = a.sub(t, magic);
    let r = a.sub(x, n);
    let q = poly(a, r, q);
    let p = a.fma(q, r, one);
    let t = a.bits(t);
    (p, t)
}

/// `p * 2^n` for n in [-252, 254], in two factors. The second one is made after the first one is used, which takes a register less.
fn scale<A: Arith>(a: &mut A, p: A::F, t: A::I) -> A::F {
    let [half, rest] = halves(a, t);
    let s = power_of_two(a, half, 1.0);
    let p = a.mul(p, s);
    let s = power_of_two(a, rest, 1.0);
    a.mul(p, s)
}

/// Beyond [-104, 89] the result is 0 or infinity already.
fn exp<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (lo, hi) = (a.f(-104.0), a.f(89.0));
    let x = a.maximum(x, lo);
    let x = a.minimum(x, hi);
    let (p, t) = exp_parts(a, x);
    scale(a, p, t)
}

/// Beyond [-151, 129] the result is 0 or infinity already.
fn exp2<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (lo, hi) = (a.f(-151.0), a.f(129.0));
    let x = a.maximum(x, lo);
    let x = a.minimum(x, hi);
    let (p, t) = exp2_parts(a, x, &c::EXP2);
    scale(a, p, t)
}

/// `(e^x - 1) = 2^n p + (2^n - 1)` with p = e^r - 1, by halves so that 2^128 is in range. What is too small for these is its own
/// result.
fn expm1<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (lo, hi) = (a.f(-20.0), a.f(89.0));
    let z = a.maximum(x, lo);
    let z = a.minimum(z, hi);
    let (r, t) = exp_reduced(a, z);
    let p = poly(a, r, &c::EXP);
    let r2 = a.mul(r, r);
    let p = a.fma(p, r2, r);
    let (half, least) = (a.f(0.5), a.f(1e-30));
    let s = power_of_two(a, t, 0.5);
    let rest = a.sub(s, half);
    let y = a.fma(p, s, rest);
    let y = a.add(y, y);
    let size = a.abs(x);
    let is_tiny = a.lt(size, least);
    a.select(is_tiny, x, y)
}

/// `y`, the logarithm of `x`, with infinities and NaN where those are the result.
fn log_with_ends<A: Arith>(a: &mut A, x: A::F, y: A::F) -> A::F {
    let (zero, inf) = (a.f(0.0), a.f(f32::INFINITY));
    let (nan, minus_inf) = (a.f(f32::NAN), a.f(f32::NEG_INFINITY));
    let is_inf = a.eq(x, inf);
    let y = a.select(is_inf, inf, y);
    let is_zero = a.eq(x, zero);
    let other = a.select(is_zero, minus_inf, nan);
    let positive = a.lt(zero, x);
    a.select(positive, y, other)
}

/// log1p(m - 1) + e ln 2. log(±0) = -inf, log of a negative number is NaN.
pub(super) fn log<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (f, e) = log_reduced(a, x);
    let p = log1p_reduced(a, f);
    let ln2 = a.f(std::f32::consts::LN_2);
    let y = a.fma(e, ln2, p);
    log_with_ends(a, x, y)
}

/// e + f log2(e) + f^2 Q(f) with Q of degree 8. The first sum is rounded, and what it loses joins the last term. Powers of two
/// have exact logarithms.
fn log2<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (f, e) = log_reduced(a, x);
    let (hi, lo) = (a.f(c::LOG2_E_HI), a.f(c::LOG2_E_LO));
    let s = a.fma(f, hi, e);
    let taken = a.sub(e, s);
    let lost = a.fma(f, hi, taken);
    let lost = a.fma(f, lo, lost);
    let q = poly(a, f, &c::LOG2);
    let f2 = a.mul(f, f);
    let rest = a.fma(q, f2, lost);
    let y = a.add(s, rest);
    log_with_ends(a, x, y)
}

/// 1 + x = 2^e (1 + f), where e comes from the rounded sum, and f = 2^-e x + (2^-e - 1) does not lose what that rounding does.
fn log1p<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let one = a.f(1.0);
    let w = a.add(x, one);
    let m = a.bits(w);
    let two_thirds = a.i((2.0f32 / 3.0).to_bits() as i32);
    let e = a.isub(m, two_thirds);
    let e = a.ashr(e, 23);
    let whole = a.shl(e, 23);
    let m = a.bits(x);
    let m = a.isub(m, whole);
    let m = a.from_bits(m);
    // 4 times 2^-e, which is a normal number for every e.
    let four = a.i(4f32.to_bits() as i32);
    let s = a.isub(four, whole);
    let s = a.from_bits(s);
    let (quarter, minus_one) = (a.f(0.25), a.f(-1.0));
    let rest = a.fma(s, quarter, minus_one);
    let f = a.add(m, rest);
    let p = log1p_reduced(a, f);
    let magic = a.i(MAGIC.to_bits() as i32);
    let e = a.iadd(e, magic);
    let e = a.from_bits(e);
    let magic = a.f(MAGIC);
    let e = a.sub(e, magic);
    let ln2 = a.f(std::f32::consts::LN_2);
    let y = a.fma(e, ln2, p);
    let y = log_with_ends(a, w, y);
    a.copysign(y, x)
}

/// Below 0.65 x + x^3 P(x^2), else 1 - 2 / (exp(2 |x|) + 1).
fn tanh<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (one, two, minus_two) = (a.f(1.0), a.f(2.0), a.f(-2.0));
    let t = a.abs(x);
    let u = a.mul(x, x);
    let p = poly(a, u, &c::TANH);
    let w = a.mul(u, t);
    let small = a.fma(p, w, t);

    let limit = a.f(20.0);
    let z = a.mul(t, two);
    let z = a.minimum(z, limit);
    let (p, n) = exp_parts(a, z);
    let s = power_of_two(a, n, 1.0);
    let d = a.fma(p, s, one);
    let q = a.div(minus_two, d);
    let large = a.add(q, one);

    let edge = a.f(c::TANH_EDGE);
    let is_small = a.lt(t, edge);
    let y = a.select(is_small, small, large);
    a.copysign(y, x)
}

/// Below 0.92 x + x P(x^2), else 1 - 2^Q(|x|) with Q of degree 6 for log2(erfc); 1 from 4 on.
fn erf<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let one = a.f(1.0);
    let t = a.abs(x);
    let u = a.mul(x, x);
    let p = poly(a, u, &c::ERF_SMALL);
    let small = a.fma(p, t, t);

    let limit = a.f(4.0);
    let z = a.minimum(t, limit);
    let q = poly(a, z, &c::ERF_LARGE);
    let (p, n) = exp2_parts(a, q, &c::EXP2);
    let s = power_of_two(a, n, -1.0);
    let large = a.fma(p, s, one);

    let edge = a.f(c::ERF_EDGE);
    let is_small = a.lt(t, edge);
    let y = a.select(is_small, small, large);
    a.copysign(y, x)
}

/// y = 1 / (1 + e) or e / (1 + e) by the sign of x, with e = exp(-|x|), so nothing overflows. A correction adds what the
/// roundings of d = 1 + e and of the quotient lost, with 1 - e / 2 in place of 1 / d.
fn sigmoid<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (zero, one) = (a.f(0.0), a.f(1.0));
    let t = a.abs(x);
    let t = a.neg(t);
    let lo = a.f(-104.0);
    let t = a.maximum(t, lo);
    let (p, n) = exp_parts(a, t);
    let e = scale(a, p, n);
    let d = a.add(e, one);
    let negative = a.lt(x, zero);
    let num = a.select(negative, e, one);
    let y = a.div(num, d);
    let lost = a.sub(d, one);
    let lost = a.sub(lost, e);
    let minus_y = a.neg(y);
    let rest = a.fma(minus_y, d, num);
    let rest = a.fma(y, lost, rest);
    let minus_half = a.f(-0.5);
    let k = a.fma(e, minus_half, one);
    a.fma(rest, k, y)
}

/// `(q, lost)` for q = t / (t + 3). `lost` is the rounding error of `q`, so that the error of the approximate reciprocal does
/// not count.
fn ratio<A: Arith>(a: &mut A, t: A::F) -> (A::F, A::F) {
    let shift = a.f(c::GELU_SHIFT);
    let d = a.add(t, shift);
    let inverse = a.approx_rcp(d);
    let q = a.mul(t, inverse);
    let minus_q = a.neg(q);
    let lost = a.fma(minus_q, d, t);
    (q, a.mul(lost, inverse))
}

/// `q - centre`
fn beside<A: Arith>(a: &mut A, (q, q_lost): (A::F, A::F), centre: f32) -> A::F {
    let centre = a.f(centre);
    let w = a.sub(q, centre);
    a.add(w, q_lost)
}

/// `first G(q - centre) exp(rate t^2)` for a polynomial G. `first`, q, G, their product and t^2 each have two parts. The second
/// part is the rounding error of the first.
fn beneath_bell<A: Arith>(
    a: &mut A,
    t: A::F,
    (w, w_lost): (A::F, Option<A::F>),
    (first, first_lost): (A::F, A::F),
    (rate, table): (f32, &[f32]),
) -> A::F {
    let rate = a.f(rate);
    let (constant, rest) = (a.f(table[0]), poly(a, w, &table[1..]));
    let g = a.fma(rest, w, constant);
    let g_lost = a.sub(constant, g);
    let g_lost = a.fma(rest, w, g_lost);
    let g_lost = match w_lost {
        Some(lost) => a.fma(rest, lost, g_lost),
        None => g_lost,
    };
    let s = a.mul(first, g);
    let minus_s = a.neg(s);
    let s_lost = a.fma(first, g, minus_s);
    let s_lost = a.fma(first_lost, g, s_lost);
    let s_lost = a.fma(first, g_lost, s_lost);

    let u = a.mul(t, t);
    let minus_u = a.neg(u);
    let u_lost = a.fma(t, t, minus_u);
    let z = a.mul(u, rate);
    let (r, n) = exp_reduced(a, z);
    let rough = r;
    let r = a.fma(u_lost, rate, rough);
    let s_lost = match w_lost {
        Some(_) => {
            let r_lost = a.sub(rough, r);
            let r_lost = a.fma(u_lost, rate, r_lost);
            a.fma(s, r_lost, s_lost)
        }
        None => s_lost,
    };
    // (s + lost) (1 + r + r^2 P(r)), the smallest terms first.
    let s_lost = a.fma(s_lost, r, s_lost);
    let p = poly(a, r, &c::EXP);
    let r2 = a.mul(r, r);
    let p = a.mul(p, r2);
    let y = a.fma(s, p, s_lost);
    let y = a.fma(s, r, y);
    let y = a.add(s, y);
    scale(a, y, n)
}

/// max(x, 0) - T with T = t Phi(-t) = q G(q) exp(-t^2 / 2), where t = |x|, q = t / (t + 3) and G is a polynomial of degree 10
/// for the scaled erfc. Past the clamp T is 0. The maximum is taken with -0, so that -0 stays -0.
fn gelu<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (limit, zero) = (a.f(c::GELU_END), a.f(-0.0));
    let t = a.abs(x);
    let t = a.minimum(t, limit);
    let q = ratio(a, t);
    let w = beside(a, q, c::GELU_CENTRE);
    let y = beneath_bell(a, t, (w, None), q, (-0.5, &c::GELU));
    let above = a.maximum(x, zero);
    a.sub(above, y)
}

/// T for a negative x and 1 - T for others, with T = Phi(-t) - t phi(t) = (root - t) G(q) exp(-t^2 / 2), where t = |x|, q = t /
/// (t + 3) and G is a polynomial of degree 9. The root has two parts, so that T is accurate near it.
fn gelu_slope<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (limit, zero, one) = (a.f(c::SLOPE_END), a.f(0.0), a.f(1.0));
    let (hi, lo) = (a.f(c::SLOPE_ROOT_HI), a.f(c::SLOPE_ROOT_LO));
    let t = a.abs(x);
    let t = a.minimum(t, limit);
    let q = ratio(a, t);
    // root - t in two parts: what the first difference loses goes to the second.
    let far = a.sub(hi, t);
    let back = a.sub(hi, far);
    let lost = a.sub(back, t);
    let rest = a.add(lo, lost);
    let d = a.add(far, rest);
    let taken = a.sub(d, far);
    let d_lost = a.sub(rest, taken);
    let w = beside(a, q, c::SLOPE_CENTRE);
    let y = beneath_bell(a, t, (w, None), (d, d_lost), (-0.5, &c::SLOPE));
    let above = a.sub(one, y);
    let negative = a.lt(x, zero);
    a.select(negative, y, above)
}

/// T for others and 2 - T for a negative x, with T = erfc(t) = (1 - q) G(q) exp(-t^2), where t = |x|, q = t / (t + 2.375) and G is
/// a polynomial of degree 10. Past the clamp T is 0.
fn erfc<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (limit, zero, one, two) = (a.f(c::ERFC_END), a.f(0.0), a.f(1.0), a.f(2.0));
    let t = a.abs(x);
    let t = a.minimum(t, limit);
    // The sum below has two parts too: far from 0 the result follows q closely.
    let shift = a.f(c::ERFC_SHIFT);
    let d = a.add(t, shift);
    let taken = a.sub(d, t);
    let back = a.sub(d, taken);
    let (of_t, of_shift) = (a.sub(t, back), a.sub(shift, taken));
    let d_lost = a.add(of_t, of_shift);
    let rough = a.approx_rcp(d);
    let minus_d = a.neg(d);
    let off = a.fma(minus_d, rough, one);
    let inverse = a.fma(rough, off, rough);
    let q = a.mul(t, inverse);
    let minus_q = a.neg(q);
    let lost = a.fma(minus_q, d, t);
    let lost = a.fma(minus_q, d_lost, lost);
    let q_lost = a.mul(lost, inverse);
    let rest = a.sub(one, q);
    let lost = a.sub(one, rest);
    let lost = a.sub(lost, q);
    let lost = a.sub(lost, q_lost);
    let centre = a.f(c::ERFC_CENTRE);
    let first = a.sub(q, centre);
    let w = a.add(first, q_lost);
    let w_lost = a.sub(first, w);
    let w_lost = a.add(w_lost, q_lost);
    let y = beneath_bell(a, t, (w, Some(w_lost)), (rest, lost), (-1.0, &c::ERFC));
    let below = a.sub(two, y);
    let negative = a.lt(x, zero);
    a.select(negative, below, y)
}

/// Two correctly rounded steps. rsqrt(±0) = ±inf.
fn rsqrt<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let one = a.f(1.0);
    let s = a.sqrt(x);
    a.div(one, s)
}

/// `sin(x - n pi)` with the sign flipped if `t` is odd; |x - n pi| up to about pi / 2.
fn sin_reduced<A: Arith>(a: &mut A, x: A::F, n: A::F, t: A::F) -> A::F {
    // The first step is exact: both sides are multiples of 2^-23 and the result is below 2.
    let (p1, p2, p3) = (a.f(-c::PI_1), a.f(-c::PI_2), a.f(c::PI_3));
    let r = a.fma(n, p1, x);
    let r = a.fma(n, p2, r);
    // Past the domain n and the tail below are far off; clamps keep the result in [-1, 1].
    let (lo, hi) = (a.f(-c::SIN_EDGE), a.f(c::SIN_EDGE));
    let r = a.maximum(r, lo);
    let r = a.minimum(r, hi);
    let u = a.mul(r, r);
    let p = poly(a, u, &c::SIN);
    // w = r^3, with what rounding u lost.
    let minus_u = a.neg(u);
    let lost = a.fma(r, r, minus_u);
    let lost = a.mul(lost, r);
    let w = a.fma(u, r, lost);
    // The third part joins the small term, so that r is rounded once. Signs are such that -0 stays.
    let tail = a.mul(n, p3);
    let q = a.fma(p, w, tail);
    let y = a.sub(r, q);
    let (lo, hi) = (a.f(-1.0), a.f(1.0));
    let y = a.maximum(y, lo);
    let y = a.minimum(y, hi);
    let t = a.bits(t);
    let flip = a.shl(t, 31);
    let y = a.bits(y);
    let y = a.ixor(y, flip);
    a.from_bits(y)
}

/// n = round(x / pi), x - n pi by a three-part pi and FMA, an odd polynomial of degree 11 on [-pi/2, pi/2]. Past
/// [`SIN_COS_DOMAIN`] the result is a number in [-1, 1] with no bound on its error. ±inf gives NaN.
fn sin<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (inv, magic) = (a.f(std::f32::consts::FRAC_1_PI), a.f(MAGIC));
    let t = a.fma(x, inv, magic);
    let n = a.sub(t, magic);
    sin_reduced(a, x, n, t)
}

/// n = round(2 x / pi), r = x - n pi / 2 in two parts, and an odd polynomial of degree 15 for tan(r) = T in two parts; -1 / T
/// where n is odd. Past [`SIN_COS_DOMAIN`] the result is arbitrary. ±inf gives NaN.
fn tan<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (inv, magic, one) = (a.f(std::f32::consts::FRAC_2_PI), a.f(MAGIC), a.f(1.0));
    let t = a.fma(x, inv, magic);
    let n = a.sub(t, magic);
    // As for sin, the first step is exact. Halves of the parts of pi are exact too.
    let (p1, p2, p3) = (a.f(-0.5 * c::PI_1), a.f(-0.5 * c::PI_2), a.f(-0.5 * c::PI_3));
    let first = a.fma(n, p1, x);
    // The second one is a product and a sum of two parts each: near a root they cancel.
    let second = a.mul(n, p2);
    let minus = a.neg(second);
    let second_lost = a.fma(n, p2, minus);
    let r = a.add(first, second);
    let taken = a.sub(r, first);
    let back = a.sub(r, taken);
    let (of_first, of_second) = (a.sub(first, back), a.sub(second, taken));
    let lost = a.add(of_first, of_second);
    let lost = a.add(lost, second_lost);
    let lost = a.fma(n, p3, lost);
    let (lo, hi) = (a.f(-c::TAN_EDGE), a.f(c::TAN_EDGE));
    let r = a.maximum(r, lo);
    let r = a.minimum(r, hi);
    let u = a.mul(r, r);
    let p = poly(a, u, &c::TAN);
    let w = a.mul(u, r);
    // The slope 1 + tan(r)^2 is about 1 + r^2 + 2/3 r^4.
    let two_thirds = a.f(2.0 / 3.0);
    let slope = a.fma(u, two_thirds, one);
    let slope = a.fma(slope, u, one);
    let rest = a.mul(lost, slope);
    let rest = a.fma(p, w, rest);
    let y = a.add(r, rest);
    let y_lost = a.sub(r, y);
    let y_lost = a.add(y_lost, rest);
    // -1 / (y + y_lost), by one step from -1 / y.
    let minus_one = a.f(-1.0);
    let q = a.div(minus_one, y);
    let off = a.fma(q, y, one);
    let off = a.fma(q, y_lost, off);
    let inverse = a.fma(q, off, q);
    let t = a.bits(t);
    let odd = a.shl(t, 31);
    let odd = a.from_bits(odd);
    let odd = a.copysign(one, odd);
    let zero = a.f(0.0);
    let is_odd = a.lt(odd, zero);
    let y = a.select(is_odd, inverse, y);
    // The sums above lose the sign of a zero.
    let (size, least) = (a.abs(x), a.f(1e-30));
    let is_tiny = a.lt(size, least);
    a.select(is_tiny, x, y)
}

/// As sin, with n = round(x / pi + 1/2) - 1/2.
fn cos<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (inv, magic, half) = (a.f(std::f32::consts::FRAC_1_PI), a.f(MAGIC), a.f(0.5));
    let t = a.fma(x, inv, half);
    let t = a.add(t, magic);
    let n = a.sub(t, magic);
    let n = a.sub(n, half);
    sin_reduced(a, x, n, t)
}
