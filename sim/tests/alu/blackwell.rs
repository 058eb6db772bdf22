//! What targets from `sm_100` on have besides: pairs of singles, and singles with 16-bit floats widened on the way.

use super::{Known, call, check, eval, f32_bits, form, form_in, to_f32};
use atlas_sim::alu::Arithmetic;
use atlas_sim::syntax::ast::Type;
use proptest::prelude::*;

const ONE: u64 = 0x3f80_0000;
const MINUS: u64 = 0x8000_0000;
const INF: u64 = 0x7f80_0000;
const NAN: u64 = 0x7fff_ffff;
const MAX: u64 = 0x7f7f_ffff;

/// A pair with this low and this high half.
const fn pair(low: u64, high: u64) -> u64 {
    high << 32 | low
}

const PAIRS: &[Known] = &[
    ("add.rn.f32x2", &[pair(ONE, ONE | MINUS), pair(ONE, 0x4040_0000)], pair(0x4000_0000, 0x4000_0000)),
    ("sub.f32x2", &[pair(0x4040_0000, 0), pair(ONE, ONE)], pair(0x4000_0000, ONE | MINUS)),
    ("mul.rn.f32x2", &[pair(0x4000_0000, 0x4040_0000), pair(0x4040_0000, MINUS)], pair(0x40c0_0000, MINUS)),
    ("fma.rn.f32x2", &[pair(ONE, 0x4000_0000), pair(ONE, 0x4000_0000), pair(ONE, 0)], pair(0x4000_0000, 0x4080_0000)),
    // One half is a NaN, of any payload, and the other stays a number.
    ("add.f32x2", &[pair(0xff80_0001, ONE), pair(ONE, ONE)], pair(NAN, 0x4000_0000)),
    ("mul.f32x2", &[pair(ONE, 0), pair(ONE, INF)], pair(ONE, NAN)),
    ("fma.rn.f32x2", &[pair(INF, ONE), pair(0, ONE), pair(ONE, 0x7fc0_0001)], pair(NAN, NAN)),
    ("sub.f32x2", &[pair(INF, INF), pair(INF, INF | MINUS)], pair(NAN, INF)),
    // Signs of zeros.
    ("add.rn.f32x2", &[pair(MINUS, MINUS), pair(MINUS, 0)], pair(MINUS, 0)),
    ("add.rm.f32x2", &[pair(ONE, 0), pair(ONE | MINUS, MINUS)], pair(MINUS, MINUS)),
    ("sub.rn.f32x2", &[pair(MINUS, 0), pair(0, 0)], pair(MINUS, 0)),
    ("fma.rn.f32x2", &[pair(MINUS, 0), pair(ONE, ONE), pair(MINUS, MINUS)], pair(MINUS, 0)),
    // Each half is rounded, once, and none carries into the other.
    ("add.rp.f32x2", &[pair(ONE, ONE | MINUS), pair(1, 1 | MINUS)], pair(ONE + 1, ONE | MINUS)),
    ("add.rm.f32x2", &[pair(ONE, ONE | MINUS), pair(1, 1 | MINUS)], pair(ONE, (ONE + 1) | MINUS)),
    ("mul.rz.f32x2", &[pair(MAX, MAX | MINUS), pair(MAX, MAX)], pair(MAX, MAX | MINUS)),
    ("mul.rn.f32x2", &[pair(MAX, MAX | MINUS), pair(MAX, MAX)], pair(INF, INF | MINUS)),
    (
        "fma.rn.f32x2",
        &[pair(0x3f80_0001, 0x3f80_0001), pair(0x3f80_0001, ONE), pair(0xbf80_0002, 0xbf80_0001)],
        pair(0x2880_0000, 0),
    ),
    // Subnormal numbers stay, and `.ftz` flushes each half.
    ("add.f32x2", &[pair(1, 2), pair(1, 2)], pair(2, 4)),
    ("add.ftz.f32x2", &[pair(1, ONE), pair(1, 2)], pair(0, ONE)),
    ("mul.rn.ftz.f32x2", &[pair(0x80ff_ffff, ONE), pair(0x3f00_0000, ONE)], pair(MINUS, ONE)),
];

#[test]
fn known_pairs() {
    check(PAIRS);
}

