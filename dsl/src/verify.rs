//! The rules that a Tile IR kernel keeps; [`verify`] reports every breach and is the only way to a [`Verified`].
//!
//! | code | invariant |
//! |---|---|
//! | 1xx | every operation keeps the typing rules of [`crate::infer`] |
//! | 201 | every id refers to something that exists |
//! | 202 | every value is defined in one place, the one that its data names |
//! | 203 | the types of an operation's results are those that its operands give |
//! | 204 | an operand is defined earlier in its block or in a block around it |
//! | 205 | a block is the body of one loop, and an instruction stands in one place |
//! | 206 | a loop's body ends in `yield` |
//! | 207 | `yield` gives one value per carried value, of its type |
//! | 208 | `yield` stands nowhere else |
//! | 209 | the parameters of a loop's body are an i32 index and the carried values, of their types |
//! | 210 | stores go to `out` parameters alone |
//! | 211 | an `out` parameter is loaded only through slices that some store of it has |
//! | 212 | every `out` parameter is stored to |
//! | 213 | a store has every grid coordinate as an element or a tile index of its own: programs write apart |
//! | 214 | the stores to one parameter have a coordinate on the same axis in the same slice |
//! | 215 | names of parameters, of dims and of tables are unique |
//! | 216 | names are words |
//! | 217 | the grid has an axis |
//! | 218 | divisors and constant sizes of dims are at least 1 |
//! | 219 | a table has as many values as its extents say, which are at least 1 |
//! | 220 | extents of tiles and sizes of slices are at least 1 |
//! | 221 | a tile has at most 2^20 elements |
//! | 222 | a tile slice at a grid coordinate that counts tiles has the size of these tiles |
//! | 223 | no parameter is bool |
//! | 224 | a tensor has one stride per dim; an `out` tensor has stride 0 on dims of one element alone |
//! | 225 | alignments are powers of two, and at least an element |
//!
//! Values that nothing uses are allowed. A loop may store to one region in every iterate: its order is defined.

use crate::diag::{Diagnostic, Diagnostics};
use crate::entity::{Block, Dim, Inst, Param, Value};
use crate::infer::infer;
use crate::ir::{Access, DimSize, GridExtent, Kernel, Loc, ParamKind, Stride, ValueDef};
use crate::op::{Op, Slice};
use crate::types::{DType, TileType};
use cranelift_entity::EntitySet;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;

/// The most elements that a tile may have.
pub const MAX_TILE_ELEMENTS: u64 = 1 << 20;

/// An IR whose rules can be checked.
pub trait Invariants {
    /// Every breach of the rules, in the order of the text.
    fn violations(&self) -> Vec<Diagnostic>;
}

/// A kernel that keeps every rule of its IR. Made by [`verify`] alone, and immutable.
#[derive(Clone, Debug)]
pub struct Verified<K>(K);

impl<K> Verified<K> {
    /// Gives the kernel back for changing; it has to be verified again.
    pub fn into_inner(self) -> K {
        self.0
    }
}

impl<K> Deref for Verified<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K: fmt::Display> fmt::Display for Verified<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Checks every rule; returns the kernel, or everything that is wrong with it.
pub fn verify<K: Invariants>(kernel: K) -> Result<Verified<K>, Diagnostics> {
    let errors = kernel.violations();
    if errors.is_empty() { Ok(Verified(kernel)) } else { Err(Diagnostics(errors)) }
}

impl Invariants for Kernel {
    fn violations(&self) -> Vec<Diagnostic> {
        let mut v = Verifier { kernel: self, errors: Vec::new(), accesses: Vec::new() };
        v.ids();
        // The other rules read through ids and recurse into bodies.
        if v.errors.is_empty() {
            v.signature();
            let mut visible = EntitySet::new();
            for (i, axis) in self.grid.iter().enumerate() {
                v.definition(axis.coord, ValueDef::Grid(i as u32), Loc::default());
                visible.insert(axis.coord);
            }
            v.block(self.body, None, &mut visible);
            v.stores();
        }
        v.errors
    }
}

