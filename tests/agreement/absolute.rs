//! Kernels that magnify absolute errors: errors that are only small relative to something else, errors of one number
//! that is used repeatedly, and errors of unbounded exponents.

use super::{Given, agrees, agrees_with, input, noise, output};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

/// Twice the rounding error of each type.
const OF_F16: f64 = 0.000_976_562_5;
const OF_BF16: f64 = 0.007_812_5;

atlas_kernel! {
    kernel inverses<T: Float>(x: &Tensor<f32, [N]>, a: &mut Tensor<T, [N]>, b: &mut Tensor<T, [N]>, c: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            let t = load(x[n]);
            store(a[n], (1.0 / gelu(t)).cast::<T>());
            store(b[n], (1.0 / gelu_slope(t)).cast::<T>());
            store(c[n], (gelu(t) / gelu(t * 1.0625)).cast::<T>());
        }
    }

    kernel roots<T: Float>(x: &Tensor<f32, [N]>, a: &mut Tensor<T, [N]>, b: &mut Tensor<T, [N]>, c: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            let t = load(x[n]);
            store(a[n], sqrt(abs(gelu(t))).cast::<T>());
            store(b[n], rsqrt(abs(gelu(t))).cast::<T>());
            store(c[n], sqrt(abs(gelu_slope(t))).cast::<T>());
        }
    }

    kernel normalised<T: Float>(x: &Tensor<f32, [N, D]>, y: &mut Tensor<T, [N, D]>, z: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            let g = gelu(load(x[n, ..]));
            let m = sum(g * g, axis = 1) / size(D).cast::<f32>();
            store(y[n, ..], (g * rsqrt(m)).cast::<T>());
            store(z[n], sum(abs(g), axis = 1).cast::<T>());
        }
    }

    kernel gated<T: Float>(x: &Tensor<f32, [N, D]>, w: &Tensor<f16, [K, D, D]>, a: &Tensor<f32, [K]>, y: &mut Tensor<T, [N, D]>)
    {
        for n in grid(tiles(N, 16)) {
            let p = load(x[n, ..]).cast::<f16>();
            let mut acc = zeros::<f32>([16, D]);
            for k in 0..size(K) {
                acc += dot(p, load(w[k, .., ..])) * sin(load(a[k]));
            }
            store(y[n, ..], acc.cast::<T>());
        }
    }

    kernel term_of_loop<T: Float>(x: &Tensor<f32, [N, D]>, w: &Tensor<f16, [D, D]>, a: &Tensor<f32, [K]>, y: &mut Tensor<T, [N, D]>)
    {
        for n in grid(tiles(N, 16)) {
            let d = dot(load(x[n, ..]).cast::<f16>(), load(w[.., ..]));
            let mut acc = zeros::<f32>([16, D]);
            for k in 0..size(K) {
                acc += d * sin(load(a[k]));
            }
            store(y[n, ..], (acc * 1024.0).cast::<T>());
        }
    }

    kernel cast_in_loop<T: Float>(x: &Tensor<f32, [N, D]>, w: &Tensor<f16, [D, D]>, a: &Tensor<f32, [K]>, y: &mut Tensor<T, [N, D]>)
    {
        for n in grid(tiles(N, 16)) {
            let t = load(x[n, ..]);
            let mut acc = zeros::<f32>([16, D]);
            for k in 0..size(K) {
                acc += dot(t.cast::<f16>(), load(w[.., ..])) * sin(load(a[k]));
            }
            store(y[n, ..], (acc * 1024.0).cast::<T>());
        }
    }

    kernel crossed<T: Float>(x: &Tensor<f32, [K, D]>, y: &mut Tensor<T, [N, D]>)
    {
        for n in grid(N) {
            let mut p = full::<f32>([D, D], 1.0);
            for k in 0..size(K) {
                let t = load(x[k, ..]);
                p = p * exp(broadcast(t, [D, D]) - max(broadcast(t.t(), [D, D]), -1000.0));
            }
            store(y[n, ..], max(p, axis = 1).t().cast::<T>());
        }
    }

    kernel scaled<T: Float>(x: &Tensor<f32, [K, N]>, s: &Tensor<f32, [K, N]>, y: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            let mut p = full::<f32>([64], 1.0);
            for k in 0..size(K) {
                let t = load(x[k, n]);
                p = p * exp(t - max(t, 0.0)) * load(s[k, n]);
            }
            store(y[n], p.cast::<T>());
        }
    }

    kernel sums<T: Float>(x: &Tensor<f32, [N, D]>, m: &Tensor<f32, [N]>, s: f32, y: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 4)) {
            let mut total = zeros::<f32>([4, 1]);
            let top = load(m[n]).t();
            for d in tiles(D, 512) {
                let t = load(x[n, d]);
                total += sum(exp(t - max(t, top)), axis = 1);
            }
            store(y[n], ((total * s - 1.0) * 64.0).cast::<T>());
        }
    }

    kernel log_of_sum<T: Float>(x: &Tensor<f32, [N, D]>, y: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 4)) {
            let t = load(x[n, ..]);
            let top = max(t, axis = 1);
            store(y[n], (log(sum(exp(t - top), axis = 1)) + top).cast::<T>());
        }
    }
}

/// The number near `from` for which rounding its product with log2(e) increases the exponential most (`up`) or
/// decreases it most.
fn far(from: f32, up: bool) -> f64 {
    let near = (0..4096).map(|i| from + i as f32 * 2f32.powi(-17));
    let of = |x: &f32| if up { lost(f64::from(*x)) } else { -lost(f64::from(*x)) };
    f64::from(near.max_by(|a, b| of(a).total_cmp(&of(b))).unwrap_or(from))
}

