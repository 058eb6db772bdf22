//! The rule in three launches, of which only the second goes from chunk to chunk: for few heads.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use super::solve::{finite, first_lost};

    /// Of each chunk: `w`, by which the memory before it changes the steps of its tokens, and those of an empty memory, `u`.
    pub kernel delta_factors<T: Float>(
        k: &Tensor<T, [B, N, J, D]>,
        v: &Tensor<T, [B, N, H, E]>,
        t: &Tensor<T, [B, H, C, L, L]>,
        reach: &Tensor<f32, [B, H, C, L]>,
        w: &mut Tensor<T, [B, H, C, L, D]>,
        u: &mut Tensor<T, [B, H, C, E, L]>,
    )
    tune { warps: [4, 8] }
    require { H % J == 0, C * L >= N }
    {
        for (b, h, c) in grid(B, H, C) {
            let j = h / (size(H) / size(J));
            let ts = load(t[b, h, c, .., ..]);
            let of_keys = (ts.cast::<f32>() * finite(load(reach[b, h, c, ..]))).cast::<T>();
            // From a key on that is infinite or no number, `t` is NaN.
            let ks = finite(load(k[b, span(c * size(L), L), j, ..]).cast::<f32>()).cast::<T>();
            store(w[b, h, c, .., ..], dot(of_keys, ks).cast::<T>());
            let vs = load(v[b, span(c * size(L), L), h, ..]).cast::<f32>().t();
            let token = iota([E, L], 1);
            let us = dot(finite(vs).cast::<T>(), ts.t());
            store(u[b, h, c, .., ..], select(token < first_lost(vs, token, size(L)), us, f32::NAN).cast::<T>());
        }
    }

    /// From chunk to chunk: `before`, the memory before each, and `step`, the steps of its tokens.
    pub kernel delta_states<T: Float>(
        k: &Tensor<T, [B, N, J, D]>,
        w: &Tensor<T, [B, H, C, L, D]>,
        u: &Tensor<T, [B, H, C, E, L]>,
        reach: &Tensor<f32, [B, H, C, L]>,
        tail: &Tensor<f32, [B, H, C, L]>,
        s: &mut Tensor<f32, [B, H, D, E]>,
        before: &mut Tensor<T, [B, H, C, E, D]>,
        step: &mut Tensor<T, [B, H, C, E, L]>,
    )
    tune { BE: [16, 32, 64], stages: [2, 3, 4], warps: [1, 2, 4] }
    require { H % J == 0, C * L >= N }
    {
        for (b, h, e) in grid(B, H, tiles(E, BE)) {
            let j = h / (size(H) / size(J));
            let mut se = load(s[b, h, .., e]).t();
            for c in pipeline(0..size(C)) {
                let kc = load(k[b, span(c * size(L), L), j, ..]);
                let held = se.cast::<T>();
                store(before[b, h, c, e, ..], held);
                let steps = load(u[b, h, c, e, ..]).cast::<f32>() - dot(held, load(w[b, h, c, .., ..]).t());
                store(step[b, h, c, e, ..], steps.cast::<T>());
                let kept = (steps * load(tail[b, h, c, ..])).cast::<T>();
                se = load(reach[b, h, c, size(L) - 1]) * se + dot(kept, kc);
            }
            store(s[b, h, .., e], se.t());
        }
    }

    /// What is read of the memories and the steps.
    pub kernel delta_outputs<T: Float>(
        q: &Tensor<T, [B, N, J, D]>,
        p: &Tensor<T, [B, H, C, L, L]>,
        reach: &Tensor<f32, [B, H, C, L]>,
        before: &Tensor<T, [B, H, C, E, D]>,
        step: &Tensor<T, [B, H, C, E, L]>,
        o: &mut Tensor<T, [B, N, H, E]>,
        scale: f32,
    )
    tune { BN: [64, 32], BE: [64, 32, 128], BL: [32], warps: [4, 8] }
    require { H % J == 0, C * L >= N }
    {
        for (b, h, n, e) in grid(B, H, tiles(N, BN), tiles(E, BE)) {
            let j = h / (size(H) / size(J));
            let qs = load(q[b, n, j, ..]);
            let mut out = zeros::<f32>([BN, BE]);
            // The chunks of the tile's tokens: one, where tiles are as long as chunks.
            for c in n * BN / size(L)..(min(n * BN + BN, size(N)) + size(L) - 1) / size(L) {
                let at = n * BN - c * size(L);
                let token = at + iota([BN, 1], 0);
                let is_here = token >= 0 && token < size(L);
                let left = load(reach[b, h, c, span(at, BN)]).or(0.0).t();
                // Tokens of other chunks keep away from a memory that is no number.
                out += select(is_here, left * dot(qs, load(before[b, h, c, e, ..]).t()).or(0.0), 0.0);
                // Steps in parts: whole, they would take too many registers on their way to the product.
                for l in tiles(L, BL) {
                    let steps = load(step[b, h, c, e, l]).cast::<f32>();
                    out += dot(load(p[b, h, c, span(at, BN), l]).or(0.0), finite(steps).cast::<T>().t()).or(0.0);
                    let lost = first_lost(steps, l * BL + iota([BE, BL], 1), size(L)).or(0).t();
                    out = select(is_here && token >= lost, f32::NAN, out);
                }
            }
            store(o[b, n, h, e], (scale * out).cast::<T>());
        }
    }
}
