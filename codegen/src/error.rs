//! Why a kernel was not compiled, and whether the config, the kernel or the compiler is at fault.

use atlas_dsl::Diagnostics;
use std::fmt;

/// The reason why a compilation stopped.
#[derive(Clone, Debug, PartialEq)]
pub enum CompileError {
    /// The config does not fit the target: a value with a reason, never a panic.
    Refused(String),
    /// The kernel is wrong.
    Kernel(Diagnostics),
    /// A defect of this compiler.
    Bug(String),
}

impl CompileError {
    /// A config that does not fit, and why.
    pub fn refusal(reason: impl Into<String>) -> CompileError {
        CompileError::Refused(reason.into())
    }

    /// A broken promise of this compiler.
    pub fn bug(what: impl Into<String>) -> CompileError {
        CompileError::Bug(what.into())
    }

    /// True if another config might work.
    pub fn is_refusal(&self) -> bool {
        matches!(self, CompileError::Refused(_))
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::Refused(reason) => write!(f, "error[ATL302]: illegal config: {reason}"),
            CompileError::Kernel(d) => write!(f, "{d}"),
            CompileError::Bug(what) => write!(f, "error[ATL501]: this is a defect of Atlas, please report it: {what}"),
        }
    }
}

impl std::error::Error for CompileError {}

impl From<Diagnostics> for CompileError {
    fn from(d: Diagnostics) -> CompileError {
        CompileError::Kernel(d)
    }
}
