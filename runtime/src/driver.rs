//! The CUDA driver: a table of its functions, loaded at run time, and safe calls on one GPU's context.
//!
//! The library is opened through cudarc. The functions are looked up here, all at once, so that a driver that
//! lacks one is an error with a mend and never a panic in the middle of a launch.

use crate::current::{ContextStack, Entered, Handle};
use crate::error::{DeviceError, DriverFailure, Result};
use atlas_codegen::{Machine, Target};
use cudarc::driver::sys;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The lowest driver version that this crate works with, as `cuDriverGetVersion` spells it.
const LOWEST_DRIVER: i32 = 11_040;
/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: u32 = 100;
/// `CUDA_ERROR_NOT_INITIALIZED`: what the driver says to a process that was forked from one that it was started in, of its start too.
const NOT_INITIALIZED: u32 = 3;

/// Declares the table of driver functions. Results are plain numbers: a driver may return codes that no enum lists.
macro_rules! api {
    ($($name:ident = $symbol:literal ( $($ty:ty),* );)+) => {
        /// The driver functions in use.
        pub(crate) struct Api { $(pub(crate) $name: unsafe extern "C" fn($($ty),*) -> c_uint,)+ }

        impl Api {
            /// Looks every function up; the name of the first that is missing.
            ///
            /// # Safety
            /// The driver library must be there: see `is_culib_present`.
            unsafe fn load() -> std::result::Result<Api, &'static str> {
                // SAFETY: the caller has found the library.
                let library = unsafe { sys::culib() };
                Ok(Api {$(
                    // SAFETY: the signature is that of the driver's C header.
                    $name: match unsafe { library.get::<unsafe extern "C" fn($($ty),*) -> c_uint>($symbol.as_bytes()) } {
                        Ok(f) => *f,
                        Err(_) => return Err($symbol),
                    },
                )+})
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
    fill = "cuMemsetD8Async"(u64, u8, usize, Handle);
    module_load = "cuModuleLoadDataEx"(*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    module_unload = "cuModuleUnload"(Handle);
    module_function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
    function_attribute = "cuFuncGetAttribute"(*mut c_int, c_int, Handle);
    function_set_attribute = "cuFuncSetAttribute"(Handle, c_int, c_int);
    launch = "cuLaunchKernel"(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
    event_create = "cuEventCreate"(*mut Handle, c_uint);
    event_record = "cuEventRecord"(Handle, Handle);
    event_synchronize = "cuEventSynchronize"(Handle);
    event_elapsed = "cuEventElapsedTime"(*mut f32, Handle, Handle);
    event_destroy = "cuEventDestroy_v2"(Handle);
}

/// A driver that started.
pub(crate) struct Driver {
    pub(crate) api: Api,
    /// 12040 for CUDA 12.4.
    pub(crate) version: i32,
    /// GPUs visible to this process.
    pub(crate) count: usize,
    /// The process that started it.
    process: u32,
}

impl Driver {
    /// Whether this process was forked from the one that started the driver: its contexts are of no use here.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }
}

/// The driver of this process, started on first use; or why there is none. The answer does not change, but in a process that is
/// forked from this one.
pub(crate) fn driver() -> std::result::Result<&'static Driver, DeviceError> {
    static DRIVER: OnceLock<std::result::Result<Driver, DeviceError>> = OnceLock::new();
    let driver = DRIVER.get_or_init(start).as_ref().map_err(Clone::clone)?;
    if driver.is_forked() { Err(DeviceError::Forked {}) } else { Ok(driver) }
}

fn start() -> std::result::Result<Driver, DeviceError> {
    let wanted = cuda_version_text(LOWEST_DRIVER);
    // SAFETY: opening the driver's library runs its initialisers and nothing else.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::NoDriver {});
    }
    // SAFETY: the library was found just above.
    let api = unsafe { Api::load() }.map_err(|symbol| DeviceError::DriverTooOld {
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
        // The driver was started by another library, in the process that this one was forked from.
        NOT_INITIALIZED => Err(DeviceError::Forked {}),
        status => Err(DeviceError::DriverBroken { status: status_text(&api, status) }),
    }
}

/// `12.4` for 12040.
pub(crate) fn cuda_version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The driver's name and sentence for a result.
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

/// What the driver says that a GPU holds.
#[derive(Clone, Copy)]
struct Limits {
    cta_shared_bytes: u32,
    sm_shared_bytes: u32,
    sm_threads: u32,
    sm_registers: u32,
    sms: u32,
    l2_bytes: u32,
}

/// The machine that a GPU of this capability and these limits is, if a target runs on it.
fn machine_of(name: &str, (major, minor): (u32, u32), l: Limits) -> std::result::Result<Machine, DeviceError> {
    let unsupported = || DeviceError::UnsupportedGpu { name: name.to_owned(), major, minor };
    let target = Target::for_capability(major, minor).ok_or_else(unsupported)?;
    let sm = major * 10 + minor;
    Ok(Machine {
        sm,
        // A later GPU may hold more than the verifier lets code of this target use.
        cta_shared_bytes: l.cta_shared_bytes.min(Machine::most_shared_bytes(target)),
        sm_shared_bytes: l.sm_shared_bytes,
        sm_threads: l.sm_threads.min(Machine::most_threads(target)),
        sm_registers: l.sm_registers,
        sms: l.sms,
        l2_bytes: u64::from(l.l2_bytes),
        rates: Machine::nearest(sm).ok_or_else(unsupported)?.rates,
    })
}

/// The primary context of one GPU. Never released: it lives as long as the process.
pub(crate) struct Context {
    pub(crate) driver: &'static Driver,
    pub(crate) name: String,
    /// Compute capability.
    capability: (u32, u32),
    limits: Limits,
    pub(crate) memory_bytes: u64,
    pub(crate) label: String,
    /// Where the GPU sits, whatever its ordinal: `0000:0f:00.0`.
    pub(crate) pci_address: String,
    handle: Handle,
    /// What tensors are allocated of, where the driver has such pools.
    pub(crate) pool: Option<Handle>,
}

// SAFETY: a context handle may be used from any thread; the driver locks where it must.
unsafe impl Send for Context {}
// SAFETY: as above; no field changes after `open`.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the primary context of a GPU.
    pub(crate) fn open(ordinal: usize) -> Result<Context> {
        use sys::CUdevice_attribute as A;
        let driver = driver()?;
        if ordinal >= driver.count {
            return Err(DeviceError::NoSuchGpu { ordinal, count: driver.count }.into());
        }
        let label = format!("cuda:{ordinal}");
        let check = |call, status| check(&driver.api, call, &label, status);
        let api = &driver.api;
        let mut device = 0;
        // SAFETY: out-pointer to a live integer, here and in the next calls; the ordinal was checked.
        check("cuDeviceGet", unsafe { (api.device_get)(&mut device, ordinal as c_int) })?;
        let attribute = |a: A| {
            let mut value = 0;
            // SAFETY: as above; `device` is a valid device.
            let status = unsafe { (api.device_attribute)(&mut value, a as c_int, device) };
            check("cuDeviceGetAttribute", status).map(|()| value as u32)
        };
        let mut name = [0_u8; 128];
        // SAFETY: the buffer's length is passed; the driver ends the string with 0 within it.
        check("cuDeviceGetName", unsafe { (api.device_name)(name.as_mut_ptr().cast(), 128, device) })?;
        let name = CStr::from_bytes_until_nul(&name).map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let mut memory = 0;
        // SAFETY: out-pointer to a live integer.
        check("cuDeviceTotalMem", unsafe { (api.device_memory)(&mut memory, device) })?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: out-pointer to a live handle.
        check("cuDevicePrimaryCtxRetain", unsafe { (api.context_retain)(&mut handle, device) })?;
        let capability = (
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let limits = Limits {
            cta_shared_bytes: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            sm_shared_bytes: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            sm_threads: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            sm_registers: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
            sms: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            l2_bytes: attribute(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        };
        let pools = attribute(A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0;
        let pool = pools.then(|| pool_of(api, device)).flatten();
        let pci_address = format!(
            "{:04x}:{:02x}:{:02x}.0",
            attribute(A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            attribute(A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
            attribute(A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?
        );
        Ok(Context { driver, name, capability, limits, memory_bytes: memory as u64, label, pci_address, handle, pool })
    }

    /// What this GPU holds, and what is compiled for it.
    pub(crate) fn machine(&self) -> std::result::Result<Machine, DeviceError> {
        machine_of(&self.name, self.capability, self.limits)
    }

    /// Turns a driver result into an error that names the call and the device.
    pub(crate) fn check(&self, call: &'static str, status: u32) -> Result<()> {
        check(&self.driver.api, call, &self.label, status)
    }

    /// Makes this context the calling thread's current one as long as the answer lives, and gives the functions to call
    /// in it.
    ///
    /// In a forked process this fails, since the driver answers no question about contexts there. Nothing may be called without it:
    /// calls on streams take a stream of the other process for one, and `cuStreamDestroy` crashes.
    pub(crate) fn enter(&self) -> Result<Entered<'static, Api>> {
        Entered::new(&self.driver.api, self.handle).or_else(|(call, status)| {
            if status == NOT_INITIALIZED && self.driver.is_forked() {
                return Err(DeviceError::Forked {}.into());
            }
            self.check(call, status)?;
            // A failure has a status that is not 0, so that this is not reached; it keeps the types plain.
            Err(DeviceError::DriverBroken { status: format!("{call} gives no context") }.into())
        })
    }

    /// Copies host bytes to the device and waits for it.
    pub(crate) fn upload(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller owns `bytes.len()` bytes at `address`; the host side lives until the wait below ends.
        let status = unsafe { (api.copy_to_device)(address, bytes.as_ptr().cast(), bytes.len(), std::ptr::null_mut()) };
        self.check("cuMemcpyHtoDAsync", status)?;
        self.synchronize(std::ptr::null_mut())
    }

    /// Waits for the whole device, then copies device bytes to the host.
    pub(crate) fn download(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.synchronize_all()?;
        let api = self.enter()?;
        // SAFETY: the caller owns `bytes.len()` bytes at `address`; the host side lives until the wait below ends.
        let status =
            unsafe { (api.copy_to_host)(bytes.as_mut_ptr().cast(), address, bytes.len(), std::ptr::null_mut()) };
        self.check("cuMemcpyDtoHAsync", status)?;
        self.synchronize(std::ptr::null_mut())
    }

    /// Fills with zeros, ordered on the default stream.
    pub(crate) fn zero(&self, address: u64, bytes: u64) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller owns `bytes` bytes at `address`.
        let status = unsafe { (api.fill)(address, 0, bytes as usize, std::ptr::null_mut()) };
        self.check("cuMemsetD8Async", status)
    }

    /// Waits for the work of one stream.
    pub(crate) fn synchronize(&self, stream: Handle) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the handle is the null stream or a live stream of this context.
        self.check("cuStreamSynchronize", unsafe { (api.stream_synchronize)(stream) })
    }

    /// Waits for the work of every stream.
    pub(crate) fn synchronize_all(&self) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: no arguments; the context is current.
        self.check("cuCtxSynchronize", unsafe { (api.context_synchronize)() })
    }
}

/// The pool of a device, which from now on keeps what is freed; without that, each synchronisation would give memory back
/// to the system. `None` where the driver has none to give.
fn pool_of(api: &Api, device: c_int) -> Option<Handle> {
    let mut pool = std::ptr::null_mut();
    let mut threshold = u64::MAX;
    let key = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as c_int;
    // SAFETY: out-pointer to a live handle; then a live u64, which is this attribute's type. Failure to set it changes
    // nothing.
    unsafe {
        if (api.pool_get)(&mut pool, device) != 0 {
            return None;
        }
        (api.pool_set_attribute)(pool, key, (&raw mut threshold).cast());
    }
    Some(pool)
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

fn check(api: &Api, call: &'static str, label: &str, status: u32) -> Result<()> {
    match status {
        0 => Ok(()),
        status => {
            Err(DriverFailure { call, device: label.to_owned(), status, message: status_text(api, status) }.into())
        }
    }
}

impl DriverFailure {
    /// True if the driver refused one kernel, so that another config may do: nothing ran, and the context is well. A
    /// fault of a kernel (an illegal address) is none; it stays with the context.
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
            // A launch's grid and parameters are right by construction: what is left is shared memory.
            "cuFuncSetAttribute" | "cuLaunchKernel" => matches!(self.status, INVALID_VALUE | OUT_OF_RESOURCES),
            _ => false,
        }
    }

    /// True if the driver cannot take this code, and may well take other code of the same kernel: it does not assemble PTX,
    /// or not PTX of this version, or the kernel is not in what it loaded.
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

    /// An A10, as its driver describes it.
    const LIMITS: Limits = Limits {
        cta_shared_bytes: 101_376,
        sm_shared_bytes: 102_400,
        sm_threads: 1536,
        sm_registers: 65536,
        sms: 72,
        l2_bytes: 6_291_456,
    };

    #[test]
    fn a_gpu_is_the_machine_of_the_table() {
        assert_eq!(machine_of("NVIDIA A10", (8, 6), LIMITS).ok(), "sm_86".parse().ok());
    }

    #[test]
    fn a_later_gpu_is_used_as_far_as_the_target_goes() {
        let more = Limits { cta_shared_bytes: 400 << 10, sm_threads: 4096, ..LIMITS };
        let machine = machine_of("NVIDIA X1", (15, 0), more).unwrap();
        assert_eq!((machine.to_string(), machine.target().to_string()), ("sm_150".to_owned(), "sm_90".to_owned()));
        assert_eq!((machine.cta_shared_bytes, machine.sm_threads), (227 << 10, 2048));
    }

    #[test]
    fn a_gpu_that_no_target_runs_on() {
        let error = machine_of("Tesla T4", (7, 5), LIMITS).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error[ATL623]: Tesla T4 has compute capability 7.5, and no supported target runs on it; \
             use another GPU or Device::cpu()"
        );
    }

    fn failure(call: &'static str, status: u32) -> DriverFailure {
        DriverFailure { call, device: "cuda:0".to_owned(), status, message: String::new() }
    }

    /// Another bundle may have machine code, which needs no assembler; another config's PTX is of no use.
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
