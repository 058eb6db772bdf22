//! The Omega rule with Muon in f64, rounded where the kernels round.
//!
//! A step of the iteration multiplies a singular value that is far below 1 by 3.4445, five of them by 485. A gradient of fewer
//! keys than its matrix has rows leaves values that are next to 0, made of little but roundings: these grow until they are
//! part of the result, so that in 16 bits a memory lies far from the one of exact arithmetic (0.09 of its size where 26 keys
//! train 55 rows), whoever computes it. What a kernel can be held to is the same arithmetic: operands of products rounded to the element
//! type, what tensors keep to theirs, and everything else in f64. In f64 nothing is rounded, and this is the rule as
//! [`reference`](super::reference) defines it, which a test shows.

use super::reference::{Gates, Mixed, Sequence, SequenceSizes, State, add_outer, times, times_transposed, turned};
use crate::memory::{gelu, gelu_slope};
use crate::newton_schulz_small::{CENTRES, CLASSIC, EPS, SCALE, UNSCALE};
use crate::problem::round;
use atlas_dsl::DType;

/// How the kernels round, and which polynomial they iterate.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    /// The element type of keys, values and results, to which operands of products are rounded; f64 to round nothing.
    pub dtype: DType,
    /// The coefficients of each step of the iteration.
    pub polynomial: [f64; 3],
}

/// A memory's pass over rows of features.
struct Activations {
    /// Before gelu.
    z: Vec<f64>,
    /// Behind it, as the second product takes it.
    a: Vec<f64>,
    /// The result, without a residual.
    y: Vec<f64>,
}

/// What the gradients of a chunk are made of: of the first matrix `errors^T a`, of the second `delta^T x`, but for weights.
struct Parts {
    x: Vec<f64>,
    errors: Vec<f64>,
    a: Vec<f64>,
    delta: Vec<f64>,
}

impl Arithmetic {
    /// That of kernels of an element type.
    pub fn of(dtype: DType) -> Arithmetic {
        Arithmetic { dtype, polynomial: CLASSIC }
    }

    /// As a product takes it.
    fn operand(&self, x: f64) -> f64 {
        if self.dtype == DType::F64 { x } else { f64::from(round(x as f32, self.dtype)) }
    }

    fn operands(&self, x: &[f64]) -> Vec<f64> {
        x.iter().map(|&x| self.operand(x)).collect()
    }

    /// As a tensor of f32 keeps it.
    fn kept(&self, x: f64) -> f64 {
        if self.dtype == DType::F64 { x } else { f64::from(x as f32) }
    }

    /// Of weights as products take them, `[E, M]` and `[M, D]`.
    fn pass(&self, s: &SequenceSizes, w: &[Vec<f64>], x: &[f64]) -> Activations {
        let z = times_transposed(x, &w[1], s.d);
        let a: Vec<f64> = z.iter().map(|&z| self.operand(gelu(z))).collect();
        let y = times_transposed(&a, &w[0], s.m);
        Activations { z, a, y }
    }

    /// What is read of a row, rounded.
    fn read(&self, s: &SequenceSizes, w: &[Vec<f64>], x: &[f64], r: &[f64]) -> Vec<f64> {
        let y = self.pass(s, w, x).y;
        y.iter().zip(r).map(|(y, r)| self.operand(y + r)).collect()
    }

    /// Of tokens `x`, `v` and `r` at the weights `w`, for the loss `scale/2 |M(x) - v|^2`.
    fn parts(&self, s: &SequenceSizes, w: &[Vec<f64>], [x, v, r]: [Vec<f64>; 3], scale: f64) -> Parts {
        let Activations { z, a, y } = self.pass(s, w, &x);
        let errors: Vec<f64> = y.iter().zip(&r).zip(&v).map(|((y, r), v)| scale * (y + r - v)).collect();
        let back = times(&self.operands(&errors), &w[0], s.e, s.m);
        let delta = back.iter().zip(&z).map(|(b, &z)| b * gelu_slope(z)).collect();
        Parts { x, errors, a, delta }
    }

    /// `left^T right` of rows of these widths, added to what is kept of a momentum.
    fn add(&self, momentum: &mut [f64], kept: f64, [left, right]: [&[f64]; 2], [rows, cols]: [usize; 2]) {
        momentum.iter_mut().for_each(|s| *s *= kept);
        for (a, b) in left.chunks(rows).zip(right.chunks(cols)) {
            add_outer(momentum, 1.0, a, b);
        }
        momentum.iter_mut().for_each(|s| *s = self.kept(*s));
    }

