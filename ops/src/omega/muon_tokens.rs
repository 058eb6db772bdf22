//! The Omega rule with Muon as it is written: each token takes a step of its own along its orthogonalised momentum.
//!
//! ```text
//! S_t = theta_t S_(t-1) + sum of gamma[t, o] grad l(M_a(t); k_(t-o), v_(t-o)),   M_t = alpha_t M_(t-1) - eta_t NS(S_t)
//! ```
//!
//! The gradients of a chunk are taken at the memory before it, as of all rules here, so what they are made of, `errors`,
//! `act` and `delta`, is computed once per chunk and kept in a workspace; each token then adds a few of them to its momentum.
//! A chunk of one token is the rule of Eq. 32 word for word. Tokens follow each other, five products of matrices each: where
//! a step per chunk is enough, [`omega_muon`](super::muon) is faster by the length of the chunk.
//!
//! A momentum of fewer tokens than a matrix has rows is ill-conditioned for the iteration, as [`omega_muon`](super::muon) explains.
//!
//! Source: ATLAS (arXiv 2505.23735) Eq. 32 and 33. The iteration runs on `W1` and on the transpose of `W2`.

use crate::newton_schulz_small::{SCALE, STEPS, UNSCALE};
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::functions::with_norm;

    /// One step of the iteration on a matrix that lies wide, of its `SCALE` fold, about `centre`: see `newton_schulz_small`.
    tile fn orthogonal_step(x, on_diagonal, first, second, centre) {
        let gram = dot(x, x.t());
        let e = select(on_diagonal, gram - centre, gram);
        let et = e.cast_like(x);
        let linear = second * e;
        let p = select(on_diagonal, linear + first, linear) + dot(et, et);
        dot(p.cast_like(x), x).cast_like(x)
    }

    /// A matrix of elements up to `top` divided by its norm, times `SCALE`, in the element type of `like`.
    tile fn normalised(s, top, like) {
        let (scaled, norm) = with_norm(s, top);
        (scaled * (SCALE / norm)).cast_like(like)
    }

    /// Reads and trains a memory of two layers over a sequence in chunks of `chunk` tokens. `gamma` is as in `omega_mix`; with
    /// `before` above 0 a token is read before the memory has seen it. `K` is the chunk and its halo.
    pub kernel omega_muon_tokens<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, P, H, D]>,
        v: &Tensor<T, [B, P, H, E]>,
        rq: &Tensor<T, [B, N, H, E]>,
        rk: &Tensor<T, [B, P, H, E]>,
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
    )
    tune { BM: [32, 16], warps: [8, 4] }
    require { P >= N }
    {
        for (b, h) in grid(B, H) {
            let length = min(max(chunk, 1), size(K));
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
                let alive = weight.t() > 0.0;
                let x = select(alive, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let wanted = select(alive, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let skipped = select(alive, load(rk[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let mut e = skipped.cast::<f32>() - wanted.cast::<f32>();
                for m in tiles(M, BM) {
                    let w1m = load(w1[b, h, .., m]).cast::<T>();
                    let w2t = load(w2[b, h, m, ..]).cast::<T>().t();
                    e += dot(gelu(dot(x, w2t)).cast::<T>(), w1m.t());
                }
                let error = e * scale;
                let back = error.cast::<T>();
                store(errors[b, h, .., ..], error);
                for m in tiles(M, BM) {
                    let z = dot(x, load(w2[b, h, m, ..]).cast::<T>().t());
                    let slope = grad(gelu)(z) * dot(back, load(w1[b, h, .., m]).cast::<T>());
                    store(act[b, h, .., m], gelu(z).cast::<T>());
                    store(delta[b, h, .., m], slope.cast::<T>());
                }
                for t in first..end {
                    let xq = load(q[b, span(t, 1), h, ..]).or(0.0);
                    let residual = load(rq[b, span(t, 1), h, ..]).or(0.0).cast::<f32>();
                    let mut early = residual;
                    for m in tiles(M, BM) {
                        let inner = gelu(dot(xq, load(w2[b, h, m, ..]).cast::<T>().t())).cast::<T>();
                        early += dot(inner, load(w1[b, h, .., m]).cast::<T>().t());
                    }
                    let band = load(gamma[b, t, h, span(shift - t, K)]).or(0.0).t();
                    let error_s = (load(errors[b, h, .., ..]) * band).cast::<T>();
                    let key_s = (x.cast::<f32>() * band).cast::<T>();
                    let kept = load(theta[b, t, h]);
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
                    let held = load(alpha[b, t, h]);
                    let step = load(eta[b, t, h]);
                    let mut along1 = normalised(load(s1[b, h, .., ..]), max(top1), x);
                    for i in 0..5 {
                        let on_diagonal = iota([E, E], 0) == iota([E, E], 1);
                        along1 = orthogonal_step(along1, on_diagonal, STEPS[i][0], STEPS[i][1], STEPS[i][2]);
                    }
                    store(w1[b, h, .., ..], held * load(w1[b, h, .., ..]) - step * UNSCALE * along1.cast::<f32>());
                    let mut along2 = normalised(load(s2[b, h, .., ..]).t(), max(top2), x);
                    for i in 0..5 {
                        let on_diagonal = iota([D, D], 0) == iota([D, D], 1);
                        along2 = orthogonal_step(along2, on_diagonal, STEPS[i][0], STEPS[i][1], STEPS[i][2]);
                    }
                    store(w2[b, h, .., ..], held * load(w2[b, h, .., ..]) - step * UNSCALE * along2.t().cast::<f32>());
                    let mut late = residual;
                    for m in tiles(M, BM) {
                        let inner = gelu(dot(xq, load(w2[b, h, m, ..]).cast::<T>().t())).cast::<T>();
                        late += dot(inner, load(w1[b, h, .., m]).cast::<T>().t());
                    }
                    store(y[b, span(t, 1), h, ..], select(before > 0, early, late).cast::<T>());
                }
            }
        }
    }
}
