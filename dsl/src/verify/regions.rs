//! A program neither writes nor reads memory that another program writes.
//!
//! # Promise
//! In a kernel that keeps rules 210 to 214, 222 and 236 no element of an `out` tensor is stored by two programs, and none that one
//! program stores is loaded by another. There are two exceptions, and a tensor that has one has nothing else. Each element of an atomic
//! store combines what all programs store to it, in any order. Of `store_disjoint`, the author says that no element has two; the
//! interpreter checks that, and the simulator finds the race. So programs may run in any order, or at the same time. A load of an `out` tensor sees
//! what was there before the launch, or what its own program stored, in the order of the text.
//!
//! # Argument
//! Two programs differ in some grid coordinate. Every store to a parameter uses that coordinate as an element or as a tile
//! index, in the same slice on the same axis. A load of the parameter uses it there too. A slice with a given axis and size
//! maps different coordinates to disjoint ranges of the axis: `c` to the element `c`, or to elements `c·size .. (c + 1)·size`.
//! Two boxes that are disjoint on one axis are disjoint, whatever the other slices are. A span is no such map: its start may be
//! computed, and spans with different starts may overlap. A coordinate computed from another one (`n + 1`) is a different
//! value, and does not count.
//!
//! In a grid of pairs, `(i, j)` with `j <= i`, stores may also use both coordinates on two common axes, in either order. The
//! boxes of `(i, j)` and `(j, i)` both belong to the program of that pair. The boxes of any other pair have other tiles on one
//! of the axes.
//!
//! Stores that all programs of a cluster make with the same value at the same place may leave the cluster's coordinate out
//! ([`Differing`](super::differing::Differing)). One of the programs makes them, and none may load the tensor. If a tensor has such stores, all its stores are.
//!
//! From boxes of indices to memory: no two elements of a written tensor share an address, and the tensor shares no byte with
//! another argument. Rule 224 ensures that for constant strides, and the runtime for the others (tile-interp/src/overlap.rs).
//! Elements outside a dim are neither stored nor loaded.
//!
//! Within one program, the order is that of the text. Barriers enforce it between threads (codegen's `insert_barriers`).
//!
//! # Breaks it
//! - A store without a coordinate, or with it in a span: tests/cases/tile/error_missing_coordinate.tile.
//! - Stores with a coordinate on different axes, or in tiles of different sizes (222): dsl/tests/verify.rs, which has a
//!   case for every code.
//! - A load at `n + 1`: tests/cases/tile/error_load_of_output.tile.
//! - A load of what is added to atomically: tests/cases/tile/error_atomic.tile.
//! - Legal kernels, and how they run: tests/cases/tile/in_place.tile,
//!   tests/agreement/wrong_code.rs::a_program_reads_what_it_wrote_by_any_slice.

use super::Verifier;
use crate::diag::Diagnostic;
use crate::entity::{Inst, Param, Value};
use crate::ir::{Access, GridAxis, GridExtent, Kernel, Loc, ParamKind};
use crate::op::{Slice, Update};

/// A load or a store.
pub(super) struct TileAccess<'k> {
    pub(super) inst: Inst,
    pub(super) param: Param,
    pub(super) slices: &'k [Slice],
    pub(super) loc: Loc,
    /// What a store makes of the elements that are there; `None` for a load.
    pub(super) update: Option<Update>,
    /// True if all programs of a cluster make this access, with the same value.
    pub(super) is_of_all: bool,
}

impl TileAccess<'_> {
    fn is_store(&self) -> bool {
        self.update.is_some()
    }

    fn is_free(&self) -> bool {
        self.update.is_some_and(Update::is_free)
    }

    /// The axes of the tensor on which a grid coordinate picks an element or a tile, with the slices.
    fn places(&self, coord: Value) -> Vec<(usize, Slice)> {
        self.slices.iter().copied().enumerate().filter(|(_, s)| coordinate(s) == Some(coord)).collect()
    }

    /// Pairs of axes, the first before the second, on which the coordinates of a grid of pairs pick tiles, in any order.
    fn pair_places(&self, k: &Kernel) -> Vec<[usize; 2]> {
        let [.., i, j] = &k.grid[..] else { return vec![] };
        if !matches!(j.extent, GridExtent::UpTo { .. }) {
            return vec![];
        }
        let picks = |coord: Value| {
            self.places(coord).into_iter().filter_map(|(at, s)| match s {
                Slice::Tile { .. } => Some(at),
                _ => None,
            })
        };
        picks(i.coord).flat_map(|p| picks(j.coord).map(move |q| [p.min(q), p.max(q)])).collect()
    }
}