/// A load or a store, kept for the rules on regions.
struct TileAccess<'k> {
    param: Param,
    slices: &'k [Slice],
    loc: Loc,
    is_store: bool,
}

struct Verifier<'k> {
    kernel: &'k Kernel,
    errors: Vec<Diagnostic>,
    accesses: Vec<TileAccess<'k>>,
}

/// The loop whose body is being checked.
struct Around<'k> {
    inits: &'k [Value],
    loc: Loc,
}

impl<'k> Verifier<'k> {
    fn error(&mut self, code: u16, loc: Loc, message: impl Into<String>) {
        self.errors.push(Diagnostic::new(code, loc, message));
    }

    /// 201 and 205.
    fn ids(&mut self) {
        let k = self.kernel;
        for p in k.params.values() {
            if let ParamKind::Tensor { dims, .. } = &p.kind {
                dims.iter().for_each(|&d| self.dim_exists(d, Loc::default()));
            }
        }
        for axis in &k.grid {
            let (GridExtent::Points(d) | GridExtent::Tiles { dim: d, .. }) = axis.extent;
            self.dim_exists(d, Loc::default());
            self.value_exists(axis.coord, Loc::default());
        }
        let (mut blocks, mut insts) = (BTreeSet::new(), BTreeSet::new());
        self.block_ids(k.body, Loc::default(), &mut blocks, &mut insts);
    }

    fn block_ids(&mut self, block: Block, loc: Loc, blocks: &mut BTreeSet<Block>, insts: &mut BTreeSet<Inst>) {
        let k = self.kernel;
        let Some(data) = k.blocks.get(block) else {
            return self.error(201, loc, format!("there is no block {block}"));
        };
        if !blocks.insert(block) {
            return self.error(205, loc, format!("{block} is the body of this loop and of another"));
        }
        data.params.iter().for_each(|&v| self.value_exists(v, loc));
        for &inst in &data.insts {
            let loc = k.locs[inst];
            let Some(op) = k.insts.get(inst) else {
                self.error(201, loc, format!("there is no instruction {inst}"));
                continue;
            };
            if !insts.insert(inst) {
                self.error(205, loc, format!("{inst} stands in two places"));
                continue;
            }
            op.visit_operands(|v| self.value_exists(v, loc));
            k.results[inst].iter().for_each(|&v| self.value_exists(v, loc));
            match op {
                Op::DimSize(d) | Op::DimTiles { dim: d, .. } => self.dim_exists(*d, loc),
                Op::ScalarParam(p) | Op::Load { param: p, .. } | Op::Store { param: p, .. }
                    if !k.params.is_valid(*p) =>
                {
                    self.error(201, loc, format!("there is no parameter {p}"));
                }
                Op::TableGet { table, .. } if !k.tables.is_valid(*table) => {
                    self.error(201, loc, format!("there is no table {table}"));
                }
                Op::Loop { body, .. } => self.block_ids(*body, loc, blocks, insts),
                _ => {}
            }
        }
    }

    fn dim_exists(&mut self, d: Dim, loc: Loc) {
        if !self.kernel.dims.is_valid(d) {
            self.error(201, loc, format!("there is no dim {d}"));
        }
    }

    fn value_exists(&mut self, v: Value, loc: Loc) {
        if !self.kernel.values.is_valid(v) {
            self.error(201, loc, format!("there is no value {v}"));
        }
    }

