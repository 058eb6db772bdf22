//! Runs one program: its environment of tiles, and the match on operations.

use crate::error::InterpError;
use crate::memory::PendingStore;
use crate::tile::Tile;
use crate::{Arg, Mode};
use atlas_dsl::validity::Validity;
use atlas_dsl::{Block, Inst, Kernel, Op, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Data that all programs of a launch share.
pub(crate) struct LaunchState<'m> {
    pub(crate) kernel: &'m Kernel,
    pub(crate) mode: Mode,
    /// Size per dim.
    pub(crate) dims: &'m [u64],
    /// Argument per parameter.
    pub(crate) args: &'m [Arg<'m>],
    /// Per value: true for a transpose that only `dot` uses. `dot` reads the original by its strides.
    pub(crate) deferred: &'m [bool],
    /// The constraints that make elements of each value invalid.
    pub(crate) validity: &'m Validity,
    /// Per value: true if an inexact operation contributed to it. Only used if operations are disturbed.
    pub(crate) inexact: &'m [bool],
    /// The budget of all programs together.
    pub(crate) work: Work<'m>,
}

/// The number of operations of all programs, and the limit.
#[derive(Clone, Copy)]
pub(crate) struct Work<'m> {
    pub(crate) done: &'m AtomicU64,
    pub(crate) most: u64,
}

/// Operations that an instruction counts in addition to its elements, and operations that a program counts before it adds them
/// to the total.
const EACH: u64 = 32;
const TOGETHER: u64 = 1 << 20;

/// One point of the grid being run.
pub(crate) struct Program<'m> {
    pub(crate) launch: &'m LaunchState<'m>,
    tiles: Vec<Option<Arc<Tile>>>,
    /// The stores of the program so far, in order.
    pub(crate) stores: Vec<PendingStore>,
    /// The number of operations that were disturbed so far.
    pub(crate) disturbances: u64,
    /// Operations that are not yet added to the total.
    work: u64,
}

