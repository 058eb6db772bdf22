//! From a bound launch to a plan: the configs in order, past those that the compiler or the driver refuses and those
//! whose registers spill.

use crate::bind::BoundLaunch;
use crate::compile::{CompileProblem, compile, compile_with_lines};
use crate::cost::programs;
use crate::device::{Backend, Device};
use crate::error::{CompileFailure, DeviceError, Result, RuntimeError};
use crate::kernel::{LoadedKernel, does_not_fit};
use crate::key::KernelKey;
use crate::launch_error::LaunchError;
use crate::plan::gpu_body;
use crate::plans::{Body, PassedOver, Plan, Plans, Source};
use crate::select::{Ranking, rank};
use crate::space::Space;
use atlas_codegen::{KernelImage, Machine};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::{Config, KernelDef};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Spilling kernels that are loaded before the least of them will do: each costs a compilation.
const MOST_SPILLING: usize = 8;

/// Makes the plan of a bound launch: chooses a config, compiles or finds its kernel, and loads it.
pub(crate) fn resolve(bound: &BoundLaunch, config: Option<&Config>) -> Result<Plan> {
    let def = bound.def();
    if bound.is_empty() {
        let (config, source) = match config {
            Some(config) => (crate::select::complete(def, config)?, Source::Given),
            None => (def.default_config(), Source::Default),
        };
        return Ok(Plan { config, source, body: Body::Empty, passed_over: Vec::new() });
    }
    // The builder would refuse each config for it, one by one.
    if let Some((dim, _)) = def.dims.iter().zip(bound.dims()).find(|(dim, size)| dim.whole && **size == 0) {
        return Err(LaunchError::EmptyDim { kernel: def.name, dim: dim.name }.into());
    }
    let ranking = rank(bound, config)?;
    match bound.device().machine() {
        Some(machine) => resolve_gpu(bound, &ranking, machine),
        None => resolve_cpu(bound, &ranking),
    }
}

fn resolve_cpu(bound: &BoundLaunch, ranking: &Ranking) -> Result<Plan> {
    let Some(point) = ranking.points().next() else {
        return Err(no_config(bound.def(), ranking, Vec::new()).into());
    };
    let kernel = ranking.space.kernel(point)?;
    let grid: Vec<GridExtent> = kernel.grid.iter().map(|a| a.extent).collect();
    let body = match programs(&grid, bound.dims()) {
        0 => Body::Empty,
        _ => Body::Cpu { kernel: Arc::new(kernel), dims: bound.dims().to_vec() },
    };
    let config = ranking.space.points[point].config.clone();
    Ok(Plan { config, source: ranking.source, body, passed_over: Vec::new() })
}

fn resolve_gpu(bound: &BoundLaunch, ranking: &Ranking, machine: Machine) -> Result<Plan> {
    let (def, space) = (bound.def(), &ranking.space);
    let candidates = ranking.points().map(|point| (point, ranking.source));
    let candidates = candidates.chain(ranking.fallback().map(|point| (point, Source::Default)));
    let given = ranking.source == Source::Given;
    let config = |point: usize| space.points[point].config.clone();
    let found = search(candidates, given, |&(point, _)| load(bound.device(), space, point, machine))?;
    let passed_over: Vec<PassedOver> = found.passed.into_iter().map(|((p, _), why)| (config(p), why)).collect();
    bound.device().counters().passed_over.fetch_add(passed_over.len() as u64, Ordering::Relaxed);
    match found.end {
        End::Found((point, source), kernel) => {
            let body = gpu_body(bound, kernel)?;
            Ok(Plan { config: config(point), source, body, passed_over })
        }
        End::Nothing => Err(no_config(def, ranking, passed_over).into()),
        End::NoCompiler => Err(CompileFailure {
            kernel: def.name.to_owned(),
            message: "this build has no compiler, and the kernel store has no kernel for this problem; \
                      build with the feature `jit` (needs LLVM 22), or use Device::cpu()"
                .to_owned(),
            refused: passed_over,
            compiler_present: false,
        }
        .into()),
        End::Failed((point, _), message) => {
            let message = format!("config `{}` for {machine}: {message}", config(point));
            let kernel = def.name.to_owned();
            Err(CompileFailure { kernel, message, refused: passed_over, compiler_present: true }.into())
        }
    }
}

/// What came of one config.
enum Trial<T> {
    /// Loaded, with this much local memory per thread in bytes.
    Loaded(T, u32),
    /// Another config may do.
    Refused(String),
    /// This build cannot compile it.
    NoCompiler,
    /// The compiler is at fault.
    Failed(String),
}

/// What came of all configs.
struct Search<C, T> {
    end: End<C, T>,
    /// Refused, or left for a config that does not spill.
    passed: Vec<(C, String)>,
}

enum End<C, T> {
    Found(C, T),
    Nothing,
    NoCompiler,
    Failed(C, String),
}

