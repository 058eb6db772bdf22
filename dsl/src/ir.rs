//! A kernel in Tile IR: dims, parameters, tables, a grid and a body of typed SSA values.
//!
//! Semantics. The body runs once per point of the grid. Each run is a *program*. Programs are independent: they have no order
//! and do not communicate. Values are immutable tiles with no memory space. Tile sizes are concrete; tensor dims are symbolic
//! with a known divisor, or constants. Loops carry values explicitly. The only effects are `store`s, whose regions are disjoint
//! across programs.

use crate::entity::{Block, Dim, Inst, Param, Table, Value};
use crate::op::Op;
use crate::types::{DType, TileType};
use cranelift_entity::{PrimaryMap, SecondaryMap};

/// The size of a dim, as far as it is known when the kernel is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DimSize {
    /// Known: part of the specialization.
    Const(u64),
    /// Bound at launch; a multiple of `divisor`.
    Dynamic {
        /// Known divisor, at least 1.
        divisor: u32,
    },
}

impl DimSize {
    /// The largest number known to divide the size.
    pub fn divisor(self) -> u64 {
        match self {
            DimSize::Const(n) => n,
            DimSize::Dynamic { divisor } => u64::from(divisor),
        }
    }
}

/// A named dim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DimData {
    /// The name in the user's kernel.
    pub name: String,
    /// What is known of its size.
    pub size: DimSize,
}

/// What is known of a tensor's stride along one axis, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stride {
    /// Known: part of the specialization.
    Const(i64),
    /// Bound at launch; a multiple of `divisor`.
    Dynamic {
        /// Known divisor, at least 1.
        divisor: u32,
    },
}

impl Stride {
    /// The largest number known to divide the stride (0 for stride 0).
    pub fn divisor(self) -> u64 {
        match self {
            Stride::Const(n) => n.unsigned_abs(),
            Stride::Dynamic { divisor } => u64::from(divisor),
        }
    }
}

/// What a kernel may do with a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// `&Tensor`: loads only; aliases no written tensor.
    In,
    /// `&mut Tensor`: stores, and loads of elements that only this program writes.
    Out,
}

/// What a parameter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A tensor in global memory.
    Tensor {
        /// Element type.
        dtype: DType,
        /// Dims, outermost first.
        dims: Vec<Dim>,
        /// One stride per dim.
        strides: Vec<Stride>,
        /// The axis of the argument that each dim is. Empty if they are in the argument's order, as they are unless a pass reorders
        /// them.
        axes: Vec<u8>,
        /// Known alignment of the base address, in bytes.
        align: u32,
        /// Loads or stores.
        access: Access,
    },
    /// A number passed by value.
    Scalar {
        /// Its type.
        dtype: DType,
    },
}

impl ParamKind {
    /// True for a tensor that the kernel only loads.
    pub fn is_read_only(&self) -> bool {
        matches!(self, ParamKind::Tensor { access: Access::In, .. })
    }

    /// The axis of the argument that is the n-th dim here.
    pub fn argument_axis(&self, n: u8) -> u8 {
        match self {
            ParamKind::Tensor { axes, .. } => axes.get(usize::from(n)).copied().unwrap_or(n),
            ParamKind::Scalar { .. } => n,
        }
    }

    /// True unless the dims have an order that names each axis of the argument once.
    pub fn has_faulty_axes(&self) -> bool {
        let ParamKind::Tensor { dims, axes, .. } = self else { return false };
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        !axes.is_empty() && !sorted.iter().map(|&axis| usize::from(axis)).eq(0..dims.len())
    }
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamData {
    /// The name in the user's kernel.
    pub name: String,
    /// Tensor or scalar.
    pub kind: ParamKind,
}

/// A constant table of f32, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct TableData {
    /// The name in the user's kernel.
    pub name: String,
    /// Extents, outermost first.
    pub shape: Vec<u32>,
    /// The elements, row-major.
    pub values: Vec<f32>,
}

