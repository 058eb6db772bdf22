//! One step of a memory of two layers on a window of tokens, with Newton-Schulz or without it.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::forms::{factors_mlp, read_mlp};
    use super::iteration::{normalised, tall_step, wide_step};

    /// One step of both matrices of a memory on a window of tokens: weighted gradients, momentum, `count` steps of
    /// Newton-Schulz, and the update, in place.
    ///
    /// `S <- theta S + sum_i c_i grad l_i`, `W <- alpha W - eta NS(S)`; `loss = sum_i c_i l_i`, infinite where the squares of
    /// the errors are. A token of weight 0 may be anything. With `predicts` 0 the loss is `-scale <M(x), v>`.
    pub kernel fused_optimization<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        v: &Tensor<T, [G, N, E]>,
        r: &Tensor<T, [G, N, E]>,
        c: &Tensor<f32, [G, N]>,
        alpha: &Tensor<f32, [G]>,
        theta: &Tensor<f32, [G]>,
        eta: &Tensor<f32, [G]>,
        w1: &mut Tensor<f32, [G, E, M]>,
        w2: &mut Tensor<f32, [G, M, D]>,
        s1: &mut Tensor<f32, [G, E, M]>,
        s2: &mut Tensor<f32, [G, M, D]>,
        loss: &mut Tensor<f32, [G]>,
        scale: f32,
        predicts: i32,
        count: i32,
    )
    tune { BM: [32, 16, 64], warps: [8, 4] }
    {
        for g in grid(G) {
            let weight = load(c[g, ..]).t();
            let xs = select(weight == 0.0, 0.0, load(x[g, .., ..]));
            let skipped = select(weight == 0.0, 0.0, load(r[g, .., ..]));
            let mut read = skipped.cast::<f32>();
            for m in tiles(M, BM) {
                read += read_mlp(xs, load(w1[g, .., m]).cast::<T>(), load(w2[g, m, ..]).cast::<T>());
            }
            let wanted = select(weight == 0.0, 0.0, load(v[g, .., ..]));
            let target = wanted.cast::<f32>();
            let e = select(predicts > 0, read, 0.0) - target;
            store(loss[g], scale * sum(weight * select(predicts > 0, 0.5 * e * e, -read * target)));
            let error = e * scale;
            let errors = error.cast::<T>();
            let weighted = (error * weight).cast::<T>();
            let kept = load(theta[g]);
            // The greatest magnitudes, while they are in registers.
            let mut top1 = zeros::<f32>([E, BM]);
            let mut top2 = zeros::<f32>([BM, D]);
            for m in tiles(M, BM) {
                let w1m = load(w1[g, .., m]).cast::<T>();
                let (hidden, slope) = factors_mlp(xs, errors, w1m, load(w2[g, m, ..]).cast::<T>());
                let s1m = kept * load(s1[g, .., m]) + dot(weighted.t(), hidden);
                let s2m = kept * load(s2[g, m, ..]) + dot((weight * slope).cast::<T>().t(), xs);
                top1 = max(top1, abs(s1m).or(0.0));
                top2 = max(top2, abs(s2m).or(0.0));
                store(s1[g, .., m], s1m);
                store(s2[g, m, ..], s2m);
            }
            let held = load(alpha[g]);
            let step = load(eta[g]);
            let mut along1 = normalised(load(s1[g, .., ..]), max(top1), xs);
            for _ in 0..count {
                along1 = wide_step(along1, iota([E, E], 0) == iota([E, E], 1));
            }
            store(w1[g, .., ..], held * load(w1[g, .., ..]) - step * along1.cast::<f32>());
            let mut along2 = normalised(load(s2[g, .., ..]), max(top2), xs);
            for _ in 0..count {
                along2 = tall_step(along2, iota([D, D], 0) == iota([D, D], 1));
            }
            store(w2[g, .., ..], held * load(w2[g, .., ..]) - step * along2.cast::<f32>());
        }
    }

    /// The same along the momentum itself: `W <- alpha W - eta S`.
    pub kernel fused_descent<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        v: &Tensor<T, [G, N, E]>,
        r: &Tensor<T, [G, N, E]>,
        c: &Tensor<f32, [G, N]>,
        alpha: &Tensor<f32, [G]>,
        theta: &Tensor<f32, [G]>,
        eta: &Tensor<f32, [G]>,
        w1: &mut Tensor<f32, [G, E, M]>,
        w2: &mut Tensor<f32, [G, M, D]>,
        s1: &mut Tensor<f32, [G, E, M]>,
        s2: &mut Tensor<f32, [G, M, D]>,
        loss: &mut Tensor<f32, [G]>,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [32, 16, 64], warps: [8, 4] }
    {
        for g in grid(G) {
            let weight = load(c[g, ..]).t();
            let xs = select(weight == 0.0, 0.0, load(x[g, .., ..]));
            let skipped = select(weight == 0.0, 0.0, load(r[g, .., ..]));
            let mut read = skipped.cast::<f32>();
            for m in tiles(M, BM) {
                read += read_mlp(xs, load(w1[g, .., m]).cast::<T>(), load(w2[g, m, ..]).cast::<T>());
            }
            let wanted = select(weight == 0.0, 0.0, load(v[g, .., ..]));
            let target = wanted.cast::<f32>();
            let e = select(predicts > 0, read, 0.0) - target;
            store(loss[g], scale * sum(weight * select(predicts > 0, 0.5 * e * e, -read * target)));
            let error = e * scale;
            let errors = error.cast::<T>();
            let weighted = (error * weight).cast::<T>();
            let held = load(alpha[g]);
            let kept = load(theta[g]);
            let step = load(eta[g]);
            for m in tiles(M, BM) {
                let w1m = load(w1[g, .., m]);
                let w2m = load(w2[g, m, ..]);
                let (hidden, slope) = factors_mlp(xs, errors, w1m.cast::<T>(), w2m.cast::<T>());
                let s1m = kept * load(s1[g, .., m]) + dot(weighted.t(), hidden);
                let s2m = kept * load(s2[g, m, ..]) + dot((weight * slope).cast::<T>().t(), xs);
                store(s1[g, .., m], s1m);
                store(s2[g, m, ..], s2m);
                store(w1[g, .., m], held * w1m - step * s1m);
                store(w2[g, m, ..], held * w2m - step * s2m);
            }
        }
    }
}
