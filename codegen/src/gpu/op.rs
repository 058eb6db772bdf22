//! The one table of GPU IR operations.

use super::atom::{MmaAtom, Side};
use super::declare::{Field, Mention, operations, result_count};
use super::effects::Effects;
use super::fields::{
    Accuracy, At, Cache, CopyAtom, Direction, FenceKind, Operand, SharedRef, Slice, UnsignedOp, Valid,
};
use super::ids::{Block, Buffer, Ring, Value};
use crate::gpu_ops;
use atlas_dsl::ir::GridExtent;
use atlas_dsl::op::{BinaryOp, LoopKind, Predicate, ReduceOp, UnaryOp, Update};
use atlas_dsl::{Dim, Param, Table};

/// Hands the rows to a macro: to the one that declares the operations, and to the one of their text.
macro_rules! operation_table {
    ($with:ident) => {
        $with! {
            /// A fragment whose every element is the constant.
            Const(value: f64) = "const " [value] gives 1, Effects::NONE;
            /// A fragment whose element is its index along an axis, plus `offset`.
            Iota {
                /// Axis.
                axis: u8,
                /// Added.
                offset: u32,
            } = "iota axis " [axis [" offset " offset]] gives 1, Effects::NONE;
            /// Runtime size of a dim.
            DimSize(dim: Dim) = "size " [dim] gives 1, Effects::NONE;
            /// `ceil(dim / size)`.
            DimTiles(dim: Dim, size: u32) = "tiles(" [dim ", " size ")"] gives 1, Effects::NONE;
            /// The number of this CTA among those of the launch, from 0 on: an i32 scalar.
            CtaNumber = "cta" [] gives 1, Effects::NONE;
            /// CTAs of the launch: an i32 scalar.
            CtaCount = "ctas" [] gives 1, Effects::NONE;
            /// The number of this CTA among those that share its program, from 0 on: an i32 scalar.
            SplitNumber = "split" [] gives 1, Effects::NONE;
            /// The number of CTAs that share a program: an i32 scalar.
            SplitCount = "splits" [] gives 1, Effects::NONE;
            /// On two i32 scalars.
            Unsigned(op: UnsignedOp, a: Value, b: Value) = (op) [a ", " b] gives 1, Effects::NONE;
            /// The i32 scalar itself, which is known to be a coordinate of such an axis of a grid: at least 0 and less than the
            /// axis has.
            Coordinate(value: Value, axis: GridExtent) = "coordinate " [value " of " axis] gives 1, Effects::NONE;
            /// A scalar parameter.
            ScalarParam(param: Param) = "scalar " [param] gives 1, Effects::NONE;
            /// An element of a constant table.
            TableGet(table: Table, indices: Vec<Value>) = "get " [table "[" indices "]"] gives 1, Effects::NONE;
            /// Element-wise.
            Unary(op: UnaryOp, accuracy: Accuracy, value: Value) = (op accuracy) [value] gives 1, Effects::NONE;
            /// Element-wise.
            Binary(op: BinaryOp, accuracy: Accuracy, a: Value, b: Value) = (op accuracy) [a ", " b] gives 1, Effects::NONE;
            /// Element-wise.
            Compare(predicate: Predicate, a: Value, b: Value) = (predicate) [a ", " b] gives 1, Effects::NONE;
            /// Element-wise.
            Select(condition: Value, on_true: Value, on_false: Value)
                = "select " [condition ", " on_true ", " on_false] gives 1, Effects::NONE;
            /// Element-wise: `a * b + c`, rounded once.
            Fma(a: Value, b: Value, c: Value) = "fma " [a ", " b ", " c] gives 1, Effects::NONE;
            /// Element-wise, to the result's element type.
            Cast(value: Value) = "cast " [value] gives 1, Effects::NONE;
            /// The same fragment, of which the optimiser knows nothing: what is computed from it is computed
            /// again rather than kept.
            Rematerialize(value: Value) = "rematerialize " [value] gives 1, Effects::NONE;
            /// To the result's layout, which the operand's is the broadcast source of. Moves nothing.
            Broadcast(value: Value) = "broadcast " [value] gives 1, Effects::NONE;
            /// Adds or drops axes of extent 1. Moves nothing.
            Reshape(value: Value) = "reshape " [value] gives 1, Effects::NONE;
            /// Exchanges the axes of the layout. Moves nothing.
            Transpose(value: Value) = "transpose " [value] gives 1, Effects::NONE;
            /// Replaces elements outside the tensor, and padding of the layout, by a constant.
            MaskInvalid {
                /// The tile.
                value: Value,
                /// The constant.
                neutral: f64,
                /// The axes that may be ragged.
                valid: Vec<Valid>,
            } = "mask.invalid " [value " with " neutral " valid (" valid ")"] gives 1, Effects::NONE;
            /// Reduces axes within each warp: registers, then lanes. What remains to be reduced across warps is
            /// a trailing axis of the result.
            Reduce {
                /// What to reduce with.
                op: ReduceOp,
                /// The tile.
                value: Value,
                /// Axes.
                axes: Vec<u8>,
            } = "reduce " [op " " value " axes " axes] gives 1, Effects::CONVERGENT;
            /// Reduces, for each element, the elements of its row along an axis up to its own, or from its own on. All of a row is in one
            /// warp.
            Scan {
                /// What to reduce with.
                op: ReduceOp,
                /// Which elements.
                direction: Direction,
                /// The tile.
                value: Value,
                /// The axis.
                axis: u8,
            } = "scan " [op " " direction " " value " axis " axis] gives 1, Effects::CONVERGENT;
            /// To the result's layout, through shared memory.
            ConvertLayout(value: Value) = "convert.layout " [value] gives 1, Effects::CONVERGENT;
            /// The elements from `offset` on along an axis, as many as the result has. Picks registers, moves nothing.
            ExtractSlice {
                /// The tile.
                value: Value,
                /// Axis.
                axis: u8,
                /// First element; all threads keep the same registers.
                offset: u32,
            } = "extract.slice " [value " axis " axis " offset " offset] gives 1, Effects::NONE;
            /// Reads a tile from global memory.
            LoadGlobal {
                /// Tensor.
                param: Param,
                /// One per tensor axis.
                slices: Vec<Slice>,
                /// What the L2 cache does with the lines.
                cache: Cache,
            } = ("load.global" cache) [param slices] gives 1, Effects::READS_GLOBAL;
            /// Writes a tile to global memory, or combines it with what is there.
            StoreGlobal {
                /// Tensor.
                param: Param,
                /// One per tensor axis.
                slices: Vec<Slice>,
                /// The tile.
                value: Value,
                /// What becomes of the elements that are there.
                update: Update,
            } = ("store.global" update) [param slices ", " value] gives 0, Effects::WRITES_GLOBAL;
            /// Starts moving a tile between global and shared memory.
            Copy {
                /// How.
                atom: CopyAtom,
                /// Tensor.
                param: Param,
                /// One per tensor axis.
                slices: Vec<Slice>,
                /// Where.
                to: SharedRef,
            } = "copy" (print_copy parse_copy) gives 0, atom.effects();
            /// Reads a fragment from shared memory.
            LoadShared(from: SharedRef) = "load.shared " [from] gives 1, Effects::READS_SHARED;
            /// Reads an operand of one step of a product from shared memory, in the layout that its atom takes. Whatever reaches
            /// past the buffer along M or N is some element of it.
            LoadMatrix {
                /// Which operand.
                side: Side,
                /// Where.
                from: SharedRef,
                /// Further along K than `from` says: by this i32 scalar times so many elements.
                further: Option<(Value, u32)>,
            } = "load.matrix " [side " " from [" further " further]]
                gives 1, Effects::READS_SHARED.and(Effects::CONVERGENT);
            /// Writes a fragment to shared memory.
            StoreShared {
                /// Where.
                to: SharedRef,
                /// The tile.
                value: Value,
            } = "store.shared " [to ", " value] gives 0, Effects::WRITES_SHARED;
            /// Writes zeros to a whole buffer.
            ZeroShared(buffer: Buffer) = "zero.shared " [buffer] gives 0, Effects::WRITES_SHARED;
            /// Adds a fragment of f32 or f64 over the CTAs of the cluster, in the order of their ranks. All of them get the sums. Each
            /// thread passes on its registers through the buffer, which has room for those of all threads. All threads of the cluster
            /// meet.
            SumCluster(value: Value, buffer: Buffer) = "sum.cluster " [value " through " buffer]
                gives 1, Effects::READS_SHARED.and(Effects::WRITES_SHARED).and(Effects::CONVERGENT);
            /// Starts `acc + a · b`; the result is in flight.
            Mma {
                /// Left operand, `[M, K]`.
                a: Operand,
                /// Right operand, `[K, N]`.
                b: Operand,
                /// Accumulator; zero if absent.
                acc: Option<Value>,
                /// Instruction.
                atom: MmaAtom,
                /// Extents M, N, K.
                shape: (u32, u32, u32),
                /// If given, an i1 scalar: false starts from zero whatever the accumulator holds.
                accumulate: Option<Value>,
            } = "mma " [atom " " shape " " a ", " b [" acc " acc] [" accumulate " accumulate]]
                gives 1, Effects::READS_SHARED.and(Effects::ASYNC).and(Effects::CONVERGENT);
            /// Makes an in-flight accumulator readable, once at most `pending` younger groups are in flight.
            WaitMma(value: Value, pending: u32) = "wait.mma " [value ", " pending]
                gives 1, Effects::ORDERS.and(Effects::CONVERGENT);
            /// Gets the right to fill the stage of an iteration.
            Acquire(ring: Ring, at: At) = "acquire " [ring at] gives 1, Effects::ORDERS;
            /// Ends the filling of the token's stage. With no token: an empty commit that keeps the count.
            Commit(ring: Ring, token: Option<Value>) = "commit " [ring [", " token]] gives 0, Effects::ORDERS;
            /// Waits until the stage of an iteration is filled.
            Wait(ring: Ring, at: At) = "wait " [ring at] gives 1, Effects::ORDERS;
            /// Ends the reading of the token's stage.
            Release(token: Value) = "release " [token] gives 0, Effects::ORDERS;
            /// Sets the mbarriers of a ring up, by one thread.
            InitRing(ring: Ring) = "init " [ring] gives 0, Effects::ORDERS.and(Effects::CONVERGENT);
            /// Waits until every consumer has released every stage: where the copy engine reads them, until what it stores is there.
            Drain(ring: Ring) = "drain " [ring] gives 0, Effects::ORDERS.and(Effects::CONVERGENT);
            /// Waits until at most so many of this thread's committed copy groups are pending.
            CopyWait(pending: u32) = "wait.copies " [pending] gives 0, Effects::ORDERS;
            /// Waits, in the thread that starts the copy engine's stores, until the engine has read what all but so many of their
            /// groups store.
            StoreWait(pending: u32) = "wait.stores " [pending] gives 0, Effects::ORDERS.and(Effects::CONVERGENT);
            /// All threads of the scope's CTA meet; shared memory written before is visible after.
            Barrier = "barrier" [] gives 0, Effects::ORDERS.and(Effects::CONVERGENT);
            /// The threads of each warpgroup meet; shared memory that they wrote before is visible to them after.
            WarpgroupBarrier = "barrier.warpgroup" [] gives 0, Effects::ORDERS.and(Effects::CONVERGENT);
            /// Adds fragments of f32 over the CTAs that share a program, in the order of their numbers. The CTA that arrives last has
            /// the sums and runs on; for all others the program ends here. All threads meet.
            SumSplits(values: Vec<Value>) = "sum.splits " [values] gives values, Effects::ORDERS.and(Effects::CONVERGENT);
            /// A fence.
            Fence(kind: FenceKind) = "fence " [kind] gives 0, Effects::ORDERS;
            /// Runs the body for index in `lo..hi`.
            Loop {
                /// As in Tile IR.
                kind: LoopKind,
                /// i32 scalar.
                lo: Value,
                /// i32 scalar.
                hi: Value,
                /// Carried in.
                inits: Vec<Value>,
                /// Index, then carried values.
                body: Block,
            } = (kind) (print_loop parse_loop) gives inits, Effects::CONTROL;
            /// Runs the body for each program that the index map gives this CTA. Parameters: the coordinates, then
            /// optionally the number of the program within its CTA, 0 for the first.
            Programs(body: Block) = "programs" (print_programs parse_programs) gives 0, Effects::CONTROL;
            /// Runs the body if the condition (an i1 scalar, equal in all threads) holds. The results are what the body yields, or
            /// these values.
            If(condition: Value, body: Block, others: Vec<Value>) = "if " [condition body [" else " others]]
                gives others, Effects::CONTROL;
            /// One thread of the role runs the body, which has the copy engine fill or store stages; its warp meets again behind it.
            Once(body: Block) = "once" [body] gives 0, Effects::CONTROL.and(Effects::CONVERGENT);
            /// Ends the body of a loop, or of an `if` with results.
            Yield(values: Vec<Value>) = "yield" [[" " values]] gives 0, Effects::CONTROL;
        }
    };
}

