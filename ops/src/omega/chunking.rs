//! How a sequence is cut into chunks, and what that makes of the sizes of a chain's workspace.

/// Chunks, windows and halos of the Omega rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunking {
    /// Tokens of a chunk: all of its gradients are taken at the weights before it.
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
        let halo = if self.halo { self.window.saturating_sub(1) } else { 0 };
        if halo == 0 { self.chunk } else { (self.chunk + halo).next_multiple_of(8) }
    }

    /// Chunks of a sequence.
    pub fn chunks(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.chunk)
    }

    /// The dims of the workspace of an Omega chain by name.
    pub fn dims(&self, sequences: usize, heads: usize, tokens: usize) -> [(&'static str, usize); 5] {
        [("B", sequences), ("H", heads), ("C", self.chunks(tokens)), ("L", self.chunk), ("K", self.keys())]
    }
}
