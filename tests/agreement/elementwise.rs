//! Element-wise functions that are exact, and operations on bits: every device gives the same, at the ends of the types too.

use super::{agrees_with, input, output};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32, F64, I32, I64};

atlas_kernel! {
    /// An infinity says which sign a zero has.
    tile fn signed(y) { select(y == 0, 1 / y, y) }

    kernel whole<T: Float>(x: &Tensor<T, [N]>, y: &mut Tensor<T, [F, N]>, c: &mut Tensor<i32, [F2, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n]);
            store(y[0, n], signed(ceil(x)));
            store(y[1, n], signed(x.trunc()));
            store(y[2, n], signed(clamp(x, -1.5, 2)));
            store(y[3, n], signed(x.clamp(2.0, -1.0)));
            store(y[4, n], signed(clamp(0.5, x, 1.5)));
            store(y[5, n], signed(clamp(x, -0.0, 1.0)));
            store(y[6, n], signed(clamp(x, -1.0, 0.0)));
            store(c[0, n], is_nan(x).cast::<i32>());
            store(c[1, n], select(!x.is_nan(), 1, 0.cast::<i32>()));
            store(c[2, n], (is_nan(x) & (x == x)).cast::<i32>());
            store(c[3, n], (is_nan(x) ^ (x > 1.0)).cast::<i32>());
            store(c[4, n], ((x < 0.0) | is_nan(x)).cast::<i32>());
        }
    }

    kernel whole64(x: &Tensor<f64, [N]>, y: &mut Tensor<f64, [F, N]>, c: &mut Tensor<i32, [N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n]);
            store(y[0, n], signed(ceil(x)));
            store(y[1, n], signed(trunc(x)));
            store(y[2, n], signed(clamp(x, -1.5, 2.0)));
            store(c[n], is_nan(x).cast::<i32>());
        }
    }

    kernel smooth<T: Float>(
        x: &Tensor<T, [N]>,
        a: &mut Tensor<T, [N]>,
        b: &mut Tensor<T, [N]>,
        c: &mut Tensor<T, [N]>,
        d: &mut Tensor<T, [N]>,
        e: &mut Tensor<T, [N]>,
        f: &mut Tensor<T, [N]>,
        g: &mut Tensor<T, [N]>,
        h: &mut Tensor<T, [N]>,
        i: &mut Tensor<T, [N]>,
    )
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n]);
            store(a[n], log2(x));
            store(b[n], log1p(x));
            store(c[n], expm1(x));
            store(d[n], softplus(x));
            store(e[n], silu(x));
            store(f[n], x.erfc());
            store(g[n], tan(x));
            store(h[n], sinh(x));
            store(i[n], cosh(x));
        }
    }

    kernel smooth_slopes(
        x: &Tensor<f32, [N]>,
        a: &mut Tensor<f32, [N]>,
        b: &mut Tensor<f32, [N]>,
        c: &mut Tensor<f32, [N]>,
        d: &mut Tensor<f32, [N]>,
        e: &mut Tensor<f32, [N]>,
        f: &mut Tensor<f32, [N]>,
        g: &mut Tensor<f32, [N]>,
        h: &mut Tensor<f32, [N]>,
        i: &mut Tensor<f32, [N]>,
    )
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n]);
            store(a[n], grad(log2)(x));
            store(b[n], grad(log1p)(x));
            store(c[n], grad(expm1)(x));
            store(d[n], grad(softplus)(x));
            store(e[n], grad(silu)(x));
            store(f[n], jvp(erfc)(x, 1.0));
            store(g[n], grad(tan)(x));
            store(h[n], grad(sinh)(x));
            store(i[n], grad(cosh)(x));
        }
    }

    kernel bits32(x: &Tensor<i32, [N]>, w: &Tensor<i32, [N]>, y: &mut Tensor<i32, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n]);
            let w = load(w[n]);
            store(y[0, n], x & w);
            store(y[1, n], x | w);
            store(y[2, n], x ^ w);
            store(y[3, n], x << w);
            store(y[4, n], x >> w);
            store(y[5, n], popcount(x));
            store(y[6, n], !x);
            store(y[7, n], (x >> 3) & 0xff | 1 << w);
            let mut hash = x;
            hash ^= hash << 13;
            hash ^= hash >> 17 & 0x7fff;
            hash |= 1;
            hash &= 0x00ff_ffff;
            hash <<= 2;
            hash >>= 1;
            store(y[8, n], hash);
            store(y[9, n], (x << 32) + (x >> 40) + (x >> -1));
        }
    }

    kernel bits64(x: &Tensor<i64, [N]>, w: &Tensor<i64, [N]>, y: &mut Tensor<i64, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n]);
            let w = load(w[n]);
            store(y[0, n], x & w);
            store(y[1, n], x | w);
            store(y[2, n], x ^ w);
            store(y[3, n], x << w);
            store(y[4, n], x >> w);
            store(y[5, n], x.popcount());
            store(y[6, n], !x);
        }
    }

    /// Places and trips of loops that are computed from bits.
    kernel halves(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [P]>)
    tune { warps: [1] }
    {
        for p in grid(P) {
            let mut total = 0.0;
            for i in 0..size(P) >> 1 {
                total += load(x[(p ^ i) & 7]);
            }
            store(y[p], total);
        }
    }
}

