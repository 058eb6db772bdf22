//! The rules that a GPU IR kernel keeps; [`verify_gpu`] reports every breach.
//!
//! | code | invariant |
//! |---|---|
//! | 401 | every id refers to something that exists |
//! | 402 | every value is defined in one place, the one that its data names |
//! | 403 | a block is the body of one role or operation, and an instruction stands in one place |
//! | 404 | names are words; those of parameters, of dims, of tables and of roles are unique |
//! | 405 | dims, strides, alignments, tables and grid extents are as in Tile IR |
//! | 406 | the target is one that the compiler lowers for |
//! | 407 | threads are whole warps, at most 1024; clusters have at most 8 CTAs, and need sm_90 |
//! | 408 | the index map has an axis, and a coordinate per axis or none (a persistent map: none); widths are at least 1 |
//! | 410 | layouts hold every element of their shape, along axes that exist, and are of sane size |
//! | 411 | a layout has as many threads as the role; a scalar may have those of the kernel |
//! | 412 | buffers have extents, stages and a pitch that holds a row; offsets are aligned and inside shared memory |
//! | 413 | nothing reads a buffer after a write to one placed over it; roles do not share bytes by different buffers |
//! | 414 | roles partition the warps of the CTA |
//! | 415 | registers of a role are a multiple of 8 in 24..=256, set for whole warpgroups, on `sm_Na` alone |
//! | 416 | a ring has the stages of its buffers, a buffer is in one ring, and one with more stages than 1 is in a ring |
//! | 417 | a ring is `from engine` if and only if the copy engine alone fills it; its stages then have phases |
//! | 420 | operands and results have the types that the operation asks for |
//! | 421 | an operand is defined earlier in its block or in a block around it, in the same role |
//! | 422 | the parameters of a loop's body, its results and its `yield` have the types of the carried values |
//! | 423 | `yield` ends the body of a loop and stands nowhere else |
//! | 424 | `programs` stands in no other body and has a coordinate per grid axis, then at most a number |
//! | 430 | a shared reference lies inside its buffer |
//! | 431 | a shared reference has a token if its buffer has stages, of a ring that the buffer is in |
//! | 432 | writes and commits take acquired tokens, releases take awaited ones |
//! | 434 | `once` holds scalars and the filling of stages by the copy engine, and nothing else |
//! | 440 | a value in flight is used once: by `wait.mma`, or carried by a loop, in the block that defines it |
//! | 441 | from `mma` to its wait nothing writes its operands, releases them or uses its accumulator |
//! | 442 | `mma` has operands, accumulator and extents that its atom takes |
//! | 443 | the target has the atoms of `mma` and of `copy` |
//! | 444 | a copy has a width that exists and fits; multicast needs a cluster and a buffer that the cluster owns |
//! | 445 | the instructions of an access's form can move its fragment |
//! | 446 | a tensor map fits its tensor, and a copy by it has its box and begins at a multiple of 16 bytes |
//! | 447 | a buffer that the copy engine fills or reads is laid out as the engine writes it |
//! | 450 | slices fit the tensor, and the tile has their extents |
//! | 451 | stores go to `out` tensors alone |
//! | 452 | a role of one thread has no CTA barrier |
//!
//! 460 is the rule of phases (`verify_constructs.rs`): nothing stands in a kernel that its phase does not have.

use super::{Block, Domain, IndexMap, Inst, Kernel, Mention, Op, Role, Type, Value, ValueDef};
use crate::layout::Fragment;
use atlas_dsl::ir::{Loc, ParamKind};
use atlas_dsl::verify::Invariants;
use atlas_dsl::{Diagnostic, Diagnostics};
use cranelift_entity::{EntityList, EntitySet, ListPool, SecondaryMap};
use std::collections::BTreeSet;

/// Registers per thread that a layout may ask for, and elements that a coordinate may reach.
const MAX_EXTENT: u64 = 1 << 24;

/// Checks every rule; returns everything that is wrong with the kernel.
pub fn verify_gpu(kernel: &Kernel) -> Result<(), Diagnostics> {
    let errors = kernel.violations();
    if errors.is_empty() { Ok(()) } else { Err(Diagnostics(errors)) }
}

