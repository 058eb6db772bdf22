//! Initialises LLVM for the process.

use inkwell::targets::{InitializationConfig, Target};
use std::ffi::CStr;
use std::sync::Once;

static START: Once = Once::new();

/// Options that switch off passes of NVPTX before instruction selection. These passes cost most of its time and change no
/// instruction that ptxas emits. They look for common bases among addresses, pair by pair, and three times for what
/// [`PASSES`](crate::ptx) has found already. The last one is switched off by name, wherever it runs.
const NO_PASSES: &CStr = c"-opt-disable=slsr,nary-reassociate,early-cse";

/// Initialises LLVM once per process. Shared-memory pointers are 32 bits wide.
pub(crate) fn start() {
    START.call_once(|| {
        Target::initialize_nvptx(&InitializationConfig::default());
        let args: [&CStr; 3] = [c"atlas", c"-nvptx-short-ptr", NO_PASSES];
        let pointers = args.map(std::ffi::CStr::as_ptr);
        // SAFETY: three NUL-terminated strings that outlive the call; runs once, before any target machine.
        unsafe {
            inkwell::llvm_sys::support::LLVMParseCommandLineOptions(3, pointers.as_ptr(), std::ptr::null());
        }
    });
}
