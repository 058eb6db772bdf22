//! A kernel in GPU IR: roles, values, buffers, rings and the index map.

use super::ids::{Block, Buffer, Inst, Ring, Role, TensorMap, Value};
use super::{AccessKind, Cache, CopyAtom, Op, Slice};
use crate::arch::{Capability, Target};
use crate::layout::tensor_map::{MapAxis, TensorMapData};
use crate::layout::{Fragment, SharedLayout};
use atlas_dsl::ir::{DimData, GridExtent, Loc, ParamData, TableData};
use atlas_dsl::text::head::Head;
use atlas_dsl::{DType, Dim, Param, Table};
use cranelift_entity::{PrimaryMap, SecondaryMap};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Who executes something, or takes part in a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One elected thread.
    Thread,
    /// One warp.
    Warp,
    /// Four consecutive warps, numbered from the first of the range.
    Warpgroup,
    /// Every thread of the CTA.
    Cta,
    /// Every CTA of the cluster.
    Cluster,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// A tile in registers. Rank 0 is a scalar.
    Fragment {
        /// Element type.
        dtype: DType,
        /// Which thread holds what. Values of one layout share it, for kernels are copied and compared between passes.
        layout: Arc<Fragment>,
    },
    /// The accumulator of an `mma` that may still be running.
    InFlight {
        /// Element type.
        dtype: DType,
        /// Which thread will hold what.
        layout: Arc<Fragment>,
    },
    /// The right to fill (`acquire`) or read (`wait`) a stage of a ring.
    Token(Ring),
}

impl Type {
    /// The type of a tile in registers.
    pub fn fragment(dtype: DType, layout: impl Into<Arc<Fragment>>) -> Type {
        Type::Fragment { dtype, layout: layout.into() }
    }

    /// The type of an accumulator in flight.
    pub fn in_flight(dtype: DType, layout: impl Into<Arc<Fragment>>) -> Type {
        Type::InFlight { dtype, layout: layout.into() }
    }

    /// Element type and layout, of a fragment or of one in flight.
    pub fn tile(&self) -> Option<(DType, &Fragment)> {
        match self {
            Type::Fragment { dtype, layout } | Type::InFlight { dtype, layout } => Some((*dtype, layout)),
            Type::Token(_) => None,
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDef {
    /// Coordinate of the n-th grid axis, from the index map, until `lower_programs`.
    Program(u32),
    /// The n-th parameter of a block.
    BlockParam(Block, u32),
    /// The n-th result of an instruction.
    Result(Inst, u32),
}

/// A value: its type and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueData {
    /// Type.
    pub ty: Type,
    /// Definition.
    pub def: ValueDef,
}

/// The results of an instruction. Most have one, and it is kept in place.
pub type Results = SmallVec<[Value; 2]>;

/// A block: its parameters and its instructions in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockData {
    /// Parameters.
    pub params: Vec<Value>,
    /// Instructions in order.
    pub insts: Vec<Inst>,
}

/// The most CTAs of a cluster that every GPU with clusters runs.
pub const MOST_CTAS_OF_CLUSTER: u32 = 8;

/// Bytes that a thread passes on at once in a sum over a cluster.
pub const SUM_VECTOR_BYTES: u32 = 16;

/// Which CTA of a cluster holds a buffer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Each CTA has its own.
    Cta,
    /// Each CTA of the cluster fills a part and all of them get the whole.
    Cluster,
}

/// A shared-memory buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferData {
    /// A name for people: what it holds.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Number of copies; the ring's, or 1.
    pub stages: u32,
    /// Layout of one stage.
    pub layout: SharedLayout,
    /// Who holds it in a cluster.
    pub owner: Owner,
    /// Byte offset in the CTA's shared memory, once placed.
    pub offset: Option<u32>,
}

impl BufferData {
    /// Bytes of all stages.
    pub fn bytes(&self) -> u32 {
        self.layout.bytes() * self.stages
    }
}

/// Who fills or reads the stages of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mover {
    /// Threads of the CTA.
    Threads,
    /// The tensor copy engine.
    Engine,
}

