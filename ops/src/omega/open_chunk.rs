//! What a rule with a step for each token needs besides its tokens: a workspace as wide as the memory, and a copy of the memory for
//! the chunk that is not full.
//!
//! Its kernel changes the memory with each token, but takes the gradients of a chunk at the memory before it. So a chunk that is
//! not full has to be computed again from its start with the tokens that follow, and on a copy: the memory itself goes on with
//! full chunks.

use super::{MemoryForm, OmegaRule, Step};
use atlas_dsl::DType;
use atlas_runtime::{Chain, Device, Result, Tensor, Workspace};

/// The workspace of a rule's chain: for so many sequences, heads, elements of a value, hidden elements of the memory and tokens.
pub(super) fn workspace(
    rule: &OmegaRule,
    device: &Device,
    dtype: DType,
    [sequences, heads, value, hidden, tokens]: [usize; 5],
) -> Result<Workspace> {
    let chain = rule.chain();
    let mut dims = rule.chunking.dims(sequences, heads, tokens).to_vec();
    dims.extend([("E", value), ("M", hidden)]);
    // A chain takes the dims and types that its kernels have, and no others.
    dims.retain(|(name, _)| has(chain, name));
    let types: &[(&str, DType)] = if has(chain, "T") { &[("T", dtype)] } else { &[] };
    chain.workspace(device, types, &dims)
}

fn has(chain: &Chain, name: &str) -> bool {
    let kernels = chain.kernels.iter().map(|k| k.declared());
    kernels.into_iter().any(|k| k.dims.iter().any(|d| d.name == name) || k.types.iter().any(|t| t.name == name))
}

/// How many hidden elements a memory has, by its first matrix, as far as the workspace depends on it.
pub(super) fn hidden(rule: &OmegaRule, memory: &[&mut Tensor]) -> usize {
    match (rule.step, rule.memory) {
        (Step::Descent | Step::MuonByChunk, _) | (_, MemoryForm::Linear) => 0,
        _ => memory.first().and_then(|w| w.shape().get(3).copied()).unwrap_or(0),
    }
}

/// A memory like the caller's, for the chunk that is not full.
#[derive(Default)]
pub(super) struct OpenChunk {
    copy: Vec<Tensor>,
}

impl OpenChunk {
    /// Allocates it, unless it has the shapes of this memory already.
    ///
    /// # Errors
    /// Those of [`Tensor::empty`].
    pub(super) fn reserve(&mut self, device: &Device, memory: &[&mut Tensor]) -> Result<()> {
        if !self.copy.iter().map(Tensor::shape).eq(memory.iter().map(|t| t.shape())) {
            let like = |t: &&mut Tensor| Tensor::empty(device, t.dtype(), t.shape());
            self.copy = memory.iter().map(like).collect::<Result<_>>()?;
        }
        Ok(())
    }

    /// Bytes that it holds on its device.
    pub(super) fn bytes(&self) -> u64 {
        self.copy.iter().map(|t| t.len() as u64 * u64::from(t.dtype().bytes())).sum()
    }

    /// The copy, of what stood in the memory when it was last copied.
    pub(super) fn tensors(&mut self) -> &mut [Tensor] {
        &mut self.copy
    }
}
