//! A short causal convolution along the tokens, each channel by itself: what models with a recurrent memory put behind the
//! projections of queries, keys and values, so that a key can hold the token before it.
//!
//! `y[t, c] = sum over j of w[c, j] x[t - (W - 1 - j), c]`, with zeros before the first token. Weights lie as
//! `torch.nn.Conv1d` has them with `groups = C`, but for its axis of size 1, oldest token first; so do those of
//! `causal_conv1d`. An activation behind it is the caller's.
//!
//! `x` may have more tokens than `y`: those before, of a sequence that comes in pieces. `W - 1` of them matter.
//!
//! Sources: ATLAS (arXiv 2505.23735) section 6 and Titans (arXiv 2501.00663) section 4.4 use it behind their projections.
//! FLOPs: `2 B N C W`, and twice that for both gradients. Bytes: `2 s B N C` where the rows of a window stay in the caches.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y[t, c] = sum over j of w[c, j] x[t - (W - 1 - j), c], with zeros before the first token.
    ///
    /// `w[c, W - 1]` is the token's own weight, as in `torch.nn.Conv1d`. `x` has the tokens of `y`, and before them any that came
    /// earlier in the sequence: the last `N` of its `P` tokens are those of `y`.
    pub kernel short_conv<T: Float>(
        x: &Tensor<T, [B, P, C]>,
        w: &Tensor<T, [C, W]>,
        y: &mut Tensor<T, [B, N, C]>,
    )
    tune { BN: [32, 8, 64], BC: [64, 128], warps: [4, 8] }
    require { P >= N }
    {
        for (b, n, c) in grid(B, tiles(N, BN), tiles(C, BC)) {
            let mut acc = zeros::<f32>([BN, BC]);
            for j in 0..size(W) {
                let from = n * BN + size(P) - size(N) - (size(W) - 1 - j);
                acc += load(x[b, span(from, BN), c]).or(0.0).cast::<f32>() * load(w[c, j]).cast::<f32>();
            }
            store(y[b, n, c], acc.cast::<T>());
        }
    }

    /// The gradient by all tokens of `x`, of the gradient `dy` by `y`.
    pub kernel short_conv_input_grad<T: Float>(
        dy: &Tensor<T, [B, N, C]>,
        w: &Tensor<T, [C, W]>,
        dx: &mut Tensor<T, [B, P, C]>,
    )
    tune { BN: [32, 8, 64], BC: [64, 128], warps: [4, 8] }
    require { P >= N }
    {
        for (b, n, c) in grid(B, tiles(P, BN), tiles(C, BC)) {
            let mut acc = zeros::<f32>([BN, BC]);
            for j in 0..size(W) {
                let from = n * BN - size(P) + size(N) + (size(W) - 1 - j);
                acc += load(dy[b, span(from, BN), c]).or(0.0).cast::<f32>() * load(w[c, j]).cast::<f32>();
            }
            store(dx[b, n, c], acc.cast::<T>());
        }
    }

    /// The gradient by the weights, added in a fixed order. A program has one warp, as in [`column_sums`](crate::column_sums).
    pub kernel short_conv_weight_grad<T: Float>(
        x: &Tensor<T, [B, P, C]>,
        dy: &Tensor<T, [B, N, C]>,
        dw: &mut Tensor<f32, [C, W]>,
    )
    tune { BC: [64, 32], BN: [16], warps: [1], split_k: [1, 4, 16] }
    require { P >= N }
    {
        for (c, j) in grid(tiles(C, BC), W) {
            let count = (size(N) + BN - 1) / BN;
            let mut acc = zeros::<f32>([BN, BC]);
            for i in pipeline(0..size(B) * count) {
                let b = i / count;
                let to = i % count * BN;
                let from = to + size(P) - size(N) - (size(W) - 1 - j);
                let before = load(x[b, span(from, BN), c]).cast::<f32>();
                // The product is what is 0 where one of them is missing: an infinite token times 0 would not be.
                acc += (before * load(dy[b, span(to, BN), c]).cast::<f32>()).or(0.0);
            }
            store(dw[c, j], sum(acc, axis = 0));
        }
    }
}