/// A ring: buffers that are filled and read stage by stage.
///
/// The stages of a ring that threads fill are ordered by groups of copies and barriers of the CTA. Those of a ring that the
/// engine fills have two mbarriers each: one is complete when the bytes are there, the other when all readers are done.
#[derive(Clone, Debug, PartialEq)]
pub struct RingData {
    /// Number of stages.
    pub stages: u32,
    /// The buffers, each of as many stages.
    pub buffers: Vec<Buffer>,
    /// Who fills it.
    pub filled_by: Mover,
    /// Who reads it.
    pub read_by: Mover,
    /// Of a ring that threads fill and the engine reads: true if each warpgroup fills its own rows of a stage, those of every n-th
    /// block of 64 rows, and has the engine store them. All threads of the CTA fill a stage together otherwise.
    pub by_warpgroups: bool,
    /// Byte offset of the mbarriers, twice as many as stages, once they are placed: of a ring that the engine fills.
    pub mbarriers: Option<u32>,
}

impl RingData {
    /// A ring of one stage that threads fill and read.
    pub fn of_threads(buffers: Vec<Buffer>) -> RingData {
        let (filled_by, read_by) = (Mover::Threads, Mover::Threads);
        RingData { stages: 1, buffers, filled_by, read_by, by_warpgroups: false, mbarriers: None }
    }

    /// Bytes of the mbarriers; 0 if the ring has none.
    pub fn mbarrier_bytes(&self) -> u32 {
        if self.filled_by == Mover::Engine { 2 * MBARRIER_BYTES * self.stages } else { 0 }
    }
}

/// Bytes of an mbarrier, and what its address is a multiple of.
pub const MBARRIER_BYTES: u32 = 8;

/// Which points of a grid are programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Domain {
    /// All of them.
    #[default]
    Box,
    /// Of the two last axes, which are equal, the pairs (i, j) with i >= j.
    Triangle,
}

/// How CTAs find their programs: what `lower_programs` computes. After it, how many CTAs there are.
///
/// Programs are counted with the last axis fastest, unless they are in groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexMap {
    /// The grid's axes, slowest first.
    pub axes: Vec<GridExtent>,
    /// Which of their points are programs.
    pub domain: Domain,
    /// If given, the height of a group: programs of the last two axes are numbered group by group, and column by column in a group.
    pub group: Option<u32>,
    /// False for one CTA for each program. True for as many CTAs as are resident: of n CTAs each takes every n-th program.
    pub persistent: bool,
    /// CTAs that share each program, with consecutive numbers: each runs a part of the iterations of its loop.
    pub splits: u32,
}

impl Default for IndexMap {
    fn default() -> IndexMap {
        IndexMap { axes: Vec::new(), domain: Domain::Box, group: None, persistent: false, splits: 1 }
    }
}

impl IndexMap {
    /// A CTA for each point of a grid, last axis fastest.
    pub fn linear(axes: Vec<GridExtent>) -> IndexMap {
        IndexMap { axes, ..IndexMap::default() }
    }

    /// The grid that is launched.
    pub fn grid(&self) -> Vec<GridExtent> {
        let mut axes = self.axes.clone();
        if let (Domain::Triangle, Some(last)) = (self.domain, axes.last_mut()) {
            *last = GridExtent::UpTo { dim: last.dim(), size: last.tile().unwrap_or(1) };
        }
        axes
    }
}

/// A role: which threads run it, with how many registers, and its body.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleData {
    /// `all`, `producer`, `consumer`.
    pub name: String,
    /// Execution scope of one instance of the role.
    pub scope: Scope,
    /// First and last index of the scope's units (warps or warpgroups); `0..=0` for a whole CTA.
    pub units: (u32, u32),
    /// Registers per thread, where the role sets them.
    pub registers: Option<u32>,
    /// The body.
    pub body: Block,
}

