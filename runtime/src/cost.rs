//! A cost model: clock cycles of one launch, estimated from Tile IR and the problem's sizes alone.
//!
//! One program is walked once, loops counted by their trips (coordinates taken at the middle of the grid), and its
//! work is summed by the unit that does it. A multiprocessor holds as many programs as shared memory, registers
//! and warps allow; the launch is a number of waves of them. One wave takes
//!
//! ```text
//! held · max(arithmetic / min(1, warps held / 8), shared traffic, global traffic)    loads run ahead
//! held · (arithmetic / .. + shared traffic + global traffic)                         one stage, one program held
//! ```
//!
//! cycles plus a fixed start and a cost per loop step. Ragged edges cost what whole tiles cost, so waste is in the
//! numbers. The rates are rounded figures of an SM of the 8.x and 9.0 generations: the model ranks configs of one
//! kernel, it does not predict times. Nothing here depends on anything but its arguments.

use atlas_dsl::ir::{GridExtent, Kernel, ValueDef};
use atlas_dsl::op::{BinaryOp, LoopKind, Op, Precision, UnaryOp};
use atlas_dsl::{Block, DType, Schedule, Value};
use std::collections::BTreeSet;

/// Operations per clock of one SM, and its limits.
const TENSOR_HALF: f64 = 2048.0;
const TENSOR_TF32: f64 = 1024.0;
const FMA: f64 = 256.0;
const ELEMENT_WISE: f64 = 128.0;
const SHARED_BYTES_PER_CLOCK: f64 = 128.0;
const GLOBAL_BYTES_PER_CLOCK: f64 = 12.0;
const REGISTER_BYTES: u64 = 256 * 1024;
const THREADS: u64 = 2048;
const PROGRAMS: u64 = 32;
/// Warps that keep an SM's arithmetic busy.
const BUSY_WARPS: f64 = 8.0;
/// Start and end of a wave, in cycles.
const WAVE_OVERHEAD: f64 = 2000.0;
/// A loop step's barriers and address arithmetic, in cycles.
const STEP_OVERHEAD: f64 = 60.0;
/// Registers of a thread beside its tiles.
const OTHER_REGISTERS: u64 = 40;

/// What one launch is estimated to take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Programs of the launch.
    pub programs: u64,
    /// Rounds in which the device runs them.
    pub waves: u64,
    /// Elements computed past the edges of the grid's dims, as a share of those inside.
    pub waste: f64,
    /// Shared memory of one program, in bytes.
    pub shared_bytes: u64,
    /// Registers of one thread; past 255 they spill.
    pub registers: u64,
    /// Programs that an SM holds at once.
    pub held: u64,
    /// Clock cycles of the launch: for ranking only.
    pub cycles: f64,
}

/// Programs of a launch: the product of the grid's counts; saturates.
pub fn programs(grid: &[GridExtent], dims: &[u64]) -> u64 {
    grid.iter().map(|&extent| grid_count(extent, dims)).fold(1, u64::saturating_mul)
}

/// Coordinates of one grid axis for these dim sizes, in the kernel's order of dims.
pub fn grid_count(extent: GridExtent, dims: &[u64]) -> u64 {
    let size = |dim: atlas_dsl::Dim| dims.get(dim.as_u32() as usize).copied().unwrap_or(0);
    match extent {
        GridExtent::Points(dim) => size(dim),
        GridExtent::Tiles { dim, size: tile } => size(dim).div_ceil(u64::from(tile.max(1))),
    }
}

