//! Order between CTAs and between threads: acquire, release, fences, atomics and their scopes.

use super::plant::{Plant, all_found, drop, swap};
use atlas_sim::fault::FaultKind::*;

const ACQUIRE: &str = "ld.acquire.gpu.global.b32";
const RELEASE: &str = "st.release.gpu.global.b32";
const ARRIVE: &str = "@%leader atom.acq_rel.gpu.global.inc.u32";

const ORDER: &[Plant] = &[
    Plant("a flag is read without acquiring", "flag", &[swap(ACQUIRE, "ld.relaxed.gpu.global.b32")], &[Race]),
    Plant("a flag is read as volatile", "flag", &[swap(ACQUIRE, "ld.volatile.global.b32")], &[Race]),
    Plant("a flag is read as data", "flag", &[swap(ACQUIRE, "ld.global.b32")], &[Race]),
    Plant("a flag is set without releasing", "flag", &[swap(RELEASE, "st.relaxed.gpu.global.b32")], &[Race]),
    Plant("a flag is set as data", "flag", &[swap(RELEASE, "st.global.b32")], &[Race]),
    Plant("it is set for the CTA only", "flag", &[swap(RELEASE, "st.release.cta.global.b32")], &[Race]),
    Plant("it is acquired for the CTA only", "flag", &[swap(ACQUIRE, "ld.acquire.cta.global.b32")], &[Race]),
    Plant("it is set before all have stored", "flag", &[drop("bar.sync 0;")], &[Race]),
    Plant("nobody waits for it", "flag", &[drop("@%p bra $spin;")], &[Race, UninitializedRead]),
    Plant(
        "no fence before the last CTA is found",
        "last_block",
        &[swap("st.volatile.global", "st.global"), swap("ld.volatile.global", "ld.global"), drop("membar.gl;").nth(0)],
        &[Race],
    ),
    Plant(
        "no fence after the last CTA is found",
        "last_block",
        &[swap("st.volatile.global", "st.global"), swap("ld.volatile.global", "ld.global"), drop("membar.gl;").nth(1)],
        &[Race],
    ),
    Plant(
        "fences of the CTA in their place",
        "last_block",
        &[
            swap("st.volatile.global", "st.global"),
            swap("ld.volatile.global", "ld.global"),
            swap("membar.gl;", "membar.cta;").nth(0),
        ],
        &[Race],
    ),
    Plant(
        "CTAs count with atomics of a CTA",
        "last_block",
        &[swap("atom.global.inc.u32", "atom.global.cta.inc.u32")],
        &[Race],
    ),
    Plant(
        "the CTAs of a program arrive without an order",
        "split_sum",
        &[swap(ARRIVE, "@%leader atom.relaxed.gpu.global.inc.u32")],
        &[Race],
    ),
    Plant(
        "they arrive without saying of an order",
        "split_sum",
        &[swap(ARRIVE, "@%leader atom.global.inc.u32")],
        &[Race],
    ),
    Plant(
        "they arrive without releasing",
        "split_sum",
        &[swap(ARRIVE, "@%leader atom.acquire.gpu.global.inc.u32")],
        &[Race],
    ),
    Plant(
        "they arrive without acquiring",
        "split_sum",
        &[swap(ARRIVE, "@%leader atom.release.gpu.global.inc.u32")],
        &[Race],
    ),
    Plant(
        "they arrive in the order of a CTA",
        "split_sum",
        &[swap(ARRIVE, "@%leader atom.acq_rel.cta.global.inc.u32")],
        &[Race],
    ),
    Plant(
        "only a fence after a relaxed arrival",
        "split_sum",
        &[
            swap(ARRIVE, "@%leader atom.relaxed.gpu.global.inc.u32"),
            swap("setp.eq.u32 %mine,", "fence.acq_rel.gpu;\n\tsetp.eq.u32 %mine,"),
        ],
        &[Race],
    ),
    Plant("a CTA arrives before all have stored", "split_sum", &[drop("bar.sync 0;")], &[Race]),
    Plant("a CTA that is not the last adds", "split_sum", &[drop("@!%last bra $end;")], &[Race, UninitializedRead]),
    Plant(
        "only the thread that counts knows",
        "split_sum",
        &[swap("@!%last bra", "@!%mine bra"), swap("barrier.cta.red.or.pred.aligned %last, 0, %mine;", "")],
        &[],
    ),
    Plant(
        "the count wraps one arrival too late",
        "split_sum",
        &[swap("%before, [%arrivals], 2;", "%before, [%arrivals], 3;")],
        &[],
    ),
    Plant(
        "CTAs add with atomics of a CTA",
        "histogram",
        &[swap("atom.global.add.u32", "atom.global.cta.add.u32")],
        &[Race],
    ),
    Plant(
        "a histogram is counted without atomics",
        "histogram",
        &[swap(
            "atom.shared.add.u32 \t%r23, [%r22], 1;",
            "ld.shared.u32 \t%r23, [%r22];\n\tadd.u32 \t%r23, %r23, 1;\n\tst.shared.u32 \t[%r22], %r23;",
        )],
        &[Race],
    ),
    Plant("a lock is taken without a fence", "atomics", &[drop("membar.gl;").nth(0)], &[Race]),
    Plant("a lock is given back without a fence", "atomics", &[drop("membar.gl;").nth(1)], &[Race]),
    Plant(
        "a lock is given back by a store",
        "atomics",
        &[swap("atom.global.exch.b32 \t%r36, [%rd1], 0;", "st.global.b32 \t[%rd1], 0;")],
        &[Race],
    ),
    Plant("what is written is read as constant", "saxpy", &[swap("ld.global.f32", "ld.global.nc.f32")], &[ReadOnly]),
];

#[test]
fn order() {
    all_found("order", ORDER);
}
