//! `insert_barriers`: derives every barrier and copy wait from the dependencies on memory.
//!
//! Needs: placed buffers, forms of accesses. Establishes: a barrier between any two conflicting accesses by different
//! threads; a copy wait and a barrier at every `wait` of a ring filled by threads; a proxy fence before a barrier behind which
//! an asynchronous product reads, or the copy engine fills or stores, what threads wrote; a wait for earlier stores of the engine,
//! and a barrier, before a stage that it may still read is handed out; a fence and a barrier behind the set-up of mbarriers.
//! Never: removes one. Refuses: nothing.
//! Constructs: removes bare-waits; adds barriers.
//!
//! # Promise
//! On every path through a role, between two accesses of which one writes and which may touch one byte from different
//! threads there is a barrier, or the protocol of a ring. What a copy brings is read only after its wait and a barrier.
//! All threads meet at each barrier.
//!
//! # Argument
//! *State.* At each point the set of accesses that some path reaches it with and no barrier since. A barrier empties it; an
//! operation that conflicts with a member gets a barrier before it; then its own accesses join. A branch leaves the union
//! of both ways. At the head of a loop stands what comes in joined with what an iteration leaves, which is found by iterating
//! up: the accesses of a kernel are finitely many, so that ends. A larger state may give more barriers and so a smaller
//! state behind them; that does no harm, for the last walk places barriers from a head that holds what its own end leaves,
//! and with these barriers fixed a path never has more than the walk. A loop of no iterations leaves its head, which is in
//! the result.
//!
//! *Conflicts.* Accesses of buffers that share bytes, or of rectangles of one buffer that meet; a rectangle is what
//! [`writable`](crate::gpu::writable) can let through, rounded to the 16 x 16 blocks of the atoms; a product reads all that
//! follows its corner, since warps past its last block repeat it. Of tensors, those that the kernel loads and stores or
//! stores twice; tensors share nothing with one another (tile-interp/src/overlap.rs).
//!
//! *No conflict.* Two accesses by one spelled-out layout, each element of which belongs to one thread and moves by no matrix
//! instruction, touch an element from the same thread, for which the order of the text holds. Of a tensor the slices must
//! be equal texts too: the same values, perhaps with other numbers in another iteration, pick the same tile or tiles apart,
//! for on each axis they are elements or multiples of one size. Spans are not, and are never private. Of stores by a
//! layout with repeated elements the first copy alone stores.
//!
//! *Rings.* Copies are in no state. `wait` makes a stage visible to all. `acquire` hands out the stage that was released
//! before the last `wait`: its readers are past that barrier, unless a read of the ring, or of bytes shared with it, is still
//! in the state, which then gets a barrier here. Reads through a token that is not released yet are of another stage: a
//! stage is handed out only when it is free.
//!
//! A ring that the copy engine fills needs no barrier. Its mbarriers order the fill of a stage with all its readers, both ways,
//! and reads of it stay in the state only for buffers that share its bytes. But one thread of a warpgroup releases a stage: the
//! others have multiplied by then, since `wait.mma` waits for a warpgroup, but they may still read as threads. So all meet before
//! the release of a stage that threads have read since the barrier before. Where warpgroups store apart from each other, only
//! the threads of each warpgroup do: a stage is free once every warpgroup has released it.
//!
//! *Stores of the engine.* A copy to a tensor reads its stage until a `wait.stores` of the thread that started it, or the `drain`
//! at the end. So at an `acquire` that an earlier store of the ring may precede, that thread waits for all of them but the
//! newest, of which there are as many as the ring has other stages, for stages are stored in turn. Then all threads meet, so that
//! nobody writes what the engine still reads. Nothing else may write these bytes, for `allocate_shared` leaves
//! the buffers of such a ring to themselves from there on.
//!
//! Of a ring by warpgroups, each warpgroup writes, stores and waits for its own rows alone, so its threads meet, and no others.
//!
//! *Copy waits.* `cp.async.wait_group n` leaves the `n` youngest groups pending. A ring is a queue: its n-th wait is for its
//! n-th commit. Where both stand in one block, the groups committed between them are younger; a nested block that commits
//! makes the count unknown, and all are waited for. In the steady state of a pipeline each iteration commits one group, empty or
//! not, and waits for one: what was committed and not waited for before the loop, and the commit of the iteration if that
//! stands before the wait, less the group that is waited for, are younger. Groups of other rings only add to them. Groups
//! left over from a loop that is over are older than all of these.
//!
//! *Proxies.* An asynchronous product and a store of the engine read shared memory by the async proxy, which sees what a thread wrote once that thread
//! has executed `fence.proxy.async` and a barrier has followed (PTX ISA, "Async proxy"). Every barrier that this pass places is
//! preceded by that fence if, since the barrier before, some thread wrote a buffer that one of these reads, by a store or by
//! a copy of a ring. The products are over at their `wait.mma`, so their reads are entered there a second time: a barrier
//! between the two does not order what the product still reads.
//!
//! *Meeting.* Barriers stand in loops and branches whose bounds and conditions are scalars, the same in all threads.
//!
//! # Breaks it
//! - A matrix access called private: tests/agreement/wrong_code.rs::matrix_accesses_belong_to_no_thread.
//! - Spans called private: tests/agreement/exchanges.rs::threads_exchange_data_through_a_tensor.
//! - Equal numbers behind unequal values called apart, or a padded layout called private:
//!   tests/agreement/wrong_code.rs::a_program_reads_what_it_wrote_by_any_slice and in_place_at_any_size.
//! - The end of a loop not joined to its head, or to what follows it:
//!   tests/agreement/wrong_code.rs::carried_tiles_are_replaced_together.
//! - A tile of a ring overwritten in an iteration, then filled again:
//!   tests/agreement/exchanges.rs::a_tile_from_outside_a_loop_outlives_its_iterates.
//! - A proxy fence left out after a store or after copies: the simulator, tests/agreement/hopper.rs.
//! - A stage that the engine still stores, written again: the simulator, tests/agreement/engine_stores.rs.
//! - Waits counted across a loop that commits: tests/agreement/exchanges.rs::a_loop_in_a_pipeline_changes_nothing and
//!   tests/agreement/arguments.rs::copies_of_two_loops_are_waited_for.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{
    AccessKind, Block, Buffer, FenceKind, Inst, Kernel, Mover, Op, Operand, Ring, SharedRef, Slice, Value, ValueDef,
};
use crate::gpu_ops;
use crate::layout::Fragment;
use crate::mutation::{Mutation, is_planted};
use atlas_dsl::Param;
use atlas_dsl::ir::Loc;
use std::collections::{BTreeMap, BTreeSet};

