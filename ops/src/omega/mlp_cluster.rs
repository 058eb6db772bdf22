//! The Omega rule of [`omega_mlp_split`](super::mlp_split) with a cluster of programs for each sequence and head, each of which keeps the
//! memory of some hidden elements in registers and shared memory, from chunk to chunk.
//!
//! [`omega_mlp_cluster_train`] trains the memory on all chunks of a segment in one launch. Only one thing of a chunk depends on all
//! hidden elements: what the memory reads of the chunk's keys. It is a sum over the cluster. What tokens read is made by the kernels of
//! [`omega_mlp_split`](super::mlp_split), from the same tensors.
//!
//! A GPU needs clusters for it (`sm_90` and later), and a hidden layer of at most eight tiles.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::loss::loss_error;

    /// For each chunk of a segment, from chunk `at` on: the errors of its keys, their hidden rows, the gradients before the gelu, and the
    /// memory before it in the type of the tokens. The memory becomes that behind the segment.
    pub kernel omega_mlp_cluster_train<T: Float>(
        oldest: &Tensor<i32, [B, H, C]>,
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        psi_end: &Tensor<f32, [B, H, C, K]>,
        phi_end: &Tensor<f32, [B, H, C, K]>,
        live: &Tensor<f32, [B, H, C, K]>,
        lam_end: &Tensor<f32, [B, H, C]>,
        old_end: &Tensor<f32, [B, H, C]>,
        beta_end: &Tensor<f32, [B, H, C]>,
        w1: &mut Tensor<f32, [B, H, E, M]>,
        w2: &mut Tensor<f32, [B, H, M, D]>,
        s1: &mut Tensor<f32, [B, H, E, M]>,
        s2: &mut Tensor<f32, [B, H, M, D]>,
        errors: &mut Tensor<f32, [B, H, R, K, E]>,
        act: &mut Tensor<T, [B, H, R, K, M]>,
        change: &mut Tensor<T, [B, H, R, K, M]>,
        w1_before: &mut Tensor<T, [B, H, R, E, M]>,
        w2_before: &mut Tensor<T, [B, H, R, M, D]>,
        s1_before: &mut Tensor<T, [B, H, R, E, M]>,
        s2_before: &mut Tensor<T, [B, H, R, M, D]>,
        at: i32,
        scale: f32,
        predicts: i32,
    )
    tune { BM: [32, 64, 16], stages: [2, 3], warps: [4, 8] }
    {
        for (b, h, m) in grid(B, H, cluster(tiles(M, BM))) {
            let mut w1m = load(w1[b, h, .., m]).or(0.0);
            let mut s1m = load(s1[b, h, .., m]).or(0.0);
            let mut w2m = load(w2[b, h, m, ..]).or(0.0);
            let mut s2m = load(s2[b, h, m, ..]).or(0.0);
            // The first keys of chunks are equally far apart. So where the next chunk's are is known early enough to load them ahead.
            let start = load(oldest[b, h, 0]);
            let apart = load(oldest[b, h, min(1, size(C) - 1)]) - start;
            for r in pipeline(0..min(size(R), size(C) - at)) {
                let c = at + r;
                let first = start + c * apart;
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                // What is taken off is made negative, so that products add to what they meet in place.
                let less_w = -load(psi_end[b, h, c, ..]).t();
                let to_s = load(phi_end[b, h, c, ..]).t();
                let lam = load(lam_end[b, h, c]);
                let old = load(old_end[b, h, c]);
                let beta = load(beta_end[b, h, c]);
                let x = select(alive, load(k[b, span(first, K), h, ..]).or(0.0), 0.0);
                let wanted = select(alive, load(v[b, span(first, K), h, ..]).or(0.0), 0.0);
                let residual = select(alive, load(rk[b, span(first, K), h, ..]).or(0.0), 0.0);
                let w1t = w1m.cast::<T>();
                let w2t = w2m.cast::<T>();
                store(w1_before[b, h, r, .., m], w1t);
                store(w2_before[b, h, r, m, ..], w2t);
                store(s1_before[b, h, r, .., m], s1m.cast::<T>());
                store(s2_before[b, h, r, m, ..], s2m.cast::<T>());
                let z = dot(x, w2t.t());
                let a = gelu(z).cast::<T>();
                store(act[b, h, r, .., m], a);
                let read = residual.cast::<f32>() + cluster_sum(dot(a, w1t.t()));
                let error = loss_error(read, wanted.cast::<f32>(), scale, predicts);
                store(errors[b, h, r, .., ..], error);
                let delta = grad(gelu)(z) * dot(error.cast::<T>(), w1t);
                store(change[b, h, r, .., m], delta.cast::<T>());
                let mut w1n = lam * w1m - old * s1m;
                w1n += dot((error * less_w).cast::<T>().t(), a);
                let mut s1n = beta * s1m;
                s1n += dot((error * to_s).cast::<T>().t(), a);
                let mut w2n = lam * w2m - old * s2m;
                w2n += dot((delta * less_w).cast::<T>().t(), x);
                let mut s2n = beta * s2m;
                s2n += dot((delta * to_s).cast::<T>().t(), x);
                w1m = w1n;
                s1m = s1n;
                w2m = w2n;
                s2m = s2n;
            }
            store(w1[b, h, .., m], w1m);
            store(s1[b, h, .., m], s1m);
            store(w2[b, h, m, ..], w2m);
            store(s2[b, h, m, ..], s2m);
        }
    }
}
