//! Kernels of `tests/cases/gpu`, written by hand for constructs that no pass emits yet: roles, the copy engine,
//! products in flight.

use crate::gpu_interp::edits::{self, Mutant};
use crate::gpu_interp::trial::{Trial, manners};
use crate::kernels::case;
use atlas_codegen::gpu::{Constructs, Kernel, Op, parse_gpu, verify_gpu};
#[cfg(feature = "llvm")]
use atlas_codegen::gpu::{Lowered, VerifiedKernel};
use atlas_codegen::notes::Notes;
use atlas_codegen::{Platform, passes as page};
use atlas_dsl::{Schedule, Verified, parse_kernel, verify};
use std::path::Path;

fn hand_written(name: &str) -> Kernel {
    let path = Path::new(crate::ROOT).join(format!("tests/cases/gpu/{name}.gpu"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    parse_gpu(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Attention for one head, without its division.
const ATTENTION: &str = "
kernel @attention(%q: bf16[T, D], %k: bf16[T, D], %v: bf16[T, D], %o: out bf16[T, D])
dims T: ?64, D = 64
grid (%m) = (tiles(T, 64)) {
  %zero = splat 0 : i32
  %hi = tiles(T, 64)
  %start = splat 0.0 : f32[64, 64]
  %qt = load %q[%m : 64, ..] : bf16[64, 64]
  %acc = loop %j in %zero..%hi carry (%x = %start) {
    %kt = load %k[%j : 64, ..] : bf16[64, 64]
    %ktt = transpose %kt : bf16[64, 64]
    %scores = dot %qt, %ktt : f32[64, 64]
    %e = exp %scores : f32[64, 64]
    %eb = cast %e : bf16[64, 64]
    %vt = load %v[%j : 64, ..] : bf16[64, 64]
    %y = dot %eb, %vt acc %x : f32[64, 64]
    yield %y
  }
  %out = cast %acc : bf16[64, 64]
  store %o[%m : 64, ..], %out
}
";

fn attention() -> Verified<atlas_dsl::Kernel> {
    parse_kernel(ATTENTION).and_then(verify).unwrap_or_else(|e| panic!("{e}"))
}

/// The result does not depend on which role runs first, or on when copies land.
fn agrees(name: &str, k: &Kernel, trial: &Trial<'_>) {
    for manner in manners(k, Constructs::BARE_WAITS) {
        trial.execute(k, manner).unwrap_or_else(|fault| panic!("{name}, {manner:?}: {fault}"));
    }
}

#[test]
fn roles_meet_in_any_order() {
    let product = case("gemm");
    let trial = Trial::new(&product, &[("M", 136), ("N", 264), ("K", 328)]);
    for name in ["gemm_sm80", "gemm_sm90a", "gemm_pingpong_sm90a"] {
        let k = hand_written(name);
        assert_eq!(manners(&k, Constructs::BARE_WAITS).len(), if k.roles.len() > 1 { 6 } else { 2 }, "{name}");
        agrees(name, &k, &trial);
    }
    let (attention, name) = (attention(), "attention_overlap_sm90a");
    agrees(name, &hand_written(name), &Trial::new(&attention, &[("T", 192)]));
}

/// Twice a tensor.
const TWICE: &str = "
kernel @stored(%x: f32[G, M, N], %y: out f32[G, M, N])
dims G: ?1, M: ?1, N: ?4
grid (%m, %n) = (tiles(M, 64), tiles(N, 64)) {
  %zero = splat 0 : i32
  %count = size G
  loop %g in %zero..%count {
    %t = load %x[%g, %m : 64, %n : 64] : f32[64, 64]
    %u = add %t, %t : f32[64, 64]
    store %y[%g, %m : 64, %n : 64], %u
    yield
  }
}
";

/// While the engine stores one of two stages, the other one is written.
#[test]
fn two_stages_are_stored_in_turn() {
    let twice = parse_kernel(TWICE).and_then(verify).unwrap_or_else(|e| panic!("{e}"));
    let k = hand_written("engine_stores_sm90a");
    for g in [0, 1, 2, 5] {
        let trial = Trial::new(&twice, &[("G", g), ("M", 70), ("N", 72)]);
        for manner in manners(&k, Constructs::NONE) {
            trial.execute(&k, manner).unwrap_or_else(|fault| panic!("{manner:?}: {fault}"));
        }
    }
    // A wait that leaves both stages, or the last one.
    let trial = Trial::new(&twice, &[("G", 5), ("M", 70), ("N", 72)]);
    let weaker = edits::replaced(&k, |op| if let Op::StoreWait(1) = op { Some(Op::StoreWait(2)) } else { None });
    let unfinished = edits::without(&k, |op| matches!(op, Op::Drain(_)));
    for (place, mutant) in weaker.iter().chain(&unfinished) {
        let fault = manners(mutant, Constructs::NONE).into_iter().find_map(|m| trial.execute(mutant, m).err());
        assert!(fault.is_some(), "{place}: not noticed");
    }
    assert_eq!((weaker.len(), unfinished.len()), (1, 1));
}

/// The hand-written kernel in the simulator, under its schedules.
#[cfg(feature = "llvm")]
#[test]
fn two_stages_are_stored_in_the_simulator() {
    let twice = parse_kernel(TWICE).and_then(verify).unwrap_or_else(|e| panic!("{e}"));
    let k = with_programs_lowered(hand_written("engine_stores_sm90a"));
    let lowered = VerifiedKernel::<Lowered>::verify(k).unwrap_or_else(|e| panic!("{e}"));
    let image = atlas_codegen::emit(&lowered).unwrap_or_else(|e| panic!("{e}"));
    for g in [1, 2, 5] {
        let trial = crate::exact::ExactTrial::new(&twice, &[("G", g), ("M", 70), ("N", 72)]);
        let wanted = trial.reference().unwrap_or_else(|e| panic!("{e}"));
        assert!(trial.simulate(&image, &trial.dims).unwrap_or_else(|e| panic!("{e}")) == wanted, "{g}");
    }
}

/// The sums of rows.
const TOTAL: &str = "
kernel @total(%x: f32[N, D], %y: out f32[N, E])
dims N: ?1, D = 256, E = 1
grid (%n) = (tiles(N, 4)) {
  %t = load %x[%n : 4, ..] : f32[4, 256]
  %s = reduce sum %t axes [1] : f32[4, 1]
  store %y[%n : 4, ..], %s
}
";

/// Of the CTAs that share a program, any may arrive last and store the sum.
#[test]
fn any_cta_of_a_program_may_arrive_last() {
    let total = parse_kernel(TOTAL).and_then(verify).unwrap_or_else(|e| panic!("{e}"));
    let trial = Trial::new(&total, &[("N", 8)]);
    let k = hand_written("split_sm80");
    let all = manners(&k, Constructs::NONE);
    assert_eq!(all.len(), 3);
    all.iter().for_each(|&m| trial.execute(&k, m).unwrap_or_else(|fault| panic!("{m:?}: {fault}")));
    // Right if the CTA of the last number stores, and 0 otherwise.
    let store = "  store.global %y";
    let text = std::fs::read_to_string(Path::new(crate::ROOT).join("tests/cases/gpu/split_sm80.gpu")).unwrap();
    let (before, after) = text.split_once(store).unwrap();
    let only_the_last = "  %one: i32 = const 1.0
  %top: i32 = sub %parts, %one
  %is_top: bool = eq %part, %top
  %each: bool #1 = broadcast %is_top
  %none: f32 #1 = const 0.0
  %kept: f32 #1 = select %each, %all, %none
";
    let text = format!("{before}{only_the_last}{store}{}", after.replace("%all", "%kept"));
    let mutant = parse_gpu(&text).unwrap_or_else(|e| panic!("{e}"));
    let wrong = all.iter().filter(|&&m| trial.execute(&mutant, m).is_err()).count();
    assert_eq!(wrong, 2, "all but one order should show it");
}

/// A copy of square matrices.
const COPY: &str = "
kernel @copy(%x: f32[B, N, N], %y: out f32[B, N, N])
dims B: ?1, N: ?1
grid (%b, %i, %j) = (B, N, N) {
  %v = load %x[%b, %i, %j] : f32
  store %y[%b, %i, %j], %v
}
";

/// The same, where each program copies a pair of elements mirrored at the diagonal.
const TRIANGLE: &str = "
gpu @copy sm_80 threads 32 (
  %x: f32[B, N, N] strides [?1, ?1, 1] align 16,
  %y: out f32[B, N, N] strides [?1, ?1, 1] align 16,
)
dims B: ?1, N: ?1
programs (%b, %i, %j) = triangular (B, N, N)
role all scope cta {
  %0: f32 = load.global %x[%b in_bounds, %i in_bounds, %j in_bounds]
  store.global %y[%b in_bounds, %i in_bounds, %j in_bounds], %0
  %1: f32 = load.global %x[%b in_bounds, %j in_bounds, %i in_bounds]
  store.global %y[%b in_bounds, %j in_bounds, %i in_bounds], %1
}
";

/// The kernel with its programs lowered.
fn with_programs_lowered(mut k: Kernel) -> Kernel {
    let pass = page::LOWER.iter().find(|p| p.name == "lower_programs").unwrap_or_else(|| panic!("no such pass"));
    let Platform { target, machine } = k.target.into();
    let (schedule, notes) = (&Schedule::default(), &mut Notes::forgotten());
    let cx = &mut page::Cx::new(schedule, target, &machine, notes);
    (pass.run)(&mut k, cx).unwrap_or_else(|e| panic!("{e}"));
    verify_gpu(&k).unwrap_or_else(|e| panic!("{e}"));
    assert!(!Constructs::of(&k).has(Constructs::PROGRAMS));
    k
}

#[test]
fn programs_become_loops_and_scalars() {
    let product = case("gemm");
    let trial = Trial::new(&product, &[("M", 1104), ("N", 520), ("K", 64)]);
    for name in ["gemm_sm80", "gemm_sm90a", "gemm_pingpong_sm90a"] {
        agrees(name, &with_programs_lowered(hand_written(name)), &trial);
    }
    let copy = parse_kernel(COPY).and_then(verify).unwrap_or_else(|e| panic!("{e}"));
    let triangle = parse_gpu(TRIANGLE).unwrap_or_else(|e| panic!("{e}"));
    for n in [1, 2, 19] {
        let trial = Trial::new(&copy, &[("B", 3), ("N", n)]);
        agrees("triangle", &triangle, &trial);
        agrees("triangle", &with_programs_lowered(triangle.clone()), &trial);
    }
}

/// A planted mistake.
type Edit = fn(&Kernel) -> Vec<Mutant>;

/// Mistakes that must be noticed in every kernel.
const MISTAKES: [(&str, Edit); 7] = [
    ("a release left out", |k| edits::without(k, |op| matches!(op, Op::Release(_)))),
    ("a release too early", edits::early_releases),
    ("a commit left out", |k| edits::without(k, |op| matches!(op, Op::Commit(..)))),
    ("a copy left out", |k| edits::without(k, |op| matches!(op, Op::Copy { .. }))),
    ("an awaited number off by one", |k| edits::numbers_further(k, |op| matches!(op, Op::Wait(..)))),
    ("a wait for a product that leaves one", edits::weaker_product_waits),
    ("an accumulator dropped", edits::without_accumulators),
];

/// The finding of the verifier, or else of the GPU IR interpreter, for a mutant.
fn noticed(trial: &Trial<'_>, mutant: &Kernel) -> Option<String> {
    let fault = |manner| trial.execute(mutant, manner).err().map(|fault| fault.to_string());
    let verified = verify_gpu(mutant).err().map(|d| d.to_string());
    verified.or_else(|| manners(mutant, Constructs::BARE_WAITS).into_iter().find_map(fault))
}

#[test]
fn mistakes_between_roles_are_noticed() {
    let product = case("gemm");
    let product = Trial::new(&product, &[("M", 136), ("N", 264), ("K", 328)]);
    let attention = attention();
    let attention = Trial::new(&attention, &[("T", 192)]);
    let mut unnoticed = Vec::new();
    for (name, trial) in
        [("gemm_sm90a", &product), ("gemm_pingpong_sm90a", &product), ("attention_overlap_sm90a", &attention)]
    {
        let k = hand_written(name);
        for (mistake, mutants) in MISTAKES {
            let mutants = mutants(&k);
            assert!(!mutants.is_empty(), "{name}: {mistake}");
            let missed = mutants.iter().filter(|(_, mutant)| noticed(trial, mutant).is_none());
            unnoticed.extend(missed.map(|(place, _)| format!("{name}, {mistake}: {place}")));
        }
    }
    // The last iteration of attention has waited for its operations by then, and nothing refills the slot that it reads
    // again.
    let harmless = |m: &String| {
        m.starts_with("attention") && m.contains(" in bb0 ") && (m.contains("Release") || m.contains("WaitMma"))
    };
    unnoticed.retain(|m| !harmless(m));
    assert!(unnoticed.is_empty(), "nobody notices\n{}", unnoticed.join("\n"));
}
