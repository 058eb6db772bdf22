//! One step per token, on a linear memory whose matrix is too large for shared memory: see [`muon`](super).

use crate::newton_schulz_small::UNSCALE;
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use super::iteration::{moves, of_gram_about, scaled_over_norm, squarable, squared, started, stepped};

    /// As [`omega_muon_tokens_linear`](super::omega_muon_tokens_linear), with keys of any width.
    ///
    /// `t` is the memory in the element type of products; while it steps, the iteration. `errors` are those of the last chunk.
    pub kernel omega_muon_tokens_linear_wide<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rq: &Tensor<T, [B, N, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        alpha: &Tensor<f32, [B, N, H]>,
        theta: &Tensor<f32, [B, N, H]>,
        eta: &Tensor<f32, [B, N, H]>,
        gamma: &Tensor<f32, [B, N, H, W]>,
        w: &mut Tensor<f32, [B, H, E, D]>,
        s: &mut Tensor<f32, [B, H, E, D]>,
        errors: &mut Tensor<f32, [B, H, K, E]>,
        t: &mut Tensor<T, [B, H, E, D]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        chunk: i32,
        before: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BD: [32, 16, 64], BE: [32, 64], warps: [8] }
    require { P >= N }
    {
        for (b, h) in grid(B, H) {
            for d in tiles(D, BD) {
                store(t[b, h, .., d], load(w[b, h, .., d]).cast::<T>());
            }
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
                for n in first..end {
                    weight = max(weight, abs(load(gamma[b, n, h, span(shift - n, K)]).or(0.0)));
                }
                let alive = weight.t() != 0.0;
                for e in tiles(E, BE) {
                    let mut read = select(alive, load(rk[b, span(oldest, K), h, e]).or(0.0), 0.0).cast::<f32>();
                    for d in tiles(D, BD) {
                        let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                        read += dot(x, load(t[b, h, e, d]).t());
                    }
                    let wanted = select(alive, load(v[b, span(oldest, K), h, e]).or(0.0), 0.0);
                    let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                    store(errors[b, h, .., e], error);
                }
                for n in first..end + select(end == size(N), late, 0) {
                    for e in tiles(E, BE) {
                        let mut out = load(rq[b, span(n - late, 1), h, e]).or(0.0).cast::<f32>();
                        for d in tiles(D, BD) {
                            out += dot(load(q[b, span(n - late, 1), h, d]).or(0.0), load(t[b, h, e, d]).t());
                        }
                        store(y[b, span(n - late, 1), h, e], out.cast::<T>());
                    }
                    // Behind the last token nothing is trained.
                    for _ in 0..select(n < size(N), 1.cast::<i32>(), 0) {
                        let band = load(gamma[b, n, h, span(shift - n, K)]).or(0.0).t();
                        let kept = load(theta[b, n, h]);
                        let held = load(alpha[b, n, h]);
                        let step = load(eta[b, n, h]);
                        // The greatest magnitudes, while they are in registers.
                        let mut top = zeros::<f32>([BE, BD]);
                        for e in tiles(E, BE) {
                            let error_s = (load(errors[b, h, .., e]) * band).cast::<T>();
                            for d in tiles(D, BD) {
                                let x = select(alive, load(k[b, span(oldest, K), h, d]).or(0.0), 0.0);
                                let sd = kept * load(s[b, h, e, d]) + dot(error_s.t(), x);
                                top = max(top, abs(sd).or(0.0));
                                store(s[b, h, e, d], sd);
                            }
                        }
                        let like = zeros::<T>([1, 1]);
                        for _ in 0..moves(step) {
                            let unit = squarable(max(top));
                            let mut squares = zeros::<f32>([E, BD]);
                            for d in tiles(D, BD) {
                                squares += squared(load(s[b, h, .., d]), unit);
                            }
                            let by = scaled_over_norm(sum(squares), unit);
                            let mut gram = zeros::<f32>([E, E]);
                            for d in tiles(D, BD) {
                                let along = started(load(s[b, h, .., d]), unit, by, like);
                                store(t[b, h, .., d], along);
                                gram += dot(along, along.t());
                            }
                            for i in 0..5 {
                                let p = of_gram_about(gram, like, iota([E, E], 0) == iota([E, E], 1), i);
                                gram = zeros::<f32>([E, E]);
                                for d in tiles(D, BD) {
                                    let along = dot(p, load(t[b, h, .., d])).cast::<T>();
                                    store(t[b, h, .., d], along);
                                    gram += dot(along, along.t());
                                }
                            }
                        }
                        for d in tiles(D, BD) {
                            let after = stepped(load(w[b, h, .., d]), held, step * UNSCALE, load(t[b, h, .., d]));
                            store(w[b, h, .., d], after);
                            store(t[b, h, .., d], after.cast::<T>());
                        }
                    }
                }
            }
        }
    }
}
