//! The counters of a device, and the numbers that users see of them.

use super::Device;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a device.
#[derive(Default)]
pub(crate) struct DeviceCounters {
    pub(crate) launches: AtomicU64,
    pub(crate) warm: AtomicU64,
    pub(crate) compiled: AtomicU64,
    pub(crate) spilling: AtomicU64,
    pub(crate) passed_over: AtomicU64,
    /// Problems whose config was chosen by a record, by the corrected cost model, and by the uncorrected one.
    pub(crate) by_record: AtomicU64,
    pub(crate) by_nearby: AtomicU64,
    pub(crate) by_model: AtomicU64,
    /// Problems whose kernel came from a bundle, by their sizes and by their region, and problems that fell back to the
    /// CPU.
    pub(crate) by_bundle: AtomicU64,
    pub(crate) by_region: AtomicU64,
    pub(crate) by_cpu: AtomicU64,
    /// Microseconds in the driver's loader.
    pub(crate) load_us: AtomicU64,
    /// Bytes of the live tensors, and the most so far.
    pub(crate) bytes: AtomicU64,
    pub(crate) most_bytes: AtomicU64,
}

/// Counters of a device since it was opened. Numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Launches, including empty ones.
    pub launches: u64,
    /// Launches of problems seen before.
    pub warm_launches: u64,
    /// Kernels compiled.
    pub compiled: u64,
    /// Kernels found in memory.
    pub memory_hits: u64,
    /// Kernels found in the disk cache.
    pub disk_hits: u64,
    /// Disk cache entries that were damaged and then rebuilt.
    pub corrupt_entries: u64,
    /// Reads and writes of the disk cache that failed. Each only costs a compilation.
    pub disk_failures: u64,
    /// Loaded kernels that use local memory, that is, whose registers spill.
    pub spilling_kernels: u64,
    /// Problems whose config came from a tuning record of their own sizes.
    pub chosen_by_record: u64,
    /// Problems whose config the cost model chose, corrected by tuning records of other sizes.
    pub chosen_by_nearby: u64,
    /// Problems whose config the cost model chose alone.
    pub chosen_by_model: u64,
    /// Problems whose kernel a bundle had for exactly their sizes.
    pub chosen_by_bundle: u64,
    /// Problems whose kernel a bundle had, for a region of sizes.
    pub chosen_by_region: u64,
    /// Problems that ran on the CPU because no kernel was available: see [`Device::set_cpu_fallback`].
    pub on_cpu: u64,
    /// Microseconds that the driver took to load kernels, which includes assembling PTX.
    pub load_us: u64,
    /// Configs that ranked first but were refused by the compiler or the driver, or were passed over for one that does
    /// not spill.
    pub passed_over: u64,
}

impl Device {
    /// The counters of the device so far.
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
            chosen_by_record: c.by_record.load(Ordering::Relaxed),
            chosen_by_nearby: c.by_nearby.load(Ordering::Relaxed),
            chosen_by_model: c.by_model.load(Ordering::Relaxed),
            chosen_by_bundle: c.by_bundle.load(Ordering::Relaxed),
            chosen_by_region: c.by_region.load(Ordering::Relaxed),
            on_cpu: c.by_cpu.load(Ordering::Relaxed),
            load_us: c.load_us.load(Ordering::Relaxed),
            passed_over: c.passed_over.load(Ordering::Relaxed),
        }
    }
}
