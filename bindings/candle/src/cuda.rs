//! From candle's CUDA storage to a tensor of Atlas in the same memory, on candle's stream and in its context.
//!
//! Both libraries use the primary context of a GPU, and number GPUs as the driver does. So an address of one is an address of the other.

use crate::elements::{Elements, each_type, tensor_at, unknown};
use crate::error::{of_atlas, refuse};
use atlas::device::Stream;
use atlas::kernel::DType;
use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::CudaStorageSlice;
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr};
use candle_core::{CudaDevice, CudaStorage, Layout, Result};
use std::sync::Arc;

/// Memory that launches use which were queued on a stream. Dropped behind them, it tells the memory's other streams to wait.
pub(crate) struct Queued<'a> {
    /// The stream of the launches.
    on: Arc<CudaStream>,
    /// The stream of the operand's device, if that is another one.
    of: Option<Arc<CudaStream>>,
    memory: Use<'a>,
}

/// How launches use memory.
enum Use<'a> {
    Read(&'a CudaStorageSlice),
    Write(&'a mut CudaStorageSlice),
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        // cudarc records an event when it drops what comes with an address. It does nothing as long as there is one stream.
        match &mut self.memory {
            Use::Read(slice) => each_type!(CudaStorageSlice, *slice, |_dtype, of| drop(of.device_ptr(&self.on))),
            Use::Write(slice) => {
                each_type!(CudaStorageSlice, &mut **slice, |_dtype, of| drop(of.device_ptr_mut(&self.on)))
            }
        };
        if let Some(of) = &self.of {
            of.context().record_err(of.join(&self.on));
        }
    }
}

/// The stream of an operand's device, if launches are on another one, which then waits for it.
///
/// Events of the memory alone would not do: a device of `CudaDevice::new` has none, because it has one stream.
fn other_stream(operand: &CudaDevice, on: &CudaStream) -> Result<Option<Arc<CudaStream>>> {
    let of = operand.cuda_stream();
    if *of == *on {
        return Ok(None);
    }
    on.join(&of).map_err(candle_core::Error::wrap)?;
    Ok(Some(of))
}

/// The number of a GPU of candle.
fn ordinal(device: &CudaDevice) -> usize {
    device.cuda_stream().context().ordinal()
}

fn open(device: &CudaDevice) -> Result<atlas::Device> {
    atlas::Device::cuda(ordinal(device)).map_err(of_atlas)
}

/// The stream of a device of candle.
pub(crate) fn stream(device: &CudaDevice) -> Result<Stream> {
    let raw = device.cuda_stream().cu_stream();
    // SAFETY: a stream of the primary context, which lives as long as candle's device. Callers hold that for as long as the result, and
    // operations promise to keep no stream. What they allocate is in its order.
    Ok(unsafe { Stream::from_raw(&open(device)?, raw.cast()) })
}

/// Safe code can join memory of one GPU, or of a context that is not the primary one, and the device of another.
fn same_gpu<T>(name: &str, slice: &CudaSlice<T>, device: &CudaDevice) -> Result<()> {
    if slice.context() == device.cuda_stream().context() {
        return Ok(());
    }
    let (found, wanted) = (slice.ordinal(), ordinal(device));
    let context = if found == wanted { "another context of " } else { "" };
    Err(refuse(
        611,
        format_args!("a tensor of `{name}` is of cuda:{wanted}, but its memory is of {context}cuda:{found}"),
    ))
}

/// Whether two devices are one GPU. They may have streams of their own.
pub(crate) fn is_same_gpu(one: &CudaDevice, other: &CudaDevice) -> bool {
    ordinal(one) == ordinal(other)
}

/// The tensor of Atlas that an argument is, for launches on the stream of a device of the same GPU.
pub(crate) fn borrow<'a>(
    name: &str,
    storage: &'a CudaStorage,
    layout: &Layout,
    launches: &CudaDevice,
) -> Result<(atlas::Tensor, Queued<'a>)> {
    let on = launches.cuda_stream();
    let of = other_stream(&storage.device, &on)?;
    let elements = each_type!(CudaStorageSlice, &storage.slice, |dtype, of| {
        same_gpu(name, of, &storage.device)?;
        // The stream waits for who writes it. `Queued` records the use, which is yet to come.
        let (address, recorded_early) = of.device_ptr(&on);
        std::mem::forget(recorded_early);
        Elements { dtype, address, count: of.len() }
    });
    let queued = Queued { on, of, memory: Use::Read(&storage.slice) };
    // SAFETY: the storage is borrowed for as long as the result, and freed behind what was queued. What operations promise sees to it that
    // it is read only, on the stream that waited.
    let made = unsafe { tensor_at(name, &open(&storage.device)?, elements, storage.dtype().as_str(), layout) }?;
    Ok((made, queued))
}

/// The tensor of Atlas that a result is, for launches on the stream of a device of the same GPU.
pub(crate) fn borrow_mut<'a>(
    name: &str,
    storage: &'a mut CudaStorage,
    layout: &Layout,
    launches: &CudaDevice,
) -> Result<(atlas::Tensor, Queued<'a>)> {
    let (on, kind) = (launches.cuda_stream(), storage.dtype().as_str());
    let of = other_stream(&storage.device, &on)?;
    let elements = each_type!(CudaStorageSlice, &mut storage.slice, |dtype, of| {
        same_gpu(name, of, &storage.device)?;
        let count = of.len();
        // As in `borrow`; it waits for who reads it, too.
        let (address, recorded_early) = of.device_ptr_mut(&on);
        std::mem::forget(recorded_early);
        Elements { dtype, address, count }
    });
    let device = open(&storage.device)?;
    let queued = Queued { on, of, memory: Use::Write(&mut storage.slice) };
    // SAFETY: the storage is borrowed, by nobody else, for as long as the result, and freed behind what was queued.
    let made = unsafe { tensor_at(name, &device, elements, kind, layout) }?;
    Ok((made, queued))
}

/// Allocates a result of `count` elements.
pub(crate) fn allocate(device: &CudaDevice, dtype: DType, count: usize) -> Result<candle_core::Storage> {
    let slice = match dtype {
        DType::F32 => CudaStorageSlice::F32(room(device, count)?),
        DType::F16 => CudaStorageSlice::F16(room(device, count)?),
        DType::Bf16 => CudaStorageSlice::BF16(room(device, count)?),
        DType::F64 => CudaStorageSlice::F64(room(device, count)?),
        DType::I32 => CudaStorageSlice::I32(room(device, count)?),
        DType::I64 => CudaStorageSlice::I64(room(device, count)?),
        DType::F8E4M3 => CudaStorageSlice::F8E4M3(room(device, count)?),
        other => return Err(unknown("a result", other)),
    };
    Ok(candle_core::Storage::Cuda(CudaStorage { slice, device: device.clone() }))
}

fn room<T: DeviceRepr>(device: &CudaDevice, count: usize) -> Result<CudaSlice<T>> {
    // The driver allocates no zero bytes.
    // SAFETY: kernels write all of it before anybody reads it. A number of any bits is a number.
    unsafe { device.alloc(count.max(1)) }
}

/// Memory of no elements.
pub(crate) fn nothing(device: &CudaDevice) -> Result<CudaStorage> {
    Ok(CudaStorage { slice: CudaStorageSlice::F32(room(device, 0)?), device: device.clone() })
}
