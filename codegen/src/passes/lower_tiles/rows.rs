//! Turns operands of products so that their rows run along memory.
//!
//! A tensor may be contiguous along another axis than its last one, as the transpose of a row-major matrix is. Copies move runs of
//! consecutive bytes, so its tiles are loaded with that axis last, and transposed. Products read such a tile in shared memory at no
//! cost: `ldmatrix` and `wgmma` transpose as they read.
//!
//! # Promise
//! A kernel with the same results, in which a load of such a tensor takes the contiguous axis last if only products read its tiles.
//! [`ParamKind::argument_axis`] leads back to the argument's axes.
//!
//! # Argument
//! Dims, strides and slices are permuted alike, so each element has its old address and its old coordinates along the grid. A tile of two axes
//! that change places is transposed, which gives the old tile. A tile that keeps its axes' order is the old one. A tensor whose loads leave
//! other tiles is left alone. Only tensors that the kernel does not write are turned, and only as a whole.
//!
//! # Breaks it
//! All four layouts of a product's operands, batches of them, and a tensor that is read by columns and added as well:
//! tests/agreement/turned.rs.

use crate::analysis::{Uses, only_products_read};
use atlas_dsl::ir::{ParamKind, Stride};
use atlas_dsl::op::Slice;
use atlas_dsl::{Inst, Kernel, Op, Param, TileType};
use std::borrow::Cow;

/// The kernel, in which operands of products are loaded with their contiguous axis last.
pub(super) fn rows_along_memory(kernel: &Kernel) -> Cow<'_, Kernel> {
    let mut kernel = Cow::Borrowed(kernel);
    for param in kernel.params.keys().collect::<Vec<_>>() {
        let Some(order) = contiguous_last(&kernel.params[param].kind) else { continue };
        let loads = loads_of(&kernel, param);
        let uses = Uses::of(&kernel);
        let is_operand = |&load: &Inst| only_products_read(&kernel, &uses, kernel.results[load][0], &|_| true);
        let turns: Vec<Option<bool>> = loads.iter().map(|&load| is_turned(&kernel, load, &order)).collect();
        if loads.is_empty() || !turns.iter().all(Option::is_some) || !loads.iter().all(is_operand) {
            continue;
        }
        let kernel = kernel.to_mut();
        turn_param(&mut kernel.params[param].kind, &order);
        for (load, turn) in loads.into_iter().zip(turns) {
            turn_load(kernel, load, &order, turn == Some(true));
        }
    }
    kernel
}

/// The order of axes in which the contiguous one is last, if it is another one than the last of a tensor that is only read.
fn contiguous_last(kind: &ParamKind) -> Option<Vec<usize>> {
    let ParamKind::Tensor { strides, .. } = kind else { return None };
    let one = Stride::Const(1);
    let is_turnable = kind.is_read_only() && strides.last() != Some(&one);
    let at = strides.iter().rposition(|&s| s == one).filter(|_| is_turnable)?;
    Some((0..strides.len()).filter(|&axis| axis != at).chain([at]).collect())
}

fn loads_of(kernel: &Kernel, param: Param) -> Vec<Inst> {
    let loads = |(inst, op): (Inst, &Op)| matches!(op, Op::Load { param: p, .. } if *p == param).then_some(inst);
    kernel.insts.iter().filter_map(loads).collect()
}

/// True if the tile of a load has two axes that change places, false if its axes keep their order; `None` for other tiles.
fn is_turned(kernel: &Kernel, load: Inst, order: &[usize]) -> Option<bool> {
    let Op::Load { slices, .. } = &kernel.insts[load] else { return None };
    let is_axis = |axis: &usize| !matches!(slices[*axis], Slice::At(_));
    let kept: Vec<usize> = order.iter().copied().filter(is_axis).collect();
    match (kept.is_sorted(), kept.len()) {
        (true, _) => Some(false),
        (false, 2) => Some(true),
        (false, _) => None,
    }
}

fn turn_param(kind: &mut ParamKind, order: &[usize]) {
    let argument_axes = order.iter().map(|&axis| kind.argument_axis(axis as u8)).collect();
    if let ParamKind::Tensor { dims, strides, axes, .. } = kind {
        *dims = order.iter().map(|&axis| dims[axis]).collect();
        *strides = order.iter().map(|&axis| strides[axis]).collect();
        *axes = argument_axes;
    }
}

/// Loads a tile in another order of axes. What the load gave is the transpose of that.
fn turn_load(kernel: &mut Kernel, load: Inst, order: &[usize], turn: bool) {
    let Op::Load { param, slices } = &kernel.insts[load] else { return };
    let turned = Op::Load { param: *param, slices: order.iter().map(|&axis| slices[axis]).collect() };
    if !turn {
        kernel.insts[load] = turned;
        return;
    }
    let place =
        kernel.blocks.iter().find_map(|(block, data)| Some((block, data.insts.iter().position(|&inst| inst == load)?)));
    let Some((block, at)) = place else { return };
    let ty = kernel.ty(kernel.results[load][0]);
    let ty = TileType::new(ty.dtype, ty.shape.iter().rev().copied().collect::<Vec<_>>());
    let new = kernel.push_inst(block, turned, &[ty], kernel.locs[load]);
    kernel.insts[load] = Op::Transpose(kernel.results[new][0]);
    let insts = &mut kernel.blocks[block].insts;
    insts.pop();
    insts.insert(at, new);
}
