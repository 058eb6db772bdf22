//! `allocate_shared`: gives every shared buffer an offset. Buffers that are never live at once may overlap.
//!
//! Needs: no `convert.layout`. Establishes: offsets, and the kernel's total within the machine's limit.
//! Never: reorders anything. Barriers come later and see the overlaps. Refuses: a total above the machine's limit.
//! Constructs: removes unplaced; adds offsets.
//!
//! Buffers of a ring that the copy engine fills, in a loop that runs several times, have their bytes to themselves: what threads
//! wrote there would else need a proxy fence before each fill. So have those that the engine reads, from their loop, or from their
//! first use, to the `drain` of the ring: the engine may read them until then. The mbarriers of rings stand behind all buffers.
//!
//! What a loop inside another one writes first is taken to live through the outer one, too: buffers that lie apart need fewer
//! barriers. Where they would not fit, it lives from its first to its last access in an iteration of the outer loop.

use crate::arch::Machine;
use crate::arch::limits::Limits;
use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Block, Buffer, Kernel, MBARRIER_BYTES, Mover, Op, RingData};
use atlas_dsl::ir::Loc;
use cranelift_entity::SecondaryMap;

/// First and last position at which a buffer is accessed.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    span: Option<(u32, u32)>,
}

/// What is taken for a buffer that a loop inside another one writes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nested {
    /// It lives through the outer loop.
    Throughout,
    /// It lives where it is accessed.
    AsAccessed,
}

struct LifetimeWalk {
    position: u32,
    lives: SecondaryMap<Buffer, Life>,
    nested: Nested,
}

/// The buffers that an operation reads, and those that it writes. A ring's protocol reads all buffers of the ring.
pub(super) fn buffers_of(k: &Kernel, op: &Op) -> (Vec<Buffer>, Vec<Buffer>) {
    match op {
        Op::Acquire(ring, _) | Op::Wait(ring, _) | Op::Drain(ring) => (k.rings[*ring].buffers.clone(), vec![]),
        op => op.buffers(),
    }
}

impl LifetimeWalk {
    fn new(position: u32, nested: Nested) -> LifetimeWalk {
        LifetimeWalk { position, lives: SecondaryMap::new(), nested }
    }