/// Rows and columns of a buffer.
type Rect = (u32, u32, u32, u32);

/// What an access touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Storage {
    Shared(Buffer),
    Tensor(Param),
}

/// An access not yet ordered by a barrier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UnorderedAccess {
    place: Storage,
    rect: Rect,
    write: bool,
    /// Spelled-out layout of a fragment access in which every element belongs to one thread. Two such
    /// accesses of one rectangle touch an element from the same thread, which needs no barrier.
    private: Option<String>,
    /// The token through which a stage of a ring is read, until it is released.
    held: Option<Value>,
}

/// What is unordered at a point.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    open: BTreeSet<UnorderedAccess>,
}

/// The block that a block's operation stands in, and where.
type ParentPosition = Option<(Block, usize)>;

/// Inserts the barriers of every role.
pub fn insert_barriers(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let bodies: Vec<Block> = k.roles.values().map(|r| r.body).collect();
    let mut known = Known {
        found: BTreeMap::new(),
        by_proxy: read_by_proxy(k),
        read_by_threads: read_by_threads(k),
        by_warpgroups: k.rings.values().any(|ring| ring.by_warpgroups),
        after_stores: BTreeSet::new(),
    };
    for &body in &bodies {
        find_after_stores(k, body, &mut BTreeSet::new(), &mut known.after_stores);
    }
    for body in bodies {
        let mut state = State::default();
        block(k, body, None, &mut state, true, &mut known);
        known.found.clear();
    }
    cx.notes.push("barriers", Loc::default(), || {
        let all = || k.blocks.values().flat_map(|b| &b.insts).map(|&i| &k.insts[i]);
        let barriers = all().filter(|op| matches!(op, Op::Barrier)).count();
        let waits = all().filter(|op| matches!(op, Op::CopyWait(_))).count();
        let because = format!("{waits} waits for copies; the rest between threads that touch the same bytes");
        (format!("{barriers} in the text"), because)
    });
    Ok(())
}

