//! `persist_programs`: a CTA runs many programs, and the copy engine runs ahead into the next one.
//!
//! Needs: one program for each CTA; one role. Establishes: if the schedule says so, or `lower_tiles` chose it, a loop over the
//! programs of a CTA, whose rings the engine fills on from one program to the next. Never: changes a kernel whose schedule does not
//! ask for it. Refuses: a kernel without a pipelined loop, outside of other loops, whose tiles the engine fetches; where
//! `lower_tiles` chose it, also one whose next programs cannot be fetched ahead. Constructs: removes nothing; adds grids.
//!
//! A refused kernel is lowered again as one of single programs, by the pipeline: earlier passes have chosen stores and an order
//! that suit persistent ones.
//!
//! Without it, the multiprocessor waits at the head of each program until the first tiles are there, and at its end until the last
//! ones are stored.
//!
//! # Promise
//! Every program of the index map is run once, by one CTA, and reads what it would read alone.
//!
//! # Argument
//! CTA c of n runs the programs c, c + n, .. in turn. The fills of a ring in a loop of T iterations were numbered by iteration;
//! in turn t they are numbered from t T on ([`ahead`]). A fill whose iteration lies beyond the loop's end is that of the next
//! program at the index less T, so the sequence of fills is that of the waits: the programs of the CTA one after the other, each
//! from its first iteration to its last. The fill of the first stages stands before the loop, for the first program alone.
//!
//! This needs T to be the same for all programs, and at least as many as are filled ahead. Where the bounds of the loop depend on
//! the program, or its places on data in memory, each program fills its own first stages. So it does, at run time, where T is
//! less than the stages that are filled ahead.
//!
//! A stage that the engine fills once in a program is released behind its last reader, not at the end of the program.
//!
//! Stores of the engine go through panels of two stages ([`panels`]), for the bytes of the ring that is filled ahead are never
//! free.
//!
//! # Breaks it
//! - The first stages filled by each program, or a program's tiles read by the next: tests/agreement/persistent.rs.
//! - Loops of fewer iterations than stages, of none, and grids of fewer programs than CTAs: tests/agreement/persistent.rs.

mod ahead;
mod panels;

use super::lower_programs::{CtaPrograms, ProgramCoordinates, replace};
use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::slices::visit_deep;
use crate::gpu::{Block, BlockData, Domain, Inst, Kernel, Mover, Op, Type, Value};
use atlas_dsl::config::Programs;
use atlas_dsl::ir::Loc;
use atlas_dsl::op::BinaryOp;
use std::collections::{BTreeMap, BTreeSet};

/// Makes the programs of a kernel persistent, if its schedule asks for it.
pub fn persist_programs(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    if cx.programs != Programs::Persistent {
        if let Some(because) = cx.why_single.clone() {
            cx.notes.push("programs", Loc::default(), || ("one for each CTA".to_owned(), because));
        }
        return Ok(());
    }
    let Some(body) = k.roles.values().map(|r| r.body).next() else { return Ok(()) };
    let is_fetched =
        |&i: &Inst| matches!(k.insts[i], Op::Loop { body, .. } if !ahead::rings_filled_in(k, body).is_empty());
    if !k.blocks[body].insts.iter().any(is_fetched) {
        return Err(single(cx, "no pipelined loop outside of other loops has tiles that the copy engine fetches"));
    }
    panels::store_by_panels(k, body);
    let coords = std::mem::take(&mut k.coords);
    k.index_map.persistent = true;
    let mut insts = std::mem::take(&mut k.blocks[body].insts);
    // The engine's last stores are waited for behind all programs.
    let drains: Vec<Inst> = insts.extract_if(.., |&mut i| matches!(k.insts[i], Op::Drain(_))).collect();
    let loc = insts.first().map_or(Loc::default(), |&i| k.locs[i]);
    let mut at = ProgramCoordinates::new(k, loc);
    let turn = Turn::head(&mut at);
    let own = at.of(turn.program);
    let next = at.of(turn.next);
    let head = std::mem::take(&mut at.out);
    let turn = turn.with(&coords, next);
    let goes_on = turn.goes_on(k, &mut insts);
    if !goes_on && cx.schedule.programs.is_none() {
        return Err(single(cx, "persistent programs that each fetch their own first tiles gain nothing"));
    }
    let values: BTreeMap<Value, Value> = coords.iter().copied().zip(own).collect();
    release_after_readers(k, &mut insts);
    let end = k.new_inst(Op::Yield(vec![]), vec![], loc);
    k.blocks[turn.body].insts = head.into_iter().chain(insts).chain([end]).collect();
    let over = k.new_inst(turn.of_cta.to_loop(turn.body), vec![], loc);
    k.blocks[body].insts = turn.before.iter().copied().chain([over]).chain(drains).collect();
    replace(k, turn.body, &values);
    cx.notes.push("programs", loc, || {
        let order = if k.index_map.domain == Domain::Triangle { "of a triangle, " } else { "" };
        let because = match goes_on {
            true => "the copy engine fetches the next program's first tiles meanwhile",
            false => "each fetches its own first tiles: what it reads, or how much, is known only then",
        };
        (format!("{order}one after the other by resident CTAs"), because.to_owned())
    });
    Ok(())
}

