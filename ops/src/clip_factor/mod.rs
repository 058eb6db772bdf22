//! The factor that brings the norm of all gradients below a limit: `min(limit / (norm + 1e-6), 1)`.
//!
//! The factor stays on the device, where [`adamw`](crate::adamw) reads it, so the host waits for nothing. As
//! `torch.nn.utils.clip_grad_norm_`, with its 1e-6. Domain: gradients of a norm of at most 1.8e19, the root of the largest f32.
//! Beyond it the factor is 0, and a NaN makes it NaN.
//!
//! Two launches: `X` programs that each leave the sum of the squares of a part, and one that adds these sums. Both add in a fixed
//! order. Gradients in several tensors have the sums of each in a slice of one tensor, which the second kernel reads whole.
//! Bytes: `s N`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;

use atlas_macros::atlas_kernel;
use atlas_runtime::Chain;

atlas_kernel! {
    /// The sum of the squares of each of X parts.
    pub kernel square_sums<T: Float>(g: &Tensor<T, [N]>, sums: &mut Tensor<f32, [X]>)
    tune { BN: [1024, 4096], warps: [4] }
    {
        for x in grid(X) {
            // Of no element there is one tile, of nothing. Adding `BN` first would leave the range of numbers near its end.
            let all = (size(N) - 1) / BN + 1;
            let each = (all + size(X) - 1) / size(X);
            let mut acc = zeros::<f32>([BN]);
            for n in pipeline(x * each..min((x + 1) * each, all)) {
                let gs = load(g[span(n * BN, BN)]).or(0.0).cast::<f32>();
                acc += gs * gs;
            }
            store(sums[x], sum(acc));
        }
    }

    /// The root of the sum of all sums, and the factor.
    pub kernel clip_factor(
        sums: &Tensor<f32, [X]>,
        limit: f32,
        norm: &mut Tensor<f32, [K]>,
        factor: &mut Tensor<f32, [K]>,
    )
    tune { BX: [256, 1024], warps: [4] }
    require { K == 1 }
    {
        for k in grid(K) {
            let mut total = 0.0;
            for x in tiles(X, BX) {
                total += sum(load(sums[x]));
            }
            let root = sqrt(total);
            store(norm[k], root);
            store(factor[k], min(limit / (root + 0.000001), 1.0));
        }
    }
}

/// Both launches: g, limit, norm, factor. The workspace needs `X`, the number of parts; a few hundred keep a GPU busy.
pub static CLIP_FACTOR: Chain = Chain::new("clip_factor", &[&square_sums, &clip_factor], &["sums"]);
