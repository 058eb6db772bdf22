//! Outputs of passes with a planted mistake: which tool must notice it, and that it does.

use crate::gpu_interp::edits::{self, Mutant};
use crate::gpu_interp::trial::{Passed, Tally, Trial, manners, passes, tried};
use crate::kernels::{Sizes, exact_case, target};
use atlas_codegen::gpu::{
    AccessKind, FenceKind, Kernel, Lowered, Mover, Op, SharedRef, UnsignedOp, VerifiedKernel, verify_constructs,
    verify_gpu,
};
use atlas_codegen::notes::Notes;
use atlas_codegen::{Platform, passes as page};
use atlas_dsl::config::{Copies, Programs};
use atlas_dsl::diag::Code;
use atlas_dsl::{Schedule, Verified};

/// The tool that notices a mistake first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notices {
    /// The verifier, by the rule of this number.
    Verifier(u16),
    /// The GPU IR interpreter, by a fault or a wrong number.
    Interpreter,
    /// Neither of these, but the PTX simulator.
    Simulator,
}

/// A mistake of a pass.
struct Row {
    name: &'static str,
    /// The pass that makes the mistake, or the last one before it.
    after: &'static str,
    /// The kernels of `SUBJECTS` that have such places. The mistake must be noticed at all of them.
    subjects: Names,
    by: Notices,
    mutants: fn(&Kernel) -> Vec<Mutant>,
}

/// A kernel of `tests/cases/exact` with an element type, sizes, stages and warps.
struct Subject {
    name: &'static str,
    case: (&'static str, &'static str),
    sizes: Sizes,
    schedule: (u32, u32),
    target: &'static str,
    copies: Option<Copies>,
    stores: Option<Copies>,
    programs: Option<Programs>,
}

const fn of(name: &'static str, case: (&'static str, &'static str), sizes: Sizes, schedule: (u32, u32)) -> Subject {
    Subject { name, case, sizes, schedule, target: "sm_90", copies: None, stores: None, programs: None }
}

/// The same, whose products warpgroups make, of operands that threads copy.
const fn by_warpgroups(
    name: &'static str,
    case: (&'static str, &'static str),
    sizes: Sizes,
    schedule: (u32, u32),
) -> Subject {
    let by = Some(Copies::Threads);
    Subject { target: "sm_90a", copies: by, stores: by, ..of(name, case, sizes, schedule) }
}

/// The same, whose operands the copy engine brings.
const fn by_engine(
    name: &'static str,
    case: (&'static str, &'static str),
    sizes: Sizes,
    schedule: (u32, u32),
) -> Subject {
    let by = Some(Copies::Engine);
    Subject { copies: by, stores: by, ..by_warpgroups(name, case, sizes, schedule) }
}

/// The same, of which a CTA runs several programs.
const fn persistent(
    name: &'static str,
    case: (&'static str, &'static str),
    sizes: Sizes,
    (schedule, stores): ((u32, u32), Copies),
) -> Subject {
    let programs = Some(Programs::Persistent);
    Subject { stores: Some(stores), programs, ..by_engine(name, case, sizes, schedule) }
}

impl Subject {
    fn kernel(&self) -> Verified<atlas_dsl::Kernel> {
        exact_case(self.case.0, self.case.1)
    }

    fn schedule(&self) -> Schedule {
        let (stages, warps) = self.schedule;
        let Subject { copies, stores, programs, .. } = *self;
        Schedule { stages, warps, copies, stores, programs, ..Schedule::default() }
    }
}

