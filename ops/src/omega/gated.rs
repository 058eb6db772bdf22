//! The Omega rule on a gated memory `M(x) = r + W1 (gelu(W2 x) (*) W3 x)`, of ATLAS (arXiv 2505.23735) Eq. 43.
//!
//! As [`omega_mlp`](super::mlp), with a hidden row of two halves. Per chunk
//!
//! ```text
//! Z = X W2^T, U = X W3^T, A = gelu(Z) (*) U, E = s (R + A W1^T - V), P = E W1
//! D2 = P (*) U (*) gelu'(Z), D3 = P (*) gelu(Z)
//! Zq = diag(lam) Xq W2^T - diag(old) Xq S2^T - [(Xq X^T) (*) Psi] D2,   Uq likewise of W3, S3 and D3,   Hq = gelu(Zq) (*) Uq
//! Y = Rq + diag(lam) Hq W1^T - diag(old) Hq S1^T - [(Hq A^T) (*) Psi] E
//! W3 <- lam W3 - old S3 - D3^T diag(Psi_end) X,   S3 <- beta S3 + D3^T diag(Phi_end) X
//! ```
//!
//! and `W2`, `S2` with `D2`, `W1`, `S1` with `E` and `A`.
//!
//! FLOPs of a chunk: `(20 K + 12 L) d M + 2 L K (2 d + 3 M)` with `D = E = d`.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::loss::loss_error;

    /// The hidden row of a gated memory.
    tile fn hidden(z, u) { gelu(z) * u }

    /// Reads and trains a gated memory over a sequence, chunk by chunk.
    ///
    /// `k`, `v` and `rk` may have more tokens than `q`: those before the first chunk, for its halo. `q` and `k` are features of
    /// `D` numbers, `v`, `y` and the residuals `rq`, `rk` have `E`.
    pub kernel omega_gated<T: Float>(
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
        w3: &mut Tensor<f32, [B, H, M, D]>,
        s1: &mut Tensor<f32, [B, H, E, M]>,
        s2: &mut Tensor<f32, [B, H, M, D]>,
        s3: &mut Tensor<f32, [B, H, M, D]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [32, 16, 64], warps: [8] }
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
                    let z = dot(x, load(w2[b, h, m, ..]).cast::<T>().t());
                    let u = dot(x, load(w3[b, h, m, ..]).cast::<T>().t());
                    read += dot(hidden(z, u).cast::<T>(), load(w1[b, h, .., m]).cast::<T>().t());
                }
                let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let errors = loss_error(read, wanted.cast::<f32>(), scale, predicts).cast::<T>();
                let to_w = load(psi_end[b, h, c, ..]).t();
                let to_s = load(phi_end[b, h, c, ..]).t();
                // What is taken off is made negative, so that products add to what they meet in place.
                let less_w = -to_w;
                let xq = load(q[b, span(first, L), h, ..]).or(0.0);
                let mixed = (-dot(xq, x.t()) * load(psi[b, h, c, .., ..])).cast::<T>();
                let mut out = load(rq[b, span(first, L), h, ..]).or(0.0).cast::<f32>();
                let mut met = zeros::<f32>([L, K]);
                for m in tiles(M, BM) {
                    let w1t = load(w1[b, h, .., m]).cast::<T>();
                    let w2t = load(w2[b, h, m, ..]).cast::<T>();
                    let w3t = load(w3[b, h, m, ..]).cast::<T>();
                    let s1t = load(s1[b, h, .., m]).cast::<T>();
                    let s2t = load(s2[b, h, m, ..]).cast::<T>();
                    let s3t = load(s3[b, h, m, ..]).cast::<T>();
                    let z = dot(x, w2t.t());
                    let u = dot(x, w3t.t());
                    let act = hidden(z, u);
                    let a = act.cast::<T>();
                    let p = dot(errors, w1t);
                    let delta = grad(gelu)(z) * u * p;
                    let gate_delta = gelu(z) * p;
                    // Read again: what would be kept from the start takes the registers of the products between.
                    let w_after = load(lam_end[b, h, c]);
                    let s_in_w = load(old_end[b, h, c]);
                    let s_after = load(beta_end[b, h, c]);
                    let mut w2m = w_after * load(w2[b, h, m, ..]) - s_in_w * load(s2[b, h, m, ..]);
                    w2m += dot((delta * less_w).cast::<T>().t(), x);
                    store(w2[b, h, m, ..], w2m);
                    let mut s2n = s_after * load(s2[b, h, m, ..]);
                    s2n += dot((delta * to_s).cast::<T>().t(), x);
                    store(s2[b, h, m, ..], s2n);
                    let mut w3m = w_after * load(w3[b, h, m, ..]) - s_in_w * load(s3[b, h, m, ..]);
                    w3m += dot((gate_delta * less_w).cast::<T>().t(), x);
                    store(w3[b, h, m, ..], w3m);
                    let mut s3n = s_after * load(s3[b, h, m, ..]);
                    s3n += dot((gate_delta * to_s).cast::<T>().t(), x);
                    store(s3[b, h, m, ..], s3n);
                    let mut w1m = w_after * load(w1[b, h, .., m]) - s_in_w * load(s1[b, h, .., m]);
                    w1m += dot(errors.t(), (act * less_w).cast::<T>());
                    store(w1[b, h, .., m], w1m);
                    let mut s1n = s_after * load(s1[b, h, .., m]);
                    s1n += dot(errors.t(), (act * to_s).cast::<T>());
                    store(s1[b, h, .., m], s1n);
                    let kept = load(lam[b, h, c, ..]).t();
                    let less = -load(old[b, h, c, ..]).t();
                    let zq = kept * dot(xq, w2t.t()) + less * dot(xq, s2t.t()) + dot(mixed, delta.cast::<T>());
                    let uq = kept * dot(xq, w3t.t()) + less * dot(xq, s3t.t()) + dot(mixed, gate_delta.cast::<T>());
                    let hq = hidden(zq, uq);
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
