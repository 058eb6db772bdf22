//! Single and double precision: known values, directed rounding, flushing, saturation.

use super::{check, eval, f32_bits, to_f32};
use proptest::prelude::*;

const ONE: u64 = 0x3f80_0000;
const MINUS: u64 = 0x8000_0000;
const INF: u64 = 0x7f80_0000;
const NAN: u64 = 0x7fff_ffff;
const DOUBLE_NAN: u64 = 0x7ff8_0000_0000_0001;
const TINY: u64 = 1;
const MIN_NORMAL: u64 = 0x0080_0000;
const MAX: u64 = 0x7f7f_ffff;

#[test]
fn known_values() {
    check(&[
        ("add.f32", &[ONE, ONE], 0x4000_0000),
        ("add.f32", &[INF, INF | MINUS], NAN),
        ("add.f32", &[0x7fc0_0001, ONE], NAN),
        ("add.f32", &[0xff80_0001, ONE], NAN),
        ("add.rn.f32", &[ONE, ONE | MINUS], 0),
        ("add.rm.f32", &[ONE, ONE | MINUS], MINUS),
        ("add.rm.f32", &[0, 0], 0),
        ("add.rm.f32", &[0, MINUS], MINUS),
        ("add.rn.f32", &[MINUS, MINUS], MINUS),
        ("add.rp.f32", &[ONE, TINY], ONE + 1),
        ("add.rz.f32", &[ONE, TINY], ONE),
        ("add.rm.f32", &[ONE, TINY | MINUS], ONE - 1),
        ("add.rz.f32", &[ONE, TINY | MINUS], ONE - 1),
        ("add.rn.f32", &[MAX, MAX], INF),
        ("add.rz.f32", &[MAX, MAX], MAX),
        ("add.rm.f32", &[MAX, MAX], MAX),
        ("add.rm.f32", &[MAX | MINUS, MAX | MINUS], INF | MINUS),
        ("add.ftz.f32", &[TINY, TINY], 0),
        ("add.ftz.f32", &[TINY | MINUS, MINUS], MINUS),
        ("sub.ftz.f32", &[MIN_NORMAL, MIN_NORMAL + 1], MINUS),
        ("sub.f32", &[MIN_NORMAL, MIN_NORMAL + 1], TINY | MINUS),
        ("add.sat.f32", &[ONE, ONE], ONE),
        ("add.sat.f32", &[ONE | MINUS, 0], 0),
        ("add.sat.f32", &[NAN, 0], 0),
        ("add.sat.f32", &[MINUS, MINUS], 0),
        ("mul.f32", &[0, INF], NAN),
        ("mul.rp.f32", &[TINY, TINY], TINY),
        ("mul.rn.f32", &[TINY, TINY], 0),
        ("mul.rm.f32", &[TINY, TINY | MINUS], TINY | MINUS),
        ("fma.rn.f32", &[0x3f80_0001, 0x3f80_0001, 0xbf80_0002], 0x2880_0000),
        ("fma.rn.f32", &[0, INF, ONE], NAN),
        ("fma.rz.f32", &[MAX, 0x4000_0000, 0], MAX),
        ("mad.rn.f32", &[0x4000_0000, 0x4040_0000, ONE], 0x40e0_0000),
        ("div.rn.f32", &[ONE, 0x4040_0000], 0x3eaa_aaab),
        ("div.rz.f32", &[ONE, 0x4040_0000], 0x3eaa_aaaa),
        ("div.rn.f32", &[ONE, 0], INF),
        ("div.rn.f32", &[0, 0], NAN),
        ("rcp.rp.f32", &[0x4040_0000], 0x3eaa_aaab),
        ("rcp.rn.f32", &[MINUS], INF | MINUS),
        ("sqrt.rn.f32", &[0x4000_0000], 0x3fb5_04f3),
        ("sqrt.rp.f32", &[0x4000_0000], 0x3fb5_04f4),
        ("sqrt.rm.f32", &[0x4080_0000], 0x4000_0000),
        ("sqrt.rn.f32", &[MINUS], MINUS),
        ("sqrt.rn.f32", &[ONE | MINUS], NAN),
        ("neg.f32", &[0x7fc0_0001], NAN),
        ("abs.f32", &[0xff80_0001], NAN),
        // Just below the least normal number, which it rounds to.
        ("mul.rn.f32", &[0x00ff_ffff, 0x3f00_0000], MIN_NORMAL),
        ("mul.rn.ftz.f32", &[0x00ff_ffff, 0x3f00_0000], 0),
        ("mul.rn.ftz.f32", &[0x80ff_ffff, 0x3f00_0000], MINUS),
        ("mul.rn.ftz.f32", &[0x0100_0000, 0x3f00_0000], MIN_NORMAL),
        ("fma.rp.ftz.f32", &[0x00ff_ffff, 0x3f00_0000, 0], 0),
        ("abs.ftz.f32", &[TINY | MINUS], 0),
        ("neg.f64", &[0], 1 << 63),
        ("neg.f64", &[DOUBLE_NAN], DOUBLE_NAN),
        ("abs.f64", &[DOUBLE_NAN | 1 << 63], DOUBLE_NAN | 1 << 63),
        ("abs.f64", &[1 << 63], 0),
        ("add.f64", &[DOUBLE_NAN, 0], DOUBLE_NAN),
        ("sub.rm.f64", &[0, DOUBLE_NAN], DOUBLE_NAN),
        ("fma.rz.f64", &[0x7ff0_0000_0000_0000, 0, DOUBLE_NAN], DOUBLE_NAN),
        ("div.rn.f64", &[DOUBLE_NAN, 0], DOUBLE_NAN),
        ("mul.rn.f64", &[0x7ff0_0000_0000_0000, 0], 0xfff8_0000_0000_0000),
        ("sqrt.rp.f64", &[0x7ff0_0000_0000_0001], DOUBLE_NAN),
        ("sqrt.rn.f64", &[0xbff0_0000_0000_0000], 0xfff8_0000_0000_0000),
        ("copysign.f32", &[MINUS, ONE], ONE | MINUS),
        ("copysign.f64", &[0, 0xbff0_0000_0000_0000], 0x3ff0_0000_0000_0000),
        ("add.f64", &[0x7ff0_0000_0000_0000, 0xfff0_0000_0000_0000], 0xfff8_0000_0000_0000),
        ("add.rp.f64", &[0x3ff0_0000_0000_0000, 1], 0x3ff0_0000_0000_0001),
        ("fma.rz.f64", &[0x3ff0_0000_0000_0001, 0x3ff0_0000_0000_0001, 1 << 63], 0x3ff0_0000_0000_0002),
        ("fma.rp.f64", &[0x3ff0_0000_0000_0001, 0x3ff0_0000_0000_0001, 1 << 63], 0x3ff0_0000_0000_0003),
    ]);
}

