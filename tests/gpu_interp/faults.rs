//! Each fault of the GPU IR interpreter, with a kernel that causes it.

use crate::gpu_interp::trial::{Trial, manners};
use atlas_codegen::gpu::{Constructs, parse_gpu};
use atlas_dsl::{parse_kernel, verify};

/// Y = X · X, by one tile.
const PRODUCT: &str = "
kernel @product(%x: f32[M, D], %y: out f32[M, D])
dims M: ?4, D = 8
grid (%n) = (tiles(M, 8)) {
  %a = load %x[%n : 8, ..] : f32[8, 8]
  %b = dot %a, %a : f32[8, 8]
  store %y[%n : 8, ..], %b
}
";

/// The same through a ring of two stages, with a buffer that could overlap it.
const LOWERED: &str = "
gpu @product sm_80 threads 32 (
  %x: f32[M, D] strides [8, 1] align 16,
  %y: out f32[M, D] strides [8, 1] align 16,
)
dims M: ?4, D = 8
layout #0 = [8, 8] threads (8:1@1, 4:1@0) regs (2:4@0)
buffer %X: shared f32 [2] [8, 8] pitch 32 swizzle<0,4,3> at 0
buffer %Y: shared f32 [1] [8, 8] pitch 32 swizzle<0,4,3> at 512
ring %ring0: stages 2 over (%X)
programs (%0) = linear (tiles(M, 8))
role all scope cta {
  %1: i32 = const 0.0
  %2: token %ring0 = acquire %ring0, %1
  copy cp.async.16 %x[%0 : 8, 0 ..+ 8] -> %X[%2]
  commit %ring0, %2
  %3: token %ring0 = wait %ring0, %1
  %4: inflight f32 #0 = mma fma.f32 [8, 8, 8] %X[%3], %X[%3]
  %5: f32 #0 = wait.mma %4, 0
  store.shared %Y, %5
  %6: f32 #0 = load.shared %Y
  %7: f32 #0 = load.shared %X[%3]
  release %3
  store.global %y[%0 : 8, 0 ..+ 8], %6
}
";

/// A part of the text, its replacement, the resulting fault, and its instruction.
const FAULTS: [(&str, &str, &str, &str); 18] = [
    ("  commit %ring0, %2\n", "", "wait %ring0, %1", "slot 0 was never committed"),
    ("wait %ring0, %1", "wait %ring0, %0", "wait %ring0, %0", "slot 1 was never committed"),
    ("  commit", "  %9: f32 #0 = load.shared %X[%2]\n  commit", "load.shared", "was acquired, not waited for"),
    ("  %3: ", "  copy cp.async.16 %x[%0 : 8, 0 ..+ 8] -> %X[%2]\n  %3: ", "copy", "slot 0 is committed"),
    ("  %4: ", "  %9: token %ring0 = acquire %ring0, %1\n  %4: ", "acquire", "slot 0 is filled and was never released"),
    ("  commit", "  %9: token %ring0 = acquire %ring0, %1\n  commit", "acquire", "acquired and was never committed"),
    ("  %5: ", "  release %3\n  %5: ", "wait.mma", "slot 0 is released"),
    ("  release %3\n", "  release %3\n  release %3\n", "release", "slot 0 is released"),
    (
        "commit %ring0, %2",
        "%9: i32 = const 1.0\n  %10: token %ring0 = acquire %ring0, %9\n  commit %ring0",
        "commit",
        "2 slots at once",
    ),
    ("wait %ring0, %1", "wait %ring0 slot %0", "wait %ring0 slot %0", "slot 1 was never committed"),
    (
        "  %3: token %ring0 = wait %ring0, %1",
        "  %9: i32 = const 2.0\n  %3: token %ring0 = wait %ring0 slot %9",
        "wait",
        "slot 2 of a ring of 2",
    ),
    (
        "  release %3",
        "  %9: i32 = const 2.0\n  %10: token %ring0 = wait %ring0, %9\n  release %3",
        "wait",
        "holds iteration 0, not 2",
    ),
    ("wait.mma %4, 0", "wait.mma %4, 1", "wait.mma", "leaves 1 products in flight"),
    ("store.shared %Y, %5", "store.shared %Y, %4", "store.shared", "in flight, and nothing waited for it"),
    ("  store.shared %Y, %5\n", "", "load.shared", "row 0 and column 0 of `Y`, which nothing wrote"),
    ("at 512", "at 0", "load.shared %X", "over which `Y` was written"),
    ("%x[%0 : 8,", "%x[%0 : 8 in_bounds,", "copy", "is not in_bounds"),
    ("%x[%0 : 8,", "%x[%1 : 8,", "", "elements of `y` are wrong"),
];

#[test]
fn each_fault_names_its_instruction() {
    let kernel = parse_kernel(PRODUCT).and_then(verify).unwrap_or_else(|e| panic!("{e}"));
    let trial = Trial::new(&kernel, &[("M", 20)]);
    let run = |text: &str| -> Vec<String> {
        let k = parse_gpu(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let all = manners(&k, Constructs::BARE_WAITS).into_iter();
        all.filter_map(|manner| trial.execute(&k, manner).err()).map(|fault| fault.to_string()).collect()
    };
    assert_eq!(run(LOWERED), [""; 0]);
    for (old, new, at, fault) in FAULTS {
        assert!(LOWERED.contains(old), "{old}");
        let said = run(&LOWERED.replacen(old, new, 1));
        let names = |said: &String| said.contains(at) && said.contains(fault);
        assert!(said.iter().any(names), "`{new}` for `{old}`: {said:?}");
    }
}
