//! The kernels of Atlas as operations of candle, with gradients.
//!
//! ```
//! use candle_core::{Device, Tensor, Var};
//!
//! # fn main() -> candle_core::Result<()> {
//! let x = Var::from_tensor(&Tensor::randn(0.0_f32, 1.0, (32, 64), &Device::Cpu)?)?;
//! let weight = Tensor::ones(64, candle_core::DType::F32, &Device::Cpu)?;
//! let y = atlas_candle::rms_norm(&x, &weight, 1e-6)?;
//! let gradients = y.sqr()?.sum_all()?.backward()?;
//! assert!(gradients.get(&x).is_some());
//! # Ok(())
//! # }
//! ```
//!
//! Tensors hold f32, f16 or bf16, and may be any view: strides are passed on to the kernels. On the CPU kernels run in an interpreter, in
//! candle's own memory. On a GPU they run on candle's stream; that needs the feature `cuda`.
//!
//! | file | holds |
//! |---|---|
//! | `elements` | from an address and a layout of candle to a tensor of Atlas |
//! | `memory` | the same from a storage, which it borrows |
//! | `cuda` | the same on a GPU |
//! | `operation` | what an operation says of itself, and how all of them run |
//! | `apply` | operations of Atlas as operations of candle |
//! | `rows` | leading axes as one |
//! | `error` | errors of Atlas as errors of candle |
//! | `ops` | the operations that there are |
#![warn(clippy::too_many_lines)]
#![deny(missing_docs)]

mod apply;
#[cfg(feature = "cuda")]
mod cuda;
mod elements;
mod error;
mod memory;
mod operation;
mod ops;
mod rows;

pub use apply::{apply1, apply1_into, apply2, apply2_into, apply3};
pub use atlas;
pub use operation::{Backward, Operation, run};
pub use ops::attention::{Attention, windowed_attention};
pub use ops::memory_read::memory_read;
pub use ops::newton_schulz::newton_schulz;
pub use ops::omega::{Gates, Memory, Tokens, omega};
pub use ops::rms_norm::{rms_norm, rms_norm_into};
pub use ops::rotary::rotary;
pub use ops::softmax::{log_sum_exp, log_sum_exp_into, softmax, softmax_into};
