//! How much work one program of a lowered kernel does, by the unit of the multiprocessor that does it.
//!
//! Facts, not times: what follows from the GPU IR for given dim sizes. Loops count by their trips, with grid coordinates
//! in the middle of the grid. Padding of layouts and threads that repeat the work of others are work like any other;
//! global bytes alone are those inside the tensors. What machines do with it is for a cost model to say.

use crate::analysis::{peak_registers, registers_per_thread};
use crate::gpu::{Block, Cache, CopyAtom, Kernel, Op, Operand, Slice, Value, ValueDef};
use crate::layout::{Fragment, Mode};
use atlas_dsl::ir::{GridExtent, ParamKind, Stride};
use atlas_dsl::op::{BinaryOp, Predicate, UnaryOp};
use atlas_dsl::{DType, Dim, Param};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Registers of a thread beside its tiles: addresses, indices and operands in flight. Fewer where tiles are small.
const OTHER_REGISTERS: u32 = 24;
const FEWEST_OTHER_REGISTERS: u32 = 12;

/// Amounts of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Fused multiply-adds on tensor cores, 16-bit operands.
    pub tensor_half: f64,
    /// The same of tf32.
    pub tensor_tf32: f64,
    /// Fused multiply-adds of products that no tensor core does.
    pub fma: f64,
    /// Instructions of single threads: element-wise, folds, copies.
    pub element_wise: f64,
    /// Bytes through shared memory; operands of products count once for each warp that reads them.
    pub shared: f64,
    /// Bytes from and to global memory.
    pub global: f64,
    /// Waits for all threads.
    pub barriers: f64,
    /// Waits for global memory with nothing else to do.
    pub rounds: f64,
    /// Steps of products along K: each waits for its operands, then for the step before.
    pub steps: f64,
}

impl Counts {
    fn plus_times(&mut self, other: Counts, n: f64) {
        self.tensor_half += n * other.tensor_half;
        self.tensor_tf32 += n * other.tensor_tf32;
        self.fma += n * other.fma;
        self.element_wise += n * other.element_wise;
        self.shared += n * other.shared;
        self.global += n * other.global;
        self.barriers += n * other.barriers;
        self.rounds += n * other.rounds;
        self.steps += n * other.steps;
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.plus_times(other, 1.0);
    }
}

/// A loop whose loads run ahead of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prefetched {
    /// Trips in one program.
    pub trips: f64,
    /// Trips that a load has to arrive in.
    pub ahead: f64,
    /// One trip.
    pub body: Counts,
}

/// What one launch reads of one tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Read {
    /// Bytes that one program reads.
    pub bytes: f64,
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
    /// Registers of a thread, about; past 255 they spill.
    pub registers: u32,
    /// One program, all in all.
    pub total: Counts,
    /// Its loops with loads that run ahead; `total` holds them too.
    pub prefetched: Vec<Prefetched>,
    /// By tensor.
    pub reads: Vec<Read>,
    /// Bytes that one program writes.
    pub written: f64,
}

impl Work {
    /// Counts a kernel's work for these sizes of its dims, in the signature's order.
    pub fn of(k: &Kernel, dims: &[u64]) -> Work {
        let mut walk = Walk { k, dims, work: Work::default(), reads: BTreeMap::new(), pending: false };
        walk.work.programs = k.index_map.axes().iter().map(|&a| walk.count(a)).fold(1, u64::saturating_mul);
        for role in k.roles.values() {
            let mut counts = walk.block(role.body, Place { trips: 1.0, ahead: None });
            counts.rounds += f64::from(u8::from(std::mem::take(&mut walk.pending)));
            walk.work.total += counts;
        }
        let reads = std::mem::take(&mut walk.reads);
        let tiles = peak_registers(k);
        let wanted = tiles + (tiles / 2 + FEWEST_OTHER_REGISTERS).min(OTHER_REGISTERS);
        let tensor = |p: Param| walk.tensor_bytes(p);
        let reads = reads.into_iter().map(|(p, bytes)| Read { bytes, tensor: tensor(p) }).collect();
        Work {
            threads: k.threads,
            shared_bytes: k.shared_bytes(),
            registers: if k.occupancy > 1 { wanted.min(registers_per_thread(k.threads, k.occupancy)) } else { wanted },
            reads,
            ..walk.work
        }
    }
}

