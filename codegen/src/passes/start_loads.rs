//! `start_loads`: starts loads of inputs first within a block.
//!
//! Needs: copies that are waited for directly after their commit, except those of loops that run ahead. Establishes: loads that
//! only need scalars are at the head of their block, followed by the first fills of its first pipelined loop, and by the fills of
//! the copy engine that stand behind its loops, if there is room for both; a copy is waited for where it is first read. Never:
//! holds more than a few registers, or more than shared memory, for early loads; moves a load over a loop, or a copy by threads, or
//! a load of a tensor that the kernel writes. Refuses: nothing. Constructs: removes nothing; adds nothing.
//!
//! # Promise
//! The same loads and copies from the same addresses.
//!
//! # Argument
//! Moved loads read tensors that the kernel does not write, at addresses that depend on scalars, which are moved too. Fills of
//! rings of one stage are not moved out of loops, and each such ring is filled once, so its stage is free from the start. Fills
//! of a loop's ring are moved together, in their order, to before its first wait. A wait moves down to the first reader of its
//! token, at most to the next loop, so that an inner loop does not wait for earlier copies. Groups of copies are counted by the
//! commits between a commit and its wait, which `insert_barriers` does after this pass. Nothing counts those of the engine, whose
//! stages have mbarriers. So such a fill may stand before a loop and its wait behind it.
//!
//! *Room.* A stage that is filled before a loop has its bytes to itself until it is read. It is filled there only if these bytes are
//! free beside what the loop uses and beside what comes after it, and if as many CTAs as before share a multiprocessor, or two, by
//! an estimate of their registers.
//!
//! # Breaks it
//! A load moved above a store to the same tensor: tests/agreement/wrong_code.rs::a_program_reads_what_it_wrote_by_any_slice.
//! Copies that are counted as if nothing had moved: tests/agreement/arguments.rs::copies_of_two_loops_are_waited_for.

use crate::arch::Machine;
use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::analysis::peak_registers;
use crate::gpu::slices::{guarded_engine_fill, guarded_fill, is_plain, slice, visit_deep};
use crate::gpu::{Block, Buffer, Inst, Kernel, Mover, Op, Ring, Slice, Value};
use crate::gpu_ops;
use crate::layout::words;
use atlas_dsl::Param;
use std::collections::BTreeSet;
use std::ops::Range;

/// 32-bit registers of a thread that early loads may hold.
const AHEAD_BUDGET: u32 = 64;

/// Bytes of shared memory of a CTA beside its tiles: what the driver takes, which is more than mbarriers do.
const BESIDE_TILES: u32 = 1024;

/// CTAs that share a multiprocessor and hide each other's waits.
const ENOUGH_CTAS: u32 = 2;

/// Starts the loads of every block.
pub fn start_loads(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    // Beside the rings of loops.
    let rings = k.rings.values().filter(|r| r.stages > 1).flat_map(|r| &r.buffers);
    let rings: u32 = rings.map(|&b| k.buffers[b].bytes()).sum();
    // Machines of one target get one text.
    let machine = Machine::from(cx.target);
    let room = machine.cta_shared_bytes.saturating_sub(rings);
    let bodies: BTreeSet<Block> = k.insts.values().filter_map(body_of_loop).collect();
    for block in k.blocks.keys().collect::<Vec<_>>() {
        // A CTA that ends in `sum.splits` leaves no copies in flight.
        let never = bodies.contains(&block) || k.index_map.splits > 1;
        let over_loops = if never { Vec::new() } else { fills_over_loops(k, block, &machine) };
        let insts = std::mem::take(&mut k.blocks[block].insts);
        let insts = start(k, insts, bodies.contains(&block), room, &over_loops);
        k.blocks[block].insts = if bodies.contains(&block) { insts } else { wait_late(k, insts) };
    }
    Ok(())
}

fn body_of_loop(op: &Op) -> Option<Block> {
    if let Op::Loop { body, .. } = *op { Some(body) } else { None }
}

