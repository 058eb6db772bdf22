//! Root-mean-square normalisation of rows: `y = x / sqrt(mean(x^2) + eps) * w`.
//!
//! Source: Zhang and Sennrich, arXiv 1910.07467. Computed in f32, whatever the element type, and rounded once. Hugging Face's Llama
//! rounds the normed row to 16 bits before it multiplies by the weights, and the weights of Gemma are `1 + w`.
//!
//! Epsilon: `eps` is added to the mean square, before its root, as by `torch.nn.RMSNorm`. Its default there is that of f32, 1.19e-7.
//!
//! Domain: rows whose norm `|x|` is at most 1.8e19, the root of the largest f32. The squares of a longer row add up to infinity
//! and make it 0. Rows may be as short as they like where `eps` is at least 1e-30; with a smaller `eps`, their mean square is at
//! least that, since smaller squares lose digits or vanish. A scale per row would remove both limits for one more pass over rows
//! that are read at the speed of DRAM.
//!
//! Bytes: `2 s N D`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y = x * rsqrt(mean(x^2) + eps) * w, row by row.
    ///
    /// Epsilon: `eps` is added to the mean square, before its root, as by `torch.nn.RMSNorm`.
    pub kernel rms_norm<T: Float>(
        x: &Tensor<T, [N, D]>,
        w: &Tensor<T, [D]>,
        y: &mut Tensor<T, [N, D]>,
        eps: f32,
    )
    tune { BN: [1, 2, 4, 8], warps: [4, 8, 16], occupancy: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            let mean = sum(xs * xs, axis = 1) / size(D).cast::<f32>();
            let ws = load(w[..]).cast::<f32>();
            store(y[n, ..], (xs * rsqrt(mean + eps) * ws).cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "rms_norm" }
crate::records::shipped! { "nvidia-h200": "rms_norm" }
