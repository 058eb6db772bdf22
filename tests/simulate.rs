//! Every shipped kernel in the simulator: correct results, no faults, and only the recorded bank conflicts. The same
//! kernels with a planted mistake, which is found.

use crate::command::{folder, has, json, prints, refuses};
use atlas_codegen::Capability;
use atlas_dsl::{Config, DType};
use atlas_ops::simulate::{Cover, Job, Simulated, jobs};
use atlas_ops::{Comparison, Problem, cases};
use atlas_runtime::simulator::fault::FaultKind;
use atlas_runtime::simulator::launch::Policy;
use atlas_runtime::{
    CacheDir, Device, KernelImage, RuntimeError, SimOptions, SimRun, Store, Target, build_kernel, kernel_key,
    specialize,
};
use rayon::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The scheduling policies with their seeds.
const SCHEDULES: [(Policy, u64); 3] = [(Policy::RoundRobin, 0), (Policy::Adversarial, 1), (Policy::Random, 2)];

/// More warp instructions than any of these launches executes.
const BUDGET: u64 = 1 << 26;

fn options((policy, seed): (Policy, u64)) -> SimOptions {
    SimOptions { policy, seed, budget: BUDGET, ..SimOptions::default() }
}

/// Kernels whose stores to shared memory have bank conflicts. Most store an accumulator of f32 by vectors of 8 bytes, for which the
/// swizzle of `ldmatrix` is not made, once for each program; those with Muon on large matrices store ragged tiles of f32. The table
/// of conflicts has their counts. This list may only shrink.
const STORES_WITH_CONFLICTS: [&str; 17] = [
    "delta_factors",
    "delta_outputs",
    "delta_rule",
    "delta_states",
    "matmul_tf32",
    "omega_muon_gated_wide",
    "omega_muon_linear_wide",
    "omega_muon_normed_wide",
    "omega_muon_tokens_gated_wide",
    "omega_muon_tokens_linear_wide",
    "omega_muon_tokens_normed_wide",
    "omega_muon_tokens_wide",
    "omega_muon_wide",
    "omega_normed_read_backward",
    "omega_normed_train_backward",
    "omega_step_backward",
    "ttt_linear",
];

/// The shared memory accesses of one opcode.
#[derive(Clone, Copy, Debug, Default)]
struct Accesses {
    requests: u64,
    conflicts: u64,
}

/// Shared memory accesses by opcode, of one launch or of many.
type ByOpcode = BTreeMap<String, Accesses>;

/// What the simulator counted of a launch under the first schedule, or a fault under any.
fn simulate(job: &Job, cache: &CacheDir) -> Result<Option<Arc<SimRun>>, String> {
    let simulated = job.run_under(SCHEDULES.map(options), cache.clone());
    let mut runs = SCHEDULES.into_iter().zip(simulated).map(|(schedule, simulated)| {
        let at = || format!("{job}, {schedule:?}");
        let Simulated { comparison, run } = simulated.map_err(|e| format!("{}: {e}", at()))?;
        if comparison.passes(job.problem.bound()) { Ok(run) } else { Err(format!("{}: {comparison:?}", at())) }
    });
    let first = runs.next().unwrap_or_else(|| panic!("no schedule"))?;
    runs.try_for_each(|other| other.map(drop))?;
    Ok(first)
}

/// The shared memory accesses of a launch.
fn accesses(run: Option<&SimRun>) -> ByOpcode {
    let mut accesses = ByOpcode::new();
    for access in run.into_iter().flat_map(SimRun::accesses).filter(|a| a.shared.requests > 0) {
        let row = accesses.entry(access.opcode).or_default();
        row.requests += access.shared.requests;
        row.conflicts += access.shared.conflicts;
    }
    accesses
}

/// Conflicts by kernel, element type and opcode, for the launches that have any.
fn conflict_table(launches: &[(&Job, ByOpcode)]) -> String {
    let mut rows: BTreeMap<(&str, &str, &str), (u64, Accesses)> = BTreeMap::new();
    for (job, accesses) in launches {
        for (opcode, a) in accesses.iter().filter(|(_, a)| a.conflicts > 0) {
            let key = (job.problem.kernel.name, job.problem.dtype.name(), opcode.as_str());
            let (launches, sum) = rows.entry(key).or_default();
            *launches += 1;
            sum.requests += a.requests;
            sum.conflicts += a.conflicts;
        }
    }
    let mut text = format!(
        "{:<20} {:<5} {:<28} {:>8} {:>9} {:>9}\n",
        "kernel", "dtype", "access", "launches", "requests", "conflicts"
    );
    for ((kernel, dtype, opcode), (launches, Accesses { requests, conflicts })) in rows {
        text += &format!("{kernel:<20} {dtype:<5} {opcode:<28} {launches:>8} {requests:>9} {conflicts:>9}\n");
    }
    text
}

