//! Gated DeltaNet (arXiv 2412.06464), DeltaNet with gates of 0, and TTT-Linear (arXiv 2407.04620): linear memories that are corrected
//! towards each value.
//!
//! [`GATED_DELTA_RULE`] is for many heads, and [`GATED_DELTA_RULE_SPLIT`] for fewer tiles of values than a GPU has
//! multiprocessors. Both compute the same from the same parameters; their workspaces differ. `g` is the logarithm of a
//! token's decay, `beta` its step size, and `s` the memory of each head, which is read and written. `J`, the heads of
//! queries and keys, divides `H`, those of values. `scale` is usually `1 / sqrt(D)`. [`DeltaChunks::dims`] gives the dims
//! of the workspace. [`l2_norm`] gives keys and queries unit length. At each token, the memory forgets, is corrected, and is read:
//!
//! ```text
//! s = exp(g) s
//! s = s + beta k (v - sᵀ k)ᵀ
//! o = scale sᵀ q
//! ```
//!
//! [`TTT_LINEAR`] has a layer norm behind its memory, of `weight` and `shift`, and takes all gradients of a mini-batch at the memory
//! before it. `eta` is a token's step size, and `s` and `bias` are the memory of each head, which is read and written. `eps` is
//! usually 1e-6. [`MiniBatches::dims`] gives the dims of the workspace. With `s` and `bias` as they were before the mini-batch, and
//! `u_j` the gradient of `|norm(z) - (v_j - k_j)|^2 / 2` by `z = sᵀ k_j + bias`, where `norm` has `weight` and `shift`:
//!
//! ```text
//! r_i = scale sᵀ q_i + bias - eta_i sum over j <= i of (scale q_i . k_j + 1) u_j
//! o_i = r_i + norm(r_i)
//! s = s - eta_last sum of k_j u_jᵀ, and bias = bias - eta_last sum of u_j
//! ```
//!
//! ```text
//! GATED_DELTA_RULE
//!     k: &Tensor<T, [B, N, J, D]>
//!     g, beta: &Tensor<f32, [B, N, H]>
//!     q: &Tensor<T, [B, N, J, D]>
//!     v: &Tensor<T, [B, N, H, E]>
//!     s: &mut Tensor<f32, [B, H, D, E]>
//!     o: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     workspace: x, t, p, reach, tail
//! GATED_DELTA_RULE_SPLIT
//!     k: &Tensor<T, [B, N, J, D]>
//!     g, beta: &Tensor<f32, [B, N, H]>
//!     q: &Tensor<T, [B, N, J, D]>
//!     v: &Tensor<T, [B, N, H, E]>
//!     s: &mut Tensor<f32, [B, H, D, E]>
//!     o: &mut Tensor<T, [B, N, H, E]>
//!     scale: f32
//!     workspace: x, t, p, reach, tail, w, u, before, step
//! TTT_LINEAR
//!     q, k: &Tensor<T, [B, N, H, D]>
//!     eta: &Tensor<f32, [B, N, H]>
//!     scale: f32
//!     v: &Tensor<T, [B, N, H, D]>
//!     weight, shift: &Tensor<f32, [H, D]>
//!     s: &mut Tensor<f32, [B, H, D, D]>
//!     bias: &mut Tensor<f32, [B, H, D]>
//!     o: &mut Tensor<T, [B, N, H, D]>
//!     eps: f32
//!     workspace: p
//! ```

pub use atlas_ops::gated_delta_rule::{DeltaChunks, GATED_DELTA_RULE, GATED_DELTA_RULE_SPLIT};
pub use atlas_ops::l2_norm::l2_norm;
pub use atlas_ops::ttt_linear::{MiniBatches, TTT_LINEAR};