/// The instructions of a block, with those that may start first at its head.
fn start(k: &Kernel, insts: Vec<Inst>, in_loop: bool, room: u32, over_loops: &[Range<usize>]) -> Vec<Inst> {
    // In a loop the fills of its own ring stand first, and what they wait for.
    let fixed = if in_loop { own_rings(k, &insts) } else { 0 };
    let mut head = BlockHead { k, insts: &insts, fixed, moved: Vec::new() };
    // What stands behind a loop would be held through it.
    let end = insts.iter().position(|&i| body_of_loop(&k.insts[i]).is_some()).unwrap_or(insts.len());
    let (mut held, mut copied) = (0, 0);
    for at in fixed..end {
        if let Op::LoadGlobal { param, slices, .. } = &k.insts[insts[at]] {
            let words = words(k.tile(k.results[insts[at]][0]));
            let fits = held + words <= AHEAD_BUDGET;
            if fits && !is_part_of_several(k, &insts, insts[at], *param, slices) && head.take(&insts[at..=at]) {
                held += words;
            }
        } else if let Op::Acquire(ring, _) = &k.insts[insts[at]]
            && !in_loop
        {
            let bytes: u32 = k.rings[*ring].buffers.iter().map(|&b| k.buffers[b].bytes()).sum();
            let last = insts[at..].iter().position(|&i| matches!(k.insts[i], Op::Commit(..))).unwrap_or(0);
            if copied + bytes <= room && head.take(&insts[at..=at + last]) {
                copied += bytes;
            }
        }
    }
    // One loop's stages are enough in flight.
    let fills = (fixed.min(end)..end).filter_map(|at| Some(at..at + guarded_fill(k, &insts[..end], at)?.1));
    // After one that stays, all stay.
    let _ = fills.map(|fill| &insts[fill]).all(|fill| head.take(fill));
    for fill in over_loops {
        head.take(&insts[fill.clone()]);
    }
    let moved: BTreeSet<Inst> = head.moved.iter().copied().collect();
    let rest = insts[fixed..].iter().copied().filter(|i| !moved.contains(i));
    insts[..fixed].iter().copied().chain(head.moved.iter().copied()).chain(rest).collect()
}

/// The fills of the copy engine behind the first loop of a block that are worth their room in shared memory before it.
fn fills_over_loops(k: &Kernel, block: Block, machine: &Machine) -> Vec<Range<usize>> {
    let insts = &k.blocks[block].insts;
    let Some(first) = insts.iter().position(|&i| body_of_loop(&k.insts[i]).is_some()) else { return Vec::new() };
    let bytes = |buffers: &BTreeSet<Buffer>| buffers.iter().map(|&b| k.buffers[b].bytes()).sum::<u32>();
    let mut before = bytes(&buffers_of(k, &insts[..=first]));
    let mut found = Vec::new();
    for at in first + 1..insts.len() {
        let Op::Acquire(ring, _) = k.insts[insts[at]] else { continue };
        let Some(len) = insts[at..].iter().position(|&i| matches!(k.insts[i], Op::Commit(..))) else { continue };
        if k.rings[ring].filled_by != Mover::Engine {
            continue;
        }
        let own: BTreeSet<Buffer> = k.rings[ring].buffers.iter().copied().collect();
        let between = bytes(&buffers_of(k, &insts[first + 1..at]));
        let after = bytes(&buffers_of(k, &insts[at..]).difference(&own).copied().collect());
        let own = bytes(&own);
        let (late, early) = (before.max(between).max(after + own), before.max(between).max(after) + own);
        let shared = |bytes: u32| machine.sm_shared_bytes / (bytes + BESIDE_TILES);
        let by_registers = machine.sm_registers / (k.threads * peak_registers(k)).max(1);
        if early + BESIDE_TILES <= machine.cta_shared_bytes
            && shared(early) >= shared(late).min(by_registers).min(ENOUGH_CTAS)
        {
            before += own;
            found.push(at..at + len + 1);
        }
    }
    found
}

/// The buffers that some instructions, and those in their blocks, use.
fn buffers_of(k: &Kernel, insts: &[Inst]) -> BTreeSet<Buffer> {
    let mut found = BTreeSet::new();
    for &inst in insts {
        let op = &k.insts[inst];
        let (read, written) = op.buffers();
        found.extend(read.into_iter().chain(written));
        if let Op::Acquire(ring, _) | Op::Wait(ring, _) = op {
            found.extend(&k.rings[*ring].buffers);
        }
        if let Some(body) = op.body() {
            found.extend(buffers_of(k, &k.blocks[body].insts));
        }
    }
    found
}

