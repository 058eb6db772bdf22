//! The Omega rule in f64, twice: token by token as it is defined, and chunk by chunk as the kernels compute it.
//!
//! The two are written apart and agree to rounding, which a test shows. Of the rule with Muon the second is in
//! [`rounded`](super::rounded). Arrays are row-major, tokens-first `[N, H, ..]` as the
//! kernels' are; one sequence at a time.

use crate::memory::{gelu, gelu_slope};
use rayon::prelude::*;

/// Sizes of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct SequenceSizes {
    /// Tokens.
    pub n: usize,
    /// Tokens of the keys: those before the first chunk come first.
    pub p: usize,
    /// Heads.
    pub h: usize,
    /// Features of a key.
    pub d: usize,
    /// Elements of a value.
    pub e: usize,
    /// Hidden elements of the memory; 0 for a linear one.
    pub m: usize,
    /// Tokens of a chunk.
    pub l: usize,
    /// Tokens of the window.
    pub w: usize,
    /// Keys that a chunk sees.
    pub k: usize,
}

impl SequenceSizes {
    /// Chunks.
    pub fn chunks(&self) -> usize {
        self.n.div_ceil(self.l)
    }

    /// Elements of the first and of the second matrix of a memory.
    pub fn matrices(&self) -> [usize; 2] {
        if self.m == 0 { [self.e * self.d, 0] } else { [self.e * self.m, self.m * self.d] }
    }
}

/// What a sequence is made of; keys and what goes with them have `p` tokens.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    /// `[N, H, D]`.
    pub q: Vec<f64>,
    /// `[P, H, D]`.
    pub k: Vec<f64>,
    /// `[P, H, E]`.
    pub v: Vec<f64>,
    /// `[N, H, E]`.
    pub rq: Vec<f64>,
    /// `[P, H, E]`.
    pub rk: Vec<f64>,
}

/// The gates of a sequence.
#[derive(Clone, Debug, Default)]
pub struct Gates {
    /// `[N, H]`.
    pub alpha: Vec<f64>,
    /// `[N, H]`.
    pub theta: Vec<f64>,
    /// `[N, H]`.
    pub eta: Vec<f64>,
    /// `[N, H, W]`, the oldest token of the window first.
    pub gamma: Vec<f64>,
}

/// Weights and momentum of one head's memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// `W1` `[E, M]` and `W2` `[M, D]`; or `W` `[E, D]` and nothing.
    pub w: [Vec<f64>; 2],
    /// Of the same shapes.
    pub s: [Vec<f64>; 2],
}

/// Rows of one head: `[T, H, X]` to `[T, X]`.
pub fn of_head(x: &[f64], head: usize, heads: usize, width: usize) -> Vec<f64> {
    x.chunks(heads * width).flat_map(|token| &token[head * width..][..width]).copied().collect()
}

/// `a b^T` of row-major `a` with rows of `inner`, and `b` likewise.
pub(crate) fn times_transposed(a: &[f64], b: &[f64], inner: usize) -> Vec<f64> {
    let row = |x: &[f64]| b.chunks(inner).map(|y| x.iter().zip(y).map(|(x, y)| x * y).sum()).collect::<Vec<f64>>();
    a.chunks(inner).flat_map(row).collect()
}

/// `a b` of `a` with rows of `inner` and `b` with rows of `cols`.
pub(crate) fn times(a: &[f64], b: &[f64], inner: usize, cols: usize) -> Vec<f64> {
    let mut c = vec![0.0; a.len() / inner * cols];
    for (row, c) in a.chunks(inner).zip(c.chunks_mut(cols)) {
        for (x, b) in row.iter().zip(b.chunks(cols)) {
            c.iter_mut().zip(b).for_each(|(c, b)| *c += x * b);
        }
    }
    c
}

/// The transpose of a matrix of so many rows.
pub(crate) fn turned(w: &[f64], rows: usize) -> Vec<f64> {
    let cols = w.len() / rows.max(1);
    (0..w.len()).map(|i| w[i % rows * cols + i / rows]).collect()
}

/// `c += factor a^T b` of rows that belong together.
pub(crate) fn add_outer(c: &mut [f64], factor: f64, a: &[f64], b: &[f64]) {
    for (x, c) in a.iter().zip(c.chunks_mut(b.len())) {
        c.iter_mut().zip(b).for_each(|(c, b)| *c += factor * x * b);
    }
}

