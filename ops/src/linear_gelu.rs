//! A linear layer and its GELU: `y = gelu(x wᵀ + b)`, the product's epilogue in the product's kernel.
//!
//! GELU is exact, by the error function: Hendrycks and Gimpel, arXiv 1606.08415. FLOPs: `2 M N K`. Sums in f32, which reach
//! the epilogue unrounded.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y = gelu(x · wᵀ + b)
    pub kernel linear_gelu<T: Float>(
        x: &Tensor<T, [M, K]>,
        w: &Tensor<T, [N, K]>,
        b: &Tensor<T, [N]>,
        y: &mut Tensor<T, [M, N]>,
    )
    tune { BM: [128, 64, 256], BN: [128, 64, 256, 32], BK: [64, 32, 128], stages: 3..=5, warps: [4, 8] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[m, k]), load(w[n, k]).t());
            }
            store(y[m, n], gelu(acc + load(b[n]).cast::<f32>()).cast::<T>());
        }
    }
}

/// `y[m,n] = gelu(sum_k x[m,k] w[n,k] + b[n])`, row-major.
#[cfg(feature = "verify")]
pub fn reference(x: &[f64], w: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let mut y = crate::matmul::reference(x, w, [m, n, k]);
    for row in y.chunks_mut(n.max(1)) {
        row.iter_mut().zip(b).for_each(|(z, b)| *z = crate::memory::gelu(*z + b));
    }
    y
}
