//! The part of the rule that does not depend on the memory: per chunk, the inverse of a triangular matrix, and weights.

use atlas_macros::atlas_kernel;

/// A decay of this exponent is 0 in f32, so that a smaller one, minus infinity too, is as good.
const LEAST: f32 = -104.0;

/// Exponents are split at multiples of the inverse of this number, sums of 64 of which f32 holds without rounding.
const UNIT: f32 = 1024.0;

atlas_kernel! {
    /// Of a row of exponents: those that a token sees, added up, for each token.
    tile fn running(g, seen) { sum(select(seen, g, 0.0), axis = 1) }

    /// The multiple of `1 / UNIT` next to an exponent.
    tile fn coarse(g) { round(g * UNIT) * (1.0 / UNIT) }

    /// Decays from each token (a column) to those that see it (rows), and 0 to others. Running sums are exact in their coarse parts,
    /// so that a difference is not off by what rounds a large sum.
    tile fn decays(g, seen) {
        let a = running(coarse(g), seen);
        let b = running(g - coarse(g), seen);
        select(seen, exp((a - a.t()) + (b - b.t())), 0.0)
    }

    /// A product of the element type of `like`.
    tile fn product(a, b, like) { dot(a.cast_like(like), b.cast_like(like)) }

    /// The inverses of diagonal blocks, from those of half the size: `pair` are the places below those, within a block.
    tile fn merged(x, a, pair, like) { x - product(product(x, select(pair, a, 0.0), like), x, like) }

    /// The inverse of `1 + a`, `a` strictly lower triangular of at most 16 rows: by blocks, and by a step of Newton that takes away
    /// what the element type of `like` has rounded.
    tile fn inverted(a, row, column, like) {
        let one = select(row == column, 1.0, 0.0);
        let x2 = one - select(row / 2 == column / 2, a, 0.0);
        let x4 = merged(x2, a, (row / 4 == column / 4) && (row / 2 != column / 2), like);
        let x8 = merged(x4, a, (row / 8 == column / 8) && (row / 4 != column / 4), like);
        let rough = merged(x8, a, row / 8 != column / 8, like).cast_like(like);
        let high = a.cast_like(like);
        let rest = one - rough.cast::<f32>() - dot(high, rough) - product(a - high.cast::<f32>(), rough, like);
        rough.cast::<f32>() + product(rough, rest, like)
    }

    /// The inverses of the diagonal blocks of `1 + A`, two for each chunk.
    pub kernel delta_blocks<T: Float>(
        k: &Tensor<T, [B, N, J, D]>,
        g: &Tensor<f32, [B, N, H]>,
        beta: &Tensor<f32, [B, N, H]>,
        x: &mut Tensor<f32, [B, H, C, R, Z, Z]>,
    )
    tune { warps: [1, 2], occupancy: [1, 16] }
    require { H % J == 0, C * R * Z >= N, Z % 2 == 0, 32 >= Z }
    {
        for (b, h, c, r) in grid(B, H, C, R) {
            let j = h / (size(H) / size(J));
            let first = (c * size(R) + r) * size(Z);
            let second = first + size(Z) / 2;
            let k1 = load(k[b, span(first, Z / 2), j, ..]);
            let k2 = load(k[b, span(second, Z / 2), j, ..]);
            let b1 = load(beta[b, span(first, Z / 2), h]).or(0.0).t();
            let b2 = load(beta[b, span(second, Z / 2), h]).or(0.0).t();
            let g1 = max(load(g[b, span(first, Z / 2), h]).or(0.0), LEAST);
            let g2 = max(load(g[b, span(second, Z / 2), h]).or(0.0), LEAST);
            let row = iota([Z / 2, Z / 2], 0);
            let column = iota([Z / 2, Z / 2], 1);
            let a1 = select(row > column, b1 * decays(g1, row >= column) * dot(k1, k1.t()), 0.0).or(0.0);
            let x1 = inverted(a1, row, column, k1);
            store(x[b, h, c, r, span(0, Z / 2), span(0, Z / 2)], x1);
            store(x[b, h, c, r, span(0, Z / 2), span(size(Z) / 2, Z / 2)], zeros::<f32>([Z / 2, Z / 2]));
            let a2 = select(row > column, b2 * decays(g2, row >= column) * dot(k2, k2.t()), 0.0).or(0.0);
            let x2 = inverted(a2, row, column, k1);
            store(x[b, h, c, r, span(size(Z) / 2, Z / 2), span(size(Z) / 2, Z / 2)], x2);
            let across = exp(running(g2, row >= column) + running(g1, column > row).t());
            let x21 = product(product(x2, (b2 * across * dot(k2, k1.t())).or(0.0), k1), x1, k1);
            store(x[b, h, c, r, span(size(Z) / 2, Z / 2), span(0, Z / 2)], -x21);
        }
    }

    /// Of each chunk: `t`, the inverse of `1 + A` times `beta`; `p`, by which tokens read what others wrote; `reach`, what is left
    /// of the memory before the chunk, and `tail`, what is left of a token's step after it.
    pub kernel delta_solve<T: Float>(
        q: &Tensor<T, [B, N, J, D]>,
        k: &Tensor<T, [B, N, J, D]>,
        g: &Tensor<f32, [B, N, H]>,
        beta: &Tensor<f32, [B, N, H]>,
        x: &Tensor<f32, [B, H, C, R, Z, Z]>,
        t: &mut Tensor<T, [B, H, C, L, L]>,
        p: &mut Tensor<T, [B, H, C, L, L]>,
        reach: &mut Tensor<f32, [B, H, C, L]>,
        tail: &mut Tensor<f32, [B, H, C, L]>,
    )
    tune { warps: [4, 8], occupancy: [1, 3] }
    require { H % J == 0, C * L >= N, R == 2, R * Z == L }
    {
        for (b, h, c) in grid(B, H, C) {
            let j = h / (size(H) / size(J));
            let first = c * size(L);
            let second = first + size(Z);
            let qs = load(q[b, span(first, L), j, ..]);
            let ks = load(k[b, span(first, L), j, ..]);
            let gs = max(load(g[b, span(first, L), h]).or(0.0), LEAST);
            let seen = iota([L, L], 0) >= iota([L, L], 1);
            let rough = running(coarse(gs), seen);
            let fine = running(gs - coarse(gs), seen);
            store(reach[b, h, c, ..], exp(rough + fine));
            store(tail[b, h, c, ..], exp((sum(coarse(gs)) - rough) + (sum(gs - coarse(gs)) - fine)));
            let decay = exp((rough - rough.t()) + (fine - fine.t()));
            store(p[b, h, c, .., ..], select(seen, decay * dot(qs, ks.t()), 0.0).or(0.0).cast::<T>());

            let k1 = load(k[b, span(first, Z), j, ..]);
            let k2 = load(k[b, span(second, Z), j, ..]);
            let b1 = load(beta[b, span(first, Z), h]).or(0.0);
            let b2 = load(beta[b, span(second, Z), h]).or(0.0);
            let g1 = max(load(g[b, span(first, Z), h]).or(0.0), LEAST);
            let g2 = max(load(g[b, span(second, Z), h]).or(0.0), LEAST);
            let row = iota([Z, Z], 0);
            let column = iota([Z, Z], 1);
            let across = exp(running(g2, row >= column) + running(g1, column > row).t());
            let x1 = load(x[b, h, c, 0, .., ..]);
            let x2 = load(x[b, h, c, 1, .., ..]);
            let x21 = product(product(x2, (b2.t() * across * dot(k2, k1.t())).or(0.0), ks), x1, ks);
            store(t[b, h, c, span(0, Z), span(0, Z)], (x1 * b1).cast::<T>());
            store(t[b, h, c, span(0, Z), span(size(Z), Z)], zeros::<f32>([Z, Z]).cast::<T>());
            store(t[b, h, c, span(size(Z), Z), span(0, Z)], (-x21 * b1).cast::<T>());
            store(t[b, h, c, span(size(Z), Z), span(size(Z), Z)], (x2 * b2).cast::<T>());
        }
    }
}
