//! Read-out of memories with wide rows, such as all monomials of a key: 2145 of 64 numbers. They are read in tiles of `BD` elements.

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::normed::layer_normed;

    /// y = r + W x
    pub kernel memory_recall_linear_wide<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        w: &Tensor<f32, [B, H, E, D]>,
        r: &Tensor<T, [B, N, H, E]>,
        y: &mut Tensor<T, [B, N, H, E]>,
    )
    tune { BN: [64, 32, 16], BE: [32, 64, 16], BD: [64, 32], warps: [4, 2] }
    {
        for (b, h, n, e) in grid(B, H, tiles(N, BN), tiles(E, BE)) {
            let mut read = load(r[b, n, h, e]).cast::<f32>();
            for d in tiles(D, BD) {
                read += dot(load(x[b, n, h, d]), load(w[b, h, e, d]).cast::<T>().t());
            }
            store(y[b, n, h, e], read.cast::<T>());
        }
    }

    /// y = r + W1 gelu(W2 x)
    pub kernel memory_recall_mlp_wide<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        w1: &Tensor<f32, [B, H, E, M]>,
        w2: &Tensor<f32, [B, H, M, D]>,
        r: &Tensor<T, [B, N, H, E]>,
        y: &mut Tensor<T, [B, N, H, E]>,
    )
    tune { BN: [64, 32, 16], BM: [32, 64, 16], BD: [64, 32], warps: [4, 2] }
    {
        for (b, h, n) in grid(B, H, tiles(N, BN)) {
            let mut acc = load(r[b, n, h, ..]).cast::<f32>();
            for m in tiles(M, BM) {
                let mut z = zeros::<f32>([BN, BM]);
                for d in tiles(D, BD) {
                    z += dot(load(x[b, n, h, d]), load(w2[b, h, m, d]).cast::<T>().t());
                }
                acc += dot(gelu(z).cast::<T>(), load(w1[b, h, .., m]).cast::<T>().t());
            }
            store(y[b, n, h, ..], acc.cast::<T>());
        }
    }

    /// y = r + W1 (gelu(W2 x) * W3 x)
    pub kernel memory_recall_gated_wide<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        w1: &Tensor<f32, [B, H, E, M]>,
        w2: &Tensor<f32, [B, H, M, D]>,
        w3: &Tensor<f32, [B, H, M, D]>,
        r: &Tensor<T, [B, N, H, E]>,
        y: &mut Tensor<T, [B, N, H, E]>,
    )
    tune { BN: [64, 32, 16], BM: [32, 64, 16], BD: [64, 32], warps: [4, 2] }
    {
        for (b, h, n) in grid(B, H, tiles(N, BN)) {
            let mut acc = load(r[b, n, h, ..]).cast::<f32>();
            for m in tiles(M, BM) {
                let mut z = zeros::<f32>([BN, BM]);
                let mut u = zeros::<f32>([BN, BM]);
                for d in tiles(D, BD) {
                    let xs = load(x[b, n, h, d]);
                    z += dot(xs, load(w2[b, h, m, d]).cast::<T>().t());
                    u += dot(xs, load(w3[b, h, m, d]).cast::<T>().t());
                }
                acc += dot((gelu(z) * u).cast::<T>(), load(w1[b, h, .., m]).cast::<T>().t());
            }
            store(y[b, n, h, ..], acc.cast::<T>());
        }
    }

    /// y = r + w * (m - mean m) / sqrt(var m + eps) with m = W1 gelu(W2 x)
    ///
    /// Epsilon: `eps` is added to the variance, before its root, as by `torch.nn.LayerNorm`.
    pub kernel memory_recall_normed_wide<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        w1: &Tensor<f32, [B, H, E, M]>,
        w2: &Tensor<f32, [B, H, M, D]>,
        norm: &Tensor<T, [H, E]>,
        r: &Tensor<T, [B, N, H, E]>,
        eps: f32,
        y: &mut Tensor<T, [B, N, H, E]>,
    )
    tune { BN: [64, 32, 16], BM: [32, 64, 16], BD: [64, 32], warps: [4, 2] }
    {
        for (b, h, n) in grid(B, H, tiles(N, BN)) {
            let mut acc = zeros::<f32>([BN, E]);
            for m in tiles(M, BM) {
                let mut z = zeros::<f32>([BN, BM]);
                for d in tiles(D, BD) {
                    z += dot(load(x[b, n, h, d]), load(w2[b, h, m, d]).cast::<T>().t());
                }
                acc += dot(gelu(z).cast::<T>(), load(w1[b, h, .., m]).cast::<T>().t());
            }
            let (unit, _) = layer_normed(acc, size(E).cast::<f32>(), eps);
            let normed = unit * load(norm[h, ..]).cast::<f32>();
            store(y[b, n, h, ..], (load(r[b, n, h, ..]).cast::<f32>() + normed).cast::<T>());
        }
    }
}
