//! Appends operations to a kernel and infers their types. `atlas_kernel!` expands to calls of it.
//!
//! Mistakes do not stop the builder: a wrong operation records a diagnostic and gives a poison
//! operand that silences what follows from it. [`Builder::finish`] returns all of them.
//!
//! | file | holds |
//! |---|---|
//! | `operands` | what an expression denotes; literals that adapt, extents that broadcast |
//! | `elementwise` | operations of one element each |
//! | `random` | random numbers by counter, made of element-wise operations |
//! | `loops` | loops and what they carry |
//! | `fold` | operations of constants |
//! | `extents` | extents that depend on a config and on consts |
//! | `derivative` | derivatives of functions of tiles, in reverse and forward mode |
//!
//! The signature, memory, shapes, reductions and products are here.

mod derivative;
mod elementwise;
mod extents;
mod fold;
mod loops;
mod operands;
mod random;

pub use fold::{fold_binary, fold_whole};
pub use operands::{Index, Operand};

use crate::config::Config;
use crate::def::{DTypeRef, KernelDef, ParamDef};
use crate::diag::{Diagnostic, Diagnostics};
use crate::entity::{Block, Dim, Param, Table, Value};
use crate::infer::infer;
use crate::ir::{DimData, DimSize, GridExtent, Kernel, Loc, ParamData, ParamKind, Stride, TableData};
use crate::op::{Op, Precision, ReduceOp, Update};
use crate::specialization::{DimFact, Specialization};
use crate::types::{DType, reshape_axes};
use atlas_vocabulary::number;
use std::collections::BTreeMap;

/// What a table is: its name in the source, its extents and the bits of its elements.
type TableKey = (String, Vec<u32>, Vec<u32>);

