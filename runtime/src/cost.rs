//! A cost model: clock cycles of one launch, from the work of the lowered kernel and the class of the machine.
//!
//! [`Work`] is what one program does, counted on GPU IR. A multiprocessor does it with these bounds:
//!
//! ```text
//! busy  = max(products / rate, shared bytes / rate, functions / rate)       each of a unit of its own
//!       + instructions / rate                                                 warps wait for what they make elements of
//! data  = max(bytes of DRAM / its rate, bytes through L2 / its rate)        loads run beside all else
//! alone = start + rounds · latency + barriers · wait + busy / min(1, warps / 6)
//!       + global bytes / the SM's port, and for loads that run ahead what of latency and port the trips leave open
//! T(n)  = (alone^p + (n · max(busy, data))^p)^(1/p),  p of the generation   n programs side by side on an SM
//! ```
//!
//! `T` is a smooth maximum: few programs leave latency open, many share the units. An SM holds as many programs as
//! registers, shared memory, threads and slots allow, `held`; of `N = ceil(programs / SMs)` it runs
//! `floor(N / held)` rounds of `T(held)`, and `r = N mod held` at the end. These begin before the round before them is
//! over: they count for three tenths as a round of their own, `T(r)`, else as a share of a full one, `T(held) · r / held`.
//! Bytes that several programs read come from DRAM once while their tensor fits the L2 cache, else once for a square of the
//! programs that run at once, and from L2 once for each SM while they fit L1. Tiles that need more than 255 registers
//! spill, which costs work.
//!
//! Padding, threads that repeat others and ragged edges are in the counts. The rates are rounded figures of a machine
//! class, the same for every kernel: the model ranks configs of one kernel, it does not predict times. Nothing here
//! depends on anything but its arguments.

use atlas_codegen::Machine;
use atlas_codegen::analysis::{Counts, Read, Work};
use atlas_dsl::ir::GridExtent;
use std::fmt;

/// What an SM of a generation does in a clock, and how many programs it tracks.
struct Rates {
    sm: u32,
    /// Fused multiply-adds of `mma.sync` on 16-bit operands into f32, as many as real code gets.
    tensor: f64,
    /// Its share of DRAM and of L2, in bytes.
    dram_bytes: f64,
    l2_bytes: f64,
    /// Of the unit for special functions and of shared memory, and bytes that it can take in.
    special: f64,
    shared_bytes: f64,
    port_bytes: f64,
    /// The exponent of the smooth maximum: 1 would add what programs wait for to what they share.
    overlap: f64,
    programs: u32,
}

/// Fitted to the times of all configs of 13 kernels at 254 sizes on an H200 (`benches/results/h200-tune`).
const FITTED: Rates = Rates { special: 11.0, shared_bytes: 80.0, port_bytes: 67.0, overlap: 1.4, ..UNFITTED };
/// What data sheets say, where nothing was fitted.
const UNFITTED: Rates = Rates {
    sm: 0,
    tensor: 0.0,
    dram_bytes: 0.0,
    l2_bytes: 0.0,
    special: 16.0,
    shared_bytes: 115.0,
    port_bytes: 96.0,
    overlap: 2.0,
    programs: 32,
};

const RATES: [Rates; 3] = [
    Rates { sm: 80, tensor: 920.0, dram_bytes: 12.0, l2_bytes: 28.0, programs: 32, ..UNFITTED },
    Rates { sm: 89, tensor: 230.0, dram_bytes: 3.0, l2_bytes: 16.0, programs: 24, ..UNFITTED },
    Rates { sm: 90, tensor: 1600.0, dram_bytes: 18.0, l2_bytes: 36.0, programs: 32, ..FITTED },
];

/// The same in every generation: rates per clock of single precision and of other instructions, as far as real code gets.
const FMA: f64 = 128.0;
const ELEMENT_WISE: f64 = 104.0;
/// What of a tensor an SM's L1 cache may be trusted to keep.
const L1_BYTES: f64 = 64e3;
/// Shared memory that the driver takes of each CTA.
const SHARED_RESERVED: u32 = 1024;
/// Warps that keep an SM's units busy when alone.
const BUSY_WARPS: f64 = 6.0;
/// Cycles to start and end a program, to get the first bytes of a load, to meet at a barrier, and to meet at one of a loop
/// whose loads run ahead, and fill the units anew.
const START: f64 = 500.0;
const LATENCY: f64 = 600.0;
/// Latencies that loads of a loop may run ahead and gain by it, if the loop's own work is so many times what its data takes
/// and its start is one trip of so many: attention loses 1 to 2 % by one stage more.
const ENOUGH: f64 = 2.5;
const MOSTLY: f64 = 2.0;
const MANY_TRIPS: f64 = 32.0;
const BARRIER: f64 = 100.0;
const REFILL: f64 = 350.0;
/// Of programs that run at the end, the share that counts as a round of their own.
const LAST_ROUND: f64 = 0.3;
/// A thread's most registers, and how much more work there is where tiles do not fit.
const MOST_REGISTERS: u32 = 255;
const SPILL: f64 = 4.0;