/// A body that is repeated, from a state before its first iteration.
#[derive(Clone)]
struct Repeated {
    /// What comes in joined with what any iteration leaves.
    head: State,
    /// What an iteration leaves.
    end: State,
    /// Barriers that are missing in the body, in the text.
    missing: usize,
}

/// What is known of a kernel.
struct Known {
    /// What was found out of loops, by what comes in: loops in loops would else be walked again for each walk around them.
    found: BTreeMap<(Inst, State), Repeated>,
    /// The buffers that asynchronous products read, that the engine fills, and that it stores.
    by_proxy: BTreeSet<Buffer>,
    /// The tokens of stages that the engine fills and threads read.
    read_by_threads: BTreeSet<Value>,
    /// True if warpgroups store apart from each other. Then they release stages apart, too.
    by_warpgroups: bool,
    /// The acquires of stages that an earlier store of the engine may still read.
    after_stores: BTreeSet<Inst>,
}

impl Known {
    /// True if what copies by threads bring to a buffer is read, or written over, by the asynchronous proxy.
    fn is_of_proxy(&self, k: &Kernel, buffer: Buffer) -> bool {
        let fills =
            |other: Buffer| k.rings.values().any(|r| r.filled_by == Mover::Engine && r.buffers.contains(&other));
        let shares = |&other: &Buffer| fills(other) && shares_bytes(k, Storage::Shared(buffer), Storage::Shared(other));
        self.by_proxy.contains(&buffer) || self.by_proxy.iter().any(shares)
    }
}

/// The buffers that asynchronous products read, that the engine fills, and that it stores.
fn read_by_proxy(k: &Kernel) -> BTreeSet<Buffer> {
    let reads = |op: &&Op| op.is_asynchronous() || matches!(op, Op::Copy { atom, .. } if atom.is_store());
    let filled = k.rings.values().filter(|r| r.filled_by == Mover::Engine).flat_map(|r| r.buffers.iter().copied());
    k.insts.values().filter(reads).flat_map(|op| op.buffers().0).chain(filled).collect()
}

/// The tokens of stages that the engine fills and threads read.
fn read_by_threads(k: &Kernel) -> BTreeSet<Value> {
    let token = |op: &Op| {
        let (Op::LoadShared(from) | Op::LoadMatrix { from, .. }) = op else { return None };
        from.token
    };
    k.insts.values().filter_map(token).filter(|&token| k.ring_of_engine(token).is_some()).collect()
}

/// Finds the acquires of a block that a store of their ring may precede, given the rings that were stored from before.
fn find_after_stores(k: &Kernel, block: Block, stored: &mut BTreeSet<Ring>, found: &mut BTreeSet<Inst>) {
    for &inst in &k.blocks[block].insts {
        let op = &k.insts[inst];
        if let Op::Acquire(ring, _) = op
            && stored.contains(ring)
        {
            found.insert(inst);
        }
        // What an iteration stores precedes the next one.
        if let Op::Commit(..) | Op::Loop { .. } | Op::Programs(_) = op {
            let is_stored = |&ring: &Ring| k.rings[ring].read_by == Mover::Engine && commits(k, inst, ring);
            stored.extend(k.rings.keys().filter(is_stored));
        }
        if let Some(body) = op.body() {
            find_after_stores(k, body, stored, found);
        }
    }
}

/// True for a region in which each warpgroup has the engine store its own rows.
fn stores_by_warpgroups(k: &Kernel, body: Block) -> bool {
    k.blocks[body].insts.iter().any(|&i| matches!(k.insts[i], Op::Commit(r, _) if k.rings[r].by_warpgroups))
}

/// True if an instruction, or one in its body, ends a stage of a ring.
fn commits(k: &Kernel, inst: Inst, ring: Ring) -> bool {
    let within = |body: Block| k.blocks[body].insts.iter().any(|&i| commits(k, i, ring));
    matches!(k.insts[inst], Op::Commit(r, _) if r == ring) || k.insts[inst].body().is_some_and(within)
}

