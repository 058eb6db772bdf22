//! The interface of a GPU that this process simulates, so that the rest of the runtime does not depend on the
//! simulator.

use super::tensor_map::BoundMap;
use crate::error::Result;
use atlas_codegen::KernelImage;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// Compiles a kernel again with the line numbers of its source; `None` without a compiler.
pub(crate) type RecompileWithLines = Box<dyn Fn() -> Option<KernelImage> + Send + Sync>;

/// Memory in an address space of its own, and the kernels that run on it. Every call has finished its work when it
/// returns.
pub(crate) trait VirtualGpu: Any + Send + Sync {
    /// Allocates uninitialised bytes: a kernel that reads them before they are written causes a fault.
    fn alloc(&self, bytes: u64) -> u64;

    /// Frees an allocation.
    fn free(&self, address: u64);

    /// The addresses of the allocation that an address is in.
    fn allocation_at(&self, address: u64) -> Option<Range<u64>>;

    /// Copies host bytes in. The range lies within one allocation.
    fn write(&self, address: u64, from: &[u8]);

    /// Copies bytes out. Bytes that were never written read as zero.
    fn read(&self, address: u64, to: &mut [u8]);

    /// Prepares a kernel. Its faults name source lines, which come from `lined`.
    fn load(&self, image: Arc<KernelImage>, lined: RecompileWithLines) -> Result<Box<dyn VirtualKernel>>;
}

/// A kernel that a virtual GPU has prepared.
pub(crate) trait VirtualKernel: Send + Sync {
    /// The bytes of local memory per thread that its PTX declares.
    fn local_bytes(&self) -> u32;

    /// Runs the kernel with the values of its parameters, 64 bits each. That of a tensor map is the address of its tensor. Those of
    /// scratch memory are ignored, because the GPU allocates it for each launch. Besides it, the kernel may write to these address
    /// ranges, which are sorted, and to no others.
    fn launch(&self, grid: u32, params: &[u64], maps: &[BoundMap], outputs: &[Range<u64>]) -> Result<()>;
}
