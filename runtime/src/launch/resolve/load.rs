//! Loads kernels: from this process, from the store, from a bundle, or compiled now.

use super::search::Trial;
use crate::bundle::{Offer, VariantCode};
use crate::compile::{CompileProblem, KernelKey, build_launch, compile, compile_with_lines, kernel_key};
use crate::cost::Space;
use crate::device::{Backend, Device, PlanCache};
use crate::error::{DeviceError, LaunchError, Result, RuntimeError};
use crate::gpu::{LoadedKernel, does_not_fit};
use crate::launch::parameters::{LoadedLaunch, LoadedPacker};
use crate::records::launch_hash;
use atlas_codegen::packing::{LaunchKernels, packer_schedule};
use atlas_codegen::{AbiParam, KernelImage, Machine, Target, TensorMapData};
use atlas_dsl::config::Programs;
use atlas_dsl::ir::{Access, ParamKind};
use atlas_dsl::{Kernel, Param, Schedule, Verified};
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// The loaded kernels of a config: from this process, from the store, or compiled now. Only one thread compiles each,
/// however many need it. A kernel that was refused on this device is not tried again.
pub(super) fn load(device: &Device, space: &Space, point: usize, machine: Machine) -> Result<Trial<LoadedLaunch>> {
    let key = space.key(point, machine.target())?;
    let schedule = space.points[point].config.schedule;
    let target = machine.target();
    let packed = schedule.packs_operands().then(|| space.launch(point, target)).transpose()?;
    let main = load_compiled(device, key, schedule, machine, || match &packed {
        Some(launch) => Ok(launch.kernel.clone()),
        None => space.kernel(point),
    })?;
    let (kernel, mut bytes) = match main {
        Trial::Loaded(kernel, bytes) => (kernel, bytes),
        Trial::Refused(reason) => return Ok(Trial::Refused(reason)),
        Trial::NoCompiler => return Ok(Trial::NoCompiler),
        Trial::Failed(message) => return Ok(Trial::Failed(message)),
    };
    let mut loaded = LoadedLaunch::from(kernel);
    if let Some(launch) = packed {
        loaded.workspaces = launch.workspaces;
        for packer in launch.packers {
            let (schedule, key) = (packer_schedule(), kernel_key(&packer, packer_schedule(), target));
            match load_compiled(device, key, schedule, machine, || Ok(packer.clone()))? {
                Trial::Loaded(kernel, of_packer) => {
                    bytes = bytes.max(of_packer);
                    loaded.packers.push(LoadedPacker { kernel, fills: written(&packer) });
                }
                Trial::Refused(reason) => {
                    return Ok(Trial::Refused(format!("the kernel that packs operands: {reason}")));
                }
                Trial::NoCompiler => return Ok(Trial::NoCompiler),
                Trial::Failed(message) => return Ok(Trial::Failed(message)),
            }
        }
    }
    Ok(Trial::Loaded(loaded, bytes))
}

/// The tensors that a kernel writes.
fn written(kernel: &Kernel) -> Vec<Param> {
    let is_written = |kind: &ParamKind| matches!(kind, ParamKind::Tensor { access: Access::Out, .. });
    kernel.params.iter().filter(|(_, data)| is_written(&data.kind)).map(|(p, _)| p).collect()
}

/// One loaded kernel of a launch.
fn load_compiled(
    device: &Device,
    key: KernelKey,
    schedule: Schedule,
    machine: Machine,
    kernel: impl Fn() -> Result<Verified<Kernel>>,
) -> Result<Trial<Arc<LoadedKernel>>> {
    load_once(device, key, || {
        let image = match device.store().get(&key) {
            Some(image) => image,
            None if !device.compiles() => return Ok(Trial::NoCompiler),
            None => match compile(&kernel()?, &schedule, machine) {
                Ok(image) => {
                    device.counters().compiled.fetch_add(1, Ordering::Relaxed);
                    device.store().put(&key, image)
                }
                Err(CompileProblem::Refused(reason)) => return Ok(Trial::Refused(reason)),
                Err(CompileProblem::NoCompiler) => return Ok(Trial::NoCompiler),
                Err(CompileProblem::Failed(message)) => return Ok(Trial::Failed(message)),
            },
        };
        load_on_gpu(device, key, CompiledCode { image, cubin: None, schedule, machine }, kernel)
    })
}

