//! Which loads the copy engine makes, and why the others are copied by threads.
//!
//! Three kinds of tiles come by the engine: the operands of asynchronous products in pipelined loops; such operands that are loaded
//! outside of all loops, as queries are; and outside of loops the tiles that meet the accumulator of such a product element by
//! element, as a residual does. The accumulator's layout would read the latter from global memory in pieces that are too small, so
//! they are staged in any case.
//!
//! # Promise
//! A load of the engine is a box of a tensor map for each panel of its buffer: it brings what copies by threads would, zeros past
//! the tensor's ends included. The tile of a loop is read by asynchronous products alone, and any other one is loaded once by a
//! program.
//!
//! # Argument
//! The engine takes tensors whose last axis is contiguous and whose address and other strides are multiples of 16 bytes (CUDA
//! driver API, `cuTensorMapEncodeTiled`), and boxes that begin at a multiple of 16 bytes along that axis: the kernel's signature
//! promises the former, the slice's form the latter. It fills a box past an end with zeros, which is what a load reads there.
//! It writes spans of 32, 64 or 128 bytes, permuted as a panel of that pitch is, and the whole buffer, so no padding is left
//! as it was. What it writes is seen by whoever waited for its mbarrier, which the wait of the ring does.
//!
//! # Breaks it
//! Pitches of 8 bytes, boxes that begin anywhere, tiles of other widths, and tiles that something else reads too are copied by
//! threads: tests/agreement/hopper.rs. Rule 446 and 447 of the verifier.

use super::store_paths::{begins_at_chunk, why_direct};
use super::{Home, Placement, StagingReason, StorePath, Uses, WhyDirect, is_place_known};
use crate::arch::{Capability, Target};
use crate::layout::SharedLayout;
use crate::layout::tensor_map::{MOST_AXES, MOST_BOX, takes_strides};
use atlas_dsl::config::Copies;
use atlas_dsl::ir::ParamKind;
use atlas_dsl::op::LoopKind;
use atlas_dsl::{Inst, Kernel, Op, Schedule, Value};
use cranelift_entity::SecondaryMap;

/// The most loads and stores of a kernel that the engine makes. Parameters have 4096 bytes, of which a map takes 128.
const MOST_MAPS: usize = 16;

/// Who copies the tile of a load that is kept in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The copy engine.
    Engine,
    /// Threads, for this reason.
    Threads(WhyThreads),
}

/// Why threads copy a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyThreads {
    /// The target has no copy engine.
    Target,
    /// The config leaves copies to threads.
    Config,
    /// A product that is not asynchronous reads the tile.
    Product,
    /// Something else than products reads the tile.
    Readers,
    /// The load does not run ahead of a loop's iterations.
    NotAhead,
    /// The kernel writes the tensor.
    Written,
    /// The tensor's strides or its address are no multiples of 16 bytes, or its last axis is not contiguous.
    Strides,
    /// The box may begin off a multiple of 16 bytes.
    Start,
    /// The tensor has more axes than a map, or the tile another number than two.
    Rank,
    /// The engine does not write the tile's layout: its rows or columns are padded.
    Layout,
    /// The tile has more rows than a box.
    Rows,
    /// The kernel has as many tensor maps already as its parameters have room for.
    Maps,
    /// It does not meet the accumulator of an asynchronous product.
    Accumulator,
    /// A loop loads it, once in each iteration.
    Repeated,
    /// It stands before a loop, and shared memory is too short for a stage of its own.
    Shared,
}

impl WhyThreads {
    /// The reason as a sentence without an end.
    pub const fn text(self) -> &'static str {
        match self {
            WhyThreads::Target => "the target has no copy engine",
            WhyThreads::Config => "the config leaves copies to threads",
            WhyThreads::Product => "its product is no wgmma",
            WhyThreads::Readers => "not only products read it",
            WhyThreads::NotAhead => "a loop loads it that is no pipeline of two or more stages",
            WhyThreads::Written => "the kernel writes the tensor",
            WhyThreads::Strides => "address or strides are no multiples of 16 bytes",
            WhyThreads::Start => "its box may begin off a multiple of 16 bytes",
            WhyThreads::Rank => "the engine takes tiles of two axes, of tensors of at most five",
            WhyThreads::Maps => "the kernel has no room for more tensor maps",
            WhyThreads::Layout => "its tile is padded to multiples of 16 rows and columns",
            WhyThreads::Rows => "its tile has more than 256 rows",
            WhyThreads::Accumulator => "it meets no accumulator of wgmma",
            WhyThreads::Repeated => "a loop loads it",
            WhyThreads::Shared => "shared memory has no room for a stage of its own",
        }
    }
}

