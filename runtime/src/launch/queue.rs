//! The last step of a launch: packs parameters, and queues or runs a kernel. The only place that calls
//! `cuLaunchKernel`.

use super::args::Arg;
use super::bind::is_written;
use super::interpreter::{run_native, run_on_host};
use super::parameters::param_bits;
use crate::device::{Backend, Device, GpuLaunch, KernelLaunch, LaunchBody, LaunchParam, LaunchPlan, Stream};
use crate::error::{DeviceError, Result};
use crate::gpu::{Context, DriverModule, EncodedMap, Handle, LoadedCode, LoadedKernel, ScratchAddresses, VirtualGpu};
use atlas_dsl::KernelDef;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Runs a plan with checked arguments.
pub(super) fn run(
    def: &'static KernelDef,
    device: &Device,
    stream: Option<&Stream>,
    plan: &LaunchPlan,
    args: &[Arg<'_>],
) -> Result<()> {
    note(device, plan);
    if let LaunchBody::Gpu(gpu) = &plan.body
        && let Some(stream) = stream.filter(|stream| stream.is_raw())
        && stream.is_recording()?
    {
        gpu.kernels().for_each(|launch| device.plans().keep_recorded(&launch.kernel));
    }
    match (&plan.body, device.backend()) {
        (LaunchBody::Cpu { kernel, dims }, Backend::Cpu) => run_native(def, kernel, dims, args),
        (LaunchBody::Cpu { kernel, dims }, _) => run_on_host(def, device, kernel, dims, args),
        (LaunchBody::Gpu(gpu), Backend::Cuda(context)) => {
            let handle = stream.map_or(std::ptr::null_mut(), Stream::as_raw);
            let queue = |scratch: ScratchAddresses| queue_kernels((def, args), gpu, context, handle, scratch);
            match (gpu.scratch, stream) {
                (None, _) => queue(ScratchAddresses::default()),
                (Some(need), Some(stream)) => stream.with_scratch(context, need, queue),
                (Some(need), None) => device.default_stream().with_scratch(context, need, queue),
            }
        }
        (LaunchBody::Gpu(launch), Backend::Virtual(gpu)) => run_virtual(def, gpu.as_ref(), launch, args),
        (LaunchBody::Gpu(_) | LaunchBody::Empty, _) => Ok(()),
    }
}

/// Notes that a plan is launched now.
pub(super) fn note(device: &Device, plan: &LaunchPlan) {
    if let Some(tally) = &plan.tally {
        tally.add();
    }
    if let LaunchBody::Gpu(gpu) = &plan.body {
        let now = device.counters().launches.load(Ordering::Relaxed);
        gpu.kernels().for_each(|launch| launch.kernel.touch(now));
    }
}

/// Queues the kernels of a launch on a stream of the driver. They follow each other there.
pub(super) fn queue_kernels(
    (def, args): (&'static KernelDef, &[Arg<'_>]),
    gpu: &GpuLaunch,
    context: &Context,
    stream: Handle,
    scratch: ScratchAddresses,
) -> Result<()> {
    gpu.kernels().try_for_each(|launch| match &launch.kernel.code {
        LoadedCode::Driver(module) => CudaLaunch { def, context, module, launch, args, stream }.queue(scratch),
        LoadedCode::Virtual(_) => Ok(()),
    })
}

/// Runs the kernels of a launch on a virtual GPU, which allocates what split programs share itself.
fn run_virtual(def: &'static KernelDef, gpu: &dyn VirtualGpu, launch: &GpuLaunch, args: &[Arg<'_>]) -> Result<()> {
    let bytes = launch.scratch.map_or(0, |scratch| scratch.workspaces);
    let workspaces = if bytes > 0 { gpu.alloc(bytes) } else { 0 };
    let scratch = ScratchAddresses { workspaces, ..ScratchAddresses::default() };
    let outputs = outputs(def, args);
    let ran = launch.kernels().try_for_each(|launch| {
        let LoadedCode::Virtual(kernel) = &launch.kernel.code else { return Ok(()) };
        let bits = |&param: &LaunchParam| param_bits(def, param, args, scratch);
        let params: Vec<u64> = launch.params.iter().map(bits).collect::<std::result::Result<_, _>>()?;
        let fills: Vec<Range<u64>> =
            launch.fills.iter().map(|range| workspaces + range.start..workspaces + range.end).collect();
        kernel.launch(launch.grid, &params, &launch.maps, if fills.is_empty() { &outputs } else { &fills })
    });
    if bytes > 0 {
        gpu.free(workspaces);
    }
    ran
}

/// The address ranges that a launch writes, gaps included, sorted by their start. Checked arguments share no element,
/// but one may lie between the rows of another.
fn outputs(def: &KernelDef, args: &[Arg<'_>]) -> Vec<Range<u64>> {
    let written = def.params.iter().zip(args).filter(|(param, _)| is_written(param));
    let mut ranges: Vec<Range<u64>> = written.filter_map(|(_, arg)| Some(arg.tensor()?.address_range())).collect();
    ranges.retain(|r| !r.is_empty());
    ranges.sort_by_key(|r| r.start);
    ranges
}

/// The most parameters of a launch that are packed on the stack. More go to the heap.
const INLINE_PARAMS: usize = 64;
/// The most tensor maps of a launch that are encoded on the stack.
const INLINE_MAPS: usize = 4;

/// A launch on a GPU of the driver.
struct CudaLaunch<'a> {
    def: &'static KernelDef,
    context: &'a Context,
    module: &'a DriverModule,
    launch: &'a KernelLaunch,
    args: &'a [Arg<'a>],
    stream: *mut c_void,
}

