//! A maker's kernel made to store the tiles that its reader wants, where it can be.

use super::cover::wanted_size;
use super::maker::{axis_dim, the_store};
use super::narrow::narrow;
use super::signature::number;
use super::widen::{MOST_ELEMENTS, widen};
use crate::config::Config;
use crate::def::KernelDef;
use crate::entity::Param;
use crate::ir::{DimSize, Kernel};
use crate::op::Slice;
use crate::rewrite::compact;
use std::rc::Rc;

/// A maker that stores tiles as they are wanted where it stored the whole of an axis, or one element of it; else why it
/// cannot. `in_loop` says of a slice that a loop of the reader goes over it.
pub(super) fn fitted(
    kernel: Rc<Kernel>,
    param: usize,
    wanted: &[Slice],
    in_loop: impl Fn(Slice) -> bool,
) -> Result<(Rc<Kernel>, Option<String>), String> {
    let mut kernel = kernel;
    for (axis, &wanted) in wanted.iter().enumerate() {
        let (store, stored, _) = the_store(&kernel, param)?;
        let Some(dim) = axis_dim(&kernel, Param::from_u32(param as u32), axis) else { continue };
        let extent = kernel.dims[dim].size;
        let size = wanted_size(wanted, extent).unwrap_or(1);
        let made = match stored[axis] {
            Slice::Whole if extent != DimSize::Const(size.into()) && wanted != Slice::Whole => {
                narrow(&kernel, store, axis, size, in_loop(wanted))
            }
            Slice::At(_) if size > 1 => widen(&kernel, store, axis, size),
            _ => continue,
        };
        match made {
            // Without what was stored before, and would be made for nothing.
            Ok(made) => kernel = Rc::new(compact(&made)),
            Err(why) => return Ok((kernel, Some(why))),
        }
    }
    Ok((kernel, None))
}

/// Why a maker's tile is not made as large as it is wanted: knobs beyond what the maker has, for more than a program holds.
pub(super) fn too_large(def: &KernelDef, config: &Config, kernel: &Kernel) -> Option<String> {
    let beyond = def.tune.iter().any(|knob| {
        let largest = knob.values.iter().filter_map(|&v| number(v)).max();
        config.get(knob.name).and_then(number).zip(largest).is_some_and(|(n, largest)| n > largest)
    });
    let elements = kernel.values.values().map(|v| v.ty.elements()).max().unwrap_or(0);
    (beyond && elements > MOST_ELEMENTS).then(|| format!("a tile of {elements} elements would be made at once"))
}
