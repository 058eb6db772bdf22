//! Tries one recipe: verifies it, compiles it for a target, runs it under several schedules, and compares it with the
//! oracle.

use super::emit::emit;
use super::execute::{self, DecodedLaunch};
use super::oracle::{self, Expected};
use super::recipe::Recipe;
use super::values::{Argument, arguments, ring_arguments};
use crate::stages;
use atlas_codegen::Target;
use atlas_dsl::op::{Op, UnaryOp};
use atlas_dsl::{Diagnostics, Kernel, Verified, verify};
use atlas_runtime::Device;
use atlas_sim::alu::Arithmetic;
use atlas_sim::fault::FaultKind;
use atlas_sim::launch::Policy;
use atlas_tile_interp::{Mode, check_ring};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The schedules of the simulator, each with its seed.
pub(super) const SCHEDULES: [(Policy, u64); 3] =
    [(Policy::RoundRobin, 0), (Policy::Adversarial, 1), (Policy::Random, 2)];

/// The kind of a failure. Shrinking keeps the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The compiler reports a defect of its own.
    Defect,
    /// Something panicked.
    Panic,
    /// The simulator found a fault.
    Fault(FaultKind),
    /// An element is off by more than its bound.
    Wrong,
    /// A byte between the elements changed.
    Padding,
    /// The results in the ring differ.
    Ring,
    /// The interpreter does not run the kernel.
    Oracle,
    /// The GPU does not run the kernel.
    Gpu,
    /// A config changes the result, or whether the kernel is legal.
    Config,
}

/// A failure and where it occurred.
#[derive(Clone, Debug)]
pub(super) struct TrialFailure {
    pub(super) kind: Kind,
    pub(super) target: Target,
    pub(super) schedule: Option<(Policy, u64)>,
    pub(super) message: String,
}

/// Facts about a recipe that did not fail.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    /// Why the compiler refused the config.
    pub(super) refused: Option<String>,
    /// Whether several CTAs share each program.
    pub(super) is_split: bool,
    pub(super) launches: usize,
    /// Whether it also ran in the ring.
    pub(super) ring: bool,
    /// Elements of the outputs, and how many of them were judged.
    pub(super) elements: usize,
    pub(super) judged: usize,
}

/// A recipe with a well-formed kernel, and its expected outputs.
pub(super) struct Trial<'r> {
    recipe: &'r Recipe,
    pub(super) kernel: Verified<Kernel>,
    pub(super) dims: Vec<u64>,
    arguments: Vec<Argument>,
    expected: Option<Vec<Expected>>,
}

/// A failure without its location.
type Wrong = (Kind, String);

