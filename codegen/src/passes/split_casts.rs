//! `split_casts`: a tile that was widened from 16 bits and would be live across a reduction is widened again after it.
//!
//! Needs: lowered tiles. Establishes: across a reduction of the same block, only the narrow tile is kept, in half the
//! registers, so that more CTAs are resident and keep memory busy. Never: touches tiles of few registers, or tiles that only
//! loops or branches use. Refuses: nothing. Constructs: removes nothing; adds hints.
//!
//! ```text
//! %x = cast %n            %x = cast %n
//! %s = reduce sum %x      %s = reduce sum %x
//! %y = mul %x, %b    →    %m = rematerialize %n
//!                         %z = cast %m
//!                         %y = mul %z, %b
//! ```

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Block, Cache, Inst, Kernel, Op, Type, Value, ValueDef};
use atlas_dsl::ir::Loc;
use std::collections::BTreeMap;

/// The number of registers from which it pays.
const WORTHWHILE: u32 = 16;

/// Splits the casts of every block.
pub fn split_casts(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let blocks: Vec<Block> = k.blocks.keys().collect();
    let before = k.insts.len();
    for block in blocks {
        split(k, block);
    }
    // Two instructions each: the narrow tile again, and its cast.
    let made = (k.insts.len() - before) / 2;
    if made > 0 {
        cx.notes.push("casts", Loc::default(), || {
            (
                format!("{made} tiles are widened again after a reduction"),
                "the narrow one takes half the registers".to_owned(),
            )
        });
    }
    Ok(())
}

fn split(k: &mut Kernel, block: Block) {
    let insts = std::mem::take(&mut k.blocks[block].insts);
    let mut out: Vec<Inst> = Vec::with_capacity(insts.len());
    // Widened tiles: the reduction count at which each was made, and its latest remake.
    let mut made: BTreeMap<Value, (u32, Value, Value)> = BTreeMap::new();
    let mut reductions = 0;
    for inst in insts {
        let mut wanted = Vec::new();
        k.insts[inst].visit_operands(|v| {
            if made.get(&v).is_some_and(|m| m.0 < reductions) && !wanted.contains(&v) {
                wanted.push(v);
            }
        });
        let simple =
            matches!(k.insts[inst], Op::Unary(..) | Op::Binary(..) | Op::Cast(_) | Op::Select(..) | Op::Fma(..));
        if simple {
            for v in wanted {
                let (_, narrow, _) = made[&v];
                let loc = k.locs[inst];
                let narrow_type = k.values[narrow].ty.clone();
                let wide_type = k.values[v].ty.clone();
                let again = k.new_inst(remake(k, narrow, &out), vec![narrow_type], loc);
                let kept = k.results[again][0];
                let cast = k.new_inst(Op::Cast(kept), vec![wide_type], loc);
                let remade = k.results[cast][0];
                out.extend([again, cast]);
                made.insert(v, (reductions, narrow, remade));
            }
        }
        let remakes: BTreeMap<Value, Value> = made.iter().map(|(&v, m)| (v, m.2)).collect();
        if simple {
            k.insts[inst].replace_operands(|v| remakes.get(&v).copied().unwrap_or(v));
        }
        if let Op::Reduce { .. } | Op::Scan { .. } = k.insts[inst] {
            reductions += 1;
        } else if let Op::Cast(narrow) = k.insts[inst] {
            let v = k.results[inst][0];
            if widens(k, narrow, v) {
                made.insert(v, (reductions, narrow, v));
            }
        }
        out.push(inst);
    }
    k.blocks[block].insts = out;
}

/// The source of the narrow tile after the reduction. It is loaded again if this block loads it and nothing has written it, and
/// otherwise kept. A tile from outside of a loop would be loaded again in each iteration.
fn remake(k: &Kernel, narrow: Value, here: &[Inst]) -> Op {
    let ValueDef::Result(def, _) = k.values[narrow].def else { return Op::Rematerialize(narrow) };
    if let Op::LoadGlobal { param, slices, .. } = &k.insts[def]
        && here.contains(&def)
        && k.params[*param].kind.is_read_only()
    {
        return Op::LoadGlobal { param: *param, slices: slices.clone(), cache: Cache::EvictFirst };
    }
    Op::Rematerialize(narrow)
}

fn widens(k: &Kernel, narrow: Value, wide: Value) -> bool {
    match (&k.values[narrow].ty, &k.values[wide].ty) {
        (Type::Fragment { dtype: from, layout }, Type::Fragment { dtype: to, .. }) => {
            from.is_half() && to.bytes() == 4 && layout.reg_count() >= WORTHWHILE
        }
        _ => false,
    }
}
