//! Causal attention with an online softmax, masked over all keys, and only over those up to the diagonal.

use super::{bound, table};
use crate::agreement::{Given, agrees_with, input, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// o = softmax(scale q k^T, causal) v, with every tile of keys masked.
    kernel attention<T: Float>(
        q: &Tensor<T, [H, S, D]>,
        k: &Tensor<T, [H, S, D]>,
        v: &Tensor<T, [H, S, D]>,
        scale: f32,
        o: &mut Tensor<T, [H, S, D]>,
    )
    tune { BM: [16, 32], BN: [16], stages: [2], warps: [2] }
    {
        for (h, m) in grid(H, tiles(S, BM)) {
            let qs = load(q[h, m, ..]);
            let row = iota([BM, BN], 0) + m * BM;
            let mut top = full::<f32>([BM, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BM, 1]);
            let mut acc = zeros::<f32>([BM, D]);
            for n in pipeline(tiles(S, BN)) {
                let z = dot(qs, load(k[h, n, ..]).t()) * scale;
                let z = select(row >= iota([BM, BN], 1) + n * BN, z, f32::NEG_INFINITY);
                let higher = max(top, max(z, axis = 1));
                let e = exp(z - higher);
                let kept = exp(top - higher);
                total = total * kept + sum(e, axis = 1);
                acc *= kept;
                acc += dot(e.cast::<T>(), load(v[h, n, ..]));
                top = higher;
            }
            store(o[h, m, ..], (acc / total).cast::<T>());
        }
    }

    /// The same, over the tiles of keys up to the diagonal.
    kernel causal_attention<T: Float>(
        q: &Tensor<T, [H, S, D]>,
        k: &Tensor<T, [H, S, D]>,
        v: &Tensor<T, [H, S, D]>,
        scale: f32,
        o: &mut Tensor<T, [H, S, D]>,
    )
    tune { BM: [16, 32], BN: [16], stages: [2], warps: [1] }
    {
        for (h, m) in grid(H, tiles(S, BM)) {
            let qs = load(q[h, m, ..]);
            let row = iota([BM, BN], 0) + m * BM;
            let mut top = full::<f32>([BM, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BM, 1]);
            let mut acc = zeros::<f32>([BM, D]);
            for n in pipeline(0..((m + 1) * BM + BN - 1) / BN) {
                let z = dot(qs, load(k[h, span(n * BN, BN), ..]).t()) * scale;
                let z = select(row >= iota([BM, BN], 1) + n * BN, z, f32::NEG_INFINITY);
                let higher = max(top, max(z, axis = 1));
                let e = exp(z - higher);
                let kept = exp(top - higher);
                total = total * kept + sum(e, axis = 1);
                acc *= kept;
                acc += dot(e.cast::<T>(), load(v[h, span(n * BN, BN), ..]));
                top = higher;
            }
            store(o[h, m, ..], (acc / total).cast::<T>());
        }
    }
}

atlas_kernel! {
    /// y = max(x, axis = 1) + x w: the smallest kernel in which attention over heads of one element fails.
    kernel accumulate_onto_a_fold(x: &Tensor<f32, [M, N]>, w: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [M, D]>)
    {
        for m in grid(tiles(M, 16)) {
            let xs = load(x[m, ..]);
            let mut acc = broadcast(max(xs, axis = 1), [16, D]);
            acc += dot(xs, load(w[.., ..]));
            store(y[m, ..], acc);
        }
    }
}

/// softmax(scale q k^T) v, where each position sees itself and earlier ones.
fn plain(a: &[Vec<f64>], [h, s, d]: [usize; 3]) -> Vec<Vec<f64>> {
    let scale = a[3][0];
    vec![table([h * s, d], |r, i| {
        let first = r / s * s;
        let score = |c: usize| (0..d).map(|j| a[0][r * d + j] * a[1][c * d + j]).sum::<f64>() * scale;
        let (mut total, mut value) = (0.0, 0.0);
        for c in first..=r {
            total += score(c).exp();
            value += score(c).exp() * a[2][c * d + i];
        }
        value / total
    })]
}

const SHAPES: [(DType, [usize; 3], usize); 5] =
    [(F32, [2, 37, 16], 0), (F32, [1, 1, 2], 0), (F32, [2, 0, 8], 0), (Bf16, [1, 41, 24], 3), (F16, [3, 17, 7], 0)];

fn given(dtype: DType, shape: [usize; 3], around: usize) -> [Given; 5] {
    let scale = Given::F32(1.0 / (shape[2] as f32).sqrt());
    let [q, k, v] = [0, 1, 2].map(|salt| input(dtype, &shape, |i| 2.0 * noise(3 * i + salt)).within(around, salt));
    [q, k, v, scale, output(dtype, &shape).within(0, around)]
}

#[test]
fn causal_attention_by_a_mask() {
    for (dtype, shape, around) in SHAPES {
        let args = given(dtype, shape, around);
        agrees_with(&attention, &args, bound(dtype, 2, shape[1] + shape[2]), |a| plain(a, shape));
    }
}

#[test]
fn causal_attention_up_to_the_diagonal() {
    for (dtype, shape, around) in SHAPES {
        let args = given(dtype, shape, around);
        agrees_with(&causal_attention, &args, bound(dtype, 2, shape[1] + shape[2]), |a| plain(a, shape));
    }
}

#[test]
fn heads_of_one_element() {
    for d in [2, 1] {
        let args = [random(F32, &[3, 7]), random(F32, &[7, d]), output(F32, &[3, d])];
        agrees_with(&accumulate_onto_a_fold, &args, bound(F32, 1, 7), |a| {
            let row = |m: usize| &a[0][m * 7..][..7];
            let most = |m| row(m).iter().copied().fold(f64::NEG_INFINITY, f64::max);
            vec![table([3, d], |m, j| most(m) + (0..7).map(|n| row(m)[n] * a[1][n * d + j]).sum::<f64>())]
        });
        for dtype in [F32, F16, Bf16] {
            let (args, shape) = (given(dtype, [1, 5, d], 0), [1, 5, d]);
            agrees_with(&attention, &args, bound(dtype, 2, 6), |a| plain(a, shape));
            agrees_with(&causal_attention, &args, bound(dtype, 2, 6), |a| plain(a, shape));
        }
    }
}
