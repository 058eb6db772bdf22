//! Memory as a context in f64, segment by segment and token by token, as Titans (arXiv 2501.00663) Eq. 21 to 25 have it.
//!
//! The memory before a segment is what the recurrence over all tokens before it leaves, from the start of the sequence on.

use super::features::Side;
use super::host::{HostLayer, features};
use super::{LayerRule, LayerSizes, Residual};
use crate::omega::reference::{Gates, Sequence, SequenceSizes, State, of_head, read, recurrence};
use rayon::prelude::*;

/// The layer's output for all `t` tokens of its sequences, `[B, T, H, D]`; a segment has `segment` tokens.
pub(super) fn reference(sizes: &LayerSizes, rule: &LayerRule, x: &HostLayer, (t, segment): (usize, usize)) -> Vec<f64> {
    let of = |sequence| OneSequence { sizes, rule, x, t, sequence }.outputs(segment);
    (0..sizes.sequences).into_par_iter().flat_map_iter(of).collect()
}

/// One of the sequences of a layer.
struct OneSequence<'x> {
    sizes: &'x LayerSizes,
    rule: &'x LayerRule,
    x: &'x HostLayer,
    t: usize,
    sequence: usize,
}

/// Rows `[T, H D]` of what the attention gave so far: itself, and queries, keys and values of the memory.
#[derive(Default)]
struct Attended {
    y: Vec<f64>,
    memory: [Vec<f64>; 3],
}