/// What one launch is estimated to take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Programs of the launch.
    pub programs: u64,
    /// Rounds in which the device runs them.
    pub waves: u64,
    /// Shared memory of one program, in bytes.
    pub shared_bytes: u64,
    /// Registers of one thread; past 255 they spill.
    pub registers: u64,
    /// Programs that an SM holds at once.
    pub held: u64,
    /// Threads that an SM holds at once, where there are so many.
    pub resident_threads: u64,
    /// Bytes of shared memory of an SM into which loads run ahead.
    pub ahead_bytes: u64,
    /// Clock cycles of the launch: for ranking only.
    pub cycles: f64,
    /// What it takes at the least.
    pub bound: Bound,
}

/// What a launch takes at the least, whatever its programs wait for: all multiprocessors busy with one kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bound {
    /// Clock cycles of the unit that has most to do.
    pub cycles: f64,
    /// That unit.
    pub unit: Unit,
    /// Bytes that cross DRAM: of each tensor what is touched, once.
    pub bytes: f64,
    /// Floating-point operations of products, two for each multiply-add.
    pub flops: f64,
}

/// What of a GPU may bound a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Memory outside the chip.
    #[default]
    Dram,
    /// Tensor cores.
    TensorCores,
    /// Arithmetic and all else that threads do.
    Instructions,
    /// Exponentials, roots and their like.
    SpecialFunctions,
    /// Shared memory.
    SharedMemory,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Dram => "DRAM",
            Unit::TensorCores => "tensor cores",
            Unit::Instructions => "instructions",
            Unit::SpecialFunctions => "special functions",
            Unit::SharedMemory => "shared memory",
        })
    }
}

/// The bound of a kernel's work on a machine.
fn bound(work: &Work, machine: &Machine, rates: &Rates) -> Bound {
    let (programs, c) = (work.programs as f64, &work.total);
    let share = programs / f64::from(machine.sms.max(1));
    let read: f64 = work.reads.iter().map(|r| (r.bytes * programs).min(r.tensor)).sum();
    let bytes = read + work.written * programs;
    let of = [
        (Unit::Dram, bytes / rates.dram_bytes / f64::from(machine.sms.max(1))),
        (Unit::TensorCores, share * c.tensor / rates.tensor),
        (Unit::Instructions, share * (c.fma / FMA + c.element_wise / ELEMENT_WISE)),
        (Unit::SpecialFunctions, share * c.special / rates.special),
        (Unit::SharedMemory, share * c.shared / rates.shared_bytes),
    ];
    let first = Bound { bytes, flops: 2.0 * programs * (c.tensor + c.fma), ..Bound::default() };
    of.into_iter().fold(first, |b, (unit, cycles)| if cycles > b.cycles { Bound { cycles, unit, ..b } } else { b })
}

/// Programs of a launch; saturates.
pub fn programs(grid: &[GridExtent], dims: &[u64]) -> u64 {
    GridExtent::programs(grid, dims)
}

/// The cost of a kernel's work on a machine.
pub fn estimate(work: &Work, machine: &Machine) -> Cost {
    Terms::of(work, machine).cost()
}

/// What the cost of a kernel is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    programs: u64,
    threads: u32,
    shared_bytes: u32,
    registers: u32,
    /// Programs of a multiprocessor, and those that it holds at once.
    per_sm: u64,
    held: u64,
    /// Cycles of a program that has the machine to itself, and of what programs side by side share.
    alone: f64,
    shared: f64,
    overlap: f64,
    /// The share of shared memory into which loads run ahead.
    ahead: f64,
    /// By what measurements nearby correct the cycles.
    factor: f64,
    bound: Bound,
}

