//! Matrix product with the right operand transposed, as the weights of linear layers are: `C = A Bᵀ`.
//!
//! FLOPs: `2 M N K`. Sums in f32.

use atlas_macros::atlas_kernel;
#[cfg(feature = "verify")]
use rayon::prelude::*;

atlas_kernel! {
    /// c = a · bᵀ
    pub kernel matmul<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, c: &mut Tensor<T, [M, N]>)
    tune { BM: [128, 64, 256], BN: [128, 64, 256, 32], BK: [64, 32, 128], stages: 3..=5, warps: [4, 8] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(c[m, n], acc.cast::<T>());
        }
    }
}

/// `c[m,n] = sum_k a[m,k] b[n,k]`, row-major.
#[cfg(feature = "verify")]
pub fn reference(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    if k == 0 {
        return vec![0.0; m * n];
    }
    let row = |a: &[f64]| b.chunks(k).map(|b| a.iter().zip(b).map(|(x, y)| x * y).sum()).collect::<Vec<f64>>();
    a.par_chunks(k).flat_map_iter(row).collect()
}