/// Small kernels in which no such mistake is harmless; a row leaves out those in which its own is.
const SUBJECTS: [Subject; 23] = [
    of("product", ("batched", "bf16"), &[("G", 1), ("M", 37), ("N", 16), ("K", 136)], (3, 2)),
    of("two stages", ("batched", "bf16"), &[("G", 1), ("M", 37), ("N", 16), ("K", 136)], (2, 2)),
    of("one stage", ("batched", "bf16"), &[("G", 1), ("M", 37), ("N", 16), ("K", 136)], (1, 2)),
    of("groups", ("batched", "bf16"), &[("G", 2), ("M", 300), ("N", 40), ("K", 8)], (1, 2)),
    of("transposed", ("transposed", "bf16"), &[("M", 24), ("N", 33), ("K", 56)], (2, 4)),
    of("chained", ("chained", "bf16"), &[("N", 21), ("H", 200)], (3, 2)),
    of("twice", ("twice", "bf16"), &[("M", 19), ("N", 16), ("K", 72)], (3, 2)),
    of("edges", ("edges", "bf16"), &[("N", 21), ("K", 37)], (2, 4)),
    of("sums", ("sums", "bf16"), &[("N", 37), ("T", 3)], (2, 4)),
    of("steps", ("steps", "bf16"), &[("B", 2)], (2, 4)),
    of("steps in f32", ("steps", "f32"), &[("B", 2)], (2, 4)),
    of("masked", ("masked", "bf16"), &[("B", 2)], (2, 2)),
    of("state", ("state", "bf16"), &[("N", 32), ("K", 64)], (2, 4)),
    of("columns", ("columns", "bf16"), &[("M", 37)], (2, 1)),
    of("cluster", ("cluster", "bf16"), &[("M", 37), ("N", 24), ("K", 40)], (1, 2)),
    by_warpgroups("warpgroup", ("warpgroup", "bf16"), &[("M", 37), ("N", 64), ("K", 328)], (3, 4)),
    by_engine("engine", ("warpgroup", "bf16"), &[("M", 37), ("N", 64), ("K", 392)], (3, 4)),
    by_engine("stored", ("warpgroup", "bf16"), &[("M", 37), ("N", 64), ("K", 392)], (2, 8)),
    by_engine("stored in a loop", ("stored", "f32"), &[("G", 3), ("M", 70), ("N", 64)], (2, 4)),
    by_engine("residual", ("residual", "bf16"), &[("M", 128), ("N", 128), ("K", 136)], (3, 4)),
    persistent("residuals", ("residual", "bf16"), SEVERAL, ((2, 8), Copies::Engine)),
    persistent("residuals stored by threads", ("residual", "bf16"), SEVERAL, ((2, 8), Copies::Threads)),
    by_warpgroups("handed", ("handed", "bf16"), &[("M", 37), ("N", 64), ("K", 136)], (2, 4)),
];

/// Six programs.
const SEVERAL: Sizes = &[("M", 300), ("N", 256), ("K", 72)];

type Names = &'static [&'static str];

/// With loops that copy into a ring and multiply.
const PRODUCTS: Names = &["product", "two stages", "one stage", "transposed", "chained", "twice", "edges"];
/// The subset whose copies run ahead.
const AHEAD: Names = &["product", "two stages", "transposed", "chained", "twice", "edges"];
/// The subset whose first operands are carried into the next iteration.
const CARRIED: Names = &["product", "two stages"];
/// With copies.
const COPIES: Names = &["product", "two stages", "one stage", "transposed", "chained", "twice", "edges", "masked"];
/// With programs that run in groups.
const GROUPED: Names = &["groups"];
/// With copies by the engine.
const ENGINE: Names = &["engine"];
/// With stores by the engine.
const STORED: Names = &["stored", "stored in a loop"];
/// With a tile beside an accumulator.
const RESIDUAL: Names = &["residual"];
/// With tiles beside accumulators of several programs of a CTA.
const RESIDUALS: Names = &["residuals", "residuals stored by threads"];
/// The subset that stores in a loop.
const STORED_IN_A_LOOP: Names = &["stored in a loop"];
/// With loops.
const LOOPS: Names =
    &["product", "one stage", "transposed", "chained", "twice", "edges", "steps", "steps in f32", "state"];

/// A mistake that must be noticed in some subjects.
const fn row(
    name: &'static str,
    after: &'static str,
    by: Notices,
    subjects: Names,
    mutants: fn(&Kernel) -> Vec<Mutant>,
) -> Row {
    Row { name, after, subjects, by, mutants }
}

