//! Instructions on targets, and in versions of PTX, that lack them.

use super::{DECLARED, compile_module};
use crate::alu::Arithmetic;
use crate::decode;
use crate::syntax::parse;

/// The message of the fault in an entry of this body, for a target and a version of PTX.
fn error(target: &str, version: &str, directives: &str, body: &str) -> Option<String> {
    let text = format!(
        ".version {version}\n.target {target}\n.address_size 64\n.visible .entry k() {directives} {{ {DECLARED}\n{body}\n}}"
    );
    let module = parse(&text).unwrap_or_else(|f| panic!("{f}"));
    decode::compile(&module, None, Arithmetic::Ieee).err().map(|f| f.message)
}

const WGMMA: &str = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {r0, r1, r2, r3}, d0, d1, 1, 1, 1, 0, 0;";
const TILE: &str =
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [r0], [d0, {r1, r2}], [r3];";
const FLAT: &str = "cp.async.bulk.global.shared::cta.bulk_group [d0], [r0], 64;";
const WAIT: &str = "mbarrier.try_wait.parity.shared::cta.b64 p0, [r0], r1;";
const MMA: &str =
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {r0,r1,r2,r3}, {r4,r5,r6,r7}, {r8,r9}, {r0,r1,r2,r3};";
const FP8: &str =
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {r0,r1,r2,r3}, {r4,r5,r6,r7}, {r8,r9}, {r0,r1,r2,r3};";
const LOAD: &str = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r0, r1, r2, r3}, [r4];";
const STORE: &str = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [r4], {r0, r1, r2, r3};";
const COPY: &str = "cp.async.cg.shared.global [r0], [d0], 16;";
const REGISTERS: &str = "setmaxnreg.inc.sync.aligned.u32 240;";
const REDUX: &str = "redux.sync.add.u32 r0, r1, r2;";
const ELECT: &str = "elect.sync r0|p0, r1;";
const RANK: &str = "mov.u32 r0, %cluster_ctarank;";
const MEET: &str = "barrier.cluster.arrive;";

/// An instruction, targets that have it, and targets that lack it.
const TARGETS: &[(&str, &[&str], &[&str])] = &[
    (WGMMA, &["sm_90a"], &["sm_80", "sm_90", "sm_100a", "sm_120a"]),
    ("wgmma.fence.sync.aligned;", &["sm_90a"], &["sm_90", "sm_100a"]),
    (TILE, &["sm_90", "sm_90a", "sm_100a", "sm_120"], &["sm_80", "sm_89"]),
    (FLAT, &["sm_90", "sm_90a", "sm_100f"], &["sm_80", "sm_89"]),
    (WAIT, &["sm_90", "sm_90a"], &["sm_80", "sm_89"]),
    ("mbarrier.init.shared::cta.b64 [r0], 1;", &["sm_80", "sm_90"], &["sm_75"]),
    ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [r0], 16;", &["sm_90"], &["sm_80"]),
    (MMA, &["sm_80", "sm_86", "sm_90"], &["sm_70", "sm_75"]),
    (FP8, &["sm_89", "sm_90a", "sm_120"], &["sm_80", "sm_86"]),
    (LOAD, &["sm_75", "sm_80", "sm_90"], &["sm_70"]),
    (STORE, &["sm_90", "sm_100"], &["sm_80", "sm_89"]),
    ("movmatrix.sync.aligned.m8n8.trans.b16 r0, r1;", &[], &["sm_70"]),
    (COPY, &["sm_80", "sm_90"], &["sm_70", "sm_75"]),
    (REGISTERS, &["sm_90a", "sm_100a", "sm_100f", "sm_120a"], &["sm_80", "sm_90", "sm_100"]),
    (REDUX, &["sm_80", "sm_90"], &["sm_75"]),
    (ELECT, &["sm_90"], &["sm_89"]),
    (RANK, &["sm_90"], &["sm_89"]),
    (MEET, &["sm_90"], &["sm_89"]),
    ("mapa.shared::cluster.u32 r0, r1, r2;", &["sm_90"], &["sm_89"]),
    ("ld.shared::cluster.u32 r0, [r1];", &["sm_90"], &["sm_89"]),
    ("fence.proxy.async.shared::cta;", &["sm_90"], &["sm_89"]),
    ("fence.mbarrier_init.release.cluster;", &["sm_90"], &["sm_89"]),
    ("fence.acq_rel.cluster;", &["sm_90"], &["sm_80"]),
    ("fence.acq_rel.gpu;", &["sm_70", "sm_80"], &[]),
    ("st.global.v8.b32 [d0], {r0, r1, r2, r3, r4, r5, r6, r7};", &["sm_100", "sm_120"], &["sm_80", "sm_90a"]),
    ("cvt.rn.satfinite.e4m3x2.f32 h0, r0, r1;", &["sm_89", "sm_90"], &["sm_80"]),
    ("cvt.rn.bf16x2.f32 r0, r1, r2;", &["sm_80"], &["sm_75"]),
    ("add.rn.bf16 h0, h1, h2;", &["sm_90"], &["sm_80", "sm_89"]),
    ("fma.rn.bf16 h0, h1, h2, h3;", &["sm_80"], &["sm_75"]),
    ("griddepcontrol.wait;", &["sm_90"], &["sm_89"]),
    ("fma.rn.f32x2 d0, d1, d2, d3;", BLACKWELL, BEFORE),
    ("add.rn.f32x2 d0, d1, d2;", BLACKWELL, BEFORE),
    ("sub.rz.ftz.f32x2 d0, d1, d2;", BLACKWELL, BEFORE),
    ("mul.f32x2 d0, d1, d2;", BLACKWELL, BEFORE),
    ("fma.rn.f32.bf16 r0, h0, h1, r1;", BLACKWELL, BEFORE),
    ("fma.rp.sat.f32.f16 r0, h0, h1, r1;", BLACKWELL, BEFORE),
    ("add.rn.f32.bf16 r0, h0, r1;", BLACKWELL, BEFORE),
    ("add.f32.f16 r0, h0, r1;", BLACKWELL, BEFORE),
    ("sub.rn.f32.bf16 r0, h0, r1;", BLACKWELL, BEFORE),
    ("sub.sat.f32.f16 r0, h0, r1;", BLACKWELL, BEFORE),
];

