//! The home of each tile: registers with a layout, shared memory, or both.
//!
//! Values that element-wise operations and loops tie together form a *class* and share one layout. A class with a product's
//! accumulator has that atom's layout. A class that is tied to another one by a broadcast, a reduction or a reshape derives its
//! layout from it. All other classes are blocked for global memory. Operands that an atom reads from shared memory *demand* a
//! buffer. One buffer serves every demand on its tile, because its swizzle is free of bank conflicts for all of them.
//!
//! # Promise
//! At the end, every value has a home. Every value that is not computed *anywhere* has a layout, which holds each of its
//! elements in some register. Values of one class have one layout. A tile that an atom reads from shared memory has a home
//! there. So has a tile that is read by a transpose with readers other than atoms. The choice of homes and layouts changes only
//! costs, not results.
//!
//! # Argument
//! *Layouts.* Ties join values of one shape, so a class has one shape. A layout is given to a whole class at once, and never
//! changed. Accumulators come first, then layouts derived by broadcasts, reductions and reshapes, then blocked ones, largest
//! tile first, with derivation after each. Each round gives some class a layout, so in the end all have one. Constructed
//! layouts hold every element (layout/fragment.rs), and reducing, dropping and adding axes preserve that. If two demands on a
//! class differ, one of them wins, and the lowering inserts a `convert.layout`. So a derived layout is only a preference.
//!
//! *Anywhere.* A value is computed again wherever it is requested only if that gives the same elements each time: constants,
//! indices, one repeated element, and comparisons, choices and casts of such values. The repeated element has a fragment,
//! computed in its place. Operands come before results in the order of values; otherwise the result is merely not free. A tile
//! that is read from shared memory is never of this kind, because it has to be stored once.
//!
//! *Homes.* A tensor that is only read may be copied ahead, because its elements never change. A tensor that the kernel also
//! writes is loaded in its turn and stored. Demands apply to the root behind transposes. A demanded tile is copied if it is a
//! load of a read-only tensor, carried if it is a parameter or result of a loop, and stored otherwise. A loop's parameter is
//! carried in shared memory if its result is, so that one buffer serves both. The left operand of a product comes from
//! registers if its layout is the atom's operand layout. That is decided before and again after homes are given, with the same
//! answer: only loads, parameters and results of loops become copied or carried, and those never qualify.
//!
//! # Breaks it
//! - A class of two products by different atoms, and one carried tile of two widths:
//!   tests/agreement/wrong_code.rs::carried_tiles_are_replaced_together.
//! - A tile that is demanded by an atom and by a transpose:
//!   tests/agreement/exchanges.rs::a_buffer_for_an_atom_is_padded_whoever_asks_first.
//! - A load of a written tensor that is copied ahead of an earlier store:
//!   tests/agreement/wrong_code.rs::a_program_reads_what_it_wrote_by_any_slice.
//! - A constant with a layout of its own that another use does not share:
//!   tests/agreement/arguments.rs::a_change_of_layout_keeps_no_constant_in_padding.
//! - A class of a 16-bit tile and a product in f32, whose layout fits neither buffer:
//!   tests/agreement/arguments.rs::padding_of_an_operand_is_zero_whatever_ranges_write_it.

mod ahead;
mod asynchronous;
mod gathers;
mod splits;

use super::Uses;
use super::sources::root;
use crate::arch::Target;
use crate::error::CompileError;
use crate::gpu::atom::MmaAtom;
use crate::gpu::{Split, vector_elements};
use crate::layout::{Fragment, SharedLayout};
use ahead::{inner_extent, running_ahead};
use asynchronous::{asynchronous_products, is_left_invariant};
use atlas_dsl::ir::ValueDef;
use atlas_dsl::{Inst, Kernel, Op, Schedule, Value};
use cranelift_entity::{EntityRef, SecondaryMap};
use splits::splits;
use std::collections::BTreeSet;

pub(crate) use ahead::is_place_known;
pub use asynchronous::WhySynchronous;
pub(crate) use asynchronous::is_long_enough;
use gathers::layout_of_places;
pub(crate) use gathers::places_of;

/// Why a loaded tile passes through shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagingReason {
    /// An atom reads it there.
    Operand,
    /// Its register layout would read global memory in pieces that are too small.
    Coalescing,
    /// It is used transposed.
    Transposed,
    /// It runs ahead of the iteration of a pipelined loop that uses it.
    Ahead,
}

