//! Kernels through the whole compiler without a GPU: each compiles and assembles, or its config is refused with a
//! reason.

#[path = "../dsl/tests/text/generate.rs"]
mod generate;

use crate::kernels::{build, case, case_names, target};
use atlas_codegen::{CompileError, Target, compile, pipeline};
use atlas_dsl::diag::Code;
use atlas_dsl::infer::infer;
use atlas_dsl::ir::Loc;
use atlas_dsl::op::{BinaryOp, Op, ReduceOp, Update};
use atlas_dsl::{DType, Kernel, Schedule, Value, Verified, verify};
use atlas_ops::cases;
use generate::Generator;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most defects that a failure shows.
const SHOWN: usize = 8;

/// A kernel to compile, and its name in failures.
struct Job {
    name: String,
    kernel: Verified<Kernel>,
    schedule: Schedule,
    target: Target,
}

/// How many kernels compiled, how many configs were refused, and why.
#[derive(Debug, Default)]
struct CompileTally {
    compiled: usize,
    refused: usize,
    /// The reasons without their numbers.
    reasons: BTreeMap<String, usize>,
}

/// ptxas, if `cargo xtask setup` or `ATLAS_PTXAS` provides it.
fn ptxas() -> Option<PathBuf> {
    fn search(dir: &Path, depth: u32) -> Option<PathBuf> {
        let mut entries: Vec<PathBuf> = std::fs::read_dir(dir).ok()?.flatten().map(|e| e.path()).collect();
        entries.sort();
        let program = entries.iter().find(|p| p.ends_with("bin/ptxas")).cloned();
        program.or_else(|| entries.iter().filter(|p| p.is_dir() && depth > 0).find_map(|p| search(p, depth - 1)))
    }
    let given = std::env::var_os("ATLAS_PTXAS").map(PathBuf::from);
    given.or_else(|| search(&Path::new(crate::ROOT).join(".tools"), 6))
}

/// The errors of ptxas for a kernel.
fn assemble(ptxas: &Path, ptx: &str, target: Target) -> Result<(), String> {
    let mut command = Command::new(ptxas);
    command.args([&format!("-arch={target}"), "-O0", "-o", "/dev/null", "/dev/stdin"]).stdin(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(|e| format!("ptxas does not start: {e}"))?;
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(ptx.as_bytes()));
    let out = child.wait_with_output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&out.stderr);
    if out.status.success() && written.is_some_and(|w| w.is_ok()) { Ok(()) } else { Err(format!("ptxas: {said}")) }
}

/// `None` if the kernel compiled, or the reason if its config was refused. An error is a defect of the compiler.
fn outcome(job: &Job, ptxas: Option<&Path>, to_ptx: bool) -> Result<Option<String>, String> {
    let run = || {
        if to_ptx {
            compile(&job.kernel, &job.schedule, job.target).map(|image| Some(image.ptx))
        } else {
            pipeline::run(&job.kernel, &job.schedule, job.target, |_, _| {}).map(|_| None)
        }
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(ptx)) => match (ptx, ptxas) {
            (Some(ptx), Some(ptxas)) => assemble(ptxas, &ptx, job.target).map(|()| None),
            _ => Ok(None),
        },
        Ok(Err(CompileError::Refused(reason))) if reason.len() > 10 => Ok(Some(reason)),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err("panicked".to_owned()),
    }
}

/// Compiles every job on all cores. Fails if one shows a defect.
#[track_caller]
fn run(jobs: &[Job], to_ptx: bool) -> CompileTally {
    let ptxas = ptxas();
    let next = AtomicUsize::new(0);
    let done = Mutex::new((CompileTally::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = outcome(job, ptxas.as_deref(), to_ptx);
                    let Schedule { stages, warps, .. } = job.schedule;
                    let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match outcome {
                        Ok(None) => done.0.compiled += 1,
                        Ok(Some(reason)) => {
                            done.0.refused += 1;
                            *done.0.reasons.entry(reason.replace(|c: char| c.is_ascii_digit(), "")).or_default() += 1;
                        }
                        Err(e) => {
                            done.1.push(format!("{} {} stages={stages} warps={warps}: {e}", job.name, job.target));
                        }
                    }
                }
            });
        }
    });
    let (tally, mut defects) = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    // The shortest are the easiest to read.
    defects.sort_by_key(String::len);
    let shown = &defects[..defects.len().min(SHOWN)];
    assert!(defects.is_empty(), "{} of {} kernels, such as:\n{}", defects.len(), jobs.len(), shown.join("\n"));
    tally
}

/// Errors of ptxas are noticed, if there is a ptxas.
#[test]
fn ptx_that_is_wrong_is_noticed() {
    let Some(ptxas) = ptxas() else { return };
    let ptx = compile(&case("rms_norm"), &Schedule::default(), target("sm_80")).map(|image| image.ptx);
    let ptx = ptx.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(assemble(&ptxas, &ptx, target("sm_80")), Ok(()));
    assert!(assemble(&ptxas, &ptx.replace("st.global", "st.gobal"), target("sm_80")).is_err());
    // PTX for a too old target, and text that is not PTX.
    assert!(assemble(&ptxas, &ptx, Target { sm: 75, specific: false }).is_err());
    assert!(assemble(&ptxas, "", target("sm_80")).is_err());
}

fn schedules(stages: &[u32], warps: &[u32]) -> Vec<Schedule> {
    stages
        .iter()
        .flat_map(|&stages| warps.iter().map(move |&warps| Schedule { stages, warps, ..Schedule::default() }))
        .collect()
}

