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
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod plans;
#[cfg(feature = "verify")]
mod reference;

use atlas_macros::atlas_kernel;
use atlas_runtime::Chain;

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
pub static MEMORY_GRAD: Chain = Chain::new("memory_grad", &[&memory_errors, &memory_weight_grads], &["e"]);

/// The same with the gradient by the tokens: x, w2, w1, r, v, c, scale, loss, dw2, dw1, dx.
pub static MEMORY_GRAD_WITH_INPUT: Chain =
    Chain::new("memory_grad_with_input", &[&memory_errors, &memory_weight_grads, &memory_input_grad], &["e"]);

crate::records::shipped! {
    "nvidia-h100-80gb-hbm3":
    "memory_errors" "memory_input_grad" "memory_weight_grads"
}
crate::records::shipped! { "nvidia-h200": "memory_errors" "memory_input_grad" "memory_weight_grads" }
