//! Mistakes that only callers of the builder can make: facts that do not fit the signature.

use atlas_dsl::def::{DTypeRef, DimDef, ParamDef, TypeParamDef};
use atlas_dsl::ir::{Access, Loc};
use atlas_dsl::op::{BinaryOp, Predicate, Random};
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Builder, Config, DType, Diagnostics, KernelDef, Operand, Specialization};

static ROWS: KernelDef = KernelDef {
    name: "rows",
    doc: "",
    file: "",
    types: &[TypeParamDef { name: "T", allowed: &[DType::F32, DType::Bf16] }],
    dims: &[DimDef { name: "N", whole: false }, DimDef { name: "D", whole: true }],
    params: &[ParamDef::Tensor { name: "x", dtype: DTypeRef::Generic(0), dims: &[0, 1], access: Access::In }],
    tune: &[],
    grid: &[],
    requires: &[],
    build: &|_, _| Err(Diagnostics::default()),
    refused: None,
};

/// The codes and messages of a kernel begun for these facts.
fn begun(spec: &Specialization) -> Vec<String> {
    let errors = Builder::new(&ROWS, spec, &Config::default()).finish().err().unwrap_or_default();
    errors.0.iter().map(|d| d.to_string()).collect()
}

fn spec(dtype: DType, d: DimFact) -> Specialization {
    Specialization::default().with_type("T", dtype).with_dim("D", d)
}

fn builder() -> Builder {
    Builder::new(&ROWS, &spec(DType::F32, DimFact::Const(64)), &Config::default())
}

#[test]
fn facts_that_fit() {
    assert_eq!(begun(&spec(DType::Bf16, DimFact::Const(64))), [""; 0]);
}

#[test]
fn a_type_outside_the_bound() {
    let want = "error[ATL115]: type parameter `T` of `rows` cannot be i32";
    assert_eq!(begun(&spec(DType::I32, DimFact::Const(64))), [want]);
}

#[test]
fn a_dim_used_whole_that_is_no_constant() {
    let want = "error[ATL114]: dim `D` of `rows` is used whole, so it must be a constant";
    assert_eq!(begun(&spec(DType::F32, DimFact::Dynamic(8))), [want]);
}

#[test]
fn whole_numbers_stay_whole() {
    use Operand::{Literal, Poison, Whole};
    let mut b = builder();
    let mut binary = |op, x: Operand, y: Operand| b.binary(Loc::default(), op, x, y);
    assert_eq!(binary(BinaryOp::Div, Whole(6), Whole(2)), Whole(3));
    assert_eq!(binary(BinaryOp::Rem, Whole(-7), Whole(4)), Whole(-3));
    assert_eq!(binary(BinaryOp::Max, Whole(-7), Whole(4)), Whole(4));
    assert_eq!(binary(BinaryOp::Div, Literal(5.0), Literal(2.0)), Literal(2.5));
    assert_eq!(binary(BinaryOp::Div, Literal(5.0), Whole(2)), Literal(2.5));
    for (x, y) in [(Literal(f64::NAN), Literal(1.0)), (Whole(1), Literal(f64::NAN))] {
        for op in [BinaryOp::Min, BinaryOp::Max] {
            assert!(matches!(binary(op, x, y), Literal(z) if z.is_nan()));
        }
    }
    // Refused: no whole quotient, no quotient at all, out of range, no integers.
    assert_eq!(binary(BinaryOp::Div, Whole(5), Whole(2)), Poison);
    assert_eq!(binary(BinaryOp::Rem, Whole(5), Whole(0)), Poison);
    assert_eq!(binary(BinaryOp::Mul, Whole(i64::MAX), Whole(2)), Poison);
    assert_eq!(binary(BinaryOp::Rem, Literal(5.5), Literal(2.0)), Poison);
    let codes: Vec<u16> = b.finish().unwrap_err().0.iter().map(|d| d.code.0).collect();
    assert_eq!(codes, [117, 117, 117, 104]);
}

#[test]
fn numbers_that_a_type_cannot_hold_are_mistakes() {
    let mut b = builder();
    let loc = Loc::default();
    let x = b.splat(loc, 1.0, DType::I32, &[]);
    let wide = b.splat(loc, 1.0, DType::I64, &[]);
    b.binary(loc, BinaryOp::Add, x, 2_147_483_647);
    // A conversion truncates and saturates, of numbers as of tiles.
    b.cast(loc, DType::I32, 2.9);
    b.cast(loc, DType::I32, 1e20);
    b.other(loc, x, -2_147_483_648);
    b.binary(loc, BinaryOp::Add, x, 2_147_483_648_i64);
    b.binary(loc, BinaryOp::Add, x, 0.5);
    b.binary(loc, BinaryOp::Add, wide, usize::MAX);
    b.other(loc, x, f64::INFINITY);
    b.other(loc, x, wide);
    b.other(loc, Operand::Whole(1), 0.0);
    let codes: Vec<u16> = b.finish().unwrap_err().0.iter().map(|d| d.code.0).collect();
    assert_eq!(codes, [117, 117, 117, 117, 120, 104]);
}

#[test]
fn no_number_becomes_an_infinity_but_by_a_conversion() {
    let mut b = builder();
    let loc = Loc::default();
    let half = b.splat(loc, 65504.0, DType::F16, &[]);
    b.binary(loc, BinaryOp::Max, half, f64::NEG_INFINITY);
    b.cast(loc, DType::F16, 1e300);
    b.binary(loc, BinaryOp::Add, half, 70000);
    b.other(loc, half, -1e30);
    b.splat(loc, f64::from(f32::MAX), DType::Bf16, &[]);
    b.compare(loc, Predicate::Lt, 1e39, 0.0);
    let messages: Vec<String> = b.finish().unwrap_err().0.iter().map(|d| d.to_string()).collect();
    assert_eq!(messages.len(), 4, "{messages:?}");
    let want = "error[ATL117]: the number 70000 meets f16, but is beyond its largest number, 65504; infinity is `f32::INFINITY`";
    assert_eq!(messages[0], want);
}

#[test]
fn seeds_and_indices_of_random_numbers() {
    use Operand::{Literal, Poison, Whole};
    let mut b = builder();
    let loc = Loc::default();
    let index = b.iota(loc, &[8], 0);
    let floats = b.zeros(loc, DType::F32, &[8]);
    for seed in [Whole(7), Literal(7.0), Whole(i64::MIN)] {
        assert!(matches!(b.random(loc, Random::Normal, seed, index), Operand::Value(_)), "{seed:?}");
    }
    for (seed, index) in [
        (Literal(0.5), index),
        (Literal(1e19), index),
        (index, index),
        (Whole(1), Whole(2)),
        (Whole(1), floats),
        (floats, index),
        (Poison, index),
        (Whole(1), Poison),
    ] {
        assert_eq!(b.random(loc, Random::Bits, seed, index), Poison);
    }
    let errors = b.finish().unwrap_err();
    let messages: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "error[ATL117]: the seed of `random_bits` is 0.5, but it has to be a whole number below 2^53, or a const of i64",
            "error[ATL117]: the seed of `random_bits` is 1e19, but it has to be a whole number of i64: of a const, take the bits, `SEED as i64`",
            "error[ATL104]: the seed of `random_bits` is a scalar of i32 or i64, found i32[8]",
            "error[ATL104]: the index of `random_bits` is a tile or scalar, found a number",
            "error[ATL104]: the index of `random_bits` is of i32 or i64, found f32[8]",
            "error[ATL104]: the seed of `random_bits` is a scalar of i32 or i64, found f32[8]",
        ]
    );
}