/// The home of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Home {
    /// In registers, by its class's layout.
    Registers,
    /// Loaded into shared memory; read into registers where needed.
    Copied(StagingReason),
    /// Computed in registers, and stored to shared memory for its readers there.
    Stored,
    /// Carried by a loop in one shared buffer, updated in place.
    Carried,
    /// Computed again in any requested layout, because that costs nothing.
    Anywhere,
}

/// The result of the analysis.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Where each value lives.
    pub homes: SecondaryMap<Value, Option<Home>>,
    layouts: SecondaryMap<Value, Option<Fragment>>,
    atoms: SecondaryMap<Value, Option<MmaAtom>>,
    products: SecondaryMap<Inst, Option<MmaAtom>>,
    /// Products that read their left operand in shared memory though it may be computed in registers.
    left_in_shared: SecondaryMap<Inst, bool>,
    /// Why a product is synchronous.
    synchronous: SecondaryMap<Inst, Option<WhySynchronous>>,
    /// Tiles that asynchronous products read in shared memory, which lie in panels there.
    in_panels: SecondaryMap<Value, bool>,
    splits: SecondaryMap<Value, Split>,
    warps: u32,
}

struct Classes {
    parent: Vec<usize>,
}

/// The classes once all ties are made.
struct Tied {
    /// The class of each value, by its number.
    class_of: Vec<usize>,
    /// The values of each class, in order.
    members: Vec<Vec<Value>>,
    /// The operations that pass a layout from an operand to a result or back, by operand and by result.
    touching: SecondaryMap<Value, Vec<Inst>>,
}

impl Tied {
    fn of(kernel: &Kernel, classes: &mut Classes) -> Tied {
        let n = kernel.values.len();
        let class_of: Vec<usize> = (0..n).map(|i| classes.find(i)).collect();
        let mut members = vec![Vec::new(); n];
        kernel.values.keys().for_each(|v| members[class_of[v.index()]].push(v));
        let mut touching: SecondaryMap<Value, Vec<Inst>> = SecondaryMap::with_capacity(n);
        for (inst, op) in kernel.insts.iter() {
            if let (Op::Broadcast { value, .. } | Op::Reduce { value, .. } | Op::Reshape { value, .. }, Some(&r)) =
                (op, kernel.results[inst].first())
            {
                touching[*value].push(inst);
                touching[r].push(inst);
            } else if op.gathers()
                && let Some(&r) = kernel.results[inst].first()
            {
                touching[r].push(inst);
            }
        }
        Tied { class_of, members, touching }
    }

    fn members(&self, v: Value) -> &[Value] {
        &self.members[self.class_of[v.index()]]
    }
}

impl Classes {
    fn find(&mut self, i: usize) -> usize {
        let mut root = i;
        while self.parent[root] != root {
            root = self.parent[root];
        }
        let mut at = i;
        while self.parent[at] != root {
            at = std::mem::replace(&mut self.parent[at], root);
        }
        root
    }
    fn union(&mut self, a: Value, b: Value) {
        let (a, b) = (self.find(a.index()), self.find(b.index()));
        let (lo, hi) = (a.min(b), a.max(b));
        self.parent[hi] = lo;
    }
}

impl Placement {
    /// Solves a kernel's placement for a schedule on a target.
    pub fn of(kernel: &Kernel, uses: &Uses, schedule: &Schedule, target: Target) -> Result<Placement, CompileError> {
        let n = kernel.values.len();
        let mut p = Placement {
            homes: SecondaryMap::with_capacity(n),
            layouts: SecondaryMap::with_capacity(n),
            atoms: SecondaryMap::with_capacity(n),
            products: SecondaryMap::new(),
            left_in_shared: SecondaryMap::new(),
            synchronous: SecondaryMap::new(),
            in_panels: SecondaryMap::new(),
            splits: SecondaryMap::with_capacity(n),
            warps: schedule.warps,
        };
        let mut classes = Classes { parent: (0..n).collect() };
        p.free_values(kernel, uses);
        p.tie(kernel, &mut classes);
        let tied = Tied::of(kernel, &mut classes);
        p.seed_accumulators(kernel, uses, &tied, schedule, target)?;
        p.solve(kernel, uses, &tied);
        p.place(kernel, uses, schedule.stages);
        Ok(p)
    }

