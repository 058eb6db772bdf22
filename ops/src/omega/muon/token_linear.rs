//! One step per token, on a linear memory: see [`muon`](super).

use crate::newton_schulz_small::{STEPS, UNSCALE};
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use super::iteration::{rounds, scaled_up, stepped, wide_step_about};

    /// Reads and trains a linear memory over a sequence in chunks of `chunk` tokens. `gamma` is as in `omega_mix`; with
    /// `before` above 0 a token is read before its step. `K` is the chunk and its halo. With `predicts` 0 the error of a value is
    /// the value itself, made negative.
    pub kernel omega_muon_tokens_linear<T: Float>(
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
        y: &mut Tensor<T, [B, N, H, E]>,
        chunk: i32,
        before: i32,
        scale: f32,
        predicts: i32,
    )
    tune { warps: [8, 4] }
    require { P >= N }
    {
        for (b, h) in grid(B, H) {
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
                let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let skipped = select(alive, load(rk[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let read = skipped.cast::<f32>() + dot(x, load(w[b, h, .., ..]).cast::<T>().t());
                let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                store(errors[b, h, .., ..], error);
                for t in first..end + select(end == size(N), late, 0) {
                    let xq = load(q[b, span(t - late, 1), h, ..]).or(0.0);
                    let residual = load(rq[b, span(t - late, 1), h, ..]).or(0.0).cast::<f32>();
                    let read_now = residual + dot(xq, load(w[b, h, .., ..]).cast::<T>().t());
                    store(y[b, span(t - late, 1), h, ..], read_now.cast::<T>());
                    let band = load(gamma[b, t, h, span(shift - t, K)]).or(0.0).t();
                    // Behind the last token nothing changes.
                    let kept = select(t < size(N), load(theta[b, t, h]), 1.0);
                    let held = select(t < size(N), load(alpha[b, t, h]), 1.0);
                    let step = load(eta[b, t, h]);
                    let error_s = (load(errors[b, h, .., ..]) * band).cast::<T>();
                    let momentum = kept * load(s[b, h, .., ..]) + dot(error_s.t(), x);
                    store(s[b, h, .., ..], momentum);
                    let mut along = scaled_up(momentum, max(abs(momentum)), x);
                    for i in 0..rounds(step) {
                        let on_diagonal = iota([E, E], 0) == iota([E, E], 1);
                        along = wide_step_about(along, on_diagonal, STEPS[i][0], STEPS[i][1], STEPS[i][2]);
                    }
                    store(w[b, h, .., ..], stepped(load(w[b, h, .., ..]), held, step * UNSCALE, along));
                }
            }
        }
    }
}
