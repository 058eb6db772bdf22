//! Sizes of a stream of tokens.

use atlas_dsl::DType;

/// What a stream is for.
#[derive(Clone, Copy, Debug)]
pub struct StreamSizes {
    /// Sequences that are read at once.
    pub sequences: usize,
    /// Heads, each with a memory of its own.
    pub heads: usize,
    /// Elements of a key and of a query.
    pub key: usize,
    /// Elements of a value and of what is read.
    pub value: usize,
    /// The longest piece that is computed at once; longer ones are cut.
    pub piece: usize,
    /// The element type of tokens.
    pub dtype: DType,
}
