//! The backward pass of the Omega rule on a deep memory `M(x) = r + W1 gelu(W2 x)`; see [`omega_mlp`](crate::omega::mlp). Here is
//! what it computes, and the states that it starts from.
//!
//! All products of a chunk are as in the forward pass: `Z`, `A`, `E` and `Delta = gelu'(Z) (*) P` with `P = E W1` of the keys `X`;
//! `Zq`, `Hq` of the queries `Xq`; `T1 = Hq A^T`, `T2 = Xq X^T`. From the gradients `dY` of what is read,
//!
//! ```text
//! G = -dY E^T,  dT1 = G (*) Psi,  dHq = diag(lam) dY W1 - diag(old) dY S1 + dT1 A
//! dZq = gelu'(Zq) (*) dHq,  U = -dZq Delta^T,  dT2 = U (*) Psi,  dPsi = G (*) T1 + U (*) T2
//! dXq = diag(lam) dZq W2 - diag(old) dZq S2 + dT2 X
//! dlam = rowsum(Hq (*) dY W1 + dZq (*) Xq W2^T),  dold = -rowsum(Hq (*) dY S1 + dZq (*) Xq S2^T)
//! dE = -[T1 (*) Psi]^T dY,  dA = dT1^T Hq,  dDelta = -[T2 (*) Psi]^T dZq,  dX = dT2^T Xq
//! ```
//!
//! and with the gradients `dW1'`, `dW2'`, `dS1'`, `dS2'` by the state after the chunk, and columns `w` and `f` of `Psi_end` and
//! `Phi_end`,
//!
//! ```text
//! dDelta += -w X dW2'^T + f X dS2'^T,  dX += -w Delta dW2' + f Delta dS2'
//! dA += -w E dW1' + f E dS1',  dE += -w A dW1'^T + f A dS1'^T + [gelu'(Z) (*) dDelta] W1^T
//! dw = -rowsum(E (*) A dW1'^T + Delta (*) X dW2'^T),  df = rowsum(E (*) A dS1'^T + Delta (*) X dS2'^T)
//! dR = s dE,  dV = -s dE,  dA += s dE W1,  dZ = gelu''(Z) (*) P (*) dDelta + gelu'(Z) (*) dA,  dX += dZ W2
//! dlam_end = <dW', W>,  dold_end = -<dW', S>,  dbeta_end = <dS', S>
//! dW1 = lam_end dW1' + (diag(lam) dY)^T Hq + E^T [gelu'(Z) (*) dDelta] + s dE^T A
//! dW2 = lam_end dW2' + (diag(lam) dZq)^T Xq + dZ^T X
//! dS1 = beta_end dS1' - old_end dW1' - (diag(old) dY)^T Hq,  dS2 likewise with dZq and Xq
//! ```
//!
//! The first part is computed for all chunks at once ([`mlp_read`](super::mlp_read)); the second one goes from chunk to chunk, from
//! the last to the first ([`mlp_train`](super::mlp_train)). The hidden dim is streamed in tiles of `BM` throughout.

use atlas_macros::atlas_kernel;

/// What a chunk's keys give at its start, by their place in `factors`: behind gelu, the gradient before it, and what the
/// gradients by the latter go on with: the slope of gelu, and its slope in turn times what comes back from the errors.
pub(super) const ACT: i32 = 0;
pub(super) const DELTA: i32 = 1;
pub(super) const SLOPE: i32 = 2;
pub(super) const BEND: i32 = 3;

/// What its queries give, by their place in `queries`: behind gelu, and the gradient before it.
pub(super) const INNER: i32 = 0;
pub(super) const BY_INNER: i32 = 1;

/// What its queries and keys give together, by their place in `mixed`: their products times the weights of the keys, less what is
/// taken off, and the gradient by the products of what both give behind gelu.
pub(super) const MIXED: i32 = 0;
pub(super) const BY_MET: i32 = 1;

atlas_kernel! {
    use crate::omega::loss::loss_error;

    /// The states before each chunk, and the errors of its keys, from the state before the first one. `past` keys come before
    /// those of the first chunk of `chunk` tokens.
    pub kernel omega_mlp_states<T: Float>(
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
        s1_start: &Tensor<f32, [B, H, E, M]>,
        s2_start: &Tensor<f32, [B, H, M, D]>,
        w1: &mut Tensor<f32, [B, H, C, E, M]>,
        w2: &mut Tensor<f32, [B, H, C, M, D]>,
        s1: &mut Tensor<f32, [B, H, C, E, M]>,
        s2: &mut Tensor<f32, [B, H, C, M, D]>,
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
                store(s1[b, h, 0, .., m], load(s1_start[b, h, .., m]));
                store(s2[b, h, 0, m, ..], load(s2_start[b, h, m, ..]));
            }
            for c in 0..size(C) {
                let oldest = c * chunk + past + chunk - size(K);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let skipped = select(alive, load(rk[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let mut read = skipped.cast::<f32>();
                for m in tiles(M, BM) {
                    let a = gelu(dot(x, load(w2[b, h, c, m, ..]).cast::<T>().t()));
                    read += dot(a.cast::<T>(), load(w1[b, h, c, .., m]).cast::<T>().t());
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
                        let z = dot(x, load(w2[b, h, c, m, ..]).cast::<T>().t());
                        let a = gelu(z).cast::<T>();
                        let delta = grad(gelu)(z) * dot(errors_c, w1t);
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
