//! A linear layer, its activation and a residual: `y = act(x wᵀ + b) + r`, all behind the product in the product's kernel.
//!
//! One kernel for each activation: none, ReLU, GELU by the error function (Hendrycks and Gimpel, arXiv 1606.08415) and SiLU.
//! FLOPs: `2 M N K`. Sums in f32, which reach the epilogue unrounded, and one rounding at the end.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

/// A kernel of the family: its name, and what becomes of an element.
macro_rules! linear_residual {
    ($(#[$doc:meta])* $name:ident, |$z:ident| $($activated:tt)*) => {
        atlas_kernel! {
            $(#[$doc])*
            pub kernel $name<T: Float>(
                x: &Tensor<T, [M, K]>,
                w: &Tensor<T, [N, K]>,
                b: &Tensor<T, [N]>,
                r: &Tensor<T, [M, N]>,
                y: &mut Tensor<T, [M, N]>,
            )
            tune {
                BM: [128, 64, 16], BN: [128, 64, 256, 192, 32], BK: [64, 32, 128], stages: [3, 4, 5, 8], warps: [4, 8],
                split_k: [1, 2, 4],
            }
            {
                for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
                    let mut acc = zeros::<f32>([BM, BN]);
                    for k in pipeline(tiles(K, BK)) {
                        acc += dot(load(x[m, k]), load(w[n, k]).t());
                    }
                    let $z = acc + load(b[n]).cast::<f32>();
                    store(y[m, n], ($($activated)* + load(r[m, n]).cast::<f32>()).cast::<T>());
                }
            }
        }
    };
}

linear_residual! {
    /// y = x · wᵀ + b + r
    linear_residual, |z| z
}

linear_residual! {
    /// y = max(x · wᵀ + b, 0) + r
    linear_relu_residual, |z| max(z, 0.0)
}

linear_residual! {
    /// y = gelu(x · wᵀ + b) + r
    linear_gelu_residual, |z| gelu(z)
}

linear_residual! {
    /// y = silu(x · wᵀ + b) + r
    linear_silu_residual, |z| crate::functions::silu(z)
}

crate::records::shipped! {
    "nvidia-h100-80gb-hbm3":
    "linear_gelu_residual" "linear_relu_residual" "linear_residual" "linear_silu_residual"
}
crate::records::shipped! { "nvidia-h200": "linear_gelu_residual" "linear_residual" }