    /// `W <- held W - step NS(S)` of both matrices; `iterate` is the iteration of one of so many rows.
    fn descend(
        &self,
        s: &SequenceSizes,
        state: &mut State,
        held: f64,
        step: f64,
        iterate: impl Fn(&[f64], usize) -> Vec<f64>,
    ) {
        for i in 0..2 {
            // The second matrix is iterated as its transpose.
            let along = match i {
                0 => iterate(&state.s[0], s.e),
                _ => turned(&iterate(&turned(&state.s[1], s.m), s.d), s.d),
            };
            state.w[i].iter_mut().zip(&along).for_each(|(w, o)| *w = self.kept(held * *w - step * o));
        }
    }

    /// `(a + b A + c A A) x` so often, with `A = x x^T`, of a matrix divided by its norm.
    fn iterate(&self, g: &[f64], rows: usize, count: usize) -> Vec<f64> {
        let cols = g.len() / rows;
        let [a, b, c] = self.polynomial;
        let mut x = self.normalised(g, 1.0);
        for _ in 0..count {
            let gram = times(&x, &turned(&x, rows), cols, rows);
            let rounded = self.operands(&gram);
            let square = times(&rounded, &rounded, rows, rows);
            let mut p: Vec<f64> = gram.iter().zip(&square).map(|(g, s)| b * g + c * s).collect();
            (0..rows).for_each(|i| p[i * rows + i] += a);
            x = self.operands(&times(&self.operands(&p), &x, rows, cols));
        }
        x
    }

    /// The same of five steps, of which each takes its polynomial about a centre: see `newton_schulz_small`.
    fn iterate_about_centres(&self, g: &[f64], rows: usize) -> Vec<f64> {
        let (cols, k) = (g.len() / rows, SCALE * SCALE);
        let [a, b, c] = self.polynomial;
        let mut x = self.normalised(g, SCALE);
        for s in CENTRES {
            let (first, second) = (a + b * s + c * s * s, (b + 2.0 * c * s) / k);
            let mut e = times(&x, &turned(&x, rows), cols, rows);
            (0..rows).for_each(|i| e[i * rows + i] -= k * s);
            let rounded = self.operands(&e);
            let square = times(&rounded, &rounded, rows, rows);
            let mut p: Vec<f64> = e.iter().zip(&square).map(|(e, s)| second * e + s).collect();
            (0..rows).for_each(|i| p[i * rows + i] += first);
            x = self.operands(&times(&self.operands(&p), &x, rows, cols));
        }
        x.iter().map(|x| x * UNSCALE).collect()
    }

    fn normalised(&self, g: &[f64], scale: f64) -> Vec<f64> {
        let norm = g.iter().map(|v| v * v).sum::<f64>().sqrt();
        g.iter().map(|v| self.operand(v * (scale / (norm + f64::from(EPS))))).collect()
    }

    /// Both matrices as products take them.
    fn weights(&self, state: &State) -> Vec<Vec<f64>> {
        state.w.iter().map(|w| self.operands(w)).collect()
    }

    /// One head of `omega_muon`, chunk by chunk, from its mixing weights. Returns what is read.
    pub fn chunks(&self, s: &SequenceSizes, x: &Sequence, m: &Mixed, state: &mut State, scale: f64) -> Vec<f64> {
        let mut out = Vec::new();
        for c in 0..s.chunks() {
            let w = self.weights(state);
            for t in c * s.l..((c + 1) * s.l).min(s.n) {
                out.extend(self.read(s, &w, &x.q[t * s.d..][..s.d], &x.rq[t * s.e..][..s.e]));
            }
            let oldest = (c * s.l + s.p - s.n + s.l) as i64 - s.k as i64;
            let tokens = tokens(s, x, oldest, |i| m.live[c * s.k + i] > 0.0);
            let Parts { x, errors, a, delta } = self.parts(s, &w, tokens, scale);
            let weight = &m.phi_end[c * s.k..][..s.k];
            let errors = self.operands(&weighted(&errors, weight, s.e));
            let delta = self.operands(&weighted(&delta, weight, s.m));
            self.add(&mut state.s[0], m.beta_end[c], [&errors, &a], [s.e, s.m]);
            self.add(&mut state.s[1], m.beta_end[c], [&delta, &x], [s.m, s.d]);
            let step = m.steps[(c + 1) * s.l - 1];
            self.descend(s, state, m.lam_end[c], step, |g, rows| self.iterate(g, rows, 5));
        }
        out
    }