pub(super) use operation_table;

operation_table!(operations);

impl Op {
    /// An operation of two operands that has one form.
    pub const fn binary(op: BinaryOp, a: Value, b: Value) -> Op {
        Op::Binary(op, Accuracy::Precise, a, b)
    }

    /// Calls `f` on every value operand.
    pub fn visit_operands(&self, mut f: impl FnMut(Value)) {
        self.mentions(&mut |mention| {
            if let Mention::Value(v) = mention {
                f(v);
            }
        });
    }

    /// True if each element of the result comes from the elements at its place.
    pub const fn is_elementwise(&self) -> bool {
        matches!(self, gpu_ops!(elementwise))
    }

    /// True for a product that a warpgroup makes asynchronously.
    pub const fn is_asynchronous(&self) -> bool {
        matches!(self, Op::Mma { atom, .. } if atom.row().asynchronous)
    }

    /// True if its results stay in registers as a whole, so that columns of them are some of these registers: what a loop leaves, and
    /// sums over the CTAs of a program or of a cluster.
    pub const fn leaves_registers(&self) -> bool {
        matches!(self, Op::Loop { .. } | Op::SumSplits(_) | Op::SumCluster(..))
    }

    /// The block that it runs, of a loop, a branch or `programs`.
    pub fn body(&self) -> Option<Block> {
        let mut body = None;
        if self.effects().any(Effects::CONTROL) {
            self.mentions(&mut |mention| {
                if let Mention::Body(block) = mention {
                    body = Some(block);
                }
            });
        }
        body
    }

    /// The shared buffers whose elements it reads, and those whose elements it writes.
    pub fn buffers(&self) -> (Vec<Buffer>, Vec<Buffer>) {
        let mut buffers = Vec::new();
        self.mentions(&mut |mention| {
            if let Mention::Buffer(b) = mention {
                buffers.push(b);
            }
        });
        match self.effects().any(Effects::WRITES_SHARED) {
            true => (Vec::new(), buffers),
            false => (buffers, Vec::new()),
        }
    }
}
