//! The lower bounds of a config's resources, compared with the resources that the passes find.

use crate::kernels::{build, case, case_names, target, try_build};
use atlas_codegen::analysis::{Bounds, Placement, Uses};
use atlas_codegen::arch::{Machine, Platform};
use atlas_codegen::gpu::analysis::tile_registers;
use atlas_codegen::pipeline;
use atlas_dsl::{Config, DType, Kernel, Schedule, Verified, parse_kernel, verify};
use atlas_ops::cases;
use std::collections::HashSet;

/// How many bounds were compared, and how often a bound was exact.
#[derive(Default)]
struct BoundTally {
    kernels: u32,
    registers: u32,
    shared: u32,
}

/// Fails if a bound exceeds the resources found on a machine without limits.
fn compare(name: &str, kernel: &Verified<Kernel>, schedule: &Schedule, tally: &mut BoundTally) {
    let target = target("sm_90");
    let holds_all = Machine {
        cta_shared_bytes: u32::MAX / 4,
        sm_shared_bytes: u32::MAX / 4,
        sm_threads: 1 << 20,
        sm_registers: 1 << 30,
        ..Machine::from(target)
    };
    let uses = Uses::of(kernel);
    let Ok(placement) = Placement::of(kernel, &uses, schedule, target) else { return };
    let bounds = Bounds::of(kernel, &uses, &placement, schedule);
    let mut found = None;
    let lowered = pipeline::run(kernel, schedule, Platform { target, machine: holds_all }, |pass, k| {
        if pass == "lower_rings" {
            // The smaller of the estimates.
            found = Some(tile_registers(k, 0));
        }
    });
    if let Some(registers) = found {
        assert!(bounds.registers <= registers, "{name} with {schedule}: {bounds:?}, found {registers} registers");
        tally.registers += u32::from(bounds.registers > 0);
    }
    if let Ok(k) = lowered {
        let bytes = u64::from(k.shared_bytes());
        assert!(bounds.shared_bytes <= bytes, "{name} with {schedule}: {bounds:?}, found {bytes} bytes");
        tally.shared += u32::from(bounds.shared_bytes > 0);
        tally.kernels += 1;
    }
}

/// A loop that carries a repeated element of each row.
const REPEATED: &str = "kernel @repeated(%x: f32[N, K] strides [?8, 1] align 16, %y: out f32[N] strides [1] align 16,)
dims N: ?8, K: ?8
grid (%n) = (tiles(N, 32)) {
  %z = splat 0 : i32
  %steps = tiles(K, 16)
  %s0 = splat 0.0 : f32[32, 1024]
  %acc = loop %k in %z..%steps carry (%b = %s0) {
    %r = reduce max %b axes [1] : f32[32, 1]
    %q = broadcast %r : f32[32, 1024]
    yield %q
  }
  %m = reduce max %acc axes [1] : f32[32, 1]
  %o = reshape %m : f32[32]
  store %y[%n : 32], %o
}
";

/// A product whose loop carries operands, and another loop with more registers.
const TWO_LOOPS: &str = "kernel @two_loops(
  %a: bf16[M, K] strides [?8, 1] align 16,
  %b: bf16[K, N] strides [?8, 1] align 16,
  %s: f32,
  %c: out f32[M, N] strides [?8, 1] align 16,
  %y: out f32[M, L] strides [?8, 1] align 16,
)
dims M: ?8, N: ?8, K: ?8, L: ?8
grid (%m) = (tiles(M, 64)) {
  %acc0 = splat 0.0 : f32[64, 64]
  %zero = splat 0 : i32
  %steps = tiles(K, 64)
  %acc = pipeline %k in %zero..%steps carry (%x1 = %acc0) {
    %at = load %a[%m : 64, %k : 64] : bf16[64, 64]
    %bt = load %b[%k : 64, %zero : 64] : bf16[64, 64]
    %sum = dot %at, %bt acc %x1 : f32[64, 64]
    yield %sum
  }
  store %c[%m : 64, %zero ..+ 64], %acc
  %s0 = scalar %s : f32
  %w0 = splat 1.0 : f32[64, 320]
  %one = splat 1.0 : f32[64, 320]
  %w, %t = loop %j in %zero..%steps carry (%w1 = %w0, %t1 = %s0) {
    %w2 = add %w1, %one : f32[64, 320]
    %t2 = add %t1, %t1 : f32
    yield %w2, %t2
  }
  %tb = broadcast %t : f32[64, 320]
  %w3 = add %w, %tb : f32[64, 320]
  store %y[%m : 64, %zero ..+ 320], %w3
}";

#[test]
fn no_bound_is_above_what_the_passes_find() {
    let (mut tally, mut seen) = (BoundTally::default(), HashSet::new());
    for p in cases::verification().iter().filter(|p| !p.dims.contains(&0)) {
        // Sizes of one specialization have one kernel.
        if !seen.insert((p.kernel.name, p.kernel.specialization(p.dtype, &p.dims))) {
            continue;
        }
        for config in p.kernel.configs().iter().step_by(7) {
            if let Ok(kernel) = std::panic::catch_unwind(|| build(p, config)) {
                compare(&p.to_string(), &kernel, &config.schedule, &mut tally);
            }
        }
    }
    for name in case_names() {
        for (stages, warps) in [(1, 4), (3, 2), (4, 8)] {
            compare(&name, &case(&name), &Schedule { stages, warps, ..Schedule::default() }, &mut tally);
        }
    }
    for (name, text) in [("two loops", TWO_LOOPS), ("repeated", REPEATED)] {
        let kernel = parse_kernel(text).and_then(verify).expect("a kernel");
        for (stages, warps) in [(2, 4), (4, 8), (1, 4)] {
            compare(name, &kernel, &Schedule { stages, warps, ..Schedule::default() }, &mut tally);
        }
    }
    let BoundTally { kernels, registers, shared } = tally;
    assert!(kernels > 200 && registers > 50 && shared > 50, "{kernels} kernels, {registers} and {shared} bounds");
}

/// A record, a bundle or a caller may give any number for any knob. The result may be a refusal, but never a crash.
#[test]
fn a_knob_may_have_any_number() {
    let mut refused = 0;
    for p in cases::verification().iter().filter(|p| !p.dims.contains(&0)) {
        for knob in p.kernel.tune.iter().filter(|knob| !Schedule::KEYS.contains(&knob.name)) {
            let config = p.kernel.default_config().with(knob.name, u32::MAX);
            match try_build(p, &config) {
                Ok(kernel) => drop(pipeline::run(&kernel, &config.schedule, target("sm_90"), |_, _| {})),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 50, "{refused}");
}

/// A config that exceeds a bound is refused before it is lowered, with the reason.
#[test]
fn what_is_out_of_bounds_is_never_lowered() {
    let refused = |dims: &[u64], config: &str| {
        let problem = cases::problem("matmul", DType::Bf16, dims).expect("a kernel that ships");
        let config: Config = config.parse().expect("a config");
        let kernel = build(&problem, &config);
        let lowered = pipeline::run(&kernel, &config.schedule, target("sm_90"), |pass, _| panic!("{pass} has run"));
        lowered.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let registers = refused(&[512, 512, 512], "BM=256 BN=256 BK=32 stages=2 warps=4");
    assert!(registers.contains("the tiles that a loop carries need about 512 registers"), "{registers}");
    let shared = refused(&[512, 512, 512], "BM=128 BN=128 BK=128 stages=4 warps=8");
    assert!(shared.contains("the tiles that a loop loads need 262144 bytes"), "{shared}");
}
