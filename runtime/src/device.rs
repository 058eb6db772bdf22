//! Devices: the CPU, which is always there, the GPUs that the driver shows, and simulated ones.

use crate::device_id::DeviceId;
use crate::driver::Context;
use crate::error::Result;
use crate::memory::DeviceMemory;
use crate::plans::Plans;
use crate::store::{CacheDir, Store};
use crate::virtual_gpu::VirtualGpu;
use atlas_codegen::{Machine, Target};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where kernels run and tensors live. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    id: DeviceId,
    machine: Option<Machine>,
    backend: Backend,
    store: Store,
    plans: Plans,
    counters: Counters,
}

/// What runs the kernels.
pub(crate) enum Backend {
    Cpu,
    Cuda(Arc<Context>),
    #[cfg_attr(not(feature = "sim"), allow(dead_code, reason = "the simulator is the only one"))]
    Virtual(Box<dyn VirtualGpu>),
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) launches: AtomicU64,
    pub(crate) warm: AtomicU64,
    pub(crate) compiled: AtomicU64,
    pub(crate) spilling: AtomicU64,
    pub(crate) passed_over: AtomicU64,
    /// Bytes of the tensors that live, and the most there were.
    pub(crate) bytes: AtomicU64,
    pub(crate) most_bytes: AtomicU64,
}

/// What a device has done so far. Numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Launches, empty ones included.
    pub launches: u64,
    /// Launches whose problem had been seen before.
    pub warm_launches: u64,
    /// Kernels compiled.
    pub compiled: u64,
    /// Kernels found in memory.
    pub memory_hits: u64,
    /// Kernels found in the disk cache.
    pub disk_hits: u64,
    /// Disk cache entries that were damaged, and were rebuilt.
    pub corrupt_entries: u64,
    /// Reads and writes of the disk cache that failed; they cost a compilation and nothing else.
    pub disk_failures: u64,
    /// Loaded kernels that use local memory, that is, whose registers spill.
    pub spilling_kernels: u64,
    /// Configs that stood first but were refused by the compiler or the driver, or left for one that does not spill.
    pub passed_over: u64,
}

impl Device {
    pub(crate) fn build(id: DeviceId, backend: Backend, machine: Option<Machine>, cache: CacheDir) -> Device {
        let inner = Inner {
            id,
            machine,
            backend,
            store: Store::new(cache),
            plans: Plans::default(),
            counters: Counters::default(),
        };
        Device { inner: Arc::new(inner) }
    }

    /// Which device it is.
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

    /// The GPU's name as the driver gives it; `CPU` for the CPU, `simulator` for a simulated GPU.
    pub fn name(&self) -> &str {
        match &self.inner.backend {
            Backend::Cpu => "CPU",
            Backend::Cuda(context) => &context.name,
            Backend::Virtual(_) => "simulator",
        }
    }

    /// Compute capability (major, minor) of a GPU.
    pub fn capability(&self) -> Option<(u32, u32)> {
        self.inner.machine.map(|m| (m.sm / 10, m.sm % 10))
    }

    /// What kernels are compiled for on this device; `None` on the CPU.
    pub fn target(&self) -> Option<Target> {
        self.inner.machine.map(|m| m.target())
    }

    /// What a GPU holds: as its driver says, for a simulated one as the usual GPU of its arch; `None` on the CPU.
    pub fn machine(&self) -> Option<Machine> {
        self.inner.machine
    }

    /// The highest CUDA version that the driver serves, as (major, minor); `None` where there is no driver.
    pub fn driver_version(&self) -> Option<(u32, u32)> {
        match &self.inner.backend {
            Backend::Cpu | Backend::Virtual(_) => None,
            Backend::Cuda(context) => {
                let v = context.driver.version as u32;
                Some((v / 1000, v % 1000 / 10))
            }
        }
    }

    /// Streaming multiprocessors of a GPU, for a simulated one those of the usual GPU of its arch; cores of the CPU.
    pub fn sm_count(&self) -> u32 {
        let cores = || std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        self.inner.machine.map_or_else(cores, |m| m.sms)
    }

    /// Memory of a GPU in bytes; `None` on the CPU and on a simulated GPU.
    pub fn memory_bytes(&self) -> Option<u64> {
        match &self.inner.backend {
            Backend::Cpu | Backend::Virtual(_) => None,
            Backend::Cuda(context) => Some(context.memory_bytes),
        }
    }

    /// Bytes of the tensors that live on the device, and the most there were at once. Launches allocate nothing.
    pub fn tensor_bytes(&self) -> (u64, u64) {
        let c = &self.inner.counters;
        (c.bytes.load(Ordering::Relaxed), c.most_bytes.load(Ordering::Relaxed))
    }

    /// What the driver says of a GPU's memory; `None` on the CPU and on a simulated GPU.
    ///
    /// # Errors
    /// `RuntimeError::Driver`.
    pub fn memory(&self) -> Result<Option<DeviceMemory>> {
        match &self.inner.backend {
            Backend::Cpu | Backend::Virtual(_) => Ok(None),
            Backend::Cuda(context) => context.memory().map(Some),
        }
    }

    /// Waits for the device, gives memory that no tensor uses back to the system, and counts
    /// [`DeviceMemory::most_used`] anew. Otherwise a GPU's memory is kept for the tensors to come.
    ///
    /// # Errors
    /// `RuntimeError::Driver`, also for a fault of an earlier launch.
    pub fn release_memory(&self) -> Result<()> {
        match &self.inner.backend {
            Backend::Cpu | Backend::Virtual(_) => Ok(()),
            Backend::Cuda(context) => context.release(),
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

    /// What the device has done so far.
    pub fn stats(&self) -> DeviceStats {
        let c = &self.inner.counters;
        let store = self.inner.store.stats();
        DeviceStats {
            launches: c.launches.load(Ordering::Relaxed),
            warm_launches: c.warm.load(Ordering::Relaxed),
            compiled: c.compiled.load(Ordering::Relaxed),
            memory_hits: store.memory_hits,
            disk_hits: store.disk_hits,
            corrupt_entries: store.corrupt_entries,
            disk_failures: store.disk_failures,
            spilling_kernels: c.spilling.load(Ordering::Relaxed),
            passed_over: c.passed_over.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.inner.backend
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn plans(&self) -> &Plans {
        &self.inner.plans
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.inner.counters
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
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
    /// Equal devices hold each other's tensors. Each simulator has a memory of its own.
    fn eq(&self, other: &Device) -> bool {
        let simulated = self.simulates();
        self.inner.id == other.inner.id && (!simulated || Arc::ptr_eq(&self.inner, &other.inner))
    }
}

impl Eq for Device {}

#[cfg(test)]
impl Device {
    /// A GPU that is not there: nothing runs on it, but it is another device than the CPU.
    pub(crate) fn absent(ordinal: usize) -> Device {
        Device::build(DeviceId::Cuda(ordinal), Backend::Cpu, None, CacheDir::Off)
    }
}
