//! Approximate functions: special values, and the stated bounds.

use super::{check, eval, form, to_f32};
use atlas_sim::alu::{Bound, error_bound};
use proptest::prelude::*;

const INF: u64 = 0x7f80_0000;
const MINUS: u64 = 0x8000_0000;
const ONE: u64 = 0x3f80_0000;
const NAN: u64 = 0x7fff_ffff;

#[test]
fn special_values() {
    check(&[
        ("rcp.approx.f32", &[0], INF),
        ("rcp.approx.f32", &[MINUS], INF | MINUS),
        ("rcp.approx.f32", &[INF | MINUS], MINUS),
        ("rcp.approx.ftz.f32", &[1], INF),
        ("rcp.approx.ftz.f32", &[0x7f00_0000], 0),
        ("rcp.approx.f32", &[0x7f00_0000], 0x0040_0000),
        ("rcp.approx.f32", &[0x7fc0_0001], NAN),
        ("sqrt.approx.f32", &[ONE | MINUS], NAN),
        ("sqrt.approx.f32", &[MINUS], MINUS),
        ("sqrt.approx.ftz.f32", &[1], 0),
        ("rsqrt.approx.f32", &[MINUS], INF | MINUS),
        ("rsqrt.approx.f32", &[0], INF),
        ("rsqrt.approx.f32", &[ONE | MINUS], NAN),
        ("rcp.approx.ftz.f64", &[0x7ff8_0000_0000_0001], NAN << 32),
        ("rsqrt.approx.ftz.f64", &[0xbff8_0000_0000_0000], NAN << 32),
        ("rsqrt.approx.f32", &[INF], 0),
        ("rsqrt.approx.f32", &[0x4080_0000], 0x3f00_0000),
        ("sin.approx.f32", &[INF], NAN),
        ("sin.approx.f32", &[MINUS], MINUS),
        ("cos.approx.f32", &[MINUS], ONE),
        ("lg2.approx.f32", &[0], INF | MINUS),
        ("lg2.approx.f32", &[MINUS], INF | MINUS),
        ("lg2.approx.f32", &[ONE | MINUS], NAN),
        ("lg2.approx.f32", &[ONE], 0),
        ("lg2.approx.f32", &[1], 0xc315_0000),
        ("lg2.approx.ftz.f32", &[1], INF | MINUS),
        ("ex2.approx.f32", &[INF | MINUS], 0),
        ("ex2.approx.f32", &[INF], INF),
        ("ex2.approx.ftz.f32", &[0x8000_0001], ONE),
        ("ex2.approx.ftz.f32", &[0xc300_0000], 0),
        ("ex2.approx.f32", &[0xc300_0000], 0x0020_0000),
        ("ex2.approx.f16", &[0x3c00], 0x4000),
        ("ex2.approx.f16x2", &[0xfc00_3c00], 0x0000_4000),
        ("ex2.approx.ftz.bf16x2", &[0x3f80_bf80], 0x4000_3f00),
        ("tanh.approx.f32", &[INF | MINUS], ONE | MINUS),
        ("tanh.approx.f32", &[MINUS], MINUS),
        ("tanh.approx.bf16", &[0x7f80], 0x3f80),
        ("div.approx.f32", &[ONE, 0x7e80_0001], 0),
        ("div.approx.f32", &[INF, 0x7e80_0001], NAN),
        ("div.approx.f32", &[ONE, 0xfe80_0001], MINUS),
        ("div.approx.f32", &[ONE, 0x7e80_0000], 0x0080_0000),
        ("div.approx.f32", &[ONE, INF], 0),
        ("div.full.ftz.f32", &[0x00ff_ffff, 0x4000_0000], 0),
        ("div.full.f32", &[0x7e80_0001, 0x7e80_0001], ONE),
        ("div.approx.ftz.f32", &[ONE, 1], INF),
        ("rcp.approx.ftz.f64", &[0x4000_0000_1234_5678], 0x3fe0_0000_0000_0000),
        ("rsqrt.approx.ftz.f64", &[0x4010_0000_0000_0000], 0x3fe0_0000_0000_0000),
        ("rsqrt.approx.f64", &[0x4010_0000_0000_0000], 0x3fe0_0000_0000_0000),
    ]);
}

#[test]
fn bounds_are_for_approximations_only() {
    assert_eq!(error_bound("ex2", &["approx", "ftz", "f32"]), Some(Bound::Ulp(2.0)));
    assert_eq!(error_bound("tanh", &["approx", "f32"]), Some(Bound::Relative(f64::exp2(-11.0))));
    assert_eq!(error_bound("div", &["full", "f32"]), Some(Bound::Ulp(2.0)));
    assert_eq!(error_bound("div", &["rn", "f32"]), None);
    assert_eq!(error_bound("add", &["f32"]), None);
    assert_eq!(error_bound("tanh", &["approx", "ftz", "f32"]), None);
}

proptest! {
    #[test]
    fn within_half_an_ulp_of_the_host(x in -100.0f32..100.0) {
        let near = |name: &str, x: f32, exact: f64| {
            let got = f64::from(to_f32(eval(name, &[u64::from(x.to_bits())])));
            (got - exact).abs() <= exact.abs() * f64::exp2(-23.9) + f64::exp2(-149.0)
        };
        prop_assert!(near("ex2.approx.f32", x, f64::from(x).exp2()));
        prop_assert!(near("sin.approx.f32", x, f64::from(x).sin()));
        prop_assert!(near("tanh.approx.f32", x, f64::from(x).tanh()));
        prop_assert!(near("rsqrt.approx.f32", x.abs() + 1e-3, 1.0 / f64::from(x.abs() + 1e-3).sqrt()));
        prop_assert!(near("lg2.approx.f32", x.abs() + 1e-3, f64::from(x.abs() + 1e-3).log2()));
    }
}

#[test]
fn every_bounded_form_exists() {
    for opcode in ["rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh", "div"] {
        for words in ["approx.f32", "approx.ftz.f32", "full.f32", "approx.f16", "approx.ftz.bf16x2", "approx.ftz.f64"] {
            let modifiers: Vec<&str> = words.split('.').collect();
            let exists = form(&format!("{opcode}.{words}")).is_some();
            assert_eq!(error_bound(opcode, &modifiers).is_some(), exists, "{opcode}.{words}");
        }
    }
}