#[test]
fn shipped_kernels_are_right_under_every_schedule() {
    // A target of its own has other products and copies.
    let own = Target::specific().filter(|t| t.has(Capability::Wgmma));
    let targets: Vec<Target> = Target::all().into_iter().chain(own).collect();
    let jobs = jobs(&targets, Cover::Pairs, |_| true).unwrap_or_else(|e| panic!("{e}"));
    let folder = folder();
    // The counts depend only on the addresses, not on the order of warps.
    let all = |job: &Job| {
        // Each device looks through its whole cache once, so the cache of a kernel is its own.
        let Job { problem, machine, .. } = job;
        let cache = CacheDir::At(folder.path().join(format!("{}.{}.{machine}", problem.kernel.name, problem.dtype)));
        simulate(job, &cache).map(|run| accesses(run.as_deref()))
    };
    let results: Vec<Result<ByOpcode, String>> = jobs.par_iter().map(all).collect();
    let mut failures = Vec::new();
    let mut launches = Vec::new();
    for (job, result) in jobs.iter().zip(results) {
        match result {
            Ok(accesses) => launches.push((job, accesses)),
            Err(what) => failures.push(what),
        }
    }
    assert!(failures.is_empty(), "{} of {} launches fail:\n{}", failures.len(), jobs.len(), failures.join("\n"));
    assert!(jobs.len() > 1000, "{} launches", jobs.len());
    // Buffers that ldmatrix and mma.sync use are swizzled, so they have no conflicts; stores have none but for those that are known.
    let is_known = |kernel: &str| STORES_WITH_CONFLICTS.contains(&kernel);
    let is_free = |kernel: &str, opcode: &str| {
        opcode.starts_with("ldmatrix")
            || opcode.starts_with("stmatrix")
            || opcode.starts_with("st") && !is_known(kernel)
    };
    let met = |(job, accesses): &(&Job, ByOpcode)| {
        let met = accesses.iter().filter(|(opcode, a)| is_free(job.problem.kernel.name, opcode) && a.conflicts > 0);
        met.map(|(opcode, a)| format!("{job}: {opcode}: {a:?}")).collect::<Vec<_>>()
    };
    let met: Vec<String> = launches.iter().flat_map(met).collect();
    assert!(met.is_empty(), "{} have conflicts:\n{}", met.len(), met.join("\n"));
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!("bank_conflicts", conflict_table(&launches)));
}

/// Kernels whose code for Blackwell has pairs of singles (`fma.rn.f32x2`) or sums of singles with 16-bit floats
/// (`sub.rn.f32.bf16`).
const OF_BLACKWELL: [&str; 7] =
    ["softmax", "log_sum_exp", "rms_norm", "matmul", "memory_read", "delta_rule", "fourier_features"];

/// The PTX that a job runs.
fn ptx(job: &Job, cache: &CacheDir) -> String {
    let device = Device::sim_with(job.machine, SimOptions::default(), cache.clone());
    let mut prepared = job.problem.prepare(&device, &job.problem.inputs()).unwrap_or_else(|e| panic!("{job}: {e}"));
    let launch = prepared.resolve(job.config.as_ref()).unwrap_or_else(|e| panic!("{job}: {e}"));
    launch.image().unwrap_or_else(|| panic!("{job}: nothing to run")).ptx.clone()
}

#[test]
fn targets_of_one_capability_are_simulated_too() {
    // The test above runs every kernel on the one with wgmma. For these two LLVM emits arithmetic that no other target has.
    let targets: Vec<Target> = Target::specific().filter(|t| !t.has(Capability::Wgmma)).collect();
    assert_eq!(targets.iter().map(ToString::to_string).collect::<Vec<_>>(), ["sm_100a", "sm_120a"]);
    let mut first = BTreeMap::new();
    for problem in cases::simulation().into_iter().filter(|p| OF_BLACKWELL.contains(&p.kernel.name)) {
        first.entry((problem.kernel.name, problem.dtype.name())).or_insert(problem);
    }
    assert!(first.len() >= 2 * OF_BLACKWELL.len(), "{:?}", first.keys());
    for target in targets {
        let folder = folder();
        let texts = first.par_iter().map(|((kernel, dtype), problem)| {
            let job = Job { problem: problem.clone(), machine: target.into(), config: None };
            let cache = CacheDir::At(folder.path().join(format!("{kernel}.{dtype}")));
            simulate(&job, &cache).map(|_| ptx(&job, &cache))
        });
        let texts: Result<Vec<String>, String> = texts.collect();
        let texts = texts.unwrap_or_else(|what| panic!("{what}"));
        // If the code had none, this would test nothing.
        for word in [".f32x2 ", ".f32.bf16 ", ".f32.f16 "] {
            let count = texts.iter().filter(|text| has_arithmetic(text, word)).count();
            assert!(count > 0, "no kernel for {target} has {word}");
        }
    }
}

