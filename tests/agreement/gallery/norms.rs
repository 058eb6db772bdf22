//! Layer norm of rows, forward and backward.

use super::bound;
use crate::agreement::{Given, agrees_with, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// y = (x - mean) / sqrt(var + eps) * gamma + beta, and the statistics.
    kernel layer_norm<T: Float>(
        x:     &Tensor<T, [N, D]>,
        gamma: &Tensor<T, [D]>,
        beta:  &Tensor<T, [D]>,
        eps:   f32,
        y:     &mut Tensor<T, [N, D]>,
        mean:  &mut Tensor<f32, [N]>,
        rstd:  &mut Tensor<f32, [N]>,
    )
    tune { BN: [1, 4], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            let mu = sum(xs, axis = 1) / size(D).cast::<f32>();
            let centred = xs - mu;
            let scale = rsqrt(sum(centred * centred, axis = 1) / size(D).cast::<f32>() + eps);
            let ys = centred * scale * load(gamma[..]).cast::<f32>() + load(beta[..]).cast::<f32>();
            store(y[n, ..], ys.cast::<T>());
            store(mean[n], mu);
            store(rstd[n], scale);
        }
    }

    /// The gradients. Those of gamma and beta are summed over the R rows of each of P parts.
    kernel layer_norm_backward<T: Float>(
        x:      &Tensor<T, [P, R, D]>,
        dy:     &Tensor<T, [P, R, D]>,
        gamma:  &Tensor<T, [D]>,
        mean:   &Tensor<f32, [P, R]>,
        rstd:   &Tensor<f32, [P, R]>,
        dx:     &mut Tensor<T, [P, R, D]>,
        dgamma: &mut Tensor<f32, [P, D]>,
        dbeta:  &mut Tensor<f32, [P, D]>,
    )
    tune { BR: [4, 8], warps: [2] }
    {
        for p in grid(P) {
            let gain = load(gamma[..]).cast::<f32>();
            let mut of_gamma = zeros::<f32>([1, D]);
            let mut of_beta = zeros::<f32>([1, D]);
            for r in pipeline(tiles(R, BR)) {
                let scale = broadcast(load(rstd[p, r]), [1, BR]).t();
                let mu = broadcast(load(mean[p, r]), [1, BR]).t();
                let unit = (load(x[p, r, ..]).cast::<f32>() - mu) * scale;
                let ds = load(dy[p, r, ..]).cast::<f32>();
                let inner = ds * gain;
                let along = sum(inner * unit, axis = 1) / size(D).cast::<f32>();
                let shift = sum(inner, axis = 1) / size(D).cast::<f32>();
                store(dx[p, r, ..], ((inner - unit * along - shift) * scale).cast::<T>());
                of_gamma += sum(ds * unit, axis = 0);
                of_beta += sum(ds, axis = 0);
            }
            store(dgamma[p, ..], of_gamma);
            store(dbeta[p, ..], of_beta);
        }
    }
}

const EPS: f32 = 1e-5;

/// The mean of a row, and the reciprocal of its deviation.
fn statistics(row: &[f64]) -> (f64, f64) {
    let d = row.len() as f64;
    let mean = row.iter().sum::<f64>() / d;
    let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / d;
    (mean, 1.0 / (variance + f64::from(EPS)).sqrt())
}

#[test]
fn layer_norm_forward() {
    // A row of one element has no deviation: the rounding error of its mean is multiplied by 1 / sqrt(eps).
    for (dtype, n, d, around) in [(F32, 13, 37, 0), (F32, 1, 1, 0), (F32, 0, 5, 0), (Bf16, 5, 97, 3), (F16, 3, 64, 0)] {
        let args = [
            random(dtype, &[n, d]).within(around, 0),
            random(dtype, &[d]),
            random(dtype, &[d]).within(1, around),
            Given::F32(EPS),
            output(dtype, &[n, d]).within(0, around),
            output(F32, &[n]),
            output(F32, &[n]).within(around, 1),
        ];
        agrees_with(&layer_norm, &args, bound(dtype, 1, d), |a| {
            let rows = || a[0].chunks(d).map(|row| (row, statistics(row)));
            let y = rows().flat_map(|(row, (mean, rstd))| {
                let affine = row.iter().zip(&a[1]).zip(&a[2]);
                affine.map(move |((x, gamma), beta)| (x - mean) * rstd * gamma + beta).collect::<Vec<_>>()
            });
            vec![y.collect(), rows().map(|r| r.1.0).collect(), rows().map(|r| r.1.1).collect()]
        });
    }
}

#[test]
fn layer_norm_gradients() {
    for (dtype, p, r, d, around) in [(F32, 3, 7, 19, 0), (F32, 1, 1, 3, 0), (F32, 2, 0, 5, 0), (Bf16, 2, 11, 33, 3)] {
        let x = random(dtype, &[p, r, d]);
        let Given::In(data) = &x else { panic!("`random` is an input") };
        let held: Vec<f64> = data.values.iter().map(|&v| crate::agreement::rounded(dtype, v)).collect();
        let known: Vec<_> = held.chunks(d).map(statistics).collect();
        let args = [
            x.clone().within(0, around),
            random(dtype, &[p, r, d]).within(around, 0),
            random(dtype, &[d]),
            crate::agreement::input(F32, &[p, r], |i| known[i].0).within(around, 0),
            crate::agreement::input(F32, &[p, r], |i| known[i].1),
            output(dtype, &[p, r, d]).within(1, around),
            output(F32, &[p, d]).within(around, 0),
            output(F32, &[p, d]),
        ];
        agrees_with(&layer_norm_backward, &args, bound(dtype, 1, d.max(r)), |a| {
            let (mut dx, mut dgamma, mut dbeta) = (Vec::new(), vec![0.0; p * d], vec![0.0; p * d]);
            for row in 0..p * r {
                let (mean, rstd) = (a[3][row], a[4][row]);
                let unit: Vec<f64> = a[0][row * d..][..d].iter().map(|x| (x - mean) * rstd).collect();
                let dy = &a[1][row * d..][..d];
                let inner: Vec<f64> = dy.iter().zip(&a[2]).map(|(dy, gamma)| dy * gamma).collect();
                let along = inner.iter().zip(&unit).map(|(a, b)| a * b).sum::<f64>() / d as f64;
                let shift = inner.iter().sum::<f64>() / d as f64;
                for i in 0..d {
                    dx.push((inner[i] - unit[i] * along - shift) * rstd);
                    dgamma[row / r * d + i] += dy[i] * unit[i];
                    dbeta[row / r * d + i] += dy[i];
                }
            }
            vec![dx, dgamma, dbeta]
        });
    }
}
