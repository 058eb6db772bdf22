//! Logarithm of the sum of exponentials of each row: `y = max x + log sum exp(x - max x)`.
//!
//! Rows of any length: the maximum and the sum run along the row, as in an [online softmax](crate::online_softmax). As
//! `torch.logsumexp` has it, a row of -infinity alone gives -infinity, one that holds +infinity gives that, and one that holds a
//! NaN is NaN. Bytes: `s N V`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::online_softmax::greatest;

    /// y = log(sum(exp(x))), row by row.
    pub kernel log_sum_exp<T: Float>(x: &Tensor<T, [N, V]>, y: &mut Tensor<T, [N]>)
    tune { BN: [1, 2, 4, 8], BV: [1024, 2048, 4096, 8192], stages: 2..=4, warps: [4, 8, 16] }
    {
        for n in grid(tiles(N, BN)) {
            let mut top = full::<f32>([BN, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BN, 1]);
            for v in pipeline(tiles(V, BV)) {
                let z = load(x[n, v]).cast::<f32>();
                let (higher, base) = greatest(z, top);
                total = total * exp(top - base) + sum(exp(z - base), axis = 1);
                top = higher;
            }
            store(y[n], select(top == f32::INFINITY, top, top + log(total)).cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "log_sum_exp" }
crate::records::shipped! { "nvidia-h200": "log_sum_exp" }
