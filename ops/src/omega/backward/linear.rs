//! The backward pass of the Omega rule on a linear memory `M(x) = r + W x`; see [`omega_linear`](crate::omega::linear).
//!
//! With `G = -dY E^T` and `T2 = Xq X^T`, the states of a chunk's start, and `dW'`, `dS'` the gradients by those of its end,
//!
//! ```text
//! dPsi = G (*) T2,  dXq = diag(lam) dY W - diag(old) dY S + [G (*) Psi] X
//! dlam = rowsum(dY (*) Xq W^T),  dold = -rowsum(dY (*) Xq S^T)
//! dE = -[T2 (*) Psi]^T dY - diag(Psi_end) X dW'^T + diag(Phi_end) X dS'^T
//! dPsi_end = -rowsum(E (*) X dW'^T),  dPhi_end = rowsum(E (*) X dS'^T)
//! dlam_end = <dW', W>,  dold_end = -<dW', S>,  dbeta_end = <dS', S>
//! dR = s dE,  dV = -s dE,  dX = [G (*) Psi]^T Xq - diag(Psi_end) E dW' + diag(Phi_end) E dS' + s dE W
//! dW = lam_end dW' + (diag(lam) dY)^T Xq + s dE^T X,  dS = beta_end dS' - old_end dW' - (diag(old) dY)^T Xq
//! ```
//!
//! What depends on `dY` and the state alone is computed for all chunks at once; what depends on `dW'` and `dS'`, chunk after
//! chunk, from the last to the first.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;

    /// The states before each chunk, and the errors of its keys, from the state `w_start`, `s_start` before the first one.
    /// `past` keys come before those of
    /// the first chunk of `chunk` tokens.
    pub kernel omega_linear_states<T: Float>(
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
    tune { BE: [32, 16], warps: [4, 8] }
    {
        for (b, h, e) in grid(B, H, tiles(E, BE)) {
            let mut we = load(w_start[b, h, e, ..]);
            let mut se = load(s_start[b, h, e, ..]);
            for c in 0..size(C) {
                store(w[b, h, c, e, ..], we);
                store(s[b, h, c, e, ..], se);
                let oldest = c * chunk + past + chunk - size(K);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                let skipped = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0);
                let read = skipped.cast::<f32>() + dot(x, we.cast::<T>().t());
                let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                store(errors[b, h, c, .., e], error);
                let to_w = (error * load(psi_end[b, h, c, ..]).t()).cast::<T>();
                let to_s = (error * load(phi_end[b, h, c, ..]).t()).cast::<T>();
                we = load(lam_end[b, h, c]) * we - load(old_end[b, h, c]) * se - dot(to_w.t(), x);
                se = load(beta_end[b, h, c]) * se + dot(to_s.t(), x);
            }
        }
    }

    /// What the gradients `dy` of what is read give, chunk by chunk: `dq`, and the parts of `dk` and of the gradients by the
    /// errors that do not depend on later chunks.
    pub kernel omega_linear_read_backward<T: Float>(
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
    tune { BE: [32, 16], warps: [8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h, c) in grid(B, H, C) {
            let first = c * size(L);
            let oldest = first + size(P) - size(N) + size(L) - size(K);
            let alive = load(live[b, h, c, ..]).t() > 0.0;
            let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
            let xq = load(q[b, span(first, L), h, ..]).or(0.0);
            let mixed = (-dot(xq, x.t()) * load(psi[b, h, c, .., ..])).cast::<T>();
            let mut met = zeros::<f32>([L, K]);
            let mut to_q = zeros::<f32>([L, D]);
            let mut to_lam = zeros::<f32>([L, 1]);
            let mut to_old = zeros::<f32>([L, 1]);
            for e in tiles(E, BE) {
                let dye = load(dy[b, span(first, L), h, e]).or(0.0);
                let wide = dye.cast::<f32>();
                let we = load(w[b, h, c, e, ..]).cast::<T>();
                let se = load(s[b, h, c, e, ..]).cast::<T>();
                met -= dot(dye, load(errors[b, h, c, .., e]).cast::<T>().t());
                to_q += dot((load(lam[b, h, c, ..]).t() * wide).cast::<T>(), we);
                to_q -= dot((load(old[b, h, c, ..]).t() * wide).cast::<T>(), se);
                to_lam += sum(wide * dot(xq, we.t()), axis = 1);
                to_old -= sum(wide * dot(xq, se.t()), axis = 1);
                store(by_read[b, h, c, .., e], dot(mixed.t(), dye));
            }
            let met_psi = (met * load(psi[b, h, c, .., ..])).cast::<T>();
            to_q += dot(met_psi, x);
            store(dq[b, c, .., h, ..], to_q);
            store(by_key[b, h, c, .., ..], dot(met_psi.t(), xq));
            store(dpsi[b, h, c, .., ..], met * dot(xq, x.t()));
            store(dlam[b, h, c, ..], to_lam);
            store(dold[b, h, c, ..], to_old);
        }
    }

    /// From the last chunk to the first: `dw` and `ds` are the gradients by the state after the chunks, and become those by the
    /// state before them. `by_key` and `by_read` are the parts that reading gives, and become the gradients by a chunk's keys and by what the
    /// memory makes of them, less their values.
    pub kernel omega_linear_train_backward<T: Float>(
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
    tune { BE: [16, 32], warps: [8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h) in grid(B, H) {
            for i in 0..size(C) {
                let c = size(C) - 1 - i;
                // Whole columns: with `E` whole, too, the steps between rows are constants of the compiled kernel.
                let mut by_lam = zeros::<f32>([E, 16]);
                let mut by_old = zeros::<f32>([E, 16]);
                let mut by_beta = zeros::<f32>([E, 16]);
                for d in tiles(D, 16) {
                    let dwd = load(dw[b, h, .., d]);
                    let sd = load(s[b, h, c, .., d]);
                    by_lam += (dwd * load(w[b, h, c, .., d])).or(0.0);
                    by_old -= (dwd * sd).or(0.0);
                    by_beta += (load(ds[b, h, .., d]) * sd).or(0.0);
                }
                store(dlam_end[b, h, c], sum(by_lam));
                store(dold_end[b, h, c], sum(by_old));
                store(dbeta_end[b, h, c], sum(by_beta));
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let xq = load(q[b, span(first, L), h, ..]).or(0.0);
                let to_w = load(psi_end[b, h, c, ..]).t();
                let to_s = load(phi_end[b, h, c, ..]).t();
                let mut to_x = load(by_key[b, h, c, .., ..]);
                let mut by_psi = zeros::<f32>([K, 1]);
                let mut by_phi = zeros::<f32>([K, 1]);
                for e in tiles(E, BE) {
                    let dwe = load(dw[b, h, e, ..]);
                    let dse = load(ds[b, h, e, ..]);
                    let error = load(errors[b, h, c, .., e]);
                    let dwt = dwe.cast::<T>();
                    let dst = dse.cast::<T>();
                    let seen_w = dot(x, dwt.t());
                    let seen_s = dot(x, dst.t());
                    by_psi -= sum(error * seen_w, axis = 1);
                    by_phi += sum(error * seen_s, axis = 1);
                    let by_read = scale * (load(by_read[b, h, c, .., e]) - to_w * seen_w + to_s * seen_s);
                    store(by_read[b, h, c, .., e], by_read);
                    let back = select(predicts > 0, by_read, 0.0).cast::<T>();
                    to_x += dot(back, load(w[b, h, c, e, ..]).cast::<T>());
                    to_x -= dot((to_w * error).cast::<T>(), dwt);
                    to_x += dot((to_s * error).cast::<T>(), dst);
                }
                store(by_key[b, h, c, .., ..], to_x);
                for e in tiles(E, BE) {
                    let dwe = load(dw[b, h, e, ..]);
                    let dse = load(ds[b, h, e, ..]);
                    let back = select(predicts > 0, load(by_read[b, h, c, .., e]), 0.0).cast::<T>();
                    let wide = load(dy[b, span(first, L), h, e]).or(0.0).cast::<f32>();
                    let kept = (load(lam[b, h, c, ..]).t() * wide).cast::<T>();
                    let gone = (load(old[b, h, c, ..]).t() * wide).cast::<T>();
                    let w_before = load(lam_end[b, h, c]) * dwe + dot(kept.t(), xq) + dot(back.t(), x);
                    let s_before = load(beta_end[b, h, c]) * dse - load(old_end[b, h, c]) * dwe - dot(gone.t(), xq);
                    store(dw[b, h, e, ..], w_before);
                    store(ds[b, h, e, ..], s_before);
                }
                store(dpsi_end[b, h, c, ..], by_psi);
                store(dphi_end[b, h, c, ..], by_phi);
            }
        }
    }
}
