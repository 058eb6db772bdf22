//! A compiled kernel, loaded into a GPU's context or prepared for a virtual GPU.

use super::context::Context;
use super::current::Handle;
use super::ptx_version::check_ptx_version;
use super::virtual_gpu::{RecompileWithLines, VirtualGpu, VirtualKernel};
use crate::compile::KernelKey;
use crate::error::{LaunchError, Result, RuntimeError};
use atlas_codegen::{KernelImage, Machine};
use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of shared memory that every kernel may use without opting in.
const PLAIN_SHARED_BYTES: u32 = 48 * 1024;

/// `CU_JIT_ERROR_LOG_BUFFER` and its size.
const JIT_ERROR_LOG: [c_int; 2] = [5, 6];

/// Function attributes, by the numbers of `CUfunction_attribute`.
#[derive(Clone, Copy)]
enum FunctionAttribute {
    SharedBytes = 1,
    LocalBytes = 3,
    Registers = 4,
    MostDynamicSharedBytes = 8,
}

/// The resources of a kernel, as the driver's assembler reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchFacts {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of local memory per thread; more than 0 means that registers spill.
    pub local_bytes: u32,
    /// Bytes of shared memory per CTA, static and dynamic.
    pub shared_bytes: u32,
    /// Threads per CTA.
    pub threads: u32,
    /// CTAs that a multiprocessor holds at once, if a launch has as many CTAs as the GPU holds and each runs any number of
    /// programs. `None` if each runs one, and on a virtual GPU.
    pub resident_ctas: Option<u32>,
}

/// A loaded kernel.
pub(crate) struct LoadedKernel {
    pub(crate) key: KernelKey,
    pub(crate) image: Arc<KernelImage>,
    /// On a virtual GPU, which assembles nothing: the threads, and the local memory that the PTX declares.
    pub(crate) facts: LaunchFacts,
    pub(crate) code: LoadedCode,
    /// The number of the device's launches at the time of its latest launch.
    launched: AtomicU64,
}

/// The code that runs.
pub(crate) enum LoadedCode {
    /// Loaded by the driver.
    Driver(DriverModule),
    /// Prepared by a virtual GPU.
    Virtual(Box<dyn VirtualKernel>),
}

/// A module in a context, and its one function.
pub(crate) struct DriverModule {
    pub(crate) function: Handle,
    module: Handle,
    pub(crate) context: Arc<Context>,
}

// SAFETY: module and function handles may be used from any thread.
unsafe impl Send for DriverModule {}
// SAFETY: as above; no field changes after `load`.
unsafe impl Sync for DriverModule {}

impl LoadedKernel {
    /// Loads a kernel, after checking that the driver is new enough for its PTX. Machine code, if given, is tried
    /// first. If the driver refuses it, the driver assembles the PTX.
    pub(crate) fn load(
        context: &Arc<Context>,
        key: KernelKey,
        image: Arc<KernelImage>,
        cubin: Option<&[u8]>,
    ) -> Result<LoadedKernel> {
        let cubin = cubin.filter(|code| is_whole_elf(code));
        let loaded = cubin.and_then(|code| DriverModule::load(context, &image.entry, code).ok());
        let module = match loaded {
            Some(module) => module,
            None => {
                check_ptx_version(&image, context.driver.version)?;
                let broken = || LaunchError::WrongAbi { kernel: image.entry.clone() };
                let ptx = CString::new(image.ptx.as_str()).map_err(|_| broken())?;
                DriverModule::load(context, &image.entry, ptx.as_bytes_with_nul())?
            }
        };
        let facts = module.ask(&image)?;
        Ok(LoadedKernel { key, image, facts, code: LoadedCode::Driver(module), launched: AtomicU64::new(0) })
    }

