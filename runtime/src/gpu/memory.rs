//! Memory of a GPU: allocation for tensors, and the driver's memory figures.

use super::context::{Context, PoolAttribute};
use super::current::Handle;
use crate::error::{Result, TensorError};
use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;

/// `CUDA_ERROR_INVALID_VALUE`.
const INVALID_VALUE: u32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: u32 = 500;

/// `CUpointer_attribute`, as far as it is in use.
#[derive(Clone, Copy)]
#[repr(u32)]
enum PointerAttribute {
    MemoryType = 2,
    DeviceOrdinal = 9,
}

/// `CU_MEMORYTYPE_HOST`.
const MEMORY_OF_HOST: c_uint = 1;

/// What lies at an address of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemoryAt {
    /// Memory of the GPU asked: the allocation that the address is in.
    Here(Range<u64>),
    /// Memory of the GPU with this ordinal.
    OtherGpu(c_int),
    /// Memory of the host, pinned or not.
    Host,
}

/// Memory figures of a GPU from its driver, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// Free on the device, for all processes.
    pub free: u64,
    /// Reserved by this process for its tensors and the scratch memory of its streams, including freed ones: the driver reserves
    /// large blocks.
    pub reserved: u64,
    /// In use by live tensors, and by the scratch memory that streams keep for kernels whose programs are split.
    pub used: u64,
    /// The peak of `used` since the start, or since [`release_memory`](crate::Device::release_memory).
    pub most_used: u64,
}

impl Context {
    /// Allocates bytes, ordered on a stream. Returns the address.
    pub(crate) fn alloc(&self, bytes: u64, stream: Handle) -> Result<u64> {
        let api = self.enter()?;
        let mut address = 0;
        // SAFETY: out-pointer to a live integer; the handle is the null stream or a live stream of this context.
        let (call, status) = unsafe {
            if self.pool.is_some() {
                ("cuMemAllocAsync", (api.alloc_async)(&mut address, bytes as usize, stream))
            } else {
                ("cuMemAlloc", (api.alloc)(&mut address, bytes as usize))
            }
        };
        if status == OUT_OF_MEMORY {
            return Err(TensorError::OutOfMemory { bytes, device: self.label.clone() }.into());
        }
        self.check(call, status)?;
        Ok(address)
    }

    /// Frees memory from `alloc`, once the work already queued on a stream is done. For the default stream, that includes the work
    /// of blocking streams.
    pub(crate) fn free(&self, address: u64, stream: Handle) {
        // Without pools the driver knows no order. It waits for blocking streams by itself.
        if self.pool.is_none() && !stream.is_null() && self.synchronize(stream).is_err() {
            return;
        }
        if let Ok(api) = self.enter() {
            // SAFETY: `address` came from `alloc` and is freed once; the stream is as there. A failure here only leaks.
            unsafe {
                if self.pool.is_some() {
                    (api.free_async)(address, stream);
                } else {
                    (api.free)(address);
                }
            }
        }
    }

    /// What lies at an address, whoever allocated it.
    pub(crate) fn memory_at(&self, address: u64) -> Result<MemoryAt> {
        let api = self.enter()?;
        let ask = |attribute: PointerAttribute| -> Result<Option<c_uint>> {
            let mut value: c_uint = 0;
            // SAFETY: out-pointer to a live integer, which is the type of both attributes. Any address may be asked for.
            match unsafe { (api.pointer_attribute)((&raw mut value).cast(), attribute as c_uint, address) } {
                // The driver does not know the address.
                INVALID_VALUE => Ok(None),
                status => self.check("cuPointerGetAttribute", status).map(|()| Some(value)),
            }
        };
        match ask(PointerAttribute::MemoryType)? {
            None | Some(MEMORY_OF_HOST) => return Ok(MemoryAt::Host),
            Some(_) => {}
        }
        match ask(PointerAttribute::DeviceOrdinal)? {
            Some(ordinal) if ordinal as c_int != self.ordinal => return Ok(MemoryAt::OtherGpu(ordinal as c_int)),
            _ => {}
        }
        let (mut first, mut bytes) = (0, 0);
        // SAFETY: out-pointers to live integers.
        match unsafe { (api.address_range)(&mut first, &mut bytes, address) } {
            INVALID_VALUE | NOT_FOUND => Ok(MemoryAt::Host),
            status => {
                self.check("cuMemGetAddressRange", status)?;
                Ok(MemoryAt::Here(first..first.saturating_add(bytes as u64)))
            }
        }
    }

    /// The driver's memory figures.
    pub(crate) fn memory(&self) -> Result<DeviceMemory> {
        let (mut free, mut all) = (0, 0);
        let api = self.enter()?;
        // SAFETY: out-pointers to live integers.
        self.check("cuMemGetInfo", unsafe { (api.memory_info)(&mut free, &mut all) })?;
        let of_pool = |key: PoolAttribute| match self.pool {
            None => Ok(0),
            Some(pool) => {
                let mut bytes = 0_u64;
                // SAFETY: a live pool, and a live u64, which is the type of the attributes asked for here.
                let status = unsafe { (api.pool_get_attribute)(pool, key as c_int, (&raw mut bytes).cast()) };
                self.check("cuMemPoolGetAttribute", status).map(|()| bytes)
            }
        };
        Ok(DeviceMemory {
            free: free as u64,
            reserved: of_pool(PoolAttribute::ReservedNow)?,
            used: of_pool(PoolAttribute::UsedNow)?,
            most_used: of_pool(PoolAttribute::UsedMost)?,
        })
    }

    /// Returns unused memory to the system, and restarts the peak.
    pub(crate) fn release(&self) -> Result<()> {
        let Some(pool) = self.pool else { return Ok(()) };
        self.synchronize_all()?;
        let api = self.enter()?;
        let mut none = 0_u64;
        let high = PoolAttribute::UsedMost as c_int;
        // SAFETY: a live pool; then a live u64 of 0, the only value that this attribute accepts.
        unsafe {
            self.check("cuMemPoolTrimTo", (api.pool_trim)(pool, 0))?;
            self.check("cuMemPoolSetAttribute", (api.pool_set_attribute)(pool, high, (&raw mut none).cast::<c_void>()))
        }
    }
}
