//! Tokens, memories and gradients as C gives them.

use crate::dlpack::DLTensor;
use crate::status::{Failure, Result, handle};

/// Tokens of an Omega rule: `T` of them in each of `B` sequences, with `H` heads. Queries, keys, values and residuals have the element type
/// of the rule. Gates and weights in the window are f32.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AtlasOmegaTokens {
    /// Queries `[B, T, H, D]`.
    pub q: *const DLTensor,
    /// Keys `[B, T, H, D]`.
    pub k: *const DLTensor,
    /// Values `[B, T, H, E]`.
    pub v: *const DLTensor,
    /// Residuals of queries `[B, T, H, E]`; null for zeros.
    pub rq: *const DLTensor,
    /// Residuals of keys `[B, T, H, E]`; null for zeros.
    pub rk: *const DLTensor,
    /// What is kept of the memory `[B, T, H]`.
    pub alpha: *const DLTensor,
    /// What is kept of the momentum `[B, T, H]`.
    pub theta: *const DLTensor,
    /// Steps `[B, T, H]`.
    pub eta: *const DLTensor,
    /// Weights in the window `[B, T, H, W]`, the oldest token first.
    pub gamma: *const DLTensor,
}

/// Room for gradients, all f32. One that is null is not given out. Those with `P` tokens have room for whole chunks: `P` is `T`, rounded
/// up to a multiple of the chunk, and what stands behind the first `T` tokens then means nothing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AtlasOmegaGradients {
    /// By queries `[B, P, H, D]`.
    pub q: *const DLTensor,
    /// By keys `[B, T, H, D]`.
    pub k: *const DLTensor,
    /// By values `[B, T, H, E]`.
    pub v: *const DLTensor,
    /// By residuals of keys `[B, T, H, E]`. Those by residuals of queries are the gradients of what is read.
    pub rk: *const DLTensor,
    /// By the gates that keep the memory `[B, P, H]`.
    pub alpha: *const DLTensor,
    /// By the gates that keep the momentum `[B, P, H]`.
    pub theta: *const DLTensor,
    /// By steps `[B, P, H]`.
    pub eta: *const DLTensor,
    /// By weights in the window `[B, P, H, W]`.
    pub gamma: *const DLTensor,
    /// By the weight of the norm inside the memory `[H, E]`.
    pub norm: *const DLTensor,
    /// By the memory before the first token, weights and then momenta; null, or as many as the memory has.
    pub memory: *const *const DLTensor,
    /// How many these are; 0 if `memory` is null.
    pub memory_count: usize,
}

/// The names of tokens, in the order of [`AtlasOmegaTokens`].
pub(super) const TOKENS: [&str; 9] = ["q", "k", "v", "rq", "rk", "alpha", "theta", "eta", "gamma"];

/// The tensors of tokens, residuals that are zeros left out.
pub(super) type GivenTokens<'a> = [Option<&'a DLTensor>; 9];

impl AtlasOmegaTokens {
    /// Its tensors.
    ///
    /// # Safety
    /// `tokens` is null, or points to tensors that live as long as the result.
    pub(super) unsafe fn given<'a>(tokens: *const AtlasOmegaTokens) -> Result<GivenTokens<'a>> {
        // SAFETY: the caller's promise, here and below.
        let of: &AtlasOmegaTokens = unsafe { handle("struct of tokens", tokens) }?;
        let all = [of.q, of.k, of.v, of.rq, of.rk, of.alpha, of.theta, of.eta, of.gamma];
        // SAFETY: as above.
        Ok(all.map(|at| unsafe { at.as_ref() }))
    }
}

impl AtlasOmegaGradients {
    /// Its tensors: those of tokens in the order of `GRADIENTS` of `shared`, and those of the memory.
    ///
    /// # Safety
    /// `gradients` is null, or points to tensors that live as long as the result.
    pub(super) unsafe fn given<'a>(
        gradients: *const AtlasOmegaGradients,
    ) -> Result<(GivenTokens<'a>, Vec<Option<&'a DLTensor>>)> {
        // SAFETY: the caller's promise, here and below.
        let of: &AtlasOmegaGradients = unsafe { handle("struct of gradients", gradients) }?;
        let all = [of.q, of.k, of.v, of.rk, of.alpha, of.theta, of.eta, of.gamma, of.norm];
        // SAFETY: as above.
        let memory = unsafe { pointers("gradients by the memory", of.memory, of.memory_count) }?;
        // SAFETY: as above.
        let each = |&at: &*const DLTensor| unsafe { at.as_ref() };
        Ok((all.map(|at| each(&at)), memory.iter().map(each).collect()))
    }
}

/// The tensors of a list, none of which is null.
///
/// # Safety
/// `at` has `count` pointers, which are null or point to tensors that live as long as the result.
pub(super) unsafe fn list<'a>(what: &str, at: *const *const DLTensor, count: usize) -> Result<Vec<&'a DLTensor>> {
    // SAFETY: the caller's promise, here and below.
    let all = unsafe { pointers(what, at, count) }?;
    let each = |(i, &at): (usize, &*const DLTensor)| {
        // SAFETY: as above.
        unsafe { at.as_ref() }.ok_or_else(|| Failure::misuse(format_args!("tensor {i} of the {what} is null")))
    };
    all.iter().enumerate().map(each).collect()
}

/// The pointers of a list.
///
/// # Safety
/// `at` is null or has `count` pointers.
unsafe fn pointers<'a>(what: &str, at: *const *const DLTensor, count: usize) -> Result<&'a [*const DLTensor]> {
    match (at.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::misuse(format_args!("the list of the {what} is null, but has {count} tensors"))),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(at, count) }),
    }
}
