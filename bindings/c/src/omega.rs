//! The Omega rule: which chain computes it.

use crate::chains::kept_name;
use crate::dlpack::{DLDataType, dtype};
use crate::status::{AtlasStatus, Failure, Result, handle, status, text};
use atlas::ops::omega::{Chunking, Loss, MemoryForm, OmegaRule, Read, Step};
use std::ffi::c_char;

/// An Omega rule, as far as the choice of its chain depends on it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AtlasOmega {
    /// What the memory computes: `linear`, `mlp`, `gated` or `normed`.
    pub memory: *const c_char,
    /// How it steps: `descent`, `muon_by_token` or `muon_by_chunk`.
    pub step: *const c_char,
    /// Tokens of a chunk.
    pub chunk: usize,
    /// Tokens of a window, the token itself among them.
    pub window: usize,
    /// Elements of a key.
    pub key: usize,
    /// Elements of a value.
    pub value: usize,
    /// Hidden elements of the memory; 0 for a linear one.
    pub hidden: usize,
    /// The element type of keys and values.
    pub dtype: DLDataType,
}

/// Gives the name of the chain that computes a rule, and how many keys a chunk sees, which is the size `K` of its workspace. The name
/// stays valid.
///
/// # Safety
/// `rule` points to a rule whose strings end with a zero byte; `chain` and `keys` are places for a pointer and a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_omega_chain(
    rule: *const AtlasOmega,
    chain: *mut *const c_char,
    keys: *mut usize,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise, here and below.
        let of = unsafe { handle("rule", rule) }?;
        if chain.is_null() || keys.is_null() {
            return Err(Failure::misuse("a place for the result is null"));
        }
        // SAFETY: as above.
        let (memory, step) = unsafe { (text("memory of the rule", of.memory)?, text("step of the rule", of.step)?) };
        let rule = rule_of(memory, step, Chunking::new(of.chunk, of.window))?;
        let Some(dtype) = dtype(of.dtype).filter(|dtype| dtype.is_float() && dtype.bytes() <= 4) else {
            return Err(Failure::misuse(
                "the rule has elements of a type that no chain takes; f32, f16 and bf16 are taken",
            ));
        };
        let found = rule.chain_for_hidden(of.key, of.value, of.hidden, dtype);
        let name = kept_name(found).ok_or_else(|| Failure::misuse("the chain of the rule is not in this library"))?;
        // SAFETY: as above.
        unsafe {
            chain.write(name);
            keys.write(rule.chunking.keys());
        }
        Ok(())
    })
}

fn rule_of(memory: &str, step: &str, chunking: Chunking) -> Result<OmegaRule> {
    let memory = match memory {
        "linear" => MemoryForm::Linear,
        "mlp" => MemoryForm::Mlp,
        "gated" => MemoryForm::Gated,
        "normed" => MemoryForm::Normed { eps: 0.0 },
        _ => {
            let known = "linear, mlp, gated and normed";
            return Err(Failure::misuse(format_args!("there is no memory `{memory}`; the memories are {known}")));
        }
    };
    let step = match step {
        "descent" => Step::Descent,
        "muon_by_token" => Step::MuonByToken,
        "muon_by_chunk" => Step::MuonByChunk,
        _ => {
            let known = "descent, muon_by_token and muon_by_chunk";
            return Err(Failure::misuse(format_args!("there is no step `{step}`; the steps are {known}")));
        }
    };
    Ok(OmegaRule { memory, step, loss: Loss::Square, read: Read::After, chunking })
}
