//! Integer arithmetic: known values, and identities against wide integers.

use super::{check, eval};
use proptest::prelude::*;

#[test]
fn known_values() {
    check(&[
        ("add.u16", &[0xffff, 2], 1),
        ("add.s32", &[0x7fff_ffff, 1], 0x8000_0000),
        ("add.u64", &[u64::MAX, 1], 0),
        ("add.sat.s32", &[0x7fff_ffff, 1], 0x7fff_ffff),
        ("add.sat.s32", &[0x8000_0000, 0xffff_ffff], 0x8000_0000),
        ("sub.sat.s32", &[0x8000_0000, 1], 0x8000_0000),
        ("sub.s16", &[0, 1], 0xffff),
        ("add.u16x2", &[0xffff_ffff, 0x0001_0002], 0x0000_0001),
        ("min.s16x2", &[0xffff_0001, 0x0001_ffff], 0xffff_ffff),
        ("max.u16x2", &[0xffff_0001, 0x0001_ffff], 0xffff_ffff),
        ("max.relu.s16x2", &[0xffff_0005, 0xfffe_0003], 0x0000_0005),
        ("min.relu.s32", &[0xffff_fff0, 5], 0),
        ("mul.lo.s32", &[0xffff_ffff, 7], 0xffff_fff9),
        ("mul.hi.s32", &[0xffff_ffff, 7], 0xffff_ffff),
        ("mul.hi.u32", &[0xffff_ffff, 7], 6),
        ("mul.hi.u64", &[u64::MAX, u64::MAX], u64::MAX - 1),
        ("mul.hi.s64", &[u64::MAX, 5], u64::MAX),
        ("mul.wide.s16", &[0xffff, 0x7fff], 0xffff_8001),
        ("mul.wide.u16", &[0xffff, 0xffff], 0xfffe_0001),
        ("mul.wide.s32", &[0xffff_ffff, 3], (-3i64) as u64),
        ("mad.wide.u32", &[0xffff_ffff, 0xffff_ffff, u64::MAX], 0xffff_fffe_0000_0000),
        ("mad.lo.u16", &[0x100, 0x100, 3], 3),
        ("mad.hi.sat.s32", &[0x7fff_ffff, 0x7fff_ffff, 0x7fff_ffff], 0x7fff_ffff),
        ("mul24.lo.u32", &[0xff00_0003, 0xff00_0005], 15),
        ("mul24.hi.s32", &[0x00ff_ffff, 0x0010_0000], 0xffff_fff0),
        ("mad24.hi.sat.s32", &[0x007f_ffff, 0x007f_ffff, 0x7fff_ffff], 0x7fff_ffff),
        ("sad.s32", &[0xffff_fffe, 3, 10], 15),
        ("sad.u32", &[3, 0xffff_fffe, 10], 5),
        ("div.s32", &[0xffff_fff9, 2], 0xffff_fffd),
        ("div.s32", &[0x8000_0000, 0xffff_ffff], 0x8000_0000),
        ("div.u32", &[7, 0], 0xffff_ffff),
        ("rem.s32", &[0xffff_fff9, 2], 0xffff_ffff),
        ("rem.u64", &[10, 4], 2),
        ("rem.s32", &[10, 0], 0xffff_ffff),
        ("abs.s16", &[0x8000], 0x8000),
        ("abs.s64", &[u64::MAX], 1),
        ("neg.s32", &[1], 0xffff_ffff),
        ("min.s16", &[0xffff, 1], 0xffff),
        ("min.u16", &[0xffff, 1], 1),
        ("dp4a.s32.s32", &[0xff01_ff01, 0x0203_0405, 10], 10 - 2 + 3 - 4 + 5),
        ("dp4a.u32.s32", &[0xff00_0001, 0xff00_0002, 0], (-253i32) as u32 as u64),
        ("dp2a.lo.u32.u32", &[0x0003_0002, 0x0706_0504, 1], 1 + 8 + 15),
        ("dp2a.hi.s32.u32", &[0xffff_0002, 0x0706_0504, 1], 1 + 12 - 7),
    ]);
}

proptest! {
    #[test]
    fn halves_of_a_product_make_the_whole(a: u64, b: u64) {
        let whole = u128::from(a) * u128::from(b);
        let parts = u128::from(eval("mul.hi.u64", &[a, b])) << 64 | u128::from(eval("mul.lo.u64", &[a, b]));
        prop_assert_eq!(whole, parts);
    }

    #[test]
    fn signed_products(a: i32, b: i32, c: i64) {
        let bits = |x: i32| u64::from(x as u32);
        let whole = i64::from(a) * i64::from(b);
        prop_assert_eq!(eval("mul.wide.s32", &[bits(a), bits(b)]), whole as u64);
        prop_assert_eq!(eval("mad.wide.s32", &[bits(a), bits(b), c as u64]), whole.wrapping_add(c) as u64);
        prop_assert_eq!(eval("mul.hi.s32", &[bits(a), bits(b)]), u64::from((whole >> 32) as u32));
    }

    #[test]
    fn quotient_and_remainder(a: i64, b: i64) {
        prop_assume!(b != 0);
        let q = eval("div.s64", &[a as u64, b as u64]);
        let r = eval("rem.s64", &[a as u64, b as u64]);
        prop_assert_eq!(q.wrapping_mul(b as u64).wrapping_add(r), a as u64);
    }

    #[test]
    fn high_bits_of_wide_registers_do_not_matter(a: u64, b: u64) {
        for name in ["add.u32", "sub.s16", "min.s16", "max.u32", "mul.lo.s32", "mul.hi.u16", "div.u16", "sad.s16"] {
            let n = usize::from(super::form(name).unwrap().sources);
            let mask = if name.ends_with("16") { 0xffff } else { 0xffff_ffff };
            let (wide, narrow) = ([a, b, a], [a & mask, b & mask, a & mask]);
            prop_assert_eq!(eval(name, &wide[..n]), eval(name, &narrow[..n]), "{}", name);
        }
    }
}
