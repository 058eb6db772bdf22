//! Bit operations: known values, and identities.

use super::{check, eval};
use proptest::prelude::*;

#[test]
fn known_values() {
    check(&[
        ("mov.b16", &[0x1_2345], 0x2345),
        ("and.b32", &[0xff00_ff00, 0x0ff0_0ff0], 0x0f00_0f00),
        ("not.b16", &[0], 0xffff),
        ("cnot.b32", &[0], 1),
        ("cnot.b32", &[7], 0),
        ("lop3.b32", &[0xf0f0_f0f0, 0xcccc_cccc, 0xaaaa_aaaa, 0x96], 0x9696_9696),
        ("shl.b32", &[1, 31], 0x8000_0000),
        ("shl.b32", &[1, 32], 0),
        ("shl.b32", &[1, 0xffff_ffff], 0),
        ("shl.b64", &[1, 63], 1 << 63),
        ("shl.b16", &[3, 15], 0x8000),
        ("shr.u32", &[0x8000_0000, 32], 0),
        ("shr.s32", &[0x8000_0000, 99], 0xffff_ffff),
        ("shr.b16", &[0x8000, 15], 1),
        ("shr.s16", &[0x8000, 15], 0xffff),
        ("shf.l.wrap.b32", &[0x8000_0000, 1, 33], 3),
        ("shf.l.clamp.b32", &[0x8000_0000, 1, 33], 0x8000_0000),
        ("shf.r.wrap.b32", &[2, 1, 1], 0x8000_0001),
        ("shf.r.clamp.b32", &[2, 1, 40], 1),
        ("popc.b64", &[u64::MAX], 64),
        ("clz.b32", &[0], 32),
        ("clz.b64", &[1], 63),
        ("bfind.u32", &[0], 0xffff_ffff),
        ("bfind.u32", &[0x8000_0000], 31),
        ("bfind.s32", &[0xffff_ffff], 0xffff_ffff),
        ("bfind.s32", &[0xffff_fff0], 3),
        ("bfind.s64", &[0x100], 8),
        ("bfind.shiftamt.u32", &[0x100], 23),
        ("bfind.shiftamt.s64", &[0], 0xffff_ffff),
        ("brev.b32", &[1], 0x8000_0000),
        ("brev.b64", &[1], 1 << 63),
        ("bfe.u32", &[0xabcd_1234, 8, 8], 0x12),
        ("bfe.s32", &[0x0000_f000, 8, 8], 0xffff_fff0),
        ("bfe.u32", &[0xabcd_1234, 8, 0], 0),
        ("bfe.u32", &[0xabcd_1234, 24, 32], 0xab),
        ("bfe.s32", &[0xabcd_1234, 40, 4], 0xffff_ffff),
        ("bfe.u64", &[u64::MAX, 60, 64], 0xf),
        ("bfi.b32", &[0xff, 0, 28, 8], 0xf000_0000),
        ("bfi.b32", &[0xff, 0x1234_5678, 32, 8], 0x1234_5678),
        ("bfi.b64", &[u64::MAX, 0, 0, 64], u64::MAX),
        ("bfi.b32", &[0x5, 0xffff_ffff, 4, 4], 0xffff_ff5f),
        ("szext.wrap.u32", &[0xffff_ffff, 36], 0xf),
        ("szext.clamp.s32", &[0x8, 4], 0xffff_fff8),
        ("szext.clamp.s32", &[0x8000_0000, 40], 0x8000_0000),
        ("bmsk.clamp.b32", &[4, 100], 0xffff_fff0),
        ("bmsk.clamp.b32", &[40, 4], 0),
        ("bmsk.wrap.b32", &[36, 4], 0xf0),
        ("fns.b32", &[0b1011_0000, 0, 2], 5),
        ("fns.b32", &[0b1011_0000, 7, 0xffff_fffe], 5),
        ("fns.b32", &[0b1011_0000, 6, 0], 0xffff_ffff),
        ("fns.b32", &[1, 0xffff_ffff, 1], 0xffff_ffff),
        ("slct.u32.s32", &[1, 2, 0], 1),
        ("slct.b64.s32", &[1, 2, 0xffff_ffff], 2),
        ("slct.f32.f32", &[1, 2, 0x8000_0000], 1),
        ("slct.f32.f32", &[1, 2, 0x7fff_ffff], 2),
        ("slct.f32.f32", &[1, 2, 0x8000_0001], 2),
        ("slct.ftz.f32.f32", &[1, 2, 0x8000_0001], 1),
    ]);
}

#[test]
fn permutations_of_bytes() {
    const A: u64 = 0x3322_1100;
    const B: u64 = 0x7766_5584;
    check(&[
        ("prmt.b32", &[A, B, 0x7531], 0x7755_3311),
        ("prmt.b32", &[A, B, 0xc41c], 0xff84_11ff),
        ("prmt.b32.f4e", &[A, B, 1], 0x8433_2211),
        ("prmt.b32.b4e", &[A, B, 1], 0x6677_0011),
        ("prmt.b32.rc8", &[A, B, 2], 0x2222_2222),
        ("prmt.b32.ecl", &[A, B, 2], 0x3322_2222),
        ("prmt.b32.ecr", &[A, B, 2], 0x2222_1100),
        ("prmt.b32.rc16", &[A, B, 1], 0x3322_3322),
        ("prmt.b32.rc16", &[A, B, 2], 0x1100_1100),
    ]);
}

proptest! {
    #[test]
    fn lop3_is_its_truth_table(a: u32, b: u32, c: u32) {
        let [x, y, z] = [a, b, c].map(u64::from);
        prop_assert_eq!(eval("lop3.b32", &[x, y, z, 0x80]), u64::from(a & b & c));
        prop_assert_eq!(eval("lop3.b32", &[x, y, z, 0xfe]), u64::from(a | b | c));
        prop_assert_eq!(eval("lop3.b32", &[x, y, z, 0xca]), u64::from((a & b) | (!a & c)));
        prop_assert_eq!(eval("lop3.b32", &[x, y, z, 0x3c]), u64::from(a ^ b));
    }

    #[test]
    fn an_inserted_field_comes_out_again(a: u32, b: u32, at in 0u64..32, length in 0u64..=32) {
        let length = length.min(32 - at);
        let both = eval("bfi.b32", &[u64::from(a), u64::from(b), at, length]);
        let kept = u64::from(a) & ((1u64 << length) - 1);
        prop_assert_eq!(eval("bfe.u32", &[both, at, length]), kept);
    }

    #[test]
    fn funnel_shifts_are_wide_shifts(a: u32, b: u32, by in 0u64..=32) {
        let both = u64::from(b) << 32 | u64::from(a);
        let (a, b) = (u64::from(a), u64::from(b));
        prop_assert_eq!(eval("shf.r.clamp.b32", &[a, b, by]), both >> by & 0xffff_ffff);
        prop_assert_eq!(eval("shf.l.clamp.b32", &[a, b, by]), both << by >> 32);
    }
}
