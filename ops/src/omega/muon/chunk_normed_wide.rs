//! One step per chunk, on a memory of two layers with a norm whose matrices are too large for shared memory: see [`muon`](super).

use super::orthogonal::PLAIN;
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::orthogonal::{copied, orthogonal_step};
    use super::wide::{key_error_normed, key_product, key_rows, query_hidden, read_normed, store_momentum, through_w1};

    /// As [`omega_muon_normed`](super::omega_muon_normed), with features and a hidden layer of any width.
    ///
    /// `t1` and `t2` are the weights in the element type of products. Of the last chunk, `errors` are its errors,
    /// `act` the hidden rows of its keys, `delta` the gradients before the gelu, and `hidden` the hidden rows of its
    /// queries. `iterates1`, `gram1` and `poly1` are a workspace of the steps of `W1`, whose shorter side is `R` and
    /// longer one `Q`; `iterates2`, `gram2` and `poly2` one of `W2`, with the sides `U` and `V`.
    pub kernel omega_muon_normed_wide<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rq: &Tensor<T, [B, N, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        norm: &Tensor<T, [H, E]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        steps: &Tensor<f32, [B, H, C, L]>,
        w1: &mut Tensor<f32, [B, H, E, M]>,
        w2: &mut Tensor<f32, [B, H, M, D]>,
        s1: &mut Tensor<f32, [B, H, E, M]>,
        s2: &mut Tensor<f32, [B, H, M, D]>,
        errors: &mut Tensor<f32, [B, H, K, E]>,
        act: &mut Tensor<T, [B, H, K, M]>,
        delta: &mut Tensor<f32, [B, H, K, M]>,
        hidden: &mut Tensor<T, [B, H, L, M]>,
        t1: &mut Tensor<T, [B, H, E, M]>,
        t2: &mut Tensor<T, [B, H, M, D]>,
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
        eps: f32,
    )
    tune { BM: [32, 16], BD: [32, 64, 128], BE: [32, 64], warps: [8] }
    require { C * L >= N, K >= L, P >= N, R == min(E, M), Q == max(E, M), U == min(M, D), V == max(M, D), I == 2 }
    {
        for (b, h) in grid(B, H) {
            let like = zeros::<T>([1, 1]);
            copied(w1, t1, b, h, E, M, BE, BD, like);
            copied(w2, t2, b, h, M, D, BE, BD, like);
            let width = size(E).cast::<f32>();
            // Read after its step, a chunk is read where the next one begins.
            let late = select(before > 0, 0.cast::<i32>(), 1);
            for c in 0..size(C) + late {
                let first = c * size(L);
                let asked = first - late * size(L);
                query_hidden(q, t2, hidden, b, h, asked, 0, L, M, D, BM, BD, like);
                read_normed(rq, hidden, t1, norm, y, b, h, asked, 0, L, E, M, BM, width, eps, like);
                // Behind the last chunk nothing is trained.
                for _ in 0..select(c < size(C), 1.cast::<i32>(), 0) {
                    let oldest = first + size(P) - size(N) + size(L) - size(K);
                    let alive = load(live[b, h, c, ..]).t() > 0.0;
                    let to_s = load(phi_end[b, h, c, ..]).t();
                    let kept = load(beta_end[b, h, c]);
                    for m in tiles(M, BM) {
                        let z = key_product(k, t2, alive, b, h, oldest, m, K, D, BM, BD);
                        store(act[b, h, .., m], gelu(z).cast::<T>());
                        store(delta[b, h, .., m], grad(gelu)(z));
                    }
                    let error =
                        key_error_normed(v, rk, act, t1, norm, alive, b, h, oldest, K, E, M, BM, width, scale, predicts, eps);
                    store(errors[b, h, .., ..], error);
                    let error_s = (error * to_s).cast::<T>();
                    // The greatest magnitudes, while they are in registers.
                    let mut top1 = zeros::<f32>([E, BM]);
                    for m in tiles(M, BM) {
                        let s1m = kept * load(s1[b, h, .., m]) + dot(error_s.t(), load(act[b, h, .., m]));
                        top1 = max(top1, abs(s1m).or(0.0));
                        store(s1[b, h, .., m], s1m);
                    }
                    let mut top2 = zeros::<f32>([BM, BD]);
                    for m in tiles(M, BM) {
                        let back = through_w1(errors, t1, b, h, m, K, E, BM, BD, like);
                        let change = load(delta[b, h, .., m]) * back;
                        store(delta[b, h, .., m], change);
                        let change_s = (change * to_s).cast::<T>();
                        for d in tiles(D, BD) {
                            let x = key_rows(k, alive, b, h, oldest, d, K);
                            let s2m = kept * load(s2[b, h, m, d]) + dot(change_s.t(), x);
                            top2 = store_momentum(s2, b, h, m, d, s2m, top2);
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
                }
            }
        }
    }
}
