//! The context of one GPU: opening it, the limits of the GPU, and safe driver calls in it.

use super::current::{Entered, Handle};
use super::driver::{Api, Driver, NOT_INITIALIZED, check, driver};
use crate::error::{DeviceError, Result};
use atlas_codegen::{Machine, Target};
use std::ffi::{CStr, c_int, c_uint};
use std::sync::{OnceLock, PoisonError, RwLock};

/// `CUdevice_attribute`, as far as it is in use.
#[derive(Clone, Copy)]
#[repr(i32)]
enum DeviceAttribute {
    Sms = 16,
    PciBus = 33,
    PciDevice = 34,
    L2Bytes = 38,
    SmThreads = 39,
    PciDomain = 50,
    CapabilityMajor = 75,
    CapabilityMinor = 76,
    SmSharedBytes = 81,
    SmRegisters = 82,
    CtaSharedBytes = 97,
    MemoryPools = 115,
}

/// `CUmemPool_attribute`, as far as it is in use.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(super) enum PoolAttribute {
    ReleaseThreshold = 4,
    ReservedNow = 5,
    UsedNow = 7,
    UsedMost = 8,
}

/// The limits of a GPU, as the driver reports them.
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
fn machine_of(
    name: &str,
    (major, minor): (u32, u32),
    driver: (u32, u32),
    l: Limits,
) -> std::result::Result<Machine, DeviceError> {
    let unsupported = || DeviceError::UnsupportedGpu { name: name.to_owned(), major, minor };
    let target = Target::for_device(major, minor, driver).ok_or_else(unsupported)?;
    let sm = major * 10 + minor;
    Ok(Machine {
        sm,
        target,
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
    /// The number that the driver gives the GPU in this process.
    pub(super) ordinal: c_int,
    /// The PCI address of the GPU, independent of its ordinal: `0000:0f:00.0`.
    pub(crate) pci_address: String,
    handle: Handle,
    /// The pool that tensors are allocated from, if the driver supports pools.
    pub(crate) pool: Option<Handle>,
    /// Held alone by a thread while the driver records a graph for it, and together by those that wait for the whole context: the driver
    /// refuses such a wait while any stream records, and ends the recording.
    recording: RwLock<()>,
    /// The function that sets the conditions of graphs, once it is loaded.
    condition_setter: OnceLock<Handle>,
}

// SAFETY: a context handle may be used from any thread; the driver locks where necessary.
unsafe impl Send for Context {}
// SAFETY: as above; no field changes after `open` but the lock and the cell, which may be shared.
unsafe impl Sync for Context {}

/// The mode in which this thread records, to go back to.
struct CaptureMode {
    api: &'static Api,
    before: c_uint,
}

impl Drop for CaptureMode {
    fn drop(&mut self) {
        // SAFETY: as in `relaxed`.
        unsafe { (self.api.capture_mode)(&mut self.before) };
    }
}

impl Context {
    /// Opens the primary context of a GPU.
    pub(crate) fn open(ordinal: usize) -> Result<Context> {
        use DeviceAttribute as A;
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
        let capability = (attribute(A::CapabilityMajor)?, attribute(A::CapabilityMinor)?);
        let limits = Limits {
            cta_shared_bytes: attribute(A::CtaSharedBytes)?,
            sm_shared_bytes: attribute(A::SmSharedBytes)?,
            sm_threads: attribute(A::SmThreads)?,
            sm_registers: attribute(A::SmRegisters)?,
            sms: attribute(A::Sms)?,
            l2_bytes: attribute(A::L2Bytes)?,
        };
        let pools = attribute(A::MemoryPools)? != 0;
        let pool = pools.then(|| pool_of(api, device)).flatten();
        let pci_address = format!(
            "{:04x}:{:02x}:{:02x}.0",
            attribute(A::PciDomain)?,
            attribute(A::PciBus)?,
            attribute(A::PciDevice)?
        );
        let memory_bytes = memory as u64;
        let ordinal = ordinal as c_int;
        Ok(Context {
            driver,
            name,
            capability,
            limits,
            memory_bytes,
            label,
            ordinal,
            pci_address,
            handle,
            pool,
            recording: RwLock::new(()),
            condition_setter: OnceLock::new(),
        })
    }

    /// The machine description of this GPU, with the target that its kernels are compiled for.
    pub(crate) fn machine(&self) -> std::result::Result<Machine, DeviceError> {
        machine_of(&self.name, self.capability, self.driver.cuda_version(), self.limits)
    }

    /// Turns a driver status into an error that names the call and the device.
    pub(crate) fn check(&self, call: &'static str, status: u32) -> Result<()> {
        check(&self.driver.api, call, &self.label, status)
    }

    /// Makes this context current on the calling thread for the life of the returned guard, which gives the functions
    /// to call in it.
    ///
    /// In a forked process this fails, because the driver answers no query about contexts there. No driver function may
    /// be called without it: stream calls would take a stream of the parent process for one of this process, and
    /// `cuStreamDestroy` would crash.
    pub(crate) fn enter(&self) -> Result<Entered<'static, Api>> {
        Entered::new(&self.driver.api, self.handle).or_else(|(call, status)| {
            if status == NOT_INITIALIZED && self.driver.is_forked() {
                return Err(DeviceError::Forked {}.into());
            }
            self.check(call, status)?;
            // A failure has a nonzero status, so this is not reached. It keeps the types simple.
            Err(DeviceError::DriverBroken { status: format!("{call} gives no context") }.into())
        })
    }

    /// Copies host bytes to the device and waits for the copy.
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

    /// Fills memory with zeros, ordered on a stream.
    pub(crate) fn zero(&self, address: u64, bytes: u64, stream: Handle) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller owns `bytes` bytes at `address`; the handle is the null stream or a live stream.
        let status = unsafe { (api.fill)(address, 0, bytes as usize, stream) };
        self.check("cuMemsetD8Async", status)
    }

    /// Whether a stream records a graph, so that what is queued on it does not run. The default stream, null or `CU_STREAM_LEGACY`,
    /// records nothing, and may not even be asked while another one does.
    pub(crate) fn is_recording(&self, stream: Handle) -> Result<bool> {
        const LEGACY: usize = 1;
        if stream.addr() <= LEGACY {
            return Ok(false);
        }
        let api = self.enter()?;
        let mut state = 0;
        // SAFETY: out-pointer to a live integer; the handle is a live stream of this context.
        self.check("cuStreamIsCapturing", unsafe { (api.is_capturing)(stream, &mut state) })?;
        Ok(state != 0)
    }

    /// The driver's number of the recording that a stream is part of, which no other recording of this process has. 0 if the driver does not
    /// tell; `None` if what is queued runs.
    pub(crate) fn recording_of(&self, stream: Handle) -> Result<Option<u64>> {
        if !self.is_recording(stream)? {
            return Ok(None);
        }
        let api = self.enter()?;
        let Some(info) = api.capture_info else { return Ok(Some(0)) };
        let (mut state, mut number) = (0, 0);
        let none = std::ptr::null_mut();
        // SAFETY: out-pointers to live integers, and null where no answer is wanted; the handle is a live stream of this context.
        let status = unsafe { info(stream, &mut state, &mut number, none, std::ptr::null_mut(), std::ptr::null_mut()) };
        self.check("cuStreamGetCaptureInfo", status)?;
        Ok(Some(number))
    }

    /// The graph that a stream records, and the nodes that the next one stands behind. A null graph if the driver does not tell, which drivers with
    /// conditional nodes do.
    pub(super) fn recorded_so_far(&self, stream: Handle) -> Result<(Handle, Vec<Handle>)> {
        let api = self.enter()?;
        let (mut graph, mut nodes, mut count) = (std::ptr::null_mut(), std::ptr::null(), 0);
        let Some(info) = api.capture_info else { return Ok((graph, Vec::new())) };
        let (mut state, mut number) = (0, 0);
        // SAFETY: out-pointers to live values; a live stream of this context.
        let status = unsafe { info(stream, &mut state, &mut number, &mut graph, &mut nodes, &mut count) };
        self.check("cuStreamGetCaptureInfo", status)?;
        // SAFETY: the driver's list, which lives until the next call for this stream; an empty one has no address.
        let nodes = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(nodes, count) } };
        Ok((graph, nodes.to_vec()))
    }

    /// Lets this thread make calls of the driver that it would otherwise punish by ending a recording of the thread, until the result is
    /// dropped. They must not wait for what is recorded.
    pub(crate) fn relaxed(&self) -> Result<impl Drop + use<>> {
        /// `CU_STREAM_CAPTURE_MODE_RELAXED`
        const RELAXED: c_uint = 2;
        let (api, mut mode) = (&self.driver.api, RELAXED);
        // SAFETY: an in- and out-pointer to a live mode.
        self.check("cuThreadExchangeStreamCaptureMode", unsafe { (api.capture_mode)(&mut mode) })?;
        Ok(CaptureMode { api, before: mode })
    }

    /// The function that sets the conditions of graphs, which `load` loads if nobody has. Two threads may load it.
    pub(super) fn condition_setter(&self, load: impl FnOnce() -> Result<Handle>) -> Result<Handle> {
        if let Some(&function) = self.condition_setter.get() {
            return Ok(function);
        }
        let function = load()?;
        Ok(*self.condition_setter.get_or_init(|| function))
    }

    /// The driver's handle of this context.
    pub(super) fn raw(&self) -> Handle {
        self.handle
    }

    /// Waits for the work of one stream.
    pub(crate) fn synchronize(&self, stream: Handle) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the handle is the null stream or a live stream of this context.
        self.check("cuStreamSynchronize", unsafe { (api.stream_synchronize)(stream) })
    }

    /// Keeps other threads from waiting for the whole context until the result is dropped. Until then this thread must not wait for it
    /// either: that never ends.
    pub(super) fn begin_recording(&self) -> impl Drop {
        self.recording.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the work of every stream. It waits for a thread that records a graph, too, which takes microseconds. A recording of
    /// another library is not known here, and makes it fail.
    pub(crate) fn synchronize_all(&self) -> Result<()> {
        let _no_recording = self.recording.read().unwrap_or_else(PoisonError::into_inner);
        let api = self.enter()?;
        // SAFETY: no arguments; the context is current.
        self.check("cuCtxSynchronize", unsafe { (api.context_synchronize)() })
    }
}

