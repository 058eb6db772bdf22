//! Appends operations to a kernel, inferring types; what `atlas_kernel!` expands to.
//!
//! Mistakes do not stop the builder: a wrong operation records a diagnostic and gives a poison
//! operand that silences what follows from it. [`Builder::finish`] returns all of them.

use crate::config::Config;
use crate::def::{DTypeRef, KernelDef, ParamDef};
use crate::diag::{Diagnostic, Diagnostics};
use crate::entity::{Block, Dim, Param, Table, Value};
use crate::infer::infer;
use crate::ir::{DimData, DimSize, GridExtent, Kernel, Loc, ParamData, ParamKind, Stride, TableData};
use crate::op::{BinaryOp, LoopKind, Op, Precision, Predicate, ReduceOp, Slice, UnaryOp};
use crate::specialization::{DimFact, Specialization};
use crate::types::{DType, TileType, broadcast_shapes};
use std::collections::BTreeMap;

/// What an expression in a kernel denotes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// A tile or scalar.
    Value(Value),
    /// A literal, which takes the element type of what it meets.
    Literal(f64),
    /// The result of a mistake already reported.
    Poison,
}

impl From<Value> for Operand {
    fn from(v: Value) -> Operand {
        Operand::Value(v)
    }
}
impl From<f64> for Operand {
    fn from(x: f64) -> Operand {
        Operand::Literal(x)
    }
}
impl From<f32> for Operand {
    fn from(x: f32) -> Operand {
        Operand::Literal(f64::from(x))
    }
}
impl From<i32> for Operand {
    fn from(x: i32) -> Operand {
        Operand::Literal(f64::from(x))
    }
}
impl From<u32> for Operand {
    fn from(x: u32) -> Operand {
        Operand::Literal(f64::from(x))
    }
}
impl From<usize> for Operand {
    fn from(x: usize) -> Operand {
        Operand::Literal(x as f64)
    }
}

/// One index in `x[g, n, ..]`, as the user wrote it.
#[derive(Clone, Copy, Debug)]
pub enum Index {
    /// An expression: a tile coordinate addresses its tile, any other scalar one element.
    At(Operand),
    /// `start ; len`: a span at an offset.
    Span(Operand, u32),
    /// `..`.
    Whole,
}

/// Builds a [`Kernel`]. Every appending method takes the place of the user's token first.
pub struct Builder {
    kernel: Kernel,
    /// Innermost open block last.
    open: Vec<Block>,
    /// Scalars that are tile coordinates, and the size of their tiles.
    tile_coords: BTreeMap<Value, u32>,
    tables: BTreeMap<String, Table>,
    types: Vec<DType>,
    config: Config,
    errors: Vec<Diagnostic>,
}

impl Builder {
    /// Starts a kernel from its signature: dims, parameters and their facts come from `spec`.
    pub fn new(def: &KernelDef, spec: &Specialization, config: &Config) -> Builder {
        let mut b = Builder {
            kernel: Kernel::new(def.name),
            open: Vec::new(),
            tile_coords: BTreeMap::new(),
            tables: BTreeMap::new(),
            types: Vec::new(),
            config: config.clone(),
            errors: Vec::new(),
        };
        b.kernel.source_file = Some(def.file.to_owned());
        b.open.push(b.kernel.body);
        for t in def.types {
            let dtype = spec.types.get(t.name).copied().unwrap_or(t.allowed[0]);
            if !t.allowed.contains(&dtype) {
                b.error(115, Loc::default(), format!("type parameter `{}` of `{}` cannot be {dtype}", t.name, def.name));
            }
            b.types.push(dtype);
        }
        for d in def.dims {
            let size = DimSize::from(spec.dims.get(d.name).copied().unwrap_or(DimFact::Dynamic(1)));
            if d.whole && !matches!(size, DimSize::Const(_)) {
                b.error(114, Loc::default(), format!("dim `{}` of `{}` is used whole, so it must be a constant", d.name, def.name));
            }
            b.kernel.dims.push(DimData { name: d.name.to_owned(), size });
        }
        let dim_ids: Vec<Dim> = b.kernel.dims.keys().collect();
        for p in def.params {
            let kind = match p {
                ParamDef::Scalar { dtype, .. } => ParamKind::Scalar { dtype: b.dtype(*dtype) },
                ParamDef::Tensor { name, dtype, dims, access } => {
                    let dims: Vec<Dim> = dims.iter().map(|&i| dim_ids[i]).collect();
                    let facts: Vec<DimFact> = dims
                        .iter()
                        .map(|&d| match b.kernel.dims[d].size {
                            DimSize::Const(n) => DimFact::Const(n),
                            DimSize::Dynamic { divisor } => DimFact::Dynamic(divisor),
                        })
                        .collect();
                    let (align, strides) = match spec.tensors.get(*name) {
                        Some(t) => (t.align, t.strides.clone()),
                        None => (16, Specialization::contiguous_strides(&facts)),
                    };
                    if strides.len() != dims.len() {
                        b.error(113, Loc::default(), format!("`{name}` has rank {}, but {} strides are given", dims.len(), strides.len()));
                    }
                    let strides: Vec<Stride> = strides.into_iter().map(Stride::from).collect();
                    ParamKind::Tensor { dtype: b.dtype(*dtype), dims, strides, align, access: *access }
                }
            };
            b.kernel.params.push(ParamData { name: p.name().to_owned(), kind });
        }
        b
    }

