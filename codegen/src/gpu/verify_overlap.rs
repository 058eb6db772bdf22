//! The rule of buffers that share bytes (413): what is read is what was written.
//!
//! Buffers whose lives do not meet may be placed over each other. Walks each role in order: a write to a
//! buffer makes it whole and ruins those placed over it; reading a ruined one is an error.
//!
//! # Promise
//! In a kernel that passes, no read of a buffer sees bytes that a later write to another buffer changed. Barriers are
//! another matter: the order here is that of the text.
//!
//! # Argument
//! A fact is the set of ruined buffers, and more is worse. A write ruins its neighbours and makes its own buffer whole, so a
//! block does `X -> (X - made) + ruined` for two fixed sets, and twice is as often as any number of times: the second walk
//! of a loop's body sees what one iteration ruins for the next. A loop may run no iteration, so what was ruined before it stays
//! so after it, whatever its body makes whole.
//!
//! Three things are taken on trust. A write is taken to make the whole buffer: ranges of a tile are written together, by
//! one root. Bodies of branches are taken to run: a stage is filled in a branch, and read only in iterations for which it was
//! taken. Bodies of loops nested deeper than eight are walked once, or the walk would take too long; no kernel has any.
//!
//! # Breaks it
//! - Each reading by itself, a loop of no iterations and buffers of two roles: tests/cases/gpu/error_overlap.gpu.
//! - Lives that are too short show here before anything runs: tests/pipeline.rs::random_kernels_through_the_passes.

use super::verify::Verifier;
use super::{Block, Buffer, Op, Role};
use atlas_dsl::ir::Loc;
use std::collections::{BTreeMap, BTreeSet};

/// What a walk knows.
#[derive(Default)]
struct OverlapState {
    /// Ruined buffers, and which write did it.
    ruined: BTreeMap<Buffer, Buffer>,
    /// Every buffer seen.
    seen: BTreeSet<Buffer>,
    /// Errors: reader's place, the buffer, the one written over it.
    errors: BTreeSet<(u32, u32, Buffer, Buffer)>,
}

impl Verifier<'_> {
    /// 413.
    pub(super) fn overlaps(&mut self) {
        let k = self.kernel;
        let mut users: BTreeMap<Buffer, Role> = BTreeMap::new();
        for (role, data) in &k.roles {
            let mut walk = OverlapState::default();
            self.overlap_block(data.body, &mut walk, 0);
            for (line, column, read, written) in walk.errors {
                let (read, written) = (&k.buffers[read].name, &k.buffers[written].name);
                let message = format!("reads the buffer `{read}` after a write to `{written}`, which overlaps it");
                self.error(413, Loc { line, column }, message);
            }
            for &b in &walk.seen {
                let other = users.iter().find(|&(&o, &r)| o != b && r != role && self.share_bytes(o, b));
                if let Some((&other, _)) = other {
                    let (b, other) = (&k.buffers[b].name, &k.buffers[other].name);
                    let message = format!("the buffers `{other}` and `{b}` of two roles overlap");
                    self.error(413, Loc::default(), message);
                }
            }
            walk.seen.iter().for_each(|&b| {
                users.insert(b, role);
            });
        }
    }

    fn share_bytes(&self, a: Buffer, b: Buffer) -> bool {
        let range = |x: Buffer| {
            let data = &self.kernel.buffers[x];
            data.offset.map(|o| (o, o.saturating_add(data.bytes())))
        };
        matches!((range(a), range(b)), (Some(x), Some(y)) if x.0 < y.1 && y.0 < x.1)
    }

    fn overlap_block(&self, block: Block, walk: &mut OverlapState, depth: u32) {
        let k = self.kernel;
        for &inst in &k.blocks[block].insts {
            let op = &k.insts[inst];
            if let Some(body) = op.body() {
                let times = if matches!(op, Op::If(..)) || depth >= 8 { 1 } else { 2 };
                let before = walk.ruined.clone();
                (0..times).for_each(|_| self.overlap_block(body, walk, depth + 1));
                if matches!(op, Op::Loop { .. }) {
                    // Of a loop of no iterations nothing is made whole.
                    walk.ruined.extend(before);
                }
                continue;
            }
            let (reads, writes) = op.buffers();
            let loc = k.locs[inst];
            for b in reads {
                walk.seen.insert(b);
                if let Some(&written) = walk.ruined.get(&b) {
                    walk.errors.insert((loc.line, loc.column, b, written));
                }
            }
            for b in writes {
                walk.seen.insert(b);
                walk.ruined.remove(&b);
                for other in k.buffers.keys().filter(|&o| o != b && self.share_bytes(o, b)) {
                    walk.ruined.insert(other, b);
                }
            }
        }
    }
}
