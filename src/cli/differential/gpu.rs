//! One launch of PTX on a GPU: buffers in, bytes out, and whether the GPU can go on after a failure.

use atlas_runtime::{Device, RawBuffer, RawKernel, RuntimeError};

/// What goes to the GPU.
pub(in crate::cli) struct Job<'a> {
    /// The module.
    pub(in crate::cli) ptx: &'a str,
    /// Its entry.
    pub(in crate::cli) entry: &'a str,
    /// CTAs, along x.
    pub(in crate::cli) grid: u32,
    /// Threads of a CTA.
    pub(in crate::cli) threads: u32,
    /// Dynamic shared memory of a CTA in bytes.
    pub(in crate::cli) shared_bytes: u32,
    /// What each buffer holds before the launch.
    pub(in crate::cli) buffers: &'a [Vec<u8>],
}

/// A launch that gave no bytes.
pub(in crate::cli) struct Failure {
    /// What the driver says.
    pub(in crate::cli) what: String,
    /// True if nothing runs on this GPU any more in this process.
    pub(in crate::cli) fatal: bool,
}

/// Launches, and gives what each buffer holds afterwards. `params` packs the addresses of the buffers.
pub(in crate::cli) fn launch(
    device: &Device,
    job: &Job<'_>,
    params: impl FnOnce(&[u64]) -> Vec<u8>,
) -> Result<Vec<Vec<u8>>, Failure> {
    let kernel = RawKernel::load(device, job.ptx, job.entry, job.shared_bytes);
    let run = |kernel: RawKernel| -> Result<Vec<Vec<u8>>, RuntimeError> {
        let buffers = job.buffers.iter().map(|b| RawBuffer::new(device, b)).collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<u64> = buffers.iter().map(RawBuffer::address).collect();
        kernel.launch([job.grid, 1, 1], [job.threads, 1, 1], &params(&addresses))?;
        buffers.iter().map(RawBuffer::read).collect()
    };
    // A fault of a kernel stays with the context: every later call reports it.
    let failed = |e: RuntimeError| Failure { what: e.to_string(), fatal: device.synchronize().is_err() };
    kernel.and_then(run).map_err(failed)
}
