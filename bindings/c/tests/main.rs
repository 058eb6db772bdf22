//! The C interface: its header, programs in C and C++, and tvm-ffi.

mod header;
mod programs;
mod tvm_ffi;
