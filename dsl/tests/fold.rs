//! `fold` against the interpreter: an exact answer equals the interpreter's, and a finite one is finite there.

use atlas_dsl::fold::{self, Known};
use atlas_dsl::op::{BinaryOp, Predicate, UnaryOp};
use atlas_dsl::rounding::{to_bf16, to_f16};
use atlas_dsl::{DType, parse_kernel, verify};
use atlas_tile_interp::{Arg, Mode, TensorView, TensorViewMut, run};
use half::{bf16, f16};
use proptest::prelude::*;

const NUMBERS: [DType; 6] = [DType::I32, DType::I64, DType::F16, DType::Bf16, DType::F32, DType::F64];
/// The types without arithmetic.
const SMALL: [DType; 6] = [DType::I8, DType::U8, DType::I16, DType::U16, DType::F8E4M3, DType::F8E5M2];

fn bytes_of(dtype: DType, x: f64) -> Vec<u8> {
    match dtype {
        DType::F16 => to_f16(x).to_ne_bytes().to_vec(),
        DType::Bf16 => to_bf16(x).to_ne_bytes().to_vec(),
        DType::F32 => (x as f32).to_ne_bytes().to_vec(),
        DType::F64 => x.to_ne_bytes().to_vec(),
        DType::I32 => (x as i32).to_ne_bytes().to_vec(),
        DType::I64 => (x as i64).to_ne_bytes().to_vec(),
        DType::I8 => (x as i8).to_ne_bytes().to_vec(),
        DType::U8 => vec![x as u8],
        DType::F8E4M3 | DType::F8E5M2 => vec![dtype.fp8().unwrap().encode(x)],
        DType::I16 => (x as i16).to_ne_bytes().to_vec(),
        DType::U16 => (x as u16).to_ne_bytes().to_vec(),
        DType::Bool => panic!("bool is not in memory"),
    }
}

fn value_of(dtype: DType, b: &[u8]) -> f64 {
    match dtype {
        DType::F16 => f16::from_ne_bytes(b.try_into().unwrap()).to_f64(),
        DType::Bf16 => bf16::from_ne_bytes(b.try_into().unwrap()).to_f64(),
        DType::F32 => f64::from(f32::from_ne_bytes(b.try_into().unwrap())),
        DType::F64 => f64::from_ne_bytes(b.try_into().unwrap()),
        DType::I32 => f64::from(i32::from_ne_bytes(b.try_into().unwrap())),
        DType::I64 => i64::from_ne_bytes(b.try_into().unwrap()) as f64,
        DType::I8 => i8::from_ne_bytes(b.try_into().unwrap()).into(),
        DType::U8 => b[0].into(),
        DType::F8E4M3 | DType::F8E5M2 => dtype.fp8().unwrap().decode(b[0]),
        DType::I16 => i16::from_ne_bytes(b.try_into().unwrap()).into(),
        DType::U16 => u16::from_ne_bytes(b.try_into().unwrap()).into(),
        DType::Bool => panic!("bool is not in memory"),
    }
}

/// The interpreter's result of `%r = ..` for `%a` and `%b`.
fn interpreted(from: DType, to: DType, body: &str, a: f64, b: f64) -> f64 {
    let text = format!(
        "kernel @map(%x: {from}[N], %w: {from}[N], %y: out {to}[N])
         dims N: ?1
         grid (%n) = (N) {{
           %a = load %x[%n] : {from}
           %b = load %w[%n] : {from}
           {body}
           store %y[%n], %r
         }}"
    );
    let kernel = verify(parse_kernel(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))).unwrap();
    let (x, w, mut y) = (bytes_of(from, a), bytes_of(from, b), bytes_of(to, 0.0));
    let view = |bytes| TensorView::contiguous(from, bytes, &[1]).unwrap();
    let out = TensorViewMut::contiguous(to, &mut y, &[1]).unwrap();
    run(&kernel, &[1], vec![Arg::In(view(&x)), Arg::In(view(&w)), Arg::Out(out)], Mode::Native).unwrap();
    value_of(to, &y)
}

#[track_caller]
fn agree(known: Option<Known>, got: f64, what: &str) {
    match known {
        Some(Known::Exact(x)) => assert!(x == got, "{what}: {x} is promised, {got} computed"),
        Some(Known::Finite) => assert!(got.is_finite(), "{what}: {got} is not finite"),
        None => {}
    }
}

/// Values that are at the edges of some type, or ordinary.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(1.0),
        Just(-1.0),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(f64::from(i32::MIN)),
        Just(f64::from(i32::MAX)),
        Just(65504.0),
        (-300i32..300).prop_map(f64::from),
        Just(40_000.0),
        Just(f64::from(f32::MAX)),
        Just(f64::from(f32::MIN_POSITIVE)),
        Just(1e-42),
        Just(6e-8),
        Just(9_007_199_254_740_991.0),
        (-40i32..40).prop_map(f64::from),
        any::<i32>().prop_map(f64::from),
        any::<f32>().prop_map(f64::from),
        -1e3..1e3,
    ]
}

