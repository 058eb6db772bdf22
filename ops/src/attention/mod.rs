//! Attention over all keys with an online softmax: `o = softmax(s q kᵀ) v`, head by head.
//!
//! No row of logits is kept: see [`online_softmax`](crate::online_softmax), also for how large logits and values may be. `s`, the
//! `scale`, is that of PyTorch's `scaled_dot_product_attention`, which has `1/sqrt(D)` if none is given. 0 and negative numbers are
//! allowed, infinite ones are not. Where there is no key, or no logit is above -infinity, `o` is 0. FLOPs: `4 H M N D`.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::online_softmax::{attend, attended, base_two};

    /// o = softmax(scale · q kᵀ) v
    ///
    /// `scale` is the factor of the logits, `1/sqrt(D)` as a rule. It is finite, and may be 0 or negative.
    pub kernel attention<T: Float>(
        q: &Tensor<T, [H, M, D]>,
        k: &Tensor<T, [H, N, D]>,
        v: &Tensor<T, [H, N, D]>,
        scale: f32,
        o: &mut Tensor<T, [H, M, D]>,
    )
    tune { BM: [128, 64, 32], BN: [64, 128, 32], stages: 2..=3, warps: [4, 8] }
    {
        for (h, m) in grid(H, tiles(M, BM)) {
            let qs = load(q[h, m, ..]);
            let mut top = full::<f32>([BM, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BM, 1]);
            let mut acc = zeros::<f32>([BM, D]);
            for n in pipeline(tiles(N, BN)) {
                let z = dot(qs, load(k[h, n, ..]).t()) * base_two(scale);
                (top, total, acc) = attend(z, load(v[h, n, ..]), top, total, acc);
            }
            store(o[h, m, ..], attended(top, total, acc).cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "attention" }
crate::records::shipped! { "nvidia-h200": "attention" }
