//! GPU IR: how a kernel runs. Roles, rings, layouts, shared buffers and atoms; still tiles, not lanes.
//!
//! Semantics. A kernel is a list of *roles*; each role is a body that its threads run. The index map
//! gives the CTA's program its coordinates, until a pass computes them. A value of type `Fragment` is a tile spread over the
//! threads of its role by a layout; a scalar is a fragment of rank 0 that every thread holds. Shared buffers are memory:
//! `store.shared`, `copy` and `load.shared` are its only accesses, ordered by barriers that a pass derives.
//! A *ring* is a group of buffers with stages and a producer and consumers: a stage is acquired, filled,
//! committed, waited for, read and released, by iteration number. An `mma` yields an in-flight value;
//! until `wait.mma` gives the fragment, neither it nor its operands may be touched.

mod access;
mod access_kind;
pub mod analysis;
pub mod atom;
mod constructs;
mod declare;
mod effects;
mod extract_slice;
mod fields;
mod groups;
mod ids;
mod kernel;
mod mentions;
mod op;
mod parse;
pub(crate) mod partial_tiles;
mod print;
pub(crate) mod slices;
mod text_fields;
mod text_forms;
mod text_ops;
mod vectors;
mod verified;
mod verify;
mod verify_access_kinds;
mod verify_constructs;
mod verify_engine;
mod verify_flow;
mod verify_memory;
mod verify_overlap;
mod verify_types;
mod warp_grid;

pub use access::{accessed, moves_by_matrix, widest, writable};
pub use access_kind::AccessKind;
pub use atlas_dsl::reach::Reach;
pub use atom::Side;
pub use constructs::Constructs;
pub use declare::Mention;
pub use effects::Effects;
pub use extract_slice::slice_layout;
pub use fields::{
    Accuracy, At, COPIED_AT_ONCE, Cache, CopyAtom, Direction, FenceKind, Operand, SharedRef, Slice, UnsignedOp, Valid,
};
pub use ids::{Block, Buffer, Inst, Ring, Role, TensorMap, Value};
pub use kernel::{
    BlockData, BufferData, Domain, IndexMap, Kernel, MBARRIER_BYTES, MOST_CTAS_OF_CLUSTER, Mover, Owner, Results,
    RingData, RoleData, SUM_VECTOR_BYTES, Scope, Type, ValueData, ValueDef,
};
pub use op::Op;
pub use parse::parse_gpu;
#[cfg(feature = "llvm")]
pub(crate) use vectors::inner_divisor;
pub(crate) use vectors::{access_elements, gcd, vector_elements};
pub(crate) use verified::verify;
pub use verified::{Lowered, Phase, Placed, Scheduled, VerifiedKernel};
pub use verify::verify_gpu;
pub(crate) use verify_constructs::is_function_of_f64;
pub use verify_constructs::verify_constructs;
pub use warp_grid::{Split, WarpGrid, warp_grid_of};
