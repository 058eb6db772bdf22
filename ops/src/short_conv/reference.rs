//! What `short_conv` computes, in f64.

use crate::problem::{Inputs, Problem};

/// The reference of a problem of one of the kernels.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [b, n, past, c, w] = ["B", "N", "P", "C", "W"].map(|dim| p.dim(dim));
    let [x, weights, dy] = ["x", "w", "dy"].map(|name| inputs.get(name));
    // The token of `x` that the weight `j` meets at the token `t` of `y`.
    let met = |t: usize, j: usize| (t + past - n + j + 1).checked_sub(w).filter(|&i| i < past);
    let (mut y, mut dx, mut dw) = (vec![0.0; b * n * c], vec![0.0; b * past * c], vec![0.0; c * w]);
    for sequence in 0..b {
        for t in 0..n {
            for j in 0..w {
                let Some(i) = met(t, j) else { continue };
                for channel in 0..c {
                    let (of_x, of_y) = ((sequence * past + i) * c + channel, (sequence * n + t) * c + channel);
                    let weight = channel * w + j;
                    match p.kernel.name {
                        "short_conv" => y[of_y] += weights[weight] * x[of_x],
                        "short_conv_input_grad" => dx[of_x] += weights[weight] * dy[of_y],
                        _ => dw[weight] += x[of_x] * dy[of_y],
                    }
                }
            }
        }
    }
    vec![match p.kernel.name {
        "short_conv" => y,
        "short_conv_input_grad" => dx,
        _ => dw,
    }]
}
