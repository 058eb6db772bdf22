//! How a sequence is cut into chunks, and what that makes of the sizes of a chain's workspace.

/// Chunks of the gated delta rule. Their length changes no result but by rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaChunks {
    length: usize,
}

impl DeltaChunks {
    /// Chunks of about so many tokens: a multiple of 4, from 4 to 64. GPUs with 100 KB of shared memory for each multiprocessor
    /// are faster with 32, others with 64. In f32, they have room for 48 at heads of 128 elements, and not for more: the queries, keys,
    /// `t` and `p` of a longer chunk leave none.
    pub fn new(tokens: usize) -> DeltaChunks {
        DeltaChunks { length: tokens.clamp(1, 64).next_multiple_of(4) }
    }

    /// Tokens of a chunk.
    pub fn tokens(&self) -> usize {
        self.length
    }

    /// Chunks of a sequence.
    pub fn count(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.length)
    }

    /// The names and sizes of the workspace's dims. `batch` are the numbers of sequences, of tokens and of heads of values, and `widths`
    /// the elements of a key and of a value.
    pub fn dims(&self, batch: [usize; 3], widths: [usize; 2]) -> [(&'static str, usize); 8] {
        let ([sequences, tokens, heads], [key, value]) = (batch, widths);
        let chunks = self.count(tokens);
        let blocks = [("R", 2), ("Z", self.length / 2), ("L", self.length)];
        let [r, z, l] = blocks;
        [("B", sequences), ("H", heads), ("C", chunks), r, z, l, ("D", key), ("E", value)]
    }
}