/// What a memory makes of a row of features and a residual.
pub fn read(s: &SequenceSizes, w: &[Vec<f64>; 2], x: &[f64], r: &[f64]) -> Vec<f64> {
    let inner = hidden(s, w, x).1;
    let out = times_transposed(&inner, &w[0], inner.len());
    out.iter().zip(r).map(|(y, r)| y + r).collect()
}

/// The hidden row before and after gelu; the row itself for a linear memory.
fn hidden(s: &SequenceSizes, w: &[Vec<f64>; 2], x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    if s.m == 0 {
        return (vec![], x.to_vec());
    }
    let z = times_transposed(x, &w[1], s.d);
    let a = z.iter().map(|&z| gelu(z)).collect();
    (z, a)
}

/// The factors of a token's gradient: of the first matrix `e a^T`, of the second `delta x^T`.
struct Factors {
    e: Vec<f64>,
    a: Vec<f64>,
    delta: Vec<f64>,
    x: Vec<f64>,
}

impl Factors {
    /// At the weights `w`, for the loss `scale/2 |M(x) - v|^2`.
    fn of(s: &SequenceSizes, w: &[Vec<f64>; 2], [x, v, r]: [&[f64]; 3], scale: f64) -> Factors {
        let (z, a) = hidden(s, w, x);
        let y = read(s, w, x, r);
        let e: Vec<f64> = y.iter().zip(v).map(|(y, v)| scale * (y - v)).collect();
        let back = if s.m == 0 { vec![] } else { times(&e, &w[0], s.e, s.m) };
        let delta = back.iter().zip(&z).map(|(b, &z)| b * gelu_slope(z)).collect();
        Factors { e, a, delta, x: x.to_vec() }
    }

    fn add(&self, to: &mut [Vec<f64>; 2], factor: f64) {
        add_outer(&mut to[0], factor, &self.e, &self.a);
        if !to[1].is_empty() {
            add_outer(&mut to[1], factor, &self.delta, &self.x);
        }
    }
}

/// One head, token by token, by definition. A token of weight 0 is not looked at. Returns what is read, `[N, E]`.
pub fn recurrence(s: &SequenceSizes, x: &Sequence, g: &Gates, state: &mut State, scale: f64, before: bool) -> Vec<f64> {
    let past = s.p - s.n;
    let mut anchor = state.w.clone();
    let mut out = Vec::new();
    let row = |m: &[f64], t: usize, width: usize| m[t * width..][..width].to_vec();
    for t in 0..s.n {
        if t % s.l == 0 {
            anchor = state.w.clone();
        }
        let seen = row(&x.q, t, s.d);
        let residual = row(&x.rq, t, s.e);
        if before {
            out.extend(read(s, &state.w, &seen, &residual));
        }
        // A chunk does not see further back than its keys reach.
        let oldest = (t / s.l * s.l + past + s.l).saturating_sub(s.k);
        let mut u = [vec![0.0; state.w[0].len()], vec![0.0; state.w[1].len()]];
        for back in 0..s.w {
            let weight = g.gamma[t * s.w + s.w - 1 - back];
            let Some(i) = (t + past).checked_sub(back).filter(|&i| i >= oldest && weight != 0.0) else { continue };
            let token = [&row(&x.k, i, s.d)[..], &row(&x.v, i, s.e), &row(&x.rk, i, s.e)];
            Factors::of(s, &anchor, token, scale).add(&mut u, weight);
        }
        for i in 0..2 {
            for ((w, s), u) in state.w[i].iter_mut().zip(&mut state.s[i]).zip(&u[i]) {
                *s = g.theta[t] * *s + u;
                *w = g.alpha[t] * *w - g.eta[t] * *s;
            }
        }
        if !before {
            out.extend(read(s, &state.w, &seen, &residual));
        }
    }
    out
}

