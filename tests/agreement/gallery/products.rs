//! Matrix products: one with an epilogue, and a Gram matrix.

use super::{bound, table};
use crate::agreement::{agrees_with, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// GELU, tanh form.
    tile fn gelu_tanh(z) { 0.5 * z * (1.0 + tanh(0.7978845608 * (z + 0.044715 * z * z * z))) }

    /// y = gelu(x w + bias) + r
    kernel linear<T: Float>(
        x:    &Tensor<T, [M, K]>,
        w:    &Tensor<T, [K, N]>,
        bias: &Tensor<T, [N]>,
        r:    &Tensor<T, [M, N]>,
        y:    &mut Tensor<T, [M, N]>,
    )
    tune { BM: [16, 32], BN: [32], BK: [32], stages: [2], warps: [2] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[m, k]), load(w[k, n]));
            }
            let z = gelu_tanh(acc + load(bias[n]).cast::<f32>());
            store(y[m, n], (z + load(r[m, n]).cast::<f32>()).cast::<T>());
        }
    }

    /// y = x^T x
    kernel gram<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<f32, [D, D]>)
    tune { BI: [16, 32], BJ: [16], BN: [32], stages: [2], warps: [2] }
    {
        for (i, j) in grid(tiles(D, BI), tiles(D, BJ)) {
            let mut acc = zeros::<f32>([BI, BJ]);
            for n in pipeline(tiles(N, BN)) {
                acc += dot(load(x[n, i]).t(), load(x[n, j]));
            }
            store(y[i, j], acc);
        }
    }
}

fn gelu_plain(z: f64) -> f64 {
    0.5 * z * (1.0 + (0.797_884_560_8 * (z + 0.044_715 * z * z * z)).tanh())
}

#[test]
fn product_with_bias_gelu_and_residual() {
    for (dtype, m, n, k, around) in
        [(F32, 17, 37, 41, 0), (F32, 1, 1, 1, 0), (F32, 3, 5, 0, 0), (Bf16, 19, 33, 67, 3), (F16, 0, 8, 16, 0)]
    {
        let args = [
            random(dtype, &[m, k]).within(around, 0),
            random(dtype, &[k, n]).within(0, around),
            random(dtype, &[n]),
            random(dtype, &[m, n]).within(around, 2),
            output(dtype, &[m, n]).within(1, around),
        ];
        agrees_with(&linear, &args, bound(dtype, 1, k), |a| {
            let z = |i, j| (0..k).map(|l| a[0][i * k + l] * a[1][l * n + j]).sum::<f64>() + a[2][j];
            vec![table([m, n], |i, j| gelu_plain(z(i, j)) + a[3][i * n + j])]
        });
    }
}

#[test]
fn gram_matrix() {
    for (dtype, n, d, around) in [(F32, 37, 19, 0), (F32, 1, 1, 0), (F32, 0, 7, 0), (Bf16, 41, 23, 3), (F16, 5, 32, 0)]
    {
        let args = [random(dtype, &[n, d]).within(around, 0), output(F32, &[d, d]).within(0, around)];
        agrees_with(&gram, &args, bound(F32, 1, n), |a| {
            vec![table([d, d], |i, j| (0..n).map(|r| a[0][r * d + i] * a[0][r * d + j]).sum())]
        });
    }
}
