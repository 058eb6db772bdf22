//! What a layer does besides its memory and its attention, on tokens `[B, N, H, D]`.

use atlas_macros::{atlas_kernel, fuse};

atlas_kernel! {
    use crate::functions::{gated, horner};

    /// y = a1 x + a2 x^2 + a3 x^3, the features of keys and queries.
    pub kernel layer_features<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        y: &mut Tensor<T, [B, N, H, D]>,
        a1: f32,
        a2: f32,
        a3: f32,
    )
    tune { BN: [16, 1, 64], warps: [4, 1] }
    {
        for (b, n, h) in grid(B, tiles(N, BN), H) {
            let v = load(x[b, n, h, ..]).cast::<f32>();
            store(y[b, n, h, ..], horner(v, a1, horner(v, a2, v * a3)).cast::<T>());
        }
    }

    /// y = x / sqrt(mean(x^2) + eps) * w, row by row, with the weights of each head; rows are of the domain of
    /// [`rms_norm`](crate::rms_norm).
    pub kernel layer_norm<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        w: &Tensor<T, [H, D]>,
        y: &mut Tensor<T, [B, N, H, D]>,
        eps: f32,
    )
    tune { BN: [16, 1, 64], warps: [4, 1] }
    {
        for (b, n, h) in grid(B, tiles(N, BN), H) {
            let xs = load(x[b, n, h, ..]).cast::<f32>();
            let mean = sum(xs * xs, axis = 1) / size(D).cast::<f32>();
            store(y[b, n, h, ..], (xs * rsqrt(mean + eps) * load(w[h, ..]).cast::<f32>()).cast::<T>());
        }
    }

    /// y = x * sigmoid(m)
    pub kernel layer_gate<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        m: &Tensor<T, [B, N, H, D]>,
        y: &mut Tensor<T, [B, N, H, D]>,
    )
    tune { BN: [16, 1, 64], warps: [4, 1] }
    {
        for (b, n, h) in grid(B, tiles(N, BN), H) {
            let xs = load(x[b, n, h, ..]).cast::<f32>();
            let ms = load(m[b, n, h, ..]).cast::<f32>();
            store(y[b, n, h, ..], gated(xs, ms).cast::<T>());
        }
    }
}

fuse! {
    /// y = norm(attention) * sigmoid(norm(memory)): Titans (arXiv 2501.00663) Eq. 28.
    pub kernel layer_combine(keep_f32) =
        layer_norm(x = memory, w = wm, y = m) >> layer_norm(x = attention, w = wa) >> layer_gate(m = m);
}
