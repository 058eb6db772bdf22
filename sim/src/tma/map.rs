//! Tensor maps: the arguments of `cuTensorMapEncodeTiled`, and its checks.

use crate::fault::{Fault, FaultKind, Result};
use crate::tensor::swizzle::Swizzle;

/// Element types, in the order of `CUtensorMapDataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    U8,
    U16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
    Bf16,
    /// f32 whose subnormals a copy flushes.
    F32Ftz,
    Tf32,
    /// tf32 whose subnormals a copy flushes.
    Tf32Ftz,
}

impl Element {
    /// All types, each at the index of its code.
    pub const ALL: [Element; 13] = [
        Element::U8,
        Element::U16,
        Element::U32,
        Element::I32,
        Element::U64,
        Element::I64,
        Element::F16,
        Element::F32,
        Element::F64,
        Element::Bf16,
        Element::F32Ftz,
        Element::Tf32,
        Element::Tf32Ftz,
    ];

    /// Bytes of an element.
    pub fn bytes(self) -> u32 {
        match self {
            Element::U8 => 1,
            Element::U16 | Element::F16 | Element::Bf16 => 2,
            Element::U32 | Element::I32 | Element::F32 | Element::F32Ftz | Element::Tf32 | Element::Tf32Ftz => 4,
            Element::U64 | Element::I64 | Element::F64 => 8,
        }
    }

    /// True if a load changes the bits that it moves: it flushes subnormals, or rounds to tf32.
    pub fn converts(self) -> bool {
        matches!(self, Element::F32Ftz | Element::Tf32 | Element::Tf32Ftz)
    }

    /// Whether elements are floating-point numbers.
    pub fn is_float(self) -> bool {
        !matches!(self, Element::U8 | Element::U16 | Element::U32 | Element::I32 | Element::U64 | Element::I64)
    }
}

/// The value that a load writes where the box leaves the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fill {
    #[default]
    Zeros,
    /// NaN, for floating-point elements only.
    Nan,
}

/// A tensor in global memory and the box that one copy moves. Dimension 0 is the innermost. Entries from `rank` on are not
/// read. Interleaving is not supported, and the promotion to L2 changes nothing that a kernel can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    pub element: Element,
    pub rank: u32,
    pub address: u64,
    /// Elements.
    pub dims: [u64; 5],
    /// Bytes between neighbours along each dimension. The entry of dimension 0 is not read, because its elements are dense.
    pub strides_bytes: [u64; 5],
    /// Elements that the box spans.
    pub box_dims: [u32; 5],
    /// The step between copied elements of the span. The entry of dimension 0 is not read.
    pub element_strides: [u32; 5],
    pub swizzle: Swizzle,
    pub fill: Fill,
}

/// A fault of a tensor map.
pub(super) fn illegal(message: String) -> Fault {
    Fault::new(FaultKind::Illegal, format!("tensor map: {message}"))
}

impl TensorMap {
    /// A dense row-major tensor, dims and box innermost first, unswizzled and filled with zeros.
    pub fn dense(element: Element, address: u64, dims: &[u64], box_dims: &[u32]) -> TensorMap {
        let mut map = TensorMap {
            element,
            rank: dims.len() as u32,
            address,
            dims: [1; 5],
            strides_bytes: [0; 5],
            box_dims: [1; 5],
            element_strides: [1; 5],
            swizzle: Swizzle::None,
            fill: Fill::Zeros,
        };
        let mut stride = u64::from(element.bytes());
        for (d, &size) in dims.iter().enumerate().take(5) {
            map.dims[d] = size;
            map.strides_bytes[d] = if d == 0 { 0 } else { stride };
            stride = stride.saturating_mul(size);
        }
        map.box_dims.iter_mut().zip(box_dims).for_each(|(place, &size)| *place = size);
        map
    }

    /// Number of dimensions as an index bound.
    pub(super) fn dimensions(&self) -> usize {
        (self.rank as usize).min(5)
    }

    /// Elements that a copy moves along a dimension.
    pub fn count(&self, dimension: usize) -> u32 {
        let size = self.box_dims.get(dimension).copied().unwrap_or(1);
        let stride = self.element_strides.get(dimension).copied().unwrap_or(1);
        if dimension == 0 { size } else { size.div_ceil(stride.max(1)) }
    }

    /// Bytes of one row of the box in shared memory.
    pub fn row_bytes(&self) -> u32 {
        self.box_dims[0].saturating_mul(self.element.bytes())
    }

    /// Bytes that a copy moves and an mbarrier counts: the whole box, wherever it is.
    pub fn box_bytes(&self) -> u32 {
        (1..self.dimensions()).fold(self.row_bytes(), |bytes, d| bytes.saturating_mul(self.count(d)))
    }

    /// The bytes of one element out of bounds.
    pub fn fill_bytes(&self) -> Vec<u8> {
        let bits: u64 = match (self.fill, self.element.bytes()) {
            (Fill::Zeros, _) => 0,
            (Fill::Nan, 2) => 0x7fff,
            (Fill::Nan, 4) => 0x7fff_ffff,
            (Fill::Nan, _) => 0x7fff_ffff_ffff_ffff,
        };
        bits.to_le_bytes().into_iter().take(self.element.bytes() as usize).collect()
    }

    /// Refuses maps that the driver refuses.
    pub fn validate(&self) -> Result<()> {
        if !(1..=5).contains(&self.rank) {
            return Err(illegal(format!("rank {} is not within 1 to 5", self.rank)));
        }
        if !self.address.is_multiple_of(16) {
            return Err(illegal(format!("global address {:#x} is not a multiple of 16", self.address)));
        }
        for d in 0..self.dimensions() {
            self.validate_dimension(d)?;
        }
        let row = self.row_bytes();
        if !row.is_multiple_of(16) {
            return Err(illegal(format!("a row of the box has {row} bytes, not a multiple of 16")));
        }
        if self.swizzle != Swizzle::None && row > self.swizzle.span() {
            let span = self.swizzle.span();
            return Err(illegal(format!("a row of the box has {row} bytes, more than the swizzle's {span}")));
        }
        if self.fill == Fill::Nan && !self.element.is_float() {
            return Err(illegal(format!("elements of type {:?} cannot be filled with NaN", self.element)));
        }
        Ok(())
    }

    fn validate_dimension(&self, d: usize) -> Result<()> {
        let (size, stride, step) = (self.dims[d], self.strides_bytes[d], self.element_strides[d]);
        if !(1..=1 << 32).contains(&size) {
            return Err(illegal(format!("dimension {d} has {size} elements, not 1 to 2^32")));
        }
        if !(1..=256).contains(&self.box_dims[d]) {
            return Err(illegal(format!(
                "the box has {} elements along dimension {d}, not 1 to 256",
                self.box_dims[d]
            )));
        }
        if !(1..=8).contains(&step) {
            return Err(illegal(format!("the element stride of dimension {d} is {step}, not 1 to 8")));
        }
        if d > 0 && (!stride.is_multiple_of(16) || stride >= 1 << 40) {
            return Err(illegal(format!(
                "the stride of dimension {d} is {stride} bytes, not a multiple of 16 below 2^40"
            )));
        }
        Ok(())
    }
}
