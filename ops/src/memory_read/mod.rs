//! Read-out of a deep memory: `y = r + W1 · gelu(W2 · x)`, one small MLP per group (a batch element x head).
//!
//! Source: ATLAS (arXiv 2505.23735) Eq. 42, with the residual `r` as an input of its own: `r = x` where
//! the residual is the key itself. GELU is the built-in one, the erf form `0.5 z (1 + erf(z / sqrt 2))`; the
//! tanh form differs by up to 4.7e-4 and is another function.
//!
//! With rows as tokens, `x` is [N, D], `W2` is [H, D], `W1` is [D, H]:
//! `Z = X W2^T`, `A = gelu(Z)`, `Y = R + A W1^T`. `Z` and `A` are never written to memory: `H` is streamed
//! in tiles of `BH`. Weights shared by all groups are passed as views with stride 0 along `G`.
//!
//! FLOPs: `4 G N D H`. Bytes: `s G (3 N D + 2 D H)` for elements of `s` bytes.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y = r + W1 · gelu(W2 · x), one small memory per group.
    pub kernel memory_read<T: Float>(
        x:  &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, D, H]>,
        r:  &Tensor<T, [G, N, D]>,
        y:  &mut Tensor<T, [G, N, D]>,
    )
    tune {
        BN: [64, 32, 128, 16], BH: [64, 32, 96, 128], stages: 2..=3, warps: [4, 2, 8], occupancy: [1, 2, 4],
    }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]);
            let mut acc = load(r[g, n, ..]).cast::<f32>();
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w2[g, h, ..]).t());
                acc += dot(gelu(z).cast::<T>(), load(w1[g, .., h]).t());
            }
            store(y[g, n, ..], acc.cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "memory_read" }
crate::records::shipped! { "nvidia-h200": "memory_read" }
