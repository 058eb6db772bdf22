//! Tiles whose number is the caller's: one that counts no tile of a dim selects nothing, whatever its product with the tile's
//! size is in 32 bits. Threads check the number; for the copy engine, the coordinate has to lie outside.

use atlas_dsl::config::Copies;
use atlas_dsl::{Schedule, parse_kernel, verify};

const PRODUCT: &str = "kernel @product(
  %a: bf16[N, K] strides [128, 1] align 16,
  %b: bf16[P, K] strides [128, 1] align 16,
  %c: out f32[N, P] strides [64, 1] align 16,
  %t: i32,
)
dims N = 64, P = 64, K = 128
grid (%n, %p) = (tiles(N, 64), tiles(P, 64)) {
  %acc0 = splat 0.0 : f32[64, 64]
  %from = scalar %t : i32
  %one = splat 1 : i32
  %to = add %from, %one : i32
  %acc = pipeline %k in %from..%to carry (%x = %acc0) {
    %at = load %a[%n : 64, %k : 64] : bf16[64, 64]
    %bt = load %b[%p : 64, %k : 64] : bf16[64, 64]
    %btt = transpose %bt : bf16[64, 64]
    %sum = dot %at, %btt acc %x : f32[64, 64]
    yield %sum
  }
  store %c[%n : 64, %p : 64], %acc
}
";

const COPY: &str = "kernel @copy(
  %x: bf16[M, N] strides [64, 1] align 16,
  %y: out bf16[M, N] strides [64, 1] align 16,
  %t: i32,
)
dims M = 128, N = 64
grid (%n) = (tiles(N, 64)) {
  %first = scalar %t : i32
  %one = splat 1 : i32
  %end = add %first, %one : i32
  loop %m in %first..%end carry () {
    %v = load %x[%m : 64, %n : 64] : bf16[64, 64]
    %w = neg %v : bf16[64, 64]
    store %y[%m : 64, %n : 64], %w
    yield
  }
}
";

/// Copies by the engine in the PTX for Hopper, and whether a coordinate may be the one outside of every tensor.
fn engine(text: &str, schedule: Schedule) -> (bool, bool) {
    let kernel = parse_kernel(text).and_then(verify).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let target: atlas_codegen::Target = "sm_90a".parse().unwrap();
    let image = atlas_codegen::compile(&kernel, &schedule, target).unwrap_or_else(|e| panic!("{e}"));
    (image.ptx.contains("cp.async.bulk.tensor"), image.ptx.contains("1073741824"))
}

#[test]
fn a_number_that_counts_no_tile_selects_nothing() {
    let copies = Schedule { stages: 3, warps: 4, copies: Some(Copies::Engine), ..Schedule::default() };
    let stores = Schedule { warps: 4, stores: Some(Copies::Engine), ..Schedule::default() };
    assert_eq!((engine(PRODUCT, copies), engine(COPY, stores)), ((true, true), (true, true)));
    // Numbers of the dim itself need no check.
    let all = |text: &str, dim: &str| {
        let text = text.replace(" = scalar %t : i32", " = splat 0 : i32");
        let end = format!(" = tiles({dim}, 64)");
        text.replace(" = add %from, %one : i32", &end).replace(" = add %first, %one : i32", &end)
    };
    assert_eq!((engine(&all(PRODUCT, "K"), copies), engine(&all(COPY, "M"), stores)), ((true, false), (true, false)));
}
