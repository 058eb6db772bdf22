//! How a sequence is cut into chunks, and what that makes of the sizes of a chain's workspace.

/// Chunks, windows and halos of the Omega rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunking {
    /// Tokens of a chunk: all of its gradients are taken at the weights before it. 0 counts as 1.
    pub chunk: usize,
    /// Tokens of the window, the token itself among them.
    pub window: usize,
    /// True if a window reaches back over the start of its chunk, as the rule is defined.
    pub halo: bool,
}

impl Chunking {
    /// With windows that reach over the start of a chunk. Both have one token at least.
    pub fn new(chunk: usize, window: usize) -> Chunking {
        Chunking { chunk: chunk.max(1), window: window.max(1), halo: true }
    }

    /// Keys that a chunk sees: its own, and before them those of its halo, so many that tiles of them lie well.
    pub fn keys(&self) -> usize {
        let (chunk, halo) = (self.chunk.max(1), if self.halo { self.window.saturating_sub(1) } else { 0 });
        let both = chunk.saturating_add(halo);
        // No tensor has as many tokens as the largest number says.
        if halo == 0 { chunk } else { both.checked_next_multiple_of(8).unwrap_or(usize::MAX) }
    }

    /// Chunks of a sequence.
    pub fn chunks(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.chunk.max(1))
    }

    /// The dims of the workspace of an Omega chain by name. `W`, the window, is no dim of its tensors: with it, the chain refuses
    /// weights of another window than the one that `K` is for.
    pub fn dims(&self, sequences: usize, heads: usize, tokens: usize) -> [(&'static str, usize); 6] {
        let (chunk, window) = (self.chunk.max(1), self.window.max(1));
        [("B", sequences), ("H", heads), ("C", self.chunks(tokens)), ("L", chunk), ("K", self.keys()), ("W", window)]
    }
}
