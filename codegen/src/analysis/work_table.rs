//! The work of several kernels, worked out together for each size.
//!
//! Kernels of one signature that differ in a config alone count the same tiles and bytes. Their expressions stand in one
//! list, each once, and are worked out once for a size; what a kernel has of its own is a short list of items.

use super::formula::{Formula, Formulas};
use super::work::{Counts, Item, Moved, OfByte, Part, Prefetched, Read, Work, WorkFormula};
use atlas_dsl::ir::GridExtent;
use std::ops::Range;

/// Where programs stand whose mean is that of all: loops may be longer at the end of the grid, or there alone.
const POSITIONS: [f64; 4] = [0.125, 0.375, 0.625, 0.875];

/// The work of kernels of one signature, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct WorkTable {
    formulas: Formulas,
    /// Each grid once.
    grids: Vec<Vec<GridExtent>>,
    kernels: Vec<Row>,
    /// The items of all kernels; what a loop or a condition holds stands behind it.
    items: Vec<Step>,
    /// The bytes of the tensors that are read, of all kernels.
    tensors: Vec<Formula>,
}

/// A kernel.
#[derive(Clone, Debug)]
struct Row {
    grid: usize,
    threads: u32,
    shared_bytes: u32,
    registers: u32,
    fixed: Counts,
    items: Range<usize>,
    tensors: Range<usize>,
}

/// An item of a kernel's work.
#[derive(Clone, Debug)]
enum Step {
    Bytes { amount: Formula, each: OfByte, moved: Moved },
    Loop { bounds: Option<(Formula, Formula)>, else_trips: f64, ahead: Option<f64>, body: Body },
    If { ahead: Option<f64>, condition: Option<Formula>, body: Body },
}

/// What a loop or a condition holds: the items up to `end`.
#[derive(Clone, Debug)]
struct Body {
    fixed: Counts,
    end: usize,
}

impl WorkTable {
    /// Adds a kernel; gives its number.
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
        self.kernels.push(Row {
            grid,
            threads: work.threads,
            shared_bytes: work.shared_bytes,
            registers: work.registers,
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
                    (Step::Bytes { amount: of(*amount), each: *each, moved: *moved }, None)
                }
                Item::Loop { bounds, else_trips, ahead, body } => {
                    let bounds = bounds.map(|(lo, hi)| (of(lo), of(hi)));
                    (
                        Step::Loop {
                            bounds,
                            else_trips: *else_trips,
                            ahead: *ahead,
                            body: Body { fixed: body.fixed, end: at },
                        },
                        Some(body),
                    )
                }
                Item::If { ahead, condition, body } => {
                    let condition = condition.map(of);
                    (Step::If { ahead: *ahead, condition, body: Body { fixed: body.fixed, end: at } }, Some(body))
                }
            };
            self.items.push(step);
            let Some(inner) = inner else { continue };
            self.part(inner, places);
            let past = self.items.len();
            if let Step::Loop { body, .. } | Step::If { body, .. } = &mut self.items[at] {
                body.end = past;
            }
        }
    }

    /// Works out what the kernels have in common for these sizes of the dims, in the signature's order.
    pub fn at(&self, dims: &[u64]) -> WorkAt<'_> {
        let mut values = vec![self.formulas.values(dims, POSITIONS[0])];
        if self.formulas.has_coordinates() {
            for &position in &POSITIONS[1..] {
                values.push(self.formulas.moved(values[0].clone(), dims, position));
            }
        }
        let count = |grid: &Vec<GridExtent>| GridExtent::programs(grid, dims);
        let programs = self.grids.iter().map(count).collect();
        WorkAt { table: self, values, programs, work: Work::default() }
    }
}

/// The work of the kernels of a [`WorkTable`] at one size.
#[derive(Debug)]
pub struct WorkAt<'t> {
    table: &'t WorkTable,
    /// The value of each formula, by position in the grid.
    values: Vec<Vec<f64>>,
    /// The programs of each grid; saturate.
    programs: Vec<u64>,
    work: Work,
}

impl WorkAt<'_> {
    /// The work of a kernel by its number. It stays until the next is asked for.
    ///
    /// # Panics
    /// If the table has no kernel of that number.
    pub fn of(&mut self, kernel: usize) -> &Work {
        let WorkAt { table, values, programs, work } = self;
        let row = &table.kernels[kernel];
        work.programs = programs[row.grid];
        (work.threads, work.shared_bytes, work.registers) = (row.threads, row.shared_bytes, row.registers);
        work.written = 0.0;
        work.prefetched.clear();
        work.reads.clear();
        let bytes = table.tensors[row.tensors.clone()].iter().map(|&t| values[0][t as usize]);
        work.reads.extend(bytes.map(|tensor| Read { tensor, ..Read::default() }));
        work.total = run(&table.items, row.items.clone(), row.fixed, (1.0, 1.0), values, work);
        work
    }
}

/// The work of one run of some items; what programs read, write and run ahead is noted for all its trips.
fn run(
    items: &[Step],
    range: Range<usize>,
    fixed: Counts,
    (trips, of_loop): (f64, f64),
    values: &[Vec<f64>],
    work: &mut Work,
) -> Counts {
    let mut counts = fixed;
    // Programs stand in all places alike.
    let mean = |of: &dyn Fn(&[f64]) -> f64| values.iter().map(|v| of(v)).sum::<f64>() / values.len() as f64;
    let of = |f: Formula| values[0][f as usize];
    let mut at = range.start;
    while at < range.end {
        let inside = at + 1;
        at = match &items[at] {
            Step::Bytes { amount, each, moved } => {
                let bytes = of(*amount);
                counts.global += bytes * each.global;
                counts.shared += bytes * each.shared;
                counts.element_wise += bytes * each.element_wise;
                counts.sectors += bytes * each.sectors;
                counts.lines += bytes * each.lines;
                counts.rounds += bytes * each.rounds;
                match moved {
                    Moved::Read(tensor) => {
                        let read = &mut work.reads[*tensor];
                        read.bytes += trips * bytes;
                        read.past_l1 += trips * bytes * each.past_l1;
                    }
                    Moved::Written => work.written += trips * bytes,
                    Moved::Again => {}
                }
                inside
            }
            Step::Loop { bounds, else_trips, ahead, body } => {
                let trips_at = |v: &[f64], (lo, hi): (Formula, Formula)| match v[hi as usize] - v[lo as usize] {
                    n if n.is_nan() => n,
                    n => n.max(0.0).ceil(),
                };
                // No loop has more trips than a whole number counts: such bounds have wrapped, and are not known.
                let known = bounds.map(|b| mean(&|v| trips_at(v, b))).filter(|n| *n <= f64::from(i32::MAX));
                let own = known.unwrap_or(*else_trips);
                let inner = run(items, inside..body.end, body.fixed, (trips * own, own), values, work);
                if let Some(ahead) = *ahead {
                    work.prefetched.push(Prefetched { trips: trips * own, ahead, body: inner });
                }
                counts.plus_times(inner, own);
                body.end
            }
            Step::If { ahead, condition, body } => {
                // A guard of loads that run ahead is false at the end of each run of the loop.
                let share = match (ahead, condition.map(|c| mean(&|v| v[c as usize])).filter(|x| !x.is_nan())) {
                    (Some(ahead), _) => (of_loop - ahead).max(0.0) / of_loop.max(1.0),
                    (None, Some(holds)) => holds,
                    (None, None) => 1.0,
                };
                let inner = run(items, inside..body.end, body.fixed, (trips * share, of_loop), values, work);
                counts.plus_times(inner, share);
                body.end
            }
        };
    }
    counts
}
