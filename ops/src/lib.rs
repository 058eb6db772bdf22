//! The kernels that ship with Atlas.
//!
//! Each op is a file: its mathematics, its `atlas_kernel!` with a tune space, and a plain f64 reference. The kernels are
//! always there; references and all that checks a kernel need the feature `verify`.
//!
//! | file | holds |
//! |---|---|
//! | `attention`, `linear_gelu`, `log_sum_exp`, `matmul`, `memory_read`, `newton_schulz_small`, `poly_features`, `rms_norm`, `rotary`, `softmax` | the ops |
//! | `omega`, `layer` | the Omega rule, and a layer of an ATLAS model around it |
//! | `op` | the table of ops |
//! | `problem` | a problem of an op, and its reproducible inputs |
//! | `online_softmax` | the steps that attention and `log_sum_exp` share |
//! | `pass` | launches that are made ready before the first one runs |
//! | `cases` | the problems: `verify_cases` to verify and demonstrate, `bench_cases` to measure |
//! | `small_cases`, `scale_cases` | the problems for the simulator; those far from 1 |
//! | `plans` | ops of several launches, to measure |
//! | `run` | solves a problem on a device and checks the result |
//! | `simulate`, `cover` | problems and configs for the simulator |
//! | `compare`, `tolerance` | how far from its reference a result may lie |
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

pub mod attention;
pub mod attention_decode;
#[cfg(feature = "verify")]
mod bench_cases;
pub mod block_attention;
/// The problems on which kernels are verified, demonstrated and measured.
#[cfg(feature = "verify")]
pub mod cases {
    pub use crate::bench_cases::{Bench, benches, usual_dims};
    pub use crate::scale_cases::far_from_one;
    pub use crate::small_cases::{DTYPES, simulation};
    pub use crate::verify_cases::{demo, model_problem, problem, verification};
}
#[cfg(feature = "verify")]
pub mod compare;
#[cfg(feature = "verify")]
pub mod cover;
pub mod fused_forward;
pub mod gated_memory;
pub mod inverse;
pub mod layer;
pub mod linear_gelu;
pub mod log_sum_exp;
pub mod matmul;
#[cfg(feature = "verify")]
pub mod memory;
pub mod memory_grad;
pub mod memory_read;
pub mod monomials;
pub mod muon;
pub mod newton_schulz_small;
pub mod omega;
pub mod online_softmax;
#[cfg(feature = "verify")]
pub mod op;
mod pass;
#[cfg(feature = "verify")]
pub mod plans;
pub mod poly_features;
#[cfg(feature = "verify")]
pub mod problem;
pub mod random_features;
pub mod rbf_features;
mod records;
pub mod rms_norm;
pub mod rotary;
#[cfg(feature = "verify")]
pub mod run;
#[cfg(feature = "verify")]
mod scale_cases;
#[cfg(feature = "verify")]
pub mod simulate;
#[cfg(feature = "verify")]
mod small_cases;
pub mod softmax;
pub mod taylor_features;
#[cfg(feature = "verify")]
pub mod tolerance;
pub mod transpose;
#[cfg(feature = "verify")]
mod verify_cases;
pub mod window_sums;
pub mod windowed_attention;

#[cfg(feature = "verify")]
pub use compare::Comparison;
#[cfg(feature = "verify")]
pub use op::OPS;
#[cfg(feature = "verify")]
pub use problem::{Fill, Layout, Op, Problem, TensorParam};
