//! Deep memories of other forms: gated, and with a norm inside.
//!
//! ```text
//! memory_read_gated    y = r + W1 (gelu(W2 x) (*) W3 x)                 ATLAS++
//! memory_read_normed   y = r + norm(W1 gelu(W2 x)) (*) w                a layer norm before the residual
//! memory_gated_errors  E = s (M(x) - v) of the gated one, and losses c s/2 |M(x) - v|^2
//! memory_gated_grads   dW1 = (c E)^T (A (*) U), dW2 = (c P U gelu'(Z))^T X, dW3 = (c P A)^T X
//! ```
//!
//! with `Z = X W2^T`, `U = X W3^T`, `A = gelu(Z)` and `P = E W1`. Source: ATLAS (arXiv 2505.23735) Eq. 43. Layouts, weights of
//! tokens and what is never written to memory are as in [`memory_read`](crate::memory_read) and
//! [`memory_grad`](crate::memory_grad), losses beyond f32 too. The norm has the domain of [`rms_norm`](crate::rms_norm), of `m`
//! less its mean; beyond it the memory adds nothing to `r`, or NaN where the sum of a row of `m` is beyond f32. FLOPs: `6 G N D
//! H` to read, `14 G N D H` for errors and gradients.

use atlas_macros::atlas_kernel;
use atlas_runtime::Chain;

atlas_kernel! {
    /// y = r + W1 (gelu(W2 x) * W3 x)
    pub kernel memory_read_gated<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w3: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, E, H]>,
        r: &Tensor<T, [G, N, E]>,
        y: &mut Tensor<T, [G, N, E]>,
    )
    tune { BN: [64, 32, 16], BH: [32, 64, 96], stages: 2..=3, warps: [4, 2, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]);
            let mut acc = load(r[g, n, ..]).cast::<f32>();
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w2[g, h, ..]).t());
                let u = dot(xs, load(w3[g, h, ..]).t());
                acc += dot((gelu(z) * u).cast::<T>(), load(w1[g, .., h]).t());
            }
            store(y[g, n, ..], acc.cast::<T>());
        }
    }

    /// y = r + w * (m - mean m) / sqrt(var m + eps) with m = W1 gelu(W2 x)
    pub kernel memory_read_normed<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, E, H]>,
        w: &Tensor<T, [G, E]>,
        r: &Tensor<T, [G, N, E]>,
        eps: f32,
        y: &mut Tensor<T, [G, N, E]>,
    )
    tune { BN: [64, 32, 16], BH: [64, 32, 96], stages: 2..=3, warps: [4, 2, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]);
            let mut acc = zeros::<f32>([BN, E]);
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w2[g, h, ..]).t());
                acc += dot(gelu(z).cast::<T>(), load(w1[g, .., h]).t());
            }
            let centred = acc - sum(acc, axis = 1) / size(E).cast::<f32>();
            // Once more: what the mean was rounded by would be all that a row of equal numbers has.
            let off = centred - sum(centred, axis = 1) / size(E).cast::<f32>();
            let spread = sum(off * off, axis = 1) / size(E).cast::<f32>();
            let normed = off * rsqrt(spread + eps) * load(w[g, ..]).cast::<f32>();
            store(y[g, n, ..], (load(r[g, n, ..]).cast::<f32>() + normed).cast::<T>());
        }
    }

    /// The errors of all tokens, rounded as products take them, and their weighted losses.
    pub kernel memory_gated_errors<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w3: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, E, H]>,
        r: &Tensor<T, [G, N, E]>,
        v: &Tensor<T, [G, N, E]>,
        c: &Tensor<f32, [G, N]>,
        scale: f32,
        e: &mut Tensor<T, [G, N, E]>,
        loss: &mut Tensor<f32, [G, N]>,
    )
    tune { BN: [64, 32, 16], BH: [32, 64], stages: 2..=3, warps: [4, 2, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let weight = load(c[g, n]).t();
            let xs = select(weight == 0.0, 0.0, load(x[g, n, ..]));
            let mut acc = load(r[g, n, ..]).cast::<f32>() - load(v[g, n, ..]).cast::<f32>();
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w2[g, h, ..]).t());
                let u = dot(xs, load(w3[g, h, ..]).t());
                acc += dot((gelu(z) * u).cast::<T>(), load(w1[g, .., h]).t());
            }
            let error = select(weight == 0.0, 0.0, acc);
            store(e[g, n, ..], (error * scale).cast::<T>());
            store(loss[g, n], 0.5 * scale * weight * sum(error * error, axis = 1));
        }
    }

    /// The gradients of all three matrices, by tiles of the hidden dim.
    pub kernel memory_gated_grads<T: Float>(
        x: &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w3: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, E, H]>,
        c: &Tensor<f32, [G, N]>,
        e: &Tensor<T, [G, N, E]>,
        dw2: &mut Tensor<f32, [G, H, D]>,
        dw3: &mut Tensor<f32, [G, H, D]>,
        dw1: &mut Tensor<f32, [G, E, H]>,
    )
    tune { BH: [32, 16], BN: [32, 16], stages: 2..=3, warps: [4, 8] }
    {
        for (g, h) in grid(G, tiles(H, BH)) {
            let w2h = load(w2[g, h, ..]);
            let w3h = load(w3[g, h, ..]);
            let w1h = load(w1[g, .., h]);
            let mut by2 = zeros::<f32>([BH, D]);
            let mut by3 = zeros::<f32>([BH, D]);
            let mut by1 = zeros::<f32>([E, BH]);
            for n in pipeline(tiles(N, BN)) {
                let weight = load(c[g, n]).t();
                let xs = select(weight == 0.0, 0.0, load(x[g, n, ..]));
                let es = load(e[g, n, ..]);
                let z = dot(xs, w2h.t());
                let u = dot(xs, w3h.t());
                let a = gelu(z);
                let p = weight * dot(es, w1h);
                by2 += dot((grad(gelu)(z) * u * p).cast::<T>().t(), xs);
                by3 += dot((a * p).cast::<T>().t(), xs);
                by1 += dot((es.cast::<f32>() * weight).cast::<T>().t(), (a * u).cast::<T>());
            }
            store(dw2[g, h, ..], by2);
            store(dw3[g, h, ..], by3);
            store(dw1[g, .., h], by1);
        }
    }
}

/// Gradients of a gated memory on a window of tokens: errors, then all three matrices.
pub static MEMORY_GATED_GRAD: Chain =
    Chain { name: "memory_gated_grad", kernels: &[&memory_gated_errors, &memory_gated_grads], workspace: &["e"] };

#[cfg(feature = "verify")]
pub(crate) use checked::checked;

#[cfg(feature = "verify")]
mod checked {
    use crate::memory::{gelu, gelu_slope};
    use crate::problem::{Inputs, Problem};
    use rayon::prelude::*;

    /// One token's way through a memory: `Z`, `U` (of ones, if it has no gate) and `W1 (A U)`.
    struct Pass {
        z: Vec<f64>,
        u: Vec<f64>,
        m: Vec<f64>,
    }

    fn rows(w: &[f64], x: &[f64]) -> Vec<f64> {
        w.chunks(x.len().max(1)).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
    }

    fn pass(x: &[f64], w2: &[f64], w3: &[f64], w1: &[f64]) -> Pass {
        let z = rows(w2, x);
        let u = if w3.is_empty() { vec![1.0; z.len()] } else { rows(w3, x) };
        let hidden: Vec<f64> = z.iter().zip(&u).map(|(&z, u)| gelu(z) * u).collect();
        Pass { m: rows(w1, &hidden), z, u }
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
}
