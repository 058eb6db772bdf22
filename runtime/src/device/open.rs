//! Opens devices. A process shares one instance of each.

use super::{Backend, Device, DeviceId};
use crate::compile::CacheDir;
use crate::error::{DeviceError, Result, RuntimeError};
use crate::gpu::{Context, driver};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

impl Device {
    /// The first GPU that a supported target runs on, else the CPU.
    ///
    /// # Errors
    /// `RuntimeError::Driver` if there is a GPU but it cannot be opened, [`DeviceError::Forked`] if that is because
    /// this process was
    /// forked. A machine without a driver is not an error.
    pub fn best() -> Result<Device> {
        let count = match driver() {
            Err(e @ DeviceError::Forked {}) => return Err(e.into()),
            found => found.map_or(0, |d| d.count),
        };
        for ordinal in 0..count {
            match Device::cuda(ordinal) {
                Err(RuntimeError::Device(DeviceError::UnsupportedGpu { .. })) => {}
                answer => return answer,
            }
        }
        Ok(Device::cpu())
    }

    /// The CPU. There is one per process.
    pub fn cpu() -> Device {
        match Device::shared(DeviceId::Cpu) {
            Ok(device) => device,
            // Opening the CPU calls nothing that can fail. This arm avoids a `Result` in the signature.
            Err(_) => Device::build(DeviceId::Cpu, Backend::Cpu, None, CacheDir::Off),
        }
    }

    /// GPU number `ordinal`. There is one per process and number.
    ///
    /// # Errors
    /// `RuntimeError::Device` if there is no driver, the driver is too old, there is no such GPU, no target runs on it,
    /// or the process was forked from one that had started CUDA.
    pub fn cuda(ordinal: usize) -> Result<Device> {
        Device::shared(DeviceId::Cuda(ordinal))
    }

    /// The simulator of a GPU of an architecture, such as `sm_90`. There is one per process and architecture. Like a
    /// GPU, it starts with the bundles of the program and the tuning records of its name.
    ///
    /// # Errors
    /// [`DeviceError::NoSuchArch`] if there is no such architecture, or if the program was built without the feature
    /// `sim`.
    pub fn sim(arch: &str) -> Result<Device> {
        let machine = arch.parse().map_err(|reason| DeviceError::NoSuchArch { reason })?;
        Device::shared(DeviceId::Sim(machine))
    }

    /// A separate device with its own kernel store. [`Device::cpu`], [`Device::cuda`] and [`Device::sim`] return the
    /// shared ones.
    ///
    /// # Errors
    /// As [`Device::cuda`].
    pub fn open(id: DeviceId, cache: CacheDir) -> Result<Device> {
        match id {
            DeviceId::Cpu => Ok(Device::build(id, Backend::Cpu, None, cache)),
            DeviceId::Cuda(ordinal) => {
                let context = Context::open(ordinal)?;
                let machine = context.machine()?;
                Ok(Device::build(id, Backend::Cuda(Arc::new(context)), Some(machine), cache))
            }
            #[cfg(feature = "sim")]
            DeviceId::Sim(machine) => {
                let device = Device::sim_with(machine, crate::gpu::SimOptions::default(), cache);
                device.set_bundles(crate::bundle::Bundles::of_program());
                device.set_records(crate::records::Records::of_gpu(device.name()));
                Ok(device)
            }
            #[cfg(not(feature = "sim"))]
            DeviceId::Sim(_) => {
                let reason = "this program was built without the simulator (feature `sim`)".to_owned();
                Err(DeviceError::NoSuchArch { reason }.into())
            }
        }
    }

    fn shared(id: DeviceId) -> Result<Device> {
        static DEVICES: Mutex<BTreeMap<DeviceId, Device>> = Mutex::new(BTreeMap::new());
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = devices.get(&id) {
            return Ok(device.clone());
        }
        let device = Device::open(id, CacheDir::from_env())?;
        devices.insert(id, device.clone());
        Ok(device)
    }
}
