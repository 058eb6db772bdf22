//! Functions of [tvm-ffi](https://tvm.apache.org/ffi/), whose calling convention is that of FlashInfer, TileLang and CuTe DSL:
//! Python calls kernels and chains with tensors of PyTorch, JAX, CuPy and NumPy.
//!
//! A function takes the arguments of its kernel in the signature's order and gives nothing back. A chain takes the sizes of its
//! open dims behind them. A function runs on the device of its first tensor and on tvm-ffi's current stream of that device, which
//! Python sets from PyTorch's. A mistake becomes an exception: `TypeError` for an argument of the wrong kind, `ValueError` for the
//! rest of what the caller can mend, `RuntimeError` for all else.
//!
//! The library needs no tvm-ffi. Where it is loaded, its functions are looked up in it.
//!
//! | file | holds |
//! |---|---|
//! | `convention` | values, the library of tvm-ffi, and exceptions |
//! | `functions` | kernels, chains and the Newton-Schulz iteration as functions |
//! | `omega` | the Omega rule: forward and backward passes, streams and packed documents |
//! | `spaces` | workspaces that calls find again |

mod convention;
mod functions;
mod omega;
mod spaces;

pub use convention::TvmFfiAny;
pub(crate) use functions::Function;
pub use functions::{call_chain, call_kernel};