/// One head with Muon by chunks, by definition: a chunk is read at the weights before it, the momentum takes its tokens one by
/// one, and the weights take one step along the orthogonalised momentum. `W2` and its momentum are `[D, M]`.
pub fn muon(s: &SequenceSizes, x: &Sequence, g: &Gates, state: &mut State, scale: f64) -> Vec<f64> {
    let past = s.p - s.n;
    let row = |m: &[f64], t: usize, width: usize| m[t * width..][..width].to_vec();
    let mut out = Vec::new();
    for c in 0..s.chunks() {
        let anchor = [state.w[0].clone(), turned(&state.w[1], s.d)];
        let (mut kept, mut step) = (1.0, 0.0);
        for t in c * s.l..((c + 1) * s.l).min(s.n) {
            out.extend(read(s, &anchor, &row(&x.q, t, s.d), &row(&x.rq, t, s.e)));
            let oldest = (c * s.l + past + s.l).saturating_sub(s.k);
            let mut u = [vec![0.0; anchor[0].len()], vec![0.0; anchor[1].len()]];
            for back in 0..s.w {
                let weight = g.gamma[t * s.w + s.w - 1 - back];
                let Some(i) = (t + past).checked_sub(back).filter(|&i| i >= oldest && weight != 0.0) else { continue };
                let token = [&row(&x.k, i, s.d)[..], &row(&x.v, i, s.e), &row(&x.rk, i, s.e)];
                Factors::of(s, &anchor, token, scale).add(&mut u, weight);
            }
            u[1] = turned(&u[1], s.m);
            for i in 0..2 {
                state.s[i].iter_mut().zip(&u[i]).for_each(|(s, u)| *s = g.theta[t] * *s + u);
            }
            kept *= g.alpha[t];
            step = g.eta[t];
        }
        for (i, rows) in [s.e, s.d].into_iter().enumerate() {
            let along = crate::newton_schulz_small::reference(&state.s[i], [rows, s.m]);
            state.w[i].iter_mut().zip(&along).for_each(|(w, o)| *w = kept * *w - step * o);
        }
    }
    out
}

/// The mixing weights of one head.
#[derive(Clone, Debug, Default)]
pub struct Mixed {
    /// `[C, L, K]`.
    pub psi: Vec<f64>,
    /// `[C, L]`.
    pub lam: Vec<f64>,
    /// `[C, L]`.
    pub old: Vec<f64>,
    /// `[C, K]`: the last row of each chunk.
    pub psi_end: Vec<f64>,
    /// `[C, K]`.
    pub phi_end: Vec<f64>,
    /// `[C, K]`: above 0 for a token that something weighs.
    pub live: Vec<f64>,
    /// `[C]`.
    pub lam_end: Vec<f64>,
    /// `[C]`.
    pub old_end: Vec<f64>,
    /// `[C]`.
    pub beta_end: Vec<f64>,
    /// `[C, L]`: the latest step size.
    pub steps: Vec<f64>,
}

/// The mixing weights, by sums over the paths of a gradient and not by a recurrence over rows.
pub fn mix(s: &SequenceSizes, g: &Gates, before: bool, commit: usize) -> Mixed {
    let mut m = Mixed::default();
    for c in 0..s.chunks() {
        let tokens: Vec<usize> = (0..s.l).map(|n| c * s.l + n).collect();
        let gate = |of: &[f64], t: usize, past: f64| if t < s.n { of[t] } else { past };
        // The part of S_j that is in S_n, and of M_j in M_n.
        let parts = |of: &[f64]| -> Vec<Vec<f64>> {
            let product = |j: usize, n: usize| (j + 1..=n).map(|i| gate(of, tokens[i], 1.0)).product();
            (0..s.l).map(|j| (0..s.l).map(|n| product(j, n)).collect()).collect()
        };
        let (of_s, of_m) = (parts(&g.theta), parts(&g.alpha));
        let weight = |n: usize, i: usize| {
            let back = (n + s.k - s.l).checked_sub(i).filter(|&o| o < s.w && tokens[n] < s.n);
            back.map_or(0.0, |o| g.gamma[tokens[n] * s.w + s.w - 1 - o])
        };
        let phi: Vec<Vec<f64>> =
            (0..s.l).map(|n| (0..s.k).map(|i| (0..=n).map(|j| of_s[j][n] * weight(j, i)).sum()).collect()).collect();
        let of_start = |of: &[f64], parts: &[Vec<f64>], n: usize| gate(of, tokens[0], 1.0) * parts[0][n];
        let mut rows = Vec::new();
        for n in 0..s.l {
            let through = |f: &dyn Fn(usize) -> f64| -> f64 {
                (0..=n).map(|j| of_m[j][n] * gate(&g.eta, tokens[j], 0.0) * f(j)).sum()
            };
            let psi: Vec<f64> = (0..s.k).map(|i| through(&|j| phi[j][i])).collect();
            let old = through(&|j| of_start(&g.theta, &of_s, j));
            rows.push((psi, of_start(&g.alpha, &of_m, n), old));
        }
        let shifted = usize::from(before);
        let nothing = (vec![0.0; s.k], 1.0, 0.0);
        for (psi, lam, old) in std::iter::repeat_n(&nothing, shifted).chain(&rows).take(s.l) {
            m.psi.extend(psi);
            m.lam.push(*lam);
            m.old.push(*old);
        }
        let last = s.l - 1;
        let (psi, lam, old) = if c < commit { &rows[last] } else { &nothing };
        m.psi_end.extend(psi);
        m.phi_end.extend((0..s.k).map(|i| if c < commit { phi[last][i] } else { 0.0 }));
        m.live.extend((0..s.k).map(|i| (0..s.l).map(|n| phi[n][i].abs().max(rows[n].0[i].abs())).fold(0.0, f64::max)));
        m.lam_end.push(*lam);
        m.old_end.push(*old);
        let step = |n: usize| {
            let t = tokens[n].min(s.n - 1);
            if c < commit && t >= tokens[0] { g.eta[t] } else { 0.0 }
        };
        m.steps.extend((0..s.l).map(step));
        m.beta_end.push(if c < commit { of_start(&g.theta, &of_s, last) } else { 1.0 });
    }
    m
}

