//! The model with a memory once more, in f64 and with plain loops.
//!
//! It has two uses. In f64 it is what other precisions are compared with. With results that are rounded to 16 bits behind each layer, it
//! computes what kernels of 16 bits do: they sum in f32, and round what they store.

use super::model::{EPS, Model, Part, Sizes};
use atlas::verify::HostLayer;
use std::collections::BTreeMap;
use std::error::Error;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Computes the memory of a layer, `[B, T, H, d]`, behind its norm.
pub(crate) type MemoryFn<'a> = dyn FnMut(&HostLayer) -> Result<Vec<f64>, Box<dyn Error>> + 'a;

/// The weights of a model by name, and what rounds weights and results.
pub(crate) struct HostModel {
    pub(crate) sizes: Sizes,
    parts: Vec<Part>,
    weights: BTreeMap<String, Vec<f64>>,
    round: fn(f64) -> f64,
}

impl HostModel {
    /// The weights of `model`. Those of the memory itself, and biases of gates, are f32 in every precision.
    pub(crate) fn new(model: &Model, round: fn(f64) -> f64) -> Result<HostModel, Box<dyn Error>> {
        let all = model.parameters.all()?.0.to_f64_vec()?;
        let wide = |name: &str| [".w1", ".w2", ".gates"].iter().any(|end| name.ends_with(end));
        let weight = |(name, first, count): &(String, usize, usize)| {
            let values = all[*first..first + count].iter().map(|w| if wide(name) { *w } else { round(*w) });
            (name.clone(), values.collect())
        };
        let weights = model.parameters.list.iter().map(weight).collect();
        Ok(HostModel { sizes: model.sizes, parts: model.parts.clone(), weights, round })
    }

    fn weight(&self, block: &str, name: &str) -> &[f64] {
        &self.weights[&format!("{block}{name}")]
    }

    /// The logits `[T, V]` of one sequence.
    ///
    /// # Errors
    /// Those of `memory`.
    pub(crate) fn logits(&self, tokens: &[i32], memory: &mut MemoryFn<'_>) -> Result<Vec<f64>, Box<dyn Error>> {
        let width = self.sizes.width;
        let table = self.weight("embedding", "");
        let mut x: Vec<f64> = tokens.iter().flat_map(|t| table[*t as usize * width..][..width].to_vec()).collect();
        for (i, part) in self.parts.iter().enumerate() {
            let block = &format!("{} {i}", part.name());
            let normed = self.rounded(norm(&x, self.weight(block, ".before")));
            let f = match part {
                Part::Attention => self.attention(block, &normed),
                Part::Memory => memory(&self.memory(block, &normed))?,
                Part::Hidden => self.hidden(block, &normed),
            };
            let w = self.weight(block, ".out");
            let step = linear(&f, w, w.len() / width);
            x = self.rounded(x.iter().zip(step).map(|(x, step)| x + step).collect());
        }
        let normed = self.rounded(norm(&x, self.weight("norm", "")));
        Ok(self.rounded(linear(&normed, self.weight("head", ""), width)))
    }

    fn rounded(&self, mut x: Vec<f64>) -> Vec<f64> {
        x.iter_mut().for_each(|x| *x = (self.round)(*x));
        x
    }

    fn hidden(&self, block: &str, x: &[f64]) -> Vec<f64> {
        let b = self.weight(block, ".bias");
        let z = linear(x, self.weight(block, ".in"), self.sizes.width);
        self.rounded(z.iter().enumerate().map(|(i, z)| gelu(z + b[i % b.len()])).collect())
    }