impl<'k> Verifier<'k> {
    /// 210, 213, 220, 222 and 235.
    pub(super) fn access(&mut self, access: TileAccess<'k>) {
        let (k, loc) = (self.kernel, access.loc);
        let data = &k.params[access.param];
        for slice in access.slices {
            if let Slice::Tile { size: 0, .. } | Slice::Span { len: 0, .. } = slice {
                self.error(220, loc, format!("a slice of `{}` has 0 elements", data.name));
            }
            if let Slice::Tile { index, size } = slice
                && let Some(axis) = k.grid.iter().find(|a| a.coord == *index)
                && let (dim, Some(want)) = (axis.extent.dim(), axis.extent.tile())
                && *size != want
            {
                let message = format!(
                    "the grid counts tiles of {want} elements of `{}`, but `{}` is sliced in tiles of {size}",
                    k.dims[dim].name, data.name
                );
                self.error(222, loc, message);
            }
        }
        let gathered = access.slices.iter().filter(|s| matches!(s, Slice::Gather(_))).count();
        if gathered > 0 && is_out(k, access.param) && !access.is_free() {
            let verb = if access.is_store() { "stored to" } else { "`out`, and loaded" };
            let message = format!("`{}` is {verb} at the places of a tile", data.name);
            let note = "a tile of places is an index of loads from inputs, of atomic stores and of `store_disjoint`: programs, and threads of one, may name a place twice";
            self.errors.push(Diagnostic::new(235, loc, message).note(note));
        } else if gathered > 1 {
            let what = if access.is_store() { "store to" } else { "load of" };
            let message = format!("a {what} `{}` has tiles of places on {gathered} axes", data.name);
            let note = "one axis may have one; give the others a tile, a span or a number";
            self.errors.push(Diagnostic::new(235, loc, message).note(note));
        }
        if access.is_store() && !is_out(k, access.param) {
            self.error(210, loc, format!("`{}` is stored to, but is not `out`", data.name));
        } else if access.is_store() && !access.is_free() {
            let of_cluster = k.grid.last().filter(|_| access.is_of_all && k.cluster).map(|axis| axis.coord);
            let missing = |axis: &&GridAxis| access.places(axis.coord).is_empty() && Some(axis.coord) != of_cluster;
            for axis in k.grid.iter().filter(missing) {
                if k.cluster && k.grid.last().is_some_and(|last| last.coord == axis.coord) {
                    self.store_differs(&access, axis);
                    continue;
                }
                let message = format!(
                    "the store to `{}` does not use the grid coordinate of {}",
                    data.name,
                    axis_text(k, axis.extent)
                );
                let note = "programs that differ in this coordinate alone would write the same elements";
                self.errors.push(Diagnostic::new(213, loc, message).note(note));
            }
        }
        self.accesses.push(access);
    }

    /// The rules on all accesses to one parameter: 211, 212, 214 and 236.
    pub(super) fn stores(&mut self) {
        let k = self.kernel;
        let accesses = std::mem::take(&mut self.accesses);
        for (param, data) in k.params.iter().filter(|(p, _)| is_out(k, *p)) {
            let (stores, loads): (Vec<_>, Vec<_>) =
                accesses.iter().filter(|a| a.param == param).partition(|a| a.is_store());
            if let Some(free) = stores.iter().find(|a| a.is_free()) {
                let others = stores.iter().chain(&loads).filter(|a| a.update != free.update);
                others.for_each(|other| self.errors.push(beside_free(k, free, other)));
                continue;
            }
            if stores.is_empty() {
                self.error(212, Loc::default(), format!("`{}` is `out`, but never stored to", data.name));
                continue;
            }
            let paired = self.pair_places(&stores);
            for (at, axis) in k.grid.iter().enumerate() {
                if let Some(common) = &paired
                    && at + 2 >= k.grid.len()
                {
                    let apart = loads.iter().filter(|l| !l.pair_places(k).iter().any(|p| common.contains(p)));
                    let axes: Vec<(usize, Slice)> = stores[0].places(axis.coord);
                    apart.for_each(|load| self.errors.push(other_program(k, load, axis, &axes)));
                    continue;
                }
                let of_all = |s: &&&TileAccess<'k>| s.is_of_all && s.places(axis.coord).is_empty();
                if k.cluster && at + 1 == k.grid.len() && stores.iter().any(|s| of_all(&s)) {
                    // One program of the cluster stores what all have. Where that is done, no other program knows.
                    loads.iter().for_each(|load| self.errors.push(of_the_cluster(k, load)));
                    for store in stores.iter().filter(|s| !s.places(axis.coord).is_empty()) {
                        let message = format!(
                            "this store to `{}` has the coordinate of the cluster, and another one has not",
                            data.name
                        );
                        self.error(214, store.loc, message);
                    }
                    continue;
                }
                // A store without the coordinate has been reported: 213.
                if let Some(common) = self.common_places(&stores, axis) {
                    let apart = loads.iter().filter(|l| !l.places(axis.coord).iter().any(|p| common.contains(p)));
                    apart.for_each(|load| self.errors.push(other_program(k, load, axis, &common)));
                }
            }
        }
    }

