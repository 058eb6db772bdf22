//! Softmax of rows: `y = exp(x - max x) / sum exp(x - max x)`.
//!
//! The maximum is taken off first, so that no exponential overflows. Computed in f32, whatever the element
//! type. Bytes: `2 s N D`; bound by memory.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y = softmax(x), row by row.
    pub kernel softmax<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [1, 2, 4, 8], warps: [4, 8, 16], occupancy: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            let e = exp(xs - max(xs, axis = 1));
            store(y[n, ..], (e / sum(e, axis = 1)).cast::<T>());
        }
    }
}

/// `y[n,i] = exp(x[n,i] - m) / sum_j exp(x[n,j] - m)` with `m` the row's maximum.
#[cfg(feature = "verify")]
pub fn reference(x: &[f64], d: usize) -> Vec<f64> {
    x.chunks(d.max(1))
        .flat_map(|row| {
            let max = row.iter().fold(f64::NEG_INFINITY, |m, &v| if m.is_nan() || v <= m { m } else { v });
            let sum: f64 = row.iter().map(|v| (v - max).exp()).sum();
            row.iter().map(move |v| (v - max).exp() / sum)
        })
        .collect()
}
