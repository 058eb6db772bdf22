//! From a storage and a layout of candle to a tensor of Atlas in the same memory, for every operation alike.

use crate::elements::{Elements, each_type, tensor_at, unknown};
use crate::error::refuse;
use atlas::device::Stream;
use atlas::kernel::DType;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, Layout, Result, Storage};
use std::marker::PhantomData;

#[cfg(feature = "cuda")]
use crate::cuda;
#[cfg(feature = "cuda")]
use candle_core::{CudaDevice, CudaStorage};

/// The storage of an argument, on either device.
#[derive(Clone, Copy)]
pub(crate) enum Operand<'a> {
    Cpu(&'a CpuStorage),
    #[cfg(feature = "cuda")]
    Cuda(&'a CudaStorage),
}

/// The storage of a result, on either device.
pub(crate) enum OperandMut<'a> {
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
    _memory: PhantomData<&'a ()>,
}

impl Borrowed<'_> {
    /// A tensor in memory of the host.
    fn on_host(tensor: atlas::Tensor) -> Self {
        Borrowed {
            tensor,
            #[cfg(feature = "cuda")]
            _queued: None,
            _memory: PhantomData,
        }
    }
}

/// A tensor is not where the launches are.
#[cfg(feature = "cuda")]
fn elsewhere(name: &str) -> candle_core::Error {
    refuse(611, format_args!("the tensors of `{name}` are on several devices; move them to one"))
}

impl<'a> Operand<'a> {
    pub(crate) fn place(self) -> Place {
        match self {
            Operand::Cpu(_) => Place::Cpu,
            #[cfg(feature = "cuda")]
            Operand::Cuda(storage) => Place::Cuda(storage.device.clone()),
        }
    }

    /// The tensor of Atlas that an argument is, for launches in a place. `name` is that of the operation.
    pub(crate) fn borrow(self, name: &str, layout: &Layout, place: &Place) -> Result<Borrowed<'a>> {
        match (self, place) {
            (Operand::Cpu(storage), Place::Cpu) => {
                let elements = each_type!(CpuStorage, storage, |dtype, of| Elements {
                    dtype,
                    address: of.as_ptr().expose_provenance() as u64,
                    count: of.len(),
                });
                // SAFETY: the storage is borrowed for as long as the result. What operations promise sees to it that it is read only.
                let made =
                    unsafe { tensor_at(name, &atlas::Device::cpu(), elements, storage.dtype().as_str(), layout) }?;
                Ok(Borrowed::on_host(made))
            }
            #[cfg(feature = "cuda")]
            (Operand::Cuda(storage), Place::Cuda(device)) if cuda::is_same_gpu(&storage.device, device) => {
                let (tensor, queued) = cuda::borrow(name, storage, layout, device)?;
                Ok(Borrowed { tensor, _queued: Some(queued), _memory: PhantomData })
            }
            #[cfg(feature = "cuda")]
            _ => Err(elsewhere(name)),
        }
    }
}

impl<'a> OperandMut<'a> {
    /// The tensor of Atlas that a result is, for launches in a place.
    pub(crate) fn borrow(self, name: &str, layout: &Layout, place: &Place) -> Result<Borrowed<'a>> {
        match (self, place) {
            (OperandMut::Cpu(storage), Place::Cpu) => {
                let kind = storage.dtype().as_str();
                let elements = each_type!(CpuStorage, storage, |dtype, of| Elements {
                    dtype,
                    count: of.len(),
                    address: of.as_mut_ptr().expose_provenance() as u64,
                });
                // SAFETY: the storage is borrowed, by nobody else, for as long as the result.
                let made = unsafe { tensor_at(name, &atlas::Device::cpu(), elements, kind, layout) }?;
                Ok(Borrowed::on_host(made))
            }
            #[cfg(feature = "cuda")]
            (OperandMut::Cuda(storage), Place::Cuda(device)) if cuda::is_same_gpu(&storage.device, device) => {
                let (tensor, queued) = cuda::borrow_mut(name, storage, layout, device)?;
                Ok(Borrowed { tensor, _queued: Some(queued), _memory: PhantomData })
            }
            #[cfg(feature = "cuda")]
            _ => Err(elsewhere(name)),
        }
    }

    pub(crate) fn of(storage: &'a mut Storage) -> Result<OperandMut<'a>> {
        match storage {
            Storage::Cpu(storage) => Ok(OperandMut::Cpu(storage)),
            #[cfg(feature = "cuda")]
            Storage::Cuda(storage) => Ok(OperandMut::Cuda(storage)),
            _ => Err(refuse(611, "a tensor is on a device that Atlas does not have; it has the CPU and NVIDIA's GPUs")),
        }
    }
}

impl Place {
    /// The stream on which candle works there.
    pub(crate) fn stream(&self) -> Result<Stream> {
        match self {
            Place::Cpu => Ok(atlas::Device::cpu().default_stream()),
            #[cfg(feature = "cuda")]
            Place::Cuda(device) => cuda::stream(device),
        }
    }

    /// Allocates a result of `count` elements.
    pub(crate) fn allocate(&self, dtype: DType, count: usize) -> Result<Storage> {
        match self {
            Place::Cpu => Ok(Storage::Cpu(match dtype {
                DType::F32 => CpuStorage::F32(vec![Default::default(); count]),
                DType::F16 => CpuStorage::F16(vec![Default::default(); count]),
                DType::Bf16 => CpuStorage::BF16(vec![Default::default(); count]),
                DType::F64 => CpuStorage::F64(vec![Default::default(); count]),
                DType::I32 => CpuStorage::I32(vec![Default::default(); count]),
                DType::I64 => CpuStorage::I64(vec![Default::default(); count]),
                DType::F8E4M3 => CpuStorage::F8E4M3(vec![Default::default(); count]),
                other => return Err(unknown("a result", other)),
            })),
            #[cfg(feature = "cuda")]
            Place::Cuda(device) => cuda::allocate(device, dtype, count),
        }
    }
}
