//! Work on rows: rotary embedding, cross-entropy over a large vocabulary, routing to two experts.

use super::{bound, table};
use crate::agreement::{agrees_with, input, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32, I32};

atlas_kernel! {
    /// The halves of a row, rotated by the angle of their position.
    kernel rotary<T: Float>(
        x:   &Tensor<T, [G, S, D]>,
        cos: &Tensor<f32, [S, H]>,
        sin: &Tensor<f32, [S, H]>,
        y:   &mut Tensor<T, [G, S, D]>,
    )
    tune { BS: [4, 16], warps: [1] }
    {
        for (g, s) in grid(G, tiles(S, BS)) {
            let a = load(x[g, s, span(0, H)]).cast::<f32>();
            let b = load(x[g, s, span(size(H), H)]).cast::<f32>();
            let c = load(cos[s, ..]);
            let d = load(sin[s, ..]);
            store(y[g, s, span(0, H)], (a * c - b * d).cast::<T>());
            store(y[g, s, span(size(H), H)], (a * d + b * c).cast::<T>());
        }
    }

    /// -log softmax(x)[target], by tiles of the vocabulary.
    kernel cross_entropy<T: Float>(x: &Tensor<T, [N, V]>, target: &Tensor<i32, [N]>, loss: &mut Tensor<f32, [N]>)
    tune { BN: [4, 8], BV: [32], warps: [2] }
    {
        for n in grid(tiles(N, BN)) {
            let wanted = broadcast(load(target[n]), [1, BN]).t();
            let mut top = full::<f32>([BN, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BN, 1]);
            let mut logit = zeros::<f32>([BN, 1]);
            for v in pipeline(tiles(V, BV)) {
                let z = load(x[n, v]).cast::<f32>();
                let higher = max(top, max(z, axis = 1));
                total = total * exp(top - higher) + sum(exp(z - higher), axis = 1);
                top = higher;
                let at = iota([BN, BV], 1) + v * BV;
                logit += sum(select(at == wanted, z, 0.0), axis = 1);
            }
            store(loss[n], top + log(total) - logit);
        }
    }

    /// The two largest of each row, their indices and their softmax.
    kernel top_two<T: Float>(
        x:      &Tensor<T, [N, E]>,
        weight: &mut Tensor<T, [N, K]>,
        index:  &mut Tensor<i32, [N, K]>,
    )
    tune { BN: [4, 8], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let z = load(x[n, ..]).cast::<f32>();
            let at = iota([BN, E], 1);
            let first = max(z, axis = 1);
            let i = min(select(z == first, at, size(E)), axis = 1);
            let rest = select(at == i, f32::NEG_INFINITY, z);
            let second = max(rest, axis = 1);
            let j = min(select(rest == second, at, size(E)), axis = 1);
            let share = sigmoid(first - second);
            store(weight[n, 0], share.cast::<T>());
            store(weight[n, 1], (1.0 - share).cast::<T>());
            store(index[n, 0], i);
            store(index[n, 1], j);
        }
    }
}

#[test]
fn rotary_embedding() {
    for (dtype, g, s, h, around) in
        [(F32, 3, 13, 5, 0), (F32, 1, 1, 1, 0), (F32, 2, 0, 4, 0), (Bf16, 2, 7, 8, 3), (F16, 2, 17, 3, 0)]
    {
        let d = 2 * h;
        let angle = |at: usize| (at / h) as f64 * 10f64.powf(-((at % h) as f64) / h as f64);
        let args = [
            random(dtype, &[g, s, d]).within(around, 1),
            input(F32, &[s, h], |at| angle(at).cos()),
            input(F32, &[s, h], |at| angle(at).sin()).within(0, around),
            output(dtype, &[g, s, d]).within(around, 0),
        ];
        agrees_with(&rotary, &args, bound(dtype, 1, 2), |a| {
            let [x, cos, sin] = [&a[0], &a[1], &a[2]];
            vec![table([g * s, d], |r, i| {
                let (even, odd, at) = (x[r * d + i % h], x[r * d + i % h + h], r % s * h + i % h);
                if i < h { even * cos[at] - odd * sin[at] } else { even * sin[at] + odd * cos[at] }
            })]
        });
    }
}

#[test]
fn cross_entropy_by_tiles_of_the_vocabulary() {
    for (dtype, n, v, around) in [(F32, 7, 101, 0), (F32, 1, 1, 0), (F32, 0, 33, 0), (Bf16, 5, 67, 3), (F16, 9, 32, 0)]
    {
        let args = [
            input(dtype, &[n, v], |i| 8.0 * noise(i)).within(around, 0),
            input(I32, &[n], |i| (i * 37 % v) as f64),
            output(F32, &[n]).within(0, around),
        ];
        agrees_with(&cross_entropy, &args, bound(F32, 1, v), |a| {
            let row = |r: usize| &a[0][r * v..(r + 1) * v];
            let loss = |r: usize| row(r).iter().map(|z| z.exp()).sum::<f64>().ln() - row(r)[a[1][r] as usize];
            vec![(0..n).map(loss).collect()]
        });
    }
}

#[test]
fn routing_to_two_experts() {
    for (dtype, n, e, around) in [(F32, 11, 13, 0), (F32, 1, 2, 0), (F32, 3, 1, 0), (Bf16, 5, 37, 3), (F16, 0, 8, 0)] {
        let given = [
            random(dtype, &[n, e]).within(around, 0),
            output(dtype, &[n, 2]).within(0, around),
            output(I32, &[n, 2]).within(1, 0),
        ];
        agrees_with(&top_two, &given, bound(dtype, 1, 2), |a| {
            let (mut weight, mut index) = (Vec::new(), Vec::new());
            for row in a[0].chunks(e) {
                let largest = |but: Option<usize>| {
                    let at = |best: usize, i: usize| if row[i] > row[best] { i } else { best };
                    (0..e).filter(|&i| Some(i) != but).reduce(at)
                };
                let i = largest(None).unwrap();
                // With a single expert there is no second one: it is minus infinity, like every other remaining
                // element.
                let (j, gap) = largest(Some(i)).map_or((0, f64::INFINITY), |j| (j, row[i] - row[j]));
                let share = 1.0 / (1.0 + (-gap).exp());
                weight.extend([share, 1.0 - share]);
                index.extend([i as f64, j as f64]);
            }
            vec![weight, index]
        });
    }
}

/// A dim without elements has no maximum: it is minus infinity, and the logarithm of zero.
#[test]
fn cross_entropy_of_no_vocabulary() {
    let args = [input(F32, &[3, 0], noise), input(I32, &[3], |_| 0.0), output(F32, &[3])];
    agrees_with(&cross_entropy, &args, 0.0, |_| vec![vec![f64::NEG_INFINITY; 3]]);
}
