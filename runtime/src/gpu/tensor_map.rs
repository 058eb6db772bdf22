//! Tensor maps of one launch, and the 128 bytes that a kernel gets of each.
//!
//! The driver encodes a map for its GPUs, in about 50 ns; the simulator has an encoding of its own. So each launch encodes its
//! maps, and nothing keeps them.

use super::context::Context;
use super::driver::Api;
use crate::error::{DeviceError, Result};
use atlas_codegen::{MapExtents, TensorMapData};
use atlas_dsl::DType;
use std::ffi::c_void;

/// A map as the driver writes it, at the alignment that it demands.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct EncodedMap(pub(crate) [u8; 128]);

impl EncodedMap {
    /// Bytes of no map.
    pub(crate) const EMPTY: EncodedMap = EncodedMap([0; 128]);
}

/// A tensor map of one launch, but for the tensor's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundMap {
    /// The argument whose tensor it is of.
    pub argument: usize,
    pub(crate) dtype: DType,
    pub(crate) map: TensorMapData,
    pub(crate) extents: MapExtents,
}

impl BoundMap {
    /// The map of a tensor of these sizes and strides, in elements; `None` if the copy engine takes no such tensor.
    pub fn new(map: &TensorMapData, dtype: DType, sizes: &[u64], strides: &[i64]) -> Option<BoundMap> {
        let extents = map.extents(sizes, strides, dtype.bytes())?;
        Some(BoundMap { argument: map.param.as_u32() as usize, dtype, map: map.clone(), extents })
    }

    /// The map as the driver encodes it for its GPUs. `api` is the driver's, with the context current.
    pub(crate) fn encode(&self, context: &Context, api: &Api, address: u64) -> Result<EncodedMap> {
        let Some(encode) = api.tensor_map_encode else {
            return Err(DeviceError::DriverTooOld {
                found: "one that lacks `cuTensorMapEncodeTiled`".to_owned(),
                wanted: "12.0".to_owned(),
            }
            .into());
        };
        let rank = self.map.axes.len();
        let boxes: Vec<u32> = self.map.axes.iter().map(|a| a.size).collect();
        let steps = [1_u32; atlas_codegen::layout::tensor_map::MOST_AXES];
        let mut encoded = EncodedMap::EMPTY;
        // SAFETY: an out-pointer to 128 bytes at a multiple of 64, and live arrays of `rank` numbers, or of one less; the driver
        // reads nothing at the address. No interleave, promotion of L2 to 128 bytes, and zeros out of bounds.
        let status = unsafe {
            encode(
                encoded.0.as_mut_ptr().cast(),
                element_code(self.dtype),
                rank as u32,
                address as *mut c_void,
                self.extents.sizes.as_ptr(),
                self.extents.strides.as_ptr(),
                boxes.as_ptr(),
                steps.as_ptr(),
                0,
                swizzle_code(self.map.span),
                PROMOTE_128,
                0,
            )
        };
        context.check("cuTensorMapEncodeTiled", status)?;
        Ok(encoded)
    }

    /// The map as the simulator encodes it.
    #[cfg(feature = "sim")]
    pub fn simulated(&self, address: u64) -> [u8; 128] {
        use atlas_sim::tensor::swizzle::Swizzle;
        use atlas_sim::tma::map::{Element, Fill, TensorMap};
        let element = match self.dtype {
            DType::Bf16 => Element::Bf16,
            DType::F16 => Element::F16,
            DType::F32 => Element::F32,
            DType::F64 => Element::F64,
            DType::I32 => Element::I32,
            DType::I64 => Element::I64,
            DType::I16 | DType::U16 => Element::U16,
            DType::Bool | DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => Element::U8,
        };
        let swizzle = match self.map.span {
            32 => Swizzle::B32,
            64 => Swizzle::B64,
            128 => Swizzle::B128,
            _ => Swizzle::None,
        };
        let mut map = TensorMap {
            element,
            rank: self.map.axes.len() as u32,
            address,
            dims: self.extents.sizes.map(|n| n.max(1)),
            strides_bytes: [0; 5],
            box_dims: [1; 5],
            element_strides: [1; 5],
            swizzle,
            fill: Fill::Zeros,
        };
        map.strides_bytes[1..].copy_from_slice(&self.extents.strides);
        map.box_dims.iter_mut().zip(&self.map.axes).for_each(|(place, axis)| *place = axis.size);
        map.to_bytes()
    }
}

/// `CU_TENSOR_MAP_L2_PROMOTION_L2_128B`.
const PROMOTE_128: u32 = 2;

/// A type by its number in `CUtensorMapDataType`.
const fn element_code(dtype: DType) -> u32 {
    match dtype {
        // The engine moves bits: it has no signed elements of 8 and 16 bits, and no floats of 8.
        DType::Bool | DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => 0,
        DType::I16 | DType::U16 => 1,
        DType::I32 => 3,
        DType::I64 => 5,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::Bf16 => 9,
    }
}

/// A span by its number in `CUtensorMapSwizzle`.
const fn swizzle_code(span: u32) -> u32 {
    match span {
        32 => 1,
        64 => 2,
        128 => 3,
        _ => 0,
    }
}
