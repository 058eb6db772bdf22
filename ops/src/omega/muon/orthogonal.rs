//! Newton-Schulz on matrices of any size, which lie in global memory and are walked over in tiles.
//!
//! An iteration is a matrix that lies wide, `[R, Q]` with `R <= Q`: one with more rows than columns is iterated as its transpose, for
//! which the function is the same. Its Gram matrix and the polynomial of that are `[R, R]`. The numbers are rounded where those of a
//! matrix on chip are. Two kinds of polynomial are iterated: that of a step per chunk is [`PLAIN`], that of a step per token is
//! [`CENTRED`], which rounds less (see [`newton_schulz_small`](crate::newton_schulz_small)).
//!
//! FLOPs of a step: `20 R R Q + 10 R R R`.

use crate::newton_schulz_small::{CLASSIC, EPS, SCALE, STEPS, UNSCALE};
use atlas_macros::atlas_kernel;

/// `A0 + A1 a + A2 a a` of the Gram matrix `a`.
pub(crate) const PLAIN: i32 = 0;
/// The same polynomial about a centre in each step, of `SCALE` times the matrix.
pub(crate) const CENTRED: i32 = 1;

/// By kind and step, the numbers `f`, `c`, `p` and `q` of the polynomial `q + p e + e e` with `e = f a - c`.
const POLYNOMIALS: [[[f32; 4]; 5]; 2] = polynomials();
/// What an iteration starts from: this times the matrix over its norm.
const START: [f32; 2] = [1.0, SCALE as f32];
/// What its result is multiplied by.
const BACK: [f32; 2] = [1.0, UNSCALE as f32];

const fn polynomials() -> [[[f32; 4]; 5]; 2] {
    // The root of the last coefficient.
    let root = SCALE * SCALE;
    let plain = [root as f32, 0.0, (CLASSIC[1] / root) as f32, CLASSIC[0] as f32];
    let mut all = [[plain; 5]; 2];
    let mut i = 0;
    while i < 5 {
        all[1][i] = [1.0, STEPS[i][2], STEPS[i][1], STEPS[i][0]];
        i += 1;
    }
    all
}

