//! The programs of every instruction form: enough of them, well formed, and comparisons that can fail.

mod running;

use atlas_sim::alu::{Arithmetic, Bound, lookup};
use atlas_sim::forms::{Agreement, Case, programs};
use atlas_sim::syntax::ast::Type;
use std::collections::BTreeSet;
use std::sync::LazyLock;

static CASES: LazyLock<Vec<Case>> = LazyLock::new(programs);

#[test]
fn every_form_has_a_program_of_its_own() {
    let cases = &*CASES;
    assert!(cases.len() >= 1000, "{} programs", cases.len());
    let names: BTreeSet<&str> = cases.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names.len(), cases.len());
    for expected in
        ["add.rn.ftz.sat.f32", "lop3.b32 0x96", "cvt.rn.satfinite.e4m3x2.f32", "setp.geu.ftz.f16", "addc.u32"]
    {
        assert!(names.contains(expected), "{expected}");
    }
    for case in cases {
        assert!(case.count() >= 512, "{}", case.name);
        assert!(case.inputs.iter().all(|i| i.values.len() == case.count()), "{}", case.name);
        assert!(case.ptx.contains(case.name.split(' ').next().unwrap()), "{}", case.name);
    }
}

#[test]
fn inputs_are_the_same_every_time() {
    for (one, other) in CASES.iter().zip(programs()).step_by(50) {
        assert_eq!((&one.inputs, &one.expected), (&other.inputs, &other.expected), "{}", one.name);
    }
}

#[test]
fn results_differ_from_element_to_element() {
    for case in &*CASES {
        let distinct: BTreeSet<u64> = case.expected.iter().copied().collect();
        // A truth table of zeros makes zeros.
        assert!(distinct.len() > 1 || case.name == "lop3.b32 0x0", "{} makes {distinct:x?} only", case.name);
    }
}

#[test]
fn every_operand_meets_its_edges() {
    for (name, nan) in [("add.f32", 0x7fc0_0001), ("min.f64", 0x7ff8_0000_0000_0001), ("fma.rn.f32", 0x7fc0_0001)] {
        let case = CASES.iter().find(|c| c.name == name).unwrap();
        assert!(case.inputs.iter().all(|input| input.values.contains(&nan)), "{name}");
    }
    let add = CASES.iter().find(|c| c.name == "add.f32").unwrap();
    let rows: BTreeSet<(u64, u64)> = (0..256).map(|i| (add.inputs[0].values[i], add.inputs[1].values[i])).collect();
    assert_eq!(rows.len(), 256);
}

#[test]
fn registers_may_be_wider_than_the_type() {
    const GARBAGE: u64 = 0xa5a5_5a5a_5aa5_a55a;
    let above = |value: u64, bytes: u32| if bytes < 8 { value | GARBAGE << (8 * bytes) } else { value };
    let mut conversions = 0;
    for case in CASES.iter().filter(|c| c.name.starts_with("cvt.")) {
        let words: Vec<&str> = case.name.split('.').skip(1).collect();
        let form = lookup("cvt", &words, Arithmetic::Ieee).unwrap();
        for (row, expected) in case.expected.iter().enumerate() {
            let operand = |i: usize| case.inputs.get(i).map_or(0, |input| above(input.values[row], input.bytes));
            assert_eq!((form.f)(operand(0), operand(1), operand(2), 0), *expected, "{} row {row}", case.name);
        }
        conversions += 1;
    }
    assert!(conversions > 800);
}

#[test]
fn results_are_zero_above_their_width() {
    for case in &*CASES {
        let above = |value: &&u64| case.result_bytes < 8 && **value >> (8 * case.result_bytes) != 0;
        assert_eq!(case.expected.iter().find(above), None, "{}", case.name);
    }
}

#[test]
fn disagreements_are_found() {
    let case = CASES.iter().find(|c| c.name == "add.f32").unwrap();
    let mut output: Vec<u8> = case.expected.iter().flat_map(|v| (*v as u32).to_le_bytes()).collect();
    assert_eq!(case.disagreements(&output), []);
    output[4 * 7] ^= 1;
    let wrong = case.disagreements(&output);
    assert_eq!(wrong.iter().map(|(i, ..)| *i).collect::<Vec<_>>(), [7]);
    assert_eq!(case.disagreements(&output[..4 * 100]).len(), 1 + case.count() - 100);
}

#[test]
fn agreement_is_as_wide_as_its_bound() {
    let ulp = Agreement::Within(Bound::Ulp(2.0), Type::F32);
    assert!(ulp.holds(0x3f80_0000, 0x3f80_0002) && !ulp.holds(0x3f80_0000, 0x3f80_0008));
    assert!(ulp.holds(0x7fff_ffff, 0x7fc0_0000) && !ulp.holds(0x7fff_ffff, 0) && !ulp.holds(0, 0x7fff_ffff));
    assert!(ulp.holds(0, 0x8000_0000) && !ulp.holds(0x3f80_0000, 0xbf80_0000));
    let relative = Agreement::Within(Bound::Relative(f64::exp2(-11.0)), Type::F16x2);
    assert!(relative.holds(0x3c00_3c00, 0x3c00_3c01) && !relative.holds(0x3c00_3c00, 0x3c08_3c00));
    let absolute = Agreement::Within(Bound::Absolute(f64::exp2(-20.0)), Type::F32);
    assert!(absolute.holds(0x3500_0000, 0) && !absolute.holds(0x3600_0000, 0));
    let numbers = Agreement::Numbers(Type::F64);
    assert!(numbers.holds(0x7ff8_0000_0000_0000, 0xfff0_0000_0000_0001) && !numbers.holds(0, 1 << 63));
    assert!(!Agreement::Bits.holds(0x7fff_ffff, 0x7fc0_0000));
}
