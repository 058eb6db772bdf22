//! The memory behind tensors: bytes on the host, on a GPU, or on a virtual GPU.

use crate::device::{Backend, Device, DeviceId, Stream};
use crate::error::{Result, TensorError};
use std::any::Any;
use std::ffi::c_void;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLock};

/// One allocation, which views share.
pub(crate) struct Storage {
    device: Device,
    memory: StorageMemory,
    address: u64,
    bytes: u64,
    owner: Owner,
}

enum StorageMemory {
    /// Host memory. The lock makes concurrent launches on shared views safe: a copy holds it, and a launch on the CPU
    /// holds it while its programs run. Programs run on threads of their own and never wait for the lock.
    Host(RwLock<HostBytes>),
    /// Memory of a GPU, virtual or not.
    Device,
}

/// Who frees the memory.
enum Owner {
    /// The storage, on drop.
    Storage,
    /// The storage, on drop, in the order of this stream.
    OnStream(Stream),
    /// Another library: at the latest when this value is dropped, or later if there is none.
    Foreign { _owner: Option<Box<dyn Any + Send + Sync>> },
}

impl Owner {
    /// The stream in whose order the memory is allocated and freed.
    fn stream(&self) -> *mut c_void {
        match self {
            Owner::OnStream(stream) => stream.as_raw(),
            Owner::Storage | Owner::Foreign { .. } => std::ptr::null_mut(),
        }
    }
}

/// Bytes of host memory.
pub(crate) enum HostBytes {
    /// Of this crate.
    Owned(Vec<u8>),
    /// Of another library.
    Foreign(ForeignBytes),
}

/// Bytes of host memory that another library allocated.
pub(crate) struct ForeignBytes {
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: it is plain memory. Who made the tensor has promised that no other thread touches it at the wrong time.
unsafe impl Send for ForeignBytes {}
// SAFETY: as above.
unsafe impl Sync for ForeignBytes {}

impl HostBytes {
    /// The bytes at these addresses.
    ///
    /// # Safety
    /// They are allocated and initialised as long as the result lives. While it is borrowed, nobody else writes them, and while it
    /// is borrowed mutably, nobody else reads them.
    pub(super) unsafe fn foreign(bytes: Range<u64>) -> HostBytes {
        let len = (bytes.end - bytes.start) as usize;
        let first = NonNull::new(std::ptr::with_exposed_provenance_mut(bytes.start as usize));
        match first {
            Some(first) if len > 0 => HostBytes::Foreign(ForeignBytes { first, len }),
            // The address of no bytes may be anything.
            _ => HostBytes::Owned(Vec::new()),
        }
    }
}

impl Deref for HostBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            HostBytes::Owned(bytes) => bytes,
            // SAFETY: the promise of `HostBytes::foreign`.
            HostBytes::Foreign(bytes) => unsafe { std::slice::from_raw_parts(bytes.first.as_ptr(), bytes.len) },
        }
    }
}

impl DerefMut for HostBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            HostBytes::Owned(bytes) => bytes,
            // SAFETY: the promise of `HostBytes::foreign`.
            HostBytes::Foreign(bytes) => unsafe { std::slice::from_raw_parts_mut(bytes.first.as_ptr(), bytes.len) },
        }
    }
}

impl Storage {
    /// Allocates. The content is zero on the host, arbitrary on a GPU and uninitialised on a virtual GPU. The
    /// allocation is never empty, so addresses differ.
    pub(crate) fn empty(device: &Device, bytes: u64) -> Result<Storage> {
        Storage::allocate(device, bytes, Owner::Storage)
    }

    /// Allocates in the order of a stream, and frees in its order.
    ///
    /// # Safety
    /// What uses it is ordered with the stream, and it is dropped before the stream ends.
    pub(super) unsafe fn empty_on(stream: &Stream, bytes: u64) -> Result<Storage> {
        Storage::allocate(stream.device(), bytes, Owner::OnStream(stream.clone()))
    }

    fn allocate(device: &Device, bytes: u64, owner: Owner) -> Result<Storage> {
        let stream = owner.stream();
        let room = bytes.max(16);
        let out_of_memory = || TensorError::OutOfMemory { bytes, device: device.to_string() };
        let (memory, address) = match device.backend() {
            Backend::Cpu => {
                let mut data = room_on_host(room).ok_or_else(out_of_memory)?;
                data.resize(room as usize, 0_u8);
                let address = data.as_ptr() as u64;
                (StorageMemory::Host(RwLock::new(HostBytes::Owned(data))), address)
            }
            Backend::Cuda(context) => (StorageMemory::Device, context.alloc(room, stream)?),
            // Exactly as long as requested, so that a byte past the end is out of bounds. The virtual GPU stores its
            // marks elsewhere.
            Backend::Virtual(gpu) => {
                drop(room_on_host(bytes.saturating_mul(2)).ok_or_else(out_of_memory)?);
                (StorageMemory::Device, gpu.alloc(bytes))
            }
        };
        let counters = device.counters();
        let now = counters.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        counters.most_bytes.fetch_max(now, Ordering::Relaxed);
        Ok(Storage { device: device.clone(), memory, address, bytes, owner })
    }

