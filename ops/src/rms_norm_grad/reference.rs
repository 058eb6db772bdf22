//! What `rms_norm_grad` computes, in f64.

use crate::problem::{Inputs, Problem};

/// `dx`, `dw` and `1 / sqrt(mean(x^2) + eps)` of each row, of rows `x` as long as `w` is.
///
/// With `y[i] = x[i] r w[i]`, `dr / dx[j] = -r^3 x[j] / d`. So `dx[j] = r dy[j] w[j] - r^3 x[j] / d sum_i dy[i] w[i] x[i]`.
pub fn reference([x, w, dy]: [&[f64]; 3], eps: f64) -> [Vec<f64>; 3] {
    let d = w.len().max(1);
    let (mut dx, mut dw, mut rstd) = (vec![], vec![0.0; w.len()], vec![]);
    for (x, dy) in x.chunks(d).zip(dy.chunks(d)) {
        let r = (x.iter().map(|v| v * v).sum::<f64>() / d as f64 + eps).sqrt().recip();
        let along: f64 = (0..d).map(|i| dy[i] * w[i] * x[i]).sum();
        dx.extend((0..d).map(|j| r * dy[j] * w[j] - r * r * r * x[j] / d as f64 * along));
        dw.iter_mut().enumerate().for_each(|(j, dw)| *dw += dy[j] * x[j] * r);
        rstd.push(r);
    }
    [dx, dw, rstd]
}

/// The reference of a problem of one of the kernels.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [x, w, dy, dr, rstd] = ["x", "w", "dy", "dr", "rstd"].map(|name| inputs.get(name));
    let d = p.dim("D");
    if p.kernel.name == "rms_norm_weight_grad" {
        let column = |j: usize| rstd.iter().enumerate().map(|(n, r)| dy[n * d + j] * x[n * d + j] * r).sum();
        return vec![(0..d).map(column).collect()];
    }
    let [mut dx, _, rstd] = reference([&x, &w, &dy], f64::from(p.scalar("eps")));
    dx.iter_mut().zip(&dr).for_each(|(dx, dr)| *dx += dr);
    vec![dx, rstd]
}