#[test]
fn known_mixed() {
    check(&[
        ("add.rn.f32.bf16", &[0x3f80, ONE], 0x4000_0000),
        ("add.f32.f16", &[0x3c00, ONE], 0x4000_0000),
        ("sub.rn.f32.bf16", &[0x3f80, 0x4000_0000], ONE | MINUS),
        ("sub.f32.f16", &[0x4000, ONE], ONE),
        ("fma.rn.f32.bf16", &[0x4000, 0x4040, ONE], 0x40e0_0000),
        ("fma.rn.f32.f16", &[0x4000, 0x4200, ONE], 0x40e0_0000),
        // The same bits are another number in the other format.
        ("add.rn.f32.bf16", &[0x3c00, 0], 0x3c00_0000),
        ("add.rn.f32.f16", &[0x3c00, 0], ONE),
        // A subnormal half is a normal single; a subnormal brain float is a subnormal one, and stays.
        ("add.rn.f32.f16", &[0x0001, 0], 0x3380_0000),
        ("add.rn.f32.bf16", &[0x0001, 0], 0x0001_0000),
        ("fma.rn.f32.bf16", &[0x0001, 0x3f80, 0x8000_0001], 0x0000_ffff),
        // NaNs and infinities.
        ("add.rn.f32.bf16", &[0xff81, ONE], NAN),
        ("add.rn.f32.f16", &[0x7c01, ONE], NAN),
        ("add.rn.f32.bf16", &[0x7f80, INF | MINUS], NAN),
        ("sub.rn.f32.f16", &[0xfc00, 0], INF | MINUS),
        ("fma.rn.f32.bf16", &[0x7f80, 0, ONE], NAN),
        ("fma.rn.f32.f16", &[0x3c00, 0x3c00, 0x7fc0_0001], NAN),
        // Signs of zeros.
        ("add.rn.f32.bf16", &[0x8000, MINUS], MINUS),
        ("add.rn.f32.bf16", &[0x8000, 0], 0),
        ("add.rm.f32.f16", &[0x8000, 0], MINUS),
        ("sub.rn.f32.bf16", &[0x8000, 0], MINUS),
        ("fma.rn.f32.f16", &[0x8000, 0x3c00, MINUS], MINUS),
        // Rounded to a single, not to 16 bits, and in the direction that is named.
        ("add.rn.f32.bf16", &[0x3f80, 0x3300_0000], ONE),
        ("add.rp.f32.bf16", &[0x3f80, 0x3300_0000], ONE + 1),
        ("add.rz.f32.f16", &[0x3c00, 0xb300_0000], ONE - 1),
        ("sub.rm.f32.f16", &[0x3c00, 0x0000_0001], ONE - 1),
        ("sub.rp.f32.f16", &[0x3c00, 0x0000_0001], ONE),
        ("fma.rz.f32.bf16", &[0x7f7f, 0x7f7f, 0], MAX),
        ("fma.rm.f32.f16", &[0x3c00, 0x3c00, 1], ONE),
        ("fma.rp.f32.f16", &[0x3c00, 0x3c00, 1], ONE + 1),
        // Saturated.
        ("add.rn.sat.f32.bf16", &[0x3f80, ONE], ONE),
        ("sub.sat.f32.f16", &[0, ONE], 0),
        ("fma.rn.sat.f32.bf16", &[0x7fc0, 0x3f80, ONE], 0),
        ("add.rz.sat.f32.f16", &[0x3800, 0], 0x3f00_0000),
    ]);
}

#[test]
fn operands_have_their_types() {
    for (spelling, sources) in [
        ("fma.rn.f32x2", &[Type::F32x2; 3][..]),
        ("sub.f32x2", &[Type::F32x2; 2]),
        ("add.rn.f32.bf16", &[Type::Bf16, Type::F32]),
        ("sub.f32.f16", &[Type::F16, Type::F32]),
        ("fma.rz.sat.f32.f16", &[Type::F16, Type::F16, Type::F32]),
    ] {
        for arithmetic in [Arithmetic::Ieee, Arithmetic::Exact] {
            let Some(form) = form_in(spelling, arithmetic) else {
                assert!(arithmetic == Arithmetic::Exact && spelling.contains("sat"), "{spelling}");
                continue;
            };
            assert_eq!(&form.src[..usize::from(form.sources)], sources, "{spelling}");
            assert_eq!(form.dst, if spelling.ends_with("x2") { Type::F32x2 } else { Type::F32 }, "{spelling}");
        }
    }
}

/// As ptxas 13.0 has them.
#[test]
fn only_these_exist() {
    for rounding in ["", ".rn", ".rz", ".rm", ".rp"] {
        for flush in ["", ".ftz"] {
            for opcode in ["add", "sub", "mul", "fma"] {
                let exists = opcode != "fma" || !rounding.is_empty();
                let spelling = format!("{opcode}{rounding}{flush}.f32x2");
                assert_eq!(form(&spelling).is_some(), exists, "{spelling}");
                for ty in ["f16", "bf16"] {
                    for clamp in ["", ".sat"] {
                        let spelling = format!("{opcode}{rounding}{flush}{clamp}.f32.{ty}");
                        assert_eq!(
                            form(&spelling).is_some(),
                            exists && flush.is_empty() && opcode != "mul",
                            "{spelling}"
                        );
                    }
                }
            }
        }
    }
    for spelling in [
        "add.rn.sat.f32x2",
        "add.rn.relu.f32x2",
        "mad.rn.f32x2",
        "div.rn.f32x2",
        "rcp.rn.f32x2",
        "min.f32x2",
        "neg.f32x2",
        "abs.f32x2",
        "ex2.approx.f32x2",
        "fma.rn.relu.f32.bf16",
        "mad.rn.f32.bf16",
        "add.rn.bf16.f32",
        "add.rn.f32.f32",
        "add.rn.f32.f64",
        "add.rn.f32.f16x2",
        "add.rn.f64.f32",
        "add.rn.f32.bf16.f32",
        "fma.rn.f32x2.bf16",
    ] {
        assert!(form(spelling).is_none(), "{spelling} has a form");
    }
}

