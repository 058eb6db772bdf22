//! Devices: the CPU, which is always there, the GPUs that the driver reports, and simulated ones.
//!
//! A device runs kernels and keeps the results of earlier launches: compiled and loaded kernels, launch plans, and
//! refusals. The room may depend on `gpu`, which does the work, on `compile` for the kernel store, and on `bundle`,
//! `select` and `records`, which a device has. It knows no tensors and no arguments.
//!
//! | file | holds |
//! |---|---|
//! | `device_id`, `open`, `simulated` | names of devices, and how they are opened |
//! | `stats` | what a device has done so far |
//! | `stream` | streams and events |
//! | `launch_plan` | what a launch of one exact problem does, resolved once |
//! | `plan_cache` | these plans, loaded kernels and refusals, as a device keeps them |

mod device_id;
mod launch_plan;
mod open;
mod plan_cache;
#[cfg(feature = "sim")]
mod simulated;
mod stats;
mod stream;

pub use device_id::DeviceId;
pub(crate) use launch_plan::{GpuLaunch, KernelLaunch, LaunchBody, LaunchParam, LaunchPlan, LaunchTensor, PassedOver};
pub(crate) use plan_cache::PlanCache;
pub use stats::DeviceStats;
pub use stream::{Event, Stream};

use self::stats::DeviceCounters;
use crate::bundle::{Bundle, Bundles};
use crate::compile::{CacheDir, HAS_COMPILER, Store};
use crate::error::Result;
use crate::gpu::{Context, DeviceMemory, StreamScratch, VirtualGpu};
use crate::records::{Records, sizes};
use atlas_codegen::{Capability, Machine, Target};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A place where kernels run and tensors live. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    id: DeviceId,
    name: String,
    machine: Option<Machine>,
    backend: Backend,
    store: Store,
    plans: PlanCache,
    records: RwLock<Arc<Records>>,
    bundles: RwLock<Arc<Bundles>>,
    policy: Policy,
    counters: DeviceCounters,
    /// The scratch memory of the default stream.
    scratch: StreamScratch,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Backend::Cuda(context) = &self.backend {
            self.scratch.free(context, std::ptr::null_mut());
        }
    }
}

/// The backend that runs the kernels.
pub(crate) enum Backend {
    Cpu,
    Cuda(Arc<Context>),
    #[cfg_attr(not(feature = "sim"), allow(dead_code, reason = "the simulator is the only one"))]
    Virtual(Box<dyn VirtualGpu>),
}

/// What a device may do if no compiled kernel is available.
struct Policy {
    compiles: AtomicBool,
    falls_back_to_cpu: AtomicBool,
}

impl Device {
    pub(crate) fn build(id: DeviceId, backend: Backend, machine: Option<Machine>, cache: CacheDir) -> Device {
        let name = match &backend {
            Backend::Cpu => "CPU".to_owned(),
            Backend::Cuda(context) => context.name.clone(),
            Backend::Virtual(_) => machine.map_or_else(String::new, |machine| format!("simulator {machine}")),
        };
        let records = match &backend {
            Backend::Cuda(context) => Records::of_gpu(&context.name),
            Backend::Cpu | Backend::Virtual(_) => Records::default(),
        };
        let bundles = match &backend {
            Backend::Cuda(_) => Bundles::of_program(),
            Backend::Cpu | Backend::Virtual(_) => Bundles::default(),
        };
        let inner = Inner {
            id,
            name,
            records: RwLock::new(Arc::new(records)),
            bundles: RwLock::new(Arc::new(bundles)),
            policy: Policy { compiles: AtomicBool::new(HAS_COMPILER), falls_back_to_cpu: AtomicBool::new(false) },
            machine,
            backend,
            store: Store::new(cache),
            plans: PlanCache::default(),
            counters: DeviceCounters::default(),
            scratch: StreamScratch::default(),
        };
        Device { inner: Arc::new(inner) }
    }

