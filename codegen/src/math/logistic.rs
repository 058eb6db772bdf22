//! Expansions of functions that combine their argument with an exponential of it.

use super::coefficients as c;
use super::reduced::{exp_reduced, log1p_reduced, scales};
use super::{Arith, poly};

/// `(p, lost, t)`: exp(x) = (p + lost) * 2^n with n in the low bits of `t`, where `lost` is what rounding `p` loses.
fn exp_in_two<A: Arith>(a: &mut A, x: A::F) -> (A::F, A::F, A::I) {
    let one = a.f(1.0);
    let (r, t) = exp_reduced(a, x);
    let q = poly(a, r, &c::EXP);
    let r2 = a.mul(r, r);
    let first = a.add(r, one);
    let rest = a.sub(one, first);
    let rest = a.add(rest, r);
    let rest = a.fma(q, r2, rest);
    let p = a.add(first, rest);
    let lost = a.sub(first, p);
    (p, a.add(lost, rest), t)
}

fn scaled<A: Arith>(a: &mut A, x: A::F, [first, second]: [A::F; 2]) -> A::F {
    let x = a.mul(x, first);
    a.mul(x, second)
}

/// max(x, 0) + log(1 + e) with e = exp(-|x|) in two parts. Above a third, 1 + e is 2 (1 + f) with f = (e - 1) / 2.
pub(super) fn softplus<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (zero, one, lo) = (a.f(0.0), a.f(1.0), a.f(-104.0));
    let t = a.abs(x);
    let t = a.neg(t);
    let t = a.maximum(t, lo);
    let (p, lost, n) = exp_in_two(a, t);
    let s = scales(a, n);
    let (e, lost) = (scaled(a, p, s), scaled(a, lost, s));

    let (third, half, minus_half) = (a.f(1.0 / 3.0), a.f(0.5), a.f(-0.5));
    let is_large = a.lt(third, e);
    let f = a.fma(e, half, minus_half);
    let f = a.select(is_large, f, e);
    let half_lost = a.mul(lost, half);
    let lost = a.select(is_large, half_lost, lost);
    let ln2 = a.f(std::f32::consts::LN_2);
    let whole = a.select(is_large, ln2, zero);
    let y = log1p_reduced(a, f);
    // The derivative is 1 / (1 + f).
    let slope = a.sub(one, f);
    let y = a.fma(lost, slope, y);
    let y = a.add(y, whole);
    let above = a.maximum(x, zero);
    a.add(above, y)
}

/// x / (1 + e) or x e / (1 + e) by the sign of x, with e = exp(-|x|) in two parts. As in the logistic function, a correction adds
/// what the roundings of the terms and of the quotient lost. Past 20 the result is x, and below the clamp it is -0.
pub(super) fn silu<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let (zero, one, lo, hi) = (a.f(0.0), a.f(1.0), a.f(-110.0), a.f(20.0));
    let t = a.abs(x);
    let t = a.neg(t);
    let t = a.maximum(t, lo);
    let (p, p_lost, n) = exp_in_two(a, t);
    let s = scales(a, n);
    let (e, e_lost) = (scaled(a, p, s), scaled(a, p_lost, s));

    let z = a.maximum(x, lo);
    let below = a.mul(z, p);
    let minus = a.neg(below);
    let below_lost = a.fma(z, p, minus);
    let below_lost = a.fma(z, p_lost, below_lost);
    let negative = a.lt(x, zero);
    let num = a.select(negative, below, z);
    let num_lost = a.select(negative, below_lost, zero);

    let d = a.add(e, one);
    let d_lost = a.sub(d, one);
    let d_lost = a.sub(d_lost, e);
    let d_lost = a.sub(d_lost, e_lost);
    let y = a.div(num, d);
    let minus_y = a.neg(y);
    let rest = a.fma(minus_y, d, num);
    let rest = a.add(rest, num_lost);
    let rest = a.fma(y, d_lost, rest);
    let minus_half = a.f(-0.5);
    let k = a.fma(e, minus_half, one);
    let y = a.fma(rest, k, y);

    let s = s.map(|s| a.select(negative, s, one));
    let y = scaled(a, y, s);
    let is_large = a.lt(hi, x);
    let y = a.select(is_large, x, y);
    a.copysign(y, x)
}

/// `(a, lost, b)`: exp(t) / 2 in two parts, and exp(-t) / 2, for t in [0, 90].
fn halves<A: Arith>(a: &mut A, t: A::F) -> (A::F, A::F, A::F) {
    let (half, quarter) = (a.f(0.5), a.f(0.25));
    let (p, lost, n) = exp_in_two(a, t);
    let s = scales(a, n);
    let (p, lost) = (a.mul(p, half), a.mul(lost, half));
    let (up, lost) = (scaled(a, p, s), scaled(a, lost, s));
    let down = a.div(quarter, up);
    (up, lost, down)
}

/// (exp(t) - exp(-t)) / 2 with t = |x|, and below 0.7 t + t^3 P(t^2).
pub(super) fn sinh<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let limit = a.f(90.0);
    let t = a.abs(x);
    let t = a.minimum(t, limit);
    let (up, lost, down) = halves(a, t);
    let rest = a.sub(lost, down);
    let large = a.add(up, rest);
    let u = a.mul(t, t);
    let p = poly(a, u, &c::SINH);
    let w = a.mul(u, t);
    let small = a.fma(p, w, t);
    let edge = a.f(c::SINH_EDGE);
    let is_small = a.lt(t, edge);
    let y = a.select(is_small, small, large);
    a.copysign(y, x)
}

/// (exp(t) + exp(-t)) / 2 with t = |x|.
pub(super) fn cosh<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let limit = a.f(90.0);
    let t = a.abs(x);
    let t = a.minimum(t, limit);
    let (up, lost, down) = halves(a, t);
    let rest = a.add(lost, down);
    a.add(up, rest)
}
