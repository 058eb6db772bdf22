//! Executes Tile IR on the CPU: the fallback device, and the oracle of the tests.
//!
//! [`run`] checks the arguments against the kernel, then runs one program per point of the grid, on all cores. A program keeps
//! its tiles in an environment, reads tensors in place and collects its stores. Stores are applied to memory after a bounded
//! batch of programs. A program sees its own stores and not those of other programs. Kernels whose store regions overlap across
//! programs are outside the language.
//!
//! | file | holds |
//! |---|---|
//! | `memory`, `walk`, `storage` | tensor views, boxes of them, conversion to and from memory |
//! | `overlap` | whether views share an element |
//! | `tile`, `rounding` | tiles at run time and their valid part; rounding to the narrow types |
//! | `ring` | floats as elements of a finite ring |
//! | `noise` | disturbs operations by as much as devices may differ |
//! | `launch` | checked arguments and the grid |
//! | `update`, `disjoint` | atomic stores, and whether stores meet that should not |
//! | `pool` | threads, also in a forked process |
//! | `eval` | one program: its environment and the match on operations |
//! | `eval_constant`, `eval_elementwise`, `eval_shape`, `eval_reduce`, `eval_dot`, `eval_memory`, `eval_control` | operations by concept |
//!
//! Numerics in [`Mode::Native`]. f16 and bf16 values are held in f32 and rounded once after every operation. `sum` over floats
//! adds in f64 and rounds once to f32. `dot` multiplies and accumulates in f32 (f64 for f64). f32 functions are those of the
//! platform's C library (`erf` of `libm`); `sigmoid`, `gelu` and `rsqrt` compute in f64 and round once. Integers wrap; a
//! quotient by 0 is 0. In [`Mode::F64`] every float is an f64 and nothing is rounded, tf32 included. In [`Mode::Ring`], floats
//! are elements of a finite ring, where any order of a sum gives the same bits.
//!
//! Validity. An element is valid if it was computed only from elements inside their tensors, so an element-wise result is valid
//! where all its operands are. Reductions and `dot` skip elements that are not valid along the reduced axis. A reduction of
//! nothing gives the neutral element. Validity belongs to axes: an element that a scalar coordinate picks outside its tensor
//! reads as 0 like any other. A carried value is valid where both its initial value and the value that the body yields are.
//! Stores drop elements outside of their tensor, and nothing else.
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cluster;
mod disjoint;
mod error;
mod eval;
mod eval_constant;
mod eval_control;
mod eval_dot;
mod eval_elementwise;
mod eval_memory;
mod eval_reduce;
mod eval_shape;
mod launch;
mod memory;
mod noise;
mod overlap;
mod pool;
mod ring;
mod rounding;
mod storage;
mod tile;
mod update;
mod walk;

pub use error::InterpError;
pub use launch::{run, run_within};
pub use memory::{TensorView, TensorViewMut};
pub use noise::Noise;
pub use overlap::Span;
pub use ring::check_ring;

/// How floats are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// As the kernel states: f32 arithmetic, with rounding to f16 and bf16 where the types require it.
    Native,
    /// Every float is an f64 and nothing is rounded. A float tensor may then be stored in any float
    /// type, whatever the kernel says.
    F64,
    /// As [`Mode::Native`], with each inexact operation disturbed by about as much as correct devices may differ.
    Noisy(Noise),
    /// Every float is an element of a finite ring. [`check_ring`] says which kernels it takes.
    Ring,
}

/// A number passed for a scalar parameter. A float fits every float parameter, and is rounded to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// 32-bit integer.
    I32(i32),
    /// 64-bit integer.
    I64(i64),
    /// Single precision.
    F32(f32),
    /// Double precision.
    F64(f64),
}

/// An argument of a kernel.
#[derive(Debug)]
pub enum Arg<'a> {
    /// For `&Tensor`.
    In(TensorView<'a>),
    /// For `&mut Tensor`.
    Out(TensorViewMut<'a>),
    /// For a scalar parameter.
    Scalar(Scalar),
}