const BLACKWELL: &[&str] = &["sm_100", "sm_100a", "sm_103a", "sm_120a", "sm_121"];
const BEFORE: &[&str] = &["sm_75", "sm_80", "sm_89", "sm_90", "sm_90a"];

#[test]
fn targets_have_what_the_isa_says() {
    for (body, have, lack) in TARGETS {
        for target in *have {
            assert_eq!(error(target, "9.0", "", body), None, "{body} on {target}");
        }
        for target in *lack {
            let found = error(target, "9.0", "", body).unwrap_or_else(|| panic!("{target} has {body}"));
            assert!(found.starts_with("line 5: `") && found.contains(&format!("target {target} lacks it")), "{found}");
        }
    }
}

#[test]
fn the_error_names_instruction_line_and_target() {
    let rows = [
        (
            ("sm_90", "8.0", format!("\n\n{WGMMA}")),
            "line 7: `wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16`: target sm_90 lacks it; only sm_90a have it",
        ),
        (
            ("sm_89", "8.0", FLAT.to_owned()),
            "line 5: `cp.async.bulk.global.shared::cta.bulk_group`: target sm_89 lacks it; sm_90 and later have it",
        ),
        (
            ("sm_90a", "8.6", "fma.rn.f32x2 d0, d1, d2, d3;".to_owned()),
            "line 5: `fma.rn.f32x2`: target sm_90a lacks it; sm_100 and later have it",
        ),
        (
            ("sm_80", "8.6", "fma.rn.f32.bf16 r0, h0, h1, r1;".to_owned()),
            "line 5: `fma.rn.f32.bf16`: target sm_80 lacks it; sm_100 and later have it",
        ),
        (
            ("sm_90", "7.8", "fence.proxy.async;".to_owned()),
            "line 5: `fence.proxy.async`: PTX 7.8 does not know it; 8.0 does",
        ),
        (
            ("sm_89", "8.0", "cvt.rn.f16x2.e5m2x2 r0, h0;".to_owned()),
            "line 5: `cvt.rn.f16x2.e5m2x2`: PTX 8.0 does not know it; 8.1 does",
        ),
        (
            ("sm_90a", "8.0", TILE.replace("shared::cluster", "shared::cta")),
            "line 5: `cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes`: PTX 8.0 does not know it; \
             8.6 does",
        ),
    ];
    for ((target, version, body), message) in rows {
        assert_eq!(error(target, version, "", &body).as_deref(), Some(message));
    }
}

#[test]
fn versions_know_their_targets() {
    for (target, first, before) in [
        ("sm_75", "6.3", "6.2"),
        ("sm_80", "7.0", "6.5"),
        ("sm_89", "7.8", "7.7"),
        ("sm_90", "7.8", "7.4"),
        ("sm_90a", "8.0", "7.8"),
        ("sm_100a", "8.6", "8.5"),
        ("sm_120a", "8.7", "8.6"),
    ] {
        assert_eq!(error(target, first, "", "ret;"), None);
        let found = error(target, before, "", "ret;").unwrap();
        assert_eq!(found, format!("`.target {target}` is known from PTX {first} on, and this is {before}"));
    }
}

#[test]
fn clusters_need_a_target_that_has_them() {
    for directives in [".reqnctapercluster 2, 1, 1", ".explicitcluster"] {
        assert_eq!(error("sm_90", "7.8", directives, "ret;"), None);
        let found = error("sm_89", "7.8", directives, "ret;").unwrap();
        assert!(found.contains("target sm_89 lacks it"), "{found}");
    }
}

#[test]
fn words_are_whole() {
    // `.cluster` is a scope, and `L2::cache_hint` no part of another word.
    assert_eq!(error("sm_80", "7.0", "", "ld.relaxed.gpu.global.u32 r0, [d0];"), None);
    assert!(error("sm_80", "7.8", "", "ld.relaxed.cluster.global.u32 r0, [d0];").is_some());
    assert!(compile_module("", "fence.proxy.alias;").is_ok());
}
