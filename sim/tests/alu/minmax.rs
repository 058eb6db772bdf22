//! Minima and maxima: zeros, NaNs, signs.

use super::{check, eval};

#[test]
fn known_values() {
    check(&[
        ("min.f32", &[0, 0x8000_0000], 0x8000_0000),
        ("min.f32", &[0x8000_0000, 0], 0x8000_0000),
        ("max.f32", &[0x8000_0000, 0], 0),
        ("max.f32", &[0x7fc0_0000, 0x3f80_0000], 0x3f80_0000),
        ("min.f32", &[0x3f80_0000, 0x7fc0_0000], 0x3f80_0000),
        ("min.f32", &[0xffc0_0000, 0x7fc0_0001], 0x7fff_ffff),
        ("min.NaN.f32", &[0x3f80_0000, 0x7fc0_0000], 0x7fff_ffff),
        ("max.NaN.f32", &[0x3f80_0000, 0x4000_0000], 0x4000_0000),
        ("max.ftz.f32", &[1, 0x8000_0001], 0),
        ("max.f32", &[1, 0], 1),
        ("max.f32", &[0xbf80_0000, 0xc000_0000], 0xbf80_0000),
        ("max.xorsign.abs.f32", &[0xc000_0000, 0x3f80_0000], 0xc000_0000),
        ("min.xorsign.abs.f32", &[0xc000_0000, 0xbf80_0000], 0x3f80_0000),
        ("min.f64", &[0x3ff0_0000_0000_0000, 0xfff0_0000_0000_0000], 0xfff0_0000_0000_0000),
        ("max.f64", &[0x7ff8_0000_0000_0000, 0x3ff0_0000_0000_0000], 0x3ff0_0000_0000_0000),
        ("max.f16x2", &[0x7e00_3c00, 0x3c00_bc00], 0x3c00_3c00),
        ("max.NaN.f16x2", &[0x7e00_3c00, 0x3c00_bc00], 0x7fff_3c00),
        ("min.bf16", &[0x3f80, 0xbf80], 0xbf80),
        ("min.ftz.f16", &[0x0001, 0x3c00], 0),
        ("max.xorsign.abs.bf16x2", &[0xc000_3f80, 0x3f80_c000], 0xc000_c000),
    ]);
}

#[test]
fn order_does_not_matter_but_for_nans() {
    let values = [0, 1, 0x8000, 0x8001, 0x3c00, 0xbc00, 0x7bff, 0x7c00, 0xfc00];
    for a in values {
        for b in values {
            for name in ["min.f16", "max.f16", "min.NaN.f16", "max.xorsign.abs.f16"] {
                assert_eq!(eval(name, &[a, b]), eval(name, &[b, a]), "{name} {a:x} {b:x}");
            }
        }
    }
}