/// True if the text adds, subtracts, multiplies or does both in types of these words.
fn has_arithmetic(ptx: &str, words: &str) -> bool {
    let opcodes = ["add.", "sub.", "mul.", "fma."];
    ptx.lines().map(str::trim_start).any(|line| opcodes.iter().any(|o| line.starts_with(o)) && line.contains(words))
}

/// Solves a problem with a kernel whose PTX was edited after compilation.
fn edited(p: &Problem, config: &str, arch: &str, edit: impl Fn(&str) -> String) -> Result<Comparison, RuntimeError> {
    let target = crate::kernels::target(arch);
    let config: Config = config.parse().unwrap_or_else(|e| panic!("{config}: {e}"));
    let plain = Device::sim_with(target, SimOptions::default(), CacheDir::Off);
    let inputs = p.inputs();
    let mut prepared = p.prepare(&plain, &inputs)?;
    let launch = prepared.resolve(Some(&config))?;
    let image = launch.image().unwrap_or_else(|| panic!("{p}: nothing to run"));
    let image = KernelImage { ptx: edit(&image.ptx), ..image.clone() };
    let bound = p.bind(&plain)?;
    let kernel = build_kernel(p.kernel, &specialize(&bound), launch.config())?;
    let folder = folder();
    let cache = CacheDir::At(folder.path().to_owned());
    Store::new(cache.clone()).put(&kernel_key(&kernel, config.schedule, target), image);
    let device = Device::sim_with(target, SimOptions { budget: BUDGET, ..SimOptions::default() }, cache);
    let comparison = p.check(&device, Some(&config))?;
    assert_eq!((device.stats().disk_hits, device.stats().compiled), (1, 0), "the edited kernel ran");
    Ok(comparison)
}

fn without_line(text: &str, what: &str, nth: usize) -> String {
    let mut seen = 0;
    let keep = |line: &&str| {
        let hit = line.trim_start().starts_with(what);
        seen += usize::from(hit);
        !(hit && seen == nth + 1)
    };
    text.lines().filter(keep).collect::<Vec<_>>().join("\n")
}

fn memory_read() -> Problem {
    cases::problem("memory_read", DType::Bf16, &[1, 70, 48, 136]).unwrap_or_else(|| panic!("no such kernel"))
}

const MEMORY_READ: &str = "BN=32 BH=32 stages=2 warps=4";

/// The simulator's finding for each barrier, when that barrier is removed.
fn without_barriers(p: &Problem, config: &str, arch: &str) -> Vec<Option<FaultKind>> {
    let is_barrier = |line: &str| line.trim_start().starts_with("bar.sync");
    let count = Cell::new(0);
    let whole = edited(p, config, arch, |ptx| {
        count.set(ptx.lines().filter(|l| is_barrier(l)).count());
        ptx.to_owned()
    });
    assert!(whole.unwrap_or_else(|e| panic!("{e}")).passes(p.bound()));
    let found = |nth| match edited(p, config, arch, |ptx| without_line(ptx, "bar.sync", nth)) {
        Ok(_) => None,
        Err(RuntimeError::Fault(fault)) => {
            let text = fault.to_string();
            assert!(text.starts_with(&format!("error[ATL627]: `{}` on sim:{arch}: ", p.kernel.name)), "{text}");
            Some(fault.fault.kind)
        }
        Err(other) => panic!("{other}"),
    };
    (0..count.get()).map(found).collect()
}

#[test]
fn a_fault_names_the_line_of_the_kernel() {
    let weakened = |ptx: &str| ptx.replace("bar.sync \t0;", "bar.warp.sync \t-1;");
    let Err(RuntimeError::Fault(fault)) = edited(&memory_read(), MEMORY_READ, "sm_90", weakened) else {
        panic!("a barrier of each warp alone is not enough");
    };
    let text = fault.to_string();
    assert!(text.contains(" from ops/src/memory_read/mod.rs:"), "{text}");
    assert!(fault.fault.party.is_some_and(|p| p.source.is_some()), "{text}");
}

