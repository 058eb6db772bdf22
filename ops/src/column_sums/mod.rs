//! Sums of columns, as the gradient of a bias is: `y[d] = sum over n of x[n, d]`.
//!
//! Added in f32 and in a fixed order: where CTAs share the rows (`split_k`), the last one adds their sums in order. A program has one
//! warp, whose threads pass their sums to each other without shared memory. Bytes: `s N D`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y[d] = the sum of x[n, d] over all rows n.
    pub kernel column_sums<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<f32, [D]>)
    tune { BD: [64, 32], BN: [16], warps: [1], split_k: [1, 4, 16] }
    {
        for d in grid(tiles(D, BD)) {
            let mut acc = zeros::<f32>([BN, BD]);
            for n in pipeline(tiles(N, BN)) {
                acc += load(x[n, d]).or(0.0).cast::<f32>();
            }
            store(y[d], sum(acc, axis = 0));
        }
    }
}
