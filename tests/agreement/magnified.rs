//! Kernels that magnify the errors of functions, on simulated GPUs whose approximate instructions have the largest
//! allowed error.

use super::{Given, agrees, input, output};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    kernel quotients<T: Float>(a: &Tensor<f32, [N]>, b: &Tensor<f32, [N]>, e: &mut Tensor<T, [N]>, s: &mut Tensor<T, [N]>, q: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            let x = load(a[n]);
            let y = load(b[n]);
            store(e[n], ((exp(x) / exp(y) - 1.0) * 64.0).cast::<T>());
            store(s[n], ((sigmoid(-x) / sigmoid(-y) - 1.0) * 64.0).cast::<T>());
            store(q[n], ((x / y - 1.0) * 64.0).cast::<T>());
        }
    }

    kernel thousands<T: Float>(x: &Tensor<f32, [N, K]>, y: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            let mut p = full::<f32>([64], 1.0);
            for k in 0..size(K) {
                p = p * exp(load(x[n, k]));
            }
            store(y[n], p.cast::<T>());
        }
    }

    kernel logarithms<T: Float, U: Float>(a: &Tensor<f32, [N]>, b: &Tensor<f32, [N]>, y: &mut Tensor<T, [N]>, z: &mut Tensor<U, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            let x = load(a[n]);
            let ratio = exp(x) / exp(load(b[n]));
            store(y[n], (log(ratio) * 64.0).cast::<T>());
            store(z[n], exp(exp(x * 0.0625)).cast::<U>());
        }
    }

    kernel waves<T: Float>(a: &Tensor<f32, [N]>, y: &mut Tensor<T, [N]>, z: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            store(y[n], (sin(load(a[n])) * 1e5).cast::<T>());
            store(z[n], (cos(load(a[n])) * 1e5).cast::<T>());
        }
    }
}

/// Numbers just above 60 whose exponentials are most affected by rounding the argument, and 60.
fn near_sixty() -> [Given; 2] {
    [input(F32, &[256], |i| 60.0 + i as f64 * 2f64.powi(-18)), input(F32, &[256], |_| 60.0)]
}

#[test]
fn differences_of_quotients_keep_their_digits() {
    let [a, b] = near_sixty();
    let y = output(F16, &[256]);
    agrees(&quotients, &[a, b, y.clone(), y.clone(), y], 2f64.powi(-9));
}

#[test]
fn a_product_of_a_thousand_exponentials_keeps_its_digits() {
    // The product with log2(e) rounds up for one number, and for the other it does so for the one closer to 0.
    let lost = |x: f32| f64::from(x * std::f32::consts::LOG2_E) - f64::from(x) * std::f64::consts::LOG2_E;
    let near = |from: f32| (0..4096).map(move |i| from + i as f32 * 2f32.powi(-17));
    let up = near(80.0).max_by(|a, b| lost(*a).total_cmp(&lost(*b))).unwrap_or(80.0);
    let down = near(80.0).min_by(|a, b| lost(*a).total_cmp(&lost(*b))).unwrap_or(80.0);
    let x = input(F32, &[64, 1000], |i| f64::from(if i % 2 == 0 { up } else { -down }));
    for dtype in [F16, Bf16] {
        let bound = if dtype == F16 { 2f64.powi(-10) } else { 2f64.powi(-7) };
        agrees(&thousands, &[x.clone(), output(dtype, &[64])], bound);
    }
}

#[test]
fn logarithms_and_exponentials_of_exponentials_keep_their_digits() {
    let [a, b] = near_sixty();
    let y = output(F16, &[256]);
    agrees(&logarithms, &[a, b, y, output(Bf16, &[256])], 2f64.powi(-8));
}

#[test]
fn waves_of_large_arguments_keep_their_digits_near_their_roots() {
    // A number close to a multiple of pi, or of half of it.
    let near = |i: usize| ((200_000 + 377 * i) as f64 * std::f64::consts::FRAC_PI_2) as f32;
    let mut all: Vec<f32> = (0..300).map(near).collect();
    all.retain(|x| x.abs() < 1_048_576.0);
    let least = |f: fn(f64) -> f64| {
        let by = |a: &f32, b: &f32| f(f64::from(*a)).abs().total_cmp(&f(f64::from(*b)).abs());
        all.iter().copied().min_by(by).unwrap_or(1.0)
    };
    for x in [least(f64::sin), least(f64::cos)] {
        // A single number, so that the result is measured relative to its own size.
        let a = input(F32, &[1], |_| f64::from(x));
        agrees(&waves, &[a, output(Bf16, &[1]), output(Bf16, &[1])], 2f64.powi(-7));
    }
}

/// These kernels would fail if roundings were ignored, as they once were.
#[cfg(feature = "mutations")]
#[test]
fn forgotten_roundings_show() {
    use super::disagreements;
    use atlas_codegen::mutation::{Mutation, with};
    let [a, b] = near_sixty();
    let y = output(F16, &[256]);
    let args = [a, b, y.clone(), y.clone(), y];
    let wrong = || with(Mutation::RoundingsForgotten, || disagreements(&quotients, &args, 2f64.powi(-9)));
    // A thread of its own has no kernels that were compiled without the mistake.
    let shown = std::thread::scope(|scope| scope.spawn(wrong).join()).unwrap_or_default();
    assert!(!shown.is_empty(), "functions that are approximate where that is magnified");
}
