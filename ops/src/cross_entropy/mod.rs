//! Cross entropy of rows of logits, and its gradient: `loss = log sum exp(z) - z[target]`.
//!
//! The gradient by the logits is `scale (softmax(z) - onehot(target))`. With the mean as the loss of a batch, `scale` is one over
//! the number of rows that count. A row whose target is below 0 or not below `V`, such as PyTorch's `ignore_index` of -100, does
//! not count: its loss and its gradient are 0, whatever its logits are.
//!
//! Rows of any length: the greatest logit and the sum run along the row, as in an [online softmax](crate::online_softmax), and a
//! second pass over the row writes the gradient. As in PyTorch, a row that counts and holds a NaN or +infinity, or -infinity
//! alone, has a loss and a gradient of NaN; of other rows, -infinity has weight 0. Computed in f32, whatever the element type.
//!
//! Bytes: `3 s N V`, of which a third comes from a cache where rows are short; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::online_softmax::greatest;

    /// The loss of each row, `log sum exp(z) - z[target]`, and its gradient, `scale (softmax(z) - onehot(target))`.
    ///
    /// `scale` is one over the number of rows for the mean of a batch. A row whose target is below 0 or not below `V` has loss and
    /// gradient 0.
    pub kernel cross_entropy<T: Float>(
        logits: &Tensor<T, [N, V]>,
        target: &Tensor<i32, [N]>,
        scale: f32,
        loss: &mut Tensor<f32, [N]>,
        dlogits: &mut Tensor<T, [N, V]>,
    )
    tune { BN: [4, 1], BV: [256, 1024, 2048], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let at = load(target[n]).t();
            let counts = (at >= 0) && (at < size(V));
            let mut top = full::<f32>([BN, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BN, 1]);
            let mut aim = zeros::<f32>([BN, 1]);
            for v in pipeline(tiles(V, BV)) {
                let z = load(logits[n, v]).cast::<f32>();
                let (higher, base) = greatest(z, top);
                total = total * exp(top - base) + sum(exp(z - base), axis = 1);
                top = higher;
                aim += sum(select(v * BV + iota([1, BV], 1) == at, z, 0.0), axis = 1);
            }
            // Logits are taken relative to the greatest: their own size costs no digits.
            store(loss[n], select(counts, log(total) + (top - aim), 0.0));
            let unit = 1.0 / total;
            for v in pipeline(tiles(V, BV)) {
                let p = exp(load(logits[n, v]).cast::<f32>() - top) * unit;
                let slope = select(v * BV + iota([1, BV], 1) == at, p - 1.0, p);
                store(dlogits[n, v], select(counts, scale * slope, 0.0).cast::<T>());
            }
        }
    }
}
