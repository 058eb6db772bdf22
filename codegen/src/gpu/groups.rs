//! Groups of operations, as patterns: a match that names groups is checked for operations that it forgets.

/// A pattern of the operations of a group, for matches on [`Op`](crate::gpu::Op).
///
/// Each operation is in one group. An operation that is in none leaves every match on groups incomplete, so that the
/// compiler lists the places where something has to be said of it.
#[macro_export]
macro_rules! gpu_ops {
    // Scalars, and tiles that are made of nothing.
    (sources) => {
        $crate::gpu::Op::Const(_)
            | $crate::gpu::Op::Iota { .. }
            | $crate::gpu::Op::DimSize(_)
            | $crate::gpu::Op::DimTiles(..)
            | $crate::gpu::Op::CtaNumber
            | $crate::gpu::Op::CtaCount
            | $crate::gpu::Op::SplitNumber
            | $crate::gpu::Op::SplitCount
            | $crate::gpu::Op::Unsigned(..)
            | $crate::gpu::Op::Coordinate(..)
            | $crate::gpu::Op::ScalarParam(_)
            | $crate::gpu::Op::TableGet(..)
    };
    // Each element of the result comes from the elements at its place.
    (elementwise) => {
        $crate::gpu::Op::Unary(..)
            | $crate::gpu::Op::Binary(..)
            | $crate::gpu::Op::Compare(..)
            | $crate::gpu::Op::Select(..)
            | $crate::gpu::Op::Fma(..)
            | $crate::gpu::Op::Cast(_)
            | $crate::gpu::Op::Rematerialize(_)
    };
    // The same registers, under other names.
    (views) => {
        $crate::gpu::Op::Broadcast(_)
            | $crate::gpu::Op::Reshape(_)
            | $crate::gpu::Op::Transpose(_)
            | $crate::gpu::Op::ExtractSlice { .. }
    };
    // Other work on fragments.
    (fragments) => {
        $crate::gpu::Op::MaskInvalid { .. }
            | $crate::gpu::Op::Reduce { .. }
            | $crate::gpu::Op::Scan { .. }
            | $crate::gpu::Op::ConvertLayout(_)
    };
    // Accesses of global memory.
    (global) => {
        $crate::gpu::Op::LoadGlobal { .. } | $crate::gpu::Op::StoreGlobal { .. } | $crate::gpu::Op::Copy { .. }
    };
    // Accesses of shared memory by threads.
    (shared) => {
        $crate::gpu::Op::LoadShared(_)
            | $crate::gpu::Op::LoadMatrix { .. }
            | $crate::gpu::Op::StoreShared { .. }
            | $crate::gpu::Op::ZeroShared(_)
    };
    // Sums over the CTAs of a cluster.
    (clusters) => {
        $crate::gpu::Op::SumCluster(..)
    };
    // Products and what waits for them.
    (products) => {
        $crate::gpu::Op::Mma { .. } | $crate::gpu::Op::WaitMma(..)
    };
    // The protocol of rings.
    (rings) => {
        $crate::gpu::Op::Acquire(..)
            | $crate::gpu::Op::Commit(..)
            | $crate::gpu::Op::Wait(..)
            | $crate::gpu::Op::Release(_)
            | $crate::gpu::Op::Drain(_)
            | $crate::gpu::Op::InitRing(_)
    };
    // What orders accesses to memory besides.
    (orders) => {
        $crate::gpu::Op::CopyWait(_)
            | $crate::gpu::Op::StoreWait(_)
            | $crate::gpu::Op::Barrier
            | $crate::gpu::Op::WarpgroupBarrier
            | $crate::gpu::Op::SumSplits(_)
            | $crate::gpu::Op::Fence(_)
    };
    // Bodies and their ends.
    (control) => {
        $crate::gpu::Op::Loop { .. }
            | $crate::gpu::Op::Programs(_)
            | $crate::gpu::Op::If(..)
            | $crate::gpu::Op::Once(_)
            | $crate::gpu::Op::Yield(_)
    };
    ($first:ident $($other:ident)+) => {
        $crate::gpu_ops!($first) $(| $crate::gpu_ops!($other))+
    };
}
