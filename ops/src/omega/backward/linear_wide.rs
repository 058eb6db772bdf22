//! The backward pass of [`linear`](super::linear) for keys and values of any width: `D` and `E` are streamed in tiles of `BD` and `BE`.
//! The forward pass is [`omega_linear_wide`](crate::omega::linear_wide).

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::walk::{by_ends, queries_by_keys};
    use crate::omega::loss::loss_error;

    /// As [`omega_linear_states`](super::omega_linear_states), with keys of any width.
    pub kernel omega_linear_wide_states<T: Float>(
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        old_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        w_start: &Tensor<f32, [B, H, E, D]>,
        s_start: &Tensor<f32, [B, H, E, D]>,
        w: &mut Tensor<f32, [B, H, C, E, D]>,
        s: &mut Tensor<f32, [B, H, C, E, D]>,
        errors: &mut Tensor<f32, [B, H, C, K, E]>,
        chunk: i32,
        past: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BE: [32, 16], BD: [64, 32], warps: [8, 4] }
    {
        for (b, h, e) in grid(B, H, tiles(E, BE)) {
            for d in tiles(D, BD) {
                store(w[b, h, 0, e, d], load(w_start[b, h, e, d]));
                store(s[b, h, 0, e, d], load(s_start[b, h, e, d]));
            }
            for c in 0..size(C) {
                let oldest = c * chunk + past + chunk - size(K);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let mut read = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0).cast::<f32>();
                for d in tiles(D, BD) {
                    let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                    read += dot(x, load(w[b, h, c, e, d]).cast::<T>().t());
                }
                let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                store(errors[b, h, c, .., e], error);
                // After the last chunk nothing is asked for.
                for again in 0..min(size(C) - 1 - c, 1) {
                    let next = c + again + 1;
                    let to_w = (error * load(psi_end[b, h, c, ..]).t()).cast::<T>();
                    let to_s = (error * load(phi_end[b, h, c, ..]).t()).cast::<T>();
                    for d in tiles(D, BD) {
                        let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                        let momentum = load(s[b, h, c, e, d]);
                        let w_kept = load(lam_end[b, h, c]) * load(w[b, h, c, e, d]) - load(old_end[b, h, c]) * momentum;
                        store(w[b, h, next, e, d], w_kept - dot(to_w.t(), x));
                        store(s[b, h, next, e, d], load(beta_end[b, h, c]) * momentum + dot(to_s.t(), x));
                    }
                }
            }
        }
    }

    /// As [`omega_linear_read_backward`](super::omega_linear_read_backward), with keys of any width.
    pub kernel omega_linear_wide_read_backward<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        psi: &Tensor<f32, [B, H, C, L, K]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
        live: &Tensor<f32, [B, H, C, K]>,
        w: &Tensor<f32, [B, H, C, E, D]>,
        s: &Tensor<f32, [B, H, C, E, D]>,
        errors: &Tensor<f32, [B, H, C, K, E]>,
        dy: &Tensor<T, [B, N, H, E]>,
        dq: &mut Tensor<f32, [B, C, L, H, D]>,
        by_key: &mut Tensor<f32, [B, H, C, K, D]>,
        by_read: &mut Tensor<f32, [B, H, C, K, E]>,
        dpsi: &mut Tensor<f32, [B, H, C, L, K]>,
        dlam: &mut Tensor<f32, [B, H, C, L]>,
        dold: &mut Tensor<f32, [B, H, C, L]>,
    )
    tune { BE: [32, 16], BD: [64, 32], warps: [8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h, c) in grid(B, H, C) {
            let first = c * size(L);
            let oldest = first + size(P) - size(N) + size(L) - size(K);
            let alive = load(live[b, h, c, ..]).t() > 0.0;
            let alike = queries_by_keys(q, k, alive, b, h, first, oldest, L, K, D, BD);
            let mixed = (-alike * load(psi[b, h, c, .., ..])).cast::<T>();
            let mut met = zeros::<f32>([L, K]);
            let mut to_lam = zeros::<f32>([L, 1]);
            let mut to_old = zeros::<f32>([L, 1]);
            for e in tiles(E, BE) {
                let mut by_w = zeros::<f32>([L, BE]);
                let mut by_s = zeros::<f32>([L, BE]);
                for d in tiles(D, BD) {
                    let xq = load(q[b, span(first, L), h, d]).or(0.0);
                    by_w += dot(xq, load(w[b, h, c, e, d]).cast::<T>().t());
                    by_s += dot(xq, load(s[b, h, c, e, d]).cast::<T>().t());
                }
                let by_out = load(dy[b, span(first, L), h, e]).or(0.0);
                met -= dot(by_out, load(errors[b, h, c, .., e]).cast::<T>().t());
                to_lam += sum(by_out.cast::<f32>() * by_w, axis = 1);
                to_old -= sum(by_out.cast::<f32>() * by_s, axis = 1);
                store(by_read[b, h, c, .., e], dot(mixed.t(), by_out));
            }
            let met_psi = (met * load(psi[b, h, c, .., ..])).cast::<T>();
            for d in tiles(D, BD) {
                let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                let mut to_q = dot(met_psi, x);
                for e in tiles(E, BE) {
                    let wide = load(dy[b, span(first, L), h, e]).or(0.0).cast::<f32>();
                    let kept = (wide * load(lam[b, h, c, ..]).t()).cast::<T>();
                    let gone = (wide * load(old[b, h, c, ..]).t()).cast::<T>();
                    to_q += dot(kept, load(w[b, h, c, e, d]).cast::<T>());
                    to_q -= dot(gone, load(s[b, h, c, e, d]).cast::<T>());
                }
                store(dq[b, c, .., h, d], to_q);
                store(by_key[b, h, c, .., d], dot(met_psi.t(), load(q[b, span(first, L), h, d]).or(0.0)));
            }
            store(dpsi[b, h, c, .., ..], met * alike);
            store(dlam[b, h, c, ..], to_lam);
            store(dold[b, h, c, ..], to_old);
        }
    }

    /// As [`omega_linear_train_backward`](super::omega_linear_train_backward), with keys of any width.
    pub kernel omega_linear_wide_train_backward<T: Float>(
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
        w: &Tensor<f32, [B, H, C, E, D]>,
        s: &Tensor<f32, [B, H, C, E, D]>,
        errors: &Tensor<f32, [B, H, C, K, E]>,
        dy: &Tensor<T, [B, N, H, E]>,
        dw: &mut Tensor<f32, [B, H, E, D]>,
        ds: &mut Tensor<f32, [B, H, E, D]>,
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
    tune { BE: [32, 16], BD: [32], warps: [8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h) in grid(B, H) {
            for i in 0..size(C) {
                let c = size(C) - 1 - i;
                let (by_lam, by_old, by_beta) = by_ends(dw, ds, w, s, b, h, c, E, D, BE, BD);
                store(dlam_end[b, h, c], by_lam);
                store(dold_end[b, h, c], by_old);
                store(dbeta_end[b, h, c], by_beta);
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let to_w = load(psi_end[b, h, c, ..]).t();
                let to_s = load(phi_end[b, h, c, ..]).t();
                let mut by_psi = zeros::<f32>([K, 1]);
                let mut by_phi = zeros::<f32>([K, 1]);
                for e in tiles(E, BE) {
                    let mut seen_w = zeros::<f32>([K, BE]);
                    let mut seen_s = zeros::<f32>([K, BE]);
                    for d in tiles(D, BD) {
                        let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                        seen_w += dot(x, load(dw[b, h, e, d]).cast::<T>().t());
                        seen_s += dot(x, load(ds[b, h, e, d]).cast::<T>().t());
                    }
                    let error = load(errors[b, h, c, .., e]);
                    by_psi -= sum(error * seen_w, axis = 1);
                    by_phi += sum(error * seen_s, axis = 1);
                    let to_read = load(by_read[b, h, c, .., e]) - to_w * seen_w + to_s * seen_s;
                    store(by_read[b, h, c, .., e], scale * to_read);
                }
                for d in tiles(D, BD) {
                    let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                    let xq = load(q[b, span(first, L), h, d]).or(0.0);
                    let mut to_x = load(by_key[b, h, c, .., d]);
                    for e in tiles(E, BE) {
                        let error = load(errors[b, h, c, .., e]);
                        let back = select(predicts > 0, load(by_read[b, h, c, .., e]), 0.0).cast::<T>();
                        let w_after = load(dw[b, h, e, d]);
                        let s_after = load(ds[b, h, e, d]);
                        to_x += dot(back, load(w[b, h, c, e, d]).cast::<T>());
                        to_x -= dot((to_w * error).cast::<T>(), w_after.cast::<T>());
                        to_x += dot((to_s * error).cast::<T>(), s_after.cast::<T>());
                        let wide = load(dy[b, span(first, L), h, e]).or(0.0).cast::<f32>();
                        let kept = (load(lam[b, h, c, ..]).t() * wide).cast::<T>();
                        let gone = (load(old[b, h, c, ..]).t() * wide).cast::<T>();
                        store(dw[b, h, e, d], load(lam_end[b, h, c]) * w_after + dot(kept.t(), xq) + dot(back.t(), x));
                        let s_before = load(beta_end[b, h, c]) * s_after - load(old_end[b, h, c]) * w_after;
                        store(ds[b, h, e, d], s_before - dot(gone.t(), xq));
                    }
                    store(by_key[b, h, c, .., d], to_x);
                }
                store(dpsi_end[b, h, c, ..], by_psi);
                store(dphi_end[b, h, c, ..], by_phi);
            }
        }
    }
}
