//! One step per chunk, on a linear memory: see [`muon`](super).

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use super::iteration::{normalised, rounds, stepped, wide_step};

    /// Reads and trains a linear memory over a sequence; each chunk takes one orthogonalised step. With `before` above 0 a chunk is
    /// read before its step. With `predicts` 0 the error of a value is the value itself, made negative.
    pub kernel omega_muon_linear<T: Float>(
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
        w: &mut Tensor<f32, [B, H, E, D]>,
        s: &mut Tensor<f32, [B, H, E, D]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        before: i32,
        scale: f32,
        predicts: i32,
    )
    tune { warps: [8, 4] }
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
                let skipped = select(alive, load(rk[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let xq = load(q[b, span(asked, L), h, ..]).or(0.0);
                let residual = load(rq[b, span(asked, L), h, ..]).or(0.0).cast::<f32>();
                let before_step = load(w[b, h, .., ..]).cast::<T>();
                store(y[b, span(asked, L), h, ..], (residual + dot(xq, before_step.t())).cast::<T>());
                let read = skipped.cast::<f32>() + dot(x, before_step.t());
                let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                let error_s = (error * load(phi_end[b, h, c, ..]).t()).cast::<T>();
                // Behind the last chunk nothing changes.
                let s_after = select(c < size(C), load(beta_end[b, h, c]), 1.0);
                let w_after = select(c < size(C), load(lam_end[b, h, c]), 1.0);
                let step = load(steps[b, h, c, size(L) - 1]);
                let momentum = s_after * load(s[b, h, .., ..]) + dot(error_s.t(), x);
                store(s[b, h, .., ..], momentum);
                let mut along = normalised(momentum, max(abs(momentum)), x);
                for _ in 0..rounds(step) {
                    along = wide_step(along, iota([E, E], 0) == iota([E, E], 1));
                }
                store(w[b, h, .., ..], stepped(load(w[b, h, .., ..]), w_after, step, along));
            }
        }
    }
}
