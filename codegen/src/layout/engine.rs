//! How the engines of Hopper see a shared buffer: the span of rows that the copy engine writes, and the matrix descriptor by
//! which `wgmma` reads.
//!
//! Both permute 16-byte chunks within a *span* of 32, 64 or 128 bytes of a row, by the number of the row within eight
//! (PTX ISA, "Matrix Descriptor" and "Strides" of `wgmma`). A buffer answers if its rows are one span long and its swizzle is
//! that permutation.

use super::{SharedLayout, Swizzle};

/// The rows that a swizzle of the engine goes over before it repeats.
const ROWS: u32 = 8;
/// Elements of 16 bits along K that one instruction multiplies.
const STEP: u32 = 16;

/// What `wgmma` is told of an operand, but for its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixDescriptor {
    /// The constant bits of the descriptor: offsets between rows and the span.
    pub bits: u64,
    /// Bytes from one step along K to the next.
    pub step: u32,
    /// True if M or N, and not K, runs along the rows of the buffer.
    pub is_transposed: bool,
}

impl SharedLayout {
    /// Bytes of a row, if that is one span and the buffer's swizzle is the engines' permutation of it: the copy engine then
    /// writes the buffer as one box.
    pub fn engine_span(&self, element_bytes: u32) -> Option<u32> {
        let span = self.pitch;
        let swizzle = Swizzle { bits: (span / 16).checked_ilog2()?, base: 4, shift: 3 };
        let is_span = matches!(span, 32 | 64 | 128) && self.cols * element_bytes == span;
        (is_span && self.swizzle == swizzle).then_some(span)
    }

    /// The descriptor of an operand in a buffer of this layout, whose elements have so many bytes: `k_along_rows` if the
    /// buffer's rows run along K. `None` if the instruction cannot read it.
    pub fn matrix_descriptor(&self, k_along_rows: bool, element_bytes: u32) -> Option<MatrixDescriptor> {
        let span = self.engine_span(element_bytes)?;
        let mode: u64 = match span {
            128 => 1,
            64 => 2,
            _ => 3,
        };
        if element_bytes != 2 || !self.rows.is_multiple_of(ROWS) {
            return None;
        }
        let group = ROWS * span;
        // Along M or N a buffer is one span wide, so the offset from span to span is never used.
        let leading = if k_along_rows { 0 } else { self.bytes() };
        let bits = u64::from(leading >> 4 & 0x3fff) << 16 | u64::from(group >> 4) << 32 | mode << 62;
        let step = if k_along_rows { STEP * element_bytes } else { STEP * span };
        Some(MatrixDescriptor { bits, step, is_transposed: !k_along_rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_one_span_have_a_descriptor() {
        for (cols, span, mode) in [(64, 128, 1_u64), (32, 64, 2), (16, 32, 3)] {
            let layout = SharedLayout::of_tile(&[128, cols], 2, true);
            let along = layout.matrix_descriptor(true, 2).unwrap();
            assert_eq!((along.bits, along.step), (u64::from(8 * span / 16_u32) << 32 | mode << 62, 32));
            let across = layout.matrix_descriptor(false, 2).unwrap();
            assert_eq!((across.step, across.is_transposed), (16 * span, true));
        }
    }

    #[test]
    fn other_tiles_have_none() {
        // Wider than a span, an odd pitch, another swizzle, wider elements.
        for cols in [128, 256, 48, 80, 8] {
            assert_eq!(SharedLayout::of_tile(&[64, cols], 2, true).matrix_descriptor(true, 2).is_some(), cols == 8);
        }
        let layout = SharedLayout::of_tile(&[64, 64], 2, true);
        let other = SharedLayout { swizzle: Swizzle { shift: 4, ..layout.swizzle }, ..layout };
        assert_eq!(other.matrix_descriptor(true, 2), None);
        assert_eq!(SharedLayout::of_tile(&[64, 32], 4, true).matrix_descriptor(true, 4), None);
        assert_eq!(SharedLayout { rows: 12, ..layout }.matrix_descriptor(true, 2), None);
    }
}
