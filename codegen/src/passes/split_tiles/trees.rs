//! Trees of operations whose columns can be computed separately, and what they read.

use crate::analysis::is_long_enough;
use crate::gpu::analysis::{InRun, Runs};
use crate::gpu::atom::MmaAtom;
use crate::gpu::{
    Block, BlockData, Buffer, Inst, Kernel, Op, Operand, SharedRef, Split, Value, ValueDef, WarpGrid, slice_layout,
    warp_grid_of,
};
use crate::gpu_ops;
use crate::layout::{Fragment, words};
use atlas_dsl::op::{BinaryOp, UnaryOp};
use cranelift_entity::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};

/// The most operations that compute a value again for each root that uses it.
const MOST_STEPS: u32 = 12;

/// A read of shared memory.
#[derive(Clone, Copy)]
pub(super) struct SharedRead {
    pub(super) from: SharedRef,
    by: Inst,
    /// True if a range reads only its own columns of it.
    columns: bool,
}

/// The tree of a root.
#[derive(Default)]
pub(super) struct Tree {
    /// Operations that are computed by ranges.
    operations: BTreeSet<Inst>,
    /// Its leaves: columns of them are read, or they cost nothing.
    leaves: BTreeSet<Inst>,
    /// Results of loops and sums over CTAs, which stay in registers as a whole: columns of them are some of the registers.
    held: BTreeSet<Value>,
    /// True if another root uses sums of what a loop leaves too, and each range computes its own.
    computes_again: bool,
    pub(super) reads: Vec<SharedRead>,
}

impl Tree {
    pub(super) fn all(&self) -> impl Iterator<Item = Inst> {
        self.operations.union(&self.leaves).copied()
    }

    /// True if each range reads the left operand of a product from shared memory again.
    pub(super) fn reads_left_again(&self) -> bool {
        self.reads.iter().any(|r| !r.columns)
    }

    /// 32-bit registers of a thread for the widest tile that is not counted yet, and for everything that is loaded beside it. Beside
    /// what a loop leaves, a row or a column that is loaded counts for nothing: each range loads its own part.
    pub(super) fn widest(&self, k: &Kernel, counted: &BTreeSet<Inst>) -> u32 {
        let (mut widest, mut loaded) = (0, 0);
        // What another root computes again takes its registers here too.
        let none = BTreeSet::new();
        for &inst in self.operations.difference(if self.computes_again { &none } else { counted }) {
            let tile = k.values[k.results[inst][0]].ty.tile();
            let is_row = tile.is_some_and(|(_, layout)| layout.shape.len() < 2);
            let words = tile.map_or(0, words);
            if matches!(k.insts[inst], Op::LoadGlobal { .. }) {
                loaded += if is_row && !self.held.is_empty() { 0 } else { words };
            } else {
                widest = widest.max(words);
            }
        }
        widest + loaded
    }

