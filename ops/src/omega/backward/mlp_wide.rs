//! The backward pass of [`mlp`](super::mlp) for keys, values and hidden layers of any width, of parts that stand in [`walk`](super::walk).
//! The forward pass is [`omega_mlp_wide`](crate::omega::mlp_wide).

use super::mlp::{ACT, BEND, BY_INNER, BY_MET, DELTA, INNER, MIXED, SLOPE};
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::walk::{
        before_inner, before_outer, by_ends, gradients_by_errors, hidden_rows, next_inner, next_outer,
        queries_by_keys, through_inner, through_outer, times_back, to_act, to_errors,
    };
    use crate::omega::loss::loss_error;

    /// As [`omega_mlp_states`](super::omega_mlp_states), with rows of any width. `act` and `delta` are a workspace: the hidden rows of the
    /// last chunk's keys, and the gradients before gelu.
    pub kernel omega_mlp_wide_states<T: Float>(
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
        act: &mut Tensor<T, [B, H, K, M]>,
        delta: &mut Tensor<f32, [B, H, K, M]>,
        chunk: i32,
        past: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [32, 16], BD: [64, 32], BE: [64, 32], warps: [8] }
    {
        for (b, h) in grid(B, H) {
            for m in tiles(M, BM) {
                for e in tiles(E, BE) {
                    store(w1[b, h, 0, e, m], load(w1_start[b, h, e, m]));
                    store(s1[b, h, 0, e, m], load(s1_start[b, h, e, m]));
                }
                for d in tiles(D, BD) {
                    store(w2[b, h, 0, m, d], load(w2_start[b, h, m, d]));
                    store(s2[b, h, 0, m, d], load(s2_start[b, h, m, d]));
                }
            }
            for c in 0..size(C) {
                let oldest = c * chunk + past + chunk - size(K);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                hidden_rows(act, delta, w2, k, alive, b, h, c, oldest, K, M, D, BM, BD);
                for e in tiles(E, BE) {
                    let mut read = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0).cast::<f32>();
                    for m in tiles(M, BM) {
                        read += dot(load(act[b, h, .., m]), load(w1[b, h, c, e, m]).cast::<T>().t());
                    }
                    let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                    store(errors[b, h, c, .., e], loss_error(read, wanted.cast::<f32>(), scale, predicts));
                }
                // After the last chunk nothing is asked for.
                for again in 0..min(size(C) - 1 - c, 1) {
                    let next = c + again + 1;
                    times_back(delta, act, errors, w1, b, h, c, K, E, M, BE, BM);
                    next_inner(
                        w2, s2, delta, k, alive, psi_end, phi_end, lam_end, old_end, beta_end,
                        b, h, c, next, oldest, K, M, D, BM, BD
                    );
                    next_outer(
                        w1, s1, act, errors, psi_end, phi_end, lam_end, old_end, beta_end, b, h, c, next, E, M, BE, BM
                    );
                }
            }
        }
    }

    /// As [`omega_mlp_read_backward`](super::omega_mlp_read_backward), with rows of any width.
    pub kernel omega_mlp_wide_read_backward<T: Float>(
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
    tune { BM: [32, 16], BD: [64, 32], BE: [64, 32], warps: [8] }
    require { C * L >= N, K >= L, P >= N, F == 4, V == 2 }
    {
        for (b, h, c) in grid(B, H, C) {
            let first = c * size(L);
            let oldest = first + size(P) - size(N) + size(L) - size(K);
            let alive = load(live[b, h, c, ..]).t() > 0.0;
            let alike = queries_by_keys(q, k, alive, b, h, first, oldest, L, K, D, BD);
            let met = gradients_by_errors(dy, errors, b, h, c, first, L, K, E, BE);
            // What is taken off is made negative.
            let less_mixed = (-alike * load(psi[b, h, c, .., ..])).cast::<T>();
            let by_met = (-met * load(psi[b, h, c, .., ..])).cast::<T>();
            store(mixed[b, h, c, MIXED, .., ..], less_mixed);
            store(mixed[b, h, c, BY_MET, .., ..], by_met);
            let mut to_lam = zeros::<f32>([L, 1]);
            let mut to_old = zeros::<f32>([L, 1]);
            for m in tiles(M, BM) {
                let mut z = zeros::<f32>([K, BM]);
                let mut read_w = zeros::<f32>([L, BM]);
                let mut read_s = zeros::<f32>([L, BM]);
                for d in tiles(D, BD) {
                    let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                    let xq = load(q[b, span(first, L), h, d]).or(0.0);
                    let w2t = load(w2[b, h, c, m, d]).cast::<T>();
                    z += dot(x, w2t.t());
                    read_w += dot(xq, w2t.t());
                    read_s += dot(xq, load(s2[b, h, c, m, d]).cast::<T>().t());
                }
                let mut back = zeros::<f32>([K, BM]);
                let mut back_w = zeros::<f32>([L, BM]);
                let mut back_s = zeros::<f32>([L, BM]);
                for e in tiles(E, BE) {
                    let by_out = load(dy[b, span(first, L), h, e]).or(0.0);
                    let w1t = load(w1[b, h, c, e, m]).cast::<T>();
                    back += dot(load(errors[b, h, c, .., e]).cast::<T>(), w1t);
                    back_w += dot(by_out, w1t);
                    back_s += dot(by_out, load(s1[b, h, c, e, m]).cast::<T>());
                }
                let a = gelu(z).cast::<T>();
                let slopes = grad(gelu)(z);
                let deltas = (slopes * back).cast::<T>();
                store(factors[b, h, c, ACT, .., m], a);
                store(factors[b, h, c, SLOPE, .., m], slopes.cast::<T>());
                store(factors[b, h, c, DELTA, .., m], deltas);
                store(factors[b, h, c, BEND, .., m], (grad(gelu_slope)(z) * back).cast::<T>());
                let kept = load(lam[b, h, c, ..]).t();
                let less = -load(old[b, h, c, ..]).t();
                let zq = kept * read_w + less * read_s + dot(less_mixed, deltas);
                let inner = gelu(zq).cast::<T>();
                store(queries[b, h, c, INNER, .., m], inner);
                let by_inner = grad(gelu)(zq) * (kept * back_w + less * back_s + dot(by_met, a));
                store(queries[b, h, c, BY_INNER, .., m], by_inner.cast::<T>());
                to_lam += sum(inner.cast::<f32>() * back_w + by_inner * read_w, axis = 1);
                to_old -= sum(inner.cast::<f32>() * back_s + by_inner * read_s, axis = 1);
            }
            store(dlam[b, h, c, ..], to_lam);
            store(dold[b, h, c, ..], to_old);
        }
    }

    /// As [`omega_mlp_query_backward`](super::omega_mlp_query_backward), with rows of any width.
    pub kernel omega_mlp_wide_query_backward<T: Float>(
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
    tune { BM: [32, 16], BD: [64, 32], BE: [64, 32], warps: [8] }
    require { C * L >= N, K >= L, P >= N, F == 4, V == 2 }
    {
        for (b, h, c) in grid(B, H, C) {
            let first = c * size(L);
            let oldest = first + size(P) - size(N) + size(L) - size(K);
            let alive = load(live[b, h, c, ..]).t() > 0.0;
            let mut met = zeros::<f32>([L, K]);
            let mut felt = zeros::<f32>([L, K]);
            for m in tiles(M, BM) {
                met -= dot(load(queries[b, h, c, INNER, .., m]), load(factors[b, h, c, ACT, .., m]).t());
                felt -= dot(load(queries[b, h, c, BY_INNER, .., m]), load(factors[b, h, c, DELTA, .., m]).t());
            }
            let met_psi = (met * load(psi[b, h, c, .., ..])).cast::<T>();
            let felt_psi = (felt * load(psi[b, h, c, .., ..])).cast::<T>();
            let mut by_errors = zeros::<f32>([L, K]);
            for e in tiles(E, BE) {
                let by_out = load(dy[b, span(first, L), h, e]).or(0.0);
                store(by_read[b, h, c, .., e], dot(met_psi.t(), by_out));
                by_errors += dot(by_out, load(errors[b, h, c, .., e]).cast::<T>().t());
            }
            let mut alike = zeros::<f32>([L, K]);
            for d in tiles(D, BD) {
                let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                let xq = load(q[b, span(first, L), h, d]).or(0.0);
                alike += dot(xq, x.t());
                store(by_key[b, h, c, .., d], dot(felt_psi.t(), xq));
                let mut to_q = dot(felt_psi, x);
                for m in tiles(M, BM) {
                    let wide = load(queries[b, h, c, BY_INNER, .., m]).cast::<f32>();
                    let kept = (wide * load(lam[b, h, c, ..]).t()).cast::<T>();
                    let gone = (wide * load(old[b, h, c, ..]).t()).cast::<T>();
                    to_q += dot(kept, load(w2[b, h, c, m, d]).cast::<T>());
                    to_q -= dot(gone, load(s2[b, h, c, m, d]).cast::<T>());
                }
                store(dq[b, c, .., h, d], to_q);
            }
            store(dpsi[b, h, c, .., ..], met * by_errors + felt * alike);
        }
    }

    /// As [`omega_mlp_train_backward`](super::omega_mlp_train_backward), with rows of any width. `dz`, `dback`, `dmade` and `da` are a
    /// workspace.
    pub kernel omega_mlp_wide_train_backward<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        old_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        w1: &Tensor<f32, [B, H, C, E, M]>,
        w2: &Tensor<f32, [B, H, C, M, D]>,
        s1: &Tensor<f32, [B, H, C, E, M]>,
        s2: &Tensor<f32, [B, H, C, M, D]>,
        errors: &Tensor<f32, [B, H, C, K, E]>,
        dy: &Tensor<T, [B, N, H, E]>,
        factors: &Tensor<T, [B, H, C, F, K, M]>,
        queries: &Tensor<T, [B, H, C, V, L, M]>,
        mixed: &Tensor<T, [B, H, C, V, L, K]>,
        dw1: &mut Tensor<f32, [B, H, E, M]>,
        dw2: &mut Tensor<f32, [B, H, M, D]>,
        ds1: &mut Tensor<f32, [B, H, E, M]>,
        ds2: &mut Tensor<f32, [B, H, M, D]>,
        dz: &mut Tensor<f32, [B, H, K, M]>,
        dback: &mut Tensor<T, [B, H, K, M]>,
        dmade: &mut Tensor<T, [B, H, K, E]>,
        da: &mut Tensor<f32, [B, H, K, M]>,
        by_key: &mut Tensor<f32, [B, H, C, K, D]>,
        by_read: &mut Tensor<f32, [B, H, C, K, E]>,
        dpsi_end: &mut Tensor<f32, [B, H, C, K]>,
        dphi_end: &mut Tensor<f32, [B, H, C, K]>,
        dlam_end: &mut Tensor<f32, [B, H, C]>,
        dold_end: &mut Tensor<f32, [B, H, C]>,
        dbeta_end: &mut Tensor<f32, [B, H, C]>,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [16], BD: [32], BE: [32], warps: [8] }
    require { C * L >= N, K >= L, P >= N, F == 4, V == 2 }
    {
        for (b, h) in grid(B, H) {
            for i in 0..size(C) {
                let c = size(C) - 1 - i;
                let (lam1, old1, beta1) = by_ends(dw1, ds1, w1, s1, b, h, c, E, M, BE, BM);
                let (lam2, old2, beta2) = by_ends(dw2, ds2, w2, s2, b, h, c, M, D, BM, BD);
                store(dlam_end[b, h, c], lam1 + lam2);
                store(dold_end[b, h, c], old1 + old2);
                store(dbeta_end[b, h, c], beta1 + beta2);
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let (psi2, phi2) = through_inner(
                    dz, dw2, ds2, factors, queries, mixed, k, alive, psi_end, phi_end, b, h, c, oldest,
                    DELTA, BY_INNER, MIXED, K, M, D, BM, BD
                );
                let (psi1, phi1) = through_outer(
                    dz, dback, dw1, ds1, errors, factors, queries, mixed, psi_end, phi_end, b, h, c,
                    ACT, SLOPE, BEND, INNER, BY_MET, K, E, M, BE, BM
                );
                store(dpsi_end[b, h, c, ..], psi1 + psi2);
                store(dphi_end[b, h, c, ..], phi1 + phi2);
                to_errors(by_read, dback, w1, dw1, ds1, factors, psi_end, phi_end, scale, b, h, c, ACT, E, M, BE, BM);
                for e in tiles(E, BE) {
                    let made = select(predicts > 0, load(by_read[b, h, c, .., e]), 0.0);
                    store(dmade[b, h, .., e], made.cast::<T>());
                }
                // The errors are made by both.
                to_act(da, dmade, w1, b, h, c, K, E, M, BE, BM);
                before_inner(
                    by_key, w2, dw2, ds2, dz, da, factors, queries, q, k, alive, psi_end, phi_end,
                    lam, old, lam_end, old_end, beta_end, b, h, c, first, oldest, DELTA, SLOPE, BY_INNER, K, L, M, D, BM, BD
                );
                before_outer(
                    dw1, ds1, dy, errors, dback, dmade, factors, queries, lam, old, lam_end, old_end, beta_end,
                    b, h, c, first, ACT, INNER, L, E, M, BE, BM
                );
            }
        }
    }
}
