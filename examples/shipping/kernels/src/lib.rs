//! The kernels of the example, in a crate of their own because three programs need them: the program launches them, its
//! build script compiles them, and its tools tune them.

use atlas::prelude::*;

atlas_kernel! {
    /// y = (x - mean(x)) / sqrt(variance(x) + eps) * w + b, row by row.
    ///
    /// Source: Ba, Kiros and Hinton, arXiv 1607.06450.
    pub kernel layer_norm<T: Float>(
        x: &Tensor<T, [N, D]>,
        w: &Tensor<T, [D]>,
        b: &Tensor<T, [D]>,
        y: &mut Tensor<T, [N, D]>,
        eps: f32,
    )
    tune { BN: [1, 2, 4, 8], warps: [1, 2, 4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            let d = size(D).cast::<f32>();
            let centred = xs - sum(xs, axis = 1) / d;
            let variance = sum(centred * centred, axis = 1) / d;
            let ws = load(w[..]).cast::<f32>();
            let bs = load(b[..]).cast::<f32>();
            store(y[n, ..], (centred * rsqrt(variance + eps) * ws + bs).cast::<T>());
        }
    }
}