    /// Queries and keys turn by their positions, and each query sees the keys of its window.
    fn attention(&self, block: &str, x: &[f64]) -> Vec<f64> {
        let Sizes { width, heads, window, .. } = self.sizes;
        let d = self.sizes.head();
        let z = self.rounded(linear(x, self.weight(block, ".qkv"), width));
        let head = |part: usize, t: usize, h: usize| &z[(3 * t + part) * width + h * d..][..d];
        let turned = |part: usize, t: usize, h: usize| {
            let x = head(part, t, h);
            let turn = |i: usize| {
                let pair = i % (d / 2);
                let angle = t as f64 * 10000_f64.powf(-2.0 * pair as f64 / d as f64);
                let [a, b] = [x[pair], x[pair + d / 2]];
                if i < d / 2 { a * angle.cos() - b * angle.sin() } else { b * angle.cos() + a * angle.sin() }
            };
            self.rounded((0..d).map(turn).collect())
        };
        let mut y = Vec::new();
        for t in 0..x.len() / width {
            for h in 0..heads {
                let q = turned(0, t, h);
                let seen: Vec<usize> = (t.saturating_sub(window - 1)..=t).collect();
                let scores: Vec<f64> =
                    seen.iter().map(|s| (dot(&q, &turned(1, *s, h)) / (d as f64).sqrt()).exp()).collect();
                let sum: f64 = scores.iter().sum();
                y.extend(
                    (0..d).map(|i| {
                        seen.iter().zip(&scores).map(|(s, score)| score / sum * head(2, *s, h)[i]).sum::<f64>()
                    }),
                );
            }
        }
        self.rounded(y)
    }

    /// What the memory takes: queries, keys, values and gates of each token, and the memory before the first one.
    fn memory(&self, block: &str, x: &[f64]) -> HostLayer {
        let Sizes { width, heads, reach, .. } = self.sizes;
        let d = self.sizes.head();
        let w = self.weight(block, ".project");
        let columns = w.len() / width;
        let z = self.rounded(linear(x, w, width));
        let tokens = x.len() / width;
        let conv = self.weight(block, ".conv");
        let taps = conv.len() / (3 * width);
        let convolved = |t: usize, channel: usize| -> f64 {
            let seen = (0..taps).filter(|j| t + j + 1 >= taps);
            seen.map(|j| conv[channel * taps + j] * z[(t + j + 1 - taps) * columns + channel]).sum()
        };
        let part = |i: usize| {
            let rows = (0..tokens).flat_map(|t| (i * width..(i + 1) * width).map(move |c| (t, c)));
            let rows = self.rounded(rows.map(|(t, c)| convolved(t, c)).collect());
            let length = if i == 2 { 1.0 } else { (self.round)(1.0 / (d as f64).sqrt()) };
            self.rounded(norm(&rows, &vec![length; d]))
        };
        let biases = self.weight(block, ".gates");
        let gate = |i: usize, each: usize, scale: f64| {
            let columns_of = |t: usize| (i * heads..i * heads + each).map(move |c| (t, c));
            let gates = (0..tokens).flat_map(columns_of);
            gates.map(|(t, c)| scale / (1.0 + (-z[t * columns + 3 * width + c] - biases[c]).exp())).collect()
        };
        let step = f64::from(self.sizes.longest_step);
        HostLayer {
            memory: [part(0), part(1), part(2)],
            gates: [gate(0, heads, 1.0), gate(1, heads, 1.0), gate(2, heads, step)],
            gamma: gate(3, heads * reach, 1.0 / reach as f64),
            norms: [self.weight(block, ".norm").to_vec(), vec![]],
            weights: [".w1", ".w2"].map(|name| self.weight(block, name).to_vec()).to_vec(),
            ..HostLayer::default()
        }
    }
}

/// x Wᵀ for rows of `inputs` elements.
fn linear(x: &[f64], w: &[f64], inputs: usize) -> Vec<f64> {
    x.chunks(inputs).flat_map(|x| w.chunks(inputs).map(|w| dot(x, w))).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Rows divided by the roots of their mean squares, times `w`.
fn norm(x: &[f64], w: &[f64]) -> Vec<f64> {
    let of_row = |row: &[f64]| {
        let scale = (dot(row, row) / row.len() as f64 + f64::from(EPS)).sqrt().recip();
        row.iter().zip(w).map(|(x, w)| x * scale * w).collect::<Vec<f64>>()
    };
    x.chunks(w.len()).flat_map(of_row).collect()
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2))
}

/// The error function, by a series of terms of one sign: `2 exp(-x^2) / sqrt(pi)` times the sum of `2^n x^(2n+1) / (2n+1)!!`.
fn erf(x: f64) -> f64 {
    // Beyond, it differs from 1 by less than 2^-53.
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, 0.0_f64, 1.0);
    while term.abs() > sum.abs() * 1e-17 {
        sum += term;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        n += 1.0;
    }
    2.0 * (-x * x).exp() / PI.sqrt() * sum
}
