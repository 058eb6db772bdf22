//! `hoist_layout_conversions`: a change of layout that is the same in each iteration of a loop stands before it.
//!
//! Needs: lowered tiles. Establishes: no loop's body converts a small tile from outside the loop. Never: moves what more than a
//! few registers hold, or anything out of a branch. Refuses: nothing. Constructs: removes nothing; adds nothing.
//!
//! # Promise
//! The same values; a loop that runs no iteration converts for nothing.
//!
//! # Argument
//! A `convert.layout` reads its operand alone, and writes scratch that no other instruction sees. What is moved reads a value that
//! is there before the loop, so it can stand before it, and all that reads the result stands behind it still.
//!
//! # Breaks it
//! A convert of what the loop carries: the case `of_carried` leaves it where it is. Columns of weights in a loop over a
//! memory's hidden dim are moved: the kernels of `ops/src/omega`.

use crate::analysis::words;
use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Block, Inst, Kernel, Op, Value};
use std::collections::BTreeSet;

/// Registers of a thread that a tile may take which is kept through a loop to spare a way through shared memory.
const FEW: u32 = 8;

/// Moves the converts of every loop.
pub fn hoist_layout_conversions(k: &mut Kernel, _: &mut Cx<'_>) -> Result<(), CompileError> {
    for role in k.roles.values().map(|r| r.body).collect::<Vec<_>>() {
        hoist(k, role);
    }
    Ok(())
}

/// Moves what stands in the loops of a block to before them, the innermost first.
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

/// Takes out of a loop's body the converts of what it does not define.
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
