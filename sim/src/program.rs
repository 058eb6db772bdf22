//! A kernel ready to execute: names resolved to rows of the register file, opcodes to functions.

pub use crate::operand::*;

use crate::alu::{Arithmetic, Inexact};
use crate::syntax::ast::{Space, Type};

/// An operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// `dst = f(a, b, c, d)` in each active lane.
    Alu {
        f: AluFn,
        dst: Reg,
        src: [Src; 4],
    },
    /// The same with one or two operands, within a bound of the exact result.
    Approximate {
        f: AluFn,
        inexact: Box<Inexact>,
        dst: Reg,
        src: [Src; 2],
    },
    /// Comparison into a predicate and, with `|q`, its complement. Both are combined with `combine`.
    Setp {
        f: CompareFn,
        a: Src,
        b: Src,
        dst: Option<Pred>,
        complement: Option<Pred>,
        combine: Option<(BoolOp, PredSrc)>,
    },
    /// `set`: comparison into a register, `yes` where it holds and otherwise 0.
    Set {
        f: CompareFn,
        a: Src,
        b: Src,
        dst: Reg,
        yes: u64,
        combine: Option<(BoolOp, PredSrc)>,
    },
    /// `dst = pred ? a : b`.
    Selp {
        dst: Reg,
        a: Src,
        b: Src,
        pred: PredSrc,
    },
    /// `and.pred`, `mov.pred`, `not.pred` and the like: `dst = a op b`.
    PredLogic {
        dst: Pred,
        a: PredOrImm,
        op: BoolOp,
        b: PredOrImm,
    },
    /// Extended-precision addition and subtraction: width in bits, carry read, carry written.
    Carry {
        dst: Reg,
        a: Src,
        b: Src,
        c: Src,
        op: CarryOp,
        bits: u8,
        reads: bool,
        writes: bool,
    },
    MovSpecial {
        dst: Reg,
        special: Special,
    },
    /// `mov.b64 d, {a, b}`: each part has `bits` bits.
    Pack {
        dst: Reg,
        parts: Vec<Src>,
        bits: u8,
    },
    /// `mov.b64 {a, b}, s`.
    Unpack {
        dst: Vec<Option<Reg>>,
        src: Src,
        bits: u8,
    },
    /// `elect.sync d|p, mask`.
    Elect {
        dst: Option<Reg>,
        pred: Option<Pred>,
        mask: Src,
    },
    ActiveMask {
        dst: Reg,
    },
    /// `shfl.sync`.
    Shfl {
        mode: ShflMode,
        dst: Reg,
        pred: Option<Pred>,
        src: Src,
        lane: Src,
        clamp: Src,
        mask: Src,
    },
    Vote {
        op: VoteOp,
        src: PredSrc,
        mask: Src,
    },
    /// `match.any`, or `match.all` with its predicate.
    Match {
        all: bool,
        dst: Reg,
        pred: Option<Pred>,
        src: Src,
        mask: Src,
        bits: u8,
    },
    /// `redux.sync`: a reduction by an associative function of two values.
    Redux {
        f: AluFn,
        dst: Reg,
        src: Src,
        mask: Src,
    },

    Load {
        access: Access,
        dst: Vec<Option<Reg>>,
        extend: Extend,
    },
    Store {
        access: Access,
        src: Vec<Src>,
    },
    /// `atom` with a destination, `red` without.
    Atom {
        access: Access,
        op: AtomOp,
        ty: Type,
        dst: Option<Reg>,
        b: Src,
        c: Src,
    },
    /// Prefetches and cache hints. The address is checked, and nothing moves.
    Prefetch {
        access: Access,
    },
    /// `cp.async`: `bytes` to shared memory, of which `valid` come from global memory and the rest are zeros.
    CpAsync {
        shared: Addr,
        global: Addr,
        bytes: u8,
        valid: Option<Src>,
        ignore: Option<PredSrc>,
    },
    CpAsyncCommit,
    /// Waits until all but the newest `n` groups are complete.
    CpAsyncWait {
        n: u32,
    },
    CpAsyncWaitAll,
    CpAsyncMbarrierArrive {
        addr: Addr,
        no_inc: bool,
    },
    /// `isspacep`.
    IsSpace {
        dst: Pred,
        src: Src,
        space: Space,
    },
    /// `mapa`: the address of a shared variable in the CTA of a rank.
    Mapa {
        dst: Reg,
        src: Src,
        rank: Src,
        generic: bool,
    },
    /// `cvta`: between a space and generic addresses.
    Cvta {
        dst: Reg,
        src: Src,
        space: Space,
        to_generic: bool,
    },

    /// `bar`, `barrier`, `barrier.cta`.
    Bar {
        op: BarOp,
        id: Src,
        threads: Option<Src>,
        aligned: bool,
    },
    BarWarp {
        mask: Src,
    },
    Fence(FenceKind),
    ClusterArrive {
        order: Order,
        aligned: bool,
    },
    ClusterWait {
        order: Order,
        aligned: bool,
    },
    Mbarrier {
        op: MbarrierOp,
        addr: Addr,
        cluster: bool,
        order: Order,
        scope: Scope,
    },
    /// `nanosleep`, `griddepcontrol`, `pmevent`, `setmaxnreg` of arch 9: `setmaxnreg` has its count.
    Hint,
    SetMaxNReg {
        count: u32,
        increase: bool,
    },

    Mma(Box<Mma>),
    /// `ldmatrix`: count of 8x8 matrices, transposed.
    LdMatrix {
        dst: Vec<Reg>,
        addr: Addr,
        space: Space,
        transposed: bool,
    },
    StMatrix {
        src: Vec<Src>,
        addr: Addr,
        space: Space,
        transposed: bool,
    },
    Wgmma(Box<Wgmma>),
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait {
        n: u32,
    },
    Bulk(Box<Bulk>),
    /// A prefetch of a tensor map, or of a tile or a range. It moves nothing that a kernel sees, but a map is read.
    BulkPrefetch {
        map: Option<(Addr, Space)>,
    },
    BulkCommit,
    BulkWait {
        n: u32,
        read: bool,
    },

    /// Jumps of the active lanes. `uniform` claims that all lanes jump.
    Branch {
        target: u32,
        uniform: bool,
    },
    /// `brx.idx`.
    BranchIndex {
        index: Src,
        targets: Vec<u32>,
        uniform: bool,
    },
    /// `ret` of an entry, `exit`.
    Exit,
    Trap,
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instr {
    pub guard: Option<PredSrc>,
    pub op: Op,
    /// Line in the PTX text, from 1.
    pub line: u32,
}

