//! Shared-memory layouts: row-major with a pitch and an XOR swizzle of 16-byte chunks, in one panel or in several.

use std::fmt;

/// CuTe's `Swizzle<B, M, S>` on byte offsets: bits `[M, M+B)` are XORed with bits `[M+S, M+S+B)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Swizzle {
    /// Number of bits.
    pub bits: u32,
    /// Lowest changed bit; 4 leaves 16-byte chunks whole.
    pub base: u32,
    /// Distance to the bits that are mixed in.
    pub shift: u32,
}

impl Swizzle {
    /// No swizzle.
    pub const NONE: Swizzle = Swizzle { bits: 0, base: 4, shift: 3 };

    /// Applies the swizzle to a byte offset. An involution.
    pub fn apply(self, offset: u32) -> u32 {
        offset ^ ((offset >> self.shift) & self.target_mask())
    }

    /// The bits that change.
    pub fn target_mask(self) -> u32 {
        ((1 << self.bits) - 1) << self.base
    }

    /// The bits that are read.
    pub fn source_mask(self) -> u32 {
        self.target_mask() << self.shift
    }
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "swizzle<{},{},{}>", self.bits, self.base, self.shift)
    }
}

/// A row-major matrix in shared memory: `rows` rows of `cols` elements, `pitch` bytes apart.
///
/// The columns may be cut into panels, which stand one behind the other: each has all rows, and `pitch` is that of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedLayout {
    /// Rows, padding included.
    pub rows: u32,
    /// Elements per row, padding included.
    pub cols: u32,
    /// Elements per row of a panel: `cols` if there is one.
    pub panel: u32,
    /// Bytes from one row of a panel to the next.
    pub pitch: u32,
    /// Applied to the byte offset within the buffer.
    pub swizzle: Swizzle,
}

impl SharedLayout {
    /// The layout of a tile: of its rows, all axes but the last together, padded to the atoms' 16 x 16 blocks if atoms read
    /// it as an operand, else to whole chunks of 16 bytes.
    pub fn of_tile(shape: &[u32], element_bytes: u32, operand: bool) -> SharedLayout {
        let (cols, rows) = shape.split_last().map_or((1, 1), |(&cols, outer)| (cols, outer.iter().product::<u32>()));
        let padded = |n: u32| n.next_multiple_of(16);
        let (rows, cols) =
            if operand { (padded(rows), padded(cols)) } else { (rows, cols.next_multiple_of(16 / element_bytes)) };
        SharedLayout::conflict_free(rows, cols, element_bytes)
    }

    /// The layout free of bank conflicts for every consumer at once: 16-byte rows of 8x8 blocks, read
    /// along rows or transposed, and 16-byte vectors along a row.
    ///
    /// Any 8 consecutive rows, at one 16-byte chunk, must fall on 8 different bank groups. Rows of a
    /// power of two of chunks get the XOR swizzle; other rows get a pitch of an odd number of chunks.
    pub fn conflict_free(rows: u32, cols: u32, element_bytes: u32) -> SharedLayout {
        let row = (cols * element_bytes).next_multiple_of(16);
        let chunks = row / 16;
        if chunks.is_power_of_two() && chunks >= 2 {
            // Bits of the chunk index: [4, 4+log). The row index starts at bit 4+log; with fewer than 8
            // chunks per row, 8/chunks rows share a 128-byte line and the line number is mixed in.
            let bits = chunks.min(8).trailing_zeros();
            let shift = chunks.max(8).trailing_zeros();
            SharedLayout { rows, cols, panel: cols, pitch: row, swizzle: Swizzle { bits, base: 4, shift } }
        } else {
            let pitch = if chunks.is_multiple_of(2) { row + 16 } else { row };
            SharedLayout { rows, cols, panel: cols, pitch, swizzle: Swizzle::NONE }
        }
    }

    /// A layout without swizzle: what small scratch buffers use.
    pub fn plain(rows: u32, cols: u32, element_bytes: u32) -> SharedLayout {
        let pitch = (cols * element_bytes).next_multiple_of(16);
        SharedLayout { rows, cols, panel: cols, pitch, swizzle: Swizzle::NONE }
    }

    /// Bytes of one buffer, a multiple of its alignment.
    pub fn bytes(&self) -> u32 {
        self.panel_bytes() * self.cols.div_ceil(self.panel)
    }

    /// Bytes from the beginning of one panel to that of the next.
    pub fn panel_bytes(&self) -> u32 {
        (self.rows * self.pitch).next_multiple_of(self.alignment())
    }

    /// Alignment of the buffer. Swizzles apply to offsets within the buffer, so vectors alone decide it;
    /// 1024 bytes is what the Hopper copy engine will ask of a swizzled buffer.
    pub fn alignment(&self) -> u32 {
        if self.swizzle.bits == 0 { 16 } else { 1024 }
    }

    /// A byte offset in two parts that add up to it: what the swizzle sees, and multiples of what it reaches.
    pub fn split(&self, offset: u32) -> (u32, u32) {
        let s = self.swizzle;
        let reach = if s.bits == 0 { 0 } else { (1u32 << (s.base + s.shift + s.bits)) - 1 };
        (offset & reach, offset & !reach)
    }

