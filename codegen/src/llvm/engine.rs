//! The tensor copy engine: copies by tensor maps, the mbarriers of the rings that it fills, and the groups of its stores.
//!
//! A stage has two mbarriers (PTX ISA, "mbarrier"). The first is complete when the bytes of the stage are there: the thread that
//! fills it arrives and says how many bytes it expects. The second is complete when every warpgroup has released the stage. The
//! stage's number is the token.
//!
//! Stores are told by bulk groups of the threads that start them: the first one, or that of each warpgroup.

use super::{Emitter, R, SHARED};
use crate::error::CompileError;
use crate::gpu::atom::{WARPGROUP, WARPGROUP_ROWS};
use crate::gpu::{Block, Cache, CopyAtom, Inst, MBARRIER_BYTES, Op, Reach, Ring, SharedRef, Slice, TensorMap, Value};
use atlas_dsl::Param;
use atlas_dsl::ir::{DimSize, ParamKind};
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};
use inkwell::{AddressSpace, InlineAsmDialect, IntPredicate};
use std::collections::BTreeSet;

/// The address space of a cluster's shared memory.
pub(super) const CLUSTER: u16 = 7;

/// A coordinate past the end of an axis of one element, and a multiple of all that boxes begin at.
const OUTSIDE: i64 = 1 << 30;

/// One of the mbarriers of a stage.
#[derive(Clone, Copy)]
enum Mbarrier {
    /// Complete when the stage is filled.
    Full,
    /// Complete when all readers have released the stage.
    Empty,
}

