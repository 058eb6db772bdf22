//! The chain of a rule and its workspace. Both depend on the memory that is given: where it is large, another chain takes it, and the
//! workspace may be as wide as its hidden layer.

use super::{MemoryForm, OmegaRule, StreamSizes, open_chunk, room};
use crate::pass::check_tensor;
use atlas_dsl::DType;
use atlas_dsl::def::ParamDef;
use atlas_dsl::ir::Access;
use atlas_runtime::{Chain, Device, LaunchError, Result, Tensor, Workspace};

/// A chain, and the workspace for the memory that was given last.
pub(super) struct ChainSpace {
    device: Device,
    /// The chain of [`room::chain_on`], which knows of no memory.
    on_device: &'static Chain,
    /// The chain of the memory that was given last.
    chain: &'static Chain,
    rule: OmegaRule,
    sizes: StreamSizes,
    /// The most tokens that are computed at once.
    tokens: usize,
    /// With the hidden elements that it is for, if these matter.
    workspace: Option<(usize, Workspace)>,
}

impl ChainSpace {
    /// The chain of a rule on a device, without a workspace yet.
    ///
    /// # Errors
    /// Those of [`room::chain_on`].
    pub(super) fn new(device: &Device, rule: OmegaRule, sizes: StreamSizes, tokens: usize) -> Result<ChainSpace> {
        let chain = room::chain_on(device, &rule, &sizes)?;
        Ok(ChainSpace { device: device.clone(), on_device: chain, chain, rule, sizes, tokens, workspace: None })
    }

    /// The chain of the memory that was given last.
    pub(super) fn chain(&self) -> &'static Chain {
        self.chain
    }

    /// The chain that a memory takes. What is held stays as it is.
    pub(super) fn chain_with(&self, memory: &[&mut Tensor]) -> &'static Chain {
        let hidden = memory.first().and_then(|w| w.shape().get(3).copied()).unwrap_or(0);
        room::chain_with(self.on_device, &self.device, &self.rule, &self.sizes, hidden)
    }

    /// Fails for a memory or a norm that no launch of these sizes takes: the launch would refuse them, but after the workspace of the
    /// memory before has been given up for one of theirs. A memory has as many hidden elements as its first matrix says.
    ///
    /// # Errors
    /// [`LaunchError::WrongRank`], [`LaunchError::WrongShape`], [`LaunchError::WrongDType`] and [`LaunchError::WrongDevice`].
    pub(super) fn check(&self, device: &Device, memory: &[&mut Tensor], norm: Option<&Tensor>) -> Result<()> {
        let chain = self.chain_with(memory);
        let StreamSizes { sequences, heads, key, value, dtype, .. } = self.sizes;
        let hidden = memory.first().and_then(|w| w.shape().get(3).copied()).unwrap_or(0);
        let dims: &[&'static str] = match self.rule.memory {
            MemoryForm::Linear => &["[B, H, E, D]"],
            MemoryForm::Mlp | MemoryForm::Normed { .. } => &["[B, H, E, M]", "[B, H, M, D]"],
            MemoryForm::Gated => &["[B, H, E, M]", "[B, H, M, D]", "[B, H, M, D]"],
        };
        let shapes = self.rule.memory.matrices(key, value, hidden);
        let shapes = shapes.iter().map(|[rows, cols]| [sequences, heads, *rows, *cols]);
        // Momenta have the shapes of the weights.
        let wanted = dims.iter().copied().zip(shapes).cycle();
        let written = chain.params().into_iter().filter(|p| matches!(p, ParamDef::Tensor { access: Access::Out, .. }));
        let names = written.map(|p| p.name()).filter(|name| *name != "y");
        for ((name, tensor), (dims, wanted)) in names.zip(memory).zip(wanted) {
            check_tensor(chain.name, (name, tensor), (device, DType::F32), (dims, &wanted))?;
        }
        norm.map_or(Ok(()), |norm| {
            check_tensor(chain.name, ("norm", norm), (device, dtype), ("[H, E]", &[heads, value]))
        })
    }

    /// Takes the chain of a memory and allocates its workspace, unless a memory of the same sizes was the last one.
    ///
    /// # Errors
    /// Those of [`Chain::workspace`]. The workspace before is then gone, too.
    pub(super) fn reserve(&mut self, device: &Device, memory: &[&mut Tensor]) -> Result<()> {
        let chain = self.chain_with(memory);
        let hidden = open_chunk::hidden(chain, memory);
        let is_for = |of: usize| of == hidden && std::ptr::eq(chain, self.chain);
        if self.workspace.as_ref().is_some_and(|(of, _)| is_for(*of)) {
            return Ok(());
        }
        // The one before goes first: there may be no room for both.
        (self.chain, self.workspace) = (chain, None);
        let StreamSizes { sequences, heads, key, value, dtype, .. } = self.sizes;
        let sizes = [sequences, heads, key, value, hidden, self.tokens];
        let made = open_chunk::workspace(chain, &self.rule.chunking, device, dtype, sizes)?;
        self.workspace = Some((hidden, made));
        Ok(())
    }

    /// The workspace, for so many tokens.
    ///
    /// # Errors
    /// [`LaunchError::NoWorkspace`] if none was reserved; those of [`Workspace::resize`].
    pub(super) fn workspace(&mut self, tokens: usize) -> Result<&mut Workspace> {
        let chain = self.chain;
        let Some((_, workspace)) = &mut self.workspace else {
            return Err(LaunchError::NoWorkspace { chain: chain.name, name: chain.workspace.join(", ") }.into());
        };
        open_chunk::resize(chain, workspace, self.rule.chunking.chunks(tokens))?;
        Ok(workspace)
    }

    /// Bytes that the workspace holds on its device.
    pub(super) fn bytes(&self) -> u64 {
        self.workspace.as_ref().map_or(0, |(_, workspace)| workspace.bytes())
    }
}
