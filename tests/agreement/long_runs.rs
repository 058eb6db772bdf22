//! Element-wise operations with many values that several of them use, which are computed register by register: dropout behind a
//! product, in a row, and polynomials.

use super::{Given, agrees, agrees_on_hopper, agrees_with, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32, I32};

atlas_kernel! {
    tile fn dropped(x, seed, index, p) { select(uniform(seed, index) < p, 0.0, x * (1.0 / (1.0 - p))) }

    /// Dropout on the accumulator, whose columns are stored range by range.
    kernel product_dropped<T: Float>(
        a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<T, [M, N]>, seed: i64, p: f32,
    )
    tune { BM: [64, 128], BN: [128, 64, 256], stages: [2], warps: [4, 8], stores: [threads, engine] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            let index = (m * BM + iota([BM, 1], 0)) * size(N) + n * BN + iota([1, BN], 1);
            store(y[m, n], dropped(acc, seed, index, p).cast::<T>());
        }
    }

    /// Rows that are held whole, with two draws of two indices.
    kernel rows_dropped<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>, seed: i64, p: f32)
    tune { BN: [1, 4, 3], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let index = (n * BN + iota([BN, 1], 0)) * size(D) + iota([1, D], 1);
            let x = load(x[n, ..]).cast::<f32>();
            let e = exp(x - max(x, axis = 1));
            let s = e / sum(e, axis = 1);
            store(y[n, ..], (dropped(s, seed, index, p) + uniform(seed, 3 * index + 1)).cast::<T>());
        }
    }

    /// A chain of integers, each used three times.
    kernel mixed(x: &Tensor<i32, [N]>, y: &mut Tensor<i32, [N]>)
    tune { BN: [2048, 4096, 800, 96], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let a = load(x[n]);
            let b = a * 3 + (a >> 2);
            let c = b * a + (b ^ (a << 3));
            let d = c * b + (c ^ a) - (c >> 5);
            let e = d * c + (d ^ b) - (d & a);
            store(y[n], e * d + (e ^ c) - (e | b));
        }
    }

    /// In 16 bits and in both, with conversions in between.
    kernel polynomials<T: Float>(x: &Tensor<T, [N]>, y: &mut Tensor<T, [N]>, z: &mut Tensor<f32, [N]>)
    tune { BN: [4096, 2048, 160], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let a = load(x[n]).cast::<f32>();
            let b = a * a - 0.5;
            let c = (a * b + 0.25).cast::<T>().cast::<f32>();
            let d = c * b + a * c;
            let e = select(d < b, d * a, c - d);
            store(y[n], (e * d + c * b).cast::<T>());
            store(z[n], e - d * c);
        }
    }
}

/// Hopper's products have engine stores, by panels.
#[test]
fn dropout_behind_a_product() {
    for (m, n, k, p) in [(128, 256, 64, 0.4_f32), (70, 136, 72, 0.25)] {
        for dtype in [Bf16, F16] {
            let args =
                [random(dtype, &[m, k]), random(dtype, &[n, k]), output(dtype, &[m, n]), Given::I64(77), Given::F32(p)];
            agrees(&product_dropped, &args, 0.02);
            agrees_on_hopper(&product_dropped, &args, 0.02);
        }
    }
}

#[test]
fn dropout_in_rows() {
    for (n, d) in [(5, 1024), (3, 96), (2, 33)] {
        for (dtype, bound) in [(F32, 1e-5), (Bf16, 0.01)] {
            let args = [random(dtype, &[n, d]), output(dtype, &[n, d]), Given::I64(-5), Given::F32(0.5)];
            agrees(&rows_dropped, &args, bound);
        }
    }
}

#[test]
fn integers_that_are_used_again() {
    for n in [1, 97, 4096, 5000] {
        let args = [random(I32, &[n]), output(I32, &[n])];
        agrees_with(&mixed, &args, 0.0, |given| {
            let of = |&x: &f64| {
                let a = x as i32;
                let b = a.wrapping_mul(3).wrapping_add(a >> 2);
                let c = b.wrapping_mul(a).wrapping_add(b ^ (a << 3));
                let d = c.wrapping_mul(b).wrapping_add(c ^ a).wrapping_sub(c >> 5);
                let e = d.wrapping_mul(c).wrapping_add(d ^ b).wrapping_sub(d & a);
                f64::from(e.wrapping_mul(d).wrapping_add(e ^ c).wrapping_sub(e | b))
            };
            vec![given[0].iter().map(of).collect()]
        });
    }
}

#[test]
fn floats_that_are_used_again() {
    for n in [1, 161, 5000] {
        for (dtype, bound) in [(F32, 1e-5), (F16, 0.01), (Bf16, 0.06)] {
            let args = [random(dtype, &[n]), output(dtype, &[n]), output(F32, &[n])];
            agrees(&polynomials, &args, bound);
        }
    }
}
