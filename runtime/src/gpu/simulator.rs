//! The simulator as a virtual GPU: its memory, its launches, and the report of the latest launch.
//!
//! A launch executes the kernel's PTX on the host, strictly: a race, a missing wait or a stray address is an error of
//! the launch, where a GPU might give the right numbers. A launch has finished when it returns.

use super::scratch::{ScratchAddresses, ScratchBytes};
use super::tensor_map::BoundMap;
use super::virtual_gpu::{RecompileWithLines, VirtualGpu, VirtualKernel};
use crate::error::{LaunchError, Result, SimFault};
use atlas_codegen::{AbiParam, KernelImage};
use atlas_sim::alu::{Approximation, Arithmetic};
use atlas_sim::fault::{Fault, FaultKind};
use atlas_sim::launch::{Launch, Options, Policy, Report, run};
use atlas_sim::memory::{Global, Permission};
use atlas_sim::program::Program;
use atlas_sim::stats::{GlobalCounts, InstructionClass, LineCounts, SharedCounts};
use atlas_sim::{decode, syntax};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Options of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// Which warp runs next.
    pub policy: Policy,
    /// The seed of the policy and of random approximations.
    pub seed: u64,
    /// Which of the results that the ISA allows for approximate instructions is given.
    pub approximation: Approximation,
    /// The most warp instructions of one launch. Beyond them it fails.
    pub budget: u64,
}

impl Default for SimOptions {
    fn default() -> SimOptions {
        let Options { policy, seed, approximation, budget, .. } = Options::default();
        SimOptions { policy, seed, approximation, budget }
    }
}

/// A simulated GPU: global memory and the report of the latest launch.
pub(crate) struct Simulator {
    /// Its name in faults: `sim:sm_90`.
    name: String,
    state: Arc<Mutex<SimState>>,
}

#[derive(Default)]
struct SimState {
    options: SimOptions,
    memory: Global,
    latest: Option<Arc<SimRun>>,
}

/// The report of one launch on the simulator.
#[derive(Clone, Debug)]
pub struct SimRun {
    /// The kernel.
    pub image: Arc<KernelImage>,
    /// Counts of instructions and accesses, by class and by line of the PTX.
    pub report: Report,
}

/// The accesses of one line of PTX. A copy from global to shared memory has both kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimAccess {
    /// Line in the PTX, from 1.
    pub line: u32,
    /// The line without its operands: `ld.shared.v4.b32`.
    pub opcode: String,
    /// Its accesses to shared memory.
    pub shared: SharedCounts,
    /// Its loads from and stores to global memory.
    pub global: GlobalCounts,
}

impl Simulator {
    /// A GPU with no memory in use. `name` names it in faults.
    pub(crate) fn new(name: String, options: SimOptions) -> Simulator {
        Simulator { name, state: Arc::new(Mutex::new(SimState { options, ..SimState::default() })) }
    }

    /// Has later launches run under these options.
    pub(crate) fn set_options(&self, options: SimOptions) {
        self.lock().options = options;
    }

    /// The report of the latest launch.
    pub(crate) fn latest(&self) -> Option<Arc<SimRun>> {
        self.lock().latest.clone()
    }

    fn lock(&self) -> MutexGuard<'_, SimState> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<SimState>) -> MutexGuard<'_, SimState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VirtualGpu for Simulator {
    fn alloc(&self, bytes: u64) -> u64 {
        self.lock().memory.alloc_uninitialized(bytes as usize)
    }

    fn free(&self, address: u64) {
        self.lock().memory.free(address);
    }

    fn allocation_at(&self, address: u64) -> Option<Range<u64>> {
        self.lock().memory.allocations().find(|allocation| allocation.contains(&address))
    }

    fn write(&self, address: u64, from: &[u8]) {
        let written = self.lock().memory.write(address, from);
        debug_assert!(written.is_ok(), "{written:?}");
    }

    fn read(&self, address: u64, to: &mut [u8]) {
        let state = self.lock();
        let bytes = state.memory.read(address, to.len() as u64);
        debug_assert!(bytes.is_ok(), "{bytes:?}");
        if let Ok(bytes) = bytes {
            to.copy_from_slice(bytes);
        }
    }

    fn load(&self, image: Arc<KernelImage>, lined: RecompileWithLines) -> Result<Box<dyn VirtualKernel>> {
        let (device, state) = (self.name.clone(), self.state.clone());
        match parse(&image) {
            Ok(program) if program.params.len() == image.params.len() => {
                Ok(Box::new(SimKernel { device, state, image, program, lined }))
            }
            Ok(_) => Err(LaunchError::WrongAbi { kernel: image.entry.clone() }.into()),
            Err(fault) => Err(SimFault::new(&device, &image, None, fault).into()),
        }
    }
}

/// A kernel's PTX, parsed.
struct SimKernel {
    /// The name of its GPU.
    device: String,
    state: Arc<Mutex<SimState>>,
    image: Arc<KernelImage>,
    program: Program,
    /// Recompiles the same program with source lines, so that a fault can name them.
    lined: RecompileWithLines,
}

fn parse(image: &KernelImage) -> std::result::Result<Program, Fault> {
    decode::compile(&syntax::parse(&image.ptx)?, Some(&image.entry), Arithmetic::Ieee)
}

impl VirtualKernel for SimKernel {
    fn local_bytes(&self) -> u32 {
        self.program.local_bytes
    }

