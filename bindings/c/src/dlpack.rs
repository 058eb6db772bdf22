//! Tensors of DLPack: its structs, and Atlas's tensors on their memory.

use crate::status::{Failure, Result};
use atlas::device::DeviceId;
use atlas::kernel::DType;
use atlas::{Device, Tensor};
use smallvec::SmallVec;
use std::ffi::c_void;

/// A device of DLPack: `device_type` is 1 for the CPU, 2 for CUDA, 13 for CUDA's managed memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// What kind of device it is.
    pub device_type: i32,
    /// Its number among those of its kind.
    pub device_id: i32,
}

/// An element type of DLPack: `code` is 0 for signed integers, 1 for unsigned ones, 2 for floats, 4 for bfloat,
/// 10 and 12 for e4m3fn and e5m2.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// What kind of number it is.
    pub code: u8,
    /// Its width in bits.
    pub bits: u8,
    /// Numbers per element: 1.
    pub lanes: u16,
}

/// A tensor of DLPack, whose memory belongs to the caller.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// The address of its memory.
    pub data: *mut c_void,
    /// Where it is.
    pub device: DLDevice,
    /// The number of axes.
    pub ndim: i32,
    /// The type of its elements.
    pub dtype: DLDataType,
    /// The size of each axis.
    pub shape: *mut i64,
    /// The stride of each axis, in elements. Null for a row-major tensor without gaps.
    pub strides: *mut i64,
    /// From `data` to the first element.
    pub byte_offset: u64,
}

const CPU: i32 = 1;
const CUDA: i32 = DLDevice::CUDA;
const CUDA_MANAGED: i32 = 13;

impl DLDevice {
    /// `kDLCUDA`.
    pub(crate) const CUDA: i32 = 2;

    /// The device, opened.
    pub(crate) fn open(self) -> Result<Device> {
        match (self.device_type, usize::try_from(self.device_id)) {
            (CPU, _) => Ok(Device::cpu()),
            (CUDA | CUDA_MANAGED, Ok(ordinal)) => Ok(Device::cuda(ordinal)?),
            _ => Err(Failure::misuse(format_args!("a tensor is on {self}; {KINDS}"))),
        }
    }

    fn is(self, id: DeviceId) -> bool {
        match (self.device_type, id) {
            (CPU, DeviceId::Cpu) => true,
            (CUDA | CUDA_MANAGED, DeviceId::Cuda(ordinal)) => usize::try_from(self.device_id) == Ok(ordinal),
            _ => false,
        }
    }
}

const KINDS: &str = "Atlas takes tensors on the CPU (1) and on GPUs of CUDA (2, 13)";

impl std::fmt::Display for DLDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.device_type {
            CPU => f.write_str("cpu"),
            CUDA | CUDA_MANAGED => write!(f, "cuda:{}", self.device_id),
            kind => write!(f, "device {} of DLPack's kind {kind}", self.device_id),
        }
    }
}

/// A tensor of Atlas on the memory of one of DLPack. `name` says which one it is.
///
/// # Safety
/// As `Tensor::from_raw_parts`; the struct is as DLPack says.
pub(crate) unsafe fn borrow(device: &Device, name: &dyn std::fmt::Display, of: &DLTensor) -> Result<Tensor> {
    let refuse = |why: std::fmt::Arguments<'_>| Err(Failure::misuse(format_args!("`{name}` {why}")));
    if !of.device.is(device.id()) {
        return refuse(format_args!("is on {}, but the launch is on {}; copy it there", of.device, device.id()));
    }
    let Some(dtype) = dtype(of.dtype) else {
        let DLDataType { code, bits, lanes } = of.dtype;
        return refuse(format_args!(
            "has elements of code {code}, {bits} bits and {lanes} lanes; Atlas has f64, f32, f16, bf16, i64, i32, i16, i8, u16, u8, e4m3fn and e5m2"
        ));
    };
    let Ok(rank) = usize::try_from(of.ndim) else { return refuse(format_args!("has {} axes", of.ndim)) };
    if rank > 0 && of.shape.is_null() {
        return refuse(format_args!("has {rank} axes, but its shape is null"));
    }
    let list = |at: *mut i64| match at.is_null() || rank == 0 {
        true => &[][..],
        // SAFETY: DLPack has one number for each axis.
        false => unsafe { std::slice::from_raw_parts(at, rank) },
    };
    let mut shape: SmallVec<[usize; 8]> = SmallVec::new();
    for &size in list(of.shape) {
        let Ok(size) = usize::try_from(size) else { return refuse(format_args!("has an axis of size {size}")) };
        shape.push(size);
    }
    let mut strides: SmallVec<[i64; 8]> = SmallVec::from_slice(list(of.strides));
    if of.strides.is_null() {
        strides = SmallVec::from_elem(1, rank);
        for axis in (1..rank).rev() {
            // If this overflows, an axis is empty, or the size is refused below.
            strides[axis - 1] = strides[axis].saturating_mul(i64::try_from(shape[axis].max(1)).unwrap_or(i64::MAX));
        }
    }
    if of.data.is_null() && !shape.contains(&0) {
        return refuse(format_args!("has elements, but its data is null"));
    }
    let address = (of.data.expose_provenance() as u64).wrapping_add(of.byte_offset);
    // SAFETY: the caller's promise.
    unsafe { Tensor::from_raw_parts(device, dtype, address, shape, strides) }
        .map_err(|error| Failure::from(error).of(name))
}

/// The element type of Atlas; `None` for one that it has not.
pub(crate) fn dtype(of: DLDataType) -> Option<DType> {
    match (of.code, of.bits, of.lanes) {
        (0, 8, 1) => Some(DType::I8),
        (1, 8, 1) => Some(DType::U8),
        (0, 16, 1) => Some(DType::I16),
        (1, 16, 1) => Some(DType::U16),
        (0, 32, 1) => Some(DType::I32),
        (0, 64, 1) => Some(DType::I64),
        (2, 16, 1) => Some(DType::F16),
        (2, 32, 1) => Some(DType::F32),
        (2, 64, 1) => Some(DType::F64),
        (4, 16, 1) => Some(DType::Bf16),
        // Since DLPack 1.1: kDLFloat8_e4m3fn and kDLFloat8_e5m2.
        (10, 8, 1) => Some(DType::F8E4M3),
        (12, 8, 1) => Some(DType::F8E5M2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_types_by_code_and_bits() {
        let of = |code, bits| dtype(DLDataType { code, bits, lanes: 1 });
        let signed = [8, 16, 32, 64].map(|bits| of(0, bits));
        assert_eq!(signed, [Some(DType::I8), Some(DType::I16), Some(DType::I32), Some(DType::I64)]);
        assert_eq!([8, 16, 32, 64].map(|bits| of(1, bits)), [Some(DType::U8), Some(DType::U16), None, None]);
        assert_eq!(
            [8, 16, 32, 64].map(|bits| of(2, bits)),
            [None, Some(DType::F16), Some(DType::F32), Some(DType::F64)]
        );
        assert_eq!(
            [of(4, 16), of(6, 8), dtype(DLDataType { code: 0, bits: 8, lanes: 4 })],
            [Some(DType::Bf16), None, None]
        );
        // Of the floats of 8 bits the two that GPUs convert: those of codes 7 to 9, 11, 13 and 14 have other numbers.
        let floats = (7..=14).map(|code| of(code, 8)).collect::<Vec<_>>();
        assert_eq!(floats, [None, None, None, Some(DType::F8E4M3), None, Some(DType::F8E5M2), None, None]);
    }
}