/// The state at the head of the body that a loop repeats, found by iterating up.
fn repeated(
    k: &mut Kernel,
    inst: Inst,
    body: Block,
    around: ParentPosition,
    state: &State,
    known: &mut Known,
) -> Repeated {
    let key = (inst, state.clone());
    if let Some(found) = known.found.get(&key) {
        return found.clone();
    }
    let mut head = state.clone();
    loop {
        let mut end = head.clone();
        let missing = block(k, body, around, &mut end, false, known);
        let joined = State { open: head.open.union(&end.open).cloned().collect() };
        if joined == head {
            let found = Repeated { head, end, missing };
            known.found.insert(key, found.clone());
            return found;
        }
        head = joined;
    }
}

/// Walks a block from a state; with `write`, inserts what it finds missing. How many barriers are missing, in the text.
fn block(k: &mut Kernel, b: Block, around: ParentPosition, state: &mut State, write: bool, known: &mut Known) -> usize {
    let mut missing = 0;
    let insts = k.blocks[b].insts.clone();
    let mut out: Vec<Inst> = Vec::with_capacity(insts.len());
    for (at, &inst) in insts.iter().enumerate() {
        let op = k.insts[inst].clone();
        match &op {
            Op::Loop { body, .. } | Op::Programs(body) => {
                let around = Some((b, at));
                let mut body_of = repeated(k, inst, *body, around, state, known);
                // What only the first iteration has to wait for is waited for once, before the loop.
                let clear = repeated(k, inst, *body, around, &State::default(), known);
                if clear.missing < body_of.missing {
                    barrier(k, known, state, &mut out, inst, write);
                    missing += 1;
                    body_of = clear;
                }
                missing += body_of.missing;
                if write {
                    block(k, *body, around, &mut body_of.head.clone(), true, known);
                }
                *state = body_of.head;
                state.open.extend(body_of.end.open);
            }
            // Each warpgroup wrote its own rows of the stage, and stores them.
            Op::Once(body) if stores_by_warpgroups(k, *body) => {
                if write {
                    out.push(effect(k, Op::Fence(FenceKind::ProxyAsync), inst));
                    out.push(effect(k, Op::WarpgroupBarrier, inst));
                }
            }
            Op::Once(body) => {
                // All threads meet before the region of one thread, not in it.
                if block(k, *body, Some((b, at)), &mut state.clone(), false, known) > 0 {
                    barrier(k, known, state, &mut out, inst, write);
                    missing += 1;
                }
                block(k, *body, Some((b, at)), state, write, known);
            }
            Op::If(_, body, _) => {
                let mut inner = state.clone();
                missing += block(k, *body, Some((b, at)), &mut inner, write, known);
                state.open.extend(inner.open);
            }
            Op::Wait(ring, _) if k.rings[*ring].filled_by == Mover::Engine => {}
            Op::Wait(ring, _) => {
                if write {
                    let pending = younger_commits(k, around, &insts, at, *ring);
                    out.push(effect(k, Op::CopyWait(pending), inst));
                    // Copies are in no state.
                    if k.rings[*ring].buffers.iter().any(|&b| known.is_of_proxy(k, b)) {
                        out.push(effect(k, Op::Fence(FenceKind::ProxyAsync), inst));
                    }
                }
                barrier(k, known, state, &mut out, inst, write);
                missing += 1;
            }
            Op::Acquire(ring, _) if known.after_stores.contains(&inst) => {
                if write {
                    // Stages are stored one after the other: the newest groups are of the others.
                    let pending = k.rings[*ring].stages - 1;
                    out.push(effect(k, Op::StoreWait(pending), inst));
                }
                if !k.rings[*ring].by_warpgroups {
                    barrier(k, known, state, &mut out, inst, write);
                    missing += 1;
                } else if write {
                    out.push(effect(k, Op::WarpgroupBarrier, inst));
                }
            }
            // A stage that is still held is not handed out, so its readers are no reason to meet.
            Op::Acquire(ring, _) => {
                let members = k.rings[*ring].buffers.clone();
                let (several, by_engine) = (k.rings[*ring].stages > 1, k.rings[*ring].filled_by == Mover::Engine);
                let is_member = |a: &UnorderedAccess| members.iter().any(|&m| Storage::Shared(m) == a.place);
                let held = |a: &UnorderedAccess| (by_engine || several && a.held.is_some()) && is_member(a);
                let conflict = state
                    .open
                    .iter()
                    .any(|a| !held(a) && members.iter().any(|&m| shares_bytes(k, Storage::Shared(m), a.place)));
                if conflict {
                    barrier(k, known, state, &mut out, inst, write);
                    missing += 1;
                }
            }
            Op::Release(token) => {
                // One thread of a warpgroup gives the stage back, behind what all of them read.
                let is_read = |a: &UnorderedAccess| a.held == Some(*token);
                if known.read_by_threads.contains(token) && state.open.iter().any(is_read) {
                    if !known.by_warpgroups {
                        barrier(k, known, state, &mut out, inst, write);
                        missing += 1;
                    } else if write {
                        out.push(effect(k, Op::WarpgroupBarrier, inst));
                    }
                }
                let open = std::mem::take(&mut state.open);
                let free = |a: UnorderedAccess| UnorderedAccess { held: a.held.filter(|t| t != token), ..a };
                state.open = open.into_iter().map(free).collect();
            }
            Op::Barrier => state.open.clear(),
            // The protocol of its ring orders it.
            Op::StoreShared { to, .. } if k.ring_by_warpgroups(to.buffer).is_some() => {}
            // Threads meet in `sum.splits`, but nothing there fences what the engine reads next.
            Op::WarpgroupBarrier | Op::SumSplits(_) => {}
            // Behind the last of them all threads meet, for each will wait at mbarriers that one has set up.
            Op::InitRing(_) => {
                out.push(inst);
                let more = insts.get(at + 1).is_some_and(|&i| matches!(k.insts[i], Op::InitRing(_)));
                if write && !more {
                    out.push(effect(k, Op::Fence(FenceKind::MbarrierInit), inst));
                    out.push(effect(k, Op::Barrier, inst));
                }
                continue;
            }
            Op::Commit(..) | Op::Drain(_) | Op::CopyWait(_) | Op::StoreWait(_) | Op::Fence(_) | Op::Yield(_) => {}
            gpu_ops!(sources elementwise views fragments global shared clusters products) => {
                let accesses = accesses(k, inst, &op);
                let conflict = accesses.iter().any(|x| state.open.iter().any(|y| conflicts(k, x, y)));
                if conflict {
                    barrier(k, known, state, &mut out, inst, write);
                    missing += 1;
                }
                state.open.extend(accesses);
            }
        }
        out.push(inst);
    }
    if write {
        k.blocks[b].insts = out;
    }
    missing
}