#[test]
fn a_barrier_that_is_missing_is_a_race() {
    for arch in ["sm_80", "sm_90"] {
        let found = without_barriers(&memory_read(), MEMORY_READ, arch);
        let races = found.iter().filter(|kind| **kind == Some(FaultKind::Race)).count();
        assert!(races >= 2, "{arch}: {found:?}");
        // One of the barriers before the loop is redundant after the previous one.
        assert!(found.iter().filter(|kind| kind.is_none()).count() <= 1, "{arch}: {found:?}");
    }
}

#[test]
fn a_wait_that_is_missing_is_found() {
    let outcome = edited(&memory_read(), MEMORY_READ, "sm_80", |ptx| without_line(ptx, "cp.async.wait_group", 0));
    match outcome {
        Err(RuntimeError::Fault(fault)) => {
            assert!(matches!(fault.fault.kind, FaultKind::InFlight | FaultKind::Race), "{fault}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wrong_result_is_noticed() {
    let p = cases::problem("poly2", DType::F32, &[5, 40]).unwrap_or_else(|| panic!("no such kernel"));
    let check = |edit: fn(&str) -> String| edited(&p, "BN=8 warps=4", "sm_80", edit).unwrap_or_else(|e| panic!("{e}"));
    assert!(check(str::to_owned).passes(p.bound()));
    let wrong = check(|ptx| {
        assert!(ptx.contains("mul.f32") || ptx.contains("mul.rn.f32"));
        ptx.replacen("mul.f32", "add.f32", 1).replacen("mul.rn.f32", "add.rn.f32", 1)
    });
    assert!(!wrong.passes(p.bound()), "{wrong:?}");
}

#[test]
fn stale_shared_memory_changes_nothing() {
    // The simulator knows which bytes were never written, whereas hardware leaves the content of the previous kernel
    // there. Poison shows whether such bytes affect the result.
    let p = cases::problem("newton_schulz_small", DType::Bf16, &[2, 8, 24]).unwrap_or_else(|| panic!("no such kernel"));
    for arch in ["sm_80", "sm_90"] {
        let poisoned = edited(&p, "warps=2", arch, |ptx| ptx.replacen("\tld.param", &format!("{POISON}\tld.param"), 1));
        let c = poisoned.unwrap_or_else(|e| panic!("{e}"));
        assert!(c.passes(p.bound()), "{arch}: {c:?}");
    }
}

/// Writes NaN to the first 2 KiB of shared memory.
const POISON: &str = "{\n.reg .b32 %poison<3>;\nmov.u32 %poison0, %tid.x;\nshl.b32 %poison0, %poison0, 5;\n\
    mov.b32 %poison1, 0x7fc07fc0;\nst.shared.v4.b32 [%poison0], {%poison1, %poison1, %poison1, %poison1};\n\
    st.shared.v4.b32 [%poison0+16], {%poison1, %poison1, %poison1, %poison1};\nbar.sync 0;\n}\n";

#[test]
fn the_command_line_simulates() {
    let args = ["verify", "--device", "sim:sm_80", "--only", "poly1", "--schedule", "random", "--seed", "3", "--json"];
    let verified = json(&args);
    assert_eq!(verified["failed"], 0, "{verified}");
    let row = &verified["results"][0];
    assert_eq!((&row["arch"], &row["bank_conflicts"]), (&"sm_80".into(), &0.into()), "{row}");
    assert!(row["config"].as_str().is_some_and(|config| config.contains("warps=")), "{row}");
    has(&refuses(&["verify", "--device", "sim", "--arch", "sm_75"]), &["sm_75", "sm_90"]);
    has(&refuses(&["bench", "--device", "sim:sm_90"]), &["measures GPUs"]);
    has(&refuses(&["demo", "--device", "sim:sm_90"]), &["verify --device sim"]);
    let explained = json(&["explain", "softmax", "--dims", "N=7,D=40", "--simulate", "--json"]);
    assert_eq!(explained["sim"]["bank_conflicts"], 0, "{explained}");
    has(&prints(&["explain", "poly2", "--simulate"]), &["warp instructions, 0 bank conflicts", "st.global"]);
    // For a size that is not a multiple of 8, the small sizes are not either, and they meet the kernel's requirements.
    let odd = json(&["explain", "log_sum_exp", "--dims", "N=64,V=50257", "--simulate", "--json"]);
    assert_eq!(odd["sim"]["dims"]["V"].as_u64().map(|v| v % 2), Some(1), "{odd}");
    let heads = prints(&["explain", "windowed_attention", "--dims", "H=32,J=8", "--simulate"]);
    has(&heads, &["sim      ", "warp instructions"]);
}