/// Numbers about whole ones and halves, zeros of both signs, the ends of the types, infinities and NaN.
fn special(i: usize) -> f64 {
    const SPECIAL: [f64; 28] = [
        0.0,
        -0.0,
        0.25,
        -0.25,
        0.5,
        -0.5,
        1.0,
        -1.0,
        1.5,
        -1.5,
        2.0,
        2.5,
        -2.5,
        1023.5,
        -1023.5,
        4_194_303.5,
        8_388_607.0,
        -8_388_609.0,
        1e-40,
        -1e-40,
        6e-8,
        -6e-8,
        3e38,
        -3e38,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        -f64::NAN,
    ];
    SPECIAL.get(i).copied().unwrap_or_else(|| (i as f64 - 40.0) / 8.0)
}

/// NaN of any operand wins, and of two zeros -0 is the lesser one.
fn clamped(x: f64, lo: f64, hi: f64) -> f64 {
    if x.is_nan() || lo.is_nan() || hi.is_nan() {
        return f64::NAN;
    }
    let above = if lo.total_cmp(&x).is_gt() { lo } else { x };
    if hi.total_cmp(&above).is_lt() { hi } else { above }
}

fn table(x: &[f64], rows: &[fn(f64) -> f64]) -> Vec<f64> {
    rows.iter().flat_map(|f| x.iter().map(|&x| f(x))).collect()
}

/// The function, with the infinity of its sign in place of a zero.
fn with_sign(y: f64) -> f64 {
    if y == 0.0 { 1.0 / y } else { y }
}

#[test]
fn whole_numbers_bounds_and_nan() {
    let y: [fn(f64) -> f64; 7] = [
        |x| with_sign(x.ceil()),
        |x| with_sign(x.trunc()),
        |x| with_sign(clamped(x, -1.5, 2.0)),
        |x| with_sign(clamped(x, 2.0, -1.0)),
        |x| with_sign(clamped(0.5, x, 1.5)),
        |x| with_sign(clamped(x, -0.0, 1.0)),
        |x| with_sign(clamped(x, -1.0, 0.0)),
    ];
    let c: [fn(f64) -> f64; 5] = [
        |x| f64::from(u8::from(x.is_nan())),
        |x| f64::from(u8::from(!x.is_nan())),
        |_| 0.0,
        |x| f64::from(u8::from(x.is_nan() || x > 1.0)),
        |x| f64::from(u8::from(x.is_nan() || x < 0.0)),
    ];
    for dtype in [F32, F16, Bf16] {
        let args = [input(dtype, &[93], special), output(dtype, &[7, 93]), output(I32, &[5, 93])];
        agrees_with(&whole, &args, 0.0, |a| vec![table(&a[0], &y), table(&a[0], &c)]);
    }
    let args = [input(F64, &[93], special), output(F64, &[3, 93]), output(I32, &[93])];
    agrees_with(&whole64, &args, 0.0, |a| vec![table(&a[0], &y[..3]), table(&a[0], &c[..1])]);
}