impl<'r> Trial<'r> {
    /// Builds and verifies a recipe's kernel.
    pub(super) fn new(recipe: &'r Recipe) -> Result<Trial<'r>, Diagnostics> {
        let kernel = verify(emit(recipe, None)?.kernel)?;
        let dims = (0..recipe.dims.len()).map(|d| recipe.size(d)).collect();
        Ok(Trial { recipe, kernel, dims, arguments: arguments(recipe), expected: None })
    }

    /// Compiles for a target and runs under several schedules, and on a GPU if one is given.
    pub(super) fn run(
        &mut self,
        target: Target,
        schedules: &[(Policy, u64)],
        device: Option<&Device>,
    ) -> Result<Passed, TrialFailure> {
        let mut at = None;
        let ran = catch_unwind(AssertUnwindSafe(|| self.checked(target, schedules, device, &mut at)));
        let ran = ran.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&s| s.to_owned()));
            Err((Kind::Panic, text.unwrap_or_default()))
        });
        ran.map_err(|(kind, message)| TrialFailure { kind, target, schedule: at, message })
    }

    fn checked(
        &mut self,
        target: Target,
        schedules: &[(Policy, u64)],
        device: Option<&Device>,
        at: &mut Option<(Policy, u64)>,
    ) -> Result<Passed, Wrong> {
        let mut passed = Passed::default();
        let image = match stages::image((*self.kernel).clone(), &self.recipe.schedule, target.into()) {
            Ok(image) => image,
            Err(stages::CompileFailure::Refused(reason)) => {
                passed.refused = Some(reason);
                return Ok(passed);
            }
            Err(stages::CompileFailure::Other(e)) => return Err((Kind::Defect, format!("{e:#}"))),
        };
        passed.is_split = image.splits > 1;
        self.expected().map_err(|e| (Kind::Oracle, e))?;
        let ready = DecodedLaunch::new(&image, &self.dims, &self.arguments, Arithmetic::Ieee);
        let ready = ready.map_err(|fault| (Kind::Fault(fault.kind), fault.to_string()))?;
        for &schedule in schedules {
            *at = Some(schedule);
            let after = ready.simulate(schedule.0, schedule.1);
            let after = after.map_err(|fault| (Kind::Fault(fault.kind), fault.to_string()))?;
            self.compare(&after, &mut passed)?;
            passed.launches += 1;
        }
        // LLVM negates values that go from memory to memory by flipping the sign bit, which is not negation in the
        // ring.
        let negates = self.kernel.insts.values().any(|op| matches!(op, Op::Unary(UnaryOp::Neg, _)));
        if !negates && check_ring(&self.kernel).is_ok() {
            *at = schedules.first().copied();
            self.in_ring(&image)?;
            passed.ring = true;
        }
        if let Some(device) = device {
            *at = None;
            let after = execute::on_gpu(device, &self.kernel, &self.recipe.schedule, &self.dims, &self.arguments);
            let after = after.map_err(|what| (Kind::Gpu, what))?;
            self.compare(&after, &mut passed)?;
        }
        Ok(passed)
    }

    /// The expected outputs.
    pub(super) fn expected(&mut self) -> Result<&[Expected], String> {
        if self.expected.is_none() {
            self.expected = Some(oracle::expected(self.recipe, &self.dims, &self.arguments)?);
        }
        Ok(self.expected.as_deref().unwrap_or_default())
    }

    /// The first element that differs between the expected outputs of this trial and of another one with the same
    /// arguments by more than both of their bounds.
    pub(super) fn differs(&self, other: &Trial<'_>) -> Option<String> {
        let of = |trial: &'_ Trial<'_>| trial.expected.as_deref().unwrap_or_default().len();
        if of(self) != of(other) {
            return Some("another number of outputs is written".to_owned());
        }
        let both = self.expected.iter().flatten().zip(other.expected.iter().flatten());
        for (mine, theirs) in both {
            for (i, (&a, &b)) in mine.values.iter().zip(&theirs.values).enumerate() {
                if !within(a, b, mine.bounds[i] + theirs.bounds[i]) {
                    return Some(format!("element {i} of parameter {} is {a:e} and {b:e}", mine.param));
                }
            }
        }
        None
    }

    /// Compares buffers with what the oracle expects.
    fn compare(&self, after: &[Vec<u8>], passed: &mut Passed) -> Result<(), Wrong> {
        let expected = self.expected.as_deref().unwrap_or_default();
        (passed.elements, passed.judged) = (0, 0);
        for e in expected {
            let Argument::Tensor { placed, bytes, .. } = &self.arguments[e.param] else { continue };
            let name = &self.kernel.params[atlas_dsl::Param::from_u32(e.param as u32)].name;
            if !placed.same_padding(bytes, &after[e.param]) {
                return Err((Kind::Padding, format!("bytes of `{name}` that are no elements have changed")));
            }
            let found = placed.read(&after[e.param]);
            passed.elements += found.len();
            passed.judged += e.bounds.iter().filter(|b| b.is_finite()).count();
            let wrong: Vec<usize> = (0..found.len()).filter(|&i| !within(found[i], e.values[i], e.bounds[i])).collect();
            if let Some(&first) = wrong.first() {
                let place = coordinates(first, &placed.dims);
                let (found, wanted, bound) = (found[first], e.values[first], e.bounds[first]);
                let message = format!(
                    "{} of {} elements of `{name}` are wrong; at {place:?} it is {found:e} and should be {wanted:e} \
                     within {bound:.1e}",
                    wrong.len(),
                    e.values.len()
                );
                return Err((Kind::Wrong, message));
            }
        }
        Ok(())
    }

    /// Compares bits in a finite ring, in which the order of sums has no effect.
    fn in_ring(&self, image: &atlas_codegen::KernelImage) -> Result<(), Wrong> {
        let arguments = ring_arguments(self.recipe);
        let wanted = oracle::interpret(&self.kernel, &self.dims, &arguments, Mode::Ring);
        let wanted = wanted.map_err(|e| (Kind::Oracle, e.to_string()))?;
        let ready = DecodedLaunch::new(image, &self.dims, &arguments, Arithmetic::Exact);
        let found = ready.and_then(|r| r.simulate(Policy::RoundRobin, 0));
        let found = found.map_err(|fault| (Kind::Fault(fault.kind), format!("in the ring: {fault}")))?;
        let differing = found.iter().flatten().zip(wanted.iter().flatten()).filter(|(a, b)| a != b).count();
        match differing {
            0 => Ok(()),
            n => Err((Kind::Ring, format!("{n} bytes differ in the ring"))),
        }
    }
}

/// True if an element is within its bound.
fn within(found: f64, wanted: f64, bound: f64) -> bool {
    if bound == f64::INFINITY || found == wanted || (found.is_nan() && wanted.is_nan()) {
        return true;
    }
    found.is_finite() && wanted.is_finite() && (found - wanted).abs() <= bound
}

fn coordinates(mut i: usize, dims: &[u64]) -> Vec<u64> {
    let mut at = vec![0; dims.len()];
    for (at, &n) in at.iter_mut().zip(dims).rev() {
        *at = i as u64 % n;
        i /= n as usize;
    }
    at
}
