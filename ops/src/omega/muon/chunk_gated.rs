//! One step per chunk, on a memory with a gated hidden layer: see [`muon`](super).

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::loss::loss_error;
    use super::forms::{factors_gated, read_gated};
    use super::iteration::{normalised, rounds, stepped, tall_step, wide_step};

    /// Reads and trains a memory with a gated hidden layer over a sequence; each chunk takes one orthogonalised step. With `before` above 0 a
    /// chunk is read before its step. With `predicts` 0 the error of a value is the value itself, made negative.
    pub kernel omega_muon_gated<T: Float>(
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
        y: &mut Tensor<T, [B, N, H, E]>,
        before: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [16], warps: [8, 4] }
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
                let xq = load(q[b, span(asked, L), h, ..]).or(0.0);
                let mut read = skipped.cast::<f32>();
                let mut out = load(rq[b, span(asked, L), h, ..]).or(0.0).cast::<f32>();
                for m in tiles(M, BM) {
                    let w1m = load(w1[b, h, .., m]).cast::<T>();
                    let w2m = load(w2[b, h, m, ..]).cast::<T>();
                    let w3m = load(w3[b, h, m, ..]).cast::<T>();
                    read += read_gated(x, w1m, w2m, w3m);
                    out += read_gated(xq, w1m, w2m, w3m);
                }
                store(y[b, span(asked, L), h, ..], out.cast::<T>());
                let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
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
                let mut top3 = zeros::<f32>([BM, D]);
                for m in tiles(M, BM) {
                    let w1m = load(w1[b, h, .., m]).cast::<T>();
                    let w2m = load(w2[b, h, m, ..]).cast::<T>();
                    let w3m = load(w3[b, h, m, ..]).cast::<T>();
                    let (hidden, slope2, slope3) = factors_gated(x, errors, w1m, w2m, w3m);
                    let s1m = s_after * load(s1[b, h, .., m]) + dot(error_s.t(), hidden);
                    let s2m = s_after * load(s2[b, h, m, ..]) + dot((to_s * slope2).cast::<T>().t(), x);
                    let s3m = s_after * load(s3[b, h, m, ..]) + dot((to_s * slope3).cast::<T>().t(), x);
                    top1 = max(top1, abs(s1m).or(0.0));
                    top2 = max(top2, abs(s2m).or(0.0));
                    top3 = max(top3, abs(s3m).or(0.0));
                    store(s1[b, h, .., m], s1m);
                    store(s2[b, h, m, ..], s2m);
                    store(s3[b, h, m, ..], s3m);
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
                let mut along3 = normalised(load(s3[b, h, .., ..]), max(top3), x);
                for _ in 0..count {
                    along3 = tall_step(along3, iota([D, D], 0) == iota([D, D], 1));
                }
                store(w3[b, h, .., ..], stepped(load(w3[b, h, .., ..]), w_after, step, along3));
            }
        }
    }
}
