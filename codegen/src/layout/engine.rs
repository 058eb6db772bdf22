//! How the engines of Hopper see a shared buffer: the boxes that the copy engine writes or reads, and the matrix descriptor by
//! which `wgmma` reads.
//!
//! Both permute 16-byte chunks within a *span* of 32, 64 or 128 bytes of a row, by the number of the row within eight
//! (PTX ISA, "Matrix Descriptor" and "Strides" of `wgmma`). A buffer answers if it consists of panels whose rows are one span
//! long, and its swizzle is that permutation. The copy engine takes each panel as a box of its own.

use super::tensor_map::{ALIGNMENT, MOST_BOX};
use super::{SharedLayout, Swizzle};

/// The rows that a swizzle of the engine goes over before it repeats.
const ROWS: u32 = 8;
/// What the address of a box without a swizzle in shared memory is a multiple of.
const ROW_ALIGNMENT: u32 = 8 * ALIGNMENT;

/// The boxes that a buffer consists of: all have the same extents, and stand side by side along its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineBox {
    /// Columns of each.
    pub cols: u32,
    /// Bytes of a row within which the engine permutes chunks; 0 if it permutes none.
    pub span: u32,
}

/// What `wgmma` is told of an operand, but for its address, which is that of the first row and column before the swizzle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixDescriptor {
    /// The constant bits of the descriptor: offsets between rows and the span.
    pub bits: u64,
    /// True if M or N, and not K, runs along the rows of the buffer. An instruction's part of M or N then begins with a panel.
    pub is_transposed: bool,
}

impl SharedLayout {
    /// Bytes of a panel's row, if that is one span and the buffer's swizzle is the engines' permutation of it.
    fn panel_span(&self, element_bytes: u32) -> Option<u32> {
        let span = self.pitch;
        let swizzle = Swizzle { bits: (span / 16).checked_ilog2()?, base: 4, shift: 3 };
        let is_span = matches!(span, 32 | 64 | 128) && self.panel * element_bytes == span;
        (is_span && self.swizzle == swizzle).then_some(span)
    }

    /// The layout of a tile of one or two axes that threads write and the copy engine reads; `None` if there is none.
    ///
    /// A tile of two axes lies in panels of the widest span that its rows are a multiple of, without bank conflicts. A row is a
    /// buffer of its own.
    pub fn for_engine_stores(shape: &[u32], element_bytes: u32) -> Option<SharedLayout> {
        match *shape {
            [cols] | [1, cols] => {
                let layout = SharedLayout::plain(1, cols, element_bytes);
                layout.engine_box(element_bytes).map(|_| layout)
            }
            [rows, cols] => SharedLayout::in_panels(rows, cols, element_bytes).filter(|_| rows <= MOST_BOX),
            _ => None,
        }
    }

    /// The layout of a tile that `wgmma` reads as an operand, padded as all operands are; `None` for a tile that is no matrix of
    /// 16-bit or 32-bit elements.
    pub fn of_wgmma_operand(shape: &[u32], element_bytes: u32) -> Option<SharedLayout> {
        match *shape {
            [rows, cols] if matches!(element_bytes, 2 | 4) => {
                SharedLayout::in_panels(rows.next_multiple_of(16), cols.next_multiple_of(16), element_bytes)
            }
            _ => None,
        }
    }

    /// Panels of the widest span that the rows are a multiple of.
    fn in_panels(rows: u32, cols: u32, element_bytes: u32) -> Option<SharedLayout> {
        let pitch = [128, 64, 32].into_iter().find(|span| (cols * element_bytes).is_multiple_of(*span))?;
        let swizzle = Swizzle { bits: (pitch / 16).ilog2(), base: 4, shift: 3 };
        Some(SharedLayout { rows, cols, panel: pitch / element_bytes, pitch, swizzle })
    }

    /// The boxes by which the copy engine reads or writes a buffer of elements of `element_bytes` bytes; `None` if it cannot.
    pub fn engine_box(&self, element_bytes: u32) -> Option<EngineBox> {
        if let Some(span) = self.panel_span(element_bytes) {
            return (self.rows <= MOST_BOX).then_some(EngineBox { cols: self.panel, span });
        }
        // A row without a swizzle, by the fewest boxes that begin where the engine can read.
        let fits = |cols: &u32| self.cols.is_multiple_of(*cols) && (cols * element_bytes).is_multiple_of(ROW_ALIGNMENT);
        let cols = (1..=self.cols.min(MOST_BOX)).rev().find(fits)?;
        let is_row = self.rows == 1 && self.panel == self.cols && self.swizzle.bits == 0;
        is_row.then_some(EngineBox { cols, span: 0 })
    }

