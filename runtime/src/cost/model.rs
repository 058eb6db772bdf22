//! The cost model: the clock cycles of one launch, from the work of the lowered kernel and the class of the machine.
//!
//! [`Work`] is the work of one program, counted on GPU IR. A multiprocessor is modelled as follows:
//!
//! ```text
//! busy  = max(products / rate, shared bytes / rate, functions / rate)       each of a unit of its own
//!       + instructions / rate                                                 warps wait for what they make elements of
//! data  = max(bytes of DRAM / its rate, bytes through L2 / its rate, passes over one tensor · HOT_LINE)
//! alone = start + latency waits · latency + barriers · wait + busy / min(1, warps / 4.8)
//!       + global bytes / the SM's port, and for loads that run ahead what the trips do not hide, ahead
//!       + asynchronous products / rate / warpgroups                             which the busy of this sum leaves out
//! ahead = arrival + (trips - 1) · max(0, arrival / min(stages - 1, trips - 1) - trip)        of each run of a loop
//! share(n) = n · (busy · few(n) and data, a smooth maximum, + CTA_START)            n programs side by side on an SM
//! T(n)  = alone + share(n)                                                     all begin at the same time
//! S(n)  = (alone^p + share(n)^p)^(1/p)                    some wait while others work
//! ```
//!
//! An SM holds `ctas_per_sm` programs, as many as registers, shared memory, threads and slots allow. Of `N =
//! ceil(programs / SMs)` programs it runs `floor(N / ctas_per_sm)` waves of `S(ctas_per_sm)`, the first of them closer
//! to `T(ctas_per_sm)`. The last `r = N mod ctas_per_sm` programs count partly as a wave of their own, `T(r)`, and
//! partly as a share of a full one. An SM with few warps leaves its units idle, `few`. Bytes that several programs read
//! come from DRAM once while their tensor fits the L2 cache, and otherwise once for a square of the programs that run
//! at the same time. They come from L2 once per SM while they fit L1 and are not copied past it. All readers of one
//! line of L2 wait for each other: one pass of a program over a whole tensor that bypasses L1 takes `HOT_LINE` cycles
//! of the GPU, however few bytes it has. Stores of partial sectors and lines cost more than their bytes. Tiles that
//! need more than 255 registers spill, which adds work.
//!
//! Programs of a persistent CTA after its first one leave out of `alone` their start, and the arrival of the first loads of each
//! loop whose loads were fetched in the program before: the loads run ahead into the next program, by no more trips than there are.
//!
//! Programs whose units work on their own, the tensor cores by asynchronous products and the copy engine, take turns with
//! little loss: one waits while the others use them. Warps that issue every instruction themselves get in each other's way. The
//! exponent p lies between the two, by the square of the share that the units of the first kind have in `busy`.
//!
//! The counts include padding, threads that repeat the work of others, and ragged edges. The rates are rounded figures
//! of a machine class and the same for every kernel. The model ranks configs of one kernel; it does not predict times. It
//! depends on its arguments only.
//!
//! Nine constants were fitted to rank best: the rates of shared memory, `BUSY_WARPS`, `LATENCY`, `REFILL`, `AHEAD_LATENCY`, the
//! exponents of waves, and `LAST_WAVE`. The times were those of all configs of 22 kernels at 213 sizes for sm_90a and of 71 kernels
//! at 1420 sizes for sm_90, both on an H200, and of 27 configs of `matmul` at 12 sizes on an H100. The choice takes 3.6 %, 3.3 %
//! and 0.3 % longer than the best config on average. Asynchronous products and copies by the engine have no cost for each step
//! beside their work: such costs were fitted, and the best ones were none.

use atlas_codegen::Machine;
use atlas_codegen::arch::Rates;
use atlas_codegen::gpu::analysis::{Counts, Prefetched, Sample, TensorReads, Work};
use atlas_dsl::ir::GridExtent;

/// The version of the cost model. Records correct the model by its error, so cycles of another version are useless.
/// Raise it with every change of the cycles here or of the counts behind them, then run `atlas tune --recount` to
/// update the records.
pub const MODEL: u32 = 7;

