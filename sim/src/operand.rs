//! Operands of a program's operations: registers, addresses, and the kinds of each family of instructions.

use crate::syntax::ast::{Space, Type};

/// A row of a warp's register file: 32 lanes of 64 bits. Narrow registers hold zeros above their width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg(pub u32);

/// A row of a warp's predicate file: one bit a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pred(pub u32);

/// A predicate as read: its row, and whether it is negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredSrc {
    pub pred: Pred,
    pub negated: bool,
}

/// A value that each lane reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Src {
    Reg(Reg),
    Imm(u64),
}

/// An address that each lane computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addr {
    pub base: Src,
    pub offset: i64,
}

/// One lane of an arithmetic instruction: up to four sources, and zero for missing ones.
pub type AluFn = fn(u64, u64, u64, u64) -> u64;

/// One lane of a comparison.
pub type CompareFn = fn(u64, u64) -> bool;

/// Special registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// `%tid.{x,y,z}` by axis, and so on.
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NwarpId,
    SmId,
    NsmId,
    GridId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,
    Clock,
    Clock64,
    GlobalTimer,
    ClusterId(u8),
    NclusterId(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtarank,
    ClusterNctarank,
    IsExplicitCluster,
    DynamicSmemSize,
    TotalSmemSize,
}

/// The memory order of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// An ordinary access. A race is a fault.
    #[default]
    Weak,
    /// `.volatile`, `.relaxed`: may race with others of its kind.
    Relaxed,
    Acquire,
    Release,
    AcqRel,
}

/// The threads for which an order holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Scope {
    #[default]
    Cta,
    Cluster,
    Gpu,
    System,
}

/// The size of a load, a store or an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub space: Space,
    pub addr: Addr,
    /// Bytes of one element.
    pub bytes: u8,
    /// Elements: 1, 2, 4 or 8.
    pub count: u8,
    pub order: Order,
    pub scope: Scope,
    /// `.nc`: through the read-only path. The memory must not be written during the launch.
    pub non_coherent: bool,
}

/// How a loaded element is extended to its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extend {
    Zero,
    /// Sign-extended, from the bytes of the element to the width of the register.
    Sign(u8),
}

/// Boolean operations on predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoolOp {
    And,
    Or,
    Xor,
}

/// Operations of `atom` and `red`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomOp {
    Exch,
    Cas,
    And,
    Or,
    Xor,
    Add,
    Inc,
    Dec,
    Min,
    Max,
}

/// `bar`, `barrier`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarOp {
    Sync,
    Arrive,
    /// `.red.popc` into a register, counting lanes of the predicate.
    RedPopc(Reg, PredSrc),
    /// `.red.and`, `.red.or` into a predicate.
    RedBool(BoolOp, Pred, PredSrc),
}

/// Modes of `shfl.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShflMode {
    Up,
    Down,
    Bfly,
    Idx,
}

/// Modes of `vote.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteOp {
    All(Pred),
    Any(Pred),
    Uni(Pred),
    Ballot(Reg),
}

/// The kind of a memory fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceKind {
    /// `fence.sc`, `fence.acq_rel`, `membar`.
    Thread(Order, Scope),
    /// `fence.proxy.async` of one state space, or of all if it is generic.
    ProxyAsync(Space),
    /// `fence.mbarrier_init.release.cluster`.
    MbarrierInit,
    /// `fence.proxy.tensormap::generic.release`.
    MapRelease(Scope),
    /// `fence.proxy.tensormap::generic.acquire`, of the tensor map at an address.
    MapAcquire(Scope, Addr),
    /// `fence.proxy.alias`, which orders nothing that the simulator tracks.
    OtherProxy,
}

/// Operations on an mbarrier at an address in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MbarrierOp {
    /// Initialisation with the expected arrivals of a phase.
    Init(Src),
    Inval,
    /// `arrive`, `arrive.expect_tx`, `arrive.noComplete`: state token, arrivals, bytes to expect first.
    Arrive {
        state: Option<Reg>,
        count: Src,
        expect: Option<Src>,
        drop: bool,
    },
    ExpectTx(Src),
    CompleteTx(Src),
    /// `test_wait`, `try_wait` on a state token.
    TestState {
        done: Pred,
        state: Src,
        suspend: bool,
    },
    /// The same on a parity.
    TestParity {
        done: Pred,
        parity: Src,
        suspend: bool,
    },
    PendingCount {
        dst: Reg,
        state: Src,
    },
}

/// Element type of a matrix operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmaType {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    E4m3,
    E5m2,
    S8,
    U8,
    S32,
}

/// A product of matrices over a warp: `d = a * b + c`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mma {
    pub m: u16,
    pub n: u16,
    pub k: u16,
    pub a_type: MmaType,
    pub b_type: MmaType,
    /// Of c and d.
    pub c_type: MmaType,
    pub d_type: MmaType,
    /// `.satfinite` of integers.
    pub saturate: bool,
    pub d: Vec<Reg>,
    pub a: Vec<Src>,
    pub b: Vec<Src>,
    pub c: Vec<Src>,
}

/// The source of the left operand of a `wgmma`.
#[derive(Clone, Debug, PartialEq)]
pub enum WgmmaA {
    Registers(Vec<Src>),
    /// A 64-bit matrix descriptor.
    Descriptor {
        desc: Src,
        transposed: bool,
    },
}

/// `wgmma.mma_async`.
#[derive(Clone, Debug, PartialEq)]
pub struct Wgmma {
    pub n: u16,
    pub k: u16,
    pub a_type: MmaType,
    pub b_type: MmaType,
    pub d_type: MmaType,
    pub d: Vec<Reg>,
    pub a: WgmmaA,
    pub b: Src,
    pub b_transposed: bool,
    /// False: d = a*b, true: d += a*b.
    pub scale_d: PredOrImm,
    pub negate_a: bool,
    pub negate_b: bool,
}

/// A predicate or a constant truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredOrImm {
    Pred(PredSrc),
    Imm(bool),
}

/// How an asynchronous bulk copy reports its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkDone {
    /// `.mbarrier::complete_tx::bytes` on the barrier at this shared address.
    Mbarrier(Addr),
    /// `.bulk_group`.
    Group,
}

/// `cp.async.bulk`, `cp.reduce.async.bulk` and their tensor forms.
#[derive(Clone, Debug, PartialEq)]
pub struct Bulk {
    pub direction: BulkDirection,
    /// Shared address.
    pub shared: Addr,
    /// `.multicast::cluster` with its mask of CTA ranks.
    pub multicast: Option<Src>,
    pub done: BulkDone,
    pub remote: BulkRemote,
    /// In a tensor form, the tensor map has the type, and this one is `B8`.
    pub reduce: Option<(AtomOp, Type)>,
}

/// The direction of a bulk copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkDirection {
    GlobalToShared,
    SharedToGlobal,
    SharedToCluster,
}

/// The side of a bulk copy that is not the CTA's own shared memory.
#[derive(Clone, Debug, PartialEq)]
pub enum BulkRemote {
    /// A flat range of this many bytes.
    Flat { addr: Addr, bytes: Src },
    /// A box of a tensor map at these coordinates, innermost first.
    Tensor { map: Addr, coordinates: Vec<Src>, im2col: Option<Vec<Src>> },
}

/// `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarryOp {
    Add,
    Sub,
    MadLo,
    MadHi,
}
