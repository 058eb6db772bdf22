//! Kernels and memory below the level of tensors, for tools that run PTX of any origin.
//!
//! Nothing here checks a signature: whoever packs the parameters is responsible for the kernel's accesses to device
//! memory. [`CompiledLaunch`](crate::CompiledLaunch) and `FormPrograms` are safe interfaces for PTX that Atlas made.
//!
//! | file | holds |
//! |---|---|
//! | `compiled_launch` | PTX that Atlas made for a bound launch |
//! | `tile_ir` | a kernel in Tile IR that no signature declares |
//! | `forms` | the simulator's programs, one for each form of instruction (feature `sim`) |

mod compiled_launch;
#[cfg(feature = "sim")]
mod forms;
mod tile_ir;

pub use compiled_launch::CompiledLaunch;
#[cfg(feature = "sim")]
pub use forms::FormPrograms;
pub use tile_ir::{TileArg, launch_tile_ir};

use super::bind::{BoundArg, BoundLaunch};
use super::parameters::{BoundWorkspaces, grid_size, launch_maps, launch_params};
use super::queue::launch_raw;
use crate::compile::KernelKey;
use crate::device::{Backend, Device, LaunchParam, LaunchTensor};
use crate::error::{DeviceError, Result};
use crate::gpu::{BoundMap, LaunchFacts, LoadedKernel, ScratchAddresses, ScratchBytes};
use crate::tensor::Storage;
use atlas_codegen::{KernelImage, Target};
use std::sync::Arc;

/// A buffer on a device.
pub struct RawBuffer {
    storage: Storage,
    bytes: usize,
}

impl RawBuffer {
    /// Allocates a buffer with these bytes.
    ///
    /// # Errors
    /// Out of memory; driver errors.
    pub fn new(device: &Device, bytes: &[u8]) -> Result<RawBuffer> {
        let storage = Storage::empty(device, bytes.len() as u64)?;
        storage.write(0, bytes)?;
        Ok(RawBuffer { storage, bytes: bytes.len() })
    }

    /// Address of the first byte in the device's address space.
    pub fn address(&self) -> u64 {
        self.storage.address()
    }

    /// The bytes, after all work on the device is done.
    ///
    /// # Errors
    /// `RuntimeError::Driver`, also for a fault of an earlier launch.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes];
        self.storage.read(0, &mut bytes)?;
        Ok(bytes)
    }
}

/// The scratch memory of one launch, if its programs are split.
pub(crate) struct RawScratch {
    addresses: ScratchAddresses,
    /// Keeps the memory.
    _storage: Option<Storage>,
}

impl RawScratch {
    /// Allocates the scratch memory of a launch of this many CTAs on the default stream.
    pub(crate) fn new(device: &Device, image: &KernelImage, ctas: u32) -> Result<RawScratch> {
        let Some(bytes) = ScratchBytes::of(image, ctas) else {
            return Ok(RawScratch { addresses: ScratchAddresses::default(), _storage: None });
        };
        let storage = Storage::empty(device, bytes.total())?;
        storage.zero()?;
        Ok(RawScratch { addresses: bytes.at(storage.address()), _storage: Some(storage) })
    }

    /// Where it is.
    pub(crate) fn addresses(&self) -> ScratchAddresses {
        self.addresses
    }
}

/// An entry of a PTX module, loaded on a GPU.
pub struct RawKernel {
    kernel: LoadedKernel,
}

impl RawKernel {
    /// Loads PTX text and finds an entry that will be launched with `shared_bytes` bytes of dynamic shared memory.
    ///
    /// # Errors
    /// `RuntimeError::Driver` with the log of the driver's assembler; `RuntimeError::Device` on the CPU.
    pub fn load(device: &Device, ptx: &str, entry: &str, shared_bytes: u32) -> Result<RawKernel> {
        let Backend::Cuda(context) = device.backend() else { return Err(DeviceError::NotAGpu {}.into()) };
        let image = KernelImage {
            entry: entry.to_owned(),
            ptx: ptx.to_owned(),
            // Lower than any driver's, so that the driver itself judges the text.
            ptx_version: (0, 0),
            target: device.target().unwrap_or(Target { sm: 0, specific: false }),
            params: Vec::new(),
            maps: Vec::new(),
            grid: Vec::new(),
            threads: 0,
            persistent: false,
            splits: 1,
            partial_bytes: 0,
            shared_bytes,
        };
        Ok(RawKernel { kernel: LoadedKernel::load(context, KernelKey([0; 32]), Arc::new(image), None)? })
    }

