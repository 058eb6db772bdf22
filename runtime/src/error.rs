//! Runtime errors: which argument, which kernel, which device, and the mend. Codes are `ATL6xx`.

use crate::bundle::BundleError;
use crate::launch_error::LaunchError;
#[cfg(feature = "sim")]
use crate::sim_fault::SimFault;
use atlas_dsl::diag::Code;
use atlas_dsl::{Config, DType, Diagnostics};
use std::fmt;

/// What every fallible function of this crate returns.
pub type Result<T> = std::result::Result<T, RuntimeError>;

/// Anything that can go wrong between a problem and a launched kernel. `{:?}` says the same as `{}`, since it is what a `main` prints
/// that returns one.
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
        config: Config,
        /// What the builder or the verifier found.
        diagnostics: Diagnostics,
    },
    /// The interpreter stopped.
    Cpu {
        /// The kernel's name.
        kernel: String,
        /// What it said.
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
            RuntimeError::Kernel { kernel, config, diagnostics } if *config == Config::default() => {
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

/// Lets `?` turn a specific error into [`RuntimeError`].
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

/// Declares an error enum: each variant's code and message stand beside it.
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

errors! {
    /// Why a device cannot be opened.
    DeviceError {
        /// `libcuda` cannot be loaded.
        NoDriver {} = 620, "no NVIDIA driver: the library libcuda.so.1 cannot be loaded; install the driver (Debian: package nvidia-driver), give the container its GPUs (docker run --gpus all), or use Device::cpu()";
        /// The driver lacks a function that this crate needs.
        DriverTooOld {
            /// What was found.
            found: String,
            /// The lowest CUDA version that will do.
            wanted: String,
        } = 621, "the NVIDIA driver is too old: found {found}, wanted one for CUDA {wanted} or later; update the driver";
        /// The driver is there but does not start.
        DriverBroken {
            /// What the driver said.
            status: String,
        } = 621, "the NVIDIA driver does not start: {status}; `nvidia-smi` shows whether it sees a GPU, and a reboot mends a driver that was updated while it ran";
        /// There are fewer GPUs than asked for.
        NoSuchGpu {
            /// The ordinal that was asked for.
            ordinal: usize,
            /// How many GPUs there are.
            count: usize,
        } = 622, "there is no GPU {ordinal}: this machine shows {count} (numbered from 0); CUDA_VISIBLE_DEVICES hides the others if it is set";
        /// The code generator has no target for the GPU.
        UnsupportedGpu {
            /// The GPU's name.
            name: String,
            /// Compute capability.
            major: u32,
            /// Compute capability.
            minor: u32,
        } = 623, "{name} has compute capability {major}.{minor}, and no supported target runs on it; use another GPU or Device::cpu()";
        /// The simulator has no such architecture.
        NoSuchArch {
            /// What was given, and what there is.
            reason: String,
        } = 624, "no GPU to simulate: {reason}";
        /// The process was forked after CUDA had started, which no GPU survives.
        Forked {} = 649, "this process was forked from one that had started CUDA, and CUDA does not follow a fork: start the new process with exec (Python: the start method `spawn`), fork before the first GPU is used, or use Device::cpu() here";
        /// PTX was given to the CPU.
        NotAGpu {} = 628, "a CPU runs no PTX; name a GPU, such as cuda:0";
    }
}

errors! {
    /// Why a tensor cannot be made, viewed or read.
    TensorError {
        /// The number of elements and the shape disagree.
        WrongLength {
            /// Elements given.
            found: usize,
            /// The shape.
            shape: Vec<usize>,
        } = 630, "{found} elements are given for a tensor of shape {shape:?}";
        /// A range of an axis lies outside it, or is reversed.
        SliceOutOfRange {
            /// The axis.
            axis: usize,
            /// First element.
            start: usize,
            /// One past the last element.
            end: usize,
            /// The size of the axis.
            size: usize,
        } = 631, "slice {start}..{end} of axis {axis}, which has size {size}";
        /// A view of given strides reaches beyond its tensor.
        BeyondTensor {
            /// The shape asked for.
            shape: Vec<usize>,
            /// The strides asked for, in elements.
            strides: Vec<usize>,
            /// The first element.
            offset: usize,
            /// Elements that there are.
            len: usize,
        } = 631, "a view of shape {shape:?} with strides {strides:?} from element {offset} does not lie within {len} elements";
        /// There is no such axis.
        NoSuchAxis {
            /// The axis.
            axis: usize,
            /// The tensor's rank.
            rank: usize,
        } = 632, "axis {axis} of a tensor of rank {rank}";
        /// The axes given to `permute` are not each axis once.
        NotAPermutation {
            /// The axes given.
            axes: Vec<usize>,
            /// The tensor's rank.
            rank: usize,
        } = 633, "{axes:?} does not name each axis of a tensor of rank {rank} once";
        /// Only axes of size 1 expand.
        CannotExpand {
            /// The tensor's shape.
            from: Vec<usize>,
            /// The shape asked for.
            to: Vec<usize>,
        } = 634, "a tensor of shape {from:?} does not expand to {to:?}: an axis keeps its size, or has size 1";
        /// The new shape has another number of elements.
        CannotReshape {
            /// The tensor's shape.
            from: Vec<usize>,
            /// The shape asked for.
            to: Vec<usize>,
        } = 635, "a tensor of shape {from:?} has another number of elements than {to:?}";
        /// The view is not row-major without gaps.
        NotContiguous {
            /// The tensor's shape.
            shape: Vec<usize>,
            /// Its strides, in elements.
            strides: Vec<i64>,
        } = 635, "a view of shape {shape:?} with strides {strides:?} is not contiguous; copy it first with `contiguous()`";
        /// The host type is not the tensor's element type.
        WrongElement {
            /// The host type's element type.
            found: DType,
            /// The tensor's element type.
            wanted: DType,
        } = 636, "the tensor holds {wanted}, but it is read or written as {found}";
        /// The size in bytes passes 2^63.
        TooLarge {
            /// The shape.
            shape: Vec<usize>,
        } = 637, "a tensor of shape {shape:?} has more bytes than an address space";
        /// Out of memory.
        OutOfMemory {
            /// Bytes asked for.
            bytes: u64,
            /// The device.
            device: String,
        } = 638, "{device} has no {bytes} bytes of free memory; drop tensors, or use a smaller problem";
        /// The element type exists only inside kernels.
        NoHostType {
            /// The element type.
            dtype: DType,
        } = 639, "a tensor cannot hold {dtype}: it exists only inside kernels";
    }
}

/// Why no config of a kernel could be compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileFailure {
    /// The kernel's name.
    pub kernel: String,
    /// What went wrong, in one sentence with its mend.
    pub message: String,
    /// Configs that were refused, each with its reason.
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
    /// The driver's number.
    pub status: u32,
    /// The driver's own name and sentence for it, and its log if it wrote one.
    pub message: String,
}

impl fmt::Display for DriverFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[ATL625]: {} failed on {}: {}", self.call, self.device, self.message)
    }
}
