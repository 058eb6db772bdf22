//! The backward pass of [`normed`](super::normed) for keys and hidden layers of any width, of parts that stand in [`walk`](super::walk). A
//! norm takes whole rows of `E` elements, of some tokens at a time. The forward pass is [`omega_normed_wide`](crate::omega::normed_wide).

use super::mlp::{ACT, BEND, BY_INNER, BY_MET, DELTA, INNER, MIXED, SLOPE};
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::normed::bent_norm;
    use super::walk::{
        before_inner, before_outer, by_ends, hidden_rows, next_inner, next_outer, queries_by_keys, through_inner,
        through_outer, times_back, to_act, to_errors,
    };
    use crate::omega::loss::loss_error;
    use crate::omega::muon::forms::through_norm;
    use crate::omega::normed::layer_normed;

    /// As [`omega_normed_states`](super::omega_normed_states), with rows of any width. `act` and `delta` are a workspace: the hidden rows
    /// of the last chunk's keys, and the gradients before gelu.
    pub kernel omega_normed_wide_states<T: Float>(
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        norm: &Tensor<T, [H, E]>,
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
        made: &mut Tensor<f32, [B, H, C, K, E]>,
        outer: &mut Tensor<f32, [B, H, C, K, E]>,
        errors: &mut Tensor<f32, [B, H, C, K, E]>,
        act: &mut Tensor<T, [B, H, K, M]>,
        delta: &mut Tensor<f32, [B, H, K, M]>,
        chunk: i32,
        past: i32,
        scale: f32,
        predicts: i32,
        eps: f32,
    )
    tune { BM: [32, 16], BD: [64, 32], BE: [64, 32], BK: [16], warps: [8] }
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
                    let mut product = zeros::<f32>([K, BE]);
                    for m in tiles(M, BM) {
                        product += dot(load(act[b, h, .., m]), load(w1[b, h, c, e, m]).cast::<T>().t());
                    }
                    store(made[b, h, c, .., e], product);
                }
                for i in tiles(K, BK) {
                    let count = size(E).cast::<f32>();
                    let weight = load(norm[h, ..]).cast::<f32>();
                    let (unit, by) = layer_normed(load(made[b, h, c, i, ..]), count, eps);
                    let at = oldest + i * BK;
                    // With `eps = 0` a row of zeros has no norm. Windows reach tokens before the first one, too.
                    let is_live = load(live[b, h, c, i]).t() > 0.0;
                    let is_token = is_live && at + iota([BK, 1], 0) >= 0;
                    let wanted = select(is_live, load(v[b, span(at, BK), h, ..]).or(0.0), 0.0).cast::<f32>();
                    let skipped = select(is_live, load(rk[b, span(at, BK), h, ..]).or(0.0), 0.0).cast::<f32>();
                    let behind = loss_error(skipped + unit * weight, wanted, scale, predicts);
                    store(outer[b, h, c, i, ..], select(is_token, behind, 0.0));
                    let error = through_norm(weight * behind, unit, by, count);
                    store(errors[b, h, c, i, ..], select(is_token, error, 0.0));
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

    /// As [`omega_normed_read_backward`](super::omega_normed_read_backward), with rows of any width. `inner` and `outs` are a
    /// workspace: the hidden rows of queries, and what the products make of these.
    pub kernel omega_normed_wide_read_backward<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        norm: &Tensor<T, [H, E]>,
        psi: &Tensor<f32, [B, H, C, L, K]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
        live: &Tensor<f32, [B, H, C, K]>,
        w1: &Tensor<f32, [B, H, C, E, M]>,
        w2: &Tensor<f32, [B, H, C, M, D]>,
        s1: &Tensor<f32, [B, H, C, E, M]>,
        s2: &Tensor<f32, [B, H, C, M, D]>,
        errors: &Tensor<f32, [B, H, C, K, E]>,
        dout: &Tensor<T, [B, N, H, E]>,
        dy_rows: &mut Tensor<T, [B, C, L, H, E]>,
        dnorm_read: &mut Tensor<f32, [B, H, C, E]>,
        inner: &mut Tensor<f32, [B, H, C, L, M]>,
        outs: &mut Tensor<f32, [B, H, C, L, E]>,
        eps: f32,
    )
    tune { BM: [32, 16], BD: [64, 32], BE: [64, 32], BL: [16], warps: [8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h, c) in grid(B, H, C) {
            let first = c * size(L);
            let oldest = first + size(P) - size(N) + size(L) - size(K);
            let alive = load(live[b, h, c, ..]).t() > 0.0;
            let alike = queries_by_keys(q, k, alive, b, h, first, oldest, L, K, D, BD);
            let less_mixed = (-alike * load(psi[b, h, c, .., ..])).cast::<T>();
            let mut met = zeros::<f32>([L, K]);
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
                for e in tiles(E, BE) {
                    back += dot(load(errors[b, h, c, .., e]).cast::<T>(), load(w1[b, h, c, e, m]).cast::<T>());
                }
                let a = gelu(z).cast::<T>();
                let delta = (grad(gelu)(z) * back).cast::<T>();
                let zq = load(lam[b, h, c, ..]).t() * read_w - load(old[b, h, c, ..]).t() * read_s + dot(less_mixed, delta);
                let hq = gelu(zq);
                store(inner[b, h, c, .., m], hq);
                met += dot(hq.cast::<T>(), a.t());
            }
            let less_met = (-met * load(psi[b, h, c, .., ..])).cast::<T>();
            for e in tiles(E, BE) {
                let mut out = dot(less_met, load(errors[b, h, c, .., e]).cast::<T>());
                for m in tiles(M, BM) {
                    let hq = load(inner[b, h, c, .., m]);
                    out += dot((hq * load(lam[b, h, c, ..]).t()).cast::<T>(), load(w1[b, h, c, e, m]).cast::<T>().t());
                    out -= dot((hq * load(old[b, h, c, ..]).t()).cast::<T>(), load(s1[b, h, c, e, m]).cast::<T>().t());
                }
                store(outs[b, h, c, .., e], out);
            }
            let mut by_gain = zeros::<f32>([1, E]);
            for i in tiles(L, BL) {
                let count = size(E).cast::<f32>();
                let (unit, by) = layer_normed(load(outs[b, h, c, i, ..]), count, eps);
                let at = first + i * BL;
                let by_out = load(dout[b, span(at, BL), h, ..]).or(0.0).cast::<f32>();
                // Rows behind the last token have no gradient, whatever their norm is.
                let is_token = at + iota([BL, 1], 0) < min(first + size(L), size(N));
                let inward = through_norm(by_out * load(norm[h, ..]).cast::<f32>(), unit, by, count);
                store(dy_rows[b, c, i, h, ..], select(is_token, inward, 0.0).cast::<T>());
                by_gain += sum(select(is_token, by_out * unit, 0.0), axis = 0);
            }
            store(dnorm_read[b, h, c, ..], by_gain);
        }
    }

    /// As [`omega_normed_train_backward`](super::omega_normed_train_backward), with rows of any width. `dz`, `dback`, `dmade` and `da` are a
    /// workspace.
    pub kernel omega_normed_wide_train_backward<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        norm: &Tensor<T, [H, E]>,
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
        made: &Tensor<f32, [B, H, C, K, E]>,
        outer: &Tensor<f32, [B, H, C, K, E]>,
        errors: &Tensor<f32, [B, H, C, K, E]>,
        dy: &Tensor<T, [B, N, H, E]>,
        factors: &Tensor<T, [B, H, C, F, K, M]>,
        queries: &Tensor<T, [B, H, C, V, L, M]>,
        mixed: &Tensor<T, [B, H, C, V, L, K]>,
        dnorm_read: &Tensor<f32, [B, H, C, E]>,
        dw1: &mut Tensor<f32, [B, H, E, M]>,
        dw2: &mut Tensor<f32, [B, H, M, D]>,
        ds1: &mut Tensor<f32, [B, H, E, M]>,
        ds2: &mut Tensor<f32, [B, H, M, D]>,
        dz: &mut Tensor<f32, [B, H, K, M]>,
        dback: &mut Tensor<T, [B, H, K, M]>,
        dmade: &mut Tensor<T, [B, H, K, E]>,
        da: &mut Tensor<f32, [B, H, K, M]>,
        dnorm: &mut Tensor<f32, [B, H, E]>,
        by_key: &mut Tensor<f32, [B, H, C, K, D]>,
        by_read: &mut Tensor<f32, [B, H, C, K, E]>,
        dpsi_end: &mut Tensor<f32, [B, H, C, K]>,
        dphi_end: &mut Tensor<f32, [B, H, C, K]>,
        dlam_end: &mut Tensor<f32, [B, H, C]>,
        dold_end: &mut Tensor<f32, [B, H, C]>,
        dbeta_end: &mut Tensor<f32, [B, H, C]>,
        scale: f32,
        predicts: i32,
        eps: f32,
    )
    tune { BM: [16], BD: [32], BE: [32], BK: [16], warps: [8] }
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
                to_errors(by_read, dback, w1, dw1, ds1, factors, psi_end, phi_end, 1.0, b, h, c, ACT, E, M, BE, BM);
                // And through the norm to what the products make, some keys at a time.
                let mut by_gain = zeros::<f32>([1, E]);
                for j in tiles(K, BK) {
                    let count = size(E).cast::<f32>();
                    let gain = load(norm[h, ..]).cast::<f32>();
                    let by_error = load(by_read[b, h, c, j, ..]);
                    let (unit, by) = layer_normed(load(made[b, h, c, j, ..]), count, eps);
                    let behind = load(outer[b, h, c, j, ..]);
                    // With `eps = 0` a row of zeros has no norm.
                    let is_token = load(live[b, h, c, j]).t() > 0.0 && oldest + j * BK + iota([BK, 1], 0) >= 0;
                    let through = select(is_token, through_norm(by_error, unit, by, count), 0.0);
                    let error_by = scale * (gain * through);
                    store(by_read[b, h, c, j, ..], error_by);
                    let back = select(predicts > 0, error_by, 0.0);
                    let bent = bent_norm(by_error, gain * behind, through, unit, by, count);
                    let inward = select(is_token, through_norm(gain * back, unit, by, count) + bent, 0.0);
                    store(dmade[b, h, j, ..], inward.cast::<T>());
                    by_gain += sum(select(is_token, through * behind + back * unit, 0.0), axis = 0);
                }
                store(dnorm[b, h, ..], load(dnorm[b, h, ..]) + load(dnorm_read[b, h, c, ..]) + by_gain);
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