/// The cost of a kernel for a problem on a device with `sms` multiprocessors of `shared_limit` bytes each.
pub fn estimate(kernel: &Kernel, schedule: &Schedule, dims: &[u64], sms: u32, shared_limit: u32) -> Cost {
    let mut work = Work::new(kernel, schedule, dims);
    work.block(kernel.body, 1.0, false);
    let grid: Vec<GridExtent> = kernel.grid.iter().map(|a| a.extent).collect();
    let programs = programs(&grid, dims);
    let waste = grid.iter().map(|&g| axis_cover(g, dims)).product::<f64>() - 1.0;

    let threads = u64::from(schedule.warps.max(1)) * 32;
    let registers = work.register_bytes / 4 / threads + OTHER_REGISTERS;
    let fits = |limit: u64, each: u64| limit.checked_div(each).unwrap_or(PROGRAMS);
    let most = PROGRAMS
        .min(fits(u64::from(shared_limit), work.shared_bytes))
        .min(fits(REGISTER_BYTES, threads * registers.min(255) * 4))
        .min(THREADS / threads)
        .max(1);
    let held = most.min(programs.div_ceil(u64::from(sms.max(1)))).max(1);
    let waves = programs.div_ceil(held * u64::from(sms.max(1)));

    let busy = ((held * u64::from(schedule.warps)) as f64 / BUSY_WARPS).min(1.0);
    let spill = if registers > 255 { 4.0 } else { 1.0 };
    let arithmetic = work.arithmetic / busy * spill;
    let shared = work.shared_traffic / SHARED_BYTES_PER_CLOCK;
    let global = work.global_bytes / GLOBAL_BYTES_PER_CLOCK;
    let overlapped = schedule.stages > 1 || held > 1;
    let program = if overlapped { arithmetic.max(shared).max(global) } else { arithmetic + shared + global };
    let wave = held as f64 * program + WAVE_OVERHEAD + work.steps * STEP_OVERHEAD;
    Cost { programs, waves, waste, shared_bytes: work.shared_bytes, registers, held, cycles: waves as f64 * wave }
}

/// Elements that an axis's tiles cover, over those that it has.
fn axis_cover(extent: GridExtent, dims: &[u64]) -> f64 {
    match extent {
        GridExtent::Points(_) => 1.0,
        GridExtent::Tiles { dim, size } => {
            let n = dims.get(dim.as_u32() as usize).copied().unwrap_or(0).max(1);
            (grid_count(extent, dims) * u64::from(size)) as f64 / n as f64
        }
    }
}

/// Values that `dot` reads from shared memory: its operands, seen through what moves no element.
fn staged_values(kernel: &Kernel) -> BTreeSet<Value> {
    let mut staged = BTreeSet::new();
    for op in kernel.insts.values() {
        if let Op::Dot { a, b, .. } = op {
            for mut v in [*a, *b] {
                while let Some((_, Op::Transpose(from) | Op::Reshape { value: from, .. })) = kernel.def_op(v) {
                    v = *from;
                }
                staged.insert(v);
            }
        }
    }
    staged
}

struct Work<'a> {
    kernel: &'a Kernel,
    schedule: &'a Schedule,
    dims: &'a [u64],
    staged: BTreeSet<Value>,
    arithmetic: f64,
    shared_traffic: f64,
    global_bytes: f64,
    steps: f64,
    shared_bytes: u64,
    register_bytes: u64,
}

