//! Launches PTX that Atlas itself compiled on plain bytes, to compare a GPU with the simulator.
//!
//! A launch is safe because the PTX always comes from the code generator, never from the caller, and accesses only
//! buffers that are checked to be long enough.

use super::{RawBuffer, RawKernel, RawLaunch, RawParam, RawScratch, encode_map};
use crate::compile::{CompileProblem, build_kernel, compile};
use crate::device::Device;
use crate::error::{CompileFailure, LaunchError, Result, TensorError};
use crate::gpu::{BoundMap, ScratchAddresses};
use crate::launch::bind::{BoundArg, BoundLaunch};
use crate::launch::problem::specialize;
use atlas_codegen::{AbiParam, KernelImage, Machine};
use atlas_dsl::Config;

/// What a tensor map lies at a multiple of, in bytes.
pub(super) const MAP_ALIGN: usize = 64;

/// A kernel compiled for one bound launch, to run on copies of its arguments.
pub struct CompiledLaunch {
    image: KernelImage,
    raw: RawLaunch,
    /// What each parameter of the `.entry` lies at a multiple of: its size, but for tensor maps.
    sizes: Vec<usize>,
    /// The bytes that each argument spans from its first element on; 0 for numbers.
    spans: Vec<usize>,
}

impl CompiledLaunch {
    /// Compiles a kernel for a bound launch, a config and a machine, which may differ from the launch's own.
    ///
    /// # Errors
    /// `RuntimeError::Kernel` or `RuntimeError::Compile` if it cannot be compiled.
    pub fn new(bound: &BoundLaunch, config: &Config, machine: Machine) -> Result<CompiledLaunch> {
        let def = bound.def();
        let kernel = build_kernel(def, &specialize(bound), config)?;
        let image = compile(&kernel, &config.schedule, machine).map_err(|problem| {
            let compiler_present = problem != CompileProblem::NoCompiler;
            let (message, refused) = match problem {
                CompileProblem::NoCompiler => ("this build has no compiler".to_owned(), Vec::new()),
                CompileProblem::Refused(why) => (format!("refused for {machine}"), vec![(config.clone(), why)]),
                CompileProblem::Failed(message) => (format!("config `{config}` for {machine}: {message}"), Vec::new()),
            };
            CompileFailure { kernel: def.name.to_owned(), message, refused, compiler_present }
        })?;
        let raw = RawLaunch::new(bound, &image)?;
        let size = |param: &AbiParam| match *param {
            AbiParam::Ptr(_) | AbiParam::Stride(..) | AbiParam::Arrivals | AbiParam::Partials => 8,
            AbiParam::Dim(_) | AbiParam::GridCount(_) => 4,
            AbiParam::TensorMap(_) => MAP_ALIGN,
            AbiParam::Scalar(p) => match bound.args().get(p.as_u32() as usize) {
                Some(BoundArg::Scalar { dtype, .. }) => dtype.bytes() as usize,
                _ => 8,
            },
        };
        let sizes = image.params.iter().map(size).collect();
        let spans = bound.args().iter().map(|arg| match arg {
            BoundArg::Tensor { tensor, .. } => {
                let range = tensor.address_range();
                (range.end - range.start) as usize
            }
            BoundArg::Scalar { .. } => 0,
        });
        Ok(CompiledLaunch { raw, sizes, spans: spans.collect(), image })
    }

    /// The compiled kernel.
    pub fn image(&self) -> &KernelImage {
        &self.image
    }

    /// The grid and the parameters.
    pub fn raw(&self) -> &RawLaunch {
        &self.raw
    }

