//! A compiled kernel: PTX text, and everything that a launcher must know, as data.
//!
//! The parameter list is the whole calling convention; only the runtime and the simulator read it.

use crate::arch::Target;
use crate::layout::tensor_map::TensorMapData;
use atlas_dsl::ir::GridExtent;
use atlas_dsl::{Dim, Param};

/// One parameter of the emitted `.entry`, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbiParam {
    /// Base address of a tensor, 64 bits.
    Ptr(Param),
    /// Size of a dynamic dim, 32 bits.
    Dim(Dim),
    /// Stride in elements of a tensor along an axis, 64 bits.
    Stride(Param, u8),
    /// A scalar parameter in its own type.
    Scalar(Param),
    /// Number of coordinates of the n-th grid axis, 32 bits.
    GridCount(u8),
    /// The n-th tensor map, 128 bytes at a multiple of 64.
    TensorMap(u8),
    /// Base address of the arrivals of a launch, 64 bits: a count of 32 bits for each program, which is zero before and after
    /// the launch. Where several CTAs share a program.
    Arrivals,
    /// Base address of the partial tiles of a launch, 64 bits, a multiple of 16: [`KernelImage::partial_bytes`] for each program.
    /// They hold anything before and after.
    Partials,
}

/// A compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelImage {
    /// Name of the `.entry`.
    pub entry: String,
    /// PTX text.
    pub ptx: String,
    /// The PTX ISA version that the text declares.
    pub ptx_version: (u32, u32),
    /// The target that it was compiled for.
    pub target: Target,
    /// The calling convention.
    pub params: Vec<AbiParam>,
    /// The tensor maps, which a launch encodes for the addresses, sizes and strides of its tensors.
    pub maps: Vec<TensorMapData>,
    /// The grid of programs, slowest axis first. A launch has as many CTAs, in one dimension, as [`KernelImage::ctas`] says.
    pub grid: Vec<GridExtent>,
    /// True if CTAs run any number of programs. Otherwise each runs one.
    pub persistent: bool,
    /// The number of CTAs that share each program: 1 unless the schedule splits a reduction.
    pub splits: u32,
    /// Bytes that the CTAs of one program leave for each other in global memory: 0 if each has its own program.
    pub partial_bytes: u64,
    /// Threads of one CTA.
    pub threads: u32,
    /// Dynamic shared memory of one CTA, in bytes.
    pub shared_bytes: u32,
}

/// Bytes of the number of arrivals of a program that several CTAs share.
pub const ARRIVAL_BYTES: u64 = 4;

/// Programs of a CTA where CTAs run any number of programs and there are no multiprocessors to fill: a few, so that a simulated
/// launch of a small grid does what a large one does on a GPU.
const SIMULATED_TURNS: u64 = 3;

impl KernelImage {
    /// The number of CTAs of a launch with this number of programs. `resident` is how many CTAs the GPU holds at once; `None` for a
    /// simulated GPU.
    pub fn ctas(&self, programs: u64, resident: Option<u64>) -> u64 {
        match (self.persistent, resident) {
            (false, _) => programs.saturating_mul(self.splits.into()),
            (true, Some(resident)) => programs.min(resident.max(1)),
            (true, None) => programs.div_ceil(SIMULATED_TURNS),
        }
    }
}
