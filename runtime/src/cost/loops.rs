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
use atlas_codegen::Machine;
use atlas_codegen::gpu::Kernel;
use atlas_codegen::gpu::analysis::{Prefetched, Work, WorkFormula, WorkTable, pipelined_loops};
use atlas_dsl::ir::Loc;
use std::fmt;

/// The rates of `model`, whose constants are its own. A test compares the two.
const FMA: f64 = 128.0;
const ELEMENT_WISE: f64 = 66.0;
const SPECIAL: f64 = 9.0;
const SHARED_BYTES: f64 = 91.0;
const PORT_BYTES: f64 = 94.0;
const ASYNC_PRODUCTS: f64 = 1900.0;
const ASYNC_SHARED_BYTES: f64 = 126.0;
const REFILL: f64 = 173.0;
const AHEAD_LATENCY: f64 = 1220.0;

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
            (LoopLimit::SharedMemory, c.shared / SHARED_BYTES + c.shared_async / ASYNC_SHARED_BYTES),
            (LoopLimit::Instructions, c.fma / FMA + c.element_wise / ELEMENT_WISE),
            (LoopLimit::SpecialFunctions, c.special / SPECIAL),
            (LoopLimit::L2, moved(c.global, f64::from(rates.l2_bytes))),
            (LoopLimit::Dram, moved(c.global * self.from_dram, f64::from(rates.dram_tenths) / 10.0)),
            (LoopLimit::LoadLatency, (AHEAD_LATENCY + l.own.0 / PORT_BYTES) / l.ahead / self.resident),
            (LoopLimit::Barriers, c.barriers * REFILL / self.resident),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atlas_codegen::gpu::analysis::{Counts, Sample};

    /// One program for each SM, with enough warps that nothing but these counts takes time.
    fn cycles(total: Counts) -> f64 {
        let machine: Machine = "sm_90".parse().unwrap();
        let samples = vec![Sample { total, prefetched: Vec::new() }];
        let programs = u64::from(machine.sms);
        let work =
            Work { programs, threads: 1024, shared_bytes: 200_000, registers: 32, total, samples, ..Work::default() };
        estimate(&work, &machine).cycles
    }

    /// The same number of cycles of each unit costs the same in the model.
    #[test]
    fn the_rates_are_those_of_the_model() {
        let of = 1e6;
        let none = Counts::default();
        let tensor = f64::from("sm_90".parse::<Machine>().unwrap().rates.tensor);
        let wanted = cycles(Counts { tensor: of * tensor, ..none });
        for counts in [
            Counts { fma: of * FMA, ..none },
            Counts { element_wise: of * ELEMENT_WISE, ..none },
            Counts { special: of * SPECIAL, ..none },
            Counts { shared: of * SHARED_BYTES, ..none },
        ] {
            assert!((cycles(counts) / wanted - 1.0).abs() < 1e-9, "{counts:?}");
        }
        // What asynchronous products and the copy engine do hides special functions of as many cycles, and of no more.
        for asynchronous in [
            Counts { tensor_async: of * ASYNC_PRODUCTS, ..none },
            Counts { shared_async: of * ASYNC_SHARED_BYTES, ..none },
        ] {
            let beside = |share: f64| cycles(Counts { special: share * of * SPECIAL, ..asynchronous });
            let (hidden, open) = (beside(0.999) - beside(0.998), beside(1.002) - beside(1.001));
            assert!(open > 1.3 * hidden, "{asynchronous:?}: {open} {hidden}");
        }
    }
}
