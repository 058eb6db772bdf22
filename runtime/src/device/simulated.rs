//! Simulated devices: opening one with options, and what its latest launch did.

use super::{Backend, Device, DeviceId};
use crate::compile::CacheDir;
use crate::gpu::{SimOptions, SimRun, Simulator};
use atlas_codegen::Machine;
use std::any::Any;
use std::sync::Arc;

impl Device {
    /// A simulator of its own, with its own memory and kernel store, that executes as the options say. A target stands
    /// for the usual GPU of its generation. Unlike that of [`Device::sim`] it has no bundles and no tuning records but those that it
    /// is given: what tries kernels does not depend on the environment.
    pub fn sim_with(machine: impl Into<Machine>, options: SimOptions, cache: CacheDir) -> Device {
        let machine = machine.into();
        let id = DeviceId::Sim(machine);
        let gpu = Backend::Virtual(Box::new(Simulator::new(id.to_string(), options)));
        Device::build(id, gpu, Some(machine), cache)
    }

    /// What the latest launch on this simulator did; `None` before the first, and on any other device.
    pub fn simulated(&self) -> Option<Arc<SimRun>> {
        let Backend::Virtual(gpu) = self.backend() else { return None };
        let gpu: &dyn Any = &**gpu;
        gpu.downcast_ref::<Simulator>()?.latest()
    }
}
