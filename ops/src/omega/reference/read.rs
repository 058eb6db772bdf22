//! What a memory reads, and the gradient of its loss for one token, in f64.

use super::super::{MemoryForm, OmegaRule};
use super::{SequenceSizes, add_outer, times, times_transposed};
use crate::memory::{gelu, gelu_slope};

/// What a memory makes of a row of features and a residual; `norm` is the weight of the norm inside it.
pub fn read(rule: &OmegaRule, s: &SequenceSizes, w: &[Vec<f64>], norm: &[f64], x: &[f64], r: &[f64]) -> Vec<f64> {
    let out = outward(rule, &times_transposed(&Hidden::of(rule, s, w, x).row, &w[0], inner(rule, s)), norm);
    out.iter().zip(r).map(|(y, r)| y + r).collect()
}

/// Columns of the first matrix.
fn inner(rule: &OmegaRule, s: &SequenceSizes) -> usize {
    if rule.memory == MemoryForm::Linear { s.d } else { s.m }
}

/// What comes of the products, before the residual.
pub(super) fn outward(rule: &OmegaRule, out: &[f64], norm: &[f64]) -> Vec<f64> {
    match rule.memory {
        MemoryForm::Normed { eps } => normed(out, eps.into()).0.iter().zip(norm).map(|(x, w)| x * w).collect(),
        _ => out.to_vec(),
    }
}

/// A row less its mean, divided by its deviation; and one over that deviation.
fn normed(x: &[f64], eps: f64) -> (Vec<f64>, f64) {
    let count = x.len() as f64;
    let mean = x.iter().sum::<f64>() / count;
    let by = (x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count + eps).sqrt().recip();
    (x.iter().map(|x| (x - mean) * by).collect(), by)
}

/// The hidden row and what it is made of.
pub(super) struct Hidden {
    /// Before gelu.
    z: Vec<f64>,
    /// The other half of a gated memory.
    u: Vec<f64>,
    /// What the first matrix multiplies.
    pub(super) row: Vec<f64>,
}

impl Hidden {
    fn of(rule: &OmegaRule, s: &SequenceSizes, w: &[Vec<f64>], x: &[f64]) -> Hidden {
        let products: Vec<Vec<f64>> = w.iter().skip(1).map(|w| times_transposed(x, w, s.d)).collect();
        Hidden::from_products(rule, x, products)
    }

    /// From the products of the row `x` with all matrices but the first.
    pub(super) fn from_products(rule: &OmegaRule, x: &[f64], products: Vec<Vec<f64>>) -> Hidden {
        let mut products = products.into_iter();
        let (z, u) = (products.next().unwrap_or_default(), products.next().unwrap_or_default());
        let row = match rule.memory {
            MemoryForm::Linear => x.to_vec(),
            MemoryForm::Gated => z.iter().zip(&u).map(|(&z, u)| gelu(z) * u).collect(),
            _ => z.iter().map(|&z| gelu(z)).collect(),
        };
        Hidden { z, u, row }
    }
}

/// The factors of a token's gradient: of each matrix `left right^T`.
#[derive(Clone, Debug)]
pub struct Factors {
    /// Of each matrix, as many numbers as it has rows.
    pub left: Vec<Vec<f64>>,
    /// Of each matrix, as many numbers as it has columns.
    pub right: Vec<Vec<f64>>,
}

impl Factors {
    /// At the weights `w`, for the loss of the rule, of a token's features, value and residual.
    pub fn of(rule: &OmegaRule, s: &SequenceSizes, w: &[Vec<f64>], norm: &[f64], token: [&[f64]; 3]) -> Factors {
        let [x, v, r] = token;
        let Hidden { z, u, row } = Hidden::of(rule, s, w, x);
        let out = times_transposed(&row, &w[0], inner(rule, s));
        let read = outward(rule, &out, norm);
        let scale = f64::from(rule.loss.factor(s.e));
        let error = |((y, r), v): ((&f64, &f64), &f64)| scale * (if rule.loss.predicts() { y + r } else { 0.0 } - v);
        let mut e: Vec<f64> = read.iter().zip(r).zip(v).map(error).collect();
        if let MemoryForm::Normed { eps } = rule.memory {
            // Through the norm: (g - mean g - x mean(g x)) / deviation, with g = e w.
            let (unit, by) = normed(&out, eps.into());
            let g: Vec<f64> = e.iter().zip(norm).map(|(e, w)| e * w).collect();
            let count = g.len() as f64;
            let (mean, along) =
                (g.iter().sum::<f64>() / count, g.iter().zip(&unit).map(|(g, x)| g * x).sum::<f64>() / count);
            e = g.iter().zip(&unit).map(|(g, x)| by * (g - mean - x * along)).collect();
        }
        if rule.memory == MemoryForm::Linear {
            return Factors { left: vec![e], right: vec![row] };
        }
        let back = times(&e, &w[0], s.e, s.m);
        let through = |k: usize| back[k] * gelu_slope(z[k]);
        let (mut left, mut right) = (vec![e], vec![row]);
        if rule.memory == MemoryForm::Gated {
            left.push((0..s.m).map(|k| through(k) * u[k]).collect());
            left.push((0..s.m).map(|k| back[k] * gelu(z[k])).collect());
            right.extend([x.to_vec(), x.to_vec()]);
        } else {
            left.push((0..s.m).map(through).collect());
            right.push(x.to_vec());
        }
        Factors { left, right }
    }

    /// Adds so much of the gradient.
    pub fn add(&self, to: &mut [Vec<f64>], factor: f64) {
        for ((to, left), right) in to.iter_mut().zip(&self.left).zip(&self.right) {
            add_outer(to, factor, left, right);
        }
    }
}
