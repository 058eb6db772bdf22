//! Rewrites a maker's kernel to store the tiles that its reader wants, where that is possible.

use super::cover::{is_all, wanted_size};
use super::links::Links;
use super::maker::{axis_dim, the_store};
use super::narrow::narrow;
use super::signature::number;
use super::widen::{MOST_ELEMENTS, widen};
use crate::config::Config;
use crate::def::KernelDef;
use crate::entity::Param;
use crate::ir::Kernel;
use crate::op::Slice;
use crate::reach::Reach;
use crate::rewrite::compact;
use std::rc::Rc;

/// Elements of a tile that is worth mentioning when a kernel does not fit a machine.
pub(super) const LARGE_TILE: u64 = 1 << 14;

/// How an axis of the stored tensor is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Stored whole, but wanted in tiles. `beside` is true if values of the whole axis may be computed beside the tiles.
    Narrow { size: u32, beside: bool },
    /// Stored element by element, but wanted in tiles.
    Widen { size: u32 },
}

/// How each axis of the stored tensor has to be rewritten. `in_loop` is true for a slice that a loop of the reader moves.
///
/// The wanted slice decides, not an extent. A tile of one element that may lie outside has an edge. An element of an axis of
/// extent 1 is picked like any other.
pub(super) fn fits(
    maker: &Kernel,
    param: usize,
    reader: &Kernel,
    wanted: &[(Slice, Reach)],
    in_loop: impl Fn(Slice) -> bool,
) -> Result<Vec<Option<Fit>>, String> {
    let (_, stored, _) = the_store(maker, param)?;
    let of = |(axis, &(wanted, reach)): (usize, &(Slice, Reach))| {
        let extent = maker.dims[axis_dim(maker, Param::from_u32(param as u32), axis)?].size;
        let size = wanted_size(wanted, extent).unwrap_or(1);
        let is_tile = matches!(wanted, Slice::Tile { .. } | Slice::Span { .. });
        match stored[axis] {
            Slice::Whole if !is_all(reader, wanted, reach, extent) => {
                Some(Fit::Narrow { size, beside: in_loop(wanted) })
            }
            Slice::At(_) if size > 1 || is_tile && reach != Reach::Inside => Some(Fit::Widen { size }),
            _ => None,
        }
    };
    Ok(wanted.iter().enumerate().map(of).collect())
}

/// A maker, rewritten as far as possible, and the axes along which that failed, with the reasons.
pub(super) type Fitted = (Rc<Kernel>, Vec<(usize, String)>);

/// A maker that stores the wanted tiles where it stored a whole axis or one element of it. Otherwise the reasons, by axis.
pub(super) fn fitted(kernel: Rc<Kernel>, param: usize, fits: &[Option<Fit>]) -> Result<Fitted, String> {
    let (mut kernel, mut unfit) = (kernel, Vec::new());
    // Of two axes that are widened the last one goes first: each gets in front of those that are tiles already.
    for (axis, fit) in fits.iter().enumerate().rev() {
        let (store, ..) = the_store(&kernel, param)?;
        let made = match *fit {
            Some(Fit::Narrow { size, beside }) => narrow(&kernel, store, axis, size, beside),
            Some(Fit::Widen { size }) => widen(&kernel, store, axis, size),
            None => continue,
        };
        match made {
            // Without what was stored before, and would be made for nothing.
            Ok(made) => kernel = Rc::new(compact(&made)),
            Err(why) => unfit.push((axis, why)),
        }
    }
    Ok((kernel, unfit))
}

/// The number of elements of the largest tile of a kernel.
fn largest_tile(kernel: &Kernel) -> u64 {
    kernel.values.values().map(|v| v.ty.elements()).max().unwrap_or(0)
}

/// What to say of a maker's tile if the fused kernel fits no machine, and its elements.
pub(super) fn remark(links: &Links, reader: usize, (part, param): (usize, usize), kernel: &Kernel) -> (u64, String) {
    let (maker, reader) = (&links.parts[part], &links.parts[reader].label);
    let (name, elements) = (maker.def.params[param].name(), largest_tile(kernel));
    let text = format!(
        "for what `{reader}` reads at once of `{name}`, `{}` makes a tile of {elements} elements in each program: where that is too large, end the fusion with `{}`, which then stores `{name}`, or have `{reader}` read smaller tiles of it",
        maker.label, maker.label
    );
    (elements, text)
}

/// Why a maker's tile is not made as large as wanted: it would need larger knobs than the maker has, and more than a program
/// holds.
pub(super) fn too_large(def: &KernelDef, config: &Config, kernel: &Kernel) -> Option<String> {
    let beyond = def.tune.iter().any(|knob| {
        let largest = knob.values.iter().filter_map(|&v| number(v)).max();
        config.get(knob.name).and_then(number).zip(largest).is_some_and(|(n, largest)| n > largest)
    });
    let elements = largest_tile(kernel);
    (beyond && elements > MOST_ELEMENTS).then(|| format!("a tile of {elements} elements would be made at once"))
}
