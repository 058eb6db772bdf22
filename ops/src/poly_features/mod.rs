//! Element-wise polynomial features of degree 1 to 4: `y = a1 x + a2 x^2 + a3 x^3 + a4 x^4`.
//!
//! Source: the polynomial features of ATLAS (arXiv 2505.23735) section 3.1 in element-wise form, with learned coefficients. Evaluated in f32 by Horner's rule:
//! `x (a1 + x (a2 + x (a3 + x a4)))`, whatever the element type. Bytes: `2 s N D`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::functions::horner;

    /// y = a1 x
    pub kernel poly1<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>, a1: f32)
    tune { BN: [16, 8, 32, 64], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let v = load(x[n, ..]).cast::<f32>();
            store(y[n, ..], (a1 * v).cast::<T>());
        }
    }

    /// y = a1 x + a2 x^2
    pub kernel poly2<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>, a1: f32, a2: f32)
    tune { BN: [16, 8, 32, 64], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let v = load(x[n, ..]).cast::<f32>();
            store(y[n, ..], horner(v, a1, v * a2).cast::<T>());
        }
    }

    /// y = a1 x + a2 x^2 + a3 x^3
    pub kernel poly3<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>, a1: f32, a2: f32, a3: f32)
    tune { BN: [16, 8, 32, 64], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let v = load(x[n, ..]).cast::<f32>();
            store(y[n, ..], horner(v, a1, horner(v, a2, v * a3)).cast::<T>());
        }
    }

    /// y = a1 x + a2 x^2 + a3 x^3 + a4 x^4
    pub kernel poly4<T: Float>(
        x: &Tensor<T, [N, D]>,
        y: &mut Tensor<T, [N, D]>,
        a1: f32,
        a2: f32,
        a3: f32,
        a4: f32,
    )
    tune { BN: [16, 8, 32, 64], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let v = load(x[n, ..]).cast::<f32>();
            store(y[n, ..], horner(v, a1, horner(v, a2, horner(v, a3, v * a4))).cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "poly3" }
crate::records::shipped! { "nvidia-h200": "poly3" }
