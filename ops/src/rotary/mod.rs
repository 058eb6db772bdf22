//! Rotary position embedding (Su et al., arXiv 2104.09864), halves form: each pair `(a, b)` of a head's halves is turned by
//! the angle of its token and place.
//!
//! With `a = x[n,h,0,:]` and `b = x[n,h,1,:]`: `y[n,h,0,:] = a c - b s`, `y[n,h,1,:] = b c + a s`, where `c` and `s` are
//! the cosines and sines of token `n`. Bytes: `s N D (4 H + 2)`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y = x turned by the angles whose cosines and sines are given.
    pub kernel rotary<T: Float>(
        x: &Tensor<T, [N, H, P, D]>,
        c: &Tensor<T, [N, D]>,
        s: &Tensor<T, [N, D]>,
        y: &mut Tensor<T, [N, H, P, D]>,
    )
    tune { BH: [32, 16, 64, 8], warps: [4, 2, 8, 1] }
    require { P == 2 }
    {
        for (n, h) in grid(N, tiles(H, BH)) {
            let cos = load(c[n, ..]).cast::<f32>();
            let sin = load(s[n, ..]).cast::<f32>();
            let a = load(x[n, h, 0, ..]).cast::<f32>();
            let b = load(x[n, h, 1, ..]).cast::<f32>();
            store(y[n, h, 0, ..], (a * cos - b * sin).cast::<T>());
            store(y[n, h, 1, ..], (b * cos + a * sin).cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "rotary" }
crate::records::shipped! { "nvidia-h200": "rotary" }