impl Invariants for Kernel {
    fn violations(&self) -> Vec<Diagnostic> {
        let mut v = Verifier {
            kernel: self,
            errors: Vec::new(),
            place: SecondaryMap::with_capacity(self.insts.len()),
            owner: SecondaryMap::with_capacity(self.blocks.len()),
            uses: SecondaryMap::with_capacity(self.values.len()),
            insts: ListPool::with_capacity(4 * self.values.len()),
            sound: EntitySet::with_capacity(self.values.len()),
            role: None,
            visible: EntitySet::with_capacity(self.values.len()),
        };
        v.ids();
        // The other rules read through ids, compute with layouts and recurse into bodies.
        if v.errors.is_empty() {
            v.signature();
            v.maps();
            v.engine_stores();
            v.memory();
            v.roles();
            for (i, &coord) in self.coords.iter().enumerate() {
                v.definition(coord, ValueDef::Program(i as u32), Loc::default());
            }
            for (role, data) in &self.roles {
                v.role = Some(role);
                v.visible.clear();
                self.coords.iter().for_each(|&c| {
                    v.visible.insert(c);
                });
                v.block(data.body, None);
            }
            v.flights();
            v.overlaps();
        }
        v.errors
    }
}

pub(super) struct Verifier<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) errors: Vec<Diagnostic>,
    /// Where each instruction stands.
    pub(super) place: SecondaryMap<Inst, Option<(Block, usize)>>,
    /// The operation that each block is the body of.
    pub(super) owner: SecondaryMap<Block, Option<Inst>>,
    /// The instructions that use each value, one entry per operand.
    uses: SecondaryMap<Value, EntityList<Inst>>,
    /// The members of all lists of `uses`: kernels are verified after each pass, and most values have uses.
    insts: ListPool<Inst>,
    /// Values that exist, of types that can be computed with.
    sound: EntitySet<Value>,
    /// The role that is being checked.
    pub(super) role: Option<Role>,
    pub(super) visible: EntitySet<Value>,
}

impl<'k> Verifier<'k> {
    pub(super) fn error(&mut self, code: u16, loc: Loc, message: impl Into<String>) {
        self.errors.push(Diagnostic::new(code, loc, message));
    }

    /// The instructions that use a value, one entry per operand.
    pub(super) fn uses(&self, v: Value) -> &[Inst] {
        self.uses[v].as_slice(&self.insts)
    }

    /// Number of threads that run the role being checked.
    pub(super) fn threads(&self) -> u32 {
        self.role.map_or(self.kernel.threads, |r| self.kernel.role_threads(r))
    }

    /// 401, 403 and what 410 and 412 need before anything computes with layouts.
    fn ids(&mut self) {
        let k = self.kernel;
        for p in k.params.values() {
            if let ParamKind::Tensor { dims, .. } = &p.kind {
                dims.iter().for_each(|&d| self.exists(Mention::Dim(d), Loc::default()));
            }
        }
        for axis in &k.index_map.axes {
            let d = axis.dim();
            self.exists(Mention::Dim(d), Loc::default());
        }
        k.coords.iter().for_each(|&v| self.value_exists(v, Loc::default()));
        k.maps.values().for_each(|map| self.exists(Mention::Param(map.param), Loc::default()));
        for ring in k.rings.values() {
            ring.buffers.iter().for_each(|&b| self.exists(Mention::Buffer(b), Loc::default()));
        }
        for b in k.buffers.values() {
            self.buffer_size(b);
        }
        let mut seen = (EntitySet::new(), EntitySet::new());
        for role in k.roles.values() {
            self.block_ids(role.body, None, &mut seen);
        }
    }

