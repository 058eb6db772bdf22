//! Back through one orthogonalised step of a chunk, `W' = lam W - step NS(S')`: see [`muon`](crate::omega::muon).
//!
//! Newton-Schulz takes `X_0 = S' / (|S'| + eps)`, and five times `X <- P X` with `P = a + b A + c A A` and `A = X X^T`, which is symmetric.
//! From the gradient `G` by `X` after an iteration,
//!
//! ```text
//! dP = G X^T,  dA = b dP + c (dP A + A dP),  G <- P G + (dA + dA^T) X
//! dS' += [G - X_0 <G, X_0> (|S'| + eps) / |S'|] / (|S'| + eps),  dstep = -<dW', NS(S')>
//! ```
//!
//! and `G = -step dW'` at the end. For a matrix of zeros the second term is 0. The iterates are computed again and kept in a workspace.
//!
//! All of this is in f32, with products of `tf32x3`, whatever the element type of tokens is: each iteration multiplies what is small
//! by up to 3.4, and a gradient goes through five of them.
//!
//! A matrix lies wide: one with more rows than columns is given transposed, for which the function is the same.
//!
//! FLOPs: `50 R R Q + 30 R R R`.

use crate::newton_schulz_small::{CLASSIC, EPS, LARGE};
use atlas_macros::atlas_kernel;

/// The coefficients of every step.
const A0: f32 = CLASSIC[0] as f32;
const A1: f32 = CLASSIC[1] as f32;
const A2: f32 = CLASSIC[2] as f32;

/// Square matrices by their places in `squares`: the Gram matrices `A` and the polynomials `P` of five iterations, and going back `dP` and
/// `dA`, before its transpose is added.
const GRAM: i32 = 0;
const P: i32 = 5;
const BY_P: i32 = 10;
const BY_GRAM: i32 = 11;

