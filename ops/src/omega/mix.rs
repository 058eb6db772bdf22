//! The weights by which each chunk's gradients reach its tokens: row recurrences over the gates, one program per chunk.
//!
//! All gradients of a chunk are taken at the memory's weights before it, `M_a`. So after its token `n`, with `g_i` the
//! gradient of token `i` of the halo and the chunk,
//!
//! ```text
//! S_n = beta_n S_a + sum_i Phi[n, i] g_i          Phi_n  = theta_n Phi_(n-1) + Gam_n
//! M_n = lam_n M_a - old_n S_a - sum_i Psi[n, i] g_i   Psi_n  = alpha_n Psi_(n-1) + eta_n Phi_n
//!                                                 beta_n = theta_n beta_(n-1), lam_n = alpha_n lam_(n-1)
//!                                                 old_n  = alpha_n old_(n-1) + eta_n beta_n
//! ```
//!
//! with `beta_0 = lam_0 = 1` and zeros else. `Gam[n, i]` is the weight of token `i` in the window of token `n`. No quotient
//! of products is formed, so a gate of 0 clears the memory and nothing else.
//!
//! Shapes: `B` sequences of `N` tokens, `H` heads, a window of `W` tokens, `C` chunks of `L` tokens, each of which sees `K`
//! keys: those of the chunk and, before them, the `K - L` of its halo. `K = L` leaves the halo out. Gates beyond the last
//! token change nothing.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// Mixing weights of a dense band of gates: `gamma[.., j]` is that of the token `W - 1 - j` back, so that a row of gates
    /// stands in the order of its tokens and its last one is the token's own.
    pub kernel omega_mix(
        alpha: &Tensor<f32, [B, N, H]>,
        theta: &Tensor<f32, [B, N, H]>,
        eta: &Tensor<f32, [B, N, H]>,
        gamma: &Tensor<f32, [B, N, H, W]>,
        psi: &mut Tensor<f32, [B, H, C, L, K]>,
        lam: &mut Tensor<f32, [B, H, C, L]>,
        old: &mut Tensor<f32, [B, H, C, L]>,
        psi_end: &mut Tensor<f32, [B, H, C, K]>,
        phi_end: &mut Tensor<f32, [B, H, C, K]>,
        live: &mut Tensor<f32, [B, H, C, K]>,
        lam_end: &mut Tensor<f32, [B, H, C]>,
        old_end: &mut Tensor<f32, [B, H, C]>,
        beta_end: &mut Tensor<f32, [B, H, C]>,
        steps: &mut Tensor<f32, [B, H, C, L]>,
        before: i32,
        commit: i32,
    )
    tune { warps: [1, 2] }
    require { C * L >= N, K >= L }
    {
        for (b, h, c) in grid(B, H, C) {
            let mut phi_n = zeros::<f32>([1, K]);
            let mut psi_n = zeros::<f32>([1, K]);
            let mut weighted = zeros::<f32>([1, K]);
            let mut beta_n = 1.0;
            let mut lam_n = 1.0;
            let mut old_n = 0.0;
            let mut step_n = 0.0;
            // A chunk that is not committed leaves the memory as it was.
            let committed = c < commit;
            for n in 0..size(L) {
                let t = c * size(L) + n;
                let inside = t < size(N);
                let a = select(inside, load(alpha[b, t, h]), 1.0);
                let th = select(inside, load(theta[b, t, h]), 1.0);
                let et = select(inside, load(eta[b, t, h]), 0.0);
                // The oldest key of the chunk is `n + K - L` tokens before this one.
                let band = load(gamma[b, t, h, span(size(W) - 1 - size(K) + size(L) - n, K)]).or(0.0);
                let read_before = before > 0;
                let psi_before = psi_n;
                let lam_before = lam_n;
                let old_before = old_n;
                phi_n = th * phi_n + band;
                psi_n = a * psi_n + et * phi_n;
                beta_n = th * beta_n;
                lam_n = a * lam_n;
                old_n = a * old_n + et * beta_n;
                step_n = select(inside, et, step_n);
                weighted = max(weighted, max(abs(phi_n), abs(psi_n)));
                store(psi[b, h, c, n, ..], select(read_before, psi_before, psi_n));
                store(lam[b, h, c, n], select(read_before, lam_before, lam_n));
                store(old[b, h, c, n], select(read_before, old_before, old_n));
                store(steps[b, h, c, n], select(committed, step_n, 0.0));
            }
            store(psi_end[b, h, c, ..], select(committed, psi_n, 0.0));
            store(phi_end[b, h, c, ..], select(committed, phi_n, 0.0));
            // A gate that is no number weighs, too: earlier tokens see the keys that it weighs.
            store(live[b, h, c, ..], select(weighted >= 0.0, weighted, 1.0));
            store(lam_end[b, h, c], select(committed, lam_n, 1.0));
            store(old_end[b, h, c], select(committed, old_n, 0.0));
            store(beta_end[b, h, c], select(committed, beta_n, 1.0));
        }
    }
}
