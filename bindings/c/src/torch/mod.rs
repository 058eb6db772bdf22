//! Operators of PyTorch, `torch.ops.atlas_gpu`, as kernels of its stable C interface: a call goes from PyTorch's dispatcher to a launch
//! without Python.
//!
//! The Python package defines the operators, with their shapes for the compiler and their gradients, and has them registered here. Where
//! that is refused, because PyTorch's interface is not there or not known, it registers functions of Python that do the same.
//!
//! | file | holds |
//! |---|---|
//! | `shim` | PyTorch's interface, looked up in the process, and its version |
//! | `values` | arguments and results, and tensors of PyTorch |
//! | `views` | tensors of PyTorch as those of DLPack, in other shapes where a function wants them |
//! | `call` | a row of the table of operators, and a call of one |
//! | `operators` | the table of operators |
//! | `omega` | those of the Omega rule |

mod call;
mod omega;
mod operators;
mod shim;
mod values;
mod views;

use self::call::Plan;
use self::operators::{COUNT, number_of};
use self::shim::{Boxed, Torch, Word, done, torch};
use crate::status::{AtlasStatus, Failure, Result, guarded, status, text};
use std::ffi::{CString, c_char, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The plans of operators, by their number.
static PLANS: [OnceLock<Plan>; COUNT] = [const { OnceLock::new() }; COUNT];

/// Kernels of operators, by their number: PyTorch gives a kernel nothing that says which one it is.
const KERNELS: [Boxed; COUNT] = [
    kernel::<0>,
    kernel::<1>,
    kernel::<2>,
    kernel::<3>,
    kernel::<4>,
    kernel::<5>,
    kernel::<6>,
    kernel::<7>,
    kernel::<8>,
    kernel::<9>,
    kernel::<10>,
    kernel::<11>,
    kernel::<12>,
    kernel::<13>,
    kernel::<14>,
    kernel::<15>,
    kernel::<16>,
];

/// The kernel of an operator.
///
/// # Safety
/// PyTorch calls it with the stack of this operator.
unsafe extern "C-unwind" fn kernel<const NUMBER: usize>(stack: *mut Word, takes: u64, gives: u64) {
    let run = || match PLANS[NUMBER].get() {
        // SAFETY: the caller's promise.
        Some(plan) => unsafe { plan.run(stack, takes, gives) },
        None => Err(Failure::misuse("an operator is called that is not registered")),
    };
    if let Err(failure) = guarded(run) {
        throw(&failure);
    }
}

/// Throws an exception of C++, which PyTorch makes one of Python: `ValueError` for what the caller can mend, else `RuntimeError`.
fn throw(failure: &Failure) {
    let text = CString::new(failure.text().replace('\0', " ")).unwrap_or_default();
    // An operator runs only after PyTorch was found.
    if let Ok(Torch { cpp, .. }) = torch() {
        // SAFETY: the text lives until the exception has a copy of it. The exception leaves through functions of the interface "C-unwind"
        // alone, the last of which C++ calls.
        unsafe {
            match failure.is_of_arguments() {
                true => (cpp._ZSt24__throw_invalid_argumentPKc)(text.as_ptr()),
                false => (cpp._ZSt21__throw_runtime_errorPKc)(text.as_ptr()),
            }
        }
    }
}

/// Registers the kernel of an operator of `torch.ops.atlas_gpu` for `CPU` or `CUDA`. PyTorch has to be loaded, and the operator defined with
/// this schema. It is between this library and the Python package, so the header has no declaration of it.
///
/// # Safety
/// Both are strings that end with a zero byte.
// SAFETY: no other symbol of a program begins with `atlas_`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_torch_register(schema: *const c_char, device: *const c_char) -> AtlasStatus {
    // SAFETY: the caller's promise.
    status(|| unsafe { register(text("schema", schema)?, text("device", device)?) })
}

fn register(schema: &str, device: &str) -> Result<()> {
    let torch = torch()?;
    match device {
        "CPU" => {}
        "CUDA" => torch.check_gpu()?,
        _ => return Err(Failure::misuse(format_args!("`{device}` is neither CPU nor CUDA"))),
    }
    let number = number_of(schema).ok_or_else(|| {
        Failure::misuse(format_args!("this library has no operator of PyTorch with the schema `{schema}`"))
    })?;
    let plan = Plan::new(&operators::OPERATORS[number])?;
    let name = CString::new(plan.name).unwrap_or_default();
    PLANS[number].get_or_init(|| plan);
    let library = library(torch, device)?;
    // SAFETY: the kernel is that of the operator, whose schema is that of the table.
    done(
        unsafe { (torch.shim.torch_library_impl)(library, name.as_ptr(), KERNELS[number], Torch::BUILT_FOR) },
        "register a kernel",
    )
}

/// PyTorch's object that holds kernels for a device. It lives as long as the process.
fn library(torch: &Torch, device: &str) -> Result<*mut c_void> {
    /// Addresses, because pointers are not sent between threads.
    static OPEN: Mutex<Vec<(String, usize)>> = Mutex::new(Vec::new());
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, address)) = open.iter().find(|(of, _)| of == device) {
        return Ok(std::ptr::with_exposed_provenance_mut(*address));
    }
    let mut library = std::ptr::null_mut();
    let key = CString::new(device).unwrap_or_default();
    // SAFETY: strings that end with a zero byte, and a place for the object.
    let status = unsafe {
        let (space, file) = (c"atlas_gpu".as_ptr(), c"atlas".as_ptr());
        (torch.shim.aoti_torch_library_init_impl)(space, key.as_ptr(), file, 0, &raw mut library)
    };
    done(status, "open a library of operators")?;
    open.push((device.to_owned(), library.expose_provenance()));
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn without_pytorch_nothing_is_registered() {
        // SAFETY: strings that end with a zero byte.
        let status = unsafe { atlas_torch_register(c"softmax(Tensor x) -> Tensor".as_ptr(), c"CPU".as_ptr()) };
        assert_eq!(status, AtlasStatus::Error);
        // SAFETY: the message is valid until the next failure of this thread.
        let message = unsafe { CStr::from_ptr(crate::atlas_last_error()) }.to_string_lossy();
        assert!(message.starts_with("error[ATL696]: PyTorch's C interface is not used: "), "{message}");
        assert!(PLANS.iter().all(|plan| plan.get().is_none()));
    }
}