    fn touch(&mut self, b: Buffer) {
        let at = self.position;
        let life = &mut self.lives[b];
        life.span = Some(life.span.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
    }

    fn block(&mut self, k: &Kernel, block: Block) {
        for &inst in &k.blocks[block].insts {
            self.position += 1;
            match &k.insts[inst] {
                Op::Loop { body, .. } | Op::Programs(body) => {
                    let start = self.position;
                    let before = self.lives.clone();
                    let mut inner = LifetimeWalk::new(start, self.nested);
                    inner.block(k, *body);
                    self.position = inner.position + 1;
                    for b in k.buffers.keys() {
                        let Some((first, last)) = inner.lives[b].span else { continue };
                        // What one iteration leaves for the next lives through the whole loop.
                        let outside = before[b].span.is_some();
                        let is_kept = outside || is_of_engine(k, b) || reads_first(k, *body, b, self.nested);
                        let (first, last) = if is_kept { (start, self.position) } else { (first, last) };
                        let life = &mut self.lives[b];
                        life.span = Some(life.span.map_or((first, last), |(f, l)| (f.min(first), l.max(last))));
                    }
                }
                Op::If(_, body, _) | Op::Once(body) => self.block(k, *body),
                op => {
                    let (reads, writes) = buffers_of(k, op);
                    reads.into_iter().chain(writes).for_each(|b| self.touch(b));
                }
            }
        }
    }
}

/// True for a buffer that the copy engine fills or reads.
fn is_of_engine(k: &Kernel, buffer: Buffer) -> bool {
    let by_engine = |r: &RingData| [r.filled_by, r.read_by].contains(&Mover::Engine);
    k.rings.values().any(|r| by_engine(r) && r.buffers.contains(&buffer))
}

/// True if a block may read what stood in a buffer before: unless its first access is a write outside any branch. A loop that
/// writes first reads nothing older. As it may not run, what follows it decides as well.
fn reads_first(k: &Kernel, block: Block, buffer: Buffer, nested: Nested) -> bool {
    let mut written_in_loop = false;
    for &inst in &k.blocks[block].insts {
        match &k.insts[inst] {
            Op::Loop { body, .. } if nested == Nested::AsAccessed && accesses(k, *body, buffer) => {
                if reads_first(k, *body, buffer, nested) {
                    return true;
                }
                written_in_loop = true;
            }
            Op::Loop { body, .. } | Op::Programs(body) | Op::If(_, body, _) | Op::Once(body) => {
                if accesses(k, *body, buffer) {
                    return true;
                }
            }
            op => {
                let (reads, writes) = buffers_of(k, op);
                if writes.contains(&buffer) {
                    return false;
                }
                if reads.contains(&buffer) && !matches!(op, Op::Acquire(..)) {
                    return true;
                }
            }
        }
    }
    !written_in_loop
}

fn accesses(k: &Kernel, block: Block, buffer: Buffer) -> bool {
    k.blocks[block].insts.iter().any(|&i| match &k.insts[i] {
        Op::Loop { body, .. } | Op::Programs(body) | Op::If(_, body, _) | Op::Once(body) => accesses(k, *body, buffer),
        op => {
            let (reads, writes) = buffers_of(k, op);
            reads.contains(&buffer) || writes.contains(&buffer)
        }
    })
}

/// A single buffer that is too large for any CTA is the config's fault. The verifier would report it as a defect of the pass.
pub(super) fn refuse_large_buffers(k: &Kernel, machine: &Machine) -> Result<(), CompileError> {
    let limits = Limits::of(k.threads, k.occupancy, machine);
    k.buffers.iter().try_for_each(|(buffer, b)| {
        let panels = u64::from(b.layout.cols.div_ceil(b.layout.panel));
        let bytes = u64::from(b.layout.rows) * u64::from(b.layout.pitch) * panels * u64::from(b.stages);
        let is_of_sum = k.insts.values().any(|op| matches!(op, Op::SumCluster(_, of) if *of == buffer));
        let who = match is_of_sum {
            true => "a tile that `cluster_sum` adds up needs".to_owned(),
            false => format!("the tile `{}` needs", b.name),
        };
        limits.check_shared(bytes, b.stages, &who)
    })
}

/// Offsets of all buffers by these lifetimes, and their end. The largest comes first, each at the lowest offset that no live
/// neighbour occupies.
fn offsets(k: &Kernel, nested: Nested) -> (Vec<(Buffer, u32)>, u32) {
    let mut walk = LifetimeWalk::new(0, nested);
    for role in k.roles.values() {
        walk.block(k, role.body);
    }
    // A buffer used after a loop it was first used in lives on: extend spans that straddle a loop's end.
    let mut order: Vec<Buffer> = k.buffers.keys().filter(|&b| walk.lives[b].span.is_some()).collect();
    order.sort_by_key(|&b| (std::cmp::Reverse(k.buffers[b].bytes()), b));
    let mut placed: Vec<(u32, u32, (u32, u32))> = Vec::new();
    let mut offsets = Vec::new();
    for b in order {
        let Some(life) = walk.lives[b].span else { continue };
        let bytes = k.buffers[b].bytes();
        let align = k.buffers[b].layout.alignment().max(128);
        let mut busy: Vec<(u32, u32)> =
            placed.iter().filter(|(_, _, l)| l.0 <= life.1 && life.0 <= l.1).map(|&(from, to, _)| (from, to)).collect();
        busy.sort_unstable();
        let mut offset = 0u32;
        for (from, to) in busy {
            if offset + bytes <= from {
                break;
            }
            offset = offset.max(to.next_multiple_of(align));
        }
        offsets.push((b, offset));
        placed.push((offset, offset + bytes, life));
    }
    (offsets, placed.iter().map(|p| p.1).max().unwrap_or(0))
}

/// Bytes of shared memory whose buffers end there: the mbarriers of rings stand behind them.
fn with_mbarriers(k: &Kernel, end: u32) -> u32 {
    let engine = k.rings.values().filter(|r| r.filled_by == Mover::Engine);
    engine.fold(end, |total, ring| total.next_multiple_of(MBARRIER_BYTES) + ring.mbarrier_bytes())
}

/// Places all buffers, and behind them the mbarriers.
pub fn allocate_shared(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let machine = cx.machine;
    let stages = k.buffers.values().map(|b| b.stages).max().unwrap_or(1);
    let limits = Limits::of(k.threads, k.occupancy, machine);
    let fits = |k: &Kernel, end: u32| limits.check_shared(with_mbarriers(k, end).into(), stages, "the tiles need");
    let (mut offsets, mut end) = self::offsets(k, Nested::Throughout);
    if fits(k, end).is_err() {
        (offsets, end) = self::offsets(k, Nested::AsAccessed);
    }
    let checked = fits(k, end);
    cx.lacks_shared = checked.is_err();
    checked?;
    for (buffer, offset) in offsets {
        k.buffers[buffer].offset = Some(offset);
    }
    let mut total = end;
    for ring in k.rings.values_mut().filter(|r| r.filled_by == Mover::Engine) {
        total = total.next_multiple_of(MBARRIER_BYTES);
        ring.mbarriers = Some(total);
        total += ring.mbarrier_bytes();
    }
    cx.notes.push("shared", Loc::default(), || {
        let apart: u32 = k.buffers.values().map(|b| b.bytes()).sum();
        let because = match k.buffers.len() {
            0 => "no tile is in shared memory".to_owned(),
            n => format!("{n} buffers of {apart} bytes; those that never live at once may overlap"),
        };
        (format!("{total} of {} bytes", machine.cta_shared_bytes), because)
    });
    Ok(())
}