    /// Memory of another library: on the host if its bytes are given.
    pub(super) fn of_foreign(
        device: &Device,
        host: Option<HostBytes>,
        bytes: Range<u64>,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Storage {
        let memory = host.map_or(StorageMemory::Device, |bytes| StorageMemory::Host(RwLock::new(bytes)));
        let Range { start, end } = bytes;
        Storage {
            device: device.clone(),
            memory,
            address: start,
            bytes: end - start,
            owner: Owner::Foreign { _owner: owner },
        }
    }

    /// The same memory again, of another library and without an owner: for a clone of a tensor.
    pub(super) fn borrowed_again(&self) -> Storage {
        let host = match &self.memory {
            StorageMemory::Device => None,
            // SAFETY: who made the tensor has promised it for all its clones.
            StorageMemory::Host(_) => Some(unsafe { HostBytes::foreign(self.addresses()) }),
        };
        Storage::of_foreign(&self.device, host, self.addresses(), None)
    }

    /// The device of the memory.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Its size in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    /// The addresses of its bytes. Storage of another library may share them with other storage.
    pub(crate) fn addresses(&self) -> Range<u64> {
        self.address..self.address + self.bytes
    }

    /// Fills with zeros.
    pub(crate) fn zero(&self) -> Result<()> {
        match (&self.memory, self.device.backend()) {
            (StorageMemory::Device, Backend::Cuda(context)) => {
                context.zero(self.address, self.bytes, std::ptr::null_mut())
            }
            (_, Backend::Virtual(_)) if self.bytes == 0 => Ok(()),
            (_, Backend::Virtual(gpu)) => {
                const ZEROS: &[u8] = &[0; 1 << 16];
                for start in (0..self.bytes).step_by(ZEROS.len()) {
                    gpu.write(self.address + start, &ZEROS[..ZEROS.len().min((self.bytes - start) as usize)]);
                }
                Ok(())
            }
            _ => {
                self.with_host_mut(|data| data.fill(0));
                Ok(())
            }
        }
    }

    /// Copies host bytes to a byte offset, and returns when they are there. An empty copy may have any offset.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        debug_assert!(offset + from.len() as u64 <= self.bytes);
        match self.device.backend() {
            Backend::Cuda(context) => context.upload(self.address + offset, from),
            Backend::Virtual(gpu) => {
                gpu.write(self.address + offset, from);
                Ok(())
            }
            Backend::Cpu => {
                self.with_host_mut(|data| data[offset as usize..][..from.len()].copy_from_slice(from));
                Ok(())
            }
        }
    }

    /// Copies bytes out, once all work on the device is done. An empty copy may have any offset.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        debug_assert!(offset + to.len() as u64 <= self.bytes);
        match self.device.backend() {
            Backend::Cuda(context) => context.download(self.address + offset, to),
            Backend::Virtual(gpu) => {
                gpu.read(self.address + offset, to);
                Ok(())
            }
            Backend::Cpu => {
                if let Some(data) = self.host() {
                    let data = data.read().unwrap_or_else(PoisonError::into_inner);
                    to.copy_from_slice(&data[offset as usize..][..to.len()]);
                }
                Ok(())
            }
        }
    }

    /// The host memory, if it is on the host.
    pub(crate) fn host(&self) -> Option<&RwLock<HostBytes>> {
        match &self.memory {
            StorageMemory::Host(data) => Some(data),
            StorageMemory::Device => None,
        }
    }

    /// Calls `f` with the host memory, if it is on the host.
    pub(crate) fn with_host_mut(&self, f: impl FnOnce(&mut [u8])) {
        if let StorageMemory::Host(data) = &self.memory {
            f(&mut data.write().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// An empty vector on the host with room for `len` values.
///
/// A view may have more elements than there is memory, which must not abort the process.
pub(crate) fn host_room<T>(len: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    match values.try_reserve_exact(len) {
        Ok(()) => Ok(values),
        Err(_) => {
            let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
            Err(TensorError::OutOfMemory { bytes, device: DeviceId::Cpu.to_string() }.into())
        }
    }
}

/// An empty vector on the host with room for `room` bytes, if there is enough memory.
fn room_on_host(room: u64) -> Option<Vec<u8>> {
    host_room(usize::try_from(room).ok()?).ok()
}

impl Drop for Storage {
    fn drop(&mut self) {
        match &self.owner {
            Owner::Storage | Owner::OnStream(_) => {}
            Owner::Foreign { .. } => return,
        }
        self.device.counters().bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        match self.device.backend() {
            Backend::Cpu => {}
            Backend::Cuda(context) => context.free(self.address, self.owner.stream()),
            Backend::Virtual(gpu) => gpu.free(self.address),
        }
    }
}
