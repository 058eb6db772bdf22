//! Bands of gates that need not be stored: a weight of each token, whoever's window it is in, and a decay over the window.
//!
//! Both write the band that [`omega_mix`](super::mix) takes, `[B, N, H, W]` with the oldest token first.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// `gamma[t, o] = weight[t - o]`: each token has one weight in all windows.
    pub kernel omega_token_gates(
        weight: &Tensor<f32, [B, N, H]>,
        gamma: &mut Tensor<f32, [B, N, H, W]>,
    )
    tune { BN: [32, 64, 128], warps: [4, 2] }
    {
        for (b, n, h) in grid(B, tiles(N, BN), H) {
            for j in 0..size(W) {
                let back = size(W) - 1 - j;
                let of = load(weight[b, span(n * BN - back, BN), h]).or(0.0);
                store(gamma[b, n, h, j], of);
            }
        }
    }

    /// `gamma[t, o] = gain[t] decay[t]^o`: what is `o` tokens back counts less.
    pub kernel omega_decay_gates(
        gain: &Tensor<f32, [B, N, H]>,
        decay: &Tensor<f32, [B, N, H]>,
        gamma: &mut Tensor<f32, [B, N, H, W]>,
    )
    tune { BN: [32, 64, 16], warps: [4, 2] }
    {
        for (b, n, h) in grid(B, tiles(N, BN), H) {
            let mut power = load(gain[b, n, h]);
            let by = load(decay[b, n, h]);
            for j in 0..size(W) {
                store(gamma[b, n, h, size(W) - 1 - j], power);
                power *= by;
            }
        }
    }
}
