//! Measures the math expansions against f64 references: random mantissas in every binade, and all f32.
//!
//! `cargo test --release -p atlas-gpu-codegen --test math -- --ignored --nocapture` goes through all 2^32
//! arguments of each precise function (minutes each; build with `RUSTFLAGS=-Ctarget-cpu=native`).

mod ulps;

use atlas_codegen::math::{Arith, Host, SIN_COS_DOMAIN, approximate, has_approximate, precise};
use atlas_dsl::DType;
use atlas_dsl::op::UnaryOp;
use std::sync::atomic::{AtomicU32, Ordering};
use ulps::ulps;

const OPS: [UnaryOp; 21] = [
    UnaryOp::Exp,
    UnaryOp::Exp2,
    UnaryOp::Log,
    UnaryOp::Tanh,
    UnaryOp::Erf,
    UnaryOp::Rsqrt,
    UnaryOp::Sin,
    UnaryOp::Cos,
    UnaryOp::Sigmoid,
    UnaryOp::Gelu,
    UnaryOp::GeluSlope,
    UnaryOp::Log2,
    UnaryOp::Log1p,
    UnaryOp::Expm1,
    UnaryOp::Erfc,
    UnaryOp::Softplus,
    UnaryOp::Silu,
    UnaryOp::Tan,
    UnaryOp::Sinh,
    UnaryOp::Cosh,
    UnaryOp::Atan,
];

fn reference(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Exp => x.exp(),
        UnaryOp::Exp2 => x.exp2(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Log2 => x.log2(),
        UnaryOp::Log1p => x.ln_1p(),
        UnaryOp::Expm1 => x.exp_m1(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Tan => x.tan(),
        UnaryOp::Atan => x.atan(),
        UnaryOp::Sinh => x.sinh(),
        UnaryOp::Cosh => x.cosh(),
        UnaryOp::Erf => libm::erf(x),
        UnaryOp::Erfc => libm::erfc(x),
        UnaryOp::Softplus if x < 0.0 => x.exp().ln_1p(),
        UnaryOp::Softplus => x + (-x).exp().ln_1p(),
        UnaryOp::Silu if x == f64::NEG_INFINITY => -0.0,
        UnaryOp::Silu => x / (1.0 + (-x).exp()),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Sigmoid if x < 0.0 => x.exp() / (1.0 + x.exp()),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Gelu if x == f64::NEG_INFINITY => -0.0,
        UnaryOp::Gelu => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        UnaryOp::GeluSlope => {
            let below = gelu_slope_below(x.abs());
            if x < 0.0 { below } else { 1.0 - below }
        }
        _ => panic!("{} has no expansion", op.name()),
    }
}

/// The slope of GELU at `-t`, `erfc(t / sqrt 2) / 2 - t phi(t)`, by its Taylor series beside its root, where the terms cancel.
fn gelu_slope_below(t: f64) -> f64 {
    use std::f64::consts::{FRAC_1_SQRT_2, PI};
    let phi = |t: f64| (-0.5 * t * t).exp() / (2.0 * PI).sqrt();
    // The root in two parts.
    let (r, lost) = (0.7517915246935645, -1.495_675_917_700_988e-17);
    let u = (t - r) - lost;
    if u.abs() < 1e-4 {
        return phi(r)
            * u
            * (r * r - 2.0 + u * ((4.0 * r - r.powi(3)) / 2.0 + u * (4.0 - 7.0 * r * r + r.powi(4)) / 6.0));
    }
    let density = phi(t);
    0.5 * libm::erfc(t * FRAC_1_SQRT_2) - if density == 0.0 { 0.0 } else { t * density }
}

/// `per_binade` random mantissas and both ends of every binade of either sign; with them ±0, ±inf and NaN.
fn samples(per_binade: u32) -> impl Iterator<Item = f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..512u32).flat_map(move |top| {
        (0..per_binade + 4).map(move |i| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mantissa = match i {
                0 => 0,
                1 => 1,
                2 => 0x40_0000,
                3 => 0x7f_ffff,
                _ => (state >> 41) as u32,
            };
            f32::from_bits(top << 23 | mantissa ^ if i > 3 { top } else { 0 })
        })
    })
}

/// The worst case seen.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    error: f64,
    at: f32,
}

