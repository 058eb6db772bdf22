//! Kernels that would break an analysis if one of its rules were weaker. The header of the analysis names its kernels.

use super::{agrees, input, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    kernel init_of_two<T: Float>(p: &Tensor<T, [G, D, D]>, x: &Tensor<T, [G, D, E]>, y: &mut Tensor<f32, [G, D, E]>)
    tune { warps: [1, 4] }
    {
        for g in grid(G) {
            let ps = load(p[g, .., ..]);
            let t = abs(load(x[g, .., ..]));
            let mut a = t * 0.5;
            let mut b = t;
            for _i in 0..2 {
                a = dot(ps, a).cast::<T>();
                b = dot(ps, b).cast::<T>();
            }
            store(y[g, .., ..], dot(ps, a) - dot(ps, b));
        }
    }

    kernel computed_constant(x: &Tensor<f32, [N, R, D]>, w: &Tensor<f32, [N, R, E]>, y: &mut Tensor<f32, [N, D]>, z: &mut Tensor<f32, [N, E]>)
    tune { warps: [4, 1, 2] }
    {
        for n in grid(N) {
            let c = full::<f32>([R, 1], 1.0) + full::<f32>([R, 1], 1.0);
            store(y[n, ..], sum(load(x[n, .., ..]) + c - 2.0, axis = 0));
            store(z[n, ..], sum(load(w[n, .., ..]) + c - 2.0, axis = 0));
        }
    }

    kernel narrowed_product(p: &Tensor<f32, [G, D, K]>, x: &Tensor<f32, [G, K, E]>, w: &Tensor<f16, [G, M, D]>, y: &mut Tensor<f32, [G, M, E]>)
    tune { warps: [4, 3] }
    {
        for g in grid(G) {
            let v = dot(load(p[g, .., ..]), load(x[g, .., ..])).cast::<f16>();
            store(y[g, .., ..], dot(load(w[g, .., ..]), v));
        }
    }

    kernel transposed_in_turn<T: Float>(p: &Tensor<T, [G, D, D]>, x: &Tensor<T, [G, D, D]>, z: &Tensor<T, [G, D, D]>, y: &mut Tensor<f32, [G, D, D]>)
    tune { warps: [1, 4] }
    {
        for g in grid(G) {
            let ps = load(p[g, .., ..]);
            let mut a = load(x[g, .., ..]);
            let mut b = load(z[g, .., ..]);
            let mut s = zeros::<f32>([D, D]);
            for _i in 0..3 {
                s += a.cast::<f32>() * 0.5;
                let turned = a.t();
                a = (dot(ps, a) + dot(ps, b)).cast::<T>();
                b = turned;
            }
            store(y[g, .., ..], s + dot(ps, a) - dot(ps, b));
        }
    }

    kernel two_pipelines<T: Float>(x: &Tensor<T, [N, H]>, w: &Tensor<T, [H, D]>, u: &Tensor<T, [D, D]>, z: &Tensor<T, [N, K]>, v: &Tensor<T, [K, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [32], BK: [16], stages: [3, 2, 4, 1], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let us = load(u[.., ..]);
            let mut acc = zeros::<f32>([BN, D]);
            for h in pipeline(tiles(H, BK)) {
                acc += dot(load(x[n, h]), load(w[h, ..]));
            }
            let mut all = dot(acc.cast::<T>(), us);
            for _i in 0..2 {
                for k in pipeline(tiles(K, BK)) {
                    all += dot(load(z[n, k]), load(v[k, ..]));
                }
                all += dot(all.cast::<T>(), us);
            }
            store(y[n, ..], all);
        }
    }

    kernel running_products<T: Float>(x: &Tensor<f32, [N, K]>, y: &mut Tensor<T, [N]>, z: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            let mut p = full::<f32>([64], 1.0);
            let first = load(x[n, 0]);
            let mut q = tanh(first) / first;
            for k in 0..size(K) {
                let t = load(x[n, k]);
                p = p * (tanh(t) / t);
            }
            for _i in 0..9 {
                q = q * q;
            }
            store(y[n], p.cast::<T>());
            store(z[n], q.cast::<T>());
        }
    }

    kernel cancelling<T: Float>(x: &Tensor<f32, [N]>, y: &mut Tensor<T, [N]>, z: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            let t = load(x[n]);
            store(y[n], ((sin(t) - t + t * t * t / 6.0) / (t * t)).cast::<T>());
            store(z[n], select(tanh(t) < t, 1.0, 0.0).cast::<T>());
        }
    }

    kernel each_its_own<T: Float>(x: &Tensor<f32, [N, K]>, u: &Tensor<f32, [N]>, y: &mut Tensor<T, [N]>, z: &mut Tensor<f32, [N]>, w: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            let t = load(x[n, 0]);
            store(z[n], erf(t) + tanh(t));
            let mut narrow = t;
            let mut wide = t;
            for k in 0..size(K) {
                narrow = max(narrow, tanh(load(x[n, k])));
                wide = select(sin(wide) < load(x[n, k]), wide, cos(wide));
            }
            store(y[n], (narrow * erf(t) * load(u[n])).cast::<T>());
            store(w[n], wide);
        }
    }

    kernel near_one<T: Float>(x: &Tensor<f32, [N]>, y: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            let t = load(x[n]);
            store(y[n], (log(t) / (t - 1.0)).cast::<T>());
        }
    }
}

