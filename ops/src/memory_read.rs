//! Read-out of a deep memory: `y = r + W1 · gelu(W2 · x)`, one small MLP per group (a batch element x head).
//!
//! Source: ATLAS (arXiv 2505.23735) Eq. 42, with the residual `r` as an input of its own: `r = x` where
//! the residual is the key itself. GELU is the built-in one, the erf form `0.5 z (1 + erf(z / sqrt 2))`; the
//! tanh form differs by up to 4.7e-4 and is another function.
//!
//! With rows as tokens, `x` is [N, D], `W2` is [H, D], `W1` is [D, H]:
//! `Z = X W2^T`, `A = gelu(Z)`, `Y = R + A W1^T`. `Z` and `A` are never written to memory: `H` is streamed
//! in tiles of `BH`. Weights shared by all groups are passed as views with stride 0 along `G`.
//!
//! FLOPs: `4 G N D H`. Bytes: `s G (3 N D + 2 D H)` for elements of `s` bytes.

use atlas_macros::atlas_kernel;
#[cfg(feature = "verify")]
use rayon::prelude::*;

atlas_kernel! {
    /// y = r + W1 · gelu(W2 · x), one small memory per group.
    pub kernel memory_read<T: Float>(
        x:  &Tensor<T, [G, N, D]>,
        w2: &Tensor<T, [G, H, D]>,
        w1: &Tensor<T, [G, D, H]>,
        r:  &Tensor<T, [G, N, D]>,
        y:  &mut Tensor<T, [G, N, D]>,
    )
    tune { BN: [64, 32, 128, 16], BH: [64, 32, 96, 128], stages: 2..=3, warps: [4, 2, 8] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let xs = load(x[g, n, ..]);
            let mut acc = load(r[g, n, ..]).cast::<f32>();
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w2[g, h, ..]).t());
                acc += dot(gelu(z).cast::<T>(), load(w1[g, .., h]).t());
            }
            store(y[g, n, ..], acc.cast::<T>());
        }
    }
}

/// `y[g,n,i] = r[g,n,i] + sum_h w1[g,i,h] gelu(sum_j w2[g,h,j] x[g,n,j])`, row-major.
#[cfg(feature = "verify")]
pub fn reference(x: &[f64], w2: &[f64], w1: &[f64], r: &[f64], [n, d, h]: [usize; 3]) -> Vec<f64> {
    let mut y = r.to_vec();
    if d == 0 {
        return y;
    }
    y.par_chunks_mut(d).enumerate().for_each(|(row, y)| {
        let group = row / n;
        let x = &x[row * d..][..d];
        let w2 = &w2[group * h * d..][..h * d];
        let w1 = &w1[group * d * h..][..d * h];
        let hidden: Vec<f64> = (0..h)
            .map(|k| {
                let z: f64 = (0..d).map(|j| w2[k * d + j] * x[j]).sum();
                0.5 * z * (1.0 + libm::erf(z / std::f64::consts::SQRT_2))
            })
            .collect();
        for (i, y) in y.iter_mut().enumerate() {
            *y += (0..h).map(|k| w1[i * h + k] * hidden[k]).sum::<f64>();
        }
    });
    y
}