impl CudaLaunch<'_> {
    /// Packs the parameters and queues the launch.
    fn queue(&self, scratch: ScratchAddresses) -> Result<()> {
        let &CudaLaunch { def, context, args, launch, .. } = self;
        let KernelLaunch { kernel, grid, params, maps, .. } = launch;
        let mut inline = ([0_u64; INLINE_PARAMS], [std::ptr::null_mut::<c_void>(); INLINE_PARAMS]);
        let mut heap = (Vec::new(), Vec::new());
        let (values, pointers) = if params.len() <= INLINE_PARAMS {
            (&mut inline.0[..params.len()], &mut inline.1[..params.len()])
        } else {
            heap.0.resize(params.len(), 0);
            heap.1.resize(params.len(), std::ptr::null_mut());
            (&mut heap.0[..], &mut heap.1[..])
        };
        for (value, &param) in values.iter_mut().zip(params) {
            *value = param_bits(def, param, args, scratch)?;
        }
        for (pointer, value) in pointers.iter_mut().zip(values.iter_mut()) {
            *pointer = std::ptr::from_mut(value).cast();
        }
        let api = context.enter()?;
        let mut encoded = ([EncodedMap::EMPTY; INLINE_MAPS], Vec::new());
        let encoded = if maps.len() <= INLINE_MAPS {
            &mut encoded.0[..maps.len()]
        } else {
            encoded.1.resize(maps.len(), EncodedMap::EMPTY);
            &mut encoded.1[..]
        };
        for ((&param, &address), pointer) in params.iter().zip(values.iter()).zip(pointers.iter_mut()) {
            if let LaunchParam::Map(n, _) = param {
                let place = &mut encoded[usize::from(n)];
                *place = maps[usize::from(n)].encode(context, &api, address)?;
                *pointer = std::ptr::from_mut(place).cast();
            }
        }
        let (threads, shared) = (kernel.image.threads, kernel.image.shared_bytes);
        // SAFETY: the function is loaded in this context and the stream is live in it. `params` follow the image's own
        // parameter list: each is one 64-bit little-endian value, of which the driver reads as many bytes as the parameter
        // has, or a tensor map of 128 bytes. Tensors are bound: their dims, strides and alignments are those that the kernel was compiled for, they are
        // on this device, and written tensors overlap nothing else. Their memory is freed in stream order (see
        // `Stream::from_raw` for the caller's streams), and so is scratch memory. If the stream records, `Graph` keeps all of it.
        let status = unsafe {
            (api.launch)(
                self.module.function,
                *grid,
                1,
                1,
                threads,
                1,
                1,
                shared,
                self.stream,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        context.check("cuLaunchKernel", status)
    }
}

/// Queues a launch on the default stream, with the parameters as one block of bytes.
///
/// # Safety
/// As [`RawKernel::launch`](crate::RawKernel::launch).
pub(crate) unsafe fn launch_raw(kernel: &LoadedKernel, grid: [u32; 3], block: [u32; 3], params: &[u8]) -> Result<()> {
    // `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE` and `CU_LAUNCH_PARAM_END`, each before its value.
    const POINTER: usize = 1;
    const SIZE: usize = 2;
    const END: usize = 0;
    let mut bytes = params.len();
    let mut extra = [
        POINTER as *mut c_void,
        params.as_ptr().cast_mut().cast(),
        SIZE as *mut c_void,
        (&raw mut bytes).cast(),
        END as *mut c_void,
    ];
    let LoadedCode::Driver(module) = &kernel.code else { return Err(DeviceError::NotAGpu {}.into()) };
    let context = &module.context;
    let api = context.enter()?;
    // SAFETY: the function is loaded in this context, and the null stream is always valid. The driver copies exactly
    // `bytes` bytes out of the live block. The caller is responsible for the kernel's accesses.
    let status = unsafe {
        (api.launch)(
            module.function,
            grid[0],
            grid[1],
            grid[2],
            block[0],
            block[1],
            block[2],
            kernel.image.shared_bytes,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            extra.as_mut_ptr(),
        )
    };
    context.check("cuLaunchKernel", status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::KernelKey;
    use crate::launch::tests::{NOTHING, plan_of};
    use std::sync::Arc;

    /// A plan that is found in the cache is moved to the front like a new one.
    #[test]
    fn every_launch_says_when_it_was() {
        let device = Device::absent(0);
        let kernel = Arc::new(LoadedKernel::idle(KernelKey([1; 32])));
        let plan = plan_of(kernel.clone());
        for now in [3, 8] {
            device.counters().launches.store(now, Ordering::Relaxed);
            run(&NOTHING, &device, None, &plan, &[]).unwrap();
            assert_eq!(kernel.launched(), now);
        }
    }
}