    /// The layouts of `len` of `cols` columns of the whole tree, from those of the whole; `None` if it cannot be split for its
    /// root.
    pub(super) fn layouts(
        &self,
        k: &Kernel,
        root: Inst,
        (cols, len): (u32, u32),
        given: Option<WarpGrid>,
    ) -> Option<BTreeMap<Fragment, Fragment>> {
        let mut layouts = BTreeMap::new();
        for inst in self.all() {
            let whole = k.tile(k.results[inst][0]).1;
            if whole.shape.last() != Some(&cols) {
                return None;
            }
            if let Op::Mma { atom, a, b, shape, .. } = &k.insts[inst] {
                let cut = accumulator(*atom, whole, len, given);
                // An asynchronous product is made of whole instructions, of columns that lie in rows or panels of the buffer.
                let columns = len / warp_grid_of(&cut).cols;
                let begins =
                    |from: &SharedRef| from.transposed || columns.is_multiple_of(k.buffers[from.buffer].layout.panel);
                let begins = matches!(b, Operand::Shared(from) if begins(from));
                let is_made =
                    atom.fits(whole.shape[0], len, warp_grid_of(&cut)) && is_long_enough(*atom, &cut, shape.2);
                if atom.row().asynchronous && !(begins && is_made) {
                    return None;
                }
                // A left operand in registers is laid out for the grid.
                if matches!(a, Operand::Fragment(_)) && warp_grid_of(&cut) != warp_grid_of(whole) {
                    return None;
                }
                layouts.insert(whole.clone(), cut);
            } else {
                layouts.entry(whole.clone()).or_insert_with(|| columns(whole, len));
            }
        }
        for &v in &self.held {
            let whole = k.tile(v).1;
            let cut = layouts.entry(whole.clone()).or_insert_with(|| columns(whole, len));
            let last = whole.shape.len().checked_sub(1)? as u8;
            let is_cut = |first| slice_layout(whole, last, first, len).as_ref() == Some(cut);
            if whole.shape.last() != Some(&cols) || !(0..cols).step_by(len as usize).all(is_cut) {
                return None;
            }
        }
        // What ranges are reduced to meets in one layout.
        if let Op::Reduce { value, .. } = &k.insts[root] {
            let whole = k.tile(*value).1;
            return (layouts.get(whole) == whole.narrowed(len).as_ref()).then_some(layouts);
        }
        Some(layouts)
    }
}

/// The layout of fewer columns: the same, restricted, or if that is not possible one with vectors of the same length.
fn columns(layout: &Fragment, len: u32) -> Fragment {
    layout.narrowed(len).unwrap_or_else(|| {
        let mut shape = layout.shape.clone();
        let last = shape.len() - 1;
        shape[last] = len;
        let vector = layout.regs.iter().find(|m| m.axis == Some(last as u8) && m.stride == 1).map_or(1, |m| m.extent);
        Fragment::blocked(&shape, vector, layout.thread_count() / 32)
    })
}

/// The layout of fewer columns of a product. It has the grid that the schedule gives, or else the same grid. If a warp then has
/// too few columns, a grid is chosen for them as it was for the whole.
fn accumulator(atom: MmaAtom, whole: &Fragment, len: u32, given: Option<WarpGrid>) -> Fragment {
    let (m, n, warps, grid) = (whole.shape[0], whole.shape[1], whole.thread_count() / 32, warp_grid_of(whole));
    let cut = whole.narrowed(len).filter(|cut| *cut == atom.accumulator(m, len, grid, warps));
    cut.unwrap_or_else(|| {
        let split = match given {
            Some(given) => Split::Given(given),
            None if grid == atom.warp_grid(m, n, warps, Split::Rows) => Split::Rows,
            None => Split::Both,
        };
        atom.accumulator(m, len, atom.warp_grid(m, len, warps, split), warps)
    })
}

/// The operands of which columns are needed, for columns of a result; `None` if that is not known.
fn narrowed_operands(k: &Kernel, op: &Op) -> Option<Vec<Value>> {
    Some(match op {
        op if op.is_elementwise() => {
            let mut operands = Vec::new();
            op.visit_operands(|v| operands.push(v));
            operands
        }
        Op::MaskInvalid { value: v, .. } | Op::ConvertLayout(v) | Op::WaitMma(v, 0) => vec![*v],
        Op::Mma { acc, accumulate: None, .. } => acc.iter().copied().collect(),
        Op::LoadGlobal { param, slices, .. } if k.params[*param].kind.is_read_only() => {
            slices.iter().filter_map(|s| s.gathered()).collect()
        }
        Op::Broadcast(v) if is_column(k, *v) => vec![],
        Op::Broadcast(v) => vec![*v],
        Op::Reshape(_) | Op::Transpose(_) | Op::ExtractSlice { .. } | Op::Reduce { .. } | Op::Scan { .. } => {
            return None;
        }
        Op::Mma { .. } | Op::WaitMma(..) => return None,
        gpu_ops!(sources elementwise global shared clusters rings orders control) => return None,
    })
}

