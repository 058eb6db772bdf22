//! Work along time, and state in place: cumulative sums, a gated recurrence, AdamW.

use super::{bound, table};
use crate::agreement::{Given, agrees_with, data, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// The sum of the elements up to each one, by a triangular product and a carried column.
    kernel cumulative_sum<T: Float>(x: &Tensor<T, [N, L]>, y: &mut Tensor<f32, [N, L]>)
    tune { BN: [16], BL: [16, 32], warps: [2] }
    {
        for n in grid(tiles(N, BN)) {
            let up_to = select(iota([BL, BL], 0) <= iota([BL, BL], 1), 1.0, 0.0).cast::<T>();
            let mut before = zeros::<f32>([BN, 1]);
            for l in pipeline(tiles(L, BL)) {
                let xs = load(x[n, l]);
                store(y[n, l], before + dot(xs, up_to));
                before += sum(xs.cast::<f32>(), axis = 1);
            }
        }
    }

    /// The same, one element at a time.
    kernel running_sum<T: Float>(x: &Tensor<T, [N, L]>, y: &mut Tensor<f32, [N, L]>)
    tune { BN: [4, 32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN]);
            for l in 0..size(L) {
                total += load(x[n, l]).cast::<f32>();
                store(y[n, l], total);
            }
        }
    }

    /// h = a h + x over time. Writes every h, and the last one.
    kernel recurrence<T: Float>(
        a: &Tensor<T, [B, S, C]>,
        x: &Tensor<T, [B, S, C]>,
        h0: &Tensor<f32, [B, C]>,
        y: &mut Tensor<T, [B, S, C]>,
        last: &mut Tensor<f32, [B, C]>,
    )
    tune { BC: [16, 32], warps: [2] }
    {
        for (b, c) in grid(B, tiles(C, BC)) {
            let mut h = load(h0[b, c]);
            for s in 0..size(S) {
                h = load(a[b, s, c]).cast::<f32>() * h + load(x[b, s, c]).cast::<f32>();
                store(y[b, s, c], h.cast::<T>());
            }
            store(last[b, c], h);
        }
    }

    /// One step of AdamW.
    kernel adamw<T: Float>(
        p: &mut Tensor<T, [N]>,
        m: &mut Tensor<f32, [N]>,
        v: &mut Tensor<f32, [N]>,
        g: &Tensor<T, [N]>,
        lr: f32,
        beta1: f32,
        beta2: f32,
        eps: f32,
        decay: f32,
        step: i32,
    )
    tune { BN: [64, 256], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let gs = load(g[n]).cast::<f32>();
            let ms = beta1 * load(m[n]) + (1.0 - beta1) * gs;
            let vs = beta2 * load(v[n]) + (1.0 - beta2) * gs * gs;
            let t = step.cast::<f32>();
            let mean = ms / (1.0 - exp(t * log(beta1)));
            let deviation = sqrt(vs / (1.0 - exp(t * log(beta2))));
            let ps = load(p[n]).cast::<f32>() * (1.0 - lr * decay);
            store(m[n], ms);
            store(v[n], vs);
            store(p[n], (ps - lr * mean / (deviation + eps)).cast::<T>());
        }
    }
}

/// The sums of each row's elements up to each one.
fn cumulative(x: &[f64], [n, l]: [usize; 2]) -> Vec<Vec<f64>> {
    vec![table([n, l], |r, i| x[r * l..=r * l + i].iter().sum())]
}

const ROWS: [(DType, [usize; 2], usize); 6] =
    [(F32, [5, 71], 0), (F32, [1, 1], 0), (F32, [3, 0], 0), (F32, [0, 7], 0), (Bf16, [19, 47], 3), (F16, [2, 33], 0)];

#[test]
fn cumulative_sums_by_a_triangle() {
    for (dtype, shape, around) in ROWS {
        let args = [random(dtype, &shape).within(around, 0), output(F32, &shape).within(0, around)];
        agrees_with(&cumulative_sum, &args, bound(F32, 1, shape[1]), |a| cumulative(&a[0], shape));
    }
}

#[test]
fn cumulative_sums_by_elements() {
    for (dtype, shape, around) in ROWS {
        let args = [random(dtype, &shape).within(around, 0), output(F32, &shape).within(0, around)];
        agrees_with(&running_sum, &args, bound(F32, 1, shape[1]), |a| cumulative(&a[0], shape));
    }
}

#[test]
fn gated_recurrence() {
    for (dtype, [b, s, c], around) in
        [(F32, [2, 23, 19], 0), (F32, [1, 1, 1], 0), (F32, [2, 0, 5], 0), (Bf16, [3, 11, 37], 3)]
    {
        let args = [
            random(dtype, &[b, s, c]).within(around, 0),
            Given::In(data(dtype, &[b, s, c], |i| noise(7 * i))).within(0, around),
            random(F32, &[b, c]),
            output(dtype, &[b, s, c]).within(around, 1),
            output(F32, &[b, c]).within(0, around),
        ];
        agrees_with(&recurrence, &args, bound(dtype, 1, s), |a| {
            let (mut y, mut h) = (Vec::new(), a[2].clone());
            for (at, (gate, x)) in a[0].iter().zip(&a[1]).enumerate() {
                let state = &mut h[at / (s * c) * c + at % c];
                *state = gate * *state + x;
                y.push(*state);
            }
            vec![y, h]
        });
    }
}

#[test]
fn adamw_in_place() {
    for (dtype, n, around) in [(F32, 131, 0), (F32, 1, 0), (F32, 0, 0), (Bf16, 67, 3), (F16, 256, 0)] {
        let numbers = [0.01, 0.9, 0.999, 1e-8, 0.1].map(Given::F32);
        let held = |dtype, salt, f: fn(f64) -> f64| Given::Out(data(dtype, &[n], |i| f(noise(3 * i + salt))));
        let [lr, beta1, beta2, eps, decay] = numbers;
        let args = [
            held(dtype, 0, |x| x).within(around, 0),
            held(F32, 1, |x| x).within(0, around),
            held(F32, 2, f64::abs),
            random(dtype, &[n]).within(1, around),
            lr,
            beta1,
            beta2,
            eps,
            decay,
            Given::I32(10),
        ];
        agrees_with(&adamw, &args, bound(dtype, 1, 4), |a| {
            let [lr, beta1, beta2, eps, decay, step] = [4, 5, 6, 7, 8, 9].map(|i| a[i][0]);
            let [mut p, mut m, mut v] = [0, 1, 2].map(|i| a[i].clone());
            for (i, g) in a[3].iter().enumerate() {
                m[i] = beta1 * m[i] + (1.0 - beta1) * g;
                v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
                let deviation = (v[i] / (1.0 - beta2.powf(step))).sqrt();
                p[i] = p[i] * (1.0 - lr * decay) - lr * m[i] / (1.0 - beta1.powf(step)) / (deviation + eps);
            }
            vec![p, m, v]
        });
    }
}
