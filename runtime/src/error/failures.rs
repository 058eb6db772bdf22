//! Failures of the compiler and of the CUDA driver: no config of a kernel could be compiled, or a call failed.

use atlas_dsl::Config;
use atlas_dsl::diag::Code;
use std::fmt;

/// Why no config of a kernel could be compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileFailure {
    /// The kernel's name.
    pub kernel: String,
    /// What went wrong, in one sentence with advice.
    pub message: String,
    /// The configs that were refused, each with its reason.
    pub refused: Vec<(Config, String)>,
    /// False if this build has no compiler at all.
    pub compiler_present: bool,
}

impl CompileFailure {
    /// The stable number of this kind of mistake.
    pub fn code(&self) -> Code {
        Code(if self.compiler_present { 641 } else { 640 })
    }
}

impl fmt::Display for CompileFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: `{}`: {}", self.code(), self.kernel, self.message)?;
        for (config, reason) in &self.refused {
            write!(f, "; config `{config}`: {reason}")?;
        }
        Ok(())
    }
}

/// A CUDA driver call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverFailure {
    /// The driver function.
    pub call: &'static str,
    /// The device it was called for.
    pub device: String,
    /// The driver's error number.
    pub status: u32,
    /// The driver's name and text for the error, and its log if it wrote one.
    pub message: String,
}

impl fmt::Display for DriverFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[ATL625]: {} failed on {}: {}", self.call, self.device, self.message)
    }
}
