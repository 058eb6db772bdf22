//! What the rule computes, token by token, and what each of its kernels computes of its inputs, in f64.

use crate::omega::reference::times;

/// Sizes of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct DeltaSizes {
    /// Tokens.
    pub n: usize,
    /// Heads of values, of gates and of memories.
    pub h: usize,
    /// Heads of queries and keys.
    pub j: usize,
    /// Elements of a key.
    pub d: usize,
    /// Elements of a value.
    pub e: usize,
    /// Tokens of a chunk.
    pub l: usize,
}

/// Inputs of one head, row-major.
#[derive(Clone, Debug, Default)]
pub struct DeltaHead {
    /// Queries `[N, D]`.
    pub q: Vec<f64>,
    /// Keys `[N, D]`.
    pub k: Vec<f64>,
    /// Values `[N, E]`.
    pub v: Vec<f64>,
    /// Logarithms of decays `[N]`.
    pub g: Vec<f64>,
    /// Step sizes `[N]`.
    pub beta: Vec<f64>,
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

impl DeltaSizes {
    /// The rule by its definition: the memory `s` `[D, E]` goes on, and what is read, `[N, E]`, is returned.
    pub fn recurrence(&self, x: &DeltaHead, s: &mut [f64], scale: f64) -> Vec<f64> {
        let DeltaSizes { n, d, e, .. } = *self;
        let mut read = Vec::with_capacity(n * e);
        for t in 0..n {
            let (q, k, v) = (&x.q[t * d..][..d], &x.k[t * d..][..d], &x.v[t * e..][..e]);
            s.iter_mut().for_each(|s| *s *= x.g[t].exp());
            let held = times(k, s, d, e);
            let step: Vec<f64> = v.iter().zip(&held).map(|(v, held)| x.beta[t] * (v - held)).collect();
            for (k, row) in k.iter().zip(s.chunks_mut(e)) {
                row.iter_mut().zip(&step).for_each(|(s, step)| *s += k * step);
            }
            read.extend(times(q, s, d, e).iter().map(|o| scale * o));
        }
        read
    }

    /// The decay from token `from` to token `to` of one head; tokens behind the last change nothing.
    fn decay(&self, g: &[f64], from: usize, to: usize) -> f64 {
        (from + 1..=to).map(|t| g.get(t).copied().unwrap_or(0.0)).sum::<f64>().exp()
    }

    /// Row `t` of a matrix of tokens; zeros behind the last.
    fn row(x: &[f64], t: usize, width: usize) -> Vec<f64> {
        x.get(t * width..(t + 1) * width).map_or_else(|| vec![0.0; width], <[f64]>::to_vec)
    }

    /// Element `(i, m)` of the strictly lower triangular matrix, of tokens counted from `first`.
    fn triangular(&self, x: &DeltaHead, first: usize, i: usize, m: usize) -> f64 {
        let (to, from) = (first + i, first + m);
        let keys = dot(&Self::row(&x.k, to, self.d), &Self::row(&x.k, from, self.d));
        x.beta.get(to).copied().unwrap_or(0.0) * self.decay(&x.g, from, to) * keys
    }

    /// The inverse of `1 + A` of `z` tokens from `first` on, `[z, z]`, by substitution.
    pub fn inverse(&self, x: &DeltaHead, first: usize, z: usize) -> Vec<f64> {
        let mut inverse = vec![0.0; z * z];
        for i in 0..z {
            inverse[i * z + i] = 1.0;
            for m in 0..i {
                let a = self.triangular(x, first, i, m);
                for column in 0..=m {
                    inverse[i * z + column] -= a * inverse[m * z + column];
                }
            }
        }
        inverse
    }

