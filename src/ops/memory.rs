//! Perceptron memories, `M(x) = r + W1 gelu(W2 x)`: the read, alone or fused with the surrounding layer, and its
//! gradients.
//!
//! There are `G` memories, one for each sequence and head, with `H` hidden elements. Each reads `N` tokens of `D`
//! elements and returns `E` elements, or `D`. `a1`, `a2`, `a3` are the coefficients of the features of
//! [`poly3`](super::features::poly3), and `eps` is added to a mean square before its root, as by `torch.nn.RMSNorm`; in
//! [`memory_read_normed`] to a variance, as by `torch.nn.LayerNorm`.
//!
//! [`memory_recall_mlp`] and its kin read the memories that an Omega rule trains, `[B, H, ..]` in f32, for tokens `[B, N,
//! H, D]`.
//!
//! ```text
//! fused_forward
//!     q: &Tensor<T, [G, N, D]>
//!     a1, a2, a3: f32
//!     w2: &Tensor<T, [G, H, D]>
//!     w1: &Tensor<T, [G, D, H]>
//!     w: &Tensor<T, [G, D]>
//!     eps: f32
//!     gate: &Tensor<T, [G, N, D]>
//!     y: &mut Tensor<T, [G, N, D]>
//! mag_forward
//!     q: &Tensor<T, [G, N, D]>
//!     a1, a2, a3: f32
//!     w2: &Tensor<T, [G, H, D]>
//!     w1: &Tensor<T, [G, D, H]>
//!     w: &Tensor<T, [G, D]>
//!     eps: f32
//!     attention: &Tensor<T, [G, N, D]>
//!     wa: &Tensor<T, [G, D]>
//!     y: &mut Tensor<T, [G, N, D]>
//! lerp_forward
//!     q: &Tensor<T, [G, N, D]>
//!     a1, a2, a3: f32
//!     w2: &Tensor<T, [G, H, D]>
//!     w1: &Tensor<T, [G, D, H]>
//!     w: &Tensor<T, [G, D]>
//!     eps: f32
//!     attention: &Tensor<T, [G, N, D]>
//!     wa: &Tensor<T, [G, D]>
//!     gate: &Tensor<T, [G, N, D]>
//!     y: &mut Tensor<T, [G, N, D]>
//! ```
//!
//! Gradients are those of the weighted losses `c scale / 2 |M(x) - v|^2`, which are written to `loss`. `dx` is the
//! gradient with respect to the rows of `x`. The gated memory has a third matrix `w3`: `M(x) = r + W1 (gelu(W2 x) * W3
//! x)`.
//!
//! ```text
//! MEMORY_GRAD
//!     x: &Tensor<T, [G, N, D]>
//!     w2: &Tensor<T, [G, H, D]>
//!     w1: &Tensor<T, [G, E, H]>
//!     r, v: &Tensor<T, [G, N, E]>
//!     c: &Tensor<f32, [G, N]>
//!     scale: f32
//!     loss: &mut Tensor<f32, [G, N]>
//!     dw2: &mut Tensor<f32, [G, H, D]>
//!     dw1: &mut Tensor<f32, [G, E, H]>
//!     workspace: e
//! MEMORY_GRAD_WITH_INPUT
//!     x: &Tensor<T, [G, N, D]>
//!     w2: &Tensor<T, [G, H, D]>
//!     w1: &Tensor<T, [G, E, H]>
//!     r, v: &Tensor<T, [G, N, E]>
//!     c: &Tensor<f32, [G, N]>
//!     scale: f32
//!     loss: &mut Tensor<f32, [G, N]>
//!     dw2: &mut Tensor<f32, [G, H, D]>
//!     dw1: &mut Tensor<f32, [G, E, H]>
//!     dx: &mut Tensor<T, [G, N, D]>
//!     workspace: e
//! MEMORY_GATED_GRAD
//!     x: &Tensor<T, [G, N, D]>
//!     w2, w3: &Tensor<T, [G, H, D]>
//!     w1: &Tensor<T, [G, E, H]>
//!     r, v: &Tensor<T, [G, N, E]>
//!     c: &Tensor<f32, [G, N]>
//!     scale: f32
//!     loss: &mut Tensor<f32, [G, N]>
//!     dw2, dw3: &mut Tensor<f32, [G, H, D]>
//!     dw1: &mut Tensor<f32, [G, E, H]>
//!     workspace: e
//! ```
//!
//! [`memory_weight_grads`] and [`memory_input_grad`] are the gradients behind any loss: `e` is the gradient by what
//! [`memory_read`] returns, and `c` is 1.
//!
//! [`WINDOW_LOSS`] writes the sum of the losses `scale / 2 |p - v|^2` of the last `window` tokens:
//!
//! ```text
//! WINDOW_LOSS
//!     p, v: &Tensor<T, [B, N, D]>
//!     scale: f32
//!     y: &mut Tensor<f32, [B, N]>
//!     window: i32
//!     workspace: l
//! ```

pub use atlas_ops::fused_forward::{fused_forward, lerp_forward, mag_forward};
pub use atlas_ops::gated_memory::{MEMORY_GATED_GRAD, memory_read_gated, memory_read_normed};
pub use atlas_ops::memory_grad::{MEMORY_GRAD, MEMORY_GRAD_WITH_INPUT, memory_input_grad, memory_weight_grads};
pub use atlas_ops::memory_read::memory_read;
pub use atlas_ops::memory_recall::{
    memory_recall_gated, memory_recall_gated_wide, memory_recall_linear, memory_recall_linear_wide, memory_recall_mlp,
    memory_recall_mlp_wide, memory_recall_normed, memory_recall_normed_wide,
};
pub use atlas_ops::omega::{fused_descent, fused_optimization};
pub use atlas_ops::window_sums::WINDOW_LOSS;