const ROWS: &[Row] = &[
    row("a wait left out", "interleave_copies", Notices::Verifier(421), COPIES, |k| {
        edits::without(k, |op| matches!(op, Op::Wait(..)))
    }),
    row("a release left out", "interleave_copies", Notices::Interpreter, PRODUCTS, |k| {
        edits::without(k, |op| matches!(op, Op::Release(_)))
    }),
    row("a release too early", "interleave_copies", Notices::Interpreter, PRODUCTS, edits::early_releases),
    row("a guarded fill left out", "expand_loops", Notices::Interpreter, AHEAD, |k| {
        edits::without(k, |op| matches!(op, Op::If(..)))
    }),
    row("a commit left out", "expand_loops", Notices::Interpreter, COPIES, |k| {
        edits::without(k, |op| matches!(op, Op::Commit(..)))
    }),
    row("two commits exchanged", "expand_loops", Notices::Interpreter, &["twice"], edits::exchanged_commits),
    row("a copy left out", "lower_tiles", Notices::Interpreter, COPIES, |k| {
        edits::without(k, |op| matches!(op, Op::Copy { .. }))
    }),
    row("a copy left open", "select_copy_atoms", Notices::Verifier(460), COPIES, edits::open_copies),
    row("a ring of a stage less", "expand_loops", Notices::Interpreter, AHEAD, edits::shallower_rings),
    row("an acquired number off by one", "expand_loops", Notices::Interpreter, COPIES, |k| {
        edits::numbers_further(k, |op| matches!(op, Op::Acquire(..)))
    }),
    row("an awaited number off by one", "expand_loops", Notices::Interpreter, COPIES, |k| {
        edits::numbers_further(k, |op| matches!(op, Op::Wait(..)))
    }),
    row("an acquired slot that stays", "lower_rings", Notices::Interpreter, AHEAD, |k| {
        edits::first_slots(k, |op| matches!(op, Op::Acquire(..)))
    }),
    row("an awaited slot that stays", "lower_rings", Notices::Interpreter, AHEAD, |k| {
        edits::first_slots(k, |op| matches!(op, Op::Wait(..)))
    }),
    row("a cursor one further", "lower_rings", Notices::Interpreter, AHEAD, edits::cursors_further),
    row("an inverted guard", "expand_loops", Notices::Interpreter, AHEAD, edits::inverted_guards),
    row("a loop that begins late", "lower_tiles", Notices::Interpreter, LOOPS, |k| edits::bounds_off(k, false, 1.0)),
    row("a loop that ends early", "lower_tiles", Notices::Interpreter, LOOPS, |k| edits::bounds_off(k, true, -1.0)),
    row("a loop that ends late", "lower_tiles", Notices::Interpreter, LOOPS, |k| edits::bounds_off(k, true, 1.0)),
    row("a loop that carries what came in", "lower_tiles", Notices::Interpreter, PRODUCTS, |k| {
        edits::stale_yields(k, 0)
    }),
    row("a carried operand that stays", "carry_operands", Notices::Interpreter, CARRIED, |k| edits::stale_yields(k, 2)),
    row("another one that stays", "carry_operands", Notices::Interpreter, CARRIED, |k| edits::stale_yields(k, 3)),
    row("an accumulator dropped", "interleave_copies", Notices::Interpreter, PRODUCTS, edits::without_accumulators),
    row(
        "an operand a step further",
        "lower_products",
        Notices::Interpreter,
        &["product", "two stages", "chained"],
        edits::operands_further,
    ),
    row("an operand out of its buffer", "lower_tiles", Notices::Verifier(430), COPIES, |k| {
        edits::right_operands(k, |b| SharedRef { origin: (4096, 0), ..b })
    }),
    row("an operand transposed", "lower_tiles", Notices::Interpreter, &["chained", "twice", "edges"], |k| {
        edits::right_operands(k, |b| SharedRef { transposed: !b.transposed, ..b })
    }),
    row(
        "an operand transposed out of its buffer",
        "lower_tiles",
        Notices::Verifier(430),
        &["product", "transposed", "steps", "masked"],
        |k| edits::right_operands(k, |b| SharedRef { transposed: !b.transposed, ..b }),
    ),
    row(
        "a wait for a product that leaves one",
        "lower_tiles",
        Notices::Verifier(460),
        COPIES,
        edits::weaker_product_waits,
    ),
    row("edges left as they are", "lower_tiles", Notices::Interpreter, &["edges"], edits::without_refills_of_folds),
    row("a tile that is said to be inside", "lower_tiles", Notices::Interpreter, PRODUCTS, edits::claimed_inside),
    row(
        "a row of tiles further",
        "lower_tiles",
        Notices::Interpreter,
        &["transposed", "chained", "twice", "edges", "sums", "state"],
        |k| edits::next_tiles(k, 0),
    ),
    row("a column of tiles further", "lower_tiles", Notices::Interpreter, PRODUCTS, |k| edits::next_tiles(k, 1)),
    row("a store left out", "lower_tiles", Notices::Interpreter, LOOPS, |k| {
        edits::without(k, |op| matches!(op, Op::StoreGlobal { .. }))
    }),
    row("a tile not kept", "lower_tiles", Notices::Interpreter, &["edges", "steps", "steps in f32", "masked"], |k| {
        edits::without(k, |op| matches!(op, Op::StoreShared { .. }))
    }),
    row("a sum over a cluster left out", "lower_tiles", Notices::Interpreter, &["cluster"], |k| {
        edits::replaced(k, |op| if let Op::SumCluster(v, _) = op { Some(Op::Rematerialize(*v)) } else { None })
    }),
    row("zeros left out", "insert_barriers", Notices::Simulator, &["steps in f32"], |k| {
        edits::without(k, |op| matches!(op, Op::ZeroShared(_)))
    }),
    row("a range left out", "split_tiles", Notices::Interpreter, &["columns"], |k| {
        edits::without(k, |op| matches!(op, Op::StoreGlobal { .. }))
    }),
    row("a range of the first columns", "split_tiles", Notices::Interpreter, &["columns"], edits::first_columns),
    row("a range stored to the first columns", "split_tiles", Notices::Interpreter, &["columns"], edits::first_stores),
    row("a layout not changed", "lower_tiles", Notices::Verifier(420), &["chained", "sums"], |k| {
        edits::replaced(k, |op| if let Op::ConvertLayout(v) = op { Some(Op::Rematerialize(*v)) } else { None })
    }),
    row(
        "buffers that overlap",
        "allocate_shared",
        Notices::Verifier(413),
        &["product", "transposed", "twice", "edges", "steps", "masked"],
        edits::overlapping_buffers,
    ),
    row("a wait for copies left out", "insert_barriers", Notices::Verifier(460), COPIES, |k| {
        edits::without(k, |op| matches!(op, Op::CopyWait(_)))
    }),
    row(
        "a weaker wait for copies",
        "insert_barriers",
        Notices::Interpreter,
        &["product", "two stages", "one stage", "transposed", "twice", "edges", "masked"],
        edits::weaker_copy_waits,
    ),
    row("a barrier before a wait left out", "insert_barriers", Notices::Verifier(460), COPIES, |k| {
        edits::without_barriers(k, true)
    }),
    row(
        "a barrier left out",
        "insert_barriers",
        Notices::Simulator,
        &["one stage", "chained", "edges", "sums", "steps", "steps in f32", "masked"],
        |k| edits::without_barriers(k, false),
    ),
    row("a proxy fence left out", "insert_barriers", Notices::Simulator, &["warpgroup"], |k| {
        edits::without(k, |op| matches!(op, Op::Fence(_)))
    }),
    row("all proxy fences left out", "insert_barriers", Notices::Simulator, &["warpgroup"], |k| {
        edits::without_all(k, |op| matches!(op, Op::Fence(_)))
    }),
    row("a wait for copies of a warpgroup left out", "insert_barriers", Notices::Verifier(460), &["warpgroup"], |k| {
        edits::without(k, |op| matches!(op, Op::CopyWait(_)))
    }),
    row("a refill in the slot that is read", "lower_rings", Notices::Interpreter, &["warpgroup"], |k| {
        edits::first_slots(k, |op| matches!(op, Op::Acquire(..)))
    }),
    row(
        "an accumulator of a warpgroup dropped",
        "interleave_copies",
        Notices::Interpreter,
        &["warpgroup", "handed"],
        edits::without_accumulators,
    ),
    row("an operand of a warpgroup transposed", "lower_tiles", Notices::Interpreter, &["warpgroup", "handed"], |k| {
        edits::right_operands(k, |b| SharedRef { transposed: !b.transposed, ..b })
    }),
    row("a release of the engine's stage left out", "interleave_copies", Notices::Interpreter, ENGINE, |k| {
        edits::without(k, |op| matches!(op, Op::Release(_)))
    }),
    row("a fill by the engine left out", "expand_loops", Notices::Interpreter, ENGINE, |k| {
        edits::without(k, |op| matches!(op, Op::If(..)))
    }),
    row("a copy by the engine left out", "lower_tiles", Notices::Interpreter, ENGINE, |k| {
        edits::without(k, |op| matches!(op, Op::Copy { .. }))
    }),
    row("a copy by another tensor's map", "select_copy_atoms", Notices::Verifier(446), ENGINE, edits::other_maps),
    row("an acquired phase that is the other", "lower_rings", Notices::Interpreter, ENGINE, |k| {
        edits::other_phases(k, |op| matches!(op, Op::Acquire(..)))
    }),
    row("an awaited phase that is the other", "lower_rings", Notices::Interpreter, ENGINE, |k| {
        edits::other_phases(k, |op| matches!(op, Op::Wait(..)))
    }),
    row("a cursor of the engine one further", "lower_rings", Notices::Interpreter, ENGINE, edits::cursors_further),
    row("a panel beside an accumulator left out", "lower_tiles", Notices::Interpreter, RESIDUAL, |k| {
        edits::without(k, |op| matches!(op, Op::Copy { param, .. } if k.params[*param].name == "r"))
    }),
    row("a part of a loop's result that is another one", "split_tiles", Notices::Interpreter, RESIDUAL, |k| {
        edits::replaced(k, |op| {
            let Op::ExtractSlice { value, axis, offset: 1.. } = *op else { return None };
            Some(Op::ExtractSlice { value, axis, offset: 0 })
        })
    }),
    row("a set-up of mbarriers left out", "lower_rings", Notices::Simulator, ENGINE, |k| {
        edits::without(k, |op| matches!(op, Op::InitRing(_)))
    }),
    row("a fence of mbarriers left out", "insert_barriers", Notices::Verifier(460), ENGINE, |k| {
        edits::without(k, |op| matches!(op, Op::Fence(FenceKind::MbarrierInit)))
    }),
    row("mbarriers in a buffer", "allocate_shared", Notices::Verifier(413), ENGINE, edits::mbarriers_in_buffers),
    row("a store by the engine left out", "lower_tiles", Notices::Interpreter, STORED, |k| {
        edits::without(k, |op| matches!(op, Op::Copy { atom, .. } if atom.is_store()))
    }),
    row("a stage of the engine not written", "lower_tiles", Notices::Interpreter, STORED, |k| {
        edits::without(k, |op| matches!(op, Op::StoreShared { .. }))
    }),
    row("a panel that is another one", "lower_tiles", Notices::Interpreter, STORED, edits::first_panels),
    row("a panel that begins elsewhere", "lower_tiles", Notices::Verifier(447), STORED, edits::shifted_panels),
    row("a group of stores without an end", "lower_tiles", Notices::Interpreter, STORED, |k| {
        edits::without(k, |op| matches!(op, Op::Commit(ring, _) if k.rings[*ring].read_by == Mover::Engine))
    }),
    row("a drain of stores left out", "insert_barriers", Notices::Interpreter, STORED, |k| {
        edits::without(k, |op| matches!(op, Op::Drain(_)))
    }),
    row("a wait for stores left out", "insert_barriers", Notices::Interpreter, STORED_IN_A_LOOP, |k| {
        edits::without(k, |op| matches!(op, Op::StoreWait(_)))
    }),
    row("a wait for stores that leaves one", "insert_barriers", Notices::Interpreter, STORED_IN_A_LOOP, |k| {
        edits::replaced(k, |op| if let Op::StoreWait(0) = op { Some(Op::StoreWait(1)) } else { None })
    }),
    row("a fence before a store left out", "insert_barriers", Notices::Simulator, STORED_IN_A_LOOP, |k| {
        edits::without(k, |op| *op == Op::Fence(FenceKind::ProxyAsync))
    }),
    row("a barrier by a store left out", "insert_barriers", Notices::Simulator, STORED_IN_A_LOOP, |k| {
        edits::without_barriers(k, false)
    }),
    row("a barrier before a release left out", "insert_barriers", Notices::Simulator, RESIDUALS, |k| {
        edits::without_barriers_of_releases(k)
    }),
    row("a vector too wide", "select_accesses", Notices::Verifier(445), LOOPS, edits::wider_vectors),
    row("matrices of what lies otherwise", "select_accesses", Notices::Verifier(445), &["sums", "state"], |k| {
        edits::other_forms(k, |form| matches!(form, AccessKind::Vector { .. }).then_some(AccessKind::Matrix))
    }),
    row("an access without a form", "select_accesses", Notices::Verifier(460), LOOPS, edits::without_forms),
    row("a coordinate one further", "lower_programs", Notices::Interpreter, PRODUCTS, edits::coordinates_further),
    row("a quotient that is not divided", "lower_programs", Notices::Interpreter, GROUPED, |k| {
        edits::replaced(k, |op| {
            if let Op::Unsigned(UnsignedOp::Div, v, _) = op { Some(Op::Rematerialize(*v)) } else { None }
        })
    }),
    row("a last group taken for a whole one", "lower_programs", Notices::Interpreter, GROUPED, |k| {
        edits::replaced(k, |op| {
            if let Op::Unsigned(UnsignedOp::Min, _, v) = op { Some(Op::Rematerialize(*v)) } else { None }
        })
    }),
];

