//! The gradients of the gates from those of the mixing weights: the row recurrences of [`omega_mix`](crate::omega::mix) in
//! reverse, one program per chunk.
//!
//! Let `dPhi`, `dPsi`, `dbeta`, `dlam` and `dold` be the gradients of the loss by the rows after token `n`. They start at the
//! last row with what the chunk's end needs. From the last token to the first,
//!
//! ```text
//! dPsi += dpsi_n, dlam += dlam_n, dold += dold_n        what token n reads: row n, or row n - 1 if it reads before its step
//! dalpha_n = <dPsi, Psi_(n-1)> + dlam lam_(n-1) + dold old_(n-1)
//! deta_n   = <dPsi, Phi_n> + dold beta_n
//! dPhi += eta_n dPsi,  dbeta += eta_n dold,  dgamma_n = dPhi where the window lies
//! dtheta_n = <dPhi, Phi_(n-1)> + dbeta beta_(n-1)
//! dPhi *= theta_n, dbeta *= theta_n, dPsi *= alpha_n, dlam *= alpha_n, dold *= alpha_n
//! ```
//!
//! The weights after each token are computed again and kept in a workspace. No quotient of products is formed, so gates of 0
//! are no special case. `steps` and `live` have no gradient.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// The gradients of the gates of each chunk, `[B, C, L, H]`: the tokens of all chunks in order. Those beyond the last token
    /// are 0. The tensors of rows are a workspace: the weights after each token, and their gradients.
    pub kernel omega_mix_backward(
        alpha: &Tensor<f32, [B, N, H]>,
        theta: &Tensor<f32, [B, N, H]>,
        eta: &Tensor<f32, [B, N, H]>,
        gamma: &Tensor<f32, [B, N, H, W]>,
        dpsi: &Tensor<f32, [B, H, C, L, K]>,
        dlam: &Tensor<f32, [B, H, C, L]>,
        dold: &Tensor<f32, [B, H, C, L]>,
        dpsi_end: &Tensor<f32, [B, H, C, K]>,
        dphi_end: &Tensor<f32, [B, H, C, K]>,
        dlam_end: &Tensor<f32, [B, H, C]>,
        dold_end: &Tensor<f32, [B, H, C]>,
        dbeta_end: &Tensor<f32, [B, H, C]>,
        phi_rows: &mut Tensor<f32, [B, H, C, L, K]>,
        psi_rows: &mut Tensor<f32, [B, H, C, L, K]>,
        beta_rows: &mut Tensor<f32, [B, H, C, L]>,
        lam_rows: &mut Tensor<f32, [B, H, C, L]>,
        old_rows: &mut Tensor<f32, [B, H, C, L]>,
        dphi_rows: &mut Tensor<f32, [B, H, C, L, K]>,
        dpsi_rows: &mut Tensor<f32, [B, H, C, L, K]>,
        dalpha: &mut Tensor<f32, [B, C, L, H]>,
        dtheta: &mut Tensor<f32, [B, C, L, H]>,
        deta: &mut Tensor<f32, [B, C, L, H]>,
        dgamma: &mut Tensor<f32, [B, C, L, H, W]>,
        before: i32,
        commit: i32,
    )
    tune { BL: [16, 8], warps: [2, 4] }
    require { C * L >= N, K >= L }
    {
        for (b, h, c) in grid(B, H, C) {
            let read_before = before > 0;
            let committed = c < commit;
            let mut phi_n = zeros::<f32>([1, K]);
            let mut psi_n = zeros::<f32>([1, K]);
            let mut beta_n = 1.0;
            let mut lam_n = 1.0;
            let mut old_n = 0.0;
            for n in 0..size(L) {
                let t = c * size(L) + n;
                let inside = t < size(N);
                let a = select(inside, load(alpha[b, t, h]), 1.0);
                let th = select(inside, load(theta[b, t, h]), 1.0);
                let et = select(inside, load(eta[b, t, h]), 0.0);
                let band = load(gamma[b, t, h, span(size(W) - 1 - size(K) + size(L) - n, K)]).or(0.0);
                phi_n = th * phi_n + band;
                psi_n = a * psi_n + et * phi_n;
                beta_n = th * beta_n;
                lam_n = a * lam_n;
                old_n = a * old_n + et * beta_n;
                store(phi_rows[b, h, c, n, ..], phi_n);
                store(psi_rows[b, h, c, n, ..], psi_n);
                store(beta_rows[b, h, c, n], beta_n);
                store(lam_rows[b, h, c, n], lam_n);
                store(old_rows[b, h, c, n], old_n);
            }
            // A chunk that is not committed leaves the memory as it was, whatever its gates are.
            let mut d_phi = select(committed, load(dphi_end[b, h, c, ..]), 0.0);
            let mut d_psi = select(committed, load(dpsi_end[b, h, c, ..]), 0.0);
            let mut d_beta = select(committed, load(dbeta_end[b, h, c]), 0.0);
            let mut d_lam = select(committed, load(dlam_end[b, h, c]), 0.0);
            let mut d_old = select(committed, load(dold_end[b, h, c]), 0.0);
            for i in 0..size(L) {
                let n = size(L) - 1 - i;
                let t = c * size(L) + n;
                let inside = t < size(N);
                let a = select(inside, load(alpha[b, t, h]), 1.0);
                let th = select(inside, load(theta[b, t, h]), 1.0);
                let et = select(inside, load(eta[b, t, h]), 0.0);
                let read_psi = load(dpsi[b, h, c, n, ..]);
                let read_lam = load(dlam[b, h, c, n]);
                let read_old = load(dold[b, h, c, n]);
                let psi_after = d_psi + select(read_before, 0.0, read_psi);
                let lam_after = d_lam + select(read_before, 0.0, read_lam);
                let old_after = d_old + select(read_before, 0.0, read_old);
                let phi_after = d_phi + et * psi_after;
                let beta_after = d_beta + et * old_after;
                // Before the first token all of the memory and of the momentum is there.
                let lam_before = select(n < 1, 1.0, load(lam_rows[b, h, c, n - 1]));
                let beta_before = select(n < 1, 1.0, load(beta_rows[b, h, c, n - 1]));
                let by_alpha = lam_after * lam_before + old_after * load(old_rows[b, h, c, n - 1]);
                store(dalpha[b, c, n, h], select(inside, by_alpha, 0.0));
                store(dtheta[b, c, n, h], select(inside, beta_after * beta_before, 0.0));
                store(deta[b, c, n, h], select(inside, old_after * load(beta_rows[b, h, c, n]), 0.0));
                store(dpsi_rows[b, h, c, n, ..], select(inside, psi_after, 0.0));
                store(dphi_rows[b, h, c, n, ..], select(inside, phi_after, 0.0));
                d_phi = th * phi_after;
                d_beta = th * beta_after;
                d_psi = a * psi_after + select(read_before, read_psi, 0.0);
                d_lam = a * lam_after + select(read_before, read_lam, 0.0);
                d_old = a * old_after + select(read_before, read_old, 0.0);
            }
            for n in 0..size(L) {
                let window = load(dphi_rows[b, h, c, n, span(n + size(K) - size(L) - size(W) + 1, W)]).or(0.0);
                store(dgamma[b, c, n, h, ..], window);
            }
            for l in tiles(L, BL) {
                let d_psi_rows = load(dpsi_rows[b, h, c, l, ..]);
                let d_phi_rows = load(dphi_rows[b, h, c, l, ..]);
                // Before the first token of a chunk no gradient has come in.
                let psi_before = load(psi_rows[b, h, c, span(l * BL - 1, BL), ..]).or(0.0);
                let phi_before = load(phi_rows[b, h, c, span(l * BL - 1, BL), ..]).or(0.0);
                let by_alpha = sum(d_psi_rows * psi_before, axis = 1);
                let by_eta = sum(d_psi_rows * load(phi_rows[b, h, c, l, ..]), axis = 1);
                let by_theta = sum(d_phi_rows * phi_before, axis = 1);
                store(dalpha[b, c, l, h], load(dalpha[b, c, l, h]).t() + by_alpha);
                store(deta[b, c, l, h], load(deta[b, c, l, h]).t() + by_eta);
                store(dtheta[b, c, l, h], load(dtheta[b, c, l, h]).t() + by_theta);
            }
        }
    }
}
