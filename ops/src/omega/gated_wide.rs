//! The Omega rule of [`omega_gated`](super::gated) for keys, values and hidden layers of any width, with the passes of
//! [`omega_mlp_wide`](super::mlp_wide). `W3` and `S3` go with `W2` and `S2`.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::loss::loss_error;

    /// The hidden row of a gated memory.
    tile fn gated_row(z, u) { gelu(z) * u }

    /// Reads and trains a gated memory over a sequence, chunk by chunk, with rows of any width.
    ///
    /// `k`, `v` and `rk` may have more tokens than `q`: those before the first chunk, for its halo. `q` and `k` are features of
    /// `D` numbers, `v`, `y` and the residuals `rq`, `rk` have `E`. Of the last chunk, `errors` are its errors, `act` the hidden rows
    /// of its keys, `delta` and `delta3` the gradients of what `W2` and `W3` make, `hidden` the hidden rows of its queries, and
    /// `hidden3` what `W3` makes of these.
    pub kernel omega_gated_wide<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rq: &Tensor<T, [B, N, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
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
        w3: &mut Tensor<f32, [B, H, M, D]>,
        s1: &mut Tensor<f32, [B, H, E, M]>,
        s2: &mut Tensor<f32, [B, H, M, D]>,
        s3: &mut Tensor<f32, [B, H, M, D]>,
        errors: &mut Tensor<f32, [B, H, K, E]>,
        act: &mut Tensor<T, [B, H, K, M]>,
        delta: &mut Tensor<f32, [B, H, K, M]>,
        delta3: &mut Tensor<f32, [B, H, K, M]>,
        hidden: &mut Tensor<f32, [B, H, L, M]>,
        hidden3: &mut Tensor<f32, [B, H, L, M]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [32, 16], BD: [32], BE: [32], warps: [8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h) in grid(B, H) {
            for c in 0..size(C) {
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                // A token that nothing weighs may be anything, a NaN too.
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                for m in tiles(M, BM) {
                    let mut z = zeros::<f32>([K, BM]);
                    let mut u = zeros::<f32>([K, BM]);
                    let mut by_w2 = zeros::<f32>([L, BM]);
                    let mut by_s2 = zeros::<f32>([L, BM]);
                    let mut by_w3 = zeros::<f32>([L, BM]);
                    let mut by_s3 = zeros::<f32>([L, BM]);
                    for d in tiles(D, BD) {
                        let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                        let xq = load(q[b, span(first, L), h, d]).or(0.0);
                        let w2t = load(w2[b, h, m, d]).cast::<T>();
                        z += dot(x, w2t.t());
                        by_w2 += dot(xq, w2t.t());
                        by_s2 += dot(xq, load(s2[b, h, m, d]).cast::<T>().t());
                        let w3t = load(w3[b, h, m, d]).cast::<T>();
                        u += dot(x, w3t.t());
                        by_w3 += dot(xq, w3t.t());
                        by_s3 += dot(xq, load(s3[b, h, m, d]).cast::<T>().t());
                    }
                    store(act[b, h, .., m], gated_row(z, u).cast::<T>());
                    store(delta[b, h, .., m], grad(gelu)(z) * u);
                    store(delta3[b, h, .., m], gelu(z));
                    let kept = load(lam[b, h, c, ..]).t();
                    let less = load(old[b, h, c, ..]).t();
                    store(hidden[b, h, .., m], kept * by_w2 - less * by_s2);
                    store(hidden3[b, h, .., m], kept * by_w3 - less * by_s3);
                }
                for e in tiles(E, BE) {
                    let mut read = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0).cast::<f32>();
                    for m in tiles(M, BM) {
                        read += dot(load(act[b, h, .., m]), load(w1[b, h, e, m]).cast::<T>().t());
                    }
                    let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                    store(errors[b, h, .., e], loss_error(read, wanted.cast::<f32>(), scale, predicts));
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
                    let change3 = load(delta3[b, h, .., m]) * back;
                    store(delta3[b, h, .., m], change3);
                    let uq = load(hidden3[b, h, .., m]) + dot(mixed, change3.cast::<T>());
                    store(hidden3[b, h, .., m], uq);
                    let hq = gated_row(load(hidden[b, h, .., m]) + dot(mixed, change.cast::<T>()), uq);
                    store(hidden[b, h, .., m], hq);
                    met += dot(hq.cast::<T>(), load(act[b, h, .., m]).t());
                    let change_w = (change * less_w).cast::<T>();
                    let change_s = (change * to_s).cast::<T>();
                    let change3_w = (change3 * less_w).cast::<T>();
                    let change3_s = (change3 * to_s).cast::<T>();
                    for d in tiles(D, BD) {
                        let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                        let s2m = load(s2[b, h, m, d]);
                        let mut w2m = load(lam_end[b, h, c]) * load(w2[b, h, m, d]) - load(old_end[b, h, c]) * s2m;
                        w2m += dot(change_w.t(), x);
                        store(w2[b, h, m, d], w2m);
                        let mut s2n = load(beta_end[b, h, c]) * s2m;
                        s2n += dot(change_s.t(), x);
                        store(s2[b, h, m, d], s2n);
                        let s3m = load(s3[b, h, m, d]);
                        let mut w3m = load(lam_end[b, h, c]) * load(w3[b, h, m, d]) - load(old_end[b, h, c]) * s3m;
                        w3m += dot(change3_w.t(), x);
                        store(w3[b, h, m, d], w3m);
                        let mut s3n = load(beta_end[b, h, c]) * s3m;
                        s3n += dot(change3_s.t(), x);
                        store(s3[b, h, m, d], s3n);
                    }
                }
                let weighed = (-met * load(psi[b, h, c, .., ..])).cast::<T>();
                for e in tiles(E, BE) {
                    let error = load(errors[b, h, .., e]);
                    let error_w = (error * less_w).cast::<T>();
                    let error_s = (error * to_s).cast::<T>();
                    let mut out = load(rq[b, span(first, L), h, e]).or(0.0).cast::<f32>();
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
                    store(y[b, span(first, L), h, e], out.cast::<T>());
                }
            }
        }
    }
}
