//! Proof that a kernel verified and contains only the constructs that its phase allows.
//!
//! | phase | a kernel |
//! |---|---|
//! | `Placed` | says where each tile lives, by which layouts and atoms |
//! | `Scheduled` | says besides who does what when |
//! | `Lowered` | says how: each operation is one form of instruction, and the emitter takes nothing else |

use super::{Constructs, Kernel, verify_constructs, verify_gpu};
use atlas_dsl::Diagnostics;
use std::marker::PhantomData;
use std::ops::Deref;

/// A phase, by what may stand in its kernels. Each phase is a type, which only marks a [`VerifiedKernel`].
pub trait Phase {
    /// What may stand in a kernel of this phase.
    const CONSTRUCTS: Constructs;
}

/// After the first passes.
#[derive(Clone, Debug)]
pub struct Placed;

/// After those that order work.
#[derive(Clone, Debug)]
pub struct Scheduled;

/// After the last pass.
#[derive(Clone, Debug)]
pub struct Lowered;

impl Phase for Placed {
    const CONSTRUCTS: Constructs = Constructs::PROGRAMS
        .with(Constructs::TOKENS)
        .with(Constructs::NUMBERED)
        .with(Constructs::BARE_WAITS)
        .with(Constructs::CONVERTS)
        .with(Constructs::UNPLACED)
        .with(Constructs::OPEN_ACCESSES)
        .with(Constructs::ENGINE)
        .with(Constructs::ENGINE_STORES)
        .with(Constructs::SPLITS)
        .with(Constructs::CLUSTERS)
        .with(Constructs::HINTS);
}

impl Phase for Scheduled {
    const CONSTRUCTS: Constructs = Placed::CONSTRUCTS;
}

impl Phase for Lowered {
    const CONSTRUCTS: Constructs = Constructs::TOKENS
        .with(Constructs::HINTS)
        .with(Constructs::OFFSETS)
        .with(Constructs::BARRIERS)
        .with(Constructs::ENGINE)
        .with(Constructs::ENGINE_STORES)
        .with(Constructs::CURSORS)
        .with(Constructs::GRIDS)
        .with(Constructs::SPLITS)
        .with(Constructs::CLUSTERS)
        .with(Constructs::ACCESS_KINDS);
}

/// A verified kernel of a phase. Only [`VerifiedKernel::verify`] makes one, and what the pipeline does in its place.
#[derive(Clone, Debug)]
pub struct VerifiedKernel<P> {
    kernel: Kernel,
    phase: PhantomData<P>,
}

impl<P: Phase> VerifiedKernel<P> {
    /// Verifies a kernel: it keeps every rule and contains only the constructs that the phase allows.
    ///
    /// # Errors
    /// Every rule that is broken.
    pub fn verify(kernel: Kernel) -> Result<VerifiedKernel<P>, Diagnostics> {
        VerifiedKernel::verify_beside(kernel, None)
    }

    /// [`VerifiedKernel::verify`], where a kernel is at hand that keeps every rule: one that equals it is not verified again.
    pub(crate) fn verify_beside(kernel: Kernel, verified: Option<&Kernel>) -> Result<VerifiedKernel<P>, Diagnostics> {
        verify_beside(&kernel, verified, P::CONSTRUCTS)?;
        Ok(VerifiedKernel { kernel, phase: PhantomData })
    }

    /// The kernel, to change it. It has to be verified again.
    pub fn into_kernel(self) -> Kernel {
        self.kernel
    }
}

/// Both verifiers.
pub(crate) fn verify(kernel: &Kernel, allowed: Constructs) -> Result<(), Diagnostics> {
    verify_beside(kernel, None, allowed)
}

/// Both verifiers. A kernel that equals one that keeps every rule is asked for its constructs alone.
fn verify_beside(kernel: &Kernel, verified: Option<&Kernel>, allowed: Constructs) -> Result<(), Diagnostics> {
    if verified != Some(kernel) {
        verify_gpu(kernel)?;
    }
    verify_constructs(kernel, allowed)
}

impl<P> Deref for VerifiedKernel<P> {
    type Target = Kernel;

    fn deref(&self) -> &Kernel {
        &self.kernel
    }
}