/// Bits of singles: any, and those that are near one another or special.
fn single() -> impl Strategy<Value = u64> {
    let near = (0x3f00_0000u32..0x4080_0000, any::<bool>()).prop_map(|(x, minus)| x | u32::from(minus) << 31);
    let edges = vec![0, 0x8000_0000, 1, 0x807f_ffff, 0x0080_0000, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000, 0x7f80_0001];
    prop_oneof![any::<u32>(), near, prop::sample::select(edges)].prop_map(u64::from)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn pairs_are_two_singles(low in [single(), single(), single()], high in [single(), single(), single()]) {
        let both: Vec<u64> = low.iter().zip(high).map(|(low, high)| pair(*low, high)).collect();
        for arithmetic in [Arithmetic::Ieee, Arithmetic::Exact] {
            for opcode in ["add", "sub", "mul", "fma.rn", "add.rz", "sub.rm", "mul.rp", "fma.rz", "add.ftz", "fma.rn.ftz"] {
                let form = |ty: &str| form_in(&format!("{opcode}.{ty}"), arithmetic).unwrap();
                let (one, two) = (form("f32"), form("f32x2"));
                prop_assert_eq!(one.sources, two.sources);
                let count = usize::from(one.sources);
                let expected = pair(call(&one, &low[..count]), call(&one, &high[..count]));
                prop_assert_eq!(call(&two, &both[..count]), expected, "{} {:?}", opcode, arithmetic);
            }
        }
    }

    #[test]
    fn mixed_is_a_conversion_and_a_sum_of_singles(a: u16, b: u16, c in single()) {
        for arithmetic in [Arithmetic::Ieee, Arithmetic::Exact] {
            let call = |spelling: &str, operands: &[u64]| call(&form_in(spelling, arithmetic).unwrap(), operands);
            for ty in ["f16", "bf16"] {
                let wide = [a, b].map(|x| call(&format!("cvt.f32.{ty}"), &[x.into()]));
                for round in ["rn", "rz", "rm", "rp"] {
                    for opcode in ["add", "sub"] {
                        let mixed = call(&format!("{opcode}.{round}.f32.{ty}"), &[a.into(), c]);
                        prop_assert_eq!(mixed, call(&format!("{opcode}.{round}.f32"), &[wide[0], c]), "{} {}", opcode, ty);
                    }
                    let mixed = call(&format!("fma.{round}.f32.{ty}"), &[a.into(), b.into(), c]);
                    prop_assert_eq!(mixed, call(&format!("fma.{round}.f32"), &[wide[0], wide[1], c]), "fma {}", ty);
                }
            }
        }
    }

    /// Against the host's own arithmetic, so that not everything rests on the other forms.
    #[test]
    fn as_the_host_computes_them(a: u16, b: u16, c: f32) {
        let number = |x: f32| if x.is_nan() { NAN } else { f32_bits(x) };
        let [x, y] = [a, b].map(|x| half::bf16::from_bits(x).to_f32());
        prop_assert_eq!(eval("add.rn.f32.bf16", &[a.into(), f32_bits(c)]), number(x + c));
        prop_assert_eq!(eval("sub.rn.f32.bf16", &[a.into(), f32_bits(c)]), number(x - c));
        prop_assert_eq!(eval("fma.rn.f32.bf16", &[a.into(), b.into(), f32_bits(c)]), number(x.mul_add(y, c)));
        let [x, y] = [a, b].map(|x| half::f16::from_bits(x).to_f32());
        prop_assert_eq!(eval("add.rn.f32.f16", &[a.into(), f32_bits(c)]), number(x + c));
        prop_assert_eq!(eval("fma.rn.f32.f16", &[a.into(), b.into(), f32_bits(c)]), number(x.mul_add(y, c)));
        let [p, q, r] = [pair(f32_bits(x), f32_bits(c)), pair(f32_bits(c), f32_bits(y)), pair(f32_bits(y), f32_bits(x))];
        let two = eval("fma.rn.f32x2", &[p, q, r]);
        prop_assert_eq!(two & 0xffff_ffff, number(x.mul_add(c, y)));
        prop_assert_eq!(two >> 32, number(c.mul_add(y, x)));
        prop_assert!(to_f32(two).is_nan() == x.mul_add(c, y).is_nan());
    }
}