    /// The kernel, or every mistake made while building it.
    pub fn finish(self) -> Result<Kernel, Diagnostics> {
        if self.errors.is_empty() { Ok(self.kernel) } else { Err(Diagnostics(self.errors)) }
    }

    /// The dtype that a signature's reference stands for.
    pub fn dtype(&self, r: DTypeRef) -> DType {
        match r {
            DTypeRef::Fixed(d) => d,
            DTypeRef::Generic(i) => self.types[i],
        }
    }

    /// A tile size (or schedule key) of the config; reports a config that lacks it.
    pub fn tune(&mut self, loc: Loc, name: &str) -> u32 {
        match self.config.get(name) {
            Some(0) => {
                self.error(301, loc, format!("config sets `{name}` to 0; a tile has at least one element"));
                1
            }
            Some(v) => v,
            None => {
                self.error(301, loc, format!("config `{}` lacks `{name}`", self.config));
                1
            }
        }
    }

    /// A dim by its index in the signature.
    pub fn dim(&self, index: usize) -> Dim {
        Dim::from_u32(index as u32)
    }

    /// A parameter by its index in the signature.
    pub fn param(&self, index: usize) -> Param {
        Param::from_u32(index as u32)
    }

    /// The runtime size of a dim; a literal if it is a constant.
    pub fn dim_size(&mut self, loc: Loc, dim: Dim) -> Operand {
        match self.kernel.dims[dim].size {
            DimSize::Const(n) => Operand::Literal(n as f64),
            DimSize::Dynamic { .. } => self.push(loc, Op::DimSize(dim)),
        }
    }

    /// The size of a dim that is used whole, as an extent of a tile.
    pub fn dim_extent(&mut self, loc: Loc, dim: Dim) -> u32 {
        let data = &self.kernel.dims[dim];
        match data.size {
            DimSize::Const(n) => match u32::try_from(n) {
                Ok(n) => return n,
                Err(_) => {
                    let message = format!("dim `{}` of {n} elements is too large to be used whole", data.name);
                    self.error(114, loc, message);
                }
            },
            DimSize::Dynamic { .. } => {
                let message = format!("dim `{}` is used whole, so it must be a constant", data.name);
                self.error(114, loc, message);
            }
        }
        1
    }

    /// A grid axis with one coordinate per element of `dim`.
    pub fn grid_points(&mut self, dim: Dim) -> Operand {
        self.kernel.push_grid_axis(GridExtent::Points(dim)).into()
    }

    /// A grid axis with one coordinate per tile of `size` elements of `dim`.
    pub fn grid_tiles(&mut self, dim: Dim, size: u32) -> Operand {
        let v = self.kernel.push_grid_axis(GridExtent::Tiles { dim, size });
        self.tile_coords.insert(v, size);
        v.into()
    }

    /// A scalar parameter's value.
    pub fn scalar(&mut self, loc: Loc, param: Param) -> Operand {
        self.push(loc, Op::ScalarParam(param))
    }

