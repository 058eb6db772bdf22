//! A copy, `y = x`, bit for bit. (The CPU makes a quiet NaN of a signalling one of 16 bits.)
//!
//! `x` may be any view: a part of a tensor, one with its axes in another order, or one that repeats its elements
//! (`x.expand(..)`, with strides of 0), of which the copy makes elements that can be written one by one, such as memories of
//! sequences that begin with the same one. A tensor of fewer axes has axes of size 1 in front.
//!
//! Bytes: `2 s A B C D`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y = x
    pub kernel copy<T: Float>(x: &Tensor<T, [A, B, C, D]>, y: &mut Tensor<T, [A, B, C, D]>)
    tune { BC: [16, 4], BD: [64, 256], warps: [4, 1] }
    {
        for (a, b, c, d) in grid(A, B, tiles(C, BC), tiles(D, BD)) {
            store(y[a, b, c, d], load(x[a, b, c, d]));
        }
    }
}