    /// Prepares a kernel for a virtual GPU.
    pub(crate) fn load_virtual(
        gpu: &dyn VirtualGpu,
        key: KernelKey,
        image: Arc<KernelImage>,
        lined: RecompileWithLines,
    ) -> Result<LoadedKernel> {
        let kernel = gpu.load(image.clone(), lined)?;
        let local_bytes = kernel.local_bytes();
        let facts =
            LaunchFacts { registers: 0, local_bytes, shared_bytes: 0, threads: image.threads, resident_ctas: None };
        Ok(LoadedKernel { key, image, facts, code: LoadedCode::Virtual(kernel), launched: AtomicU64::new(0) })
    }

    /// Notes that it is launched, as launch number `now` of its device. Every launch calls this, so it takes no lock.
    pub(crate) fn touch(&self, now: u64) {
        self.launched.store(now, Ordering::Relaxed);
    }

    /// The number of its latest launch.
    pub(crate) fn launched(&self) -> u64 {
        self.launched.load(Ordering::Relaxed)
    }
}

/// True if machine code is an ELF file whose headers and sections lie within it. The check is needed because the driver
/// is not told the length.
fn is_whole_elf(code: &[u8]) -> bool {
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let field = code.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
    };
    let within = |at: u64, len: u64| at.checked_add(len).is_some_and(|end| end <= code.len() as u64);
    let table = |at: usize, entry: usize, count: usize| -> Option<(u64, u64, u64)> {
        Some((number(at, 8)?, number(entry, 2)?, number(count, 2)?))
    };
    // A 64-bit file, little-endian; `e_phoff`, `e_phentsize`, `e_phnum`; `e_shoff`, `e_shentsize`, `e_shnum`.
    let (Some(programs), Some(sections)) = (table(32, 54, 56), table(40, 58, 60)) else { return false };
    let is_table = |(at, entry, count): (u64, u64, u64)| within(at, entry * count);
    let section = |i: u64| -> Option<bool> {
        let at = usize::try_from(sections.0 + i * sections.1).ok()?;
        // A section of type 8 occupies no bytes in the file.
        Some(number(at + 4, 4)? == 8 || within(number(at + 24, 8)?, number(at + 32, 8)?))
    };
    let segment = |i: u64| -> Option<bool> {
        let at = usize::try_from(programs.0 + i * programs.1).ok()?;
        Some(within(number(at + 8, 8)?, number(at + 32, 8)?))
    };
    code.starts_with(b"\x7fELF\x02\x01")
        && is_table(programs)
        && is_table(sections)
        && (0..sections.2).all(|i| section(i) == Some(true))
        && (0..programs.2).all(|i| segment(i) == Some(true))
}

