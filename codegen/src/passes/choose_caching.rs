//! `choose_caching`: which loads ask the L2 cache to keep their lines.
//!
//! Needs: lowered tiles. Establishes: a kernel that reads one tensor and writes another keeps what it reads in
//! preference to what it writes, so that written lines leave for DRAM early and in long runs. Never: touches loads of
//! tensors that the kernel writes, or loads that have a hint already.

use crate::gpu::{Cache, Kernel, Op};

/// Marks the loads of tensors that are only read.
pub fn choose_caching(k: &mut Kernel) {
    let insts: Vec<_> = k.insts.keys().collect();
    for inst in insts {
        if let Op::LoadGlobal { param, cache: Cache::Normal, .. } = k.insts[inst]
            && k.params[param].kind.is_read_only()
            && let Op::LoadGlobal { cache, .. } = &mut k.insts[inst]
        {
            *cache = Cache::Keep;
        }
    }
}
