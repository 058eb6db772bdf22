//! The Omega rule with Muon in f64, rounded where the kernels round.
//!
//! A step of the iteration multiplies a singular value that is far below 1 by 3.4445, five of them by 485. A gradient of fewer
//! keys than its matrix has rows leaves values that are next to 0, made of little but roundings: these grow until they are
//! part of the result, so that in 16 bits a memory lies far from the one of exact arithmetic (0.09 of its size where 26 keys
//! train 55 rows), whoever computes it. What a kernel can be held to is the same arithmetic: operands of products rounded to the element
//! type, what tensors keep to theirs, and everything else in f64. In f64 nothing is rounded, and this is the rule as
//! [`reference`](super::reference) defines it, which a test shows.

use super::reference::{Gates, Mixed, Sequence, SequenceSizes, State, add_outer, times, times_transposed, turned};
use super::{MemoryForm, OmegaRule, Read};
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
    /// That of kernels that walk over their matrices: these iterate whichever side is shorter.
    pub walks: bool,
}

/// Which memory, and what of it is read: the same for all chunks of a head.
#[derive(Clone, Copy)]
struct Of<'a> {
    rule: &'a OmegaRule,
    s: &'a SequenceSizes,
    /// The weight of the norm, `[E]`; empty if the memory has none.
    norm: &'a [f64],
}

/// A memory's pass over rows of features.
struct Activations {
    /// Before gelu; empty for a linear memory.
    z: Vec<f64>,
    /// The other half of a gated memory.
    u: Vec<f64>,
    /// What the first matrix multiplies, rounded.
    a: Vec<f64>,
    /// What it makes of that.
    made: Vec<f64>,
}

/// What the gradients of a chunk are made of: of each matrix `left^T right`, but for weights.
struct Parts {
    left: Vec<Vec<f64>>,
    right: Vec<Vec<f64>>,
    /// What the memory reads of the keys.
    read: Vec<f64>,
}

impl Parts {
    /// What a kernel keeps of them: the left factor of the first matrix and, unless the memory is linear, its right one and the left
    /// ones of the others.
    fn into_kept(self, rule: &OmegaRule) -> Vec<Vec<f64>> {
        let mut left = self.left.into_iter();
        let mut kept: Vec<Vec<f64>> = left.next().into_iter().collect();
        if rule.memory != MemoryForm::Linear {
            kept.extend(self.right.into_iter().next());
            kept.extend(left);
        }
        kept
    }
}

impl Of<'_> {
    /// Columns of the first matrix.
    fn inner(&self) -> usize {
        self.s.matrices(self.rule)[0][1]
    }

    /// What comes of the products: each row, and one over its deviation.
    fn outward(&self, made: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let MemoryForm::Normed { eps } = self.rule.memory else { return (made.to_vec(), vec![]) };
        let (mut unit, mut by) = (Vec::new(), Vec::new());
        for row in made.chunks(self.s.e) {
            let count = row.len() as f64;
            let mean = row.iter().sum::<f64>() / count;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            by.push(1.0 / (variance + f64::from(eps)).sqrt());
            unit.extend(row.iter().map(|x| (x - mean) * by[by.len() - 1]));
        }
        (unit, by)
    }

    /// The norm's weight for each element of rows, or 1.
    fn gain(&self, i: usize) -> f64 {
        self.norm.get(i % self.s.e).copied().unwrap_or(1.0)
    }
}