/// The path of each load that is kept in shared memory for a product or beside an accumulator, and of each store.
#[derive(Clone, Debug)]
pub struct Paths {
    of: SecondaryMap<Inst, Option<Path>>,
    /// The panels of the tiles beside an accumulator that the engine loads.
    panels: SecondaryMap<Value, Option<SharedLayout>>,
    stores: SecondaryMap<Inst, Option<StorePath>>,
    fetches_before_loops: bool,
}

impl Paths {
    /// Decides for every load of a kernel. `before_loops` says whether the engine may fetch operands that stand before a loop.
    pub fn of(
        kernel: &Kernel,
        uses: &Uses,
        placement: &Placement,
        schedule: &Schedule,
        before_loops: bool,
        target: Target,
    ) -> Paths {
        let (mut of, mut stores, mut panels) = (SecondaryMap::new(), SecondaryMap::new(), SecondaryMap::new());
        let (mut maps, mut fetches_before_loops) = (0, false);
        for (inst, op) in kernel.insts.iter() {
            let Op::Load { .. } = op else { continue };
            let v = kernel.results[inst][0];
            let home = placement.home(v);
            let is_before_loops = *home == Home::Copied(StagingReason::Operand) && is_loaded_once(uses, inst);
            let why = match home {
                _ if !uses.is_live(inst) => continue,
                _ if is_before_loops && !before_loops => Some(WhyThreads::Shared),
                Home::Copied(StagingReason::Operand) => why_threads(kernel, uses, placement, schedule, target, inst),
                Home::Copied(StagingReason::Coalescing) => {
                    panels[v] = panels_of(kernel, v);
                    why_threads_beside(kernel, uses, placement, schedule, target, inst)
                }
                _ => continue,
            };
            let why = why.or((maps == MOST_MAPS).then_some(WhyThreads::Maps));
            maps += usize::from(why.is_none());
            fetches_before_loops |= why.is_none() && is_before_loops;
            panels[v] = panels[v].filter(|_| why.is_none());
            of[inst] = Some(why.map_or(Path::Engine, Path::Threads));
        }
        for (inst, op) in kernel.insts.iter() {
            if let Op::Store { .. } = op
                && uses.is_live(inst)
            {
                let why = why_direct(kernel, uses, schedule, target, inst);
                let why = why.or((maps == MOST_MAPS).then_some(WhyDirect::Maps));
                maps += usize::from(why.is_none());
                stores[inst] = Some(why.map_or(StorePath::Engine, StorePath::Threads));
            }
        }
        Paths { of, panels, stores, fetches_before_loops }
    }

    /// The layout in shared memory of a tile beside an accumulator that the engine loads; `None` for any other one, whose layout
    /// its readers decide.
    pub fn panels(&self, v: Value) -> Option<SharedLayout> {
        self.panels[v]
    }

    /// Bytes of the tiles beside an accumulator that the engine loads.
    pub fn bytes_beside(&self) -> u64 {
        self.panels.values().flatten().map(|layout| u64::from(layout.bytes())).sum()
    }

    /// True if the engine fetches an operand that stands before a loop.
    pub fn fetches_before_loops(&self) -> bool {
        self.fetches_before_loops
    }

    /// The path of a load; `None` for one that is not kept in shared memory for a product or beside an accumulator.
    pub fn get(&self, load: Inst) -> Option<Path> {
        self.of[load]
    }

    /// The path of a store.
    pub fn of_store(&self, store: Inst) -> Option<StorePath> {
        self.stores[store]
    }

    /// True if the copy engine makes a load.
    pub fn by_engine(&self, load: Inst) -> bool {
        self.of[load] == Some(Path::Engine)
    }
}

/// Why threads copy the tile of a load that products read in a pipelined loop, if they do.
fn why_threads(
    kernel: &Kernel,
    uses: &Uses,
    placement: &Placement,
    schedule: &Schedule,
    target: Target,
    load: Inst,
) -> Option<WhyThreads> {
    let v = kernel.results[load][0];
    let shape = &kernel.ty(v).shape;
    let layout = placement.buffer_layout(kernel, v);
    let is_box = layout.engine_box(kernel.ty(v).dtype.bytes()).is_some()
        && (layout.rows, Some(&layout.cols)) == (shape.iter().rev().skip(1).product(), shape.last());
    let is_asynchronous = |dot| placement.product(dot).is_some_and(|atom| atom.row().asynchronous);
    let of_use = [
        (only_products_read(kernel, uses, v, &|_| true), WhyThreads::Readers),
        (only_products_read(kernel, uses, v, &is_asynchronous), WhyThreads::Product),
        (is_loaded_once(uses, load) || runs_ahead(kernel, uses, schedule, load), WhyThreads::NotAhead),
    ];
    why_not_by_engine(kernel, schedule, target, load, &of_use, (layout.rows, is_box))
}

