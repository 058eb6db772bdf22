//! Radial basis functions: `y = exp(-g |x - c|²)` of centres `c`, each of its own width `g`.
//!
//! With `|x - c|² = |x|² + |c|² - 2 x·c`, which rounding may take below 0 and is kept from it. What is rounded are the squares,
//! so digits are lost where they are far above `1 / g`. Rows of `x` that are further than [`NEAR`] from 0 are therefore not
//! multiplied: with all rows of their tile they take the sum of squared differences, which is right wherever `x` and `c` lie, and
//! slower. So features of rows about one place are fastest if that is taken off `x` and `c` first. (A centre that is far from 0
//! is far from all other rows: the features are 0.) FLOPs: `2 N D M`, by differences `3 N D M`, and an exponential of each
//! feature. Bytes: `s N (D + M)`; bound by memory.

use atlas_macros::atlas_kernel;
#[cfg(feature = "verify")]
use rayon::prelude::*;
use std::f32::consts::LOG2_E;

/// The most that `g |x|² / 2` may be of a row that is multiplied: exponents are wrong by `NEAR` times a few units of 2^-22 then.
pub const NEAR: f32 = 8.0;

atlas_kernel! {
    /// Half the sum of the squares of each row.
    tile fn half_squared(x) { 0.5 * sum(x * x, axis = 1) }

    /// y = exp(-g |x - c|²)
    pub kernel rbf_features<T: Float>(
        x: &Tensor<T, [N, D]>,
        c: &Tensor<T, [M, D]>,
        g: &Tensor<f32, [M]>,
        y: &mut Tensor<T, [N, M]>,
    )
    tune { BN: [64, 128, 32], BM: [64, 32, 128], stages: 2..=3, warps: [4, 2, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let from = half_squared(xs.cast::<f32>());
            let mut widest = 0.0;
            for m in tiles(M, 1024) {
                widest = max(widest, max(abs(load(g[m]))));
            }
            // A NaN is not near, and leaves the other rows their digits.
            let apart = select(max(from) * widest <= NEAR, 0, size(D));
            for m in pipeline(tiles(M, BM)) {
                let cs = load(c[m, ..]);
                let ends = from + half_squared(cs.cast::<f32>()).t();
                let mut half = max(ends - dot(xs, cs.t()), 0.0);
                for d in 0..apart {
                    let off = load(x[n, d]).cast::<f32>().t() - load(c[m, d]).cast::<f32>();
                    half = select(d == 0, 0.0, half) + 0.5 * off * off;
                }
                store(y[n, m], exp2(load(g[m]) * (-2.0 * LOG2_E) * half).cast::<T>());
            }
        }
    }
}

/// As the head says, by differences.
#[cfg(feature = "verify")]
pub fn reference(x: &[f64], c: &[f64], g: &[f64], d: usize) -> Vec<f64> {
    let one = |x: &[f64], c: &[f64]| x.iter().zip(c).map(|(x, c)| (x - c) * (x - c)).sum::<f64>();
    let row = |x: &[f64]| c.chunks(d.max(1)).zip(g).map(|(c, g)| (-g * one(x, c)).exp()).collect::<Vec<f64>>();
    x.par_chunks(d.max(1)).flat_map_iter(row).collect()
}
