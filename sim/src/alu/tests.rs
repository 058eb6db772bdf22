//! The exact arithmetic of `rounding` against the host's own, which replaces it for rounding to nearest.

use super::rounding::{F32, F64, Format, Round, Value};
use proptest::prelude::*;

fn value(x: f64) -> Value {
    Value::of(F64, x.to_bits())
}

fn bits(format: Format, x: f64) -> u64 {
    let bits = if format == F32 { u64::from((x as f32).to_bits()) } else { x.to_bits() };
    if x.is_nan() { format.nan } else { bits }
}

/// Doubles of every class, near one another often enough to cancel.
fn double() -> impl Strategy<Value = f64> {
    let close = (963u64..1083, any::<u64>()).prop_map(|(e, m)| f64::from_bits((e << 52) | (m >> 12)));
    let edge = prop::sample::select(vec![0.0, -0.0, 1.0, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, f64::NAN, 5e-324]);
    prop_oneof![any::<u64>().prop_map(f64::from_bits), close.clone(), close.prop_map(|x| -x), edge]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn doubles(a in double(), b in double(), c in double()) {
        let (x, y, z) = (value(a), value(b), value(c));
        let near = |v: Value| v.pack(F64, Round::Nearest);
        prop_assert_eq!(near(x.add(y, Round::Nearest)), bits(F64, a + b));
        prop_assert_eq!(near(x.mul(y)), bits(F64, a * b));
        prop_assert_eq!(near(x.div(y)), bits(F64, a / b));
        prop_assert_eq!(near(x.sqrt()), bits(F64, a.sqrt()));
        prop_assert_eq!(near(x.mul(y).add(z, Round::Nearest)), bits(F64, a.mul_add(b, c)));
        prop_assert_eq!(near(x.mul(y).add(value(-(a * b)), Round::Nearest)), bits(F64, a.mul_add(b, -(a * b))));
    }

    #[test]
    fn singles(a in double(), b in double(), c in double()) {
        let [a, b, c] = [a, b, c].map(|x| x as f32);
        let [x, y, z] = [a, b, c].map(|x| Value::of(F32, u64::from(x.to_bits())));
        let near = |v: Value| v.pack(F32, Round::Nearest);
        prop_assert_eq!(near(x.add(y, Round::Nearest)), bits(F32, f64::from(a + b)));
        prop_assert_eq!(near(x.mul(y)), bits(F32, f64::from(a * b)));
        prop_assert_eq!(near(x.div(y)), bits(F32, f64::from(a / b)));
        prop_assert_eq!(near(x.mul(y).add(z, Round::Nearest)), bits(F32, f64::from(a.mul_add(b, c))));
        prop_assert_eq!(near(value(f64::from(a) * f64::from(b))), bits(F32, f64::from(a) * f64::from(b)));
    }

    #[test]
    fn away_from_zero_differs_at_ties_only(a: u64) {
        let [even, away] = [Round::Nearest, Round::NearestAway].map(|r| value(f64::from_bits(a)).pack(F32, r));
        let tie = f64::from_bits(a).is_finite() && a & 0x1fff_ffff == 0x1000_0000;
        prop_assert!(even == away || tie || f64::from_bits(a).abs() < f64::from(f32::MIN_POSITIVE));
    }
}
