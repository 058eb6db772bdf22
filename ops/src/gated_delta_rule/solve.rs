//! The part of the rule that does not depend on the memory: per chunk, the inverse of a triangular matrix, and weights.

use atlas_macros::atlas_kernel;

/// Decays of this exponent are 0 in f32, also after as much growth as f32 holds, so that a smaller one, minus infinity too, is as good.
const LEAST: f32 = -208.0;

/// Exponents are split at multiples of the inverse of this number, sums of 64 of which f32 holds without rounding.
const UNIT: f32 = 1024.0;

/// Powers of the inverse of the plastic number. The fractions of `i ROWS + j COLUMNS` are spread evenly over the unit interval along
/// rows, columns and diagonals (Roberts' sequence R2).
const ROWS: f32 = 0.754_877_7;
const COLUMNS: f32 = 0.569_840_3;

atlas_kernel! {
    /// A number, and 0 in place of one that is infinite or no number. Products mix tokens by zeros for those that a token does not
    /// see, and 0 times such a number would not be 0.
    pub(crate) tile fn finite(x) { select(abs(x) < f32::INFINITY, x, 0.0) }

    /// The first token of each row that is infinite or no number, or else `none`.
    pub(crate) tile fn first_lost(x, token, none) { min(select(abs(x) < f32::INFINITY, none, token), axis = 1) }

    /// NaN for each token whose key, step or exponent is infinite or no number, and 0 for others. `kk` are products of keys.
    tile fn spoiled(kk, beta, g, diagonal) { 0.0 * (sum(select(diagonal, kk, 0.0), axis = 0) + beta + g) }

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

    /// What the element type of `like` rounds off.
    tile fn remainder(x, like) { x - x.cast_like(like).cast::<f32>() }

    /// The same product of operands that are each split into a value and a remainder of that type, but for the term of both remainders.
    tile fn split_product(a, b, like) {
        product(a, b, like) + product(a, remainder(b, like), like) + product(remainder(a, like), b, like)
    }

    /// Rounds to the element type of `like`, up or down by the place of an element, as often up as it is near the upper neighbour. With
    /// keys that repeat, `t` has equal numbers along its diagonals, and the memory loses the sum of them all: to the nearest they would
    /// all be rounded the same way. Numbers below the least normal one of that type, which count for little in a sum, are rounded to
    /// the nearest.
    tile fn dithered(x, row, column, like) {
        // From a half on: the first element of a chunk, which is all of one with one token, is rounded to the nearest.
        let place = 0.5 + (ROWS * row.cast::<f32>() + COLUMNS * column.cast::<f32>());
        let near = x.cast_like(like).cast::<f32>();
        let rest = x - near;
        // A third is rounded by a third of the step from number to number there. This is half the step at a power of two, and a bit.
        let third = full::<f32>([1, 1], 1.0 / 3.0);
        let away = 6.06 * abs(third - third.cast_like(like).cast::<f32>()) * abs(near);
        let other = (near + select(rest < 0.0, -away, away)).cast_like(like).cast::<f32>();
        select((place - floor(place)) * abs(other - near) < abs(rest), other, near).cast_like(like)
    }

    /// The inverses of diagonal blocks, from those of half the size: `pair` are the places below those, within a block.
    tile fn merged(x, a, pair, like) { x - split_product(split_product(x, select(pair, a, 0.0), like), x, like) }

    /// The inverse of `1 + a`, `a` strictly lower triangular of at most 16 rows: by blocks, and by a step of Newton that takes away
    /// what the element type of `like` has rounded.
    tile fn inverted(a, row, column, like) {
        let one = select(row == column, 1.0, 0.0);
        let x2 = one - select(row / 2 == column / 2, a, 0.0);
        let x4 = merged(x2, a, (row / 4 == column / 4) && (row / 2 != column / 2), like);
        let x8 = merged(x4, a, (row / 8 == column / 8) && (row / 4 != column / 4), like);
        let rough = merged(x8, a, row / 8 != column / 8, like).cast_like(like);
        let high = a.cast_like(like);
        let rest = one - rough.cast::<f32>() - dot(high, rough) - product(remainder(a, like), rough, like);
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
            let b1 = load(beta[b, span(first, Z / 2), h]).or(0.0);
            let b2 = load(beta[b, span(second, Z / 2), h]).or(0.0);
            let g1 = max(load(g[b, span(first, Z / 2), h]).or(0.0), LEAST);
            let g2 = max(load(g[b, span(second, Z / 2), h]).or(0.0), LEAST);
            let row = iota([Z / 2, Z / 2], 0);
            let column = iota([Z / 2, Z / 2], 1);
            let kk1 = dot(k1, k1.t()).or(0.0);
            let a1 = select(row > column, finite(b1).t() * decays(finite(g1), row >= column) * finite(kk1), 0.0);
            let x1 = inverted(a1, row, column, k1);
            let lost1 = spoiled(kk1, b1, g1, row == column);
            store(x[b, h, c, r, span(0, Z / 2), span(0, Z / 2)], x1 + running(lost1, row >= column));
            store(x[b, h, c, r, span(0, Z / 2), span(size(Z) / 2, Z / 2)], zeros::<f32>([Z / 2, Z / 2]));
            let kk2 = dot(k2, k2.t()).or(0.0);
            let a2 = select(row > column, finite(b2).t() * decays(finite(g2), row >= column) * finite(kk2), 0.0);
            let x2 = inverted(a2, row, column, k1);
            let lost2 = running(spoiled(kk2, b2, g2, row == column), row >= column);
            store(x[b, h, c, r, span(size(Z) / 2, Z / 2), span(size(Z) / 2, Z / 2)], x2 + lost2);
            let across = exp(running(finite(g2), row >= column) + running(finite(g1), column > row).t());
            let a21 = finite(b2).t() * across * finite(dot(k2, k1.t()).or(0.0));
            let x21 = split_product(split_product(x2, a21, k1), x1, k1);
            store(x[b, h, c, r, span(size(Z) / 2, Z / 2), span(0, Z / 2)], lost2 + sum(lost1) - x21);
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
            let across = exp(running(finite(g2), row >= column) + running(finite(g1), column > row).t());
            let a21 = finite(b2).t() * across * finite(dot(k2, k1.t()).or(0.0));
            let x1 = load(x[b, h, c, 0, .., ..]);
            let x2 = load(x[b, h, c, 1, .., ..]);
            let x21 = split_product(split_product(finite(x2), a21, ks), finite(x1), ks);
            // Rows of `x` from a token on that is infinite or no number are NaN, and rows behind them have to be.
            let lost = 0.0 * (sum(x1) + sum(x2, axis = 1));
            store(t[b, h, c, span(0, Z), span(0, Z)], dithered(x1 * finite(b1), row, column, ks));
            store(t[b, h, c, span(0, Z), span(size(Z), Z)], zeros::<f32>([Z, Z]).cast::<T>());
            store(t[b, h, c, span(size(Z), Z), span(0, Z)], dithered(lost - x21 * finite(b1), row + size(Z), column, ks));
            store(t[b, h, c, span(size(Z), Z), span(size(Z), Z)], dithered((lost + x2) * finite(b2), row + size(Z), column + size(Z), ks));
        }
    }
}
