//! Mistakes that a pass could make, planted in its output: each edit at every place where it applies.

use atlas_codegen::gpu::{
    AccessKind, Accuracy, At, Block, CopyAtom, Inst, Kernel, Op, Operand, Reach, SharedRef, Side, Slice, Type, Value,
};
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, UnaryOp};

/// A description of a mutant and its place, and the kernel.
pub(crate) type Mutant = (String, Kernel);

/// An instruction in its block, with the kernel to edit.
pub(crate) struct Site<'k> {
    pub(crate) k: &'k mut Kernel,
    pub(crate) block: Block,
    pub(crate) at: usize,
    pub(crate) inst: Inst,
}

impl Site<'_> {
    pub(crate) fn op(&mut self) -> &mut Op {
        &mut self.k.insts[self.inst]
    }

    /// True if this holds of the instruction behind it.
    fn next_is(&self, is: impl Fn(&Op) -> bool) -> bool {
        self.k.blocks[self.block].insts.get(self.at + 1).is_some_and(|&i| is(&self.k.insts[i]))
    }

    /// Removes the instruction.
    pub(crate) fn remove(&mut self) -> bool {
        self.k.blocks[self.block].insts.remove(self.at);
        true
    }

    /// Inserts a scalar operation before the instruction.
    fn scalar(&mut self, op: Op, dtype: DType) -> Value {
        let ty = self.k.scalar_type(dtype);
        let made = self.k.new_inst(op, vec![ty], self.k.locs[self.inst]);
        self.k.blocks[self.block].insts.insert(self.at, made);
        self.at += 1;
        self.k.results[made][0]
    }

    /// `v + by`, before the instruction.
    pub(crate) fn plus(&mut self, v: Value, by: f64) -> Value {
        let by = self.scalar(Op::Const(by), DType::I32);
        self.scalar(Op::binary(BinaryOp::Add, v, by), DType::I32)
    }

    pub(crate) fn zero(&mut self) -> Value {
        self.scalar(Op::Const(0.0), DType::I32)
    }

    pub(crate) fn not(&mut self, v: Value) -> Value {
        self.scalar(Op::Unary(UnaryOp::Not, Accuracy::Precise, v), DType::Bool)
    }
}

/// All kernels that an edit gives. The edit returns whether it applies to an instruction.
pub(crate) fn at_each(k: &Kernel, edit: impl Fn(&mut Site<'_>) -> bool) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for (block, data) in &k.blocks {
        for (at, &inst) in data.insts.iter().enumerate() {
            let mut mutant = k.clone();
            if edit(&mut Site { k: &mut mutant, block, at, inst }) {
                mutants.push((format!("{:?} in {block} at {at}", k.insts[inst]), mutant));
            }
        }
    }
    mutants
}

/// Removes the operations that `of` selects.
pub(crate) fn without(k: &Kernel, of: impl Fn(&Op) -> bool) -> Vec<Mutant> {
    at_each(k, |s| of(s.op()) && s.remove())
}

/// Takes out all that `of` chooses, at once.
pub(crate) fn without_all(k: &Kernel, of: impl Fn(&Op) -> bool) -> Vec<Mutant> {
    let mut mutant = k.clone();
    for block in mutant.blocks.values_mut() {
        block.insts.retain(|&i| !of(&k.insts[i]));
    }
    vec![("all of them".to_owned(), mutant)]
}

/// A barrier less: before the wait of a ring, or elsewhere.
pub(crate) fn without_barriers(k: &Kernel, before_a_wait: bool) -> Vec<Mutant> {
    at_each(k, |s| {
        let waits = s.next_is(|op| matches!(op, Op::Wait(..)));
        *s.op() == Op::Barrier && waits == before_a_wait && s.remove()
    })
}

/// A barrier of all threads, or of a warpgroup's, less before a stage is released.
pub(crate) fn without_barriers_of_releases(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| {
        let releases = s.next_is(|op| matches!(op, Op::Release(_)));
        matches!(s.op(), Op::Barrier | Op::WarpgroupBarrier) && releases && s.remove()
    })
}

/// Increments the iteration number by which a ring is acquired, or waited for.
pub(crate) fn numbers_further(k: &Kernel, of: impl Fn(&Op) -> bool) -> Vec<Mutant> {
    at_each(k, |s| {
        let (Op::Acquire(_, at) | Op::Wait(_, at)) = *s.op() else { return false };
        if !of(s.op()) {
            return false;
        }
        let (At::Iteration(v) | At::Slot(v) | At::Cursor { slot: v, .. }) = at;
        let further = s.plus(v, 1.0);
        if let Op::Acquire(_, at) | Op::Wait(_, at) = s.op()
            && let At::Iteration(v) | At::Slot(v) | At::Cursor { slot: v, .. } = at
        {
            *v = further;
        }
        true
    })
}

