//! The expansion of a power.

use super::coefficients as c;
use super::reduced::{log_reduced, scales};
use super::{Arith, MAGIC, poly};

/// `a + b` in two parts, for |a| >= |b| or a = 0.
fn sum_in_two<A: Arith>(a: &mut A, x: A::F, y: A::F) -> (A::F, A::F) {
    let s = a.add(x, y);
    let taken = a.sub(x, s);
    (s, a.add(taken, y))
}

/// `x y` in two parts, for two parts of `x` and of `y`.
fn product_in_two<A: Arith>(a: &mut A, (x, x_lost): (A::F, A::F), (y, y_lost): (A::F, A::F)) -> (A::F, A::F) {
    let p = a.mul(x, y);
    let minus = a.neg(p);
    let lost = a.fma(x, y, minus);
    let lost = a.fma(x, y_lost, lost);
    (p, a.fma(x_lost, y, lost))
}

/// log2(x) in two parts for a positive number x: x = 2^e m with m in [2/3, 4/3), q = (m - 1) / (m + 1), and
/// log2(m) = 2 log2(e) (q + q^3 (1/3 + q^2 P(q^2))).
fn log2_in_two<A: Arith>(a: &mut A, x: A::F) -> (A::F, A::F) {
    let (f, e) = log_reduced(a, x);
    let two = a.f(2.0);
    let (d, d_lost) = sum_in_two(a, two, f);
    let inverse = a.approx_rcp(d);
    let q = a.mul(f, inverse);
    let minus_q = a.neg(q);
    let rest = a.fma(minus_q, d, f);
    let rest = a.fma(minus_q, d_lost, rest);
    let q = (q, a.mul(rest, inverse));

    let (u, u_lost) = product_in_two(a, q, q);
    let p = poly(a, u, &c::ATANH);
    let p = a.mul(p, u);
    let (third, third_lost) = (a.f(c::THIRD_HI), a.f(c::THIRD_LO));
    let (s, s_lost) = sum_in_two(a, third, p);
    let s_lost = a.add(s_lost, third_lost);
    let v = product_in_two(a, (u, u_lost), (s, s_lost));
    let (v, v_lost) = product_in_two(a, v, q);
    let (l, l_lost) = sum_in_two(a, q.0, v);
    let lost = a.add(v_lost, q.1);
    let l_lost = a.add(l_lost, lost);
    let factor = (a.f(c::TWO_LOG2_E_HI), a.f(c::TWO_LOG2_E_LO));
    let (l, l_lost) = product_in_two(a, (l, l_lost), factor);
    let (h, h_lost) = sum_in_two(a, e, l);
    (h, a.add(h_lost, l_lost))
}

/// 2^z for z in two parts, 0 or infinity where z is beyond the exponents.
fn exp2_of_two<A: Arith>(a: &mut A, z: A::F, lost: A::F) -> A::F {
    let (lo, hi) = (a.f(-160.0), a.f(160.0));
    let z = a.maximum(z, lo);
    let z = a.minimum(z, hi);
    // Where z was beyond, it may be anything.
    let (lo, hi) = (a.f(-0.25), a.f(0.25));
    let lost = a.maximum(lost, lo);
    let lost = a.minimum(lost, hi);
    let magic = a.f(MAGIC);
    let t = a.add(z, magic);
    let n = a.sub(t, magic);
    let r = a.sub(z, n);
    let r = a.add(r, lost);
    let p = poly(a, r, &c::EXP2);
    let one = a.f(1.0);
    let p = a.fma(p, r, one);
    let t = a.bits(t);
    let [first, second] = scales(a, t);
    let p = a.mul(p, first);
    a.mul(p, second)
}

/// 2^(y log2 |x|), and what IEEE 754 says of zeros, infinities and negative numbers.
pub(super) fn pow<A: Arith>(a: &mut A, x: A::F, y: A::F) -> A::F {
    let (zero, one, inf, nan) = (a.f(0.0), a.f(1.0), a.f(f32::INFINITY), a.f(f32::NAN));
    let t = a.abs(x);
    let l = log2_in_two(a, t);
    // Past 2^40 the result of any x but 1 is 0 or infinity, and the products below are finite.
    let (lo, hi) = (a.f(-1_099_511_627_776.0), a.f(1_099_511_627_776.0));
    let bounded = a.maximum(y, lo);
    let bounded = a.minimum(bounded, hi);
    let (z, z_lost) = product_in_two(a, l, (bounded, zero));
    let p = exp2_of_two(a, z, z_lost);

    // The powers of 0 and of infinity: one of the two.
    let (is_zero, is_inf) = (a.eq(t, zero), a.eq(t, inf));
    let falls = a.lt(y, zero);
    let of_zero = a.select(falls, inf, zero);
    let of_inf = a.select(falls, zero, inf);
    let p = a.select(is_zero, of_zero, p);
    let p = a.select(is_inf, of_inf, p);

    // From 2^24 on each number is even. Below 2^23 a sum with that leaves the whole part in the low bits.
    let (half, all) = (a.f(8_388_608.0), a.f(16_777_216.0));
    let size = a.abs(y);
    let size = a.minimum(size, all);
    let is_short = a.lt(size, half);
    let start = a.select(is_short, half, zero);
    let moved = a.add(size, start);
    let whole = a.sub(moved, start);
    let is_whole = a.eq(whole, size);
    let bits = a.bits(moved);
    let odd = a.shl(bits, 31);
    let odd = a.from_bits(odd);
    let odd = a.copysign(one, odd);
    let odd = a.select(is_whole, odd, one);
    let is_odd = a.lt(odd, zero);
    let sign = a.select(is_odd, x, one);
    let p = a.copysign(p, sign);

    // A root of a negative number.
    let minus_inf = a.f(f32::NEG_INFINITY);
    let below = a.select(is_whole, zero, x);
    let is_root = a.lt(below, zero);
    let is_finite = a.lt(minus_inf, x);
    let root = a.select(is_finite, nan, p);
    let p = a.select(is_root, root, p);
    // Not a number is not equal to itself. Two powers are 1 all the same.
    let (is_number, has_number) = (a.eq(x, x), a.eq(y, y));
    let p = a.select(is_number, p, x);
    let p = a.select(has_number, p, y);
    let is_one = a.eq(x, one);
    let p = a.select(is_one, one, p);
    let is_none = a.eq(y, zero);
    a.select(is_none, one, p)
}
