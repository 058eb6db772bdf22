//! The operations of all parts of a fusion in one kernel.
//!
//! The last part is copied as it is. Where it loads a tensor that another part makes, that part's operations are written
//! instead of the load, up to its store, with its grid coordinates replaced by those of the cover. The loads of that part are
//! treated in the same way. The operations are placed in the innermost loop on which the tile's position depends, so a tile
//! that no loop moves is made once, before the loops. A tile that was made in this block, or in one around it, is not made
//! again. Neither are operations that two tiles have in common.

use super::cover::{MakerCoordinate, cover};
use super::fit::{LARGE_TILE, fits, remark, too_large};
use super::links::{Links, Meaning, rank, refusal, stores_in_loop};
use super::maker::{Edges, axes_read, loads_of, reaches, read_by, the_store};
use super::rules;
use super::share::{For, Shared};
use super::signature::Plan;
use crate::builder::Builder;
use crate::config::Config;
use crate::def::Removed;
use crate::diag::{Diagnostic, Diagnostics};
use crate::entity::{Block, Dim, Inst, Param, Table, Value};
use crate::infer::infer;
use crate::ir::{BlockData, DimSize, GridExtent, Kernel, Loc, ParamKind, TableData};
use crate::op::{Op, Slice};
use crate::reach::{Reach, constant, is_counted_point};
use crate::rewrite::simplify;
use crate::specialization::Specialization;
use crate::types::DType;
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use std::collections::BTreeSet;
use std::rc::Rc;

pub(super) type Grafted<T> = Result<T, Diagnostics>;

/// The fused kernel, and the tensors that it eliminated.
pub(super) fn graft(plan: &Plan, spec: &Specialization, config: &Config) -> Grafted<(Kernel, Vec<Removed>)> {
    let kernel = Builder::new(&plan.head, spec, config).finish()?;
    let body = kernel.body;
    let mut graft = Graft {
        plan,
        spec,
        config,
        kernel,
        open: vec![body],
        depth: SecondaryMap::new(),
        made: Vec::new(),
        unrounded: SecondaryMap::new(),
        built: Vec::new(),
        shared: Shared::default(),
        largest: 0,
        removed: Vec::new(),
    };
    graft.root()?;
    let mut kernel = graft.kernel;
    simplify(&mut kernel);
    Ok((kernel, graft.removed))
}

/// A part as it is written for one tile, and what its names mean in the fused kernel.
struct WrittenPart {
    part: usize,
    kernel: Rc<Kernel>,
    values: SecondaryMap<Value, PackedOption<Value>>,
    places: Vec<(Value, MakerCoordinate)>,
    /// Coordinates of tile reads that may lie outside the tensor.
    astray: Vec<Value>,
    /// Coordinates of the axes over which it is lifted.
    lift: Vec<Value>,
}

/// A tile that was made: its maker, its position and the value.
struct Made {
    part: usize,
    param: usize,
    slices: Vec<Slice>,
    block: Block,
    value: Value,
}

pub(super) struct Graft<'p> {
    pub(super) plan: &'p Plan,
    pub(super) spec: &'p Specialization,
    pub(super) config: &'p Config,
    pub(super) kernel: Kernel,
    /// The blocks that are being written, innermost last.
    open: Vec<Block>,
    /// The number of loops around a value.
    depth: SecondaryMap<Value, u32>,
    made: Vec<Made>,
    /// For a tile that was rounded to the type of an eliminated tensor: the value before rounding.
    unrounded: SecondaryMap<Value, PackedOption<Value>>,
    pub(super) built: Vec<(usize, Config, Rc<Kernel>)>,
    shared: Shared,
    /// The number of elements of the tile that the kernel's remark mentions.
    largest: u64,
    removed: Vec<Removed>,
}

