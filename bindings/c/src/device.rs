//! Devices and streams.

use crate::status::{AtlasStatus, Failure, Result, give, handle, status, text};
use atlas::Device;
use atlas::device::Stream;
use atlas::shipping::{Bundle, Bundles};
use std::ffi::{c_char, c_void};

/// A device. Threads may share one.
pub struct AtlasDevice(pub(crate) Device);

/// A queue of launches on one device: a CUDA stream of the caller. Threads may share one.
pub struct AtlasStream(pub(crate) Stream);

/// Opens a device: `cpu`, `cuda:0` and so on, or `best`, which is the first GPU that Atlas supports, else the CPU. Opening a
/// GPU uses its primary context, which is that of CUDA's runtime, PyTorch and cudarc. If it fails, `*device` is null.
///
/// # Safety
/// `name` is a string that ends with a zero byte; `device` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_device_open(name: *const c_char, device: *mut *mut AtlasDevice) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe { give(device, || Ok(AtlasDevice(open(text("name of a device", name)?)?))) }
    })
}

fn open(name: &str) -> Result<Device> {
    match (name, name.strip_prefix("cuda:").map(str::parse)) {
        ("best", _) => Ok(Device::best()?),
        ("cpu", _) => Ok(Device::cpu()),
        (_, Some(Ok(ordinal))) => Ok(Device::cuda(ordinal)?),
        _ => Err(Failure::misuse(format_args!(
            "there is no device `{name}`; the devices are cpu, cuda:0, cuda:1 and so on, and best"
        ))),
    }
}

/// Closes a device. What was made from it stays valid. Null is ignored.
///
/// # Safety
/// The device came from `atlas_device_open`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_device_close(device: *mut AtlasDevice) {
    if !device.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(device) });
    }
}

/// Adds a bundle of compiled kernels, as `atlas bundle` writes it, to all uses of this device in the process. The bytes are
/// copied.
///
/// # Safety
/// The device is open; `bytes` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_device_add_bundle(
    device: *const AtlasDevice,
    bytes: *const u8,
    len: usize,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise.
        let device = unsafe { handle("device", device) }?;
        if bytes.is_null() {
            return Err(Failure::misuse("the bundle is null"));
        }
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, len) };
        device.0.add_bundle(
            Bundle::read("given to atlas_device_add_bundle", bytes.to_vec()).map_err(atlas::RuntimeError::from)?,
        );
        Ok(())
    })
}

/// Names a bundle for all GPUs that the process opens from now on, such as one that stands beside the library. They search it after
/// all other bundles, those too that `atlas_device_add_bundle` adds later. The file is read when the first of them is opened, and
/// never for the CPU. If it cannot be read then, launches that find no kernel say so.
///
/// # Safety
/// `path` is a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_bundle_for_gpus(path: *const c_char) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { text("path of the bundle", path) }?;
        if path.is_empty() {
            return Err(Failure::misuse("the path of the bundle is empty; name a file of `atlas bundle`"));
        }
        Bundles::name_for_gpus(path);
        Ok(())
    })
}

/// Waits until everything queued on the device has run. Reports a fault of an earlier launch.
///
/// # Safety
/// The device is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_device_synchronize(device: *const AtlasDevice) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise.
        let device = unsafe { handle("device", device) }?;
        Ok(device.0.synchronize()?)
    })
}

/// Wraps a CUDA stream: a `CUstream`, which is a `cudaStream_t`. Null is CUDA's legacy default stream, and on the CPU the only
/// choice. Keep the result for many launches, because it owns what they need besides their arguments. If it fails, `*stream` is null.
///
/// # Safety
/// The device is open; `cuda_stream` is a stream of the device's primary context and lives as long as the result; `stream`
/// is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_stream_open(
    device: *const AtlasDevice,
    cuda_stream: *mut c_void,
    stream: *mut *mut AtlasStream,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe { give(stream, || Ok(AtlasStream(stream_of(&handle("device", device)?.0, cuda_stream)))) }
    })
}

/// The stream of a handle.
///
/// # Safety
/// As `Stream::from_raw`.
pub(crate) unsafe fn stream_of(device: &Device, handle: *mut c_void) -> Stream {
    match handle.is_null() || device.is_cpu() {
        true => device.default_stream(),
        // SAFETY: the caller's promise.
        false => unsafe { Stream::from_raw(device, handle) },
    }
}

/// The stream of a launch by what runs on a device: the device's default stream for null.
///
/// # Safety
/// The stream is null, or open.
pub(crate) unsafe fn stream_on(device: &Device, stream: *const AtlasStream) -> Result<Stream> {
    // SAFETY: the caller's promise.
    match unsafe { stream.as_ref() } {
        Some(stream) if stream.0.device() == device => Ok(stream.0.clone()),
        Some(stream) => {
            let (found, wanted) = (stream.0.device().id(), device.id());
            Err(Failure::misuse(format_args!("the stream is of {found}, but the launch is on {wanted}")))
        }
        None => Ok(device.default_stream()),
    }
}

/// Closes a stream of `atlas_stream_open`, but not the CUDA stream. Launches that are queued still run. Null is ignored.
///
/// # Safety
/// The stream came from `atlas_stream_open`, and is not used again; its CUDA stream is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_stream_close(stream: *mut AtlasStream) {
    if !stream.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(stream) });
    }
}
