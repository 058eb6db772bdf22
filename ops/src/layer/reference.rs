//! The whole layer in f64, from the references of its parts.

use super::{Combine, LayerRule, LayerSizes};
use crate::omega::reference::{Gates, Sequence, SequenceSizes, State, of_head, recurrence};
use crate::omega::{Loss, OmegaRule, Read};
use crate::problem::{Inputs, Problem};
use crate::windowed_attention;
use rayon::prelude::*;

/// A layer's tokens and weights on the host, shaped as the layer's own.
#[derive(Clone, Debug, Default)]
pub struct HostLayer {
    /// Queries, keys and values of the memory.
    pub memory: [Vec<f64>; 3],
    /// Queries, keys and values of the attention.
    pub attention: [Vec<f64>; 3],
    /// What is kept of the memory, what of the momentum, and steps.
    pub gates: [Vec<f64>; 3],
    /// Weights in the memory's window.
    pub gamma: Vec<f64>,
    /// Keys and values of the prefix.
    pub prefix: [Vec<f64>; 2],
    /// Weights of the norms of memory and attention.
    pub norms: [Vec<f64>; 2],
    /// `W1` and `W2`.
    pub weights: [Vec<f64>; 2],
}

/// What the layer gives for all tokens of a sequence, `[B, T, H, D]`.
pub fn reference(sizes: &LayerSizes, rule: &LayerRule, x: &HostLayer) -> Vec<f64> {
    let (b, h, d) = (sizes.sequences, sizes.heads, sizes.width);
    let t = x.memory[0].len() / (b * h * d).max(1);
    let eps = f64::from(rule.eps);
    let norm = |rows: &[f64], w: &[f64]| -> Vec<f64> {
        rows.chunks(d)
            .enumerate()
            .flat_map(|(i, row)| crate::rms_norm::reference(row, &w[i % h * d..][..d], eps))
            .collect()
    };
    let m = norm(&memory(sizes, rule, x, t), &x.norms[0]);
    let attend = |q: &[f64], k: &[f64], v: &[f64]| {
        let prefix = x.prefix[0].len() / (h * d).max(1);
        let s = windowed_attention::WindowedAttentionSizes { b, m: t, n: t, h, j: h, d, s: prefix };
        let scale = std::f64::consts::LOG2_E / (d as f64).sqrt();
        let [o, _] = windowed_attention::reference(
            [q, k, v, &x.prefix[0], &x.prefix[1]],
            &vec![0.0; b * t],
            sizes.window as i64,
            scale,
            s,
        );
        o
    };
    match rule.combine {
        Combine::Sequence => attend(&m, &m, &m),
        Combine::Gate => {
            let [q, k, v] = &x.attention;
            let a = norm(&attend(q, k, v), &x.norms[1]);
            a.iter().zip(&m).map(|(a, m)| a / (1.0 + (-m).exp())).collect()
        }
    }
}

/// What the memory gives, before its norm.
fn memory(sizes: &LayerSizes, rule: &LayerRule, x: &HostLayer, t: usize) -> Vec<f64> {
    let (b, h, d, m) = (sizes.sequences, sizes.heads, sizes.width, sizes.hidden);
    let c = rule.chunking;
    let of = SequenceSizes { n: t, p: t, h, d, e: d, m, l: c.chunk, w: c.window, k: c.keys() };
    let [a1, a2, a3] = rule.features.map(f64::from);
    let phi = |x: &[f64]| x.iter().map(|x| x * (a1 + x * (a2 + x * a3))).collect::<Vec<f64>>();
    let heads: Vec<Vec<f64>> = (0..b * h)
        .into_par_iter()
        .map(|at| {
            let (sequence, head) = (at / h, at % h);
            let rows =
                |x: &[f64], width: usize| of_head(&x[sequence * t * h * width..][..t * h * width], head, h, width);
            let [q, k, v] = [0, 1, 2].map(|i| rows(&x.memory[i], d));
            let s = Sequence { q: phi(&q), k: phi(&k), v, rq: q, rk: k, norm: vec![] };
            let [alpha, theta, eta] = [0, 1, 2].map(|i| rows(&x.gates[i], 1));
            let gates = Gates { alpha, theta, eta, gamma: rows(&x.gamma, c.window) };
            let w: Vec<Vec<f64>> = (0..2).map(|i| x.weights[i][at * m * d..][..m * d].to_vec()).collect();
            let mut state = State { s: State::zeros_like(&w), w };
            let read = if rule.read_before { Read::Before } else { Read::After };
            let rule = OmegaRule { loss: Loss::Scaled(rule.scale), read, ..OmegaRule::omega_net(c) };
            recurrence(&of, &s, &gates, &mut state, &rule)
        })
        .collect();
    let mut y = vec![0.0; b * t * h * d];
    for (at, rows) in heads.iter().enumerate() {
        for (i, row) in rows.chunks(d).enumerate() {
            y[((at / h * t + i) * h + at % h) * d..][..d].copy_from_slice(row);
        }
    }
    y
}

/// The references of the kernels that are a layer's own.
pub(crate) fn checked(p: &Problem, i: &Inputs) -> Vec<Vec<f64>> {
    let (h, d, eps) = (p.dim("H"), p.dim("D"), f64::from(p.scalar("eps")));
    let norm = |x: &[f64], w: &[f64]| -> Vec<f64> {
        let of = |(at, row)| crate::rms_norm::reference(row, &w[at % h * d..][..d], eps);
        x.chunks(d).enumerate().flat_map(of).collect()
    };
    let gated = |x: &[f64], m: &[f64]| x.iter().zip(m).map(|(x, m)| x / (1.0 + (-m).exp())).collect();
    vec![match p.kernel.name {
        "layer_features" => {
            let [a1, a2, a3] = ["a1", "a2", "a3"].map(|name| f64::from(p.scalar(name)));
            i.get("x").iter().map(|x| x * (a1 + x * (a2 + x * a3))).collect()
        }
        "layer_norm" => norm(&i.get("x"), &i.get("w")),
        "layer_gate" => gated(&i.get("x"), &i.get("m")),
        "layer_combine" => gated(&norm(&i.get("attention"), &i.get("wa")), &norm(&i.get("memory"), &i.get("wm"))),
        _ => i.get("x"),
    }]
}