/// A parameter of an entry in the parameter space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamSlot {
    pub name: String,
    pub offset: u32,
    pub bytes: u32,
    pub align: u32,
}

/// A module-scope `.global` or `.const` variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleVariable {
    pub name: String,
    pub space: Space,
    /// Address in its space.
    pub address: u64,
    pub bytes: Vec<u8>,
}

/// A source location that a `.loc` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLoc {
    pub file: u32,
    pub line: u32,
    pub column: u32,
}

/// One entry of a module, ready to execute.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: String,
    /// `sm_90a`.
    pub target: String,
    /// The arithmetic of its floating-point values, which atomics and matrix products follow.
    pub arithmetic: Arithmetic,
    pub params: Vec<ParamSlot>,
    pub param_bytes: u32,
    /// Rows of the register file.
    pub regs: u32,
    /// Bits of each row.
    pub reg_bits: Vec<u8>,
    /// Rows of the predicate file.
    pub preds: u32,
    pub code: Vec<Instr>,
    /// For each branch, where its lanes reconverge: the first instruction that every way out of it passes. `None` if they may
    /// not reconverge before the end, and for other instructions.
    pub reconverge: Vec<Option<u32>>,
    /// For each instruction, the `.loc` in force.
    pub locs: Vec<Option<SourceLoc>>,
    pub files: Vec<(u32, String)>,
    /// Bytes of static shared variables; dynamic shared memory begins at this offset, aligned to `shared_align`.
    pub shared_bytes: u32,
    pub shared_align: u32,
    /// Bytes of local memory of a thread.
    pub local_bytes: u32,
    pub globals: Vec<ModuleVariable>,
    pub constants: Vec<ModuleVariable>,
    /// `.reqntid`.
    pub required_threads: Option<[u32; 3]>,
    /// `.maxntid`.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqnctapercluster`.
    pub cluster: Option<[u32; 3]>,
    /// The narrowest access of shared and global memory, in bytes: the granularity at which races are tracked.
    pub grain: u8,
}
