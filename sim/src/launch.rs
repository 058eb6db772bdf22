//! Launching a kernel: the public entry, its options, and the checks of a launch.

use crate::alu::Approximation;
use crate::execution::Execution;
use crate::fault::{Fault, FaultKind, Result};
use crate::memory::Global;
use crate::program::Program;
use crate::stats::Counters;

pub use crate::schedule::Policy;

/// A kernel and its launch parameters.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel.
    pub program: &'a Program,
    /// CTAs of the grid by axis.
    pub grid: [u32; 3],
    /// Threads of a CTA by axis.
    pub block: [u32; 3],
    /// CTAs of a cluster by axis; `None` for the kernel's own value.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// The parameter space, little-endian, laid out as `Program::params` says.
    pub params: &'a [u8],
}

/// Execution options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The scheduling policy.
    pub policy: Policy,
    /// The seed of the policy, and of random approximations.
    pub seed: u64,
    /// Which results approximate instructions give.
    pub approximation: Approximation,
    /// Warp instructions after which the run is given up.
    pub budget: u64,
    /// CTAs that run side by side: whole clusters, at least one.
    pub resident_ctas: u32,
    /// Bytes of the simulator's own memory for registers, shared and local memory.
    pub memory_limit: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            policy: Policy::RoundRobin,
            seed: 0,
            approximation: Approximation::Nearest,
            budget: 1 << 32,
            resident_ctas: 4,
            memory_limit: 4 << 30,
        }
    }
}

/// The statistics of a launch.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Accesses, by kind.
    pub counters: Counters,
    /// Instructions, each counted once for the lanes that ran it together.
    pub warp_instructions: u64,
    /// Instructions times lanes.
    pub lane_instructions: u64,
}

/// Executes a kernel to its end, or to its first fault.
///
/// Accesses of earlier launches count as accesses of this one, unless `Global::begin_launch` is called in between.
pub fn run(launch: &Launch<'_>, memory: &mut Global, options: &Options) -> Result<Report> {
    let cluster = check(launch)?;
    Execution::new(launch, cluster, memory, options)?.run()
}

/// The number of a target: 90 for `sm_90a`.
fn arch(target: &str) -> u32 {
    target.trim_start_matches("sm_").trim_end_matches(char::is_alphabetic).parse().unwrap_or(0)
}

/// Shared memory of a CTA, static and dynamic, by target: what the driver grants on request.
fn most_shared(target: &str) -> u64 {
    match arch(target) {
        0..=74 => 96 << 10,
        75 => 64 << 10,
        80 | 87 => 163 << 10,
        86 | 88 | 89 | 120.. => 99 << 10,
        _ => 227 << 10,
    }
}

/// Checks a launch against its kernel. Returns the shape of its clusters.
fn check(launch: &Launch<'_>) -> Result<Option<[u32; 3]>> {
    let bad = |message: String| Err(Fault::new(FaultKind::Launch, message));
    let program = launch.program;
    let size = |shape: [u32; 3]| shape.iter().map(|&n| u128::from(n)).product::<u128>();
    let (threads, ctas) = (size(launch.block), size(launch.grid));
    if threads == 0 || threads > 1024 {
        return bad(format!("{threads} threads in a CTA: 1 to 1024 may be"));
    }
    if launch.block[2] > 64 {
        return bad(format!("{} threads along z: 64 may be", launch.block[2]));
    }
    let [x, y, z] = launch.grid;
    if ctas == 0 || x > i32::MAX as u32 || y > 65535 || z > 65535 {
        return bad(format!("a grid of {x} x {y} x {z} CTAs"));
    }
    if ctas * threads > u128::from(u32::MAX / 2) {
        return Err(Fault::new(
            FaultKind::Budget,
            format!("{} threads are more than can be told apart", ctas * threads),
        ));
    }
    if let Some(required) = program.required_threads
        && required.map(|n| n.max(1)) != launch.block
    {
        return bad(format!("{:?} threads in a CTA: the kernel requires {required:?}", launch.block));
    }
    if let Some(most) = program.max_threads
        && threads > size(most.map(|n| n.max(1)))
    {
        return bad(format!("{threads} threads in a CTA: the kernel allows {}", size(most.map(|n| n.max(1)))));
    }
    if launch.params.len() != program.param_bytes as usize {
        return bad(format!("{} bytes of parameters: the kernel has {}", launch.params.len(), program.param_bytes));
    }
    let shared = u64::from(program.shared_bytes) + u64::from(launch.shared_bytes);
    let most = most_shared(&program.target);
    if shared > most {
        return bad(format!("{shared} bytes of shared memory: {} has {most}", program.target));
    }
    let cluster = match (launch.cluster, program.cluster) {
        (Some(asked), Some(fixed)) if asked != fixed => {
            return bad(format!("clusters of {asked:?} CTAs: the kernel requires {fixed:?}"));
        }
        (asked, fixed) => asked.or(fixed),
    };
    if let Some(shape) = cluster {
        let ctas = size(shape);
        if ctas > 1 && arch(&program.target) < 90 {
            return bad(format!("clusters of {ctas} CTAs: {} has none", program.target));
        }
        if ctas == 0 || ctas > 16 {
            return bad(format!("{ctas} CTAs in a cluster: 1 to 8 may be, 16 where a kernel asks for it"));
        }
        if launch.grid.iter().zip(shape).any(|(grid, cluster)| grid % cluster != 0) {
            return bad(format!("a grid of {:?} CTAs does not divide into clusters of {shape:?}", launch.grid));
        }
    }
    Ok(cluster)
}
