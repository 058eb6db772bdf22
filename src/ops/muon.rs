//! Muon on matrices of any size: momentum, a Newton-Schulz iteration, and the step.

pub use atlas_ops::muon::{Form, Muon, MuonMatrix, MuonSpace, MuonSpaces, NewtonSchulz, StepScale};
