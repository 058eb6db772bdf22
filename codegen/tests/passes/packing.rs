//! Which operands are packed, and what then reads the workspaces.

use atlas_codegen::packing::{LaunchKernels, pack, packer_schedule};
use atlas_codegen::pipeline::run;
use atlas_codegen::{Target, explain};
use atlas_dsl::op::Precision;
use atlas_dsl::{DType, Kernel, Op, Verified, parse_kernel, verify};

const GEMM: &str = include_str!("../../../tests/cases/tile/gemm.tile");

const HOPPER: Target = Target { sm: 90, specific: true };

fn kernel(text: &str) -> Verified<Kernel> {
    parse_kernel(text).and_then(verify).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn packed(text: &str, target: Target) -> Option<LaunchKernels> {
    pack(&kernel(text), target).unwrap()
}

/// For each workspace: its tensor, its element type and its contiguous axis.
fn workspaces(text: &str) -> Vec<(String, DType, u8)> {
    let Some(packed) = packed(text, HOPPER) else { return Vec::new() };
    let name = |p| packed.kernel.params[p].name.clone();
    packed.workspaces.iter().map(|w| (name(w.of), w.dtype, w.innermost)).collect()
}

/// The products of a kernel: element type of the operands, and precision.
fn products(k: &Kernel) -> Vec<(DType, Precision)> {
    let dot = |op: &Op| match *op {
        Op::Dot { a, precision, .. } => Some((k.ty(a).dtype, precision)),
        _ => None,
    };
    k.insts.values().filter_map(dot).collect()
}

#[test]
fn what_the_engine_takes_stays_where_it_is() {
    assert_eq!(workspaces(GEMM), []);
    // The engine takes columns too.
    let by_columns = GEMM.replace("%a: bf16[M, K] strides [?8, 1]", "%a: bf16[M, K] strides [1, ?8]");
    assert_eq!(workspaces(&by_columns), []);
}

#[test]
fn what_it_does_not_take_is_packed() {
    let a = |to: &str| GEMM.replace("%a: bf16[M, K] strides [?8, 1] align 16", &format!("%a: bf16[M, K] {to}"));
    for (to, innermost) in [
        ("strides [?4, 1] align 16", 1),
        ("strides [?8, 1] align 8", 1),
        ("strides [1, ?4] align 16", 0),
        ("strides [?8, ?8] align 16", 1),
        ("strides [-64, 1] align 16", 1),
    ] {
        assert_eq!(workspaces(&a(to)), [("a".to_owned(), DType::Bf16, innermost)], "{to}");
    }
    let both = GEMM.replace("strides [?8, 1] align 16", "strides [?2, 1] align 4");
    assert_eq!(workspaces(&both).len(), 2);
    // No copy engine.
    assert!(packed(&both, Target { sm: 80, specific: false }).is_none());
    // A tensor that the kernel also writes changes while it runs.
    let updated = GEMM
        .replace("%a: bf16[M, K] strides [?8, 1]", "%a: out bf16[M, K] strides [?4, 1]")
        .replace("store %c", "%z = splat 0.0 : bf16[128]\n  store %c");
    assert!(parse_kernel(&updated).and_then(verify).is_err(), "an output is stored to");
}

#[test]
fn split_numbers_are_packed_as_pairs() {
    let of = |precision: &str| {
        GEMM.replace("bf16", "f32")
            .replace("dot %at, %btt acc %x", &format!("dot %at, %btt acc %x precision {precision}"))
    };
    for (precision, dtype, narrow) in
        [("bf16x3", DType::Bf16, Precision::Default), ("tf32x3", DType::F32, Precision::Tf32)]
    {
        let Some(packed) = packed(&of(precision), HOPPER) else { panic!("{precision} is not packed") };
        assert_eq!((packed.workspaces.len(), packed.packers.len()), (4, 2));
        assert!(packed.workspaces.iter().all(|w| w.dtype == dtype && w.innermost == 1));
        assert_eq!(products(&packed.kernel), [(dtype, narrow); 3]);
        // Nothing loads the operands themselves any more.
        let loads = packed.kernel.insts.values().filter_map(|op| match op {
            Op::Load { param, .. } => Some(packed.kernel.params[*param].name.clone()),
            _ => None,
        });
        let mut loads: Vec<String> = loads.collect();
        loads.sort();
        assert_eq!(loads, ["a_high", "a_low", "b_high", "b_low"]);
        for packer in &packed.packers {
            run(packer, &packer_schedule(), HOPPER, |_, _| {}).unwrap();
        }
    }
    // An exact product splits nothing, and one of tf32 is made of f32 that run along K.
    assert_eq!(workspaces(&GEMM.replace("bf16", "f32")), []);
    assert_eq!(workspaces(&of("tf32")), []);
    let along_m = of("tf32").replace("%a: f32[M, K] strides [?8, 1]", "%a: f32[M, K] strides [1, ?8]");
    assert_eq!(workspaces(&along_m), [("a".to_owned(), DType::F32, 1)]);
}

/// A kernel whose tiles two products read, each at a precision of its own.
fn twice(first: &str, second: &str) -> String {
    GEMM.replace("bf16", "f32")
        .replace("128", "64")
        .replace("256", "64")
        .replace(
            "    yield %sum\n",
            &format!("    %more = dot %at, %btt acc %sum precision {second} : f32[64, 64]\n    yield %more\n"),
        )
        .replace("dot %at, %btt acc %x", &format!("dot %at, %btt acc %x precision {first}"))
}

#[test]
fn each_product_keeps_its_precision() {
    use Precision::{Bf16x3, Default, Tf32, Tf32x3};
    let of = |first, second| packed(&twice(first, second), HOPPER).map(|packed| products(&packed.kernel));
    let narrow = [(DType::Bf16, Default); 3];
    assert_eq!(of("bf16x3", "bf16x3").unwrap(), [narrow, narrow].concat());
    assert_eq!(of("bf16x3", "default").unwrap(), [&narrow[..], &[(DType::F32, Default)]].concat());
    assert_eq!(of("default", "bf16x3").unwrap(), [&[(DType::F32, Default)], &narrow[..]].concat());
    assert_eq!(of("bf16x3", "tf32x3").unwrap(), [&narrow[..], &[(DType::F32, Tf32x3)]].concat());
    assert_eq!(of("tf32x3", "tf32").unwrap(), [(DType::F32, Tf32); 4]);
    // Numbers are split in both operands of a product or in none: another product needs the right one in other rows.
    let conflict = twice("tf32", "bf16x3").replace("%b: f32[N, K] strides [?8, 1]", "%b: f32[N, K] strides [1, ?8]");
    let Some(packed) = packed(&conflict, HOPPER) else { panic!("the right operand of tf32 is packed") };
    assert_eq!(packed.workspaces.len(), 1);
    assert_eq!(products(&packed.kernel), [(DType::F32, Tf32), (DType::F32, Bf16x3)]);
}

#[test]
fn rows_of_a_workspace_are_lines() {
    let packed = packed(&GEMM.replace("[?8, 1]", "[?4, 1]"), HOPPER).unwrap();
    let w = &packed.workspaces[0];
    assert_eq!((w.strides(&[70, 300]), w.bytes(&[70, 300])), (vec![320, 1], 70 * 640));
    assert_eq!((w.strides(&[70, 0]), w.bytes(&[70, 0])), (vec![64, 1], 70 * 128));
    assert_eq!(w.bytes(&[u64::MAX, 300]), u64::MAX);
}

#[test]
fn it_is_explained() {
    let text = GEMM.replace("bf16[M, K] strides [?8, 1]", "bf16[M, K] strides [?4, 1]");
    let config: atlas_dsl::Config = "stages=3 warps=8 operands=packed".parse().unwrap();
    let explained = explain(&kernel(&text), &config.schedule, HOPPER).unwrap().to_string();
    assert!(
        explained.contains("pack a") && explained.contains("in a_packed, bf16 contiguous along axis 1"),
        "{explained}"
    );
    assert!(!explained.contains("address or strides are no multiples of 16 bytes"), "{explained}");
}