/// True for a tile of one column, which is the same in every range.
pub(super) fn is_column(k: &Kernel, v: Value) -> bool {
    k.tile(v).1.shape.last().is_none_or(|&cols| cols == 1)
}

/// The position of each instruction, and the uses of each value.
pub(super) struct Program {
    order: Vec<Inst>,
    place: SecondaryMap<Inst, usize>,
    block: SecondaryMap<Inst, Option<Block>>,
    users: SecondaryMap<Value, BTreeSet<Inst>>,
    runs: Runs,
}

impl Program {
    pub(super) fn of(k: &Kernel) -> Program {
        let mut p = Program {
            order: Vec::new(),
            place: SecondaryMap::new(),
            block: SecondaryMap::new(),
            users: SecondaryMap::new(),
            runs: Runs::of(k),
        };
        for role in k.roles.values() {
            p.walk(k, role.body);
        }
        p
    }

    fn walk(&mut self, k: &Kernel, block: Block) {
        let BlockData { insts, .. } = &k.blocks[block];
        for &inst in insts {
            self.place[inst] = self.order.len();
            self.order.push(inst);
            self.block[inst] = Some(block);
            k.insts[inst].visit_operands(|v| _ = self.users[v].insert(inst));
            if let Some(body) = k.insts[inst].body() {
                self.walk(k, body);
            }
        }
    }

    /// The tile that a root uses, if columns of its whole tree can be computed.
    pub(super) fn tree(&self, k: &Kernel, root: Inst, value: Value) -> Option<Tree> {
        let mut tree = Tree::default();
        // The last of the block first, so that a value comes behind all that uses it, and a tree that something else uses too
        // is given up there.
        let mut open = BTreeSet::new();
        let place = |v: Value| match k.values[v].def {
            ValueDef::Result(inst, _) => Some((self.place[inst], inst, v)),
            _ => None,
        };
        open.insert(place(value)?);
        while let Some((_, inst, v)) = open.pop_last() {
            match &k.insts[inst] {
                Op::LoadShared(from) => {
                    if tree.leaves.insert(inst) {
                        tree.reads.push(SharedRead { from: *from, by: inst, columns: true });
                    }
                }
                Op::Const(_) | Op::Iota { .. } => _ = tree.leaves.insert(inst),
                op if op.leaves_registers() && self.block[inst] == self.block[root] => _ = tree.held.insert(v),
                op => {
                    for operand in narrowed_operands(k, op)? {
                        open.insert(place(operand)?);
                    }
                    let inside = |i: &Inst| *i == root || tree.operations.contains(i);
                    let alone = self.users[v].iter().all(inside) || self.is_cheap(k, v, root);
                    let again = !alone && self.is_sum_of_result(k, v, root);
                    if self.block[inst] != self.block[root] || !(alone || again) {
                        return None;
                    }
                    tree.computes_again |= again;
                    tree.operations.insert(inst);
                    tree.reads.extend(products_reads(inst, op));
                }
            }
        }
        // What a loop leaves takes its registers in any case. Ranges then help only what is read beside it, what several roots make
        // of it, and what takes many registers while it is computed: the branch of a store keeps LLVM and ptxas from an order.
        if !tree.held.is_empty() {
            let is_store = matches!(k.insts[root], Op::StoreGlobal { .. } | Op::StoreShared { .. });
            let in_runs = is_store && tree.operations.iter().any(|&inst| self.runs.at(inst) != InRun::No);
            return (!tree.reads.is_empty() || tree.computes_again || in_runs).then_some(tree);
        }
        // Loads that no product waits for are all on their way at once.
        let is = |of: fn(&Op) -> bool| tree.operations.iter().any(|&i| of(&k.insts[i]));
        if is(|op| matches!(op, Op::LoadGlobal { .. })) && !is(|op| matches!(op, Op::Mma { .. })) {
            return None;
        }
        Some(tree)
    }