fn effect(k: &mut Kernel, op: Op, like: Inst) -> Inst {
    let loc = k.locs[like];
    k.new_inst(op, vec![], loc)
}

fn barrier(k: &mut Kernel, known: &Known, state: &mut State, out: &mut Vec<Inst>, like: Inst, write: bool) {
    let open = std::mem::take(&mut state.open);
    if write {
        let is_read = |at: Storage| known.by_proxy.iter().any(|&b| shares_bytes(k, at, Storage::Shared(b)));
        let is_fence = |&i: &Inst| k.insts[i] == Op::Fence(FenceKind::ProxyAsync);
        if !out.last().is_some_and(is_fence) && open.iter().any(|a| a.write && is_read(a.place)) {
            let fence = effect(k, Op::Fence(FenceKind::ProxyAsync), like);
            out.push(fence);
        }
        let inst = effect(k, Op::Barrier, like);
        out.push(inst);
    }
}

/// True for the end of a group of copies by threads.
fn is_group(k: &Kernel, op: &Op) -> bool {
    let is_copied =
        |ring: &Ring| (k.rings[*ring].filled_by, k.rings[*ring].read_by) == (Mover::Threads, Mover::Threads);
    matches!(op, Op::Commit(ring, _) if is_copied(ring))
}

/// True if a block, or one in it, ends a group of copies.
fn commits_anything(k: &Kernel, block: Block) -> bool {
    let commits = |&i: &Inst| is_group(k, &k.insts[i]) || commits_within(k, i);
    k.blocks[block].insts.iter().any(commits)
}