    /// Parameters, dims, tables and the grid: 215 to 220 and 223 to 225.
    fn signature(&mut self) {
        let (k, at) = (self.kernel, Loc::default());
        self.names("parameter", k.params.values().map(|p| &p.name));
        self.names("dim", k.dims.values().map(|d| &d.name));
        self.names("table", k.tables.values().map(|t| &t.name));
        self.names("kernel", [&k.name]);
        for d in k.dims.values() {
            match d.size {
                DimSize::Const(0) => self.error(218, at, format!("dim `{}` has no elements", d.name)),
                DimSize::Dynamic { divisor: 0 } => self.error(218, at, format!("dim `{}` has divisor 0", d.name)),
                _ => {}
            }
        }
        for p in k.params.values() {
            let name = &p.name;
            let (ParamKind::Scalar { dtype } | ParamKind::Tensor { dtype, .. }) = &p.kind;
            if *dtype == DType::Bool {
                self.error(223, at, format!("parameter `{name}` is bool, a type that exists inside kernels alone"));
            }
            let ParamKind::Tensor { dims, strides, align, access, .. } = &p.kind else { continue };
            if strides.len() != dims.len() {
                self.error(224, at, format!("`{name}` has rank {}, but {} strides", dims.len(), strides.len()));
            }
            for (stride, &dim) in strides.iter().zip(dims) {
                let dim = &k.dims[dim];
                if *stride == (Stride::Dynamic { divisor: 0 }) {
                    self.error(218, at, format!("the stride of `{name}` along `{}` has divisor 0", dim.name));
                }
                if *access == Access::Out && *stride == Stride::Const(0) && dim.size != DimSize::Const(1) {
                    let message = format!("`{name}` is written, but has stride 0 along `{}`", dim.name);
                    self.error(224, at, message);
                }
            }
            if !align.is_power_of_two() || *align < dtype.bytes() {
                let message =
                    format!("`{name}` has alignment {align}; wanted a power of two from {} bytes up", dtype.bytes());
                self.error(225, at, message);
            }
        }
        for t in k.tables.values() {
            if t.shape.contains(&0) || elements(&t.shape) != t.values.len() as u64 {
                let message = format!("table `{}` of extents {:?} has {} values", t.name, t.shape, t.values.len());
                self.error(219, at, message);
            }
        }
        if k.grid.is_empty() {
            self.error(217, at, "the grid has no axis");
        }
        for axis in &k.grid {
            if let GridExtent::Tiles { dim, size: 0 } = axis.extent {
                self.error(220, at, format!("the grid has tiles of 0 elements of `{}`", k.dims[dim].name));
            }
        }
    }