/// The tool that notices a mutant, and its finding; `None` if none does.
fn noticed(subject: &Subject, trial: &Trial<'_>, mutant: &Kernel, passed: &Passed) -> Option<(Notices, String)> {
    let verified = verify_gpu(mutant).and_then(|()| verify_constructs(mutant, passed.constructs));
    if let Err(d) = verified {
        let Code(code) = d.0.first().map_or(Code(0), |d| d.code);
        return Some((Notices::Verifier(code), d.to_string()));
    }
    let faults =
        manners(mutant, passed.constructs).into_iter().filter_map(|manner| trial.execute(mutant, manner).err());
    if let Some(fault) = faults.map(|f| f.to_string()).next() {
        return Some((Notices::Interpreter, fault));
    }
    let lowered = finished(subject, mutant, passed.pass)?;
    simulated(subject, &lowered).map(|said| (Notices::Simulator, said))
}

/// A mutant after the remaining passes; `None` if it does not reach the last phase.
fn finished(subject: &Subject, mutant: &Kernel, after: &str) -> Option<VerifiedKernel<Lowered>> {
    let rest = page::LOWER.iter().position(|p| p.name == after)? + 1;
    let Platform { target, machine } = mutant.target.into();
    let (schedule, mut k) = (subject.schedule(), mutant.clone());
    let notes = &mut Notes::forgotten();
    let cx = &mut page::Cx::new(&schedule, target, &machine, notes);
    page::LOWER[rest..].iter().try_for_each(|pass| (pass.run)(&mut k, cx)).ok()?;
    VerifiedKernel::verify(k).ok()
}

