//! Rotary position embedding (RoFormer, Su et al., arXiv 2104.09864): each pair `(a, b)` of a head is turned by the angle of its token
//! and place.
//!
//! With `c` and `s`, the cosines and sines of token `n`, pair `d` becomes `(a c - b s, b c + a s)`, in both forms:
//!
//! | kernel | pairs of a head of `2 D` elements | who uses it |
//! |---|---|---|
//! | [`rotary_halves`] | elements `d` and `D + d` | GPT-NeoX, Llama and most models of Hugging Face: `rotate_half` |
//! | [`rotary_interleaved`] | elements `2 d` and `2 d + 1` | RoFormer, GPT-J, Meta's own Llama |
//!
//! The two give different numbers from the same tensor. A model trained with one form keeps its results in the other one if the rows
//! of its query and key projections are put in the other order, as Hugging Face's conversion of Llama does.
//!
//! A tensor `[N, H, 2 D]` becomes `[N, H, 2, D]` by `x.split(2, D)`, for halves, and `[N, H, D, 2]` by `x.split(2, 2)`, for neighbours.
//! `c` and `s` have one number for each pair. Those of Hugging Face have `2 D`, each number twice: take the first `D`.
//!
//! Bytes: `s N D (4 H + 2)`; bound by memory. Halves are loaded 16 bytes at a time, and neighbours pair by pair, 4 bytes in 16 bits.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::{halves, interleaved};

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y = x turned, where the partner of an element is `D` elements away: GPT-NeoX, Llama in Hugging Face (`rotate_half`).
    ///
    /// `x` is `[N, H, 2 D]` by `split(2, D)`. `c` and `s`, the cosines and sines, have one number for each pair.
    pub kernel rotary_halves<T: Float>(
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

    /// y = x turned, where the partner of an element is its neighbour: RoFormer, GPT-J, Meta's own Llama.
    ///
    /// `x` is `[N, H, 2 D]` by `split(2, 2)`. `c` and `s`, the cosines and sines, have one number for each pair.
    pub kernel rotary_interleaved<T: Float>(
        x: &Tensor<T, [N, H, D, P]>,
        c: &Tensor<T, [N, D]>,
        s: &Tensor<T, [N, D]>,
        y: &mut Tensor<T, [N, H, D, P]>,
    )
    tune { BH: [32, 16, 64, 8], warps: [4, 2, 8, 1] }
    require { P == 2 }
    {
        for (n, h) in grid(N, tiles(H, BH)) {
            let cos = load(c[n, ..]).cast::<f32>().t();
            let sin = load(s[n, ..]).cast::<f32>().t();
            // A pair is loaded and stored at once. The greatest number of it without the other one is that number, in the same thread.
            let xs = load(x[n, h, .., ..]);
            let is_first = iota([1, 1, P], 2) < 1;
            let a = max(select(is_first, xs, f32::NEG_INFINITY), axis = 2).cast::<f32>();
            let b = max(select(is_first, f32::NEG_INFINITY, xs), axis = 2).cast::<f32>();
            store(y[n, h, .., ..], select(is_first, a * cos - b * sin, b * cos + a * sin).cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "rotary_halves" }
crate::records::shipped! { "nvidia-h200": "rotary_halves" }
