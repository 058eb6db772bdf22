//! What a config takes at the least, against what the passes find that it takes.

use crate::kernels::{build, case, case_names, target};
use atlas::codegen::analysis::{Bounds, Placement, Uses, carried_operands, peak_registers};
use atlas::codegen::machine::{Machine, Platform};
use atlas::codegen::pipeline;
use atlas::dsl::{Config, DType, Kernel, Schedule, Verified};
use atlas::ops::cases;

/// Bounds of kernels and how often one of them was a figure of its own.
#[derive(Default)]
struct Tally {
    kernels: u32,
    registers: u32,
    shared: u32,
}

/// Fails if a bound is above what is found on a machine that holds anything.
fn compare(name: &str, kernel: &Verified<Kernel>, schedule: &Schedule, tally: &mut Tally) {
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
            found = Some(peak_registers(k) - carried_operands(k));
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

#[test]
fn no_bound_is_above_what_the_passes_find() {
    let mut tally = Tally::default();
    for p in cases::verification().iter().filter(|p| !p.dims.contains(&0)) {
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
    let Tally { kernels, registers, shared } = tally;
    assert!(kernels > 200 && registers > 50 && shared > 50, "{kernels} kernels, {registers} and {shared} bounds");
}

/// What is out of bounds is refused before it is lowered, by what it is.
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
