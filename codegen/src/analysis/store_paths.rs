//! Which stores the copy engine makes, and why threads make the others.
//!
//! # Promise
//! A store of the engine writes what threads would: the elements of its tile within the tensor, and no other ones. No other
//! access of the kernel may touch an element that it writes.
//!
//! # Argument
//! *Box.* The engine takes the tensors and the boxes that it takes for loads ([`Paths`](super::Paths)), and drops what lies past
//! an end. A tile is stored by panels of at most 128 bytes of its rows, each of which is a box.
//!
//! *Order.* Nothing orders two stores of the engine, nor one with what threads read or write, but a wait for all of it at the end
//! of the kernel. So the kernel has no other access to the tensor, programs store apart (`dsl/src/verify/regions.rs`), and so do
//! iterations: the index of each loop around the store is a coordinate of the tile.
//!
//! # Breaks it
//! A tile that is stored in each iteration, a tensor that is loaded or stored twice, tiles and pitches that the engine does not
//! take: tests/agreement/engine_stores.rs. Rule 446 and 447 of the verifier.

use super::Uses;
use crate::arch::{Capability, Target};
use crate::layout::SharedLayout;
use crate::layout::tensor_map::{ALIGNMENT, MOST_AXES, takes_strides};
use atlas_dsl::config::{Copies, Programs};
use atlas_dsl::ir::ParamKind;
use atlas_dsl::op::Slice;
use atlas_dsl::{Inst, Kernel, Op, Param, Schedule, Value};

/// The fewest bytes of a tile that the engine stores, and of each of its boxes: threads store fewer before a copy has begun.
const LEAST_BYTES: u64 = 2048;
const LEAST_BOX_BYTES: u32 = 512;

/// Who stores a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePath {
    /// The copy engine, from shared memory.
    Engine,
    /// Threads, from registers, for this reason.
    Threads(WhyDirect),
}

/// Why threads store a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyDirect {
    /// The target has no copy engine.
    Target,
    /// The config does not ask for the engine.
    Config,
    /// One CTA of a cluster stores for all.
    Cluster,
    /// The kernel has another access to the tensor.
    Accessed,
    /// Two iterations of a loop may store one element.
    Repeated,
    /// The tensor's strides or its address are no multiples of 16 bytes, or its last axis is not contiguous.
    Strides,
    /// The box may begin off a multiple of 16 bytes.
    Start,
    /// The tensor has more axes than a map, or the tile more than two.
    Rank,
    /// It is an atomic store, or may have any index.
    Places,
    /// No panels make up the tile.
    Layout,
    /// The tile has few bytes, or consists of many small boxes.
    Small,
    /// The kernel has as many tensor maps already as its parameters have room for.
    Maps,
}

impl WhyDirect {
    /// The reason as a sentence without an end.
    pub const fn text(self) -> &'static str {
        match self {
            WhyDirect::Target => "the target has no copy engine",
            WhyDirect::Config => "the config does not ask for the copy engine",
            WhyDirect::Places => "its index may be any",
            WhyDirect::Cluster => "one CTA of a cluster stores it for all",
            WhyDirect::Accessed => "the kernel loads the tensor too, or stores it twice",
            WhyDirect::Repeated => "iterations of a loop may store the same elements",
            WhyDirect::Strides => "address or strides are no multiples of 16 bytes",
            WhyDirect::Start => "its box may begin off a multiple of 16 bytes",
            WhyDirect::Rank => "the engine stores tiles of one or two axes, of tensors of at most five",
            WhyDirect::Layout => "its rows are no multiple of 32 bytes, or more than 256",
            WhyDirect::Small => "it has less than 2048 bytes, or boxes of less than 512",
            WhyDirect::Maps => "the kernel has no room for more tensor maps",
        }
    }
}

