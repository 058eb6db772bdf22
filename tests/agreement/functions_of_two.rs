//! Powers, angles and fused products: special values, each element type, derivatives, and tiles past the end of a dim.

use super::{agrees_with, input, output};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32, F64};
use atlas_dsl::rounding::{to_bf16, to_f16};

atlas_kernel! {
    /// An infinity says which sign a zero has.
    tile fn signed(y) { select(y == 0, 1 / y, y) }
    tile fn power(x, y) { pow(x, y) }
    tile fn angle(y, x) { atan2(y, x) }
    tile fn fused(a, b, c) { fma(a, b, c) }
    tile fn cube(x) { pow(x, 3.0) }
    tile fn density(x) { grad(erf)(x) - grad(erfc)(x) }

    kernel pairs_of<T: Float>(x: &Tensor<T, [N]>, y: &Tensor<T, [N]>, z: &mut Tensor<T, [F, N]>)
    tune { BN: [32, 64], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n]);
            let y = load(y[n]);
            store(z[0, n], signed(pow(x, y)));
            store(z[1, n], signed(x.atan2(y)));
            store(z[2, n], signed(atan(x)));
        }
    }

    kernel with_numbers(x: &Tensor<f32, [N]>, z: &mut Tensor<f32, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n]);
            store(z[0, n], pow(x, 2));
            store(z[1, n], x.pow(1));
            store(z[2, n], pow(x, 0.0));
            store(z[3, n], pow(2, x));
            store(z[4, n], pow(x, 0.5) + pow(2.0, 3.0));
            store(z[5, n], atan2(x, -1.0) + atan2(1.0, -1.0) + atan(1.0));
            store(z[6, n], fma(x, 2.0, 1) + fma(2.0, 3.0, 4.0));
        }
    }

    kernel fused_of<T: Float>(
        a: &Tensor<T, [N]>,
        b: &Tensor<T, [N]>,
        c: &Tensor<T, [N]>,
        y: &mut Tensor<T, [N]>,
        z: &mut Tensor<T, [N]>,
    )
    tune { BN: [32, 64], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let a = load(a[n]);
            let b = load(b[n]);
            let c = load(c[n]);
            store(y[n], fma(a, b, c));
            store(z[n], a * b + c);
        }
    }

    kernel fused64(a: &Tensor<f64, [N]>, b: &Tensor<f64, [N]>, c: &Tensor<f64, [N]>, y: &mut Tensor<f64, [N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(a[n]).fma(load(b[n]), load(c[n])));
        }
    }

    kernel slopes(x: &Tensor<f32, [N]>, y: &Tensor<f32, [N]>, z: &mut Tensor<f32, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n]);
            let y = load(y[n]);
            let (by_base, by_exponent) = grad(power)(x, y);
            store(z[0, n], by_base);
            store(z[1, n], by_exponent);
            let (by_y, by_x) = grad(angle)(y, x);
            store(z[2, n], by_y);
            store(z[3, n], by_x);
            let (by_a, by_b, by_c) = grad(fused)(x, y, x);
            store(z[4, n], by_a + by_b * by_c);
            store(z[5, n], jvp(power)(x, y, 2.0, -3.0));
            store(z[6, n], jvp(angle)(y, x, 0.0, 2.0));
            store(z[7, n], jvp(fused)(x, y, x, 1.0, 2.0, 3.0));
            store(z[8, n], grad(cube)(x));
            store(z[9, n], grad(atan)(x));
        }
    }

    kernel bends(x: &Tensor<f32, [N]>, z: &mut Tensor<f32, [N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            store(z[n], grad(density)(load(x[n])));
        }
    }

    /// Tiles that reach past the end of `N`, whose padding must not count.
    kernel sums_of(x: &Tensor<f32, [N]>, z: &mut Tensor<f32, [P, F]>)
    tune { BN: [64, 32], warps: [1, 2] }
    {
        for p in grid(P) {
            let mut a = 0.0;
            let mut b = 0.0;
            let mut c = 0.0;
            for n in tiles(N, BN) {
                let x = load(x[n]);
                a += sum(pow(x, x));
                b += sum(atan2(x, x - 0.5) + atan(x));
                c += sum(fma(x, 2.0, 1.0));
            }
            store(z[p, 0], a);
            store(z[p, 1], b);
            store(z[p, 2], c);
        }
    }
}

const SPECIAL: [f64; 22] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    2.5,
    -2.5,
    1e-7,
    -1e-7,
    6e4,
    -6e4,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    -7.0,
    0.125,
    1024.0,
];

