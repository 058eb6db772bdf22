//! Expansions of the angle of a point, and of a slope.

use super::coefficients as c;
use super::{Arith, poly};
use std::f32::consts::{FRAC_PI_2, PI};

/// r + r^3 P(r^2), the arctangent of r in [0, 1].
fn first_octant<A: Arith>(a: &mut A, r: A::F) -> A::F {
    let u = a.mul(r, r);
    let p = poly(a, u, &c::ATAN);
    let w = a.mul(u, r);
    a.fma(p, w, r)
}

/// pi / 2 - atan(1 / t) with t = |x| from 1 on.
pub(super) fn atan<A: Arith>(a: &mut A, x: A::F) -> A::F {
    let one = a.f(1.0);
    let t = a.abs(x);
    let is_steep = a.lt(one, t);
    let inverse = a.div(one, t);
    let r = a.select(is_steep, inverse, t);
    let y = first_octant(a, r);
    let minus = a.neg(y);
    let lost = a.f(0.5 * c::PI_LOST);
    let above = a.add(minus, lost);
    let quarter_turn = a.f(FRAC_PI_2);
    let above = a.add(quarter_turn, above);
    let y = a.select(is_steep, above, y);
    a.copysign(y, x)
}

/// The angle from 0 or pi by the lesser of |y / x| and |x / y|, and from pi / 2 where |y| is the greater one. The quotient of two
/// infinities is 1, and that of two zeros is 0.
pub(super) fn atan2<A: Arith>(a: &mut A, y: A::F, x: A::F) -> A::F {
    let (zero, one) = (a.f(0.0), a.f(1.0));
    let (tx, ty) = (a.abs(x), a.abs(y));
    let least = a.minimum(tx, ty);
    let most = a.maximum(tx, ty);
    let q = a.div(least, most);
    let are_equal = a.eq(tx, ty);
    let are_zero = a.eq(most, zero);
    let of_equal = a.select(are_zero, zero, one);
    let q = a.select(are_equal, of_equal, q);
    let r = first_octant(a, q);

    let is_steep = a.lt(tx, ty);
    let sign = a.copysign(one, x);
    let is_left = a.lt(sign, zero);
    // Where one of the two holds, the angle falls as the quotient grows.
    let minus = a.neg(r);
    let (of_left, of_right) = (a.select(is_steep, r, minus), a.select(is_steep, minus, r));
    let r = a.select(is_left, of_left, of_right);
    let (quarter, half) = (a.f(FRAC_PI_2), a.f(PI));
    let (quarter_lost, half_lost) = (a.f(0.5 * c::PI_LOST), a.f(c::PI_LOST));
    let (start, lost) = (a.select(is_left, half, zero), a.select(is_left, half_lost, zero));
    let (start, lost) = (a.select(is_steep, quarter, start), a.select(is_steep, quarter_lost, lost));
    let r = a.add(r, lost);
    let r = a.add(start, r);
    a.copysign(r, y)
}
