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

/// One head, chunk by chunk, from its mixing weights. Returns what is read, `[N, E]`.
pub fn chunks(s: &SequenceSizes, x: &Sequence, m: &Mixed, state: &mut State, rule: &OmegaRule) -> Vec<f64> {
    let mut out = Vec::new();
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
            let products = (1..state.w.len()).map(|i| applied(i, x_n)).collect();
            let inner = Hidden::from_products(rule, x_n, products).row;
            let y = outward(rule, &applied(0, &inner), &x.norm);
            y.iter().zip(&x.rq[t * s.e..][..s.e]).map(|(y, r)| y + r).collect::<Vec<f64>>()
        };
        out.par_extend((0..s.l.min(s.n - c * s.l)).into_par_iter().flat_map_iter(part));
        let (w_end, s_end) = (&m.psi_end[c * s.k..][..s.k], &m.phi_end[c * s.k..][..s.k]);
        for (w, s) in state.w.iter_mut().flatten().zip(state.s.iter_mut().flatten()) {
            *w = m.lam_end[c] * *w - m.old_end[c] * *s;
            *s *= m.beta_end[c];
        }
        for ((f, w), s) in factors.iter().zip(w_end).zip(s_end) {
            f.add(&mut state.w, -w);
            f.add(&mut state.s, *s);
        }
    }
    out
}
