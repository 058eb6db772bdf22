//! What goes back from chunk to chunk of a deep memory, [`omega_mlp_train_backward`](super::omega_mlp_train_backward), with each pass over
//! a chunk in a launch of its own, for few sequences and heads. The formulas are in [`mlp`](super::mlp).
//!
//! The gradients by the state before a chunk follow from those after it by two passes:
//!
//! 1. [`omega_mlp_split_back_errors`]: the gradients by the errors, by tiles of `E`;
//! 2. [`omega_mlp_split_back`]: the gradients by the state, by tiles of `M`, and what the chunk before needs for its first pass:
//!    `dDelta` and `dA` at a hidden element depend on the same element of the state alone.
//!
//! [`omega_mlp_split_back_start`] makes these of the last chunk. The gradients by the state after each chunk are kept, so all that no other
//! chunk waits for is computed for all chunks at once: [`omega_mlp_split_ends`], what the mixing weights at the end of a chunk get, and
//! [`omega_mlp_split_keys`], what the keys get.

use super::mlp::{ACT, BEND, BY_INNER, BY_MET, DELTA, INNER, MIXED, SLOPE};
use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// From what keys see of the gradients by the state after chunk `c` in the tile `m`, `seen` through the matrix before the hidden layer
    /// and `felt` through the one behind it: `dback`, the gradients by what comes back from the errors, and `dz`, those by what stands before
    /// gelu but for what the errors add.
    device fn to_hidden(
        dz, dback, factors, queries, mixed, psi_end, phi_end, seen_w, seen_s, felt_w, felt_s, b, h, c, m,
        SLOPE, BEND, INNER, BY_INNER, MIXED, BY_MET
    ) {
        let to_w = load(psi_end[b, h, c, ..]).t();
        let to_s = load(phi_end[b, h, c, ..]).t();
        let by_inner = load(queries[b, h, c, BY_INNER, .., m]);
        let by_delta = dot(load(mixed[b, h, c, MIXED, .., ..]).t(), by_inner) - to_w * seen_w + to_s * seen_s;
        let met = dot(load(mixed[b, h, c, BY_MET, .., ..]).t(), load(queries[b, h, c, INNER, .., m]));
        let by_act = met - to_w * felt_w + to_s * felt_s;
        let slope = load(factors[b, h, c, SLOPE, .., m]).cast::<f32>();
        let bend = load(factors[b, h, c, BEND, .., m]).cast::<f32>();
        store(dback[b, h, .., m], (slope * by_delta).cast_like(by_inner));
        store(dz[b, h, .., m], bend * by_delta + slope * by_act);
    }

    /// Of the last chunk the gradients at its hidden rows: `dz` and `dback`. `dw1` to `ds2` are the gradients by the state after it.
    pub kernel omega_mlp_split_back_start<T: Float>(
        k: &Tensor<T, [B, P, H, D]>,
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        errors: &Tensor<f32, [B, H, C, K, E]>,
        factors: &Tensor<T, [B, H, C, F, K, M]>,
        queries: &Tensor<T, [B, H, C, V, L, M]>,
        mixed: &Tensor<T, [B, H, C, V, L, K]>,
        dw1: &Tensor<f32, [B, H, E, M]>,
        dw2: &Tensor<f32, [B, H, M, D]>,
        ds1: &Tensor<f32, [B, H, E, M]>,
        ds2: &Tensor<f32, [B, H, M, D]>,
        dz: &mut Tensor<f32, [B, H, K, M]>,
        dback: &mut Tensor<T, [B, H, K, M]>,
        chunk: i32,
        past: i32,
    )
    tune { BM: [16, 32], BD: [64, 32], BE: [64, 32], warps: [4, 8] }
    require { F == 4, V == 2 }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            let c = size(C) - 1;
            let oldest = c * chunk + past + chunk - size(K);
            let alive = load(live[b, h, c, ..]).t() > 0.0;
            let mut felt_w = zeros::<f32>([K, BM]);
            let mut felt_s = zeros::<f32>([K, BM]);
            for e in tiles(E, BE) {
                let error = load(errors[b, h, c, .., e]).cast::<T>();
                felt_w += dot(error, load(dw1[b, h, e, m]).cast::<T>());
                felt_s += dot(error, load(ds1[b, h, e, m]).cast::<T>());
            }
            let mut seen_w = zeros::<f32>([K, BM]);
            let mut seen_s = zeros::<f32>([K, BM]);
            for d in tiles(D, BD) {
                let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                seen_w += dot(x, load(dw2[b, h, m, d]).cast::<T>().t());
                seen_s += dot(x, load(ds2[b, h, m, d]).cast::<T>().t());
            }
            to_hidden(
                dz, dback, factors, queries, mixed, psi_end, phi_end, seen_w, seen_s, felt_w, felt_s, b, h, c, m,
                SLOPE, BEND, INNER, BY_INNER, MIXED, BY_MET
            );
        }
    }

    /// The gradients by the errors of chunk `at`, by tiles of values: `by_read`, which has what reading gives, becomes the gradients by what
    /// the memory makes of keys less their values, and `dmade` those by what the first matrix makes of them.
    pub kernel omega_mlp_split_back_errors<T: Float>(
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        w1: &Tensor<f32, [B, H, C, E, M]>,
        factors: &Tensor<T, [B, H, C, F, K, M]>,
        dw1: &Tensor<f32, [B, H, E, M]>,
        ds1: &Tensor<f32, [B, H, E, M]>,
        dback: &Tensor<T, [B, H, K, M]>,
        by_read: &mut Tensor<f32, [B, H, C, K, E]>,
        dmade: &mut Tensor<T, [B, H, K, E]>,
        at: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BE: [16, 32, 64], BM: [64, 32], stages: [2, 4], warps: [4, 8] }
    require { F == 4 }
    {
        for (b, h, e) in grid(B, H, tiles(E, BE)) {
            let less_w = -load(psi_end[b, h, at, ..]).t();
            let to_s = load(phi_end[b, h, at, ..]).t();
            let mut to_error = load(by_read[b, h, at, .., e]);
            for m in pipeline(tiles(M, BM)) {
                let a = load(factors[b, h, at, ACT, .., m]).cast::<f32>();
                to_error += dot((a * less_w).cast::<T>(), load(dw1[b, h, e, m]).cast::<T>().t());
                to_error += dot((a * to_s).cast::<T>(), load(ds1[b, h, e, m]).cast::<T>().t());
                to_error += dot(load(dback[b, h, .., m]), load(w1[b, h, at, e, m]).cast::<T>().t());
            }
            let by_error = scale * to_error;
            store(by_read[b, h, at, .., e], by_error);
            store(dmade[b, h, .., e], select(predicts > 0, by_error, 0.0).cast::<T>());
        }
    }

    /// The gradients by the state before chunk `at`, by tiles of hidden elements: `dw1` to `ds2` have those after it, which `dw1_after` to
    /// `ds2_after` keep. `dzs` keeps the gradients by what stands before gelu. `dz` and `dback` are those of chunk `at`, and become those
    /// of the one before it.
    pub kernel omega_mlp_split_back<T: Float>(
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
        errors: &Tensor<f32, [B, H, C, K, E]>,
        dy: &Tensor<T, [B, N, H, E]>,
        factors: &Tensor<T, [B, H, C, F, K, M]>,
        queries: &Tensor<T, [B, H, C, V, L, M]>,
        mixed: &Tensor<T, [B, H, C, V, L, K]>,
        dmade: &Tensor<T, [B, H, K, E]>,
        dw1: &mut Tensor<f32, [B, H, E, M]>,
        dw2: &mut Tensor<f32, [B, H, M, D]>,
        ds1: &mut Tensor<f32, [B, H, E, M]>,
        ds2: &mut Tensor<f32, [B, H, M, D]>,
        dz: &mut Tensor<f32, [B, H, K, M]>,
        dback: &mut Tensor<T, [B, H, K, M]>,
        dzs: &mut Tensor<T, [B, H, C, K, M]>,
        dw1_after: &mut Tensor<f32, [B, H, C, E, M]>,
        dw2_after: &mut Tensor<f32, [B, H, C, M, D]>,
        ds1_after: &mut Tensor<f32, [B, H, C, E, M]>,
        ds2_after: &mut Tensor<f32, [B, H, C, M, D]>,
        at: i32,
    )
    tune { BM: [16, 32], BD: [32], BE: [32], warps: [8] }
    require { C * L >= N, K >= L, P >= N, F == 4, V == 2 }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            let first = at * size(L);
            let oldest = first + size(P) - size(N) + size(L) - size(K);
            let alive = load(live[b, h, at, ..]).t() > 0.0;
            // Before the first chunk nobody asks for the rows of another one: they are those of its own keys again.
            let before = max(at - 1, 0);
            let oldest_before = before * size(L) + size(P) - size(N) + size(L) - size(K);
            let alive_before = load(live[b, h, before, ..]).t() > 0.0;
            let kept = load(lam[b, h, at, ..]).t();
            let less = -load(old[b, h, at, ..]).t();
            let inner = load(queries[b, h, at, INNER, .., m]).cast::<f32>();
            let inner_w = (inner * kept).cast::<T>();
            let inner_s = (inner * less).cast::<T>();
            let act = load(factors[b, h, at, ACT, .., m]);
            let back = load(dback[b, h, .., m]);
            let mut by_act = zeros::<f32>([K, BM]);
            let mut felt_w = zeros::<f32>([K, BM]);
            let mut felt_s = zeros::<f32>([K, BM]);
            for e in tiles(E, BE) {
                let by_out = load(dy[b, span(first, L), h, e]).or(0.0);
                let made = load(dmade[b, h, .., e]);
                by_act += dot(made, load(w1[b, h, at, e, m]).cast::<T>());
                let dw = load(dw1[b, h, e, m]);
                let ds = load(ds1[b, h, e, m]);
                store(dw1_after[b, h, at, e, m], dw);
                store(ds1_after[b, h, at, e, m], ds);
                let mut ds_before = load(beta_end[b, h, at]) * ds - load(old_end[b, h, at]) * dw;
                ds_before += dot(by_out.t(), inner_s);
                store(ds1[b, h, e, m], ds_before);
                let mut dw_before = load(lam_end[b, h, at]) * dw;
                dw_before += dot(by_out.t(), inner_w);
                dw_before += dot(load(errors[b, h, at, .., e]).cast::<T>().t(), back);
                dw_before += dot(made.t(), act);
                store(dw1[b, h, e, m], dw_before);
                let error = load(errors[b, h, before, .., e]).cast::<T>();
                felt_w += dot(error, dw_before.cast::<T>());
                felt_s += dot(error, ds_before.cast::<T>());
            }
            let slope = load(factors[b, h, at, SLOPE, .., m]).cast::<f32>();
            let by_z = (load(dz[b, h, .., m]) + slope * by_act).cast::<T>();
            store(dzs[b, h, at, .., m], by_z);
            let by_inner = load(queries[b, h, at, BY_INNER, .., m]).cast::<f32>();
            let by_inner_w = (by_inner * kept).cast::<T>();
            let by_inner_s = (by_inner * less).cast::<T>();
            let mut seen_w = zeros::<f32>([K, BM]);
            let mut seen_s = zeros::<f32>([K, BM]);
            for d in tiles(D, BD) {
                let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                let xq = load(q[b, span(first, L), h, d]).or(0.0);
                let dw = load(dw2[b, h, m, d]);
                let ds = load(ds2[b, h, m, d]);
                store(dw2_after[b, h, at, m, d], dw);
                store(ds2_after[b, h, at, m, d], ds);
                let mut ds_before = load(beta_end[b, h, at]) * ds - load(old_end[b, h, at]) * dw;
                ds_before += dot(by_inner_s.t(), xq);
                store(ds2[b, h, m, d], ds_before);
                let mut dw_before = load(lam_end[b, h, at]) * dw;
                dw_before += dot(by_inner_w.t(), xq);
                dw_before += dot(by_z.t(), x);
                store(dw2[b, h, m, d], dw_before);
                let x_before = select(alive_before, load(k[b, span(oldest_before, K), h, d]).or(0.0), 0.0);
                seen_w += dot(x_before, dw_before.cast::<T>().t());
                seen_s += dot(x_before, ds_before.cast::<T>().t());
            }
            to_hidden(
                dz, dback, factors, queries, mixed, psi_end, phi_end, seen_w, seen_s, felt_w, felt_s, b, h, before, m,
                SLOPE, BEND, INNER, BY_INNER, MIXED, BY_MET
            );
        }
    }

    /// The gradients by the mixing weights at the end of each chunk.
    pub kernel omega_mlp_split_ends<T: Float>(
        k: &Tensor<T, [B, P, H, D]>,
        live: &Tensor<f32, [B, H, C, K]>,
        w1: &Tensor<f32, [B, H, C, E, M]>,
        w2: &Tensor<f32, [B, H, C, M, D]>,
        s1: &Tensor<f32, [B, H, C, E, M]>,
        s2: &Tensor<f32, [B, H, C, M, D]>,
        errors: &Tensor<f32, [B, H, C, K, E]>,
        factors: &Tensor<T, [B, H, C, F, K, M]>,
        dw1_after: &Tensor<f32, [B, H, C, E, M]>,
        dw2_after: &Tensor<f32, [B, H, C, M, D]>,
        ds1_after: &Tensor<f32, [B, H, C, E, M]>,
        ds2_after: &Tensor<f32, [B, H, C, M, D]>,
        dpsi_end: &mut Tensor<f32, [B, H, C, K]>,
        dphi_end: &mut Tensor<f32, [B, H, C, K]>,
        dlam_end: &mut Tensor<f32, [B, H, C]>,
        dold_end: &mut Tensor<f32, [B, H, C]>,
        dbeta_end: &mut Tensor<f32, [B, H, C]>,
        chunk: i32,
        past: i32,
    )
    tune { BM: [32, 16], BD: [64, 32], BE: [32], warps: [8, 4] }
    require { F == 4 }
    {
        for (b, h, c) in grid(B, H, C) {
            let oldest = c * chunk + past + chunk - size(K);
            let alive = load(live[b, h, c, ..]).t() > 0.0;
            let mut by_psi = zeros::<f32>([K, 1]);
            let mut by_phi = zeros::<f32>([K, 1]);
            let mut by_lam = 0.0;
            let mut by_old = 0.0;
            let mut by_beta = 0.0;
            for m in tiles(M, BM) {
                let mut seen_w = zeros::<f32>([K, BM]);
                let mut seen_s = zeros::<f32>([K, BM]);
                for d in tiles(D, BD) {
                    let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                    let dw = load(dw2_after[b, h, c, m, d]);
                    let ds = load(ds2_after[b, h, c, m, d]);
                    let momentum = load(s2[b, h, c, m, d]);
                    seen_w += dot(x, dw.cast::<T>().t());
                    seen_s += dot(x, ds.cast::<T>().t());
                    by_lam += sum((dw * load(w2[b, h, c, m, d])).or(0.0));
                    by_old -= sum((dw * momentum).or(0.0));
                    by_beta += sum((ds * momentum).or(0.0));
                }
                let mut felt_w = zeros::<f32>([K, BM]);
                let mut felt_s = zeros::<f32>([K, BM]);
                for e in tiles(E, BE) {
                    let error = load(errors[b, h, c, .., e]).cast::<T>();
                    let dw = load(dw1_after[b, h, c, e, m]);
                    let ds = load(ds1_after[b, h, c, e, m]);
                    let momentum = load(s1[b, h, c, e, m]);
                    felt_w += dot(error, dw.cast::<T>());
                    felt_s += dot(error, ds.cast::<T>());
                    by_lam += sum((dw * load(w1[b, h, c, e, m])).or(0.0));
                    by_old -= sum((dw * momentum).or(0.0));
                    by_beta += sum((ds * momentum).or(0.0));
                }
                let delta = load(factors[b, h, c, DELTA, .., m]).cast::<f32>();
                let act = load(factors[b, h, c, ACT, .., m]).cast::<f32>();
                by_psi -= sum(delta * seen_w + act * felt_w, axis = 1);
                by_phi += sum(delta * seen_s + act * felt_s, axis = 1);
            }
            store(dpsi_end[b, h, c, ..], by_psi);
            store(dphi_end[b, h, c, ..], by_phi);
            store(dlam_end[b, h, c], by_lam);
            store(dold_end[b, h, c], by_old);
            store(dbeta_end[b, h, c], by_beta);
        }
    }

    /// Adds to `by_key`, which has what reading gives, the gradients by a chunk's keys of training on them, by chunks and tiles of `D`.
    pub kernel omega_mlp_split_keys<T: Float>(
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        w2: &Tensor<f32, [B, H, C, M, D]>,
        factors: &Tensor<T, [B, H, C, F, K, M]>,
        dzs: &Tensor<T, [B, H, C, K, M]>,
        dw2_after: &Tensor<f32, [B, H, C, M, D]>,
        ds2_after: &Tensor<f32, [B, H, C, M, D]>,
        by_key: &mut Tensor<f32, [B, H, C, K, D]>,
    )
    tune { BD: [64, 32, 16], BM: [64, 32], warps: [4, 8] }
    require { F == 4 }
    {
        for (b, h, c, d) in grid(B, H, C, tiles(D, BD)) {
            // A difference, and no negation: all of this kernel is sums and products, so tests run it in a ring, which knows no -0.
            let less_w = 0.0 - load(psi_end[b, h, c, ..]).t();
            let to_s = load(phi_end[b, h, c, ..]).t();
            let mut to_x = load(by_key[b, h, c, .., d]);
            for m in tiles(M, BM) {
                let delta = load(factors[b, h, c, DELTA, .., m]).cast::<f32>();
                to_x += dot((delta * less_w).cast::<T>(), load(dw2_after[b, h, c, m, d]).cast::<T>());
                to_x += dot((delta * to_s).cast::<T>(), load(ds2_after[b, h, c, m, d]).cast::<T>());
                to_x += dot(load(dzs[b, h, c, .., m]), load(w2[b, h, c, m, d]).cast::<T>());
            }
            store(by_key[b, h, c, .., d], to_x);
        }
    }
}
