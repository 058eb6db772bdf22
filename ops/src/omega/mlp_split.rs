//! The Omega rule of [`omega_mlp_wide`](super::mlp_wide) with each pass over a chunk in a launch of its own, so that a sequence and a head
//! keep as many multiprocessors busy as there are tiles of hidden elements.
//!
//! The other chains take a sequence and a head through all chunks in one program. Where these are fewer than a GPU has
//! multiprocessors, most of the GPU is idle: 16 heads of one long sequence keep 16 of 132 busy. Here two kernels, each a grid over tiles,
//! train the memory on the chunk `at`, and the chain repeats them from chunk to chunk:
//!
//! 1. [`omega_mlp_split_errors`]: the errors `E`, by tiles of `E`, of the hidden rows `A = gelu(X W2^T)`;
//! 2. [`omega_mlp_split_train`]: `Delta`, the memory after the chunk, and the hidden rows of the next chunk, by tiles of `M`: a tile of these
//!    depends on the same tile of `W2` alone. The memory before the chunk is kept.
//!
//! [`omega_mlp_split_hidden`] makes the hidden rows of the first chunk.
//!
//! What the tokens read depends on nothing that later chunks do, so it is left for all `R` chunks of a segment at once, when the last of
//! them is trained:
//!
//! 3. [`omega_mlp_split_inner`]: the hidden rows `Hq` of the queries, by chunks and tiles of `M`;
//! 4. [`omega_mlp_split_outer`] and [`omega_split_reads`]: `Y`, by chunks and tiles of `E`.
//!
//! [`omega_split_mixed`] makes the products of queries with keys for all chunks, before the first one. The mathematics and the types of what is
//! kept are those of `omega_mlp_wide`: products round a memory to the type of the tokens there, too, so it is kept in that type.
//!
//! A chunk reads `W1` twice and all else of the memory once, and writes each matrix once, from the L2 cache where it holds the
//! memories of all heads.

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

    /// The hidden rows of the keys of the first chunk, and the slope of gelu there, by tiles of hidden elements.
    pub kernel omega_mlp_split_hidden<T: Float>(
        oldest: &Tensor<i32, [B, H, C]>,
        k: &Tensor<T, [B, P, H, D]>,
        live: &Tensor<f32, [B, H, C, K]>,
        w2: &Tensor<f32, [B, H, M, D]>,
        rows: &mut Tensor<T, [B, H, K, M]>,
        slopes: &mut Tensor<f32, [B, H, K, M]>,
    )
    tune { BM: [16, 32, 64], BD: [64, 32], warps: [4, 8] }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            // There may be no chunk.
            for _ in 0..min(size(C), 1) {
                let first = load(oldest[b, h, 0]);
                let alive = load(live[b, h, 0, ..]).t() > 0.0;
                let mut z = zeros::<f32>([K, BM]);
                for d in tiles(D, BD) {
                    let x = select(alive, load(k[b, span(first, K), h, d]).or(0.0), 0.0);
                    z += dot(x, load(w2[b, h, m, d]).cast::<T>().t());
                }
                store(rows[b, h, .., m], gelu(z).cast::<T>());
                store(slopes[b, h, .., m], grad(gelu)(z));
            }
        }
    }

    /// The errors of chunk `at`, by tiles of values. `rows` are the hidden rows of its keys.
    pub kernel omega_mlp_split_errors<T: Float>(
        oldest: &Tensor<i32, [B, H, C]>,
        v: &Tensor<T, [B, P, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        live: &Tensor<f32, [B, H, C, K]>,
        w1: &Tensor<f32, [B, H, E, M]>,
        rows: &Tensor<T, [B, H, K, M]>,
        errors: &mut Tensor<f32, [B, H, R, K, E]>,
        at: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BE: [16, 32, 64], BM: [64, 32], stages: [2, 4], warps: [4, 8] }
    {
        for (b, h, e) in grid(B, H, tiles(E, BE)) {
            let first = load(oldest[b, h, at]);
            let alive = load(live[b, h, at, ..]).t() > 0.0;
            let mut read = select(alive, load(rk[b, span(first, K), h, e]).or(0.0), 0.0).cast::<f32>();
            for m in pipeline(tiles(M, BM)) {
                read += dot(load(rows[b, h, .., m]), load(w1[b, h, e, m]).cast::<T>().t());
            }
            let wanted = select(alive, load(v[b, span(first, K), h, e]).or(0.0), 0.0);
            store(errors[b, h, at % size(R), .., e], loss_error(read, wanted.cast::<f32>(), scale, predicts));
        }
    }

    /// The gradients of chunk `at` before the gelu, the memory after it, and the one before it in the type of the tokens, by tiles of hidden
    /// elements. `rows` and `slopes` are those of its keys, and become those of the next chunk.
    pub kernel omega_mlp_split_train<T: Float>(
        oldest: &Tensor<i32, [B, H, C]>,
        k: &Tensor<T, [B, P, H, D]>,
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        old_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        errors: &Tensor<f32, [B, H, R, K, E]>,
        rows: &mut Tensor<T, [B, H, K, M]>,
        slopes: &mut Tensor<f32, [B, H, K, M]>,
        w1: &mut Tensor<f32, [B, H, E, M]>,
        w2: &mut Tensor<f32, [B, H, M, D]>,
        s1: &mut Tensor<f32, [B, H, E, M]>,
        s2: &mut Tensor<f32, [B, H, M, D]>,
        act: &mut Tensor<T, [B, H, R, K, M]>,
        change: &mut Tensor<T, [B, H, R, K, M]>,
        w1_before: &mut Tensor<T, [B, H, R, E, M]>,
        w2_before: &mut Tensor<T, [B, H, R, M, D]>,
        s1_before: &mut Tensor<T, [B, H, R, E, M]>,
        s2_before: &mut Tensor<T, [B, H, R, M, D]>,
        at: i32,
    )
    tune { BM: [16, 32, 64], BD: [64, 32], BE: [64, 32], warps: [4, 8] }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            let first = load(oldest[b, h, at]);
            let alive = load(live[b, h, at, ..]).t() > 0.0;
            // After the last chunk nobody asks for the rows of a next one: they are those of its own keys again.
            let next = min(at + 1, size(C) - 1);
            let first_next = load(oldest[b, h, next]);
            let alive_next = load(live[b, h, next, ..]).t() > 0.0;
            // What is taken off is made negative, so that products add to what they meet in place.
            let less_w = -load(psi_end[b, h, at, ..]).t();
            let to_s = load(phi_end[b, h, at, ..]).t();
            let a = load(rows[b, h, .., m]);
            store(act[b, h, at % size(R), .., m], a);
            let mut back = zeros::<f32>([K, BM]);
            for e in tiles(E, BE) {
                let error = load(errors[b, h, at % size(R), .., e]);
                let w1m = load(w1[b, h, e, m]);
                let s1m = load(s1[b, h, e, m]);
                store(w1_before[b, h, at % size(R), e, m], w1m.cast::<T>());
                store(s1_before[b, h, at % size(R), e, m], s1m.cast::<T>());
                back += dot(error.cast::<T>(), w1m.cast::<T>());
                let mut w1n = load(lam_end[b, h, at]) * w1m - load(old_end[b, h, at]) * s1m;
                w1n += dot((error * less_w).cast::<T>().t(), a);
                store(w1[b, h, e, m], w1n);
                let mut s1n = load(beta_end[b, h, at]) * s1m;
                s1n += dot((error * to_s).cast::<T>().t(), a);
                store(s1[b, h, e, m], s1n);
            }
            let delta = load(slopes[b, h, .., m]) * back;
            store(change[b, h, at % size(R), .., m], delta.cast::<T>());
            let change_w = (delta * less_w).cast::<T>();
            let change_s = (delta * to_s).cast::<T>();
            let mut z = zeros::<f32>([K, BM]);
            for d in tiles(D, BD) {
                let x = select(alive, load(k[b, span(first, K), h, d]).or(0.0), 0.0);
                let w2m = load(w2[b, h, m, d]);
                let s2m = load(s2[b, h, m, d]);
                store(w2_before[b, h, at % size(R), m, d], w2m.cast::<T>());
                store(s2_before[b, h, at % size(R), m, d], s2m.cast::<T>());
                let mut w2n = load(lam_end[b, h, at]) * w2m - load(old_end[b, h, at]) * s2m;
                w2n += dot(change_w.t(), x);
                store(w2[b, h, m, d], w2n);
                let mut s2n = load(beta_end[b, h, at]) * s2m;
                s2n += dot(change_s.t(), x);
                store(s2[b, h, m, d], s2n);
                let x_next = select(alive_next, load(k[b, span(first_next, K), h, d]).or(0.0), 0.0);
                z += dot(x_next, w2n.cast::<T>().t());
            }
            store(rows[b, h, .., m], gelu(z).cast::<T>());
            store(slopes[b, h, .., m], grad(gelu)(z));
        }
    }

    /// The hidden rows of the queries of the chunks from `at` on that are kept, by tiles of hidden elements.
    pub kernel omega_mlp_split_inner<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
        mixed: &Tensor<T, [B, H, C, L, K]>,
        change: &Tensor<T, [B, H, R, K, M]>,
        w2_before: &Tensor<T, [B, H, R, M, D]>,
        s2_before: &Tensor<T, [B, H, R, M, D]>,
        hidden: &mut Tensor<f32, [B, H, R, L, M]>,
        at: i32,
    )
    tune { BM: [64, 32, 16], BD: [64, 32], warps: [4, 8] }
    {
        for (b, h, r, m) in grid(B, H, R, tiles(M, BM)) {
            let c = at + r;
            // The last segment may have fewer chunks than are kept.
            for _ in 0..min(size(C) - c, 1) {
                let mut by_w = zeros::<f32>([L, BM]);
                let mut by_s = zeros::<f32>([L, BM]);
                for d in tiles(D, BD) {
                    let xq = load(q[b, span(c * size(L), L), h, d]).or(0.0);
                    by_w += dot(xq, load(w2_before[b, h, r, m, d]).t());
                    by_s += dot(xq, load(s2_before[b, h, r, m, d]).t());
                }
                let mut inner = load(lam[b, h, c, ..]).t() * by_w - load(old[b, h, c, ..]).t() * by_s;
                inner += dot(load(mixed[b, h, c, .., ..]), load(change[b, h, r, .., m]));
                store(hidden[b, h, r, .., m], gelu(inner));
            }
        }
    }

    /// What the tokens of these chunks read, by tiles of values.
    pub kernel omega_mlp_split_outer<T: Float>(
        rq: &Tensor<T, [B, N, H, E]>,
        psi: &Tensor<f32, [B, H, C, L, K]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
        errors: &Tensor<f32, [B, H, R, K, E]>,
        act: &Tensor<T, [B, H, R, K, M]>,
        hidden: &Tensor<f32, [B, H, R, L, M]>,
        w1_before: &Tensor<T, [B, H, R, E, M]>,
        s1_before: &Tensor<T, [B, H, R, E, M]>,
        reads: &mut Tensor<T, [B, H, R, L, E]>,
        at: i32,
    )
    tune { BE: [64, 32, 16], BM: [64, 32], warps: [4, 8] }
    require { C * L >= N, K >= L }
    {
        for (b, h, r, e) in grid(B, H, R, tiles(E, BE)) {
            let c = at + r;
            for _ in 0..min(size(C) - c, 1) {
                let first = c * size(L);
                let mut out = load(rq[b, span(first, L), h, e]).or(0.0).cast::<f32>();
                let mut met = zeros::<f32>([L, K]);
                for m in tiles(M, BM) {
                    let hq = load(hidden[b, h, r, .., m]);
                    met += dot(hq.cast::<T>(), load(act[b, h, r, .., m]).t());
                    out += dot((hq * load(lam[b, h, c, ..]).t()).cast::<T>(), load(w1_before[b, h, r, e, m]).t());
                    out -= dot((hq * load(old[b, h, c, ..]).t()).cast::<T>(), load(s1_before[b, h, r, e, m]).t());
                }
                let weighed = (-met * load(psi[b, h, c, .., ..])).cast::<T>();
                out += dot(weighed, load(errors[b, h, r, .., e]).cast::<T>());
                store(reads[b, h, r, .., e], out.cast::<T>());
            }
        }
    }

    /// Puts what these chunks read in the order of tokens: programs that differ by chunks may not write tokens.
    pub kernel omega_split_reads<T: Float>(
        reads: &Tensor<T, [B, H, R, L, E]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        at: i32,
    )
    tune { BE: [16, 32, 64], warps: [4, 8] }
    {
        for (b, h, e) in grid(B, H, tiles(E, BE)) {
            // Behind the last token there are no chunks.
            for r in 0..min(size(R), (size(N) - at * size(L) + size(L) - 1) / size(L)) {
                store(y[b, span((at + r) * size(L), L), h, e], load(reads[b, h, r, .., e]));
            }
        }
    }
}