    /// The byte offset of a constant position that is added to a moving one, in two parts as [`split`](Self::split) makes
    /// them; `None` if it depends on the moving column, which may set these bits, in which panel the sum is.
    pub fn constant_part(&self, (row, col): (u32, u32), moving_col: u32, element_bytes: u32) -> Option<(u32, u32)> {
        let within = col % self.panel;
        let is_apart = self.panel.is_power_of_two() && moving_col & within & (self.panel - 1) == 0;
        if self.panel != self.cols && within != 0 && !is_apart {
            return None;
        }
        let (seen, rest) = self.split(row * self.pitch + within * element_bytes);
        Some((seen, rest + col / self.panel * self.panel_bytes()))
    }

    /// Byte offset of an element.
    pub fn offset(&self, row: u32, col: u32, element_bytes: u32) -> u32 {
        let (panel, col) = (col / self.panel, col % self.panel);
        panel * self.panel_bytes() + self.swizzle.apply(row * self.pitch + col * element_bytes)
    }

    /// Byte offset of an element before the swizzle.
    pub fn linear_offset(&self, row: u32, col: u32, element_bytes: u32) -> u32 {
        let (panel, col) = (col / self.panel, col % self.panel);
        panel * self.panel_bytes() + row * self.pitch + col * element_bytes
    }
}

impl fmt::Display for SharedLayout {
    /// `[64, 64] pitch 128 swizzle<3,4,3>`, `[64, 128] panels 64 pitch 128 swizzle<3,4,3>`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}] ", self.rows, self.cols)?;
        if self.panel != self.cols {
            write!(f, "panels {} ", self.panel)?;
        }
        write!(f, "pitch {} {}", self.pitch, self.swizzle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Bank conflicts of eight 16-byte accesses: extra cycles beyond one.
    fn conflicts(offsets: &[u32]) -> usize {
        let groups: BTreeSet<u32> = offsets.iter().map(|o| o / 16 % 8).collect();
        8 - groups.len()
    }

    proptest! {
        #[test]
        fn eight_rows_of_a_chunk_never_conflict(cols8 in 1u32..65, row8 in 0u32..4, chunk in 0u32..64) {
            let cols = cols8 * 8;
            let layout = SharedLayout::conflict_free(32, cols, 2);
            let chunk = chunk % (cols / 8);
            // A row of one or two chunks packs several rows in a line; eight of them are still apart.
            let offsets: Vec<u32> = (0..8).map(|r| layout.offset(row8 * 8 + r, chunk * 8, 2)).collect();
            prop_assert_eq!(conflicts(&offsets), 0);
        }

        #[test]
        fn offsets_are_distinct_and_in_bounds(rows in 1u32..20, cols8 in 1u32..40) {
            let layout = SharedLayout::conflict_free(rows, cols8 * 8, 2);
            let mut seen = BTreeSet::new();
            for r in 0..rows {
                for c in 0..cols8 * 8 {
                    let o = layout.offset(r, c, 2);
                    prop_assert!(o < layout.bytes());
                    prop_assert!(seen.insert(o));
                }
            }
        }

        /// What the swizzle does not see is added after it.
        #[test]
        fn split_offsets_swizzle_apart(cols8 in 1u32..65, a in 0u32..65536, b in 0u32..65536) {
            let layout = SharedLayout::conflict_free(32, cols8 * 8, 2);
            let (seen, rest) = layout.split(b);
            prop_assert_eq!(seen + rest, b);
            prop_assert_eq!(layout.swizzle.apply(a + b), layout.swizzle.apply(a + seen) + rest);
        }

        /// The swizzle is the F2-linear map that its masks describe.
        #[test]
        fn swizzle_is_linear_and_an_involution(a in 0u32..65536, b in 0u32..65536, bits in 0u32..4, extra in 0u32..3) {
            let s = Swizzle { bits, base: 4, shift: 3 + extra };
            prop_assert_eq!(s.apply(a ^ b), s.apply(a) ^ s.apply(b));
            prop_assert_eq!(s.apply(s.apply(a)), a);
        }
    }

    #[test]
    fn panels_stand_one_behind_the_other() {
        let layout = SharedLayout::for_engine_stores(&[12, 192], 2).unwrap();
        assert_eq!(layout.to_string(), "[12, 192] panels 64 pitch 128 swizzle<3,4,3>");
        let one = SharedLayout { cols: 64, ..layout };
        assert_eq!((one.bytes(), layout.bytes()), (2048, 3 * 2048));
        for (row, col) in [(0, 0), (5, 63), (11, 64), (7, 191)] {
            assert_eq!(layout.offset(row, col, 2), col / 64 * 2048 + one.offset(row, col % 64, 2));
        }
    }

    #[test]
    fn an_unswizzled_power_of_two_row_conflicts() {
        let layout = SharedLayout { swizzle: Swizzle::NONE, ..SharedLayout::conflict_free(8, 64, 2) };
        let offsets: Vec<u32> = (0..8).map(|r| layout.offset(r, 0, 2)).collect();
        assert_eq!(conflicts(&offsets), 7);
    }
}
