//! A linear layer to J heads, and the sum of squares of each row of each head: `y[j] = x w[j]ᵀ` and `q[m, j] = ||y[m, j]||²`.
//!
//! The sums are what an RMS norm of each head needs of the product. They are of the unrounded products, in f32. Epsilon: none; the
//! factor of such a norm is `rsqrt(q / C + eps)`. FLOPs:
//! `2 M J C K`. A program has one head of C columns, so C is a multiple of nothing but has to fit a tile: up to 256.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y[m, j] = x[m] · w[j]ᵀ, and q[m, j] = the sum of the squares of y[m, j]
    ///
    /// C is compiled into the kernel. A matrix `[J C, K]` is `w` by [`Tensor::split`](atlas_runtime::Tensor::split).
    pub kernel linear_square_sums<T: Float>(
        x: &Tensor<T, [M, K]>,
        w: &Tensor<T, [J, C, K]>,
        y: &mut Tensor<T, [M, J, C]>,
        q: &mut Tensor<f32, [M, J]>,
    )
    tune { BM: [128, 64, 256], BK: [64, 32, 128], stages: [3, 4, 5, 8], warps: [4, 8] }
    {
        for (m, j) in grid(tiles(M, BM), J) {
            let mut acc = zeros::<f32>([BM, C]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[m, k]), load(w[j, .., k]).t());
            }
            store(y[m, j, ..], acc.cast::<T>());
            store(q[m, j], sum(acc * acc, axis = 1));
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "linear_square_sums" }
crate::records::shipped! { "nvidia-h200": "linear_square_sums" }