/// A kernel in GPU IR.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The kernel's name.
    pub name: String,
    /// What it is for.
    pub target: Target,
    /// Threads of one CTA.
    pub threads: u32,
    /// CTAs that a multiprocessor must have room for at once.
    pub occupancy: u32,
    /// CTAs of a cluster along each axis.
    pub cluster: (u32, u32),
    /// Dims, as in Tile IR.
    pub dims: PrimaryMap<Dim, DimData>,
    /// Parameters, as in Tile IR.
    pub params: PrimaryMap<Param, ParamData>,
    /// Constant tables, as in Tile IR.
    pub tables: PrimaryMap<Table, TableData>,
    /// How CTAs find programs.
    pub index_map: IndexMap,
    /// One coordinate per grid axis: an i32 scalar. None where `programs` or instructions of the body give them.
    pub coords: Vec<Value>,
    /// Tensor maps.
    pub maps: PrimaryMap<TensorMap, TensorMapData>,
    /// Shared buffers.
    pub buffers: PrimaryMap<Buffer, BufferData>,
    /// Rings.
    pub rings: PrimaryMap<Ring, RingData>,
    /// Roles, in warp order.
    pub roles: PrimaryMap<Role, RoleData>,
    /// Values.
    pub values: PrimaryMap<Value, ValueData>,
    /// Instructions.
    pub insts: PrimaryMap<Inst, Op>,
    /// Results of each instruction.
    pub results: SecondaryMap<Inst, Results>,
    /// Forms of loads and stores, once they are selected.
    pub access_kinds: SecondaryMap<Inst, Option<AccessKind>>,
    /// Blocks.
    pub blocks: PrimaryMap<Block, BlockData>,
    /// Places in the user's source.
    pub locs: SecondaryMap<Inst, Loc>,
}

