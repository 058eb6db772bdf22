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
//!
//! Rows follow each other, so a program waits for each row that it loads: the gates of four rows are loaded at once.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// The gates of token `n` of chunk `c`, and its row of `Gam`: 1, 1, 0 and zeros where the chunk has no such token.
    pub(crate) device fn gates_of_row(alpha, theta, eta, gamma, b, h, c, n, N, L, K, W) {
        let t = c * size(L) + n;
        let inside = n < min(size(N) - c * size(L), size(L));
        let a = select(inside, load(alpha[b, t, h]), 1.0);
        let th = select(inside, load(theta[b, t, h]), 1.0);
        let et = select(inside, load(eta[b, t, h]), 0.0);
        // The oldest key of the chunk is `n + K - L` tokens before this one.
        let band = load(gamma[b, t, h, span(size(W) - 1 - size(K) + size(L) - n, K)]).or(0.0);
        (a, th, et, select(inside, band, 0.0))
    }

    /// `Phi`, `Psi`, `beta`, `lam` and `old` after a token, from those before it and its gates.
    pub(crate) tile fn next_row(a, th, et, band, phi, psi, beta, lam, old) {
        let phi_n = th * phi + band;
        let beta_n = th * beta;
        (phi_n, a * psi + et * phi_n, beta_n, a * lam, a * old + et * beta_n)
    }

    /// Stores what token `n` reads, which is dropped behind the chunk.
    device fn store_row(psi, lam, old, b, h, c, n, psi_n, lam_n, old_n) {
        store(psi[b, h, c, n, ..], psi_n);
        store(lam[b, h, c, n], lam_n);
        store(old[b, h, c, n], old_n);
    }

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
            let read_before = before > 0;
            for rows in tiles(L, 4) {
                let n = rows * 4;
                let (a0, th0, et0, band0) = gates_of_row(alpha, theta, eta, gamma, b, h, c, n, N, L, K, W);
                let (a1, th1, et1, band1) = gates_of_row(alpha, theta, eta, gamma, b, h, c, n + 1, N, L, K, W);
                let (a2, th2, et2, band2) = gates_of_row(alpha, theta, eta, gamma, b, h, c, n + 2, N, L, K, W);
                let (a3, th3, et3, band3) = gates_of_row(alpha, theta, eta, gamma, b, h, c, n + 3, N, L, K, W);
                let (phi0, psi0, beta0, lam0, old0) =
                    next_row(a0, th0, et0, band0, phi_n, psi_n, beta_n, lam_n, old_n);
                weighted = max(weighted, max(abs(phi0), abs(psi0)));
                store_row(
                    psi, lam, old, b, h, c, n, select(read_before, psi_n, psi0),
                    select(read_before, lam_n, lam0), select(read_before, old_n, old0)
                );
                let (phi1, psi1, beta1, lam1, old1) =
                    next_row(a1, th1, et1, band1, phi0, psi0, beta0, lam0, old0);
                weighted = max(weighted, max(abs(phi1), abs(psi1)));
                store_row(
                    psi, lam, old, b, h, c, n + 1, select(read_before, psi0, psi1),
                    select(read_before, lam0, lam1), select(read_before, old0, old1)
                );
                let (phi2, psi2, beta2, lam2, old2) =
                    next_row(a2, th2, et2, band2, phi1, psi1, beta1, lam1, old1);
                weighted = max(weighted, max(abs(phi2), abs(psi2)));
                store_row(
                    psi, lam, old, b, h, c, n + 2, select(read_before, psi1, psi2),
                    select(read_before, lam1, lam2), select(read_before, old1, old2)
                );
                let (phi3, psi3, beta3, lam3, old3) =
                    next_row(a3, th3, et3, band3, phi2, psi2, beta2, lam2, old2);
                weighted = max(weighted, max(abs(phi3), abs(psi3)));
                store_row(
                    psi, lam, old, b, h, c, n + 3, select(read_before, psi2, psi3),
                    select(read_before, lam2, lam3), select(read_before, old2, old3)
                );
                // The step of the last token so far.
                let end = min(size(N) - c * size(L), size(L));
                step_n = select(n < end, et0, step_n);
                store(steps[b, h, c, n], select(committed, step_n, 0.0));
                step_n = select(n + 1 < end, et1, step_n);
                store(steps[b, h, c, n + 1], select(committed, step_n, 0.0));
                step_n = select(n + 2 < end, et2, step_n);
                store(steps[b, h, c, n + 2], select(committed, step_n, 0.0));
                step_n = select(n + 3 < end, et3, step_n);
                store(steps[b, h, c, n + 3], select(committed, step_n, 0.0));
                phi_n = phi3;
                psi_n = psi3;
                beta_n = beta3;
                lam_n = lam3;
                old_n = old3;
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
