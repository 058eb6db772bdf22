//! The kernels that ship with Atlas.
//!
//! Each op is a file: its mathematics, its `atlas_kernel!` with a tune space, and a plain f64 reference.
//!
//! | file | holds |
//! |---|---|
//! | `attention`, `log_sum_exp`, `matmul`, `memory_read`, `newton_schulz_small`, `poly_features`, `rms_norm`, `rotary`, `softmax` | the ops |
//! | `op` | the table of ops |
//! | `problem` | a problem of an op, and its reproducible inputs |
//! | `cases` | the problems to verify, demonstrate and measure |
//! | `run` | solves a problem on a device and checks the result |
//! | `simulate`, `cover` | problems and configs for the simulator |
//! | `compare`, `tolerance` | how far from its reference a result may lie |
#![forbid(unsafe_code)]

pub mod attention;
pub mod cases;
pub mod compare;
pub mod cover;
pub mod log_sum_exp;
pub mod matmul;
pub mod memory_read;
pub mod newton_schulz_small;
pub mod op;
pub mod poly_features;
pub mod problem;
pub mod rms_norm;
pub mod rotary;
pub mod run;
pub mod simulate;
pub mod softmax;
pub mod tolerance;

pub use compare::Comparison;
pub use op::{OPS, Op};
pub use problem::{Fill, Layout, Problem};