/// Every case file in these schedules for these targets.
fn case_jobs(schedules: &[Schedule], targets: &[Target]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for name in case_names() {
        let kernel = case(&name);
        for &schedule in schedules {
            jobs.extend(targets.iter().map(|&target| Job {
                name: name.clone(),
                kernel: kernel.clone(),
                schedule,
                target,
            }));
        }
    }
    jobs
}

/// Stores the sum of the maxima of all values, so that the compiler can eliminate none.
fn use_all(kernel: &mut Kernel) {
    let body = kernel.body;
    let insts = kernel.blocks[body].insts.clone();
    let values: Vec<Value> = insts.iter().flat_map(|&inst| kernel.results[inst].clone()).collect();
    let stored = insts.iter().find_map(|&inst| match &kernel.insts[inst] {
        Op::Store { param, slices, value, .. } => Some((*param, slices.clone(), kernel.ty(*value).shape.clone())),
        _ => None,
    });
    let mut push = |op: Op| {
        let types = infer(kernel, &op, Loc::default()).unwrap_or_else(|e| panic!("{e}"));
        let inst = kernel.push_inst(body, op, &types, Loc::default());
        (kernel.results[inst].first().copied().unwrap_or(values[0]), types)
    };
    let (mut total, _) = push(Op::Splat { value: 0.0, dtype: DType::F32, shape: vec![] });
    for &value in &values {
        let (mut one, types) = push(Op::Cast(DType::F32, value));
        let rank = types[0].rank() as u8;
        if rank > 0 {
            let (top, _) = push(Op::Reduce { op: ReduceOp::Max, value: one, axes: (0..rank).collect() });
            (one, _) = push(Op::Reshape { value: top, axes: vec![] });
        }
        (total, _) = push(Op::Binary(BinaryOp::Add, total, one));
    }
    if let Some((param, slices, shape)) = stored {
        let (value, _) = push(Op::Broadcast { value: total, shape });
        push(Op::Store { param, slices, value, update: Update::Replace });
    }
}

/// The random kernel of a seed, unless it breaks a rule about edges.
fn random(seed: u32) -> Option<Job> {
    // Consecutive seeds must not give correlated numbers.
    let mut state = seed.wrapping_mul(0x9E37_79B9);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let choices: Vec<u32> = (0..8 + seed % 192).map(|_| next()).collect();
    let mut kernel = Generator::generate(&choices);
    if seed.is_multiple_of(2) {
        use_all(&mut kernel);
    }
    let text = kernel.to_string();
    let kernel = match verify(kernel) {
        Ok(kernel) => kernel,
        // The generator does not know which tiles have an edge.
        Err(e) if e.0.iter().all(|d| d.code == Code(226)) => return None,
        Err(e) => panic!("{e}\n{text}"),
    };
    let schedule = Schedule { stages: 1 + next() % 3, warps: [1, 2, 4, 8][next() as usize % 4], ..Schedule::default() };
    let targets = Target::all();
    let target = targets[next() as usize % targets.len()];
    Some(Job { name: format!("random({seed})\n{text}"), kernel, schedule, target })
}

#[test]
fn case_files_through_the_passes() {
    let tally = run(&case_jobs(&schedules(&[1, 2, 3, 4], &[1, 2, 3, 4, 8, 16]), &Target::all()), false);
    assert!(tally.compiled > tally.refused, "{tally:#?}");
}

#[test]
fn case_files_to_machine_code() {
    let tally = run(&case_jobs(&schedules(&[1, 3], &[4, 8]), &[target("sm_80"), target("sm_90")]), true);
    assert!(tally.compiled > tally.refused, "{tally:#?}");
}

/// Every config of every shipped kernel at the sizes that are used to verify it. Sizes of one specialization have one
/// kernel, which is lowered once.
///
/// Default configs are lowered for all targets, and the others for one in turn.
#[test]
fn shipped_configs_through_the_passes() {
    let (mut jobs, mut seen, mut specialized) = (Vec::new(), HashSet::new(), HashSet::new());
    for p in cases::verification().iter().filter(|p| p.layouts.is_empty() && p.fills.is_empty()) {
        if !specialized.insert((p.kernel.name, p.kernel.specialization(p.dtype, &p.dims))) {
            continue;
        }
        let default = p.kernel.default_config();
        for config in p.kernel.configs() {
            let kernel = build(p, &config);
            if !seen.insert((kernel.to_string(), config.schedule)) {
                continue;
            }
            let targets = Target::all();
            let one = seen.len() % targets.len();
            let wanted = |(i, target)| (config == default || i == one).then_some(target);
            for target in targets.into_iter().enumerate().filter_map(wanted) {
                let name = format!("{p} {config}");
                jobs.push(Job { name, kernel: kernel.clone(), schedule: config.schedule, target });
            }
        }
    }
    let tally = run(&jobs, false);
    assert!(tally.compiled > tally.refused, "{tally:#?}");
}

#[test]
fn random_kernels_through_the_passes() {
    let jobs: Vec<Job> = (0..4000).filter_map(random).collect();
    let tally = run(&jobs, false);
    assert!(tally.compiled > tally.refused, "{tally:#?}");
}

#[test]
fn random_kernels_to_machine_code() {
    let jobs: Vec<Job> = (10_000..10_600).filter_map(random).collect();
    let tally = run(&jobs, true);
    assert!(tally.compiled > tally.refused, "{tally:#?}");
}