/// The loaded kernels that a bundle offers, if they are still this program's kernels.
pub(super) fn load_offer(device: &Device, offer: &Offer, machine: Machine) -> Result<Trial<LoadedLaunch>> {
    let variant = offer.variant();
    // Nothing is built again for a single kernel that is loaded already.
    let launch = LazyCell::new(|| offered_launch(offer));
    let packer = |place: usize| Ok(launch.as_ref().map_err(String::clone)?.packers[place].clone());
    let kernel = || Ok(launch.as_ref().map_err(String::clone)?.kernel.clone());
    let (mut packers, mut most_bytes) = (Vec::new(), 0);
    for (place, &code) in variant.packers.iter().enumerate() {
        let schedule = Schedule { programs: Some(Programs::Single), ..packer_schedule() };
        match load_code(device, offer, machine, (place, code, schedule), || packer(place))? {
            Trial::Loaded(kernel, bytes) => {
                most_bytes = bytes.max(most_bytes);
                packers.push(kernel);
            }
            other => return other.and_then(|kernel| Ok(kernel.into())),
        }
    }
    let own = (packers.len(), variant.code(), offer.config.schedule);
    let (kernel, bytes) = match load_code(device, offer, machine, own, kernel)? {
        Trial::Loaded(kernel, bytes) => (kernel, bytes),
        other => return other.and_then(|kernel| Ok(kernel.into())),
    };
    let mut loaded = LoadedLaunch::from(kernel);
    if !packers.is_empty() {
        let launch = match &*launch {
            Ok(launch) => launch,
            Err(reason) => return Ok(Trial::Refused(reason.clone())),
        };
        let fills = launch.packers.iter().map(|packer| written(packer));
        loaded.packers = packers.into_iter().zip(fills).map(|(kernel, fills)| LoadedPacker { kernel, fills }).collect();
        loaded.workspaces = launch.workspaces.clone();
    }
    Ok(Trial::Loaded(loaded, bytes.max(most_bytes)))
}

/// The kernels that a variant was compiled from, or why it is none of this program's.
fn offered_launch(offer: &Offer) -> std::result::Result<LaunchKernels, String> {
    let variant = offer.variant();
    let target: Target = variant.target.parse().map_err(|_| format!("no target is called `{}`", variant.target))?;
    let launch = build_launch(offer.def, offer.spec(), &offer.config, target);
    let launch = launch.map_err(|e| format!("the bundle's config is none of this kernel: {e}"))?;
    match launch_hash(&launch) == variant.tile_ir && launch.packers.len() == variant.packers.len() {
        true => Ok(launch),
        false => Err("the kernel has changed since the bundle was made; make the bundle again".to_owned()),
    }
}

/// Loads the compiled kernel at a place of a variant's launch, whose Tile IR `kernel` returns.
fn load_code(
    device: &Device,
    offer: &Offer,
    machine: Machine,
    (place, code, schedule): (usize, VariantCode, Schedule),
    kernel: impl FnOnce() -> std::result::Result<Verified<Kernel>, String>,
) -> Result<Trial<Arc<LoadedKernel>>> {
    let key = offer.key(place, code);
    load_once(device, key, || {
        let kernel = match kernel() {
            Ok(kernel) => kernel,
            Err(reason) => return Ok(Trial::Refused(reason)),
        };
        let image = match offer.bundle.image_of(offer.variant(), code) {
            Ok(image) if is_of(&image, &kernel, &schedule) => Arc::new(image),
            Ok(_) => return Ok(Trial::Refused("the bundle's code has another grid or other parameters".to_owned())),
            Err(e) => return Ok(Trial::Refused(e.to_string())),
        };
        // Machine code only saves the driver's assembler: where it does not fit, the PTX is used.
        let cubin = code.cubin.filter(|c| c.sm == machine.sm && device.driver_number() >= Some(c.driver));
        let cubin = cubin.and_then(|c| offer.bundle.cubin(c).ok());
        match load_on_gpu(device, key, CompiledCode { image, cubin, schedule, machine }, || Ok(kernel)) {
            Err(e) if is_of_code(&e) => Ok(Trial::Refused(e.to_string())),
            made => made,
        }
    })
}

