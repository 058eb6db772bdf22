//! One head of the rule by descent, chunk by chunk, from its mixing weights.

use super::super::OmegaRule;
use super::read::{Hidden, outward};
use super::{Factors, Mixed, Sequence, SequenceSizes, State, times_transposed};
use rayon::prelude::*;

/// The gradients' factors of the keys that a chunk sees, at the weights `w`; zeros for what nothing weighs.
fn factors(rule: &OmegaRule, s: &SequenceSizes, x: &Sequence, m: &Mixed, w: &[Vec<f64>], c: usize) -> Vec<Factors> {
    let oldest = (c * s.l + s.p - s.n + s.l) as isize - s.k as isize;
    let factor = |i: usize| {
        let t = usize::try_from(oldest + i as isize).ok().filter(|&t| t < s.p && m.live[c * s.k + i] > 0.0);
        let row = |of: &[f64], width: usize| t.map_or(vec![0.0; width], |t| of[t * width..][..width].to_vec());
        let token = [row(&x.k, s.d), row(&x.v, s.e), row(&x.rk, s.e)];
        Factors::of(rule, s, w, &x.norm, token.each_ref().map(Vec::as_slice))
    };
    (0..s.k).into_par_iter().map(factor).collect()
}

/// What the last chunk of a sequence is computed from.
#[derive(Clone, Debug, Default)]
pub struct LastChunk {
    /// Of each key that it sees.
    pub keys: Vec<Factors>,
    /// Of each query: the products of its row with all matrices but the first, the hidden row, and what the first makes of that.
    pub queries: Vec<Query>,
}

/// A query's way through a memory.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Its products with all matrices but the first.
    pub products: Vec<Vec<f64>>,
    /// The hidden row; of a linear memory the query itself.
    pub hidden: Vec<f64>,
    /// What the first matrix makes of the hidden row.
    pub out: Vec<f64>,
}

/// One head, chunk by chunk, from its mixing weights. Returns what is read, `[N, E]`.
pub fn chunks(s: &SequenceSizes, x: &Sequence, m: &Mixed, state: &mut State, rule: &OmegaRule) -> Vec<f64> {
    chunks_and_last(s, x, m, state, rule).0
}

/// The same, with what the last chunk is computed from.
pub fn chunks_and_last(
    s: &SequenceSizes,
    x: &Sequence,
    m: &Mixed,
    state: &mut State,
    rule: &OmegaRule,
) -> (Vec<f64>, LastChunk) {
    let (mut out, mut last) = (Vec::new(), LastChunk::default());
    for c in 0..s.chunks() {
        let factors = factors(rule, s, x, m, &state.w, c);
        let part = |n: usize| {
            let (psi, t) = (&m.psi[(c * s.l + n) * s.k..][..s.k], c * s.l + n);
            // A matrix after token n, applied to a row.
            let applied = |i: usize, to: &[f64]| {
                let (w, s) = (times_transposed(to, &state.w[i], to.len()), times_transposed(to, &state.s[i], to.len()));
                let mut y: Vec<f64> = w.iter().zip(&s).map(|(w, s)| m.lam[t] * w - m.old[t] * s).collect();
                for (f, psi) in factors.iter().zip(psi).filter(|(_, psi)| **psi != 0.0) {
                    let met: f64 = f.right[i].iter().zip(to).map(|(x, y)| x * y).sum();
                    y.iter_mut().zip(&f.left[i]).for_each(|(y, l)| *y -= psi * met * l);
                }
                y
            };
            let x_n = &x.q[t * s.d..][..s.d];
            let products: Vec<Vec<f64>> = (1..state.w.len()).map(|i| applied(i, x_n)).collect();
            let hidden = Hidden::from_products(rule, x_n, products.clone()).row;
            let out = applied(0, &hidden);
            Query { products, hidden, out }
        };
        let queries: Vec<Query> = (0..s.l.min(s.n - c * s.l)).into_par_iter().map(part).collect();
        for (n, query) in queries.iter().enumerate() {
            let rest = &x.rq[(c * s.l + n) * s.e..][..s.e];
            out.extend(outward(rule, &query.out, &x.norm).iter().zip(rest).map(|(y, r)| y + r));
        }
        let (w_end, s_end) = (&m.psi_end[c * s.k..][..s.k], &m.phi_end[c * s.k..][..s.k]);
        for (w, s) in state.w.iter_mut().flatten().zip(state.s.iter_mut().flatten()) {
            *w = m.lam_end[c] * *w - m.old_end[c] * *s;
            *s *= m.beta_end[c];
        }
        for ((f, w), s) in factors.iter().zip(w_end).zip(s_end) {
            f.add(&mut state.w, -w);
            f.add(&mut state.s, *s);
        }
        last = LastChunk { keys: factors, queries };
    }
    (out, last)
}
