//! The Omega rule of [`omega_mlp_wide`](super::mlp_wide) with each pass over a chunk in a launch of its own, so that a sequence and a head
//! keep as many multiprocessors busy as there are tiles of hidden elements.
//!
//! The other chains take a sequence and a head through all chunks in one program. Where these are fewer than a GPU has
//! multiprocessors, most of the GPU is idle: 16 heads of one long sequence keep 16 of 132 busy. Here the passes of the chunk `at` are
//! four kernels, each a grid over tiles, and the chain repeats them from chunk to chunk:
//!
//! 1. [`omega_mlp_split_hidden`]: `A = gelu(X W2^T)`, its slope, and `diag(lam) Xq W2^T - diag(old) Xq S2^T`, by tiles of `M`;
//! 2. [`omega_mlp_split_errors`]: the errors `E`, by tiles of `E`;
//! 3. [`omega_mlp_split_inner`]: `Delta` and `Hq`, and the training of `W2` and `S2`, by tiles of `M`;
//! 4. [`omega_mlp_split_outer`]: `Y`, and the training of `W1` and `S1`, by tiles of `E`.
//!
//! [`omega_split_mixed`] makes the products of queries with keys for all chunks at once, before the first one. The mathematics and
//! the types of what is kept are those of `omega_mlp_wide`; `slopes` are those of gelu, and `inner` is what queries have of the first layer.
//!
//! A chunk reads `W2` and `S2` twice, `W1` three times and `S1` once, and writes each once, from the L2 cache where it holds
//! the memories of all heads.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::backward::walk::queries_by_keys;
    use super::loss::loss_error;

    /// Of all chunks `mixed = -(Xq X^T) (*) psi`, what the change of each key's hidden row counts for each token, and `oldest`, the
    /// first of the chunk's keys, as a token of `k`; it may be before the first one.
    pub kernel omega_split_mixed<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        psi: &Tensor<f32, [B, H, C, L, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        mixed: &mut Tensor<T, [B, H, C, L, K]>,
        oldest: &mut Tensor<i32, [B, H, C]>,
    )
    tune { BD: [64, 32], warps: [4, 8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h, c) in grid(B, H, C) {
            let first = c * size(L);
            let past = first + size(P) - size(N) + size(L) - size(K);
            store(oldest[b, h, c], past);
            // A token that nothing weighs may be anything, a NaN too.
            let alive = load(live[b, h, c, ..]).t() > 0.0;
            let alike = queries_by_keys(q, k, alive, b, h, first, past, L, K, D, BD);
            store(mixed[b, h, c, .., ..], (-alike * load(psi[b, h, c, .., ..])).cast::<T>());
        }
    }

    /// The hidden rows of the keys of chunk `at` at the memory before it, the slope of gelu there, and what the queries have of the
    /// first layer, by tiles of hidden elements.
    pub kernel omega_mlp_split_hidden<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
        live: &Tensor<f32, [B, H, C, K]>,
        w2: &Tensor<f32, [B, H, M, D]>,
        s2: &Tensor<f32, [B, H, M, D]>,
        act: &mut Tensor<T, [B, H, K, M]>,
        slopes: &mut Tensor<f32, [B, H, K, M]>,
        inner: &mut Tensor<f32, [B, H, L, M]>,
        at: i32,
    )
    tune { BM: [32, 16, 64], BD: [64, 32], warps: [4, 8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            let first = at * size(L);
            let oldest = first + size(P) - size(N) + size(L) - size(K);
            let alive = load(live[b, h, at, ..]).t() > 0.0;
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
            store(slopes[b, h, .., m], grad(gelu)(z));
            store(inner[b, h, .., m], load(lam[b, h, at, ..]).t() * by_w - load(old[b, h, at, ..]).t() * by_s);
        }
    }

    /// The errors of chunk `at`, by tiles of values.
    pub kernel omega_mlp_split_errors<T: Float>(
        oldest: &Tensor<i32, [B, H, C]>,
        v: &Tensor<T, [B, P, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        live: &Tensor<f32, [B, H, C, K]>,
        w1: &Tensor<f32, [B, H, E, M]>,
        act: &Tensor<T, [B, H, K, M]>,
        errors: &mut Tensor<f32, [B, H, K, E]>,
        at: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BE: [32, 16, 64], BM: [64, 32], warps: [4, 8] }
    {
        for (b, h, e) in grid(B, H, tiles(E, BE)) {
            let first = load(oldest[b, h, at]);
            let alive = load(live[b, h, at, ..]).t() > 0.0;
            let mut read = select(alive, load(rk[b, span(first, K), h, e]).or(0.0), 0.0).cast::<f32>();
            for m in tiles(M, BM) {
                read += dot(load(act[b, h, .., m]), load(w1[b, h, e, m]).cast::<T>().t());
            }
            let wanted = select(alive, load(v[b, span(first, K), h, e]).or(0.0), 0.0);
            store(errors[b, h, .., e], loss_error(read, wanted.cast::<f32>(), scale, predicts));
        }
    }

    /// The gradients of chunk `at` before the gelu, the hidden rows of its queries, and the matrices of the first layer after it, by tiles
    /// of hidden elements.
    pub kernel omega_mlp_split_inner<T: Float>(
        oldest: &Tensor<i32, [B, H, C]>,
        k: &Tensor<T, [B, P, H, D]>,
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        old_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        mixed: &Tensor<T, [B, H, C, L, K]>,
        w1: &Tensor<f32, [B, H, E, M]>,
        errors: &Tensor<f32, [B, H, K, E]>,
        slopes: &Tensor<f32, [B, H, K, M]>,
        inner: &Tensor<f32, [B, H, L, M]>,
        w2: &mut Tensor<f32, [B, H, M, D]>,
        s2: &mut Tensor<f32, [B, H, M, D]>,
        hidden: &mut Tensor<f32, [B, H, L, M]>,
        at: i32,
    )
    tune { BM: [32, 16, 64], BD: [64, 32], BE: [64, 32], warps: [4, 8] }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            let first = load(oldest[b, h, at]);
            let alive = load(live[b, h, at, ..]).t() > 0.0;
            let mut back = zeros::<f32>([K, BM]);
            for e in tiles(E, BE) {
                back += dot(load(errors[b, h, .., e]).cast::<T>(), load(w1[b, h, e, m]).cast::<T>());
            }
            let change = load(slopes[b, h, .., m]) * back;
            let by_keys = dot(load(mixed[b, h, at, .., ..]), change.cast::<T>());
            store(hidden[b, h, .., m], gelu(load(inner[b, h, .., m]) + by_keys));
            // What is taken off is made negative, so that products add to what they meet in place.
            let change_w = (change * -load(psi_end[b, h, at, ..]).t()).cast::<T>();
            let change_s = (change * load(phi_end[b, h, at, ..]).t()).cast::<T>();
            for d in tiles(D, BD) {
                let x = select(alive, load(k[b, span(first, K), h, d]).or(0.0), 0.0);
                let s2m = load(s2[b, h, m, d]);
                let mut w2m = load(lam_end[b, h, at]) * load(w2[b, h, m, d]) - load(old_end[b, h, at]) * s2m;
                w2m += dot(change_w.t(), x);
                store(w2[b, h, m, d], w2m);
                let mut s2n = load(beta_end[b, h, at]) * s2m;
                s2n += dot(change_s.t(), x);
                store(s2[b, h, m, d], s2n);
            }
        }
    }

    /// What the tokens of chunk `at` read, and the matrices of the second layer after it, by tiles of values.
    pub kernel omega_mlp_split_outer<T: Float>(
        rq: &Tensor<T, [B, N, H, E]>,
        psi: &Tensor<f32, [B, H, C, L, K]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        old_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        errors: &Tensor<f32, [B, H, K, E]>,
        act: &Tensor<T, [B, H, K, M]>,
        hidden: &Tensor<f32, [B, H, L, M]>,
        w1: &mut Tensor<f32, [B, H, E, M]>,
        s1: &mut Tensor<f32, [B, H, E, M]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        at: i32,
    )
    tune { BE: [16, 32, 64], BM: [64, 32], warps: [4, 8] }
    require { C * L >= N, K >= L }
    {
        for (b, h, e) in grid(B, H, tiles(E, BE)) {
            let first = at * size(L);
            let error = load(errors[b, h, .., e]);
            let error_w = (error * -load(psi_end[b, h, at, ..]).t()).cast::<T>();
            let error_s = (error * load(phi_end[b, h, at, ..]).t()).cast::<T>();
            let mut out = load(rq[b, span(first, L), h, e]).or(0.0).cast::<f32>();
            let mut met = zeros::<f32>([L, K]);
            for m in tiles(M, BM) {
                let hq = load(hidden[b, h, .., m]);
                let a = load(act[b, h, .., m]);
                let w1m = load(w1[b, h, e, m]);
                let s1m = load(s1[b, h, e, m]);
                met += dot(hq.cast::<T>(), a.t());
                out += dot((hq * load(lam[b, h, at, ..]).t()).cast::<T>(), w1m.cast::<T>().t());
                out -= dot((hq * load(old[b, h, at, ..]).t()).cast::<T>(), s1m.cast::<T>().t());
                let mut w1n = load(lam_end[b, h, at]) * w1m - load(old_end[b, h, at]) * s1m;
                w1n += dot(error_w.t(), a);
                store(w1[b, h, e, m], w1n);
                let mut s1n = load(beta_end[b, h, at]) * s1m;
                s1n += dot(error_s.t(), a);
                store(s1[b, h, e, m], s1n);
            }
            let weighed = (-met * load(psi[b, h, at, .., ..])).cast::<T>();
            out += dot(weighed, error.cast::<T>());
            store(y[b, span(first, L), h, e], out.cast::<T>());
        }
    }
}