    fn block_ids(&mut self, block: Block, owner: Option<Inst>, seen: &mut (EntitySet<Block>, EntitySet<Inst>)) {
        let k = self.kernel;
        let loc = owner.map_or(Loc::default(), |i| k.locs[i]);
        let Some(data) = k.blocks.get(block) else {
            return self.error(401, loc, format!("there is no block {block}"));
        };
        if !seen.0.insert(block) {
            return self.error(403, loc, format!("{block} is this body and another one"));
        }
        self.owner[block] = owner;
        data.params.iter().for_each(|&v| self.value_exists(v, loc));
        for (at, &inst) in data.insts.iter().enumerate() {
            let loc = k.locs[inst];
            let Some(op) = k.insts.get(inst) else {
                self.error(401, loc, format!("there is no instruction {inst}"));
                continue;
            };
            if !seen.1.insert(inst) {
                self.error(403, loc, format!("{inst} stands in two places"));
                continue;
            }
            self.place[inst] = Some((block, at));
            op.mentions(&mut |mention| {
                self.exists(mention, loc);
                if let Mention::Value(v) = mention {
                    self.uses[v].push(inst, &mut self.insts);
                }
            });
            k.results[inst].iter().for_each(|&v| self.value_exists(v, loc));
            if let Some(body) = op.body() {
                self.block_ids(body, Some(inst), seen);
            }
        }
    }

    /// 401 for one thing that is named.
    fn exists(&mut self, mention: Mention, loc: Loc) {
        let k = self.kernel;
        let what = match mention {
            Mention::Value(v) => return self.value_exists(v, loc),
            Mention::Dim(d) if !k.dims.is_valid(d) => format!("dim {d}"),
            Mention::Param(p) if !k.params.is_valid(p) => format!("parameter {p}"),
            Mention::Table(t) if !k.tables.is_valid(t) => format!("table {t}"),
            Mention::Buffer(b) if !k.buffers.is_valid(b) => format!("buffer {b}"),
            Mention::Map(map) if !k.maps.is_valid(map) => format!("tensor map {map}"),
            Mention::Ring(r) if !k.rings.is_valid(r) => format!("ring {r}"),
            Mention::Dim(_)
            | Mention::Param(_)
            | Mention::Table(_)
            | Mention::Buffer(_)
            | Mention::Map(_)
            | Mention::Ring(_) => return,
            // Whoever walks into it says so.
            Mention::Body(_) => return,
        };
        self.error(401, loc, format!("there is no {what}"));
    }

    fn value_exists(&mut self, v: Value, loc: Loc) {
        if self.sound.contains(v) {
            return;
        }
        let Some(data) = self.kernel.values.get(v) else {
            return self.error(401, loc, format!("there is no value {v}"));
        };
        match &data.ty {
            Type::Token(r) if !self.kernel.rings.is_valid(*r) => {
                self.error(401, loc, format!("there is no ring {r}"));
            }
            Type::Token(_) => {
                self.sound.insert(v);
            }
            Type::Fragment { layout, .. } | Type::InFlight { layout, .. } => {
                // Operands are reported where they are defined.
                match layout_error(layout) {
                    Some(wrong) if self.errors.iter().any(|d| d.message == wrong) => {}
                    Some(wrong) => self.error(410, loc, wrong),
                    None => {
                        self.sound.insert(v);
                    }
                }
            }
        }
    }

    /// 402 and 411 for one value.
    pub(super) fn definition(&mut self, v: Value, def: ValueDef, loc: Loc) {
        let data = &self.kernel.values[v];
        if data.def != def {
            self.error(402, loc, format!("{v} is defined here, but its data says {:?}", data.def));
        }
        if matches!(def, ValueDef::Program(_)) && !self.is_int(v) {
            self.error(408, loc, format!("a grid coordinate is a scalar i32, found {}", self.ty(v)));
        }
        if let Some((_, layout)) = data.ty.tile() {
            let (has, wanted) = (layout.thread_count(), self.threads());
            let fits = has == wanted || (layout.shape.is_empty() && has == self.kernel.threads);
            if !fits {
                self.error(411, loc, format!("the layout {layout} has {has} threads; the role has {wanted}"));
            }
        }
    }

