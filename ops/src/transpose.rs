//! Transpose of a matrix, `y[m, n] = x[n, m]`, and of the middle axes of four, bit for bit. (The CPU makes a quiet NaN
//! of a signalling one of 16 bits.)
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

    /// `y[a, c, b, :] = x[a, b, c, :]`: heads before tokens; and with a matrix `[I P, J Q]` as `[I, P, J, Q]`, its blocks of
    /// `P x Q` one after the other, and back.
    pub kernel swap_axes<T: Float>(x: &Tensor<T, [A, B, C, D]>, y: &mut Tensor<T, [A, C, B, D]>)
    tune { BC: [32, 16, 64], warps: [4, 2, 8] }
    {
        for (a, b, c) in grid(A, B, tiles(C, BC)) {
            store(y[a, c, b, ..], load(x[a, b, c, ..]));
        }
    }
}

/// What `swap_axes` makes of `[A, B, C, D]`.
#[cfg(feature = "verify")]
pub fn swapped(x: &[f64], [b, c, d]: [usize; 3]) -> Vec<f64> {
    let of = |part: &[f64]| {
        (0..c)
            .flat_map(|j| (0..b).flat_map(move |i| (0..d).map(move |k| (i * c + j) * d + k)))
            .map(|at| part[at])
            .collect()
    };
    x.chunks((b * c * d).max(1)).flat_map(|part| -> Vec<f64> { of(part) }).collect()
}

/// As the head says.
#[cfg(feature = "verify")]
pub fn reference(x: &[f64], [n, m]: [usize; 2]) -> Vec<f64> {
    (0..m).flat_map(|j| (0..n).map(move |i| x[i * m + j])).collect()
}