/// The instructions that go to the head of a block.
struct BlockHead<'k> {
    k: &'k Kernel,
    insts: &'k [Inst],
    /// The number of instructions that stay first in any case.
    fixed: usize,
    moved: Vec<Inst>,
}

impl BlockHead<'_> {
    /// Takes a unit, after the scalars that it needs, if it reads inputs at addresses that depend on scalars.
    fn take(&mut self, unit: &[Inst]) -> bool {
        let mut reads = Vec::new();
        unit.iter().for_each(|&i| visit_deep(self.k, i, &mut |v| reads.push(v)));
        let there = |i: &Inst, moved: &[Inst]| unit.contains(i) || moved.contains(i);
        let needs = slice(self.k, &self.insts[self.fixed..], reads);
        let needs: Vec<Inst> = needs.into_iter().filter(|i| !there(i, &self.moved)).collect();
        if unit.iter().any(|&i| !reads_inputs(self.k, i)) || !needs.iter().all(|&i| is_plain(self.k, i)) {
            return false;
        }
        self.moved.extend(needs);
        let rest: Vec<Inst> = unit.iter().copied().filter(|i| !self.moved.contains(i)).collect();
        self.moved.extend(rest);
        true
    }
}

/// True if the kernel does not write the global memory that an instruction and its blocks read.
fn reads_inputs(k: &Kernel, inst: Inst) -> bool {
    match &k.insts[inst] {
        Op::LoadGlobal { param, .. } | Op::Copy { param, .. } => k.params[*param].kind.is_read_only(),
        Op::If(_, block, _) | Op::Loop { body: block, .. } | Op::Once(block) | Op::Programs(block) => {
            k.blocks[*block].insts.iter().all(|&i| reads_inputs(k, i))
        }
        Op::StoreGlobal { .. } | Op::Yield(_) => true,
        gpu_ops!(sources elementwise views fragments shared clusters products rings orders) => true,
    }
}

/// The number of instructions at the head of a loop's body that fill its own rings, up to their last wait, commit or guarded
/// fill.
fn own_rings(k: &Kernel, insts: &[Inst]) -> usize {
    let waited: BTreeSet<Ring> =
        insts.iter().filter_map(|&i| if let Op::Wait(ring, _) = k.insts[i] { Some(ring) } else { None }).collect();
    let of_ring = |&i: &Inst| {
        matches!(k.insts[i], Op::Wait(r, _) | Op::Commit(r, _) if waited.contains(&r))
            || guarded_engine_fill(k, i).is_some_and(|r| waited.contains(&r))
    };
    insts.iter().rposition(of_ring).map_or(0, |at| at + 1)
}

/// True if a load is one of several loads of one tile. Column ranges are read where they are used, and a repeated load exists
/// so that the tile need not be kept.
fn is_part_of_several(k: &Kernel, insts: &[Inst], load: Inst, param: Param, slices: &[Slice]) -> bool {
    let place = |slices: &[Slice]| -> Vec<Option<Value>> { slices.iter().map(|s| s.coordinate()).collect() };
    let mut before = true;
    insts.iter().any(|&i| {
        if i == load {
            before = false;
            return false;
        }
        let Op::LoadGlobal { param: p, slices: s, .. } = &k.insts[i] else { return false };
        *p == param && if s == slices { before } else { place(s) == place(slices) }
    })
}

/// Moves each wait down to the first reader of its token, or to the next loop.
fn wait_late(k: &Kernel, insts: Vec<Inst>) -> Vec<Inst> {
    let mut out = Vec::with_capacity(insts.len());
    let mut waits: Vec<Inst> = Vec::new();
    for inst in insts {
        if let Op::Wait(..) = k.insts[inst] {
            waits.push(inst);
            continue;
        }
        let mut read = BTreeSet::new();
        visit_deep(k, inst, &mut |v| {
            read.insert(v);
        });
        let all = body_of_loop(&k.insts[inst]).is_some();
        let due = |&wait: &Inst| all || k.results[wait].iter().any(|v| read.contains(v));
        out.extend(waits.extract_if(.., |wait| due(wait)));
        out.push(inst);
    }
    out
}
