//! What a rule needs besides its tokens: a workspace, which for some chains is as wide as the memory; and, with a step for each token, a
//! copy of the memory for the chunk that is not full.
//!
//! Such a kernel changes the memory with each token, but takes the gradients of a chunk at the memory before it. So a chunk that is
//! not full has to be computed again from its start with the tokens that follow, and on a copy: the memory itself goes on with
//! full chunks.

use super::Chunking;
use atlas_dsl::DType;
use atlas_dsl::def::ParamDef;
use atlas_runtime::{Chain, Device, Result, Tensor, Workspace};

/// How many chunks a chain keeps the memory before, if it trains on several before their tokens read: enough to keep a GPU busy with these.
const KEPT_CHUNKS: usize = 16;

/// Bytes of memories that it keeps at most, if that is more than one chunk: wide memories keep a GPU busy with fewer.
const KEPT_BYTES: usize = 1 << 30;

/// The workspace of a chain of the rule: for so many sequences, heads, features of a key, elements of a value, hidden elements of the
/// memory and tokens.
pub(super) fn workspace(
    chain: &'static Chain,
    chunking: &Chunking,
    device: &Device,
    dtype: DType,
    [sequences, heads, key, value, hidden, tokens]: [usize; 6],
) -> Result<Workspace> {
    let mut dims = chunking.dims(sequences, heads, tokens).to_vec();
    dims.extend([("D", key), ("E", value)]);
    dims.extend(has_hidden(chain).then_some(("M", hidden)));
    // A chain takes the dims and types that its kernels have, and no others.
    dims.retain(|(name, _)| has(chain, name));
    if let Some(segment) = chain.repeated.and_then(|repeated| repeated.segment) {
        // The matrices before and behind the hidden layer, and their momenta.
        let elements =
            [sequences, heads, hidden, key.saturating_add(value), 2].into_iter().fold(1, usize::saturating_mul);
        let most = KEPT_BYTES / elements.saturating_mul(dtype.bytes() as usize).max(1);
        dims.push((segment, chunking.chunks(tokens).min(most).clamp(1, KEPT_CHUNKS)));
    }
    let types: &[(&str, DType)] = if has(chain, "T") { &[("T", dtype)] } else { &[] };
    chain.workspace(device, types, &dims)
}

/// Makes a workspace of the chain one for so many chunks. With a step for each token it has no tensor of all chunks.
pub(super) fn resize(chain: &Chain, workspace: &mut Workspace, chunks: usize) -> Result<()> {
    if has(chain, "C") { workspace.resize(&[("C", chunks)]) } else { Ok(()) }
}

fn has(chain: &Chain, name: &str) -> bool {
    let kernels = chain.kernels.iter().map(|k| k.declared());
    kernels.into_iter().any(|k| k.dims.iter().any(|d| d.name == name) || k.types.iter().any(|t| t.name == name))
}

/// Whether a chain's workspace is as wide as the hidden layer of the memory.
pub(super) fn has_hidden(chain: &Chain) -> bool {
    chain.kernels.iter().map(|k| k.declared()).any(|def| {
        let as_wide = |dims: &[usize]| dims.iter().any(|&dim| def.dims[dim].name == "M");
        let of = |p: &ParamDef| matches!(p, ParamDef::Tensor { dims, .. } if as_wide(dims));
        def.params.iter().any(|p| chain.workspace.contains(&p.name()) && of(p))
    })
}

/// How many hidden elements a memory has, by its first matrix, as far as the workspace of the chain depends on it.
pub(super) fn hidden(chain: &Chain, memory: &[&mut Tensor]) -> usize {
    let of = |w: &&mut Tensor| w.shape().get(3).copied();
    if has_hidden(chain) { memory.first().and_then(of).unwrap_or(0) } else { 0 }
}

/// A memory like the caller's, for the chunk that is not full.
#[derive(Default)]
pub(super) struct OpenChunk {
    copy: Vec<Tensor>,
}

impl OpenChunk {
    /// Allocates it, unless it has the shapes and types of this memory already.
    ///
    /// # Errors
    /// Those of [`Tensor::empty`].
    pub(super) fn reserve(&mut self, device: &Device, memory: &[&mut Tensor]) -> Result<()> {
        let own = self.copy.iter().map(|t| (t.dtype(), t.shape()));
        if !own.eq(memory.iter().map(|t| (t.dtype(), t.shape()))) {
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
