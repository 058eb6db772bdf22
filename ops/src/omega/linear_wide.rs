//! The Omega rule of [`omega_linear`](super::linear) for keys of any width: `D` is streamed in tiles of `BD`, and the memory stays in
//! global memory, not in registers. The mathematics is that of `omega_linear`.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::loss::loss_error;

    /// Reads and trains a linear memory over a sequence, chunk by chunk, with keys of any width.
    pub kernel omega_linear_wide<T: Float>(
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
    tune { BE: [32, 16, 64], BD: [64, 32], warps: [8, 4] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h, e) in grid(B, H, tiles(E, BE)) {
            for c in 0..size(C) {
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let mut read = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0).cast::<f32>();
                let mut alike = zeros::<f32>([L, K]);
                let mut by_w = zeros::<f32>([L, BE]);
                let mut by_s = zeros::<f32>([L, BE]);
                for d in tiles(D, BD) {
                    let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                    let xq = load(q[b, span(first, L), h, d]).or(0.0);
                    let wt = load(w[b, h, e, d]).cast::<T>();
                    read += dot(x, wt.t());
                    alike += dot(xq, x.t());
                    by_w += dot(xq, wt.t());
                    by_s += dot(xq, load(s[b, h, e, d]).cast::<T>().t());
                }
                let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                let mixed = (alike * load(psi[b, h, c, .., ..])).cast::<T>();
                let out = load(rq[b, span(first, L), h, e]).or(0.0).cast::<f32>()
                    + load(lam[b, h, c, ..]).t() * by_w
                    - load(old[b, h, c, ..]).t() * by_s
                    - dot(mixed, error.cast::<T>());
                store(y[b, span(first, L), h, e], out.cast::<T>());
                // What is taken off is made negative, so that products add to what they meet in place.
                let to_w = (-error * load(psi_end[b, h, c, ..]).t()).cast::<T>();
                let to_s = (error * load(phi_end[b, h, c, ..]).t()).cast::<T>();
                let w_after = load(lam_end[b, h, c]);
                let s_in_w = load(old_end[b, h, c]);
                let s_after = load(beta_end[b, h, c]);
                for d in tiles(D, BD) {
                    let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                    let mut we = w_after * load(w[b, h, e, d]) - s_in_w * load(s[b, h, e, d]);
                    we += dot(to_w.t(), x);
                    store(w[b, h, e, d], we);
                    let mut se = s_after * load(s[b, h, e, d]);
                    se += dot(to_s.t(), x);
                    store(s[b, h, e, d], se);
                }
            }
        }
    }
}
