//! A cost model: clock cycles of one launch, from the work of the lowered kernel and the class of the machine.
//!
//! [`Work`] is what one program does, counted on GPU IR. A multiprocessor does it with these bounds:
//!
//! ```text
//! busy  = max(products / rate, shared bytes / rate, functions / rate)       each of a unit of its own
//!       + instructions / rate                                                 warps wait for what they make elements of
//! data  = max(bytes of DRAM / its rate, bytes through L2 / its rate, passes over one tensor · HOT_LINE)
//! alone = start + latency waits · latency + barriers · wait + busy / min(1, warps / 5.5)
//!       + global bytes / the SM's port, and for loads that run ahead what of latency and port the trips leave open
//! share(n) = n · (busy · few(n) and data, a smooth maximum, + CTA_START)            n programs side by side on an SM
//! T(n)  = alone + share(n)                                                     all begin together
//! S(n)  = (alone^p + share(n)^p)^(1/p)                    some wait while others work
//! ```
//!
//! An SM holds as many programs as registers, shared memory, threads and slots allow, `ctas_per_sm`; of `N = ceil(programs / SMs)` it
//! runs `floor(N / ctas_per_sm)` waves of `S(ctas_per_sm)`, the first of them closer to `T(ctas_per_sm)`, and `r = N mod ctas_per_sm` at the end, which
//! count partly as a wave of their own, `T(r)`, and partly as a share of a full one. Few warps on an SM leave its units idle,
//! `few`. Bytes that several programs read come from DRAM once while their tensor fits the L2 cache, else once for a square of
//! the programs that run at once, and from L2 once for each SM while they fit L1 and are not copied past it. All that read
//! one line of L2 wait for each other: a pass of a program over a whole tensor past L1 takes `HOT_LINE` cycles of the GPU, however few
//! bytes it has. Stores of parts of sectors and of lines take more than their bytes. Tiles that need more than 255 registers
//! spill, which costs work.
//!
//! Padding, threads that repeat others and ragged edges are in the counts. The rates are rounded figures of a machine
//! class, the same for every kernel: the model ranks configs of one kernel, it does not predict times. Nothing here
//! depends on anything but its arguments.

use atlas_codegen::Machine;
use atlas_codegen::analysis::{Counts, Prefetched, Read, Sample, Work};
use atlas_codegen::arch::Rates;
use atlas_dsl::ir::GridExtent;

/// Which cost model this is. Records correct the model by how it erred, so that cycles of another are of no use: it changes with
/// every change of cycles here or of what is counted for them, and `atlas tune --recount` has records follow.
pub const MODEL: u32 = 4;

