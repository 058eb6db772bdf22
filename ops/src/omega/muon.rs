//! The Omega rule with Muon, one orthogonalisation per chunk: the memory steps along the Newton-Schulz iteration of its momentum.
//!
//! A chunk is read from the memory as it was before it, then
//!
//! ```text
//! S <- beta S + grad diag(Phi_end),   W <- lam W - step NS(S)
//! ```
//!
//! for both matrices, with `beta`, `lam`, `Phi_end` and `steps` of [`omega_mix`](super::mix): `step` is the last gate `eta` of the chunk.
//! A gradient has no higher rank than it has keys. Where these are fewer than the rows of a matrix, `NS(S)` is ill-conditioned:
//! in the directions that no key trains, `S` holds what is left of its start and of roundings, and five steps multiply what is
//! small against the rest by up to 485. With a bf16 gradient of 26 keys and 55 rows, a memory is then some 0.09 of its size
//! from the one of exact arithmetic, while the momentum is within 1e-2. Windows of as many keys as there are rows, f16 or f32
//! bring it near. The results are those of f64 with the roundings of the kernel, which is what tests hold it to.
//!
//! Source: ATLAS (arXiv 2505.23735) Eq. 32 by chunks, as LaCT (arXiv 2505.23884) applies it; the iteration is that of
//! [`newton_schulz_small`](crate::newton_schulz_small), on `W1` and on the transpose of `W2`, which lie wide where `E` and `D` are
//! at most `M`.