    fn names<'n>(&mut self, what: &str, names: impl IntoIterator<Item = &'n String>) {
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name) {
                self.error(215, Loc::default(), format!("two {what}s are called `{name}`"));
            }
            let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            if !starts || name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                self.error(216, Loc::default(), format!("the {what} name `{name}` is not a word"));
            }
        }
    }

    /// 202, 220 and 221 for one value.
    fn definition(&mut self, v: Value, def: ValueDef, loc: Loc) {
        let data = &self.kernel.values[v];
        if data.def != def {
            self.error(202, loc, format!("{v} is defined here, but its data says {:?}", data.def));
        }
        if matches!(def, ValueDef::Grid(_)) && data.ty != TileType::scalar(DType::I32) {
            self.error(203, loc, format!("a grid coordinate is a scalar i32, found {}", data.ty));
        }
        if data.ty.shape.contains(&0) {
            self.error(220, loc, format!("the tile {} has an extent of 0", data.ty));
        }
        if elements(&data.ty.shape) > MAX_TILE_ELEMENTS {
            self.error(221, loc, format!("the tile {} has more than {MAX_TILE_ELEMENTS} elements", data.ty));
        }
    }

    /// The rules of one block; `around` is the loop that it is the body of.
    fn block(&mut self, block: Block, around: Option<&Around<'k>>, visible: &mut EntitySet<Value>) {
        let k = self.kernel;
        let data = &k.blocks[block];
        let mut defined = Vec::new();
        let place = around.map_or(Loc::default(), |a| a.loc);
        for (i, &v) in data.params.iter().enumerate() {
            self.definition(v, ValueDef::BlockParam(block, i as u32), place);
            defined.push(v);
            visible.insert(v);
        }
        self.body_params(&data.params, around);
        for (at, &inst) in data.insts.iter().enumerate() {
            let (op, loc) = (&k.insts[inst], k.locs[inst]);
            op.visit_operands(|v| {
                if !visible.contains(v) {
                    self.error(204, loc, format!("the operand {v} is not defined at this place"))
                }
            });
            self.types(inst, op, loc);
            match op {
                Op::Loop { inits, body, .. } => self.block(*body, Some(&Around { inits, loc }), visible),
                Op::Yield(values) => match around {
                    None => self.error(208, loc, "`yield` in the kernel's body; it ends the body of a loop"),
                    Some(_) if at + 1 != data.insts.len() => {
                        self.error(208, loc, "`yield` before the end of the loop's body")
                    }
                    Some(around) => self.yield_(values, around, loc),
                },
                Op::Load { param, slices } => self.access(TileAccess { param: *param, slices, loc, is_store: false }),
                Op::Store { param, slices, .. } => {
                    self.access(TileAccess { param: *param, slices, loc, is_store: true })
                }
                Op::DimTiles { dim, size: 0 } => {
                    self.error(220, loc, format!("tiles of 0 elements of `{}`", k.dims[*dim].name));
                }
                _ => {}
            }
            for (i, &v) in k.results[inst].iter().enumerate() {
                self.definition(v, ValueDef::Result(inst, i as u32), loc);
                defined.push(v);
                visible.insert(v);
            }
        }
        if let Some(around) = around
            && !data.insts.last().is_some_and(|&i| matches!(k.insts[i], Op::Yield(_)))
        {
            self.error(206, around.loc, "the loop's body does not end in `yield`");
        }
        for v in defined {
            visible.remove(v);
        }
    }

    /// 209.
    fn body_params(&mut self, params: &[Value], around: Option<&Around<'k>>) {
        let k = self.kernel;
        let types = |vs: &[Value]| vs.iter().map(|&v| k.ty(v).clone()).collect::<Vec<_>>();
        match around {
            None if params.is_empty() => {}
            None => self.error(209, Loc::default(), "the kernel's body has parameters"),
            Some(around) => {
                let mut want = vec![TileType::scalar(DType::I32)];
                want.extend(types(around.inits));
                if types(params) != want {
                    let message = format!("the loop's body wants {}, but has {}", list(&want), list(&types(params)));
                    self.error(209, around.loc, message);
                }
            }
        }
    }

    /// 1xx and 203.
    fn types(&mut self, inst: Inst, op: &Op, loc: Loc) {
        let found: Vec<TileType> = self.kernel.results[inst].iter().map(|&v| self.kernel.ty(v).clone()).collect();
        match infer(self.kernel, op, loc) {
            Err(d) => self.errors.push(d),
            Ok(want) if want != found => {
                self.error(
                    203,
                    loc,
                    format!("the operation gives {}, but its results are {}", list(&want), list(&found)),
                );
            }
            Ok(_) => {}
        }
    }

    /// 207.
    fn yield_(&mut self, values: &[Value], around: &Around<'k>, loc: Loc) {
        if values.len() != around.inits.len() {
            let message = format!("the loop carries {} values, but `yield` gives {}", around.inits.len(), values.len());
            return self.error(207, loc, message);
        }
        for (i, (&v, &init)) in values.iter().zip(around.inits).enumerate() {
            let (found, want) = (self.kernel.ty(v), self.kernel.ty(init));
            if found != want {
                self.error(207, loc, format!("the carried value {i} is {want}, but `yield` gives {found}"));
            }
        }
    }

    /// 210, 213, 220 and 222.
    fn access(&mut self, access: TileAccess<'k>) {
        let (k, loc) = (self.kernel, access.loc);
        let data = &k.params[access.param];
        for slice in access.slices {
            if let Slice::Tile { size: 0, .. } | Slice::Span { len: 0, .. } = slice {
                self.error(220, loc, format!("a slice of `{}` has 0 elements", data.name));
            }
            if let Slice::Tile { index, size } = slice
                && let Some(axis) = k.grid.iter().find(|a| a.coord == *index)
                && let GridExtent::Tiles { dim, size: want } = axis.extent
                && *size != want
            {
                let message = format!(
                    "the grid counts tiles of {want} elements of `{}`, but `{}` is sliced in tiles of {size}",
                    k.dims[dim].name, data.name
                );
                self.error(222, loc, message);
            }
        }
        if access.is_store {
            if is_out(k, access.param) {
                for axis in &k.grid {
                    if !access.slices.iter().any(|s| coordinate(s) == Some(axis.coord)) {
                        let message = format!(
                            "the store to `{}` does not use the grid coordinate of {}",
                            data.name,
                            axis_text(k, axis.extent)
                        );
                        let note = "programs that differ in this coordinate alone would write the same elements";
                        self.errors.push(Diagnostic::new(213, loc, message).note(note));
                    }
                }
            } else {
                self.error(210, loc, format!("`{}` is stored to, but is not `out`", data.name));
            }
        }
        self.accesses.push(access);
    }

    /// The rules on all accesses to one parameter: 211, 212 and 214.
    fn stores(&mut self) {
        let k = self.kernel;
        let accesses = std::mem::take(&mut self.accesses);
        for (param, data) in k.params.iter().filter(|(p, _)| is_out(k, *p)) {
            let stores: Vec<_> = accesses.iter().filter(|a| a.param == param && a.is_store).collect();
            if stores.is_empty() {
                self.error(212, Loc::default(), format!("`{}` is `out`, but never stored to", data.name));
            }
            for load in accesses.iter().filter(|a| a.param == param && !a.is_store) {
                if !stores.iter().any(|s| s.slices == load.slices) {
                    let message = format!("`{}` is `out`, and no store of it has the slices of this load", data.name);
                    let note = "a program may read what it writes itself, nothing else";
                    self.errors.push(Diagnostic::new(211, load.loc, message).note(note));
                }
            }
            // Where every store so far has each coordinate.
            let mut common: BTreeMap<Value, Vec<(usize, Slice)>> = BTreeMap::new();
            for store in stores {
                for axis in &k.grid {
                    let places: Vec<(usize, Slice)> = store
                        .slices
                        .iter()
                        .copied()
                        .enumerate()
                        .filter(|(_, s)| coordinate(s) == Some(axis.coord))
                        .collect();
                    if places.is_empty() {
                        continue; // 213 has been reported.
                    }
                    let known = common.entry(axis.coord).or_insert_with(|| places.clone());
                    known.retain(|p| places.contains(p));
                    if known.is_empty() {
                        *known = places;
                        let message = format!(
                            "this store to `{}` has the grid coordinate of {} in another slice than the store before",
                            data.name,
                            axis_text(k, axis.extent)
                        );
                        self.error(214, store.loc, message);
                    }
                }
            }
        }
    }
}

fn is_out(k: &Kernel, p: Param) -> bool {
    matches!(k.params[p].kind, ParamKind::Tensor { access: Access::Out, .. })
}

/// The value that picks one element or one tile, so that different numbers pick disjoint regions.
fn coordinate(slice: &Slice) -> Option<Value> {
    match *slice {
        Slice::At(v) | Slice::Tile { index: v, .. } => Some(v),
        Slice::Span { .. } | Slice::Whole => None,
    }
}

fn axis_text(k: &Kernel, extent: GridExtent) -> String {
    match extent {
        GridExtent::Points(d) => format!("`{}`", k.dims[d].name),
        GridExtent::Tiles { dim, size } => format!("`tiles({}, {size})`", k.dims[dim].name),
    }
}

fn list(types: &[TileType]) -> String {
    let texts: Vec<String> = types.iter().map(TileType::to_string).collect();
    if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") }
}

/// The product of extents, saturated.
fn elements(shape: &[u32]) -> u64 {
    shape.iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e)))
}
