//! Chains, with what their callers have to know.

use super::callee::{Callee, Param, takes_floats};
use atlas::kernel::Chain;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// A chain, and what its callers have to know, which is found once.
pub struct NamedChain {
    chain: &'static Chain,
    facts: OnceLock<Facts>,
}

/// A chain that a program exports, by the name of its function.
pub struct OwnChain {
    /// That of the static, which is in upper case.
    pub name: &'static str,
    /// The chain.
    pub chain: &'static NamedChain,
}

atlas::__macro::inventory::collect!(OwnChain);

struct Facts {
    params: Vec<Param>,
    open: Vec<&'static str>,
    name: CString,
    signature: CString,
}

impl NamedChain {
    /// It of a chain.
    pub const fn new(chain: &'static Chain) -> NamedChain {
        NamedChain { chain, facts: OnceLock::new() }
    }

    /// The chain.
    pub(crate) fn chain(&self) -> &'static Chain {
        self.chain
    }

    /// The dims whose sizes a caller gives beside the arguments.
    pub(crate) fn open(&self) -> &[&'static str] {
        &self.facts().open
    }

    /// How many arguments it takes.
    pub(crate) fn count(&self) -> usize {
        self.facts().params.len()
    }

    /// Its name for C.
    pub(crate) fn c_name(&self) -> &CStr {
        &self.facts().name
    }

    /// Its signature for C.
    pub(crate) fn c_signature(&self) -> &CStr {
        &self.facts().signature
    }

    fn facts(&self) -> &Facts {
        self.facts.get_or_init(|| {
            let kernels = || self.chain.kernels.iter().map(|k| k.declared());
            let param = |param: &&'static _| {
                let kernel = kernels().find(|k| k.params.iter().any(|p| std::ptr::eq(p, *param)));
                let is_float = kernel.is_some_and(|kernel| takes_floats(kernel, param));
                Param { name: param.name(), is_float }
            };
            let c = |text: String| CString::new(text).unwrap_or_default();
            Facts {
                params: self.chain.params().iter().map(param).collect(),
                open: self.chain.open_dims(),
                name: c(self.chain.name.to_owned()),
                signature: c(self.chain.signature()),
            }
        })
    }
}

impl Callee for NamedChain {
    fn name(&self) -> &'static str {
        self.chain.name
    }

    fn param(&self, number: usize) -> Option<Param> {
        self.facts().params.get(number).copied()
    }

    fn signature(&self) -> String {
        self.chain.signature()
    }
}
