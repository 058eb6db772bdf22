//! `lower_tiles`: lowers Tile IR to GPU IR, as [`LoweringDecisions`] says.
//!
//! Needs: verified Tile IR, a legal schedule. Establishes: one role for the whole CTA; every tile a fragment with a layout or a
//! shared buffer; each copy goes into a ring of one stage and is waited for directly after it; neutral elements are refilled
//! before contractions. Never: runs anything ahead, places buffers or inserts barriers. Refuses: a schedule that no GPU runs,
//! an operation without an instruction, a tile that is too large for any CTA. Constructs: removes nothing; adds clusters,
//! programs, engine, tokens, bare-waits, converts, unplaced, numbered, products, open-accesses, open-copies, engine-stores.
//!
//! Each tile is computed as a whole, at its place in Tile IR. Values that only a store uses, and that can be computed in any
//! layout, are computed at the store. A store by the copy engine acquires a stage, which threads write and the engine reads.

mod carried;
mod clusters;
mod decisions;
mod dots;
mod engine_copies;
mod loops;
mod memory;
mod results;
mod rows;
mod scans;
mod stores;
mod values;

use super::allocate_shared::refuse_large_buffers;
use crate::analysis::{Approximations, Extents, Home, LoweringDecisions, Paths, Placement, StagingReason, Uses};
use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{self, Buffer, BufferData, Op as GpuOp, Owner, Ring, RoleData, Scope, Type};
use crate::layout::Fragment;
use atlas_dsl::config::Programs;
use atlas_dsl::ir::Loc;
use atlas_dsl::{Block, DType, Inst, Kernel, Op, Schedule, Value};
use cranelift_entity::SecondaryMap;
use results::copies_of_results;
use rows::rows_along_memory;
use std::collections::{BTreeMap, BTreeSet};

/// A tile in shared memory.
#[derive(Clone, Copy, Debug)]
struct Resident {
    buffer: Buffer,
    token: Option<gpu::Value>,
}

/// The pass's state.
struct Lower<'a> {
    tile: &'a Kernel,
    uses: Uses,
    extents: Extents,
    approximations: Approximations,
    placement: Placement,
    paths: Paths,
    schedule: Schedule,
    programs: Programs,
    k: gpu::Kernel,
    /// The block that receives instructions.
    at: gpu::Block,
    loc: Loc,
    /// Fragments made so far that are in scope.
    fragments: BTreeMap<Value, gpu::Value>,
    /// While a value without a home is evaluated: the values without a home that it needed so far.
    evaluated: Option<BTreeMap<(Value, Fragment), gpu::Value>>,
    residents: SecondaryMap<Value, Option<Resident>>,
    /// Values that are computed at stores, in the layouts that suit the stores.
    of_stores: SecondaryMap<Value, bool>,
    /// Values read from rings that this block filled at the loads' places.
    read_here: Vec<gpu::Value>,
    /// Rings of stores that stand in loops, where other stores have rings of their own.
    stored_in_loops: BTreeSet<Ring>,
}

/// Lowers a kernel.
pub fn lower_tiles(tile: &Kernel, cx: &mut Cx<'_>) -> Result<gpu::Kernel, CompileError> {
    let (schedule, machine) = (cx.schedule, cx.machine);
    let tile = &*copies_of_results(rows_along_memory(tile));
    let LoweringDecisions { uses, placement, paths, extents, approximations, order, cluster, programs } =
        LoweringDecisions::choose(tile, schedule, cx.fetches_before_loops, cx.target, machine)?;
    cx.programs = programs;
    cx.fetches_before_loops = paths.fetches_before_loops();
    let mut k = gpu::Kernel::new(&tile.name, cx.target, schedule.warps * 32);
    k.occupancy = schedule.occupancy;
    k.dims = tile.dims.clone();
    k.params = tile.params.clone();
    k.tables = tile.tables.clone();
    k.index_map = order;
    k.cluster = (cluster, 1);
    let body = k.blocks.push(gpu::BlockData::default());
    k.roles.push(RoleData { name: "all".into(), scope: Scope::Cta, units: (0, 0), registers: None, body });
    let mut lower = Lower {
        tile,
        uses,
        extents,
        approximations,
        placement,
        paths,
        schedule: *schedule,
        programs,
        k,
        at: body,
        loc: Loc::default(),
        fragments: BTreeMap::new(),
        evaluated: None,
        residents: SecondaryMap::new(),
        of_stores: SecondaryMap::new(),
        read_here: Vec::new(),
        stored_in_loops: BTreeSet::new(),
    };
    for axis in &tile.grid {
        let coord = lower.k.push_coord();
        lower.fragments.insert(axis.coord, coord);
    }
    lower.block(tile.body)?;
    lower.release_stages();
    lower.drain_stores();
    refuse_large_buffers(&lower.k, machine)?;
    lower.note_decisions(cx.notes);
    Ok(lower.k)
}