/// True if the block that an instruction runs ends a group of copies.
fn commits_within(k: &Kernel, inst: Inst) -> bool {
    k.insts[inst].body().is_some_and(|body| commits_anything(k, body))
}

/// How many commits may still be pending when the stage waited for must be complete: the n-th wait for a ring is for its
/// n-th commit.
fn younger_commits(k: &Kernel, around: ParentPosition, insts: &[Inst], at: usize, ring: Ring) -> u32 {
    let commits = |insts: &[Inst]| count(k, insts, |op| matches!(op, Op::Commit(r, _) if *r == ring));
    let waits = |insts: &[Inst]| count(k, insts, |op| matches!(op, Op::Wait(r, _) if *r == ring));
    // Of a pipelined ring so many are committed and not waited for at the head of an iteration, if each adds one.
    if let Some((block, of)) = around
        && (commits(insts), waits(insts)) == (1, 1)
    {
        let before = &k.blocks[block].insts[..of];
        let ahead = commits(before).saturating_sub(waits(before));
        if ahead > 0 {
            return ahead + commits(&insts[..at]) - 1;
        }
    }
    // A stage committed in this block: count what follows its commit, of any ring.
    let is_commit = |&at: &usize| matches!(k.insts[insts[at]], Op::Commit(r, _) if r == ring);
    let Some(own) = (0..at).filter(is_commit).nth(waits(&insts[..at]) as usize) else { return 0 };
    let between = &insts[own + 1..at];
    if between.iter().any(|&i| commits_within(k, i)) { 0 } else { count(k, between, |op| is_group(k, op)) }
}

fn count(k: &Kernel, insts: &[Inst], is: impl Fn(&Op) -> bool) -> u32 {
    insts.iter().filter(|&&i| is(&k.insts[i])).count() as u32
}

/// The accesses that a barrier must order. Ring buffers are left to the ring's protocol when they are
/// filled; reads of them are recorded, so that the next `acquire` sees them.
fn accesses(k: &Kernel, inst: Inst, op: &Op) -> Vec<UnorderedAccess> {
    // Padding is read and written too: up to the atoms' blocks.
    let rect = |r: &SharedRef, rows: u32, cols: u32| {
        let (rows, cols) = if r.transposed { (cols, rows) } else { (rows, cols) };
        (r.origin.0, r.origin.1, rows.next_multiple_of(16), cols.next_multiple_of(16))
    };
    // Warps beyond the last block of a product read what follows.
    let rest = |r: &SharedRef| {
        let layout = &k.buffers[r.buffer].layout;
        (r.origin.0, r.origin.1, layout.rows - r.origin.0, layout.cols - r.origin.1)
    };
    // Of what matrix instructions touch, a thread has nothing to itself.
    let by_matrix = k.access_kinds[inst] == Some(AccessKind::Matrix) && !is_planted(Mutation::CarriedUnordered);
    let whole = |b: Buffer| (0, 0, k.buffers[b].layout.rows, k.buffers[b].layout.cols);
    match op {
        Op::LoadShared(r) => {
            let layout = k.results[inst].first().and_then(|&v| k.values[v].ty.tile()).map(|(_, l)| l);
            let rect = match layout.map(|l| &l.shape[..]) {
                Some(&[rows, cols]) => rect(r, rows, cols),
                _ => whole(r.buffer),
            };
            let private = layout.filter(|_| !by_matrix).and_then(|l| private(l, r));
            vec![UnorderedAccess { place: Storage::Shared(r.buffer), rect, write: false, private, held: r.token }]
        }
        Op::StoreShared { to, value } => {
            let shape = &k.tile(*value).1.shape;
            let rect = match shape[..] {
                [rows, cols] => rect(to, rows, cols),
                _ => whole(to.buffer),
            };
            let private = if by_matrix { None } else { private(k.tile(*value).1, to) };
            vec![UnorderedAccess { place: Storage::Shared(to.buffer), rect, write: true, private, held: None }]
        }
        Op::ZeroShared(b) | Op::SumCluster(_, b) => {
            vec![UnorderedAccess {
                place: Storage::Shared(*b),
                rect: whole(*b),
                write: true,
                private: None,
                held: None,
            }]
        }
        Op::LoadMatrix { from, .. } => {
            vec![UnorderedAccess {
                place: Storage::Shared(from.buffer),
                rect: rest(from),
                write: false,
                private: None,
                held: from.token,
            }]
        }
        Op::WaitMma(v, _) => match k.values[*v].def {
            // The reads of an asynchronous product end here.
            ValueDef::Result(product, _) if k.insts[product].is_asynchronous() => {
                accesses(k, product, &k.insts[product])
            }
            _ => vec![],
        },
        Op::Mma { a, b, .. } => {
            let shared = |o: &Operand| match o {
                Operand::Shared(r) => Some(UnorderedAccess {
                    place: Storage::Shared(r.buffer),
                    rect: rest(r),
                    write: false,
                    private: None,
                    held: r.token,
                }),
                Operand::Fragment(_) => None,
            };
            [a, b].into_iter().filter_map(shared).collect()
        }
        Op::LoadGlobal { param, slices, .. } if !k.params[*param].kind.is_read_only() => {
            tensor(k, *param, slices, k.results[inst].first().copied(), false)
        }
        // Nothing else accesses the tensor, and in any order they give the same.
        Op::StoreGlobal { update, .. } if update.is_free() => vec![],
        Op::StoreGlobal { param, slices, value, .. } => tensor(k, *param, slices, Some(*value), true),
        Op::Copy { atom, to, .. } if atom.is_store() => {
            vec![UnorderedAccess {
                place: Storage::Shared(to.buffer),
                rect: rest(to),
                write: false,
                private: None,
                held: None,
            }]
        }
        Op::LoadGlobal { .. } | Op::Copy { .. } => vec![],
        gpu_ops!(sources elementwise views fragments rings orders control) => vec![],
    }
}