/// The function, with the infinity of its sign in place of a zero, in a type whose largest number and least number are these.
fn with_sign(y: f64, most: f64, least: f64) -> f64 {
    match y {
        y if y.abs() > most => y.signum() * f64::INFINITY,
        y if y.abs() < least => 1.0 / (0.0 * y.signum()),
        y => y,
    }
}

/// Each magnitude by itself, since a difference is measured relative to the largest result: the size of a power picks a row.
#[test]
fn special_pairs() {
    for (dtype, bound, most, least) in
        [(F32, 3e-7, f64::from(f32::MAX), 7.1e-46), (F16, 1e-3, 65_519.9, 2.99e-8), (Bf16, 8e-3, 3.39e38, 4.6e-41)]
    {
        for &x in &SPECIAL {
            let args = [input(dtype, &[22], |_| x), input(dtype, &[22], |i| SPECIAL[i]), output(dtype, &[3, 22])];
            agrees_with(&pairs_of, &args, bound, |a| {
                let both = |f: fn(f64, f64) -> f64| -> Vec<f64> {
                    a[0].iter().zip(&a[1]).map(|(&x, &y)| with_sign(f(x, y), most, least)).collect()
                };
                // Infinities and zeros are compared exactly, whatever else a row holds.
                vec![[both(f64::powf), both(f64::atan2), both(|x, _| x.atan())].concat()]
            });
        }
    }
}

#[test]
fn numbers_that_are_known() {
    let args = [input(F32, &[60], |i| i as f64 * 0.125 + 0.25), output(F32, &[7, 60])];
    let rows: [fn(f64) -> f64; 7] = [
        |x| x * x,
        |x| x,
        |_| 1.0,
        f64::exp2,
        |x| x.sqrt() + 8.0,
        |x| x.atan2(-1.0) + 1f64.atan2(-1.0) + 1f64.atan(),
        |x| 2.0 * x + 11.0,
    ];
    agrees_with(&with_numbers, &args, 1e-6, |a| vec![rows.iter().flat_map(|f| a[0].iter().map(|&x| f(x))).collect()]);
}

/// A product whose last digits a sum leaves: 1 + 2^-k squared, less its leading part.
fn factor(i: usize, bits: i32) -> f64 {
    1.0 + (-f64::from(bits.min(1 + i as i32 % 14))).exp2()
}

/// `fma` keeps what a rounded product loses, and a product and a sum lose it on every device.
#[test]
fn one_rounding() {
    for (dtype, bits) in [(F32, 23), (F16, 10), (Bf16, 7)] {
        let narrow = |x: f32| match dtype {
            F16 => to_f16(f64::from(x)).to_f64(),
            Bf16 => to_bf16(f64::from(x)).to_f64(),
            _ => f64::from(x),
        };
        let x = |i: usize| factor(i, bits);
        let z = |i: usize| -narrow((x(i) * x(i)) as f32) + if i >= 14 { 0.3 * (i as f64 - 20.0) } else { 0.0 };
        let args = [
            input(dtype, &[40], x),
            input(dtype, &[40], x),
            input(dtype, &[40], z),
            output(dtype, &[40]),
            output(dtype, &[40]),
        ];
        agrees_with(&fused_of, &args, 0.0, |a| {
            let of = |f: &dyn Fn(f32, f32, f32) -> f64| -> Vec<f64> {
                (0..40).map(|i| f(a[0][i] as f32, a[1][i] as f32, a[2][i] as f32)).collect()
            };
            let fused = of(&|a, b, c| narrow(a.mul_add(b, c)));
            let twice = of(&|a, b, c| narrow(narrow(a * b) as f32 + c));
            assert_ne!(fused, twice, "{dtype}");
            vec![fused, twice]
        });
    }
    let x = |i: usize| factor(i, 52) + 1e-9 * i as f64;
    let args = [input(F64, &[40], x), input(F64, &[40], x), input(F64, &[40], |i| -(x(i) * x(i))), output(F64, &[40])];
    agrees_with(&fused64, &args, 0.0, |a| vec![(0..40).map(|i| a[0][i].mul_add(a[1][i], a[2][i])).collect()]);
}

