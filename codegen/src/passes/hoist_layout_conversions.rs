//! `hoist_layout_conversions`: moves a change of layout that is the same in each iteration to before the loop.
//!
//! Needs: lowered tiles. Establishes: no loop's body converts a small tile from outside the loop. Never: moves a tile of more
//! than a few registers, or anything out of a branch. Refuses: nothing. Constructs: removes nothing; adds nothing.
//!
//! # Promise
//! The same values. If a loop runs no iteration, the conversion was unnecessary.
//!
//! # Argument
//! A `convert.layout` reads only its operand, and writes scratch memory that no other instruction sees. A moved conversion
//! reads a value that exists before the loop, so it can be placed there, and all readers of the result still come after it.
//!
//! # Breaks it
//! A conversion of a carried value: the case `of_carried` leaves it where it is. Columns of weights in a loop over a memory's
//! hidden dim are moved: the kernels of `ops/src/omega`.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Block, Inst, Kernel, Op, Value};
use crate::layout::words;
use std::collections::BTreeSet;

/// Registers of a thread that a tile may take if it is kept through a loop to avoid a round trip through shared memory.
const FEW: u32 = 8;

/// Moves the conversions of every loop.
pub fn hoist_layout_conversions(k: &mut Kernel, _: &mut Cx<'_>) -> Result<(), CompileError> {
    for role in k.roles.values().map(|r| r.body).collect::<Vec<_>>() {
        hoist(k, role);
    }
    Ok(())
}

/// Moves conversions from the loops of a block to before them, the innermost first.
fn hoist(k: &mut Kernel, block: Block) {
    let mut out: Vec<Inst> = Vec::new();
    for inst in std::mem::take(&mut k.blocks[block].insts) {
        if let Some(body) = k.insts[inst].body() {
            hoist(k, body);
            if matches!(k.insts[inst], Op::Loop { .. }) {
                out.extend(take_fixed(k, body));
            }
        }
        out.push(inst);
    }
    k.blocks[block].insts = out;
}

/// Removes from a loop's body the conversions of values that it does not define.
fn take_fixed(k: &mut Kernel, body: Block) -> Vec<Inst> {
    let mut defined: BTreeSet<Value> = k.blocks[body].params.iter().copied().collect();
    for &inst in &k.blocks[body].insts {
        defined.extend(&k.results[inst]);
    }
    let (mut fixed, mut rest) = (Vec::new(), Vec::new());
    for inst in std::mem::take(&mut k.blocks[body].insts) {
        let is_fixed = matches!(k.insts[inst], Op::ConvertLayout(v)
            if !defined.contains(&v) && words(k.tile(k.results[inst][0])) <= FEW);
        if is_fixed {
            k.results[inst].iter().for_each(|v| _ = defined.remove(v));
            fixed.push(inst);
        } else {
            rest.push(inst);
        }
    }
    k.blocks[body].insts = rest;
    fixed
}