    fn launch(&self, grid: u32, params: &[u64], maps: &[BoundMap], outputs: &[Range<u64>]) -> Result<()> {
        let (image, program) = (&self.image, &self.program);
        let mut state = lock(&self.state);
        let read_only = read_only(&state.memory, outputs);
        let scratch = SimScratch::new(&mut state.memory, image, grid);
        let outcome = match &scratch {
            Ok(scratch) => {
                let params = self.block(params, scratch.addresses(), maps);
                params.map(|params| self.execute(&mut state, grid, &params, &read_only))
            }
            Err(fault) => Ok(Err(fault.clone())),
        };
        // The variables of this kernel's module would be in the way of the next kernel's.
        for variable in &program.globals {
            state.memory.free(variable.address);
        }
        let ended = scratch.map_or(Ok(()), |scratch| scratch.end(&mut state.memory));
        match outcome?.and_then(|report| ended.map(|()| report)) {
            Ok(report) => {
                state.latest = Some(Arc::new(SimRun { image: image.clone(), report }));
                Ok(())
            }
            Err(fault) => Err(self.name_source(SimFault::new(&self.device, image, Some(program), fault)).into()),
        }
    }
}

impl SimKernel {
    fn execute(
        &self,
        state: &mut SimState,
        grid: u32,
        params: &[u8],
        read_only: &[(u64, u64)],
    ) -> std::result::Result<Report, Fault> {
        let launch = Launch {
            program: &self.program,
            grid: [grid, 1, 1],
            block: [self.image.threads, 1, 1],
            cluster: None,
            shared_bytes: self.image.shared_bytes,
            params,
        };
        let SimOptions { policy, seed, approximation, budget } = state.options;
        let options = Options { policy, seed, approximation, budget, ..Options::default() };
        state.memory.begin_launch(read_only);
        run(&launch, &mut state.memory, &options)
    }

    /// The parameters in the memory layout of the `.entry`.
    fn block(&self, params: &[u64], scratch: ScratchAddresses, maps: &[BoundMap]) -> Result<Vec<u8>> {
        let mut block = vec![0; self.program.param_bytes as usize];
        for ((&bits, place), param) in params.iter().zip(&self.program.params).zip(&self.image.params) {
            let bytes = match *param {
                AbiParam::TensorMap(n) => maps.get(usize::from(n)).map(|map| map.simulated(bits).to_vec()),
                AbiParam::Arrivals => Some(scratch.arrivals.to_le_bytes().to_vec()),
                AbiParam::Partials => Some(scratch.partials.to_le_bytes().to_vec()),
                _ => Some(bits.to_le_bytes().to_vec()),
            };
            let from = bytes.as_ref().and_then(|bytes| bytes.get(..place.bytes as usize));
            let to = block.get_mut(place.offset as usize..(place.offset + place.bytes) as usize);
            match (to, from) {
                (Some(to), Some(from)) => to.copy_from_slice(from),
                _ => return Err(LaunchError::WrongAbi { kernel: self.image.entry.clone() }.into()),
            }
        }
        Ok(block)
    }

    /// Adds source locations to the threads of a fault. A shipped kernel has no line numbers, but the same kernel
    /// compiled with them has the same instructions.
    fn name_source(&self, fault: SimFault) -> SimFault {
        let with_lines = (self.lined)().and_then(|image| parse(&image).ok());
        match with_lines.filter(|l| l.code.len() == self.program.code.len()) {
            Some(lined) => fault.with_source(&self.program, &lined),
            None => fault,
        }
    }
}

/// The scratch memory of one simulated launch: two allocations, so that an access past the end of either is found. Nothing if each CTA
/// has its own program.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimScratch {
    bytes: ScratchBytes,
    addresses: ScratchAddresses,
}

