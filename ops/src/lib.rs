//! The kernels that ship with Atlas.
//!
//! Each op is a folder. The kernels are always there; references and all that checks a kernel need the feature `verify`.
//!
//! | file of an op | holds |
//! |---|---|
//! | `mod.rs` | its mathematics, its `atlas_kernel!` with a tune space, and what launches it |
//! | `reference.rs` | the same in plain f64 |
//! | `plans.rs` | of an op of several launches: what is measured as one |
//! | `cases.rs` | its row of the table: tolerance, inputs, and the problems to verify, simulate, demonstrate and measure |
//!
//! Its module is below, its line is in `op`, and the façade re-exports its kernels in `src/ops/`.
//!
//! The façade groups them, so paths there differ from those here:
//!
//! | here | in the façade |
//! |---|---|
//! | `gated_delta_rule`, `l2_norm`, `ttt_linear` | `atlas::ops::delta` |
//! | `monomials`, `poly_features`, `random_features`, `rbf_features`, `taylor_features` | `atlas::ops::features` |
//! | `fused_forward`, `gated_memory`, `memory_grad`, `memory_read`, `memory_recall` | `atlas::ops::memory` |
//! | `activation_grad`, `adamw`, `clip_factor`, `column_sums`, `cross_entropy`, `embedding`, `layer_grad`, `rms_norm_grad`, `scaled_gate`, `windowed_attention_grad` | `atlas::ops::training` |
//! | `layer`, `muon`, `omega` | the same |
//! | other modules | `atlas::ops` itself |
//!
//! `omega` is a family of ops, and `layer` a layer of an ATLAS model around it.
//!
//! | file of all ops | holds |
//! |---|---|
//! | `op` | the table of ops |
//! | `problem` | a problem of an op, and its reproducible inputs |
//! | `usual` | what most ops have in common |
//! | `functions`, `online_softmax` | tile functions that several ops share |
//! | `memory` | activations of memories in f64 |
//! | `pass` | launches that are made ready before the first one runs |
//! | `cases` | the problems of all ops |
//! | `plan`, `plans` | ops of several launches, to measure as one |
//! | `run` | solves a problem on a device and checks the result |
//! | `simulate`, `cover` | problems and configs for the simulator |
//! | `compare`, `tolerance` | how far from its reference a result may lie |
//! | `records` | tuning records that ship |
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

pub mod activation_grad;
pub mod adamw;
pub mod attention;
pub mod attention_decode;
pub mod batched_matmul;
pub mod block_attention;
#[cfg(feature = "verify")]
pub mod cases;
pub mod clip_factor;
pub mod column_sums;
#[cfg(feature = "verify")]
pub mod compare;
pub mod copy;
#[cfg(feature = "verify")]
pub mod cover;
pub mod cross_entropy;
pub mod embedding;
pub mod functions;
pub mod fused_forward;
pub mod gated_delta_rule;
pub mod gated_memory;
pub mod inverse;
pub mod l2_norm;
pub mod layer;
pub mod layer_grad;
pub mod linear_gelu;
pub mod linear_gelu_train;
pub mod linear_residual;
pub mod linear_row_scale;
pub mod linear_square_sums;
pub mod log_sum_exp;
pub mod matmul;
pub mod matmul_add;
#[cfg(feature = "verify")]
pub mod memory;
pub mod memory_grad;
pub mod memory_read;
pub mod memory_recall;
pub mod monomials;
pub mod muon;
pub mod newton_schulz_small;
pub mod omega;
pub mod online_softmax;
#[cfg(feature = "verify")]
pub mod op;
mod pass;
#[cfg(feature = "verify")]
mod plan;
#[cfg(feature = "verify")]
pub mod plans;
pub mod poly_features;
#[cfg(feature = "verify")]
pub mod problem;
pub mod random_features;
pub mod rbf_features;
mod records;
pub mod rms_norm;
pub mod rms_norm_grad;
pub mod rotary;
#[cfg(feature = "verify")]
pub mod run;
pub mod scaled_gate;
pub mod short_conv;
#[cfg(feature = "verify")]
pub mod simulate;
pub mod softmax;
pub mod taylor_features;
#[cfg(feature = "verify")]
pub mod tolerance;
pub mod transpose;
pub mod ttt_linear;
#[cfg(feature = "verify")]
mod usual;
pub mod window_sums;
pub mod windowed_attention;
pub mod windowed_attention_grad;

#[cfg(feature = "verify")]
pub use compare::Comparison;
#[cfg(feature = "verify")]
pub use op::OPS;
#[cfg(feature = "verify")]
pub use problem::{Fill, Layout, Op, Problem, TensorParam};
