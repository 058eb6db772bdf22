//! Muon on matrices of any size: momentum, a Newton-Schulz iteration, and the step.
//!
//! [`Muon::torch`], [`Muon::jordan`] and [`Muon::moonshot`] are the optimisers of public code by name, and the functions of
//! [`NewtonSchulz`] its iterations. Each says its formula.

pub use atlas_ops::muon::{Form, Momentum, Muon, MuonMatrix, MuonSpace, MuonSpaces, NewtonSchulz, NormEps, StepScale};