#[test]
fn padding_of_an_operand_is_zero_whatever_ranges_write_it() {
    for (d, e) in [(56, 224), (40, 160), (88, 96)] {
        let small = |dtype, shape: &[usize]| input(dtype, shape, |i| noise(i) * 0.2);
        let args =
            [small(F32, &[1, d, 16]), small(F32, &[1, 16, e]), small(F16, &[1, 16, d]), output(F32, &[1, 16, e])];
        agrees(&narrowed_product, &args, 2e-2);
    }
}

#[test]
fn what_another_carried_tile_starts_with_is_not_overwritten() {
    for dtype in [F16, Bf16, F32] {
        let (d, e) = (80, 64);
        let small = |shape: &[usize]| input(dtype, shape, |i| noise(i) * 0.2);
        let args = [small(&[1, d, d]), small(&[1, d, e]), output(F32, &[1, d, e])];
        agrees(&init_of_two, &args, if dtype == F32 { 1e-5 } else { 2e-2 });
    }
}

#[test]
fn a_change_of_layout_keeps_no_constant_in_padding() {
    for r in [3, 24] {
        let args = [random(F32, &[2, r, 128]), random(F32, &[2, r, 16]), output(F32, &[2, 128]), output(F32, &[2, 16])];
        agrees(&computed_constant, &args, 1e-5);
    }
}

#[test]
fn copies_of_two_loops_are_waited_for() {
    let small = |shape: &[usize]| input(Bf16, shape, |i| noise(i) * 0.1);
    for (h, k) in [(64, 64), (16, 100), (1, 33), (0, 17)] {
        let (n, d) = (40, 32);
        let args =
            [small(&[n, h]), small(&[h, d]), small(&[d, d]), small(&[n, k]), small(&[k, d]), output(F32, &[n, d])];
        agrees(&two_pipelines, &args, 1e-2);
    }
}

#[test]
fn what_iterates_magnify_is_precise() {
    for dtype in [F16, Bf16] {
        let x = input(F32, &[100, 500], |i| 0.0112 + 0.0002 * noise(i));
        agrees(&running_products, &[x, output(dtype, &[100]), output(dtype, &[100])], 2f64.powi(-7));
    }
}

#[test]
fn what_cancels_is_precise() {
    for dtype in [F16, Bf16] {
        let x = input(F32, &[300], |i| 0.05 + 0.02 * noise(i));
        agrees(&cancelling, &[x, output(dtype, &[300]), output(dtype, &[300])], 2f64.powi(-5));
    }
}

#[test]
fn each_output_has_the_digits_of_its_type() {
    for dtype in [F16, Bf16] {
        let x = input(F32, &[300, 5], |i| 0.5 + 0.4 * noise(i));
        // If nothing of the narrow output is left, the bound is that of the wide ones.
        for (factor, bound) in [(1.0, 2f64.powi(-7)), (0.0, 2f64.powi(-20))] {
            let u = input(F32, &[300], |_| factor);
            let args = [x.clone(), u, output(dtype, &[300]), output(F32, &[300]), output(F32, &[300])];
            agrees(&each_its_own, &args, bound);
        }
    }
}

#[test]
fn a_logarithm_near_one_keeps_its_digits() {
    for dtype in [F16, Bf16] {
        let x = input(F32, &[300], |i| 1.0 + (i as f64 + 1.0) * 2f64.powi(-20));
        agrees(&near_one, &[x, output(dtype, &[300])], 2f64.powi(-7));
    }
}

#[test]
fn a_transpose_is_read_before_its_tile_is_replaced() {
    for dtype in [F16, Bf16, F32] {
        for d in [16, 32, 48] {
            let small = |salt: f64| input(dtype, &[1, d, d], move |i| noise(i) * salt);
            let args = [small(0.3), small(0.4), small(0.5), output(F32, &[1, d, d])];
            agrees(&transposed_in_turn, &args, if dtype == F32 { 1e-5 } else { 2e-2 });
        }
    }
}
