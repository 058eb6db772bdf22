//! The kernels of the library, by name.

use crate::calls::shipped;
use crate::status::{AtlasStatus, Failure, Result, status, text};
use atlas::kernel::KernelDef;
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

/// The kernels in the order of their names.
struct Library {
    all: Vec<(&'static KernelDef, CString, CString)>,
    by_name: HashMap<&'static str, usize>,
}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let c = |text: String| CString::new(text).unwrap_or_default();
        let mut all = atlas_dsl::def::registry();
        // In a static library, what registers a kernel may have been left out.
        all.extend(shipped());
        all.sort_by_key(|kernel| kernel.name);
        all.dedup_by_key(|kernel| kernel.name);
        let all: Vec<_> =
            all.into_iter().map(|kernel| (kernel, c(kernel.name.to_owned()), c(kernel.signature()))).collect();
        let by_name = all.iter().enumerate().map(|(i, (kernel, ..))| (kernel.name, i)).collect();
        Library { all, by_name }
    })
}

/// The kernel of a name.
///
/// # Safety
/// The name is null, or a string that ends with a zero byte.
pub(crate) unsafe fn find(name: *const c_char) -> Result<&'static KernelDef> {
    // SAFETY: the caller's promise.
    named(unsafe { text("name of a kernel", name) }?)
}

/// The kernel of a name.
pub(crate) fn named(name: &str) -> Result<&'static KernelDef> {
    let library = library();
    match library.by_name.get(name) {
        Some(&i) => Ok(library.all[i].0),
        None => Err(Failure::misuse(format_args!(
            "this library has no kernel `{name}`; `atlas_kernel_name` lists its {} kernels",
            library.all.len()
        ))),
    }
}

/// The number of kernels in the library.
// SAFETY: no other symbol of a program begins with `atlas_`.
#[unsafe(no_mangle)]
pub extern "C" fn atlas_kernel_count() -> usize {
    library().all.len()
}

/// The name of a kernel, by its number from 0, in alphabetical order; null beyond the last one. It stays valid.
// SAFETY: no other symbol of a program begins with `atlas_`.
#[unsafe(no_mangle)]
pub extern "C" fn atlas_kernel_name(number: usize) -> *const c_char {
    library().all.get(number).map_or(std::ptr::null(), |(_, name, _)| name.as_ptr())
}

/// Gives the signature of a kernel, in the order of the arguments of a launch, such as
/// `softmax<T: bf16 | f16 | f32>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)`. It stays valid.
///
/// # Safety
/// `name` is a string that ends with a zero byte; `signature` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_kernel_signature(name: *const c_char, signature: *mut *const c_char) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise.
        let kernel = unsafe { find(name) }?;
        if signature.is_null() {
            return Err(Failure::misuse("the place for the signature is null"));
        }
        let of = &library().all[library().by_name[kernel.name]];
        // SAFETY: as above.
        unsafe { signature.write(of.2.as_ptr()) };
        Ok(())
    })
}
