//! Transpose of a matrix: `y[m, n] = x[n, m]`, bit for bit.
//!
//! Bytes: `2 s N M`; bound by memory.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y = xᵀ
    pub kernel transpose<T: Float>(x: &Tensor<T, [N, M]>, y: &mut Tensor<T, [M, N]>)
    tune { BN: [128, 64], BM: [128, 64], warps: [4, 8, 2] }
    {
        for (n, m) in grid(tiles(N, BN), tiles(M, BM)) {
            store(y[m, n], load(x[n, m]).t());
        }
    }
}

/// As the head says.
#[cfg(feature = "verify")]
pub fn reference(x: &[f64], [n, m]: [usize; 2]) -> Vec<f64> {
    (0..m).flat_map(|j| (0..n).map(move |i| x[i * m + j])).collect()
}