impl Lower<'_> {
    /// Lowers a block's instructions, except its yield.
    fn block(&mut self, block: Block) -> Result<(), CompileError> {
        self.find_trees_of_stores(block);
        for &inst in &self.tile.blocks[block].insts {
            if !self.uses.is_live(inst) {
                continue;
            }
            self.loc = self.tile.locs[inst];
            self.inst(inst)?;
        }
        Ok(())
    }

    fn inst(&mut self, inst: Inst) -> Result<(), CompileError> {
        let result = self.tile.results[inst].first().copied();
        match &self.tile.insts[inst] {
            Op::Yield(_) => Ok(()),
            Op::Loop { .. } => self.lower_loop(inst),
            Op::Store { .. } => self.lower_store(inst),
            Op::Reduce { .. } => self.lower_reduce(inst),
            Op::Scan { .. } => self.lower_scan(inst),
            Op::ClusterSum(_) if result.is_some_and(|v| !self.uses.get(v).is_empty()) => self.lower_cluster_sum(inst),
            Op::Load { .. } => self.lower_load(inst),
            _ => {
                let Some(v) = result else { return Ok(()) };
                if self.of_stores[v] || *self.placement.home(v) == Home::Anywhere || self.uses.get(v).is_empty() {
                    return Ok(());
                }
                if matches!(self.tile.insts[inst], Op::Transpose(_)) {
                    return Ok(());
                }
                let layout = self.layout_of(v)?;
                self.fragment(v, &layout)?;
                if *self.placement.home(v) == Home::Stored {
                    self.store_resident(v)?;
                }
                Ok(())
            }
        }
    }

    // ----- small tools -----

    fn push(&mut self, op: GpuOp, results: Vec<Type>) -> Vec<gpu::Value> {
        let inst = self.k.push_inst(self.at, op, results, self.loc);
        self.k.results[inst].to_vec()
    }

    fn push_effect(&mut self, op: GpuOp) {
        self.push(op, vec![]);
    }

    fn push_tile(&mut self, op: GpuOp, dtype: DType, layout: &Fragment) -> gpu::Value {
        self.push(op, vec![Type::fragment(dtype, layout.clone())])[0]
    }

    fn scalar_layout(&self) -> Fragment {
        Fragment::scalar(self.k.threads, 0)
    }

    fn int(&mut self, x: i64) -> gpu::Value {
        let layout = self.scalar_layout();
        self.push_tile(GpuOp::Const(x as f64), DType::I32, &layout)
    }

    fn int_op(&mut self, op: atlas_dsl::op::BinaryOp, a: gpu::Value, b: gpu::Value) -> gpu::Value {
        let layout = self.scalar_layout();
        self.push_tile(GpuOp::binary(op, a, b), DType::I32, &layout)
    }

    fn layout_of(&self, v: Value) -> Result<Fragment, CompileError> {
        if self.tile.ty(v).rank() == 0 {
            return Ok(self.scalar_layout());
        }
        match (self.placement.layout(v), self.placement.home(v)) {
            (Some(layout), _) => Ok(layout.clone()),
            // It is made in whatever layout is asked for.
            (None, Home::Anywhere) => Ok(self.placement.blocked(&self.tile.ty(v).shape, 4)),
            (None, _) => Err(CompileError::bug(format!("no layout for {v}"))),
        }
    }

    /// A new buffer for a tile, which is padded and laid out for what reads it.
    fn new_buffer(&mut self, name: String, v: Value) -> Result<Buffer, CompileError> {
        let (ty, panels) = (self.tile.ty(v), self.paths.panels(v));
        let layout = panels.unwrap_or_else(|| self.placement.buffer_layout(self.tile, v));
        let is_copy = matches!(self.placement.home(v), Home::Copied(reason) if *reason != StagingReason::Operand);
        if ty.rank() > 2 && !is_copy {
            return Err(CompileError::bug("an operand of rank above 2"));
        }
        let dtype = ty.dtype;
        Ok(self.k.buffers.push(BufferData { name, dtype, stages: 1, layout, owner: Owner::Cta, offset: None }))
    }
}