/// The simulator's finding for a mutant of a subject.
#[cfg(feature = "llvm")]
fn simulated(subject: &Subject, lowered: &VerifiedKernel<Lowered>) -> Option<String> {
    let kernel = subject.kernel();
    let image = atlas_codegen::emit(lowered).unwrap_or_else(|e| panic!("{}: {e}", subject.name));
    let trial = crate::exact::ExactTrial::new(&kernel, subject.sizes);
    let wanted = trial.reference().unwrap_or_else(|e| panic!("{}: {e}", subject.name));
    match trial.simulate(&image, &trial.dims) {
        Err(fault) => Some(fault),
        Ok(found) => (found != wanted).then(|| "a wrong number".to_owned()),
    }
}

/// Without LLVM, mutants that get this far are assumed to be noticed by the simulator.
#[cfg(not(feature = "llvm"))]
fn simulated(_: &Subject, _: &VerifiedKernel<Lowered>) -> Option<String> {
    Some("nothing yet".to_owned())
}

/// The simulator notices by itself what the interpreter notices of waits for stores.
#[cfg(feature = "llvm")]
#[test]
fn the_simulator_notices_missing_waits_for_stores() {
    let mut count = 0;
    for subject in SUBJECTS.iter().filter(|s| STORED.contains(&s.name)) {
        let (kernel, schedule) = (subject.kernel(), subject.schedule());
        let all =
            passes(&kernel, &schedule, target(subject.target)).unwrap_or_else(|e| panic!("{}: {e}", subject.name));
        let Some(passed) = all.iter().find(|p| p.pass == "insert_barriers") else { panic!("no such pass") };
        for (place, mutant) in edits::without(&passed.kernel, |op| matches!(op, Op::Drain(_) | Op::StoreWait(_))) {
            count += 1;
            let lowered = finished(subject, &mutant, passed.pass).unwrap_or_else(|| panic!("{place} is not lowered"));
            assert!(simulated(subject, &lowered).is_some(), "{}, {place}: not noticed", subject.name);
        }
    }
    assert_eq!(count, 4);
}

