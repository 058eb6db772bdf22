//! The work of one program of a lowered kernel, by the unit of the multiprocessor that does it.
//!
//! These are counts, not times. They follow from the GPU IR as formulas in the sizes of dims, so a new size lowers nothing.
//! Loops count by their trips, for a few programs that represent the grid. Loads and stores count by their forms. Padding of
//! layouts, and threads that repeat the work of others, count like any other work; only global bytes are limited to those
//! inside the tensors. A cost model turns the counts into times.

use super::expected::{Expected, UNKNOWN_ELEMENTS, UNKNOWN_TRIPS};
use super::formula::{Formula, Formulas};
use super::guards::{EnclosingLoop, Guard, goes_on};
use super::peak_registers_within;
use super::pipelined_loops::runs_ahead;
use super::sectors::{line_share, sector_share};
use crate::arch::limits::{registers_of_tiles, registers_per_thread};
use crate::gpu::atom::{MmaInfo, WARPGROUP};
use crate::gpu::{
    AccessKind, Accuracy, Block, Cache, CopyAtom, Inst, Kernel, Mover, Op, Operand, Slice, Value, ValueDef, accessed,
};
use crate::gpu_ops;
use crate::layout::{Fragment, Mode};
use crate::math::InstructionCount;
use atlas_dsl::Param;
use atlas_dsl::ir::{GridExtent, ParamKind, Stride};
use atlas_dsl::op::BinaryOp;
use std::ops::AddAssign;

/// Registers of a thread other than its tiles: addresses, indices and operands in flight. Fewer if tiles are small.
const OTHER_REGISTERS: u32 = 24;
const FEWEST_OTHER_REGISTERS: u32 = 12;
/// The most registers of a thread.
const MOST_REGISTERS: u32 = 255;
/// Instructions by which a thread splits an element of an operand in two: both roundings, the difference, and the check that it is
/// finite.
const SPLITTING: f64 = 5.0;
/// Elements that a thread copies through registers at once.
const TOGETHER: f64 = 6.0;

/// Amounts of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Fused multiply-adds of synchronous products on tensor cores, in units of 16-bit operands.
    pub tensor: f64,
    /// The same of asynchronous products.
    pub tensor_async: f64,
    /// Fused multiply-adds of products without tensor cores.
    pub fma: f64,
    /// Instructions of single threads: element-wise, reductions, copies.
    pub element_wise: f64,
    /// The part of them on the special function unit: exponentials, logarithms, reciprocals, roots.
    pub special: f64,
    /// Bytes through shared memory by threads. Operands of products count once for each warp that reads them, and copies with
    /// the zeros that they write past the end of a tensor.
    pub shared: f64,
    /// Bytes through shared memory by the copy engine, which writes whole boxes, and by asynchronous products, which read their
    /// operands once for each instruction.
    pub shared_async: f64,
    /// Bytes from and to global memory.
    pub global: f64,
    /// Bytes of sectors, and of cache lines, that stores write only partly.
    pub sectors: f64,
    pub lines: f64,
    /// Barriers of all threads.
    pub barriers: f64,
    /// Waits for global memory without other work.
    pub latency_waits: f64,
}

impl Counts {
    pub(super) fn plus_times(&mut self, other: Counts, n: f64) {
        self.tensor += n * other.tensor;
        self.tensor_async += n * other.tensor_async;
        self.fma += n * other.fma;
        self.element_wise += n * other.element_wise;
        self.special += n * other.special;
        self.shared += n * other.shared;
        self.shared_async += n * other.shared_async;
        self.global += n * other.global;
        self.sectors += n * other.sectors;
        self.lines += n * other.lines;
        self.barriers += n * other.barriers;
        self.latency_waits += n * other.latency_waits;
    }
}

impl Counts {
    /// Adds the work of each of some elements.
    fn each(&mut self, elements: f64, count: InstructionCount) {
        self.element_wise += elements * f64::from(count.instructions);
        self.special += elements * f64::from(count.special);
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.plus_times(other, 1.0);
    }
}

/// A loop whose loads run ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prefetched {
    /// Runs of the loop in one program.
    pub runs: f64,
    /// Trips of all runs.
    pub trips: f64,
    /// The number of trips in which a load has to arrive.
    pub ahead: f64,
    /// True if the loads of the last `ahead` trips are those of the CTA's next program, where a run has that many trips.
    pub goes_on: bool,
    /// One trip.
    pub body: Counts,
    /// The bytes of global memory and the barriers of one trip, without those of inner loops whose loads also run ahead.
    pub own: (f64, f64),
}

