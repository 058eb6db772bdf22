//! Every element-wise operation, and rounding.

use crate::support::{Buffer, map_text};
use crate::support::{assert_close, noise, run_map, run_text};
use atlas_dsl::DType;
use atlas_tile_interp::Mode;
use half::{bf16, f16};
use proptest::prelude::*;

const F32: DType = DType::F32;
const I32: DType = DType::I32;

/// Operations with their f64 reference and the arguments to try.
type UnaryCase = (&'static str, fn(f64) -> f64, &'static [f64]);

/// A binary operation with its f32 reference.
type BinaryCase = (&'static str, fn(f32, f32) -> f32);

const SIGNED: &[f64] = &[
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.3,
    -2.7,
    5.5,
    -9.25,
    20.0,
    -40.0,
    1e-6,
    -1e-20,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];
const POSITIVE: &[f64] = &[0.25, 1.0, 2.0, 3.7, 1e-30, 1e30, 0.999_999, 1.000_001, f64::INFINITY, -1.0, f64::NAN];
const ANGLES: &[f64] = &[0.0, 1.0, -1.0, std::f64::consts::PI, 1.57, -100.5, 1e4, 12345.678, f64::NAN];

const UNARY: &[UnaryCase] = &[
    ("neg", |x| -x, SIGNED),
    ("abs", f64::abs, SIGNED),
    ("exp", f64::exp, SIGNED),
    ("exp2", f64::exp2, SIGNED),
    ("log", f64::ln, POSITIVE),
    ("tanh", f64::tanh, SIGNED),
    ("erf", libm_erf, SIGNED),
    ("sqrt", f64::sqrt, POSITIVE),
    ("rsqrt", |x| 1.0 / x.sqrt(), POSITIVE),
    ("sin", f64::sin, ANGLES),
    ("cos", f64::cos, ANGLES),
    ("sigmoid", |x| 1.0 / (1.0 + (-x).exp()), SIGNED),
    ("gelu", gelu, SIGNED),
];

fn gelu(x: f64) -> f64 {
    if x.is_infinite() { x.max(0.0) } else { 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2) }
}

fn libm_erf(x: f64) -> f64 {
    libm::erf(x)
}

#[test]
fn unary_against_f64() {
    for (op, reference, xs) in UNARY {
        let body = format!("%r = {op} %a : f32[16]");
        // References are taken at the f32 argument.
        let want: Vec<f64> = xs.iter().map(|&x| reference(f64::from(x as f32))).collect();
        let got = run_map(F32, F32, &body, xs, Mode::Native).values();
        assert_close(&got, &want, 2.0 * 2f64.powi(-23), 1e-44);
        let got = run_map(F32, F32, &body, xs, Mode::F64).values();
        assert_close(&got, &want, 4.0 * 2f64.powi(-52), 1e-300);
    }
}

#[test]
fn erf_at_known_points() {
    // From tables, not from the same library.
    let known = [(0.5, 0.520_499_877_813_046_5), (1.0, 0.842_700_792_949_714_9), (2.0, 0.995_322_265_018_952_7)];
    let xs: Vec<f64> = known.iter().map(|k| k.0).collect();
    let want: Vec<f64> = known.iter().map(|k| k.1).collect();
    assert_close(&run_map(F32, F32, "%r = erf %a", &xs, Mode::F64).values(), &want, 4e-16, 0.0);
}

const PAIR: &str = "kernel @pair(%x: DT[N], %y: DT[N], %z: out DT[N])
    dims N: ?1
    grid (%n) = (tiles(N, 16)) {
      %a = load %x[%n : 16]
      %b = load %y[%n : 16]
      BODY
      store %z[%n : 16], %r
    }";

fn run_pair(dtype: DType, body: &str, x: &[f64], y: &[f64], mode: Mode) -> Vec<f64> {
    let n = x.len() as u64;
    let text = PAIR.replace("DT", dtype.name()).replace("BODY", body);
    let (x, y) = (Buffer::new(dtype, x), Buffer::new(dtype, y));
    run_text(&text, &[n], &[(&x, &[n]), (&y, &[n])], (dtype, &[n]), mode).unwrap().values()
}

#[test]
fn binary_floats() {
    let nan = f64::NAN;
    let x = [1.5, -2.0, 0.0, nan, 1.0, -0.0, 0.0, 7.0];
    let y = [0.25, 3.0, 0.0, 1.0, nan, 0.0, -0.0, -8.0];
    let ops: [BinaryCase; 4] =
        [("add", |a, b| a + b), ("sub", |a, b| a - b), ("mul", |a, b| a * b), ("div", |a, b| a / b)];
    for (op, f) in ops {
        let want: Vec<f64> = x.iter().zip(&y).map(|(&a, &b)| f64::from(f(a as f32, b as f32))).collect();
        assert_close(&run_pair(F32, &format!("%r = {op} %a, %b"), &x, &y, Mode::Native), &want, 0.0, 0.0);
    }
    for mode in [Mode::Native, Mode::F64] {
        let max = run_pair(F32, "%r = max %a, %b", &x, &y, mode);
        assert_close(&max, &[1.5, 3.0, 0.0, nan, nan, 0.0, 0.0, 7.0], 0.0, 0.0);
        assert!(max[5].is_sign_positive() && max[6].is_sign_positive());
        let min = run_pair(F32, "%r = min %a, %b", &x, &y, mode);
        assert_close(&min, &[0.25, -2.0, 0.0, nan, nan, 0.0, 0.0, -8.0], 0.0, 0.0);
        assert!(min[5].is_sign_negative() && min[6].is_sign_negative());
    }
}

