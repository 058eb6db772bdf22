//! One step per chunk, on a memory with a gated hidden layer whose matrices are too large for shared memory: see [`muon`](super).

use super::orthogonal::PLAIN;
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use super::orthogonal::{copied, orthogonal_step};

    /// As [`omega_muon_gated`](super::omega_muon_gated), with features, values and a hidden layer of any width.
    ///
    /// `t1`, `t2` and `t3` are the weights in the element type of products. Of the last chunk, `errors` are its
    /// errors, `act` the hidden rows of its keys, `delta` and `delta3` the gradients of what `W2` and `W3` make, and
    /// `hidden` the hidden rows of its queries. `iterates1`, `gram1` and `poly1` are a workspace of the steps of
    /// `W1`, whose shorter side is `R` and longer one `Q`; `iterates2`, `gram2` and `poly2` one of `W2` and of `W3`,
    /// with the sides `U` and `V`.
    pub kernel omega_muon_gated_wide<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rq: &Tensor<T, [B, N, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        steps: &Tensor<f32, [B, H, C, L]>,
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
        hidden: &mut Tensor<T, [B, H, L, M]>,
        t1: &mut Tensor<T, [B, H, E, M]>,
        t2: &mut Tensor<T, [B, H, M, D]>,
        t3: &mut Tensor<T, [B, H, M, D]>,
        iterates1: &mut Tensor<T, [B, H, I, R, Q]>,
        gram1: &mut Tensor<f32, [B, H, R, R]>,
        poly1: &mut Tensor<T, [B, H, R, R]>,
        iterates2: &mut Tensor<T, [B, H, I, U, V]>,
        gram2: &mut Tensor<f32, [B, H, U, U]>,
        poly2: &mut Tensor<T, [B, H, U, U]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        before: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [32, 16], BD: [32, 64], BE: [32, 64], warps: [8] }
    require { C * L >= N, K >= L, P >= N, R == min(E, M), Q == max(E, M), U == min(M, D), V == max(M, D), I == 2 }
    {
        for (b, h) in grid(B, H) {
            let like = zeros::<T>([1, 1]);
            copied(w1, t1, b, h, E, M, BE, BD, like);
            copied(w2, t2, b, h, M, D, BE, BD, like);
            copied(w3, t3, b, h, M, D, BE, BD, like);
            // Read after its step, a chunk is read where the next one begins.
            let late = select(before > 0, 0.cast::<i32>(), 1);
            for c in 0..size(C) + late {
                let first = c * size(L);
                let asked = first - late * size(L);
                for m in tiles(M, BM) {
                    let mut z = zeros::<f32>([L, BM]);
                    let mut u = zeros::<f32>([L, BM]);
                    for d in tiles(D, BD) {
                        let xq = load(q[b, span(asked, L), h, d]).or(0.0);
                        z += dot(xq, load(t2[b, h, m, d]).t());
                        u += dot(xq, load(t3[b, h, m, d]).t());
                    }
                    store(hidden[b, h, .., m], (gelu(z) * u).cast::<T>());
                }
                for e in tiles(E, BE) {
                    let mut out = load(rq[b, span(asked, L), h, e]).or(0.0).cast::<f32>();
                    for m in tiles(M, BM) {
                        out += dot(load(hidden[b, h, .., m]), load(t1[b, h, e, m]).t());
                    }
                    store(y[b, span(asked, L), h, e], out.cast::<T>());
                }
                // Behind the last chunk nothing is trained.
                for _ in 0..select(c < size(C), 1.cast::<i32>(), 0) {
                    let oldest = first + size(P) - size(N) + size(L) - size(K);
                    let alive = load(live[b, h, c, ..]).t() > 0.0;
                    let to_s = load(phi_end[b, h, c, ..]).t();
                    let s_after = load(beta_end[b, h, c]);
                    for m in tiles(M, BM) {
                        let mut z = zeros::<f32>([K, BM]);
                        let mut u = zeros::<f32>([K, BM]);
                        for d in tiles(D, BD) {
                            let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                            z += dot(x, load(t2[b, h, m, d]).t());
                            u += dot(x, load(t3[b, h, m, d]).t());
                        }
                        store(act[b, h, .., m], (gelu(z) * u).cast::<T>());
                        store(delta[b, h, .., m], grad(gelu)(z) * u);
                        store(delta3[b, h, .., m], gelu(z));
                    }
                    // The greatest magnitudes, while they are in registers.
                    let mut top1 = zeros::<f32>([BE, BM]);
                    for e in tiles(E, BE) {
                        let mut read = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0).cast::<f32>();
                        for m in tiles(M, BM) {
                            read += dot(load(act[b, h, .., m]), load(t1[b, h, e, m]).t());
                        }
                        let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                        let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                        store(errors[b, h, .., e], error);
                        let error_s = (error * to_s).cast::<T>();
                        for m in tiles(M, BM) {
                            let s1m = s_after * load(s1[b, h, e, m]) + dot(error_s.t(), load(act[b, h, .., m]));
                            top1 = max(top1, abs(s1m).or(0.0));
                            store(s1[b, h, e, m], s1m);
                        }
                    }
                    let mut top2 = zeros::<f32>([BM, BD]);
                    let mut top3 = zeros::<f32>([BM, BD]);
                    for m in tiles(M, BM) {
                        let mut back = zeros::<f32>([K, BM]);
                        for e in tiles(E, BE) {
                            back += dot(load(errors[b, h, .., e]).cast::<T>(), load(t1[b, h, e, m]));
                        }
                        let change = load(delta[b, h, .., m]) * back;
                        store(delta[b, h, .., m], change);
                        let change_s = (change * to_s).cast::<T>();
                        let change3 = load(delta3[b, h, .., m]) * back;
                        store(delta3[b, h, .., m], change3);
                        let change3_s = (change3 * to_s).cast::<T>();
                        for d in tiles(D, BD) {
                            let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                            let s2m = s_after * load(s2[b, h, m, d]) + dot(change_s.t(), x);
                            top2 = max(top2, abs(s2m).or(0.0));
                            store(s2[b, h, m, d], s2m);
                            let s3m = s_after * load(s3[b, h, m, d]) + dot(change3_s.t(), x);
                            top3 = max(top3, abs(s3m).or(0.0));
                            store(s3[b, h, m, d], s3m);
                        }
                    }
                    let step = load(steps[b, h, c, size(L) - 1]);
                    let held = load(lam_end[b, h, c]);
                    orthogonal_step(
                        s1, w1, t1, iterates1, gram1, poly1, b, h, E, M, R, Q, BE, BD, top1, held, step, PLAIN, like
                    );
                    orthogonal_step(
                        s2, w2, t2, iterates2, gram2, poly2, b, h, M, D, U, V, BE, BD, top2, held, step, PLAIN, like
                    );
                    orthogonal_step(
                        s3, w3, t3, iterates2, gram2, poly2, b, h, M, D, U, V, BE, BD, top3, held, step, PLAIN, like
                    );
                }
            }
        }
    }
}