impl Kernel {
    /// The tables that its text begins with.
    pub fn head(&self) -> Head<'_> {
        Head { params: &self.params, dims: &self.dims, tables: &self.tables }
    }

    /// A kernel with no roles and no programs.
    pub fn new(name: impl Into<String>, target: Target, threads: u32) -> Kernel {
        Kernel {
            name: name.into(),
            target,
            threads,
            occupancy: 1,
            cluster: (1, 1),
            dims: PrimaryMap::new(),
            params: PrimaryMap::new(),
            tables: PrimaryMap::new(),
            index_map: IndexMap::default(),
            coords: Vec::new(),
            maps: PrimaryMap::new(),
            buffers: PrimaryMap::new(),
            rings: PrimaryMap::new(),
            roles: PrimaryMap::new(),
            values: PrimaryMap::new(),
            insts: PrimaryMap::new(),
            results: SecondaryMap::new(),
            access_kinds: SecondaryMap::new(),
            blocks: PrimaryMap::new(),
            locs: SecondaryMap::new(),
        }
    }

    /// The lowest PTX version that knows the kernel's instructions.
    pub fn ptx_version(&self) -> (u32, u32) {
        let hints = |op: &Op| matches!(op, Op::LoadGlobal { cache: Cache::EvictLast | Cache::EvictFirst, .. });
        let wide_sums = |op: &Op| {
            let Op::StoreGlobal { value, update, .. } = op else { return false };
            let dtype = self.tile(*value).0;
            let at_once = update.combine().and_then(|op| self.target.combined_at_once(op, dtype));
            at_once.is_some_and(|n| n * dtype.bytes() > 8)
        };
        // On sm_89 later than on sm_90.
        let of_fp8 = |op: &Op, inst: Inst| {
            let (Op::Cast(from), Some(&to)) = (op, self.results[inst].first()) else { return false };
            let (from, to) = (self.tile(*from).0, self.tile(to).0);
            from != to && (from.is_fp8() || to.is_fp8())
        };
        let pairs = self.target.sm == 89 && self.target.has(Capability::ConvertFp8);
        match () {
            () if pairs && self.insts.iter().any(|(inst, op)| of_fp8(op, inst)) => (8, 1),
            () if self.insts.values().any(wide_sums) => (8, 1),
            () if !self.maps.is_empty() || self.insts.values().any(Op::is_asynchronous) => (8, 0),
            () if self.insts.values().any(hints) => (7, 4),
            () => (6, 0),
        }
    }

    /// The type of a scalar of this kernel.
    pub fn scalar_type(&self, dtype: DType) -> Type {
        Type::fragment(dtype, Fragment::scalar(self.threads, 0))
    }

    /// Element type and layout of a value that is a tile.
    ///
    /// # Panics
    /// If the value is a token: the verifier rules that out before any pass asks.
    pub fn tile(&self, v: Value) -> (DType, &Fragment) {
        self.values[v].ty.tile().expect("a tile where the verifier demands one")
    }

    /// Appends an instruction to a block.
    pub fn push_inst(&mut self, block: Block, op: Op, result_types: Vec<Type>, loc: Loc) -> Inst {
        let inst = self.new_inst(op, result_types, loc);
        self.blocks[block].insts.push(inst);
        inst
    }

    /// Makes an instruction that no block holds yet.
    pub fn new_inst(&mut self, op: Op, result_types: Vec<Type>, loc: Loc) -> Inst {
        let inst = self.insts.push(op);
        let results = result_types
            .into_iter()
            .enumerate()
            .map(|(i, ty)| self.values.push(ValueData { ty, def: ValueDef::Result(inst, i as u32) }))
            .collect();
        self.results[inst] = results;
        self.locs[inst] = loc;
        inst
    }

    /// Appends a result to an instruction.
    pub fn push_result(&mut self, inst: Inst, ty: Type) -> Value {
        let def = ValueDef::Result(inst, self.results[inst].len() as u32);
        let value = self.values.push(ValueData { ty, def });
        self.results[inst].push(value);
        value
    }

    /// Appends a parameter to a block.
    pub fn push_block_param(&mut self, block: Block, ty: Type) -> Value {
        let def = ValueDef::BlockParam(block, self.blocks[block].params.len() as u32);
        let value = self.values.push(ValueData { ty, def });
        self.blocks[block].params.push(value);
        value
    }

    /// Appends a coordinate for the next grid axis.
    pub fn push_coord(&mut self) -> Value {
        let def = ValueDef::Program(self.coords.len() as u32);
        let ty = self.scalar_type(DType::I32);
        let value = self.values.push(ValueData { ty, def });
        self.coords.push(value);
        value
    }

    /// Shared memory of one CTA in bytes, once buffers are placed.
    pub fn shared_bytes(&self) -> u32 {
        let buffers = self.buffers.values().map(|b| b.offset.unwrap_or(0) + b.bytes());
        let mbarriers = self.rings.values().map(|r| r.mbarriers.map_or(0, |at| at + r.mbarrier_bytes()));
        buffers.chain(mbarriers).max().unwrap_or(0)
    }

    /// The ring whose stage a token is, if the copy engine fills it.
    pub fn ring_of_engine(&self, token: Value) -> Option<Ring> {
        let Type::Token(ring) = self.values[token].ty else { return None };
        (self.rings[ring].filled_by == Mover::Engine).then_some(ring)
    }

    /// The map of a tensor whose box these slices select. Boxes of one size share it.
    pub(crate) fn map_of_box(&mut self, param: Param, slices: &[Slice], span: u32) -> TensorMap {
        let axis = |(axis, slice): (usize, &Slice)| MapAxis { axis: axis as u8, size: slice.len().unwrap_or(1) };
        let map = TensorMapData { param, axes: slices.iter().enumerate().map(axis).rev().collect(), span };
        match self.maps.iter().find(|(_, made)| **made == map) {
            Some((made, _)) => made,
            None => self.maps.push(map),
        }
    }

    /// Drops the tensor maps that no copy of a role's body uses. Each one is a parameter, and a launch encodes it.
    pub(crate) fn drop_unused_maps(&mut self) {
        let mut used = BTreeSet::new();
        let mut open: Vec<Block> = self.roles.values().map(|role| role.body).collect();
        while let Some(block) = open.pop() {
            for &inst in &self.blocks[block].insts {
                if let Op::Copy { atom, .. } = self.insts[inst] {
                    used.extend(atom.map());
                }
                open.extend(self.insts[inst].body());
            }
        }
        if used.len() == self.maps.len() {
            return;
        }
        let all = std::mem::take(&mut self.maps);
        let kept = all.into_iter().filter(|(map, _)| used.contains(map));
        let places: BTreeMap<TensorMap, TensorMap> = kept.map(|(map, data)| (map, self.maps.push(data))).collect();
        for op in self.insts.values_mut() {
            if let Op::Copy { atom, .. } = op
                && let Some(map) = atom.map()
            {
                // A copy without a place is one that a pass took out.
                *atom = places.get(&map).map_or(CopyAtom::Open, |&place| atom.with_map(place));
            }
        }
    }

    /// The ring of a buffer, if each warpgroup has the engine store its own rows of the ring's stages.
    pub(crate) fn ring_by_warpgroups(&self, buffer: Buffer) -> Option<Ring> {
        self.rings.iter().find(|(_, r)| r.by_warpgroups && r.buffers.contains(&buffer)).map(|(ring, _)| ring)
    }

    /// Bytes that the copy engine brings to a stage of a ring.
    pub fn stage_bytes(&self, ring: Ring) -> u32 {
        let bytes = |&b: &Buffer| {
            let data = &self.buffers[b];
            data.layout.rows * data.layout.cols * data.dtype.bytes()
        };
        self.rings[ring].buffers.iter().map(bytes).sum()
    }
}
