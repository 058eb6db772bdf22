//! The chains of the library, by name.

use crate::calls::shipped_chains;
use crate::calls::{NamedChain, OwnChain};
use crate::status::{AtlasStatus, Failure, Result, status, text};
use atlas::kernel::Chain;
use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::OnceLock;

/// The chains in the order of their names.
struct Chains {
    all: Vec<&'static NamedChain>,
    by_name: HashMap<String, &'static NamedChain>,
}

fn library() -> &'static Chains {
    static LIBRARY: OnceLock<Chains> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut all = shipped_chains();
        let own = || crate::inventory::iter::<OwnChain>.into_iter();
        all.extend(own().map(|own| own.chain));
        all.sort_by_key(|of| of.chain().name);
        let named = all.iter().map(|of| (of.chain().name.to_owned(), *of));
        // A function has the name of its static.
        let by_name = named.chain(own().map(|own| (own.name.to_lowercase(), own.chain))).collect();
        Chains { all, by_name }
    })
}

/// The chain of a name.
///
/// # Safety
/// The name is null, or a string that ends with a zero byte.
pub(crate) unsafe fn find(name: *const c_char) -> Result<&'static NamedChain> {
    // SAFETY: the caller's promise.
    named(unsafe { text("name of a chain", name) }?)
}

/// The chain of a name.
pub(crate) fn named(name: &str) -> Result<&'static NamedChain> {
    let library = library();
    library.by_name.get(name).copied().ok_or_else(|| {
        Failure::misuse(format_args!(
            "this library has no chain `{name}`; `atlas_chain_name` lists its {} chains",
            library.all.len()
        ))
    })
}

/// The name of a chain of the library, as it stays valid.
pub(crate) fn kept_name(chain: &Chain) -> Option<*const c_char> {
    library().by_name.get(chain.name).map(|of| of.c_name().as_ptr())
}

/// The number of chains in the library: kernels that run one after the other, and pass tensors to each other in a workspace.
// SAFETY: no other symbol of a program begins with `atlas_`.
#[unsafe(no_mangle)]
pub extern "C" fn atlas_chain_count() -> usize {
    library().all.len()
}

/// The name of a chain, by its number from 0, in alphabetical order; null beyond the last one. It stays valid.
// SAFETY: no other symbol of a program begins with `atlas_`.
#[unsafe(no_mangle)]
pub extern "C" fn atlas_chain_name(number: usize) -> *const c_char {
    library().all.get(number).map_or(std::ptr::null(), |of| of.c_name().as_ptr())
}

/// Gives the signature of a chain, in the order of the arguments of a launch and, behind a semicolon, the dims whose sizes
/// `atlas_chain_workspace` is given: `attention_decode<..>(q: &Tensor<T, [S, J, R, D]>, .., scale: f32; X)`. It stays valid.
///
/// # Safety
/// `name` is a string that ends with a zero byte; `signature` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_chain_signature(name: *const c_char, signature: *mut *const c_char) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise.
        let chain = unsafe { find(name) }?;
        if signature.is_null() {
            return Err(Failure::misuse("the place for the signature is null"));
        }
        // SAFETY: as above.
        unsafe { signature.write(chain.c_signature().as_ptr()) };
        Ok(())
    })
}
