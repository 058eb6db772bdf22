//! Synchronisation that Triton 3.6 omits and hardware tolerates. The simulator finds it in the original text, and not in the
//! fixed text.

use crate::faults::Which::All;
use crate::faults::{edited, found};
use crate::harness::{self, Failure};
use crate::setup::Setup;
use crate::{attention, index, products};
use atlas_sim::fault::FaultKind::{self, *};

fn found_until(setup: &Setup, kind: FaultKind, mend: impl Fn(&str) -> String) {
    match found(setup, str::to_owned) {
        Some(Failure::Fault(fault)) if fault.kind == kind => {}
        other => panic!("{}: {other:?} instead of {kind:?}", setup.name),
    }
    let mut kernel = index::kernel(setup.name);
    kernel.text = mend(&kernel.text);
    harness::check_kernel(setup, &kernel);
}

/// A fence of each thread for its own copies, before the barrier that lets others use them.
fn fenced(text: &str) -> String {
    let fence = |line: &str| match line.trim_start().starts_with("cp.async.wait_group") {
        true => format!("{line}\nfence.proxy.async.shared::cta;\n"),
        false => format!("{line}\n"),
    };
    text.lines().map(fence).collect()
}

/// `cp.async` writes by the generic proxy, `wgmma` reads by the asynchronous one.
#[test]
fn copies_for_wgmma_need_a_proxy_fence() {
    found_until(&products::triton_matmul_sm90(), MissingProxyFence, fenced);
    found_until(&products::triton_matmul_tf32_sm90(), MissingProxyFence, fenced);
    found_until(&attention::triton_attention_sm90(), MissingProxyFence, fenced);
}

/// All threads of the first warps store the same word for the others.
fn one_store(text: &str) -> String {
    edited(text, &All, "\tst.shared.v2.b32 \t[global_smem+65648]", "\t@%p34 st.shared.v2.b32 \t[global_smem+65648]")
}

/// Barriers that nothing waits for. They are initialised repeatedly where the operands will be, so that TMA overwrites them.
fn no_dead_barriers(text: &str) -> String {
    ["%r231", "%r233"].iter().fold(text.to_owned(), |text, register| {
        edited(&text, &All, &format!("@%p34 mbarrier.init.shared::cta.b64 [{register}], 1;"), "")
    })
}

/// The second consumer adds its 64 rows twice, and so stores in the tile below.
fn one_offset(text: &str) -> String {
    edited(text, &All, "or.b32 \t%r32, %r89, 64;", "mov.b32 \t%r32, %r89;")
}

#[test]
fn warp_specialisation_overwrites_barriers_stores_twice_and_misses_its_tile() {
    let setup = products::triton_matmul_specialised();
    found_until(&setup, NotABarrier, |text| one_offset(&one_store(&no_dead_barriers(text))));
    for mend in [|text: &str| one_offset(&no_dead_barriers(text)), |text: &str| one_store(&no_dead_barriers(text))] {
        let Some(Failure::Fault(fault)) = found(&setup, mend) else { panic!("a fault") };
        assert_eq!(fault.kind, Race, "{fault}");
    }
}
