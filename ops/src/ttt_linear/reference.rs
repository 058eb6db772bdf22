//! What TTT-Linear computes, token by token, and what each of its kernels computes of its inputs, in f64.

use crate::omega::reference::times;

/// Inputs of one head, row-major.
#[derive(Clone, Debug, Default)]
pub struct TttHead {
    /// Elements of a key and of a value.
    pub d: usize,
    /// Tokens of a mini-batch.
    pub l: usize,
    /// Queries `[N, D]`.
    pub q: Vec<f64>,
    /// Keys `[N, D]`.
    pub k: Vec<f64>,
    /// Values `[N, D]`.
    pub v: Vec<f64>,
    /// Step sizes `[N]`.
    pub eta: Vec<f64>,
    /// The weight of the norm `[D]`.
    pub weight: Vec<f64>,
    /// The shift of the norm `[D]`.
    pub shift: Vec<f64>,
}

/// The memory of one head.
#[derive(Clone, Debug, Default)]
pub struct TttMemory {
    /// The matrix `[D, D]`, of inputs by outputs.
    pub w: Vec<f64>,
    /// The bias `[D]`.
    pub b: Vec<f64>,
}

/// The two numbers by which what is computed differs from model to model.
#[derive(Clone, Copy, Debug)]
pub struct TttScalars {
    /// The factor of queries.
    pub scale: f64,
    /// What is added to variances.
    pub eps: f64,
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// A row less its mean and divided by its deviation, and that deviation.
fn normed(x: &[f64], eps: f64) -> (Vec<f64>, f64) {
    let mean_x = mean(x);
    let centred: Vec<f64> = x.iter().map(|x| x - mean_x).collect();
    let deviation = (dot(&centred, &centred) / x.len() as f64 + eps).sqrt();
    (centred.iter().map(|x| x / deviation).collect(), deviation)
}

impl TttMemory {
    /// What it makes of a row `x` `[D]`.
    fn of(&self, x: &[f64]) -> Vec<f64> {
        times(x, &self.w, x.len(), x.len()).iter().zip(&self.b).map(|(z, b)| z + b).collect()
    }

    /// The memory after a step of size `eta` against a gradient.
    fn less(&self, eta: f64, gradient: &TttMemory) -> TttMemory {
        let less = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x - eta * y).collect();
        TttMemory { w: less(&self.w, &gradient.w), b: less(&self.b, &gradient.b) }
    }
}

impl TttHead {
    fn row<'x>(&self, x: &'x [f64], t: usize) -> &'x [f64] {
        &x[t * self.d..][..self.d]
    }

    /// The gradient of token `t`'s loss by what the memory makes of its key.
    fn gradient(&self, t: usize, memory: &TttMemory, eps: f64) -> Vec<f64> {
        let (k, v) = (self.row(&self.k, t), self.row(&self.v, t));
        let (x, deviation) = normed(&memory.of(k), eps);
        let by_norm = |i: usize| self.weight[i] * (self.weight[i] * x[i] + self.shift[i] - (v[i] - k[i]));
        let g: Vec<f64> = (0..self.d).map(by_norm).collect();
        let (mean_g, along) = (mean(&g), dot(&g, &x) / self.d as f64);
        g.iter().zip(&x).map(|(g, x)| (g - mean_g - x * along) / deviation).collect()
    }

    /// What is written of a token by which the memory reads `r`.
    fn output(&self, r: &[f64], eps: f64) -> Vec<f64> {
        let (unit, _) = normed(r, eps);
        (0..self.d).map(|i| r[i] + self.weight[i] * unit[i] + self.shift[i]).collect()
    }

    /// By definition: each token has a memory of its own, one step away from that before its mini-batch. The memory goes on, and what
    /// is read, `[N, D]`, is returned.
    pub fn recurrence(&self, memory: &mut TttMemory, TttScalars { scale, eps }: TttScalars) -> Vec<f64> {
        let (n, d) = (self.eta.len(), self.d);
        let mut read = Vec::with_capacity(n * d);
        for first in (0..n).step_by(self.l) {
            let before = memory.clone();
            let mut sums = TttMemory { w: vec![0.0; d * d], b: vec![0.0; d] };
            for t in first..n.min(first + self.l) {
                let dz = self.gradient(t, &before, eps);
                for (k, row) in self.row(&self.k, t).iter().zip(sums.w.chunks_mut(d)) {
                    row.iter_mut().zip(&dz).for_each(|(w, dz)| *w += k * dz);
                }
                sums.b.iter_mut().zip(&dz).for_each(|(b, dz)| *b += dz);
                *memory = before.less(self.eta[t], &sums);
                let q: Vec<f64> = self.row(&self.q, t).iter().map(|q| scale * q).collect();
                read.extend(self.output(&memory.of(&q), eps));
            }
        }
        read
    }

    /// How much each token of a mini-batch sees of the gradients of those up to it, `[C, L, L]`.
    pub fn mix(&self, chunks: usize, scale: f64) -> Vec<f64> {
        let l = self.l;
        let element = |at: usize| {
            let (i, j) = (at / (l * l) * l + at / l % l, at / (l * l) * l + at % l);
            if j > i || i >= self.eta.len() {
                return 0.0;
            }
            self.eta[i] * (scale * dot(self.row(&self.q, i), self.row(&self.k, j)) + 1.0)
        };
        (0..chunks * l * l).map(element).collect()
    }

    /// What is read, `[N, D]`, if tokens see gradients by `p` `[C, L, L]`; the memory goes on.
    pub fn mixed(&self, p: &[f64], memory: &mut TttMemory, TttScalars { scale, eps }: TttScalars) -> Vec<f64> {
        let (n, d, l) = (self.eta.len(), self.d, self.l);
        let mut read = Vec::with_capacity(n * d);
        for (first, p) in (0..n).step_by(l).zip(p.chunks(l * l)) {
            let tokens = first..n.min(first + l);
            let gradients: Vec<Vec<f64>> = tokens.clone().map(|t| self.gradient(t, memory, eps)).collect();
            for t in tokens.clone() {
                let q: Vec<f64> = self.row(&self.q, t).iter().map(|q| scale * q).collect();
                let mut r = memory.of(&q);
                for (p, dz) in p[(t - first) * l..][..l].iter().zip(&gradients) {
                    r.iter_mut().zip(dz).for_each(|(r, dz)| *r -= p * dz);
                }
                read.extend(self.output(&r, eps));
            }
            let eta = self.eta[tokens.end - 1];
            for (t, dz) in tokens.zip(&gradients) {
                for (k, row) in self.row(&self.k, t).iter().zip(memory.w.chunks_mut(d)) {
                    row.iter_mut().zip(dz).for_each(|(w, dz)| *w -= eta * k * dz);
                }
                memory.b.iter_mut().zip(dz).for_each(|(b, dz)| *b -= eta * dz);
            }
        }
        read
    }
}