    /// The tuning records that choices on this device follow.
    pub fn records(&self) -> Arc<Records> {
        self.inner.records.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the tuning records for the choices on this device from now on, and forgets earlier choices. A GPU starts
    /// with [`Records::of_gpu`]. So does a device of [`Device::sim`], under its own name.
    pub fn set_records(&self, records: Records) {
        *self.inner.records.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(records);
        self.plans().forget_choices();
    }

    /// The bundles whose kernels this device runs. A GPU and a device of [`Device::sim`] start with
    /// [`Bundles::of_program`].
    pub fn bundles(&self) -> Arc<Bundles> {
        self.inner.bundles.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the bundles of this device (`Bundles::default()` removes them all), and forgets earlier choices.
    pub fn set_bundles(&self, bundles: Bundles) {
        *self.inner.bundles.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(bundles);
        self.plans().forget_refusals();
        self.plans().forget_choices();
    }

    /// Adds a bundle, to be searched after the existing ones except those of [`Bundles::name_for_gpus`], and forgets earlier choices.
    pub fn add_bundle(&self, bundle: Bundle) {
        let mut bundles = self.inner.bundles.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut bundles).add(bundle);
        drop(bundles);
        self.plans().forget_refusals();
        self.plans().forget_choices();
    }

    /// Whether launches on this device compile kernels that are not available otherwise. Initially true if this build
    /// has a compiler.
    pub fn compiles(&self) -> bool {
        self.inner.policy.compiles.load(Ordering::Relaxed)
    }

    /// Allows or forbids compiling. A device that may not compile runs kernels from its bundles and the kernel store.
    /// If they lack a kernel, the launch fails with an error, but it never waits for a compiler. In a build without a
    /// compiler this has no effect.
    pub fn set_compiling(&self, compiles: bool) {
        self.inner.policy.compiles.store(compiles && HAS_COMPILER, Ordering::Relaxed);
        self.plans().forget_choices();
    }

    /// Whether the CPU runs launches for which there is no compiled kernel.
    pub fn falls_back_to_cpu(&self) -> bool {
        self.inner.policy.falls_back_to_cpu.load(Ordering::Relaxed)
    }

    /// Allows or forbids the CPU to run a launch on this GPU if its kernel is in no bundle and cannot be compiled. The
    /// tensors are copied to the host and back. This is slow, and [`DeviceStats::on_cpu`] counts it. Initially it is
    /// forbidden.
    pub fn set_cpu_fallback(&self, allowed: bool) {
        self.inner.policy.falls_back_to_cpu.store(allowed, Ordering::Relaxed);
        self.plans().forget_choices();
    }

    /// The CUDA version of a GPU's driver, such as 13000.
    pub(crate) fn driver_number(&self) -> Option<i32> {
        match &self.inner.backend {
            Backend::Cpu | Backend::Virtual(_) => None,
            Backend::Cuda(context) => Some(context.driver.version),
        }
    }

    /// The name of the device.
    pub fn id(&self) -> DeviceId {
        self.inner.id
    }

    /// True for the CPU.
    pub fn is_cpu(&self) -> bool {
        self.inner.id == DeviceId::Cpu
    }

    /// True for a simulated GPU.
    pub fn simulates(&self) -> bool {
        matches!(self.inner.backend, Backend::Virtual(_))
    }

    /// The GPU's name as the driver gives it, `CPU` for the CPU, and a name such as `simulator sm_90` for a simulated
    /// GPU.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Compute capability (major, minor) of a GPU.
    pub fn capability(&self) -> Option<(u32, u32)> {
        self.inner.machine.map(|m| (m.sm / 10, m.sm % 10))
    }

    /// The target that kernels are compiled for on this device; `None` on the CPU.
    pub fn target(&self) -> Option<Target> {
        self.inner.machine.map(|m| m.target())
    }

    /// Whether kernels with clusters of programs run here: on the CPU, and on GPUs of compute capability 9.0 and later.
    pub fn has_clusters(&self) -> bool {
        self.inner.machine.is_none_or(|m| m.target().has(Capability::Clusters))
    }

    /// The machine description of a GPU: from its driver, or, for a simulated GPU, that of the usual GPU of its arch.
    /// `None` on the CPU.
    pub fn machine(&self) -> Option<Machine> {
        self.inner.machine
    }

    /// The machine for which an operation that has several kernels chooses on this device: [`Device::machine`], and on the CPU
    /// that of the architecture in `ATLAS_RECORD_SIZES_AS`, if the program records its launches for it. Where an operation asks this
    /// one, a program without a GPU records what it would launch on one.
    pub fn chooses_for(&self) -> Option<Machine> {
        let recorded = || self.is_cpu().then(sizes::recorded_as).flatten();
        self.inner.machine.or_else(recorded)
    }

    /// The highest CUDA version that the driver supports, as (major, minor); `None` without a driver.
    pub fn driver_version(&self) -> Option<(u32, u32)> {
        match &self.inner.backend {
            Backend::Cpu | Backend::Virtual(_) => None,
            Backend::Cuda(context) => Some(context.driver.cuda_version()),
        }
    }

    /// The number of streaming multiprocessors of a GPU (of the usual GPU of its arch if it is simulated), or of cores
    /// of the CPU.
    pub fn sm_count(&self) -> u32 {
        let cores = || std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        self.inner.machine.map_or_else(cores, |m| m.sms)
    }

    /// The PCI address of a GPU, as `nvidia-smi -i` takes it. It is the same in every process, whichever devices that
    /// process sees. `None` on the CPU and on a simulated GPU.
    pub fn pci_address(&self) -> Option<&str> {
        match &self.inner.backend {
            Backend::Cpu | Backend::Virtual(_) => None,
            Backend::Cuda(context) => Some(&context.pci_address),
        }
    }

    /// Memory of a GPU in bytes; `None` on the CPU and on a simulated GPU.
    pub fn memory_bytes(&self) -> Option<u64> {
        match &self.inner.backend {
            Backend::Cpu | Backend::Virtual(_) => None,
            Backend::Cuda(context) => Some(context.memory_bytes),
        }
    }

    /// Bytes of the tensors on the device now, and the most so far. Launches allocate no tensors. [`Device::memory`] also counts the
    /// scratch memory that streams keep for kernels whose programs are split.
    pub fn tensor_bytes(&self) -> (u64, u64) {
        let c = &self.inner.counters;
        (c.bytes.load(Ordering::Relaxed), c.most_bytes.load(Ordering::Relaxed))
    }

    /// Memory figures of a GPU from its driver; `None` on the CPU and on a simulated GPU.
    ///
    /// # Errors
    /// `RuntimeError::Driver`.
    pub fn memory(&self) -> Result<Option<DeviceMemory>> {
        match &self.inner.backend {
            Backend::Cpu | Backend::Virtual(_) => Ok(None),
            Backend::Cuda(context) => context.memory().map(Some),
        }
    }

    /// Waits for the device, returns memory that no tensor uses to the system, and restarts the count of
    /// [`DeviceMemory::most_used`]. Without this call, a GPU's memory is kept for later tensors. The scratch memory of the default
    /// stream is returned too, that of other streams is not.
    ///
    /// # Errors
    /// `RuntimeError::Driver`, also for a fault of an earlier launch.
    pub fn release_memory(&self) -> Result<()> {
        match &self.inner.backend {
            Backend::Cpu | Backend::Virtual(_) => Ok(()),
            Backend::Cuda(context) => {
                self.inner.scratch.free(context, std::ptr::null_mut());
                context.release()
            }
        }
    }

    /// Waits until everything queued on the device has run.
    ///
    /// # Errors
    /// `RuntimeError::Driver`, also for a fault of an earlier launch.
    pub fn synchronize(&self) -> Result<()> {
        match &self.inner.backend {
            Backend::Cpu | Backend::Virtual(_) => Ok(()),
            Backend::Cuda(context) => context.synchronize_all(),
        }
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.inner.backend
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn plans(&self) -> &PlanCache {
        &self.inner.plans
    }

    pub(crate) fn default_scratch(&self) -> &StreamScratch {
        &self.inner.scratch
    }

    pub(crate) fn counters(&self) -> &DeviceCounters {
        &self.inner.counters
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}

impl Device {
    /// The texts for this device and another one that tell them apart.
    pub fn beside(&self, other: &Device) -> (String, String) {
        let (one, two) = (self.inner.id.to_string(), other.inner.id.to_string());
        let two = if one == two { "another device of that name".to_owned() } else { two };
        (one, two)
    }
}

impl fmt::Display for Device {
    /// `cpu`, `sim:sm_90` or `cuda:0 (NVIDIA H100, sm_90)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.inner.id, self.inner.machine) {
            (DeviceId::Cuda(_), Some(machine)) => write!(f, "{} ({}, {machine})", self.inner.id, self.name()),
            _ => self.inner.id.fmt(f),
        }
    }
}

impl PartialEq for Device {
    /// Equal devices can use each other's tensors. Each simulator has a memory of its own.
    fn eq(&self, other: &Device) -> bool {
        let simulated = self.simulates();
        self.inner.id == other.inner.id && (!simulated || Arc::ptr_eq(&self.inner, &other.inner))
    }
}

impl Eq for Device {}

#[cfg(test)]
impl Device {
    /// A GPU that does not exist: nothing runs on it, but it differs from the CPU.
    pub(crate) fn absent(ordinal: usize) -> Device {
        Device::build(DeviceId::Cuda(ordinal), Backend::Cpu, None, CacheDir::Off)
    }
}
