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
//! As there, what four rows need is loaded at once. The weights after each token are computed again and kept in a workspace. No quotient of products is formed, so gates of 0
//! are no special case. `steps` and `live` have no gradient.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::mix::{gates_of_row, next_row};

    /// Stores the weights after token `n`, which is dropped behind the chunk.
    device fn keep_row(phi_rows, psi_rows, beta_rows, lam_rows, old_rows, b, h, c, n, phi_n, psi_n, beta_n, lam_n, old_n) {
        store(phi_rows[b, h, c, n, ..], phi_n);
        store(psi_rows[b, h, c, n, ..], psi_n);
        store(beta_rows[b, h, c, n], beta_n);
        store(lam_rows[b, h, c, n], lam_n);
        store(old_rows[b, h, c, n], old_n);
    }

    /// What comes to row `n` from what its token reads, and the scalars around it: zeros and ones before the first row, which is also what
    /// lies before that.
    device fn gradients_of_row(dpsi, dlam, dold, beta_rows, lam_rows, old_rows, b, h, c, n) {
        // Before the first token all of the memory and of the momentum is there.
        let lam_before = select(n < 1, 1.0, load(lam_rows[b, h, c, n - 1]));
        let beta_before = select(n < 1, 1.0, load(beta_rows[b, h, c, n - 1]));
        (
            load(dpsi[b, h, c, n, ..]).or(0.0), load(dlam[b, h, c, n]), load(dold[b, h, c, n]), lam_before, beta_before,
            load(old_rows[b, h, c, n - 1]), load(beta_rows[b, h, c, n])
        )
    }

    /// The gradients by the rows before token `n` from those after it, and the scalar parts of those of its gates, which are 0 behind the
    /// last token. A row before the first one changes nothing.
    device fn row_back(
        dalpha, dtheta, deta, dphi_rows, dpsi_rows, b, h, c, n, read_before, N, L, a, th, et, read_psi, read_lam,
        read_old, lam_before, beta_before, old_before, beta_n, d_phi, d_psi, d_beta, d_lam, d_old
    ) {
        let inside = n < size(N) - c * size(L);
        let psi_after = d_psi + select(read_before, 0.0, read_psi);
        let lam_after = d_lam + select(read_before, 0.0, read_lam);
        let old_after = d_old + select(read_before, 0.0, read_old);
        let phi_after = d_phi + et * psi_after;
        let beta_after = d_beta + et * old_after;
        let by_alpha = lam_after * lam_before + old_after * old_before;
        store(dalpha[b, c, n, h], select(inside, by_alpha, 0.0));
        store(dtheta[b, c, n, h], select(inside, beta_after * beta_before, 0.0));
        store(deta[b, c, n, h], select(inside, old_after * beta_n, 0.0));
        store(dpsi_rows[b, h, c, n, ..], select(inside, psi_after, 0.0));
        store(dphi_rows[b, h, c, n, ..], select(inside, phi_after, 0.0));
        (
            th * phi_after, a * psi_after + select(read_before, read_psi, 0.0), th * beta_after,
            a * lam_after + select(read_before, read_lam, 0.0), a * old_after + select(read_before, read_old, 0.0)
        )
    }

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
            for rows in tiles(L, 4) {
                let n = rows * 4;
                let (a0, th0, et0, band0) = gates_of_row(alpha, theta, eta, gamma, b, h, c, n, N, L, K, W);
                let (a1, th1, et1, band1) = gates_of_row(alpha, theta, eta, gamma, b, h, c, n + 1, N, L, K, W);
                let (a2, th2, et2, band2) = gates_of_row(alpha, theta, eta, gamma, b, h, c, n + 2, N, L, K, W);
                let (a3, th3, et3, band3) = gates_of_row(alpha, theta, eta, gamma, b, h, c, n + 3, N, L, K, W);
                let (phi0, psi0, beta0, lam0, old0) =
                    next_row(a0, th0, et0, band0, phi_n, psi_n, beta_n, lam_n, old_n);
                keep_row(
                    phi_rows, psi_rows, beta_rows, lam_rows, old_rows, b, h, c, n, phi0, psi0, beta0, lam0, old0
                );
                let (phi1, psi1, beta1, lam1, old1) =
                    next_row(a1, th1, et1, band1, phi0, psi0, beta0, lam0, old0);
                keep_row(
                    phi_rows, psi_rows, beta_rows, lam_rows, old_rows, b, h, c, n + 1, phi1, psi1, beta1, lam1, old1
                );
                let (phi2, psi2, beta2, lam2, old2) =
                    next_row(a2, th2, et2, band2, phi1, psi1, beta1, lam1, old1);
                keep_row(
                    phi_rows, psi_rows, beta_rows, lam_rows, old_rows, b, h, c, n + 2, phi2, psi2, beta2, lam2, old2
                );
                let (phi3, psi3, beta3, lam3, old3) =
                    next_row(a3, th3, et3, band3, phi2, psi2, beta2, lam2, old2);
                keep_row(
                    phi_rows, psi_rows, beta_rows, lam_rows, old_rows, b, h, c, n + 3, phi3, psi3, beta3, lam3, old3
                );
                phi_n = phi3;
                psi_n = psi3;
                beta_n = beta3;
                lam_n = lam3;
                old_n = old3;
            }
            // A chunk that is not committed leaves the memory as it was, whatever its gates are.
            let mut d_phi = select(committed, load(dphi_end[b, h, c, ..]), 0.0);
            let mut d_psi = select(committed, load(dpsi_end[b, h, c, ..]), 0.0);
            let mut d_beta = select(committed, load(dbeta_end[b, h, c]), 0.0);
            let mut d_lam = select(committed, load(dlam_end[b, h, c]), 0.0);
            let mut d_old = select(committed, load(dold_end[b, h, c]), 0.0);
            for rows in tiles(L, 4) {
                // From the last row to the first; those before the first one change nothing.
                let n = size(L) - 1 - rows * 4;
                let (a0, th0, et0, _) = gates_of_row(alpha, theta, eta, gamma, b, h, c, n, N, L, K, W);
                let (read_psi0, read_lam0, read_old0, lam_before0, beta_before0, old_before0, beta0) =
                    gradients_of_row(dpsi, dlam, dold, beta_rows, lam_rows, old_rows, b, h, c, n);
                let (a1, th1, et1, _) = gates_of_row(alpha, theta, eta, gamma, b, h, c, n - 1, N, L, K, W);
                let (read_psi1, read_lam1, read_old1, lam_before1, beta_before1, old_before1, beta1) =
                    gradients_of_row(dpsi, dlam, dold, beta_rows, lam_rows, old_rows, b, h, c, n - 1);
                let (a2, th2, et2, _) = gates_of_row(alpha, theta, eta, gamma, b, h, c, n - 2, N, L, K, W);
                let (read_psi2, read_lam2, read_old2, lam_before2, beta_before2, old_before2, beta2) =
                    gradients_of_row(dpsi, dlam, dold, beta_rows, lam_rows, old_rows, b, h, c, n - 2);
                let (a3, th3, et3, _) = gates_of_row(alpha, theta, eta, gamma, b, h, c, n - 3, N, L, K, W);
                let (read_psi3, read_lam3, read_old3, lam_before3, beta_before3, old_before3, beta3) =
                    gradients_of_row(dpsi, dlam, dold, beta_rows, lam_rows, old_rows, b, h, c, n - 3);
                (d_phi, d_psi, d_beta, d_lam, d_old) = row_back(
                    dalpha, dtheta, deta, dphi_rows, dpsi_rows, b, h, c, n, read_before, N, L, a0, th0, et0,
                    read_psi0, read_lam0, read_old0, lam_before0, beta_before0, old_before0, beta0, d_phi, d_psi, d_beta, d_lam, d_old
                );
                (d_phi, d_psi, d_beta, d_lam, d_old) = row_back(
                    dalpha, dtheta, deta, dphi_rows, dpsi_rows, b, h, c, n - 1, read_before, N, L, a1, th1, et1,
                    read_psi1, read_lam1, read_old1, lam_before1, beta_before1, old_before1, beta1, d_phi, d_psi, d_beta, d_lam, d_old
                );
                (d_phi, d_psi, d_beta, d_lam, d_old) = row_back(
                    dalpha, dtheta, deta, dphi_rows, dpsi_rows, b, h, c, n - 2, read_before, N, L, a2, th2, et2,
                    read_psi2, read_lam2, read_old2, lam_before2, beta_before2, old_before2, beta2, d_phi, d_psi, d_beta, d_lam, d_old
                );
                (d_phi, d_psi, d_beta, d_lam, d_old) = row_back(
                    dalpha, dtheta, deta, dphi_rows, dpsi_rows, b, h, c, n - 3, read_before, N, L, a3, th3, et3,
                    read_psi3, read_lam3, read_old3, lam_before3, beta_before3, old_before3, beta3, d_phi, d_psi, d_beta, d_lam, d_old
                );
            }
            for rows in tiles(L, 4) {
                let first = rows * 4 + size(K) - size(L) - size(W) + 1;
                let window0 = load(dphi_rows[b, h, c, rows * 4, span(first, W)]).or(0.0);
                let window1 = load(dphi_rows[b, h, c, rows * 4 + 1, span(first + 1, W)]).or(0.0);
                let window2 = load(dphi_rows[b, h, c, rows * 4 + 2, span(first + 2, W)]).or(0.0);
                let window3 = load(dphi_rows[b, h, c, rows * 4 + 3, span(first + 3, W)]).or(0.0);
                store(dgamma[b, c, rows * 4, h, ..], window0);
                store(dgamma[b, c, rows * 4 + 1, h, ..], window1);
                store(dgamma[b, c, rows * 4 + 2, h, ..], window2);
                store(dgamma[b, c, rows * 4 + 3, h, ..], window3);
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
