//! What a kernel stores and loads: the single tile of an output, the edges of that tile, and the tiles that are read.

use crate::entity::{Block, Dim, Inst, Param, Value};
use crate::ir::{GridExtent, Kernel, ParamKind};
use crate::op::{Op, Slice};
use crate::reach::{Reach, reach};
use crate::validity::{Constraint, Validity, same_slice};
use std::collections::BTreeSet;

/// How far each slice of a load reaches.
pub(super) fn reaches(kernel: &Kernel, param: Param, slices: &[Slice]) -> Vec<Reach> {
    let ParamKind::Tensor { dims, .. } = &kernel.params[param].kind else { return Vec::new() };
    slices.iter().zip(dims).map(|(&slice, &dim)| reach(kernel, slice, dim)).collect()
}

/// For each axis of a load, the matching axis of the stored tile. `None` where the store has one element. The load may have
/// axes before those of the store.
pub(super) fn axes_read(loaded: &[Slice], stored: &[Slice]) -> Vec<Option<u8>> {
    let before = loaded.len() - stored.len();
    let mut next = 0..;
    let mut axes = Vec::new();
    for (axis, slice) in loaded.iter().enumerate() {
        let made = axis.checked_sub(before).filter(|&own| !matches!(stored[own], Slice::At(_)));
        let made = made.and_then(|_| next.next());
        if !matches!(slice, Slice::At(_)) {
            axes.push(made);
        }
    }
    axes
}

/// The dim of an axis of a tensor.
pub(super) fn axis_dim(kernel: &Kernel, param: Param, axis: usize) -> Option<Dim> {
    match &kernel.params[param].kind {
        ParamKind::Tensor { dims, .. } => dims.get(axis).copied(),
        ParamKind::Scalar { .. } => None,
    }
}

/// The only store to a parameter, its slices and its value. It is outside loops.
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
            Op::Store { param: p, update, .. } if update.is_free() => {
                let (name, statement) = (&kernel.params[*p].name, update.statement());
                return Err(format!("its maker has `{statement}` to `{name}`, once for each program"));
            }
            Op::Store { param: p, slices, value, .. } if p.as_u32() as usize == param => {
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

/// Where the tile that a maker stores is not valid, and what its reader would find there.
///
/// A reader of the tensor finds a number everywhere inside the tensor, and nothing valid outside. So the tile must have the
/// edges of the load's slices, and no others. A store writes 0 for an element that is not valid but lies inside, and that 0 is
/// a number like any other to the reader.
pub(super) struct Edges {
    /// Axes of the tile where invalid elements were stored as 0, or where one element is read that lies inside although the
    /// verifier, which does not use sizes, cannot know it.
    pub(super) filled: Vec<u8>,
}

impl Edges {
    /// The edges of the value stored by `stored` if `loaded` is read from it. Otherwise the reason why they are not those of
    /// the load. `is_counted` is true for an axis of which one element is read, if the verifier knows that it lies inside.
    pub(super) fn of(
        kernel: &Kernel,
        param: usize,
        stored: &[Slice],
        value: Value,
        loaded: &[(Slice, Reach)],
        is_counted: impl Fn(usize) -> bool,
    ) -> Result<Edges, String> {
        let validity = Validity::by_source(kernel);
        let mut filled = Vec::new();
        let ParamKind::Tensor { dims, .. } = &kernel.params[Param::from_u32(param as u32)].kind else {
            return Ok(Edges { filled });
        };
        let kept = stored.iter().zip(dims).enumerate().filter(|(_, (s, _))| !matches!(s, Slice::At(_)));
        for (at, (axis, (&slice, &dim))) in kept.enumerate() {
            let along: Vec<&Constraint> =
                validity.constraints(value).iter().filter(|c| usize::from(c.axis) == at).collect();
            let is_own = |c: &Constraint| c.dim == dim && !c.whole_axis && same_slice(kernel, c.slice, slice);
            let has_edge = match loaded[axis] {
                (Slice::Whole | Slice::At(_) | Slice::Gather(_), _) => false,
                (Slice::Tile { size: 1, .. } | Slice::Span { len: 1, .. }, reach) => reach != Reach::Inside,
                (Slice::Tile { .. } | Slice::Span { .. }, _) => slice != Slice::Whole,
            };
            if has_edge && !along.iter().any(|c| is_own(c)) {
                return Err(format!("what is stored has no edge along axis {axis}, where the tensor has one"));
            }
            let Some(other) = along.iter().find(|c| !is_own(c)) else {
                if matches!(loaded[axis].0, Slice::At(_)) && !along.is_empty() && !is_counted(axis) {
                    filled.push(at as u8);
                }
                continue;
            };
            if has_edge {
                let dim = &kernel.dims[other.dim].name;
                return Err(format!(
                    "0 is stored along axis {axis} for what lies outside of `{dim}`, and the tile that is read may reach \
                     outside of the tensor there"
                ));
            }
            filled.push(at as u8);
        }
        Ok(Edges { filled })
    }
}

pub(super) fn loads_of(kernel: &Kernel, input: usize) -> impl Iterator<Item = Value> {
    kernel.insts.iter().filter_map(move |(inst, op)| match op {
        Op::Load { param, .. } if param.as_u32() as usize == input => kernel.results[inst].first().copied(),
        _ => None,
    })
}

/// Values from outside of a block that its operations, or those of loops in it, read.
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
