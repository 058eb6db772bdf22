//! Gates of tokens, `y = scale * sigmoid(z + bias)`: numbers between 0 and `scale`, one for each column, whose bias is learned.
//!
//! ```text
//! scaled_gate        y = scale sigmoid(z + bias)
//! scaled_gate_grad   dz = dy scale s (1 - s),  s = sigmoid(z + bias)
//! ```
//!
//! They are what a rule such as the [Omega rule](crate::omega) takes of its tokens: decays, steps and weights of windows, in f32
//! whatever the element type of the projections `z`. The gradient by the bias is [`column_sums`](crate::column_sums) of `dz`.
//! Computed in f32. Source: Titans (arXiv 2501.00663) section 3.1, whose gates depend on the token, and the chain rule.
//! Bytes: `(s + 4) N D`, and as many of the gradient with `dy`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::{gradient, reference};

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y = scale sigmoid(z + bias)
    pub kernel scaled_gate<T: Float>(
        z: &Tensor<T, [N, D]>,
        bias: &Tensor<f32, [D]>,
        scale: f32,
        y: &mut Tensor<f32, [N, D]>,
    )
    tune { BN: [16, 4], BD: [64, 16, 256], warps: [4, 1] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store(y[n, d], scale * sigmoid(load(z[n, d]).cast::<f32>() + load(bias[d])));
        }
    }

    /// dz of the same, from the gradient `dy` by the gates.
    pub kernel scaled_gate_grad<T: Float>(
        z: &Tensor<T, [N, D]>,
        bias: &Tensor<f32, [D]>,
        scale: f32,
        dy: &Tensor<f32, [N, D]>,
        dz: &mut Tensor<T, [N, D]>,
    )
    tune { BN: [16, 4], BD: [64, 16, 256], warps: [4, 1] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let at = load(z[n, d]).cast::<f32>() + load(bias[d]);
            // Where a gate is near its scale, `1 - s` would keep few digits of the difference.
            let slope = sigmoid(at) * sigmoid(-at);
            store(dz[n, d], (scale * load(dy[n, d]) * slope).cast::<T>());
        }
    }
}
