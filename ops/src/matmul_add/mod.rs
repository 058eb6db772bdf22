//! A matrix product added to a matrix: `D = alpha A Bᵀ + beta C`.
//!
//! FLOPs: `2 M N K`. Sums in f32, and one rounding at the end. As in BLAS, nothing of `C` reaches `D` if `beta` is 0, also no
//! NaN. All other numbers follow the rules of f32: an `alpha` of 0 leaves a NaN of `A` or `B` a NaN.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// d = alpha (a · bᵀ) + beta c
    ///
    /// If `beta` is 0, the elements of `c` do not matter, NaN among them; they are read all the same. `d` may not share memory
    /// with `c`.
    pub kernel matmul_add<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        c: &Tensor<T, [M, N]>,
        d: &mut Tensor<T, [M, N]>,
        alpha: f32,
        beta: f32,
    )
    tune { BM: [128, 64, 256], BN: [128, 64, 256, 192, 32], BK: [64, 32, 128], stages: [3, 4, 5, 8], warps: [4, 8] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            let added = select(beta == 0.0, 0.0, beta * load(c[m, n]).cast::<f32>());
            store(d[m, n], (alpha * acc + added).cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "matmul_add" }
crate::records::shipped! { "nvidia-h200": "matmul_add" }