/// The error that the rounding adds to the exponent of 2.
fn lost(x: f64) -> f64 {
    f64::from(x as f32 * std::f32::consts::LOG2_E) - x * std::f64::consts::LOG2_E
}

/// Numbers close to `x`, so that all results have about the same size.
fn near(x: f64) -> Given {
    input(F32, &[64], move |i| x + (i % 8) as f64 * 1e-4 * x)
}

#[test]
fn gelu_far_below_zero_is_inverted_and_rooted() {
    for x in [-5.0, -5.5, -7.0] {
        let y = output(Bf16, &[64]);
        agrees(&inverses, &[near(x), y.clone(), y.clone(), y.clone()], OF_BF16);
        agrees(&roots, &[near(x), y.clone(), y.clone(), y], OF_BF16);
    }
    let y = output(F16, &[64]);
    agrees(&roots, &[near(-5.5), y.clone(), y.clone(), y], OF_F16);
    // Near the root of the slope.
    let y = output(Bf16, &[64]);
    agrees(&inverses, &[near(-0.75178), y.clone(), y.clone(), y], OF_BF16);
}

#[test]
fn gelu_far_below_zero_is_normalised() {
    let x = input(F32, &[32, 64], |i| -5.6 - 0.4 * noise(i));
    agrees(&normalised, &[x.clone(), output(F16, &[32, 64]), output(F16, &[32])], OF_F16);
    agrees(&normalised, &[x, output(Bf16, &[32, 64]), output(Bf16, &[32])], OF_BF16);
}

/// The terms of a sum cancel except for 1/32. Each is a product with one number that was rounded once.
#[test]
fn one_rounding_does_not_take_up_the_errors_of_many_iterations() {
    let c = (1.4f64.sin() - 0.6f64.sin() - 2f64.powi(-15)).asin();
    let ones = |dtype, shape: &[usize]| input(dtype, shape, |_| 1.0);
    let w = input(F16, &[3, 16, 16], |i| if i / 256 == 0 { 64.0 } else { -64.0 });
    let a = input(F32, &[3], move |i| [1.4, 0.6, c][i]);
    agrees(&gated, &[ones(F32, &[16, 16]), w, a, output(F16, &[16, 16])], 0.01);
    let a = input(F32, &[3], move |i| [1.4, -0.6, -c][i]);
    let args = [ones(F32, &[16, 16]), ones(F16, &[16, 16]), a, output(F16, &[16, 16])];
    agrees(&term_of_loop, &args, 0.01);
    agrees(&cast_in_loop, &args, 0.01);
}

/// exp(t_j - t_i) is above 1 as often as below.
#[test]
fn a_row_less_its_column_grows() {
    let up = far(80.0, true);
    let net = |a: f64| lost(up) + lost(-a) + lost(a - up);
    let between = (0..4096).map(|i| f64::from(40.0 + i as f32 * 2f32.powi(-17)));
    let a = between.max_by(|a, b| net(*a).total_cmp(&net(*b))).unwrap_or(40.0);
    let x = input(F32, &[3000, 16], move |i| match (i / 16 % 3, i % 16) {
        (0, j) if j > 0 => up,
        (1, 0) => a,
        (2, 0) => up - a,
        _ => 0.0,
    });
    agrees_with(&crossed, &[x, output(F16, &[1, 16])], OF_F16, |_| vec![vec![1.0; 16]]);
}

#[test]
fn a_product_that_is_scaled_in_each_iteration_keeps_its_digits() {
    let t = far(-69.0, true);
    let x = input(F32, &[1000, 64], move |_| t);
    let s = input(F32, &[1000, 64], move |_| (-t).exp());
    agrees_with(&scaled, &[x, s, output(F16, &[64])], OF_F16, |a| {
        vec![(0..64).map(|n| (0..1000).map(|k| a[0][k * 64 + n].exp() * a[1][k * 64 + n]).product()).collect()]
    });
}

/// A single term, and one term with 511 zeros.
#[test]
fn a_sum_of_few_exponentials_keeps_its_digits() {
    let t = far(-69.0, true);
    let s = Given::F32(((-t).exp() * 1.0003) as f32);
    let top = input(F32, &[4], |_| 0.0);
    agrees(&sums, &[input(F32, &[4, 1], move |_| t), top.clone(), s.clone(), output(F16, &[4])], 0.01);
    let x = input(F32, &[4, 512], move |i| if i % 512 == 3 { t } else { -300.0 });
    agrees(&sums, &[x, top, s, output(F16, &[4])], 0.01);
}

/// The logarithm of a softmax's sum is accurate to 2^-15, for few terms and for many.
#[test]
fn a_logarithm_of_a_softmax_is_off_absolutely() {
    for d in [2, 64, 1000] {
        let small = far(-9.0, true);
        let x = input(F32, &[16, d], move |i| if i % d == 0 { -(d as f64).ln() } else { small });
        let value = move |row: &[f64]| row.iter().map(|x| x.exp()).sum::<f64>().ln();
        let wanted = move |a: &[Vec<f64>]| vec![a[0].chunks(d).map(value).collect::<Vec<_>>()];
        agrees_with(&log_of_sum, &[x, output(F16, &[16])], OF_F16, wanted);
    }
}