    /// An element of a constant table, `TABLE[i][j]`. `values` is row-major.
    pub fn table_get(&mut self, loc: Loc, name: &str, shape: &[u32], values: &[f32], indices: &[Operand]) -> Operand {
        let table = *self.tables.entry(name.to_owned()).or_insert_with(|| {
            self.kernel.tables.push(TableData { name: name.to_owned(), shape: shape.to_vec(), values: values.to_vec() })
        });
        let indices = indices.iter().map(|&i| self.index_scalar(loc, i)).collect::<Option<Vec<_>>>();
        match indices {
            Some(indices) => self.push(loc, Op::TableGet { table, indices }),
            None => Operand::Poison,
        }
    }

    /// A tile of zeros.
    pub fn zeros(&mut self, loc: Loc, dtype: DType, shape: &[u32]) -> Operand {
        self.splat(loc, 0.0, dtype, shape)
    }

    /// A tile whose every element is `value`.
    pub fn splat(&mut self, loc: Loc, value: f64, dtype: DType, shape: &[u32]) -> Operand {
        self.push(loc, Op::Splat { value, dtype, shape: shape.to_vec() })
    }

    /// A tile that counts along an axis.
    pub fn iota(&mut self, loc: Loc, shape: &[u32], axis: u8) -> Operand {
        self.push(loc, Op::Iota { shape: shape.to_vec(), axis })
    }

    /// An element-wise operation of one operand. Literals fold.
    pub fn unary(&mut self, loc: Loc, op: UnaryOp, x: impl Into<Operand>) -> Operand {
        match x.into() {
            Operand::Literal(x) => match fold_unary(op, x) {
                Some(y) => Operand::Literal(y),
                None => {
                    self.error(104, loc, format!("`{}` does not apply to a literal", op.name()));
                    Operand::Poison
                }
            },
            Operand::Value(v) => self.push(loc, Op::Unary(op, v)),
            Operand::Poison => Operand::Poison,
        }
    }

    /// An element-wise operation of two operands; literals adapt, extents of 1 broadcast.
    pub fn binary(&mut self, loc: Loc, op: BinaryOp, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        let (a, b) = (a.into(), b.into());
        if let (Operand::Literal(x), Operand::Literal(y)) = (a, b)
            && let Some(z) = fold_binary(op, x, y)
        {
            return Operand::Literal(z);
        }
        match self.unify(loc, a, b) {
            Some((a, b)) => self.push(loc, Op::Binary(op, a, b)),
            None => Operand::Poison,
        }
    }

    /// An element-wise comparison.
    pub fn compare(&mut self, loc: Loc, p: Predicate, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        match self.unify(loc, a.into(), b.into()) {
            Some((a, b)) => self.push(loc, Op::Compare(p, a, b)),
            None => Operand::Poison,
        }
    }

    /// `cond ? on_true : on_false`, with broadcasting and adapting literals.
    pub fn select(&mut self, loc: Loc, cond: Operand, on_true: impl Into<Operand>, on_false: impl Into<Operand>) -> Operand {
        let Operand::Value(c) = cond else { return Operand::Poison };
        let (t, f) = (on_true.into(), on_false.into());
        // Two literals choose an f32 tile.
        let t = if let (Operand::Literal(x), Operand::Literal(_)) = (t, f) { self.splat(loc, x, DType::F32, &[]) } else { t };
        let Some((t, f)) = self.unify(loc, t, f) else { return Operand::Poison };
        let Some(shape) = broadcast_shapes(&self.kernel.ty(c).shape, &self.kernel.ty(t).shape) else {
            let message = format!("`select` of {} by a condition {}", self.kernel.ty(t), self.kernel.ty(c));
            self.error(107, loc, message);
            return Operand::Poison;
        };
        let [c, t, f] = [c, t, f].map(|v| self.broadcast_value(loc, v, &shape));
        match (c, t, f) {
            (Some(cond), Some(on_true), Some(on_false)) => self.push(loc, Op::Select { cond, on_true, on_false }),
            _ => Operand::Poison,
        }
    }

