//! The ticket of a phase: a kernel that has passed the verifier with the features of that phase.
//!
//! | phase | a kernel |
//! |---|---|
//! | `Placed` | says where each tile lives, by which layouts and atoms |
//! | `Scheduled` | says besides who does what when |
//! | `Lowered` | says how: each operation is one form of instruction, and the emitter takes nothing else |

use super::{Features, Kernel, verify_features, verify_gpu};
use atlas_dsl::Diagnostics;
use std::marker::PhantomData;
use std::ops::Deref;

/// A phase, by what may stand in its kernels. Each phase is a type, which only marks a [`Legal`].
pub trait Phase {
    /// What may stand in a kernel of this phase.
    const FEATURES: Features;
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
    const FEATURES: Features = Features::PROGRAMS
        .with(Features::TOKENS)
        .with(Features::NUMBERED)
        .with(Features::BARE_WAITS)
        .with(Features::CONVERTS)
        .with(Features::UNPLACED)
        .with(Features::HINTS);
}

impl Phase for Scheduled {
    const FEATURES: Features = Placed::FEATURES;
}

impl Phase for Lowered {
    const FEATURES: Features = Features::TOKENS.with(Features::HINTS).with(Features::OFFSETS).with(Features::BARRIERS);
}

/// A verified kernel of a phase. Made by [`Legal::verify`] alone.
#[derive(Clone, Debug)]
pub struct Legal<P> {
    kernel: Kernel,
    phase: PhantomData<P>,
}

impl<P: Phase> Legal<P> {
    /// Gives the ticket to a kernel that keeps every rule and in which nothing stands but what the phase has.
    ///
    /// # Errors
    /// Every rule that is broken.
    pub fn verify(kernel: Kernel) -> Result<Legal<P>, Diagnostics> {
        verify(&kernel, P::FEATURES)?;
        Ok(Legal { kernel, phase: PhantomData })
    }

    /// The kernel, to change it; the ticket is gone.
    pub fn into_kernel(self) -> Kernel {
        self.kernel
    }
}

/// Both verifiers.
pub(crate) fn verify(kernel: &Kernel, allowed: Features) -> Result<(), Diagnostics> {
    verify_gpu(kernel)?;
    verify_features(kernel, allowed)
}

impl<P> Deref for Legal<P> {
    type Target = Kernel;

    fn deref(&self) -> &Kernel {
        &self.kernel
    }
}
