//! Kernels after every pass, executed on whole tiles and compared with the interpreter.
//!
//! | file | holds |
//! |---|---|
//! | `trial` | a kernel after each pass, its arguments, and what they should hold |
//! | `kernels` | the kernels that are tried |

mod kernels;
mod trial;
