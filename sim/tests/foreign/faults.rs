//! The same kernels with one thing broken in the text: the simulator must find each under some policy.

use crate::harness::{self, Failure, SCHEDULES};
use crate::setup::Setup;
use crate::{elementwise, hopper, index, integers, products, rows};
use atlas_sim::fault::FaultKind::{self, *};

/// The occurrences of a text that are replaced.
pub(crate) enum Which {
    All,
    /// Counted from 0.
    Nth(usize),
}
use Which::{All, Nth};

/// A replacement, and the kinds of fault that the simulator may report.
type Break = (fn() -> Setup, Which, &'static str, &'static str, &'static [FaultKind]);

pub(crate) fn edited(text: &str, which: &Which, from: &str, to: &str) -> String {
    let places: Vec<usize> = text.match_indices(from).map(|m| m.0).collect();
    assert!(!places.is_empty(), "no {from:?}");
    match which {
        All => text.replace(from, to),
        Nth(n) => {
            let at = places[*n];
            format!("{}{to}{}", &text[..at], &text[at + from.len()..])
        }
    }
}

/// The first fault that any schedule finds.
pub(crate) fn found(setup: &Setup, edit: impl Fn(&str) -> String) -> Option<Failure> {
    let kernel = index::kernel(setup.name);
    let program = match harness::compile(&edit(&kernel.text), &kernel.entry) {
        Ok(program) => program,
        Err(fault) => return Some(Failure::Fault(Box::new(fault))),
    };
    SCHEDULES.into_iter().find_map(|(policy, seed)| harness::execute(setup, &kernel, &program, policy, seed).err())
}

fn all_found(table: &[Break]) {
    let wrong = table.iter().filter_map(|(setup, which, from, to, kinds)| {
        let setup = setup();
        let found = match found(&setup, |text| edited(text, which, from, to)) {
            Some(Failure::Fault(fault)) if kinds.contains(&fault.kind) => return None,
            Some(Failure::Fault(fault)) => format!("{:?}: {fault}", fault.kind),
            Some(Failure::Result(message)) => message,
            None => "nothing".to_owned(),
        };
        Some(format!("{}, {from:?} -> {to:?}: instead of one of {kinds:?} {found}", setup.name))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn missing_barriers_are_races() {
    all_found(&[
        (rows::softmax_rows, Nth(0), "bar.sync \t0;", "", &[Race, UninitializedRead]),
        (rows::softmax_rows, Nth(1), "bar.sync \t0;", "", &[Race]),
        (rows::softmax_rows, Nth(2), "bar.sync \t0;", "", &[Race]),
        (integers::histogram, Nth(0), "bar.sync \t0;", "", &[Race, UninitializedRead]),
        (integers::histogram, Nth(1), "bar.sync \t0;", "", &[Race]),
        (products::sgemm_tiled, Nth(0), "bar.sync \t0;", "", &[Race, UninitializedRead]),
        (products::sgemm_tiled, Nth(1), "bar.sync \t0;", "", &[Race]),
        (rows::cluster_reduce, Nth(0), "barrier.cluster.wait;", "", &[Race, UninitializedRead, Illegal, Divergent]),
        (products::mma_cp_async, Nth(1), "bar.sync \t0;", "", &[Race, InFlight]),
    ]);
}

#[test]
fn weak_accesses_across_the_grid_need_both_fences() {
    let weak = |text: &str| text.replace(".volatile.", ".");
    let fault = found(&rows::last_block(), weak);
    assert!(fault.is_none(), "fences around the counter order the parts: {fault:?}");
    for which in [Nth(0), Nth(1)] {
        let fault = found(&rows::last_block(), |text| edited(&weak(text), &which, "membar.gl;", ""));
        let Some(Failure::Fault(fault)) = fault else { panic!("a race") };
        assert_eq!(fault.kind, Race);
    }
    // Counting without atomicity.
    let plain = |text: &str| text.replace("atom.shared.add.u32", "ld.shared.u32").replace("], 1;", "];");
    assert!(found(&integers::histogram(), plain).is_some());
}

#[test]
fn asynchronous_operations_must_be_waited_for() {
    all_found(&[
        (products::mma_cp_async, All, "cp.async.wait_group 1;", "cp.async.wait_group 2;", &[InFlight]),
        (products::mma_cp_async, All, "cp.async.wait_group 1;", "", &[InFlight, UninitializedRead]),
        (products::wgmma_tma, All, "wgmma.wait_group.sync.aligned 0;", "", &[InFlight]),
        (products::wgmma_tma, All, "wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", &[InFlight]),
        (hopper::bulk_copy, All, "cp.async.bulk.wait_group.read 1;", "cp.async.bulk.wait_group.read 2;", &[InFlight]),
        (products::wgmma_specialised, All, "cp.async.bulk.wait_group.read 0;", "", &[InFlight]),
        (elementwise::barrier_copy, All, "cp.async.mbarrier.arrive.shared.b64 [%r21];", "", &[InFlight]),
    ]);
}

#[test]
fn barriers_must_count_right() {
    all_found(&[
        (hopper::bulk_copy, All, "mbarrier.arrive.shared::cta.b64 _, [%r82];", "", &[Deadlock]),
        (products::wgmma_tma, All, "%r29, 16384;", "%r29, 32768;", &[Deadlock, Phase]),
        (products::wgmma_tma, All, "%r29, 16384;", "%r29, 8192;", &[Phase, InFlight]),
        (hopper::multicast, All, "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];", "", &[Deadlock]),
        (hopper::multicast, Nth(0), "barrier.cluster.wait.aligned;", "", &[Race, NotABarrier, Illegal, Divergent]),
    ]);
}

#[test]
fn proxies_need_their_fence() {
    let fence = "fence.proxy.async.shared::cta;";
    all_found(&[
        (products::wgmma_specialised, All, fence, "", &[MissingProxyFence]),
        (hopper::bulk_copy, All, fence, "", &[MissingProxyFence]),
        (rows::bulk_reduce, All, fence, "", &[MissingProxyFence]),
        (products::triton_matmul_tma, All, fence, "", &[MissingProxyFence]),
    ]);
}

#[test]
fn memory_is_checked() {
    all_found(&[
        (elementwise::vector_add, All, "setp.ge.s32", "setp.gt.s32", &[OutOfBounds]),
        (elementwise::saxpy, All, "ld.global.f32", "ld.global.nc.f32", &[ReadOnly]),
        (integers::histogram, All, "st.shared.u32 \t[%r16], %r17;", "", &[UninitializedRead]),
        (integers::bitonic_sort, All, "ld.global.u16", "ld.global.u32", &[OutOfBounds, Misaligned, Syntax]),
    ]);
}
