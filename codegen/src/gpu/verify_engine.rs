//! The rules of the copy engine: tensor maps, rings that it fills or reads, and regions of one thread (417, 434, 446 and 447).

use super::atom::WARPGROUP_ROWS;
use super::fields::{At, CopyAtom, SharedRef, Slice};
use super::verify::Verifier;
use super::{Inst, Mover, Op, Ring};
use crate::gpu_ops;
use crate::layout::Fragment;
use crate::layout::tensor_map::{ALIGNMENT, MOST_AXES, MOST_BOX, TensorMapData};
use atlas_dsl::Param;
use atlas_dsl::ir::{Loc, ParamKind, Stride};
use std::collections::BTreeSet;

impl Verifier<'_> {
    /// 446 for every map.
    pub(super) fn maps(&mut self) {
        for (map, data) in &self.kernel.maps {
            if let Some(wrong) = self.map_error(data) {
                self.error(446, Loc::default(), format!("{map} {wrong}"));
            }
        }
    }

    fn map_error(&self, map: &TensorMapData) -> Option<String> {
        let param = &self.kernel.params[map.param];
        let ParamKind::Tensor { dtype, dims, strides, align, .. } = &param.kind else {
            return Some(format!("is of `{}`, which is no tensor", param.name));
        };
        let axes: BTreeSet<u8> = map.axes.iter().map(|a| a.axis).collect();
        if axes.len() != map.axes.len() || axes.len() != dims.len() || axes.len() > MOST_AXES {
            return Some(format!("does not have each axis of `{}` once, or more than {MOST_AXES}", param.name));
        }
        let Some(inner) = map.axes.first() else { return Some("has no axes".to_owned()) };
        let stride = |axis: u8| strides.get(usize::from(axis));
        if stride(inner.axis) != Some(&Stride::Const(1)) {
            return Some(format!("begins with axis {} of `{}`, whose stride is not 1", inner.axis, param.name));
        }
        let bytes = dtype.bytes();
        let aligned = |axis: u8| {
            stride(axis).is_some_and(|s| (s.divisor() * u64::from(bytes)).is_multiple_of(u64::from(ALIGNMENT)))
        };
        if !align.is_multiple_of(ALIGNMENT) || map.axes.iter().skip(1).any(|a| !aligned(a.axis)) {
            return Some(format!(
                "needs addresses and strides of {ALIGNMENT} bytes, which `{}` does not promise",
                param.name
            ));
        }
        if map.axes.iter().any(|a| !(1..=MOST_BOX).contains(&a.size)) {
            return Some(format!("has a box of more than {MOST_BOX} elements along an axis, or of none"));
        }
        let row = inner.size * bytes;
        match map.span {
            0 if row.is_multiple_of(ALIGNMENT) => None,
            32 | 64 | 128 if row == map.span => None,
            span => Some(format!("has rows of {row} bytes and spans of {span}")),
        }
    }

    /// 446 and 447 for a copy by the engine: its box is that of its map and begins where the engine can read or write, and the
    /// buffer is laid out as the engine takes it, of which a store takes one panel.
    pub(super) fn engine_copy(&mut self, atom: CopyAtom, param: Param, slices: &[Slice], to: &SharedRef, loc: Loc) {
        let k = self.kernel;
        let Some(data) = atom.map().map(|map| &k.maps[map]) else { return };
        let name = &k.params[param].name;
        if data.param != param {
            let of = &k.params[data.param].name;
            return self.error(446, loc, format!("copies `{name}` by a map of `{of}`"));
        }
        let size = |axis: u8| slices.get(usize::from(axis)).map(|s| s.len().unwrap_or(1));
        if data.axes.iter().any(|a| size(a.axis) != Some(a.size)) {
            self.error(446, loc, format!("the slices of `{name}` are not the box of its map"));
        }
        let buffer = &k.buffers[to.buffer];
        let bytes = buffer.dtype.bytes();
        let inner = data.axes.first().and_then(|a| slices.get(usize::from(a.axis)));
        if !inner.is_some_and(|s| (first_divisor(s) * u64::from(bytes)).is_multiple_of(u64::from(ALIGNMENT))) {
            let message =
                format!("the box of `{name}` may begin off a multiple of {ALIGNMENT} bytes along its innermost axis");
            self.error(446, loc, message);
        }
        let layout = &buffer.layout;
        let is_panel = layout.engine_box(bytes).is_some_and(|b| {
            // All rows, or those that a warpgroup stores.
            let rows = if k.ring_by_warpgroups(to.buffer).is_some() { WARPGROUP_ROWS } else { layout.rows };
            let begins = to.origin.0.is_multiple_of(rows) && to.origin.1.is_multiple_of(b.cols);
            begins && b.span == data.span && rows * b.cols == data.box_elements()
        });
        // Rows without padding or swizzle are one box, too.
        let row = layout.cols * bytes;
        let is_dense = (data.span, layout.swizzle.bits, layout.pitch, layout.panel) == (0, 0, row, layout.cols);
        let is_whole = is_dense && to.origin == (0, 0) && layout.rows * layout.cols == data.box_elements();
        if !(is_panel || (is_whole && !atom.is_store())) {
            let does = if atom.is_store() { "read" } else { "write" };
            let message = format!("the engine does not {does} a box of `{}` as it is laid out: {layout}", buffer.name);
            self.error(447, loc, message);
        }
    }

    /// 447 for a tile that warpgroups write to a stage: each its own rows.
    pub(super) fn written_by_warpgroups(&mut self, to: &SharedRef, layout: &Fragment, loc: Loc) {
        let is_own = to.origin.0 == 0 && !to.transposed && layout.warpgroups_have_rows(WARPGROUP_ROWS);
        if self.kernel.ring_by_warpgroups(to.buffer).is_some() && !is_own {
            let name = &self.kernel.buffers[to.buffer].name;
            self.error(447, loc, format!("a warpgroup writes rows of `{name}` that it does not store: {layout}"));
        }
    }

    /// True if a place is in a stage that the engine fills.
    pub(super) fn is_filled_by_engine(&self, to: &SharedRef) -> bool {
        to.token.is_some_and(|token| self.kernel.ring_of_engine(token).is_some())
    }

    /// 417: what an acquire, a wait or the set-up of a ring asks of it.
    pub(super) fn ring_step(&mut self, ring: Ring, at: Option<At>, loc: Loc) {
        let by_engine = self.kernel.rings[ring].filled_by == Mover::Engine;
        match at {
            Some(At::Cursor { phase, .. }) => {
                if !by_engine {
                    self.error(417, loc, format!("{ring} has no mbarriers that a phase is of: threads fill it"));
                }
                if !self.is_int(phase) {
                    self.error(420, loc, format!("a phase is a scalar i32, found {}", self.ty(phase)));
                }
            }
            Some(At::Slot(_)) if by_engine => {
                self.error(417, loc, format!("a stage of {ring}, which the engine fills, is given without its phase"));
            }
            None if !by_engine => self.error(417, loc, format!("sets up mbarriers of {ring}, which threads fill")),
            Some(At::Slot(_) | At::Iteration(_)) | None => {}
        }
    }

    /// 446: the engine alone accesses a tensor that it stores, for nothing orders its stores with other accesses.
    pub(super) fn engine_stores(&mut self) {
        let k = self.kernel;
        let mut stored = BTreeSet::new();
        for op in k.insts.values() {
            if let Op::Copy { atom: CopyAtom::TmaStore(_), param, .. } = op {
                stored.insert(*param);
            }
        }
        for (inst, op) in &k.insts {
            if self.place[inst].is_none() {
                continue;
            }
            let param = match op {
                Op::LoadGlobal { param, .. } | Op::StoreGlobal { param, .. } => param,
                Op::Copy { atom, param, .. } if !atom.is_store() => param,
                Op::Copy { .. } | gpu_ops!(sources elementwise views fragments shared clusters) => continue,
                gpu_ops!(products rings orders control) => continue,
            };
            if stored.contains(param) {
                let name = &k.params[*param].name;
                self.error(446, k.locs[inst], format!("`{name}` is stored by the engine, and accessed otherwise too"));
            }
        }
    }

    /// 434: one thread fills stages by the engine, or has it store them, and does nothing else.
    pub(super) fn once(&mut self, body: super::Block, loc: Loc) {
        let k = self.kernel;
        let may_stand = |inst: Inst| match &k.insts[inst] {
            Op::Acquire(ring, _) => k.rings[*ring].filled_by == Mover::Engine,
            Op::Commit(ring, _) => [k.rings[*ring].filled_by, k.rings[*ring].read_by].contains(&Mover::Engine),
            Op::Copy { atom, .. } => atom.map().is_some(),
            gpu_ops!(sources elementwise) => true,
            Op::Wait(..) | Op::Release(_) | Op::Drain(_) | Op::InitRing(_) => false,
            Op::LoadGlobal { .. } | Op::StoreGlobal { .. } => false,
            gpu_ops!(views fragments shared clusters products orders control) => false,
        };
        if !k.blocks[body].insts.iter().all(|&i| may_stand(i)) {
            self.error(
                434,
                loc,
                "`once` holds scalars and the filling of stages by the engine, or its stores, and nothing else",
            );
        }
    }
}

/// What divides the first element of a slice.
fn first_divisor(slice: &Slice) -> u64 {
    match *slice {
        Slice::At { .. } | Slice::Span { .. } | Slice::Gather { .. } => 1,
        Slice::Tile { size, offset, .. } => super::gcd(u64::from(size), u64::from(offset)),
        Slice::Whole { offset: 0, .. } => u64::from(ALIGNMENT),
        Slice::Whole { offset, .. } => u64::from(offset),
    }
}