use crate::newton_schulz_small::CLASSIC;
use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::functions::with_norm;

    /// One step of the iteration on a matrix that lies wide: `(A0 + A1 a + A2 a a) x` with `a = x xᵀ`. `on_diagonal` says where
    /// the first term stands.
    tile fn orthogonal_step(x, on_diagonal) {
        let a = dot(x, x.t());
        let ab = a.cast_like(x);
        let p = A1 * a + A2 * dot(ab, ab);
        dot(select(on_diagonal, p + A0, p).cast_like(x), x).cast_like(x)
    }

    /// A matrix of elements up to `top` divided by its norm, in the element type of `like`.
    tile fn normalised(s, top, like) {
        let (scaled, norm) = with_norm(s, top);
        (scaled / norm).cast_like(like)
    }

    /// Reads and trains a memory of two layers over a sequence; each chunk takes one orthogonalised step.
    pub kernel omega_muon<T: Float>(
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
        s1: &mut Tensor<f32, [B, H, E, M]>,
        s2: &mut Tensor<f32, [B, H, M, D]>,
        y: &mut Tensor<T, [B, N, H, E]>,
        scale: f32,
    )
    tune { BM: [32, 16], warps: [8, 4] }
    require { C * L >= N, K >= L, P >= N }
    {
        for (b, h) in grid(B, H) {
            for c in 0..size(C) {
                let first = c * size(L);
                let oldest = first + size(P) - size(N) + size(L) - size(K);
                let weight = load(live[b, h, c, ..]).t();
                let x = select(weight > 0.0, load(k[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let wanted = select(weight > 0.0, load(v[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let skipped = select(weight > 0.0, load(rk[b, span(oldest, K), h, ..]).or(0.0), 0.0);
                let xq = load(q[b, span(first, L), h, ..]).or(0.0);
                let mut e = skipped.cast::<f32>() - wanted.cast::<f32>();
                let mut out = load(rq[b, span(first, L), h, ..]).or(0.0).cast::<f32>();
                for m in tiles(M, BM) {
                    let w1m = load(w1[b, h, .., m]).cast::<T>();
                    let w2t = load(w2[b, h, m, ..]).cast::<T>().t();
                    e += dot(gelu(dot(x, w2t)).cast::<T>(), w1m.t());
                    out += dot(gelu(dot(xq, w2t)).cast::<T>(), w1m.t());
                }
                store(y[b, span(first, L), h, ..], out.cast::<T>());
                let error = e * scale;
                let errors = error.cast::<T>();
                let to_s = load(phi_end[b, h, c, ..]).t();
                let error_s = (error * to_s).cast::<T>();
                let s_after = load(beta_end[b, h, c]);
                // The greatest magnitudes, while they are in registers.
                let mut top1 = zeros::<f32>([E, BM]);
                let mut top2 = zeros::<f32>([BM, D]);
                for m in tiles(M, BM) {
                    let z = dot(x, load(w2[b, h, m, ..]).cast::<T>().t());
                    let delta = to_s * grad(gelu)(z) * dot(errors, load(w1[b, h, .., m]).cast::<T>());
                    let s1m = s_after * load(s1[b, h, .., m]) + dot(error_s.t(), gelu(z).cast::<T>());
                    let s2m = s_after * load(s2[b, h, m, ..]) + dot(delta.cast::<T>().t(), x);
                    top1 = max(top1, abs(s1m).or(0.0));
                    top2 = max(top2, abs(s2m).or(0.0));
                    store(s1[b, h, .., m], s1m);
                    store(s2[b, h, m, ..], s2m);
                }
                let w_after = load(lam_end[b, h, c]);
                let step = load(steps[b, h, c, size(L) - 1]);
                let mut along1 = normalised(load(s1[b, h, .., ..]), max(top1), xq);
                for _ in 0..5 {
                    along1 = orthogonal_step(along1, iota([E, E], 0) == iota([E, E], 1));
                }
                store(w1[b, h, .., ..], w_after * load(w1[b, h, .., ..]) - step * along1.cast::<f32>());
                let mut along2 = normalised(load(s2[b, h, .., ..]).t(), max(top2), xq);
                for _ in 0..5 {
                    along2 = orthogonal_step(along2, iota([D, D], 0) == iota([D, D], 1));
                }
                store(w2[b, h, .., ..], w_after * load(w2[b, h, .., ..]) - step * along2.t().cast::<f32>());
            }
        }
    }

    /// One step of both matrices of a memory on a window of tokens: weighted gradients, momentum, `count` steps of
    /// Newton-Schulz, and the update, in place.
    ///
    /// `S <- theta S + sum_i c_i grad l_i`, `W <- alpha W - eta NS(S)`; `loss = sum_i c_i l_i`, infinite where the squares of
    /// the errors are. A token of weight 0 may be anything.
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
        count: i32,
    )
    tune { BM: [32, 16, 64], warps: [8, 4] }
    {
        for g in grid(G) {
            let weight = load(c[g, ..]).t();
            let xs = select(weight == 0.0, 0.0, load(x[g, .., ..]));
            let wanted = select(weight == 0.0, 0.0, load(v[g, .., ..]));
            let skipped = select(weight == 0.0, 0.0, load(r[g, .., ..]));
            let mut e = skipped.cast::<f32>() - wanted.cast::<f32>();
            for m in tiles(M, BM) {
                let w1m = load(w1[g, .., m]).cast::<T>();
                e += dot(gelu(dot(xs, load(w2[g, m, ..]).cast::<T>().t())).cast::<T>(), w1m.t());
            }
            store(loss[g], 0.5 * scale * sum(weight * e * e));
            let error = e * scale;
            let errors = error.cast::<T>();
            let weighted = (error * weight).cast::<T>();
            let kept = load(theta[g]);
            // The greatest magnitudes, while they are in registers.
            let mut top1 = zeros::<f32>([E, BM]);
            let mut top2 = zeros::<f32>([BM, D]);
            for m in tiles(M, BM) {
                let z = dot(xs, load(w2[g, m, ..]).cast::<T>().t());
                let delta = weight * grad(gelu)(z) * dot(errors, load(w1[g, .., m]).cast::<T>());
                let s1m = kept * load(s1[g, .., m]) + dot(weighted.t(), gelu(z).cast::<T>());
                let s2m = kept * load(s2[g, m, ..]) + dot(delta.cast::<T>().t(), xs);
                top1 = max(top1, abs(s1m).or(0.0));
                top2 = max(top2, abs(s2m).or(0.0));
                store(s1[g, .., m], s1m);
                store(s2[g, m, ..], s2m);
            }
            let held = load(alpha[g]);
            let step = load(eta[g]);
            let mut along1 = normalised(load(s1[g, .., ..]), max(top1), xs);
            for _ in 0..count {
                along1 = orthogonal_step(along1, iota([E, E], 0) == iota([E, E], 1));
            }
            store(w1[g, .., ..], held * load(w1[g, .., ..]) - step * along1.cast::<f32>());
            let mut along2 = normalised(load(s2[g, .., ..]).t(), max(top2), xs);
            for _ in 0..count {
                along2 = orthogonal_step(along2, iota([D, D], 0) == iota([D, D], 1));
            }
            store(w2[g, .., ..], held * load(w2[g, .., ..]) - step * along2.t().cast::<f32>());
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
    )
    tune { BM: [32, 16, 64], warps: [8, 4] }
    {
        for g in grid(G) {
            let weight = load(c[g, ..]).t();
            let xs = select(weight == 0.0, 0.0, load(x[g, .., ..]));
            let wanted = select(weight == 0.0, 0.0, load(v[g, .., ..]));
            let skipped = select(weight == 0.0, 0.0, load(r[g, .., ..]));
            let mut e = skipped.cast::<f32>() - wanted.cast::<f32>();
            for m in tiles(M, BM) {
                let w1m = load(w1[g, .., m]).cast::<T>();
                e += dot(gelu(dot(xs, load(w2[g, m, ..]).cast::<T>().t())).cast::<T>(), w1m.t());
            }
            store(loss[g], 0.5 * scale * sum(weight * e * e));
            let error = e * scale;
            let errors = error.cast::<T>();
            let weighted = (error * weight).cast::<T>();
            let held = load(alpha[g]);
            let kept = load(theta[g]);
            let step = load(eta[g]);
            for m in tiles(M, BM) {
                let w1m = load(w1[g, .., m]);
                let w2m = load(w2[g, m, ..]);
                let z = dot(xs, w2m.cast::<T>().t());
                let delta = weight * grad(gelu)(z) * dot(errors, w1m.cast::<T>());
                let s1m = kept * load(s1[g, .., m]) + dot(weighted.t(), gelu(z).cast::<T>());
                let s2m = kept * load(s2[g, m, ..]) + dot(delta.cast::<T>().t(), xs);
                store(s1[g, .., m], s1m);
                store(s2[g, m, ..], s2m);
                store(w1[g, .., m], held * w1m - step * s1m);
                store(w2[g, m, ..], held * w2m - step * s2m);
            }
        }
    }
}

/// The coefficients of every step.
const A0: f32 = CLASSIC[0] as f32;
const A1: f32 = CLASSIC[1] as f32;
const A2: f32 = CLASSIC[2] as f32;