/// Without a mistake, each subject is executed right after every pass.
#[test]
fn subjects_are_right() {
    let mut tally = Tally::default();
    for subject in &SUBJECTS {
        let kernel = subject.kernel();
        let trial = Trial::new(&kernel, subject.sizes);
        let on = target(subject.target);
        tried(subject.name, &trial, &subject.schedule(), on, &mut tally).unwrap_or_else(|fault| panic!("{fault}"));
    }
    assert_eq!((tally.kernels, tally.refused), (SUBJECTS.len(), 0));
}

#[test]
fn each_mistake_is_noticed() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for subject in &SUBJECTS {
        let (kernel, sizes, schedule) = (subject.kernel(), subject.sizes, subject.schedule());
        let trial = Trial::new(&kernel, sizes);
        let all =
            passes(&kernel, &schedule, target(subject.target)).unwrap_or_else(|e| panic!("{}: {e}", subject.name));
        for row in ROWS.iter().filter(|row| row.subjects.contains(&subject.name)) {
            let at = format!("{}, {}", row.name, subject.name);
            let Some(passed) = all.iter().find(|p| p.pass == row.after) else { panic!("{at}: no {}", row.after) };
            let mutants = (row.mutants)(&passed.kernel);
            if mutants.is_empty() {
                wrong.push(format!("{at}: no such place"));
            }
            for (place, mutant) in mutants {
                count += 1;
                match noticed(subject, &trial, &mutant, passed) {
                    Some((by, _)) if by == row.by => {}
                    Some((by, said)) => wrong.push(format!("{at}, {place}: {by:?}, not {:?}: {said}", row.by)),
                    None => wrong.push(format!("{at}, {place}: nobody notices")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 300, "{count}");
}
