//! Device errors: why a device cannot be opened or used.

use atlas_dsl::diag::Code;
use std::fmt;

errors! {
    /// Why a device cannot be opened.
    DeviceError {
        /// `libcuda` cannot be loaded.
        NoDriver {} = 620, "no NVIDIA driver: the library libcuda.so.1 cannot be loaded; install the driver (Debian: package nvidia-driver), give the container its GPUs (docker run --gpus all), or use Device::cpu()";
        /// The driver lacks a function that this crate needs.
        DriverTooOld {
            /// The CUDA version that was found.
            found: String,
            /// The lowest CUDA version that suffices.
            wanted: String,
        } = 621, "the NVIDIA driver is too old: found {found}, wanted one for CUDA {wanted} or later; update the driver";
        /// The driver is there but does not start.
        DriverBroken {
            /// The driver's message.
            status: String,
        } = 621, "the NVIDIA driver does not start: {status}; `nvidia-smi` shows whether it sees a GPU, and a reboot mends a driver that was updated while it ran";
        /// There are fewer GPUs than the ordinal asks for.
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
        /// The simulator does not have this architecture.
        NoSuchArch {
            /// The name that was given, and the names that exist.
            reason: String,
        } = 624, "no GPU to simulate: {reason}";
        /// The process was forked after CUDA had started, and CUDA does not work after a fork.
        Forked {} = 649, "this process was forked from one that had started CUDA, and CUDA does not follow a fork: start the new process with exec (Python: the start method `spawn`), fork before the first GPU is used, or use Device::cpu() here";
        /// PTX was given to the CPU.
        NotAGpu {} = 628, "a CPU runs no PTX; name a GPU, such as cuda:0";
    }
}