/// How many coordinates a grid axis has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GridExtent {
    /// One per element of a dim.
    Points(Dim),
    /// One per tile of `size` elements of a dim, the last one possibly ragged.
    Tiles {
        /// The tiled dim.
        dim: Dim,
        /// Elements per tile.
        size: u32,
    },
    /// The last axis, after `Tiles` of the same dim and size. It counts the tiles up to the coordinate before, so the two axes
    /// count pairs (i, j) with j <= i.
    UpTo {
        /// The tiled dim.
        dim: Dim,
        /// Elements per tile.
        size: u32,
    },
}

impl GridExtent {
    /// The dim that the axis counts along.
    pub fn dim(self) -> Dim {
        match self {
            GridExtent::Points(dim) | GridExtent::Tiles { dim, .. } | GridExtent::UpTo { dim, .. } => dim,
        }
    }

    /// Elements of a tile, if it counts tiles.
    pub fn tile(self) -> Option<u32> {
        match self {
            GridExtent::Points(_) => None,
            GridExtent::Tiles { size, .. } | GridExtent::UpTo { size, .. } => Some(size),
        }
    }

    /// The same axis with other dims.
    #[must_use]
    pub fn along(self, dim: Dim) -> GridExtent {
        match self {
            GridExtent::Points(_) => GridExtent::Points(dim),
            GridExtent::Tiles { size, .. } => GridExtent::Tiles { dim, size },
            GridExtent::UpTo { size, .. } => GridExtent::UpTo { dim, size },
        }
    }

    /// The number of programs of a grid for these sizes of the dims: the product of its counts, with one count for both axes of
    /// pairs; saturates.
    pub fn programs(axes: &[GridExtent], dims: &[u64]) -> u64 {
        let mut programs: u64 = 1;
        for axis in axes {
            let count = axis.count(dims);
            programs = match axis {
                // The count before is a factor, so that this is even.
                GridExtent::UpTo { .. } => {
                    (u128::from(programs) * (u128::from(count) + 1) / 2).try_into().unwrap_or(u64::MAX)
                }
                _ => programs.saturating_mul(count),
            };
        }
        programs
    }

    /// The number of coordinates of the axis for these sizes of the dims, in the kernel's order; 0 for a dim that is not among
    /// them. For `UpTo`, the largest number.
    pub fn count(self, dims: &[u64]) -> u64 {
        let size_of = |dim: Dim| dims.get(dim.as_u32() as usize).copied().unwrap_or(0);
        match self {
            GridExtent::Points(dim) => size_of(dim),
            GridExtent::Tiles { dim, size } | GridExtent::UpTo { dim, size } => {
                size_of(dim).div_ceil(u64::from(size.max(1)))
            }
        }
    }
}

/// One axis of the grid and the i32 scalar that holds the program's coordinate on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridAxis {
    /// The coordinate: a value defined by the grid.
    pub coord: Value,
    /// How many coordinates there are.
    pub extent: GridExtent,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDef {
    /// Coordinate of the n-th grid axis.
    Grid(u32),
    /// The n-th parameter of a block.
    BlockParam(Block, u32),
    /// The n-th result of an instruction.
    Result(Inst, u32),
}

/// A value: its type and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueData {
    /// Type.
    pub ty: TileType,
    /// Definition.
    pub def: ValueDef,
}

/// A block: its parameters and its instructions in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockData {
    /// Parameters (loop index, then carried values); none for the kernel body.
    pub params: Vec<Value>,
    /// Instructions in execution order.
    pub insts: Vec<Inst>,
}

/// A place in the user's source: an index into the kernel's source table, or unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loc {
    /// 1-based line; 0 when unknown.
    pub line: u32,
    /// 1-based column; 0 when unknown.
    pub column: u32,
}

