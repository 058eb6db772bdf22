//! The Omega rule of [`omega_normed`](super::normed) for keys, values and hidden layers of any width, with the passes of
//! [`omega_mlp_wide`](super::mlp_wide). A norm needs whole rows of `E` elements: what stands before it is kept in global memory, and
//! read once for each sum that the norm and its Jacobian take.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::loss::loss_error;

    /// The gradient of the loss with respect to a normed row, of what its weight makes of it.
    tile fn pulled(unit, weight, skipped, wanted, scale, predicts) {
        weight * loss_error(skipped + unit * weight, wanted, scale, predicts)
    }

    /// Reads and trains a memory of two layers with a norm inside over a sequence, chunk by chunk, with rows of any width.
    ///
    /// `k`, `v` and `rk` may have more tokens than `q`: those before the first chunk, for its halo. `q` and `k` are features of
    /// `D` numbers, `v`, `y`, the residuals `rq`, `rk` and `norm` have `E`. Of the last chunk, `errors` are its errors, `act` the hidden rows
    /// of its keys, `delta` the gradients before the gelu, `hidden` the hidden rows of its queries, and `outs` what `W1` makes of
    /// these.
    pub kernel omega_normed_wide<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rq: &Tensor<T, [B, N, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        norm: &Tensor<T, [H, E]>,
        psi: &Tensor<f32, [B, H, C, L, K]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        old_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        w1: &mut Tensor<f32, [B, H, E, M]>,
        w2: &mut Tensor<f32, [B, H, M, D]>,
        s1: &mut Tensor<f32, [B, H, E, M]>,
        s2: &mut Tensor<f32, [B, H, M, D]>,
        errors: &mut Tensor<f32, [B, H, K, E]>,
        act: &mut Tensor<T, [B, H, K, M]>,
        delta: &mut Tensor<f32, [B, H, K, M]>,
        hidden: &mut Tensor<f32, [B, H, L, M]>,
        outs: &mut Tensor<f32, [B, H, L, E]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        scale: f32,
        predicts: i32,
        eps: f32,
    )
    tune { BM: [32, 16, 64], BD: [64, 32], BE: [32], warps: [8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h) in grid(B, H) {
            for c in 0..size(C) {
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                // A token that nothing weighs may be anything, a NaN too.
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let count = size(E).cast::<f32>();
                for m in tiles(M, BM) {
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
                    store(delta[b, h, .., m], grad(gelu)(z));
                    store(hidden[b, h, .., m], load(lam[b, h, c, ..]).t() * by_w - load(old[b, h, c, ..]).t() * by_s);
                }
                let mut total = zeros::<f32>([K, 1]);
                for e in tiles(E, BE) {
                    let mut product = zeros::<f32>([K, BE]);
                    for m in tiles(M, BM) {
                        product += dot(load(act[b, h, .., m]), load(w1[b, h, e, m]).cast::<T>().t());
                    }
                    total += sum(product, axis = 1);
                    store(errors[b, h, .., e], product);
                }
                let mean = total / count;
                // Once more: what the mean was rounded by would be all that a row of equal numbers has.
                let mut off = zeros::<f32>([K, 1]);
                for e in tiles(E, BE) {
                    off += sum(load(errors[b, h, .., e]) - mean, axis = 1);
                }
                let rest = off / count;
                let mut squares = zeros::<f32>([K, 1]);
                for e in tiles(E, BE) {
                    let centred = load(errors[b, h, .., e]) - mean - rest;
                    squares += sum(centred * centred, axis = 1);
                }
                let by = rsqrt(squares / count + eps);
                let mut total_g = zeros::<f32>([K, 1]);
                let mut along = zeros::<f32>([K, 1]);
                for e in tiles(E, BE) {
                    let unit = (load(errors[b, h, .., e]) - mean - rest) * by;
                    let weight = load(norm[h, e]).cast::<f32>();
                    let skipped = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0);
                    let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                    let g = pulled(unit, weight, skipped.cast::<f32>(), wanted.cast::<f32>(), scale, predicts);
                    total_g += sum(g, axis = 1);
                    along += sum(g * unit, axis = 1);
                }
                // With `eps = 0` a row of zeros has no norm. Windows reach tokens before the first one, too.
                let is_token = oldest + iota([K, 1], 0) >= 0;
                for e in tiles(E, BE) {
                    let unit = (load(errors[b, h, .., e]) - mean - rest) * by;
                    let weight = load(norm[h, e]).cast::<f32>();
                    let skipped = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0);
                    let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                    let g = pulled(unit, weight, skipped.cast::<f32>(), wanted.cast::<f32>(), scale, predicts);
                    let through = by * (g - total_g / count - unit * (along / count));
                    store(errors[b, h, .., e], select(alive && is_token, through, 0.0));
                }
                let mut alike = zeros::<f32>([L, K]);
                for d in tiles(D, BD) {
                    let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                    alike += dot(load(q[b, span(first, L), h, d]).or(0.0), x.t());
                }
                let mixed = (-alike * load(psi[b, h, c, .., ..])).cast::<T>();
                let to_w = load(psi_end[b, h, c, ..]).t();
                let to_s = load(phi_end[b, h, c, ..]).t();
                // What is taken off is made negative, so that products add to what they meet in place.
                let less_w = -to_w;
                let mut met = zeros::<f32>([L, K]);
                for m in tiles(M, BM) {
                    let mut back = zeros::<f32>([K, BM]);
                    for e in tiles(E, BE) {
                        back += dot(load(errors[b, h, .., e]).cast::<T>(), load(w1[b, h, e, m]).cast::<T>());
                    }
                    let change = load(delta[b, h, .., m]) * back;
                    store(delta[b, h, .., m], change);
                    let hq = gelu(load(hidden[b, h, .., m]) + dot(mixed, change.cast::<T>()));
                    store(hidden[b, h, .., m], hq);
                    met += dot(hq.cast::<T>(), load(act[b, h, .., m]).t());
                    let change_w = (change * less_w).cast::<T>();
                    let change_s = (change * to_s).cast::<T>();
                    for d in tiles(D, BD) {
                        let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                        let s2m = load(s2[b, h, m, d]);
                        let mut w2m = load(lam_end[b, h, c]) * load(w2[b, h, m, d]) - load(old_end[b, h, c]) * s2m;
                        w2m += dot(change_w.t(), x);
                        store(w2[b, h, m, d], w2m);
                        let mut s2n = load(beta_end[b, h, c]) * s2m;
                        s2n += dot(change_s.t(), x);
                        store(s2[b, h, m, d], s2n);
                    }
                }
                let weighed = (-met * load(psi[b, h, c, .., ..])).cast::<T>();
                let mut total_q = zeros::<f32>([L, 1]);
                for e in tiles(E, BE) {
                    let error = load(errors[b, h, .., e]);
                    let error_w = (error * less_w).cast::<T>();
                    let error_s = (error * to_s).cast::<T>();
                    let mut out = zeros::<f32>([L, BE]);
                    out += dot(weighed, error.cast::<T>());
                    for m in tiles(M, BM) {
                        let hq = load(hidden[b, h, .., m]);
                        let w1m = load(w1[b, h, e, m]);
                        let s1m = load(s1[b, h, e, m]);
                        out += dot((hq * load(lam[b, h, c, ..]).t()).cast::<T>(), w1m.cast::<T>().t());
                        out -= dot((hq * load(old[b, h, c, ..]).t()).cast::<T>(), s1m.cast::<T>().t());
                        let a = load(act[b, h, .., m]);
                        let mut w1n = load(lam_end[b, h, c]) * w1m - load(old_end[b, h, c]) * s1m;
                        w1n += dot(error_w.t(), a);
                        store(w1[b, h, e, m], w1n);
                        let mut s1n = load(beta_end[b, h, c]) * s1m;
                        s1n += dot(error_s.t(), a);
                        store(s1[b, h, e, m], s1n);
                    }
                    total_q += sum(out, axis = 1);
                    store(outs[b, h, .., e], out);
                }
                let mean_q = total_q / count;
                let mut off_q = zeros::<f32>([L, 1]);
                for e in tiles(E, BE) {
                    off_q += sum(load(outs[b, h, .., e]) - mean_q, axis = 1);
                }
                let rest_q = off_q / count;
                let mut squares_q = zeros::<f32>([L, 1]);
                for e in tiles(E, BE) {
                    let centred = load(outs[b, h, .., e]) - mean_q - rest_q;
                    squares_q += sum(centred * centred, axis = 1);
                }
                let by_q = rsqrt(squares_q / count + eps);
                for e in tiles(E, BE) {
                    let unit = (load(outs[b, h, .., e]) - mean_q - rest_q) * by_q;
                    let skipped = load(rq[b, span(first, L), h, e]).or(0.0).cast::<f32>();
                    let read = skipped + unit * load(norm[h, e]).cast::<f32>();
                    store(y[b, span(first, L), h, e], read.cast::<T>());
                }
            }
        }
    }
}
