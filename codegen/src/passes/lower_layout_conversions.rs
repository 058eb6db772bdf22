//! `lower_layout_conversions`: a change of layout becomes a store to and a load from shared memory.
//!
//! Needs: lowered tiles. Establishes: no `convert.layout` is left. Never: merges conversions. Refuses: a tile that is too large
//! for any CTA. Constructs: removes converts; adds nothing.
//!
//! Bits are not addressable, so they are stored as numbers and compared with 0 after the load.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Block, BufferData, Inst, Kernel, Op, Owner, SharedRef, Type, Value};
use crate::layout::{Fragment, SharedLayout, Swizzle};
use atlas_dsl::DType;
use atlas_dsl::op::Predicate;

/// Replaces every `convert.layout` by a round trip through a scratch buffer of its own.
pub fn lower_layout_conversions(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let machine = cx.machine;
    let blocks: Vec<Block> = k.blocks.keys().collect();
    for block in blocks {
        let insts = std::mem::take(&mut k.blocks[block].insts);
        let mut out = Vec::with_capacity(insts.len());
        for inst in insts {
            if let Op::ConvertLayout(value) = k.insts[inst] {
                let converted = inst;
                let (value, inst) = as_numbers(k, value, inst, &mut out);
                let (dtype, layout) = k.tile(value);
                let (cols, rows) = match layout.shape.split_last() {
                    None => (1, 1),
                    Some((&cols, outer)) => (cols, outer.iter().product::<u32>()),
                };
                let layout = scratch(rows, cols, dtype.bytes());
                let (bytes, most) = (layout.bytes(), machine.cta_shared_bytes);
                if bytes > most {
                    return Err(CompileError::refusal(format!(
                        "a change of layout needs {bytes} bytes of shared memory, but a CTA on {machine} has {most}"
                    )));
                }
                let name = format!("scratch{}", k.buffers.len());
                let buffer =
                    k.buffers.push(BufferData { name, dtype, stages: 1, layout, owner: Owner::Cta, offset: None });
                let at = SharedRef { buffer, token: None, origin: (0, 0), transposed: false };
                let loc = k.locs[inst];
                cx.notes.push("convert", loc, || {
                    (format!("through {bytes} bytes of shared memory"), "its use has another layout".to_owned())
                });
                let to = k.results[inst].first().and_then(|&v| k.values[v].ty.tile()).map(|(_, to)| to.clone());
                if to.is_some_and(|to| reads_unwritten(&k.tile(value).1.clone(), &to, &k.buffers[buffer].layout)) {
                    out.push(k.new_inst(Op::ZeroShared(buffer), Vec::<Type>::new(), loc));
                }
                out.push(k.new_inst(Op::StoreShared { to: at, value }, Vec::<Type>::new(), loc));
                // The instruction keeps its result and becomes the load.
                k.insts[inst] = Op::LoadShared(at);
                out.push(inst);
                let is_of_bits = k.results[converted].first().is_some_and(|&v| k.tile(v).0 == DType::Bool);
                if is_of_bits {
                    let (moved, layout) = (k.results[inst][0], k.tile(k.results[inst][0]).1.clone());
                    let zero = k.new_inst(Op::Const(0.0), vec![Type::fragment(DType::I32, layout)], loc);
                    k.insts[converted] = Op::Compare(Predicate::Ne, moved, k.results[zero][0]);
                    out.extend([zero, converted]);
                }
                continue;
            }
            out.push(inst);
        }
        k.blocks[block].insts = out;
    }
    Ok(())
}

/// Rows have a multiple of 16 bytes. Shorter rows are placed as close as their alignment allows, so that most of them are in
/// different banks.
fn scratch(rows: u32, cols: u32, bytes: u32) -> SharedLayout {
    match cols.next_power_of_two() * bytes {
        pitch if pitch < 16 => {
            let cols = pitch / bytes;
            SharedLayout { rows, cols, panel: cols, pitch, swizzle: Swizzle::NONE }
        }
        _ => SharedLayout::conflict_free(rows, cols.next_multiple_of(16 / bytes), bytes),
    }
}

/// The value that a `convert.layout` moves, and the instruction that becomes its load. Bits are converted to whole numbers
/// first.
fn as_numbers(k: &mut Kernel, value: Value, convert: Inst, out: &mut Vec<Inst>) -> (Value, Inst) {
    let (dtype, layout) = k.tile(value);
    let to = k.results[convert].first().map(|&v| k.tile(v).1.clone());
    let (DType::Bool, Some(to)) = (dtype, to) else { return (value, convert) };
    let (from, loc) = (layout.clone(), k.locs[convert]);
    let number = |layout| vec![Type::fragment(DType::I32, layout)];
    let cast = k.new_inst(Op::Cast(value), number(from), loc);
    out.push(cast);
    (k.results[cast][0], k.new_inst(Op::ConvertLayout(value), number(to), loc))
}

/// True if the padding of a layout is read from bytes of the scratch buffer that the other layout does not reach.
fn reads_unwritten(from: &Fragment, to: &Fragment, scratch: &SharedLayout) -> bool {
    // Tiles of other ranks are read within their extents.
    from.shape.len() == 2
        && [(0, scratch.rows), (1, scratch.cols)].into_iter().any(|(axis, extent)| {
            to.is_padded(axis) && to.shape[usize::from(axis)] < extent && from.cover(axis) < extent
        })
}
