//! What `gated_memory` computes, in f64.

use crate::memory::{gelu, gelu_slope};
use crate::problem::{Inputs, Problem};
use rayon::prelude::*;

/// One token's way through a memory: `Z`, `U` (of ones, if it has no gate) and `W1 (A U)`.
struct GatedActivations {
    z: Vec<f64>,
    u: Vec<f64>,
    m: Vec<f64>,
}

fn rows(w: &[f64], x: &[f64]) -> Vec<f64> {
    w.chunks(x.len().max(1)).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

fn pass(x: &[f64], w2: &[f64], w3: &[f64], w1: &[f64]) -> GatedActivations {
    let z = rows(w2, x);
    let u = if w3.is_empty() { vec![1.0; z.len()] } else { rows(w3, x) };
    let hidden: Vec<f64> = z.iter().zip(&u).map(|(&z, u)| gelu(z) * u).collect();
    GatedActivations { m: rows(w1, &hidden), z, u }
}

/// The formulas at the head of the file, group by group.
pub(crate) fn checked(p: &Problem, i: &Inputs) -> Vec<Vec<f64>> {
    let [n, d, e, h] = ["N", "D", "E", "H"].map(|dim| p.dim(dim));
    let names = ["x", "w2", "w3", "w1", "r", "v", "c", "w", "e"].map(|name| i.get(name));
    let lens = [n * d, h * d, h * d, e * h, n * e, n * e, n, e, n * e];
    let of_group = |g: usize| {
        let part: Vec<&[f64]> =
            names.iter().zip(lens).map(|(x, len)| x.get(g * len..(g + 1) * len).unwrap_or_default()).collect();
        group(p, [n, d, e, h], &part)
    };
    let groups: Vec<Vec<Vec<f64>>> = (0..p.dim("G")).into_par_iter().map(of_group).collect();
    let mut out: Vec<Vec<f64>> = vec![vec![]; groups.first().map_or(1, Vec::len)];
    groups.into_iter().for_each(|g| out.iter_mut().zip(g).for_each(|(to, from)| to.extend(from)));
    out
}

fn group(p: &Problem, [n, d, e, h]: [usize; 4], part: &[&[f64]]) -> Vec<Vec<f64>> {
    let [x, w2, w3, w1, r, v, c, w, es] = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|i| part[i]);
    let (scale, eps) = (f64::from(p.scalar("scale")), f64::from(p.scalar("eps")));
    let token = |t: usize| pass(&x[t * d..][..d], w2, w3, w1);
    let residual = |t: usize| &r[t * e..][..e];
    match p.kernel.name {
        "memory_read_gated" => {
            vec![
                (0..n)
                    .flat_map(|t| token(t).m.iter().zip(residual(t)).map(|(m, r)| m + r).collect::<Vec<_>>())
                    .collect(),
            ]
        }
        "memory_read_normed" => {
            let of = |t: usize| {
                let m = token(t).m;
                let mean = m.iter().sum::<f64>() / e as f64;
                let spread = m.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / e as f64;
                let normed = m.iter().zip(w).map(|(m, w)| (m - mean) / (spread + eps).sqrt() * w);
                normed.zip(residual(t)).map(|(y, r)| y + r).collect::<Vec<f64>>()
            };
            vec![(0..n).flat_map(of).collect()]
        }
        "memory_gated_errors" => {
            let (mut errors, mut losses) = (Vec::new(), Vec::new());
            for t in 0..n {
                let m = token(t).m;
                let off = (0..e).map(|k| if c[t] == 0.0 { 0.0 } else { m[k] + residual(t)[k] - v[t * e + k] });
                let off: Vec<f64> = off.collect();
                losses.push(0.5 * scale * c[t] * off.iter().map(|x| x * x).sum::<f64>());
                errors.extend(off.iter().map(|x| scale * x));
            }
            vec![errors, losses]
        }
        _ => {
            let (mut by2, mut by3, mut by1) = (vec![0.0; h * d], vec![0.0; h * d], vec![0.0; e * h]);
            for t in (0..n).filter(|&t| c[t] != 0.0) {
                let (pass, error, xs) = (token(t), &es[t * e..][..e], &x[t * d..][..d]);
                for k in 0..h {
                    let back: f64 = c[t] * (0..e).map(|j| error[j] * w1[j * h + k]).sum::<f64>();
                    let (a, u) = (gelu(pass.z[k]), pass.u[k]);
                    for j in 0..d {
                        by2[k * d + j] += gelu_slope(pass.z[k]) * u * back * xs[j];
                        by3[k * d + j] += a * back * xs[j];
                    }
                    (0..e).for_each(|j| by1[j * h + k] += c[t] * error[j] * a * u);
                }
            }
            vec![by2, by3, by1]
        }
    }
}