/// An access to a tensor that the kernel writes.
fn tensor(k: &Kernel, param: Param, slices: &[Slice], tile: Option<Value>, write: bool) -> Vec<UnorderedAccess> {
    let layout = tile.and_then(|v| k.values[v].ty.tile()).map(|(_, l)| l);
    // Tiles of one size are the same or lie apart; spans at an offset may overlap. Of threads that hold the same
    // element, the same one stores it.
    let apart = !slices.iter().any(|s| matches!(s, Slice::Span { .. }));
    let private = layout.filter(|l| apart && (write || is_own(l))).map(|l| format!("{} {slices:?}", l.canonical()));
    vec![UnorderedAccess { place: Storage::Tensor(param), rect: (0, 0, 1, 1), write, private, held: None }]
}

/// The key of [`UnorderedAccess::private`]; `None` if some element belongs to several threads.
fn private(layout: &Fragment, at: &SharedRef) -> Option<String> {
    is_own(layout).then(|| format!("{} {:?} {}", layout.canonical(), at.origin, at.transposed))
}

/// True if each element of a layout belongs to one thread.
fn is_own(layout: &Fragment) -> bool {
    layout.threads.iter().all(|m| m.axis.is_some()) && (0..layout.shape.len() as u8).all(|a| !layout.is_padded(a))
}

fn shares_bytes(k: &Kernel, a: Storage, b: Storage) -> bool {
    let (Storage::Shared(x), Storage::Shared(y)) = (a, b) else { return a == b };
    let range = |x: Buffer| k.buffers[x].offset.map(|o| (o, o + k.buffers[x].bytes()));
    match (range(x), range(y)) {
        _ if x == y => true,
        (Some(x), Some(y)) => x.0 < y.1 && y.0 < x.1,
        _ => false,
    }
}

fn conflicts(k: &Kernel, x: &UnorderedAccess, y: &UnorderedAccess) -> bool {
    if !x.write && !y.write {
        return false;
    }
    if x.place != y.place {
        return shares_bytes(k, x.place, y.place);
    }
    if x.private.is_some() && x.private == y.private {
        return false;
    }
    let (a, b) = (x.rect, y.rect);
    a.0 < b.0 + b.2 && b.0 < a.0 + a.2 && a.1 < b.1 + b.3 && b.1 < a.1 + a.3
}