    /// The two axes on which all stores use the coordinates of a grid of pairs, in either order.
    fn pair_places(&self, stores: &[&TileAccess<'k>]) -> Option<Vec<[usize; 2]>> {
        let (first, rest) = stores.split_first()?;
        let mut common = first.pair_places(self.kernel);
        rest.iter().for_each(|store| common.retain(|p| store.pair_places(self.kernel).contains(p)));
        (!common.is_empty()).then_some(common)
    }

    /// The axis on which all stores to a parameter use a coordinate. If there is none, that is reported and the result is
    /// `None`.
    fn common_places(&mut self, stores: &[&TileAccess<'k>], axis: &GridAxis) -> Option<Vec<(usize, Slice)>> {
        let (first, rest) = stores.split_first()?;
        let mut common = first.places(axis.coord);
        if common.is_empty() {
            return None;
        }
        for store in rest {
            let places = store.places(axis.coord);
            if places.is_empty() {
                return None;
            }
            common.retain(|p| places.contains(p));
            if common.is_empty() {
                let message = format!(
                    "this store to `{}` has the grid coordinate of {} in another slice than the store before",
                    self.kernel.params[store.param].name,
                    axis_text(self.kernel, axis.extent)
                );
                self.error(214, store.loc, message);
                return None;
            }
        }
        Some(common)
    }
}

/// Reports a load of what another program may write.
fn other_program(k: &Kernel, load: &TileAccess<'_>, axis: &GridAxis, common: &[(usize, Slice)]) -> Diagnostic {
    let axes: Vec<String> = common.iter().map(|(at, _)| at.to_string()).collect();
    let message = format!(
        "`{}` is `out`, and its stores have the grid coordinate of {} on axis {}, but this load has another index there",
        k.params[load.param].name,
        axis_text(k, axis.extent),
        axes.join(" and on axis ")
    );
    Diagnostic::new(211, load.loc, message).note("a program may read what it writes itself, nothing else: load with the index that the stores have, or from another tensor")
}

/// Reports an access to what other programs may combine with, or store to, at the same time.
fn beside_free(k: &Kernel, free: &TileAccess<'_>, other: &TileAccess<'_>) -> Diagnostic {
    let name = &k.params[other.param].name;
    let statement = |access: &TileAccess<'_>| access.update.map_or("load", Update::statement);
    let message = format!(
        "`{name}` has `{}`, and `{}` elsewhere in the kernel: what the latter finds there would depend on which program runs first",
        statement(free),
        statement(other)
    );
    Diagnostic::new(236, other.loc, message)
        .note("one kind of atomic store, or `store_disjoint`, is all that a kernel does with such a tensor: read or store another tensor, or this one in another kernel")
}

/// Reports a load of what one program of a cluster stores for all.
fn of_the_cluster(k: &Kernel, load: &TileAccess<'_>) -> Diagnostic {
    let name = &k.params[load.param].name;
    let message = format!("`{name}` is stored to without the coordinate of the cluster, so it cannot be loaded");
    Diagnostic::new(211, load.loc, message)
        .note("use the value that is stored, or give the tensor an axis for the coordinate")
}

fn is_out(k: &Kernel, p: Param) -> bool {
    matches!(k.params[p].kind, ParamKind::Tensor { access: Access::Out, .. })
}

/// The value that picks one element or one tile, so that different numbers pick disjoint regions.
fn coordinate(slice: &Slice) -> Option<Value> {
    match *slice {
        Slice::At(v) | Slice::Tile { index: v, .. } => Some(v),
        Slice::Span { .. } | Slice::Whole | Slice::Gather(_) => None,
    }
}

pub(super) fn axis_text(k: &Kernel, extent: GridExtent) -> String {
    match extent {
        GridExtent::Points(d) => format!("`{}`", k.dims[d].name),
        GridExtent::Tiles { dim, size } => format!("`tiles({}, {size})`", k.dims[dim].name),
        GridExtent::UpTo { dim, size } => format!("`upto({}, {size})`", k.dims[dim].name),
    }
}