    /// True if a value can be computed again cheaply: by a few element-wise operations on a tile in shared memory.
    fn is_cheap(&self, k: &Kernel, v: Value, root: Inst) -> bool {
        let mut v = v;
        while let ValueDef::Result(inst, _) = k.values[v].def {
            let is_here = |v: Value| self.users[v].iter().all(|&u| self.block[u] == self.block[root]);
            if let Op::LoadShared(_) | Op::Const(_) | Op::Iota { .. } = k.insts[inst] {
                return true;
            }
            let (Op::Cast(a) | Op::Unary(UnaryOp::Neg | UnaryOp::Abs, _, a)) = k.insts[inst] else { return false };
            if !is_here(v) {
                return false;
            }
            v = a;
        }
        false
    }

    /// True if a value is computed from what a loop leaves by a few sums, products and casts with rows, columns and numbers.
    fn is_sum_of_result(&self, k: &Kernel, v: Value, root: Inst) -> bool {
        let (mut open, mut of_result, mut steps) = (vec![v], false, 0);
        while let Some(v) = open.pop() {
            let ValueDef::Result(inst, _) = k.values[v].def else { return false };
            steps += 1;
            if steps > MOST_STEPS || self.block[inst] != self.block[root] {
                return false;
            }
            let is_row = k.tile(v).1.shape.len() < 2;
            if k.insts[inst].leaves_registers() {
                of_result = true;
            } else if let Op::Broadcast(a) | Op::Cast(a) = k.insts[inst] {
                open.extend((!is_column(k, a)).then_some(a));
            } else if let Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, _, a, b) = k.insts[inst] {
                open.extend([a, b]);
            } else if let Op::LoadGlobal { param, slices, .. } = &k.insts[inst]
                && k.params[*param].kind.is_read_only()
                && is_row
                && !slices.iter().any(|s| s.gathered().is_some())
            {
                // A part of a row is loaded for each range.
            } else if !matches!(k.insts[inst], Op::Const(_)) {
                return false;
            }
        }
        of_result
    }

    /// True if nothing wrote a buffer before.
    pub(super) fn is_first_write(&self, k: &Kernel, inst: Inst, buffer: Buffer) -> bool {
        !self.order[..self.place[inst]].iter().any(|&i| k.insts[i].buffers().1.contains(&buffer))
    }

    /// True if a tree, moved to its root and computed range by range, reads the same values from shared memory as in its own
    /// place.
    pub(super) fn is_kept(&self, k: &Kernel, tree: &Tree, root: Inst) -> bool {
        tree.reads.iter().all(|read| {
            let mut own = true;
            if let Op::StoreShared { to, .. } = k.insts[root]
                && to.buffer == read.from.buffer
            {
                own = read.columns && !read.from.transposed && read.from.origin.1 == to.origin.1;
            }
            let here = self.block[read.by] == self.block[root];
            // A loop around the root runs all of it again.
            let until = if here { self.place[root] } else { self.order.len() };
            let between = self.order[self.place[read.by]..until].iter().filter(|&&i| i != root);
            own && !between.map(|&i| &k.insts[i]).any(|op| ends(op, read.from))
        })
    }
}

/// The places from which a product reads its operands.
fn products_reads(inst: Inst, op: &Op) -> Vec<SharedRead> {
    let Op::Mma { a, b, .. } = op else { return Vec::new() };
    let shared = |(operand, columns): (&Operand, bool)| match operand {
        Operand::Shared(from) => Some(SharedRead { from: *from, by: inst, columns }),
        Operand::Fragment(_) => None,
    };
    [(a, false), (b, true)].into_iter().filter_map(shared).collect()
}

/// True if an operation invalidates a read: it writes the buffer, or releases the stage.
fn ends(op: &Op, read: SharedRef) -> bool {
    match op {
        Op::Release(token) => Some(*token) == read.token,
        op => op.buffers().1.contains(&read.buffer),
    }
}