/// Where a block stands: how often it runs, and whether loads run ahead of it.
#[derive(Clone, Copy)]
struct Place {
    trips: f64,
    /// The trips that loads of the surrounding loop run ahead; `None` outside of such loops.
    ahead: Option<f64>,
}

struct Walk<'a> {
    k: &'a Kernel,
    dims: &'a [u64],
    work: Work,
    reads: BTreeMap<Param, f64>,
    /// A load is on its way that nothing has waited for yet.
    pending: bool,
}

impl Walk<'_> {
    /// The work of one run of a block; what programs read, write and run ahead is noted for all its trips.
    fn block(&mut self, block: Block, at: Place) -> Counts {
        let k = self.k;
        let mut counts = Counts::default();
        for &inst in &k.blocks[block].insts {
            let op = &k.insts[inst];
            match op {
                Op::Loop { lo, hi, body, .. } => counts += self.repeat(*lo, *hi, *body, at),
                Op::Programs(body) => counts += self.block(*body, at),
                Op::If(condition, body) => {
                    // A guard of loads that run ahead is false at the end of the loop.
                    let share = match (at.ahead, self.scalar(*condition)) {
                        (Some(ahead), _) => (at.trips - ahead).max(0.0) / at.trips.max(1.0),
                        (None, Some(holds)) => holds,
                        (None, None) => 1.0,
                    };
                    let inner = self.block(*body, Place { trips: at.trips * share, ..at });
                    counts.plus_times(inner, share);
                }
                Op::Barrier => {
                    counts.barriers += 1.0;
                    counts.rounds += f64::from(u8::from(std::mem::take(&mut self.pending)));
                }
                Op::CopyWait(_) => counts.rounds += f64::from(u8::from(std::mem::take(&mut self.pending))),
                _ => counts += self.inst(op, k.results[inst].first().copied(), at),
            }
        }
        counts
    }

    fn repeat(&mut self, lo: Value, hi: Value, body: Block, at: Place) -> Counts {
        let trips = match (self.scalar(lo), self.scalar(hi)) {
            (Some(lo), Some(hi)) => (hi - lo).max(0.0).ceil(),
            _ => 8.0,
        };
        let mut counts = Counts::default();
        counts.rounds += f64::from(u8::from(std::mem::take(&mut self.pending)));
        let stages = self.k.blocks[body].insts.iter().filter_map(|&i| match self.k.insts[i] {
            Op::Wait(ring, _) => Some(self.k.rings[ring].stages),
            _ => None,
        });
        let ahead = stages.max().filter(|&s| s > 1).map(|s| f64::from(s - 1));
        let mut trip = self.block(body, Place { trips: at.trips * trips, ahead });
        trip.rounds += f64::from(u8::from(std::mem::take(&mut self.pending)));
        if let Some(ahead) = ahead {
            self.work.prefetched.push(Prefetched { trips: at.trips * trips, ahead, body: trip });
        }
        counts.plus_times(trip, trips);
        counts
    }

    fn inst(&mut self, op: &Op, result: Option<Value>, at: Place) -> Counts {
        let mut c = Counts::default();
        let threads = f64::from(self.k.threads);
        let tile = result.and_then(|v| self.k.values[v].ty.tile());
        let elements = tile.map_or(0.0, |(_, layout)| threads * f64::from(layout.reg_count()));
        match op {
            Op::Unary(op, _) => c.element_wise += elements * self.unary(*op),
            // The reciprocal of a repeated divisor is made once.
            Op::Binary(BinaryOp::Div, _, by) if self.repeats(*by) && self.k.approximate_math => {
                c.element_wise += elements
            }
            Op::Binary(BinaryOp::Div, ..) => c.element_wise += elements * 8.0,
            Op::Binary(..) | Op::Compare(..) | Op::Select(..) | Op::Cast(_) => c.element_wise += elements,
            Op::Refill { .. } => c.element_wise += 2.0 * elements,
            Op::TableGet(..) => c.element_wise += 4.0 * elements,
            Op::Reduce { value, axes, .. } => {
                let source = self.k.tile(*value).1;
                // A shuffle takes as long as four additions.
                let shuffles = f64::from(lanes_along(source, axes).max(1).ilog2());
                c.element_wise += threads * f64::from(source.reg_count()) + elements * shuffles * 5.0;
            }
            Op::LoadGlobal { param, slices, cache } => {
                match cache {
                    // This program has loaded it before: the L1 cache has it, at the rate of shared memory.
                    Cache::Drop => c.shared += self.global_bytes(*param, slices),
                    _ => c.global = self.read(*param, slices, at),
                }
                c.element_wise += self.accesses(result, false, 4.0);
                self.pending = true;
            }
            Op::StoreGlobal { param, slices, value } => {
                c.global = self.global_bytes(*param, slices);
                self.work.written += at.trips * c.global;
                c.element_wise += self.accesses(Some(*value), false, 4.0);
            }
            Op::Copy { atom, param, slices, to } => {
                c.global = self.read(*param, slices, at);
                c.shared += c.global;
                let element = f64::from(self.k.buffers[to.buffer].dtype.bytes());
                c.element_wise += match atom {
                    CopyAtom::CpAsync(bytes) => 4.0 * c.global / f64::from(*bytes),
                    CopyAtom::Direct => 6.0 * c.global / element,
                    CopyAtom::Tma | CopyAtom::TmaMulticast | CopyAtom::TmaStore => 0.0,
                };
                self.pending |= at.ahead.is_none();
            }
            Op::LoadShared(from) => {
                c.shared = self.fragment_bytes(result, from.transposed);
                c.element_wise += self.accesses(result, from.transposed, 1.0);
            }
            Op::StoreShared { to, value } => {
                c.shared = self.fragment_bytes(Some(*value), to.transposed);
                c.element_wise += self.accesses(Some(*value), to.transposed, 1.0);
            }
            Op::ZeroShared(buffer) => c.shared = f64::from(self.k.buffers[*buffer].bytes()),
            Op::Mma { a, b, atom, shape, .. } => {
                let Some((_, layout)) = tile else { return c };
                let info = atom.info();
                let depth = f64::from(shape.2.next_multiple_of(info.shape.2));
                match (atom.is_tensor_core(), info.operand) {
                    (true, DType::F32) => c.tensor_tf32 = elements * depth,
                    (true, _) => c.tensor_half = elements * depth,
                    (false, _) => c.fma = elements * depth,
                }
                let warps = threads / 32.0;
                for (operand, axis) in [(a, 0), (b, 1)] {
                    if let Operand::Shared(_) = operand {
                        c.shared += warps * held_by_warp(layout, axis) * depth * f64::from(info.operand.bytes());
                    }
                }
                c.steps = (depth / f64::from(info.shape.2.max(4))).ceil();
            }
            _ => {}
        }
        c
    }

    fn repeats(&self, v: Value) -> bool {
        matches!(self.k.values[v].def, ValueDef::Result(inst, _) if matches!(self.k.insts[inst], Op::Broadcast(_)))
    }

    fn unary(&self, op: UnaryOp) -> f64 {
        let n = match op {
            op if op.row().exact => return 1.0,
            UnaryOp::Exp2 | UnaryOp::Rsqrt | UnaryOp::Sqrt => 8.0,
            // It has no approximate form.
            UnaryOp::Log => return 20.0,
            UnaryOp::Exp | UnaryOp::Sigmoid => 10.0,
            _ => 20.0,
        };
        if self.k.approximate_math { n } else { 2.0 * n }
    }

    /// Instructions to move a tile between registers and memory, `each` for one vector.
    fn accesses(&self, v: Option<Value>, transposed: bool, each: f64) -> f64 {
        let Some((dtype, layout)) = v.and_then(|v| self.k.values[v].ty.tile()) else { return 0.0 };
        let run = run(layout, transposed).min(16 / dtype.bytes().max(1));
        each * f64::from(self.k.threads) * f64::from(layout.reg_count()) / f64::from(run)
    }

    /// Bytes of shared memory's rate that a fragment takes: a lane takes four in any case.
    fn fragment_bytes(&self, v: Option<Value>, transposed: bool) -> f64 {
        let Some((dtype, layout)) = v.and_then(|v| self.k.values[v].ty.tile()) else { return 0.0 };
        let least = 4 / run(layout, transposed).min(4);
        f64::from(self.k.threads) * f64::from(layout.reg_count()) * f64::from(dtype.bytes().max(least))
    }

    fn read(&mut self, param: Param, slices: &[Slice], at: Place) -> f64 {
        let bytes = self.global_bytes(param, slices);
        *self.reads.entry(param).or_default() += at.trips * bytes;
        bytes
    }

    /// Bytes of a rectangle that lie inside the tensor, on average over the grid.
    fn global_bytes(&self, param: Param, slices: &[Slice]) -> f64 {
        let ParamKind::Tensor { dtype, dims, .. } = &self.k.params[param].kind else { return 0.0 };
        let inside = slices.iter().zip(dims).map(|(s, &dim)| match *s {
            Slice::At { .. } => 1.0,
            Slice::Tile { size, len, .. } => {
                let tiles = self.count(GridExtent::Tiles { dim, size }).max(1) as f64;
                self.size(dim) as f64 / tiles * f64::from(len) / f64::from(size.max(1))
            }
            Slice::Span { len, .. } | Slice::Whole { len, .. } => f64::from(len).min(self.size(dim) as f64),
        });
        f64::from(dtype.bytes()) * inside.product::<f64>()
    }

    /// Bytes of a tensor; axes of stride 0 repeat.
    fn tensor_bytes(&self, param: Param) -> f64 {
        let ParamKind::Tensor { dtype, dims, strides, .. } = &self.k.params[param].kind else { return 0.0 };
        let repeats = |i: usize| strides.get(i).is_some_and(|s| *s == Stride::Const(0));
        let sizes = dims.iter().enumerate().filter(|&(i, _)| !repeats(i)).map(|(_, &d)| self.size(d) as f64);
        f64::from(dtype.bytes()) * sizes.product::<f64>()
    }

    fn size(&self, dim: Dim) -> u64 {
        self.dims.get(dim.as_u32() as usize).copied().unwrap_or(0)
    }

    fn count(&self, extent: GridExtent) -> u64 {
        match extent {
            GridExtent::Points(dim) => self.size(dim),
            GridExtent::Tiles { dim, size } => self.size(dim).div_ceil(u64::from(size.max(1))),
        }
    }

    /// The value of a scalar, with grid coordinates in the middle; `None` if it depends on data or on a loop.
    fn scalar(&self, v: Value) -> Option<f64> {
        let inst = match self.k.values[v].def {
            ValueDef::Program(axis) => {
                return Some(self.count(*self.k.index_map.axes().get(axis as usize)?) as f64 / 2.0);
            }
            ValueDef::BlockParam(..) => return None,
            ValueDef::Result(inst, _) => inst,
        };
        let pair = |a: Value, b: Value| Some((self.scalar(a)?, self.scalar(b)?));
        match self.k.insts[inst] {
            Op::Const(x) => Some(x),
            Op::DimSize(dim) => Some(self.size(dim) as f64),
            Op::DimTiles(dim, size) => Some(self.count(GridExtent::Tiles { dim, size }) as f64),
            Op::Cast(x) | Op::Broadcast(x) | Op::Reshape(x) => self.scalar(x),
            Op::Compare(Predicate::Lt, a, b) => pair(a, b).map(|(a, b)| f64::from(u8::from(a < b))),
            Op::Binary(op, a, b) => pair(a, b).and_then(|(a, b)| match op {
                BinaryOp::Add => Some(a + b),
                BinaryOp::Sub => Some(a - b),
                BinaryOp::Mul => Some(a * b),
                BinaryOp::Div if b != 0.0 => Some((a / b).trunc()),
                BinaryOp::Min => Some(a.min(b)),
                BinaryOp::Max => Some(a.max(b)),
                _ => None,
            }),
            _ => None,
        }
    }
}

