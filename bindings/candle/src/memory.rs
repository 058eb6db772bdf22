//! From a storage and a layout of candle to a tensor of Atlas in the same memory, for every operation alike.

use crate::error::{of_atlas, refuse};
use atlas::device::Stream;
use atlas::kernel::DType;
use candle_core::{CpuStorage, Layout, Result, Storage};

#[cfg(feature = "cuda")]
use crate::cuda;
#[cfg(feature = "cuda")]
use candle_core::{CudaDevice, CudaStorage};

/// The storage of an argument, on either device.
#[derive(Clone, Copy)]
pub(crate) enum Memory<'a> {
    Cpu(&'a CpuStorage),
    #[cfg(feature = "cuda")]
    Cuda(&'a CudaStorage),
}

/// The storage of a result, on either device.
pub(crate) enum MemoryMut<'a> {
    Cpu(&'a mut CpuStorage),
    #[cfg(feature = "cuda")]
    Cuda(&'a mut CudaStorage),
}

/// Where an operation runs.
#[derive(Clone)]
pub(crate) enum Place {
    Cpu,
    #[cfg(feature = "cuda")]
    Cuda(CudaDevice),
}

/// A tensor of Atlas in memory of candle, as long as that is borrowed.
pub(crate) struct Borrowed<'a> {
    pub(crate) tensor: atlas::Tensor,
    /// Tells candle's streams, when it is dropped, that work with the memory was queued.
    #[cfg(feature = "cuda")]
    _queued: Option<cuda::Queued<'a>>,
    _memory: std::marker::PhantomData<&'a ()>,
}

#[cfg(feature = "cuda")]
impl<'a> Borrowed<'a> {
    /// The same, which tells candle's streams when it is dropped.
    pub(crate) fn until(self, queued: cuda::Queued<'a>) -> Borrowed<'a> {
        Borrowed { _queued: Some(queued), ..self }
    }
}

/// Where the elements of a storage are.
#[derive(Clone, Copy)]
pub(crate) struct Elements {
    pub(crate) dtype: DType,
    pub(crate) address: u64,
    pub(crate) count: usize,
}

/// Calls `$body` with the elements of a storage if Atlas has their type, which is `$dtype` there.
macro_rules! each_type {
    ($of:ident, $storage:expr, |$dtype:ident, $elements:ident| $body:expr) => {
        each_type!(@arms $of, $storage, $dtype, $elements, $body,
            (F32, F32), (F16, F16), (BF16, Bf16), (F64, F64), (I32, I32), (I64, I64))
    };
    (@arms $of:ident, $storage:expr, $dtype:ident, $elements:ident, $body:expr, $(($candle:ident, $atlas:ident)),+) => {
        match $storage {
            $($of::$candle($elements) => { let $dtype = DType::$atlas; Some($body) })+
            _ => None,
        }
    };
}
#[cfg(feature = "cuda")]
pub(crate) use each_type;

impl<'a> Memory<'a> {
    pub(crate) fn place(self) -> Place {
        match self {
            Memory::Cpu(_) => Place::Cpu,
            #[cfg(feature = "cuda")]
            Memory::Cuda(storage) => Place::Cuda(storage.device.clone()),
        }
    }

    /// The tensor of Atlas that an argument is. `name` is that of the operation.
    pub(crate) fn borrow(self, name: &str, layout: &Layout) -> Result<Borrowed<'a>> {
        match self {
            Memory::Cpu(storage) => {
                let elements = each_type!(CpuStorage, storage, |dtype, of| Elements {
                    dtype,
                    address: of.as_ptr().expose_provenance() as u64,
                    count: of.len(),
                });
                // SAFETY: the storage is borrowed for as long as the result. What operations promise sees to it that it is read only.
                unsafe { borrowed(name, &atlas::Device::cpu(), elements, storage.dtype_name(), layout) }
            }
            #[cfg(feature = "cuda")]
            Memory::Cuda(storage) => cuda::borrow(name, storage, layout),
        }
    }
}

impl<'a> MemoryMut<'a> {
    /// The tensor of Atlas that a result is.
    pub(crate) fn borrow(self, name: &str, layout: &Layout) -> Result<Borrowed<'a>> {
        match self {
            MemoryMut::Cpu(storage) => {
                let kind = storage.dtype_name();
                let elements = each_type!(CpuStorage, storage, |dtype, of| Elements {
                    dtype,
                    count: of.len(),
                    address: of.as_mut_ptr().expose_provenance() as u64,
                });
                // SAFETY: the storage is borrowed, by nobody else, for as long as the result.
                unsafe { borrowed(name, &atlas::Device::cpu(), elements, kind, layout) }
            }
            #[cfg(feature = "cuda")]
            MemoryMut::Cuda(storage) => cuda::borrow_mut(name, storage, layout),
        }
    }

    pub(crate) fn of(storage: &'a mut Storage) -> Result<MemoryMut<'a>> {
        match storage {
            Storage::Cpu(storage) => Ok(MemoryMut::Cpu(storage)),
            #[cfg(feature = "cuda")]
            Storage::Cuda(storage) => Ok(MemoryMut::Cuda(storage)),
            _ => Err(refuse(611, "a tensor is on a device that Atlas does not have; it has the CPU and NVIDIA's GPUs")),
        }
    }
}

impl Place {
    /// Whether candle works there on the same stream of the same device.
    pub(crate) fn is(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Cpu, Place::Cpu) => true,
            #[cfg(feature = "cuda")]
            (Place::Cuda(one), Place::Cuda(other)) => candle_core::backend::BackendDevice::same_device(one, other),
            #[cfg(feature = "cuda")]
            (Place::Cpu, Place::Cuda(_)) | (Place::Cuda(_), Place::Cpu) => false,
        }
    }

    /// The stream on which candle works there.
    pub(crate) fn stream(&self) -> Result<Stream> {
        match self {
            Place::Cpu => Ok(atlas::Device::cpu().default_stream()),
            #[cfg(feature = "cuda")]
            Place::Cuda(device) => cuda::stream(device),
        }
    }

    /// Memory for a result of so many elements.
    pub(crate) fn allocate(&self, dtype: DType, count: usize) -> Result<Storage> {
        match self {
            Place::Cpu => Ok(Storage::Cpu(match dtype {
                DType::F32 => CpuStorage::F32(vec![Default::default(); count]),
                DType::F16 => CpuStorage::F16(vec![Default::default(); count]),
                DType::Bf16 => CpuStorage::BF16(vec![Default::default(); count]),
                DType::F64 => CpuStorage::F64(vec![Default::default(); count]),
                DType::I32 => CpuStorage::I32(vec![Default::default(); count]),
                DType::I64 => CpuStorage::I64(vec![Default::default(); count]),
                other => return Err(unknown("a result", other)),
            })),
            #[cfg(feature = "cuda")]
            Place::Cuda(device) => cuda::allocate(device, dtype, count),
        }
    }
}

