//! The work of several kernels, evaluated together for each size.
//!
//! Kernels of one signature that only differ in their config count the same tiles and bytes. Their expressions are in one list
//! without duplicates, and are evaluated once per size. Each kernel only has a short list of items of its own.

use super::formula::{Formula, Formulas};
use super::guards::share_of_trips;
use super::sample_points::{SamplePoints, programs};
use super::work::{Counts, Item, Moved, OfByte, Part, Prefetched, Sample, TensorReads, Work, WorkFormula};
use atlas_dsl::ir::GridExtent;
use std::ops::Range;

/// The largest count of a launch. Above it, all kernels take too long.
const MOST: f64 = 1e30;

/// The work of kernels of one signature, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct WorkTable {
    formulas: Formulas,
    /// Each grid once.
    grids: Vec<Vec<GridExtent>>,
    kernels: Vec<KernelRow>,
    /// The items of all kernels. The items inside a loop or a condition follow it.
    items: Vec<FlatItem>,
    /// The bytes of the tensors that are read, of all kernels.
    tensors: Vec<Formula>,
}

/// A kernel.
#[derive(Clone, Debug)]
struct KernelRow {
    grid: usize,
    splits: u32,
    cluster: u32,
    threads: u32,
    shared_bytes: u32,
    registers: u32,
    persistent: bool,
    fixed: Counts,
    items: Range<usize>,
    tensors: Range<usize>,
}

/// An item of a kernel's work.
#[derive(Clone, Debug)]
enum FlatItem {
    Bytes { amount: Formula, each: OfByte, moved: Moved },
    Loop { bounds: Option<(Formula, Formula)>, else_trips: f64, ahead: Option<f64>, goes_on: bool, body: Body },
    If { but_last: Option<f64>, condition: Option<Formula>, body: Body },
}

/// The content of a loop or a condition: the items up to `end`.
#[derive(Clone, Debug)]
struct Body {
    fixed: Counts,
    end: usize,
}

impl WorkTable {
    /// How many kernels it has.
    pub fn count(&self) -> usize {
        self.kernels.len()
    }

    /// Adds a kernel and returns its number.
    pub fn push(&mut self, work: &WorkFormula) -> usize {
        let places = self.formulas.extend(&work.formulas);
        let grid = self.grids.iter().position(|g| *g == work.grid).unwrap_or_else(|| {
            self.grids.push(work.grid.clone());
            self.grids.len() - 1
        });
        let (first_item, first_tensor) = (self.items.len(), self.tensors.len());
        self.tensors.extend(work.tensors.iter().map(|&t| places[t as usize]));
        let mut fixed = Counts::default();
        for role in &work.roles {
            fixed += role.fixed;
            self.part(role, &places);
        }
        self.kernels.push(KernelRow {
            grid,
            splits: work.splits,
            cluster: work.cluster,
            threads: work.threads,
            shared_bytes: work.shared_bytes,
            registers: work.registers,
            persistent: work.persistent,
            fixed,
            items: first_item..self.items.len(),
            tensors: first_tensor..self.tensors.len(),
        });
        self.kernels.len() - 1
    }

    fn part(&mut self, part: &Part, places: &[Formula]) {
        let of = |f: Formula| places[f as usize];
        for item in &part.rest {
            let at = self.items.len();
            let (step, inner) = match item {
                Item::Bytes { amount, each, moved } => {
                    (FlatItem::Bytes { amount: of(*amount), each: *each, moved: *moved }, None)
                }
                Item::Loop { bounds, else_trips, ahead, goes_on, body } => {
                    let bounds = bounds.map(|(lo, hi)| (of(lo), of(hi)));
                    (
                        FlatItem::Loop {
                            bounds,
                            else_trips: *else_trips,
                            ahead: *ahead,
                            goes_on: *goes_on,
                            body: Body { fixed: body.fixed, end: at },
                        },
                        Some(body),
                    )
                }
                Item::If { but_last, condition, body } => {
                    let condition = condition.map(of);
                    (
                        FlatItem::If { but_last: *but_last, condition, body: Body { fixed: body.fixed, end: at } },
                        Some(body),
                    )
                }
            };
            self.items.push(step);
            let Some(inner) = inner else { continue };
            self.part(inner, places);
            let past = self.items.len();
            if let FlatItem::Loop { body, .. } | FlatItem::If { body, .. } = &mut self.items[at] {
                body.end = past;
            }
        }
    }

    /// Evaluates the common expressions of the kernels for these sizes of the dims, in the signature's order.
    pub fn at(&self, dims: &[u64]) -> WorkAt<'_> {
        let places = SamplePoints::of(self.formulas.variables());
        let mut samples: Vec<Vec<Vec<f64>>> = Vec::new();
        for program in programs(places) {
            let trips = program.map(|place| match samples.first().and_then(|p| p.first()) {
                None => self.formulas.values(dims, place),
                Some(first) => self.formulas.moved(first.clone(), dims, place),
            });
            let trips = trips.collect();
            samples.push(trips);
        }
        let count = |grid: &Vec<GridExtent>| GridExtent::programs(grid, dims);
        let programs = self.grids.iter().map(count).collect();
        WorkAt { table: self, samples, programs, work: Work::default() }
    }
}

