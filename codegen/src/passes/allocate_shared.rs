//! `allocate_shared`: gives every shared buffer an offset. Buffers that are never live at once may overlap.
//!
//! Needs: no `convert.layout`. Establishes: offsets, and the kernel's total within the machine's limit.
//! Never: reorders anything. Barriers come later and see the overlaps. Refuses: a total above the machine's limit.
//! Constructs: removes unplaced; adds offsets.
//!
//! Buffers of a ring that the copy engine fills, in a loop that runs several times, have their bytes to themselves: what threads
//! wrote there would else need a proxy fence before each fill. So have those that the engine reads, from their loop, or from their
//! first use, to the `drain` of the ring: the engine may read them until then. The mbarriers of rings stand behind all buffers.

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

struct LifetimeWalk {
    position: u32,
    lives: SecondaryMap<Buffer, Life>,
}

/// The buffers that an operation reads, and those that it writes. A ring's protocol reads all buffers of the ring.
pub(super) fn buffers_of(k: &Kernel, op: &Op) -> (Vec<Buffer>, Vec<Buffer>) {
    match op {
        Op::Acquire(ring, _) | Op::Wait(ring, _) | Op::Drain(ring) => (k.rings[*ring].buffers.clone(), vec![]),
        op => op.buffers(),
    }
}

impl LifetimeWalk {
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
                    let mut inner = LifetimeWalk { position: start, lives: SecondaryMap::new() };
                    inner.block(k, *body);
                    self.position = inner.position + 1;
                    for b in k.buffers.keys() {
                        let Some((first, last)) = inner.lives[b].span else { continue };
                        // What one iteration leaves for the next lives through the whole loop.
                        let outside = before[b].span.is_some();
                        let is_kept = outside || is_of_engine(k, b) || reads_first(k, *body, b);
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

/// True unless the first access of a buffer in a block is a write outside any branch.
fn reads_first(k: &Kernel, block: Block, buffer: Buffer) -> bool {
    for &inst in &k.blocks[block].insts {
        match &k.insts[inst] {
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
    true
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
    k.buffers.values().try_for_each(|b| {
        let panels = u64::from(b.layout.cols.div_ceil(b.layout.panel));
        let bytes = u64::from(b.layout.rows) * u64::from(b.layout.pitch) * panels * u64::from(b.stages);
        limits.check_shared(bytes, b.stages, &format!("the tile `{}` needs", b.name))
    })
}

/// Places all buffers, largest first, each at the lowest offset that no live neighbour occupies.
pub fn allocate_shared(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let machine = cx.machine;
    let mut walk = LifetimeWalk { position: 0, lives: SecondaryMap::new() };
    for role in k.roles.values() {
        walk.block(k, role.body);
    }
    // A buffer used after a loop it was first used in lives on: extend spans that straddle a loop's end.
    let mut order: Vec<Buffer> = k.buffers.keys().filter(|&b| walk.lives[b].span.is_some()).collect();
    order.sort_by_key(|&b| (std::cmp::Reverse(k.buffers[b].bytes()), b));
    let mut placed: Vec<(u32, u32, (u32, u32))> = Vec::new();
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
        k.buffers[b].offset = Some(offset);
        placed.push((offset, offset + bytes, life));
    }
    let mut total = placed.iter().map(|p| p.1).max().unwrap_or(0);
    for ring in k.rings.values_mut().filter(|r| r.filled_by == Mover::Engine) {
        total = total.next_multiple_of(MBARRIER_BYTES);
        ring.mbarriers = Some(total);
        total += ring.mbarrier_bytes();
    }
    let stages = k.buffers.values().map(|b| b.stages).max().unwrap_or(1);
    let fits = Limits::of(k.threads, k.occupancy, machine).check_shared(total.into(), stages, "the tiles need");
    cx.lacks_shared = fits.is_err();
    fits?;
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
