//! `select_cache_hints`: which lines the L2 cache keeps, and which ones it gives up first.
//!
//! Needs: lowered tiles, and copies with an atom. Establishes: a kernel that loads one tensor and writes another prefers to keep the
//! lines it loads, so that written lines go to DRAM early and in long runs. What the copy engine reads once gives its lines up
//! first, so that it replaces neither what is read again nor the lines that the kernel before has written. Never: touches reads of
//! tensors that the kernel writes, or reads that have a hint already. Refuses: nothing. Constructs: removes nothing; adds hints.
//!
//! # Promise
//! No value changes. A hint only says which lines to evict first.
//!
//! # Argument
//! `EvictLast` and `EvictFirst` become eviction policies of `ld.global` and of `cp.async.bulk.tensor`, which the PTX ISA calls
//! performance hints. The reads keep their place, their predicates and their bytes. Other things do depend on a tensor being
//! read-only: `ld.global.nc`, loads that are issued early, and loads that are repeated (`split_casts`). They are correct because
//! the runtime refuses a launch in which a written tensor shares a byte with another (tile-interp/src/overlap.rs), and they use the
//! same `is_read_only`.
//!
//! # Breaks it
//! - A tensor that is read and written, loaded early: tests/agreement/wrong_code.rs::in_place_at_any_size.
//! - A written tensor that shares bytes with one that is read: runtime/tests/suite/binding.rs::an_output_shares_no_memory.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::analysis::read_once;
use crate::gpu::{Cache, CopyAtom, Kernel, Op};
use atlas_dsl::Param;
use atlas_dsl::ir::Loc;

/// Marks the loads of read-only tensors, and the copies by the engine of those that are read once.
pub fn select_cache_hints(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let once = read_once(k);
    let params = &k.params;
    for op in k.insts.values_mut() {
        if let Op::LoadGlobal { param, cache: cache @ Cache::Normal, .. } = op {
            if params[*param].kind.is_read_only() {
                *cache = Cache::EvictLast;
            }
        } else if let Op::Copy { atom: CopyAtom::Tma(_, cache @ Cache::Normal), param, .. } = op
            && once.contains(param)
        {
            *cache = Cache::EvictFirst;
        }
    }
    for (param, data) in &k.params {
        let has = |of: &dyn Fn(&Op) -> Option<Param>| k.insts.values().any(|op| of(op) == Some(param));
        let mut note = |decision: &str, because: &str| {
            let said = || (decision.to_owned(), because.to_owned());
            cx.notes.push(format!("cache {}", data.name), Loc::default(), said);
        };
        if has(&kept) {
            note("its lines leave L2 last", "the kernel only reads it");
        }
        if has(&given_up) {
            note("its lines leave L2 first", "the copy engine reads each element once");
        }
    }
    Ok(())
}

/// The tensor of a load whose lines are kept.
fn kept(op: &Op) -> Option<Param> {
    if let Op::LoadGlobal { param, cache: Cache::EvictLast, .. } = op { Some(*param) } else { None }
}

/// The tensor of a copy by the engine whose lines are not.
fn given_up(op: &Op) -> Option<Param> {
    if let Op::Copy { atom: CopyAtom::Tma(_, Cache::EvictFirst), param, .. } = op { Some(*param) } else { None }
}
