//! The Omega rule on a deep memory `M(x) = r + W1 gelu(W2 x)`: all chunks of one head after each other, in one program.
//!
//! Per chunk, with the mixing weights of [`omega_mix`](super::mix): the keys go through the memory as it was before the chunk,
//!
//! ```text
//! Z = X W2^T, A = gelu(Z), E = s (R + A W1^T - V), Delta = gelu'(Z) (*) (E W1)
//! ```
//!
//! where a loss without prediction has `E = -s V` ([`Loss::Dot`](super::Loss)). Then each query reads the memory as it is after its own token, which is never made,
//!
//! ```text
//! Zq = diag(lam) Xq W2^T - diag(old) Xq S2^T - [(Xq X^T) (*) Psi] Delta,   Hq = gelu(Zq)
//! Y = Rq + diag(lam) Hq W1^T - diag(old) Hq S1^T - [(Hq A^T) (*) Psi] E
//! ```
//!
//! and the memory and its momentum go on to the next chunk,
//!
//! ```text
//! W1 <- lam W1 - old S1 - E^T diag(Psi_end) A,   S1 <- beta S1 + E^T diag(Phi_end) A
//! ```
//!
//! and likewise `W2`, `S2` with `Delta` and `X`. Source: ATLAS (arXiv 2505.23735) sections 3 and 5; the dual form is exact
//! against the recurrence token by token with gradients at the chunk's start. The hidden dim is streamed twice, in tiles of
//! `BM`: once for `E`, and once for all that needs it.
//!
//! FLOPs of a chunk: `(14 K + 8 L) d M + 4 L K (d + M)` with `D = E = d`.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::loss::loss_error;

    /// Reads and trains a memory of two layers over a sequence, chunk by chunk.
    ///
    /// `k`, `v` and `rk` may have more tokens than `q`: those before the first chunk, for its halo. `q` and `k` are features of
    /// `D` numbers, `v`, `y` and the residuals `rq`, `rk` have `E`.
    pub kernel omega_mlp<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rq: &Tensor<T, [B, N, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        psi: &Tensor<f32, [B, H, C, L, K]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        old_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        w1: &mut Tensor<f32, [B, H, E, M]>,
        w2: &mut Tensor<f32, [B, H, M, D]>,
        s1: &mut Tensor<f32, [B, H, E, M]>,
        s2: &mut Tensor<f32, [B, H, M, D]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [32, 16, 64], warps: [8, 4] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h) in grid(B, H) {
            for c in 0..size(C) {
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                // A token that nothing weighs may be anything, a NaN too.
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let mut read = select(alive, load(rk[b, span(oldest, K), h, ..]).or(0.0), 0.0).cast::<f32>();
                for m in tiles(M, BM) {
                    let a = gelu(dot(x, load(w2[b, h, m, ..]).cast::<T>().t()));
                    read += dot(a.cast::<T>(), load(w1[b, h, .., m]).cast::<T>().t());
                }
                let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                let errors = error.cast::<T>();
                let to_w = load(psi_end[b, h, c, ..]).t();
                let to_s = load(phi_end[b, h, c, ..]).t();
                // What is taken off is made negative, so that products add to what they meet in place.
                let less_w = -to_w;
                let error_w = (error * less_w).cast::<T>();
                let error_s = (error * to_s).cast::<T>();
                let xq = load(q[b, span(first, L), h, ..]).or(0.0);
                let mixed = (-dot(xq, x.t()) * load(psi[b, h, c, .., ..])).cast::<T>();
                let mut out = load(rq[b, span(first, L), h, ..]).or(0.0).cast::<f32>();
                let mut met = zeros::<f32>([L, K]);
                for m in tiles(M, BM) {
                    let w1t = load(w1[b, h, .., m]).cast::<T>();
                    let w2t = load(w2[b, h, m, ..]).cast::<T>();
                    let s1t = load(s1[b, h, .., m]).cast::<T>();
                    let s2t = load(s2[b, h, m, ..]).cast::<T>();
                    let z = dot(x, w2t.t());
                    let a = gelu(z).cast::<T>();
                    let delta = grad(gelu)(z) * dot(errors, w1t);
                    // Read again: what would be kept from the start takes the registers of the products between.
                    let w_after = load(lam_end[b, h, c]);
                    let s_in_w = load(old_end[b, h, c]);
                    let s_after = load(beta_end[b, h, c]);
                    let s2m = load(s2[b, h, m, ..]);
                    let mut w2m = w_after * load(w2[b, h, m, ..]) - s_in_w * s2m;
                    w2m += dot((delta * less_w).cast::<T>().t(), x);
                    store(w2[b, h, m, ..], w2m);
                    let mut s2n = s_after * s2m;
                    s2n += dot((delta * to_s).cast::<T>().t(), x);
                    store(s2[b, h, m, ..], s2n);
                    let s1m = load(s1[b, h, .., m]);
                    let mut w1m = w_after * load(w1[b, h, .., m]) - s_in_w * s1m;
                    w1m += dot(error_w.t(), a);
                    store(w1[b, h, .., m], w1m);
                    let mut s1n = s_after * s1m;
                    s1n += dot(error_s.t(), a);
                    store(s1[b, h, .., m], s1n);
                    let kept = load(lam[b, h, c, ..]).t();
                    let less = -load(old[b, h, c, ..]).t();
                    let zq = kept * dot(xq, w2t.t()) + less * dot(xq, s2t.t()) + dot(mixed, delta.cast::<T>());
                    let hq = gelu(zq);
                    out += dot((hq * kept).cast::<T>(), w1t.t());
                    out += dot((hq * less).cast::<T>(), s1t.t());
                    met += dot(hq.cast::<T>(), a.t());
                }
                out -= dot((met * load(psi[b, h, c, .., ..])).cast::<T>(), errors);
                store(y[b, span(first, L), h, ..], out.cast::<T>());
            }
        }
    }
}
