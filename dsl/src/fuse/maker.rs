//! What a kernel stores and loads: the one tile of an output, its edges, and tiles that are read.

use super::cover::wanted_size;
use crate::entity::{Block, Dim, Inst, Param, Value};
use crate::ir::{GridExtent, Kernel, ParamKind};
use crate::op::{Op, Slice};
use crate::reach::{Reach, is_counted_point, reach};
use crate::validity::{Constraint, Validity, same_slice};
use std::collections::BTreeSet;

/// How far each slice of a load reaches.
pub(super) fn reaches(kernel: &Kernel, param: Param, slices: &[Slice]) -> Vec<Reach> {
    let ParamKind::Tensor { dims, .. } = &kernel.params[param].kind else { return Vec::new() };
    slices.iter().zip(dims).map(|(&slice, &dim)| reach(kernel, slice, dim)).collect()
}

/// The extents of a load.
pub(super) fn shape_of(slices: &[Slice], dims: &[Dim], kernel: &Kernel) -> Vec<u32> {
    let kept = slices.iter().zip(dims).filter(|(s, _)| !matches!(s, Slice::At(_)));
    kept.filter_map(|(&s, &d)| wanted_size(s, kernel.dims[d].size)).collect()
}

/// The dim of an axis of a tensor.
pub(super) fn axis_dim(kernel: &Kernel, param: Param, axis: usize) -> Option<Dim> {
    match &kernel.params[param].kind {
        ParamKind::Tensor { dims, .. } => dims.get(axis).copied(),
        ParamKind::Scalar { .. } => None,
    }
}

/// The one store to a parameter, its slices and its value; it stands outside loops.
pub(super) fn the_store(kernel: &Kernel, param: usize) -> Result<(Inst, &[Slice], Value), String> {
    if kernel.grid.iter().any(|axis| matches!(axis.extent, GridExtent::UpTo { .. })) {
        return Err("its maker's programs are pairs of tiles".to_owned());
    }
    let mut found = None;
    for (inst, op) in kernel.insts.iter() {
        match op {
            Op::Store { param: p, .. } if p.as_u32() as usize == param && found.is_some() => {
                return Err("it is stored in several places".to_owned());
            }
            Op::Store { param: p, slices, value } if p.as_u32() as usize == param => {
                found = Some((inst, &slices[..], *value));
            }
            Op::Load { param: p, .. } if !kernel.params[*p].kind.is_read_only() => {
                return Err(format!("its maker reads `{}`, which it writes", kernel.params[*p].name));
            }
            _ => {}
        }
    }
    let found = found.ok_or_else(|| "it is not stored".to_owned())?;
    match kernel.blocks[kernel.body].insts.contains(&found.0) {
        true => Ok(found),
        false => Err("it is stored in a loop".to_owned()),
    }
}

/// An axis of the tensor along which tiles may be ragged but the tile stored has no edge.
pub(super) fn unedged(kernel: &Kernel, param: usize, stored: &[Slice], value: Value) -> Option<usize> {
    let validity = Validity::by_source(kernel);
    let ParamKind::Tensor { dims, .. } = &kernel.params[Param::from_u32(param as u32)].kind else { return None };
    let mut kept = 0;
    for (axis, (&slice, &dim)) in stored.iter().zip(dims).enumerate() {
        if matches!(slice, Slice::At(_)) {
            continue;
        }
        let at = kept;
        kept += 1;
        let counted = slice == Slice::Whole || is_counted_point(kernel, slice, dim);
        let has = |c: &Constraint| usize::from(c.axis) == at && c.dim == dim && same_slice(kernel, c.slice, slice);
        if !counted && !validity.constraints(value).iter().any(has) {
            return Some(axis);
        }
    }
    None
}

pub(super) fn loads_of(kernel: &Kernel, input: usize) -> impl Iterator<Item = Value> {
    kernel.insts.iter().filter_map(move |(inst, op)| match op {
        Op::Load { param, .. } if param.as_u32() as usize == input => kernel.results[inst].first().copied(),
        _ => None,
    })
}

pub(super) fn coordinate(slice: &Slice) -> Option<Value> {
    match *slice {
        Slice::At(v) | Slice::Tile { index: v, .. } | Slice::Span { start: v, .. } => Some(v),
        Slice::Whole => None,
    }
}

/// What the operations of a block, and of the loops in it, read that stands outside of it.
pub(super) fn read_by(kernel: &Kernel, block: Block) -> BTreeSet<Value> {
    let (mut read, mut inside) = (BTreeSet::new(), BTreeSet::new());
    let mut left = vec![block];
    while let Some(block) = left.pop() {
        inside.extend(kernel.blocks[block].params.iter().copied());
        for &inst in &kernel.blocks[block].insts {
            inside.extend(kernel.results[inst].iter().copied());
            kernel.insts[inst].visit_operands(|v| {
                read.insert(v);
            });
            if let Op::Loop { body, .. } = kernel.insts[inst] {
                left.push(body);
            }
        }
    }
    read.difference(&inside).copied().collect()
}