/// The reads of one launch from one tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TensorReads {
    /// Bytes that one program reads.
    pub bytes: f64,
    /// The part of them that bypasses the L1 cache.
    pub past_l1: f64,
    /// Bytes of the tensor.
    pub tensor: f64,
}

/// The work of a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Programs of a launch; saturates.
    pub programs: u64,
    /// Threads of a CTA.
    pub threads: u32,
    /// Shared memory of a CTA, in bytes.
    pub shared_bytes: u32,
    /// Approximate registers of a thread. Above 255 they spill.
    pub registers: u32,
    /// CTAs that share a program; each counts as one.
    pub splits: u32,
    /// CTAs of a cluster, which run together; 0 and 1 without clusters.
    pub cluster: u32,
    /// True if CTAs run any number of programs.
    pub persistent: bool,
    /// A program, on average.
    pub total: Counts,
    /// The number of programs that represent all: one, if all do the same.
    pub samples: Vec<Sample>,
    /// By tensor, on average.
    pub reads: Vec<TensorReads>,
    /// Bytes that one program writes, on average.
    pub written: f64,
}

/// The work of one program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The total.
    pub total: Counts,
    /// Its loops whose loads run ahead. `total` includes them.
    pub prefetched: Vec<Prefetched>,
}

/// The work of a kernel as formulas in the sizes of its dims. It is counted once on GPU IR, and a
/// [`WorkTable`](super::WorkTable) evaluates it for each size.
///
/// It does not hold the kernel, so a new size lowers nothing.
#[derive(Clone, Debug)]
pub struct WorkFormula {
    pub(super) formulas: Formulas,
    pub(super) grid: Vec<GridExtent>,
    /// CTAs that share a program, which count as programs of their own.
    pub(super) splits: u32,
    /// CTAs of a cluster.
    pub(super) cluster: u32,
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
    pub(super) registers: u32,
    pub(super) persistent: bool,
    /// One for each role.
    pub(super) roles: Vec<Part>,
    /// The bytes of each tensor that is read.
    pub(super) tensors: Vec<Formula>,
}

/// The work of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// The part that does not depend on sizes.
    pub(super) fixed: Counts,
    pub(super) rest: Vec<Item>,
}

/// Work that depends on sizes.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// Bytes of a tensor, and the work for each of them.
    Bytes { amount: Formula, each: OfByte, moved: Moved },
    /// A loop from one number to another, or with an assumed number of trips if data decide it, and the number of trips by
    /// which its loads run ahead.
    Loop { bounds: Option<(Formula, Formula)>, else_trips: f64, ahead: Option<f64>, goes_on: bool, body: Part },
    /// Work in all but the last few trips of the loop around it, and where a condition holds.
    If { but_last: Option<f64>, condition: Option<Formula>, body: Part },
}

/// The work for one byte of a tensor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfByte {
    pub(super) global: f64,
    pub(super) shared: f64,
    pub(super) past_l1: f64,
    pub(super) sectors: f64,
    pub(super) lines: f64,
    pub(super) latency_waits: f64,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moved {
    /// From this tensor.
    Read(usize),
    Written,
    /// They have been read before.
    Reread,
}

impl WorkFormula {
    /// Counts a kernel's work.
    pub fn of(k: &Kernel) -> WorkFormula {
        let mut walk = WorkWalk::new(k, Expected::new(k));
        let roles = k.roles.values().map(|role| {
            let mut part = walk.block(role.body, None);
            part.fixed.latency_waits += walk.latency_wait();
            part
        });
        let roles = roles.collect();
        let read = std::mem::take(&mut walk.read);
        let tensors = read.into_iter().map(|p| walk.tensor_bytes(p)).collect();
        let tiles = peak_registers_within(k, registers_of_tiles(k.threads, k.occupancy));
        let others = (tiles / 2 + FEWEST_OTHER_REGISTERS).min(OTHER_REGISTERS);
        // The assembler loads operands of products several steps ahead, as far as there are registers.
        let loads_operands =
            |op: &Op| matches!(op, Op::Mma { atom, .. } if atom.is_tensor_core() && !atom.row().asynchronous);
        let products = k.insts.values().any(loads_operands);
        let ahead = if products { (tiles / 2).min(MOST_REGISTERS.saturating_sub(tiles + others)) } else { 0 };
        let wanted = tiles + others + ahead;
        WorkFormula {
            grid: k.index_map.grid(),
            splits: k.index_map.splits,
            cluster: k.cluster.0 * k.cluster.1,
            threads: k.threads,
            shared_bytes: k.shared_bytes(),
            registers: if k.occupancy > 1 { wanted.min(registers_per_thread(k.threads, k.occupancy)) } else { wanted },
            persistent: k.index_map.persistent,
            roles,
            tensors,
            formulas: walk.formulas,
        }
    }
}