impl<'p> Graft<'p> {
    pub(super) fn links(&self) -> &'p Links {
        &self.plan.links
    }

    fn root(&mut self) -> Grafted<()> {
        let part = self.links().parts.len() - 1;
        let root = &self.links().parts[part];
        let kernel = self.build(part, self.own_config(part))?;
        let lift: Vec<Value> = root
            .lift
            .iter()
            .map(|&d| self.kernel.push_grid_axis(GridExtent::Points(Dim::from_u32(d as u32))))
            .collect();
        let mut written = WrittenPart {
            part,
            kernel: kernel.clone(),
            values: SecondaryMap::new(),
            places: Vec::new(),
            astray: Vec::new(),
            lift,
        };
        for axis in &kernel.grid {
            let extent = axis.extent.along(self.dim(part, axis.extent.dim()));
            written.values[axis.coord] = self.kernel.push_grid_axis(extent).into();
        }
        self.block(&mut written, kernel.body, None)?;
        Ok(())
    }

    /// Writes a block's operations. With `until`, stops at that store and returns the value that it stores.
    fn block(&mut self, written: &mut WrittenPart, block: Block, until: Option<Inst>) -> Grafted<Option<Value>> {
        let kernel = written.kernel.clone();
        for &inst in &kernel.blocks[block].insts {
            let loc = self.loc(written.part, &kernel, inst);
            match &kernel.insts[inst] {
                Op::Store { value, .. } if until == Some(inst) => return Ok(Some(self.value(written, *value)?)),
                // Another output of a maker, which is made where it is read.
                Op::Store { .. } if until.is_some() => {}
                Op::Load { param, slices } => {
                    let mut reaches = reaches(&kernel, *param, slices);
                    for (slice, reach) in slices.iter().zip(&mut reaches) {
                        if slice.coordinate().is_some_and(|v| written.astray.contains(&v)) {
                            *reach = Reach::Anywhere;
                        }
                    }
                    let (param, slices) = (param.as_u32() as usize, self.slices(written, *param, slices)?);
                    let value = match &self.links().parts[written.part].params[param] {
                        Meaning::Made { part, param: out } => {
                            self.made((written.part, param), (*part, *out), slices, &reaches, loc)?
                        }
                        _ => {
                            let op = Op::Load { param: self.param(written.part, param, loc)?, slices };
                            self.put(written, inst, op, loc)?.remove(0)
                        }
                    };
                    written.values[kernel.results[inst][0]] = value.into();
                }
                Op::Store { param, slices, value, update } => {
                    let slices = self.slices(written, *param, slices)?;
                    let param = self.param(written.part, param.as_u32() as usize, loc)?;
                    let value = self.value(written, *value)?;
                    self.push_all(Op::Store { param, slices, value, update: *update }, loc)?;
                }
                Op::Loop { .. } => {
                    let results = self.loop_(written, inst, loc)?;
                    for (&from, to) in kernel.results[inst].iter().zip(results) {
                        written.values[from] = to.into();
                    }
                }
                op => {
                    let op = self.operation(written, op.clone(), loc)?;
                    if let Op::Cast(DType::F32, v) = op
                        && let Some(exact) = self.unrounded[v].expand()
                    {
                        written.values[kernel.results[inst][0]] = exact.into();
                        continue;
                    }
                    let results = self.put(written, inst, op, loc)?;
                    for (&from, to) in kernel.results[inst].iter().zip(results) {
                        written.values[from] = to.into();
                    }
                }
            }
        }
        Ok(None)
    }

    /// Writes a loop of a part, unless an equal one exists where its results may be read.
    fn loop_(&mut self, written: &mut WrittenPart, inst: Inst, loc: Loc) -> Grafted<Vec<Value>> {
        let kernel = written.kernel.clone();
        let Op::Loop { kind, lo, hi, inits, body } = &kernel.insts[inst] else { return Ok(Vec::new()) };
        let inits = inits.iter().map(|&v| self.value(written, v)).collect::<Grafted<Vec<_>>>()?;
        let (lo, hi) = (self.value(written, *lo)?, self.value(written, *hi)?);
        let mut outside = self.open.len();
        let mut what = None;
        // A maker's loop stands as far outside as what it reads, as its other operations do.
        if written.part + 1 != self.links().parts.len() {
            let mut reads: Vec<MakerCoordinate> =
                [lo, hi].iter().chain(&inits).map(|&v| MakerCoordinate::Index(v)).collect();
            for v in read_by(&kernel, *body) {
                reads.push(match written.places.iter().find(|(c, _)| *c == v) {
                    Some((_, place)) => *place,
                    None => MakerCoordinate::Index(self.value(written, v)?),
                });
            }
            let read = reads.iter().filter_map(MakerCoordinate::value).chain(written.lift.iter().copied());
            outside = outside.min(read.map(|v| self.depth[v]).max().unwrap_or(0) as usize + 1);
            let of = For::Reads { reads, astray: written.astray.clone(), lift: written.lift.clone() };
            if let Some(known) = self.shared.find(&kernel, inst, &of, &self.open) {
                return Ok(known.to_vec());
            }
            what = Some(of);
        }
        let deeper = self.open.split_off(outside);
        let inner = self.kernel.blocks.push(BlockData::default());
        for &p in &kernel.blocks[*body].params {
            let made = self.kernel.push_block_param(inner, kernel.ty(p).clone());
            self.depth[made] = self.open.len() as u32;
            written.values[p] = made.into();
        }
        self.open.push(inner);
        self.block(written, *body, None)?;
        self.open.pop();
        let results = self.push_all(Op::Loop { kind: *kind, lo, hi, inits, body: inner }, loc)?;
        if let Some(what) = what {
            self.shared.note(&kernel, inst, what, self.open[outside - 1], &results);
        }
        self.open.extend(deeper);
        Ok(results)
    }

    /// Writes an operation of a part. Those of the last part keep their places. Those of a maker are written once where their
    /// results may be read.
    fn put(&mut self, written: &WrittenPart, inst: Inst, op: Op, loc: Loc) -> Grafted<Vec<Value>> {
        let is_last = written.part + 1 == self.links().parts.len();
        if is_last || matches!(op, Op::Yield(_)) {
            return self.push_all(op, loc);
        }
        let what = For::Operands(op.clone());
        if let Some(known) = self.shared.find(&written.kernel, inst, &what, &self.open) {
            return Ok(known.to_vec());
        }
        if let Op::Load { param, .. } = &op {
            self.reads_what_was(written.part, *param, loc)?;
        }
        // What a maker computes stands as far outside loops as its operands do.
        let mut depth = 0;
        op.visit_operands(|v| depth = depth.max(self.depth[v] as usize));
        let results = self.push_at(depth, op, loc)?;
        self.shared.note(&written.kernel, inst, what, self.open[depth], &results);
        Ok(results)
    }

    /// Checks that a maker's inputs are unchanged, because the last part may have written to them.
    fn reads_what_was(&self, part: usize, param: Param, loc: Loc) -> Grafted<()> {
        let is_store = |op: &Op| matches!(op, Op::Store { param: p, .. } if *p == param);
        let name = &self.kernel.params[param].name;
        if self.kernel.params[param].kind.is_read_only() {
            return Ok(());
        }
        let last = self.links().parts.len() - 1;
        let written_in_loop = self.open.len() > 1
            && self
                .built
                .iter()
                .filter(|b| b.0 == last)
                .any(|(.., kernel)| stores_in_loop(kernel, name, &self.links().parts[last]));
        if !written_in_loop && !self.kernel.insts.values().any(is_store) {
            return Ok(());
        }
        let (maker, writer) = (&self.links().parts[part].label, &self.links().parts[last].label);
        let message = format!("`{maker}` reads `{name}`, which `{writer}` has written by then");
        Err(Diagnostic::new(231, loc, message).note("give one of them a tensor of its own").into())
    }

    /// An operation with the fused kernel's values, dims, parameters and tables.
    fn operation(&mut self, written: &mut WrittenPart, op: Op, loc: Loc) -> Grafted<Op> {
        let mut failed = None;
        let mut op = op.map_operands(|v| match self.value(written, v) {
            Ok(v) => v,
            Err(e) => {
                failed = Some(e);
                v
            }
        });
        if let Some(e) = failed {
            return Err(e);
        }
        match &mut op {
            Op::DimSize(dim) | Op::DimTiles { dim, .. } => *dim = self.dim(written.part, *dim),
            Op::ScalarParam(p) => *p = self.param(written.part, p.as_u32() as usize, loc)?,
            Op::TableGet { table, .. } => *table = self.table(&written.kernel, *table, written.part),
            _ => {}
        }
        Ok(op)
    }

    /// A parameter of the fused kernel.
    fn param(&self, part: usize, param: usize, loc: Loc) -> Grafted<Param> {
        let linked = &self.links().parts[part];
        let found = match &linked.params[param] {
            Meaning::Outside(name) => self.kernel.param_by_name(name),
            _ => None,
        };
        found.ok_or_else(|| {
            let name = linked.def.params[param].name();
            let message = format!("`{}` reads `{name}`, which it makes for another kernel", linked.label);
            Diagnostic::new(231, loc, message).into()
        })
    }

    /// A table by its elements. If parts give different tables the same name, both are kept.
    fn table(&mut self, kernel: &Kernel, table: Table, part: usize) -> Table {
        let data = kernel.tables[table].clone();
        let bits = |t: &TableData| t.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        let same = |t: &TableData| t.shape == data.shape && bits(t) == bits(&data);
        if let Some((known, _)) = self.kernel.tables.iter().find(|(_, t)| same(t)) {
            return known;
        }
        let taken: Vec<String> = self.kernel.tables.values().map(|t| t.name.clone()).collect();
        let name = super::links::free_name(&data.name, &self.links().parts[part].label, &taken);
        self.kernel.tables.push(TableData { name, ..data })
    }

    /// A value in the fused kernel. A coordinate that is always 0 is created where it is used.
    fn value(&mut self, written: &mut WrittenPart, v: Value) -> Grafted<Value> {
        if let Some(known) = written.values[v].expand() {
            return Ok(known);
        }
        match written.places.iter().find(|(c, _)| *c == v) {
            Some((_, MakerCoordinate::Index(w))) => Ok(*w),
            None => {
                let label = &self.links().parts[written.part].label;
                let message = format!("`{label}` counts what the tile that is read does not say");
                Err(Diagnostic::new(231, Loc::default(), message).into())
            }
            _ => self.push(Op::Splat { value: 0.0, dtype: DType::I32, shape: Vec::new() }, Loc::default()),
        }
    }

    /// A tensor's slices in the fused kernel, after the axes over which it is lifted.
    fn slices(&mut self, written: &mut WrittenPart, param: Param, slices: &[Slice]) -> Grafted<Vec<Slice>> {
        let part = &self.links().parts[written.part];
        let lifted = part.is_lifted(param.as_u32() as usize);
        let mut out: Vec<Slice> =
            if lifted { written.lift.iter().map(|&v| Slice::At(v)).collect() } else { Vec::new() };
        let dims = match &written.kernel.params[param].kind {
            ParamKind::Tensor { dims, .. } => dims.clone(),
            ParamKind::Scalar { .. } => Vec::new(),
        };
        for (&slice, &dim) in slices.iter().zip(&dims) {
            let size_of_dim = written.kernel.dims[dim].size;
            let place = |v: Value| written.places.iter().find(|(c, _)| *c == v).map(|p| p.1);
            out.push(match slice {
                Slice::Whole => Slice::Whole,
                Slice::Tile { index, size } => match place(index) {
                    Some(MakerCoordinate::Start(start)) => Slice::Span { start, len: size },
                    Some(MakerCoordinate::First) if size_of_dim == DimSize::Const(size.into()) => Slice::Whole,
                    _ => Slice::Tile { index: self.value(written, index)?, size },
                },
                Slice::At(v) => Slice::At(self.value(written, v)?),
                Slice::Span { start, len } => Slice::Span { start: self.value(written, start)?, len },
                Slice::Gather(v) => Slice::Gather(self.value(written, v)?),
            });
        }
        Ok(out)
    }

    /// The tile of another part's tensor that a load wants.
    fn made(
        &mut self,
        reader: (usize, usize),
        maker: (usize, usize),
        slices: Vec<Slice>,
        reaches: &[Reach],
        loc: Loc,
    ) -> Grafted<Value> {
        // Axes that the reader is lifted over stand before its own.
        let before = slices.len() - reaches.len();
        let reach = |axis: usize| axis.checked_sub(before).map_or(Reach::Inside, |own| reaches[own]);
        let (part, param) = maker;
        let open = &self.open;
        let is_it = |m: &&Made| (m.part, m.param, &m.slices) == (part, param, &slices) && open.contains(&m.block);
        if let Some(known) = self.made.iter().find(is_it) {
            return Ok(known.value);
        }
        let refuse = |code: u16, why: String| refusal(&self.plan.links, reader.0, maker, code, &why, loc);
        let linked = &self.links().parts[part];
        let dims: Vec<Dim> = linked.dims_of(param).iter().map(|&d| Dim::from_u32(d as u32)).collect();
        let lifted = dims.len() - rank(&linked.def.params[param]);
        let mut lift = Vec::with_capacity(lifted);
        for (axis, slice) in slices[..lifted].iter().enumerate() {
            match *slice {
                Slice::At(v) | Slice::Tile { index: v, size: 1 } | Slice::Span { start: v, len: 1 }
                    if reach(axis) == Reach::Inside =>
                {
                    lift.push(v);
                }
                _ => return Err(refuse(231, format!("it is made element by element along axis {axis}"))),
            }
        }
        let (own, own_dims) = (&slices[lifted..], &dims[lifted..]);
        let config = self.covered_config(part, param, own, own_dims)?;
        let kernel = self.build(part, config.clone())?;
        let refuse = |code: u16, why: String| refusal(&self.plan.links, reader.0, maker, code, &why, loc);
        // A loop goes over tiles of one place if it is deeper than all else that says where they are.
        let in_loop = |slice: Slice| {
            let depth = |slice: &Slice| slice.coordinate().map_or(0, |v| self.depth[v]);
            let others = slices.iter().filter(|s| s.coordinate() != slice.coordinate()).map(depth);
            depth(&slice) > others.max().unwrap_or(0)
        };
        let loaded: Vec<(Slice, Reach)> = (lifted..).map(reach).zip(own).map(|(r, &s)| (s, r)).collect();
        let fits = fits(&kernel, param, &self.kernel, &loaded, in_loop).map_err(|why| refuse(231, why))?;
        let (kernel, unfit) = self
            .shared
            .fitted(kernel, param, fits)
            .map_err(|why| refusal(&self.plan.links, reader.0, maker, 231, &why, loc))?;
        let (elements, remark) = remark(self.links(), reader.0, maker, &kernel);
        if elements >= LARGE_TILE.max(self.largest) {
            (self.largest, self.kernel.remark) = (elements, Some(remark));
        }
        let (store, stored, value) = the_store(&kernel, param).map_err(|why| refuse(231, why))?;
        if let Some(why) = too_large(linked.def, &config, &kernel) {
            return Err(refuse(231, why));
        }
        let places = cover(&kernel, stored, &self.kernel, &loaded, own_dims).map_err(|why| {
            let unfit = unfit.iter().find(|(axis, _)| *axis == why.axis);
            let because = unfit.map(|(_, why)| format!(", for {why}")).unwrap_or_default();
            refuse(231, format!("{why}{because}"))
        })?;
        let is_counted = |axis: usize| match own[axis] {
            Slice::At(v) => {
                constant(&self.kernel, v).is_some()
                    || is_counted_point(&self.kernel, Slice::Tile { index: v, size: 1 }, own_dims[axis])
            }
            _ => true,
        };
        let edges = Edges::of(&kernel, param, stored, value, &loaded, is_counted).map_err(|why| refuse(232, why))?;
        let moved = places.iter().filter_map(|(_, p)| p.value());
        let astray = stored.iter().zip(&loaded).filter(|(_, (_, reach))| *reach == Reach::Anywhere);
        let astray: Vec<Value> = astray.filter_map(|(slice, _)| slice.coordinate()).collect();
        self.shared.count(self.links(), part, &self.kernel, loc)?;
        let base = moved.chain(lift.iter().copied()).map(|v| self.depth[v] as usize).max().unwrap_or(0);
        let inner = self.open.split_off(base + 1);
        let mut written =
            WrittenPart { part, kernel: kernel.clone(), values: SecondaryMap::new(), places, astray, lift };
        let made = self.block(&mut written, kernel.body, Some(store))?;
        let tile = match made {
            Some(tile) => self.tile(tile, &edges, &axes_read(&slices, stored), loc)?,
            None => return Err(refusal(self.links(), reader.0, maker, 231, "it is not stored", loc)),
        };
        let block = self.open[base];
        self.open.extend(inner);
        self.note(reader, maker, &kernel, value, base, &slices);
        self.made.push(Made { part, param, slices, block, value: tile });
        Ok(tile)
    }

    /// A maker's tile as the reader's load sees it: elements that the store would have written as 0 are 0, and axes are added
    /// or dropped.
    fn tile(&mut self, made: Value, edges: &Edges, axes: &[Option<u8>], loc: Loc) -> Grafted<Value> {
        let tile = self.as_read(made, edges, axes, loc)?;
        if let (true, Some(exact)) = (self.plan.fusion.keep_f32, self.exact(made)) {
            self.unrounded[tile] = self.as_read(exact, edges, axes, loc)?.into();
        }
        Ok(tile)
    }

    fn as_read(&mut self, made: Value, edges: &Edges, axes: &[Option<u8>], loc: Loc) -> Grafted<Value> {
        let mut value = made;
        if !edges.filled.is_empty() {
            value = self.push(Op::Other { value, other: 0.0, axes: edges.filled.clone() }, loc)?;
        }
        let all = (0..self.kernel.ty(value).rank() as u8).map(Some);
        match axes.iter().copied().eq(all) {
            true => Ok(value),
            false => self.push(Op::Reshape { value, axes: axes.to_vec() }, loc),
        }
    }

    /// The value of a rounded tile before rounding.
    fn exact(&self, tile: Value) -> Option<Value> {
        match self.kernel.def_op(tile) {
            Some((_, &Op::Cast(to, from))) if to.is_float() && self.kernel.ty(from).dtype == DType::F32 => Some(from),
            _ => None,
        }
    }

    fn note(
        &mut self,
        (reader, input): (usize, usize),
        (part, param): (usize, usize),
        maker: &Kernel,
        value: Value,
        loops: usize,
        slices: &[Slice],
    ) {
        let links = self.links();
        let linked = &links.parts[part];
        let name_of = |class: usize| links.dims[class].name.clone();
        let named = self.behind(slices.iter().filter_map(|s| s.operand()).collect());
        let again = self
            .kernel
            .grid
            .iter()
            .filter(|axis| !named.contains(&axis.coord))
            .map(|axis| self.kernel.dims[axis.extent.dim()].name.clone());
        let used = match self.built.iter().rev().find(|b| b.0 == reader) {
            Some((.., kernel)) => loads_of(kernel, input).map(|v| rules::used_by(kernel, v)).max_by_key(|r| *r as u8),
            None => None,
        };
        let rule = rules::rule(rules::made_by(maker, value), used.unwrap_or(rules::Role::Map));
        let removed = Removed {
            tensor: linked.def.params[param].name().to_owned(),
            dims: linked.dims_of(param).into_iter().map(name_of).collect(),
            dtype: maker.ty(value).dtype,
            maker: linked.label.clone(),
            reader: links.parts[reader].label.clone(),
            rule: (rule.name, rule.algebra),
            loops,
            again: again.collect(),
        };
        self.removed.push(removed);
    }

    /// Values, and everything from which they are computed.
    fn behind(&self, mut left: Vec<Value>) -> BTreeSet<Value> {
        let mut all = BTreeSet::new();
        while let Some(v) = left.pop() {
            if let (true, Some((_, op))) = (all.insert(v), self.kernel.def_op(v)) {
                op.visit_operands(|v| left.push(v));
            }
        }
        all
    }

    /// Source locations, if all parts are from one file; otherwise none.
    fn loc(&self, part: usize, kernel: &Kernel, inst: Inst) -> Loc {
        let parts = &self.links().parts;
        if parts[part].def.file == self.plan.fusion.file { kernel.locs[inst] } else { Loc::default() }
    }

    fn push(&mut self, op: Op, loc: Loc) -> Grafted<Value> {
        Ok(self.push_all(op, loc)?.remove(0))
    }

    fn push_all(&mut self, op: Op, loc: Loc) -> Grafted<Vec<Value>> {
        self.push_at(self.open.len() - 1, op, loc)
    }

    fn push_at(&mut self, depth: usize, op: Op, loc: Loc) -> Grafted<Vec<Value>> {
        let types = infer(&self.kernel, &op, loc)?;
        let inst = self.kernel.push_inst(self.open[depth], op, &types, loc);
        let results = self.kernel.results[inst].clone();
        for &v in &results {
            self.depth[v] = depth as u32;
        }
        Ok(results)
    }
}
