//! The CUDA driver: a table of its functions, loaded at run time, and the meaning of their statuses.
//!
//! The library is the one that every other crate of this process opens, such as cudarc, and it is opened here on its own:
//! so this crate fits beside any choice of their features. All functions are looked up here at once. So if a driver lacks
//! one, the result is an error with advice, and never a panic in the middle of a launch.

use super::current::{ContextStack, Handle};
use crate::error::{DeviceError, DriverFailure, Result};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The lowest driver version that this crate supports, in the format of `cuDriverGetVersion`.
const LOWEST_DRIVER: i32 = 11_040;
/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: u32 = 100;
/// `CUDA_ERROR_NOT_INITIALIZED`: the driver's answer in a process that was forked from one that had started it, even to
/// an attempt to start it.
pub(super) const NOT_INITIALIZED: u32 = 3;

/// Where the driver's library is. The first name is found by the system's search path; the others are those of WSL 2, of Debian's
/// and of Ubuntu's packages where that path lacks them, and of Windows.
const LIBRARIES: [&str; 7] = [
    "libcuda.so.1",
    "libcuda.so",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "nvcuda.dll",
];

/// The type of `cuTensorMapEncodeTiled`: the map, type, rank, address, sizes, strides in bytes, boxes, steps, interleave, swizzle,
/// promotion of L2, and what stands out of bounds.
pub(crate) type TensorMapEncode = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    *mut c_void,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
) -> c_uint;

/// The type of `cuGraphExecUpdate`: the executable graph, the graph that it becomes, the node that stands in the way, and the
/// reason.
pub(crate) type GraphUpdate = unsafe extern "C" fn(Handle, Handle, *mut Handle, *mut c_uint) -> c_uint;

/// The type of `cuStreamGetCaptureInfo_v2`: the stream, whether it records, the number of the recording, its graph, and the nodes that the next
/// one stands behind.
pub(crate) type CaptureInfo =
    unsafe extern "C" fn(Handle, *mut c_uint, *mut u64, *mut Handle, *mut *const Handle, *mut usize) -> c_uint;

/// Driver functions for conditional nodes of graphs, of CUDA 12.4 and later. All are in the forms of CUDA 12.3, which later drivers keep.
pub(crate) struct ConditionalApi {
    /// `cuGraphConditionalHandleCreate`: the handle, the graph, the context, the value at each launch, and flags.
    pub(super) create: unsafe extern "C" fn(*mut u64, Handle, Handle, c_uint, c_uint) -> c_uint,
    /// `cuGraphAddNode`: the node, the graph, the nodes before it and their number, and its `CUgraphNodeParams`.
    pub(super) add: unsafe extern "C" fn(*mut Handle, Handle, *const Handle, usize, *mut c_void) -> c_uint,
    /// `cuStreamBeginCaptureToGraph`: the stream, the graph, the nodes before the first one, their edges and number, and the mode.
    pub(super) begin: unsafe extern "C" fn(Handle, Handle, *const Handle, *const c_void, usize, c_uint) -> c_uint,
    /// `cuStreamUpdateCaptureDependencies`: the stream, nodes and their number, and what they become.
    pub(super) follow: unsafe extern "C" fn(Handle, *mut Handle, usize, c_uint) -> c_uint,
}

impl ConditionalApi {
    /// Looks them up; `None` if the driver lacks one.
    ///
    /// # Safety
    /// The library is the driver's, and stays open as long as the result is in use.
    unsafe fn load(library: &Library) -> Option<ConditionalApi> {
        // SAFETY: the signatures are those of the driver's C header.
        unsafe {
            Some(ConditionalApi {
                create: *library.get(b"cuGraphConditionalHandleCreate").ok()?,
                add: *library.get(b"cuGraphAddNode").ok()?,
                begin: *library.get(b"cuStreamBeginCaptureToGraph").ok()?,
                follow: *library.get(b"cuStreamUpdateCaptureDependencies").ok()?,
            })
        }
    }
}