    /// Conversion to another element type; no operation if it has that type already.
    pub fn cast(&mut self, loc: Loc, dtype: DType, x: impl Into<Operand>) -> Operand {
        match x.into() {
            Operand::Value(v) if self.kernel.ty(v).dtype == dtype => Operand::Value(v),
            Operand::Value(v) => self.push(loc, Op::Cast(dtype, v)),
            Operand::Literal(x) => self.splat(loc, x, dtype, &[]),
            Operand::Poison => Operand::Poison,
        }
    }

    /// Broadcast to a shape.
    pub fn broadcast(&mut self, loc: Loc, x: Operand, shape: &[u32]) -> Operand {
        let Operand::Value(v) = x else { return x };
        self.broadcast_value(loc, v, shape).map_or(Operand::Poison, Operand::Value)
    }

    /// Adds or drops axes of extent 1.
    pub fn reshape(&mut self, loc: Loc, x: Operand, shape: &[u32]) -> Operand {
        self.on_value(loc, x, "reshape", |v| Op::Reshape { value: v, shape: shape.to_vec() })
    }

    /// Transpose of a rank-2 tile.
    pub fn transpose(&mut self, loc: Loc, x: Operand) -> Operand {
        self.on_value(loc, x, "t", Op::Transpose)
    }

    /// Folds one axis, which stays with extent 1.
    pub fn reduce(&mut self, loc: Loc, op: ReduceOp, x: Operand, axis: u8) -> Operand {
        self.on_value(loc, x, op.name(), |value| Op::Reduce { op, value, axes: vec![axis] })
    }

    /// Folds every axis to a scalar.
    pub fn reduce_all(&mut self, loc: Loc, op: ReduceOp, x: Operand) -> Operand {
        let Operand::Value(v) = x else { return x };
        let rank = self.kernel.ty(v).rank();
        if rank == 0 {
            return x;
        }
        let folded = self.push(loc, Op::Reduce { op, value: v, axes: (0..rank as u8).collect() });
        self.reshape(loc, folded, &[])
    }

    /// `a · b`.
    pub fn dot(&mut self, loc: Loc, a: Operand, b: Operand, precision: Precision) -> Operand {
        let (Operand::Value(a), Operand::Value(b)) = (a, b) else { return Operand::Poison };
        self.push(loc, Op::Dot { a, b, acc: None, precision })
    }

    /// `acc + a · b`: what `acc += dot(a, b)` means.
    pub fn dot_acc(&mut self, loc: Loc, acc: Operand, a: Operand, b: Operand, precision: Precision) -> Operand {
        let (Operand::Value(a), Operand::Value(b), Operand::Value(c)) = (a, b, acc) else { return Operand::Poison };
        self.push(loc, Op::Dot { a, b, acc: Some(c), precision })
    }

    /// Loads a tile.
    pub fn load(&mut self, loc: Loc, param: Param, index: &[Index]) -> Operand {
        match self.slices(loc, index) {
            Some(slices) => self.push(loc, Op::Load { param, slices }),
            None => Operand::Poison,
        }
    }

    /// Stores a tile; a scalar value fills it, a literal adapts.
    pub fn store(&mut self, loc: Loc, param: Param, index: &[Index], value: Operand) {
        let Some(slices) = self.slices(loc, index) else { return };
        let target = match infer(&self.kernel, &Op::Load { param, slices: slices.clone() }, loc) {
            Ok(types) => types[0].clone(),
            Err(d) => return self.errors.push(d),
        };
        let value = match value {
            Operand::Literal(x) => self.splat(loc, x, target.dtype, &target.shape),
            v => v,
        };
        let Operand::Value(v) = value else { return };
        // A scalar, or a tile that differs by axes of extent 1 alone, is brought to the target's extents.
        let core = |s: &[u32]| s.iter().copied().filter(|&e| e != 1).collect::<Vec<_>>();
        let shape = self.kernel.ty(v).shape.clone();
        let value = if shape == target.shape {
            Operand::Value(v)
        } else if shape.len() != target.shape.len() && core(&shape) == core(&target.shape) {
            self.reshape(loc, Operand::Value(v), &target.shape)
        } else {
            self.broadcast(loc, Operand::Value(v), &target.shape)
        };
        if let Operand::Value(value) = value {
            self.push(loc, Op::Store { param, slices, value });
        }
    }