/// Rates of every generation, per clock, as real code reaches them: single precision, other instructions, the unit for
/// special functions, bytes of shared memory, and bytes that an SM can receive.
pub(super) const FMA: f64 = 128.0;
pub(super) const ELEMENT_WISE: f64 = 66.0;
pub(super) const SPECIAL: f64 = 9.0;
const SHARED_BYTES: f64 = 120.0;
pub(super) const PORT_BYTES: f64 = 94.0;
/// The same of asynchronous products, and of the bytes of shared memory that they and the copy engine move.
pub(super) const ASYNC_PRODUCTS: f64 = 1900.0;
const ASYNC_SHARED_BYTES: f64 = 99.0;
/// The bytes of a tensor that an SM's L1 cache can be relied on to keep.
const L1_BYTES: f64 = 64e3;
/// Bytes of shared memory that the driver reserves in each CTA.
const SHARED_RESERVED: u32 = 1024;
/// The number of warps of a single program that keep an SM's units busy.
const BUSY_WARPS: f64 = 4.8;
/// Cycles to start and end a program, to get the first bytes of a load, to meet at a barrier, and to meet at a barrier
/// in a loop whose loads run ahead and refill the units.
const START: f64 = 300.0;
const LATENCY: f64 = 840.0;
const BARRIER: f64 = 78.0;
pub(super) const REFILL: f64 = 108.0;
/// Cycles until a load that runs ahead has arrived, usually from DRAM.
pub(super) const AHEAD_LATENCY: f64 = 1310.0;
/// Cycles of an SM for each program, independent of the others there, and of the GPU for each pass of a program over
/// one tensor.
const CTA_START: f64 = 30.0;
const HOT_LINE: f64 = 40.0;
/// The number of warps on an SM that keep its units busy, and the exponent of the slowdown with fewer warps.
const MANY_WARPS: f64 = 8.0;
const FEW_WARPS: f64 = 0.23;
/// Exponents of smooth maxima: for units and memory, and for the time that programs wait and the time that they share
/// in waves after the first.
const UNITS_OVERLAP: f64 = 5.0;
const WAVES_OVERLAP: f64 = 1.18;
/// The same exponent for kernels of nothing but asynchronous products and copies by the engine.
const ASYNC_WAVES_OVERLAP: f64 = 5.0;
/// The extra cost of a byte in a partly written sector and in a partly written line, relative to a requested byte: for
/// DRAM and for L2.
const PARTS_OF_DRAM: (f64, f64) = (8.4, 0.11);
const PARTS_OF_L2: (f64, f64) = (2.0, 0.1);
/// What a launch of CTAs that share programs counts for where each multiprocessor has a program without: on an H200, products of
/// 2048 to 16384 cubed took 1.1 to 1.3 times as long as was said without it, and none gained.
const SPLIT_FOR_NOTHING: f64 = 1.5;

/// Cycles from the end of a kernel to the beginning of the next one on its stream.
pub(super) const NEXT_KERNEL: f64 = 2000.0;

/// For the first wave, how close it is to one whose programs all begin together. For the last wave, the share that
/// counts as a wave of its own.
const FIRST_WAVE: f64 = 0.85;
const LAST_WAVE: f64 = 0.52;
/// The most registers of a thread, and the factor on the work if tiles do not fit.
const MOST_REGISTERS: u32 = 255;
const SPILL: f64 = 4.0;

/// The estimated cost of one launch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Programs of the launch; CTAs if several share a program.
    pub programs: u64,
    /// The number of waves in which the device runs them.
    pub waves: u64,
    /// Shared memory of one program, in bytes.
    pub shared_bytes: u64,
    /// Registers of one thread. More than 255 means that they spill.
    pub registers: u64,
    /// Programs that an SM holds at once.
    pub ctas_per_sm: u64,
    /// Threads that an SM holds at once, if the launch has that many.
    pub resident_threads: u64,
    /// Clock cycles of the launch, for ranking only.
    pub cycles: f64,
}

/// The number of programs of a launch, saturating.
pub fn programs(grid: &[GridExtent], dims: &[u64]) -> u64 {
    GridExtent::programs(grid, dims)
}

/// The cost of a kernel's work on a machine.
pub fn estimate(work: &Work, machine: &Machine) -> Cost {
    Terms::of(work, machine).cost()
}

/// The terms of a kernel's cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    programs: u64,
    threads: u32,
    shared_bytes: u32,
    registers: u32,
    /// The number of programs of a multiprocessor, and how many it holds at once.
    per_sm: u64,
    ctas_per_sm: u64,
    /// Cycles of a program that has the machine to itself, of the longest such program, of the units that programs on
    /// one SM share, and of memory.
    alone: f64,
    longest: f64,
    /// What of that the programs of a CTA after its first one leave out.
    begun: f64,
    busy: f64,
    data: f64,
    /// The exponent of the smooth maximum of waiting and sharing.
    overlap: f64,
    /// The factor by which nearby measurements correct the cycles.
    factor: f64,
    /// Cycles of the kernels that run before it.
    before: f64,
}

