//! What `memory_grad` computes, in f64.

use crate::memory::{gelu, gelu_slope};
use crate::problem::{Inputs, Problem};
use rayon::prelude::*;

/// The reference of a problem of one of the kernels.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [n, d, e, h] = ["N", "D", "E", "H"].map(|dim| p.dim(dim));
    let scale = f64::from(p.scalar("scale"));
    let [x, w2, w1, r, v, c, given] = ["x", "w2", "w1", "r", "v", "c", "e"].map(|name| inputs.get(name));
    let name = p.kernel.name;
    let token = |at: usize| {
        let g = at / n;
        let live = c[at] != 0.0;
        let row = |of: &[f64], width: usize| -> Vec<f64> {
            if live && !of.is_empty() { of[at * width..][..width].to_vec() } else { vec![0.0; width] }
        };
        let (w2, w1) = (&w2[g * h * d..][..h * d], &w1[g * e * h..][..e * h]);
        let x = row(&x, d);
        let z: Vec<f64> = w2.chunks(d).map(|w| w.iter().zip(&x).map(|(w, x)| w * x).sum()).collect();
        let a: Vec<f64> = z.iter().map(|&z| gelu(z)).collect();
        // The errors are made by the first kernel, and given to the others, of weight 0 too.
        let error: Vec<f64> = if name == "memory_errors" {
            let (r, v) = (row(&r, e), row(&v, e));
            let out = w1.chunks(h).map(|w| w.iter().zip(&a).map(|(w, a)| w * a).sum::<f64>());
            out.zip(r.iter().zip(&v)).map(|(y, (r, v))| if live { scale * (y + r - v) } else { 0.0 }).collect()
        } else {
            given[at * e..][..e].to_vec()
        };
        let back = |k: usize| (0..e).map(|i| error[i] * w1[i * h + k]).sum::<f64>();
        let delta: Vec<f64> = z.iter().enumerate().map(|(k, &z)| c[at] * gelu_slope(z) * back(k)).collect();
        (x, a, error, delta)
    };
    let groups = p.dim("G");
    match name {
        "memory_errors" => {
            let tokens: Vec<_> = (0..groups * n).into_par_iter().map(|at| token(at).2).collect();
            let of = |(at, e): (usize, &Vec<f64>)| c[at] / (2.0 * scale) * e.iter().map(|e| e * e).sum::<f64>();
            let loss = tokens.iter().enumerate().map(of).collect();
            vec![tokens.concat(), loss]
        }
        "memory_weight_grads" => {
            let of_group = |g: usize| {
                let (mut dw2, mut dw1) = (vec![0.0; h * d], vec![0.0; e * h]);
                for (at, weight) in c.iter().enumerate().skip(g * n).take(n) {
                    let (x, a, error, delta) = token(at);
                    for (k, row) in dw2.chunks_mut(d).enumerate() {
                        row.iter_mut().zip(&x).for_each(|(w, x)| *w += delta[k] * x);
                    }
                    for (i, row) in dw1.chunks_mut(h).enumerate() {
                        row.iter_mut().zip(&a).for_each(|(w, a)| *w += weight * error[i] * a);
                    }
                }
                (dw2, dw1)
            };
            let all: Vec<(Vec<f64>, Vec<f64>)> = (0..groups).into_par_iter().map(of_group).collect();
            let (dw2, dw1): (Vec<Vec<f64>>, Vec<Vec<f64>>) = all.into_iter().unzip();
            vec![dw2.concat(), dw1.concat()]
        }
        _ => {
            let row = |at: usize| {
                let w2 = &w2[at / n * h * d..][..h * d];
                let delta = token(at).3;
                (0..d).map(|j| (0..h).map(|k| delta[k] * w2[k * d + j]).sum()).collect::<Vec<f64>>()
            };
            vec![(0..groups * n).into_par_iter().map(row).collect::<Vec<_>>().concat()]
        }
    }
}