/// The gradients' factors of the keys that a chunk sees, at the weights `w`; zeros for what nothing weighs.
fn factors(s: &SequenceSizes, x: &Sequence, m: &Mixed, w: &[Vec<f64>; 2], scale: f64, c: usize) -> Vec<Factors> {
    let oldest = (c * s.l + s.p - s.n + s.l) as isize - s.k as isize;
    let factor = |i: usize| {
        let t = usize::try_from(oldest + i as isize).ok().filter(|&t| t < s.p && m.live[c * s.k + i] > 0.0);
        let row = |of: &[f64], width: usize| t.map_or(vec![0.0; width], |t| of[t * width..][..width].to_vec());
        let token = [row(&x.k, s.d), row(&x.v, s.e), row(&x.rk, s.e)];
        Factors::of(s, w, token.each_ref().map(Vec::as_slice), scale)
    };
    (0..s.k).into_par_iter().map(factor).collect()
}

/// One head, chunk by chunk, from its mixing weights. Returns what is read, `[N, E]`.
pub fn chunks(s: &SequenceSizes, x: &Sequence, m: &Mixed, state: &mut State, scale: f64) -> Vec<f64> {
    let mut out = Vec::new();
    for c in 0..s.chunks() {
        let factors = factors(s, x, m, &state.w, scale, c);
        let part = |n: usize| {
            let (psi, t) = (&m.psi[(c * s.l + n) * s.k..][..s.k], c * s.l + n);
            // A matrix after token n, applied to a row.
            let applied = |i: usize, to: &[f64], left: fn(&Factors) -> &[f64], right: fn(&Factors) -> &[f64]| {
                let (w, s) = (times_transposed(to, &state.w[i], to.len()), times_transposed(to, &state.s[i], to.len()));
                let mut y: Vec<f64> = w.iter().zip(&s).map(|(w, s)| m.lam[t] * w - m.old[t] * s).collect();
                for (f, psi) in factors.iter().zip(psi).filter(|(_, psi)| **psi != 0.0) {
                    let met: f64 = right(f).iter().zip(to).map(|(x, y)| x * y).sum();
                    y.iter_mut().zip(left(f)).for_each(|(y, l)| *y -= psi * met * l);
                }
                y
            };
            let x_n = &x.q[t * s.d..][..s.d];
            let inner: Vec<f64> = match s.m {
                0 => x_n.to_vec(),
                _ => applied(1, x_n, |f| &f.delta, |f| &f.x).into_iter().map(gelu).collect(),
            };
            let y = applied(0, &inner, |f| &f.e, |f| &f.a);
            y.iter().zip(&x.rq[t * s.e..][..s.e]).map(|(y, r)| y + r).collect::<Vec<f64>>()
        };
        out.par_extend((0..s.l.min(s.n - c * s.l)).into_par_iter().flat_map_iter(part));
        let (w_end, s_end) = (&m.psi_end[c * s.k..][..s.k], &m.phi_end[c * s.k..][..s.k]);
        for i in 0..2 {
            for (w, s) in state.w[i].iter_mut().zip(&mut state.s[i]) {
                *w = m.lam_end[c] * *w - m.old_end[c] * *s;
                *s *= m.beta_end[c];
            }
        }
        for ((f, w), s) in factors.iter().zip(w_end).zip(s_end) {
            f.add(&mut state.w, -w);
            f.add(&mut state.s, *s);
        }
    }
    out
}
