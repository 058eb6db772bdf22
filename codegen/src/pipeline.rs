//! Runs the passes of each phase, and verifies what they leave.

use crate::error::CompileError;
use crate::gpu::{self, Features, Kernel, Legal, Lowered, Phase, Placed, Scheduled};
use crate::machine::Platform;
use crate::notes::Notes;
use crate::passes::{Cx, FIRST, LOWER, MADE, PLACE, Pass, SCHEDULE, lower_tiles};
use atlas_dsl::{Schedule, Verified};

/// Who looks at a kernel after each pass, by the pass's name.
type Watch<'w> = &'w mut dyn FnMut(&'static str, &Kernel);

/// Runs every pass; `watch` sees the kernel after each. The machine decides what is refused, the target what is emitted.
///
/// # Errors
/// [`CompileError::Refused`] if the schedule does not fit the kernel and machine.
pub fn run(
    tile: &Verified<atlas_dsl::Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
    watch: impl FnMut(&'static str, &Kernel),
) -> Result<Legal<Lowered>, CompileError> {
    run_with_notes(tile, schedule, on, &mut Notes::forgotten(), watch)
}

/// [`run`], with what the passes decided and why.
///
/// # Errors
/// As [`run`]; the notes then end before the pass that refused.
pub fn run_with_notes(
    tile: &Verified<atlas_dsl::Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
    notes: &mut Notes,
    mut watch: impl FnMut(&'static str, &Kernel),
) -> Result<Legal<Lowered>, CompileError> {
    let Platform { target, machine } = on.into();
    let cx = &mut Cx { schedule, target, machine: &machine, notes };
    let placed = place(tile, cx, &mut watch)?;
    let scheduled = self::schedule(placed, cx, &mut watch)?;
    lower(scheduled, cx, &mut watch)
}

/// Tile IR to a kernel whose tiles have places.
fn place(tile: &Verified<atlas_dsl::Kernel>, cx: &mut Cx<'_>, watch: Watch<'_>) -> Result<Legal<Placed>, CompileError> {
    cx.notes.pass = FIRST;
    let k = lower_tiles(tile, cx)?;
    check(FIRST, &k, MADE)?;
    watch(FIRST, &k);
    phase(k, MADE, PLACE, cx, watch)
}

/// What runs when.
fn schedule(k: Legal<Placed>, cx: &mut Cx<'_>, watch: Watch<'_>) -> Result<Legal<Scheduled>, CompileError> {
    phase(k.into_kernel(), Placed::FEATURES, SCHEDULE, cx, watch)
}

/// Down to what the emitter takes.
fn lower(k: Legal<Scheduled>, cx: &mut Cx<'_>, watch: Watch<'_>) -> Result<Legal<Lowered>, CompileError> {
    phase(k.into_kernel(), Scheduled::FEATURES, LOWER, cx, watch)
}

/// Runs the passes of a phase on a kernel in which only `features` stand.
fn phase<P: Phase>(
    mut k: Kernel,
    mut features: Features,
    passes: &[Pass],
    cx: &mut Cx<'_>,
    watch: Watch<'_>,
) -> Result<Legal<P>, CompileError> {
    for pass in passes {
        cx.notes.pass = pass.name;
        (pass.run)(&mut k, cx)?;
        features = pass.after(features);
        check(pass.name, &k, features)?;
        watch(pass.name, &k);
    }
    let last = passes.last().map_or("the phase before", |pass| pass.name);
    Legal::verify(k).map_err(|d| defect(last, &d))
}

/// What a pass leaves must verify; anything else is a defect of the pass. A release looks at the end of each phase alone.
fn check(pass: &str, k: &Kernel, features: Features) -> Result<(), CompileError> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    gpu::verify(k, features).map_err(|d| defect(pass, &d))
}

fn defect(pass: &str, d: &atlas_dsl::Diagnostics) -> CompileError {
    CompileError::bug(format!("after {pass}: {d}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::pass;

    /// What the passes of a phase lead to is what the phase promises to the next one, and to the emitter.
    #[test]
    fn the_page_leads_to_the_phases() {
        let through = |from: Features, passes: &[Pass]| passes.iter().fold(from, |f, p| p.after(f));
        assert_eq!(through(MADE, PLACE), Placed::FEATURES);
        assert_eq!(through(Placed::FEATURES, SCHEDULE), Scheduled::FEATURES);
        assert_eq!(through(Scheduled::FEATURES, LOWER), Lowered::FEATURES);
    }

    /// A pass that leaves what it says that it removes.
    #[test]
    fn what_a_pass_should_have_removed_is_a_defect_that_names_it() {
        let text = include_str!("../../tests/cases/passes/lower_converts/through_scratch.gpu");
        let (input, _) = text.split_once("\n---\n").unwrap();
        let k = gpu::parse_gpu(input).unwrap();
        let idle = [Pass { removes: Features::CONVERTS, ..pass("lower_nothing", |_, _| Ok(())) }];
        let Platform { target, machine } = k.target.into();
        let (schedule, notes) = (&Schedule::default(), &mut Notes::forgotten());
        let cx = &mut Cx { schedule, target, machine: &machine, notes };
        let made = phase::<Placed>(k, MADE, &idle, cx, &mut |_, _| {});
        let Err(CompileError::Bug(said)) = made else { panic!("a ticket for a kernel with a `convert`") };
        assert!(said.starts_with("after lower_nothing: error[ATL460]: `convert` stands"), "{said}");
    }
}