impl Arithmetic {
    /// That of kernels of an element type.
    pub fn of(dtype: DType) -> Arithmetic {
        Arithmetic { dtype, polynomial: CLASSIC, walks: false }
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

    /// At weights as products take them.
    fn pass(&self, of: Of<'_>, w: &[Vec<f64>], x: &[f64]) -> Activations {
        let mut products = w[1..].iter().map(|w| times_transposed(x, w, of.s.d));
        let (z, u) = (products.next().unwrap_or_default(), products.next().unwrap_or_default());
        let a: Vec<f64> = match of.rule.memory {
            MemoryForm::Linear => x.to_vec(),
            MemoryForm::Gated => z.iter().zip(&u).map(|(&z, u)| self.operand(gelu(z) * u)).collect(),
            _ => z.iter().map(|&z| self.operand(gelu(z))).collect(),
        };
        let made = times_transposed(&a, &w[0], of.inner());
        Activations { z, u, a, made }
    }

    /// What is read of rows, rounded.
    fn read(&self, of: Of<'_>, state: &State, x: &[f64], r: &[f64]) -> Vec<f64> {
        let (unit, _) = of.outward(&self.pass(of, &self.weights(state), x).made);
        unit.iter().zip(r).enumerate().map(|(i, (y, r))| self.operand(y * of.gain(i) + r)).collect()
    }

    /// Of tokens `x`, `v` and `r` at the weights of a memory.
    fn parts(&self, of: Of<'_>, state: &State, [x, v, r]: [Vec<f64>; 3]) -> Parts {
        let (w, s) = (self.weights(state), of.s);
        let Activations { z, u, a, made } = self.pass(of, &w, &x);
        let (unit, by) = of.outward(&made);
        let read: Vec<f64> = unit.iter().zip(&r).enumerate().map(|(i, (y, r))| y * of.gain(i) + r).collect();
        let (scale, predicts) = (f64::from(of.rule.loss.factor(s.e)), of.rule.loss.predicts());
        let error = |(y, v): (&f64, &f64)| scale * (if predicts { *y } else { 0.0 } - v);
        let mut errors: Vec<f64> = read.iter().zip(&v).map(error).collect();
        for ((errors, unit), by) in errors.chunks_mut(s.e).zip(unit.chunks(s.e)).zip(&by) {
            // Through the norm: what moves the mean or the deviation of a row does not pass.
            let g: Vec<f64> = errors.iter().enumerate().map(|(i, e)| e * of.gain(i)).collect();
            let mean = g.iter().sum::<f64>() / g.len() as f64;
            let along = g.iter().zip(unit).map(|(g, x)| g * x).sum::<f64>() / g.len() as f64;
            errors.iter_mut().zip(g.iter().zip(unit)).for_each(|(e, (g, x))| *e = by * (g - mean - x * along));
        }
        let back = match of.rule.memory {
            MemoryForm::Linear => vec![],
            _ => times(&self.operands(&errors), &w[0], s.e, s.m),
        };
        let slope = back.iter().zip(&z).map(|(b, &z)| b * gelu_slope(z));
        let (left, right) = match of.rule.memory {
            MemoryForm::Linear => (vec![errors], vec![a]),
            MemoryForm::Gated => {
                let slope = slope.zip(&u).map(|(d, u)| d * u).collect();
                let other = back.iter().zip(&z).map(|(b, &z)| b * gelu(z)).collect();
                (vec![errors, slope, other], vec![a, x.clone(), x])
            }
            _ => (vec![errors, slope.collect()], vec![a, x]),
        };
        Parts { left, right, read }
    }

    /// `left^T right` of rows of these widths, added to what is kept of a momentum.
    fn add(&self, momentum: &mut [f64], kept: f64, [left, right]: [&[f64]; 2], [rows, cols]: [usize; 2]) {
        momentum.iter_mut().for_each(|s| *s *= kept);
        for (a, b) in left.chunks(rows).zip(right.chunks(cols)) {
            add_outer(momentum, 1.0, a, b);
        }
        momentum.iter_mut().for_each(|s| *s = self.kept(*s));
    }

    /// Gradients of tokens of these weights, added to what is kept of the momenta. The weights are on the left.
    fn train(&self, of: Of<'_>, state: &mut State, parts: &Parts, kept: f64, weights: &[f64]) {
        for (i, shape) in of.s.matrices(of.rule).into_iter().enumerate() {
            let left = self.operands(&weighted(&parts.left[i], weights, shape[0]));
            self.add(&mut state.s[i], kept, [&left, &parts.right[i]], shape);
        }
    }

    /// `W <- held W - step NS(S)` of each matrix; `iterate` gets a matrix and its number of rows.
    fn descend(
        &self,
        of: Of<'_>,
        state: &mut State,
        held: f64,
        step: f64,
        iterate: impl Fn(&[f64], usize) -> Vec<f64>,
    ) {
        for (i, [rows, cols]) in of.s.matrices(of.rule).into_iter().enumerate() {
            // All but the first are iterated from the right: as their transposes.
            let is_turned = if self.walks { rows > cols } else { i > 0 };
            let along = match is_turned {
                _ if step == 0.0 => vec![0.0; rows * cols],
                false => iterate(&state.s[i], rows),
                true => turned(&iterate(&turned(&state.s[i], rows), cols), cols),
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

    /// The matrices as products take them.
    pub fn weights(&self, state: &State) -> Vec<Vec<f64>> {
        state.w.iter().map(|w| self.operands(w)).collect()
    }

    /// One head by chunks, from its mixing weights. Returns what is read.
    pub fn chunks(&self, s: &SequenceSizes, rule: &OmegaRule, x: &Sequence, m: &Mixed, state: &mut State) -> Vec<f64> {
        self.chunks_and_last(s, rule, x, m, state).0
    }

    /// The same, and what kernels that walk over their matrices keep in global memory: of the last chunk's keys the errors and, unless
    /// the memory is linear, the hidden rows `[K, M]` and the left factors of the other matrices, `[K, M]`; the hidden rows of its
    /// queries, `[L, M]`; and the weights as products take them.
    pub fn chunks_and_last(
        &self,
        s: &SequenceSizes,
        rule: &OmegaRule,
        x: &Sequence,
        m: &Mixed,
        state: &mut State,
    ) -> (Vec<f64>, Vec<Vec<f64>>) {
        let of = Of { rule, s, norm: &x.norm };
        let mut out = Vec::new();
        let mut last = vec![];
        for c in 0..s.chunks() {
            let own = c * s.l..((c + 1) * s.l).min(s.n);
            let asked = [&x.q[own.start * s.d..own.end * s.d], &x.rq[own.start * s.e..own.end * s.e]];
            let mut hidden = self.pass(of, &self.weights(state), asked[0]).a;
            if rule.read == Read::Before {
                out.extend(self.read(of, state, asked[0], asked[1]));
            }
            let oldest = (c * s.l + s.p - s.n + s.l) as i64 - s.k as i64;
            let parts = self.parts(of, state, tokens(s, x, oldest, |i| m.live[c * s.k + i] > 0.0));
            self.train(of, state, &parts, m.beta_end[c], &m.phi_end[c * s.k..][..s.k]);
            let step = m.steps[(c + 1) * s.l - 1];
            self.descend(of, state, m.lam_end[c], step, |g, rows| self.iterate(g, rows, 5));
            if rule.read == Read::After {
                hidden = self.pass(of, &self.weights(state), asked[0]).a;
                out.extend(self.read(of, state, asked[0], asked[1]));
            }
            last = parts.into_kept(rule);
            if rule.memory != MemoryForm::Linear {
                // Tokens behind the last one have queries of zeros.
                hidden.resize(s.l * s.m, 0.0);
                last.push(hidden);
            }
            last.extend(self.weights(state));
        }
        (out, last)
    }

    /// One head by tokens. Returns what is read, `[N, E]`, and what the last chunk's gradients are made of: the left factor of the
    /// first matrix `[K, E]` and, unless the memory is linear, its right one `[K, M]` and the left ones of the others, `[K, M]`. Kernels
    /// that walk over their matrices also keep the hidden row that was read last, `[M]`, and the weights as products take them.
    pub fn tokens(
        &self,
        s: &SequenceSizes,
        rule: &OmegaRule,
        x: &Sequence,
        g: &Gates,
        state: &mut State,
    ) -> (Vec<f64>, Vec<Vec<f64>>) {
        let of = Of { rule, s, norm: &x.norm };
        let past = s.p - s.n;
        let mut out = Vec::new();
        let (mut last, mut hidden) = (vec![], vec![]);
        for c in 0..s.chunks() {
            // The key of number `i` among the chunk's, if it is one, and its weight in the window of token `t`.
            let oldest = (c * s.l + past + s.l) as i64 - s.k as i64;
            let weight = |t: usize, i: usize| {
                let back = (t + past) as i64 - oldest - i as i64;
                if (0..s.w as i64).contains(&back) { g.gamma[t * s.w + s.w - 1 - back as usize] } else { 0.0 }
            };
            let chunk = c * s.l..((c + 1) * s.l).min(s.n);
            let seen = |i: usize| chunk.clone().any(|t| weight(t, i) != 0.0);
            let mut parts = self.parts(of, state, tokens(s, x, oldest, seen));
            parts.left[1..].iter_mut().for_each(|left| *left = self.operands(left));
            for t in chunk.clone() {
                let asked = [&x.q[t * s.d..][..s.d], &x.rq[t * s.e..][..s.e]];
                if rule.read == Read::Before {
                    hidden = self.pass(of, &self.weights(state), asked[0]).a;
                    out.extend(self.read(of, state, asked[0], asked[1]));
                }
                let band: Vec<f64> = (0..s.k).map(|i| weight(t, i)).collect();
                for (i, [rows, cols]) in s.matrices(rule).into_iter().enumerate() {
                    // The weights are on the left of the first matrix, and on the right of the others.
                    let (mut left, mut right) = (parts.left[i].clone(), parts.right[i].clone());
                    let (side, width) = if i == 0 { (&mut left, rows) } else { (&mut right, cols) };
                    *side = self.operands(&weighted(side, &band, width));
                    self.add(&mut state.s[i], g.theta[t], [&left, &right], [rows, cols]);
                }
                self.descend(of, state, g.alpha[t], g.eta[t], |g, rows| self.iterate_about_centres(g, rows));
                if rule.read == Read::After {
                    hidden = self.pass(of, &self.weights(state), asked[0]).a;
                    out.extend(self.read(of, state, asked[0], asked[1]));
                }
            }
            last = parts.into_kept(rule);
        }
        if self.walks {
            last.extend(Some(hidden).filter(|_| rule.memory != MemoryForm::Linear));
            last.extend(self.weights(state));
        }
        (out, last)
    }

    /// One step of a memory on a window of tokens of these weights: the weighted loss before it. `count`
    /// steps of the iteration, or along the momentum itself.
    pub fn step(
        &self,
        s: &SequenceSizes,
        (rule, count): (&OmegaRule, Option<usize>),
        tokens: [&[f64]; 3],
        weights: &[f64],
        [alpha, theta, eta]: [f64; 3],
        state: &mut State,
    ) -> f64 {
        let of = Of { rule, s, norm: &[] };
        let widths = [s.d, s.e, s.e];
        let alive = |of: &[f64], width: usize| -> Vec<f64> {
            let rows = of.chunks(width).zip(weights);
            rows.flat_map(|(row, w)| row.iter().map(move |x| if *w == 0.0 { 0.0 } else { *x })).collect()
        };
        let tokens: [Vec<f64>; 3] = std::array::from_fn(|i| alive(tokens[i], widths[i]));
        let wanted = tokens[1].clone();
        let parts = self.parts(of, state, tokens);
        let scale = f64::from(rule.loss.factor(s.e));
        let of_one = |(y, v): (&f64, &f64)| if rule.loss.predicts() { (y - v) * (y - v) / 2.0 } else { -y * v };
        let of_row = |(y, v): (&[f64], &[f64])| scale * y.iter().zip(v).map(of_one).sum::<f64>();
        let rows = parts.read.chunks(s.e).zip(wanted.chunks(s.e));
        let loss = rows.map(of_row).zip(weights).map(|(loss, w)| w * loss).sum();
        self.train(of, state, &parts, theta, weights);
        self.descend(of, state, alpha, eta, |g, rows| match count {
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