    /// Queues a launch on the default stream. `params` is one block, laid out as the PTX declares the parameters.
    ///
    /// # Safety
    /// With these parameters, the PTX reads and writes only memory of this device that lives until the launch has run
    /// (on the default stream, or after [`Device::synchronize`]). No other launch in flight writes this memory, or
    /// reads the part that this one writes. The memory belongs to no tensor whose owner does not expect the access. The
    /// block is as long as the entry's parameters.
    ///
    /// # Errors
    /// `RuntimeError::Driver`, also if the block is not as large as the entry's parameters.
    pub unsafe fn launch(&self, grid: [u32; 3], block: [u32; 3], params: &[u8]) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe { launch_raw(&self.kernel, grid, block, params) }
    }

    /// The resources of the kernel as the driver's assembler reports them. The number of threads is unknown.
    pub fn facts(&self) -> LaunchFacts {
        self.kernel.facts
    }
}

/// The 128 bytes of a tensor map for a device, of a tensor at an address.
///
/// # Errors
/// Those of the driver, and `RuntimeError::Device` on the CPU or without the simulator.
pub(crate) fn encode_map(device: &Device, map: &BoundMap, address: u64) -> Result<[u8; 128]> {
    match device.backend() {
        Backend::Cuda(context) => {
            let api = context.enter()?;
            Ok(map.encode(context, &api, address)?.0)
        }
        #[cfg(feature = "sim")]
        Backend::Virtual(_) => Ok(map.simulated(address)),
        _ => Err(DeviceError::NotAGpu {}.into()),
    }
}

/// One parameter of a compiled kernel's `.entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawParam {
    /// The address of the argument with this index.
    Address(usize),
    /// A value, in the low bits.
    Bits(u64),
    /// The tensor map of this number.
    Map(u8),
    /// The address of the arrivals of the launch.
    Arrivals,
    /// The address of its partial tiles.
    Partials,
}

/// A bound launch of a compiled kernel as plain values, for launchers other than this crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawLaunch {
    /// The number of CTAs along x.
    pub grid: u32,
    /// The parameters of the `.entry`, in order.
    pub params: Vec<RawParam>,
    /// Its tensor maps.
    pub maps: Vec<BoundMap>,
    /// The scratch memory that it needs, if its programs are split.
    pub scratch: Option<ScratchBytes>,
}

impl RawLaunch {
    /// The values of a launch.
    ///
    /// # Errors
    /// `RuntimeError::Launch` if the grid is too large or the image belongs to another kernel.
    pub fn new(bound: &BoundLaunch, image: &KernelImage) -> Result<RawLaunch> {
        let value = |param| match param {
            LaunchParam::Bits(bits) => RawParam::Bits(bits),
            LaunchParam::Address(LaunchTensor::Argument(i)) => RawParam::Address(i),
            // There are no workspaces here.
            LaunchParam::Address(LaunchTensor::Workspace(offset)) => RawParam::Bits(offset),
            LaunchParam::Map(n, _) => RawParam::Map(n),
            LaunchParam::Arrivals => RawParam::Arrivals,
            LaunchParam::Partials => RawParam::Partials,
            LaunchParam::Number(i, _) => match &bound.args()[i] {
                BoundArg::Scalar { bits, .. } => RawParam::Bits(*bits),
                BoundArg::Tensor { .. } => RawParam::Address(i),
            },
        };
        let none = BoundWorkspaces::default();
        let params = launch_params(bound, &none, image)?.into_iter().map(value).collect();
        let grid = grid_size(bound, image, None)?;
        Ok(RawLaunch { grid, params, maps: launch_maps(bound, &none, image)?, scratch: ScratchBytes::of(image, grid) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_keeps_its_bytes() {
        for bytes in [&[][..], &[1], &[1, 2, 3, 4, 5]] {
            let buffer = RawBuffer::new(&Device::cpu(), bytes).unwrap();
            assert_eq!(buffer.read().unwrap(), bytes);
            assert_ne!(buffer.address(), 0);
        }
    }

    #[test]
    fn a_cpu_runs_no_ptx() {
        let Err(error) = RawKernel::load(&Device::cpu(), "", "f", 0) else { panic!("a CPU loads PTX") };
        assert_eq!(error.to_string(), "error[ATL628]: a CPU runs no PTX; name a GPU, such as cuda:0");
    }
}
