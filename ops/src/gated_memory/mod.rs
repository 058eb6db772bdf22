//! Deep memories of other forms: gated, and with a norm inside.
//!
//! ```text
//! memory_read_gated    y = r + W1 (gelu(W2 x) (*) W3 x)                 ATLAS++
//! memory_read_normed   y = r + norm(W1 gelu(W2 x)) (*) w                a layer norm before the residual
//! memory_gated_errors  E = s (M(x) - v) of the gated one, and losses c s/2 |M(x) - v|^2
//! memory_gated_grads   dW1 = (c E)^T (A (*) U), dW2 = (c P U gelu'(Z))^T X, dW3 = (c P A)^T X
//! ```
//!
//! with `Z = X W2^T`, `U = X W3^T`, `A = gelu(Z)` and `P = E W1`. Source: ATLAS (arXiv 2505.23735) Eq. 43. Layouts, weights of
//! tokens and what is never written to memory are as in [`memory_read`](crate::memory_read) and
//! [`memory_grad`](crate::memory_grad), losses beyond f32 too. The norm has the domain of [`rms_norm`](crate::rms_norm), of `m`
//! less its mean; beyond it the memory adds nothing to `r`, or NaN where the sum of a row of `m` is beyond f32. FLOPs: `6 G N D
//! H` to read, `14 G N D H` for errors and gradients.
//!
//! Epsilon: `eps` is added to the variance (of all `E` elements, not of `E - 1`), before its root, as by `torch.nn.LayerNorm`, whose
//! default is 1e-5. This norm has weights and no bias.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

use atlas_macros::atlas_kernel;
use atlas_runtime::Chain;

atlas_kernel! {
    /// y = r + W1 (gelu(W2 x) * W3 x)
    pub kernel memory_read_gated<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w3: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, E, H]>,
        r: &Tensor<T, [G, N, E]>,
        y: &mut Tensor<T, [G, N, E]>,
    )
    tune { BN: [64, 32, 16], BH: [32, 64, 96], stages: 2..=3, warps: [4, 2, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]);
            let mut acc = load(r[g, n, ..]).cast::<f32>();
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w2[g, h, ..]).t());
                let u = dot(xs, load(w3[g, h, ..]).t());
                acc += dot((gelu(z) * u).cast::<T>(), load(w1[g, .., h]).t());
            }
            store(y[g, n, ..], acc.cast::<T>());
        }
    }

    /// y = r + w * (m - mean m) / sqrt(var m + eps) with m = W1 gelu(W2 x)
    ///
    /// Epsilon: `eps` is added to the variance, before its root, as by `torch.nn.LayerNorm`.
    pub kernel memory_read_normed<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, E, H]>,
        w: &Tensor<T, [G, E]>,
        r: &Tensor<T, [G, N, E]>,
        eps: f32,
        y: &mut Tensor<T, [G, N, E]>,
    )
    tune { BN: [64, 32, 16], BH: [64, 32, 96], stages: 2..=3, warps: [4, 2, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]);
            let mut acc = zeros::<f32>([BN, E]);
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w2[g, h, ..]).t());
                acc += dot(gelu(z).cast::<T>(), load(w1[g, .., h]).t());
            }
            let centred = acc - sum(acc, axis = 1) / size(E).cast::<f32>();
            // Once more: what the mean was rounded by would be all that a row of equal numbers has.
            let off = centred - sum(centred, axis = 1) / size(E).cast::<f32>();
            let spread = sum(off * off, axis = 1) / size(E).cast::<f32>();
            let normed = off * rsqrt(spread + eps) * load(w[g, ..]).cast::<f32>();
            store(y[g, n, ..], (load(r[g, n, ..]).cast::<f32>() + normed).cast::<T>());
        }
    }

    /// The errors of all tokens, rounded as products take them, and their weighted losses.
    pub kernel memory_gated_errors<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w3: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, E, H]>,
        r: &Tensor<T, [G, N, E]>,
        v: &Tensor<T, [G, N, E]>,
        c: &Tensor<f32, [G, N]>,
        scale: f32,
        e: &mut Tensor<T, [G, N, E]>,
        loss: &mut Tensor<f32, [G, N]>,
    )
    tune { BN: [64, 32, 16], BH: [32, 64], stages: 2..=3, warps: [4, 2, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let weight = load(c[g, n]).t();
            let xs = select(weight == 0.0, 0.0, load(x[g, n, ..]));
            let mut acc = load(r[g, n, ..]).cast::<f32>() - load(v[g, n, ..]).cast::<f32>();
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w2[g, h, ..]).t());
                let u = dot(xs, load(w3[g, h, ..]).t());
                acc += dot((gelu(z) * u).cast::<T>(), load(w1[g, .., h]).t());
            }
            let error = select(weight == 0.0, 0.0, acc);
            store(e[g, n, ..], (error * scale).cast::<T>());
            store(loss[g, n], 0.5 * scale * weight * sum(error * error, axis = 1));
        }
    }

    /// The gradients of all three matrices, by tiles of the hidden dim.
    pub kernel memory_gated_grads<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w3: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, E, H]>,
        c: &Tensor<f32, [G, N]>,
        e: &Tensor<T, [G, N, E]>,
        dw2: &mut Tensor<f32, [G, H, D]>,
        dw3: &mut Tensor<f32, [G, H, D]>,
        dw1: &mut Tensor<f32, [G, E, H]>,
    )
    tune { BH: [32, 16], BN: [32, 16], stages: 2..=3, warps: [4, 8] }
    {
        for (g, h) in grid(G, tiles(H, BH)) {
            let w2h = load(w2[g, h, ..]);
            let w3h = load(w3[g, h, ..]);
            let w1h = load(w1[g, .., h]);
            let mut by2 = zeros::<f32>([BH, D]);
            let mut by3 = zeros::<f32>([BH, D]);
            let mut by1 = zeros::<f32>([E, BH]);
            for n in pipeline(tiles(N, BN)) {
                let weight = load(c[g, n]).t();
                let xs = select(weight == 0.0, 0.0, load(x[g, n, ..]));
                let es = load(e[g, n, ..]);
                let z = dot(xs, w2h.t());
                let u = dot(xs, w3h.t());
                let a = gelu(z);
                let p = weight * dot(es, w1h);
                by2 += dot((grad(gelu)(z) * u * p).cast::<T>().t(), xs);
                by3 += dot((a * p).cast::<T>().t(), xs);
                by1 += dot((es.cast::<f32>() * weight).cast::<T>().t(), (a * u).cast::<T>());
            }
            store(dw2[g, h, ..], by2);
            store(dw3[g, h, ..], by3);
            store(dw1[g, .., h], by1);
        }
    }
}

/// Gradients of a gated memory on a window of tokens: errors, then all three matrices.
pub static MEMORY_GATED_GRAD: Chain =
    Chain::new("memory_gated_grad", &[&memory_gated_errors, &memory_gated_grads], &["e"]);

crate::records::shipped! {
    "nvidia-h100-80gb-hbm3":
    "memory_gated_errors" "memory_gated_grads" "memory_read_gated" "memory_read_normed"
}
crate::records::shipped! { "nvidia-h200":
    "memory_gated_errors" "memory_gated_grads" "memory_read_gated" "memory_read_normed"
}
