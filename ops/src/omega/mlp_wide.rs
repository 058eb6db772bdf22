//! The Omega rule of [`omega_mlp`](super::mlp) for keys, values and hidden layers of any width: features of a tensor polynomial of
//! degree 2 of 64 elements are 2145 numbers, and a memory of 256 elements has 1024 hidden ones.
//!
//! `omega_mlp` holds whole rows of keys and values in registers and shared memory. Here `D`, `M` and `E` are all streamed in tiles, of
//! `BD`, `BM` and `BE` elements, and what a chunk passes from one product to the next is kept in global memory. The mathematics is
//! that of `omega_mlp`. A chunk has four passes:
//!
//! 1. `A = gelu(X W2^T)`, its slope, and `diag(lam) Xq W2^T - diag(old) Xq S2^T`, a tile of `M` at a time;
//! 2. the errors `E`, a tile of `E` at a time;
//! 3. `Delta` and `Hq`, a tile of `M` at a time, which trains `W2` and `S2`;
//! 4. `Y`, a tile of `E` at a time, which trains `W1` and `S1`.
//!
//! A chunk writes each matrix once, and reads `W2` and `S2` twice, `W1` three times and `S1` once. Its tokens are not streamed: `L` and
//! `K` are whole.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::loss::loss_error;

    /// Reads and trains a memory of two layers over a sequence, chunk by chunk, with rows of any width.
    ///
    /// `k`, `v` and `rk` may have more tokens than `q`: those before the first chunk, for its halo. `q` and `k` are features of
    /// `D` numbers, `v`, `y` and the residuals `rq`, `rk` have `E`. Of the last chunk, `errors` are its errors, `act` the hidden rows
    /// of its keys, `delta` the gradients before the gelu, and `hidden` the hidden rows of its queries.
    pub kernel omega_mlp_wide<T: Float>(
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
        errors: &mut Tensor<f32, [B, H, K, E]>,
        act: &mut Tensor<T, [B, H, K, M]>,
        delta: &mut Tensor<f32, [B, H, K, M]>,
        hidden: &mut Tensor<f32, [B, H, L, M]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [32, 16, 64], BD: [64, 32], BE: [64, 32], warps: [8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h) in grid(B, H) {
            for c in 0..size(C) {
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                // A token that nothing weighs may be anything, a NaN too.
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                for m in tiles(M, BM) {
                    let mut z = zeros::<f32>([K, BM]);
                    let mut by_w = zeros::<f32>([L, BM]);
                    let mut by_s = zeros::<f32>([L, BM]);
                    for d in tiles(D, BD) {
                        let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                        let xq = load(q[b, span(first, L), h, d]).or(0.0);
                        let w2t = load(w2[b, h, m, d]).cast::<T>();
                        z += dot(x, w2t.t());
                        by_w += dot(xq, w2t.t());
                        by_s += dot(xq, load(s2[b, h, m, d]).cast::<T>().t());
                    }
                    store(act[b, h, .., m], gelu(z).cast::<T>());
                    store(delta[b, h, .., m], grad(gelu)(z));
                    store(hidden[b, h, .., m], load(lam[b, h, c, ..]).t() * by_w - load(old[b, h, c, ..]).t() * by_s);
                }
                for e in tiles(E, BE) {
                    let mut read = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0).cast::<f32>();
                    for m in tiles(M, BM) {
                        read += dot(load(act[b, h, .., m]), load(w1[b, h, e, m]).cast::<T>().t());
                    }
                    let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                    store(errors[b, h, .., e], loss_error(read, wanted.cast::<f32>(), scale, predicts));
                }
                let mut alike = zeros::<f32>([L, K]);
                for d in tiles(D, BD) {
                    let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                    alike += dot(load(q[b, span(first, L), h, d]).or(0.0), x.t());
                }
                let mixed = (-alike * load(psi[b, h, c, .., ..])).cast::<T>();
                let to_w = load(psi_end[b, h, c, ..]).t();
                let to_s = load(phi_end[b, h, c, ..]).t();
                // What is taken off is made negative, so that products add to what they meet in place.
                let less_w = -to_w;
                let mut met = zeros::<f32>([L, K]);
                for m in tiles(M, BM) {
                    let mut back = zeros::<f32>([K, BM]);
                    for e in tiles(E, BE) {
                        back += dot(load(errors[b, h, .., e]).cast::<T>(), load(w1[b, h, e, m]).cast::<T>());
                    }
                    let change = load(delta[b, h, .., m]) * back;
                    store(delta[b, h, .., m], change);
                    let hq = gelu(load(hidden[b, h, .., m]) + dot(mixed, change.cast::<T>()));
                    store(hidden[b, h, .., m], hq);
                    met += dot(hq.cast::<T>(), load(act[b, h, .., m]).t());
                    let change_w = (change * less_w).cast::<T>();
                    let change_s = (change * to_s).cast::<T>();
                    for d in tiles(D, BD) {
                        let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                        let s2m = load(s2[b, h, m, d]);
                        let mut w2m = load(lam_end[b, h, c]) * load(w2[b, h, m, d]) - load(old_end[b, h, c]) * s2m;
                        w2m += dot(change_w.t(), x);
                        store(w2[b, h, m, d], w2m);
                        let mut s2n = load(beta_end[b, h, c]) * s2m;
                        s2n += dot(change_s.t(), x);
                        store(s2[b, h, m, d], s2n);
                    }
                }
                let weighed = (-met * load(psi[b, h, c, .., ..])).cast::<T>();
                for e in tiles(E, BE) {
                    let error = load(errors[b, h, .., e]);
                    let error_w = (error * less_w).cast::<T>();
                    let error_s = (error * to_s).cast::<T>();
                    let mut out = load(rq[b, span(first, L), h, e]).or(0.0).cast::<f32>();
                    out += dot(weighed, error.cast::<T>());
                    for m in tiles(M, BM) {
                        let hq = load(hidden[b, h, .., m]);
                        let w1m = load(w1[b, h, e, m]);
                        let s1m = load(s1[b, h, e, m]);
                        out += dot((hq * load(lam[b, h, c, ..]).t()).cast::<T>(), w1m.cast::<T>().t());
                        out -= dot((hq * load(old[b, h, c, ..]).t()).cast::<T>(), s1m.cast::<T>().t());
                        let a = load(act[b, h, .., m]);
                        let mut w1n = load(lam_end[b, h, c]) * w1m - load(old_end[b, h, c]) * s1m;
                        w1n += dot(error_w.t(), a);
                        store(w1[b, h, e, m], w1n);
                        let mut s1n = load(beta_end[b, h, c]) * s1m;
                        s1n += dot(error_s.t(), a);
                        store(s1[b, h, e, m], s1n);
                    }
                    store(y[b, span(first, L), h, e], out.cast::<T>());
                }
            }
        }
    }
}
