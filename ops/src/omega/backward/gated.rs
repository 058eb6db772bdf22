//! The backward pass of the Omega rule on a gated memory `M(x) = r + W1 (gelu(W2 x) (*) W3 x)`; see
//! [`omega_gated`](crate::omega::gated). Here is what it computes, and the states that it starts from.
//!
//! As [`mlp`](super::mlp), with a hidden row of two halves: `A = gelu(Z) (*) U`, and its slopes `F = gelu'(Z) (*) U` by `Z` and
//! `g = gelu(Z)` by `U`. The gradients before them are `D2 = F (*) P` and `D3 = g (*) P` with `P = E W1`. Of queries `Zq`, `Uq`, and
//! `Hq = gelu(Zq) (*) Uq`. What differs is
//!
//! ```text
//! dZq = gelu'(Zq) (*) Uq (*) dHq,  dUq = gelu(Zq) (*) dHq,  U = -dZq D2^T - dUq D3^T
//! dXq = diag(lam) [dZq W2 + dUq W3] - diag(old) [dZq S2 + dUq S3] + [U (*) Psi] X
//! dlam = rowsum(Hq (*) dY W1 + dZq (*) Xq W2^T + dUq (*) Xq W3^T),  dold likewise of S1, S2, S3, and made negative
//! dP = F (*) dD2 + g (*) dD3,  dE += dP W1^T
//! dZ = gelu''(Z) (*) U (*) P (*) dD2 + gelu'(Z) (*) P (*) dD3 + F (*) dA
//! dU = gelu'(Z) (*) P (*) dD2 + g (*) dA,  dX += dZ W2 + dU W3
//! ```
//!
//! and `dD3`, `dW3`, `dS3` are as `dD2`, `dW2`, `dS2`, with `D3`, `dUq` and `dU` for `D2`, `dZq` and `dZ`.

use atlas_macros::atlas_kernel;

/// What a chunk's keys give at its start, by their place in `factors`: behind the gate; of the matrix before gelu and of the one
/// beside it, the gradient that its products get and the slope of what is behind the gate; and the slopes of the first slope by both
/// products, times what comes back from the errors.
pub(super) const ACT: i32 = 0;
pub(super) const DELTA: i32 = 1;
pub(super) const SLOPE: i32 = 2;
pub(super) const GATE_DELTA: i32 = 3;
pub(super) const GATE_SLOPE: i32 = 4;
pub(super) const BEND: i32 = 5;
pub(super) const CROSS: i32 = 6;

/// What its queries give, by their place in `queries`: behind the gate, and the gradients by both products.
pub(super) const INNER: i32 = 0;
pub(super) const BY_INNER: i32 = 1;
pub(super) const BY_GATE: i32 = 2;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use crate::omega::muon::forms::{factors_gated, read_gated};

    /// The states before each chunk, and the errors of its keys, from the state before the first one. `past` keys come before
    /// those of the first chunk of `chunk` tokens.
    pub kernel omega_gated_states<T: Float>(
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        old_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        w1_start: &Tensor<f32, [B, H, E, M]>,
        w2_start: &Tensor<f32, [B, H, M, D]>,
        w3_start: &Tensor<f32, [B, H, M, D]>,
        s1_start: &Tensor<f32, [B, H, E, M]>,
        s2_start: &Tensor<f32, [B, H, M, D]>,
        s3_start: &Tensor<f32, [B, H, M, D]>,
        w1: &mut Tensor<f32, [B, H, C, E, M]>,
        w2: &mut Tensor<f32, [B, H, C, M, D]>,
        w3: &mut Tensor<f32, [B, H, C, M, D]>,
        s1: &mut Tensor<f32, [B, H, C, E, M]>,
        s2: &mut Tensor<f32, [B, H, C, M, D]>,
        s3: &mut Tensor<f32, [B, H, C, M, D]>,
        errors: &mut Tensor<f32, [B, H, C, K, E]>,
        chunk: i32,
        past: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [32, 16, 64], warps: [8, 4] }
    {
        for (b, h) in grid(B, H) {
            for m in tiles(M, BM) {
                store(w1[b, h, 0, .., m], load(w1_start[b, h, .., m]));
                store(w2[b, h, 0, m, ..], load(w2_start[b, h, m, ..]));
                store(w3[b, h, 0, m, ..], load(w3_start[b, h, m, ..]));
                store(s1[b, h, 0, .., m], load(s1_start[b, h, .., m]));
                store(s2[b, h, 0, m, ..], load(s2_start[b, h, m, ..]));
                store(s3[b, h, 0, m, ..], load(s3_start[b, h, m, ..]));
            }
            for c in 0..size(C) {
                let oldest = c * chunk + past + chunk - size(K);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let skipped = select(alive, load(rk[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let mut read = skipped.cast::<f32>();
                for m in tiles(M, BM) {
                    let w1m = load(w1[b, h, c, .., m]).cast::<T>();
                    read += read_gated(x, w1m, load(w2[b, h, c, m, ..]).cast::<T>(), load(w3[b, h, c, m, ..]).cast::<T>());
                }
                let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                store(errors[b, h, c, .., ..], error);
                // After the last chunk nothing is asked for.
                for again in 0..min(size(C) - 1 - c, 1) {
                    let next = c + again + 1;
                    let errors_c = error.cast::<T>();
                    let less_w = -load(psi_end[b, h, c, ..]).t();
                    let to_s = load(phi_end[b, h, c, ..]).t();
                    let error_w = (error * less_w).cast::<T>();
                    let error_s = (error * to_s).cast::<T>();
                    for m in tiles(M, BM) {
                        let w1t = load(w1[b, h, c, .., m]).cast::<T>();
                        let w2t = load(w2[b, h, c, m, ..]).cast::<T>();
                        let w3t = load(w3[b, h, c, m, ..]).cast::<T>();
                        let (a, delta, gate_delta) = factors_gated(x, errors_c, w1t, w2t, w3t);
                        let w_after = load(lam_end[b, h, c]);
                        let s_in_w = load(old_end[b, h, c]);
                        let s_after = load(beta_end[b, h, c]);
                        let s2m = load(s2[b, h, c, m, ..]);
                        let mut w2m = w_after * load(w2[b, h, c, m, ..]) - s_in_w * s2m;
                        w2m += dot((delta * less_w).cast::<T>().t(), x);
                        store(w2[b, h, next, m, ..], w2m);
                        let mut s2n = s_after * s2m;
                        s2n += dot((delta * to_s).cast::<T>().t(), x);
                        store(s2[b, h, next, m, ..], s2n);
                        let s3m = load(s3[b, h, c, m, ..]);
                        let mut w3m = w_after * load(w3[b, h, c, m, ..]) - s_in_w * s3m;
                        w3m += dot((gate_delta * less_w).cast::<T>().t(), x);
                        store(w3[b, h, next, m, ..], w3m);
                        let mut s3n = s_after * s3m;
                        s3n += dot((gate_delta * to_s).cast::<T>().t(), x);
                        store(s3[b, h, next, m, ..], s3n);
                        let s1m = load(s1[b, h, c, .., m]);
                        let mut w1m = w_after * load(w1[b, h, c, .., m]) - s_in_w * s1m;
                        w1m += dot(error_w.t(), a);
                        store(w1[b, h, next, .., m], w1m);
                        let mut s1n = s_after * s1m;
                        s1n += dot(error_s.t(), a);
                        store(s1[b, h, next, .., m], s1n);
                    }
                }
            }
        }
    }
}
