//! What the gradients of what is read of a deep memory give, chunk by chunk: the first part of [`mlp`](super::mlp).

use super::mlp::{ACT, BEND, BY_INNER, BY_MET, DELTA, INNER, MIXED, SLOPE};
use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// What the gradients `dy` of what is read give before gelu, chunk by chunk. `factors`, `queries` and `mixed` are what
    /// other gradients are made of.
    pub kernel omega_mlp_read_backward<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        psi: &Tensor<f32, [B, H, C, L, K]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
        live: &Tensor<f32, [B, H, C, K]>,
        w1: &Tensor<f32, [B, H, C, E, M]>,
        w2: &Tensor<f32, [B, H, C, M, D]>,
        s1: &Tensor<f32, [B, H, C, E, M]>,
        s2: &Tensor<f32, [B, H, C, M, D]>,
        errors: &Tensor<f32, [B, H, C, K, E]>,
        dy: &Tensor<T, [B, N, H, E]>,
        factors: &mut Tensor<T, [B, H, C, F, K, M]>,
        queries: &mut Tensor<T, [B, H, C, V, L, M]>,
        mixed: &mut Tensor<T, [B, H, C, V, L, K]>,
        dlam: &mut Tensor<f32, [B, H, C, L]>,
        dold: &mut Tensor<f32, [B, H, C, L]>,
    )
    tune { BM: [32, 16], warps: [8, 4] }
    require { C * L >= N, K >= L, P >= N, F == 4, V == 2 }
    {
        for (b, h, c) in grid(B, H, C) {
            let first = c * size(L);
            let oldest = first + size(P) - size(N) + size(L) - size(K);
            let alive = load(live[b, h, c, ..]).t() > 0.0;
            let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
            let xq = load(q[b, span(first, L), h, ..]).or(0.0);
            let dyc = load(dy[b, span(first, L), h, ..]).or(0.0);
            let errors_c = load(errors[b, h, c, .., ..]).cast::<T>();
            // What is taken off is made negative.
            let less_mixed = (-dot(xq, x.t()) * load(psi[b, h, c, .., ..])).cast::<T>();
            let by_met = (-dot(dyc, errors_c.t()) * load(psi[b, h, c, .., ..])).cast::<T>();
            store(mixed[b, h, c, MIXED, .., ..], less_mixed);
            store(mixed[b, h, c, BY_MET, .., ..], by_met);
            let mut to_lam = zeros::<f32>([L, 1]);
            let mut to_old = zeros::<f32>([L, 1]);
            for m in tiles(M, BM) {
                let w1t = load(w1[b, h, c, .., m]).cast::<T>();
                let w2t = load(w2[b, h, c, m, ..]).cast::<T>();
                let s1t = load(s1[b, h, c, .., m]).cast::<T>();
                let s2t = load(s2[b, h, c, m, ..]).cast::<T>();
                let z = dot(x, w2t.t());
                let back = dot(errors_c, w1t);
                let a = gelu(z).cast::<T>();
                let slopes = grad(gelu)(z);
                let deltas = (slopes * back).cast::<T>();
                store(factors[b, h, c, ACT, .., m], a);
                store(factors[b, h, c, SLOPE, .., m], slopes.cast::<T>());
                store(factors[b, h, c, DELTA, .., m], deltas);
                store(factors[b, h, c, BEND, .., m], (grad(gelu_slope)(z) * back).cast::<T>());
                let kept = load(lam[b, h, c, ..]).t();
                let less = -load(old[b, h, c, ..]).t();
                let read_w = dot(xq, w2t.t());
                let read_s = dot(xq, s2t.t());
                let zq = kept * read_w + less * read_s + dot(less_mixed, deltas);
                let inner = gelu(zq).cast::<T>();
                store(queries[b, h, c, INNER, .., m], inner);
                let back_w = dot(dyc, w1t);
                let back_s = dot(dyc, s1t);
                let by_inner = grad(gelu)(zq) * (kept * back_w + less * back_s + dot(by_met, a));
                store(queries[b, h, c, BY_INNER, .., m], by_inner.cast::<T>());
                to_lam += sum(inner.cast::<f32>() * back_w + by_inner * read_w, axis = 1);
                to_old -= sum(inner.cast::<f32>() * back_s + by_inner * read_s, axis = 1);
            }
            store(dlam[b, h, c, ..], to_lam);
            store(dold[b, h, c, ..], to_old);
        }
    }

    /// What the products of queries and keys give, chunk by chunk: `dq`, `dpsi`, and the parts of `dk` and of the gradients by
    /// the errors that do not depend on later chunks.
    pub kernel omega_mlp_query_backward<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        psi: &Tensor<f32, [B, H, C, L, K]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
        live: &Tensor<f32, [B, H, C, K]>,
        w2: &Tensor<f32, [B, H, C, M, D]>,
        s2: &Tensor<f32, [B, H, C, M, D]>,
        errors: &Tensor<f32, [B, H, C, K, E]>,
        dy: &Tensor<T, [B, N, H, E]>,
        factors: &Tensor<T, [B, H, C, F, K, M]>,
        queries: &Tensor<T, [B, H, C, V, L, M]>,
        dq: &mut Tensor<f32, [B, C, L, H, D]>,
        by_key: &mut Tensor<f32, [B, H, C, K, D]>,
        by_read: &mut Tensor<f32, [B, H, C, K, E]>,
        dpsi: &mut Tensor<f32, [B, H, C, L, K]>,
    )
    tune { BM: [32, 16], warps: [8] }
    require { C * L >= N, K >= L, P >= N, F == 4, V == 2 }
    {
        for (b, h, c) in grid(B, H, C) {
            let first = c * size(L);
            let oldest = first + size(P) - size(N) + size(L) - size(K);
            let mut met = zeros::<f32>([L, K]);
            let mut felt = zeros::<f32>([L, K]);
            let mut to_q = zeros::<f32>([L, D]);
            for m in tiles(M, BM) {
                met -= dot(load(queries[b, h, c, INNER, .., m]), load(factors[b, h, c, ACT, .., m]).t());
                let by_zq = load(queries[b, h, c, BY_INNER, .., m]);
                felt -= dot(by_zq, load(factors[b, h, c, DELTA, .., m]).t());
                let wide = by_zq.cast::<f32>();
                let kept = (wide * load(lam[b, h, c, ..]).t()).cast::<T>();
                let gone = (wide * load(old[b, h, c, ..]).t()).cast::<T>();
                to_q += dot(kept, load(w2[b, h, c, m, ..]).cast::<T>());
                to_q -= dot(gone, load(s2[b, h, c, m, ..]).cast::<T>());
            }
            let dyc = load(dy[b, span(first, L), h, ..]).or(0.0);
            let met_psi = (met * load(psi[b, h, c, .., ..])).cast::<T>();
            store(by_read[b, h, c, .., ..], dot(met_psi.t(), dyc));
            let by_met = met * dot(dyc, load(errors[b, h, c, .., ..]).cast::<T>().t());
            let alive = load(live[b, h, c, ..]).t() > 0.0;
            let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
            let xq = load(q[b, span(first, L), h, ..]).or(0.0);
            store(dpsi[b, h, c, .., ..], by_met + felt * dot(xq, x.t()));
            let felt_psi = (felt * load(psi[b, h, c, .., ..])).cast::<T>();
            to_q += dot(felt_psi, x);
            store(dq[b, c, .., h, ..], to_q);
            store(by_key[b, h, c, .., ..], dot(felt_psi.t(), xq));
        }
    }
}