atlas_kernel! {
    use super::iteration::{moves, squarable, squared, started};

    /// `t = w` of a matrix `[ROWS, COLUMNS]`, in the element type of `like`.
    pub(crate) device fn copied(w, t, b, h, ROWS, COLUMNS, BR, BQ, like) {
        for r in tiles(ROWS, BR) {
            for q in tiles(COLUMNS, BQ) {
                store(t[b, h, r, q], load(w[b, h, r, q]).cast_like(like));
            }
        }
    }

    /// A step of the weights `w` along their orthogonalised momentum, `w = held w - step NS(s)`, and `t = w` in the element type of
    /// `like`. All three are `[ROWS, COLUMNS]`; the maximum of the tile `top` is the greatest magnitude of `s`.
    ///
    /// `x [2, R, Q]`, `gram [R, R]` and `poly [R, R]` are a workspace. `R` is the smaller one of the two sides, and `Q` the larger one.
    pub(crate) device fn orthogonal_step(
        s, w, t, x, gram, poly, b, h, ROWS, COLUMNS, R, Q, BR, BQ, top, held, step, kind, like
    ) {
        // One of the two is 1, and the other one 0.
        let is_wide = select(size(ROWS) <= size(COLUMNS), 1.cast::<i32>(), 0);
        let is_tall = 1 - is_wide;
        let is_moved = moves(step);
        for _ in 0..is_moved {
            let unit = squarable(max(top));
            let mut squares = zeros::<f32>([BR, BQ]);
            for r in tiles(ROWS, BR) {
                for q in tiles(COLUMNS, BQ) {
                    squares += squared(load(s[b, h, r, q]), unit);
                }
            }
            let by = over_norm(sum(squares), unit, kind);
            for _ in 0..is_wide {
                for r in tiles(ROWS, BR) {
                    for q in tiles(COLUMNS, BQ) {
                        let along = started(load(s[b, h, r, q]), unit, by, like).or(0.0);
                        store(x[b, h, 0, span(r * BR, BR), span(q * BQ, BQ)], along);
                    }
                }
            }
            for _ in 0..is_tall {
                for q in tiles(ROWS, BR) {
                    for r in tiles(COLUMNS, BQ) {
                        let along = started(load(s[b, h, q, r]), unit, by, like).or(0.0);
                        store(x[b, h, 0, span(r * BQ, BQ), span(q * BR, BR)], along.t());
                    }
                }
            }
            for i in 0..5 {
                iteration(x, gram, poly, b, h, R, Q, BR, BQ, i, kind, like);
            }
        }
        let length = back(step, kind);
        // No direction was computed for a step of length 0, and there is none to read.
        for _ in is_moved..1 {
            for r in tiles(ROWS, BR) {
                for q in tiles(COLUMNS, BQ) {
                    let after = held * load(w[b, h, r, q]);
                    store(w[b, h, r, q], after);
                    store(t[b, h, r, q], after.cast_like(like));
                }
            }
        }
        for _ in 0..is_moved * is_wide {
            for r in tiles(ROWS, BR) {
                for q in tiles(COLUMNS, BQ) {
                    let along = load(x[b, h, 1, span(r * BR, BR), span(q * BQ, BQ)]).or(0.0);
                    let after = held * load(w[b, h, r, q]) - length * along.cast::<f32>();
                    store(w[b, h, r, q], after);
                    store(t[b, h, r, q], after.cast_like(like));
                }
            }
        }
        for _ in 0..is_moved * is_tall {
            for q in tiles(ROWS, BR) {
                for r in tiles(COLUMNS, BQ) {
                    let along = load(x[b, h, 1, span(r * BQ, BQ), span(q * BR, BR)]).or(0.0);
                    let after = held * load(w[b, h, q, r]) - length * along.t().cast::<f32>();
                    store(w[b, h, q, r], after);
                    store(t[b, h, q, r], after.cast_like(like));
                }
            }
        }
    }

    /// One iteration, number `i`: from `x[0]` to `x[1]` or back. The products of five of them end in `x[1]`.
    device fn iteration(x, gram, poly, b, h, R, Q, BR, BQ, i, kind, like) {
        let from = i % 2;
        for r in tiles(R, BR) {
            for c in tiles(R, BR) {
                let mut product = zeros::<f32>([BR, BR]);
                for q in tiles(Q, BQ) {
                    product += dot(load(x[b, h, from, r, q]), load(x[b, h, from, c, q]).t());
                }
                store(gram[b, h, r, c], product);
            }
        }
        for r in tiles(R, BR) {
            for c in tiles(R, BR) {
                let row = r * BR + iota([BR, BR], 0);
                let column = c * BR + iota([BR, BR], 1);
                let mut p = linear(shifted(load(gram[b, h, r, c]), row == column, i, kind), row == column, i, kind);
                for m in tiles(R, BR) {
                    let inner = m * BR + iota([BR, BR], 1);
                    let left = shifted(load(gram[b, h, r, m]), row == inner, i, kind);
                    let right = shifted(load(gram[b, h, m, c]), inner.t() == column, i, kind);
                    p += dot(left.cast_like(like), right.cast_like(like));
                }
                store(poly[b, h, r, c], p.cast_like(like));
            }
        }
        for r in tiles(R, BR) {
            for q in tiles(Q, BQ) {
                let mut next = zeros::<f32>([BR, BQ]);
                for m in tiles(R, BR) {
                    next += dot(load(poly[b, h, r, m]), load(x[b, h, from, m, q]));
                }
                store(x[b, h, 1 - from, r, q], next.cast_like(like));
            }
        }
    }

    /// Where an iteration starts, over the norm of a matrix whose squares, of elements times `unit`, add up to `total`: see `with_norm`.
    tile fn over_norm(total, unit, kind) { START[kind] / (sqrt(total) + EPS * unit) }

    /// The length of a step along the result of an iteration.
    tile fn back(step, kind) { step * BACK[kind] }

    /// `e` of a tile of a Gram matrix. `on_diagonal` says where it holds the diagonal.
    tile fn shifted(gram, on_diagonal, i, kind) {
        let e = POLYNOMIALS[kind][i][0] * gram;
        select(on_diagonal, e - POLYNOMIALS[kind][i][1], e)
    }

    /// What the square of `e` is added to.
    tile fn linear(e, on_diagonal, i, kind) {
        let p = POLYNOMIALS[kind][i][2] * e;
        select(on_diagonal, p + POLYNOMIALS[kind][i][3], p)
    }
}
