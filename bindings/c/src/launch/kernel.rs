//! Launches of kernels, by name or prepared.

use crate::calls::{AtlasArg, arguments};
use crate::device::{AtlasDevice, AtlasStream};
use crate::kernels::find;
use crate::status::{AtlasStatus, Failure, give, handle, status};
use atlas::kernel::{Launch, PreparedLaunch};
use std::ffi::c_char;

/// A kernel that is ready for one problem: sizes, strides, types and alignments of its arguments.
pub struct AtlasPrepared(PreparedLaunch);

/// Launches a kernel: on a stream of `atlas_stream_open`, or on the device's default stream if that is null. On a GPU it is
/// queued, and on the CPU done, when this returns.
///
/// If the arguments do not fit the kernel, nothing is written. A CUDA graph may record the launch if `atlas_prepare` was called
/// for such arguments, and what it gave lives as long as the graph.
///
/// # Safety
/// Device and stream are open. `kernel` is a string that ends with a zero byte. `args` has `count` arguments. Tensors are
/// as DLPack says: their memory, from the first element to the last, is allocated until the launch has run, and no other work that is
/// not ordered with the stream writes what the kernel reads, or touches what it writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_launch(
    device: *const AtlasDevice,
    stream: *const AtlasStream,
    kernel: *const c_char,
    args: *const AtlasArg,
    count: usize,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise, here and below.
        let (device, kernel) = unsafe { (handle("device", device)?, find(kernel)?) };
        // SAFETY: as above.
        let mut arguments = unsafe { arguments(&device.0, kernel, args, count) }?;
        // SAFETY: as above.
        match unsafe { stream.as_ref() } {
            Some(stream) if *stream.0.device() == device.0 => kernel.launch_on(&stream.0, arguments.list())?,
            Some(stream) => {
                let (found, wanted) = (stream.0.device().id(), device.0.id());
                return Err(Failure::misuse(format_args!("the stream is of {found}, but the launch is on {wanted}")));
            }
            None => kernel.launch(&device.0, arguments.list())?,
        }
        Ok(())
    })
}

/// Makes a kernel ready for arguments such as these: chooses its config and loads its code. Nothing runs. If it fails,
/// `*prepared` is null.
///
/// # Safety
/// As `atlas_launch`; `prepared` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_prepare(
    device: *const AtlasDevice,
    kernel: *const c_char,
    args: *const AtlasArg,
    count: usize,
    prepared: *mut *mut AtlasPrepared,
) -> AtlasStatus {
    status(|| {
        let ready = || {
            // SAFETY: the caller's promise, here and below.
            let (device, kernel) = unsafe { (handle("device", device)?, find(kernel)?) };
            // SAFETY: as above.
            let mut arguments = unsafe { arguments(&device.0, kernel, args, count) }?;
            Ok(AtlasPrepared(kernel.prepare(&device.0, arguments.list())?))
        };
        // SAFETY: as above.
        unsafe { give(prepared, ready) }
    })
}

/// Launches a prepared kernel with arguments of the same sizes, strides, types and alignments: on a stream of `atlas_stream_open`,
/// or on the device's default stream if that is null.
///
/// # Safety
/// As `atlas_launch`; `prepared` came from `atlas_prepare`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_prepared_launch(
    prepared: *const AtlasPrepared,
    stream: *const AtlasStream,
    args: *const AtlasArg,
    count: usize,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise, here and below.
        let AtlasPrepared(prepared) = unsafe { handle("prepared launch", prepared) }?;
        // SAFETY: as above.
        let mut arguments = unsafe { arguments(prepared.device(), prepared.def(), args, count) }?;
        // SAFETY: as above.
        match unsafe { stream.as_ref() } {
            Some(stream) => prepared.launch_on(&stream.0, arguments.list())?,
            None => prepared.launch(arguments.list())?,
        }
        Ok(())
    })
}

/// Closes a prepared launch. Launches that are queued still run. Null is ignored.
///
/// # Safety
/// It came from `atlas_prepare`, and is not used again, nor is a CUDA graph that recorded its launches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_prepared_close(prepared: *mut AtlasPrepared) {
    if !prepared.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(prepared) });
    }
}