#[test]
fn integers_wrap() {
    let (big, small) = (f64::from(i32::MAX), f64::from(i32::MIN));
    let x = [7.0, -7.0, big, small, small, 5.0];
    let y = [2.0, 2.0, 1.0, -1.0, 1.0, 0.0];
    let run = |op: &str| run_pair(I32, &format!("%r = {op} %a, %b"), &x, &y, Mode::Native);
    assert_eq!(run("add"), [9.0, -5.0, small, big, small + 1.0, 5.0]);
    assert_eq!(run("sub"), [5.0, -9.0, big - 1.0, small + 1.0, big, 5.0]);
    assert_eq!(run("mul"), [14.0, -14.0, big, small, small, 0.0]);
    assert_eq!(run("div"), [3.0, -3.0, big, small, small, 0.0]);
    assert_eq!(run("rem"), [1.0, -1.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(run("max"), [7.0, 2.0, big, -1.0, 1.0, 5.0]);
    assert_eq!(run("min"), [2.0, -7.0, 1.0, small, small, 0.0]);
    assert_eq!(run_map(I32, I32, "%r = neg %a", &[3.0, small], Mode::Native).values(), [-3.0, small]);
    assert_eq!(run_map(I32, I32, "%r = abs %a", &[-3.0, small], Mode::Native).values(), [3.0, small]);
}

#[test]
fn comparisons_are_ordered() {
    let nan = f64::NAN;
    let (x, y) = ([1.0, 2.0, 2.0, nan, nan], [2.0, 1.0, 2.0, 1.0, nan]);
    let want = [
        ("eq", [0.0, 0.0, 1.0, 0.0, 0.0]),
        ("ne", [1.0, 1.0, 0.0, 1.0, 1.0]),
        ("lt", [1.0, 0.0, 0.0, 0.0, 0.0]),
        ("le", [1.0, 0.0, 1.0, 0.0, 0.0]),
        ("gt", [0.0, 1.0, 0.0, 0.0, 0.0]),
        ("ge", [0.0, 1.0, 1.0, 0.0, 0.0]),
    ];
    for (p, want) in want {
        let body = format!("%c = {p} %a, %b\n%r = cast %c : f32[16]");
        assert_eq!(run_pair(F32, &body, &x, &y, Mode::Native), want, "{p}");
    }
    let body = "%c = lt %a, %b
                %d = gt %a, %b
                %e = or %c, %d
                %f = not %e
                %g = and %f, %e
                %h = select %e, %a, %b
                %z = splat 0.0 : f32[16]
                %r = select %g, %z, %h";
    assert_close(&run_pair(F32, body, &x, &y, Mode::Native), &[1.0, 2.0, 2.0, 1.0, nan], 0.0, 0.0);
}

#[test]
fn casts() {
    let x = [1.9, -1.9, 3e9, -3e9, f64::NAN, 0.5];
    let ints = run_map(F32, I32, "%r = cast %a : i32[16]", &x, Mode::Native).values();
    assert_eq!(ints, [1.0, -1.0, f64::from(i32::MAX), f64::from(i32::MIN), 0.0, 0.0]);
    let wide = run_map(I32, DType::I64, "%r = cast %a : i64[16]", &[-5.0, 9.0], Mode::Native).values();
    assert_eq!(wide, [-5.0, 9.0]);
    let x = [1.9, -1.9, 200.0, -200.0, 3e9, f64::NAN, 70_000.0];
    let small = |from, to: DType| run_map(from, to, &format!("%r = cast %a : {to}[16]"), &x, Mode::Native).values();
    assert_eq!(small(F32, DType::I8), [1.0, -1.0, 127.0, -128.0, 127.0, 0.0, 127.0]);
    assert_eq!(small(F32, DType::U8), [1.0, 0.0, 200.0, 0.0, 255.0, 0.0, 255.0]);
    assert_eq!(small(DType::F64, DType::I16), [1.0, -1.0, 200.0, -200.0, 32_767.0, 0.0, 32_767.0]);
    assert_eq!(small(DType::F64, DType::U16), [1.0, 0.0, 200.0, 0.0, 65_535.0, 0.0, 65_535.0]);
    // Of an i64 the low bits.
    assert_eq!(small(DType::I64, DType::I8)[2..4], [-56.0, 56.0]);
    assert_eq!(small(DType::I64, DType::U8)[2..4], [200.0, 56.0]);
    assert_eq!(small(DType::I64, DType::U16)[6], 4464.0);
    // Floats of 8 bits: to nearest even, at most the largest number.
    let x = [17.0, 19.0, -1e9, f64::INFINITY, f64::NAN, 2f64.powi(-10), -3.0 * 2f64.powi(-10)];
    for (from, mode) in [(F32, Mode::Native), (DType::F64, Mode::Native), (DType::F64, Mode::F64)] {
        let eight =
            |to: DType| run_map(from, to, &format!("%r = cast %a : {to}[16]"), &x, mode).values()[..x.len()].to_vec();
        let least = 2f64.powi(-9);
        assert_close(&eight(DType::F8E4M3), &[16.0, 20.0, -448.0, 448.0, f64::NAN, 0.0, -2.0 * least], 0.0, 0.0);
        let step = 2f64.powi(-10);
        assert_close(&eight(DType::F8E5M2), &[16.0, 20.0, -57_344.0, 57_344.0, f64::NAN, step, -3.0 * step], 0.0, 0.0);
    }
    // One rounding: 2^24 + 2^15 + 1 is above the bf16 tie that f32 would round it to.
    let x = f64::from((1 << 24) + (1 << 16) + 1);
    let got = run_map(I32, DType::Bf16, "%r = cast %a : bf16[16]", &[x, -x], Mode::Native).values();
    let up = f64::from((1 << 24) + (1 << 17));
    assert_eq!(got, [up, -up]);
    let x = (1u64 << 60) as f64;
    let body = "%b = cast %a : i64[16]\n%o = splat 1 : i64[16]\n%h = splat 4503599627370496 : i64[16]
                %c = add %b, %h\n%d = add %c, %o\n%r = cast %d : bf16[16]";
    // 2^60 + 2^52 + 1: the tie at 2^52 is broken by the last bit alone.
    let got = run_map(F32, DType::Bf16, body, &[x], Mode::Native).values();
    assert_eq!(got, [x + (1u64 << 53) as f64]);
}

#[test]
fn narrow_floats_round_once_per_operation() {
    let (x, y) = (noise(1, 64), noise(2, 64));
    let ops: [BinaryCase; 4] =
        [("add", |a, b| a + b), ("sub", |a, b| a - b), ("mul", |a, b| a * b), ("div", |a, b| a / b)];
    for (op, f) in ops {
        let body = format!("%r = {op} %a, %b");
        let got = run_pair(DType::Bf16, &body, &x, &y, Mode::Native);
        let narrow = |x: f64| bf16::from_f32(x as f32).to_f32();
        let want: Vec<f64> =
            x.iter().zip(&y).map(|(&a, &b)| bf16::from_f32(f(narrow(a), narrow(b))).to_f64()).collect();
        assert_eq!(got, want, "bf16 {op}");
        let got = run_pair(DType::F16, &body, &x, &y, Mode::Native);
        let narrow = |x: f64| f16::from_f32(x as f32).to_f32();
        let want: Vec<f64> = x.iter().zip(&y).map(|(&a, &b)| f16::from_f32(f(narrow(a), narrow(b))).to_f64()).collect();
        assert_eq!(got, want, "f16 {op}");
    }
    let got = run_map(DType::Bf16, DType::Bf16, "%r = exp %a", &x, Mode::Native).values();
    let want: Vec<f64> = x.iter().map(|&x| bf16::from_f32(bf16::from_f32(x as f32).to_f32().exp()).to_f64()).collect();
    assert_eq!(got, want);
}

#[test]
fn f64_mode_rounds_nothing() {
    let text = map_text(
        F32,
        DType::Bf16,
        "%t = splat 0.1 : f32[16]\n%m = mul %a, %t\n%b = cast %m : bf16[16]\n%r = mul %b, %b",
    );
    let x = Buffer::new(F32, &[1.0, 0.7]);
    let out = run_text(&text, &[2], &[(&x, &[2])], (DType::F64, &[2]), Mode::F64).unwrap();
    let second = f64::from(0.7f32) * 0.1;
    assert_eq!(out.values(), [0.1 * 0.1, second * second]);
    // The kernel's own element type is rounded to when it is stored.
    let out = run_text(&text, &[2], &[(&x, &[2])], (DType::Bf16, &[2]), Mode::F64).unwrap();
    assert_eq!(out.values()[0], bf16::from_f32(0.01).to_f64());
    assert!(run_text(&text, &[2], &[(&x, &[2])], (DType::F64, &[2]), Mode::Native).is_err());
}

proptest! {
    #[test]
    fn bf16_casts_agree_with_half(bits in any::<[u32; 16]>()) {
        let x: Vec<f64> = bits.iter().map(|&b| f64::from(f32::from_bits(b))).collect();
        let got = run_map(F32, DType::Bf16, "%r = cast %a : bf16[16]", &x, Mode::Native).values();
        for (g, b) in got.iter().zip(bits) {
            let want = bf16::from_f32(f32::from_bits(b)).to_f64();
            prop_assert!(*g == want || (g.is_nan() && want.is_nan()));
        }
    }
}