impl DriverModule {
    /// Loads PTX that ends with a zero byte, or machine code.
    pub(super) fn load(context: &Arc<Context>, name: &str, code: &[u8]) -> Result<DriverModule> {
        let entry = CString::new(name).map_err(|_| LaunchError::WrongAbi { kernel: name.to_owned() })?;
        let api = context.enter()?;
        let mut log = vec![0_u8; 8192];
        let mut options = JIT_ERROR_LOG;
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), log.len() as *mut c_void];
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the code is terminated as required: PTX by a zero byte, machine code by the sizes in its header,
        // which `is_whole_elf` has checked. The options' values are a live buffer and its size.
        let status = unsafe {
            (api.module_load)(&mut module, code.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        context.check("cuModuleLoadDataEx", status).map_err(|e| with_log(e, name, &log))?;
        // SAFETY: a live module and a C string.
        let status = unsafe { (api.module_function)(&mut function, module, entry.as_ptr()) };
        let loaded = DriverModule { function, module, context: context.clone() };
        context.check("cuModuleGetFunction", status)?;
        Ok(loaded)
    }

    /// Requests the shared memory that the kernel needs, and reads the resources that the assembler reports.
    fn ask(&self, image: &KernelImage) -> Result<LaunchFacts> {
        let (context, function) = (&self.context, self.function);
        let api = context.enter()?;
        let dynamic = image.shared_bytes;
        if dynamic > PLAIN_SHARED_BYTES {
            let key = FunctionAttribute::MostDynamicSharedBytes as c_int;
            // SAFETY: a live function.
            let status = unsafe { (api.function_set_attribute)(function, key, dynamic as c_int) };
            context.check("cuFuncSetAttribute", status)?;
        }
        let attribute = |key: FunctionAttribute| {
            let mut value = 0;
            // SAFETY: out-pointer to a live integer; a live function.
            let status = unsafe { (api.function_attribute)(&mut value, key as c_int, function) };
            context.check("cuFuncGetAttribute", status).map(|()| u32::try_from(value).unwrap_or(0))
        };
        let resident_ctas = image.persistent.then(|| {
            let (mut count, threads) = (0, image.threads as c_int);
            // SAFETY: out-pointer to a live integer; a live function.
            let status = unsafe { (api.resident_ctas)(&mut count, function, threads, dynamic as usize) };
            let call = "cuOccupancyMaxActiveBlocksPerMultiprocessor";
            context.check(call, status).map(|()| u32::try_from(count).unwrap_or(0))
        });
        Ok(LaunchFacts {
            resident_ctas: resident_ctas.transpose()?,
            registers: attribute(FunctionAttribute::Registers)?,
            local_bytes: attribute(FunctionAttribute::LocalBytes)?,
            shared_bytes: attribute(FunctionAttribute::SharedBytes)? + dynamic,
            threads: image.threads,
        })
    }
}

impl Drop for DriverModule {
    fn drop(&mut self) {
        // A launch may still be running the module's code, on any stream. If waiting for the device fails (a stream is
        // being captured, or a kernel faulted), the module stays loaded. That leaks it, but never removes code that is
        // running.
        if self.context.synchronize_all().is_ok()
            && let Ok(api) = self.context.enter()
        {
            // SAFETY: the module came from `cuModuleLoadDataEx`, is unloaded once, and nothing runs it.
            unsafe { (api.module_unload)(self.module) };
        }
    }
}

fn with_log(error: RuntimeError, entry: &str, log: &[u8]) -> RuntimeError {
    match error {
        RuntimeError::Driver(mut e) => {
            let text = String::from_utf8_lossy(log);
            let text = text.trim_end_matches('\0').trim();
            e.message = format!("{}; kernel `{entry}`; the driver's assembler says: {text}", e.message);
            RuntimeError::Driver(e)
        }
        other => other,
    }
}

/// Why a machine cannot run a compiled kernel; `None` if it can.
pub(crate) fn does_not_fit(image: &KernelImage, machine: &Machine) -> Option<String> {
    let (shared, has) = (image.shared_bytes, machine.cta_shared_bytes);
    if shared > has {
        return Some(format!("it needs {shared} bytes of shared memory, but a CTA on {machine} has {has}"));
    }
    let (threads, has) = (image.threads, machine.sm_threads);
    (threads > has).then(|| format!("it has {threads} threads, but a multiprocessor of {machine} holds {has}"))
}

#[cfg(test)]
impl LoadedKernel {
    /// A kernel that does nothing.
    pub(crate) fn idle(key: KernelKey) -> LoadedKernel {
        struct Idle;
        impl VirtualKernel for Idle {
            fn local_bytes(&self) -> u32 {
                0
            }

            fn launch(&self, _: u32, _: &[u64], _: &[crate::gpu::BoundMap], _: &[std::ops::Range<u64>]) -> Result<()> {
                Ok(())
            }
        }
        let facts = LaunchFacts { registers: 0, local_bytes: 0, shared_bytes: 0, threads: 128, resident_ctas: None };
        let image = crate::compile::empty_image();
        let code = LoadedCode::Virtual(Box::new(Idle));
        LoadedKernel { key, image: Arc::new(image), facts, code, launched: AtomicU64::new(0) }
    }
}