/// What a storage holds, for messages.
trait Kind {
    fn dtype_name(&self) -> &'static str;
}

impl Kind for CpuStorage {
    fn dtype_name(&self) -> &'static str {
        candle_core::backend::BackendStorage::dtype(self).as_str()
    }
}

/// An element type that one of the two libraries does not have.
pub(crate) fn unknown(what: &str, found: impl std::fmt::Display) -> candle_core::Error {
    refuse(605, format_args!("{what} holds {found}, which Atlas does not take; convert to f32, f16, bf16, f64, i32 or i64 by `to_dtype`"))
}

/// A tensor of Atlas at the elements of a layout.
///
/// # Safety
/// As `Tensor::from_raw_parts`, of all elements. The result does not outlive what they belong to.
pub(crate) unsafe fn borrowed<'a>(
    name: &str,
    device: &atlas::Device,
    elements: Option<Elements>,
    kind: &str,
    layout: &Layout,
) -> Result<Borrowed<'a>> {
    let Some(Elements { dtype, address, count }) = elements else {
        return Err(unknown(&format!("a tensor of `{name}`"), kind));
    };
    // A layout is made by safe code, so it may reach anywhere.
    let (dims, strides) = (layout.dims(), layout.stride());
    let reach = dims.iter().zip(strides).try_fold(layout.start_offset(), |at, (&size, &stride)| {
        at.checked_add(size.saturating_sub(1).checked_mul(stride)?)
    });
    let is_empty = dims.contains(&0);
    if !is_empty && reach.is_none_or(|last| last >= count) {
        return Err(refuse(
            631,
            format_args!("a tensor of `{name}` has {layout:?}, which reaches outside its storage of {count} elements"),
        ));
    }
    let offset = if is_empty { 0 } else { layout.start_offset() as u64 };
    let strides: Vec<i64> = strides.iter().map(|&stride| i64::try_from(stride).unwrap_or(i64::MAX)).collect();
    let address = address + offset * u64::from(dtype.bytes());
    // SAFETY: the caller's promise; the elements lie inside, as was checked.
    let tensor = unsafe { atlas::Tensor::from_raw_parts(device, dtype, address, dims, strides) }.map_err(of_atlas)?;
    Ok(Borrowed {
        tensor,
        #[cfg(feature = "cuda")]
        _queued: None,
        _memory: std::marker::PhantomData,
    })
}