impl Worst {
    fn see(&mut self, error: f64, at: f32) {
        if error > self.error {
            *self = Worst { error, at };
        }
    }
}

fn in_domain(op: UnaryOp, x: f32) -> bool {
    !matches!(op, UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan) || x.abs() <= SIN_COS_DOMAIN || !x.is_finite()
}

/// The worst ulp of `precise` over `xs`.
fn worst_of<A: Arith<F = f32>>(a: &mut A, op: UnaryOp, xs: impl Iterator<Item = f32>) -> Worst {
    let mut worst = Worst::default();
    for x in xs {
        let got = precise(a, op, x).unwrap();
        if in_domain(op, x) {
            worst.see(ulps(got, reference(op, f64::from(x))), x);
        } else {
            assert!(op == UnaryOp::Tan || got.abs() <= 1.0, "{}({x:e}) = {got:e}", op.name());
        }
    }
    worst
}

/// The effect of approximate hardware instructions on the precise form of `op`.
fn hosts(op: UnaryOp) -> impl Iterator<Item = Host> {
    // They alone have one, whose error they take out again.
    let errors: &[f64] = match op {
        UnaryOp::Gelu | UnaryOp::GeluSlope | UnaryOp::Erfc => &[0.0, 1.0, -1.0],
        _ => &[0.0],
    };
    errors.iter().map(|&error| Host { error, alternating: false })
}

fn check_precise(op: UnaryOp) {
    let mut worst = Worst::default();
    for mut host in hosts(op) {
        let of_host = worst_of(&mut host, op, samples(4096));
        worst.see(of_host.error, of_host.at);
    }
    println!("{}: {:.3} ulp at {:e}", op.name(), worst.error, worst.at);
    assert!(worst.error <= 2.0, "{}: {worst:?}", op.name());
}

/// The allowed error of `approximate` at `x`, where the true value is `want`.
fn allowance(op: UnaryOp, x: f32, want: f64) -> f64 {
    let relative = (-14f64).exp2() * want.abs();
    match op {
        UnaryOp::Sin | UnaryOp::Cos if x.abs() > 1_048_576.0 => f64::INFINITY,
        UnaryOp::Exp | UnaryOp::Sigmoid | UnaryOp::Silu => (-17f64).exp2() * want.abs(),
        UnaryOp::Exp2 | UnaryOp::Sqrt | UnaryOp::Rsqrt => (-22f64).exp2() * want.abs() * (1.0 + (-1f64).exp2()),
        UnaryOp::Gelu | UnaryOp::GeluSlope => relative.max((-24f64).exp2()),
        _ => relative,
    }
}

fn check_approximate(op: UnaryOp) {
    let trigonometric = matches!(op, UnaryOp::Sin | UnaryOp::Cos);
    let mut worst = Worst::default();
    for (error, alternating) in [(0.0, false), (1.0, false), (-1.0, false), (1.0, true), (-1.0, true)] {
        for x in samples(1024) {
            // Denormal arguments count as zero.
            let x = if x.is_subnormal() { 0f32.copysign(x) } else { x };
            let got = approximate(&mut Host { error, alternating }, op, x).unwrap();
            let want = reference(op, f64::from(x));
            let off = (f64::from(got) - want).abs();
            let wrong = if want.is_nan() || got.is_nan() {
                want.is_nan() != got.is_nan()
            } else if off.is_infinite() || off.is_nan() {
                f64::from(got) != want && want.abs() < f64::from(f32::MAX) * 0.9999
            } else {
                // Results below the normal range may be flushed.
                worst.see((off - f64::from(f32::MIN_POSITIVE)) / allowance(op, x, want), x);
                false
            };
            assert!(got.is_nan() || !trigonometric || got.abs() < 1.0001, "{}({x:e}) = {got:e}", op.name());
            assert!(!wrong, "{}({x:e}) = {got:e}, not {want:e}", op.name());
        }
    }
    println!("{} approximate: {:.3} of its bound at {:e}", op.name(), worst.error, worst.at);
    assert!(worst.error <= 1.0, "{}: {worst:?}", op.name());
}