/// Digits of the thread index that are a warp's lanes.
fn lanes(layout: &Fragment) -> impl Iterator<Item = &Mode> {
    let mut below = 1;
    layout.threads.iter().take_while(move |m| {
        let inside = below < 32;
        below *= m.extent;
        inside
    })
}

/// Lanes of a warp over which a fold of these axes goes.
fn lanes_along(layout: &Fragment, axes: &[u8]) -> u32 {
    lanes(layout).filter(|m| m.axis.is_some_and(|a| axes.contains(&a))).map(|m| m.extent).product()
}

/// Positions along an axis that one warp holds.
fn held_by_warp(layout: &Fragment, axis: u8) -> f64 {
    let along = |m: &&Mode| m.axis == Some(axis);
    let count: u32 = lanes(layout).chain(&layout.regs).filter(along).map(|m| m.extent).product();
    f64::from(count)
}

/// Neighbours along the last axis (the first if transposed) that consecutive registers hold.
fn run(layout: &Fragment, transposed: bool) -> u32 {
    let Some(last) = layout.shape.len().checked_sub(1) else { return 1 };
    let axis = if transposed { 0 } else { last as u8 };
    layout.regs.first().filter(|m| m.axis == Some(axis) && m.stride == 1).map_or(1, |m| m.extent)
}
