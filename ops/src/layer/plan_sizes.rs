//! Sizes that all plans of a layer share.

/// Keys of the attention's window, and of its prefix.
pub(super) const WINDOW: usize = 512;
pub(super) const PREFIX: usize = 16;

/// Tokens of a chunk of the memory, and of its window.
pub(super) const CHUNK: usize = 64;
pub(super) const MEMORY_WINDOW: usize = 16;

/// Operations of a head's memory on a sequence.
pub(super) fn memory_flops(t: usize, d: usize, m: usize) -> usize {
    let (l, k) = (CHUNK, CHUNK + MEMORY_WINDOW - 1);
    t.div_ceil(l) * ((14 * k + 8 * l) * d * m + 4 * l * k * (d + m))
}

/// Tokens of a piece. A longer sequence is pushed piece after piece, each with the same tokens: what they are takes no time, and
/// a million different ones would take gigabytes.
const LONGEST: usize = 32768;

/// Divides a sequence of this many tokens: the tokens of one piece, and the number of pieces.
pub(super) fn in_pieces(tokens: usize) -> (usize, usize) {
    assert!(tokens < LONGEST || tokens.is_multiple_of(LONGEST), "{tokens} tokens");
    (tokens.min(LONGEST), tokens.div_ceil(LONGEST))
}
