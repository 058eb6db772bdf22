//! One step per chunk, on a memory of two layers with a norm: see [`muon`](super).

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use crate::omega::normed::layer_normed;
    use super::forms::{factors_mlp, read_mlp, through_norm};
    use super::iteration::{normalised, rounds, stepped, tall_step, wide_step};

    /// Reads and trains a memory of two layers with a norm over a sequence; each chunk takes one orthogonalised step. With `before` above 0 a
    /// chunk is read before its step. With `predicts` 0 the error of a value is the value itself, made negative.
    pub kernel omega_muon_normed<T: Float>(
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
        y: &mut Tensor<T, [B, N, H, E]>,
        before: i32,
        scale: f32,
        predicts: i32,
        eps: f32,
    )
    tune { BM: [32, 16], warps: [8, 4] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h) in grid(B, H) {
            // Read after its step, a chunk is read where the next one begins.
            let late = select(before > 0, 0.cast::<i32>(), 1);
            for c in 0..size(C) + late {
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                let asked = first - late * size(L);
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let xq = load(q[b, span(asked, L), h, ..]).or(0.0);
                let mut made = zeros::<f32>([K, E]);
                let mut out = zeros::<f32>([L, E]);
                for m in tiles(M, BM) {
                    let w1m = load(w1[b, h, .., m]).cast::<T>();
                    let w2m = load(w2[b, h, m, ..]).cast::<T>();
                    made += read_mlp(x, w1m, w2m);
                    out += read_mlp(xq, w1m, w2m);
                }
                let width = size(E).cast::<f32>();
                let gain = load(norm[h, ..]).cast::<f32>();
                let (unit_out, _) = layer_normed(out, width, eps);
                let residual = load(rq[b, span(asked, L), h, ..]).or(0.0).cast::<f32>();
                store(y[b, span(asked, L), h, ..], (residual + unit_out * gain).cast::<T>());
                let (unit, by) = layer_normed(made, width, eps);
                let skipped = select(alive, load(rk[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let read = skipped.cast::<f32>() + unit * gain;
                let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let outer = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                // With `eps = 0` a row of zeros has no norm. Windows reach tokens before the first one, too.
                let is_token = oldest + iota([K, 1], 0) >= 0;
                let error = select(alive && is_token, through_norm(outer * gain, unit, by, width), 0.0);
                let errors = error.cast::<T>();
                let to_s = load(phi_end[b, h, c, ..]).t();
                let error_s = (error * to_s).cast::<T>();
                // Behind the last chunk nothing changes.
                let s_after = select(c < size(C), load(beta_end[b, h, c]), 1.0);
                let w_after = select(c < size(C), load(lam_end[b, h, c]), 1.0);
                let step = load(steps[b, h, c, size(L) - 1]);
                // The greatest magnitudes, while they are in registers.
                let mut top1 = zeros::<f32>([E, BM]);
                let mut top2 = zeros::<f32>([BM, D]);
                for m in tiles(M, BM) {
                    let w1m = load(w1[b, h, .., m]).cast::<T>();
                    let (hidden, slope) = factors_mlp(x, errors, w1m, load(w2[b, h, m, ..]).cast::<T>());
                    let s1m = s_after * load(s1[b, h, .., m]) + dot(error_s.t(), hidden);
                    let s2m = s_after * load(s2[b, h, m, ..]) + dot((to_s * slope).cast::<T>().t(), x);
                    top1 = max(top1, abs(s1m).or(0.0));
                    top2 = max(top2, abs(s2m).or(0.0));
                    store(s1[b, h, .., m], s1m);
                    store(s2[b, h, m, ..], s2m);
                }
                let count = rounds(step);
                let mut along1 = normalised(load(s1[b, h, .., ..]), max(top1), x);
                for _ in 0..count {
                    along1 = wide_step(along1, iota([E, E], 0) == iota([E, E], 1));
                }
                store(w1[b, h, .., ..], stepped(load(w1[b, h, .., ..]), w_after, step, along1));
                let mut along2 = normalised(load(s2[b, h, .., ..]), max(top2), x);
                for _ in 0..count {
                    along2 = tall_step(along2, iota([D, D], 0) == iota([D, D], 1));
                }
                store(w2[b, h, .., ..], stepped(load(w2[b, h, .., ..]), w_after, step, along2));
            }
        }
    }
}
