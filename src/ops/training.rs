//! What training needs besides products: gradients, a loss and an optimizer.
//!
//! Gradients by tokens have the element type of the tokens, and gradients by weights are f32. Every sum has a fixed order, so a
//! launch gives the same bits each time.
//!
//! [`WINDOWED_ATTENTION_GRAD`] is the gradient of [`windowed_attention`](super::windowed_attention). Its parameters are
//! those of the forward pass, of which `o` and `lse` are now inputs, and the gradient `dout` by `o`. `scale` is the usual
//! factor, such as `1 / sqrt(D)`.
//!
//! ```text
//! WINDOWED_ATTENTION_GRAD
//!     q: &Tensor<T, [B, M, H, D]>
//!     k, v: &Tensor<T, [B, N, J, D]>
//!     pk, pv: &Tensor<T, [J, S, D]>
//!     first: &Tensor<i32, [B, M]>
//!     window: i32
//!     scale: f32
//!     o: &Tensor<T, [B, M, H, D]>
//!     lse: &Tensor<f32, [B, H, M]>
//!     dout: &Tensor<T, [B, M, H, D]>
//!     dq: &mut Tensor<T, [B, M, H, D]>
//!     dk, dv: &mut Tensor<T, [B, N, J, D]>
//!     dpk, dpv: &mut Tensor<f32, [J, S, D]>
//!     workspace: delta
//! ```
//!
//! [`RMS_NORM_GRAD`] is the gradient of [`rms_norm`](super::rms_norm). [`RMS_NORM_RESIDUAL_GRAD`] is that of a block `x +
//! f(norm(x))`: it adds `dr`, the gradient that goes around the norm, to `dx`.
//!
//! ```text
//! RMS_NORM_GRAD
//!     x: &Tensor<T, [N, D]>
//!     w: &Tensor<T, [D]>
//!     dy: &Tensor<T, [N, D]>
//!     eps: f32
//!     dx: &mut Tensor<T, [N, D]>
//!     dw: &mut Tensor<f32, [D]>
//!     workspace: rstd
//! RMS_NORM_RESIDUAL_GRAD
//!     x: &Tensor<T, [N, D]>
//!     w: &Tensor<T, [D]>
//!     dy, dr: &Tensor<T, [N, D]>
//!     eps: f32
//!     dx: &mut Tensor<T, [N, D]>
//!     dw: &mut Tensor<f32, [D]>
//!     workspace: rstd
//! ```
//!
//! [`RMS_NORM_INPUT_GRAD`] and [`RMS_NORM_RESIDUAL_INPUT_GRAD`] are the same without `dw`, for weights that do not learn.
//!
//! The others are gradients of the parts of a layer of an ATLAS model: the norm of each head `x / sqrt(mean(x^2) + eps) * w`,
//! and what gates attention with a memory, `norm(attention, wa) * sigmoid(norm(memory, wm))`. Their forward kernels are
//! [`layer_norm`] and [`layer_combine`]. [`layer_norm_grad`] and [`layer_combine_grad`] are kernels that have the gradients by
//! tokens alone, for weights that do not learn.
//!
//! ```text
//! layer_combine
//!     memory: &Tensor<T, [B, N, H, D]>
//!     wm: &Tensor<T, [H, D]>
//!     eps: f32
//!     attention: &Tensor<T, [B, N, H, D]>
//!     wa: &Tensor<T, [H, D]>
//!     y: &mut Tensor<T, [B, N, H, D]>
//! LAYER_NORM_GRAD
//!     x: &Tensor<T, [B, N, H, D]>
//!     w: &Tensor<T, [H, D]>
//!     dy: &Tensor<T, [B, N, H, D]>
//!     eps: f32
//!     dx: &mut Tensor<T, [B, N, H, D]>
//!     dw: &mut Tensor<f32, [H, D]>
//! LAYER_COMBINE_GRAD
//!     memory: &Tensor<T, [B, N, H, D]>
//!     wm: &Tensor<T, [H, D]>
//!     eps: f32
//!     attention: &Tensor<T, [B, N, H, D]>
//!     wa: &Tensor<T, [H, D]>
//!     dy: &Tensor<T, [B, N, H, D]>
//!     dmemory, dattention: &mut Tensor<T, [B, N, H, D]>
//!     dwm, dwa: &mut Tensor<f32, [H, D]>
//! ```
//!
//! [`CLIP_FACTOR`] leaves the factor on the device that brings the norm of a gradient below `limit`. [`adamw`] reads it there.
//! `X`, a dim of the workspace, is the number of parts into which the gradient is split; a few hundred keep a GPU busy. For
//! gradients in several tensors, launch [`square_sums`] into a slice of one tensor for each, and then [`clip_factor`].
//!
//! ```text
//! CLIP_FACTOR
//!     g: &Tensor<T, [N]>
//!     limit: f32
//!     norm, factor: &mut Tensor<f32, [1]>
//!     workspace: sums
//! ```

pub use atlas_ops::activation_grad::{gelu_grad, silu_gate_grad, silu_grad};
pub use atlas_ops::adamw::{adamw, adamw_rounded, bias_correction};
pub use atlas_ops::clip_factor::{CLIP_FACTOR, clip_factor, square_sums};
pub use atlas_ops::column_sums::column_sums;
pub use atlas_ops::cross_entropy::cross_entropy;
pub use atlas_ops::embedding::{embedding, embedding_grad};
pub use atlas_ops::layer::{layer_combine, layer_features, layer_gate, layer_norm};
pub use atlas_ops::layer_grad::{
    LAYER_COMBINE_GRAD, LAYER_NORM_GRAD, layer_combine_grad, layer_features_grad, layer_gate_grad, layer_norm_grad,
};
pub use atlas_ops::rms_norm_grad::{
    RMS_NORM_GRAD, RMS_NORM_INPUT_GRAD, RMS_NORM_RESIDUAL_GRAD, RMS_NORM_RESIDUAL_INPUT_GRAD,
};
pub use atlas_ops::scaled_gate::{scaled_gate, scaled_gate_grad};
pub use atlas_ops::windowed_attention_grad::WINDOWED_ATTENTION_GRAD;
