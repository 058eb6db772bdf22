//! The 64-bit descriptor of a `wgmma` operand in shared memory.

use crate::fault::{Fault, FaultKind, Result};
use crate::tensor::swizzle::Swizzle;

/// Which dimension of an operand is contiguous in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    /// The inner dimension of the product.
    K,
    /// Rows of A, columns of B: the transpose bit of the instruction is set.
    Mn,
}

/// A decoded descriptor. Addresses and offsets are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Shared address of the operand's first element, before the swizzle.
    pub start: u32,
    /// Leading dimension byte offset.
    pub leading: u32,
    /// Stride dimension byte offset.
    pub stride: u32,
    /// The shift of the swizzle's pattern, in lines of 128 bytes.
    pub base_offset: u8,
    pub swizzle: Swizzle,
}

/// Bits that have no meaning on sm_90.
const RESERVED: u64 = 0xc000_c000_c000 | 0x3ff1 << 48;

impl Descriptor {
    /// Decodes the bits.
    pub fn decode(bits: u64) -> Result<Descriptor> {
        if bits & RESERVED != 0 {
            return Err(illegal(format!("{bits:#018x} has bits set that mean nothing: {:#x}", bits & RESERVED)));
        }
        let field = |low: u32| ((bits >> low) as u32 & 0x3fff) << 4;
        let swizzle = match bits >> 62 {
            0 => Swizzle::None,
            1 => Swizzle::B128,
            2 => Swizzle::B64,
            _ => Swizzle::B32,
        };
        let base_offset = (bits >> 49) as u8 & 7;
        Ok(Descriptor { start: field(0), leading: field(16), stride: field(32), base_offset, swizzle })
    }

    /// The bits that decode to this. Fields drop values that they cannot hold.
    pub fn encode(&self) -> u64 {
        let field = |bytes: u32, low: u32| u64::from(bytes >> 4 & 0x3fff) << low;
        let mode: u64 = match self.swizzle {
            Swizzle::None => 0,
            Swizzle::B128 => 1,
            Swizzle::B64 => 2,
            Swizzle::B32 => 3,
        };
        let base = u64::from(self.base_offset & 7) << 49;
        field(self.start, 0) | field(self.leading, 16) | field(self.stride, 32) | base | mode << 62
    }
}

/// A fault of a descriptor.
pub(super) fn illegal(message: String) -> Fault {
    Fault::new(FaultKind::Illegal, format!("matrix descriptor: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_isa_says() {
        let bits = 1 << 62 | 64 << 32 | 1 << 16 | 0x123;
        let d = Descriptor::decode(bits).unwrap();
        let expected = Descriptor { start: 0x1230, leading: 16, stride: 1024, base_offset: 0, swizzle: Swizzle::B128 };
        assert_eq!(d, expected);
        assert_eq!(d.encode(), bits);
        for mode in 0..4u64 {
            let bits = mode << 62 | 5 << 49 | 0x3fff << 32 | 0x3fff << 16 | 0x3fff;
            assert_eq!(Descriptor::decode(bits).unwrap().encode(), bits);
        }
    }

    #[test]
    fn reserved_bits_are_refused() {
        let used = |bit: u32| matches!(bit, 0..14 | 16..30 | 32..46 | 49..52 | 62..64);
        for bit in 0..64 {
            assert_eq!(Descriptor::decode(1 << bit).is_ok(), used(bit), "bit {bit}");
        }
    }
}