    /// Number of tiles of `size` elements in a dim, as a loop bound.
    pub fn tiles(&mut self, loc: Loc, dim: Dim, size: u32) -> Operand {
        match self.kernel.dims[dim].size {
            DimSize::Const(n) => Operand::Literal(n.div_ceil(u64::from(size)) as f64),
            DimSize::Dynamic { .. } => self.push(loc, Op::DimTiles { dim, size }),
        }
    }

    /// A loop. `tile` is the size of the tiles that the index counts, if it counts tiles.
    /// `body` gets the index and the carried operands and returns the next ones.
    #[allow(clippy::too_many_arguments, reason = "one argument per part of the loop syntax")]
    pub fn for_loop(
        &mut self,
        loc: Loc,
        kind: LoopKind,
        lo: Operand,
        hi: Operand,
        tile: Option<u32>,
        carried: &[Operand],
        body: impl FnOnce(&mut Builder, Operand, &[Operand]) -> Vec<Operand>,
    ) -> Vec<Operand> {
        let poison = vec![Operand::Poison; carried.len()];
        let (Some(lo), Some(hi)) = (self.index_scalar(loc, lo), self.index_scalar(loc, hi)) else { return poison };
        // A literal carried in is an f32 scalar.
        let inits: Option<Vec<Value>> = carried
            .iter()
            .map(|&c| match c {
                Operand::Literal(x) => self.splat(loc, x, DType::F32, &[]),
                c => c,
            })
            .map(|c| if let Operand::Value(v) = c { Some(v) } else { None })
            .collect();
        let Some(inits) = inits else { return poison };
        let block = self.kernel.blocks.push(crate::ir::BlockData::default());
        let index = self.kernel.push_block_param(block, TileType::scalar(DType::I32));
        if let Some(size) = tile {
            self.tile_coords.insert(index, size);
        }
        let params: Vec<Operand> = inits
            .iter()
            .map(|&v| {
                let ty = self.kernel.ty(v).clone();
                Operand::Value(self.kernel.push_block_param(block, ty))
            })
            .collect();
        self.open.push(block);
        let next = body(self, index.into(), &params);
        let mut yields = Vec::new();
        for (&init, next) in inits.iter().zip(next) {
            let want = self.kernel.ty(init).clone();
            let next = match next {
                Operand::Literal(x) => self.splat(loc, x, want.dtype, &want.shape),
                n => n,
            };
            let Operand::Value(mut v) = next else { continue };
            if self.kernel.ty(v).dtype == want.dtype && self.kernel.ty(v).shape != want.shape {
                v = self.broadcast_value(loc, v, &want.shape).unwrap_or(v);
            }
            if *self.kernel.ty(v) != want {
                let found = self.kernel.ty(v).clone();
                self.error(116, loc, format!("a loop carries {want}, but its body leaves {found}"));
            }
            yields.push(v);
        }
        if yields.len() == inits.len() {
            self.push(loc, Op::Yield(yields));
        }
        self.open.pop();
        let op = Op::Loop { kind, lo, hi, inits, body: block };
        match infer(&self.kernel, &op, loc) {
            Ok(types) => {
                let at = *self.open.last().unwrap_or(&self.kernel.body);
                let inst = self.kernel.push_inst(at, op, &types, loc);
                self.kernel.results[inst].iter().map(|&v| v.into()).collect()
            }
            Err(d) => {
                self.errors.push(d);
                poison
            }
        }
    }

    /// Extents of an operand; empty for literals and poison.
    pub fn shape_of(&self, x: Operand) -> Vec<u32> {
        match x {
            Operand::Value(v) => self.kernel.ty(v).shape.clone(),
            _ => Vec::new(),
        }
    }

    /// Records a diagnostic.
    pub fn error(&mut self, code: u16, loc: Loc, message: impl Into<String>) {
        self.errors.push(Diagnostic::new(code, loc, message));
    }

    fn push(&mut self, loc: Loc, op: Op) -> Operand {
        match infer(&self.kernel, &op, loc) {
            Ok(types) => {
                let at = *self.open.last().unwrap_or(&self.kernel.body);
                let inst = self.kernel.push_inst(at, op, &types, loc);
                self.kernel.results[inst].first().map_or(Operand::Poison, |&v| v.into())
            }
            Err(d) => {
                self.errors.push(d);
                Operand::Poison
            }
        }
    }