    /// One head of `omega_muon_tokens`. Returns what is read, `[N, E]`, and what the last
    /// chunk's gradients are made of: `errors` `[K, E]`, `act` and `delta` `[K, M]`.
    pub fn tokens(
        &self,
        s: &SequenceSizes,
        x: &Sequence,
        g: &Gates,
        state: &mut State,
        scale: f64,
        before: bool,
    ) -> (Vec<f64>, [Vec<f64>; 3]) {
        let past = s.p - s.n;
        let mut out = Vec::new();
        let mut last = [vec![], vec![], vec![]];
        for c in 0..s.chunks() {
            // The key of number `i` among the chunk's, if it is one, and its weight in the window of token `t`.
            let oldest = (c * s.l + past + s.l) as i64 - s.k as i64;
            let weight = |t: usize, i: usize| {
                let back = (t + past) as i64 - oldest - i as i64;
                if (0..s.w as i64).contains(&back) { g.gamma[t * s.w + s.w - 1 - back as usize] } else { 0.0 }
            };
            let chunk = c * s.l..((c + 1) * s.l).min(s.n);
            let seen = |i: usize| chunk.clone().any(|t| weight(t, i) != 0.0);
            let Parts { x: keys, errors, a, delta } =
                self.parts(s, &self.weights(state), tokens(s, x, oldest, seen), scale);
            let delta = self.operands(&delta);
            for t in chunk.clone() {
                let (query, residual) = (&x.q[t * s.d..][..s.d], &x.rq[t * s.e..][..s.e]);
                if before {
                    out.extend(self.read(s, &self.weights(state), query, residual));
                }
                let band: Vec<f64> = (0..s.k).map(|i| weight(t, i)).collect();
                let errors = self.operands(&weighted(&errors, &band, s.e));
                let keys = self.operands(&weighted(&keys, &band, s.d));
                self.add(&mut state.s[0], g.theta[t], [&errors, &a], [s.e, s.m]);
                self.add(&mut state.s[1], g.theta[t], [&delta, &keys], [s.m, s.d]);
                self.descend(s, state, g.alpha[t], g.eta[t], |g, rows| self.iterate_about_centres(g, rows));
                if !before {
                    out.extend(self.read(s, &self.weights(state), query, residual));
                }
            }
            last = [errors, a, delta];
        }
        (out, last)
    }

    /// One step of a memory on a window of tokens of these weights: the weighted loss before it. `count`
    /// steps of the iteration, or along the momentum itself.
    pub fn step(
        &self,
        s: &SequenceSizes,
        tokens: [&[f64]; 3],
        weights: &[f64],
        [alpha, theta, eta]: [f64; 3],
        state: &mut State,
        (scale, count): (f64, Option<usize>),
    ) -> f64 {
        let widths = [s.d, s.e, s.e];
        let alive = |of: &[f64], width: usize| -> Vec<f64> {
            let rows = of.chunks(width).zip(weights);
            rows.flat_map(|(row, w)| row.iter().map(move |x| if *w == 0.0 { 0.0 } else { *x })).collect()
        };
        let tokens = std::array::from_fn(|i| alive(tokens[i], widths[i]));
        let Parts { x, errors, a, delta } = self.parts(s, &self.weights(state), tokens, scale);
        let squares = |row: &[f64]| row.iter().map(|e| e * e).sum::<f64>();
        let loss = errors.chunks(s.e).zip(weights).map(|(e, w)| w * squares(e) / (2.0 * scale)).sum();
        let errors = self.operands(&weighted(&errors, weights, s.e));
        let delta = self.operands(&weighted(&delta, weights, s.m));
        self.add(&mut state.s[0], theta, [&errors, &a], [s.e, s.m]);
        self.add(&mut state.s[1], theta, [&delta, &x], [s.m, s.d]);
        self.descend(s, state, alpha, eta, |g, rows| match count {
            None => g.to_vec(),
            Some(count) => self.iterate(g, rows, count),
        });
        loss
    }
}

/// Keys, values and residuals that a chunk sees, from the `oldest` on; zeros for what is no token or has no weight.
fn tokens(s: &SequenceSizes, x: &Sequence, oldest: i64, seen: impl Fn(usize) -> bool) -> [Vec<f64>; 3] {
    let at = |i: usize| usize::try_from(oldest + i as i64).ok().filter(|&t| t < s.p && seen(i));
    let rows = |of: &[f64], width: usize| -> Vec<f64> {
        let row = |i: usize| at(i).map_or(vec![0.0; width], |t| of[t * width..][..width].to_vec());
        (0..s.k).flat_map(row).collect()
    };
    [rows(&x.k, s.d), rows(&x.v, s.e), rows(&x.rk, s.e)]
}

/// Rows times their weights.
fn weighted(rows: &[f64], weights: &[f64], width: usize) -> Vec<f64> {
    let of = rows.chunks(width).zip(weights);
    of.flat_map(|(row, w)| row.iter().map(move |x| w * x)).collect()
}