    /// The register layout of a value.
    pub fn layout(&self, v: Value) -> Option<&Fragment> {
        self.layouts[v].as_ref()
    }

    /// The layout in which an atom computes a tile `[m, n]` of a value's class.
    pub fn accumulator(&self, v: Value, atom: MmaAtom, [m, n]: [u32; 2]) -> Fragment {
        atom.accumulator(m, n, atom.warp_grid(m, n, self.warps, self.splits[v]), self.warps)
    }

    /// A layout that reads and writes global memory in vectors of this many elements.
    pub fn blocked(&self, shape: &[u32], elements: u32) -> Fragment {
        Fragment::blocked(shape, elements, self.warps)
    }

    /// The layout of a value's buffer in shared memory.
    pub fn buffer_layout(&self, kernel: &Kernel, v: Value) -> SharedLayout {
        let ty = kernel.ty(v);
        let in_panels = SharedLayout::of_wgmma_operand(&ty.shape, ty.dtype.bytes()).filter(|_| self.in_panels[v]);
        let is_operand = !matches!(self.home(v), Home::Copied(reason) if *reason != StagingReason::Operand);
        in_panels.unwrap_or_else(|| SharedLayout::of_tile(&ty.shape, ty.dtype.bytes(), is_operand))
    }

    /// Where a value lives.
    pub fn home(&self, v: Value) -> &Home {
        self.homes[v].as_ref().unwrap_or(&Home::Registers)
    }

    /// Constants, indices, and values that are computed only from those and from single elements. Values are numbered in
    /// definition order, so operands come first.
    ///
    /// Tiles that are read from shared memory have to be there, whatever that costs.
    fn free_values(&mut self, kernel: &Kernel, uses: &Uses) {
        let mut read_in_shared: SecondaryMap<Value, bool> = SecondaryMap::new();
        for (inst, op) in kernel.insts.iter() {
            match *op {
                Op::Dot { a, b, .. } => [a, b].into_iter().for_each(|v| read_in_shared[root(kernel, v).0] = true),
                Op::Transpose(v) if !uses.get(kernel.results[inst][0]).is_empty() => {
                    read_in_shared[root(kernel, v).0] = true;
                }
                _ => {}
            }
        }
        for v in kernel.values.keys().filter(|&v| !read_in_shared[v]) {
            let Some((_, op)) = kernel.def_op(v) else { continue };
            let free = match op {
                Op::Splat { .. } | Op::Iota { .. } => true,
                Op::Broadcast { value, .. } => kernel.ty(*value).elements() == 1,
                Op::Compare(..) | Op::Select { .. } | Op::Cast(..) => {
                    let mut all = kernel.ty(v).elements() > 1;
                    op.visit_operands(|o| all &= self.homes[o] == Some(Home::Anywhere));
                    all
                }
                _ => false,
            };
            if free {
                self.homes[v] = Some(Home::Anywhere);
            }
        }
    }

