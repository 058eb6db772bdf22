//! Sizes of a training.

use atlas_dsl::DType;

/// What a training is for.
#[derive(Clone, Copy, Debug)]
pub struct TrainingSizes {
    /// Sequences, `B`.
    pub sequences: usize,
    /// Tokens of each, `T`.
    pub tokens: usize,
    /// Heads, each with a memory of its own, `H`.
    pub heads: usize,
    /// Elements of a key and of a query, `D`.
    pub key: usize,
    /// Elements of a value and of what is read, `E`.
    pub value: usize,
    /// Hidden elements of the memory, `M`; a linear one has none.
    pub hidden: usize,
    /// The element type of tokens.
    pub dtype: DType,
}
