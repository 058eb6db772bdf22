//! Which constructs stand in a kernel: the rule of phases, 460.
//!
//! GPU IR says more than one phase has, and more than is lowered today. Passes and analyses refuse configs; a construct
//! that stands where the pipeline has none is a defect of the pass before, and is named here with its place, so that
//! nothing verified loses its meaning on the way to LLVM.

use super::access::accessed;
use super::{At, Block, Cache, Constructs, CopyAtom, FenceKind, Kernel, Mover, Op, Operand, Owner, Scope, SharedRef};
use crate::gpu_ops;
use atlas_dsl::ir::Loc;
use atlas_dsl::op::UnaryOp;
use atlas_dsl::{DType, Diagnostic, Diagnostics};

/// Checks that nothing stands in a kernel but what these constructs allow. The kernel has passed `verify_gpu`.
pub fn verify_constructs(k: &Kernel, allowed: Constructs) -> Result<(), Diagnostics> {
    let mut errors = Vec::new();
    constructs(k, &mut |construct, loc, what| {
        if !allowed.has(construct) {
            let word = construct.to_string();
            errors.push(Diagnostic::new(460, loc, format!("{what} stands where the pipeline has no `{word}`")));
        }
    });
    if errors.is_empty() { Ok(()) } else { Err(Diagnostics(errors)) }
}

impl Constructs {
    /// What stands in a kernel.
    pub fn of(k: &Kernel) -> Constructs {
        let mut all = Constructs::NONE;
        constructs(k, &mut |construct, _, _| all = all.with(construct));
        all
    }
}

/// Takes a construct that stands in a kernel, where, and by which words a reader knows it.
type Found<'f> = &'f mut dyn FnMut(Constructs, Loc, &str);

fn constructs(k: &Kernel, found: Found<'_>) {
    declarations(k, found);
    for role in k.roles.values() {
        block(k, role.body, found);
    }
}

fn block(k: &Kernel, b: Block, found: Found<'_>) {
    let insts = &k.blocks[b].insts;
    for (at, &inst) in insts.iter().enumerate() {
        let (op, loc) = (&k.insts[inst], k.locs[inst]);
        if let Some((construct, what)) = standing(op) {
            found(construct, loc, what);
        }
        if let Op::Wait(ring, _) = *op {
            let mut before = insts[..at].iter().rev().map(|&i| &k.insts[i]).filter(|op| !matches!(op, Op::Fence(_)));
            let ordered = matches!((before.next(), before.next()), (Some(Op::Barrier), Some(Op::CopyWait(_))));
            if k.rings[ring].filled_by == Mover::Threads && !ordered {
                found(Constructs::BARE_WAITS, loc, "a `wait` for copies that may be on their way");
            }
        }
        if let Op::InitRing(_) = op {
            let mut behind = insts[at..].iter().map(|&i| &k.insts[i]).filter(|op| !matches!(op, Op::InitRing(_)));
            let fenced =
                behind.next() == Some(&Op::Fence(FenceKind::MbarrierInit)) && behind.next() == Some(&Op::Barrier);
            if !fenced {
                found(Constructs::BARE_WAITS, loc, "a set-up of mbarriers that no fence and no barrier follow");
            }
        }
        let result = k.results[inst].first().and_then(|&v| k.values[v].ty.tile()).map(|(dtype, _)| dtype);
        if is_whole_product(op) {
            found(Constructs::PRODUCTS, loc, "a product of several steps, or of operands in shared memory");
        }
        if let Some(what) = unencodable(k, op, result) {
            found(Constructs::UNENCODABLE, loc, &what);
        }
        if accessed(k, inst).is_some() {
            match k.access_kinds[inst] {
                None => found(Constructs::OPEN_ACCESSES, loc, "an access without a form"),
                Some(_) => found(Constructs::ACCESS_KINDS, loc, "an access with a form"),
            }
        }
        if let Some(body) = op.body() {
            block(k, body, found);
        }
    }
}

/// Roles, clusters, the index map, buffers and rings.
fn declarations(k: &Kernel, found: Found<'_>) {
    let loc = Loc::default();
    let whole = |r: &super::RoleData| r.scope == Scope::Cta && r.registers.is_none();
    if k.roles.len() != 1 || !k.roles.values().all(whole) {
        found(Constructs::ROLES, loc, "a role that is not the whole CTA, or sets its registers");
    }
    if k.cluster != (1, 1) {
        found(Constructs::CLUSTERS, loc, "a cluster of CTAs");
    }
    if k.index_map.splits > 1 {
        found(Constructs::SPLITS, loc, "programs that several CTAs share");
    }
    if k.index_map.persistent {
        found(Constructs::GRIDS, loc, "an index map with other than a CTA for each program of the grid");
    }
    if !k.coords.is_empty() {
        found(Constructs::PROGRAMS, loc, "a coordinate of the index map");
    }
    for buffer in k.buffers.values() {
        if buffer.owner != Owner::Cta {
            found(Constructs::CLUSTERS, loc, &format!("the buffer `{}` of a cluster", buffer.name));
        }
        let placed = if buffer.offset.is_some() { Constructs::OFFSETS } else { Constructs::UNPLACED };
        found(placed, loc, &format!("the buffer `{}`", buffer.name));
    }
    for ring in k.rings.values() {
        if ring.filled_by == Mover::Engine {
            found(Constructs::ENGINE, loc, "a ring that the copy engine fills");
            match ring.mbarriers {
                Some(_) => found(Constructs::OFFSETS, loc, "a ring with places of its mbarriers"),
                None => found(Constructs::UNPLACED, loc, "a ring without places of its mbarriers"),
            }
        }
        if ring.read_by == Mover::Engine {
            found(Constructs::ENGINE_STORES, loc, "a ring that the copy engine reads");
        }
    }
}