impl<'c> Emitter<'c, '_> {
    /// Runs a body by the first thread alone, or by that of each warpgroup.
    pub(super) fn once(&mut self, body: Block) -> R<()> {
        let is_by_each = |&i: &Inst| matches!(self.k.insts[i], Op::Commit(r, _) if self.k.rings[r].by_warpgroups);
        let by_each = self.k.blocks[body].insts.iter().any(is_by_each);
        self.by_first(by_each, |e| e.block(body).map(|_| ()))
    }

    fn by_first_thread(&mut self, body: impl FnOnce(&mut Self) -> R<()>) -> R<()> {
        self.by_first(false, body)
    }

    /// Runs a body by the first thread of all, or of each warpgroup. Its warp meets behind it: else ptxas gives up uniform
    /// registers in what follows.
    fn by_first(&mut self, of_each_warpgroup: bool, body: impl FnOnce(&mut Self) -> R<()>) -> R<()> {
        let number = match of_each_warpgroup {
            true => self.b.build_and(self.coords.tid, self.i32(i64::from(32 * WARPGROUP) - 1), "")?,
            false => self.coords.tid,
        };
        let first = self.b.build_int_compare(IntPredicate::EQ, number, self.i32(0), "")?;
        self.only_where(first, body)?;
        self.call_void("llvm.nvvm.bar.warp.sync", &[self.i32(-1).into()])
    }

    /// Runs a body in the threads in which a condition holds.
    pub(super) fn only_where(&mut self, condition: IntValue<'c>, body: impl FnOnce(&mut Self) -> R<()>) -> R<()> {
        let inside = self.cx.append_basic_block(self.function, "once");
        let after = self.cx.append_basic_block(self.function, "all");
        self.b.build_conditional_branch(condition, inside, after)?;
        self.b.position_at_end(inside);
        let numbers = self.numbers.take();
        body(self)?;
        self.numbers = numbers;
        self.b.build_unconditional_branch(after)?;
        self.b.position_at_end(after);
        Ok(())
    }

    /// Fetches the tensor maps of stores, which are needed at the end, when there is little else to wait for.
    pub(super) fn prefetch_maps_of_stores(&mut self) -> R<()> {
        let of_store = |op: &Op| {
            if let Op::Copy { atom: CopyAtom::TmaStore(map), .. } = op { Some(*map) } else { None }
        };
        let maps: BTreeSet<TensorMap> = self.k.insts.values().filter_map(of_store).collect();
        if maps.is_empty() {
            return Ok(());
        }
        self.by_first_thread(|e| {
            for map in maps {
                let pointer = *e.maps.get(&map).ok_or_else(|| CompileError::bug("a tensor map without a parameter"))?;
                // LLVM 22 emits the intrinsic twice for a parameter.
                let ty = e.cx.void_type().fn_type(&[pointer.get_type().into()], false);
                let text = "prefetch.tensormap [$0];".to_owned();
                let dialect = Some(InlineAsmDialect::ATT);
                let asm = e.cx.create_inline_asm(ty, text, "l,~{memory}".to_owned(), true, false, dialect, false);
                e.b.build_indirect_call(ty, asm, &[pointer.into()], "")?;
            }
            Ok(())
        })
    }

    /// Sets the mbarriers of a ring up.
    pub(super) fn init_ring(&mut self, ring: Ring) -> R<()> {
        let stages = self.k.rings[ring].stages;
        let warpgroups = self.k.threads / (32 * WARPGROUP);
        self.by_first_thread(|e| {
            for stage in 0..stages {
                let stage = e.i32(i64::from(stage));
                for (which, arrivals) in [(Mbarrier::Full, 1), (Mbarrier::Empty, warpgroups)] {
                    let at = e.mbarrier(ring, which, stage)?;
                    e.call_void("llvm.nvvm.mbarrier.init.shared", &[at.into(), e.i32(i64::from(arrivals)).into()])?;
                }
            }
            Ok(())
        })
    }

    /// Waits until a stage is free, unless it was never filled, and expects its bytes. Gives the token.
    pub(super) fn acquire_stage(&mut self, ring: Ring, slot: Value, phase: Value) -> R<Vec<BasicValueEnum<'c>>> {
        let (slot, phase) = (self.int(slot)?, self.int(phase)?);
        if !self.is_first_fill(ring, slot, phase) {
            let empty = self.mbarrier(ring, Mbarrier::Empty, slot)?;
            // In the first round the phase before the first one is waited for, which counts as complete.
            let before = self.b.build_xor(phase, self.i32(1), "")?;
            self.wait_mbarrier(empty, before)?;
        }
        let full = self.mbarrier(ring, Mbarrier::Full, slot)?;
        let bytes = self.i32(i64::from(self.k.stage_bytes(ring)));
        let name = "llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta";
        self.call(name, self.cx.i64_type().into(), &[full.into(), bytes.into()])?;
        Ok(vec![slot.into()])
    }

    /// True if a stage was certainly not filled before. Loops carry cursors on, so a cursor of constants outside of loops is one
    /// of the first of its ring, and the first with its slot is the first fill of that stage.
    fn is_first_fill(&mut self, ring: Ring, slot: IntValue<'c>, phase: IntValue<'c>) -> bool {
        let constants = (slot.get_zero_extended_constant(), phase.get_zero_extended_constant());
        let (Some(slot), Some(0), 0) = (constants.0, constants.1, self.loops) else { return false };
        self.filled.insert((ring, slot))
    }

    /// Waits until a stage is filled. Gives the token.
    pub(super) fn wait_stage(&mut self, ring: Ring, slot: Value, phase: Value) -> R<Vec<BasicValueEnum<'c>>> {
        let (slot, phase) = (self.int(slot)?, self.int(phase)?);
        let full = self.mbarrier(ring, Mbarrier::Full, slot)?;
        self.wait_mbarrier(full, phase)?;
        Ok(vec![slot.into()])
    }

    /// Ends a warpgroup's reading of a stage: one of its threads arrives.
    pub(super) fn release_stage(&mut self, ring: Ring, token: Value) -> R<()> {
        let empty = self.mbarrier(ring, Mbarrier::Empty, self.int(token)?)?;
        let threads = i64::from(32 * WARPGROUP);
        let number = self.b.build_and(self.coords.tid, self.i32(threads - 1), "")?;
        let first = self.b.build_int_compare(IntPredicate::EQ, number, self.i32(0), "")?;
        let ty = self.cx.void_type().fn_type(&[first.get_type().into(), empty.get_type().into()], false);
        let text = "@$0 mbarrier.arrive.shared.b64 _, [$1];".to_owned();
        let dialect = Some(InlineAsmDialect::ATT);
        let asm = self.cx.create_inline_asm(ty, text, "b,r,~{memory}".to_owned(), true, false, dialect, false);
        let call = self.b.build_indirect_call(ty, asm, &[first.into(), empty.into()], "")?;
        for name in ["convergent", "nounwind"] {
            let attribute = self.cx.create_enum_attribute(Attribute::get_named_enum_kind_id(name), 0);
            call.add_attribute(AttributeLoc::Function, attribute);
        }
        Ok(())
    }

    /// Starts the copy of one box to a stage, whose mbarrier its bytes complete.
    pub(super) fn engine_copy(&mut self, atom: CopyAtom, param: Param, slices: &[Slice], to: &SharedRef) -> R<()> {
        let (CopyAtom::Tma(map, cache), Some(token)) = (atom, to.token) else {
            return Err(CompileError::bug("a copy by the engine of another kind"));
        };
        let ring =
            self.k.ring_of_engine(token).ok_or_else(|| CompileError::bug("a copy by the engine to no ring of it"))?;
        let pointer = *self.maps.get(&map).ok_or_else(|| CompileError::bug("a tensor map without a parameter"))?;
        let full = self.mbarrier(ring, Mbarrier::Full, self.int(token)?)?;
        let cluster = self.cx.ptr_type(AddressSpace::from(CLUSTER));
        let start = self.box_pointer(to)?;
        let start = self.b.build_address_space_cast(start, cluster, "")?;
        let coordinates = self.coordinates(map, param, slices)?;
        let mut args: Vec<BasicValueEnum<'c>> = vec![start.into(), full.into(), pointer.into()];
        args.extend(&coordinates);
        let no = self.cx.bool_type().const_zero();
        let (policy, has_policy) = match cache {
            Cache::Normal => (self.cx.i64_type().const_zero(), no),
            Cache::EvictLast | Cache::EvictFirst => (self.cache_policy(cache)?, self.cx.bool_type().const_all_ones()),
        };
        args.push(self.cx.i16_type().const_zero().into());
        args.push(policy.into());
        args.extend::<[BasicValueEnum<'c>; 3]>([no.into(), has_policy.into(), self.i32(0).into()]);
        self.call_void(&format!("llvm.nvvm.cp.async.bulk.tensor.g2s.tile.{}d", coordinates.len()), &args)
    }

    /// Starts the store of one box from a stage. Of a stage that warpgroups store, each stores its own rows.
    pub(super) fn engine_store(&mut self, map: TensorMap, param: Param, slices: &[Slice], from: &SharedRef) -> R<()> {
        if self.k.ring_by_warpgroups(from.buffer).is_none() {
            return self.store_box(map, param, slices, from);
        }
        let warpgroups = self.k.threads / (32 * WARPGROUP);
        let owner = from.origin.0 / WARPGROUP_ROWS % warpgroups;
        let number =
            self.b.build_right_shift(self.coords.tid, self.i32(i64::from((32 * WARPGROUP).ilog2())), false, "")?;
        let owns = self.b.build_int_compare(IntPredicate::EQ, number, self.i32(i64::from(owner)), "")?;
        self.only_where(owns, |e| e.store_box(map, param, slices, from))
    }

    /// Starts the store of one box; the engine drops what lies past the tensor's ends.
    fn store_box(&mut self, map: TensorMap, param: Param, slices: &[Slice], from: &SharedRef) -> R<()> {
        let pointer = *self.maps.get(&map).ok_or_else(|| CompileError::bug("a tensor map without a parameter"))?;
        let start = self.box_pointer(from)?;
        let coordinates = self.coordinates(map, param, slices)?;
        let mut args: Vec<BasicValueEnum<'c>> = vec![start.into(), pointer.into()];
        args.extend(&coordinates);
        args.push(self.cx.i64_type().const_zero().into());
        args.push(self.cx.bool_type().const_zero().into());
        self.call_void(&format!("llvm.nvvm.cp.async.bulk.tensor.s2g.tile.{}d", coordinates.len()), &args)
    }

    /// Ends a group of stores.
    pub(super) fn commit_stores(&mut self) -> R<()> {
        self.call_void("llvm.nvvm.cp.async.bulk.commit.group", &[])
    }

    /// The threads that start stores wait for all but their newest groups: until they are done, or only until they have read.
    pub(super) fn wait_stores(&mut self, pending: u32, until: &str) -> R<()> {
        let name = format!("llvm.nvvm.cp.async.bulk.wait.group{until}");
        let by_each = self.k.rings.values().any(|r| r.by_warpgroups);
        self.by_first(by_each, |e| e.call_void(&name, &[e.i32(i64::from(pending)).into()]))
    }

    /// Where a box begins in shared memory.
    fn box_pointer(&self, at: &SharedRef) -> R<PointerValue<'c>> {
        let buffer = &self.k.buffers[at.buffer];
        let first = buffer.layout.offset(at.origin.0, at.origin.1, buffer.dtype.bytes());
        self.shared_pointer(at, self.i32(i64::from(first)))
    }

    /// Where a box begins along each axis of its map.
    fn coordinates(&self, map: TensorMap, param: Param, slices: &[Slice]) -> R<Vec<BasicValueEnum<'c>>> {
        let of = |axis: u8| Ok(self.coordinate(param, usize::from(axis), slices[usize::from(axis)])?.into());
        self.k.maps[map].axes.iter().map(|axis| of(axis.axis)).collect()
    }

    /// Where a box begins along an axis: past its end if the axis has no elements, of which its map has one, for no map has none;
    /// and if a tile's number counts no tile of the axis, for its product with the size may be anything.
    fn coordinate(&self, param: Param, axis: usize, slice: Slice) -> R<IntValue<'c>> {
        let ParamKind::Tensor { dims, .. } = &self.k.params[param].kind else {
            return Err(CompileError::bug("a tensor map of a scalar"));
        };
        let start = self.start(slice)?;
        if let Slice::Tile { index, size, reach: Reach::Anywhere, .. } = slice {
            let tiles = self.dim_tiles(dims[axis], size)?;
            let counts = self.b.build_int_compare(IntPredicate::ULT, self.int(index)?, tiles, "")?;
            return Ok(self.b.build_select(counts, start, self.i32(OUTSIDE), "")?.into_int_value());
        }
        if let DimSize::Const(_) = self.k.dims[dims[axis]].size {
            return Ok(start);
        }
        let size = self.dim_size(dims[axis])?;
        let empty = self.b.build_int_compare(IntPredicate::EQ, size, self.i32(0), "")?;
        Ok(self.b.build_select(empty, self.i32(OUTSIDE), start, "")?.into_int_value())
    }

    /// The address of an mbarrier of a stage.
    fn mbarrier(&self, ring: Ring, which: Mbarrier, stage: IntValue<'c>) -> R<PointerValue<'c>> {
        let data = &self.k.rings[ring];
        let first = data.mbarriers.ok_or_else(|| CompileError::bug("a ring whose mbarriers have no place"))?;
        let first = match which {
            Mbarrier::Full => first,
            Mbarrier::Empty => first + MBARRIER_BYTES * data.stages,
        };
        let offset = self.b.build_int_mul(stage, self.i32(i64::from(MBARRIER_BYTES)), "")?;
        self.shared_address(self.b.build_int_add(offset, self.i32(i64::from(first)), "")?)
    }

    /// Waits until the phase of an mbarrier with this parity is complete.
    fn wait_mbarrier(&mut self, at: PointerValue<'c>, parity: IntValue<'c>) -> R<()> {
        debug_assert_eq!(at.get_type().get_address_space(), AddressSpace::from(SHARED));
        let head = self.cx.append_basic_block(self.function, "wait");
        let after = self.cx.append_basic_block(self.function, "complete");
        self.b.build_unconditional_branch(head)?;
        self.b.position_at_end(head);
        let name = "llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta";
        let done = self.call(name, self.cx.bool_type().into(), &[at.into(), parity.into()])?;
        self.b.build_conditional_branch(done.into_int_value(), after, head)?;
        self.b.position_at_end(after);
        Ok(())
    }
}
