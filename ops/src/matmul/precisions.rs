//! Products of f32 matrices on tensor cores, `C = A Bᵀ`, at each precision of `dot`.
//!
//! FLOPs: `2 M N K`, whatever the precision. Sums in f32.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// c = a · bᵀ, of elements rounded or truncated to tf32
    pub kernel matmul_tf32(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [N, K]>, c: &mut Tensor<f32, [M, N]>)
    tune { BM: [128, 64], BN: [128, 256, 64], BK: [32], stages: [3, 4, 2], warps: [4, 8] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t()).precision(tf32);
            }
            store(c[m, n], acc);
        }
    }

    /// c = a · bᵀ, of elements split into two bf16
    pub kernel matmul_bf16x3(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [N, K]>, c: &mut Tensor<f32, [M, N]>)
    tune { BM: [128, 64], BN: [128, 64], BK: [32, 16, 64], stages: [3, 2], warps: [8] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t()).precision(bf16x3);
            }
            store(c[m, n], acc);
        }
    }

    /// c = a · bᵀ, of elements split into two tf32
    pub kernel matmul_tf32x3(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [N, K]>, c: &mut Tensor<f32, [M, N]>)
    tune { BM: [128, 64], BN: [64, 128], BK: [32, 16], stages: [3, 2], warps: [8, 4] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t()).precision(tf32x3);
            }
            store(c[m, n], acc);
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "matmul_bf16x3" "matmul_tf32x3" "matmul_tf32" }
crate::records::shipped! { "nvidia-h200": "matmul_bf16x3" "matmul_tf32x3" "matmul_tf32" }