    /// The parameters in the memory layout of the `.entry`, each at a multiple of its size, for these addresses of the
    /// arguments and of the scratch memory. `encode` gives the bytes of a tensor map of a tensor at an address.
    ///
    /// # Errors
    /// Those of `encode`.
    fn params(
        &self,
        addresses: &[u64],
        scratch: ScratchAddresses,
        encode: impl Fn(&BoundMap, u64) -> Result<[u8; 128]>,
    ) -> Result<Vec<u8>> {
        let address = |arg: usize| addresses.get(arg).copied().unwrap_or_default();
        let mut block = Vec::new();
        for (param, &size) in self.raw.params.iter().zip(&self.sizes) {
            block.resize(block.len().next_multiple_of(size), 0);
            match *param {
                RawParam::Address(arg) => block.extend_from_slice(&address(arg).to_le_bytes()[..size.min(8)]),
                RawParam::Bits(bits) => block.extend_from_slice(&bits.to_le_bytes()[..size.min(8)]),
                RawParam::Arrivals => block.extend_from_slice(&scratch.arrivals.to_le_bytes()),
                RawParam::Partials => block.extend_from_slice(&scratch.partials.to_le_bytes()),
                RawParam::Map(n) => {
                    let map = &self.raw.maps[usize::from(n)];
                    block.extend_from_slice(&encode(map, address(map.argument))?);
                }
            }
        }
        Ok(block)
    }

    /// The same parameters for the simulator.
    #[cfg(feature = "sim")]
    pub fn simulated_params(&self, addresses: &[u64], scratch: ScratchAddresses) -> Vec<u8> {
        self.params(addresses, scratch, |map, at| Ok(map.simulated(at))).unwrap_or_default()
    }

    /// Runs the kernel on a GPU with one buffer per argument, whose first byte is the argument's first element, and
    /// returns the content of each buffer afterwards.
    ///
    /// # Errors
    /// `LaunchError::WrongAbi` and `TensorError::WrongLength` for buffers that are missing or too short; driver errors.
    pub fn run(&self, device: &Device, buffers: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        if buffers.len() != self.spans.len() {
            return Err(LaunchError::WrongAbi { kernel: self.image.entry.clone() }.into());
        }
        if let Some((short, span)) = buffers.iter().zip(&self.spans).find(|(b, span)| b.len() < **span) {
            return Err(TensorError::WrongLength { found: short.len(), shape: vec![*span] }.into());
        }
        let kernel = RawKernel::load(device, &self.image.ptx, &self.image.entry, self.image.shared_bytes)?;
        let buffers: Vec<RawBuffer> = buffers.iter().map(|b| RawBuffer::new(device, b)).collect::<Result<_>>()?;
        let addresses: Vec<u64> = buffers.iter().map(RawBuffer::address).collect();
        let (grid, threads) = ([self.raw.grid, 1, 1], [self.image.threads, 1, 1]);
        let scratch = RawScratch::new(device, &self.image, self.raw.grid)?;
        let params = self.params(&addresses, scratch.addresses(), |map, at| encode_map(device, map, at))?;
        // SAFETY: the code generator made this PTX for this problem from a verified kernel. The parameters follow its
        // own list, with the sizes and strides of the bound tensors, and each buffer was checked to hold the bytes that
        // such a tensor spans. Buffers do not overlap, are aligned to 256 bytes, and live until they have been read. The
        // scratch memory is as large as the image says, and is freed in stream order.
        unsafe { kernel.launch(grid, threads, &params) }?;
        buffers.iter().map(RawBuffer::read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_too_short_never_reaches_a_gpu() {
        let image = crate::compile::empty_image();
        let one = RawParam::Bits(u64::from(1.0_f32.to_bits()));
        let params = vec![RawParam::Bits(7), RawParam::Address(0), one, RawParam::Partials];
        let raw = RawLaunch { grid: 1, params, maps: Vec::new(), scratch: None };
        let launch = CompiledLaunch { image, raw, sizes: vec![4, 8, 4, 8], spans: vec![16, 0] };
        let code = |buffers: &[Vec<u8>]| launch.run(&Device::cpu(), buffers).unwrap_err().code().to_string();
        assert_eq!(code(&[vec![0; 16]]), "ATL619");
        assert_eq!(code(&[vec![0; 15], Vec::new()]), "ATL630");
        assert_eq!(code(&[vec![0; 16], Vec::new()]), "ATL628");
        let words = [7, 0, 0x10, 0, 0x3f80_0000, 0, 0x300, 0_u32];
        let block: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let scratch = ScratchAddresses { arrivals: 0x200, partials: 0x300, workspaces: 0 };
        assert_eq!(launch.params(&[16], scratch, |_, _| Ok([0; 128])).unwrap(), block);
    }
}