impl<'m> Program<'m> {
    fn new(launch: &'m LaunchState<'m>) -> Program<'m> {
        Program { launch, tiles: vec![None; launch.kernel.values.len()], stores: Vec::new(), disturbances: 0, work: 0 }
    }

    /// A program at these grid coordinates.
    pub(crate) fn at(launch: &'m LaunchState<'m>, coordinates: &[i32]) -> Program<'m> {
        let mut program = Program::new(launch);
        for (axis, &at) in launch.kernel.grid.iter().zip(coordinates) {
            program.set(axis.coord, Arc::new(Tile::index(at)));
        }
        program
    }

    /// Runs the kernel's body and returns what it stores.
    pub(crate) fn run(mut self) -> Result<Vec<PendingStore>, InterpError> {
        self.block(self.launch.kernel.body)?;
        self.finish()
    }

    /// Ends the program. Returns what it stored.
    pub(crate) fn finish(mut self) -> Result<Vec<PendingStore>, InterpError> {
        self.add_up()?;
        Ok(self.stores)
    }

    /// Counts an operation on the elements of a value.
    pub(crate) fn count_elements(&mut self, v: Value) -> Result<(), InterpError> {
        let shape = &self.launch.kernel.values[v].ty.shape;
        self.work += EACH + shape.iter().map(|&e| u64::from(e)).product::<u64>();
        if self.work >= TOGETHER { self.add_up() } else { Ok(()) }
    }

    /// Counts an instruction.
    fn count(&mut self, op: &Op, results: &[Value]) -> Result<(), InterpError> {
        let shape = |v: Value| &self.launch.kernel.values[v].ty.shape;
        let elements = |v: Value| shape(v).iter().map(|&e| u64::from(e)).product::<u64>();
        self.work += EACH
            + match op {
                Op::Dot { a, b, .. } => elements(*a) * u64::from(shape(*b).get(1).copied().unwrap_or(1)) / 8,
                Op::Reduce { value, .. } | Op::Store { value, .. } => elements(*value),
                _ => results.first().map_or(0, |&v| elements(v)),
            };
        if self.work >= TOGETHER { self.add_up() } else { Ok(()) }
    }

    /// Counts a step of a loop, whose body may be empty.
    pub(crate) fn count_step(&mut self) -> Result<(), InterpError> {
        self.work += EACH;
        if self.work >= TOGETHER { self.add_up() } else { Ok(()) }
    }

    /// Adds the counted operations to the total.
    fn add_up(&mut self) -> Result<(), InterpError> {
        let Work { done, most } = self.launch.work;
        let work = std::mem::take(&mut self.work);
        match done.fetch_add(work, Ordering::Relaxed).saturating_add(work) > most {
            true => Err(InterpError::Work { most }),
            false => Ok(()),
        }
    }

    /// Runs a block. Returns the yielded values, if it ends in `yield`.
    pub(crate) fn block(&mut self, block: Block) -> Result<Vec<Arc<Tile>>, InterpError> {
        let kernel = self.launch.kernel;
        for &inst in &kernel.blocks[block].insts {
            if let Op::Yield(values) = &kernel.insts[inst] {
                return values.iter().map(|&v| self.tile(v)).collect();
            }
            self.inst(inst).map_err(|e| e.at(kernel.locs[inst]))?;
        }
        Ok(Vec::new())
    }

    /// The tile that a value stands for.
    pub(crate) fn tile(&self, v: Value) -> Result<Arc<Tile>, InterpError> {
        let tile = self.tiles.get(v.as_u32() as usize).and_then(Option::clone);
        tile.ok_or_else(|| InterpError::kernel(format!("{v} is used before it is defined")))
    }

    pub(crate) fn set(&mut self, v: Value, tile: Arc<Tile>) {
        self.tiles[v.as_u32() as usize] = Some(tile);
    }

    /// The value of an i32 scalar.
    pub(crate) fn index(&self, v: Value) -> Result<i32, InterpError> {
        self.tile(v)?.as_index()
    }

    /// Runs an instruction.
    pub(crate) fn inst(&mut self, inst: Inst) -> Result<(), InterpError> {
        let kernel = self.launch.kernel;
        let results = &kernel.results[inst];
        self.count(&kernel.insts[inst], results)?;
        let tile = match &kernel.insts[inst] {
            Op::Loop { lo, hi, inits, body, .. } => {
                let tiles = self.run_loop(*lo, *hi, inits, *body)?;
                self.end_loop(inst, tiles);
                return Ok(());
            }
            Op::Store { param, slices, value, update } => return self.store(*update, *param, slices, *value),
            Op::Transpose(_) if results.first().is_some_and(|v| self.launch.deferred[v.as_u32() as usize]) => {
                return Ok(());
            }
            Op::Yield(_) => return Ok(()),
            // The programs of a cluster meet in `crate::cluster`.
            Op::ClusterSum(_) => return Err(InterpError::kernel("`cluster_sum` outside of a cluster")),
            Op::Splat { value, dtype, shape } => self.splat(*value, *dtype, shape),
            Op::Iota { shape, axis } => self.iota(shape, *axis),
            Op::DimSize(dim) => self.dim_size(*dim),
            Op::DimTiles { dim, size } => self.dim_tiles(*dim, *size),
            Op::ScalarParam(param) => self.scalar_param(*param)?,
            Op::TableGet { table, indices } => self.table_get(*table, indices)?,
            Op::Unary(op, x) => self.unary(*op, *x)?,
            Op::Binary(op, x, y) => self.binary(*op, *x, *y)?,
            Op::Compare(p, x, y) => self.compare(*p, *x, *y)?,
            Op::Select { cond, on_true, on_false } => self.select(*cond, *on_true, *on_false)?,
            Op::Fma(a, b, c) => self.fma([*a, *b, *c])?,
            Op::Cast(dtype, x) => self.cast(*dtype, *x)?,
            Op::Other { value, other, axes } => self.other(*value, *other, axes)?,
            Op::Broadcast { value, shape } => self.broadcast(*value, shape)?,
            Op::Reshape { value, axes } => self.reshape(*value, axes)?,
            Op::Transpose(x) => self.transpose(*x)?,
            Op::Reduce { op, value, axes } => self.reduce(*op, *value, axes)?,
            Op::Scan { op, value, axis, reverse } => self.scan(*op, *value, *axis, *reverse)?,
            Op::Dot { a, b, acc, precision } => self.dot(*a, *b, *acc, *precision)?,
            Op::Load { param, slices } => self.load(*param, slices)?,
        };
        if let Some(&v) = results.first() {
            let tile = match self.launch.mode {
                Mode::Noisy(noise) => self.disturbed(noise, &kernel.insts[inst], v, tile)?,
                _ => tile,
            };
            self.set(v, Arc::new(tile));
        }
        Ok(())
    }
}
