//! One step per token, on a memory of two layers whose matrices are too large for shared memory: see [`muon`](super).

use super::orthogonal::CENTRED;
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::orthogonal::{copied, orthogonal_step};
    use super::wide::{
        key_error, key_product, key_rows, momentum_row, query_hidden, read_hidden, store_momentum, through_w1,
        weighed_keys,
    };

    /// As [`omega_muon_tokens`](super::omega_muon_tokens), with features, values and a hidden layer of any width.
    ///
    /// `t1` and `t2` are the weights in the element type of products. `hidden` is the hidden row of the last query.
    /// `iterates1`, `gram1` and `poly1` are a workspace of the steps of `W1`, whose shorter side is `R` and longer
    /// one `Q`; `iterates2`, `gram2` and `poly2` one of `W2`, with the sides `U` and `V`.
    pub kernel omega_muon_tokens_wide<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rq: &Tensor<T, [B, N, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        alpha: &Tensor<f32, [B, N, H]>,
        theta: &Tensor<f32, [B, N, H]>,
        eta: &Tensor<f32, [B, N, H]>,
        gamma: &Tensor<f32, [B, N, H, W]>,
        w1: &mut Tensor<f32, [B, H, E, M]>,
        w2: &mut Tensor<f32, [B, H, M, D]>,
        s1: &mut Tensor<f32, [B, H, E, M]>,
        s2: &mut Tensor<f32, [B, H, M, D]>,
        errors: &mut Tensor<f32, [B, H, K, E]>,
        act: &mut Tensor<T, [B, H, K, M]>,
        delta: &mut Tensor<T, [B, H, K, M]>,
        hidden: &mut Tensor<T, [B, H, O, M]>,
        t1: &mut Tensor<T, [B, H, E, M]>,
        t2: &mut Tensor<T, [B, H, M, D]>,
        iterates1: &mut Tensor<T, [B, H, I, R, Q]>,
        gram1: &mut Tensor<f32, [B, H, R, R]>,
        poly1: &mut Tensor<T, [B, H, R, R]>,
        iterates2: &mut Tensor<T, [B, H, I, U, V]>,
        gram2: &mut Tensor<f32, [B, H, U, U]>,
        poly2: &mut Tensor<T, [B, H, U, U]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        chunk: i32,
        before: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [32, 16], BD: [32, 64, 128], BE: [32, 64], warps: [8] }
    require { P >= N, R == min(E, M), Q == max(E, M), U == min(M, D), V == max(M, D), I == 2, O == 1 }
    {
        for (b, h) in grid(B, H) {
            let like = zeros::<T>([1, 1]);
            copied(w1, t1, b, h, E, M, BE, BD, like);
            copied(w2, t2, b, h, M, D, BE, BD, like);
            let length = min(max(chunk, 1), size(K));
            // Read after its step, a token is read where the next one begins.
            let late = select(before > 0, 0.cast::<i32>(), 1);
            for c in 0..(size(N) + length - 1) / length {
                let first = c * length;
                let end = min(first + length, size(N));
                // The oldest key of the chunk, and where a token's window lies among its keys.
                let oldest = first + size(P) - size(N) + length - size(K);
                let shift = size(W) - 1 - size(K) + length + first;
                let alive = weighed_keys(gamma, b, h, first, end, shift, K);
                for m in tiles(M, BM) {
                    let z = key_product(k, t2, alive, b, h, oldest, m, K, D, BM, BD);
                    store(act[b, h, .., m], gelu(z).cast::<T>());
                }
                for e in tiles(E, BE) {
                    let error = key_error(v, rk, act, t1, alive, b, h, oldest, e, K, M, BM, scale, predicts);
                    store(errors[b, h, .., e], error);
                }
                for m in tiles(M, BM) {
                    let z = key_product(k, t2, alive, b, h, oldest, m, K, D, BM, BD);
                    let back = through_w1(errors, t1, b, h, m, K, E, BM, BE, like);
                    store(delta[b, h, .., m], (grad(gelu)(z) * back).cast::<T>());
                }
                for t in first..end + select(end == size(N), late, 0) {
                    query_hidden(q, t2, hidden, b, h, t, late, 1, M, D, BM, BD, like);
                    read_hidden(rq, hidden, t1, y, b, h, t, late, 1, E, M, BE, BM, like);
                    // Behind the last token nothing is trained.
                    for _ in 0..select(t < size(N), 1.cast::<i32>(), 0) {
                        let band = load(gamma[b, t, h, span(shift - t, K)]).or(0.0).t();
                        let kept = load(theta[b, t, h]);
                        let held = load(alpha[b, t, h]);
                        let step = load(eta[b, t, h]);
                        // The greatest magnitudes, while they are in registers.
                        let mut top1 = zeros::<f32>([BE, BM]);
                        for e in tiles(E, BE) {
                            let error_s = (load(errors[b, h, .., e]) * band).cast::<T>();
                            top1 = momentum_row(s1, act, b, h, e, kept, error_s, top1, M, BM);
                        }
                        let mut top2 = zeros::<f32>([BM, BD]);
                        for d in tiles(D, BD) {
                            let x = key_rows(k, alive, b, h, oldest, d, K);
                            let key_s = (x.cast::<f32>() * band).cast::<T>();
                            for m in tiles(M, BM) {
                                let s2m = kept * load(s2[b, h, m, d]) + dot(load(delta[b, h, .., m]).t(), key_s);
                                top2 = store_momentum(s2, b, h, m, d, s2m, top2);
                            }
                        }
                        orthogonal_step(
                            s1, w1, t1, iterates1, gram1, poly1, b, h, E, M, R, Q, BE, BD, top1, held, step, CENTRED, like
                        );
                        orthogonal_step(
                            s2, w2, t2, iterates2, gram2, poly2, b, h, M, D, U, V, BE, BD, top2, held, step, CENTRED, like
                        );
                    }
                }
            }
        }
    }
}