/// The next value up.
fn above(x: f32) -> f32 {
    if x == 0.0 { f32::from_bits(1) } else { x.next_up() }
}

/// The directed roundings of one operation bracket the exact value. `exact` gives the position of that value relative to a
/// double.
fn check_brackets(name: &str, operands: &[u64], exact: Option<f64>) {
    let [n, z, m, p] = ["rn", "rz", "rm", "rp"].map(|r| to_f32(eval(&format!("{name}.{r}.f32"), operands)));
    if n.is_nan() {
        assert!(z.is_nan() && m.is_nan() && p.is_nan());
        return;
    }
    assert!(m <= n && n <= p, "{name} {operands:x?}: {m:e} {n:e} {p:e}");
    assert!(n == m || n == p, "{name} {operands:x?}");
    assert!(m == p || above(m) == p, "{name} {operands:x?}: {m:e} and {p:e} are not neighbours");
    assert_eq!(z, if n > 0.0 || m >= 0.0 { m } else { p }, "{name} {operands:x?}");
    if let Some(exact) = exact {
        assert!(f64::from(m) <= exact && exact <= f64::from(p), "{name} {operands:x?}");
        assert_eq!(m == p, f64::from(m) == exact, "{name} {operands:x?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn directed_products(a: f32, b: f32) {
        // A product of two singles is exact in a double.
        check_brackets("mul", &[f32_bits(a), f32_bits(b)], Some(f64::from(a) * f64::from(b)));
    }

    #[test]
    fn directed_sums(a: f32, b: f32, near in -40i32..40) {
        let b = if near < 30 { a * -(near as f32).exp2() + b * 1e-30 } else { b };
        let (x, y) = (f64::from(a), f64::from(b));
        // Exact where the double's own error term is zero.
        let sum = x + y;
        let error = (x - (sum - (sum - x))) + (y - (sum - x));
        check_brackets("add", &[f32_bits(a), f32_bits(b)], (error == 0.0).then_some(sum));
        check_brackets("sub", &[f32_bits(a), f32_bits(-b)], (error == 0.0).then_some(sum));
    }

    #[test]
    fn directed_fused(a: f32, b: f32, c: f32) {
        let product = f64::from(a) * f64::from(b);
        let (sum, y) = (product + f64::from(c), f64::from(c));
        let error = (product - (sum - (sum - product))) + (y - (sum - product));
        check_brackets("fma", &[f32_bits(a), f32_bits(b), f32_bits(c)], (error == 0.0).then_some(sum));
    }

    #[test]
    fn directed_quotients_and_roots(a: f32, b: f32) {
        check_brackets("div", &[f32_bits(a), f32_bits(b)], None);
        check_brackets("rcp", &[f32_bits(b)], None);
        check_brackets("sqrt", &[f32_bits(a.abs())], None);
    }

    #[test]
    fn flushing_is_flushing_in_and_out(a: u32, b: u32) {
        let small = |x: u32| u64::from(x & 0x80ff_ffff);
        let flush = |x: u64| if x & INF == 0 { x & MINUS } else { x };
        let (a, b) = (small(a), small(b));
        // Their results are exact where they are small; a product may round up to a normal number.
        for name in ["add", "sub"] {
            let plain = flush(eval(&format!("{name}.f32"), &[flush(a), flush(b)]));
            prop_assert_eq!(eval(&format!("{name}.ftz.f32"), &[a, b]), plain);
        }
    }
}