/// Declares the table of driver functions. Statuses are plain numbers, because a driver may return codes that no enum
/// lists.
macro_rules! api {
    ($($name:ident = $symbol:literal ( $($ty:ty),* );)+) => {
        /// The driver functions in use.
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($ty),*) -> c_uint,)+
            /// `cuTensorMapEncodeTiled`, of drivers for CUDA 12.0 and later.
            pub(crate) tensor_map_encode: Option<TensorMapEncode>,
            /// `cuGraphExecUpdate` in its first form, which later drivers keep for programs of CUDA 11.
            pub(crate) graph_update: Option<GraphUpdate>,
            /// `cuStreamGetCaptureInfo` in the form of CUDA 11.3, which later drivers keep.
            pub(crate) capture_info: Option<CaptureInfo>,
            /// Conditional nodes, of drivers for CUDA 12.4 and later.
            pub(crate) conditional: Option<ConditionalApi>,
        }

        impl Api {
            /// Looks every function up. The error is the name of the first one that is missing.
            ///
            /// # Safety
            /// The library is the driver's, and stays open as long as the result is in use.
            unsafe fn load(library: &Library) -> std::result::Result<Api, &'static str> {
                Ok(Api {$(
                    // SAFETY: the signature is that of the driver's C header.
                    $name: match unsafe { library.get::<unsafe extern "C" fn($($ty),*) -> c_uint>($symbol.as_bytes()) } {
                        Ok(f) => *f,
                        Err(_) => return Err($symbol),
                    },
                )+
                    // SAFETY: as above.
                    tensor_map_encode: unsafe { library.get::<TensorMapEncode>(b"cuTensorMapEncodeTiled") }.ok().map(|f| *f),
                    // SAFETY: as above.
                    graph_update: unsafe { library.get::<GraphUpdate>(b"cuGraphExecUpdate") }.ok().map(|f| *f),
                    // SAFETY: as above.
                    capture_info: unsafe { library.get::<CaptureInfo>(b"cuStreamGetCaptureInfo_v2") }.ok().map(|f| *f),
                    // SAFETY: as above.
                    conditional: unsafe { ConditionalApi::load(library) },
                })
            }
        }
    };
}

