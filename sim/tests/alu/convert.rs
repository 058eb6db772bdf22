//! Conversions: exhaustive where that is cheap, otherwise at the edges.

use super::{check, eval, form};
use half::{bf16, f16};
use proptest::prelude::*;

const F64_NAN: u64 = 0x7ff8_0000_0000_0000;
const F64_BIG: u64 = 0x7e37_e43c_8800_759c;

#[test]
fn integers_from_floats() {
    check(&[
        ("cvt.rzi.s32.f32", &[0xc020_0000], 0xffff_fffe),
        ("cvt.rni.s32.f32", &[0x4020_0000], 2),
        ("cvt.rni.s32.f32", &[0x4060_0000], 4),
        ("cvt.rmi.s32.f32", &[0xbf00_0000], 0xffff_ffff),
        ("cvt.rpi.s32.f32", &[0x0000_0001], 1),
        ("cvt.rpi.ftz.s32.f32", &[0x0000_0001], 0),
        ("cvt.rzi.s32.f32", &[0x4f00_0000], 0x7fff_ffff),
        ("cvt.rzi.s32.f32", &[0xff80_0000], 0x8000_0000),
        ("cvt.rzi.u32.f32", &[0xbf80_0000], 0),
        ("cvt.rzi.u32.f32", &[0x7f80_0000], 0xffff_ffff),
        ("cvt.rzi.s32.f32", &[0x7fc0_0000], 0),
        ("cvt.rzi.u8.f32", &[0x7fc0_0000], 0),
        ("cvt.rzi.s64.f32", &[0x7fc0_0000], 1 << 63),
        ("cvt.rzi.u64.f32", &[0x7fc0_0000], 1 << 63),
        ("cvt.rzi.s32.f64", &[F64_NAN], 0x8000_0000),
        ("cvt.rzi.u32.f64", &[F64_NAN], 0x8000_0000),
        ("cvt.rzi.u64.f64", &[F64_BIG], u64::MAX),
        ("cvt.rzi.s64.f64", &[F64_BIG], i64::MAX as u64),
        ("cvt.rzi.s64.f64", &[0xc3e0_0000_0000_0000], 1 << 63),
        ("cvt.rni.s8.f32", &[0x4396_0000], 0x7f),
        ("cvt.rni.u8.f32", &[0x4396_0000], 0xff),
        ("cvt.rni.s8.f32", &[0xc396_0000], 0x80),
        ("cvt.rni.s16.f16", &[0x7c00], 0x7fff),
        ("cvt.rzi.s32.f16", &[0x7e00], 0),
        ("cvt.rni.s32.bf16", &[0x4020], 2),
    ]);
}

#[test]
fn floats_from_integers() {
    check(&[
        ("cvt.rn.f32.s32", &[0xffff_ffff], 0xbf80_0000),
        ("cvt.rn.f32.u32", &[0xffff_ffff], 0x4f80_0000),
        ("cvt.rz.f32.u32", &[0xffff_ffff], 0x4f7f_ffff),
        ("cvt.rn.f32.s32", &[0x0100_0001], 0x4b80_0000),
        ("cvt.rp.f32.s32", &[0x0100_0001], 0x4b80_0001),
        ("cvt.rm.f32.s32", &[0xfeff_ffff], 0xcb80_0001),
        ("cvt.rn.f64.u64", &[u64::MAX], 0x43f0_0000_0000_0000),
        ("cvt.rz.f64.u64", &[u64::MAX], 0x43ef_ffff_ffff_ffff),
        ("cvt.rn.f16.u32", &[0x0001_0000], 0x7c00),
        ("cvt.rz.f16.u32", &[0x0001_0000], 0x7bff),
        ("cvt.rn.f16.u16", &[0xffff], 0x7c00),
        ("cvt.rn.sat.f32.s32", &[5], 0x3f80_0000),
        ("cvt.rn.f32.s8", &[0x1_0080], 0xc300_0000),
        ("cvt.rn.bf16.s32", &[0x101], 0x4380),
    ]);
}