/// Whether the code runs the programs of a kernel, and every argument that it takes exists. A grid of no programs would
/// leave outputs unchanged.
fn is_of(image: &KernelImage, kernel: &Kernel, schedule: &Schedule) -> bool {
    let rank = |p: Param| match kernel.params.get(p).map(|p| &p.kind) {
        Some(ParamKind::Tensor { dims, .. }) => dims.len(),
        _ => 0,
    };
    let is_there = |p: &AbiParam| match *p {
        AbiParam::Ptr(p) => matches!(kernel.params.get(p).map(|p| &p.kind), Some(ParamKind::Tensor { .. })),
        AbiParam::Scalar(p) => matches!(kernel.params.get(p).map(|p| &p.kind), Some(ParamKind::Scalar { .. })),
        AbiParam::Stride(p, axis) => usize::from(axis) < rank(p),
        AbiParam::Dim(d) => kernel.dims.is_valid(d),
        AbiParam::GridCount(axis) => usize::from(axis) < image.grid.len(),
        AbiParam::TensorMap(n) => usize::from(n) < image.maps.len(),
        AbiParam::Arrivals | AbiParam::Partials => image.splits > 1,
    };
    let is_map = |map: &TensorMapData| {
        let axes: BTreeSet<u8> =
            map.axes.iter().map(|a| a.axis).filter(|&a| usize::from(a) < rank(map.param)).collect();
        axes.len() == map.axes.len() && axes.len() == rank(map.param) && map.is_encodable()
    };
    let may_persist = schedule.programs != Some(Programs::Single);
    image.splits == schedule.split_k
        && (may_persist || !image.persistent)
        && image.maps.iter().all(is_map)
        && image.grid.iter().eq(kernel.grid.iter().map(|axis| &axis.extent))
        && image.params.iter().all(is_there)
}

/// True if an error concerns only the code in one bundle. The next bundle may have PTX of a lower version, machine code
/// for a driver that cannot assemble, or code that fits the kernel.
fn is_of_code(e: &RuntimeError) -> bool {
    match e {
        RuntimeError::Launch(LaunchError::PtxTooNew { .. } | LaunchError::WrongAbi { .. }) => true,
        RuntimeError::Driver(e) => e.refuses_code(),
        #[cfg(feature = "sim")]
        RuntimeError::Fault(_) => true,
        _ => false,
    }
}

/// Makes a kernel, unless some thread has made it before, or it was refused before.
fn load_once(
    device: &Device,
    key: KernelKey,
    make: impl FnOnce() -> Result<Trial<LoadedKernel>>,
) -> Result<Trial<Arc<LoadedKernel>>> {
    let plans = device.plans();
    if let Some(known) = known(plans, &key) {
        return Ok(known);
    }
    let turn = plans.turn(&key);
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known(plans, &key) {
        return Ok(known);
    }
    let trial = make()?;
    if let Trial::Refused(reason) = &trial {
        plans.refuse(&key, reason);
    }
    trial.and_then(|loaded| {
        let counters = device.counters();
        if loaded.facts.local_bytes > 0 {
            counters.spilling.fetch_add(1, Ordering::Relaxed);
        }
        Ok(plans.keep_loaded(Arc::new(loaded), counters.launches.load(Ordering::Relaxed)))
    })
}

/// The earlier result for a kernel.
fn known(plans: &PlanCache, key: &KernelKey) -> Option<Trial<Arc<LoadedKernel>>> {
    if let Some(reason) = plans.refusal(key) {
        return Some(Trial::Refused(reason));
    }
    let loaded = plans.loaded(key)?;
    let bytes = loaded.facts.local_bytes;
    Some(Trial::Loaded(loaded, bytes))
}

/// A compiled kernel, and the toolchain that compiled it.
struct CompiledCode {
    image: Arc<KernelImage>,
    cubin: Option<Vec<u8>>,
    schedule: Schedule,
    machine: Machine,
}

/// Loads a compiled kernel, if it fits the machine. Stores and bundles serve every machine of a target, including
/// larger ones than this.
fn load_on_gpu(
    device: &Device,
    key: KernelKey,
    code: CompiledCode,
    kernel: impl FnOnce() -> Result<Verified<Kernel>>,
) -> Result<Trial<LoadedKernel>> {
    let CompiledCode { image, cubin, schedule, machine } = code;
    if let Some(reason) = does_not_fit(&image, &machine) {
        return Ok(Trial::Refused(reason));
    }
    let loaded = match device.backend() {
        Backend::Cuda(context) => {
            let start = Instant::now();
            let loaded = LoadedKernel::load(context, key, image, cubin.as_deref());
            device.counters().load_us.fetch_add(start.elapsed().as_micros() as u64, Ordering::Relaxed);
            loaded
        }
        Backend::Virtual(gpu) => {
            let kernel = kernel()?;
            let lined = Box::new(move || compile_with_lines(&kernel, &schedule, machine));
            LoadedKernel::load_virtual(&**gpu, key, image, lined)
        }
        Backend::Cpu => Err(DeviceError::NotAGpu {}.into()),
    };
    match loaded {
        Ok(loaded) => {
            let bytes = loaded.facts.local_bytes;
            Ok(Trial::Loaded(loaded, bytes))
        }
        Err(RuntimeError::Driver(e)) if e.refuses() => Ok(Trial::Refused(e.to_string())),
        Err(e) => Err(e),
    }
}