atlas_kernel! {
    /// `to[k] = left[i] right[j]ᵀ`, of matrices `[R, Q]`.
    device fn times_transposed(left, i, right, j, to, k, b, h, R, Q, BR, BQ) {
        for r in tiles(R, BR) {
            for c in tiles(R, BR) {
                let mut product = zeros::<f32>([BR, BR]);
                for q in tiles(Q, BQ) {
                    product += dot(load(left[b, h, i, r, q]), load(right[b, h, j, c, q]).t()).precision(tf32x3);
                }
                store(to[b, h, k, r, c], product);
            }
        }
    }

    /// Adds to `ds` the gradient by the momentum `s` after a chunk, from the one by the weights after it. `dstep` is the gradient by
    /// the length of the step. `iterates`, the gradients `by` them, and `squares` are a workspace.
    pub kernel omega_step_backward(
        s: &Tensor<f32, [B, H, R, Q]>,
        dw: &Tensor<f32, [B, H, R, Q]>,
        steps: &Tensor<f32, [B, H, C, L]>,
        ds: &mut Tensor<f32, [B, H, R, Q]>,
        dstep: &mut Tensor<f32, [B, H, C, X]>,
        iterates: &mut Tensor<f32, [B, H, I, R, Q]>,
        by: &mut Tensor<f32, [B, H, I, R, Q]>,
        squares: &mut Tensor<f32, [B, H, F, R, R]>,
    )
    tune { BR: [32, 16], BQ: [32, 16], warps: [4, 8] }
    require { C == 1, X == 1, I == 6, F == 12 }
    {
        for (b, h) in grid(B, H) {
            let mut greatest = zeros::<f32>([BR, BQ]);
            for r in tiles(R, BR) {
                for q in tiles(Q, BQ) {
                    greatest = max(greatest, abs(load(s[b, h, r, q])).or(0.0));
                }
            }
            let unit = min(LARGE / max(greatest), 1.0);
            let mut total = zeros::<f32>([BR, BQ]);
            for r in tiles(R, BR) {
                for q in tiles(Q, BQ) {
                    let scaled = load(s[b, h, r, q]) * unit;
                    total += (scaled * scaled).or(0.0);
                }
            }
            let length = sqrt(sum(total));
            let norm = length + EPS * unit;
            for r in tiles(R, BR) {
                for q in tiles(Q, BQ) {
                    store(iterates[b, h, 0, r, q], load(s[b, h, r, q]) * unit / norm);
                }
            }
            for i in 0..5 {
                times_transposed(iterates, i, iterates, i, squares, GRAM + i, b, h, R, Q, BR, BQ);
                for r in tiles(R, BR) {
                    for c in tiles(R, BR) {
                        let mut squared = zeros::<f32>([BR, BR]);
                        for k in tiles(R, BR) {
                            let column = load(squares[b, h, GRAM + i, k, c]);
                            squared += dot(load(squares[b, h, GRAM + i, r, k]), column).precision(tf32x3);
                        }
                        let p = A1 * load(squares[b, h, GRAM + i, r, c]) + A2 * squared;
                        let on_diagonal = r * BR + iota([BR, BR], 0) == c * BR + iota([BR, BR], 1);
                        store(squares[b, h, P + i, r, c], select(on_diagonal, p + A0, p));
                    }
                }
                for r in tiles(R, BR) {
                    for q in tiles(Q, BQ) {
                        let mut next = zeros::<f32>([BR, BQ]);
                        for k in tiles(R, BR) {
                            let x = load(iterates[b, h, i, k, q]);
                            next += dot(load(squares[b, h, P + i, r, k]), x).precision(tf32x3);
                        }
                        store(iterates[b, h, i + 1, r, q], next);
                    }
                }
            }
            let step = load(steps[b, h, 0, size(L) - 1]);
            let mut along = zeros::<f32>([BR, BQ]);
            for r in tiles(R, BR) {
                for q in tiles(Q, BQ) {
                    let dwq = load(dw[b, h, r, q]);
                    along += (dwq * load(iterates[b, h, 5, r, q])).or(0.0);
                    store(by[b, h, 5, r, q], -step * dwq);
                }
            }
            store(dstep[b, h, 0, 0], -sum(along));
            for j in 0..5 {
                let i = 4 - j;
                times_transposed(by, i + 1, iterates, i, squares, BY_P, b, h, R, Q, BR, BQ);
                for r in tiles(R, BR) {
                    for c in tiles(R, BR) {
                        let mut twice = zeros::<f32>([BR, BR]);
                        for k in tiles(R, BR) {
                            let column = load(squares[b, h, GRAM + i, k, c]);
                            twice += dot(load(squares[b, h, BY_P, r, k]), column).precision(tf32x3);
                        }
                        for k in tiles(R, BR) {
                            let column = load(squares[b, h, BY_P, k, c]);
                            twice += dot(load(squares[b, h, GRAM + i, r, k]), column).precision(tf32x3);
                        }
                        store(squares[b, h, BY_GRAM, r, c], A1 * load(squares[b, h, BY_P, r, c]) + A2 * twice);
                    }
                }
                for r in tiles(R, BR) {
                    for q in tiles(Q, BQ) {
                        let mut through = zeros::<f32>([BR, BQ]);
                        for k in tiles(R, BR) {
                            let p = load(squares[b, h, P + i, r, k]);
                            through += dot(p, load(by[b, h, i + 1, k, q])).precision(tf32x3);
                        }
                        for k in tiles(R, BR) {
                            let both = load(squares[b, h, BY_GRAM, r, k]) + load(squares[b, h, BY_GRAM, k, r]).t();
                            through += dot(both, load(iterates[b, h, i, k, q])).precision(tf32x3);
                        }
                        store(by[b, h, i, r, q], through);
                    }
                }
            }
            let mut radius = zeros::<f32>([BR, BQ]);
            for r in tiles(R, BR) {
                for q in tiles(Q, BQ) {
                    radius += (load(by[b, h, 0, r, q]) * load(iterates[b, h, 0, r, q])).or(0.0);
                }
            }
            let radial = select(length > 0.0, sum(radius) * norm / length, 0.0);
            for r in tiles(R, BR) {
                for q in tiles(Q, BQ) {
                    let across = load(by[b, h, 0, r, q]) - radial * load(iterates[b, h, 0, r, q]);
                    store(ds[b, h, r, q], load(ds[b, h, r, q]) + across * (unit / norm));
                }
            }
        }
    }

    /// Adds the gradients by the lengths of steps, those of `X` matrices, to those of the gates that they come from: each is that of
    /// the last token of a chunk. All chunks together have so many `tokens`.
    pub kernel omega_step_gate_backward(
        dsteps: &Tensor<f32, [B, H, C, X]>,
        deta: &mut Tensor<f32, [B, C, L, H]>,
        tokens: i32,
    )
    {
        for (b, h, c) in grid(B, H, C) {
            let last = min(size(L), tokens - c * size(L)) - 1;
            store(deta[b, c, last, h], load(deta[b, c, last, h]) + sum(load(dsteps[b, h, c, ..])));
        }
    }
}
