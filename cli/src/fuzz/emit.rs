//! Builds the Tile IR of a recipe. With noise, its inexact operations are off by as much as a device's may be.
//!
//! The noise makes the interpreter show how far a correct result may differ from its own: sums in another order, functions that
//! are some ulp off, and a following rounding to 16 bits that falls on the other side.

mod noise;

use super::recipe::{Cut, DimRecipe, Expr, Ext, GridRecipe, Loop, Name, ParamRecipe, Recipe, Rng, Stmt, TABLE};
use super::values::Placed;
use atlas_codegen::math::SIN_COS_DOMAIN;
use atlas_dsl::diag::Diagnostics;
use atlas_dsl::infer::infer;
use atlas_dsl::ir::{Access, BlockData, DimData, DimSize, GridExtent, Loc, ParamData, ParamKind, TableData};
use atlas_dsl::op::{BinaryOp, LoopKind, Op, Precision, ReduceOp, Slice, UnaryOp};
use atlas_dsl::specialization::largest_class;
use atlas_dsl::{Block, DType, Diagnostic, Dim, Kernel, Param, Table, TileType, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The relative error of sums and products in f32. It exceeds that of any order of so few terms.
const OF_SUMS: f64 = 1.0 / (1 << 20) as f64;
/// The relative error of products: of tf32, whose operands a device may truncate instead of rounding them; of operands that are
/// split elsewhere.
const fn of_products(precision: Precision) -> f64 {
    match precision {
        Precision::Default => OF_SUMS,
        Precision::Tf32 => 1.0 / (1 << 9) as f64,
        Precision::Bf16x3 => 1.0 / (1 << 16) as f64,
        Precision::Tf32x3 => OF_SUMS,
    }
}

/// The relative error of functions in f32.
const OF_FUNCTIONS: f64 = 1.0 / (1 << 21) as f64;
/// The relative error of approximate functions, which are used if 16 bits are written.
const OF_APPROXIMATIONS: f64 = 1.0 / (1 << 13) as f64;

/// The absolute error of the short forms of gelu and its slope.
const OF_SHORT_GELU: f64 = 1.0 / (1 << 24) as f64;

/// The absolute error of values near 0.
const LEAST_PUSH: f64 = 1e-6;

/// How a kernel is made inexact.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noise {
    /// The seed of the errors.
    pub(super) seed: u64,
    /// 1 or -1.
    pub(super) sign: f64,
}

/// A built kernel and its properties.
pub(super) struct Emitted {
    pub(super) kernel: Kernel,
    /// The type of each expression, in the order of [`super::recipe::visit_exprs`].
    pub(super) types: Vec<TileType>,
    /// For each parameter, whether a value stored to it depends on an inexact operation.
    pub(super) inexact: Vec<bool>,
}

/// Builds a recipe's kernel.
pub(super) fn emit(recipe: &Recipe, noise: Option<Noise>) -> Result<Emitted, Diagnostics> {
    emit_judged(recipe, noise, false)
}

/// The same, but storing only the outputs of 16 bits, or only the others. Functions that wide outputs depend on are
/// precise.
pub(super) fn emit_judged(recipe: &Recipe, noise: Option<Noise>, halves: bool) -> Result<Emitted, Diagnostics> {
    let mut emitter = Emitter::new(recipe, noise, halves);
    emitter.signature();
    let body = emitter.kernel.body;
    emitter.block(&recipe.body, body)?;
    // A value that is read from an output may have been written there.
    let any = emitter.any_inexact;
    let inexact = emitter.stored.iter().map(|&stored| stored && any).collect();
    Ok(Emitted { kernel: emitter.kernel, types: emitter.types, inexact })
}

struct Emitter<'r> {
    recipe: &'r Recipe,
    noise: Option<Noise>,
    rng: Rng,
    kernel: Kernel,
    at: Block,
    env: BTreeMap<Name, Value>,
    types: Vec<TileType>,
    /// The values that depend on an inexact operation.
    off: BTreeSet<Value>,
    /// Whole numbers that serve as coordinates, so that equal ones are the same value.
    numbers: BTreeMap<i64, Value>,
    any_inexact: bool,
    /// For each parameter, whether an inexact value is stored to it.
    stored: Vec<bool>,
    /// Whether functions may be approximate.
    approximate: bool,
    table: Option<Table>,
}

type R<T> = Result<T, Diagnostic>;

