//! One step per token, on a memory with a gated hidden layer whose matrices are too large for shared memory: see [`muon`](super).

use super::orthogonal::CENTRED;
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use super::orthogonal::{copied, orthogonal_step};

    /// As [`omega_muon_tokens_gated`](super::omega_muon_tokens_gated), with features, values and a hidden layer of any width.
    ///
    /// `t1`, `t2` and `t3` are the weights in the element type of products. `hidden` is the hidden row of the last
    /// query. `iterates1`, `gram1` and `poly1` are a workspace of the steps of `W1`, whose shorter side is `R` and
    /// longer one `Q`; `iterates2`, `gram2` and `poly2` one of `W2` and of `W3`, with the sides `U` and `V`.
    pub kernel omega_muon_tokens_gated_wide<T: Float>(
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
        w3: &mut Tensor<f32, [B, H, M, D]>,
        s1: &mut Tensor<f32, [B, H, E, M]>,
        s2: &mut Tensor<f32, [B, H, M, D]>,
        s3: &mut Tensor<f32, [B, H, M, D]>,
        errors: &mut Tensor<f32, [B, H, K, E]>,
        act: &mut Tensor<T, [B, H, K, M]>,
        delta: &mut Tensor<T, [B, H, K, M]>,
        delta3: &mut Tensor<T, [B, H, K, M]>,
        hidden: &mut Tensor<T, [B, H, O, M]>,
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
            copied(w3, t3, b, h, M, D, BE, BD, like);
            let length = min(max(chunk, 1), size(K));
            // Read after its step, a token is read where the next one begins.
            let late = select(before > 0, 0.cast::<i32>(), 1);
            for c in 0..(size(N) + length - 1) / length {
                let first = c * length;
                let end = min(first + length, size(N));
                // The oldest key of the chunk, and where a token's window lies among its keys.
                let oldest = first + size(P) - size(N) + length - size(K);
                let shift = size(W) - 1 - size(K) + length + first;
                let mut weight = zeros::<f32>([1, K]);
                for t in first..end {
                    weight = max(weight, abs(load(gamma[b, t, h, span(shift - t, K)]).or(0.0)));
                }
                let alive = weight.t() != 0.0;
                for m in tiles(M, BM) {
                    let mut z = zeros::<f32>([K, BM]);
                    let mut u = zeros::<f32>([K, BM]);
                    for d in tiles(D, BD) {
                        let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                        z += dot(x, load(t2[b, h, m, d]).t());
                        u += dot(x, load(t3[b, h, m, d]).t());
                    }
                    store(act[b, h, .., m], (gelu(z) * u).cast::<T>());
                }
                for e in tiles(E, BE) {
                    let mut read = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0).cast::<f32>();
                    for m in tiles(M, BM) {
                        read += dot(load(act[b, h, .., m]), load(t1[b, h, e, m]).t());
                    }
                    let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                    let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                    store(errors[b, h, .., e], error);
                }
                for m in tiles(M, BM) {
                    let mut z = zeros::<f32>([K, BM]);
                    let mut u = zeros::<f32>([K, BM]);
                    for d in tiles(D, BD) {
                        let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                        z += dot(x, load(t2[b, h, m, d]).t());
                        u += dot(x, load(t3[b, h, m, d]).t());
                    }
                    let mut back = zeros::<f32>([K, BM]);
                    for e in tiles(E, BE) {
                        back += dot(load(errors[b, h, .., e]).cast::<T>(), load(t1[b, h, e, m]));
                    }
                    store(delta[b, h, .., m], (grad(gelu)(z) * u * back).cast::<T>());
                    store(delta3[b, h, .., m], (gelu(z) * back).cast::<T>());
                }
                for t in first..end + select(end == size(N), late, 0) {
                    for m in tiles(M, BM) {
                        let mut z = zeros::<f32>([1, BM]);
                        let mut u = zeros::<f32>([1, BM]);
                        for d in tiles(D, BD) {
                            let xq = load(q[b, span(t - late, 1), h, d]).or(0.0);
                            z += dot(xq, load(t2[b, h, m, d]).t());
                            u += dot(xq, load(t3[b, h, m, d]).t());
                        }
                        store(hidden[b, h, span(0, 1), m], (gelu(z) * u).cast::<T>());
                    }
                    for e in tiles(E, BE) {
                        let mut out = load(rq[b, span(t - late, 1), h, e]).or(0.0).cast::<f32>();
                        for m in tiles(M, BM) {
                            out += dot(load(hidden[b, h, span(0, 1), m]), load(t1[b, h, e, m]).t());
                        }
                        store(y[b, span(t - late, 1), h, e], out.cast::<T>());
                    }
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
                            for m in tiles(M, BM) {
                                let s1m = kept * load(s1[b, h, e, m]) + dot(error_s.t(), load(act[b, h, .., m]));
                                top1 = max(top1, abs(s1m).or(0.0));
                                store(s1[b, h, e, m], s1m);
                            }
                        }
                        let mut top2 = zeros::<f32>([BM, BD]);
                        let mut top3 = zeros::<f32>([BM, BD]);
                        for d in tiles(D, BD) {
                            let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                            let key_s = (x.cast::<f32>() * band).cast::<T>();
                            for m in tiles(M, BM) {
                                let s2m = kept * load(s2[b, h, m, d]) + dot(load(delta[b, h, .., m]).t(), key_s);
                                top2 = max(top2, abs(s2m).or(0.0));
                                store(s2[b, h, m, d], s2m);
                                let s3m = kept * load(s3[b, h, m, d]) + dot(load(delta3[b, h, .., m]).t(), key_s);
                                top3 = max(top3, abs(s3m).or(0.0));
                                store(s3[b, h, m, d], s3m);
                            }
                        }
                        orthogonal_step(
                            s1, w1, t1, iterates1, gram1, poly1, b, h, E, M, R, Q, BE, BD, top1, held, step, CENTRED, like
                        );
                        orthogonal_step(
                            s2, w2, t2, iterates2, gram2, poly2, b, h, M, D, U, V, BE, BD, top2, held, step, CENTRED, like
                        );
                        orthogonal_step(
                            s3, w3, t3, iterates2, gram2, poly2, b, h, M, D, U, V, BE, BD, top3, held, step, CENTRED, like
                        );
                    }
                }
            }
        }
    }
}