/// A value as the type holds it, if `fold` takes it for a constant of the type.
fn constant(dtype: DType, x: f64) -> Option<f64> {
    match Known::constant(dtype, x) {
        Some(Known::Exact(x)) => Some(x),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn unary_agrees(x in number()) {
        for dtype in NUMBERS {
            let Some(x) = constant(dtype, x) else { continue };
            for &op in UnaryOp::ALL {
                if op.row().takes.holds(dtype) {
                    let got = interpreted(dtype, dtype, &format!("%r = {} %a", op.name()), x, 0.0);
                    let what = format!("{} {dtype} {x}", op.name());
                    agree(fold::unary(op, dtype, Known::Exact(x)), got, &what);
                    if x.is_finite() {
                        agree(fold::unary(op, dtype, Known::Finite), got, &what);
                    }
                }
            }
        }
    }

    #[test]
    fn binary_agrees(x in number(), y in number()) {
        for dtype in NUMBERS {
            let (Some(x), Some(y)) = (constant(dtype, x), constant(dtype, y)) else { continue };
            for &op in BinaryOp::ALL {
                if !op.row().takes.holds(dtype) {
                    continue;
                }
                let got = interpreted(dtype, dtype, &format!("%r = {} %a, %b", op.name()), x, y);
                for (a, b) in sides(x, y) {
                    agree(fold::binary(op, dtype, a, b), got, &format!("{} {dtype} {x} ({a:?}), {y} ({b:?})", op.name()));
                }
            }
        }
    }

    #[test]
    fn comparisons_and_choices_agree(x in number(), y in number()) {
        for dtype in NUMBERS {
            let (Some(x), Some(y)) = (constant(dtype, x), constant(dtype, y)) else { continue };
            for &p in Predicate::ALL {
                let body = format!("%c = {} %a, %b %r = select %c, %a, %b", p.name());
                let got = interpreted(dtype, dtype, &body, x, y);
                for (a, b) in sides(x, y) {
                    let cond = fold::compare(p, dtype, a, b);
                    agree(fold::select(cond, Some(a), Some(b)), got, &format!("{} {dtype} {x}, {y}", p.name()));
                }
            }
        }
    }

    #[test]
    fn casts_agree(x in number()) {
        for from in NUMBERS.into_iter().chain(SMALL) {
            let Some(x) = constant(from, x) else { continue };
            for to in NUMBERS.into_iter().chain(SMALL).filter(|&to| DType::no_conversion(from, to).is_none()) {
                let got = interpreted(from, to, &format!("%r = cast %a : {to}"), x, 0.0);
                agree(fold::cast(from, to, Known::Exact(x)), got, &format!("{from} {x} to {to}"));
                if x.is_finite() {
                    agree(fold::cast(from, to, Known::Finite), got, &format!("finite {from} {x} to {to}"));
                }
            }
        }
    }
}

/// What may be known of two values.
fn sides(x: f64, y: f64) -> Vec<(Known, Known)> {
    let of = |x: f64| if x.is_finite() { vec![Known::Exact(x), Known::Finite] } else { vec![Known::Exact(x)] };
    of(x).into_iter().flat_map(|a| of(y).into_iter().map(move |b| (a, b))).collect()
}

#[test]
fn what_is_known() {
    use Known::{Exact, Finite};
    let (f32, bf16, i32, i64) = (DType::F32, DType::Bf16, DType::I32, DType::I64);
    let unary = |op, x| fold::unary(op, f32, Exact(x));
    assert_eq!(unary(UnaryOp::Exp, 0.0), Some(Exact(1.0)));
    assert_eq!(unary(UnaryOp::Cos, 0.0), Some(Exact(1.0)));
    assert_eq!(unary(UnaryOp::Erf, 0.0), Some(Exact(0.0)));
    assert_eq!(unary(UnaryOp::Sigmoid, 0.0), Some(Finite));
    assert_eq!(unary(UnaryOp::Log, 0.0), None);
    assert_eq!(unary(UnaryOp::Rsqrt, 0.0), None);
    assert_eq!(unary(UnaryOp::Exp, 1.0), None);
    assert_eq!(fold::unary(UnaryOp::Neg, i32, Exact(f64::from(i32::MIN))), Some(Exact(f64::from(i32::MIN))));

    let binary = |op, x, y| fold::binary(op, f32, x, y);
    assert_eq!(binary(BinaryOp::Mul, Exact(0.0), Finite), Some(Exact(0.0)));
    assert_eq!(binary(BinaryOp::Mul, Exact(0.0), Exact(f64::INFINITY)), None);
    assert_eq!(binary(BinaryOp::Mul, Exact(2.0), Finite), None);
    assert_eq!(binary(BinaryOp::Add, Finite, Finite), None);
    assert_eq!(fold::binary(BinaryOp::Add, i32, Finite, Finite), Some(Finite));
    assert_eq!(binary(BinaryOp::Max, Finite, Exact(f64::NEG_INFINITY)), Some(Finite));
    assert_eq!(binary(BinaryOp::Max, Finite, Exact(f64::INFINITY)), Some(Exact(f64::INFINITY)));
    assert_eq!(binary(BinaryOp::Div, Exact(0.0), Exact(3.0)), Some(Exact(0.0)));
    assert_eq!(binary(BinaryOp::Div, Exact(6.0), Exact(3.0)), None);
    assert_eq!(binary(BinaryOp::Div, Exact(0.0), Exact(1e-42)), None);
    assert_eq!(fold::binary(BinaryOp::Div, i32, Exact(-7.0), Exact(2.0)), Some(Exact(-3.0)));
    assert_eq!(fold::binary(BinaryOp::Div, i32, Exact(7.0), Exact(0.0)), None);
    // Rounded once to the type: 1 + 2^-8 is a tie in bf16.
    assert_eq!(fold::binary(BinaryOp::Add, bf16, Exact(1.0), Exact(0.00390625)), Some(Exact(1.0)));
    assert_eq!(fold::binary(BinaryOp::Mul, i32, Exact(65536.0), Exact(65536.0)), Some(Exact(0.0)));
    assert_eq!(fold::binary(BinaryOp::Mul, i64, Exact(1e10), Exact(1e10)), None);
    assert_eq!(fold::binary(BinaryOp::And, DType::Bool, Exact(0.0), Finite), Some(Exact(0.0)));

    assert_eq!(fold::compare(Predicate::Lt, f32, Exact(1.0), Exact(2.0)), Some(Exact(1.0)));
    assert_eq!(fold::compare(Predicate::Lt, f32, Exact(1.0), Finite), Some(Finite));
    assert_eq!(fold::select(Some(Exact(0.0)), None, Some(Exact(3.0))), Some(Exact(3.0)));
    assert_eq!(fold::select(None, Some(Exact(3.0)), Some(Exact(3.0))), Some(Exact(3.0)));
    assert_eq!(fold::select(None, Some(Exact(f64::INFINITY)), Some(Finite)), None);
    assert_eq!(fold::binary(BinaryOp::MulHi, i32, Exact(-1.0), Exact(-1.0)), Some(Exact(-2.0)));
    assert_eq!(fold::binary(BinaryOp::MulHi, i64, Exact(-1.0), Exact(8.0)), Some(Exact(7.0)));
    assert_eq!(fold::binary(BinaryOp::MulHi, i64, Exact(1e15), Exact(1e15)), Some(Exact(54_210_108_624.0)));
    assert_eq!(fold::binary(BinaryOp::MulHi, i32, Finite, Exact(0.0)), Some(Exact(0.0)));
    assert_eq!(fold::cast(f32, i32, Exact(-2.9)), Some(Exact(-2.0)));
    assert_eq!(fold::cast(f32, i32, Exact(1e30)), Some(Exact(f64::from(i32::MAX))));
    assert_eq!(fold::cast(i64, i32, Exact(4_294_967_296.0)), Some(Exact(0.0)));
    assert_eq!(fold::cast(i32, DType::I8, Exact(200.0)), Some(Exact(-56.0)));
    assert_eq!(fold::cast(f32, DType::I8, Exact(200.0)), Some(Exact(127.0)));
    assert_eq!(fold::cast(i32, DType::U8, Exact(-1.0)), Some(Exact(255.0)));
    assert_eq!(fold::cast(f32, DType::U8, Exact(-1.0)), Some(Exact(0.0)));
    assert_eq!(Known::constant(DType::U8, 256.0), None);
    assert_eq!(fold::cast(f32, DType::F8E4M3, Exact(17.0)), Some(Exact(16.0)));
    assert_eq!(fold::cast(f32, DType::F8E4M3, Exact(1e6)), Some(Exact(448.0)));
    assert_eq!(fold::cast(f32, DType::F8E5M2, Exact(f64::NEG_INFINITY)), Some(Exact(-57_344.0)));
    assert_eq!(fold::cast(f32, DType::F8E5M2, Finite), Some(Finite));
    assert_eq!(fold::cast(DType::F8E5M2, DType::F16, Finite), Some(Finite));
    assert_eq!(fold::cast(f32, bf16, Finite), None);
    assert_eq!(fold::cast(DType::Bool, f32, Exact(1.0)), Some(Exact(1.0)));
    assert_eq!(Known::constant(f32, f64::NAN), None);
    assert_eq!(Known::constant(i32, 0.5), None);
}
