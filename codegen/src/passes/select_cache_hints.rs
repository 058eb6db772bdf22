//! `select_cache_hints`: which loads ask the L2 cache to keep their lines.
//!
//! Needs: lowered tiles. Establishes: a kernel that reads one tensor and writes another prefers to keep the lines it reads, so
//! that written lines go to DRAM early and in long runs. Never: touches loads of tensors that the kernel writes, or loads that
//! have a hint already. Refuses: nothing. Constructs: removes nothing; adds hints.
//!
//! # Promise
//! No value changes. A hint only says which lines to evict first.
//!
//! # Argument
//! `EvictLast` becomes an eviction policy of `ld.global`, which the PTX ISA calls a performance hint. The loads keep their
//! place, their predicates and their bytes. Other things do depend on a tensor being read-only: `ld.global.nc`, loads that are
//! issued early, and loads that are repeated (`split_casts`). They are correct because the runtime refuses a launch in which a
//! written tensor shares a byte with another (tile-interp/src/overlap.rs), and they use the same `is_read_only`.
//!
//! # Breaks it
//! - A tensor that is read and written, loaded early: tests/agreement/wrong_code.rs::in_place_at_any_size.
//! - A written tensor that shares bytes with one that is read: runtime/tests/suite/binding.rs::an_output_shares_no_memory.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Cache, Kernel, Op};
use atlas_dsl::ir::Loc;

/// Marks the loads of read-only tensors.
pub fn select_cache_hints(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let insts: Vec<_> = k.insts.keys().collect();
    for inst in insts {
        if let Op::LoadGlobal { param, cache: Cache::Normal, .. } = k.insts[inst]
            && k.params[param].kind.is_read_only()
            && let Op::LoadGlobal { cache, .. } = &mut k.insts[inst]
        {
            *cache = Cache::EvictLast;
        }
    }
    for (param, data) in &k.params {
        let kept = |op: &Op| matches!(op, Op::LoadGlobal { param: p, cache: Cache::EvictLast, .. } if *p == param);
        if k.insts.values().any(kept) {
            cx.notes.push(format!("cache {}", data.name), Loc::default(), || {
                ("its lines leave L2 last".to_owned(), "the kernel only reads it".to_owned())
            });
        }
    }
    Ok(())
}
