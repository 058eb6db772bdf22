//! One step per token, on a memory of two layers with a norm: see [`muon`](super).

use crate::newton_schulz_small::{STEPS, UNSCALE};
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use crate::omega::normed::layer_normed;
    use super::forms::{factors_mlp, read_mlp, through_norm};
    use super::iteration::{rounds, scaled_up, stepped, tall_step_about, wide_step_about};

    /// Reads and trains a memory of two layers with a norm over a sequence in chunks of `chunk` tokens. `gamma` is as in `omega_mix`; with
    /// `before` above 0 a token is read before its step. `K` is the chunk and its halo. With `predicts` 0 the error of a value is
    /// the value itself, made negative.
    pub kernel omega_muon_tokens_normed<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rq: &Tensor<T, [B, N, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        norm: &Tensor<T, [H, E]>,
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
        y: &mut Tensor<T, [B, N, H, E]>,
        chunk: i32,
        before: i32,
        scale: f32,
        predicts: i32,
        eps: f32,
    )
    tune { BM: [32, 16], warps: [8, 4] }
    require { P >= N }
    {
        for (b, h) in grid(B, H) {
            let length = min(max(chunk, 1), size(K));
            let width = size(E).cast::<f32>();
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
                let mut made = zeros::<f32>([K, E]);
                for m in tiles(M, BM) {
                    made += read_mlp(x, load(w1[b, h, .., m]).cast::<T>(), load(w2[b, h, m, ..]).cast::<T>());
                }
                let (unit, by) = layer_normed(made, width, eps);
                let skipped = select(alive, load(rk[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let read = skipped.cast::<f32>() + unit * load(norm[h, ..]).cast::<f32>();
                let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let outer = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                // With `eps = 0` a row of zeros has no norm. Windows reach tokens before the first one, too.
                let is_token = oldest + iota([K, 1], 0) >= 0;
                let error = select(alive && is_token, through_norm(outer * load(norm[h, ..]).cast::<f32>(), unit, by, width), 0.0);
                let back = error.cast::<T>();
                store(errors[b, h, .., ..], error);
                for m in tiles(M, BM) {
                    let w1m = load(w1[b, h, .., m]).cast::<T>();
                    let (hidden, slope) = factors_mlp(x, back, w1m, load(w2[b, h, m, ..]).cast::<T>());
                    store(act[b, h, .., m], hidden);
                    store(delta[b, h, .., m], slope.cast::<T>());
                }
                for t in first..end + select(end == size(N), late, 0) {
                    let xq = load(q[b, span(t - late, 1), h, ..]).or(0.0);
                    let mut out = zeros::<f32>([1, E]);
                    for m in tiles(M, BM) {
                        out += read_mlp(xq, load(w1[b, h, .., m]).cast::<T>(), load(w2[b, h, m, ..]).cast::<T>());
                    }
                    let (unit_out, _) = layer_normed(out, width, eps);
                    let residual = load(rq[b, span(t - late, 1), h, ..]).or(0.0).cast::<f32>();
                    store(y[b, span(t - late, 1), h, ..], (residual + unit_out * load(norm[h, ..]).cast::<f32>()).cast::<T>());
                    let band = load(gamma[b, t, h, span(shift - t, K)]).or(0.0).t();
                    // Behind the last token nothing changes.
                    let kept = select(t < size(N), load(theta[b, t, h]), 1.0);
                    let held = select(t < size(N), load(alpha[b, t, h]), 1.0);
                    let step = load(eta[b, t, h]);
                    let error_s = (load(errors[b, h, .., ..]) * band).cast::<T>();
                    let key_s = (x.cast::<f32>() * band).cast::<T>();
                    // The greatest magnitudes, while they are in registers.
                    let mut top1 = zeros::<f32>([E, BM]);
                    let mut top2 = zeros::<f32>([BM, D]);
                    for m in tiles(M, BM) {
                        let s1m = kept * load(s1[b, h, .., m]) + dot(error_s.t(), load(act[b, h, .., m]));
                        let s2m = kept * load(s2[b, h, m, ..]) + dot(load(delta[b, h, .., m]).t(), key_s);
                        top1 = max(top1, abs(s1m).or(0.0));
                        top2 = max(top2, abs(s2m).or(0.0));
                        store(s1[b, h, .., m], s1m);
                        store(s2[b, h, m, ..], s2m);
                    }
                    let count = rounds(step);
                    let mut along1 = scaled_up(load(s1[b, h, .., ..]), max(top1), x);
                    for i in 0..count {
                        let on_diagonal = iota([E, E], 0) == iota([E, E], 1);
                        along1 = wide_step_about(along1, on_diagonal, STEPS[i][0], STEPS[i][1], STEPS[i][2]);
                    }
                    store(w1[b, h, .., ..], stepped(load(w1[b, h, .., ..]), held, step * UNSCALE, along1));
                    let mut along2 = scaled_up(load(s2[b, h, .., ..]), max(top2), x);
                    for i in 0..count {
                        let on_diagonal = iota([D, D], 0) == iota([D, D], 1);
                        along2 = tall_step_about(along2, on_diagonal, STEPS[i][0], STEPS[i][1], STEPS[i][2]);
                    }
                    store(w2[b, h, .., ..], stepped(load(w2[b, h, .., ..]), held, step * UNSCALE, along2));
                }
            }
        }
    }
}