/// As in every generation, per clock and as far as real code gets: rates of single precision, of other instructions and of
/// the unit for special functions, bytes of shared memory, and bytes that an SM can take in.
const FMA: f64 = 128.0;
const ELEMENT_WISE: f64 = 66.0;
const SPECIAL: f64 = 9.0;
const SHARED_BYTES: f64 = 91.0;
const PORT_BYTES: f64 = 94.0;
/// What of a tensor an SM's L1 cache may be trusted to keep.
const L1_BYTES: f64 = 64e3;
/// Shared memory that the driver takes of each CTA.
const SHARED_RESERVED: u32 = 1024;
/// Warps that keep an SM's units busy when alone.
const BUSY_WARPS: f64 = 5.5;
/// Cycles to start and end a program, to get the first bytes of a load, to meet at a barrier, and to meet at one of a loop
/// whose loads run ahead, and fill the units anew.
const START: f64 = 300.0;
const LATENCY: f64 = 620.0;
const BARRIER: f64 = 78.0;
const REFILL: f64 = 173.0;
/// The same until a load that runs ahead has arrived, from DRAM more often than not.
const AHEAD_LATENCY: f64 = 1220.0;
/// Cycles of an SM for each program, whatever others do there, and of the GPU for each pass of a program over one tensor.
const CTA_START: f64 = 30.0;
const HOT_LINE: f64 = 40.0;
/// Warps on an SM that keep its units busy, and how much slower fewer are, as a power of how many times fewer.
const MANY_WARPS: f64 = 8.0;
const FEW_WARPS: f64 = 0.23;
/// Exponents of smooth maxima: of units and memory, and, in waves under way, of what programs wait for and what they share.
const UNITS_OVERLAP: f64 = 5.0;
const WAVES_OVERLAP: f64 = 1.38;
/// What a byte takes of a sector that is written in part, and of a line, beside one that is asked for: of DRAM and of L2.
const PARTS_OF_DRAM: (f64, f64) = (8.4, 0.11);
const PARTS_OF_L2: (f64, f64) = (2.0, 0.1);
/// Of the first wave, how close it is to one whose programs all begin together; of the last, the share that counts as a
/// wave of its own.
const FIRST_WAVE: f64 = 0.85;
const LAST_WAVE: f64 = 0.52;
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
    pub ctas_per_sm: u64,
    /// Threads that an SM holds at once, where there are so many.
    pub resident_threads: u64,
    /// Clock cycles of the launch: for ranking only.
    pub cycles: f64,
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
    ctas_per_sm: u64,
    /// Cycles of a program that has the machine to itself, of the longest of them, of the units that programs side by side share,
    /// and of memory.
    alone: f64,
    longest: f64,
    busy: f64,
    data: f64,
    /// By what measurements nearby correct the cycles.
    factor: f64,
}

