//! Runs the passes of each phase, and verifies their results.

use crate::arch::Platform;
use crate::error::CompileError;
use crate::gpu::{self, Constructs, Kernel, Lowered, Phase, Placed, Scheduled, VerifiedKernel};
use crate::notes::Notes;
use crate::passes::{Cx, FIRST, LOWER, MADE, PLACE, Pass, SCHEDULE, lower_tiles};
use atlas_dsl::config::Programs;
use atlas_dsl::{Schedule, Verified};

/// An observer of the kernel after each pass, by the pass's name.
type Watch<'w> = &'w mut dyn FnMut(&'static str, &Kernel);

/// Runs every pass. `watch` sees the kernel after each. The machine decides which configs are refused, and the target which
/// code is emitted.
///
/// # Errors
/// [`CompileError::Refused`] if the schedule does not fit the kernel and machine.
pub fn run(
    tile: &Verified<atlas_dsl::Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
    watch: impl FnMut(&'static str, &Kernel),
) -> Result<VerifiedKernel<Lowered>, CompileError> {
    run_with_notes(tile, schedule, on, &mut Notes::forgotten(), watch)
}

/// [`run`], with the decisions of the passes and their reasons.
///
/// # Errors
/// As [`run`]; the notes then end before the pass that refused.
pub fn run_with_notes(
    tile: &Verified<atlas_dsl::Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
    notes: &mut Notes,
    mut watch: impl FnMut(&'static str, &Kernel),
) -> Result<VerifiedKernel<Lowered>, CompileError> {
    let Platform { target, machine } = on.into();
    // What one attempt leaves: the kernel, why the next one has single programs, and whether the engine's operands before loops are
    // why it does not fit.
    let mut attempt = |schedule: &Schedule, why_single: Option<String>, fetches_before_loops: bool| {
        notes.begin_anew();
        let cx = &mut Cx { why_single, fetches_before_loops, ..Cx::new(schedule, target, &machine, notes) };
        let lowered = place(tile, cx, &mut watch)
            .and_then(|placed| self::schedule(placed, cx, &mut watch))
            .and_then(|scheduled| lower(scheduled, cx, &mut watch));
        let why_single = match (&lowered, cx.programs) {
            // Nobody asked for persistent programs, and they do not fit.
            (Err(CompileError::Refused(reason)), Programs::Persistent) if schedule.programs.is_none() => {
                cx.why_single.take().or_else(|| Some(format!("persistent ones are refused: {reason}")))
            }
            (Err(CompileError::Refused(_)), Programs::Persistent) => cx.why_single.take(),
            _ => None,
        };
        (lowered, why_single, cx.lacks_shared && cx.fetches_before_loops)
    };
    let single = Schedule { programs: Some(Programs::Single), ..*schedule };
    let (mut schedule, mut why_single, mut fetches_before_loops) = (schedule, None, true);
    // Passes up to the one that refused have decided for what does not fit: each attempt lowers from the beginning.
    let lowered = loop {
        match attempt(schedule, why_single.clone(), fetches_before_loops) {
            (_, _, true) => fetches_before_loops = false,
            (_, Some(why), false) => (schedule, why_single) = (&single, Some(why)),
            (lowered, None, false) => break lowered,
        }
    };
    lowered.map_err(|e| match (e, &tile.remark) {
        (CompileError::Refused(reason), Some(remark)) => CompileError::Refused(format!("{reason}; {remark}")),
        (e, _) => e,
    })
}

/// From Tile IR to a kernel whose tiles are placed.
fn place(
    tile: &Verified<atlas_dsl::Kernel>,
    cx: &mut Cx<'_>,
    watch: Watch<'_>,
) -> Result<VerifiedKernel<Placed>, CompileError> {
    cx.notes.pass = FIRST;
    let k = lower_tiles(tile, cx)?;
    check(FIRST, &k, MADE)?;
    watch(FIRST, &k);
    phase(k, MADE, PLACE, cx, watch)
}

/// The passes of the schedule.
fn schedule(
    k: VerifiedKernel<Placed>,
    cx: &mut Cx<'_>,
    watch: Watch<'_>,
) -> Result<VerifiedKernel<Scheduled>, CompileError> {
    phase(k.into_kernel(), Placed::CONSTRUCTS, SCHEDULE, cx, watch)
}

/// The passes down to the form that the emitter takes.
fn lower(
    k: VerifiedKernel<Scheduled>,
    cx: &mut Cx<'_>,
    watch: Watch<'_>,
) -> Result<VerifiedKernel<Lowered>, CompileError> {
    phase(k.into_kernel(), Scheduled::CONSTRUCTS, LOWER, cx, watch)
}

/// Runs the passes of a phase on a kernel that is verified and has only `constructs`. Leaves no tensor map without a copy that uses it.
fn phase<P: Phase>(
    mut k: Kernel,
    mut constructs: Constructs,
    passes: &[Pass],
    cx: &mut Cx<'_>,
    watch: Watch<'_>,
) -> Result<VerifiedKernel<P>, CompileError> {
    // Most passes leave most kernels as they are, and finding that out is faster than verifying them again.
    let mut verified = cfg!(debug_assertions).then(|| k.clone());
    for pass in passes {
        cx.notes.pass = pass.name;
        (pass.run)(&mut k, cx)?;
        constructs = pass.after(constructs);
        if verified.as_ref() == Some(&k) {
            gpu::verify_constructs(&k, constructs).map_err(|d| defect(pass.name, &d))?;
        } else {
            check(pass.name, &k, constructs)?;
            verified = cfg!(debug_assertions).then(|| k.clone());
        }
        watch(pass.name, &k);
    }
    k.drop_unused_maps();
    let last = passes.last().map_or("the phase before", |pass| pass.name);
    // After the last pass, most kernels have no maps to drop.
    VerifiedKernel::verify_beside(k, verified.as_ref()).map_err(|d| defect(last, &d))
}

/// The result of a pass must verify. A violation is a defect of the pass. A release build verifies only at the end of each
/// phase.
fn check(pass: &str, k: &Kernel, constructs: Constructs) -> Result<(), CompileError> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    gpu::verify(k, constructs).map_err(|d| defect(pass, &d))
}

fn defect(pass: &str, d: &atlas_dsl::Diagnostics) -> CompileError {
    CompileError::bug(format!("after {pass}: {d}"))
}

/// The most stages that a schedule may have.
const MOST_STAGES: u32 = 8;

/// Adds to a refusal a schedule that differs in one key and fits, if there is one: schedules beside it are tried.
///
/// A limit that a pass reports says what one schedule needs. What another one needs is known only once it is lowered: with more
/// warps some tiles are split further, and others are repeated.
pub(crate) fn with_what_fits(
    error: CompileError,
    kernel: &Verified<atlas_dsl::Kernel>,
    schedule: &Schedule,
    on: Platform,
) -> CompileError {
    let CompileError::Refused(reason) = error else { return error };
    let fits = |(_, other): &(String, Schedule)| run(kernel, other, on, |_, _| {}).is_ok();
    CompileError::Refused(match beside(schedule).into_iter().find(fits) {
        Some((change, _)) => format!("{reason}; with {change} it fits"),
        None => reason,
    })
}

/// Schedules that differ in one key, the least change first: fewer stages, more warps, fewer warps, a lower occupancy.
fn beside(s: &Schedule) -> Vec<(String, Schedule)> {
    let stages = (1..s.stages.min(MOST_STAGES + 1)).rev();
    let stages = stages.map(|stages| (format!("stages={stages}"), Schedule { stages, ..*s }));
    let counts = [1, 2, 4, 8, 16, 32];
    let more = counts.into_iter().filter(|&warps| warps > s.warps);
    let fewer = counts.into_iter().rev().filter(|&warps| warps < s.warps);
    let warps = more.chain(fewer).map(|warps| (format!("warps={warps}"), Schedule { warps, ..*s }));
    let lower = counts.into_iter().rev().filter(|&occupancy| occupancy < s.occupancy);
    let lower = lower.map(|occupancy| (format!("occupancy={occupancy}"), Schedule { occupancy, ..*s }));
    stages.chain(warps).chain(lower).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::pass;

    /// The constructs after the last pass of a phase are those that the phase promises to the next one and to the emitter.
    #[test]
    fn the_page_leads_to_the_phases() {
        let through = |from: Constructs, passes: &[Pass]| passes.iter().fold(from, |f, p| p.after(f));
        assert_eq!(through(MADE, PLACE), Placed::CONSTRUCTS);
        assert_eq!(through(Placed::CONSTRUCTS, SCHEDULE), Scheduled::CONSTRUCTS);
        assert_eq!(through(Scheduled::CONSTRUCTS, LOWER), Lowered::CONSTRUCTS);
    }

    /// A pass that leaves a construct which it claims to remove.
    #[test]
    fn what_a_pass_should_have_removed_is_a_defect_that_names_it() {
        let text = include_str!("../../tests/cases/passes/lower_layout_conversions/through_scratch.gpu");
        let (input, _) = text.split_once("\n---\n").unwrap();
        let k = gpu::parse_gpu(input).unwrap();
        let idle = [Pass { removes: Constructs::CONVERTS, ..pass("lower_nothing", |_, _| Ok(())) }];
        let Platform { target, machine } = k.target.into();
        let (schedule, notes) = (&Schedule::default(), &mut Notes::forgotten());
        let cx = &mut Cx::new(schedule, target, &machine, notes);
        let made = phase::<Placed>(k, MADE, &idle, cx, &mut |_, _| {});
        let Err(CompileError::Bug(said)) = made else { panic!("a ticket for a kernel with a `convert.layout`") };
        assert!(said.starts_with("after lower_nothing: error[ATL460]: `convert.layout` stands"), "{said}");
    }

    /// Passes that change nothing are not verified, and neither is a phase whose last passes change nothing. What breaks a rule is
    /// found after the pass that broke it nevertheless, wherever it stands among them.
    #[test]
    fn a_pass_that_breaks_a_rule_is_named_among_idle_ones() {
        let text = include_str!("../../tests/cases/passes/lower_layout_conversions/through_scratch.gpu");
        let (input, _) = text.split_once("\n---\n").unwrap();
        let idle = || pass("idle", |_, _| Ok(()));
        let breaks = || {
            pass("breaks", |k, _| {
                k.threads = 33;
                Ok(())
            })
        };
        let said = |passes: &[Pass]| {
            let k = gpu::parse_gpu(input).unwrap();
            let Platform { target, machine } = k.target.into();
            let (schedule, notes) = (&Schedule::default(), &mut Notes::forgotten());
            let cx = &mut Cx::new(schedule, target, &machine, notes);
            phase::<Placed>(k, Placed::CONSTRUCTS, passes, cx, &mut |_, _| {})
                .map_or_else(|e| e.to_string(), |_| String::new())
        };
        assert_eq!(said(&[idle(), idle()]), "");
        for passes in [&[breaks()][..], &[idle(), breaks(), idle()], &[idle(), breaks()], &[breaks(), idle()]] {
            let said = said(passes);
            assert!(said.contains("after breaks: error[ATL407]: 33 threads"), "{said}");
        }
    }

    /// A product of tiles of these sizes.
    fn product(m: u32, n: u32) -> Verified<atlas_dsl::Kernel> {
        let text = include_str!("../../tests/cases/tile/gemm.tile");
        let text = text.replace("128", "rows").replace("256", &n.to_string()).replace("rows", &m.to_string());
        atlas_dsl::parse_kernel(&text).and_then(atlas_dsl::verify).unwrap()
    }

    fn said(m: u32, n: u32, schedule: &str) -> String {
        let config: atlas_dsl::Config = schedule.parse().unwrap();
        let on: Platform = "sm_90a".parse().unwrap();
        crate::explain(&product(m, n), &config.schedule, on).map_or_else(|e| e.to_string(), |_| "accepted".to_owned())
    }

    #[test]
    fn a_schedule_that_is_named_fits() {
        for (refused, named, accepted) in
            [("stages=3 warps=4", "warps=8", "stages=3 warps=8"), ("stages=8 warps=8", "stages=4", "stages=4 warps=8")]
        {
            let text = said(128, 256, refused);
            assert!(text.ends_with(&format!("; with {named} it fits")), "{text}");
            assert_eq!(said(128, 256, accepted), "accepted");
        }
    }

    /// Warpgroups store boxes of their own rows, by another map than the one that `lower_tiles` makes.
    #[test]
    fn a_map_that_no_copy_uses_is_dropped() {
        let config: atlas_dsl::Config = "stages=3 warps=8 programs=persistent".parse().unwrap();
        let on: Platform = "sm_90a".parse().unwrap();
        let k = run(&product(128, 256), &config.schedule, on, |_, _| {}).unwrap().into_kernel();
        let boxes: Vec<u32> = k.maps.values().map(|map| map.box_elements()).collect();
        assert_eq!(boxes, [128 * 64, 256 * 64, 64 * 64]);
    }

    /// Of two stores of one layout, that in a loop keeps its stage whole, and the other one goes through panels.
    #[test]
    fn a_store_in_a_loop_leaves_others_their_panels() {
        let text = include_str!("../../tests/cases/tile/gemm.tile").replace("256", "128");
        let text = text.replace("%c: out", "%d: out bf16[G, M, N] strides [?8, ?8, 1] align 16,\n%c: out");
        let text = text.replace("dims M: ?8", "dims G: ?1, M: ?8").replace(
            "  store %c",
            "%one = splat 1 : i32\n%gs = size G\n%last = loop %g in %zero..%gs carry (%i = %one) {\n\
             store %d[%g, %m : 128, %n : 128], %out\nyield %i\n}\nstore %c",
        );
        let kernel =
            atlas_dsl::parse_kernel(&text).and_then(atlas_dsl::verify).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let config: atlas_dsl::Config = "stages=2 warps=8 programs=persistent".parse().unwrap();
        let on: Platform = "sm_90a".parse().unwrap();
        let k = run(&kernel, &config.schedule, on, |_, _| {}).unwrap().into_kernel();
        let of_stores = k.rings.values().filter(|ring| ring.read_by == gpu::Mover::Engine);
        let mut stages: Vec<(u32, u32)> =
            of_stores.map(|ring| (ring.stages, k.buffers[ring.buffers[0]].layout.cols)).collect();
        stages.sort_unstable();
        assert_eq!(stages, [(1, 128), (2, 64)]);
    }

    /// A product of 128 rows and so many columns, with a residual.
    fn with_residual(n: u32) -> Verified<atlas_dsl::Kernel> {
        let text = include_str!("../../tests/cases/tile/gemm.tile").replace("256", &n.to_string());
        let text = text.replace("%c: out", "%r: bf16[M, N] strides [?8, 1] align 16,\n%c: out").replace(
            "%out = cast %acc",
            &format!(
                "%beside = load %r[%m : 128, %n : {n}] : bf16[128, {n}]\n%wide = cast %beside : f32[128, {n}]\n\
                 %total = add %acc, %wide : f32[128, {n}]\n%out = cast %total"
            ),
        );
        atlas_dsl::parse_kernel(&text).and_then(atlas_dsl::verify).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Registers leave no room for a second CTA, and a residual takes the shared memory of one.
    #[test]
    fn a_residual_counts_where_one_cta_fits() {
        let is_persistent = |n: u32, schedule: &str| {
            let config: atlas_dsl::Config = schedule.parse().unwrap();
            let on: Platform = "sm_90a".parse().unwrap();
            run(&with_residual(n), &config.schedule, on, |_, _| {}).unwrap().index_map.persistent
        };
        assert!(is_persistent(256, "stages=2 warps=8"));
        // A second CTA has room, for the tile is loaded behind the loop into bytes of the ring.
        assert!(!is_persistent(128, "stages=3 warps=4"));
        assert!(!is_persistent(128, "stages=3 warps=8"));
    }

    /// Panels beside a residual and three stages do not fit. The notes say so, and name no store of persistent programs.
    #[test]
    fn why_programs_are_single_is_said() {
        let (config, on): (atlas_dsl::Config, Platform) =
            ("stages=3 warps=8".parse().unwrap(), "sm_90a".parse().unwrap());
        let explained = crate::explain(&with_residual(256), &config.schedule, on).unwrap();
        let said = explained.notes.iter().find(|note| note.subject == "programs").unwrap();
        let because = "persistent ones are refused: the tiles need 245824 bytes of shared memory";
        assert!(said.decision == "one for each CTA" && said.because.starts_with(because), "{explained}");
        assert!(!explained.notes.iter().any(|note| note.because == "the copy engine stores from it"), "{explained}");
    }

    /// A tile beside the accumulator goes back to the engine behind its last reader, warpgroup by warpgroup.
    #[test]
    fn warpgroups_release_a_residual_apart() {
        let (config, on): (atlas_dsl::Config, Platform) =
            ("stages=2 warps=8".parse().unwrap(), "sm_90a".parse().unwrap());
        let k = run(&with_residual(256), &config.schedule, on, |_, _| {}).unwrap().into_kernel();
        let of = |block: gpu::Block| k.blocks[block].insts.iter().map(|&i| &k.insts[i]);
        let turns = k.roles.values().flat_map(|role| of(role.body));
        let turn = turns.filter_map(|op| if let gpu::Op::Loop { body, .. } = op { Some(*body) } else { None }).next();
        let turn: Vec<&gpu::Op> = of(turn.unwrap()).collect();
        assert!(!turn.contains(&&gpu::Op::Barrier), "{k}");
        let release = turn.iter().position(|op| matches!(op, gpu::Op::Release(_))).unwrap();
        assert_eq!(turn[release - 1], &gpu::Op::WarpgroupBarrier, "{k}");
        assert!(matches!(turn[release - 2], gpu::Op::LoadShared(_)), "{k}");
    }

    #[test]
    fn none_is_named_where_none_fits() {
        for warps in [4, 8] {
            let text = said(256, 192, &format!("stages=3 warps={warps}"));
            assert!(
                text.contains("registers per thread") && !text.contains("it fits") && !text.contains("warps"),
                "{text}"
            );
        }
    }
}