    /// The rules of one block; `around` is the operation that it is the body of.
    pub(super) fn block(&mut self, block: Block, around: Option<Inst>) {
        let k = self.kernel;
        let data = &k.blocks[block];
        let loc = around.map_or(Loc::default(), |i| k.locs[i]);
        let mut defined = data.params.clone();
        for (i, &v) in data.params.iter().enumerate() {
            self.definition(v, ValueDef::BlockParam(block, i as u32), loc);
            self.visible.insert(v);
        }
        self.body_params(block, around, loc);
        for (at, &inst) in data.insts.iter().enumerate() {
            let (op, loc) = (&k.insts[inst], k.locs[inst]);
            let mut unseen = BTreeSet::new();
            op.visit_operands(|v| {
                if !self.visible.contains(v) && unseen.insert(v) {
                    self.error(421, loc, format!("the operand {v} is not defined at this place"));
                }
            });
            self.op(inst, op, loc);
            self.form(inst, loc);
            if matches!(op, Op::Yield(_)) && at + 1 != data.insts.len() {
                self.error(423, loc, "`yield` before the end of the body");
            }
            if let Some(body) = op.body() {
                self.block(body, Some(inst));
            }
            for (i, &v) in k.results[inst].iter().enumerate() {
                self.definition(v, ValueDef::Result(inst, i as u32), loc);
                defined.push(v);
                self.visible.insert(v);
            }
        }
        self.ending(block, around, loc);
        for v in defined {
            self.visible.remove(v);
        }
    }

    /// 422 and 424: what the operation around a block says of its parameters.
    fn body_params(&mut self, block: Block, around: Option<Inst>, loc: Loc) {
        let k = self.kernel;
        let params = &k.blocks[block].params;
        match around.map(|i| &k.insts[i]) {
            Some(Op::Loop { inits, .. }) => {
                if params.len() != inits.len() + 1 {
                    let message = format!(
                        "a body of {} parameters for an index and {} carried values",
                        params.len(),
                        inits.len()
                    );
                    return self.error(422, loc, message);
                }
                if !self.is_int(params[0]) {
                    self.error(422, loc, format!("a loop's index is a scalar i32, found {}", self.ty(params[0])));
                }
                for (&p, &init) in params[1..].iter().zip(inits) {
                    self.carried("starts as", init, p, loc);
                }
            }
            Some(Op::Programs(_)) => {
                let axes = k.index_map.axes.len();
                if params.len() != axes && params.len() != axes + 1 {
                    let message = format!("{} parameters for {axes} grid axes and at most a number", params.len());
                    self.error(424, loc, message);
                }
                for &p in params {
                    if !self.is_int(p) {
                        self.error(424, loc, format!("a coordinate is a scalar i32, found {}", self.ty(p)));
                    }
                }
                let outer = around.and_then(|i| self.place[i]).and_then(|(b, _)| self.owner[b]);
                if outer.is_some() {
                    self.error(424, loc, "`programs` stands in another body");
                }
            }
            _ if params.is_empty() => {}
            _ => self.error(422, loc, "this body has no parameters"),
        }
    }

    /// 422: a carried value keeps its type.
    fn carried(&mut self, what: &str, value: Value, param: Value, loc: Loc) {
        if !self.same_type(value, param) {
            self.error(422, loc, format!("a carried value is {}, but {what} {}", self.ty(param), self.ty(value)));
        }
    }

    /// 422 and 423: how a block ends, and what its operation gives.
    fn ending(&mut self, block: Block, around: Option<Inst>, loc: Loc) {
        let k = self.kernel;
        let last = k.blocks[block].insts.last().map(|&i| (i, &k.insts[i]));
        let carried = match around.map(|i| &k.insts[i]) {
            Some(Op::Loop { .. }) => k.blocks[block].params.get(1..).unwrap_or_default(),
            Some(Op::If(_, _, others)) if !others.is_empty() => &others[..],
            _ => {
                if let Some((i, Op::Yield(_))) = last {
                    self.error(423, k.locs[i], "`yield` outside the body of a loop or of an `if` with results");
                }
                return;
            }
        };
        let Some((at, Op::Yield(values))) = last else {
            return self.error(423, loc, "the body does not end in `yield`");
        };
        if values.len() != carried.len() {
            let message = format!("`yield` gives {} values to {} carried ones", values.len(), carried.len());
            return self.error(422, k.locs[at], message);
        }
        for (&v, &p) in values.iter().zip(carried) {
            self.carried("`yield` gives", v, p, k.locs[at]);
            if self.token_kind(v) != self.token_kind(p) {
                self.error(
                    432,
                    k.locs[at],
                    "`yield` carries an acquired token where an awaited one came in, or the reverse",
                );
            }
        }
        let Some(inst) = around else { return };
        for (&r, &p) in k.results[inst].iter().zip(carried) {
            self.carried("ends as", r, p, loc);
        }
    }