impl Terms {
    /// The terms of a kernel's work on a machine.
    pub(crate) fn of(work: &Work, machine: &Machine) -> Terms {
        let rates = RATES.iter().rev().find(|r| r.sm <= machine.sm).unwrap_or(&RATES[0]);
        let sms = u64::from(machine.sms.max(1));
        let held = held(work, machine, rates);
        let spill = if work.registers > MOST_REGISTERS { SPILL } else { 1.0 };
        let busy = |c: &Counts| spill * busy(c, rates);
        let share = f64::from(work.threads) / 32.0 / BUSY_WARPS;
        let alone = |c: &Counts, barriers: f64| c.rounds * LATENCY + barriers + busy(c) / share.min(1.0);
        let refills = |c: &Counts| c.barriers * REFILL;
        // What loads that run ahead leave open of a trip, and what they move.
        let open = work.prefetched.iter().map(|l| {
            let arrives = LATENCY + l.body.global / rates.port_bytes;
            l.trips * (arrives - l.ahead * alone(&l.body, refills(&l.body))).max(0.0)
        });
        let of_bodies = |of: fn(&Counts) -> f64| work.prefetched.iter().map(|l| l.trips * of(&l.body)).sum::<f64>();
        let waits = (work.total.global - of_bodies(|c| c.global)).max(0.0) / rates.port_bytes + open.sum::<f64>();
        let inside = of_bodies(|c| c.barriers).min(work.total.barriers);
        let barriers = inside * REFILL + (work.total.barriers - inside) * BARRIER;
        let (own, data) = (busy(&work.total), data(work, machine, rates, held));
        // What runs further ahead than this hides nothing where a program's own work is most of its time.
        let useful = work.prefetched.iter().map(|l| {
            let trip = alone(&l.body, refills(&l.body)).max(held as f64 * busy(&l.body));
            let enough = ENOUGH * (LATENCY + l.body.global / rates.port_bytes) / (l.ahead * trip).max(1.0);
            if own > MOSTLY * data && l.trips >= MANY_TRIPS { enough.min(1.0) } else { 1.0 }
        });
        let useful = useful.reduce(f64::max).unwrap_or(1.0);
        Terms {
            programs: work.programs,
            threads: work.threads,
            shared_bytes: work.shared_bytes,
            registers: work.registers,
            per_sm: work.programs.div_ceil(sms).max(1),
            held,
            alone: (START + alone(&work.total, barriers) + waits).max(work.total.global / rates.port_bytes),
            shared: own.max(data),
            overlap: rates.overlap,
            ahead: ahead_share(work) * useful,
            factor: 1.0,
            bound: bound(work, machine, rates),
        }
    }

    /// The same with its cycles multiplied.
    pub(crate) fn corrected(self, factor: f64) -> Terms {
        Terms { factor: self.factor * factor, ..self }
    }

    /// Clock cycles of the launch.
    pub(crate) fn cycles(&self) -> f64 {
        self.factor * self.model_cycles()
    }

    fn model_cycles(&self) -> f64 {
        let p = self.overlap;
        let together = |n: u64| (self.alone.powf(p) + (n as f64 * self.shared).powf(p)).powf(1.0 / p);
        match (self.per_sm / self.held, self.per_sm % self.held) {
            (0, n) => together(n),
            (rounds, 0) => rounds as f64 * together(self.held),
            (rounds, n) => {
                let full = together(self.held);
                let share = full * n as f64 / self.held as f64;
                rounds as f64 * full + LAST_ROUND * together(n) + (1.0 - LAST_ROUND) * share
            }
        }
    }

    /// What hides what the model does not know: bytes into which loads run ahead, and threads at once.
    pub(crate) fn slack(&self) -> (u64, u64) {
        let resident = self.held.min(self.per_sm);
        let ahead_kib = resident as f64 * f64::from(self.shared_bytes) * self.ahead / 1024.0;
        let ahead_bytes = 1024 * ahead_kib.round() as u64;
        (ahead_bytes, resident * u64::from(self.threads))
    }

    /// The cost.
    pub(crate) fn cost(&self) -> Cost {
        let (ahead_bytes, resident_threads) = self.slack();
        Cost {
            programs: self.programs,
            waves: self.per_sm.div_ceil(self.held),
            shared_bytes: u64::from(self.shared_bytes),
            registers: u64::from(self.registers),
            held: self.held,
            resident_threads,
            ahead_bytes,
            cycles: self.cycles(),
            bound: self.bound,
        }
    }
}

/// The share of a ring that loads fill ahead: all stages but the one in use, and no more than there are trips left.
fn ahead_share(work: &Work) -> f64 {
    work.prefetched.iter().map(|l| l.ahead.min(l.trips - 1.0) / (l.ahead + 1.0)).fold(0.0, f64::max)
}

/// Programs that an SM has room for.
fn held(work: &Work, machine: &Machine, rates: &Rates) -> u64 {
    let threads = work.threads.max(32);
    let registers = threads * work.registers.clamp(1, MOST_REGISTERS).next_multiple_of(8);
    let by_shared = machine.sm_shared_bytes / (work.shared_bytes + SHARED_RESERVED);
    let by_registers = machine.sm_registers / registers;
    let most = rates.programs.min(by_shared).min(by_registers).min(machine.sm_threads / threads);
    u64::from(most.max(1))
}