/// The memory pool of a device, set to keep freed memory. Otherwise each synchronisation would return memory to the
/// system. `None` if the driver has no pools.
fn pool_of(api: &Api, device: c_int) -> Option<Handle> {
    let mut pool = std::ptr::null_mut();
    let mut threshold = u64::MAX;
    let key = PoolAttribute::ReleaseThreshold as c_int;
    // SAFETY: out-pointer to a live handle; then a live u64, which is this attribute's type. If setting it fails,
    // nothing changes.
    unsafe {
        if (api.pool_get)(&mut pool, device) != 0 {
            return None;
        }
        (api.pool_set_attribute)(pool, key, (&raw mut threshold).cast());
    }
    Some(pool)
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
        assert_eq!(machine_of("NVIDIA A10", (8, 6), (13, 0), LIMITS).ok(), "sm_86".parse().ok());
    }

    #[test]
    fn a_later_gpu_is_used_as_far_as_the_target_goes() {
        let more = Limits { cta_shared_bytes: 400 << 10, sm_threads: 4096, ..LIMITS };
        let machine = machine_of("NVIDIA X1", (15, 0), (13, 0), more).unwrap();
        assert_eq!((machine.to_string(), machine.target().to_string()), ("sm_150".to_owned(), "sm_90".to_owned()));
        assert_eq!((machine.cta_shared_bytes, machine.sm_threads), (227 << 10, 2048));
    }

    #[test]
    fn a_hopper_gpu_is_compiled_for_with_its_own_instructions() {
        let machine = |driver| machine_of("NVIDIA H200", (9, 0), driver, LIMITS).unwrap();
        assert_eq!(machine((12, 8)).to_string(), "sm_90a");
        assert_eq!(machine((11, 8)).to_string(), "sm_90");
    }

    #[test]
    fn a_gpu_that_no_target_runs_on() {
        let error = machine_of("Tesla T4", (7, 5), (13, 0), LIMITS).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error[ATL623]: Tesla T4 has compute capability 7.5, and no supported target runs on it; \
             use another GPU or Device::cpu()"
        );
    }
}