    /// Ties values that must share a layout.
    fn tie(&self, kernel: &Kernel, classes: &mut Classes) {
        let tied = |v: Value| self.homes[v].is_none();
        for (inst, op) in kernel.insts.iter() {
            let Some(&result) = kernel.results[inst].first() else {
                continue;
            };
            match op {
                op if op.is_elementwise() || matches!(op, Op::Other { .. } | Op::Scan { .. } | Op::ClusterSum(_)) => {
                    op.visit_operands(|v| {
                        if tied(v) {
                            classes.union(v, result);
                        }
                    });
                }
                Op::Dot { acc: Some(acc), .. } if tied(*acc) => classes.union(*acc, result),
                Op::Loop { inits, body, .. } => {
                    let yields = match kernel.blocks[*body].insts.last().map(|&i| &kernel.insts[i]) {
                        Some(Op::Yield(vs)) => vs.clone(),
                        _ => Vec::new(),
                    };
                    let params = &kernel.blocks[*body].params[1..];
                    for (k, &r) in kernel.results[inst].iter().enumerate() {
                        classes.union(r, params[k]);
                        for v in [inits[k], yields[k]] {
                            if tied(v) {
                                classes.union(r, v);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn seed_accumulators(
        &mut self,
        kernel: &Kernel,
        uses: &Uses,
        tied: &Tied,
        schedule: &Schedule,
        target: Target,
    ) -> Result<(), CompileError> {
        let mut seeds: Vec<(usize, Value, MmaAtom)> = Vec::new();
        for (inst, atom) in asynchronous_products(kernel, schedule, target, |v| tied.class_of[v.index()]) {
            match atom {
                Ok(atom) => {
                    self.products[inst] = Some(atom);
                    self.left_in_shared[inst] = is_left_invariant(kernel, uses, inst);
                    if let Op::Dot { a, b, .. } = kernel.insts[inst] {
                        [a, b].into_iter().for_each(|operand| self.in_panels[root(kernel, operand).0] = true);
                    }
                }
                Err(why) => self.synchronous[inst] = Some(why),
            }
        }
        for (inst, op) in kernel.insts.iter() {
            if let Op::Dot { a, precision, .. } = op {
                let dtype = kernel.ty(*a).dtype;
                let atom =
                    self.products[inst].or_else(|| MmaAtom::select(dtype, *precision, target)).ok_or_else(|| {
                        CompileError::refusal(format!("{target} has no instruction that multiplies {dtype} tiles"))
                    })?;
                self.products[inst] = Some(atom);
                let r = kernel.results[inst][0];
                let class = tied.class_of[r.index()];
                if !seeds.iter().any(|s| s.0 == class) {
                    seeds.push((class, r, atom));
                }
            }
        }
        let class_of = &tied.class_of;
        let splits = splits(kernel, uses, class_of, &self.products, schedule);
        for v in kernel.values.keys() {
            let class = class_of[v.index()];
            if let Some(&(_, r, atom)) = seeds.iter().find(|s| s.0 == class) {
                let shape = &kernel.ty(r).shape;
                self.splits[v] = splits.get(&class).copied().unwrap_or_default();
                self.layouts[v] = Some(self.accumulator(v, atom, [shape[0], shape[1]]));
                self.atoms[v] = Some(atom);
            }
        }
        Ok(())
    }

    fn solve(&mut self, kernel: &Kernel, uses: &Uses, tied: &Tied) {
        self.propagate(kernel, tied, kernel.insts.keys().collect());
        // Largest first: small tiles derive theirs from the tiles they serve.
        let mut open: Vec<Value> = kernel.values.keys().filter(|&v| self.homes[v].is_none()).collect();
        open.sort_by_key(|&v| (std::cmp::Reverse(kernel.ty(v).elements()), v));
        for v in open {
            if self.layouts[v].is_some() {
                continue;
            }
            let members = tied.members(v);
            let bytes = members
                .iter()
                .filter_map(|&m| memory_bytes(kernel, m))
                .min()
                .unwrap_or_else(|| kernel.ty(v).dtype.bytes());
            let widest = widest_access(kernel, uses, members).unwrap_or(u32::MAX);
            let layout = Fragment::blocked(&kernel.ty(v).shape, widest.min(16 / bytes), self.warps);
            for &m in members {
                self.layouts[m] = Some(layout.clone());
            }
            self.propagate(kernel, tied, members.iter().flat_map(|&m| tied.touching[m].iter().copied()).collect());
        }
    }

    /// Derives layouts across broadcasts, reductions and reshapes until nothing changes: first across all these operations,
    /// then in each round across those that touch a class which got a layout in the round before.
    fn propagate(&mut self, kernel: &Kernel, tied: &Tied, mut next: BTreeSet<Inst>) {
        while !next.is_empty() {
            let mut found: Vec<(Value, Fragment)> = Vec::new();
            for inst in std::mem::take(&mut next) {
                let op = &kernel.insts[inst];
                let r = match op {
                    Op::Store { value, .. } => *value,
                    _ => match kernel.results[inst].first() {
                        Some(&r) => r,
                        None => continue,
                    },
                };
                let derived = match op {
                    Op::Broadcast { value, .. } if self.homes[r].is_none() => {
                        self.layouts[r].as_ref().map(|l| (*value, l.broadcast_source(&kernel.ty(*value).shape)))
                    }
                    Op::Reduce { value, axes, .. } => self.layouts[*value].as_ref().map(|l| (r, l.reduce(axes))),
                    Op::Reshape { value, .. } => match (&self.layouts[*value], &self.layouts[r]) {
                        (Some(l), None) => l.reshape(&kernel.ty(r).shape).map(|l| (r, l)),
                        (None, Some(l)) => l.reshape(&kernel.ty(*value).shape).map(|l| (*value, l)),
                        _ => continue,
                    },
                    Op::Load { .. } | Op::Store { .. } => {
                        self.layouts[r].as_ref().and_then(|l| layout_of_places(kernel, op, l))
                    }
                    _ => continue,
                };
                if let Some((v, layout)) = derived
                    && self.layouts[v].is_none()
                    && self.homes[v].is_none()
                {
                    found.push((v, layout));
                }
            }
            for (v, layout) in found {
                for &m in tied.members(v) {
                    if self.layouts[m].is_none() {
                        self.layouts[m] = Some(layout.clone());
                        next.extend(&tied.touching[m]);
                    }
                }
            }
        }
    }

    /// Decides homes from demands.
    fn place(&mut self, kernel: &Kernel, uses: &Uses, stages: u32) {
        let mut demanded: Vec<(Value, StagingReason)> = Vec::new();
        for (inst, op) in kernel.insts.iter() {
            match *op {
                Op::Dot { a, b, .. } => {
                    demanded.push((root(kernel, b).0, StagingReason::Operand));
                    if !self.left_from_registers(kernel, inst) {
                        demanded.push((root(kernel, a).0, StagingReason::Operand));
                    }
                }
                Op::Transpose(v) => {
                    let result = kernel.results[inst][0];
                    let only_operand = uses.get(result).iter().all(|u| {
                        matches!(kernel.insts[u.inst], Op::Dot { a, b, .. } if a == result || b == result)
                            || matches!(kernel.insts[u.inst], Op::Transpose(_))
                    });
                    if !only_operand {
                        demanded.push((root(kernel, v).0, StagingReason::Transposed));
                    }
                }
                _ => {}
            }
        }
        for v in kernel.values.keys() {
            if self.homes[v].is_some() {
                continue;
            }
            // An atom reads whole blocks: its buffer is padded to them, which serves every other reader too.
            let asked = || demanded.iter().filter(|d| d.0 == v).map(|d| d.1);
            let demand = asked().find(|&d| d == StagingReason::Operand).or_else(|| asked().next());
            // What the kernel also writes is loaded when its turn comes, not copied ahead of the stores before it.
            let is_load = match kernel.def_op(v) {
                // What lies at the places of a tile is read by the threads that have the places.
                Some((_, op @ Op::Load { param, .. })) => kernel.params[*param].kind.is_read_only() && !op.gathers(),
                _ => false,
            };
            self.homes[v] = Some(match (demand, is_load) {
                (Some(reason), true) => Home::Copied(reason),
                (Some(_), false) => match kernel.values[v].def {
                    ValueDef::BlockParam(..) => Home::Carried,
                    ValueDef::Result(i, _) if matches!(kernel.insts[i], Op::Loop { .. }) => Home::Carried,
                    _ => Home::Stored,
                },
                (None, true) if self.poorly_coalesced(kernel, v) => Home::Copied(StagingReason::Coalescing),
                (None, _) => Home::Registers,
            });
        }
        let staged = |v: Value| matches!(self.homes[v], Some(Home::Copied(_)));
        for v in running_ahead(kernel, uses, stages, staged) {
            self.homes[v] = Some(Home::Copied(StagingReason::Ahead));
        }
        self.carry_whole_loops(kernel);
    }

    /// If a loop's parameter is carried in shared memory, so is the matching result, and vice versa. Both lie in one buffer.
    fn carry_whole_loops(&mut self, kernel: &Kernel) {
        let mut changed = true;
        while changed {
            changed = false;
            for (inst, op) in kernel.insts.iter() {
                let Op::Loop { body, .. } = op else { continue };
                for (k, &r) in kernel.results[inst].iter().enumerate() {
                    let p = kernel.blocks[*body].params[k + 1];
                    if (self.homes[p] == Some(Home::Carried)) != (self.homes[r] == Some(Home::Carried)) {
                        self.homes[p] = Some(Home::Carried);
                        self.homes[r] = Some(Home::Carried);
                        changed = true;
                    }
                    if self.in_panels[p] != self.in_panels[r] {
                        (self.in_panels[p], self.in_panels[r]) = (true, true);
                        changed = true;
                    }
                }
            }
        }
    }

    /// True if the left operand of a product is computed in registers in the atom's operand layout.
    pub fn left_from_registers(&self, kernel: &Kernel, dot: Inst) -> bool {
        let Op::Dot { a, .. } = kernel.insts[dot] else { return false };
        let r = kernel.results[dot][0];
        let (Some(atom), Some(layout)) = (self.products[dot], self.layouts[a].as_ref()) else { return false };
        let computed = !matches!(kernel.def_op(a), Some((_, Op::Load { .. } | Op::Transpose(_))) | None)
            && !matches!(kernel.def_op(a), Some((_, Op::Loop { .. })));
        let elsewhere = matches!(self.homes[a], Some(Home::Copied(_) | Home::Carried | Home::Anywhere));
        let elsewhere = elsewhere || self.left_in_shared[dot];
        if !computed || elsewhere || !atom.is_tensor_core() || !atom.row().operand.is_half() {
            return false;
        }
        let (m, k) = (kernel.ty(a).shape[0], kernel.ty(a).shape[1]);
        let n = kernel.ty(r).shape[1];
        let grid = atom.warp_grid(m, n, self.warps, self.splits[r]);
        layout.same_map(&atom.left_operand(m, k, grid, self.warps))
    }

    /// True if a load by the value's layout would touch fewer than 32 consecutive bytes at a time.
    fn poorly_coalesced(&self, kernel: &Kernel, v: Value) -> bool {
        let Some(layout) = self.layouts[v].as_ref() else { return false };
        let ty = kernel.ty(v);
        ty.rank() == 2 && ty.elements() >= 1024 && contiguous_run(layout) * ty.dtype.bytes() < 32
    }

    /// The atom of a product. Its result may be tied to that of a product by another atom.
    pub fn product(&self, dot: Inst) -> Option<MmaAtom> {
        self.products[dot]
    }

    /// Why a product is not asynchronous; `None` for one that is.
    pub fn why_synchronous(&self, dot: Inst) -> Option<WhySynchronous> {
        self.synchronous[dot]
    }

    /// The atom whose accumulator layout a value has, if it has one.
    pub fn atom(&self, v: Value) -> Option<MmaAtom> {
        self.atoms[v]
    }
}

/// Consecutive elements of the last axis that one register group and its neighbouring lanes hold.
pub(crate) fn contiguous_run(layout: &Fragment) -> u32 {
    let inner = layout.shape.len() as u8 - 1;
    let mut run = 1;
    for m in layout.regs.iter().chain(&layout.threads) {
        if m.axis == Some(inner) && m.stride == run {
            run *= m.extent;
        }
    }
    run
}

/// Element size of the memory access that defines or consumes a value.
fn memory_bytes(kernel: &Kernel, v: Value) -> Option<u32> {
    let loaded = matches!(kernel.def_op(v), Some((_, Op::Load { .. })));
    let stored = kernel.insts.values().any(|op| matches!(op, Op::Store { value, .. } if *value == v));
    (loaded || stored).then(|| kernel.ty(v).dtype.bytes())
}

/// The widest vector, in elements, of the global accesses that load or store some values, in the innermost loop that has any.
/// Lanes hold this many consecutive elements. Otherwise, an access that cannot be wider would write a few scattered bytes.
fn widest_access(kernel: &Kernel, uses: &Uses, members: &[Value]) -> Option<u32> {
    let access = |(inst, op): (Inst, &Op)| {
        let (param, slices) = match op {
            Op::Load { param, slices } if members.contains(&kernel.results[inst][0]) => (*param, slices),
            Op::Store { param, slices, value, .. } if members.contains(value) => (*param, slices),
            _ => return None,
        };
        let mut depth = 0;
        let mut block = uses.block_of(inst);
        while let Some(owner) = block.and_then(|b| uses.loop_of(b)) {
            depth += 1;
            block = uses.block_of(owner);
        }
        Some((depth, vector_elements(&kernel.params[param].kind, inner_extent(kernel, param, slices))))
    };
    kernel.insts.iter().filter_map(access).max().map(|(_, width)| width)
}
