//! Gradients of activations, element by element.
//!
//! ```text
//! gelu_grad        dz = dy gelu'(z), by the error function
//! silu_grad        dz = dy silu'(z)
//! silu_gate_grad   of y = x silu(gate): dx = dy silu(gate), dgate = dy x silu'(gate)
//! ```
//!
//! Computed in f32, whatever the element type. `z` is what [`linear_gelu_train`](crate::linear_gelu_train) keeps. Source: Hendrycks
//! and Gimpel, arXiv 1606.08415, and the chain rule. Bytes: `3 s M N`, of the gate `5 s M N`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::functions::silu;

    /// dz = dy gelu'(z)
    pub kernel gelu_grad<T: Float>(
        z: &Tensor<T, [M, N]>,
        dy: &Tensor<T, [M, N]>,
        dz: &mut Tensor<T, [M, N]>,
    )
    tune { BM: [4, 1], BN: [256, 512], warps: [4] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let slope = gelu_slope(load(z[m, n]).cast::<f32>());
            store(dz[m, n], (load(dy[m, n]).cast::<f32>() * slope).cast::<T>());
        }
    }

    /// dz = dy silu'(z)
    pub kernel silu_grad<T: Float>(
        z: &Tensor<T, [M, N]>,
        dy: &Tensor<T, [M, N]>,
        dz: &mut Tensor<T, [M, N]>,
    )
    tune { BM: [4, 1], BN: [256, 512], warps: [4] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let slope = grad(silu)(load(z[m, n]).cast::<f32>());
            store(dz[m, n], (load(dy[m, n]).cast::<f32>() * slope).cast::<T>());
        }
    }

    /// dx and dgate of y = x silu(gate).
    pub kernel silu_gate_grad<T: Float>(
        x: &Tensor<T, [M, N]>,
        gate: &Tensor<T, [M, N]>,
        dy: &Tensor<T, [M, N]>,
        dx: &mut Tensor<T, [M, N]>,
        dgate: &mut Tensor<T, [M, N]>,
    )
    tune { BM: [4, 1], BN: [256, 512], warps: [4] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let zs = load(gate[m, n]).cast::<f32>();
            let dys = load(dy[m, n]).cast::<f32>();
            store(dx[m, n], (dys * silu(zs)).cast::<T>());
            store(dgate[m, n], (dys * grad(silu)(zs) * load(x[m, n]).cast::<f32>()).cast::<T>());
        }
    }
}