/// Why threads copy a tile that is staged because its layout in registers would read too small pieces, if they do.
fn why_threads_beside(
    kernel: &Kernel,
    uses: &Uses,
    placement: &Placement,
    schedule: &Schedule,
    target: Target,
    load: Inst,
) -> Option<WhyThreads> {
    let v = kernel.results[load][0];
    let rows = kernel.ty(v).shape.first().copied().unwrap_or(1);
    let of_use = [
        (placement.atom(v).is_some_and(|atom| atom.row().asynchronous), WhyThreads::Accumulator),
        (is_loaded_once(uses, load), WhyThreads::Repeated),
    ];
    why_not_by_engine(kernel, schedule, target, load, &of_use, (rows, panels_of(kernel, v).is_some()))
}

/// Why the copy engine cannot do a load; `None` if it can. The conditions of the load's use come first, then those of the tensor and
/// the tile. `rows` are the rows of the tile, and `is_box` says whether the engine takes it as boxes.
fn why_not_by_engine(
    kernel: &Kernel,
    schedule: &Schedule,
    target: Target,
    load: Inst,
    of_use: &[(bool, WhyThreads)],
    (rows, is_box): (u32, bool),
) -> Option<WhyThreads> {
    let Op::Load { param, ref slices } = kernel.insts[load] else { return Some(WhyThreads::Readers) };
    let ParamKind::Tensor { dtype, strides, align, .. } = &kernel.params[param].kind else {
        return Some(WhyThreads::Strides);
    };
    let (rank, bytes) = (kernel.ty(kernel.results[load][0]).shape.len(), dtype.bytes());
    let of_config = [
        (target.has(Capability::Tma), WhyThreads::Target),
        (schedule.copies != Some(Copies::Threads), WhyThreads::Config),
    ];
    let of_tensor = [
        (kernel.params[param].kind.is_read_only(), WhyThreads::Written),
        (takes_strides(strides, *align, bytes), WhyThreads::Strides),
        (begins_at_chunk(slices, bytes), WhyThreads::Start),
        (rank == 2 && slices.len() <= MOST_AXES, WhyThreads::Rank),
        // A box has so many rows at most, and a buffer of more is none.
        (rows <= MOST_BOX, WhyThreads::Rows),
        (is_box, WhyThreads::Layout),
    ];
    let checks = of_config.iter().chain(of_use).chain(&of_tensor);
    checks.copied().find(|(holds, _)| !holds).map(|(_, why)| why)
}

/// The panels of a tile of two axes, without padding.
fn panels_of(kernel: &Kernel, v: Value) -> Option<SharedLayout> {
    let ty = kernel.ty(v);
    SharedLayout::for_engine_stores(&ty.shape, ty.dtype.bytes()).filter(|_| ty.shape.len() == 2)
}

/// True if products of one kind alone read a tile, transposed or not, and as an operand.
pub(crate) fn only_products_read(kernel: &Kernel, uses: &Uses, v: Value, is_one: &dyn Fn(Inst) -> bool) -> bool {
    uses.get(v).iter().all(|u| match kernel.insts[u.inst] {
        Op::Dot { acc, .. } => acc != Some(v) && is_one(u.inst),
        Op::Transpose(_) => only_products_read(kernel, uses, kernel.results[u.inst][0], is_one),
        _ => false,
    })
}

/// True if a load stands outside of all loops.
fn is_loaded_once(uses: &Uses, load: Inst) -> bool {
    uses.block_of(load).is_some_and(|block| uses.loop_of(block).is_none())
}

/// True if a load stands in a pipelined loop whose iterations it can run ahead of.
fn runs_ahead(kernel: &Kernel, uses: &Uses, schedule: &Schedule, load: Inst) -> bool {
    let Some(body) = uses.block_of(load) else { return false };
    let Some(around) = uses.loop_of(body) else { return false };
    let is_pipeline = matches!(kernel.insts[around], Op::Loop { kind: LoopKind::Pipeline, .. });
    is_pipeline && schedule.stages > 1 && is_place_known(kernel, uses, load, body, false)
}