/// The first config that loads without spilling; if there is none, the one that spills least. A spilling kernel that
/// the caller asked for stays.
fn search<C, T>(
    candidates: impl Iterator<Item = C>,
    given: bool,
    mut load: impl FnMut(&C) -> Result<Trial<T>>,
) -> Result<Search<C, T>> {
    let mut passed: Vec<(C, String)> = Vec::new();
    let mut least: Option<(C, T, u32)> = None;
    let mut spilling = 0;
    let spills = |bytes: u32| format!("its registers spill {bytes} bytes per thread");
    for c in candidates {
        let (kernel, bytes) = match load(&c)? {
            Trial::Loaded(kernel, bytes) => (kernel, bytes),
            Trial::Refused(reason) => {
                passed.push((c, reason));
                continue;
            }
            // What spills still runs.
            Trial::NoCompiler | Trial::Failed(_) if least.is_some() => break,
            Trial::NoCompiler => return Ok(Search { end: End::NoCompiler, passed }),
            Trial::Failed(message) => return Ok(Search { end: End::Failed(c, message), passed }),
        };
        if bytes == 0 || given {
            passed.extend(least.map(|(c, _, bytes)| (c, spills(bytes))));
            return Ok(Search { end: End::Found(c, kernel), passed });
        }
        spilling += 1;
        match &least {
            Some((_, _, fewer)) if *fewer <= bytes => passed.push((c, spills(bytes))),
            _ => passed.extend(least.replace((c, kernel, bytes)).map(|(c, _, bytes)| (c, spills(bytes)))),
        }
        if spilling == MOST_SPILLING {
            break;
        }
    }
    let end = least.map_or(End::Nothing, |(c, kernel, _)| End::Found(c, kernel));
    Ok(Search { end, passed })
}

/// The loaded kernel of a config: from this process, from the store, or compiled now, by one thread however many want it.
/// What was refused on this device once is not tried again.
fn load(device: &Device, space: &Space, point: usize, machine: Machine) -> Result<Trial<Arc<LoadedKernel>>> {
    let key = space.key(point, machine.target())?;
    if let Some(known) = known(device.plans(), &key) {
        return Ok(known);
    }
    let turn = device.plans().turn(&key);
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    match known(device.plans(), &key) {
        Some(known) => Ok(known),
        None => make(device, key, space, point, machine),
    }
}

/// What became of a kernel before.
fn known(plans: &Plans, key: &KernelKey) -> Option<Trial<Arc<LoadedKernel>>> {
    if let Some(reason) = plans.refusal(key) {
        return Some(Trial::Refused(reason));
    }
    let loaded = plans.loaded(key)?;
    let bytes = loaded.facts.local_bytes;
    Some(Trial::Loaded(loaded, bytes))
}

/// Loads a kernel from the store, or compiles it.
fn make(
    device: &Device,
    key: KernelKey,
    space: &Space,
    point: usize,
    machine: Machine,
) -> Result<Trial<Arc<LoadedKernel>>> {
    let plans = device.plans();
    let schedule = &space.points[point].config.schedule;
    let image = match device.store().get(&key) {
        Some(image) => image,
        None => match compile(&space.kernel(point)?, schedule, machine) {
            Ok(image) => {
                device.counters().compiled.fetch_add(1, Ordering::Relaxed);
                device.store().put(&key, image)
            }
            Err(CompileProblem::Refused(reason)) => {
                plans.refuse(&key, &reason);
                return Ok(Trial::Refused(reason));
            }
            Err(CompileProblem::NoCompiler) => return Ok(Trial::NoCompiler),
            Err(CompileProblem::Failed(message)) => return Ok(Trial::Failed(message)),
        },
    };
    // The store serves every machine of a target, also one that holds more than this.
    let fits = does_not_fit(&image, &machine).map_or(Ok(()), Err);
    let loaded = match fits.map(|()| load_image(device, key, image, space, point, machine)) {
        Err(reason) => Err(reason),
        Ok(Ok(loaded)) => Ok(loaded),
        Ok(Err(RuntimeError::Driver(e))) if e.refuses() => Err(e.to_string()),
        Ok(Err(e)) => return Err(e),
    };
    match loaded {
        Ok(loaded) => {
            let bytes = loaded.facts.local_bytes;
            if bytes > 0 {
                device.counters().spilling.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Trial::Loaded(plans.keep_loaded(Arc::new(loaded)), bytes))
        }
        Err(reason) => {
            plans.refuse(&key, &reason);
            Ok(Trial::Refused(reason))
        }
    }
}

fn load_image(
    device: &Device,
    key: KernelKey,
    image: Arc<KernelImage>,
    space: &Space,
    point: usize,
    machine: Machine,
) -> Result<LoadedKernel> {
    match device.backend() {
        Backend::Cuda(context) => LoadedKernel::load(context, key, image),
        Backend::Virtual(gpu) => {
            let (kernel, schedule) = (space.kernel(point)?, space.points[point].config.schedule);
            let lined = Box::new(move || compile_with_lines(&kernel, &schedule, machine));
            LoadedKernel::load_virtual(&**gpu, key, image, lined)
        }
        Backend::Cpu => Err(DeviceError::NotAGpu {}.into()),
    }
}