#[test]
fn slopes_of_two() {
    let rows: [fn(f64, f64) -> f64; 10] = [
        |x, y| if y == 0.0 { 0.0 } else { y * x.powf(y - 1.0) },
        |x, y| if x.powf(y) == 0.0 || x == 0.0 && y == 0.0 { 0.0 } else { x.powf(y) * x.ln() },
        |x, y| if x == 0.0 && y == 0.0 { 0.0 } else { x / (x * x + y * y) },
        |x, y| if x == 0.0 && y == 0.0 { 0.0 } else { -y / (x * x + y * y) },
        |x, y| y + x,
        |x, y| 2.0 * y * x.powf(y - 1.0) - 3.0 * x.powf(y) * x.ln(),
        |x, y| -2.0 * y / (x * x + y * y),
        |x, y| y + 2.0 * x + 3.0,
        |x, _| 3.0 * x * x,
        |x, _| 1.0 / (1.0 + x * x),
    ];
    let check = |x: &dyn Fn(usize) -> f64, y: &dyn Fn(usize) -> f64| {
        let args = [input(F32, &[50], x), input(F32, &[50], y), output(F32, &[10, 50])];
        agrees_with(&slopes, &args, 4e-6, |a| {
            let of = |f: &fn(f64, f64) -> f64| -> Vec<f64> { a[0].iter().zip(&a[1]).map(|(&x, &y)| f(x, y)).collect() };
            vec![rows.iter().flat_map(of).collect()]
        });
    };
    check(&|i| 0.1 + 0.07 * i as f64, &|i| 1.5 - 0.06 * i as f64);
    check(&|i| 0.5 + 0.01 * i as f64, &|i| 2.0 + 0.03 * i as f64);
}

/// Squares of these coordinates leave the range of f32.
#[test]
fn slopes_of_angles_far_away() {
    let (x, y) = (|i: usize| 1e25 * (1.0 + i as f64), |i: usize| 1e25 * (i as f64 - 25.5));
    let args = [input(F32, &[50], x), input(F32, &[50], y), output(F32, &[10, 50])];
    let found = super::run(&slopes, &Device::cpu(), None, &args).unwrap();
    for i in 0..50 {
        let square = x(i) * x(i) + y(i) * y(i);
        for (row, want) in [(2, x(i) / square), (3, -y(i) / square)] {
            let got = found[0][50 * row + i];
            assert!((got - want).abs() <= 1e-6 * want.abs(), "row {row} at {i}: {got:e}, not {want:e}");
        }
    }
}

/// At 0, where a logarithm and a quotient of zeros have no number.
#[test]
fn slopes_at_0() {
    let (x, y) = ([0.0, 0.0, 0.0, 2.0, -3.0, 0.0], [0.0, 2.0, 1.0, 0.0, 2.0, 0.5]);
    let by_base = [0.0, 0.0, 1.0, 0.0, -6.0, f64::INFINITY];
    let by_exponent = [0.0, 0.0, 0.0, 2f64.ln(), f64::NAN, 0.0];
    let args = [input(F32, &[6], |i| x[i]), input(F32, &[6], |i| y[i]), output(F32, &[10, 6])];
    let found = super::run(&slopes, &Device::cpu(), None, &args).unwrap();
    for i in 0..6 {
        let same = |a: f64, b: f64| a == b || (a - b).abs() < 1e-6 || a.is_nan() && b.is_nan();
        assert!(same(found[0][i], by_base[i]), "by the base at ({}, {}): {}", x[i], y[i], found[0][i]);
        assert!(same(found[0][6 + i], by_exponent[i]), "by the exponent at ({}, {}): {}", x[i], y[i], found[0][6 + i]);
    }
    assert_eq!([found[0][12], found[0][18]], [0.0, 0.0], "an angle at the origin");
    super::agrees(&slopes, &args, 4e-6);
}

/// The second derivative of the error function is 0 at infinity, and not infinity times 0.
#[test]
fn second_derivatives_far_away() {
    let ends = [f64::INFINITY, f64::NEG_INFINITY, 1e30, -1e30, 50.0, -50.0, f64::NAN];
    let args = [input(F32, &[40], |i| ends.get(i).copied().unwrap_or(i as f64 * 0.2 - 4.0)), output(F32, &[40])];
    agrees_with(&bends, &args, 4e-6, |a| {
        let slope =
            |x: f64| if x.is_infinite() { 0.0 } else { -8.0 / std::f64::consts::PI.sqrt() * x * (-x * x).exp() };
        vec![a[0].iter().map(|&x| slope(x)).collect()]
    });
}

#[test]
fn sums_past_an_edge() {
    for n in [1, 33, 70, 128] {
        let args = [input(F32, &[n], |i| 0.02 * i as f64 + 0.1), output(F32, &[1, 3])];
        agrees_with(&sums_of, &args, 2e-6, |a| {
            let of = |f: fn(f64) -> f64| a[0].iter().map(|&x| f(x)).sum::<f64>();
            vec![vec![of(|x| x.powf(x)), of(|x| x.atan2(x - 0.5) + x.atan()), of(|x| 2.0 * x + 1.0)]]
        });
    }
}
