//! Halves and brain floats: against wider arithmetic, rounded once.

use super::{check, eval, form};
use half::{bf16, f16};
use proptest::prelude::*;

#[test]
fn known_values() {
    check(&[
        ("add.f16", &[0x3c00, 0x3c00], 0x4000),
        ("add.rn.sat.f16", &[0x3c00, 0x3c00], 0x3c00),
        ("add.ftz.f16", &[1, 1], 0),
        ("mul.f16", &[0x07ff, 0x3800], 0x0400),
        ("mul.ftz.f16", &[0x07ff, 0x3800], 0),
        ("add.f16", &[0x7c00, 0xfc00], 0x7fff),
        ("add.f16x2", &[0x3c00_0000, 0x3c00_3c00], 0x4000_3c00),
        ("mul.f16", &[0x7bff, 0x4000], 0x7c00),
        ("sub.bf16", &[0x3f80, 0x3f80], 0),
        ("fma.rn.relu.f16", &[0xbc00, 0x3c00, 0], 0),
        ("fma.rn.relu.f16", &[0x7e00, 0x3c00, 0], 0x7fff),
        ("fma.rn.relu.bf16x2", &[0xbf80_3f80, 0x3f80_3f80, 0], 0x0000_3f80),
        ("neg.f16x2", &[0x8000_3c00], 0x0000_bc00),
        ("abs.bf16x2", &[0x8000_bf80], 0x0000_3f80),
        ("neg.bf16", &[0xff81], 0x7fff),
        // Exactly half way but for an addend far below: a wide intermediate that rounds would lose it.
        ("fma.rn.bf16", &[0x3f81, 0x3fc0, 0x0001], 0x3fc2),
        ("fma.rn.bf16", &[0x3f81, 0x3fc0, 0x8001], 0x3fc1),
    ]);
}

/// Every value whose low byte is one of a few.
fn spread() -> impl Iterator<Item = u16> {
    (0..=0xffffu16).step_by(97).chain([0, 0x8000, 1, 0x8001, 0x7c00, 0xfc00, 0x7e00, 0x7f80, 0xff80, 0x7fc0, 0x3c00])
}

#[test]
fn sums_and_products_round_once() {
    let half = |x: f64| if x.is_nan() { 0x7fff } else { u64::from(f16::from_f32(single_to_odd(x)).to_bits()) };
    let brain = |x: f64| if x.is_nan() { 0x7fff } else { u64::from(bf16::from_f32(single_to_odd(x)).to_bits()) };
    let form = |name: &str| form(name).unwrap().f;
    let [ha, hm, ba, bm] = ["add.f16", "mul.f16", "add.rn.bf16", "mul.bf16"].map(form);
    for a in spread() {
        for b in spread() {
            let (x, y) = (u64::from(a), u64::from(b));
            let (p, q) = (f64::from(f16::from_bits(a)), f64::from(f16::from_bits(b)));
            assert_eq!(ha(x, y, 0, 0), half(p + q), "{a:x} + {b:x}");
            assert_eq!(hm(x, y, 0, 0), half(p * q), "{a:x} * {b:x}");
            let (p, q) = (f64::from(bf16::from_bits(a)), f64::from(bf16::from_bits(b)));
            assert_eq!(ba(x, y, 0, 0), brain(p + q), "{a:x} + {b:x}");
            assert_eq!(bm(x, y, 0, 0), brain(p * q), "{a:x} * {b:x}");
        }
    }
}

/// The sum as a double with a sticky last bit.
fn sum_to_odd(x: f64, y: f64) -> f64 {
    let sum = x + y;
    let error = (x - (sum - (sum - x))) + (y - (sum - x));
    if error == 0.0 || !sum.is_finite() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    if (error > 0.0) == (sum > 0.0) { f64::from_bits(sum.to_bits() + 1) } else { f64::from_bits(sum.to_bits() - 1) }
}

/// The same as a single, because `half` converts singles exactly, but not doubles.
fn single_to_odd(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) == x || near.is_nan() {
        return near;
    }
    let toward_zero = if f64::from(near).abs() > x.abs() { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(toward_zero | 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn fused_rounds_once(a: u16, b: u16, c: u16) {
        let [x, y, z] = [a, b, c].map(u64::from);
        let [p, q, r] = [a, b, c].map(|x| f64::from(f16::from_bits(x)));
        let expected = single_to_odd(sum_to_odd(p * q, r));
        let expected = if expected.is_nan() { 0x7fff } else { u64::from(f16::from_f32(expected).to_bits()) };
        prop_assert_eq!(eval("fma.rn.f16", &[x, y, z]), expected);
        let [p, q, r] = [a, b, c].map(|x| f64::from(bf16::from_bits(x)));
        let expected = single_to_odd(sum_to_odd(p * q, r));
        let expected = if expected.is_nan() { 0x7fff } else { u64::from(bf16::from_f32(expected).to_bits()) };
        prop_assert_eq!(eval("fma.rn.bf16", &[x, y, z]), expected);
    }

    #[test]
    fn pairs_are_two_halves(a: u32, b: u32, c: u32) {
        for name in ["add", "sub", "mul", "fma.rn", "min", "max.NaN", "fma.rn.relu"] {
            for ty in ["f16", "bf16"] {
                let single = form(&format!("{name}.{ty}")).unwrap();
                let at = |shift: u32| [a, b, c].map(|x| u64::from(x >> shift) & 0xffff);
                let [low, high] = [at(0), at(16)].map(|[a, b, c]| (single.f)(a, b, c, 0));
                let both = form(&format!("{name}.{ty}x2")).unwrap();
                let got = (both.f)(a.into(), b.into(), c.into(), 0);
                prop_assert_eq!(got, high << 16 | low, "{}.{}", name, ty);
            }
        }
    }
}
