//! The devices that tests run on.
//!
//! Without the feature `cuda`, or without `ATLAS_CANDLE_CUDA=1` in the environment, they run on the CPU alone. With both, they run on the
//! CPU and on the first GPU, there on both streams that candle has: that of `Device::new_cuda` and one of `Device::new_cuda_with_stream`.

use candle_core::{DType, Device, Tensor};
#[cfg(feature = "cuda")]
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held while a device is opened, and while a stream records a graph: to open a device with a stream waits for the whole context,
/// which the driver refuses while any stream records.
#[cfg(feature = "cuda")]
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first GPU on candle's default stream, which all such devices share in a thread.
#[cfg(feature = "cuda")]
pub(crate) fn on_default_stream() -> Device {
    let _alone = alone();
    Device::new_cuda(0).expect("a GPU")
}

/// The first GPU on a stream of its own.
#[cfg(feature = "cuda")]
pub(crate) fn on_own_stream() -> Device {
    let _alone = alone();
    Device::new_cuda_with_stream(0).expect("a GPU")
}

/// Devices of this thread: candle's default stream is another one in each thread, and one cuBLAS handle serves one thread.
#[cfg(feature = "cuda")]
pub(crate) fn gpus() -> Vec<Device> {
    thread_local! {
        static GPUS: Vec<Device> = if std::env::var_os("ATLAS_CANDLE_CUDA").is_some_and(|on| on == "1") {
            vec![on_default_stream(), on_own_stream()]
        } else {
            Vec::new()
        };
    }
    GPUS.with(Clone::clone)
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn gpus() -> Vec<Device> {
    Vec::new()
}

/// The CPU, and the GPU if tests run on it.
pub(crate) fn devices() -> Vec<Device> {
    std::iter::once(Device::Cpu).chain(gpus()).collect()
}

pub(crate) fn to(device: &Device, x: &Tensor) -> Tensor {
    x.to_device(device).unwrap()
}

/// A tensor on the CPU, in f64.
pub(crate) fn on_host(x: &Tensor) -> Tensor {
    x.to_device(&Device::Cpu).unwrap().to_dtype(DType::F64).unwrap()
}

/// A tensor on the device of another one, and in its element type.
pub(crate) fn beside(x: &Tensor, other: &Tensor) -> Tensor {
    to(other.device(), &x.to_dtype(other.dtype()).unwrap())
}

/// A tensor without elements, as part of one that has some: the driver of a GPU allocates no zero bytes.
pub(crate) fn none(device: &Device, shape: &[usize]) -> Tensor {
    let room: Vec<usize> = shape.iter().map(|&size| size.max(1)).collect();
    let mut x = Tensor::zeros(room, DType::F32, device).unwrap();
    for (axis, _) in shape.iter().enumerate().filter(|&(_, &size)| size == 0) {
        x = x.narrow(axis, 0, 0).unwrap();
    }
    x
}