/// The work of the kernels of a [`WorkTable`] at one size.
#[derive(Debug)]
pub struct WorkAt<'t> {
    table: &'t WorkTable,
    /// The value of each formula, by program and by trip.
    samples: Vec<Vec<Vec<f64>>>,
    /// The programs of each grid; saturate.
    programs: Vec<u64>,
    work: Work,
}

impl WorkAt<'_> {
    /// The work of a kernel by its number. It stays valid until the next call.
    ///
    /// # Panics
    /// If the table has no kernel of that number.
    pub fn of(&mut self, kernel: usize) -> &Work {
        let WorkAt { table, samples, programs, work } = self;
        let row = &table.kernels[kernel];
        work.programs = programs[row.grid].saturating_mul(row.splits.into());
        (work.threads, work.shared_bytes, work.registers) = (row.threads, row.shared_bytes, row.registers);
        (work.splits, work.cluster, work.persistent) = (row.splits, row.cluster, row.persistent);
        work.written = 0.0;
        work.total = Counts::default();
        work.samples.resize_with(samples.len(), Sample::default);
        work.reads.clear();
        let bytes = table.tensors[row.tensors.clone()].iter().map(|&t| samples[0][0][t as usize]);
        work.reads.extend(bytes.map(|tensor| TensorReads { tensor, ..TensorReads::default() }));
        for (at, trips) in samples.iter().enumerate() {
            let sample = &mut work.samples[at];
            sample.total = Counts::default();
            sample.prefetched.clear();
            let share = 1.0 / trips.len() as f64;
            let of_reads = share / samples.len() as f64;
            for values in trips {
                let mut run = ProgramRun {
                    items: &table.items,
                    values,
                    share,
                    of_reads,
                    sample,
                    reads: &mut work.reads,
                    written: 0.0,
                };
                let counts = run.part(row.items.clone(), row.fixed, (1.0, 1.0));
                work.written += of_reads * run.written;
                sample.total.plus_times(counts, share);
            }
            work.total.plus_times(sample.total, 1.0 / samples.len() as f64);
        }
        work
    }
}

/// One run of a program's items. Its reads, writes and loops that run ahead are recorded for all its trips.
struct ProgramRun<'w> {
    items: &'w [FlatItem],
    values: &'w [f64],
    /// The share of the sample that this run represents, and the share of all programs.
    share: f64,
    of_reads: f64,
    sample: &'w mut Sample,
    reads: &'w mut [TensorReads],
    written: f64,
}

impl ProgramRun<'_> {
    /// The work of one run of some items, with the number of runs in all, in a loop with this many trips.
    fn part(&mut self, range: Range<usize>, fixed: Counts, (trips, of_loop): (f64, f64)) -> Counts {
        let mut counts = fixed;
        let values = self.values;
        let of = |f: Formula| values[f as usize];
        let mut at = range.start;
        while at < range.end {
            let inside = at + 1;
            at = match &self.items[at] {
                FlatItem::Bytes { amount, each, moved } => {
                    let bytes = of(*amount);
                    counts.global += bytes * each.global;
                    counts.shared += bytes * each.shared;
                    counts.sectors += bytes * each.sectors;
                    counts.lines += bytes * each.lines;
                    counts.latency_waits += bytes * each.latency_waits;
                    match moved {
                        Moved::Read(tensor) => {
                            let read = &mut self.reads[*tensor];
                            read.bytes += self.of_reads * trips * bytes;
                            read.past_l1 += self.of_reads * trips * bytes * each.past_l1;
                        }
                        Moved::Written => self.written += trips * bytes,
                        Moved::Reread => {}
                    }
                    inside
                }
                FlatItem::Loop { bounds, else_trips, ahead, goes_on, body } => {
                    let known = bounds.map(|(lo, hi)| of(hi) - of(lo)).filter(|n| !n.is_nan());
                    // The trips of loops in loops are a number still.
                    let own = known.map_or(*else_trips, |n| n.max(0.0).ceil()).min(MOST / trips.max(1.0));
                    let first = self.sample.prefetched.len();
                    let inner = self.part(inside..body.end, body.fixed, (trips * own, own));
                    if let Some(ahead) = *ahead {
                        let runs = if own > 0.0 { self.share * trips } else { 0.0 };
                        let trips = self.share * trips * own;
                        let mut of_others = (0.0, 0.0);
                        for other in &self.sample.prefetched[first..] {
                            of_others.0 += other.trips * other.own.0;
                            of_others.1 += other.trips * other.own.1;
                        }
                        let own = |all: f64, of_others: f64| (all - of_others / trips.max(1e-30)).max(0.0);
                        let own = (own(inner.global, of_others.0), own(inner.barriers, of_others.1));
                        let goes_on = *goes_on;
                        self.sample.prefetched.push(Prefetched { runs, trips, ahead, goes_on, body: inner, own });
                    }
                    counts.plus_times(inner, own);
                    body.end
                }
                FlatItem::If { but_last, condition, body } => {
                    let share = share_of_trips(of_loop, *but_last, condition.map(of)).unwrap_or(1.0);
                    let inner = self.part(inside..body.end, body.fixed, (trips * share, of_loop));
                    counts.plus_times(inner, share);
                    body.end
                }
            };
        }
        counts
    }
}
