//! The ring: the order of a sum does not change it, and lost or doubled terms do.

use super::{call, form_in};
use atlas_sim::alu::{Arithmetic, atom};
use atlas_sim::program::AtomOp;
use atlas_sim::syntax::ast::Type;
use proptest::prelude::*;

fn eval(spelling: &str, operands: &[u64]) -> u64 {
    call(&form_in(spelling, Arithmetic::Exact).unwrap_or_else(|| panic!("no form {spelling}")), operands)
}

proptest! {
    #[test]
    fn any_order_of_a_dot_product_is_the_same(
        pairs in prop::collection::vec((any::<u16>(), any::<u16>()), 2..40), split in 1usize..39,
    ) {
        let wide = |x: u16| eval("cvt.f32.bf16", &[x.into()]);
        let dot = |pairs: &[(u16, u16)]| {
            pairs.iter().fold(0, |sum, (a, b)| eval("fma.rn.f32", &[wide(*a), wide(*b), sum]))
        };
        let whole = dot(&pairs);
        let mut reversed = pairs.clone();
        reversed.reverse();
        prop_assert_eq!(dot(&reversed), whole);
        let (left, right) = pairs.split_at(split.min(pairs.len()));
        prop_assert_eq!(eval("add.rn.ftz.f32", &[dot(left), dot(right)]), whole);
        // A term lost shows, unless it is nothing in the ring.
        let (a, b) = pairs[0];
        prop_assert_eq!(dot(&pairs[1..]) == whole, a.wrapping_mul(b) == 0);
    }

    #[test]
    fn ring_laws(a: u32, b: u32, c: u32) {
        let [a, b, c] = [a, b, c].map(u64::from);
        for ty in ["f32", "f16x2", "bf16x2"] {
            let add = |x, y| eval(&format!("add.{ty}"), &[x, y]);
            let mul = |x, y| eval(&format!("mul.{ty}"), &[x, y]);
            prop_assert_eq!(mul(a, add(b, c)), add(mul(a, b), mul(a, c)));
            prop_assert_eq!(eval(&format!("sub.{ty}"), &[a, b]), add(a, eval(&format!("neg.{ty}"), &[b])));
            prop_assert_eq!(eval(&format!("fma.rn.{ty}"), &[a, b, c]), add(mul(a, b), c));
        }
    }

    #[test]
    fn widening_by_shifts_and_by_conversion_agree(a: u16, b: u16) {
        let shifted = |x: u16| eval("shl.b32", &[x.into(), 16]);
        prop_assert_eq!(shifted(a), eval("cvt.f32.bf16", &[a.into()]));
        let packed = eval("cvt.rn.bf16x2.f32", &[shifted(a), shifted(b)]);
        prop_assert_eq!(packed, u64::from(a) << 16 | u64::from(b));
        prop_assert_eq!(eval("cvt.rn.bf16.f32", &[shifted(a)]), u64::from(a));
    }
}

#[test]
fn integers_and_moves_are_as_ever() {
    assert_eq!(eval("add.u32", &[0xffff, 1]), 0x1_0000);
    assert_eq!(eval("max.f32", &[0x3f80_0000, 0xbf80_0000]), 0x3f80_0000);
    assert_eq!(eval("mov.f32", &[7]), 7);
    assert_eq!(eval("cvt.rna.tf32.f32", &[0x1234_5678]), 0x1234_5678);
    assert_eq!(eval("cvt.s64.s32", &[0xffff_ffff]), u64::MAX);
}

#[test]
fn what_has_no_meaning_in_the_ring() {
    let without = [
        "ex2.approx.f32",
        "rcp.rn.f32",
        "abs.f32",
        "div.rn.f32",
        "sqrt.rn.f32",
        "rsqrt.approx.ftz.f32",
        "tanh.approx.bf16x2",
        "add.f64",
        "cvt.f64.f32",
        "cvt.rzi.s32.f32",
        "cvt.rn.f32.s32",
        "cvt.rni.f32.f32",
        "cvt.rn.satfinite.e4m3x2.f32",
        "add.sat.f32",
        "add.sat.f32.bf16",
        "fma.rn.relu.f16",
    ];
    for spelling in without {
        assert!(form_in(spelling, Arithmetic::Exact).is_none(), "{spelling}");
    }
    assert!(form_in("add.rn.frob.f32", Arithmetic::Exact).is_none());
}

#[test]
fn atomics_add_in_the_ring() {
    let add = atom(AtomOp::Add, Type::F32, Arithmetic::Exact).unwrap();
    assert_eq!(add(0xffff_ffff, 0x0002_0001, 0, 0), 0x0001_0000);
    let add = atom(AtomOp::Add, Type::Bf16, Arithmetic::Exact).unwrap();
    assert_eq!(add(0xffff, 2, 0, 0), 1);
}
