//! What `fused_forward` computes, in f64.

use crate::problem::{Inputs, Problem};

/// Rows of `width` divided by their root mean square, times the weights of their group of `rows` rows.
fn norm(x: &[f64], w: &[f64], [rows, width]: [usize; 2], eps: f64) -> Vec<f64> {
    let group = (rows * width).max(1);
    let of = |(at, x): (usize, &[f64])| crate::rms_norm::reference(x, &w[at * width..][..width], eps);
    x.chunks(group).enumerate().flat_map(of).collect()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The formulas at the head of the file, in f64; group by group, so that some groups may be asked for alone.
pub(crate) fn reference(p: &Problem, i: &Inputs) -> Vec<Vec<f64>> {
    let shape = [p.dim("N"), p.dim("D")];
    let eps = f64::from(p.scalar("eps"));
    if matches!(p.kernel.name, "group_norm" | "silu_gate" | "sigmoid_gate" | "lerp_gate") {
        return vec![alone(p, i, shape, eps)];
    }
    let (q, w) = (i.get("q"), i.get("w"));
    let a = ["a1", "a2", "a3"].map(|name| f64::from(p.scalar(name)));
    let phi = crate::poly_features::reference(&q, &a);
    let sizes = [p.dim("N"), p.dim("D"), p.dim("H")];
    let m = crate::memory_read::reference(&phi, &i.get("w2"), &i.get("w1"), &q, sizes);
    let m = norm(&m, &w, shape, eps);
    let gate = i.get("gate");
    if p.kernel.name == "fused_forward" {
        return vec![m.iter().zip(&gate).map(|(m, z)| m * (z * sigmoid(*z))).collect()];
    }
    let attention = norm(&i.get("attention"), &i.get("wa"), shape, eps);
    let both = attention.iter().zip(&m).enumerate();
    let combined = both.map(|(at, (x, m))| match p.kernel.name {
        "mag_forward" => x * sigmoid(*m),
        _ => sigmoid(gate[at]) * x + sigmoid(-gate[at]) * m,
    });
    vec![combined.collect()]
}

fn alone(p: &Problem, i: &Inputs, shape: [usize; 2], eps: f64) -> Vec<f64> {
    let (x, m, gate) = (i.get("x"), i.get("m"), i.get("gate"));
    match p.kernel.name {
        "group_norm" => norm(&x, &i.get("w"), shape, eps),
        "silu_gate" => x.iter().zip(&gate).map(|(x, z)| x * (z * sigmoid(*z))).collect(),
        "sigmoid_gate" => x.iter().zip(&m).map(|(x, m)| x * sigmoid(*m)).collect(),
        _ => x.iter().zip(&m).zip(&gate).map(|((x, m), z)| sigmoid(*z) * x + sigmoid(-*z) * m).collect(),
    }
}