impl OneSequence<'_> {
    fn outputs(&self, segment: usize) -> Vec<f64> {
        let (row, heads) = (self.sizes.heads * self.sizes.width, self.sizes.heads);
        let given = [0, 1, 2].map(|i| self.rows(&self.x.attention[i], row));
        let asked = self.rows(&self.x.memory[0], row);
        let (context, mut so_far) = (&self.x.context, Attended::default());
        for start in (0..self.t).step_by(segment) {
            let end = self.t.min(start + segment);
            let before: Vec<State> = (0..heads).map(|head| self.trained(head, &so_far, start).0).collect();
            let h: Vec<f64> = (start..end)
                .flat_map(|i| (0..heads).map(move |head| (i, head)))
                .flat_map(|(i, head)| self.recalled(head, &before[head], self.part(&asked, i, head)))
                .collect();
            let of_recalled = context.recalled.each_ref().map(|w| product(&h, w, row));
            for i in start..end {
                let y: Vec<f64> =
                    (0..heads).flat_map(|head| self.attention(head, i, start, &given, &of_recalled)).collect();
                for (at, w) in context.memory.iter().enumerate() {
                    let projected = product(&y, w, row);
                    let norm = context.norms.as_ref().and_then(|norms| norms.get(at));
                    so_far.memory[at].extend(norm.map_or(projected.clone(), |w| self.normed(&projected, w)));
                }
                so_far.y.extend(y);
            }
        }
        let read: Vec<Vec<f64>> = (0..heads).map(|head| self.trained(head, &so_far, self.t).1).collect();
        let d = self.sizes.width;
        let m: Vec<f64> = (0..self.t).flat_map(|i| read.iter().flat_map(move |m| &m[i * d..][..d])).copied().collect();
        let (m, y) = (self.normed(&m, &self.x.norms[0]), self.normed(&so_far.y, &self.x.norms[1]));
        y.iter().zip(&m).map(|(y, m)| y / (1.0 + (-m).exp())).collect()
    }

    /// Rows of this sequence.
    fn rows(&self, x: &[f64], width: usize) -> Vec<f64> {
        x[self.sequence * self.t * width..][..self.t * width].to_vec()
    }

    /// A head of row `i`.
    fn part<'a>(&self, rows: &'a [f64], i: usize, head: usize) -> &'a [f64] {
        &rows[(i * self.sizes.heads + head) * self.sizes.width..][..self.sizes.width]
    }

    /// An RMS norm of each head of rows, with the weights of the head.
    fn normed(&self, rows: &[f64], w: &[f64]) -> Vec<f64> {
        let (d, eps) = (self.sizes.width, f64::from(self.rule.eps));
        let of = |(i, x): (usize, &[f64])| {
            let by = (x.iter().map(|x| x * x).sum::<f64>() / d as f64 + eps).sqrt().recip();
            let w = &w[i % self.sizes.heads * d..][..d];
            x.iter().zip(w).map(|(x, w)| x * by * w).collect::<Vec<f64>>()
        };
        rows.chunks(d).enumerate().flat_map(of).collect()
    }

    fn sequence_sizes(&self, tokens: usize) -> SequenceSizes {
        let (c, e) = (self.rule.memory.chunking, self.sizes.width);
        let (d, m) = (self.rule.features.features(e), self.sizes.hidden);
        SequenceSizes { n: tokens, p: tokens, h: 1, d, e, m, l: c.chunk, w: c.window, k: c.keys() }
    }

    /// Features and residual of a key or query.
    fn shown(&self, side: Side, x: &[f64]) -> [Vec<f64>; 2] {
        let phi = features(&self.rule.features, side, x);
        let residual = match self.rule.residual {
            Residual::Raw => x.to_vec(),
            Residual::Features => phi.clone(),
            Residual::None => vec![0.0; x.len()],
        };
        [phi, residual]
    }

    fn norm_inside(&self, head: usize) -> &[f64] {
        self.x.inner.get(head * self.sizes.width..(head + 1) * self.sizes.width).unwrap_or_default()
    }

    /// `h = M(phi(q))`.
    fn recalled(&self, head: usize, memory: &State, q: &[f64]) -> Vec<f64> {
        let [phi, residual] = self.shown(Side::Queries, q);
        let sizes = self.sequence_sizes(0);
        read(&self.rule.memory, &sizes, &memory.w, self.norm_inside(head), &phi, &residual)
    }

    /// The memory of a head after the first tokens, and what it gave for each of them.
    fn trained(&self, head: usize, so_far: &Attended, tokens: usize) -> (State, Vec<f64>) {
        let (heads, window) = (self.sizes.heads, self.rule.memory.chunking.window);
        let mut s = Sequence { norm: self.norm_inside(head).to_vec(), ..Sequence::default() };
        for i in 0..tokens {
            let [q, k, v] = [0, 1, 2].map(|at| self.part(&so_far.memory[at], i, head));
            let ([q, rq], [k, rk]) = (self.shown(Side::Queries, q), self.shown(Side::Keys, k));
            for (to, row) in [&mut s.q, &mut s.k, &mut s.v, &mut s.rq, &mut s.rk].into_iter().zip([&q, &k, v, &rq, &rk])
            {
                to.extend_from_slice(row);
            }
        }
        let gate = |x: &[f64], width: usize| of_head(&self.rows(x, heads * width), head, heads, width);
        let [alpha, theta, eta] = [0, 1, 2].map(|at| gate(&self.x.gates[at], 1));
        let gates = Gates { alpha, theta, eta, gamma: gate(&self.x.gamma, window) };
        let sizes = self.sequence_sizes(tokens);
        let of_head = |(w, [rows, cols]): (&Vec<f64>, [usize; 2])| {
            w[(self.sequence * heads + head) * rows * cols..][..rows * cols].to_vec()
        };
        let w: Vec<Vec<f64>> = self.x.weights.iter().zip(sizes.matrices(&self.rule.memory)).map(of_head).collect();
        let mut state = State { s: State::zeros_like(&w), w };
        let read = recurrence(&sizes, &s, &gates, &mut state, &self.rule.memory);
        (state, read)
    }

    /// What a head of token `i` attends to in its segment: the prefix, and of each token up to itself what is recalled for it and
    /// its own key.
    fn attention(
        &self,
        head: usize,
        i: usize,
        start: usize,
        [q, k, v]: &[Vec<f64>; 3],
        [rk, rv]: &[Vec<f64>; 2],
    ) -> Vec<f64> {
        let d = self.sizes.width;
        let prefix = self.x.prefix.each_ref().map(|p| p.len() / (self.sizes.heads * d).max(1));
        let of_prefix = |x: usize, s: usize| &self.x.prefix[x][(head * prefix[x] + s) * d..][..d];
        let mut seen: Vec<[&[f64]; 2]> = (0..prefix[0]).map(|s| [of_prefix(0, s), of_prefix(1, s)]).collect();
        seen.extend((start..=i).map(|j| [self.part(rk, j - start, head), self.part(rv, j - start, head)]));
        seen.extend((start..=i).map(|j| [self.part(k, j, head), self.part(v, j, head)]));
        let q = self.part(q, i, head);
        let logit = |k: &[f64]| k.iter().zip(q).map(|(k, q)| k * q).sum::<f64>() / (d as f64).sqrt();
        let logits: Vec<f64> = seen.iter().map(|[k, _]| logit(k)).collect();
        let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logits.iter().map(|z| (z - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        let of = |at: usize| weights.iter().zip(&seen).map(|(w, [_, v])| w * v[at]).sum::<f64>() / total;
        (0..d).map(of).collect()
    }
}

/// `x wᵀ` of rows and a square matrix.
fn product(x: &[f64], w: &[f64], width: usize) -> Vec<f64> {
    let row = |x: &[f64]| w.chunks(width).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum()).collect::<Vec<f64>>();
    x.chunks(width).flat_map(row).collect()
}
