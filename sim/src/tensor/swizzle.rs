//! The swizzles of shared memory that TMA writes and `wgmma` reads: some address bits are xor'ed into others.

/// How 16-byte chunks of a row are permuted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Swizzle {
    /// Rows are not permuted.
    #[default]
    None,
    /// Rows of 32 bytes.
    B32,
    /// Rows of 64 bytes.
    B64,
    /// Rows of 128 bytes.
    B128,
}

impl Swizzle {
    /// All modes, narrowest first.
    pub const ALL: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];

    /// Number of address bits that change: the `B` of CuTe's `Swizzle<B, 4, 3>`.
    fn bits(self) -> u32 {
        match self {
            Swizzle::None => 0,
            Swizzle::B32 => 1,
            Swizzle::B64 => 2,
            Swizzle::B128 => 3,
        }
    }

    /// Bytes of a row within which chunks move; 16 without swizzle.
    pub fn span(self) -> u32 {
        16 << self.bits()
    }

    /// Bytes after which the pattern repeats, and to which a tile is aligned: eight rows.
    pub fn repeat(self) -> u32 {
        8 * self.span()
    }

    /// The swizzled position of the byte at a linear address: bits 7 and up are xor'ed into bits 4 and up.
    pub fn apply(self, address: u32) -> u32 {
        address ^ ((address >> 3) & (((1 << self.bits()) - 1) << 4))
    }
}

#[cfg(test)]
mod tests {
    use super::Swizzle;

    #[test]
    fn chunk_index_is_xored_with_the_128_byte_line() {
        for (swizzle, mask) in [(Swizzle::None, 0), (Swizzle::B32, 1), (Swizzle::B64, 3), (Swizzle::B128, 7)] {
            for address in 0..4096u32 {
                let (line, chunk, byte) = (address >> 7, address >> 4 & 7, address & 15);
                let expected = line << 7 | (chunk ^ (line & mask)) << 4 | byte;
                assert_eq!(swizzle.apply(address), expected, "{swizzle:?} {address}");
                assert_eq!(swizzle.apply(expected), address, "an involution");
            }
        }
    }

    #[test]
    fn spans_and_repeats() {
        assert_eq!(Swizzle::ALL.map(Swizzle::span), [16, 32, 64, 128]);
        assert_eq!(Swizzle::ALL.map(Swizzle::repeat), [128, 256, 512, 1024]);
    }
}