#[test]
fn integers_from_integers() {
    check(&[
        ("cvt.u16.u32", &[0x1_2345], 0x2345),
        ("cvt.s32.s8", &[0x80], 0xffff_ff80),
        ("cvt.s64.s32", &[0x8000_0000], 0xffff_ffff_8000_0000),
        ("cvt.u64.u32", &[0x8000_0000], 0x8000_0000),
        ("cvt.u32.s16", &[0xffff], 0xffff_ffff),
        ("cvt.s8.s32", &[0x1ff], 0xff),
        ("cvt.sat.s8.s32", &[0x1ff], 0x7f),
        ("cvt.sat.u8.s32", &[0xffff_ffff], 0),
        ("cvt.sat.u32.s64", &[1 << 40], 0xffff_ffff),
        ("cvt.sat.s32.u32", &[0xffff_ffff], 0x7fff_ffff),
        ("cvt.pack.sat.s16.s32", &[0xffff_0000, 70_000], 0x8000_7fff),
        ("cvt.pack.sat.u8.s32.b32", &[300, 0xffff_ffff, 0x1234], 0x1234_ff00),
    ]);
}

#[test]
fn floats_from_floats() {
    check(&[
        ("cvt.rni.f32.f32", &[0x3f00_0000], 0),
        ("cvt.rni.f32.f32", &[0xbe80_0000], 0x8000_0000),
        ("cvt.rni.f32.f32", &[0x3fc0_0000], 0x4000_0000),
        ("cvt.rpi.f32.f32", &[0x0000_0001], 0x3f80_0000),
        ("cvt.rmi.f64.f64", &[0xbfe0_0000_0000_0000], 0xbff0_0000_0000_0000),
        ("cvt.rzi.f32.f32", &[0x7f00_0001], 0x7f00_0001),
        ("cvt.rn.f32.f64", &[0x3ff0_0000_1000_0000], 0x3f80_0000),
        ("cvt.rp.f32.f64", &[0x3ff0_0000_0000_0001], 0x3f80_0001),
        ("cvt.rn.f32.f64", &[0xfff8_0000_0000_0001], 0xffc0_0000),
        ("cvt.f64.f32", &[0xff80_0001], 0xfff8_0000_2000_0000),
        ("cvt.f32.f32", &[0xff80_0001], 0xff80_0001),
        ("cvt.rn.ftz.f32.f64", &[0x380f_ffff_ffff_ffff], 0x0080_0000),
        ("cvt.rn.f32.f64", &[1], 0),
        ("cvt.f64.f32", &[0x0000_0001], 0x36a0_0000_0000_0000),
        ("cvt.ftz.f64.f32", &[0x8000_0001], 1 << 63),
        ("cvt.rn.ftz.f32.f64", &[0x36a0_0000_0000_0000], 0),
        ("cvt.sat.f32.f32", &[0xbf80_0000], 0),
        ("cvt.sat.f32.f32", &[0x7fc0_0000], 0),
        ("cvt.rn.f16.f32", &[0x477f_f000], 0x7c00),
        ("cvt.rz.f16.f32", &[0x477f_f000], 0x7bff),
        ("cvt.rn.satfinite.f16.f32", &[0x7f80_0000], 0x7bff),
        ("cvt.rn.satfinite.f16.f32", &[0x7fc0_0000], 0x7fff),
        ("cvt.rn.relu.bf16.f32", &[0xbf80_0000], 0),
        ("cvt.rn.relu.bf16.f32", &[0x7fc0_0000], 0x7fff),
        ("cvt.rn.bf16.f32", &[0x3f80_8000], 0x3f80),
        ("cvt.rn.bf16.f32", &[0x3f81_8000], 0x3f82),
        ("cvt.rn.bf16.f32", &[0x0000_8001], 0x0001),
        ("cvt.f32.bf16", &[0x3f80], 0x3f80_0000),
        ("cvt.rn.f16.bf16", &[0x7f7f], 0x7c00),
        ("cvt.rn.bf16.f64", &[0x3ff0_1000_0000_0001], 0x3f81),
    ]);
}