/// Moves each release of a stage behind the last instruction that reads the stage: the next program may fill it from there on.
fn release_after_readers(k: &Kernel, insts: &mut Vec<Inst>) {
    let releases: Vec<Inst> = insts.iter().copied().filter(|&i| matches!(k.insts[i], Op::Release(_))).collect();
    for release in releases {
        let Op::Release(token) = k.insts[release] else { continue };
        let (mut held, mut last) = (BTreeSet::from([token]), None);
        let others = insts.iter().copied().enumerate().filter(|&(_, i)| i != release);
        for (at, inst) in others {
            let mut reads = k.results[inst].contains(&token);
            visit_deep(k, inst, &mut |v| reads |= held.contains(&v));
            if reads {
                last = Some(at);
                // A product reads its operands until it is waited for.
                let in_flight = |v: &Value| matches!(k.values[*v].ty, Type::InFlight { .. });
                held.extend(k.results[inst].iter().copied().filter(in_flight));
            }
        }
        if let (Some(last), Some(at)) = (last, insts.iter().position(|&i| i == release)) {
            let moved = insts.remove(at);
            insts.insert(last + usize::from(last < at), moved);
        }
    }
}

/// A refusal after which the kernel is lowered as one of single programs.
fn single(cx: &mut Cx<'_>, because: &str) -> CompileError {
    cx.why_single = Some(because.to_owned());
    CompileError::refusal(because)
}

/// The loop over the programs of a CTA.
struct Turn {
    /// What is computed before it.
    before: Vec<Inst>,
    of_cta: CtaPrograms,
    body: Block,
    /// The number of this program within its CTA: the loop's index.
    index: Value,
    /// The number of this program.
    program: Value,
    /// True if there is another one.
    more: Value,
    /// The number of the next program, or of this one if it is the last.
    next: Value,
    /// The next program's coordinates, by those of the kernel.
    next_at: BTreeMap<Value, Value>,
}

impl Turn {
    /// Computes what stands before the loop, and the head of its body, which is left in `at`.
    fn head(at: &mut ProgramCoordinates<'_>) -> Turn {
        let of_cta = CtaPrograms::new(at);
        let one = at.constant(1);
        let before = std::mem::take(&mut at.out);
        let body = at.k.blocks.push(BlockData::default());
        let (index, program) = of_cta.enter(at, body);
        let behind = at.binary(BinaryOp::Add, index, one);
        let more = at.less(behind, of_cta.count);
        let further = at.binary(BinaryOp::Add, program, of_cta.ctas);
        let next = at.int(Op::Select(more, further, program));
        Turn { before, of_cta, body, index, program, more, next, next_at: BTreeMap::new() }
    }

    fn with(self, coords: &[Value], next: Vec<Value>) -> Turn {
        Turn { next_at: coords.iter().copied().zip(next).collect(), ..self }
    }

    /// Has the rings of the engine go on into the next program. False if one of several stages does not.
    fn goes_on(&self, k: &mut Kernel, insts: &mut Vec<Inst>) -> bool {
        let rings: Vec<_> = k.rings.keys().filter(|&r| k.rings[r].filled_by == Mover::Engine).collect();
        let several: Vec<_> = rings.into_iter().filter(|&r| k.rings[r].stages > 1).collect();
        let mut all = true;
        for ring in several {
            all &= ahead::run_on(k, self, ring, insts);
        }
        all
    }
}
