//! The kernels that ship with Atlas, and chains of them. They are used like kernels of your own.
//!
//! The page of a kernel has its formula and its parameters in the order of [`args!`](crate::args). `T` is f32, f16 or
//! bf16, the same for all tensors of a launch. A name in brackets is a dim, whose size comes from the tensors.
//! [`Launch`](crate::kernel::Launch) lists the errors of a launch. Where a formula comes from, and what becomes of infinities and other
//! odd inputs, is on the page of the op's module in the crate `atlas-gpu-ops` (`cargo doc -p atlas-gpu -p atlas-gpu-ops --no-deps`).
//!
//! A name in upper case is a [`Chain`](crate::kernel::Chain) of kernels. The text of its module lists its parameters
//! and the tensors of its workspace. The same holds for kernels that were fused from others.
//!
//! This module has attention, norms and products. For [`ATTENTION_DECODE`], `S` is the number of sequences, `J` of key
//! heads, `R` of query heads per key head, `W` of cache slots, and `D` of elements per head. `X`, a dim of the
//! workspace, is the number of parts into which the keys are split. `scale` is the factor of the logits, usually
//! `1/sqrt(D)`.
//!
//! ```text
//! ATTENTION_DECODE
//!     q: &Tensor<T, [S, J, R, D]>
//!     k, v: &Tensor<T, [S, W, J, D]>
//!     tokens: &Tensor<i32, [S]>
//!     scale: f32
//!     o: &mut Tensor<T, [S, J, R, D]>
//!     lse: &mut Tensor<f32, [S, J, R]>
//!     workspace: part, totals, tops
//! ```

pub mod delta;
pub mod features;
pub mod layer;
pub mod memory;
pub mod muon;
pub mod omega;
pub mod training;

pub use atlas_ops::attention::attention;
pub use atlas_ops::attention_decode::ATTENTION_DECODE;
pub use atlas_ops::batched_matmul::batched_matmul;
pub use atlas_ops::block_attention::block_attention;
pub use atlas_ops::copy::copy;
pub use atlas_ops::inverse::inverse;
pub use atlas_ops::linear_gelu::linear_gelu;
pub use atlas_ops::linear_gelu_train::linear_gelu_train;
pub use atlas_ops::linear_residual::{
    linear_gelu_residual, linear_relu_residual, linear_residual, linear_silu_residual,
};
pub use atlas_ops::linear_row_scale::linear_row_scale;
pub use atlas_ops::linear_square_sums::linear_square_sums;
pub use atlas_ops::log_sum_exp::log_sum_exp;
pub use atlas_ops::matmul::{matmul, matmul_bf16x3, matmul_tf32, matmul_tf32x3};
pub use atlas_ops::matmul_add::matmul_add;
pub use atlas_ops::newton_schulz_small::newton_schulz_small;
pub use atlas_ops::rms_norm::rms_norm;
pub use atlas_ops::rotary::{rotary_halves, rotary_interleaved};
pub use atlas_ops::short_conv::{short_conv, short_conv_input_grad, short_conv_weight_grad};
pub use atlas_ops::softmax::softmax;
pub use atlas_ops::transpose::{swap_axes, transpose};
pub use atlas_ops::window_sums::{sum_windows, window_sum};
pub use atlas_ops::windowed_attention::windowed_attention;
/// Tile functions of the shipped kernels, for kernels of your own: `use atlas::ops::functions::silu;` in `atlas_kernel!`.
pub use atlas_ops::{functions, online_softmax};
