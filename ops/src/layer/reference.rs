//! The whole layer in f64, from the references of its parts.

pub use super::host::{HostContext, HostLayer};

use super::context_reference;
use super::features::Side;
use super::host::features;
use super::{Combine, LayerRule, LayerSizes, Residual};
use crate::omega::reference::{Gates, Sequence, SequenceSizes, State, of_head, recurrence};
use crate::problem::{Inputs, Problem};
use crate::windowed_attention;
use rayon::prelude::*;

/// What the layer gives for all tokens of a sequence, `[B, T, H, D]`.
///
/// # Panics
/// If the projections of a feature map cannot be read from their device.
pub fn reference(sizes: &LayerSizes, rule: &LayerRule, x: &HostLayer) -> Vec<f64> {
    let (b, h, d) = (sizes.sequences, sizes.heads, sizes.width);
    let t = x.memory[0].len() / (b * h * d).max(1);
    if let Combine::Context { segment } = rule.combine {
        return context_reference::reference(sizes, rule, x, (t, segment));
    }
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
        let scale = (d as f64).sqrt().recip();
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
        // A context has been dealt with above.
        Combine::Alone | Combine::Context { .. } => m,
        Combine::Sequence => attend(&m, &m, &m),
        Combine::Gate => {
            let [q, k, v] = &x.attention;
            let a = norm(&attend(q, k, v), &x.norms[1]);
            a.iter().zip(&m).map(|(a, m)| a / (1.0 + (-m).exp())).collect()
        }
    }
}

/// What the memory gives, before its norm.
pub(super) fn memory(sizes: &LayerSizes, rule: &LayerRule, x: &HostLayer, t: usize) -> Vec<f64> {
    let (b, h, e, m) = (sizes.sequences, sizes.heads, sizes.width, sizes.hidden);
    let c = rule.memory.chunking;
    let d = rule.features.features(e);
    let of = SequenceSizes { n: t, p: t, h, d, e, m, l: c.chunk, w: c.window, k: c.keys() };
    let shapes = of.matrices(&rule.memory);
    let heads: Vec<Vec<f64>> = (0..b * h)
        .into_par_iter()
        .map(|at| {
            let (sequence, head) = (at / h, at % h);
            let rows =
                |x: &[f64], width: usize| of_head(&x[sequence * t * h * width..][..t * h * width], head, h, width);
            let [q, k, v] = [0, 1, 2].map(|i| rows(&x.memory[i], e));
            let phi = |side: Side, x: &[f64]| {
                x.chunks(e).flat_map(|x| features(&rule.features, side, x)).collect::<Vec<f64>>()
            };
            let (fq, fk) = (phi(Side::Queries, &q), phi(Side::Keys, &k));
            let (rq, rk) = match rule.residual {
                Residual::Raw => (q, k),
                Residual::Features => (fq.clone(), fk.clone()),
                Residual::None => (vec![0.0; t * e], vec![0.0; t * e]),
            };
            let norm = x.inner.get(head * e..(head + 1) * e).unwrap_or_default().to_vec();
            let s = Sequence { q: fq, k: fk, v, rq, rk, norm };
            let [alpha, theta, eta] = [0, 1, 2].map(|i| rows(&x.gates[i], 1));
            let gates = Gates { alpha, theta, eta, gamma: rows(&x.gamma, c.window) };
            let of_head = |(w, [rows, cols]): (&Vec<f64>, &[usize; 2])| w[at * rows * cols..][..rows * cols].to_vec();
            let w: Vec<Vec<f64>> = x.weights.iter().zip(&shapes).map(of_head).collect();
            let mut state = State { s: State::zeros_like(&w), w };
            recurrence(&of, &s, &gates, &mut state, &rule.memory)
        })
        .collect();
    let mut y = vec![0.0; b * t * h * e];
    for (at, rows) in heads.iter().enumerate() {
        for (i, row) in rows.chunks(e).enumerate() {
            y[((at / h * t + i) * h + at % h) * e..][..e].copy_from_slice(row);
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
