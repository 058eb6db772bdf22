//! Compiles a kernel, runs it in the simulator or on a GPU, and reports failures.

use super::values::Argument;
use atlas_codegen::{AbiParam, KernelImage};
use atlas_dsl::{Kernel, Schedule, Verified};
use atlas_runtime::{BoundMap, Device, ScratchAddresses, SimScratch, TileArg, launch_tile_ir, programs};
use atlas_sim::alu::{Approximation, Arithmetic};
use atlas_sim::fault::{Fault, FaultKind};
use atlas_sim::launch::{Launch, Options, Policy};
use atlas_sim::memory::{Global, Permission};
use atlas_sim::program::Program;
use atlas_sim::{decode, launch, syntax};

/// The most warp instructions of one launch. The largest kernels use a tenth of it.
const BUDGET: u64 = 1 << 22;
/// The same for each program of a grid, because tiles of one element give many programs.
const PROGRAM_BUDGET: u64 = 1 << 15;

/// The buffers after a launch on a GPU.
pub(super) fn on_gpu(
    device: &Device,
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    dims: &[u64],
    arguments: &[Argument],
) -> Result<Vec<Vec<u8>>, String> {
    let args: Vec<TileArg<'_>> = arguments
        .iter()
        .map(|argument| match argument {
            Argument::Scalar { bits, .. } => TileArg::Number(*bits),
            Argument::Tensor { placed, bytes, .. } => {
                TileArg::Tensor { bytes, offset: placed.offset, strides: &placed.strides }
            }
        })
        .collect();
    launch_tile_ir(device, kernel, schedule, dims, &args).map_err(|e| e.to_string())
}

/// A kernel ready to launch.
pub(super) struct DecodedLaunch<'a> {
    image: &'a KernelImage,
    program: Program,
    dims: &'a [u64],
    arguments: &'a [Argument],
}

impl<'a> DecodedLaunch<'a> {
    /// Decodes the PTX.
    pub(super) fn new(
        image: &'a KernelImage,
        dims: &'a [u64],
        arguments: &'a [Argument],
        arithmetic: Arithmetic,
    ) -> Result<DecodedLaunch<'a>, Fault> {
        let program = decode::compile(&syntax::parse(&image.ptx)?, Some(&image.entry), arithmetic)?;
        if program.params.len() != image.params.len() {
            let message = format!("the PTX has {} parameters, the image {}", program.params.len(), image.params.len());
            return Err(Fault::new(FaultKind::Launch, message));
        }
        Ok(DecodedLaunch { image, program, dims, arguments })
    }

    /// The buffers after a launch in the simulator.
    pub(super) fn simulate(&self, policy: Policy, seed: u64) -> Result<Vec<Vec<u8>>, Fault> {
        let mut memory = Global::new();
        let mut addresses = Vec::new();
        for argument in self.arguments {
            addresses.push(match argument {
                Argument::Scalar { .. } => 0,
                Argument::Tensor { out, bytes, .. } => {
                    memory.alloc(bytes.clone(), if *out { Permission::ReadWrite } else { Permission::ReadOnly })
                }
            });
        }
        let grid = self.image.ctas(programs(&self.image.grid, self.dims), None);
        if grid > 0 {
            let scratch = SimScratch::new(&mut memory, self.image, grid as u32)?;
            let launch = Launch {
                program: &self.program,
                grid: [grid as u32, 1, 1],
                block: [self.image.threads, 1, 1],
                cluster: None,
                shared_bytes: self.image.shared_bytes,
                params: &self.params(&addresses, scratch.addresses()),
            };
            let approximation = match policy {
                Policy::RoundRobin => Approximation::Nearest,
                Policy::Adversarial => Approximation::Up,
                Policy::Random => Approximation::Random,
            };
            let budget = BUDGET.max(grid.saturating_mul(PROGRAM_BUDGET));
            let options = Options { policy, seed, approximation, budget, ..Options::default() };
            launch::run(&launch, &mut memory, &options)?;
            scratch.end(&mut memory)?;
        }
        let read = |(argument, &at): (&Argument, &u64)| match argument {
            Argument::Scalar { .. } => Ok(Vec::new()),
            Argument::Tensor { bytes, .. } => memory
                .read(at, bytes.len() as u64)
                .map(<[u8]>::to_vec)
                .map_err(|e| Fault::new(FaultKind::OutOfBounds, e.to_string())),
        };
        self.arguments.iter().zip(&addresses).map(read).collect()
    }

    /// The parameters in the memory layout of the entry.
    fn params(&self, addresses: &[u64], scratch: ScratchAddresses) -> Vec<u8> {
        let mut block = vec![0; self.program.param_bytes as usize];
        for (slot, &param) in self.program.params.iter().zip(&self.image.params) {
            if let AbiParam::TensorMap(n) = param {
                block[slot.offset as usize..][..128].copy_from_slice(&self.map(n, addresses));
                continue;
            }
            let bytes = (slot.bytes as usize).min(8);
            let bits = match param {
                AbiParam::Arrivals => scratch.arrivals,
                AbiParam::Partials => scratch.partials,
                _ => self.value(param, addresses),
            };
            let bits = bits.to_le_bytes();
            block[slot.offset as usize..][..bytes].copy_from_slice(&bits[..bytes]);
        }
        block
    }

    /// A tensor map as the simulator encodes it; zeros if the engine takes no such tensor, which is a fault where it is read.
    fn map(&self, n: u8, addresses: &[u64]) -> [u8; 128] {
        let map = &self.image.maps[usize::from(n)];
        let Argument::Tensor { placed, .. } = &self.arguments[map.param.as_u32() as usize] else { return [0; 128] };
        let bound = BoundMap::new(map, placed.dtype, &placed.dims, &placed.strides);
        bound.map_or([0; 128], |bound| bound.simulated(self.value(AbiParam::Ptr(map.param), addresses)))
    }

    fn value(&self, param: AbiParam, addresses: &[u64]) -> u64 {
        let argument = |p: atlas_dsl::Param| &self.arguments[p.as_u32() as usize];
        match param {
            AbiParam::Dim(d) => self.dims[d.as_u32() as usize],
            AbiParam::GridCount(axis) => self.image.grid[usize::from(axis)].count(self.dims),
            AbiParam::TensorMap(_) | AbiParam::Arrivals | AbiParam::Partials => 0,
            AbiParam::Ptr(p) => match argument(p) {
                Argument::Tensor { placed, .. } => {
                    addresses[p.as_u32() as usize] + placed.offset * u64::from(placed.dtype.bytes())
                }
                Argument::Scalar { .. } => 0,
            },
            AbiParam::Stride(p, axis) => match argument(p) {
                Argument::Tensor { placed, .. } => placed.strides[usize::from(axis)] as u64,
                Argument::Scalar { .. } => 0,
            },
            AbiParam::Scalar(p) => match argument(p) {
                Argument::Scalar { bits, .. } => *bits,
                Argument::Tensor { .. } => 0,
            },
        }
    }
}