/// Results of an H200.
#[test]
fn nans() {
    check(&[
        ("cvt.f32.bf16", &[0x7fc1], 0x7fc1_0000),
        ("cvt.f32.bf16", &[0x7f8e], 0x7f8e_0000),
        ("cvt.rz.f32.bf16", &[0xffa0], 0xffa0_0000),
        ("cvt.ftz.f32.bf16", &[0x7fc1], 0x7fff_ffff),
        ("cvt.f32.f16", &[0xfe01], 0x7fff_ffff),
        ("cvt.f16.f16", &[0x7e01], 0x7fff),
        ("cvt.f16.f16", &[0x0001], 0x0001),
        ("cvt.bf16.bf16", &[0x7fc1], 0x7fff),
        ("cvt.f64.f16", &[0x7e01], 0x7ff8_0400_0000_0000),
        ("cvt.f64.f16", &[0xfc01], 0xfff8_0400_0000_0000),
        ("cvt.f64.bf16", &[0x7fc1], 0x7ff8_2000_0000_0000),
        ("cvt.ftz.f64.f32", &[0x7fc0_0001], 0x7fff_ffff_e000_0000),
        ("cvt.rn.f16.f64", &[0x7ff8_0000_0000_0001], 0x7e00),
        ("cvt.rz.bf16.f64", &[0x7ff8_0000_0000_0001], 0x7fc0),
        ("cvt.rni.f64.f64", &[0x7ff8_0000_0000_0001], 0x7ff8_0000_0000_0001),
        ("cvt.rni.f32.f32", &[0x7fc0_0001], 0x7fff_ffff),
        ("cvt.rn.tf32.f32", &[0x7fc0_0001], 0x7fff_e000),
        ("cvt.rn.relu.tf32.f32", &[0xffd3_bedd], 0x7fff_e000),
        ("cvt.rz.tf32.f32", &[0xff80_0001], 0x7fff_e000),
        ("cvt.rna.tf32.f32", &[0x7fc0_0001], 0x7fc0_0000),
        ("cvt.rna.tf32.f32", &[0x7fff_ffff], 0x7fff_e000),
        ("cvt.rna.tf32.f32", &[0xff80_0001], 0xff80_0000),
        ("cvt.rna.satfinite.tf32.f32", &[0x7fc0_0001], 0x7fbf_e000),
        ("cvt.rna.satfinite.tf32.f32", &[0xff80_0001], 0xff7f_e000),
        ("cvt.rna.satfinite.tf32.f32", &[0x7fee_02cf], 0x7fed_e000),
        ("cvt.rna.satfinite.tf32.f32", &[0xffff_ffff], 0xffff_c000),
    ]);
}

#[test]
fn flushing_leaves_what_becomes_a_half() {
    check(&[
        ("cvt.rm.ftz.f16.f32", &[0x807f_ffff], 0x8001),
        ("cvt.rm.ftz.f16.f32", &[0x007f_ffff], 0),
        ("cvt.rp.ftz.f16.f32", &[0x0000_0001], 1),
        ("cvt.rp.ftz.sat.f16.f32", &[0x0000_0001], 1),
        ("cvt.rn.ftz.f16.f32", &[0x007f_ffff], 0),
        ("cvt.rp.ftz.bf16.f32", &[0x0000_0001], 0),
        ("cvt.rp.bf16.f32", &[0x0000_0001], 1),
    ]);
}

#[test]
fn packed_pairs() {
    check(&[
        ("cvt.rn.f16x2.f32", &[0x3f80_0000, 0x4000_0000], 0x3c00_4000),
        ("cvt.rn.bf16x2.f32", &[0x3f80_0000, 0x4000_0000], 0x3f80_4000),
        ("cvt.rn.relu.bf16x2.f32", &[0xbf80_0000, 0x4000_0000], 0x0000_4000),
        ("cvt.rz.bf16x2.f32", &[0x3fff_ffff, 0xbfff_ffff], 0x3fff_bfff),
        ("cvt.rn.satfinite.e4m3x2.f32", &[0x7f80_0000, 0xff80_0000], 0x7efe),
        ("cvt.rn.satfinite.e4m3x2.f32", &[0x7fc0_0000, 0x43e8_0000], 0x7f7e),
        ("cvt.rn.satfinite.e4m3x2.f32", &[0x3f80_0000, 0x3b00_0000], 0x3801),
        ("cvt.rn.satfinite.relu.e4m3x2.f32", &[0xbf80_0000, 0x3f80_0000], 0x0038),
        ("cvt.rn.satfinite.e5m2x2.f32", &[0x7f80_0000, 0x3f80_0000], 0x7b3c),
        ("cvt.rn.satfinite.e5m2x2.f16x2", &[0x3c00_bc00], 0x3cbc),
        ("cvt.rn.satfinite.e4m3x2.f16x2", &[0x3c00_7c00], 0x387e),
        ("cvt.rn.f16x2.e4m3x2", &[0x387e], 0x3c00_5f00),
        ("cvt.rn.f16x2.e4m3x2", &[0x7fff], 0x7fff_7fff),
        ("cvt.rn.f16x2.e5m2x2", &[0x7cfd], 0x7c00_7fff),
        ("cvt.rn.relu.f16x2.e4m3x2", &[0xb838], 0x0000_3c00),
        ("cvt.rna.tf32.f32", &[0x3f80_1000], 0x3f80_2000),
        ("cvt.rn.tf32.f32", &[0x3f80_1000], 0x3f80_0000),
        ("cvt.rz.tf32.f32", &[0x3f80_1fff], 0x3f80_0000),
        ("cvt.rna.tf32.f32", &[0xff80_0000], 0xff80_0000),
        ("cvt.rna.tf32.f32", &[0x7f7f_ffff], 0x7f80_0000),
        ("cvt.rna.satfinite.tf32.f32", &[0x7f7f_ffff], 0x7f7f_e000),
        ("cvt.rna.satfinite.tf32.f32", &[0xff80_0000], 0xff7f_e000),
    ]);
}