    /// The type of a value, for messages.
    pub(super) fn ty(&self, v: Value) -> String {
        type_text(&self.kernel.values[v].ty)
    }
}

fn type_text(ty: &Type) -> String {
    let tile = |dtype: &atlas_dsl::DType, layout: &Fragment| {
        if layout.shape.is_empty() { dtype.to_string() } else { format!("{dtype}{layout}") }
    };
    match ty {
        Type::Fragment { dtype, layout } => tile(dtype, layout),
        Type::InFlight { dtype, layout } => format!("inflight {}", tile(dtype, layout)),
        Type::Token(ring) => format!("token of {ring}"),
    }
}

/// 410: what is wrong with a layout, computed without overflow.
fn layout_error(layout: &Fragment) -> Option<String> {
    let rank = layout.shape.len();
    let modes = || layout.threads.iter().chain(&layout.regs);
    let product = |modes: &[crate::layout::Mode]| modes.iter().fold(1u64, |n, m| n.saturating_mul(m.extent.into()));
    if rank > 8 {
        return Some(format!("the layout {layout} has more than 8 axes"));
    }
    if modes().any(|m| m.axis.is_some_and(|a| usize::from(a) >= rank)) {
        return Some(format!("the layout {layout} moves along an axis that its tile does not have"));
    }
    if modes().any(|m| m.extent == 0) || layout.shape.contains(&0) {
        return Some(format!("the layout {layout} has an extent of 0"));
    }
    if layout.regs.iter().any(|m| m.axis.is_none()) {
        return Some(format!("the layout {layout} repeats elements in registers"));
    }
    if product(&layout.threads) > 1024 || product(&layout.regs) > MAX_EXTENT {
        return Some(format!("the layout {layout} has too many threads or registers"));
    }
    for (axis, &extent) in layout.shape.iter().enumerate() {
        let reach = |m: &crate::layout::Mode| u64::from(m.extent - 1).saturating_mul(m.stride.into());
        let along = modes().filter(|m| m.axis == Some(axis as u8));
        let cover = along.map(reach).fold(1u64, u64::saturating_add);
        if cover > MAX_EXTENT {
            return Some(format!("the layout {layout} reaches too far along axis {axis}"));
        }
        if cover < u64::from(extent) {
            return Some(format!("the layout {layout} covers {cover} of {extent} elements along axis {axis}"));
        }
    }
    None
}

/// 408 for the index map alone.
pub(super) fn index_map_error(map: &IndexMap, coords: usize) -> Option<String> {
    let axes = map.axes.len();
    match map {
        _ if axes == 0 => Some("the grid has no axis".to_owned()),
        IndexMap { persistent: true, .. } if coords != 0 => {
            Some("a persistent map has its coordinates in `programs`".to_owned())
        }
        _ if coords != 0 && coords != axes => Some(format!("{coords} coordinates for {axes} grid axes")),
        IndexMap { splits: 0, .. } => Some("programs that no CTA shares".to_owned()),
        IndexMap { persistent: true, splits: 2.., .. } => {
            Some("CTAs that share programs run one each, and a persistent map has many".to_owned())
        }
        IndexMap { group: Some(0), .. } => Some("groups of width 0".to_owned()),
        IndexMap { group: Some(_), .. } if axes < 2 => Some("a grid in groups has two axes at least".to_owned()),
        IndexMap { domain: Domain::Triangle, .. } if axes < 2 => {
            Some("a triangular grid has two axes at least".to_owned())
        }
        _ => None,
    }
}