    /// The descriptor of an operand in a buffer of this layout, whose elements have so many bytes: `k_along_rows` if the
    /// buffer's rows run along K. `None` if the instruction cannot read it.
    pub fn matrix_descriptor(&self, k_along_rows: bool, element_bytes: u32) -> Option<MatrixDescriptor> {
        let span = self.panel_span(element_bytes)?;
        let mode: u64 = match span {
            128 => 1,
            64 => 2,
            _ => 3,
        };
        // The instruction transposes elements of 16 bits only.
        let is_read = element_bytes == 2 || (element_bytes == 4 && k_along_rows);
        if !is_read || !self.rows.is_multiple_of(ROWS) {
            return None;
        }
        let group = ROWS * span;
        // From panel to panel along M or N. Along K an instruction stays within one.
        let leading = if k_along_rows { 0 } else { self.panel_bytes() };
        let bits = u64::from(leading >> 4 & 0x3fff) << 16 | u64::from(group >> 4) << 32 | mode << 62;
        Some(MatrixDescriptor { bits, is_transposed: !k_along_rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn operands_in_panels_have_a_descriptor() {
        for (cols, span, mode) in [(64, 128, 1_u64), (256, 128, 1), (32, 64, 2), (96, 64, 2), (16, 32, 3), (48, 32, 3)]
        {
            let layout = SharedLayout::of_wgmma_operand(&[128, cols], 2).unwrap();
            let along = layout.matrix_descriptor(true, 2).unwrap();
            assert_eq!((along.bits, along.is_transposed), (u64::from(8 * span / 16_u32) << 32 | mode << 62, false));
            let across = layout.matrix_descriptor(false, 2).unwrap();
            assert_eq!((across.bits ^ along.bits, across.is_transposed), (u64::from(128 * span / 16) << 16, true));
        }
    }

    /// Elements of 32 bits have one along K alone. Their panels have half as many columns.
    #[test]
    fn operands_of_32_bits_run_along_k() {
        for (cols, panel, mode) in [(32, 32, 1_u64), (64, 32, 1), (16, 16, 2), (48, 16, 2), (8, 16, 2)] {
            let layout = SharedLayout::of_wgmma_operand(&[128, cols], 4).unwrap();
            assert_eq!(layout.panel, panel);
            let bits = u64::from(8 * panel * 4 / 16) << 32 | mode << 62;
            assert_eq!(layout.matrix_descriptor(true, 4), Some(MatrixDescriptor { bits, is_transposed: false }));
            assert_eq!(layout.matrix_descriptor(false, 4), None);
        }
    }

    /// A tile whose rows are one span lies in one panel, as it does for other readers.
    #[test]
    fn operands_of_one_span_lie_as_other_tiles() {
        for cols in [16, 32, 64] {
            let operand = SharedLayout::of_wgmma_operand(&[40, cols], 2);
            assert_eq!(operand, Some(SharedLayout::of_tile(&[40, cols], 2, true)));
        }
        assert_eq!(SharedLayout::of_wgmma_operand(&[64, 64], 8), None);
        assert_eq!(SharedLayout::of_wgmma_operand(&[2, 64, 64], 2), None);
    }

    #[test]
    fn tiles_are_stored_by_panels_of_the_widest_span() {
        let boxes = |shape: &[u32], bytes| {
            SharedLayout::for_engine_stores(shape, bytes).and_then(|l| l.engine_box(bytes)).map(|b| (b.cols, b.span))
        };
        assert_eq!(boxes(&[128, 128], 2), Some((64, 128)));
        assert_eq!(boxes(&[128, 96], 2), Some((32, 64)));
        assert_eq!(boxes(&[256, 48], 4), Some((16, 64)));
        assert_eq!(boxes(&[4, 8], 4), Some((8, 32)));
        assert_eq!((boxes(&[1024], 4), boxes(&[1, 1024], 4)), (Some((256, 0)), Some((256, 0))));
        assert_eq!(boxes(&[640], 2), Some((128, 0)));
        // Rows of 16 bytes, too many rows, and a row that no boxes of 128 bytes divide.
        assert_eq!((boxes(&[128, 8], 2), boxes(&[512, 64], 2), boxes(&[40], 2)), (None, None, None));
    }

    #[test]
    fn eight_rows_of_a_stored_tile_are_on_different_banks() {
        for (cols, bytes) in [(64, 2), (96, 2), (16, 2), (128, 4), (8, 4)] {
            let layout = SharedLayout::for_engine_stores(&[32, cols], bytes).unwrap();
            for (row, col) in [(0, 0), (8, 0), (24, cols - 16 / bytes)] {
                let groups: BTreeSet<u32> = (0..8).map(|r| layout.offset(row + r, col, bytes) / 16 % 8).collect();
                assert_eq!(groups.len(), 8, "{layout}");
            }
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
        assert_eq!(SharedLayout::of_tile(&[64, 32], 4, true).matrix_descriptor(false, 4), None);
        assert_eq!(SharedLayout { rows: 12, ..layout }.matrix_descriptor(true, 2), None);
    }
}
