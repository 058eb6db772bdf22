//! Readies LLVM for the process.

use inkwell::targets::{InitializationConfig, Target};
use std::sync::Once;

static START: Once = Once::new();

/// Readies LLVM once per process. Shared-memory pointers are 32 bits wide.
pub(crate) fn start() {
    START.call_once(|| {
        Target::initialize_nvptx(&InitializationConfig::default());
        let args: [&std::ffi::CStr; 2] = [c"atlas", c"-nvptx-short-ptr"];
        let pointers = args.map(std::ffi::CStr::as_ptr);
        // SAFETY: two NUL-terminated strings that outlive the call; runs once, before any target machine.
        unsafe {
            inkwell::llvm_sys::support::LLVMParseCommandLineOptions(2, pointers.as_ptr(), std::ptr::null());
        }
    });
}
