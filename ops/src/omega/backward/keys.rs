//! The gradients of keys from those of the chunks that see them.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// Adds to the gradients `dk`, `dv` and `drk` of each token what all chunks that see it have, the last chunk first: so the sums
    /// do not depend on which chunks are given at once. `by_read` is the gradient by what the memory makes of a key, less its
    /// value; of a loss that predicts nothing, residuals have no part in it. `past` keys come before those of the first chunk of `chunk` tokens.
    pub kernel omega_key_backward(
        by_key: &Tensor<f32, [B, H, C, K, D]>,
        by_read: &Tensor<f32, [B, H, C, K, E]>,
        dk: &mut Tensor<f32, [B, P, H, D]>,
        dv: &mut Tensor<f32, [B, P, H, E]>,
        drk: &mut Tensor<f32, [B, P, H, E]>,
        chunk: i32,
        past: i32,
        predicts: i32,
    )
    tune { BP: [16, 32, 64], BW: [64, 32], warps: [4, 8] }
    {
        for (b, p, h) in grid(B, tiles(P, BP), H) {
            // From the first key of the first chunk; quotients that are rounded towards 0 are right from 0 on.
            let at = p * BP - (past + chunk - size(K));
            let first = max((at - size(K) + chunk) / chunk, 0);
            let end = min(max((at + BP + chunk - 1) / chunk, 0), size(C));
            for d in tiles(D, BW) {
                let mut to_key = load(dk[b, p, h, d]);
                for i in 0..end - first {
                    let c = end - 1 - i;
                    to_key += load(by_key[b, h, c, span(at - c * chunk, BP), d]).or(0.0);
                }
                store(dk[b, p, h, d], to_key);
            }
            for e in tiles(E, BW) {
                let mut to_value = load(dv[b, p, h, e]);
                let mut to_residual = load(drk[b, p, h, e]);
                for i in 0..end - first {
                    let c = end - 1 - i;
                    let error = load(by_read[b, h, c, span(at - c * chunk, BP), e]).or(0.0);
                    to_value -= error;
                    to_residual += select(predicts > 0, error, 0.0);
                }
                store(dv[b, p, h, e], to_value);
                store(drk[b, p, h, e], to_residual);
            }
        }
    }
}