pub(super) struct WorkWalk<'a> {
    pub(super) k: &'a Kernel,
    pub(super) formulas: Formulas,
    pub(super) expected: Expected<'a>,
    /// The tensors that are read.
    read: Vec<Param>,
    /// True if a load is in flight that nothing has waited for yet.
    pending: bool,
}

impl WorkWalk<'_> {
    pub(super) fn new<'a>(k: &'a Kernel, expected: Expected<'a>) -> WorkWalk<'a> {
        WorkWalk { k, formulas: Formulas::default(), expected, read: Vec::new(), pending: false }
    }

    /// 1 if a load is in flight, which is now waited for, otherwise 0.
    fn latency_wait(&mut self) -> f64 {
        f64::from(u8::from(std::mem::take(&mut self.pending)))
    }

    /// The work of one run of a block in a loop.
    fn block(&mut self, block: Block, around: Option<EnclosingLoop>) -> Part {
        let ahead = around.and_then(|l| l.ahead);
        let k = self.k;
        let mut part = Part::default();
        for &inst in &k.blocks[block].insts {
            let op = &k.insts[inst];
            match op {
                Op::Loop { lo, hi, body, .. } => self.repeat(*lo, *hi, *body, &mut part),
                Op::If(condition, body, _) => {
                    let Guard { but_last, other, .. } = Guard::of(k, *condition, around);
                    let condition = other.and_then(|v| self.expected.condition(&mut self.formulas, v));
                    let body = self.block(*body, around);
                    part.rest.push(Item::If { but_last, condition, body });
                }
                Op::Barrier | Op::WarpgroupBarrier => {
                    part.fixed.barriers += 1.0;
                    part.fixed.latency_waits += self.latency_wait();
                }
                Op::Once(body) => {
                    let body = self.block(*body, around);
                    part.fixed += body.fixed;
                    part.rest.extend(body.rest);
                }
                Op::Wait(ring, _) if k.rings[*ring].filled_by == Mover::Engine => {
                    part.fixed.latency_waits += self.latency_wait();
                }
                Op::SumSplits(values) => {
                    part.fixed.latency_waits += self.latency_wait();
                    self.sum_splits(values, &mut part.fixed);
                }
                Op::SumCluster(..) => {
                    part.fixed.latency_waits += self.latency_wait();
                    part.fixed += self.inst(inst);
                }
                Op::CopyWait(_) | Op::StoreWait(_) => part.fixed.latency_waits += self.latency_wait(),
                gpu_ops!(global) => self.global(inst, ahead, &mut part),
                Op::Programs(_) | Op::Yield(_) | Op::Fence(_) => part.fixed += self.inst(inst),
                gpu_ops!(sources elementwise views fragments shared products rings) => part.fixed += self.inst(inst),
            }
        }
        part
    }

    fn repeat(&mut self, lo: Value, hi: Value, body: Block, part: &mut Part) {
        let bounds = self.expected.bounds(&mut self.formulas, lo, hi);
        part.fixed.latency_waits += self.latency_wait();
        let ahead = runs_ahead(self.k, body);
        let extent = self.expected.divisor(hi).or_else(|| self.expected.divisor(lo));
        let else_trips = extent.map_or(UNKNOWN_TRIPS, |extent| (UNKNOWN_ELEMENTS / extent).max(1.0));
        let around = EnclosingLoop { ahead, index: self.k.blocks[body].params[0], hi };
        let goes_on = goes_on(self.k, body, around);
        let mut body = self.block(body, Some(around));
        body.fixed.latency_waits += self.latency_wait();
        part.rest.push(Item::Loop { bounds, else_trips, ahead, goes_on, body });
    }

    /// Accesses of global memory.
    fn global(&mut self, inst: Inst, ahead: Option<f64>, part: &mut Part) {
        let k = self.k;
        let from_memory = |param: Param, slices: &[Slice]| {
            let global = sector_share(k, param, slices);
            OfByte { global, ..OfByte::default() }
        };
        match &self.k.insts[inst] {
            Op::LoadGlobal { param, slices, cache } => {
                part.fixed.element_wise += 4.0 * self.accesses(inst);
                self.pending = true;
                let amount = self.global_bytes(*param, slices);
                part.rest.push(match cache {
                    // This program has loaded it before: the L1 cache has it, at the rate of shared memory.
                    Cache::EvictFirst => {
                        let each = OfByte { shared: 1.0, ..OfByte::default() };
                        Item::Bytes { amount, each, moved: Moved::Reread }
                    }
                    _ => Item::Bytes { amount, each: from_memory(*param, slices), moved: self.read(*param) },
                });
            }
            Op::StoreGlobal { param, slices, update, .. } => {
                part.fixed.element_wise += 4.0 * self.accesses(inst);
                let amount = self.global_bytes(*param, slices);
                if update.is_atomic() {
                    // The L2 cache reads what is there, too.
                    let (each, moved) = (from_memory(*param, slices), self.read(*param));
                    part.rest.push(Item::Bytes { amount, each, moved });
                }
                let [sectors, lines] = [sector_share, line_share].map(|share| share(k, *param, slices) - 1.0);
                let each = OfByte { global: 1.0, sectors, lines, ..OfByte::default() };
                part.rest.push(Item::Bytes { amount, each, moved: Moved::Written });
            }
            Op::Copy { atom, param, slices, .. } if atom.is_store() => {
                let amount = self.global_bytes(*param, slices);
                let [sectors, lines] = [sector_share, line_share].map(|share| share(k, *param, slices) - 1.0);
                let each = OfByte { global: 1.0, shared: 1.0, sectors, lines, ..OfByte::default() };
                part.rest.push(Item::Bytes { amount, each, moved: Moved::Written });
            }
            Op::Copy { atom, param, slices, to } => {
                let element = f64::from(self.k.buffers[to.buffer].dtype.bytes());
                let element_wise = match atom {
                    CopyAtom::CpAsync(bytes) => 4.0 / f64::from(*bytes),
                    CopyAtom::Direct => 6.0 / element,
                    CopyAtom::Open | CopyAtom::Tma(..) | CopyAtom::TmaMulticast(_) | CopyAtom::TmaStore(_) => 0.0,
                };
                // What goes through registers is waited for there, a few elements at once.
                let latency_waits = match atom {
                    CopyAtom::Direct => 1.0 / (element * f64::from(k.threads) * TOGETHER),
                    _ => 0.0,
                };
                // The widest copies alone leave nothing in the L1 cache.
                let past_l1 = f64::from(u8::from(*atom == CopyAtom::CpAsync(16)));
                // The zeros past the end of a tensor are written like any other element.
                let written = element * elements_of(slices);
                if matches!(atom, CopyAtom::Tma(..) | CopyAtom::TmaMulticast(_)) {
                    part.fixed.shared_async += written;
                } else {
                    part.fixed.shared += written;
                    part.fixed.element_wise += element_wise * written;
                }
                let each = OfByte { latency_waits, past_l1, ..from_memory(*param, slices) };
                let amount = self.global_bytes(*param, slices);
                part.rest.push(Item::Bytes { amount, each, moved: self.read(*param) });
                self.pending |= ahead.is_none();
            }
            gpu_ops!(sources elementwise views fragments shared clusters products rings orders control) => {}
        }
    }

    fn read(&mut self, param: Param) -> Moved {
        Moved::Read(self.read.iter().position(|&p| p == param).unwrap_or_else(|| {
            self.read.push(param);
            self.read.len() - 1
        }))
    }

    /// An operation on values of the program.
    fn inst(&self, inst: Inst) -> Counts {
        let (op, result) = (&self.k.insts[inst], self.k.results[inst].first().copied());
        let mut c = Counts::default();
        let threads = f64::from(self.k.threads);
        let tile = result.and_then(|v| self.k.values[v].ty.tile());
        let elements = tile.map_or(0.0, |(_, layout)| threads * f64::from(layout.reg_count()));
        match op {
            Op::Unary(op, by, _) => c.each(elements, InstructionCount::of(*op, *by == Accuracy::Approximate)),
            // The reciprocal of a repeated divisor is made once.
            Op::Binary(BinaryOp::Div, Accuracy::Approximate, _, by) if self.repeats(*by) => c.element_wise += elements,
            Op::Binary(BinaryOp::Div, Accuracy::Approximate, ..) => {
                c.each(elements, InstructionCount { instructions: 2, special: 1 });
            }
            Op::Binary(BinaryOp::Div, ..) => c.each(elements, InstructionCount::ROUNDED),
            Op::Binary(op, ..) if op.is_function() => c.each(elements, InstructionCount::of_two(*op)),
            Op::Binary(..) | Op::Compare(..) | Op::Select(..) | Op::Fma(..) | Op::Cast(_) => c.element_wise += elements,
            Op::MaskInvalid { .. } => c.element_wise += elements,
            Op::TableGet(..) => c.element_wise += 4.0 * elements,
            Op::Reduce { value, axes, .. } => {
                let source = self.k.tile(*value).1;
                // A shuffle takes as long as four additions.
                let shuffles = f64::from(lanes_along(source, axes).max(1).ilog2());
                c.element_wise += threads * f64::from(source.reg_count()) + elements * shuffles * 5.0;
            }
            Op::Scan { value, axis, .. } => {
                let source = self.k.tile(*value).1;
                let lanes = f64::from(lanes_along(source, &[*axis]).max(1).ilog2());
                // Registers whose elements lie within those of a lane; beyond them, lanes share one part of a row after the other.
                let least = self::lanes(source).filter(|m| m.axis == Some(*axis)).map(|m| m.stride).min();
                let within = |m: &&Mode| m.axis == Some(*axis) && least.is_none_or(|least| m.stride < least);
                let in_thread: u32 = source.regs.iter().filter(within).map(|m| m.extent).product();
                // A shuffle, what it brings added to two values, and two choices, for each part of a row.
                let rows = elements / f64::from(in_thread.max(1));
                c.element_wise += 2.0 * elements + rows * lanes * 8.0;
            }
            Op::LoadShared(_) | Op::StoreShared { .. } => {
                let accesses = self.accesses(inst);
                c.shared = accesses * f64::from(self.at_once(inst).max(4));
                c.element_wise += accesses;
            }
            Op::LoadMatrix { side, .. } => {
                if let Some((dtype, layout)) = tile {
                    let depth = f64::from(layout.shape[usize::from(1 - side.outer())]);
                    let held = held_by_warp(layout, side.outer());
                    c.shared = threads / 32.0 * held * depth * f64::from(dtype.bytes());
                }
            }
            Op::SumCluster(value, _) => self.sum_cluster(*value, &mut c),
            Op::ZeroShared(buffer) => c.shared = f64::from(self.k.buffers[*buffer].bytes()),
            Op::Mma { a, b, atom, shape, .. } => {
                let Some((_, layout)) = tile else { return c };
                let info = atom.row();
                let depth = f64::from(shape.2.next_multiple_of(info.shape.2));
                let products = elements * depth * f64::from(info.time);
                let bytes = self.operand_bytes([a, b], layout, info, depth);
                if info.is_split {
                    c.element_wise += threads * SPLITTING * self.registers_of([a, b]);
                }
                match (atom.is_tensor_core(), info.asynchronous) {
                    (true, true) => (c.tensor_async, c.shared_async) = (products, bytes),
                    (true, false) => (c.tensor, c.shared) = (products, bytes),
                    (false, _) => (c.fma, c.shared) = (elements * depth, bytes),
                }
            }
            // No instruction, or part of another; copies and accesses of global memory are counted with their bytes.
            Op::Rematerialize(_) | Op::ConvertLayout(_) | Op::WaitMma(..) => {}
            Op::Const(_)
            | Op::Iota { .. }
            | Op::DimSize(_)
            | Op::DimTiles(..)
            | Op::CtaNumber
            | Op::CtaCount
            | Op::SplitNumber
            | Op::SplitCount => {}
            Op::Unsigned(..) | Op::Coordinate(..) | Op::ScalarParam(_) => {}
            gpu_ops!(views global rings orders control) => {}
        }
        c
    }

    /// Registers of a thread for operands that are not in shared memory.
    fn registers_of(&self, operands: [&Operand; 2]) -> f64 {
        let registers = |operand: &Operand| match operand {
            Operand::Fragment(v) => f64::from(self.k.tile(*v).1.reg_count()),
            Operand::Shared(_) => 0.0,
        };
        operands.into_iter().map(registers).sum()
    }

    /// Bytes of shared memory that a product reads: each warp reads its operands, and each warpgroup of an asynchronous product
    /// the columns once for each of its instructions.
    fn operand_bytes(&self, operands: [&Operand; 2], layout: &Fragment, info: &MmaInfo, depth: f64) -> f64 {
        let warps = f64::from(self.k.threads) / 32.0;
        let bytes = operands.into_iter().enumerate().map(|(axis, operand)| {
            let Operand::Shared(_) = operand else { return 0.0 };
            let held = held_by_warp(layout, axis as u8);
            let readers = match (info.asynchronous, axis) {
                (true, 1) => {
                    let rows = f64::from(WARPGROUP) * held_by_warp(layout, 0);
                    warps / f64::from(WARPGROUP) * (rows / f64::from(info.shape.0)).max(1.0)
                }
                _ => warps,
            };
            readers * held * depth * f64::from(info.operand.bytes())
        });
        bytes.sum()
    }

    fn repeats(&self, v: Value) -> bool {
        matches!(self.k.values[v].def, ValueDef::Result(inst, _) if matches!(self.k.insts[inst], Op::Broadcast(_)))
    }

    /// Instructions of all threads that a load or a store takes.
    fn accesses(&self, inst: Inst) -> f64 {
        let tile = accessed(self.k, inst).and_then(|v| self.k.values[v].ty.tile());
        let bytes = tile.map_or(0, |(dtype, layout)| layout.reg_count() * dtype.bytes());
        f64::from(self.k.threads) * f64::from(bytes) / f64::from(self.at_once(inst))
    }

    /// Bytes that a thread moves by one instruction of a load or a store. Through shared memory, an instruction takes the time
    /// of four bytes in any case.
    fn at_once(&self, inst: Inst) -> u32 {
        match self.k.access_kinds[inst] {
            Some(AccessKind::Vector { bytes, .. }) => bytes,
            Some(AccessKind::Matrix) => 16,
            None => 1,
        }
    }

    /// Bytes of a rectangle that are inside the tensor, on average over the grid.
    pub(super) fn global_bytes(&mut self, param: Param, slices: &[Slice]) -> Formula {
        let f = &mut self.formulas;
        let ParamKind::Tensor { dtype, dims, .. } = &self.k.params[param].kind else { return f.constant(0.0) };
        let mut factors = vec![f.constant(f64::from(dtype.bytes()))];
        for (slice, &dim) in slices.iter().zip(dims) {
            match *slice {
                Slice::At { .. } => {}
                Slice::Tile { size, len, .. } => factors.push(f.inside(dim, size, len)),
                Slice::Span { len, .. } | Slice::Whole { len, .. } => factors.push(f.at_most(dim, len)),
                // Places may be named more than once.
                Slice::Gather { len, .. } => factors.push(f.constant(f64::from(len))),
            }
        }
        f.product(factors)
    }

    /// Bytes of a tensor; axes of stride 0 repeat.
    fn tensor_bytes(&mut self, param: Param) -> Formula {
        let f = &mut self.formulas;
        let ParamKind::Tensor { dtype, dims, strides, .. } = &self.k.params[param].kind else { return f.constant(0.0) };
        let repeats = |i: usize| strides.get(i).is_some_and(|s| *s == Stride::Const(0));
        let mut factors = vec![f.constant(f64::from(dtype.bytes()))];
        factors.extend(dims.iter().enumerate().filter(|&(i, _)| !repeats(i)).map(|(_, &d)| f.size(d)));
        f.product(factors)
    }
}

/// Elements of a rectangle, with those past the end of the tensor.
fn elements_of(slices: &[Slice]) -> f64 {
    slices.iter().map(|slice| f64::from(slice.len().unwrap_or(1))).product()
}

/// The digits of the thread index that are a warp's lanes.
fn lanes(layout: &Fragment) -> impl Iterator<Item = &Mode> {
    let mut below = 1;
    layout.threads.iter().take_while(move |m| {
        let inside = below < 32;
        below *= m.extent;
        inside
    })
}

/// Lanes of a warp over which a reduction of these axes goes.
fn lanes_along(layout: &Fragment, axes: &[u8]) -> u32 {
    lanes(layout).filter(|m| m.axis.is_some_and(|a| axes.contains(&a))).map(|m| m.extent).product()
}

/// Positions along an axis that one warp holds.
fn held_by_warp(layout: &Fragment, axis: u8) -> f64 {
    let along = |m: &&Mode| m.axis == Some(axis);
    let count: u32 = lanes(layout).chain(&layout.regs).filter(along).map(|m| m.extent).product();
    f64::from(count)
}
