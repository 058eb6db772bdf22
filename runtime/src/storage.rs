//! The memory behind tensors: bytes of the host, or of one GPU.

use crate::device::{Backend, Device};
use crate::error::{Result, TensorError};
use std::sync::{PoisonError, RwLock};

/// One allocation; views share it.
pub(crate) struct Storage {
    device: Device,
    memory: Memory,
    address: u64,
    bytes: u64,
}

enum Memory {
    /// Host memory. The lock makes concurrent launches on shared views safe; it is held for copies alone.
    Host(RwLock<Vec<u8>>),
    /// Memory of a GPU, freed on drop.
    Cuda,
}

impl Storage {
    /// Allocates; the content is zero on the host and arbitrary on a GPU. Never empty, so that addresses differ.
    pub(crate) fn empty(device: &Device, bytes: u64) -> Result<Storage> {
        let room = bytes.max(16);
        let (memory, address) = match device.backend() {
            Backend::Cpu => {
                let mut data = Vec::new();
                data.try_reserve_exact(room as usize)
                    .map_err(|_| TensorError::OutOfMemory { bytes, device: device.to_string() })?;
                data.resize(room as usize, 0_u8);
                let address = data.as_ptr() as u64;
                (Memory::Host(RwLock::new(data)), address)
            }
            Backend::Cuda(context) => (Memory::Cuda, context.alloc(room)?),
        };
        Ok(Storage { device: device.clone(), memory, address, bytes })
    }

    /// Where it lives.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Fills with zeros.
    pub(crate) fn zero(&self) -> Result<()> {
        match (&self.memory, self.device.backend()) {
            (Memory::Cuda, Backend::Cuda(context)) => context.zero(self.address, self.bytes),
            _ => {
                self.with_host_mut(|data| data.fill(0));
                Ok(())
            }
        }
    }

    /// Copies host bytes in, starting at a byte offset; returns when they are there.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        debug_assert!(offset + from.len() as u64 <= self.bytes);
        match self.device.backend() {
            Backend::Cuda(context) if !from.is_empty() => context.upload(self.address + offset, from),
            Backend::Cuda(_) => Ok(()),
            Backend::Cpu => {
                self.with_host_mut(|data| data[offset as usize..][..from.len()].copy_from_slice(from));
                Ok(())
            }
        }
    }

    /// Copies bytes out, once all work on the device is done.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        debug_assert!(offset + to.len() as u64 <= self.bytes);
        match self.device.backend() {
            Backend::Cuda(context) if !to.is_empty() => context.download(self.address + offset, to),
            Backend::Cuda(_) => Ok(()),
            Backend::Cpu => {
                if let Some(data) = self.host() {
                    let data = data.read().unwrap_or_else(PoisonError::into_inner);
                    to.copy_from_slice(&data[offset as usize..][..to.len()]);
                }
                Ok(())
            }
        }
    }

    /// Host memory, if that is what it is.
    pub(crate) fn host(&self) -> Option<&RwLock<Vec<u8>>> {
        match &self.memory {
            Memory::Host(data) => Some(data),
            Memory::Cuda => None,
        }
    }

    fn with_host_mut(&self, f: impl FnOnce(&mut [u8])) {
        if let Memory::Host(data) = &self.memory {
            f(&mut data.write().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let (Memory::Cuda, Backend::Cuda(context)) = (&self.memory, self.device.backend()) {
            context.free(self.address);
        }
    }
}
