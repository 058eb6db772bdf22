//! `select_swizzles`: a buffer that is only read and written down its columns gets a swizzle by the row bits that differ there.
//!
//! Needs: every access of shared memory in place. Establishes: such a buffer has the swizzle with the fewest bank conflicts,
//! among those with the same number of bits. Never: touches buffers that matrix instructions read, or that anything reads along
//! rows. Refuses: nothing. Constructs: removes nothing; adds nothing.
//!
//! The usual swizzle xors the lowest bits of a row's number into the numbers of its 16-byte chunks, so that eight consecutive
//! rows are in different banks. A thread that stores a transposed tile by vectors holds eight such rows itself, and the lanes
//! of a warp are eight rows apart. So all lanes hit one bank.
//!
//! # Promise
//! No value changes. The elements of a buffer have other addresses, which are the same for all accesses.
//!
//! # Argument
//! A swizzle permutes the chunks of a row, whichever bits of the row's number select the permutation. Copies move whole chunks
//! of rows, and eight of these are in different banks under any permutation. Everything else uses the buffer's layout.
//!
//! # Breaks it
//! A transpose of ragged and padded tiles in the simulator: the problems of ops/src/transpose.rs. The gain is in
//! snapshots/bank_conflicts.snap.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Buffer, Inst, Kernel, Mover, Op, RingData, SharedRef, accessed};
use crate::layout::{SharedLayout, Swizzle};
use atlas_dsl::ir::Loc;
use std::collections::BTreeSet;

/// The most bits of a row's number that are skipped.
const MOST_SHIFTED: u32 = 4;
/// Registers of an access that are examined. The others behave alike.
const REGISTERS: u32 = 8;
/// Banks of shared memory, each 4 bytes wide.
const BANKS: u32 = 32;

/// Chooses the swizzle of every buffer that has one.
pub fn select_swizzles(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    for buffer in k.buffers.keys().collect::<Vec<_>>() {
        let layout = k.buffers[buffer].layout;
        let is_free = layout.swizzle.bits > 0 && !is_of_engine(k, buffer);
        let Some(accesses) = down_columns(k, buffer).filter(|_| is_free) else { continue };
        let with = |shift: u32| SharedLayout { swizzle: Swizzle { shift, ..layout.swizzle }, ..layout };
        let cost = |shift: u32| accesses.iter().map(|&(inst, at)| banks_met(k, inst, at, with(shift))).sum::<u32>();
        let first = layout.swizzle.shift;
        let Some(best) = (first..=first + MOST_SHIFTED).min_by_key(|&shift| (cost(shift), shift)) else { continue };
        if best > first {
            k.buffers[buffer].layout = with(best);
            cx.notes.push(format!("swizzle {}", k.buffers[buffer].name), Loc::default(), || {
                (with(best).swizzle.to_string(), "it is read and written down its columns".to_owned())
            });
        }
    }
    Ok(())
}

/// True for a buffer that the copy engine fills or reads, as its tensor map says.
fn is_of_engine(k: &Kernel, buffer: Buffer) -> bool {
    let by_engine = |r: &RingData| [r.filled_by, r.read_by].contains(&Mover::Engine);
    k.rings.values().any(|r| by_engine(r) && r.buffers.contains(&buffer))
}

/// The loads and stores of a buffer, if all go down columns and no matrix instruction reads it.
fn down_columns(k: &Kernel, buffer: Buffer) -> Option<Vec<(Inst, SharedRef)>> {
    let mut found = Vec::new();
    for inst in k.blocks.values().flat_map(|b| b.insts.iter().copied()) {
        match &k.insts[inst] {
            Op::LoadShared(at) | Op::StoreShared { to: at, .. } if at.buffer == buffer => {
                if !at.transposed {
                    return None;
                }
                found.push((inst, *at));
            }
            Op::Copy { .. } | Op::ZeroShared(_) | Op::SumCluster(..) => {}
            op => {
                let (read, written) = op.buffers();
                if read.contains(&buffer) || written.contains(&buffer) {
                    return None;
                }
            }
        }
    }
    (!found.is_empty()).then_some(found)
}

/// The cycles of a warp's access by its first registers, under a layout of its buffer.
fn banks_met(k: &Kernel, inst: Inst, at: SharedRef, layout: SharedLayout) -> u32 {
    let Some((dtype, fragment)) = accessed(k, inst).and_then(|v| k.values[v].ty.tile()) else { return 0 };
    if fragment.shape.len() != 2 {
        return 0;
    }
    let cycles = |reg: u32| {
        let words: BTreeSet<u32> = (0..32.min(fragment.thread_count()))
            .map(|lane| {
                let place = fragment.coord(lane, reg);
                // Transposed: the tile's rows are the buffer's columns.
                let (row, col) = (place[1] + at.origin.0, place[0] + at.origin.1);
                layout.offset(row, col, dtype.bytes()) / 4
            })
            .collect();
        let mut banks = [0; BANKS as usize];
        words.iter().for_each(|word| banks[(word % BANKS) as usize] += 1);
        banks.into_iter().max().unwrap_or(0)
    };
    (0..fragment.reg_count().min(REGISTERS)).map(cycles).sum()
}
