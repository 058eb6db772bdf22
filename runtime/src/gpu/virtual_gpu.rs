//! A GPU that this process plays: what the runtime asks of one, so that it knows no simulator by name.

use crate::error::Result;
use atlas_codegen::KernelImage;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// Compiles a kernel once more, with the lines of its source; `None` without a compiler.
pub(crate) type RecompileWithLines = Box<dyn Fn() -> Option<KernelImage> + Send + Sync>;

/// Memory at addresses of its own, and the kernels that run on it. Every call has done its work when it returns.
pub(crate) trait VirtualGpu: Any + Send + Sync {
    /// Allocates bytes that hold nothing: a kernel that reads them before they are written is found out.
    fn alloc(&self, bytes: u64) -> u64;

    /// Frees an allocation.
    fn free(&self, address: u64);

    /// Copies host bytes in; storage never asks for bytes outside its own.
    fn write(&self, address: u64, from: &[u8]);

    /// Copies bytes out; what was never written reads as zero.
    fn read(&self, address: u64, to: &mut [u8]);

    /// Readies a kernel. A fault of it names the source by what `lined` gives.
    fn load(&self, image: Arc<KernelImage>, lined: RecompileWithLines) -> Result<Box<dyn VirtualKernel>>;
}

/// A kernel that a virtual GPU has readied.
pub(crate) trait VirtualKernel: Send + Sync {
    /// The local memory that its PTX declares, in bytes of one thread.
    fn local_bytes(&self) -> u32;

    /// Runs it with the values of its parameters, 64 bits each. It may write these addresses, sorted, and no others.
    fn launch(&self, grid: u32, params: &[u64], outputs: &[Range<u64>]) -> Result<()>;
}
