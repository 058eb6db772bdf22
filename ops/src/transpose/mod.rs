//! Transpose of a matrix, `y[m, n] = x[n, m]`, and of the middle axes of four, bit for bit. (The CPU makes a quiet NaN
//! of a signalling one of 16 bits.)
//!
//! Bytes: `2 s N M`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::{reference, swapped};

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

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "swap_axes" "transpose" }
crate::records::shipped! { "nvidia-h200": "swap_axes" "transpose" }