/// A kernel in Tile IR. Build with [`crate::Builder`] or [`crate::parse_kernel`]; check with [`crate::verify()`].
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The kernel's name.
    pub name: String,
    /// Source file of the kernel, if it came from `atlas_kernel!`.
    pub source_file: Option<String>,
    /// What to say if it fits no machine: which tile of a fused kernel is large, and what helps.
    pub remark: Option<String>,
    /// Named dims.
    pub dims: PrimaryMap<Dim, DimData>,
    /// Parameters in signature order.
    pub params: PrimaryMap<Param, ParamData>,
    /// Constant tables.
    pub tables: PrimaryMap<Table, TableData>,
    /// Grid axes, slowest first.
    pub grid: Vec<GridAxis>,
    /// True if the programs that differ in the last axis alone form a cluster: they run at the same time, and `cluster_sum` adds up what
    /// they have.
    pub cluster: bool,
    /// All values.
    pub values: PrimaryMap<Value, ValueData>,
    /// All operations.
    pub insts: PrimaryMap<Inst, Op>,
    /// The results of each instruction.
    pub results: SecondaryMap<Inst, Vec<Value>>,
    /// All blocks.
    pub blocks: PrimaryMap<Block, BlockData>,
    /// The kernel body.
    pub body: Block,
    /// Source locations, beside the instructions and never inside them.
    pub locs: SecondaryMap<Inst, Loc>,
}

impl Kernel {
    /// A kernel with an empty body.
    pub fn new(name: impl Into<String>) -> Kernel {
        let mut blocks = PrimaryMap::new();
        let body = blocks.push(BlockData::default());
        Kernel {
            name: name.into(),
            source_file: None,
            remark: None,
            dims: PrimaryMap::new(),
            params: PrimaryMap::new(),
            tables: PrimaryMap::new(),
            grid: Vec::new(),
            cluster: false,
            values: PrimaryMap::new(),
            insts: PrimaryMap::new(),
            results: SecondaryMap::new(),
            blocks,
            body,
            locs: SecondaryMap::new(),
        }
    }

    /// The type of a value.
    pub fn ty(&self, v: Value) -> &TileType {
        &self.values[v].ty
    }

    /// The operation that defines a value, if an instruction does.
    pub fn def_op(&self, v: Value) -> Option<(Inst, &Op)> {
        match self.values[v].def {
            ValueDef::Result(inst, _) => Some((inst, &self.insts[inst])),
            _ => None,
        }
    }

    /// Appends an axis to the grid and returns its coordinate.
    pub fn push_grid_axis(&mut self, extent: GridExtent) -> Value {
        let def = ValueDef::Grid(self.grid.len() as u32);
        let coord = self.values.push(ValueData { ty: TileType::scalar(DType::I32), def });
        self.grid.push(GridAxis { coord, extent });
        coord
    }

    /// Appends a parameter to a block.
    pub fn push_block_param(&mut self, block: Block, ty: TileType) -> Value {
        let def = ValueDef::BlockParam(block, self.blocks[block].params.len() as u32);
        let value = self.values.push(ValueData { ty, def });
        self.blocks[block].params.push(value);
        value
    }

    /// Appends an operation to a block, with results of the given types.
    pub fn push_inst(&mut self, block: Block, op: Op, result_types: &[TileType], loc: Loc) -> Inst {
        let inst = self.insts.push(op);
        let results = result_types
            .iter()
            .enumerate()
            .map(|(i, ty)| self.values.push(ValueData { ty: ty.clone(), def: ValueDef::Result(inst, i as u32) }))
            .collect();
        self.results[inst] = results;
        self.locs[inst] = loc;
        self.blocks[block].insts.push(inst);
        inst
    }

    /// A dim by name.
    pub fn dim_by_name(&self, name: &str) -> Option<Dim> {
        self.dims.iter().find(|(_, d)| d.name == name).map(|(k, _)| k)
    }

    /// A parameter by name.
    pub fn param_by_name(&self, name: &str) -> Option<Param> {
        self.params.iter().find(|(_, p)| p.name == name).map(|(k, _)| k)
    }
}
