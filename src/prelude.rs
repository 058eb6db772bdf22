//! The items that most programs with kernels need: `use atlas::prelude::*;`.

#[doc(no_inline)]
pub use crate::device::Element;
#[doc(no_inline)]
pub use crate::kernel::{Chain, Config, DType, KernelDef, Launch};
#[doc(no_inline)]
pub use crate::{Device, Tensor, args, atlas_kernel, fuse};
#[doc(no_inline)]
pub use float8::{F8E4M3, F8E5M2};
#[doc(no_inline)]
pub use half::{bf16, f16};
/// The types of numbers in kernels, where an upper-case name is a Rust constant in scope.
#[doc(no_inline)]
pub use std::f32::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E, PI, SQRT_2};