api! {
    init = "cuInit"(c_uint);
    driver_version = "cuDriverGetVersion"(*mut c_int);
    error_name = "cuGetErrorName"(c_uint, *mut *const c_char);
    error_string = "cuGetErrorString"(c_uint, *mut *const c_char);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device_get = "cuDeviceGet"(*mut c_int, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2"(*mut usize, c_int);
    context_retain = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    context_current = "cuCtxGetCurrent"(*mut Handle);
    context_push = "cuCtxPushCurrent_v2"(Handle);
    context_pop = "cuCtxPopCurrent_v2"(*mut Handle);
    context_synchronize = "cuCtxSynchronize"();
    stream_create = "cuStreamCreate"(*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2"(Handle);
    stream_synchronize = "cuStreamSynchronize"(Handle);
    alloc = "cuMemAlloc_v2"(*mut u64, usize);
    free = "cuMemFree_v2"(u64);
    memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    alloc_async = "cuMemAllocAsync"(*mut u64, usize, Handle);
    free_async = "cuMemFreeAsync"(u64, Handle);
    pool_get = "cuDeviceGetDefaultMemPool"(*mut Handle, c_int);
    pool_get_attribute = "cuMemPoolGetAttribute"(Handle, c_int, *mut c_void);
    pool_set_attribute = "cuMemPoolSetAttribute"(Handle, c_int, *mut c_void);
    pool_trim = "cuMemPoolTrimTo"(Handle, usize);
    copy_to_device = "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, Handle);
    copy_to_host = "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, Handle);
    copy_on_device = "cuMemcpyDtoDAsync_v2"(u64, u64, usize, Handle);
    address_range = "cuMemGetAddressRange_v2"(*mut u64, *mut usize, u64);
    pointer_attribute = "cuPointerGetAttribute"(*mut c_void, c_uint, u64);
    fill = "cuMemsetD8Async"(u64, u8, usize, Handle);
    module_load = "cuModuleLoadDataEx"(*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    module_unload = "cuModuleUnload"(Handle);
    module_function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
    function_attribute = "cuFuncGetAttribute"(*mut c_int, c_int, Handle);
    resident_ctas = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(*mut c_int, Handle, c_int, usize);
    function_set_attribute = "cuFuncSetAttribute"(Handle, c_int, c_int);
    launch = "cuLaunchKernel"(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
    event_create = "cuEventCreate"(*mut Handle, c_uint);
    event_record = "cuEventRecord"(Handle, Handle);
    event_synchronize = "cuEventSynchronize"(Handle);
    event_elapsed = "cuEventElapsedTime"(*mut f32, Handle, Handle);
    event_destroy = "cuEventDestroy_v2"(Handle);
    capture_begin = "cuStreamBeginCapture_v2"(Handle, c_uint);
    capture_end = "cuStreamEndCapture"(Handle, *mut Handle);
    is_capturing = "cuStreamIsCapturing"(Handle, *mut c_uint);
    capture_mode = "cuThreadExchangeStreamCaptureMode"(*mut c_uint);
    graph_instantiate = "cuGraphInstantiateWithFlags"(*mut Handle, Handle, u64);
    graph_launch = "cuGraphLaunch"(Handle, Handle);
    graph_destroy = "cuGraphDestroy"(Handle);
    graph_executable_destroy = "cuGraphExecDestroy"(Handle);
}

/// A started driver.
pub(crate) struct Driver {
    pub(crate) api: Api,
    /// The CUDA version of the driver: 12040 for CUDA 12.4.
    pub(crate) version: i32,
    /// GPUs visible to this process.
    pub(crate) count: usize,
    /// The id of the process that started it.
    process: u32,
}

impl Driver {
    /// The highest CUDA version that it serves, as (major, minor).
    pub(crate) fn cuda_version(&self) -> (u32, u32) {
        let v = self.version as u32;
        (v / 1000, v % 1000 / 10)
    }

    /// Whether this process was forked from the one that started the driver: its contexts are of no use here.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }
}

/// The driver of this process, started on first use, or why there is none. The answer never changes, except in a forked
/// process.
pub(crate) fn driver() -> std::result::Result<&'static Driver, DeviceError> {
    static DRIVER: OnceLock<std::result::Result<Driver, DeviceError>> = OnceLock::new();
    let driver = DRIVER.get_or_init(start).as_ref().map_err(Clone::clone)?;
    if driver.is_forked() { Err(DeviceError::Forked {}) } else { Ok(driver) }
}

fn start() -> std::result::Result<Driver, DeviceError> {
    let wanted = cuda_version_text(LOWEST_DRIVER);
    // SAFETY: opening the driver's library only runs its initialisers.
    let library = LIBRARIES.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
    // The driver is never closed: it has threads of its own.
    let library: &'static Library = Box::leak(Box::new(library.ok_or(DeviceError::NoDriver {})?));
    // SAFETY: one of these names is only of the driver's library, and it stays open.
    let api = unsafe { Api::load(library) }.map_err(|symbol| DeviceError::DriverTooOld {
        found: format!("one that lacks `{symbol}`"),
        wanted: wanted.clone(),
    })?;
    // SAFETY: flags are 0, as the driver demands.
    let mut status = unsafe { (api.init)(0) };
    let (mut version, mut count) = (0, 0);
    if status == 0 {
        // SAFETY: an out-pointer to a live integer.
        status = unsafe { (api.device_count)(&mut count) };
    }
    if status == 0 || status == NO_DEVICE {
        // SAFETY: an out-pointer to a live integer.
        unsafe { (api.driver_version)(&mut version) };
        if version < LOWEST_DRIVER {
            let found = format!("one for CUDA {}", cuda_version_text(version));
            return Err(DeviceError::DriverTooOld { found, wanted });
        }
    }
    match status {
        0 | NO_DEVICE => {
            let count = usize::try_from(count).unwrap_or(0);
            Ok(Driver { api, version, count, process: std::process::id() })
        }
        // Another library started the driver in the process that this one was forked from.
        NOT_INITIALIZED => Err(DeviceError::Forked {}),
        status => Err(DeviceError::DriverBroken { status: status_text(&api, status) }),
    }
}

/// `12.4` for 12040.
pub(crate) fn cuda_version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The driver's name and description of a status.
fn status_text(api: &Api, status: u32) -> String {
    let text = |f: unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint| {
        let mut p = std::ptr::null();
        // SAFETY: an out-pointer to a live pointer; the driver leaves null or a static C string.
        unsafe {
            f(status, &mut p);
            if p.is_null() { String::new() } else { CStr::from_ptr(p).to_string_lossy().into_owned() }
        }
    };
    format!("{} ({status}): {}", text(api.error_name), text(api.error_string))
}

impl ContextStack for Api {
    fn top(&self) -> std::result::Result<Handle, (&'static str, u32)> {
        let mut context = std::ptr::null_mut();
        // SAFETY: an out-pointer to a live handle.
        match unsafe { (self.context_current)(&mut context) } {
            0 => Ok(context),
            status => Err(("cuCtxGetCurrent", status)),
        }
    }

    fn push(&self, context: Handle) -> std::result::Result<(), (&'static str, u32)> {
        // SAFETY: only `Context::enter` pushes, and its context is retained for the life of the process.
        match unsafe { (self.context_push)(context) } {
            0 => Ok(()),
            status => Err(("cuCtxPushCurrent", status)),
        }
    }

    fn pop(&self) {
        let mut context = std::ptr::null_mut();
        // SAFETY: an out-pointer to a live handle. If it fails the driver is shutting down, and nothing is current.
        unsafe { (self.context_pop)(&mut context) };
    }
}

/// Turns a status of the driver into an error that names the call and the device.
pub(super) fn check(api: &Api, call: &'static str, label: &str, status: u32) -> Result<()> {
    match status {
        0 => Ok(()),
        status => {
            Err(DriverFailure { call, device: label.to_owned(), status, message: status_text(api, status) }.into())
        }
    }
}

impl DriverFailure {
    /// True if the driver refused one kernel, so that another config may work: nothing ran, and the context is intact.
    /// A fault of a kernel (an illegal address) does not count, because it corrupts the context.
    pub(crate) fn refuses(&self) -> bool {
        const INVALID_VALUE: u32 = 1;
        const INVALID_IMAGE: u32 = 200;
        const NO_BINARY_FOR_GPU: u32 = 209;
        const INVALID_PTX: u32 = 218;
        const INVALID_SOURCE: u32 = 300;
        const OUT_OF_RESOURCES: u32 = 701;
        match self.call {
            "cuModuleLoadDataEx" => matches!(
                self.status,
                INVALID_IMAGE | NO_BINARY_FOR_GPU | INVALID_PTX | INVALID_SOURCE | OUT_OF_RESOURCES
            ),
            // A launch's grid and parameters are correct by construction, so the cause must be shared memory.
            "cuFuncSetAttribute" | "cuLaunchKernel" => matches!(self.status, INVALID_VALUE | OUT_OF_RESOURCES),
            _ => false,
        }
    }

    /// True if the driver cannot load this code, but may load other code for the same kernel: it cannot assemble PTX,
    /// or not PTX of this version, or the kernel is missing from the loaded module.
    pub(crate) fn refuses_code(&self) -> bool {
        const JIT_COMPILER_NOT_FOUND: u32 = 221;
        const UNSUPPORTED_PTX_VERSION: u32 = 222;
        const JIT_COMPILATION_DISABLED: u32 = 223;
        const NOT_FOUND: u32 = 500;
        match self.call {
            "cuModuleLoadDataEx" => {
                matches!(self.status, JIT_COMPILER_NOT_FOUND | UNSUPPORTED_PTX_VERSION | JIT_COMPILATION_DISABLED)
            }
            "cuModuleGetFunction" => self.status == NOT_FOUND,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(call: &'static str, status: u32) -> DriverFailure {
        DriverFailure { call, device: "cuda:0".to_owned(), status, message: String::new() }
    }

    /// Another bundle may have machine code, which needs no assembler. The PTX of another config does not help.
    #[test]
    fn a_driver_without_an_assembler_speaks_against_ptx_alone() {
        for status in [221, 222, 223] {
            let e = failure("cuModuleLoadDataEx", status);
            assert!(e.refuses_code() && !e.refuses(), "{status}");
        }
        assert!(failure("cuModuleGetFunction", 500).refuses_code());
        for (call, status) in [("cuModuleLoadDataEx", 700), ("cuModuleLoadDataEx", 2), ("cuLaunchKernel", 222)] {
            assert!(!failure(call, status).refuses_code(), "{call} {status}");
        }
    }

    #[test]
    fn a_refusal_speaks_against_one_kernel_and_a_fault_against_the_context() {
        let refuses = |call, status| failure(call, status).refuses();
        for (call, status) in [
            ("cuModuleLoadDataEx", 218),
            ("cuModuleLoadDataEx", 701),
            ("cuFuncSetAttribute", 1),
            ("cuLaunchKernel", 701),
            ("cuLaunchKernel", 1),
        ] {
            assert!(refuses(call, status), "{call} {status}");
        }
        for (call, status) in [
            ("cuLaunchKernel", 700),
            ("cuLaunchKernel", 719),
            ("cuModuleLoadDataEx", 700),
            ("cuModuleLoadDataEx", 2),
            ("cuStreamSynchronize", 701),
            ("cuMemAllocAsync", 1),
        ] {
            assert!(!refuses(call, status), "{call} {status}");
        }
    }
}