/// How many multiprocessors run CTAs if these come in clusters of this size. A cluster runs within one GPC, which has 16 to 18
/// multiprocessors, and its last ones stay idle where no whole cluster fits. On an H200, with 132 multiprocessors, 16 clusters of eight CTAs, one on each, ran one after the other in
/// part.
fn sms_for_clusters(sms: u64, cluster: u64) -> u64 {
    match cluster {
        0 | 1 => sms,
        _ => (sms * 15 / 16 / cluster * cluster).max(cluster),
    }
}

impl Terms {
    /// The terms of a kernel's work on a machine.
    pub(crate) fn of(work: &Work, machine: &Machine) -> Terms {
        let rates = &machine.rates;
        let sms = sms_for_clusters(machine.sms.max(1).into(), work.cluster.into());
        let ctas_per_sm = ctas_per_sm(work, machine, rates);
        let spill = if work.registers > MOST_REGISTERS { SPILL } else { 1.0 };
        let busy = |c: &Counts| spill * busy(c, rates);
        let share = f64::from(work.threads) / 32.0 / BUSY_WARPS;
        let warpgroups = f64::from((work.threads / 128).max(1));
        let alone = |c: &Counts, barriers: f64| {
            let by_threads = busy(&Counts { tensor_async: 0.0, shared_async: 0.0, ..*c }) / share.min(1.0);
            let products = spill * c.tensor_async / ASYNC_PRODUCTS / warpgroups;
            c.latency_waits * LATENCY + barriers + by_threads + products
        };
        let refills = |c: &Counts| c.barriers * REFILL;
        // The cycles of a program that has the machine to itself.
        let alone = |sample: &Sample| {
            // The part of a trip that loads running ahead do not hide, and the bytes that they move.
            let open = sample.prefetched.iter().map(|l| {
                let arrives = AHEAD_LATENCY + l.own.0 / PORT_BYTES;
                // The first trip of each run waits, and each later one for what `ahead` trips do not hide of a load.
                let after_first = (l.trips - l.runs).max(0.0);
                let in_flight = l.ahead.min(after_first / l.runs.max(f64::MIN_POSITIVE)).max(1.0);
                l.runs * arrives + after_first * (arrives / in_flight - alone(&l.body, refills(&l.body))).max(0.0)
            });
            let ahead = |of: fn(&Prefetched) -> f64| sample.prefetched.iter().map(|l| l.trips * of(l)).sum::<f64>();
            let waits = (sample.total.global - ahead(|l| l.own.0)).max(0.0) / PORT_BYTES + open.sum::<f64>();
            let inside = ahead(|l| l.own.1).min(sample.total.barriers);
            let barriers = inside * REFILL + (sample.total.barriers - inside) * BARRIER;
            (START + alone(&sample.total, barriers) + waits).max(sample.total.global / PORT_BYTES)
        };
        let is_split_for_nothing = work.splits > 1 && work.programs / u64::from(work.splits) >= sms;
        let samples = work.samples.len().max(1) as f64;
        let arrivals = |sample: &Sample| {
            let fetched = sample.prefetched.iter().filter(|l| l.goes_on && l.trips >= l.runs * l.ahead);
            fetched.map(|l| l.runs * (AHEAD_LATENCY + l.own.0 / PORT_BYTES)).sum::<f64>()
        };
        let begun = START + work.samples.iter().map(arrivals).sum::<f64>() / samples;
        let longest = work.samples.iter().map(&alone).fold(0.0, f64::max);
        let all = busy(&work.total);
        let on_its_own = (units_of_their_own(&work.total) * spill / all.max(f64::MIN_POSITIVE)).min(1.0);
        Terms {
            programs: work.programs,
            threads: work.threads,
            shared_bytes: work.shared_bytes,
            registers: work.registers,
            per_sm: work.programs.div_ceil(sms).max(1),
            ctas_per_sm,
            alone: work.samples.iter().map(&alone).sum::<f64>() / samples,
            longest,
            begun: if work.persistent { begun } else { 0.0 },
            busy: all,
            data: data(work, machine, rates, ctas_per_sm),
            overlap: WAVES_OVERLAP + (ASYNC_WAVES_OVERLAP - WAVES_OVERLAP) * on_its_own.powi(2),
            factor: if is_split_for_nothing { SPLIT_FOR_NOTHING } else { 1.0 },
            before: 0.0,
        }
    }

