//! The states of [`omega_mlp_states`](super::omega_mlp_states) with each pass over a chunk in a launch of its own, as in
//! [`mlp_split`](crate::omega::mlp_split), for few sequences and heads.
//!
//! [`omega_mlp_split_states`] copies the state before the first chunk and makes the hidden rows of its keys. Two kernels then go from
//! chunk to chunk: [`omega_mlp_split_state_errors`] by tiles of `E`, and [`omega_mlp_split_next_state`] by tiles of `M`.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;

    /// The state before the first chunk, and the hidden rows of its keys, `rows`, with the slope of gelu there. `past` keys come before
    /// those of the first chunk of `chunk` tokens.
    pub kernel omega_mlp_split_states<T: Float>(
        k: &Tensor<T, [B, P, H, D]>,
        live: &Tensor<f32, [B, H, C, K]>,
        w1_start: &Tensor<f32, [B, H, E, M]>,
        w2_start: &Tensor<f32, [B, H, M, D]>,
        s1_start: &Tensor<f32, [B, H, E, M]>,
        s2_start: &Tensor<f32, [B, H, M, D]>,
        w1: &mut Tensor<f32, [B, H, C, E, M]>,
        w2: &mut Tensor<f32, [B, H, C, M, D]>,
        s1: &mut Tensor<f32, [B, H, C, E, M]>,
        s2: &mut Tensor<f32, [B, H, C, M, D]>,
        rows: &mut Tensor<T, [B, H, K, M]>,
        slopes: &mut Tensor<f32, [B, H, K, M]>,
        chunk: i32,
        past: i32,
    )
    tune { BM: [16, 32, 64], BD: [64, 32], BE: [64, 32], warps: [4, 8] }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            let oldest = past + chunk - size(K);
            let alive = load(live[b, h, 0, ..]).t() > 0.0;
            for e in tiles(E, BE) {
                store(w1[b, h, 0, e, m], load(w1_start[b, h, e, m]));
                store(s1[b, h, 0, e, m], load(s1_start[b, h, e, m]));
            }
            let mut z = zeros::<f32>([K, BM]);
            for d in tiles(D, BD) {
                let w2m = load(w2_start[b, h, m, d]);
                store(w2[b, h, 0, m, d], w2m);
                store(s2[b, h, 0, m, d], load(s2_start[b, h, m, d]));
                let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                z += dot(x, w2m.cast::<T>().t());
            }
            store(rows[b, h, .., m], gelu(z).cast::<T>());
            store(slopes[b, h, .., m], grad(gelu)(z));
        }
    }

    /// The errors of the keys of chunk `at`, by tiles of values. `rows` are their hidden rows.
    pub kernel omega_mlp_split_state_errors<T: Float>(
        v: &Tensor<T, [B, P, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        live: &Tensor<f32, [B, H, C, K]>,
        w1: &Tensor<f32, [B, H, C, E, M]>,
        rows: &Tensor<T, [B, H, K, M]>,
        errors: &mut Tensor<f32, [B, H, C, K, E]>,
        at: i32,
        chunk: i32,
        past: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BE: [16, 32, 64], BM: [64, 32], stages: [2, 4], warps: [4, 8] }
    {
        for (b, h, e) in grid(B, H, tiles(E, BE)) {
            let oldest = at * chunk + past + chunk - size(K);
            let alive = load(live[b, h, at, ..]).t() > 0.0;
            let mut read = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0).cast::<f32>();
            for m in pipeline(tiles(M, BM)) {
                read += dot(load(rows[b, h, .., m]), load(w1[b, h, at, e, m]).cast::<T>().t());
            }
            let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
            store(errors[b, h, at, .., e], loss_error(read, wanted.cast::<f32>(), scale, predicts));
        }
    }

    /// The state before the chunk behind `at`, and the hidden rows of its keys, by tiles of hidden elements. Nothing for the last chunk.
    pub kernel omega_mlp_split_next_state<T: Float>(
        k: &Tensor<T, [B, P, H, D]>,
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        old_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        errors: &Tensor<f32, [B, H, C, K, E]>,
        w1: &mut Tensor<f32, [B, H, C, E, M]>,
        w2: &mut Tensor<f32, [B, H, C, M, D]>,
        s1: &mut Tensor<f32, [B, H, C, E, M]>,
        s2: &mut Tensor<f32, [B, H, C, M, D]>,
        rows: &mut Tensor<T, [B, H, K, M]>,
        slopes: &mut Tensor<f32, [B, H, K, M]>,
        at: i32,
        chunk: i32,
        past: i32,
    )
    tune { BM: [16, 32, 64], BD: [64, 32], BE: [64, 32], warps: [4, 8] }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            for again in 0..min(size(C) - 1 - at, 1) {
                let next = at + again + 1;
                let oldest = at * chunk + past + chunk - size(K);
                let alive = load(live[b, h, at, ..]).t() > 0.0;
                let oldest_next = oldest + chunk;
                let alive_next = load(live[b, h, next, ..]).t() > 0.0;
                let less_w = -load(psi_end[b, h, at, ..]).t();
                let to_s = load(phi_end[b, h, at, ..]).t();
                let a = load(rows[b, h, .., m]);
                let mut back = zeros::<f32>([K, BM]);
                for e in tiles(E, BE) {
                    let error = load(errors[b, h, at, .., e]);
                    let w1m = load(w1[b, h, at, e, m]);
                    let s1m = load(s1[b, h, at, e, m]);
                    back += dot(error.cast::<T>(), w1m.cast::<T>());
                    let mut w1n = load(lam_end[b, h, at]) * w1m - load(old_end[b, h, at]) * s1m;
                    w1n += dot((error * less_w).cast::<T>().t(), a);
                    store(w1[b, h, next, e, m], w1n);
                    let mut s1n = load(beta_end[b, h, at]) * s1m;
                    s1n += dot((error * to_s).cast::<T>().t(), a);
                    store(s1[b, h, next, e, m], s1n);
                }
                let delta = load(slopes[b, h, .., m]) * back;
                let change_w = (delta * less_w).cast::<T>();
                let change_s = (delta * to_s).cast::<T>();
                let mut z = zeros::<f32>([K, BM]);
                for d in tiles(D, BD) {
                    let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                    let w2m = load(w2[b, h, at, m, d]);
                    let s2m = load(s2[b, h, at, m, d]);
                    let mut w2n = load(lam_end[b, h, at]) * w2m - load(old_end[b, h, at]) * s2m;
                    w2n += dot(change_w.t(), x);
                    store(w2[b, h, next, m, d], w2n);
                    let mut s2n = load(beta_end[b, h, at]) * s2m;
                    s2n += dot(change_s.t(), x);
                    store(s2[b, h, next, m, d], s2n);
                    let x_next = select(alive_next, load(k[b, span(oldest_next, K), h, d]).or(0.0), 0.0);
                    z += dot(x_next, w2n.cast::<T>().t());
                }
                store(rows[b, h, .., m], gelu(z).cast::<T>());
                store(slopes[b, h, .., m], grad(gelu)(z));
            }
        }
    }
}
