//! The kernels that this lesson needs besides those of `atlas::ops`: gates, and a copy that repeats.

use atlas::prelude::*;

atlas_kernel! {
    /// y = scale · sigmoid(z + b), a gate of a token that lies between 0 and `scale`.
    pub kernel gate(
        z: &Tensor<f32, [B, T, H, W]>,
        bias: &Tensor<f32, [H, W]>,
        scale: f32,
        y: &mut Tensor<f32, [B, T, H, W]>,
    )
    tune { BT: [64, 16], warps: [4, 1] }
    {
        for (b, t) in grid(B, tiles(T, BT)) {
            store(y[b, t, .., ..], scale * sigmoid(load(z[b, t, .., ..]) + load(bias[.., ..])));
        }
    }

    /// The gradient of [`gate`] by `z`, from its output: dz = dy · y (1 - y / scale).
    pub kernel gate_grad(
        y: &Tensor<f32, [B, T, H, W]>,
        dy: &Tensor<f32, [B, T, H, W]>,
        scale: f32,
        dz: &mut Tensor<f32, [B, T, H, W]>,
    )
    tune { BT: [64, 16], warps: [4, 1] }
    {
        for (b, t) in grid(B, tiles(T, BT)) {
            let ys = load(y[b, t, .., ..]);
            store(dz[b, t, .., ..], load(dy[b, t, .., ..]) * ys * (1.0 - ys / scale));
        }
    }

    /// y = x. Of a tensor that repeats one memory for each sequence it makes memories of their own.
    pub kernel copy(x: &Tensor<f32, [B, H, M, D]>, y: &mut Tensor<f32, [B, H, M, D]>)
    tune { BM: [64, 16], warps: [4, 1] }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            store(y[b, h, m, ..], load(x[b, h, m, ..]));
        }
    }
}
