//! Comparisons and tests of class.

use atlas_sim::alu::{compare, testp};
use atlas_sim::syntax::ast::Type;

const NAN: u64 = 0x7fc0_0000;
const MINUS_ONE: u64 = 0xbf80_0000;

#[test]
fn known_values() {
    let table: &[(&str, Type, u64, u64, bool)] = &[
        ("eq", Type::F32, 0, 0x8000_0000, true),
        ("ne", Type::F32, NAN, NAN, false),
        ("neu", Type::F32, NAN, NAN, true),
        ("equ", Type::F32, NAN, 0, true),
        ("lt", Type::F32, MINUS_ONE, 0x8000_0000, true),
        ("lt", Type::F32, NAN, 0, false),
        ("ltu", Type::F32, NAN, 0, true),
        ("ge", Type::F32, 0x7f80_0000, 0x7f7f_ffff, true),
        ("num", Type::F32, 0, 1, true),
        ("num", Type::F32, 0, NAN, false),
        ("nan", Type::F32, 0, NAN, true),
        ("gt", Type::F32, 1, 0, true),
        ("lt", Type::F64, 0x8000_0000_0000_0001, 0, true),
        ("lt", Type::F16, 0xbc00, 0x3c00, true),
        ("gt", Type::Bf16, 0x4000, 0x3f80, true),
        ("lt", Type::S32, 0xffff_ffff, 0, true),
        ("lt", Type::U32, 0xffff_ffff, 0, false),
        ("hi", Type::U32, 0xffff_ffff, 0, true),
        ("ls", Type::U64, 5, 5, true),
        ("ge", Type::S16, 0x1_8000, 0x7fff, false),
        ("eq", Type::B16, 0x1_2345, 0x2345, true),
    ];
    for (cmp, ty, a, b, expected) in table {
        let f = compare(cmp, *ty, false).unwrap_or_else(|| panic!("no {cmp} of {ty:?}"));
        assert_eq!(f(*a, *b), *expected, "{cmp} {ty:?} {a:x} {b:x}");
    }
    assert!(compare("gt", Type::F32, true).is_some_and(|f| !f(1, 0)));
}

#[test]
fn a_comparison_and_its_unordered_complement_differ_everywhere() {
    let values = [0, 0x8000_0000, 1, MINUS_ONE, 0x3f80_0000, 0x7f80_0000, 0xff80_0000, NAN, 0xffff_ffff];
    let complements =
        [("eq", "neu"), ("ne", "equ"), ("lt", "geu"), ("le", "gtu"), ("gt", "leu"), ("ge", "ltu"), ("num", "nan")];
    for (one, other) in complements {
        let [f, g] = [one, other].map(|cmp| compare(cmp, Type::F32, false).unwrap());
        for a in values {
            for b in values {
                assert_ne!(f(a, b), g(a, b), "{one} {other} {a:x} {b:x}");
            }
        }
    }
}

#[test]
fn classes() {
    let class = |kind, bits| testp(kind, Type::F32).unwrap()(bits, 0);
    assert!(class("finite", 0x7f7f_ffff) && !class("finite", 0x7f80_0000) && !class("finite", NAN));
    assert!(class("infinite", 0xff80_0000) && !class("infinite", NAN));
    assert!(class("number", 0xff80_0000) && !class("number", NAN) && class("notanumber", 0xff80_0001));
    assert!(class("subnormal", 1) && !class("subnormal", 0) && !class("subnormal", 0x0080_0000));
    assert!(class("normal", 0x0080_0000) && !class("normal", 1) && !class("normal", 0x7f80_0000));
    // Zeros are normal numbers to the ISA.
    assert!(class("normal", 0) && class("normal", 0x8000_0000) && !class("normal", NAN));
    let double = |kind, bits| testp(kind, Type::F64).unwrap()(bits, 0);
    assert!(double("normal", 1 << 63) && !double("normal", 1) && !double("subnormal", 1 << 63));
    assert!(testp("odd", Type::F32).is_none() && testp("finite", Type::F16).is_none());
}

#[test]
fn what_the_isa_has_not() {
    let illegal: &[(&str, Type, bool)] = &[
        ("lt", Type::B32, false),
        ("lo", Type::S32, false),
        ("ltu", Type::U32, false),
        ("hi", Type::F32, false),
        ("nan", Type::S32, false),
        ("eq", Type::F64, true),
        ("eq", Type::U32, true),
        ("eq", Type::Bf16, true),
        ("eq", Type::F16x2, false),
        ("eq", Type::U8, false),
        ("like", Type::U32, false),
    ];
    for (cmp, ty, ftz) in illegal {
        assert!(compare(cmp, *ty, *ftz).is_none(), "{cmp} {ty:?} {ftz}");
    }
}