fn no_config(def: &KernelDef, ranking: &Ranking, mut refused: Vec<PassedOver>) -> CompileFailure {
    let selection = ranking.selection();
    let ranked = selection.refused().filter(|(config, _)| !refused.iter().any(|(c, _)| c == *config));
    let ranked: Vec<PassedOver> = ranked.map(|(config, reason)| (config.clone(), reason.to_owned())).collect();
    refused.extend(ranked);
    // Where several are refused alike, the tune space is not the cause.
    let is_alike = refused.len() > 1 && refused.iter().all(|(_, reason)| *reason == refused[0].1);
    let message = match selection.source {
        Source::Given => "the given config cannot run this problem here; give another, or none",
        // Kernels that `fuse!` cannot bring together.
        _ if !refused.is_empty()
            && refused.iter().all(|(_, reason)| reason.contains("[ATL230]") || reason.contains("[ATL231]")) =>
        {
            refused.truncate(1);
            "these kernels do not become one, whatever the config: launch them one after the other, or fuse fewer"
        }
        _ if !refused.is_empty() && refused.iter().all(|(_, reason)| reason.contains("error[ATL1")) => {
            refused.truncate(1);
            "the kernel is none for these element types and constants, whatever the config"
        }
        _ if is_alike => {
            refused.truncate(1);
            "this problem cannot run here, whatever the config: all are refused for one reason"
        }
        _ => {
            "no config is legal for this problem; add others to its `tune`, by what each was refused for, or use another kernel"
        }
    };
    CompileFailure { kernel: def.name.to_owned(), message: message.to_owned(), refused, compiler_present: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Passed = Vec<(usize, String)>;

    /// The index of the config found and its kernel, and which were passed over.
    fn found(given: bool, trials: Vec<Trial<char>>) -> (Option<(usize, char)>, Passed) {
        let mut trials: Vec<Option<Trial<char>>> = trials.into_iter().map(Some).collect();
        let search = search(0..trials.len(), given, |&i| Ok(trials[i].take().expect("one trial each"))).unwrap();
        let found = match search.end {
            End::Found(c, kernel) => Some((c, kernel)),
            End::Nothing | End::NoCompiler | End::Failed(..) => None,
        };
        (found, search.passed)
    }

    #[test]
    fn after_a_refusal_the_next_config_is_tried() {
        let refused = || Trial::Refused("too large".to_owned());
        let (config, passed) = found(false, vec![refused(), refused(), Trial::Loaded('c', 0), Trial::Loaded('d', 0)]);
        assert_eq!(config, Some((2, 'c')));
        assert_eq!(passed, [(0, "too large".to_owned()), (1, "too large".to_owned())]);
        assert_eq!(found(false, vec![refused()]).0, None);
    }

    #[test]
    fn a_kernel_that_spills_is_left_for_one_that_does_not() {
        let (config, passed) = found(false, vec![Trial::Loaded('a', 48), Trial::Loaded('b', 0)]);
        assert_eq!(config, Some((1, 'b')));
        assert_eq!(passed, [(0, "its registers spill 48 bytes per thread".to_owned())]);
        let all = [48, 16, 32].map(|bytes| Trial::Loaded('s', bytes)).into();
        let (config, passed) = found(false, all);
        assert_eq!((config, passed.len()), (Some((1, 's')), 2));
    }

    #[test]
    fn a_given_config_stays_though_it_spills() {
        assert_eq!(found(true, vec![Trial::Loaded('a', 48), Trial::Loaded('b', 0)]).0, Some((0, 'a')));
    }

    #[test]
    fn what_spills_runs_where_nothing_else_can_be_compiled() {
        assert_eq!(found(false, vec![Trial::Loaded('a', 48), Trial::NoCompiler]).0, Some((0, 'a')));
        assert_eq!(found(false, vec![Trial::Loaded('a', 8), Trial::Failed("defect".to_owned())]).0, Some((0, 'a')));
        let many = (0..100).map(|i| Trial::Loaded('s', 1000 - i)).collect();
        assert_eq!(found(false, many).0, Some((MOST_SPILLING - 1, 's')));
    }

    #[test]
    fn an_error_that_is_no_refusal_ends_the_search() {
        let fault = || crate::DriverFailure {
            call: "cuModuleLoadDataEx",
            device: String::new(),
            status: 700,
            message: String::new(),
        };
        let mut tried = 0;
        let search: Result<Search<u32, ()>> = search([1, 2].into_iter(), false, |_| {
            tried += 1;
            Err(fault().into())
        });
        assert!(search.is_err() && tried == 1);
    }
}
