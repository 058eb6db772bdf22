//! What goes back from chunk to chunk of a deep memory: the second part of [`mlp`](super::mlp).

use super::mlp::{ACT, BEND, BY_INNER, BY_MET, DELTA, INNER, MIXED, SLOPE};
use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// From the last chunk to the first: `dw1` to `ds2` are the gradients by the state after the chunks, and become those by
    /// the state before them. `by_key` and `by_read` are the parts that reading gives, and become the gradients by a chunk's keys and by what
    /// the memory makes of them, less their values. `dz` and `dback` are a workspace.
    pub kernel omega_mlp_train_backward<T: Float>(
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
    tune { BM: [16], warps: [8] }
    require { C * L >= N, K >= L, P >= N, F == 4, V == 2 }
    {
        for (b, h) in grid(B, H) {
            for i in 0..size(C) {
                let c = size(C) - 1 - i;
                // Whole rows: with `M` whole, too, the steps between rows are constants of the compiled kernel.
                let mut by_lam = zeros::<f32>([8, M]);
                let mut by_old = zeros::<f32>([8, M]);
                let mut by_beta = zeros::<f32>([8, M]);
                for e in tiles(E, 8) {
                    let dw1e = load(dw1[b, h, e, ..]);
                    let s1e = load(s1[b, h, c, e, ..]);
                    by_lam += (dw1e * load(w1[b, h, c, e, ..])).or(0.0);
                    by_old -= (dw1e * s1e).or(0.0);
                    by_beta += (load(ds1[b, h, e, ..]) * s1e).or(0.0);
                }
                let mut by_lam2 = zeros::<f32>([BM, D]);
                let mut by_old2 = zeros::<f32>([BM, D]);
                let mut by_beta2 = zeros::<f32>([BM, D]);
                for m in tiles(M, BM) {
                    let dw2m = load(dw2[b, h, m, ..]);
                    let s2m = load(s2[b, h, c, m, ..]);
                    by_lam2 += (dw2m * load(w2[b, h, c, m, ..])).or(0.0);
                    by_old2 -= (dw2m * s2m).or(0.0);
                    by_beta2 += (load(ds2[b, h, m, ..]) * s2m).or(0.0);
                }
                store(dlam_end[b, h, c], sum(by_lam) + sum(by_lam2));
                store(dold_end[b, h, c], sum(by_old) + sum(by_old2));
                store(dbeta_end[b, h, c], sum(by_beta) + sum(by_beta2));
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                // Through the second matrix to what stands before gelu.
                let mut by_psi = zeros::<f32>([K, 1]);
                let mut by_phi = zeros::<f32>([K, 1]);
                let mut to_x = load(by_key[b, h, c, .., ..]);
                for m in tiles(M, BM) {
                    let dw2t = load(dw2[b, h, m, ..]).cast::<T>();
                    let ds2t = load(ds2[b, h, m, ..]).cast::<T>();
                    let seen_w = dot(x, dw2t.t());
                    let seen_s = dot(x, ds2t.t());
                    let delta = load(factors[b, h, c, DELTA, .., m]).cast::<f32>();
                    by_psi -= sum(delta * seen_w, axis = 1);
                    by_phi += sum(delta * seen_s, axis = 1);
                    let to_w = load(psi_end[b, h, c, ..]).t();
                    let to_s = load(phi_end[b, h, c, ..]).t();
                    let felt = dot(load(mixed[b, h, c, MIXED, .., ..]).t(), load(queries[b, h, c, BY_INNER, .., m]));
                    store(dz[b, h, .., m], felt - to_w * seen_w + to_s * seen_s);
                    to_x -= dot((delta * to_w).cast::<T>(), dw2t);
                    to_x += dot((delta * to_s).cast::<T>(), ds2t);
                }
                store(by_key[b, h, c, .., ..], to_x);
                // Through the first one to the errors. `dz` is the gradient by `delta` before, and becomes the one by `z`.
                let errors_c = load(errors[b, h, c, .., ..]).cast::<T>();
                let mut to_error = load(by_read[b, h, c, .., ..]);
                for m in tiles(M, BM) {
                    let dw1t = load(dw1[b, h, .., m]).cast::<T>();
                    let ds1t = load(ds1[b, h, .., m]).cast::<T>();
                    let felt_w = dot(errors_c, dw1t);
                    let felt_s = dot(errors_c, ds1t);
                    let a = load(factors[b, h, c, ACT, .., m]).cast::<f32>();
                    by_psi -= sum(a * felt_w, axis = 1);
                    by_phi += sum(a * felt_s, axis = 1);
                    let to_w = load(psi_end[b, h, c, ..]).t();
                    let to_s = load(phi_end[b, h, c, ..]).t();
                    to_error -= dot((a * to_w).cast::<T>(), dw1t.t());
                    to_error += dot((a * to_s).cast::<T>(), ds1t.t());
                    let by_delta = load(dz[b, h, .., m]);
                    let slope = load(factors[b, h, c, SLOPE, .., m]).cast::<f32>();
                    let by_back = (slope * by_delta).cast::<T>();
                    store(dback[b, h, .., m], by_back);
                    to_error += dot(by_back, load(w1[b, h, c, .., m]).cast::<T>().t());
                    let met = dot(load(mixed[b, h, c, BY_MET, .., ..]).t(), load(queries[b, h, c, INNER, .., m]));
                    let by_a = met - to_w * felt_w + to_s * felt_s;
                    let bend = load(factors[b, h, c, BEND, .., m]).cast::<f32>();
                    store(dz[b, h, .., m], bend * by_delta + slope * by_a);
                }
                store(dpsi_end[b, h, c, ..], by_psi);
                store(dphi_end[b, h, c, ..], by_phi);
                let error_by = scale * to_error;
                store(by_read[b, h, c, .., ..], error_by);
                let read = select(predicts > 0, error_by, 0.0).cast::<T>();
                // The errors are made by both.
                let xq = load(q[b, span(first, L), h, ..]).or(0.0);
                let mut more_x = load(by_key[b, h, c, .., ..]);
                for m in tiles(M, BM) {
                    let by_a = dot(read, load(w1[b, h, c, .., m]).cast::<T>());
                    let slope = load(factors[b, h, c, SLOPE, .., m]).cast::<f32>();
                    let by_z = (load(dz[b, h, .., m]) + slope * by_a).cast::<T>();
                    more_x += dot(by_z, load(w2[b, h, c, m, ..]).cast::<T>());
                    let wide = load(queries[b, h, c, BY_INNER, .., m]).cast::<f32>();
                    let kept = (wide * load(lam[b, h, c, ..]).t()).cast::<T>();
                    let gone = (wide * load(old[b, h, c, ..]).t()).cast::<T>();
                    let dw2m = load(dw2[b, h, m, ..]);
                    let s2n = load(beta_end[b, h, c]) * load(ds2[b, h, m, ..]) - load(old_end[b, h, c]) * dw2m;
                    store(ds2[b, h, m, ..], s2n - dot(gone.t(), xq));
                    let mut w2n = load(lam_end[b, h, c]) * dw2m + dot(kept.t(), xq);
                    w2n += dot(by_z.t(), x);
                    store(dw2[b, h, m, ..], w2n);
                }
                store(by_key[b, h, c, .., ..], more_x);
                let dyc = load(dy[b, span(first, L), h, ..]).or(0.0);
                for m in tiles(M, BM) {
                    let wide = load(queries[b, h, c, INNER, .., m]).cast::<f32>();
                    let kept = (wide * load(lam[b, h, c, ..]).t()).cast::<T>();
                    let gone = (wide * load(old[b, h, c, ..]).t()).cast::<T>();
                    let dw1m = load(dw1[b, h, .., m]);
                    let s1n = load(beta_end[b, h, c]) * load(ds1[b, h, .., m]) - load(old_end[b, h, c]) * dw1m;
                    store(ds1[b, h, .., m], s1n - dot(dyc.t(), gone));
                    let mut w1n = load(lam_end[b, h, c]) * dw1m + dot(dyc.t(), kept);
                    w1n += dot(errors_c.t(), load(dback[b, h, .., m]));
                    w1n += dot(read.t(), load(factors[b, h, c, ACT, .., m]));
                    store(dw1[b, h, .., m], w1n);
                }
            }
        }
    }
}