/// Replaces slots by the first one.
pub(crate) fn first_slots(k: &Kernel, of: impl Fn(&Op) -> bool) -> Vec<Mutant> {
    at_each(k, |s| {
        if !of(s.op()) || !in_loop_or_branch(s) {
            return false;
        }
        let zero = s.zero();
        match s.op() {
            Op::Acquire(_, At::Slot(v)) | Op::Wait(_, At::Slot(v)) => *v = zero,
            _ => return false,
        }
        true
    })
}

/// Exchanges the phases of acquired or awaited stages.
pub(crate) fn other_phases(k: &Kernel, of: impl Fn(&Op) -> bool) -> Vec<Mutant> {
    at_each(k, |s| {
        let (Op::Acquire(_, At::Cursor { phase, .. }) | Op::Wait(_, At::Cursor { phase, .. })) = *s.op() else {
            return false;
        };
        if !of(s.op()) {
            return false;
        }
        let one = s.scalar(Op::Const(1.0), DType::I32);
        let other = s.scalar(Op::binary(BinaryOp::Sub, one, phase), DType::I32);
        if let Op::Acquire(_, At::Cursor { phase, .. }) | Op::Wait(_, At::Cursor { phase, .. }) = s.op() {
            *phase = other;
        }
        true
    })
}

/// Puts mbarriers to where a buffer is.
pub(crate) fn mbarriers_in_buffers(k: &Kernel) -> Vec<Mutant> {
    let with = k.rings.iter().filter(|(_, r)| r.mbarriers.is_some());
    let moved = with.map(|(ring, _)| {
        let mut mutant = k.clone();
        mutant.rings[ring].mbarriers = Some(0);
        (format!("{ring}"), mutant)
    });
    moved.collect()
}

/// Copies by the map of another tensor.
pub(crate) fn other_maps(k: &Kernel) -> Vec<Mutant> {
    let maps: Vec<_> = k.maps.keys().collect();
    at_each(k, |s| {
        let Op::Copy { atom: CopyAtom::Tma(map, _), .. } = s.op() else { return false };
        let Some(&other) = maps.iter().find(|&m| m != map) else { return false };
        *map = other;
        true
    })
}

/// True in a body that is nested in the body of a loop, or is one.
pub(crate) fn in_loop_or_branch(s: &Site<'_>) -> bool {
    let bodies: Vec<Block> =
        s.k.insts.values().filter_map(|op| if let Op::Loop { body, .. } = op { Some(*body) } else { None }).collect();
    bodies.contains(&s.block)
        || bodies.iter().any(|&b| {
            s.k.blocks[b].insts.iter().any(|&i| matches!(s.k.insts[i], Op::If(_, inner, _) if inner == s.block))
        })
}

/// Removes a stage from rings and their buffers.
pub(crate) fn shallower_rings(k: &Kernel) -> Vec<Mutant> {
    let deep = k.rings.iter().filter(|(_, r)| r.stages > 1);
    let shallower = deep.map(|(ring, _)| {
        let mut mutant = k.clone();
        mutant.rings[ring].stages -= 1;
        for b in mutant.rings[ring].buffers.clone() {
            mutant.buffers[b].stages -= 1;
        }
        (format!("{ring}"), mutant)
    });
    shallower.collect()
}

/// Gives two buffers the same offset, for each pair.
pub(crate) fn overlapping_buffers(k: &Kernel) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for (a, one) in &k.buffers {
        for (b, other) in k.buffers.iter().filter(|&(b, _)| b != a) {
            if one.offset != other.offset && one.offset.is_some_and(|o| o.is_multiple_of(other.layout.alignment())) {
                let mut mutant = k.clone();
                mutant.buffers[b].offset = one.offset;
                mutants.push((format!("`{}` over `{}`", other.name, one.name), mutant));
            }
        }
    }
    mutants
}

/// Swaps each commit with the next one of its block.
pub(crate) fn exchanged_commits(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| {
        let Op::Commit(ring, None) = *s.op() else { return false };
        let insts = &mut s.k.blocks[s.block].insts;
        let next = (s.at + 1..insts.len()).find(|&i| matches!(s.k.insts[insts[i]], Op::Commit(r, None) if r != ring));
        let Some(next) = next else { return false };
        insts.swap(s.at, next);
        true
    })
}

/// Calls `f` on each slice of an operation until one was changed.
fn slices_of(op: &mut Op, f: impl FnMut(&mut Slice) -> bool) -> bool {
    match op {
        Op::LoadGlobal { slices, .. } | Op::StoreGlobal { slices, .. } | Op::Copy { slices, .. } => {
            slices.iter_mut().any(f)
        }
        Op::MaskInvalid { valid, .. } => valid.iter_mut().map(|v| &mut v.slice).any(f),
        _ => false,
    }
}

