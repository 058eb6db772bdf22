//! Keeps sums in registers whose transposes are read behind their loop.
//!
//! A transpose reads its tile in shared memory. Where that tile is what a loop gives, the loop would carry it there, and read and write
//! it in each iteration.
//!
//! # Promise
//! A kernel with the same results, in which such a tile is copied once, behind the loop.
//!
//! # Argument
//! The copy is a cast to the tile's own type, and the transpose is that of the copy. A tile that products read, or that an iteration
//! transposes or hands to another loop, stays as it is: it is in shared memory anyway.
//!
//! # Breaks it
//! A transposed sum, and one that its own loop reads transposed: tests/agreement/turned.rs.

use atlas_dsl::{Block, Inst, Kernel, Op, TileType, Value};
use std::borrow::Cow;

/// The kernel, in which what is transposed behind a loop is a copy of what the loop carries.
pub(super) fn copies_of_results(kernel: Cow<'_, Kernel>) -> Cow<'_, Kernel> {
    let mut found = Vec::new();
    for (block, data) in kernel.blocks.iter() {
        for &inst in &data.insts {
            let Op::Loop { body, .. } = kernel.insts[inst] else { continue };
            for (n, &result) in kernel.results[inst].iter().enumerate() {
                let param = kernel.blocks[body].params[n + 1];
                if is_only_transposed(&kernel, result) && !is_in_shared_anyway(&kernel, param) {
                    found.push((block, inst, result));
                }
            }
        }
    }
    if found.is_empty() {
        return kernel;
    }
    let mut kernel = kernel.into_owned();
    for (block, inst, result) in found {
        copy_behind(&mut kernel, block, inst, result);
    }
    Cow::Owned(kernel)
}

/// True if a tile is transposed, for others than products, and products do not read it.
fn is_only_transposed(kernel: &Kernel, tile: Value) -> bool {
    let transposes = kernel.insts.iter().filter(|(_, op)| matches!(op, Op::Transpose(v) if *v == tile));
    let mut transposed: Vec<Value> = transposes.map(|(inst, _)| kernel.results[inst][0]).collect();
    let is_transposed = !transposed.is_empty();
    transposed.push(tile);
    is_transposed && !transposed.iter().any(|&v| is_operand(kernel, v))
}

fn is_operand(kernel: &Kernel, tile: Value) -> bool {
    kernel.insts.values().any(|op| matches!(*op, Op::Dot { a, b, .. } if a == tile || b == tile))
}

/// True if an iteration transposes a tile, multiplies with it, or begins another loop with it.
fn is_in_shared_anyway(kernel: &Kernel, tile: Value) -> bool {
    let reads = |op: &Op| match op {
        Op::Transpose(v) => *v == tile,
        Op::Loop { inits, .. } => inits.contains(&tile),
        _ => false,
    };
    is_operand(kernel, tile) || kernel.insts.values().any(reads)
}

fn copy_behind(kernel: &mut Kernel, block: Block, of: Inst, result: Value) {
    let ty = kernel.ty(result);
    let ty = TileType::new(ty.dtype, ty.shape.clone());
    let copy = kernel.push_inst(block, Op::Cast(ty.dtype, result), &[ty], kernel.locs[of]);
    let copied = kernel.results[copy][0];
    for op in kernel.insts.values_mut() {
        if let Op::Transpose(v) = op
            && *v == result
        {
            *v = copied;
        }
    }
    let insts = &mut kernel.blocks[block].insts;
    insts.pop();
    let at = insts.iter().position(|&i| i == of).map_or(insts.len(), |at| at + 1);
    insts.insert(at, copy);
}
