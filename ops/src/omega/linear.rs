//! The Omega rule on a linear memory `M(x) = r + W x`. The outputs of a linear memory do not depend on each other, so a
//! program takes one tile of them through all chunks.
//!
//! Per chunk: `E = s (R + X W^T - V)`, `Y = Rq + diag(lam) Xq W^T - diag(old) Xq S^T - [(Xq X^T) (*) Psi] E`,
//! `W <- lam W - old S - E^T diag(Psi_end) X`, `S <- beta S + E^T diag(Phi_end) X`. Losses and mixing weights are those of [`omega_mlp`](super::mlp).

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::loss::loss_error;

    /// Reads and trains a linear memory over a sequence, chunk by chunk.
    pub kernel omega_linear<T: Float>(
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
        w: &mut Tensor<f32, [B, H, E, D]>,
        s: &mut Tensor<f32, [B, H, E, D]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        scale: f32,
        predicts: i32,
    )
    tune { BE: [32, 16, 64], warps: [4, 8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h, e) in grid(B, H, tiles(E, BE)) {
            let mut we = load(w[b, h, e, ..]);
            let mut se = load(s[b, h, e, ..]);
            for c in 0..size(C) {
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                let skipped = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0);
                let wt = we.cast::<T>();
                let read = skipped.cast::<f32>() + dot(x, wt.t());
                let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                let xq = load(q[b, span(first, L), h, ..]).or(0.0);
                let mixed = (dot(xq, x.t()) * load(psi[b, h, c, .., ..])).cast::<T>();
                let out = load(rq[b, span(first, L), h, e]).or(0.0).cast::<f32>()
                    + load(lam[b, h, c, ..]).t() * dot(xq, wt.t())
                    - load(old[b, h, c, ..]).t() * dot(xq, se.cast::<T>().t())
                    - dot(mixed, error.cast::<T>());
                store(y[b, span(first, L), h, e], out.cast::<T>());
                let to_w = (error * load(psi_end[b, h, c, ..]).t()).cast::<T>();
                let to_s = (error * load(phi_end[b, h, c, ..]).t()).cast::<T>();
                we = load(lam_end[b, h, c]) * we - load(old_end[b, h, c]) * se - dot(to_w.t(), x);
                se = load(beta_end[b, h, c]) * se + dot(to_s.t(), x);
            }
            store(w[b, h, e, ..], we);
            store(s[b, h, e, ..], se);
        }
    }
}
