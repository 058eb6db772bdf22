//! The Omega rule on a memory with a norm inside, `M(x) = r + norm(W1 gelu(W2 x)) (*) w`: the norm before the residual of TTT
//! (arXiv 2407.04620) and of titans-pytorch. The memory does not train `w`.
//!
//! As [`omega_mlp`](super::mlp), but that the norm's Jacobian stands before the error. Of a row `o = W1 gelu(W2 x)`, which less its
//! mean and divided by its deviation `d = sqrt(var + eps)` is `n`, and of `g = s (r + n w - v) w`,
//!
//! ```text
//! e = (g - mean(g) - n mean(g n)) / d
//! ```
//!
//! stands for the rows of `E`. Queries go through the products as in the dual form, and then through the norm. The norm has the
//! domain of [`memory_read_normed`](crate::gated_memory::memory_read_normed).
//!
//! FLOPs of a chunk: as of `omega_mlp`.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::loss::loss_error;

    /// Rows of `count` elements less their mean and divided by their deviation, and one over that deviation.
    pub(crate) tile fn layer_normed(rows, count, eps) {
        let centred = rows - sum(rows, axis = 1) / count;
        // Once more: what the mean was rounded by would be all that a row of equal numbers has.
        let off = centred - sum(centred, axis = 1) / count;
        let by = rsqrt(sum(off * off, axis = 1) / count + eps);
        (off * by, by)
    }

    /// Reads and trains a memory of two layers with a norm inside over a sequence, chunk by chunk.
    ///
    /// `k`, `v` and `rk` may have more tokens than `q`: those before the first chunk, for its halo. `q` and `k` are features of
    /// `D` numbers, `v`, `y`, the residuals `rq`, `rk` and `norm` have `E`.
    pub kernel omega_normed<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rq: &Tensor<T, [B, N, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
        norm: &Tensor<T, [H, E]>,
        psi: &Tensor<f32, [B, H, C, L, K]>,
        lam: &Tensor<f32, [B, H, C, L]>,
        old: &Tensor<f32, [B, H, C, L]>,
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
        y: &mut Tensor<T, [B, N, H, E]>,
        scale: f32,
        predicts: i32,
        eps: f32,
    )
    tune { BM: [32, 16, 64], warps: [8] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h) in grid(B, H) {
            for c in 0..size(C) {
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                let count = size(E).cast::<f32>();
                // A token that nothing weighs may be anything, a NaN too.
                let alive = load(live[b, h, c, ..]).t() > 0.0;
                let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let mut product = zeros::<f32>([K, E]);
                for m in tiles(M, BM) {
                    let a = gelu(dot(x, load(w2[b, h, m, ..]).cast::<T>().t()));
                    product += dot(a.cast::<T>(), load(w1[b, h, .., m]).cast::<T>().t());
                }
                let weight = load(norm[h, ..]).cast::<f32>();
                let (unit, by) = layer_normed(product, count, eps);
                let skipped = select(alive, load(rk[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let read = skipped.cast::<f32>() + unit * weight;
                let g = weight * loss_error(read, wanted.cast::<f32>(), scale, predicts);
                let through = by * (g - sum(g, axis = 1) / count - unit * (sum(g * unit, axis = 1) / count));
                // With `eps = 0` a row of zeros has no norm. Windows reach tokens before the first one, too.
                let is_token = oldest + iota([K, 1], 0) >= 0;
                let error = select(alive && is_token, through, 0.0);
                let errors = error.cast::<T>();
                let to_w = load(psi_end[b, h, c, ..]).t();
                let to_s = load(phi_end[b, h, c, ..]).t();
                // What is taken off is made negative, so that products add to what they meet in place.
                let less_w = -to_w;
                let error_w = (error * less_w).cast::<T>();
                let error_s = (error * to_s).cast::<T>();
                let xq = load(q[b, span(first, L), h, ..]).or(0.0);
                let mixed = (-dot(xq, x.t()) * load(psi[b, h, c, .., ..])).cast::<T>();
                let mut out = zeros::<f32>([L, E]);
                let mut met = zeros::<f32>([L, K]);
                for m in tiles(M, BM) {
                    let w1t = load(w1[b, h, .., m]).cast::<T>();
                    let w2t = load(w2[b, h, m, ..]).cast::<T>();
                    let s1t = load(s1[b, h, .., m]).cast::<T>();
                    let s2t = load(s2[b, h, m, ..]).cast::<T>();
                    let z = dot(x, w2t.t());
                    let a = gelu(z).cast::<T>();
                    let delta = grad(gelu)(z) * dot(errors, w1t);
                    // Read again: what would be kept from the start takes the registers of the products between.
                    let w_after = load(lam_end[b, h, c]);
                    let s_in_w = load(old_end[b, h, c]);
                    let s_after = load(beta_end[b, h, c]);
                    let s2m = load(s2[b, h, m, ..]);
                    let mut w2m = w_after * load(w2[b, h, m, ..]) - s_in_w * s2m;
                    w2m += dot((delta * less_w).cast::<T>().t(), x);
                    store(w2[b, h, m, ..], w2m);
                    let mut s2n = s_after * s2m;
                    s2n += dot((delta * to_s).cast::<T>().t(), x);
                    store(s2[b, h, m, ..], s2n);
                    let s1m = load(s1[b, h, .., m]);
                    let mut w1m = w_after * load(w1[b, h, .., m]) - s_in_w * s1m;
                    w1m += dot(error_w.t(), a);
                    store(w1[b, h, .., m], w1m);
                    let mut s1n = s_after * s1m;
                    s1n += dot(error_s.t(), a);
                    store(s1[b, h, .., m], s1n);
                    let kept = load(lam[b, h, c, ..]).t();
                    let less = -load(old[b, h, c, ..]).t();
                    let zq = kept * dot(xq, w2t.t()) + less * dot(xq, s2t.t()) + dot(mixed, delta.cast::<T>());
                    let hq = gelu(zq);
                    out += dot((hq * kept).cast::<T>(), w1t.t());
                    out += dot((hq * less).cast::<T>(), s1t.t());
                    met += dot(hq.cast::<T>(), a.t());
                }
                out -= dot((met * load(psi[b, h, c, .., ..])).cast::<T>(), errors);
                let (unit_q, _) = layer_normed(out, count, eps);
                let rest = load(rq[b, span(first, L), h, ..]).or(0.0).cast::<f32>();
                let outward = rest + unit_q * load(norm[h, ..]).cast::<f32>();
                store(y[b, span(first, L), h, ..], outward.cast::<T>());
            }
        }
    }
}
