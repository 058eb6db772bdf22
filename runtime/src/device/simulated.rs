//! Simulated devices: opening one with options, and the report of its latest launch.

use super::{Backend, Device, DeviceId};
use crate::compile::CacheDir;
use crate::gpu::{SimOptions, SimRun, Simulator};
use atlas_codegen::Machine;
use std::any::Any;
use std::sync::Arc;

impl Device {
    /// A separate simulator with its own memory and kernel store, which executes as the options say. A target stands
    /// for the usual GPU of its generation. Unlike a device of [`Device::sim`], it has only the bundles and tuning
    /// records that it is given, so tests of kernels do not depend on the environment.
    pub fn sim_with(machine: impl Into<Machine>, options: SimOptions, cache: CacheDir) -> Device {
        let machine = machine.into();
        let id = DeviceId::Sim(machine);
        let gpu = Backend::Virtual(Box::new(Simulator::new(id.to_string(), options)));
        Device::build(id, gpu, Some(machine), cache)
    }

    /// Has later launches on this simulator run under these options. Kernels that are loaded stay loaded. Other devices have
    /// no options.
    pub fn set_sim_options(&self, options: SimOptions) {
        if let Some(simulator) = self.simulator() {
            simulator.set_options(options);
        }
    }

    /// The report of the latest launch on this simulator; `None` before the first, and on any other device.
    pub fn simulated(&self) -> Option<Arc<SimRun>> {
        self.simulator()?.latest()
    }

    fn simulator(&self) -> Option<&Simulator> {
        let Backend::Virtual(gpu) = self.backend() else { return None };
        let gpu: &dyn Any = &**gpu;
        gpu.downcast_ref()
    }
}
