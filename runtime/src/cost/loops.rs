//! How often a pipelined loop can begin an iteration: the cycles that each unit of an SM needs for one, and which needs most.
//!
//! # Promise
//! The *initiation interval* (II) of a loop is the cycles from one iteration of a program to its next in steady state, divided by
//! the programs that an SM holds, if each unit works without a gap. By the rates of the cost model, no schedule of the same
//! instructions is faster.
//!
//! # Argument
//! Each unit does the work of one iteration at its rate, and units work side by side, so the slowest one decides. Two entries are
//! no units: a load that runs `n` iterations ahead has to arrive within `n` iterations, and barriers stop all warps of a program.
//! While one program waits, others of the SM run, so these two are divided by the programs that an SM holds.
//!
//! The cost model adds some of what is a maximum here, because warps overlap less than perfectly. It ranks configs by a whole
//! launch. This says what limits the loop.

use super::estimate;
use super::model::{AHEAD_LATENCY, ASYNC_PRODUCTS, ELEMENT_WISE, FMA, PORT_BYTES, REFILL, SPECIAL};
use atlas_codegen::Machine;
use atlas_codegen::gpu::Kernel;
use atlas_codegen::gpu::analysis::{Prefetched, Work, WorkFormula, WorkTable, pipelined_loops};
use atlas_dsl::ir::Loc;
use std::fmt;

/// Bytes of shared memory in a clock cycle: 32 banks of 4 bytes. The model's rates are fitted and include conflicts.
const SHARED_BYTES: f64 = 128.0;

/// What an iteration of a loop needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopLimit {
    /// Products of tensor cores.
    TensorCores,
    /// Bytes through shared memory.
    SharedMemory,
    /// Element-wise instructions and multiply-adds.
    Instructions,
    /// Exponentials, logarithms, reciprocals and roots.
    SpecialFunctions,
    /// Bytes through the L2 cache.
    L2,
    /// Bytes of DRAM, each of which is read once.
    Dram,
    /// The latency of loads, over the iterations by which they run ahead.
    LoadLatency,
    /// Barriers of all threads.
    Barriers,
}

impl fmt::Display for LoopLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LoopLimit::TensorCores => "tensor cores",
            LoopLimit::SharedMemory => "shared memory",
            LoopLimit::Instructions => "instructions",
            LoopLimit::SpecialFunctions => "special functions",
            LoopLimit::L2 => "L2",
            LoopLimit::Dram => "DRAM",
            LoopLimit::LoadLatency => "latency of loads",
            LoopLimit::Barriers => "barriers",
        })
    }
}

/// One pipelined loop in steady state.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopInterval {
    /// Where the loop stands in the source.
    pub loc: Loc,
    /// Iterations in one program, on average.
    pub iterations: f64,
    /// Cycles of an SM for one iteration of one program, the most first; never empty.
    pub limits: Vec<(LoopLimit, f64)>,
}

impl LoopInterval {
    /// The initiation interval and what sets it.
    pub fn interval(&self) -> (LoopLimit, f64) {
        self.limits[0]
    }
}

/// The pipelined loops of a lowered kernel that run at these sizes of its dims, in the signature's order.
pub fn loop_intervals(kernel: &Kernel, dims: &[u64], machine: &Machine) -> Vec<LoopInterval> {
    let places = pipelined_loops(kernel);
    let mut table = WorkTable::default();
    let number = table.push(&WorkFormula::of(kernel));
    let mut at = table.at(dims);
    let work = at.of(number);
    let cost = estimate(work, machine);
    let resident = cost.ctas_per_sm.min(work.programs.div_ceil(u64::from(machine.sms.max(1)))).max(1) as f64;
    let shared = Surroundings { machine, resident, from_dram: from_dram(work), programs: work.programs.max(1) as f64 };
    let one = |(n, &loc): (usize, &Loc)| {
        let runs = work.samples.iter().flat_map(|s| s.prefetched.iter().skip(n).step_by(places.len()));
        let runs: Vec<&Prefetched> = runs.collect();
        let iterations = runs.iter().map(|l| l.trips).sum::<f64>();
        let mean = |l: &&Prefetched| (l.trips / iterations, shared.limits(l));
        let mut limits: Vec<(LoopLimit, f64)> = Vec::new();
        for (share, of) in runs.iter().filter(|_| iterations > 0.0).map(mean) {
            for (at, (limit, cycles)) in of.into_iter().enumerate() {
                match limits.get_mut(at) {
                    Some((_, sum)) => *sum += share * cycles,
                    None => limits.push((limit, share * cycles)),
                }
            }
        }
        limits.sort_by(|a, b| b.1.total_cmp(&a.1));
        (!limits.is_empty()).then(|| LoopInterval { loc, iterations: iterations / work.samples.len() as f64, limits })
    };
    places.iter().enumerate().filter_map(one).collect()
}

/// The share of the bytes that programs read which comes from DRAM, if each element is read from there once.
fn from_dram(work: &Work) -> f64 {
    let programs = work.programs.max(1) as f64;
    let all: f64 = work.reads.iter().map(|r| r.bytes * programs).sum();
    let once: f64 = work.reads.iter().map(|r| (r.bytes * programs).min(r.tensor)).sum();
    if all > 0.0 { once / all } else { 0.0 }
}

/// What the iterations of all loops of a launch share.
struct Surroundings<'m> {
    machine: &'m Machine,
    /// Programs that an SM holds at once.
    resident: f64,
    from_dram: f64,
    programs: f64,
}

impl Surroundings<'_> {
    fn limits(&self, l: &Prefetched) -> [(LoopLimit, f64); 8] {
        let (c, rates) = (&l.body, &self.machine.rates);
        // Idle multiprocessors leave their share of memory to the others.
        let share = (f64::from(self.machine.sms) / self.programs).max(1.0);
        let moved = |bytes: f64, rate: f64| bytes / (rate * share).min(PORT_BYTES);
        [
            (LoopLimit::TensorCores, c.tensor / f64::from(rates.tensor) + c.tensor_async / ASYNC_PRODUCTS),
            (LoopLimit::SharedMemory, (c.shared + c.shared_async) / SHARED_BYTES),
            (LoopLimit::Instructions, c.fma / FMA + c.element_wise / ELEMENT_WISE),
            (LoopLimit::SpecialFunctions, c.special / SPECIAL),
            (LoopLimit::L2, moved(c.global, f64::from(rates.l2_bytes))),
            (LoopLimit::Dram, moved(c.global * self.from_dram, f64::from(rates.dram_tenths) / 10.0)),
            (LoopLimit::LoadLatency, (AHEAD_LATENCY + l.own.0 / PORT_BYTES) / l.ahead / self.resident),
            (LoopLimit::Barriers, c.barriers * REFILL / self.resident),
        ]
    }
}