impl SimScratch {
    /// Allocates the scratch memory of a launch of this many CTAs. Arrivals are zero. Partial tiles are NaNs in every element type,
    /// so that one which no CTA has stored is seen in the sum.
    ///
    /// # Errors
    /// A fault if the host has not as much memory.
    pub fn new(memory: &mut Global, image: &KernelImage, ctas: u32) -> std::result::Result<SimScratch, Fault> {
        const NAN: u8 = 0xff;
        let Some(bytes) = ScratchBytes::of(image, ctas) else { return Ok(SimScratch::default()) };
        let filled = |bytes: u64, byte: u8| {
            let (mut content, len) = (Vec::new(), usize::try_from(bytes).unwrap_or(usize::MAX));
            if content.try_reserve_exact(len).is_err() {
                return Err(Fault::new(FaultKind::Budget, format!("scratch memory of {bytes} bytes: too much")));
            }
            content.resize(len, byte);
            Ok(content)
        };
        let (arrivals, partials) = (filled(bytes.arrivals, 0)?, filled(bytes.partials, NAN)?);
        let addresses = ScratchAddresses {
            arrivals: memory.alloc(arrivals, Permission::ReadWrite),
            partials: memory.alloc(partials, Permission::ReadWrite),
            workspaces: 0,
        };
        Ok(SimScratch { bytes, addresses })
    }

    /// Where it is.
    pub fn addresses(&self) -> ScratchAddresses {
        self.addresses
    }

    /// Frees it after the launch.
    ///
    /// # Errors
    /// A fault if some arrivals are not zero, as the next launch on a GPU needs them.
    pub fn end(self, memory: &mut Global) -> std::result::Result<(), Fault> {
        if self.bytes == ScratchBytes::default() {
            return Ok(());
        }
        let arrivals = memory.read(self.addresses.arrivals, self.bytes.arrivals).unwrap_or_default();
        let (counts, _) = arrivals.as_chunks::<4>();
        let counted = counts.iter().map(|&count| u32::from_le_bytes(count)).enumerate().find(|(_, count)| *count != 0);
        memory.free(self.addresses.arrivals);
        memory.free(self.addresses.partials);
        counted.map_or(Ok(()), |(program, count)| {
            let message = format!(
                "the arrivals of program {program} are {count} after the launch: they must be 0 for the next one"
            );
            Err(Fault::new(FaultKind::Phase, message))
        })
    }
}

/// All allocated memory except these sorted ranges, as addresses and lengths.
fn read_only(memory: &Global, outputs: &[Range<u64>]) -> Vec<(u64, u64)> {
    let mut rest = Vec::new();
    for allocation in memory.allocations() {
        let mut from = allocation.start;
        for out in outputs.iter().filter(|r| r.start < allocation.end && allocation.start < r.end) {
            if from < out.start {
                rest.push((from, out.start - from));
            }
            from = from.max(out.end);
        }
        if from < allocation.end {
            rest.push((from, allocation.end - from));
        }
    }
    rest
}

impl SimRun {
    /// Bank conflicts of all shared memory accesses.
    pub fn conflicts(&self) -> u64 {
        self.report.counters.totals().shared.conflicts
    }

    /// The lines that access shared or global memory, in order.
    pub fn accesses(&self) -> Vec<SimAccess> {
        let lines: Vec<&str> = self.image.ptx.lines().collect();
        let text = |line: u32| lines.get((line as usize).wrapping_sub(1)).copied().unwrap_or_default();
        let access = |(line, counts): (u32, &LineCounts)| {
            let LineCounts { shared, loads, stores, .. } = *counts;
            let global = GlobalCounts {
                requests: loads.requests + stores.requests,
                bytes: loads.bytes + stores.bytes,
                sectors: loads.sectors + stores.sectors,
            };
            let any = shared.requests + global.requests > 0;
            any.then(|| SimAccess { line, opcode: opcode(text(line)), shared, global })
        };
        self.report.counters.lines().filter_map(access).collect()
    }

    /// Executed warp instructions by class. Classes without any are left out.
    pub fn mix(&self) -> Vec<(&'static str, u64)> {
        let counts = InstructionClass::ALL.into_iter().map(|c| (c.name(), self.report.counters.mix(c).warps));
        counts.filter(|(_, n)| *n > 0).collect()
    }
}

/// The opcode of a line of PTX, without its guard. If there are several instructions, as for a masked load, that of the
/// one that accesses memory.
fn opcode(line: &str) -> String {
    let one =
        |instruction: &str| instruction.split_whitespace().find(|w| !w.starts_with(['@', '{'])).map(str::to_owned);
    let mut all = line.split(';').filter_map(one);
    let first = all.clone().next().unwrap_or_default();
    let memory = ["ld", "st", "cp", "red", "atom"];
    all.find(|opcode| memory.iter().any(|m| opcode.starts_with(m))).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::opcode;

    #[test]
    fn the_opcode_of_a_line_is_the_one_that_accesses_memory() {
        assert_eq!(opcode("\t@%p1 st.global.b32 [%rd1], %r1;"), "st.global.b32");
        assert_eq!(opcode("mov.b32 %r1, 0; @%p1 ld.global.nc.b32 %r1, [%rd1];"), "ld.global.nc.b32");
        assert_eq!(opcode("bar.sync 0;"), "bar.sync");
    }
}