/// Cycles of an SM's own units.
fn busy(c: &Counts, rates: &Rates) -> f64 {
    let tensor = c.tensor / rates.tensor;
    tensor.max(c.shared / rates.shared_bytes).max(c.special / rates.special)
        + c.fma / FMA
        + c.element_wise / ELEMENT_WISE
}

/// Cycles of one program's share of DRAM and L2, where an SM holds so many at once. What idle multiprocessors leave is the others'.
fn data(work: &Work, machine: &Machine, rates: &Rates, held: u64) -> f64 {
    let sms = u64::from(machine.sms.max(1));
    let l2 = machine.l2_bytes as f64;
    let programs = work.programs.max(1) as f64;
    // Programs that run at once have neighbouring tiles: each part of an operand is read once for a side of their square.
    let side = programs.min((held * sms) as f64).sqrt();
    let dram = work.reads.iter().map(|r| {
        let again = (r.bytes * programs - r.tensor).max(0.0) * (1.0 - l2 / r.tensor.max(1.0)).max(0.0);
        (r.bytes * programs).min(r.tensor) + again.min(r.bytes * programs / side)
    });
    let dram = dram.sum::<f64>() / programs + work.written;
    // A small tensor that every program reads stays in L1.
    let again = |r: &&Read| r.tensor <= L1_BYTES && r.bytes * programs > r.tensor * sms as f64;
    let near = work.reads.iter().filter(again).map(|r| r.bytes).sum::<f64>();
    let share = (sms as f64 / programs).max(1.0);
    let time = |bytes: f64, rate: f64| bytes / (rate * share).min(rates.port_bytes);
    time(dram, rates.dram_bytes).max(time(work.total.global - near, rates.l2_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hopper() -> Machine {
        "sm_90".parse().unwrap()
    }

    /// Rows of 16 KiB, one to a program, read and written.
    fn rows(programs: u64) -> Work {
        let total = Counts { element_wise: 65536.0, global: 32768.0, barriers: 1.0, rounds: 1.0, ..Counts::default() };
        Work {
            programs,
            threads: 128,
            shared_bytes: 16,
            registers: 88,
            total,
            prefetched: Vec::new(),
            reads: vec![Read { bytes: 16384.0, tensor: 16384.0 * programs as f64 }],
            written: 16384.0,
        }
    }

    #[test]
    fn more_of_anything_costs_more() {
        let base = rows(10_000);
        let cycles = |change: fn(&mut Work)| {
            let mut work = base.clone();
            change(&mut work);
            estimate(&work, &hopper()).cycles
        };
        let least = cycles(|_| {});
        let more: [fn(&mut Work); 10] = [
            |w| w.programs *= 2,
            |w| w.written *= 2.0,
            |w| w.total.element_wise *= 8.0,
            |w| w.total.tensor = 4e6,
            |w| w.total.shared = 1e6,
            |w| w.total.special = 1e6,
            |w| w.total.barriers = 100.0,
            |w| w.total.rounds = 2.0,
            |w| w.registers = 300,
            |w| w.shared_bytes = 200_000,
        ];
        for (i, change) in more.into_iter().enumerate() {
            assert!(cycles(change) > least, "change {i}");
        }
    }

    #[test]
    fn an_sm_holds_what_its_scarcest_resource_allows() {
        let held = |change: fn(&mut Work)| {
            let mut work = rows(1 << 20);
            change(&mut work);
            estimate(&work, &hopper()).held
        };
        assert_eq!(held(|_| {}), 5);
        assert_eq!(held(|w| w.registers = 16), 16);
        assert_eq!(held(|w| (w.registers, w.threads) = (16, 32)), 32);
        assert_eq!(held(|w| w.shared_bytes = 100 * 1024), 2);
        assert_eq!(held(|w| (w.registers, w.threads) = (255, 512)), 1);
    }

    #[test]
    fn what_all_programs_read_comes_from_memory_once() {
        let base = rows(10_000);
        let with = |tensor: f64| {
            let mut work = base.clone();
            work.reads.push(Read { bytes: 16384.0, tensor });
            estimate(&work, &hopper()).cycles
        };
        assert!(with(16384.0) < 1.01 * estimate(&base, &hopper()).cycles);
        assert!(with(16384.0 * 10_000.0) > 1.3 * with(16384.0));
    }

    #[test]
    fn loads_that_run_ahead_hide_behind_long_trips_only() {
        let with = |element_wise: f64| {
            let body = Counts { element_wise, ..Counts::default() };
            let prefetched = vec![atlas_codegen::analysis::Prefetched { trips: 10.0, ahead: 1.0, body }];
            estimate(&Work { prefetched, ..rows(100) }, &hopper()).cycles
        };
        assert!(with(1e6) < with(1e3));
        assert_eq!(with(1e6), with(1e7));
    }
}
