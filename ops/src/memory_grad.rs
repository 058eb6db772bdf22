//! Weighted gradients of a deep memory's loss over a window of tokens, for one small memory per group.
//!
//! The loss of token `i` is `l_i = s/2 |M(x_i) - v_i|²` with `M(x) = r + W1 gelu(W2 x)`, and what is made is
//! `dW1 = sum_i c_i grad_W1 l_i`, `dW2` likewise, the weighted losses `c_i l_i`, and `dX`, the gradient of the weighted loss by
//! the rows of `x` where the residual is not `x` itself (add `c_i E` for that):
//!
//! ```text
//! Z = X W2^T, A = gelu(Z), E = s (R + A W1^T - V), Delta = gelu'(Z) (*) (E W1)
//! dW1 = (c (*) E)^T A, dW2 = (c (*) Delta)^T X, dX = (c (*) Delta) W2
//! ```
//!
//! Source: ATLAS (arXiv 2505.23735) Eq. 42 and the chain rule. A token of weight 0 may be anything, a NaN too. Its error is a
//! number: `memory_errors` writes 0. A loss is infinite where the squares of the errors add up beyond f32, whatever `s` and
//! `c_i` are, and NaN if `s` is 0. Three launches: the errors of all tokens, streaming the hidden dim; the gradients of both matrices by tiles of it,
//! streaming the tokens; and `dX` by tiles of tokens. FLOPs: `G N H (8 D + 8 E)` with `dX`, of which `Z` is made three times.

#[cfg(feature = "verify")]
use crate::memory::{gelu, gelu_slope};
#[cfg(feature = "verify")]
use crate::problem::{Inputs, Problem};
use atlas_macros::atlas_kernel;
use atlas_runtime::Chain;
#[cfg(feature = "verify")]
use rayon::prelude::*;

atlas_kernel! {
    /// The errors `E` of all tokens, rounded as products take them, and their weighted losses.
    pub kernel memory_errors<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, E, H]>,
        r: &Tensor<T, [G, N, E]>,
        v: &Tensor<T, [G, N, E]>,
        c: &Tensor<f32, [G, N]>,
        scale: f32,
        e: &mut Tensor<T, [G, N, E]>,
        loss: &mut Tensor<f32, [G, N]>,
    )
    tune { BN: [64, 32, 128, 16], BH: [64, 32, 128], stages: 2..=3, warps: [4, 2, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let weight = load(c[g, n]).t();
            let xs = select(weight == 0.0, 0.0, load(x[g, n, ..]));
            let mut acc = load(r[g, n, ..]).cast::<f32>() - load(v[g, n, ..]).cast::<f32>();
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w2[g, h, ..]).t());
                acc += dot(gelu(z).cast::<T>(), load(w1[g, .., h]).t());
            }
            let error = select(weight == 0.0, 0.0, acc);
            store(e[g, n, ..], (error * scale).cast::<T>());
            store(loss[g, n], 0.5 * scale * weight * sum(error * error, axis = 1));
        }
    }

    /// Both gradients, by tiles of the hidden dim.
    pub kernel memory_weight_grads<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, E, H]>,
        c: &Tensor<f32, [G, N]>,
        e: &Tensor<T, [G, N, E]>,
        dw2: &mut Tensor<f32, [G, H, D]>,
        dw1: &mut Tensor<f32, [G, E, H]>,
    )
    tune { BN: [64, 32], BH: [32, 64, 16], stages: 2..=3, warps: [4, 8] }
    {
        for (g, h) in grid(G, tiles(H, BH)) {
            let w2h = load(w2[g, h, ..]);
            let w1h = load(w1[g, .., h]);
            let mut of_w2 = zeros::<f32>([BH, D]);
            let mut of_w1 = zeros::<f32>([E, BH]);
            for n in pipeline(tiles(N, BN)) {
                let weight = load(c[g, n]).t();
                let xs = select(weight == 0.0, 0.0, load(x[g, n, ..]));
                let es = load(e[g, n, ..]);
                let z = dot(xs, w2h.t());
                let delta = weight * grad(gelu)(z) * dot(es, w1h);
                let hidden = weight * gelu(z);
                of_w2 += dot(delta.cast::<T>().t(), xs);
                of_w1 += dot(es.t(), hidden.cast::<T>());
            }
            store(dw2[g, h, ..], of_w2);
            store(dw1[g, .., h], of_w1);
        }
    }

    /// The gradient by the tokens.
    pub kernel memory_input_grad<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, E, H]>,
        c: &Tensor<f32, [G, N]>,
        e: &Tensor<T, [G, N, E]>,
        dx: &mut Tensor<T, [G, N, D]>,
    )
    tune { BN: [64, 32, 128], BH: [32, 64], stages: 2..=3, warps: [4, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let weight = load(c[g, n]).t();
            let xs = select(weight == 0.0, 0.0, load(x[g, n, ..]));
            let es = load(e[g, n, ..]);
            let mut acc = zeros::<f32>([BN, D]);
            for h in pipeline(tiles(H, BH)) {
                let w2h = load(w2[g, h, ..]);
                let delta = weight * grad(gelu)(dot(xs, w2h.t())) * dot(es, load(w1[g, .., h]));
                acc += dot(delta.cast::<T>(), w2h);
            }
            store(dx[g, n, ..], acc.cast::<T>());
        }
    }
}

/// The gradients of both matrices: x, w2, w1, r, v, c, scale, loss, dw2, dw1. The workspace needs `T`, `G`, `N` and `E`.
pub static MEMORY_GRAD: Chain =
    Chain { name: "memory_grad", kernels: &[&memory_errors, &memory_weight_grads], workspace: &["e"] };

/// The same with the gradient by the tokens: x, w2, w1, r, v, c, scale, loss, dw2, dw1, dx.
pub static MEMORY_GRAD_WITH_INPUT: Chain = Chain {
    name: "memory_grad_with_input",
    kernels: &[&memory_errors, &memory_weight_grads, &memory_input_grad],
    workspace: &["e"],
};

/// The reference of a problem of one of the kernels.
#[cfg(feature = "verify")]
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
