//! Convolutions by taps: over channels as products, and depthwise in two axes and in one.

use super::{bound, table};
use crate::agreement::{agrees_with, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// A 3x3 convolution with zero padding: a product over channels for each tap.
    kernel convolution<T: Float>(
        x: &Tensor<T, [B, C, H, W]>,
        k: &Tensor<T, [F, C, P, Q]>,
        y: &mut Tensor<T, [B, F, H, W]>,
    )
    tune { BF: [16], BW: [16, 32], warps: [2] }
    {
        for (b, f, h, w) in grid(B, tiles(F, BF), H, tiles(W, BW)) {
            let mut acc = zeros::<f32>([BF, BW]);
            for i in 0..3 {
                for j in 0..3 {
                    let pixels = load(x[b, .., h + i - 1, span(w * BW + j - 1, BW)]).or(0.0);
                    acc += dot(load(k[f, .., i, j]), pixels);
                }
            }
            store(y[b, f, h, w], acc.cast::<T>());
        }
    }

    /// A convolution of each channel with its own P x Q taps and zero padding.
    kernel depthwise<T: Float>(
        x: &Tensor<T, [B, C, H, W]>,
        k: &Tensor<T, [C, P, Q]>,
        y: &mut Tensor<T, [B, C, H, W]>,
    )
    tune { BH: [4, 8], BW: [16], warps: [1] }
    {
        for (b, c, h, w) in grid(B, C, tiles(H, BH), tiles(W, BW)) {
            let mut acc = zeros::<f32>([BH, BW]);
            for i in 0..size(P) {
                for j in 0..size(Q) {
                    let top = h * BH + i - size(P) / 2;
                    let left = w * BW + j - size(Q) / 2;
                    let pixels = load(x[b, c, span(top, BH), span(left, BW)]).or(0.0);
                    acc += load(k[c, i, j]).cast::<f32>() * pixels.cast::<f32>();
                }
            }
            store(y[b, c, h, w], acc.cast::<T>());
        }
    }

    /// A convolution of each channel with its own K taps over the past.
    kernel causal_depthwise<T: Float>(
        x: &Tensor<T, [B, S, C]>,
        k: &Tensor<T, [K, C]>,
        y: &mut Tensor<T, [B, S, C]>,
    )
    tune { BS: [4, 8], BC: [16], warps: [2] }
    {
        for (b, s, c) in grid(B, tiles(S, BS), tiles(C, BC)) {
            let mut acc = zeros::<f32>([BS, BC]);
            for i in 0..size(K) {
                let past = load(x[b, span(s * BS + i - size(K) + 1, BS), c]).or(0.0);
                acc += load(k[i, c]).cast::<f32>() * past.cast::<f32>();
            }
            store(y[b, s, c], acc.cast::<T>());
        }
    }
}

/// An element of an image, or 0 outside it.
fn pixel(image: &[f64], [h, w]: [usize; 2], row: usize, column: usize) -> f64 {
    // A negative index has wrapped around.
    if row < h && column < w { image[row * w + column] } else { 0.0 }
}

#[test]
fn convolution_by_taps() {
    for (dtype, [b, c, h, w], f, around) in [
        (F32, [2, 3, 4, 19], 5, 0),
        (F32, [1, 1, 1, 1], 1, 0),
        (F32, [2, 3, 0, 5], 4, 0),
        (Bf16, [1, 7, 3, 17], 19, 3),
        (F16, [1, 16, 2, 8], 3, 0),
    ] {
        let args = [
            random(dtype, &[b, c, h, w]).within(around, 0),
            random(dtype, &[f, c, 3, 3]).within(0, around),
            output(dtype, &[b, f, h, w]).within(1, around),
        ];
        agrees_with(&convolution, &args, bound(dtype, 1, 9 * c), |a| {
            vec![table([b * f, h * w], |n, at| {
                let tap = |l: usize, t: usize| {
                    let image = &a[0][(n / f * c + l) * h * w..][..h * w];
                    let (row, column) = ((at / w + t / 3).wrapping_sub(1), (at % w + t % 3).wrapping_sub(1));
                    pixel(image, [h, w], row, column) * a[1][(n % f * c + l) * 9 + t]
                };
                (0..c).map(|l| (0..9).map(|t| tap(l, t)).sum::<f64>()).sum()
            })]
        });
    }
}

#[test]
fn depthwise_convolution() {
    for (dtype, [b, c, h, w], [p, q], around) in [
        (F32, [2, 3, 7, 19], [3, 3], 0),
        (F32, [1, 1, 1, 1], [1, 1], 0),
        (F32, [1, 2, 5, 0], [3, 3], 0),
        (F32, [1, 2, 3, 5], [0, 3], 0),
        (Bf16, [1, 2, 5, 17], [5, 2], 3),
    ] {
        let args = [
            random(dtype, &[b, c, h, w]).within(around, 0),
            random(dtype, &[c, p, q]),
            output(dtype, &[b, c, h, w]).within(0, around),
        ];
        agrees_with(&depthwise, &args, bound(dtype, 1, p * q), |a| {
            vec![table([b * c, h * w], |n, at| {
                let tap = |i: usize, j: usize| {
                    let (row, column) = ((at / w + i).wrapping_sub(p / 2), (at % w + j).wrapping_sub(q / 2));
                    pixel(&a[0][n * h * w..], [h, w], row, column) * a[1][(n % c * p + i) * q + j]
                };
                (0..p).map(|i| (0..q).map(|j| tap(i, j)).sum::<f64>()).sum()
            })]
        });
    }
}

#[test]
fn causal_depthwise_convolution() {
    for (dtype, [b, s, c], k, around) in [
        (F32, [2, 13, 19], 4, 0),
        (F32, [1, 1, 1], 3, 0),
        (F32, [0, 5, 3], 2, 0),
        (Bf16, [2, 7, 17], 5, 3),
        (F16, [1, 11, 16], 1, 0),
    ] {
        let args = [
            random(dtype, &[b, s, c]).within(around, 0),
            random(dtype, &[k, c]).within(0, around),
            output(dtype, &[b, s, c]).within(around, 1),
        ];
        agrees_with(&causal_depthwise, &args, bound(dtype, 1, k), |a| {
            vec![table([b * s, c], |r, i| {
                let past = (0..k).filter(|t| r % s + t + 1 >= k);
                past.map(|t| a[0][(r + t + 1 - k) * c + i] * a[1][t * c + i]).sum()
            })]
        });
    }
}