    fn on_value(&mut self, loc: Loc, x: Operand, what: &str, op: impl FnOnce(Value) -> Op) -> Operand {
        match x {
            Operand::Value(v) => self.push(loc, op(v)),
            Operand::Literal(_) => {
                self.error(104, loc, format!("`{what}` needs a tile, found a literal"));
                Operand::Poison
            }
            Operand::Poison => Operand::Poison,
        }
    }

    /// An operand as an i32 scalar: a coordinate, a size or a whole literal.
    fn index_scalar(&mut self, loc: Loc, x: Operand) -> Option<Value> {
        match x {
            Operand::Value(v) => Some(v),
            Operand::Literal(x) => match self.splat(loc, x, DType::I32, &[]) {
                Operand::Value(v) => Some(v),
                _ => None,
            },
            Operand::Poison => None,
        }
    }

    fn slices(&mut self, loc: Loc, index: &[Index]) -> Option<Vec<Slice>> {
        index
            .iter()
            .map(|i| {
                Some(match *i {
                    Index::Whole => Slice::Whole,
                    Index::Span(start, len) => Slice::Span { start: self.index_scalar(loc, start)?, len },
                    Index::At(x) => {
                        let v = self.index_scalar(loc, x)?;
                        match self.tile_coords.get(&v) {
                            Some(&size) => Slice::Tile { index: v, size },
                            None => Slice::At(v),
                        }
                    }
                })
            })
            .collect()
    }

    fn broadcast_value(&mut self, loc: Loc, v: Value, shape: &[u32]) -> Option<Value> {
        if self.kernel.ty(v).shape == shape {
            return Some(v);
        }
        match self.push(loc, Op::Broadcast { value: v, shape: shape.to_vec() }) {
            Operand::Value(v) => Some(v),
            _ => None,
        }
    }

    /// Two operands as values of one shape: literals become scalars of the other's type, then both broadcast.
    fn unify(&mut self, loc: Loc, a: Operand, b: Operand) -> Option<(Value, Value)> {
        let (a, b) = match (a, b) {
            (Operand::Poison, _) | (_, Operand::Poison) => return None,
            (Operand::Value(a), Operand::Value(b)) => (a, b),
            (Operand::Value(a), Operand::Literal(y)) => (a, self.literal_like(loc, y, a)?),
            (Operand::Literal(x), Operand::Value(b)) => (self.literal_like(loc, x, b)?, b),
            (Operand::Literal(x), Operand::Literal(y)) => {
                let a = self.splat(loc, x, DType::F32, &[]);
                let Operand::Value(a) = a else { return None };
                (a, self.literal_like(loc, y, a)?)
            }
        };
        let (x, y) = (self.kernel.ty(a).clone(), self.kernel.ty(b).clone());
        let Some(shape) = broadcast_shapes(&x.shape, &y.shape) else {
            self.error(107, loc, format!("tiles {x} and {y} do not broadcast to one shape"));
            return None;
        };
        Some((self.broadcast_value(loc, a, &shape)?, self.broadcast_value(loc, b, &shape)?))
    }

    fn literal_like(&mut self, loc: Loc, x: f64, like: Value) -> Option<Value> {
        let dtype = self.kernel.ty(like).dtype;
        if dtype.is_int() && x.fract() != 0.0 {
            self.error(117, loc, format!("the literal {x} is not a whole number, but meets {dtype}"));
            return None;
        }
        match self.splat(loc, x, dtype, &[]) {
            Operand::Value(v) => Some(v),
            _ => None,
        }
    }
}

/// The value of an element-wise operation of a constant, in f64; `None` where it has none.
pub fn fold_unary(op: UnaryOp, x: f64) -> Option<f64> {
    Some(match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Exp2 => x.exp2(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Erf if x == 0.0 => 0.0,
        UnaryOp::Erf | UnaryOp::Not => return None,
    })
}

/// The value of an element-wise operation of two constants, in f64; `None` where it has none.
pub fn fold_binary(op: BinaryOp, x: f64, y: f64) -> Option<f64> {
    Some(match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
        BinaryOp::Rem => x % y,
        BinaryOp::Min => x.min(y),
        BinaryOp::Max => x.max(y),
        BinaryOp::And | BinaryOp::Or => return None,
    })
}
