//! Omega rules as C writes them, and which chain computes one.

use crate::chains::kept_name;
use crate::dlpack::DLDataType;
use crate::status::{AtlasStatus, Failure, Result, handle, status, text};
use atlas::kernel::{Chain, DType};
use atlas::ops::omega::{Chunking, Loss, MemoryForm, OmegaRule, Read, Step, StreamSizes, TrainingSizes};
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

/// An Omega rule in full, and the sizes that it runs on. Memories and their matrices are those of `omega_linear`, `omega_mlp`,
/// `omega_gated` and `omega_normed`: weights and then momenta, `[B, H, .., ..]` in f32.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AtlasOmegaRule {
    /// The memory, its step, chunks and windows, and the sizes of its rows.
    pub of: AtlasOmega,
    /// What the memory is trained for: `square`, `half_square`, `mean_square`, `dot`, or `scaled`, which is `scale` times half a square.
    pub loss: *const c_char,
    /// The factor of the loss `scaled`; not used by others.
    pub scale: f32,
    /// What the norm inside a memory `normed` adds to a variance; not used by others.
    pub eps: f32,
    /// 0 if a token reads the memory after its own step; 1 if before.
    pub before: u32,
    /// 0.
    pub reserved: u32,
    /// Sequences that are read at once: the `B` of tokens and memories. Of packed documents, how many there are.
    pub sequences: usize,
    /// Heads: `H`.
    pub heads: usize,
    /// Of a training the tokens of a sequence; of a stream the longest piece that is computed at once; of packed documents the tokens
    /// of the longest one.
    pub tokens: usize,
}

/// The sizes that a rule runs on.
#[derive(Clone, Copy)]
pub(crate) struct RuleSizes {
    pub(crate) sequences: usize,
    pub(crate) heads: usize,
    pub(crate) tokens: usize,
    pub(crate) key: usize,
    pub(crate) value: usize,
    pub(crate) hidden: usize,
    pub(crate) dtype: DType,
}

impl RuleSizes {
    pub(super) fn of_training(&self) -> TrainingSizes {
        let RuleSizes { sequences, heads, tokens, key, value, hidden, dtype } = *self;
        TrainingSizes { sequences, tokens, heads, key, value, hidden, dtype }
    }

    pub(super) fn of_stream(&self) -> StreamSizes {
        let RuleSizes { sequences, heads, tokens: piece, key, value, dtype, .. } = *self;
        StreamSizes { sequences, heads, key, value, piece, dtype }
    }
}

/// The rule and the sizes at a pointer.
///
/// # Safety
/// It is null, or points to a rule whose strings end with a zero byte.
pub(super) unsafe fn whole_rule(rule: *const AtlasOmegaRule) -> Result<(OmegaRule, RuleSizes)> {
    // SAFETY: the caller's promise, here and below.
    let of = unsafe { handle("rule", rule) }?;
    if of.reserved != 0 || of.before > 1 {
        return Err(Failure::misuse("`before` of the rule is 0 or 1, and `reserved` is 0"));
    }
    // SAFETY: as above.
    let (memory, step, loss) = unsafe {
        (
            text("memory of the rule", of.of.memory)?,
            text("step of the rule", of.of.step)?,
            text("loss of the rule", of.loss)?,
        )
    };
    let loss = match loss {
        "square" => Loss::Square,
        "half_square" => Loss::HalfSquare,
        "mean_square" => Loss::MeanSquare,
        "dot" => Loss::Dot,
        "scaled" => Loss::Scaled(of.scale),
        _ => {
            let known = "square, half_square, mean_square, dot and scaled";
            return Err(Failure::misuse(format_args!("there is no loss `{loss}`; the losses are {known}")));
        }
    };
    let read = if of.before == 0 { Read::After } else { Read::Before };
    let chunking = Chunking::new(of.of.chunk, of.of.window);
    let (memory, step) = (memory_of(memory, of.eps)?, step_of(step)?);
    let AtlasOmega { key, value, hidden, .. } = of.of;
    let (sequences, heads, tokens, dtype) = (of.sequences, of.heads, of.tokens, type_of(of.of.dtype)?);
    let sizes = RuleSizes { sequences, heads, tokens, key, value, hidden, dtype };
    Ok((OmegaRule { memory, step, loss, read, chunking }, sizes))
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
        let AtlasOmega { chunk, window, key, value, hidden, dtype, .. } = *of;
        let (found, keys_of_chunk) = chain_of(memory, step, [chunk, window], [key, value, hidden], dtype)?;
        let name = kept_name(found).ok_or_else(|| Failure::misuse("the chain of the rule is not in this library"))?;
        // SAFETY: as above.
        unsafe {
            chain.write(name);
            keys.write(keys_of_chunk);
        }
        Ok(())
    })
}