impl Terms {
    /// The terms of a kernel's work on a machine.
    pub(crate) fn of(work: &Work, machine: &Machine) -> Terms {
        let rates = &machine.rates;
        let sms = u64::from(machine.sms.max(1));
        let ctas_per_sm = ctas_per_sm(work, machine, rates);
        let spill = if work.registers > MOST_REGISTERS { SPILL } else { 1.0 };
        let busy = |c: &Counts| spill * busy(c, rates);
        let share = f64::from(work.threads) / 32.0 / BUSY_WARPS;
        let alone = |c: &Counts, barriers: f64| c.latency_waits * LATENCY + barriers + busy(c) / share.min(1.0);
        let refills = |c: &Counts| c.barriers * REFILL;
        // A program that has the machine to itself.
        let alone = |sample: &Sample| {
            // What loads that run ahead leave open of a trip, and what they move.
            let open = sample.prefetched.iter().map(|l| {
                let arrives = AHEAD_LATENCY + l.own.0 / PORT_BYTES;
                l.trips * (arrives - l.ahead * alone(&l.body, refills(&l.body))).max(0.0)
            });
            let ahead = |of: fn(&Prefetched) -> f64| sample.prefetched.iter().map(|l| l.trips * of(l)).sum::<f64>();
            let waits = (sample.total.global - ahead(|l| l.own.0)).max(0.0) / PORT_BYTES + open.sum::<f64>();
            let inside = ahead(|l| l.own.1).min(sample.total.barriers);
            let barriers = inside * REFILL + (sample.total.barriers - inside) * BARRIER;
            (START + alone(&sample.total, barriers) + waits).max(sample.total.global / PORT_BYTES)
        };
        let samples = work.samples.len().max(1) as f64;
        let longest = work.samples.iter().map(&alone).fold(0.0, f64::max);
        Terms {
            programs: work.programs,
            threads: work.threads,
            shared_bytes: work.shared_bytes,
            registers: work.registers,
            per_sm: work.programs.div_ceil(sms).max(1),
            ctas_per_sm,
            alone: work.samples.iter().map(&alone).sum::<f64>() / samples,
            longest,
            busy: busy(&work.total),
            data: data(work, machine, rates, ctas_per_sm),
            factor: 1.0,
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
        let warps = f64::from(self.threads) / 32.0;
        let share = |n: u64| {
            let few = (MANY_WARPS / (n as f64 * warps)).max(1.0).powf(FEW_WARPS);
            n as f64 * (smooth_max(self.busy * few, self.data, UNITS_OVERLAP) + CTA_START)
        };
        let together = |n: u64| self.longest + share(n);
        let (waves, last) = (self.per_sm / self.ctas_per_sm, self.per_sm % self.ctas_per_sm);
        if waves == 0 {
            return together(last);
        }
        let steady = smooth_max(self.alone, share(self.ctas_per_sm), WAVES_OVERLAP);
        let first = FIRST_WAVE * (together(self.ctas_per_sm) - steady);
        let end = match last {
            0 => 0.0,
            n => LAST_WAVE * together(n) + (1.0 - LAST_WAVE) * steady * n as f64 / self.ctas_per_sm as f64,
        };
        waves as f64 * steady + first + end
    }

    /// The cost.
    pub(crate) fn cost(&self) -> Cost {
        Cost {
            programs: self.programs,
            waves: self.per_sm.div_ceil(self.ctas_per_sm),
            shared_bytes: u64::from(self.shared_bytes),
            registers: u64::from(self.registers),
            ctas_per_sm: self.ctas_per_sm,
            resident_threads: self.ctas_per_sm.min(self.per_sm) * u64::from(self.threads),
            cycles: self.cycles(),
        }
    }
}

/// Programs that an SM has room for.
fn ctas_per_sm(work: &Work, machine: &Machine, rates: &Rates) -> u64 {
    let threads = work.threads.max(32);
    let registers = threads * work.registers.clamp(1, MOST_REGISTERS).next_multiple_of(8);
    let by_shared = machine.sm_shared_bytes / (work.shared_bytes + SHARED_RESERVED);
    let by_registers = machine.sm_registers / registers;
    let most = rates.ctas.min(by_shared).min(by_registers).min(machine.sm_threads / threads);
    u64::from(most.max(1))
}

/// Cycles of an SM's own units.
fn busy(c: &Counts, rates: &Rates) -> f64 {
    let tensor = c.tensor / f64::from(rates.tensor);
    tensor.max(c.shared / SHARED_BYTES).max(c.special / SPECIAL) + c.fma / FMA + c.element_wise / ELEMENT_WISE
}

/// `(a^p + b^p)^(1/p)`.
fn smooth_max(a: f64, b: f64, p: f64) -> f64 {
    let most = a.max(b).max(f64::MIN_POSITIVE);
    most * ((a / most).powf(p) + (b / most).powf(p)).powf(1.0 / p)
}

/// Cycles of one program's share of DRAM and L2, where an SM holds so many at once. What idle multiprocessors leave is the others'.
fn data(work: &Work, machine: &Machine, rates: &Rates, ctas_per_sm: u64) -> f64 {
    let sms = u64::from(machine.sms.max(1));
    let l2 = machine.l2_bytes as f64;
    let programs = work.programs.max(1) as f64;
    // Programs that run at once have neighbouring tiles: each part of an operand is read once for a side of their square.
    let side = programs.min((ctas_per_sm * sms) as f64).sqrt();
    let dram = work.reads.iter().map(|r| {
        let again = (r.bytes * programs - r.tensor).max(0.0) * (1.0 - l2 / r.tensor.max(1.0)).max(0.0);
        (r.bytes * programs).min(r.tensor) + again.min(r.bytes * programs / side)
    });
    let parts = |(sector, line): (f64, f64)| sector * work.total.sectors + line * work.total.lines;
    let dram = dram.sum::<f64>() / programs + work.written + parts(PARTS_OF_DRAM);
    // A small tensor that every program reads stays in L1, unless it is copied past it.
    let again = |r: &&Read| r.tensor <= L1_BYTES && r.bytes * programs > r.tensor * sms as f64;
    let near = work.reads.iter().filter(again).map(|r| r.bytes - r.past_l1).sum::<f64>();
    let l2 = work.total.global - near + parts(PARTS_OF_L2);
    let passes = work.reads.iter().filter(|r| r.past_l1 * programs > r.tensor).map(|r| r.past_l1 / r.tensor.max(1.0));
    let hot = HOT_LINE * sms as f64 * passes.fold(0.0, f64::max);
    let share = (sms as f64 / programs).max(1.0);
    let time = |bytes: f64, rate: f64| bytes / (rate * share).min(PORT_BYTES);
    time(dram, f64::from(rates.dram_tenths) / 10.0).max(time(l2, f64::from(rates.l2_bytes))).max(hot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hopper() -> Machine {
        "sm_90".parse().unwrap()
    }

    /// Rows of 16 KiB, one to a program, read and written.
    fn rows(programs: u64) -> Work {
        let total =
            Counts { element_wise: 65536.0, global: 32768.0, barriers: 1.0, latency_waits: 1.0, ..Counts::default() };
        Work {
            programs,
            threads: 128,
            shared_bytes: 16,
            registers: 88,
            total,
            samples: vec![Sample { total, prefetched: Vec::new() }],
            reads: vec![Read { bytes: 16384.0, tensor: 16384.0 * programs as f64, past_l1: 0.0 }],
            written: 16384.0,
        }
    }

    #[test]
    fn more_of_anything_costs_more() {
        let base = rows(10_000);
        let cycles = |change: fn(&mut Work)| {
            let mut work = base.clone();
            change(&mut work);
            work.samples[0].total = work.total;
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
            |w| w.total.latency_waits = 2.0,
            |w| w.registers = 300,
            |w| w.shared_bytes = 200_000,
        ];
        for (i, change) in more.into_iter().enumerate() {
            assert!(cycles(change) > least, "change {i}");
        }
    }

    /// What moves data takes the longer the fewer bytes DRAM has for each clock.
    #[test]
    fn each_generation_has_its_rates() {
        let cycles = |arch: &str| {
            let machine: Machine = arch.parse().unwrap();
            data(&rows(100_000), &machine, &machine.rates, 5)
        };
        let slower = ["sm_100", "sm_90", "sm_80", "sm_87", "sm_110", "sm_86", "sm_120", "sm_89", "sm_121"].map(cycles);
        assert!(slower.is_sorted(), "{slower:?}");
        assert!(slower[0] * 10.0 < slower[8]);
    }

    #[test]
    fn an_sm_holds_what_its_scarcest_resource_allows() {
        let ctas_per_sm = |change: fn(&mut Work)| {
            let mut work = rows(1 << 20);
            change(&mut work);
            estimate(&work, &hopper()).ctas_per_sm
        };
        assert_eq!(ctas_per_sm(|_| {}), 5);
        assert_eq!(ctas_per_sm(|w| w.registers = 16), 16);
        assert_eq!(ctas_per_sm(|w| (w.registers, w.threads) = (16, 32)), 32);
        assert_eq!(ctas_per_sm(|w| w.shared_bytes = 100 * 1024), 2);
        assert_eq!(ctas_per_sm(|w| (w.registers, w.threads) = (255, 512)), 1);
    }

    #[test]
    fn what_all_programs_read_comes_from_memory_once() {
        let base = rows(10_000);
        let with = |tensor: f64| {
            let mut work = base.clone();
            work.reads.push(Read { bytes: 16384.0, tensor, past_l1: 0.0 });
            estimate(&work, &hopper()).cycles
        };
        assert!(with(16384.0) < 1.01 * estimate(&base, &hopper()).cycles);
        assert!(with(16384.0 * 10_000.0) > 1.3 * with(16384.0));
    }

    #[test]
    fn loads_that_run_ahead_hide_behind_long_trips_only() {
        let with = |element_wise: f64| {
            let body = Counts { element_wise, ..Counts::default() };
            let prefetched = vec![Prefetched { trips: 10.0, ahead: 1.0, body, own: (0.0, 0.0) }];
            let base = rows(100);
            let samples = vec![Sample { total: base.total, prefetched }];
            estimate(&Work { samples, ..base }, &hopper()).cycles
        };
        assert!(with(1e6) < with(1e3));
        assert_eq!(with(1e6), with(1e7));
    }
}
