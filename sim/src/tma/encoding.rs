//! A tensor map as the 128 bytes that a kernel parameter holds.
//!
//! The encoding is the simulator's own, because NVIDIA's is opaque. A map that the driver made is refused. In order: magic,
//! codes of type, rank, swizzle and fill, address, dims, strides, box, element strides, checksum.

use crate::fault::Result;
use crate::tensor::swizzle::Swizzle;
use crate::tma::map::{Element, Fill, TensorMap, illegal};

/// Bytes of an encoded map, which is also how `CUtensorMap` is sized.
pub const BYTES: usize = 128;

/// Alignment that an encoded map needs in memory.
pub const ALIGN: u64 = 64;

const MAGIC: [u8; 8] = *b"SIMTMAP1";
const CHECKSUM: usize = 120;

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl TensorMap {
    /// Encodes the map.
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = MAGIC.to_vec();
        let element = Element::ALL.iter().position(|&e| e == self.element).unwrap_or(0);
        let swizzle = Swizzle::ALL.iter().position(|&s| s == self.swizzle).unwrap_or(0);
        bytes.extend([element as u8, self.rank as u8, swizzle as u8, self.fill as u8, 0, 0, 0, 0]);
        bytes.extend(self.address.to_le_bytes());
        bytes.extend(self.dims.iter().flat_map(|d| d.to_le_bytes()));
        bytes.extend(self.strides_bytes.iter().flat_map(|s| s.to_le_bytes()));
        bytes.extend(self.box_dims.iter().flat_map(|&b| (b as u16).to_le_bytes()));
        bytes.extend(self.element_strides.iter().map(|&s| s as u8));
        bytes.resize(CHECKSUM, 0);
        bytes.extend(checksum(&bytes).to_le_bytes());
        let mut encoded = [0; BYTES];
        encoded.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        encoded
    }

    /// Decodes and validates a map.
    pub fn from_bytes(bytes: &[u8; BYTES]) -> Result<TensorMap> {
        let (body, sum) = bytes.split_at(CHECKSUM);
        if !body.starts_with(&MAGIC) {
            return Err(illegal("these 128 bytes hold none".into()));
        }
        if sum != checksum(body).to_le_bytes() {
            return Err(illegal("its bytes are damaged: the checksum does not match".into()));
        }
        let byte = |at: usize| body.get(at).copied().unwrap_or(0);
        let word = |at: usize| (0..8).rev().fold(0, |value, i| value << 8 | u64::from(byte(at + i)));
        let (Some(&element), Some(&swizzle)) =
            (Element::ALL.get(usize::from(byte(8))), Swizzle::ALL.get(usize::from(byte(10))))
        else {
            return Err(illegal("unknown type or swizzle".into()));
        };
        let map = TensorMap {
            element,
            rank: byte(9).into(),
            address: word(16),
            dims: std::array::from_fn(|d| word(24 + 8 * d)),
            strides_bytes: std::array::from_fn(|d| word(64 + 8 * d)),
            box_dims: std::array::from_fn(|d| u32::from(byte(104 + 2 * d)) | u32::from(byte(105 + 2 * d)) << 8),
            element_strides: std::array::from_fn(|d| byte(114 + d).into()),
            swizzle,
            fill: if byte(11) == 0 { Fill::Zeros } else { Fill::Nan },
        };
        map.validate()?;
        Ok(map)
    }
}
