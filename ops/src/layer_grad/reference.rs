//! What `layer_grad` computes, in f64.

use crate::problem::{Inputs, Problem};
use crate::rms_norm;
use crate::rms_norm_grad;

/// Gradients of what combines memory and attention.
#[derive(Clone, Debug)]
pub struct CombineGrad {
    /// By what the memory gives, `[B, N, H, D]`.
    pub memory: Vec<f64>,
    /// By what the attention gives, `[B, N, H, D]`.
    pub attention: Vec<f64>,
    /// By the weights of the memory's norm, `[H, D]`.
    pub memory_norm: Vec<f64>,
    /// By the weights of the attention's norm, `[H, D]`.
    pub attention_norm: Vec<f64>,
}

/// The gradients of `norm(attention, wa) * sigmoid(norm(memory, wm))`: of the gate by both of its operands, and from there of
/// each norm. Rows have `d` elements.
pub fn combine_grad([memory, wm, attention, wa, dy]: [&[f64]; 5], d: usize, eps: f64) -> CombineGrad {
    let (m, a) = (norm([memory, wm], d, eps), norm([attention, wa], d, eps));
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let by_m: Vec<f64> = (0..dy.len()).map(|i| dy[i] * a[i] * sigmoid(m[i]) * sigmoid(-m[i])).collect();
    let by_a: Vec<f64> = (0..dy.len()).map(|i| dy[i] * sigmoid(m[i])).collect();
    let [memory, memory_norm] = norm_grad([memory, wm, &by_m], d, eps);
    let [attention, attention_norm] = norm_grad([attention, wa, &by_a], d, eps);
    CombineGrad { memory, attention, memory_norm, attention_norm }
}

/// The weights of row `at`, of heads that follow each other.
fn of_row(w: &[f64], at: usize, d: usize) -> &[f64] {
    &w[at * d % w.len()..][..d]
}

fn norm([x, w]: [&[f64]; 2], d: usize, eps: f64) -> Vec<f64> {
    x.chunks(d).enumerate().flat_map(|(at, x)| rms_norm::reference(x, of_row(w, at, d), eps)).collect()
}

/// The gradients of the norm of each head by `x` and by `w`.
fn norm_grad([x, w, dy]: [&[f64]; 3], d: usize, eps: f64) -> [Vec<f64>; 2] {
    let (mut dx, mut dw) = (vec![], vec![0.0; w.len()]);
    for (at, (x, dy)) in x.chunks(d).zip(dy.chunks(d)).enumerate() {
        let [of_row, by_w, _] = rms_norm_grad::reference([x, of_row(w, at, d), dy], eps);
        dx.extend(of_row);
        dw[at * d % w.len()..][..d].iter_mut().zip(by_w).for_each(|(dw, by)| *dw += by);
    }
    [dx, dw]
}

/// The reference of a problem of one of the kernels.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let (d, eps) = (p.dim("D"), f64::from(p.scalar("eps")));
    let [x, m, dy] = ["x", "m", "dy"].map(|name| inputs.get(name));
    let pairs = || x.iter().zip(&dy);
    match p.kernel.name {
        "layer_features_grad" => {
            let [a1, a2, a3] = ["a1", "a2", "a3"].map(|name| f64::from(p.scalar(name)));
            vec![pairs().map(|(x, dy)| dy * (a1 + 2.0 * a2 * x + 3.0 * a3 * x * x)).collect()]
        }
        "layer_gate_grad" => {
            let gate: Vec<f64> = m.iter().map(|m| 1.0 / (1.0 + (-m).exp())).collect();
            let by_m = pairs().zip(&gate).map(|((x, dy), s)| dy * x * s * (1.0 - s)).collect();
            vec![dy.iter().zip(&gate).map(|(dy, s)| dy * s).collect(), by_m]
        }
        "layer_norm_grad" => vec![norm_grad([&x, &inputs.get("w"), &dy], d, eps)[0].clone()],
        // `dw` does not depend on `w`.
        "layer_norm_weight_grad" => vec![norm_grad([&x, &vec![1.0; p.dim("H") * d], &dy], d, eps)[1].clone()],
        _ => {
            let [memory, wm, attention, wa] = ["memory", "wm", "attention", "wa"].map(|name| inputs.get(name));
            let found = combine_grad([&memory, &wm, &attention, &wa, &dy], d, eps);
            match p.kernel.name {
                "layer_combine_grad" => vec![found.memory, found.attention],
                _ => vec![found.memory_norm, found.attention_norm],
            }
        }
    }
}
