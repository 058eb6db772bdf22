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
use cranelift_entity::{EntityRef, SecondaryMap};
use std::collections::{BTreeMap, BTreeSet};

/// The buffers that share bytes with each one.
type Neighbours = SecondaryMap<Buffer, Vec<Buffer>>;

/// What a block does with buffers, in order. Kernels are verified after each pass, and most operations touch no buffer.
enum OverlapStep {
    /// An operation that reads and writes these.
    Touch { reads: Vec<Buffer>, writes: Vec<Buffer>, loc: Loc },
    /// A body that is walked so many times. That of a loop may run no iteration.
    Body { steps: Vec<OverlapStep>, times: u32, may_be_skipped: bool },
}

/// What a walk knows.
#[derive(Default)]
struct OverlapState {
    /// For each ruined buffer, which write did it.
    ruined: Vec<Option<Buffer>>,
    /// Every buffer seen.
    seen: BTreeSet<Buffer>,
    /// Errors: reader's place, the buffer, the one written over it.
    errors: BTreeSet<(u32, u32, Buffer, Buffer)>,
}

impl Verifier<'_> {
    /// 413.
    pub(super) fn overlaps(&mut self) {
        let k = self.kernel;
        let Some(near) = self.neighbours() else { return };
        let mut users: BTreeMap<Buffer, Role> = BTreeMap::new();
        for (role, data) in &k.roles {
            let mut walk = OverlapState { ruined: vec![None; k.buffers.len()], ..OverlapState::default() };
            walk.all(&self.overlap_steps(data.body, 0), &near);
            for (line, column, read, written) in walk.errors {
                let (read, written) = (&k.buffers[read].name, &k.buffers[written].name);
                let message = format!("reads the buffer `{read}` after a write to `{written}`, which overlaps it");
                self.error(413, Loc { line, column }, message);
            }
            for &b in &walk.seen {
                let other = users.iter().find(|&(o, &r)| r != role && near[b].contains(o));
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

    /// `None` if no buffers share bytes, as before they are given offsets.
    fn neighbours(&self) -> Option<Neighbours> {
        let ranges = self.kernel.buffers.iter().filter_map(|(b, data)| {
            let from = data.offset?;
            Some((b, from, from.saturating_add(data.bytes())))
        });
        let ranges: Vec<(Buffer, u32, u32)> = ranges.collect();
        let (mut near, mut any) = (Neighbours::new(), false);
        for &(b, from, to) in &ranges {
            let meets = ranges.iter().filter(|other| other.0 != b && from < other.2 && other.1 < to);
            near[b] = meets.map(|other| other.0).collect();
            any |= !near[b].is_empty();
        }
        any.then_some(near)
    }

    fn overlap_steps(&self, block: Block, depth: u32) -> Vec<OverlapStep> {
        let k = self.kernel;
        let mut steps = Vec::new();
        for &inst in &k.blocks[block].insts {
            let op = &k.insts[inst];
            if let Some(body) = op.body() {
                let times = if matches!(op, Op::If(..)) || depth >= 8 { 1 } else { 2 };
                let body = self.overlap_steps(body, depth + 1);
                if !body.is_empty() {
                    let may_be_skipped = matches!(op, Op::Loop { .. });
                    steps.push(OverlapStep::Body { steps: body, times, may_be_skipped });
                }
                continue;
            }
            let (reads, writes) = op.buffers();
            if !reads.is_empty() || !writes.is_empty() {
                steps.push(OverlapStep::Touch { reads, writes, loc: k.locs[inst] });
            }
        }
        steps
    }
}

impl OverlapState {
    fn all(&mut self, steps: &[OverlapStep], near: &Neighbours) {
        for step in steps {
            match step {
                OverlapStep::Touch { reads, writes, loc } => {
                    for &b in reads {
                        self.seen.insert(b);
                        if let Some(written) = self.ruined[b.index()] {
                            self.errors.insert((loc.line, loc.column, b, written));
                        }
                    }
                    for &b in writes {
                        self.seen.insert(b);
                        self.ruined[b.index()] = None;
                        near[b].iter().for_each(|other| self.ruined[other.index()] = Some(b));
                    }
                }
                OverlapStep::Body { steps, times, may_be_skipped } => {
                    let before = may_be_skipped.then(|| self.ruined.clone());
                    (0..*times).for_each(|_| self.all(steps, near));
                    // Of a loop of no iterations nothing is made whole.
                    for (ruined, before) in self.ruined.iter_mut().zip(before.into_iter().flatten()) {
                        *ruined = before.or(*ruined);
                    }
                }
            }
        }
    }
}