/// Declares tiles to lie inside their tensor, although they may not.
pub(crate) fn claimed_inside(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| {
        slices_of(s.op(), |slice| match slice {
            Slice::Tile { reach, .. } if *reach == Reach::PastEnd => {
                *reach = Reach::Inside;
                true
            }
            _ => false,
        })
    })
}

/// Removes the instruction of copies.
pub(crate) fn open_copies(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| match s.op() {
        Op::Copy { atom, .. } if *atom != CopyAtom::Open => {
            *atom = CopyAtom::Open;
            true
        }
        _ => false,
    })
}

/// Uses the next tile along an axis instead of the right one.
pub(crate) fn next_tiles(k: &Kernel, axis: usize) -> Vec<Mutant> {
    at_each(k, |s| {
        let (Op::LoadGlobal { slices, .. } | Op::StoreGlobal { slices, .. } | Op::Copy { slices, .. }) = s.op() else {
            return false;
        };
        let Some(Slice::Tile { index, .. }) = slices.get(axis).copied() else { return false };
        let further = s.plus(index, 1.0);
        if let Op::LoadGlobal { slices, .. } | Op::StoreGlobal { slices, .. } | Op::Copy { slices, .. } = s.op()
            && let Slice::Tile { index, reach, .. } = &mut slices[axis]
        {
            (*index, *reach) = (further, Reach::Anywhere);
        }
        true
    })
}

/// Loads operands one step of their instruction further along K, if the buffer reaches that far.
pub(crate) fn operands_further(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| {
        let Op::LoadMatrix { side, from, .. } = *s.op() else { return false };
        let Some((_, tile)) = s.k.results[s.inst].first().and_then(|&v| s.k.values[v].ty.tile()) else { return false };
        let (layout, extents) = (s.k.buffers[from.buffer].layout, (tile.shape[0], tile.shape[1]));
        let along_rows = (side == Side::Right) != from.transposed;
        let (rows, cols) = if from.transposed { (extents.1, extents.0) } else { extents };
        let (row, col) = if along_rows { (rows, 0) } else { (0, cols) };
        let origin = (from.origin.0 + row, from.origin.1 + col);
        if origin.0 + rows > layout.rows || origin.1 + cols > layout.cols {
            return false;
        }
        if let Op::LoadMatrix { from, .. } = s.op() {
            from.origin = origin;
        }
        true
    })
}

/// Changes bounds of loops by one.
pub(crate) fn bounds_off(k: &Kernel, upper: bool, by: f64) -> Vec<Mutant> {
    at_each(k, |s| {
        let Op::Loop { lo, hi, .. } = *s.op() else { return false };
        let off = s.plus(if upper { hi } else { lo }, by);
        if let Op::Loop { lo, hi, .. } = s.op() {
            *(if upper { hi } else { lo }) = off;
        }
        true
    })
}

/// Inverts guards.
pub(crate) fn inverted_guards(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| {
        let Op::If(condition, ..) = *s.op() else { return false };
        let inverted = s.not(condition);
        if let Op::If(condition, ..) = s.op() {
            *condition = inverted;
        }
        true
    })
}

/// Lets loops yield the incoming value of a carried tile, by its index, instead of the iteration's result.
pub(crate) fn stale_yields(k: &Kernel, place: usize) -> Vec<Mutant> {
    at_each(k, |s| {
        let carried = s.k.blocks[s.block].params.get(place + 1).copied();
        let tile = |v: &Value| matches!(s.k.values[*v].ty, Type::Fragment { .. });
        let (Some(stays), Op::Yield(values)) = (carried.filter(tile), &mut s.k.insts[s.inst]) else { return false };
        let differs = values[place] != stays;
        values[place] = stays;
        differs
    })
}

/// Moves a release before the last read of its stage.
pub(crate) fn early_releases(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| {
        let Op::Release(token) = *s.op() else { return false };
        let insts = &mut s.k.blocks[s.block].insts;
        let reads = |i: &Inst| {
            let mut found = false;
            s.k.insts[*i].visit_operands(|v| found |= v == token);
            found
        };
        let Some(last) = insts[..s.at].iter().rposition(reads) else { return false };
        let release = insts.remove(s.at);
        insts.insert(last, release);
        true
    })
}

/// Lets copy waits leave one more group in flight.
pub(crate) fn weaker_copy_waits(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| match s.op() {
        Op::CopyWait(pending) => {
            *pending += 1;
            true
        }
        _ => false,
    })
}