/// Builds a [`Kernel`]. The first argument of every appending method is the location of the user's token.
pub struct Builder {
    kernel: Kernel,
    /// The open blocks, innermost last.
    open: Vec<Block>,
    /// Scalars that are tile coordinates, and the size of their tiles.
    tile_coords: BTreeMap<Value, u32>,
    /// Tables by name, extents and elements. Two consts of one name in two modules are two tables.
    tables: BTreeMap<TableKey, Table>,
    types: Vec<DType>,
    config: Config,
    errors: Vec<Diagnostic>,
    /// Where a function of another file is called that is appending now.
    elsewhere: Option<Loc>,
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
            elsewhere: None,
        };
        b.kernel.source_file = Some(def.file.to_owned());
        b.open.push(b.kernel.body);
        for t in def.types {
            let dtype = spec.types.get(t.name).copied().unwrap_or(t.allowed[0]);
            if !t.allowed.contains(&dtype) {
                b.error(
                    115,
                    Loc::default(),
                    format!("type parameter `{}` of `{}` cannot be {dtype}", t.name, def.name),
                );
            }
            b.types.push(dtype);
        }
        for d in def.dims {
            let size = DimSize::from(spec.dims.get(d.name).copied().unwrap_or(DimFact::Dynamic(1)));
            if d.whole && !matches!(size, DimSize::Const(_)) {
                b.error(
                    114,
                    Loc::default(),
                    format!("dim `{}` of `{}` is used whole, so it must be a constant", d.name, def.name),
                );
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
                        b.error(
                            113,
                            Loc::default(),
                            format!(
                                "`{name}` has rank {}, but the number of its strides is {}",
                                dims.len(),
                                strides.len()
                            ),
                        );
                    }
                    let strides: Vec<Stride> = strides.into_iter().map(Stride::from).collect();
                    ParamKind::Tensor { dtype: b.dtype(*dtype), dims, strides, axes: vec![], align, access: *access }
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

    /// A tile size of the config; reports a config that lacks it.
    pub fn tune(&mut self, loc: Loc, name: &str) -> u32 {
        match self.config.tile.get(name) {
            Some(0) => {
                self.error(301, loc, format!("config sets `{name}` to 0; a tile has at least one element"));
                1
            }
            Some(&v) => v,
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
            DimSize::Const(n) => Operand::from(n as usize),
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

    /// The last grid axis, after one of the same tiles: one coordinate per tile up to the coordinate before.
    pub fn grid_up_to(&mut self, dim: Dim, size: u32) -> Operand {
        let v = self.kernel.push_grid_axis(GridExtent::UpTo { dim, size });
        self.tile_coords.insert(v, size);
        v.into()
    }

    /// Makes the programs along the last grid axis a cluster.
    pub fn cluster(&mut self) {
        self.kernel.cluster = true;
    }

    /// A scalar parameter's value.
    pub fn scalar(&mut self, loc: Loc, param: Param) -> Operand {
        self.push(loc, Op::ScalarParam(param))
    }

    /// An element of a constant table, `TABLE[i][j]`. `values` is row-major, and each of them an f32.
    pub fn table_get(&mut self, loc: Loc, name: &str, shape: &[u32], values: &[f64], indices: &[Operand]) -> Operand {
        if let Some(&x) = values.iter().find(|&&x| f64::from(x as f32) != x && !x.is_nan()) {
            let message = format!(
                "`{name}` has the element {}, but elements of a table are f32, of which the nearest is {}; declare the const as an array of `f32`",
                number(x),
                number(f64::from(x as f32))
            );
            self.error(117, loc, message);
            return Operand::Poison;
        }
        let values: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        let bits = values.iter().map(|v| v.to_bits()).collect();
        let table = *self.tables.entry((name.to_owned(), shape.to_vec(), bits)).or_insert_with(|| {
            let tables = &mut self.kernel.tables;
            let is_free = |name: &String| tables.values().all(|t| t.name != *name);
            let numbered = (2..).map(|i| format!("{name}_{i}"));
            let name = std::iter::once(name.to_owned()).chain(numbered).find(is_free).unwrap_or_default();
            tables.push(TableData { name, shape: shape.to_vec(), values })
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

    /// A tile whose every element is `value`. An infinity must be given as such.
    pub fn splat(&mut self, loc: Loc, value: f64, dtype: DType, shape: &[u32]) -> Operand {
        if let Some(why) = dtype.overflow(value) {
            self.error(117, loc, format!("the number {} meets {dtype}, but {why}", number(value)));
            return Operand::Poison;
        }
        self.push(loc, Op::Splat { value, dtype, shape: shape.to_vec() })
    }

    /// A tile that counts along an axis.
    pub fn iota(&mut self, loc: Loc, shape: &[u32], axis: u8) -> Operand {
        self.push(loc, Op::Iota { shape: shape.to_vec(), axis })
    }

    /// Broadcast to a shape.
    pub fn broadcast(&mut self, loc: Loc, x: Operand, shape: &[u32]) -> Operand {
        match x {
            Operand::Value(v) => self.broadcast_value(loc, v, shape).map_or(Operand::Poison, Operand::Value),
            x => self.on_value(loc, x, "broadcast", |value| Op::Broadcast { value, shape: shape.to_vec() }),
        }
    }

    /// Adds or drops axes of extent 1. For each axis of the result, `kept` names the axis of the tile that it is, unless it is
    /// new.
    pub fn reshape(&mut self, loc: Loc, x: Operand, axes: &[Option<u8>]) -> Operand {
        match x {
            Operand::Value(value) => self.push(loc, Op::Reshape { value, axes: axes.to_vec() }),
            number => number,
        }
    }

    /// Transpose of a tile of rank 2. A tile of rank 1 is a row and becomes a column.
    pub fn transpose(&mut self, loc: Loc, x: Operand) -> Operand {
        if let Operand::Value(v) = x
            && self.kernel.ty(v).rank() == 1
        {
            return self.reshape(loc, x, &[Some(0), None]);
        }
        self.on_value(loc, x, "t", Op::Transpose)
    }

    /// Reduces one axis, which stays with extent 1.
    pub fn reduce(&mut self, loc: Loc, op: ReduceOp, x: Operand, axis: u8) -> Operand {
        self.on_value(loc, x, op.name(), |value| Op::Reduce { op, value, axes: vec![axis] })
    }

    /// Reduces every axis to a scalar.
    pub fn reduce_all(&mut self, loc: Loc, op: ReduceOp, x: Operand) -> Operand {
        let Operand::Value(v) = x else { return x };
        let rank = self.kernel.ty(v).rank();
        if rank == 0 {
            return x;
        }
        let folded = self.push(loc, Op::Reduce { op, value: v, axes: (0..rank as u8).collect() });
        self.reshape(loc, folded, &[])
    }

    /// Reduces each element and those before it along an axis, or those after it.
    pub fn scan(&mut self, loc: Loc, op: ReduceOp, x: Operand, axis: u8, reverse: bool) -> Operand {
        self.on_value(loc, x, op.scan_name(), |value| Op::Scan { op, value, axis, reverse })
    }

    /// The sum over the programs of the cluster.
    pub fn cluster_sum(&mut self, loc: Loc, x: Operand) -> Operand {
        self.on_value(loc, x, "cluster_sum", Op::ClusterSum)
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

    /// Stores a tile of the slices' extents. If the ranks differ, axes of extent 1 are added or dropped as the extents suggest.
    /// A literal fills the slices.
    pub fn store(&mut self, loc: Loc, param: Param, index: &[Index], value: Operand) {
        self.update(loc, Update::Replace, param, index, value);
    }

    /// Combines a tile with what is there, atomically, or stores it.
    pub fn update(&mut self, loc: Loc, update: Update, param: Param, index: &[Index], value: Operand) {
        self.store_as(loc, (update, param, index), value, |shape, target| {
            reshape_axes(shape, target).filter(|_| shape.len() != target.len())
        });
    }

    /// The same for a tile whose axes are known to be certain axes of the place, whatever their extents.
    pub fn update_axes(
        &mut self,
        loc: Loc,
        update: Update,
        param: Param,
        index: &[Index],
        value: Operand,
        axes: &[Option<u8>],
    ) {
        self.store_as(loc, (update, param, index), value, |_, _| Some(axes.to_vec()));
    }

    fn store_as(
        &mut self,
        loc: Loc,
        (update, param, index): (Update, Param, &[Index]),
        value: Operand,
        axes: impl FnOnce(&[u32], &[u32]) -> Option<Vec<Option<u8>>>,
    ) {
        let Some(slices) = self.slices(loc, index) else { return };
        let target = match infer(&self.kernel, &Op::Load { param, slices: slices.clone() }, loc) {
            Ok(types) => types[0].clone(),
            Err(d) => return self.errors.push(d),
        };
        let value = match value.number() {
            Some(x) => self.splat(loc, x, target.dtype, &target.shape),
            None => match value {
                Operand::Value(v) => match axes(&self.kernel.ty(v).shape, &target.shape) {
                    Some(axes) => self.reshape(loc, value, &axes),
                    None => value,
                },
                other => other,
            },
        };
        if let Operand::Value(value) = value {
            self.push(loc, Op::Store { param, slices, value, update });
        }
    }

    /// Extents of an operand; empty for literals and poison.
    pub fn shape_of(&self, x: Operand) -> Vec<u32> {
        match x {
            Operand::Value(v) => self.kernel.ty(v).shape.clone(),
            _ => Vec::new(),
        }
    }

    /// Calls a function whose places are those of another file: what it appends, and its mistakes, are at the call.
    pub fn call_elsewhere<R>(&mut self, loc: Loc, f: impl FnOnce(&mut Builder) -> R) -> R {
        let outer = self.elsewhere;
        self.elsewhere = Some(outer.unwrap_or(loc));
        let result = f(self);
        self.elsewhere = outer;
        result
    }

    /// Records a diagnostic.
    pub fn error(&mut self, code: u16, loc: Loc, message: impl Into<String>) {
        let loc = self.elsewhere.unwrap_or(loc);
        self.errors.push(Diagnostic::new(code, loc, message));
    }

    pub(super) fn push(&mut self, loc: Loc, op: Op) -> Operand {
        let loc = self.elsewhere.unwrap_or(loc);
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
            Operand::Literal(_) | Operand::Whole(_) => {
                self.error(104, loc, format!("`{what}` needs a tile, found a literal"));
                Operand::Poison
            }
            Operand::Poison => Operand::Poison,
        }
    }
}