macro_rules! each_op {
    ($($name:ident $op:ident),+; of one form: $($only:ident $one:ident),+) => {
        mod precise_within_2_ulp {
            use super::*;
            $(#[test] fn $name() { check_precise(UnaryOp::$op); })+
            $(#[test] fn $only() { check_precise(UnaryOp::$one); })+
        }
        mod approximate_within_bound {
            use super::*;
            $(#[test] fn $name() { check_approximate(UnaryOp::$op); })+
        }
        mod exhaustive {
            use super::*;
            $(#[test] #[ignore = "all f32: minutes"] fn $name() { check_all(UnaryOp::$op); })+
            $(#[test] #[ignore = "all f32: minutes"] fn $only() { check_all(UnaryOp::$one); })+
        }
    };
}
each_op!(
    exp Exp, exp2 Exp2, tanh Tanh, erf Erf, rsqrt Rsqrt, sin Sin, cos Cos, sigmoid Sigmoid, gelu Gelu, gelu_slope GeluSlope,
    silu Silu;
    of one form: log Log, log2 Log2, log1p Log1p, expm1 Expm1, erfc Erfc, softplus Softplus, tan Tan, sinh Sinh,
    cosh Cosh, atan Atan
);

/// `precise` on all of f32, on every core.
fn check_all(op: UnaryOp) {
    let next = AtomicU32::new(0);
    let work = || {
        let mut worst = Worst::default();
        loop {
            let top = next.fetch_add(1, Ordering::Relaxed);
            if top >= 512 {
                return worst;
            }
            for mut host in hosts(op) {
                let part = worst_of(&mut host, op, (0..1u32 << 23).map(|m| f32::from_bits(top << 23 | m)));
                worst.see(part.error, part.at);
            }
        }
    };
    let mut worst = Worst::default();
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for w in all.into_iter().filter_map(|t| t.join().ok()) {
            worst.see(w.error, w.at);
        }
    });
    println!("{} over all f32: {:.4} ulp at {:e}", op.name(), worst.error, worst.at);
    assert!(worst.error <= 2.0);
}

#[test]
fn specials() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let cases = [
        (UnaryOp::Exp, [1.0, 1.0, inf, 0.0]),
        (UnaryOp::Exp2, [1.0, 1.0, inf, 0.0]),
        (UnaryOp::Log, [-inf, -inf, inf, nan]),
        (UnaryOp::Tanh, [0.0, -0.0, 1.0, -1.0]),
        (UnaryOp::Erf, [0.0, -0.0, 1.0, -1.0]),
        (UnaryOp::Rsqrt, [inf, -inf, 0.0, nan]),
        (UnaryOp::Sin, [0.0, -0.0, nan, nan]),
        (UnaryOp::Cos, [1.0, 1.0, nan, nan]),
        (UnaryOp::Sigmoid, [0.5, 0.5, 1.0, 0.0]),
        (UnaryOp::Gelu, [0.0, -0.0, inf, -0.0]),
        (UnaryOp::GeluSlope, [0.5, 0.5, 1.0, -0.0]),
        (UnaryOp::Log2, [-inf, -inf, inf, nan]),
        (UnaryOp::Log1p, [0.0, -0.0, inf, nan]),
        (UnaryOp::Expm1, [0.0, -0.0, inf, -1.0]),
        (UnaryOp::Erfc, [1.0, 1.0, 0.0, 2.0]),
        (UnaryOp::Softplus, [std::f32::consts::LN_2, std::f32::consts::LN_2, inf, 0.0]),
        (UnaryOp::Silu, [0.0, -0.0, inf, -0.0]),
        (UnaryOp::Tan, [0.0, -0.0, nan, nan]),
        (UnaryOp::Sinh, [0.0, -0.0, inf, -inf]),
        (UnaryOp::Cosh, [1.0, 1.0, inf, inf]),
        (UnaryOp::Atan, [0.0, -0.0, std::f32::consts::FRAC_PI_2, -std::f32::consts::FRAC_PI_2]),
    ];
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    for (op, want) in cases {
        for (x, want) in [0.0, -0.0, inf, -inf].into_iter().zip(want) {
            let fine = precise(&mut Host::default(), op, x).unwrap();
            assert!(same(fine, want), "{}({x}) = {fine}, not {want}", op.name());
            if let Some(rough) = approximate(&mut Host::default(), op, x) {
                let close = same(rough, want) || (rough - want).abs() <= (-14f32).exp2() * want.abs();
                assert!(close, "{}({x}) = {rough}, not {want} (approximate)", op.name());
            }
        }
        assert!(precise(&mut Host::default(), op, nan).unwrap().is_nan(), "{}(NaN)", op.name());
        let rough = approximate(&mut Host::default(), op, nan);
        assert!(rough.is_none_or(f32::is_nan), "{}(NaN), approximate", op.name());
    }
}

/// What has an exact result has it: powers of two, and the end of the domain.
#[test]
fn exact_results() {
    let of = |op, x| precise(&mut Host::default(), op, x).unwrap();
    for n in -149..128 {
        assert_eq!(of(UnaryOp::Log2, (n as f32).exp2()), n as f32);
    }
    assert_eq!(of(UnaryOp::Log1p, -1.0), f32::NEG_INFINITY);
    assert!(of(UnaryOp::Log1p, -1.5).is_nan());
    assert_eq!(of(UnaryOp::Erfc, 10.0625).to_bits(), 0);
    for x in [1e-42_f32, -1e-42, 1e-30, -1e-30] {
        assert_eq!([of(UnaryOp::Log1p, x), of(UnaryOp::Expm1, x)], [x, x]);
    }
}

/// The predicates that say which functions have which form agree with the expansions.
#[test]
fn forms() {
    for &op in UnaryOp::ALL {
        let (fine, rough) = (precise(&mut Host::default(), op, 1.0), approximate(&mut Host::default(), op, 1.0));
        assert_eq!(fine.is_none(), op.row().exact, "{}", op.name());
        assert_eq!(rough.is_some(), has_approximate(op, DType::F32), "{}", op.name());
        assert!(!has_approximate(op, DType::F64), "{}", op.name());
    }
}

/// Beside every root up to the end of the domain, where the reduction cancels most digits of an argument.
#[test]
fn approximate_sine_and_cosine_near_their_roots() {
    for (op, shift) in [(UnaryOp::Sin, 0.0), (UnaryOp::Cos, 0.5)] {
        let mut worst = Worst::default();
        for n in 1..(f64::from(SIN_COS_DOMAIN) / std::f64::consts::PI) as u32 {
            let root = (f64::from(n) - shift) * std::f64::consts::PI;
            for x in [(root as f32).next_down(), root as f32, (root as f32).next_up()] {
                let got = f64::from(approximate(&mut Host::default(), op, x).unwrap());
                let want = reference(op, f64::from(x));
                worst.see((got - want).abs() / allowance(op, x, want), x);
            }
        }
        println!("{} near its roots: {:.3} of its bound at {:e}", op.name(), worst.error, worst.at);
        assert!(worst.error <= 1.0, "{}: {worst:?}", op.name());
    }
}

/// GELU with the approximate erf is within 2^-12 max(|gelu|, 2^-6), the built-in one within 2^-14 max(|gelu|, 2^-10).
#[test]
fn approximate_gelu() {
    let through_erf = |a: &mut Host, z: f32| {
        let erf = approximate(a, UnaryOp::Erf, z * std::f32::consts::FRAC_1_SQRT_2);
        0.5 * z * (1.0 + erf.unwrap())
    };
    let built_in = |a: &mut Host, z: f32| approximate(a, UnaryOp::Gelu, z).unwrap();
    type Form<'a> = &'a dyn Fn(&mut Host, f32) -> f32;
    let forms: [(&str, i32, i32, Form<'_>); 2] =
        [("through erf", -12, -6, &through_erf), ("built in", -14, -10, &built_in)];
    for (name, relative, least, form) in forms {
        let mut worst = Worst::default();
        for (error, alternating) in [(0.0, false), (1.0, false), (-1.0, false)] {
            for z in samples(2048).filter(|z| z.is_finite()) {
                let got = f64::from(form(&mut Host { error, alternating }, z));
                let want = reference(UnaryOp::Gelu, f64::from(z));
                let bound = 2f64.powi(relative) * want.abs().max(2f64.powi(least));
                worst.see((got - want).abs() / bound, z);
            }
        }
        println!("approximate GELU {name}: {:.3} of its bound at {:e}", worst.error, worst.at);
        assert!(worst.error <= 1.0, "{name}: {worst:?}");
    }
}

/// The error of the approximate GELU only grows with a unit in the last place of a 16-bit result. It never has the wrong sign,
/// and it becomes 0 where the true value does.
#[test]
fn approximate_gelu_far_below_0() {
    for x in samples(256).filter(|&x| x < -9.0) {
        let got = approximate(&mut Host::default(), UnaryOp::Gelu, x).unwrap();
        assert!(got <= 0.0 && got > -1e-13 && (x > -16.0 || got == 0.0), "gelu({x:e}) = {got:e}");
    }
}

/// [`Host`] that counts operations and may replace one constant.
#[derive(Default)]
struct Tap {
    host: Host,
    count: usize,
    replace: Option<(f32, f32)>,
}

macro_rules! tap {
    ($($name:ident($($arg:ident: $t:ty),+) -> $r:ty),+ $(,)?) => {
        $(fn $name(&mut self, $($arg: $t),+) -> $r {
            self.count += 1;
            self.host.$name($($arg),+)
        })+
    };
}

impl Arith for Tap {
    type F = f32;
    type I = i32;
    type B = bool;
    fn f(&mut self, x: f32) -> f32 {
        match self.replace {
            Some((old, new)) if old == x => new,
            _ => x,
        }
    }
    fn i(&mut self, x: i32) -> i32 {
        x
    }
    fn bits(&mut self, x: f32) -> i32 {
        self.host.bits(x)
    }
    fn from_bits(&mut self, x: i32) -> f32 {
        self.host.from_bits(x)
    }
    tap! {
        add(x: f32, y: f32) -> f32, sub(x: f32, y: f32) -> f32, mul(x: f32, y: f32) -> f32,
        fma(x: f32, y: f32, z: f32) -> f32, div(x: f32, y: f32) -> f32, sqrt(x: f32) -> f32,
        neg(x: f32) -> f32, abs(x: f32) -> f32, copysign(x: f32, sign: f32) -> f32,
        minimum(x: f32, y: f32) -> f32, maximum(x: f32, y: f32) -> f32,
        lt(x: f32, y: f32) -> bool, eq(x: f32, y: f32) -> bool, select(c: bool, x: f32, y: f32) -> f32,
        iadd(x: i32, y: i32) -> i32, isub(x: i32, y: i32) -> i32, ixor(x: i32, y: i32) -> i32,
        shl(x: i32, by: u32) -> i32, ashr(x: i32, by: u32) -> i32,
        approx_ex2(x: f32) -> f32, approx_rcp(x: f32) -> f32,
        approx_rsqrt(x: f32) -> f32, approx_sqrt(x: f32) -> f32,
    }
}

/// The number of operations of each expansion (constants and bit casts are free).
#[test]
fn lengths() {
    let mut lengths = Vec::new();
    for op in OPS {
        let (mut fine, mut rough) = (Tap::default(), Tap::default());
        precise(&mut fine, op, 1.0).unwrap();
        let short = approximate(&mut rough, op, 1.0).map_or_else(|| "-".to_owned(), |_| rough.count.to_string());
        lengths.push(format!("{} {} {short}", op.name(), fine.count));
    }
    let want = "exp 20 2, exp2 19 1, log 28 -, tanh 28 8, erf 30 12, rsqrt 2 1, sin 22 14, cos 24 16, sigmoid 32 4, \
                gelu 56 11, gelu_slope 63 15, log2 32 -, log1p 28 -, expm1 20 -, erfc 76 -, softplus 50 -, silu 55 7, \
                tan 42 -, sinh 42 -, cosh 33 -, atan 20 -";
    assert_eq!(lengths.join(", "), want);
}

/// The measurement notices a coefficient that is off in its sixth digit.
#[test]
fn a_wrong_coefficient_is_noticed() {
    let good = worst_of(&mut Tap::default(), UnaryOp::Exp, samples(256));
    assert!(good.error <= 2.0, "{good:?}");
    let mut used = Tap { replace: Some((0.1666652, 0.16668)), ..Tap::default() };
    let bad = worst_of(&mut used, UnaryOp::Exp, samples(256));
    assert!(bad.error > 2.0, "{bad:?}");
}