/// The chain of a rule, and how many keys a chunk sees.
pub(crate) fn chain_of(
    memory: &str,
    step: &str,
    [chunk, window]: [usize; 2],
    [key, value, hidden]: [usize; 3],
    dtype: DLDataType,
) -> Result<(&'static Chain, usize)> {
    let (loss, read, chunking) = (Loss::Square, Read::After, Chunking::new(chunk, window));
    let rule = OmegaRule { memory: memory_of(memory, 0.0)?, step: step_of(step)?, loss, read, chunking };
    Ok((rule.chain_for_hidden(key, value, hidden, type_of(dtype)?), rule.chunking.keys()))
}

/// The memories by name. tvm-ffi gives their number.
pub(crate) const MEMORIES: [&str; 4] = ["linear", "mlp", "gated", "normed"];
/// The steps by name.
pub(crate) const STEPS: [&str; 3] = ["descent", "muon_by_token", "muon_by_chunk"];

/// A rule by the names of its memory and its step. An error is `scale (M(k) - v)`, or `-v` if it predicts nothing.
pub(crate) fn rule_of(
    (memory, eps): (&str, f32),
    step: &str,
    [chunk, window]: [usize; 2],
    (scale, predicts): (f32, bool),
    before: bool,
) -> Result<OmegaRule> {
    let loss = match (predicts, scale) {
        (true, scale) => Loss::Scaled(scale),
        (false, 1.0) => Loss::Dot,
        (false, scale) => {
            return Err(Failure::misuse(format_args!(
                "a loss that predicts nothing has the factor 1, and {scale} is given"
            )));
        }
    };
    let read = if before { Read::Before } else { Read::After };
    let (memory, step) = (memory_of(memory, eps)?, step_of(step)?);
    Ok(OmegaRule { memory, step, loss, read, chunking: Chunking::new(chunk, window) })
}

fn type_of(dtype: DLDataType) -> Result<DType> {
    crate::dlpack::dtype(dtype).filter(|dtype| dtype.is_float() && dtype.bytes() <= 4).ok_or_else(|| {
        Failure::misuse("the rule has elements of a type that no chain takes; f32, f16 and bf16 are taken")
    })
}

fn memory_of(memory: &str, eps: f32) -> Result<MemoryForm> {
    Ok(match memory {
        "linear" => MemoryForm::Linear,
        "mlp" => MemoryForm::Mlp,
        "gated" => MemoryForm::Gated,
        "normed" => MemoryForm::Normed { eps },
        _ => {
            let known = "linear, mlp, gated and normed";
            return Err(Failure::misuse(format_args!("there is no memory `{memory}`; the memories are {known}")));
        }
    })
}

fn step_of(step: &str) -> Result<Step> {
    Ok(match step {
        "descent" => Step::Descent,
        "muon_by_token" => Step::MuonByToken,
        "muon_by_chunk" => Step::MuonByChunk,
        _ => {
            let known = "descent, muon_by_token and muon_by_chunk";
            return Err(Failure::misuse(format_args!("there is no step `{step}`; the steps are {known}")));
        }
    })
}