#[test]
fn every_half_widens_and_comes_back() {
    let names = ["cvt.f32.f16", "cvt.rn.f16.f32", "cvt.f32.bf16", "cvt.rn.bf16.f32", "cvt.f64.f16", "cvt.rn.f16.f64"];
    let [hs, sh, bs, sb, hd, dh] = names.map(|name| form(name).unwrap().f);
    for bits in 0..=0xffffu16 {
        let x = u64::from(bits);
        let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
        if half.is_nan() {
            assert_eq!((hs(x, 0, 0, 0), hd(x, 0, 0, 0)), (0x7fff_ffff, half.to_f64().to_bits() | 1 << 51));
        } else {
            assert_eq!(hs(x, 0, 0, 0), u64::from(half.to_f32().to_bits()));
            assert_eq!(hd(x, 0, 0, 0), half.to_f64().to_bits());
            assert_eq!(sh(hs(x, 0, 0, 0), 0, 0, 0), x);
            assert_eq!(dh(hd(x, 0, 0, 0), 0, 0, 0), x);
        }
        assert_eq!(bs(x, 0, 0, 0), x << 16);
        if !brain.is_nan() {
            assert_eq!(sb(bs(x, 0, 0, 0), 0, 0, 0), x);
        }
    }
}

#[test]
fn every_half_as_an_integer() {
    for (name, round) in [("rni", f64::round_ties_even as fn(f64) -> f64), ("rzi", f64::trunc), ("rmi", f64::floor)] {
        let [wide, narrow] = ["s32", "s16"].map(|ty| form(&format!("cvt.{name}.{ty}.f16")).unwrap().f);
        for bits in 0..=0xffffu16 {
            let x = round(f16::from_bits(bits).to_f64());
            assert_eq!(wide(bits.into(), 0, 0, 0), u64::from(x as i32 as u32), "{bits:x}");
            assert_eq!(narrow(bits.into(), 0, 0, 0), u64::from(x as i16 as u16), "{bits:x}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn narrowing_agrees_with_the_half_crate(bits: u32, squeeze: bool) {
        // Squeezed exponents fall in the range of halves, subnormal ones too.
        let bits = if squeeze { (bits & 0x83ff_ffff) + 0x3200_0000 } else { bits };
        let x = f32::from_bits(bits);
        prop_assume!(!x.is_nan());
        prop_assert_eq!(eval("cvt.rn.f16.f32", &[bits.into()]), u64::from(f16::from_f32(x).to_bits()));
        prop_assert_eq!(eval("cvt.rn.bf16.f32", &[bits.into()]), u64::from(bf16::from_f32(x).to_bits()));
    }

    #[test]
    fn the_host_converts_alike(x: f64, n: i64) {
        prop_assert_eq!(eval("cvt.rn.f32.f64", &[x.to_bits()]), u64::from((x as f32).to_bits()));
        prop_assert_eq!(eval("cvt.rzi.s64.f64", &[x.to_bits()]), (x as i64) as u64);
        prop_assert_eq!(eval("cvt.rzi.u32.f64", &[x.to_bits()]), u64::from(x as u32));
        prop_assert_eq!(eval("cvt.rn.f32.s64", &[n as u64]), u64::from((n as f32).to_bits()));
        prop_assert_eq!(eval("cvt.rn.f64.u64", &[n as u64]), (n as u64 as f64).to_bits());
    }
}