/// Numbers of every size and sign, and the ends of the type, below 2^53 in magnitude where f64 holds them.
fn pattern(i: usize, least: i64) -> f64 {
    const ENDS: [i64; 7] = [0, 1, -1, 2, 0x5555_5555, -0x5555_5556, 255];
    let x = match ENDS.get(i) {
        Some(&x) => x,
        None if i == 7 => least,
        None => {
            let x = (i as i64).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
            if least == i64::from(i32::MIN) { i64::from(x as i32) } else { x >> 12 }
        }
    };
    x as f64
}

/// Counts that are in and out of the range of either type.
fn count(i: usize) -> f64 {
    const COUNTS: [f64; 14] = [0.0, 1.0, 5.0, 31.0, 32.0, 33.0, 47.0, 63.0, 64.0, 65.0, -1.0, -31.0, 2e9, -2e9];
    COUNTS[(i * 5 + i / 14) % 14]
}

fn paired(x: &[f64], w: &[f64], rows: &[&dyn Fn(i64, i64) -> i64]) -> Vec<f64> {
    rows.iter().flat_map(|f| x.iter().zip(w).map(|(&x, &w)| f(x as i64, w as i64) as f64)).collect()
}

/// Compares `bits32` on every device with a loop whose shift to the left is `left`.
fn check_bits32(left: fn(i32, i64) -> i32) {
    let right = |x: i32, by: i64| if (0..32).contains(&by) { x >> by } else { x >> 31 };
    let hash = |x: i32| {
        let mut h = x;
        h ^= h << 13;
        h ^= (h >> 17) & 0x7fff;
        h |= 1;
        h &= 0x00ff_ffff;
        h <<= 2;
        h >> 1
    };
    let rows: [&dyn Fn(i64, i64) -> i64; 10] = [
        &|x, w| x & w,
        &|x, w| x | w,
        &|x, w| x ^ w,
        &|x, w| left(x as i32, w).into(),
        &|x, w| right(x as i32, w).into(),
        &|x, _| (x as i32).count_ones().into(),
        &|x, _| !x,
        &|x, w| ((x as i32 >> 3) & 0xff | left(1, w)).into(),
        &|x, _| hash(x as i32).into(),
        &|x, _| 2 * i64::from(x as i32 >> 31),
    ];
    let n = 14 * 14;
    let x = |i: usize| pattern(i / 14 + 8 * (i % 2), i32::MIN.into());
    let args = [input(I32, &[n], x), input(I32, &[n], count), output(I32, &[10, n])];
    agrees_with(&bits32, &args, 0.0, |a| vec![paired(&a[0], &a[1], &rows)]);
}

#[test]
fn bits_of_integers() {
    check_bits32(|x, by| if (0..32).contains(&by) { x << by } else { 0 });

    // f64 rounds the same number of more than 53 bits the same way.
    let n = 14 * 14;
    let wide: [&dyn Fn(i64, i64) -> i64; 7] = [
        &|x, w| x & w,
        &|x, w| x | w,
        &|x, w| x ^ w,
        &|x, by| if (0..64).contains(&by) { x << by } else { 0 },
        &|x, by| x >> if (0..64).contains(&by) { by } else { 63 },
        &|x, _| x.count_ones().into(),
        &|x, _| !x,
    ];
    let x = |i: usize| pattern(i / 14 + 8 * (i % 2), i64::MIN);
    let args = [input(I64, &[n], x), input(I64, &[n], count), output(I64, &[7, n])];
    agrees_with(&bits64, &args, 0.0, |a| vec![paired(&a[0], &a[1], &wide)]);
}

/// Counts that are taken modulo the width, as other processors take them.
#[test]
#[should_panic(expected = "bits32 on the CPU: output 0 differs")]
fn a_count_modulo_the_width_is_noticed() {
    check_bits32(|x, by| x.wrapping_shl(by as u32));
}

#[test]
fn bits_in_places_and_bounds_of_loops() {
    let args = [input(F32, &[8], |i| i as f64 * 0.5), output(F32, &[7])];
    agrees_with(&halves, &args, 0.0, |a| {
        vec![(0..7).map(|p: usize| (0..3).map(|i| a[0][(p ^ i) & 7]).sum()).collect()]
    });
}