    /// The same with its cycles multiplied.
    pub(crate) fn corrected(self, factor: f64) -> Terms {
        Terms { factor: self.factor * factor, ..self }
    }

    /// The same behind kernels that take so many cycles.
    pub(crate) fn after(self, cycles: f64) -> Terms {
        Terms { before: self.before + cycles, ..self }
    }

    /// Clock cycles of the launch.
    pub(crate) fn cycles(&self) -> f64 {
        self.factor * (self.before + self.model_cycles())
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
        let steady = smooth_max(self.alone - self.begun, share(self.ctas_per_sm), self.overlap);
        let first = FIRST_WAVE * (together(self.ctas_per_sm) - steady);
        let end = match last {
            0 => 0.0,
            n => {
                LAST_WAVE * (together(n) - self.begun) + (1.0 - LAST_WAVE) * steady * n as f64 / self.ctas_per_sm as f64
            }
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

/// How many programs fit on an SM.
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
    let tensor = c.tensor / f64::from(rates.tensor) + c.tensor_async / ASYNC_PRODUCTS;
    let shared = c.shared / SHARED_BYTES + c.shared_async / ASYNC_SHARED_BYTES;
    tensor.max(shared).max(c.special / SPECIAL) + c.fma / FMA + c.element_wise / ELEMENT_WISE
}

/// The part of them in which asynchronous products and the copy engine work.
fn units_of_their_own(c: &Counts) -> f64 {
    (c.tensor_async / ASYNC_PRODUCTS).max(c.shared_async / ASYNC_SHARED_BYTES)
}

/// `(a^p + b^p)^(1/p)`.
fn smooth_max(a: f64, b: f64, p: f64) -> f64 {
    let most = a.max(b).max(f64::MIN_POSITIVE);
    most * ((a / most).powf(p) + (b / most).powf(p)).powf(1.0 / p)
}

/// Cycles of one program's share of DRAM and L2 with `ctas_per_sm` programs per SM. The share of idle multiprocessors
/// goes to the others.
fn data(work: &Work, machine: &Machine, rates: &Rates, ctas_per_sm: u64) -> f64 {
    let sms = u64::from(machine.sms.max(1));
    let l2 = machine.l2_bytes as f64;
    let programs = work.programs.max(1) as f64;
    // Programs that run at the same time have neighbouring tiles, so each part of an operand is read once per side of
    // their square.
    let side = programs.min((ctas_per_sm * sms) as f64).sqrt();
    let dram = work.reads.iter().map(|r| {
        let again = (r.bytes * programs - r.tensor).max(0.0) * (1.0 - l2 / r.tensor.max(1.0)).max(0.0);
        (r.bytes * programs).min(r.tensor) + again.min(r.bytes * programs / side)
    });
    let parts = |(sector, line): (f64, f64)| sector * work.total.sectors + line * work.total.lines;
    let dram = dram.sum::<f64>() / programs + work.written + parts(PARTS_OF_DRAM);
    // A small tensor that every program reads stays in L1, unless its copies bypass L1.
    let again = |r: &&TensorReads| r.tensor <= L1_BYTES && r.bytes * programs > r.tensor * sms as f64;
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

    /// Rows of 16 KiB, one per program, read and written.
    fn rows(programs: u64) -> Work {
        let total =
            Counts { element_wise: 65536.0, global: 32768.0, barriers: 1.0, latency_waits: 1.0, ..Counts::default() };
        Work {
            programs,
            threads: 128,
            shared_bytes: 16,
            registers: 88,
            splits: 1,
            cluster: 1,
            persistent: false,
            total,
            samples: vec![Sample { total, prefetched: Vec::new() }],
            reads: vec![TensorReads { bytes: 16384.0, tensor: 16384.0 * programs as f64, past_l1: 0.0 }],
            written: 16384.0,
        }
    }

    /// On a GPU whose multiprocessors all have a program, sharing programs gains nothing, whatever their work.
    #[test]
    fn programs_are_not_split_where_each_multiprocessor_has_one() {
        let of = |programs: u64, splits: u32| {
            let shared = Work { splits, ..rows(programs * u64::from(splits)) };
            let own = Work { splits: 1, ..shared.clone() };
            estimate(&shared, &hopper()).cycles / estimate(&own, &hopper()).cycles
        };
        assert_eq!((of(64, 2), of(131, 2)), (1.0, 1.0));
        assert_eq!((of(132, 2), of(4000, 4)), (SPLIT_FOR_NOTHING, SPLIT_FOR_NOTHING));
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
        let more: [fn(&mut Work); 12] = [
            |w| w.programs *= 2,
            |w| w.written *= 2.0,
            |w| w.total.element_wise *= 8.0,
            |w| w.total.tensor = 4e6,
            |w| w.total.tensor_async = 4e6,
            |w| w.total.shared = 1e6,
            |w| w.total.shared_async = 1e6,
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

    /// A kernel that moves data takes longer if DRAM moves fewer bytes per clock.
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
            work.reads.push(TensorReads { bytes: 16384.0, tensor, past_l1: 0.0 });
            estimate(&work, &hopper()).cycles
        };
        assert!(with(16384.0) < 1.01 * estimate(&base, &hopper()).cycles);
        assert!(with(16384.0 * 10_000.0) > 1.3 * with(16384.0));
    }

    #[test]
    fn loads_that_run_ahead_hide_behind_long_trips_only() {
        let with = |element_wise: f64| {
            let body = Counts { element_wise, ..Counts::default() };
            let prefetched =
                vec![Prefetched { runs: 1.0, trips: 10.0, ahead: 1.0, goes_on: false, body, own: (0.0, 0.0) }];
            let base = rows(100);
            let samples = vec![Sample { total: base.total, prefetched }];
            estimate(&Work { samples, ..base }, &hopper()).cycles
        };
        assert!(with(1e6) < with(1e3));
        assert_eq!(with(1e6), with(1e7));
    }
    /// Loads run ahead by no more trips than there are, and the first trip always waits.
    #[test]
    fn more_stages_than_trips_gain_nothing() {
        let with = |runs: f64, trips: f64, ahead: f64| {
            let body = Counts { element_wise: 1e3, ..Counts::default() };
            let prefetched = vec![Prefetched { runs, trips, ahead, goes_on: false, body, own: (0.0, 0.0) }];
            let base = rows(100);
            let samples = vec![Sample { total: base.total, prefetched }];
            estimate(&Work { samples, ..base }, &hopper()).cycles
        };
        assert_eq!(with(1.0, 1.0, 7.0), with(1.0, 1.0, 1.0));
        assert_eq!(with(1.0, 4.0, 7.0), with(1.0, 4.0, 3.0));
        assert!(with(1.0, 4.0, 3.0) < with(1.0, 4.0, 1.0));
        // Each run of a loop waits for its first loads.
        assert!(with(2.0, 32.0, 3.0) > with(1.0, 32.0, 3.0));
    }

    /// Programs after the first one leave out what the program before has fetched, and nothing else.
    #[test]
    fn only_loads_that_go_on_have_arrived_before() {
        let begun = |persistent: bool, goes_on: bool, trips: f64| {
            let (body, own) = (Counts::default(), (9400.0, 0.0));
            let prefetched = vec![Prefetched { runs: 1.0, trips, ahead: 3.0, goes_on, body, own }];
            let base = rows(10_000);
            let samples = vec![Sample { total: base.total, prefetched }];
            Terms::of(&Work { persistent, samples, ..base }, &hopper()).begun
        };
        assert_eq!(begun(false, false, 8.0), 0.0);
        assert_eq!(begun(true, false, 8.0), START);
        assert_eq!(begun(true, true, 2.0), START);
        assert_eq!(begun(true, true, 3.0), START + AHEAD_LATENCY + 9400.0 / PORT_BYTES);
    }

    /// A few asynchronous products do not make the rest of a kernel overlap.
    #[test]
    fn overlap_follows_the_share_of_asynchronous_work() {
        let overlap = |tensor_async: f64| {
            let mut work = rows(10_000);
            work.total.tensor_async = tensor_async;
            Terms::of(&work, &hopper()).overlap
        };
        assert_eq!(overlap(0.0), WAVES_OVERLAP);
        assert!(overlap(1e4) < 1.01 * WAVES_OVERLAP);
        assert!(overlap(1e9) > 0.99 * ASYNC_WAVES_OVERLAP);
    }
}