/// Lets product waits leave the awaited product in flight.
pub(crate) fn weaker_product_waits(k: &Kernel) -> Vec<Mutant> {
    replaced(k, |op| if let Op::WaitMma(v, pending) = op { Some(Op::WaitMma(*v, pending + 1)) } else { None })
}

/// Replaces operations by the result of `of`; `None` means that it does not apply.
pub(crate) fn replaced(k: &Kernel, of: impl Fn(&Op) -> Option<Op>) -> Vec<Mutant> {
    at_each(k, |s| match of(s.op()) {
        Some(op) => {
            *s.op() = op;
            true
        }
        None => false,
    })
}

/// Changes the form of accesses that have one.
pub(crate) fn other_forms(k: &Kernel, of: impl Fn(&AccessKind) -> Option<AccessKind>) -> Vec<Mutant> {
    at_each(k, |s| match s.k.access_kinds[s.inst].as_ref().and_then(&of) {
        Some(form) => {
            s.k.access_kinds[s.inst] = Some(form);
            true
        }
        None => false,
    })
}

/// Removes the form of accesses.
pub(crate) fn without_forms(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| s.k.access_kinds[s.inst].take().is_some())
}

/// Doubles the width of vectors.
pub(crate) fn wider_vectors(k: &Kernel) -> Vec<Mutant> {
    other_forms(k, |form| match form {
        AccessKind::Vector { bytes, within } => Some(AccessKind::Vector { bytes: 2 * bytes, within: within.clone() }),
        AccessKind::Matrix => None,
    })
}

/// Increments coordinates of programs.
pub(crate) fn coordinates_further(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| {
        let Op::Coordinate(v, _) = *s.op() else { return false };
        let further = s.plus(v, 1.0);
        s.op().replace_operands(|_| further);
        true
    })
}

/// Increments the initial value of a loop's last carried number.
pub(crate) fn cursors_further(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| {
        let last = match s.op() {
            Op::Loop { inits, .. } => inits.last().copied(),
            _ => None,
        };
        let int = |v: &Value| matches!(&s.k.values[*v].ty, Type::Fragment { dtype: DType::I32, .. });
        let Some(last) = last.filter(int) else { return false };
        let further = s.plus(last, 1.0);
        if let Op::Loop { inits, .. } = s.op()
            && let Some(last) = inits.last_mut()
        {
            *last = further;
        }
        true
    })
}

/// Changes the right operand of products.
pub(crate) fn right_operands(k: &Kernel, f: impl Fn(SharedRef) -> SharedRef) -> Vec<Mutant> {
    at_each(k, |s| match s.op() {
        Op::Mma { b: Operand::Shared(b), .. } => {
            *b = f(*b);
            true
        }
        _ => false,
    })
}

/// Lets products of later columns read the first ones.
pub(crate) fn first_columns(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| match s.op() {
        Op::Mma { b: Operand::Shared(b), .. } if b.origin.1 > 0 => {
            b.origin.1 = 0;
            true
        }
        _ => false,
    })
}

/// Lets stores of later columns overwrite the first ones.
pub(crate) fn first_stores(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| match s.op() {
        Op::StoreGlobal { slices, .. } => match slices.last_mut() {
            Some(Slice::Whole { offset, .. }) if *offset > 0 => {
                *offset = 0;
                true
            }
            _ => false,
        },
        _ => false,
    })
}

/// Lets the engine store the first panel of a stage instead of a later one.
pub(crate) fn first_panels(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| match s.op() {
        Op::Copy { atom, to, .. } if atom.is_store() && to.origin.1 > 0 => {
            to.origin.1 = 0;
            true
        }
        _ => false,
    })
}

/// Lets the engine store a part of two panels.
pub(crate) fn shifted_panels(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| match s.op() {
        Op::Copy { atom, to, .. } if atom.is_store() => {
            to.origin.1 += 8;
            true
        }
        _ => false,
    })
}

/// Lets products start at zero.
pub(crate) fn without_accumulators(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| match s.op() {
        Op::Mma { acc, accumulate, .. } => {
            *accumulate = None;
            acc.take().is_some()
        }
        _ => false,
    })
}

/// Does not mask elements outside their tensor before a reduction.
pub(crate) fn without_refills_of_folds(k: &Kernel) -> Vec<Mutant> {
    at_each(k, |s| {
        let folded = |v: &Value| s.k.insts.values().any(|op| matches!(op, Op::Reduce { value, .. } if value == v));
        let is_folded = s.k.results[s.inst].iter().any(folded);
        match *s.op() {
            Op::MaskInvalid { value, ref valid, .. } if is_folded && !valid.is_empty() => {
                *s.op() = Op::Rematerialize(value);
                true
            }
            _ => false,
        }
    })
}
