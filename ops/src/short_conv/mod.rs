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
    /// y = w * x, along the tokens.
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

    /// The gradient by the weights. One program sums over all tokens of all sequences, in their order.
    pub kernel short_conv_weight_grad<T: Float>(
        x: &Tensor<T, [B, P, C]>,
        dy: &Tensor<T, [B, N, C]>,
        dw: &mut Tensor<f32, [C, W]>,
    )
    tune { BN: [64, 32], BC: [32, 64], warps: [4, 8] }
    require { P >= N }
    {
        for (c, j) in grid(tiles(C, BC), W) {
            let mut acc = zeros::<f32>([1, BC]);
            for b in 0..size(B) {
                for n in tiles(N, BN) {
                    let from = n * BN + size(P) - size(N) - (size(W) - 1 - j);
                    let before = load(x[b, span(from, BN), c]).or(0.0).cast::<f32>();
                    acc += sum(before * load(dy[b, n, c]).or(0.0).cast::<f32>(), axis = 0);
                }
            }
            store(dw[c, j], acc);
        }
    }
}