    /// Of a chunk and the inverses of its two diagonal blocks `[2, Z, Z]`: `t`, `p`, `reach` and `tail`.
    pub fn solved(&self, x: &DeltaHead, chunk: usize, blocks: &[f64]) -> [Vec<f64>; 4] {
        let (l, first) = (self.l, chunk * self.l);
        let z = l / 2;
        let [x1, x2] = [&blocks[..z * z], &blocks[z * z..]];
        let below: Vec<f64> = (0..z * z).map(|at| self.triangular(x, first, z + at / z, at % z)).collect();
        let x21 = times(&times(x2, &below, z, z), x1, z, z);
        let beta = |m: usize| x.beta.get(first + m).copied().unwrap_or(0.0);
        let mut t = vec![0.0; l * l];
        for (at, t) in t.iter_mut().enumerate() {
            let (i, m) = (at / l, at % l);
            *t = beta(m)
                * match (i < z, m < z) {
                    (true, true) => x1[i * z + m],
                    (true, false) => 0.0,
                    (false, true) => -x21[(i - z) * z + m],
                    (false, false) => x2[(i - z) * z + m - z],
                };
        }
        let read = |at: usize| {
            let (to, from) = (first + at / l, first + at % l);
            if from > to {
                return 0.0;
            }
            self.decay(&x.g, from, to) * dot(&Self::row(&x.q, to, self.d), &Self::row(&x.k, from, self.d))
        };
        let since = |i: usize| (first..=first + i).map(|t| x.g.get(t).copied().unwrap_or(0.0)).sum::<f64>().exp();
        [
            t,
            (0..l * l).map(read).collect(),
            (0..l).map(since).collect(),
            (0..l).map(|i| self.decay(&x.g, first + i, first + l - 1)).collect(),
        ]
    }

    /// The tokens of a chunk of a matrix `[N, width]`, zeros behind the last.
    fn chunk_of(&self, x: &[f64], chunk: usize, width: usize) -> Vec<f64> {
        (0..self.l).flat_map(|i| Self::row(x, chunk * self.l + i, width)).collect()
    }

    /// Of a chunk, its `t` `[L, L]` and its `reach` `[L]`: `w` `[L, D]` and `u`, which lies `[E, L]`.
    pub fn factors(&self, x: &DeltaHead, chunk: usize, t: &[f64], reach: &[f64]) -> [Vec<f64>; 2] {
        let DeltaSizes { d, e, l, .. } = *self;
        let keys: Vec<f64> =
            self.chunk_of(&x.k, chunk, d).iter().enumerate().map(|(at, k)| k * reach[at / d]).collect();
        let u = times(t, &self.chunk_of(&x.v, chunk, e), l, e);
        [times(t, &keys, l, d), transposed(&u, e)]
    }

    /// The memory `s` `[D, E]` after the steps of a chunk's tokens `[L, E]`.
    pub fn stepped(&self, x: &DeltaHead, chunk: usize, [step, reach, tail]: [&[f64]; 3], s: &mut [f64]) {
        let DeltaSizes { d, e, l, .. } = *self;
        let kept: Vec<f64> = step.iter().enumerate().map(|(at, step)| step * tail[at / e]).collect();
        let new = times(&transposed(&self.chunk_of(&x.k, chunk, d), d), &kept, l, e);
        s.iter_mut().zip(new).for_each(|(s, new)| *s = reach[l - 1] * *s + new);
    }

    /// What a chunk's tokens read of the memory before it and of their steps, `[L, E]`.
    pub fn outputs(&self, x: &DeltaHead, chunk: usize, [p, reach, s, step]: [&[f64]; 4], scale: f64) -> Vec<f64> {
        let DeltaSizes { d, e, l, .. } = *self;
        let held = times(&self.chunk_of(&x.q, chunk, d), s, d, e);
        let new = times(p, step, l, e);
        held.iter().zip(new).enumerate().map(|(at, (held, new))| scale * (reach[at / e] * held + new)).collect()
    }

    /// The steps of a chunk's tokens `[L, E]`, of its `t`.
    pub fn steps(&self, x: &DeltaHead, chunk: usize, [t, reach, s]: [&[f64]; 3]) -> Vec<f64> {
        let DeltaSizes { d, e, l, .. } = *self;
        let held = times(&self.chunk_of(&x.k, chunk, d), s, d, e);
        let wanted = self.chunk_of(&x.v, chunk, e);
        let rest: Vec<f64> =
            wanted.iter().zip(held).enumerate().map(|(at, (v, held))| v - reach[at / e] * held).collect();
        times(t, &rest, l, e)
    }
}

/// The transpose of a matrix with rows of `columns` elements.
pub fn transposed(x: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|column| x.chunks(columns).map(move |row| row[column])).collect()
}