/// The construct that an operation is, whatever its operands, and its name.
fn standing(op: &Op) -> Option<(Constructs, &'static str)> {
    Some(match op {
        Op::Programs(_) => (Constructs::PROGRAMS, "`programs`"),
        // That there is an engine, the ring says that such a copy fills.
        Op::Copy { atom: CopyAtom::Tma(_, Cache::EvictLast | Cache::EvictFirst), .. } => {
            (Constructs::HINTS, "a copy with a cache hint")
        }
        Op::Copy { atom: CopyAtom::Tma(_, Cache::Normal), .. } => (Constructs::ENGINE, "a copy by the engine"),
        Op::Copy { atom: CopyAtom::TmaMulticast(_), .. } => (Constructs::CLUSTERS, "a copy to all CTAs of a cluster"),
        Op::Copy { atom: CopyAtom::TmaStore(_), .. } => (Constructs::ENGINE_STORES, "a store by the engine"),
        Op::Copy { atom: CopyAtom::Open, .. } => (Constructs::OPEN_COPIES, "a copy without an atom"),
        Op::Fence(FenceKind::ProxyAsync | FenceKind::MbarrierInit) => (Constructs::BARRIERS, "`fence`"),
        Op::Drain(_) => (Constructs::ENGINE_STORES, "`drain`"),
        Op::InitRing(_) => (Constructs::CURSORS, "`init` of a ring"),
        Op::Once(_) => (Constructs::CURSORS, "`once`"),
        Op::Mma { accumulate: Some(_), .. } => {
            (Constructs::IN_FLIGHT, "a product that starts from zero on a condition")
        }
        Op::WaitMma(_, pending) if *pending != 0 => (Constructs::IN_FLIGHT, "a wait that leaves products in flight"),
        Op::Acquire(_, At::Iteration(_)) => (Constructs::NUMBERED, "`acquire` by iteration"),
        Op::Wait(_, At::Iteration(_)) => (Constructs::NUMBERED, "`wait` by iteration"),
        Op::Acquire(_, At::Cursor { .. }) => (Constructs::CURSORS, "`acquire` by cursor"),
        Op::Wait(_, At::Cursor { .. }) => (Constructs::CURSORS, "`wait` by cursor"),
        Op::Acquire(..) => (Constructs::TOKENS, "`acquire`"),
        Op::Commit(..) => (Constructs::TOKENS, "`commit`"),
        Op::Wait(..) => (Constructs::TOKENS, "`wait`"),
        Op::Release(_) => (Constructs::TOKENS, "`release`"),
        Op::ConvertLayout(_) => (Constructs::CONVERTS, "`convert.layout`"),
        Op::LoadGlobal { cache: Cache::EvictLast | Cache::EvictFirst, .. } => {
            (Constructs::HINTS, "a load with a cache hint")
        }
        Op::Barrier => (Constructs::BARRIERS, "`barrier`"),
        Op::WarpgroupBarrier => (Constructs::BARRIERS, "`barrier.warpgroup`"),
        Op::SumSplits(_) => (Constructs::SPLITS, "`sum.splits`"),
        Op::SumCluster(..) => (Constructs::CLUSTERS, "`sum.cluster`"),
        Op::CopyWait(_) => (Constructs::BARRIERS, "a wait for copies"),
        Op::StoreWait(_) => (Constructs::BARRIERS, "a wait for stores"),
        Op::MaskInvalid { .. } | Op::Reduce { .. } | Op::Scan { .. } => return None,
        Op::Loop { .. } | Op::If(..) | Op::Yield(_) => return None,
        gpu_ops!(sources elementwise views global shared products) => return None,
    })
}

/// True for a product that `lower_products` makes steps of.
fn is_whole_product(op: &Op) -> bool {
    let Op::Mma { a, b, atom, shape, .. } = op else { return false };
    let in_registers = |o: &Operand| matches!(o, Operand::Fragment(_));
    let is_step = shape.2 == atom.row().shape.2 && in_registers(a) && in_registers(b);
    atom.is_tensor_core() && !atom.row().asynchronous && !is_step
}

/// What has no instruction about an operation that otherwise has.
fn unencodable(k: &Kernel, op: &Op, result: Option<DType>) -> Option<String> {
    let bits = |at: &SharedRef| k.buffers[at.buffer].dtype == DType::Bool;
    match op {
        Op::Mma { a, b, atom, .. } => match (atom, a, b) {
            (atom, ..) if atom.is_tensor_core() => None,
            (_, Operand::Shared(_), Operand::Shared(_)) => None,
            _ => Some(format!("an operand of `{}` that is not in shared memory", atom.row().name)),
        },
        Op::Copy { atom: CopyAtom::Open | CopyAtom::CpAsync(_) | CopyAtom::Direct, slices, .. } => {
            let rank = slices.iter().filter(|s| s.len().is_some()).count();
            (rank > 2).then(|| format!("a copy of a tile of rank {rank}"))
        }
        Op::LoadShared(at) | Op::StoreShared { to: at, .. } if bits(at) => {
            Some("a tile of bool in shared memory".to_owned())
        }
        Op::Unary(f, ..) if result == Some(DType::F64) && !is_function_of_f64(*f) => {
            Some(format!("`{}` of f64", f.name()))
        }
        gpu_ops!(sources elementwise views fragments global shared clusters rings orders control) | Op::WaitMma(..) => {
            None
        }
    }
}

/// True if a function of f64 has instructions; the others are expanded in f32 alone.
pub(crate) fn is_function_of_f64(op: UnaryOp) -> bool {
    op.row().exact || matches!(op, UnaryOp::Sqrt | UnaryOp::Rsqrt)
}