impl<'r> Emitter<'r> {
    fn new(recipe: &'r Recipe, noise: Option<Noise>, approximate: bool) -> Emitter<'r> {
        let kernel = Kernel::new("random");
        Emitter {
            recipe,
            noise,
            rng: Rng::new(noise.map_or(0, |n| n.seed)),
            at: kernel.body,
            kernel,
            env: BTreeMap::new(),
            types: Vec::new(),
            off: BTreeSet::new(),
            numbers: BTreeMap::new(),
            any_inexact: false,
            stored: vec![false; recipe.params.len()],
            approximate,
            table: None,
        }
    }

    fn signature(&mut self) {
        for (i, d) in self.recipe.dims.iter().enumerate() {
            let DimRecipe { whole, .. } = *d;
            let n = self.recipe.size(i);
            let size = if whole { DimSize::Const(n) } else { DimSize::Dynamic { divisor: largest_class(n) } };
            self.kernel.dims.push(DimData { name: format!("D{i}"), size });
        }
        for (i, p) in self.recipe.params.iter().enumerate() {
            let (name, kind) = match p {
                ParamRecipe::Scalar { dtype, .. } => (format!("s{i}"), ParamKind::Scalar { dtype: *dtype }),
                ParamRecipe::Tensor { dtype, dims, out, view, .. } => {
                    let placed = Placed::new(self.recipe, *dtype, dims, *view);
                    let kind = ParamKind::Tensor {
                        dtype: *dtype,
                        dims: dims.iter().map(|&d| Dim::from_u32(d as u32)).collect(),
                        strides: placed.facts(self.recipe, dims),
                        axes: vec![],
                        align: placed.align(),
                        access: if *out { Access::Out } else { Access::In },
                    };
                    (format!("{}{i}", if *out { "y" } else { "x" }), kind)
                }
            };
            self.kernel.params.push(ParamData { name, kind });
        }
        for (name, axis) in self.recipe.grid.iter().enumerate() {
            let extent = match *axis {
                GridRecipe::Points(d) => GridExtent::Points(Dim::from_u32(d as u32)),
                GridRecipe::Tiles(d) | GridRecipe::UpTo(d) => {
                    let (dim, size) = (Dim::from_u32(d as u32), self.recipe.extents[self.recipe.dims[d].tile]);
                    match *axis {
                        GridRecipe::UpTo(_) => GridExtent::UpTo { dim, size },
                        _ => GridExtent::Tiles { dim, size },
                    }
                }
            };
            let coord = self.kernel.push_grid_axis(extent);
            self.env.insert(name, coord);
        }
    }

    fn block(&mut self, body: &[Stmt], block: Block) -> Result<(), Diagnostics> {
        let before = std::mem::replace(&mut self.at, block);
        for stmt in body {
            match stmt {
                Stmt::Let(name, e) => {
                    let v = self.expr(e)?;
                    self.env.insert(*name, v);
                }
                Stmt::Store(update, param, cuts, e) => {
                    let slices = self.cuts(cuts)?;
                    let value = self.in_any_order(*update, e)?;
                    self.stored[*param] |= self.off.contains(&value);
                    self.push_all(Op::Store { param: Param::from_u32(*param as u32), slices, value, update: *update })?;
                }
                Stmt::Loop(l) => self.loop_(l)?,
            }
        }
        self.at = before;
        Ok(())
    }

    fn loop_(&mut self, l: &Loop) -> Result<(), Diagnostics> {
        let (lo, hi) = (self.expr(&l.lo)?, self.expr(&l.hi)?);
        // The order of `visit_exprs`: the initial value, then the next value, which is emitted in the body.
        let mut inits = Vec::new();
        let mut places = Vec::new();
        for c in &l.carried {
            inits.push(self.expr(&c.init)?);
            places.push(self.types.len());
            self.types.extend(std::iter::repeat_n(TileType::scalar(DType::Bool), c.next.count()));
        }
        let block = self.kernel.blocks.push(BlockData::default());
        let index = self.kernel.push_block_param(block, TileType::scalar(DType::I32));
        self.env.insert(l.index, index);
        for (c, &init) in l.carried.iter().zip(&inits) {
            let ty = self.kernel.ty(init).clone();
            let v = self.kernel.push_block_param(block, ty);
            self.off.insert(v);
            self.env.insert(c.inner, v);
        }
        self.block(&l.body, block)?;
        let before = std::mem::replace(&mut self.at, block);
        let rest = std::mem::take(&mut self.types);
        let mut nexts = Vec::new();
        let mut types = Vec::new();
        for c in &l.carried {
            let next = self.expr(&c.next)?;
            nexts.push(self.shared_sum(next, c.inner)?);
            types.push(std::mem::take(&mut self.types));
        }
        self.types = rest;
        for (place, types) in places.into_iter().zip(types) {
            self.types[place..place + types.len()].clone_from_slice(&types);
        }
        self.push_all(Op::Yield(nexts))?;
        self.at = before;
        let kind = if l.pipeline { LoopKind::Pipeline } else { LoopKind::Carried };
        let results = self.push_all(Op::Loop { kind, lo, hi, inits, body: block })?;
        for (c, v) in l.carried.iter().zip(results) {
            self.off.insert(v);
            self.env.insert(c.outer, v);
        }
        Ok(())
    }

    fn cuts(&mut self, cuts: &[Cut]) -> R<Vec<Slice>> {
        let each = |c: &Cut| {
            Ok(match c {
                Cut::Whole => Slice::Whole,
                Cut::Gather(e) => Slice::Gather(self.expr(e)?),
                Cut::At(e) => Slice::At(self.coordinate(e)?),
                Cut::Tile(e, ext) => Slice::Tile { index: self.coordinate(e)?, size: self.recipe.extents[*ext] },
                Cut::Span(e, ext) => Slice::Span { start: self.coordinate(e)?, len: self.recipe.extents[*ext] },
            })
        };
        cuts.iter().map(each).collect()
    }

    /// A coordinate. Numbers are placed before all loops, because a value in a loop's body counts as depending on its
    /// index.
    fn coordinate(&mut self, e: &Expr) -> R<Value> {
        let Expr::Splat(x, DType::I32, shape) = e else { return self.expr(e) };
        if let Some(&v) = self.numbers.get(&(*x as i64)).filter(|_| shape.is_empty()) {
            self.types.push(TileType::scalar(DType::I32));
            return Ok(v);
        }
        let at = std::mem::replace(&mut self.at, self.kernel.body);
        let v = self.expr(e);
        self.at = at;
        let v = v?;
        self.numbers.insert(*x as i64, v);
        Ok(v)
    }

    fn expr(&mut self, e: &Expr) -> R<Value> {
        let place = self.types.len();
        self.types.push(TileType::scalar(DType::Bool));
        let v = self.make(e)?;
        self.types[place] = self.kernel.ty(v).clone();
        Ok(v)
    }

    fn make(&mut self, e: &Expr) -> R<Value> {
        let shape = |s: &[Ext]| self.recipe.shape(s);
        let op = match e {
            Expr::Var(name) => {
                let found = self.env.get(name).copied();
                return found.ok_or_else(|| Diagnostic::new(204, Loc::default(), format!("no variable {name}")));
            }
            Expr::Splat(value, dtype, s) => Op::Splat { value: *value, dtype: *dtype, shape: shape(s) },
            Expr::Iota(s, axis) => Op::Iota { shape: shape(s), axis: *axis },
            Expr::Extent(e) => {
                let value = f64::from(self.recipe.extents[*e]);
                Op::Splat { value, dtype: DType::I32, shape: Vec::new() }
            }
            Expr::Size(d) | Expr::Tiles(d) => return self.of_dim(*d, matches!(e, Expr::Tiles(_))),
            Expr::Scalar(p) => Op::ScalarParam(Param::from_u32(*p as u32)),
            Expr::Table(i) => return self.table(i),
            Expr::Unary(op, a) => {
                let a = self.expr(a)?;
                let a = if op.row().is_discontinuous { self.pushed(a)? } else { a };
                return self.function(*op, a);
            }
            Expr::Binary(op, pair) => {
                let (a, b) = (self.expr(&pair[0])?, self.expr(&pair[1])?);
                return self.binary(*op, a, b);
            }
            // No error makes a number differ from itself.
            Expr::Compare(p, pair) if pair[0] == pair[1] => {
                let a = self.expr(&pair[0])?;
                Op::Compare(*p, a, a)
            }
            Expr::Compare(p, pair) => {
                let (a, b) = (self.expr(&pair[0])?, self.expr(&pair[1])?);
                Op::Compare(*p, self.pushed(a)?, b)
            }
            Expr::Select(three) => {
                let [cond, on_true, on_false] = [&three[0], &three[1], &three[2]].map(|e| self.expr(e));
                Op::Select { cond: cond?, on_true: on_true?, on_false: on_false? }
            }
            Expr::Fma(three) => {
                let [a, b, c] = [&three[0], &three[1], &three[2]].map(|e| self.expr(e));
                Op::Fma(a?, b?, c?)
            }
            Expr::Cast(dtype, a) => {
                let a = self.expr(a)?;
                let off = self.off.contains(&a);
                let a = if dtype.is_whole() || dtype.is_fp8() { self.pushed(a)? } else { a };
                let v = self.push(Op::Cast(*dtype, a))?;
                return if off { self.blur(v) } else { Ok(v) };
            }
            Expr::Other(other, a) => {
                let value = self.expr(a)?;
                Op::Other { value, other: *other, axes: (0..self.kernel.ty(value).rank() as u8).collect() }
            }
            Expr::Broadcast(a, s) => {
                let value = self.expr(a)?;
                if *self.kernel.ty(value).shape == self.recipe.shape(s) {
                    return Ok(value);
                }
                Op::Broadcast { value, shape: self.recipe.shape(s) }
            }
            Expr::Reshape(a, axes) => Op::Reshape { value: self.expr(a)?, axes: axes.clone() },
            Expr::Transpose(a) => Op::Transpose(self.expr(a)?),
            Expr::Reduce(op, a, axes) => {
                let value = self.expr(a)?;
                return self.reduce(*op, value, |op, value| Op::Reduce { op, value, axes: axes.clone() });
            }
            &Expr::Scan { op, ref of, axis, reverse } => {
                let value = self.expr(of)?;
                return self.reduce(op, value, |op, value| Op::Scan { op, value, axis, reverse });
            }
            Expr::Dot { factors, acc, precision } => {
                let (a, b) = (self.expr(&factors[0])?, self.expr(&factors[1])?);
                let acc = acc.as_ref().map(|e| self.expr(e)).transpose()?;
                return self.dot(a, b, acc, *precision);
            }
            Expr::Load(p, cuts) => {
                let slices = self.cuts(cuts)?;
                let v = self.push(Op::Load { param: Param::from_u32(*p as u32), slices })?;
                if matches!(self.recipe.params.get(*p), Some(ParamRecipe::Tensor { out: true, .. })) {
                    self.off.insert(v);
                }
                return Ok(v);
            }
        };
        self.push(op)
    }

    fn of_dim(&mut self, d: usize, tiles: bool) -> R<Value> {
        let (size, n) = (self.recipe.extents[self.recipe.dims[d].tile], self.recipe.size(d));
        let dim = Dim::from_u32(d as u32);
        self.push(match (self.recipe.dims[d].whole, tiles) {
            (true, tiles) => {
                let value = if tiles { n.div_ceil(u64::from(size)) } else { n } as f64;
                Op::Splat { value, dtype: DType::I32, shape: Vec::new() }
            }
            (false, true) => Op::DimTiles { dim, size },
            (false, false) => Op::DimSize(dim),
        })
    }

    fn table(&mut self, index: &Expr) -> R<Value> {
        let i = self.expr(index)?;
        let table = *self.table.get_or_insert_with(|| {
            let (shape, values) = (vec![TABLE.len() as u32], TABLE.to_vec());
            self.kernel.tables.push(TableData { name: "COEF".to_owned(), shape, values })
        });
        let n = self.push(Op::Splat { value: TABLE.len() as f64, dtype: DType::I32, shape: Vec::new() })?;
        let i = self.push(Op::Binary(BinaryOp::Rem, i, n))?;
        self.push(Op::TableGet { table, indices: vec![i] })
    }

    fn push(&mut self, op: Op) -> R<Value> {
        let values = self.push_all(op)?;
        values.first().copied().ok_or_else(|| Diagnostic::new(203, Loc::default(), "an operation without a result"))
    }

    fn push_all(&mut self, op: Op) -> R<Vec<Value>> {
        let types = infer(&self.kernel, &op, Loc::default())?;
        let mut off = false;
        op.visit_operands(|v| off |= self.off.contains(&v));
        let inst = self.kernel.push_inst(self.at, op, &types, Loc::default());
        let results = self.kernel.results[inst].clone();
        if off {
            self.off.extend(&results);
        }
        Ok(results)
    }

    // ----- inexact operations -----

    /// Marks a result as inexact.
    fn marked(&mut self, v: Value) -> Value {
        self.any_inexact = true;
        self.off.insert(v);
        v
    }

    fn function(&mut self, op: UnaryOp, a: Value) -> R<Value> {
        let exact = match op {
            UnaryOp::Sqrt => !self.approximate,
            op => op.row().exact,
        };
        let ty = self.kernel.ty(a).clone();
        if exact || self.noise.is_none() || !ty.dtype.is_float() {
            let v = self.push(Op::Unary(op, a))?;
            return Ok(if exact { v } else { self.marked(v) });
        }
        let relative = if self.approximate { OF_APPROXIMATIONS } else { OF_FUNCTIONS };
        let wide = self.widened(a)?;
        let y = self.push(Op::Unary(op, wide))?;
        let size = match op {
            // Near their zeros, these are only as precise as their arguments.
            UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan | UnaryOp::Log | UnaryOp::Log2 => {
                let one = self.splat(1.0 / 8.0, &ty.shape)?;
                let size = self.push(Op::Unary(UnaryOp::Abs, y))?;
                let size = self.push(Op::Binary(BinaryOp::Max, size, one))?;
                if matches!(op, UnaryOp::Log | UnaryOp::Log2) {
                    size
                } else {
                    self.grown_outside_of_domain(size, wide)?
                }
            }
            // Its short form also has an absolute error, which dominates near 0.
            UnaryOp::Gelu | UnaryOp::GeluSlope if self.approximate => {
                let least = self.splat(OF_SHORT_GELU / relative, &ty.shape)?;
                let size = self.push(Op::Unary(UnaryOp::Abs, y))?;
                self.push(Op::Binary(BinaryOp::Max, size, least))?
            }
            _ => y,
        };
        let y = self.add_noise(y, size, relative)?;
        let y = self.narrowed(y, ty.dtype)?;
        Ok(self.marked(y))
    }

    /// The error of a sine of `x`. It is unbounded where periods are as short as the steps of f32.
    fn grown_outside_of_domain(&mut self, size: Value, x: Value) -> R<Value> {
        let shape = self.kernel.ty(x).shape.clone();
        let (domain, zero) = (self.splat(f64::from(SIN_COS_DOMAIN), &shape)?, self.splat(0.0, &shape)?);
        let x = self.push(Op::Unary(UnaryOp::Abs, x))?;
        let past = self.push(Op::Binary(BinaryOp::Sub, x, domain))?;
        let past = self.push(Op::Binary(BinaryOp::Max, past, zero))?;
        let much = self.splat(1e9, &shape)?;
        let past = self.push(Op::Binary(BinaryOp::Mul, past, much))?;
        self.push(Op::Binary(BinaryOp::Add, size, past))
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> R<Value> {
        if op.is_function() && self.noise.is_some() {
            let dtype = self.kernel.ty(a).dtype;
            let (a, b) = (self.widened(a)?, self.widened(b)?);
            let y = self.push(Op::Binary(op, a, b))?;
            let y = self.add_noise(y, y, OF_FUNCTIONS)?;
            let y = self.narrowed(y, dtype)?;
            return Ok(self.marked(y));
        }
        let v = self.push(Op::Binary(op, a, b))?;
        let ty = self.kernel.ty(v).clone();
        let is_quotient = op == BinaryOp::Div && self.approximate && ty.dtype.is_float();
        if !is_quotient && !op.is_function() {
            return Ok(v);
        }
        self.marked(v);
        if self.noise.is_none() {
            return Ok(v);
        }
        let wide = self.widened(v)?;
        let y = self.add_noise(wide, wide, OF_APPROXIMATIONS)?;
        let y = self.narrowed(y, ty.dtype)?;
        Ok(self.marked(y))
    }

    /// A reduction or a scan.
    fn reduce(&mut self, op: ReduceOp, value: Value, reduce: impl Fn(ReduceOp, Value) -> Op) -> R<Value> {
        let dtype = self.kernel.ty(value).dtype;
        if op != ReduceOp::Sum || !dtype.is_float() {
            return self.push(reduce(op, value));
        }
        if self.noise.is_none() {
            let v = self.push(reduce(op, value))?;
            return Ok(self.marked(v));
        }
        let wide = self.widened(value)?;
        let sum = self.push(reduce(op, wide))?;
        let size = self.push(Op::Unary(UnaryOp::Abs, wide))?;
        let size = self.push(reduce(op, size))?;
        let sum = self.add_noise(sum, size, OF_SUMS)?;
        let sum = self.narrowed(sum, dtype)?;
        Ok(self.marked(sum))
    }

    fn dot(&mut self, a: Value, b: Value, acc: Option<Value>, precision: Precision) -> R<Value> {
        let product = self.push(Op::Dot { a, b, acc, precision })?;
        self.marked(product);
        if self.noise.is_none() {
            return Ok(product);
        }
        let a = self.push(Op::Unary(UnaryOp::Abs, a))?;
        let b = self.push(Op::Unary(UnaryOp::Abs, b))?;
        let acc = acc.map(|c| self.push(Op::Unary(UnaryOp::Abs, c))).transpose()?;
        let size = self.push(Op::Dot { a, b, acc, precision })?;
        let noisy = self.add_noise(product, size, of_products(precision))?;
        Ok(self.marked(noisy))
    }

    /// The next value of a sum. If several CTAs share the iterations, its terms are added in another order.
    fn shared_sum(&mut self, next: Value, inner: Name) -> R<Value> {
        if self.recipe.schedule.split_k == 1 || self.kernel.ty(next).dtype != DType::F32 {
            return Ok(next);
        }
        self.marked(next);
        let Some(before) = self.env.get(&inner).copied().filter(|_| self.noise.is_some()) else { return Ok(next) };
        let [size, before] = [next, before].map(|v| self.push(Op::Unary(UnaryOp::Abs, v)));
        let size = self.push(Op::Binary(BinaryOp::Add, size?, before?))?;
        let noisy = self.add_noise(next, size, OF_SUMS)?;
        Ok(self.marked(noisy))
    }

    fn widened(&mut self, v: Value) -> R<Value> {
        if self.kernel.ty(v).dtype.is_half() { self.push(Op::Cast(DType::F32, v)) } else { Ok(v) }
    }

    /// Converts back to a narrow type, where the rounding may fall on the other side.
    fn narrowed(&mut self, v: Value, dtype: DType) -> R<Value> {
        if !dtype.is_half() {
            return Ok(v);
        }
        let v = self.push(Op::Cast(dtype, v))?;
        self.blur(v)
    }

    /// A 16-bit tile with some elements one ulp off. Other tiles are unchanged.
    fn blur(&mut self, v: Value) -> R<Value> {
        let dtype = self.kernel.ty(v).dtype;
        if self.noise.is_none() || !dtype.is_half() {
            return Ok(v);
        }
        let half_ulp = if dtype == DType::F16 { 1.0 / 2048.0 } else { 1.0 / 256.0 };
        let wide = self.push(Op::Cast(DType::F32, v))?;
        let wide = self.add_noise(wide, wide, half_ulp)?;
        self.push(Op::Cast(dtype, wide))
    }

    /// An inexact tile of floats that is about to be truncated to whole numbers or compared. All of it is shifted by as
    /// much as a device's error may be, so that of two runs with opposite signs, one falls on the other side of a step.
    fn pushed(&mut self, v: Value) -> R<Value> {
        let ty = self.kernel.ty(v).clone();
        let Some(Noise { sign, .. }) = self.noise.filter(|_| self.off.contains(&v) && ty.dtype.is_float()) else {
            return Ok(v);
        };
        let relative = match ty.dtype {
            DType::F16 => 1.0 / 512.0,
            DType::Bf16 => 1.0 / 64.0,
            _ if self.approximate => 4.0 * OF_APPROXIMATIONS,
            _ => 4.0 * OF_SUMS,
        };
        let wide = self.widened(v)?;
        let size = self.push(Op::Unary(UnaryOp::Abs, wide))?;
        let (most, least) = (self.splat(sign * relative, &ty.shape)?, self.splat(sign * LEAST_PUSH, &ty.shape)?);
        let by = self.push(Op::Binary(BinaryOp::Mul, size, most))?;
        let by = self.push(Op::Binary(BinaryOp::Add, by, least))?;
        let pushed = self.push(Op::Binary(BinaryOp::Add, wide, by))?;
        if ty.dtype.is_half() { self.push(Op::Cast(ty.dtype, pushed)) } else { Ok(pushed) }
    }

    fn splat(&mut self, value: f64, shape: &[u32]) -> R<Value> {
        self.push(Op::Splat { value, dtype: DType::F32, shape: shape.to_vec() })
    }
}
