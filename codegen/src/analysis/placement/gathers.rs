//! Where the places of a load that gathers, and of an atomic store, are needed: by the threads that access what lies there.

use crate::layout::Fragment;
use atlas_dsl::ir::Kernel;
use atlas_dsl::op::Slice;
use atlas_dsl::{Op, Value};

/// The tile of places of a load that gathers, or of a store, if it has one, with its extents among the axes of what is accessed:
/// those that follow are 1.
pub(crate) fn places_of(kernel: &Kernel, op: &Op) -> Option<(Value, Vec<u32>)> {
    let (Op::Load { slices, .. } | Op::Store { slices, .. }) = op else { return None };
    let mut kept = slices.iter().filter(|s| !matches!(s, Slice::At(_)));
    let places = kept.find_map(|s| if let Slice::Gather(places) = s { Some(*places) } else { None })?;
    let mut shape = kernel.ty(places).shape.clone();
    shape.extend(kept.map(|_| 1));
    Some((places, shape))
}

/// The layout in which each thread has the places of what it accesses, if the operation has some, and its tile this layout.
pub(super) fn layout_of_places(kernel: &Kernel, op: &Op, accessed: &Fragment) -> Option<(Value, Fragment)> {
    let (places, shape) = places_of(kernel, op)?;
    Some((places, accessed.broadcast_source(&shape).reshape(&kernel.ty(places).shape)?))
}
