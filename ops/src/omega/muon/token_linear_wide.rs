//! One step per token, on a linear memory whose matrix is too large for shared memory: see [`muon`](super).

use super::orthogonal::CENTRED;
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::orthogonal::{copied, orthogonal_step};
    use super::wide::{key_error_linear, key_rows, read_linear, store_momentum, weighed_keys};

    /// As [`omega_muon_tokens_linear`](super::omega_muon_tokens_linear), with keys and values of any width.
    ///
    /// `t` is the memory in the element type of products. `errors` are those of the last chunk. `iterates`, `gram`
    /// and `poly` are a workspace of its steps: `R` is the shorter side of the memory, and `Q` the longer one.
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
        iterates: &mut Tensor<T, [B, H, I, R, Q]>,
        gram: &mut Tensor<f32, [B, H, R, R]>,
        poly: &mut Tensor<T, [B, H, R, R]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        chunk: i32,
        before: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BD: [32, 64, 128], BE: [32, 64], warps: [8] }
    require { P >= N, R == min(E, D), Q == max(E, D), I == 2 }
    {
        for (b, h) in grid(B, H) {
            let like = zeros::<T>([1, 1]);
            copied(w, t, b, h, E, D, BE, BD, like);
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
                for e in tiles(E, BE) {
                    let error = key_error_linear(k, v, rk, t, alive, b, h, oldest, e, K, D, BD, scale, predicts);
                    store(errors[b, h, .., e], error);
                }
                for n in first..end + select(end == size(N), late, 0) {
                    read_linear(q, rq, t, y, b, h, n, late, 1, E, D, BE, BD, like);
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
                                let x = key_rows(k, alive, b, h, oldest, d, K);
                                let sd = kept * load(s[b, h, e, d]) + dot(error_s.t(), x);
                                top = store_momentum(s, b, h, e, d, sd, top);
                            }
                        }
                        orthogonal_step(
                            s, w, t, iterates, gram, poly, b, h, E, D, R, Q, BE, BD, top, held, step, CENTRED, like
                        );
                    }
                }
            }
        }
    }
}