/// Why threads store a tile, if they do. They do unless the config asks for the engine, or for persistent programs: on an H100,
/// kernels with products took
/// between 0.97 and 1.02 of the time that they take with stores by the engine.
pub(super) fn why_direct(
    kernel: &Kernel,
    uses: &Uses,
    schedule: &Schedule,
    target: Target,
    store: Inst,
) -> Option<WhyDirect> {
    let Op::Store { param, ref slices, value, update } = kernel.insts[store] else { return Some(WhyDirect::Rank) };
    let ParamKind::Tensor { dtype, strides, align, .. } = &kernel.params[param].kind else {
        return Some(WhyDirect::Strides);
    };
    let (shape, bytes) = (&kernel.ty(value).shape, dtype.bytes());
    let elements: u64 = shape.iter().map(|&n| u64::from(n)).product();
    let layout = SharedLayout::for_engine_stores(shape, bytes);
    let box_bytes = layout.and_then(|l| Some(l.rows * l.engine_box(bytes)?.cols * bytes));
    let is_large =
        elements * u64::from(bytes) >= LEAST_BYTES && box_bytes.is_some_and(|bytes| bytes >= LEAST_BOX_BYTES);
    let checks = [
        (target.has(Capability::Tma), WhyDirect::Target),
        (is_asked_for(schedule), WhyDirect::Config),
        (!update.is_free(), WhyDirect::Places),
        (!is_of_one_cta(kernel, slices), WhyDirect::Cluster),
        (is_only_access(kernel, uses, param), WhyDirect::Accessed),
        (iterations_store_apart(kernel, uses, store, slices), WhyDirect::Repeated),
        (takes_strides(strides, *align, bytes), WhyDirect::Strides),
        (begins_at_chunk(slices, bytes), WhyDirect::Start),
        ((1..=2).contains(&shape.len()) && slices.len() <= MOST_AXES, WhyDirect::Rank),
        (layout.is_some(), WhyDirect::Layout),
        (is_large, WhyDirect::Small),
    ];
    checks.into_iter().find(|(holds, _)| !holds).map(|(_, why)| why)
}

/// True for a store of a cluster that leaves out the coordinate of its programs.
pub(crate) fn is_of_one_cta(kernel: &Kernel, slices: &[Slice]) -> bool {
    let Some(axis) = kernel.grid.last().filter(|_| kernel.cluster) else { return false };
    slices.iter().all(|s| !matches!(*s, Slice::At(v) | Slice::Tile { index: v, .. } if v == axis.coord))
}

/// True if a config wants the engine's stores. Persistent programs do unless it says otherwise: the threads go on to the next
/// program while the engine stores.
fn is_asked_for(schedule: &Schedule) -> bool {
    match schedule.stores {
        Some(by) => by == Copies::Engine,
        None => schedule.programs == Some(Programs::Persistent),
    }
}

/// True if a box whose last slice is this one begins at a multiple of [`ALIGNMENT`] bytes along the last axis.
pub(super) fn begins_at_chunk(slices: &[Slice], element_bytes: u32) -> bool {
    match slices.last() {
        Some(&Slice::Tile { size, .. }) => {
            (u64::from(size) * u64::from(element_bytes)).is_multiple_of(u64::from(ALIGNMENT))
        }
        Some(Slice::Whole) => true,
        Some(Slice::At(_) | Slice::Span { .. } | Slice::Gather(_)) | None => false,
    }
}

/// True if one operation of the kernel accesses a tensor.
fn is_only_access(kernel: &Kernel, uses: &Uses, tensor: Param) -> bool {
    let accesses = |(inst, op): (Inst, &Op)| {
        uses.is_live(inst) && matches!(op, Op::Load { param, .. } | Op::Store { param, .. } if *param == tensor)
    };
    kernel.insts.iter().filter(|&access| accesses(access)).count() == 1
}

/// True if the index of each loop around a store chooses the tile: tiles of different indices lie apart.
fn iterations_store_apart(kernel: &Kernel, uses: &Uses, store: Inst, slices: &[Slice]) -> bool {
    let chooses = |index: Value| {
        slices.iter().any(|slice| matches!(*slice, Slice::At(v) | Slice::Tile { index: v, .. } if v == index))
    };
    let mut block = uses.block_of(store);
    while let Some(around) = block.and_then(|b| uses.loop_of(b)) {
        let Op::Loop { body, .. } = kernel.insts[around] else { return false };
        if !kernel.blocks[body].params.first().is_some_and(|&index| chooses(index)) {
            return false;
        }
        block = uses.block_of(around);
    }
    true
}
