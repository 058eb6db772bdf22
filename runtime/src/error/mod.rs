//! Runtime errors: which argument, which kernel, which device, and what to do about it. Codes are `ATL6xx`.
//!
//! The room holds `RuntimeError` and all its variants, so that all other rooms may depend on it. It depends on none.
//!
//! | file | holds |
//! |---|---|
//! | `device_error`, `tensor_error`, `launch_error` | what is wrong with a device, a tensor, the arguments of a launch |
//! | `bundle_error` | why a bundle cannot be used, and how text from a file is shown |
//! | `failures` | why no config was compiled; which call of the CUDA driver failed |
//! | `sim_fault` | what the simulator found wrong with a kernel (feature `sim`) |

/// Declares an error enum, with the code and the message of each variant beside it.
macro_rules! errors {
    ($(#[$m:meta])* $name:ident {
        $($(#[$vm:meta])* $variant:ident { $($(#[$fm:meta])* $field:ident: $ty:ty),* $(,)? } = $code:literal, $text:literal;)+
    }) => {
        $(#[$m])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name { $($(#[$vm])* $variant { $($(#[$fm])* $field: $ty),* }),+ }
        impl $name {
            /// The stable number of this kind of mistake.
            pub fn code(&self) -> Code {
                match self { $($name::$variant { .. } => Code($code)),+ }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "error[{}]: ", self.code())?;
                match self { $($name::$variant { $($field),* } => write!(f, $text, $($field = $field),*)),+ }
            }
        }
    };
}

mod bundle_error;
mod device_error;
mod failures;
mod launch_error;
#[cfg(feature = "sim")]
mod sim_fault;
mod tensor_error;

pub use bundle_error::{BundleError, shown};
pub use device_error::DeviceError;
pub(crate) use failures::without_numbers;
pub use failures::{CompileFailure, DriverFailure};
pub use launch_error::LaunchError;
#[cfg(feature = "sim")]
pub use sim_fault::SimFault;
pub use tensor_error::TensorError;

use atlas_dsl::config::ConfigError;
use atlas_dsl::diag::Code;
use atlas_dsl::{Config, Diagnostics};
use std::fmt;

/// What every fallible function of this crate returns.
pub type Result<T> = std::result::Result<T, RuntimeError>;

/// Anything that can go wrong between a problem and a launched kernel. `{:?}` prints the same as `{}`, because that is
/// what a `main` prints that returns one.
#[derive(Clone, PartialEq)]
pub enum RuntimeError {
    /// A device cannot be opened.
    Device(DeviceError),
    /// A tensor cannot be made, viewed or read.
    Tensor(TensorError),
    /// The arguments of a launch do not fit the kernel.
    Launch(LaunchError),
    /// The kernel cannot be built for this problem and config.
    Kernel {
        /// The kernel's name.
        kernel: String,
        /// The config it was built with.
        config: Box<Config>,
        /// The diagnostics of the builder or the verifier.
        diagnostics: Diagnostics,
    },
    /// The interpreter stopped with an error.
    Cpu {
        /// The kernel's name.
        kernel: String,
        /// Its message.
        message: String,
    },
    /// A bundle cannot be used.
    Bundle(BundleError),
    /// No kernel could be compiled.
    Compile(CompileFailure),
    /// A CUDA driver call failed.
    Driver(DriverFailure),
    /// The simulator found a fault in a kernel.
    #[cfg(feature = "sim")]
    Fault(Box<SimFault>),
}

impl RuntimeError {
    /// The stable number of this kind of mistake.
    pub fn code(&self) -> Code {
        match self {
            RuntimeError::Device(e) => e.code(),
            RuntimeError::Tensor(e) => e.code(),
            RuntimeError::Launch(e) => e.code(),
            RuntimeError::Kernel { diagnostics, .. } => diagnostics.0.first().map_or(Code(600), |d| d.code),
            RuntimeError::Cpu { .. } => Code(626),
            RuntimeError::Bundle(e) => e.code(),
            RuntimeError::Compile(e) => e.code(),
            RuntimeError::Driver(_) => Code(625),
            #[cfg(feature = "sim")]
            RuntimeError::Fault(_) => Code(627),
        }
    }
}

impl fmt::Debug for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuntimeError::Device(e) => e.fmt(f),
            RuntimeError::Tensor(e) => e.fmt(f),
            RuntimeError::Launch(e) => e.fmt(f),
            RuntimeError::Kernel { kernel, config, diagnostics } if **config == Config::default() => {
                write!(f, "kernel `{kernel}`: {diagnostics}")
            }
            RuntimeError::Kernel { kernel, config, diagnostics } => {
                write!(f, "kernel `{kernel}` with config `{config}`: {diagnostics}")
            }
            RuntimeError::Cpu { kernel, message } => write!(f, "error[ATL626]: `{kernel}` on the CPU: {message}"),
            RuntimeError::Bundle(e) => e.fmt(f),
            RuntimeError::Compile(e) => e.fmt(f),
            RuntimeError::Driver(e) => e.fmt(f),
            #[cfg(feature = "sim")]
            RuntimeError::Fault(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for RuntimeError {}

#[cfg(feature = "sim")]
impl From<SimFault> for RuntimeError {
    fn from(e: SimFault) -> RuntimeError {
        RuntimeError::Fault(Box::new(e))
    }
}

impl From<ConfigError> for RuntimeError {
    fn from(e: ConfigError) -> RuntimeError {
        LaunchError::UnreadableConfig { why: e.to_string() }.into()
    }
}

/// Lets `?` convert a specific error into [`RuntimeError`].
macro_rules! umbrella {
    ($($error:ident => $variant:ident),+ $(,)?) => {$(
        impl From<$error> for RuntimeError {
            fn from(e: $error) -> RuntimeError {
                RuntimeError::$variant(e)
            }
        }
        impl std::error::Error for $error {}
    )+};
}
umbrella! {
    DeviceError => Device,
    TensorError => Tensor,
    LaunchError => Launch,
    BundleError => Bundle,
    CompileFailure => Compile,
    DriverFailure => Driver,
}
