//! How a sequence is cut into mini-batches, and what that makes of the sizes of the workspace.

/// Mini-batches of TTT-Linear. Their length is part of the model: 16 in the paper and in flash-linear-attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MiniBatches {
    length: usize,
}

impl MiniBatches {
    /// Mini-batches with this number of tokens, at least one. GPUs have room for 64 at heads of 128 elements.
    pub fn new(tokens: usize) -> MiniBatches {
        MiniBatches { length: tokens.max(1) }
    }

    /// Tokens of a mini-batch.
    pub fn tokens(&self) -> usize {
        self.length
    }

    /// Mini-batches of a sequence; the last one may be short.
    pub fn count(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.length)
    }

    /// The names and sizes of the workspace's dims. `batch` are the numbers of sequences, of tokens and of heads.
    pub fn dims(&self, batch: [usize; 3]) -> [(&'static str, usize); 4] {
        let [sequences, tokens, heads] = batch;
        [("B", sequences), ("H", heads), ("C", self.count(tokens)), ("L", self.length)]
    }
}
