//! The Omega rule in f64, twice: token by token as it is defined, and chunk by chunk as the kernels compute it.
//!
//! The two are written apart and agree to rounding, which a test shows. Of the rule with Muon the second is in
//! [`rounded`](super::rounded). Arrays are row-major, tokens-first `[N, H, ..]` as the
//! kernels' are; one sequence at a time.

mod chunks;
mod mix;
mod read;

pub use chunks::{LastChunk, Query, chunks, chunks_and_last};
pub use mix::{Mixed, mix};
pub use read::{Factors, read};

use super::{OmegaRule, Read, Step};

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
    /// Hidden elements of the memory; none of a linear one.
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

    /// Rows and columns of the matrices of a memory.
    pub fn matrices(&self, rule: &OmegaRule) -> Vec<[usize; 2]> {
        rule.memory.matrices(self.d, self.e, self.m)
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
    /// The weight of the norm inside the memory, `[E]` of one head; empty if it has none.
    pub norm: Vec<f64>,
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
    /// Its matrices, as [`MemoryForm`](super::MemoryForm) has them.
    pub w: Vec<Vec<f64>>,
    /// Of the same shapes.
    pub s: Vec<Vec<f64>>,
}

impl State {
    /// Matrices of zeros with the shapes of another's.
    pub fn zeros_like(w: &[Vec<f64>]) -> Vec<Vec<f64>> {
        w.iter().map(|w| vec![0.0; w.len()]).collect()
    }
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

/// The transpose of a row-major matrix with `rows` rows.
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

/// One head, token by token, by definition. A token of weight 0 is not looked at. Returns what is read, `[N, E]`.
pub fn recurrence(s: &SequenceSizes, x: &Sequence, g: &Gates, state: &mut State, rule: &OmegaRule) -> Vec<f64> {
    let past = s.p - s.n;
    let row = |m: &[f64], t: usize, width: usize| m[t * width..][..width].to_vec();
    let read_at = |w: &[Vec<f64>], t: usize| read(rule, s, w, &x.norm, &row(&x.q, t, s.d), &row(&x.rq, t, s.e));
    let mut out = Vec::new();
    for c in 0..s.chunks() {
        let anchor = state.w.clone();
        let tokens = c * s.l..((c + 1) * s.l).min(s.n);
        let (mut kept, mut step) = (1.0, 0.0);
        for t in tokens.clone() {
            if rule.read == Read::Before {
                out.extend(read_at(&state.w, t));
            }
            // A chunk does not see further back than its keys reach.
            let oldest = (c * s.l + past + s.l).saturating_sub(s.k);
            let mut u = State::zeros_like(&anchor);
            for back in 0..s.w {
                let weight = g.gamma[t * s.w + s.w - 1 - back];
                let Some(i) = (t + past).checked_sub(back).filter(|&i| i >= oldest && weight != 0.0) else { continue };
                let token = [&row(&x.k, i, s.d)[..], &row(&x.v, i, s.e), &row(&x.rk, i, s.e)];
                Factors::of(rule, s, &anchor, &x.norm, token).add(&mut u, weight);
            }
            for (s, u) in state.s.iter_mut().flatten().zip(u.iter().flatten()) {
                *s = g.theta[t] * *s + u;
            }
            kept *= g.alpha[t];
            step = g.eta[t];
            if rule.step != Step::MuonByChunk {
                descend(s, state, rule, g.alpha[t], g.eta[t]);
                if rule.read == Read::After {
                    out.extend(read_at(&state.w, t));
                }
            }
        }
        if rule.step == Step::MuonByChunk {
            descend(s, state, rule, kept, step);
            if rule.read == Read::After {
                tokens.for_each(|t| out.extend(read_at(&state.w, t)));
            }
        }
    }
    out
}

/// `W <- held W - step S`, or along the orthogonalised momentum.
fn descend(s: &SequenceSizes, state: &mut State, rule: &OmegaRule, held: f64, step: f64) {
    for ((w, momentum), [rows, cols]) in state.w.iter_mut().zip(&state.s).zip(s.matrices(rule)) {
        let along = match rule.step {
            Step::Descent => momentum.clone(),
            _ if rows > cols => {
                turned(&crate::newton_schulz_small::reference(&turned(momentum, rows), [cols, rows]), cols)
            }
            _ => crate::newton_schulz_small::reference(momentum, [rows, cols]),
        };
        w.iter_mut().zip(&along).for_each(|(w, o)| *w = held * *w - step * o);
    }
}