/// `erfc` by the series of `erf` near 0, and by Laplace's continued fraction far above it.
fn erfc(x: f64) -> f64 {
    use std::f64::consts::PI;
    if x < -2.0 {
        return 2.0 - erfc(-x);
    }
    if x < 2.0 {
        let terms = (0..60).scan(x, |term, k| {
            let this = *term / f64::from(2 * k + 1);
            *term *= -x * x / f64::from(k + 1);
            Some(this)
        });
        return 1.0 - terms.sum::<f64>() * 2.0 / PI.sqrt();
    }
    let below = (1..=200).rev().fold(0.0, |below, k| f64::from(k) / 2.0 / (x + below));
    (-x * x).exp() / (x + below) / PI.sqrt()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

const SMOOTH: [fn(f64) -> f64; 9] = [
    f64::log2,
    f64::ln_1p,
    f64::exp_m1,
    |x| x.max(0.0) + (-x.abs()).exp().ln_1p(),
    |x| if x == f64::NEG_INFINITY { -0.0 } else { x * sigmoid(x) },
    erfc,
    f64::tan,
    f64::sinh,
    f64::cosh,
];

/// A difference is measured relative to the largest result, so each magnitude is tested by itself, and each function too.
#[test]
fn smooth_functions_keep_their_digits() {
    let ranges =
        [(-9.0, -7.0), (-3.0, -1.5), (-0.99, -0.4), (-1e-3, -1e-4), (1e-9, 2e-9), (0.1, 0.7), (1.5, 3.0), (7.0, 9.0)];
    for (from, to) in ranges {
        for (dtype, bound) in [(F32, 2.5e-7), (F16, 6e-4), (Bf16, 5e-3)] {
            // The least results there are no numbers of f16.
            if dtype == F16 && from == 7.0 {
                continue;
            }
            let mut args = vec![input(dtype, &[70], |i| from + (to - from) * i as f64 / 70.0)];
            args.extend((0..9).map(|_| output(dtype, &[70])));
            agrees_with(&smooth, &args, bound, |a| {
                SMOOTH.iter().map(|f| a[0].iter().map(|&x| f(x)).collect()).collect()
            });
        }
    }
}

#[test]
fn smooth_functions_have_their_limits() {
    let ends = [f64::NEG_INFINITY, -200.0, -1.0, -0.0, 0.0, 200.0, 40000.0, f64::INFINITY, f64::NAN];
    for dtype in [F32, F16] {
        let mut args = vec![input(dtype, &[9], |i| ends[i])];
        args.extend((0..9).map(|_| output(dtype, &[9])));
        // `expm1` overflows there in f16 and in f32 alike.
        let narrowed = |y: f64| if y.abs() > 3.5e38 { y.signum() * f64::INFINITY } else { y };
        agrees_with(&smooth, &args, 1e-3, |a| {
            SMOOTH.iter().map(|f| a[0].iter().map(|&x| narrowed(f(x))).collect()).collect()
        });
    }
}

#[test]
fn slopes_of_smooth_functions() {
    use std::f64::consts::{LN_2, PI};
    let slopes: [fn(f64) -> f64; 9] = [
        |x| 1.0 / (x * LN_2),
        |x| 1.0 / (1.0 + x),
        f64::exp,
        sigmoid,
        |x| match x {
            f64::INFINITY => 1.0,
            f64::NEG_INFINITY => 0.0,
            x => sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))),
        },
        |x| -2.0 / PI.sqrt() * (-x * x).exp(),
        |x| 1.0 + x.tan().powi(2),
        f64::cosh,
        f64::sinh,
    ];
    let ends = [f64::INFINITY, f64::NEG_INFINITY, 500.0, -500.0, f64::NAN];
    for (from, to) in [(-6.0, -2.0), (-0.9, -0.1), (0.1, 4.0)] {
        let x = |i: usize| ends.get(i).copied().unwrap_or(from + (to - from) * i as f64 / 60.0);
        let mut args = vec![input(F32, &[60], x)];
        args.extend((0..9).map(|_| output(F32, &[60])));
        agrees_with(&smooth_slopes, &args, 2e-6, |a| {
            let narrowed = |y: f64| if y.abs() > 3.5e38 { y.signum() * f64::INFINITY } else { y };
            slopes.iter().map(|f| a[0].iter().map(|&x| narrowed(f(x))).collect()).collect()
        });
    }
}