impl<'a> Work<'a> {
    fn new(kernel: &'a Kernel, schedule: &'a Schedule, dims: &'a [u64]) -> Work<'a> {
        Work {
            kernel,
            schedule,
            dims,
            staged: staged_values(kernel),
            arithmetic: 0.0,
            shared_traffic: 0.0,
            global_bytes: 0.0,
            steps: 0.0,
            shared_bytes: 0,
            register_bytes: 0,
        }
    }

    fn bytes(&self, v: Value) -> u64 {
        let ty = self.kernel.ty(v);
        ty.elements() * u64::from(ty.dtype.bytes())
    }

    fn block(&mut self, block: Block, trips: f64, in_pipeline: bool) {
        let kernel = self.kernel;
        for &inst in &kernel.blocks[block].insts {
            let op = &kernel.insts[inst];
            let result = kernel.results[inst].first().copied();
            let elements = result.map_or(0, |v| kernel.ty(v).elements()) as f64;
            match op {
                Op::Load { .. } => {
                    let Some(v) = result else { continue };
                    self.global_bytes += trips * self.bytes(v) as f64;
                    if self.staged.contains(&v) {
                        let copies = if in_pipeline { u64::from(self.schedule.stages.max(1)) } else { 1 };
                        self.shared_bytes += copies * self.bytes(v);
                        self.shared_traffic += trips * self.bytes(v) as f64;
                    } else {
                        self.register_bytes += self.bytes(v);
                    }
                }
                Op::Store { value, .. } => self.global_bytes += trips * self.bytes(*value) as f64,
                Op::Dot { a, b, acc, precision } => self.dot(*a, *b, acc.is_none(), *precision, trips),
                Op::Loop { kind, lo, hi, inits, body } => {
                    let count = match (self.scalar(*lo), self.scalar(*hi)) {
                        (Some(lo), Some(hi)) => (hi - lo).max(0.0).ceil(),
                        _ => 8.0,
                    };
                    self.register_bytes += inits.iter().map(|&v| self.bytes(v)).sum::<u64>();
                    self.steps += trips * count;
                    self.block(*body, trips * count, *kind == LoopKind::Pipeline);
                }
                Op::Unary(op, _) => self.arithmetic += trips * elements * unary_weight(*op) / ELEMENT_WISE,
                Op::Binary(..) | Op::Compare(..) | Op::Select { .. } | Op::Cast(..) => {
                    self.arithmetic += trips * elements / ELEMENT_WISE;
                }
                Op::Reduce { value, .. } => {
                    self.arithmetic += trips * kernel.ty(*value).elements() as f64 / ELEMENT_WISE;
                }
                _ => {}
            }
            // A computed operand of `dot` passes through shared memory.
            if let Some(v) = result
                && self.staged.contains(&v)
                && !matches!(op, Op::Load { .. })
            {
                self.shared_bytes += self.bytes(v);
                self.shared_traffic += trips * self.bytes(v) as f64;
            }
        }
    }

    fn dot(&mut self, a: Value, b: Value, makes_tile: bool, precision: Precision, trips: f64) {
        let (x, y) = (self.kernel.ty(a), self.kernel.ty(b));
        let (m, k, n) = match (&x.shape[..], &y.shape[..]) {
            (&[m, k], &[_, n]) => (f64::from(m), f64::from(k), f64::from(n)),
            _ => return,
        };
        let rate = match (x.dtype, precision) {
            (DType::F16 | DType::Bf16, _) => TENSOR_HALF,
            (DType::F32, Precision::Tf32) => TENSOR_TF32,
            _ => FMA,
        };
        self.arithmetic += trips * 2.0 * m * n * k / rate;
        // Warps form a grid over the result, as square as it goes; each reads its rows and its columns.
        let warps = self.schedule.warps.max(1);
        let rows = f64::from(1_u32 << (warps.ilog2().div_ceil(2)));
        let columns = (f64::from(warps) / rows).max(1.0);
        self.shared_traffic += trips * (m * k * columns + k * n * rows) * f64::from(x.dtype.bytes());
        if makes_tile {
            self.register_bytes += (m * n) as u64 * u64::from(x.dtype.accumulator().bytes());
        }
    }

    /// The value of a scalar, with grid coordinates in the middle; `None` if it depends on data.
    fn scalar(&self, v: Value) -> Option<f64> {
        if let ValueDef::Grid(axis) = self.kernel.values[v].def {
            let axis = self.kernel.grid.get(axis as usize)?;
            return Some(grid_count(axis.extent, self.dims) as f64 / 2.0);
        }
        match self.kernel.def_op(v)?.1 {
            Op::Splat { value, .. } => Some(*value),
            Op::DimSize(dim) => Some(grid_count(GridExtent::Points(*dim), self.dims) as f64),
            Op::DimTiles { dim, size } => {
                Some(grid_count(GridExtent::Tiles { dim: *dim, size: *size }, self.dims) as f64)
            }
            Op::Cast(_, x) => self.scalar(*x),
            Op::Binary(op, a, b) => {
                let (a, b) = (self.scalar(*a)?, self.scalar(*b)?);
                match op {
                    BinaryOp::Add => Some(a + b),
                    BinaryOp::Sub => Some(a - b),
                    BinaryOp::Mul => Some(a * b),
                    BinaryOp::Div if b != 0.0 => Some((a / b).trunc()),
                    BinaryOp::Min => Some(a.min(b)),
                    BinaryOp::Max => Some(a.max(b)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// Instructions of an element-wise operation, about.
fn unary_weight(op: UnaryOp) -> f64 {
    match op {
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not => 1.0,
        UnaryOp::Exp2 | UnaryOp::Rsqrt | UnaryOp::Sqrt => 8.0,
        UnaryOp::Exp | UnaryOp::Log | UnaryOp::Sigmoid => 12.0,
        UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sin | UnaryOp::Cos => 24.0,
    }
}
