//! Kernels, chains and the Newton-Schulz iteration as functions of tvm-ffi.

use super::convention::{CurrentStream, TvmFfiAny, answer, current_stream, place, values};
use super::omega;
use crate::calls::{Arguments, Callee, Given, NamedChain, Param};
use crate::newton_schulz::{AtlasIterationStep, iteration_of, run};
use crate::status::{Failure, Result};
use crate::{chains, kernels};
use atlas::kernel::{DType, KernelDef, Launch};
use atlas::ops::muon::NormEps;
use std::ffi::{c_int, c_void};

/// What is called by name with values of tvm-ffi.
#[derive(Clone, Copy)]
pub(crate) enum Function {
    Kernel(&'static KernelDef),
    Chain(&'static NamedChain),
    /// What this library has besides.
    Other(unsafe fn(&[TvmFfiAny], CurrentStream) -> Result<()>),
}

impl Function {
    /// A kernel by its name, a chain by its name in upper case, or another function.
    pub(crate) fn named(name: &str) -> Result<Function> {
        Ok(match name {
            "newton_schulz" => Function::Other(launch_iteration),
            "omega_forward" => Function::Other(omega::forward),
            "omega_backward" => Function::Other(omega::backward),
            "omega_packed" => Function::Other(omega::packed),
            _ if name.chars().any(char::is_lowercase) => Function::Kernel(kernels::named(name)?),
            _ => Function::Chain(chains::named(&name.to_lowercase())?),
        })
    }

    /// Calls it.
    ///
    /// # Safety
    /// As [`launch_one`].
    pub(crate) unsafe fn call(self, args: &[TvmFfiAny], streams: CurrentStream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Function::Kernel(kernel) => launch_one(kernel, args, streams),
                Function::Chain(chain) => launch_chain(chain, args, streams),
                Function::Other(call) => call(args, streams),
            }
        }
    }
}

/// Calls a kernel for tvm-ffi.
///
/// # Safety
/// `args` has `count` values of tvm-ffi, whose tensors are as `atlas_launch` says. `result` is null or a place for a value.
pub unsafe fn call_kernel(
    kernel: &'static KernelDef,
    args: *const TvmFfiAny,
    count: i32,
    result: *mut TvmFfiAny,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { answer(result, || launch_one(kernel, values(args, count), current_stream)) }
}

/// # Safety
/// They are values of tvm-ffi, whose tensors are as `atlas_launch` says, and streams are as [`place`] says.
unsafe fn launch_one(kernel: &'static KernelDef, args: &[TvmFfiAny], streams: CurrentStream) -> Result<()> {
    // SAFETY: the caller's promise, here and below.
    let (device, stream) = unsafe { place(kernel, args, streams) }?;
    // SAFETY: as above.
    let mut arguments = unsafe { Arguments::new(&device, kernel, all(kernel, args)) }?;
    Ok(kernel.launch_on(&stream, arguments.list())?)
}

/// Calls a chain for tvm-ffi: its arguments, and then the sizes of its open dims. The workspace is one allocation in the order of
/// the stream, which is freed behind the last launch.
///
/// # Safety
/// As [`call_kernel`].
pub unsafe fn call_chain(of: &'static NamedChain, args: *const TvmFfiAny, count: i32, result: *mut TvmFfiAny) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { answer(result, || launch_chain(of, values(args, count), current_stream)) }
}

/// # Safety
/// As [`launch_one`].
unsafe fn launch_chain(of: &'static NamedChain, args: &[TvmFfiAny], streams: CurrentStream) -> Result<()> {
    // SAFETY: the caller's promise, here and below.
    let (device, stream) = unsafe { place(of, args, streams) }?;
    let open = of.open();
    if args.len() != of.count() + open.len() {
        let (found, wanted, sizes) = (args.len(), of.count(), open.len());
        return Err(Failure::misuse(format_args!(
            "`{}` takes {wanted} arguments and {sizes} sizes behind them, but is given {found}; its signature is {}",
            of.name(),
            of.signature()
        )));
    }
    let (args, sizes) = args.split_at(of.count());
    let mut dims = Vec::with_capacity(open.len());
    for (i, (&dim, size)) in open.iter().zip(sizes).enumerate() {
        // SAFETY: as above.
        let size = match unsafe { size.given(of, of.count() + i) }? {
            Given::Whole(size) => usize::try_from(size).ok(),
            _ => None,
        };
        let refused =
            || Failure::misuse(format_args!("the size `{dim}` of `{}` is a whole number from 0 on", of.name()));
        dims.push((dim, size.ok_or_else(refused)?));
    }
    // SAFETY: as above.
    let mut arguments = unsafe { Arguments::new(&device, of, all(of, args)) }?;
    let mut list = arguments.list();
    // SAFETY: the launches below are on this stream, and it is dropped before this returns.
    let mut space = unsafe { of.chain().workspace_on(&stream, &list, &dims) }?;
    Ok(of.chain().launch_on(&stream, &mut list[..], &mut space)?)
}

/// The arguments of a call.
///
/// # Safety
/// They are values of tvm-ffi.
unsafe fn all<'a>(of: &'a dyn Callee, args: &'a [TvmFfiAny]) -> impl Iterator<Item = Result<Given<'a>>> {
    // SAFETY: the caller's promise.
    args.iter().enumerate().map(move |(i, arg)| unsafe { arg.given(of, i) })
}

/// The iteration, as what is called.
struct Iteration;

/// What stands before the steps.
const BEFORE: [&str; 6] = ["g", "out", "stretch", "eps", "eps_is_least", "restart"];
/// What a step has.
const OF_STEP: [&str; 4] = ["a", "b", "c", "centre"];

impl Callee for Iteration {
    fn name(&self) -> &'static str {
        "newton_schulz"
    }

    fn param(&self, number: usize) -> Option<Param> {
        let name = BEFORE.get(number).unwrap_or_else(|| &OF_STEP[(number - BEFORE.len()) % OF_STEP.len()]);
        Some(Param { name, is_float: !matches!(number, 0 | 1 | 4 | 5) })
    }

    fn signature(&self) -> String {
        let tensors = "g: &Tensor<T, [B, M, N]>, out: &mut Tensor<S, [B, M, N]>";
        format!(
            "newton_schulz({tensors}, stretch: f32, eps: f32, eps_is_least: i32, restart: i32, (a, b, c, centre: f64) of each step)"
        )
    }
}

/// # Safety
/// tvm-ffi calls it with values of its own.
// SAFETY: no kernel has this name.
#[unsafe(export_name = "__tvm_ffi_newton_schulz")]
unsafe extern "C" fn newton_schulz(
    _library: *mut c_void,
    args: *const TvmFfiAny,
    count: i32,
    result: *mut TvmFfiAny,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { answer(result, || launch_iteration(values(args, count), current_stream)) }
}

/// # Safety
/// As [`launch_one`].
unsafe fn launch_iteration(args: &[TvmFfiAny], streams: CurrentStream) -> Result<()> {
    // SAFETY: the caller's promise, here and below.
    let (device, stream) = unsafe { place(&Iteration, args, streams) }?;
    let refused = |what: &dyn std::fmt::Display| {
        Failure::misuse(format_args!("{what}; the signature is {}", Iteration.signature()))
    };
    if args.len() < BEFORE.len() || !(args.len() - BEFORE.len()).is_multiple_of(OF_STEP.len()) {
        return Err(refused(&format_args!("`newton_schulz` is given {} arguments", args.len())));
    }
    // SAFETY: as above.
    let given = |i: usize| unsafe { args[i].given(&Iteration, i) };
    let wrong = |i: usize, wanted| {
        refused(&format_args!("`{}` of `newton_schulz` is {wanted}", Iteration.param(i).map_or("", |param| param.name)))
    };
    let tensor = |i: usize| match given(i)? {
        Given::Tensor(tensor) => Ok(tensor),
        _ => Err(wrong(i, "a tensor")),
    };
    let real = |i: usize| {
        let x = match given(i)? {
            Given::Real(x) => x,
            Given::Whole(x) => x as f64,
            Given::Tensor(_) => return Err(wrong(i, "a number")),
        };
        if DType::F32.overflow(x).is_some() { Err(wrong(i, "a number that f32 can hold")) } else { Ok(x) }
    };
    let whole = |i: usize| match given(i)? {
        Given::Whole(x) => usize::try_from(x).map_err(|_| wrong(i, "a whole number from 0 on")),
        _ => Err(wrong(i, "a whole number from 0 on")),
    };
    let step =
        |at: usize| Ok(AtlasIterationStep { a: real(at)?, b: real(at + 1)?, c: real(at + 2)?, centre: real(at + 3)? });
    let steps = (BEFORE.len()..args.len()).step_by(OF_STEP.len()).map(step).collect::<Result<Vec<_>>>()?;
    let eps = real(3)? as f32;
    let eps = if whole(4)? == 0 { NormEps::Added(eps) } else { NormEps::AtLeast(eps) };
    let iteration = iteration_of(&steps, real(2)? as f32, eps, whole(5)?);
    // SAFETY: as above.
    unsafe { run(&device, &stream, tensor(0)?, tensor(1)?, &iteration) }
}

/// Exports kernels as functions of tvm-ffi: `export!(softmax, my_kernels::saxpy);`. The name of a function is that of its
/// kernel.
#[macro_export]
macro_rules! export {
    (@one [$($path:tt)*] $name:ident) => {
        const _: () = {
            // SAFETY: no other function has this name, because the names of the kernels of a program differ.
            #[unsafe(export_name = concat!("__tvm_ffi_", stringify!($name)))]
            unsafe extern "C" fn call(
                _library: *mut ::std::ffi::c_void,
                args: *const $crate::tvm_ffi::TvmFfiAny,
                count: i32,
                result: *mut $crate::tvm_ffi::TvmFfiAny,
            ) -> ::std::ffi::c_int {
                // SAFETY: tvm-ffi calls it with values of its own.
                unsafe { $crate::tvm_ffi::call_kernel(&$($path)* $name, args, count, result) }
            }
        };
    };
    (@one [$($path:tt)*] $head:ident :: $($rest:tt)+) => { $crate::export!(@one [$($path)* $head ::] $($rest)+); };
    // What a program exports, besides what this crate does, is marked for `atlas wheel`.
    (@mark $name:ident) => {
        const _: () = {
            // SAFETY: as for the function.
            #[unsafe(export_name = concat!("__atlas_own_", stringify!($name)))]
            static MARK: u8 = 0;
        };
    };
    (@mark $head:ident :: $($rest:tt)+) => { $crate::export!(@mark $($rest)+); };
    ($($($part:ident)::+),* $(,)?) => { $($crate::export!(@one [] $($part)::+); $crate::export!(@mark $($part)::+);)* };
}

/// Exports chains as functions of tvm-ffi: `export_chains!(my_kernels::STEP);`. The name of a function is that of the static.
#[macro_export]
macro_rules! export_chains {
    (@one [$($path:tt)*] $name:ident) => {
        const _: () = {
            // SAFETY: no other function has this name: the names of the chains of a program differ, and kernels have lower case.
            #[unsafe(export_name = concat!("__tvm_ffi_", stringify!($name)))]
            unsafe extern "C" fn call(
                _library: *mut ::std::ffi::c_void,
                args: *const $crate::tvm_ffi::TvmFfiAny,
                count: i32,
                result: *mut $crate::tvm_ffi::TvmFfiAny,
            ) -> ::std::ffi::c_int {
                static CHAIN: $crate::calls::NamedChain = $crate::calls::NamedChain::new(&$($path)* $name);
                // SAFETY: tvm-ffi calls it with values of its own.
                unsafe { $crate::tvm_ffi::call_chain(&CHAIN, args, count, result) }
            }
        };
    };
    (@one [$($path:tt)*] $head:ident :: $($rest:tt)+) => { $crate::export_chains!(@one [$($path)* $head ::] $($rest)+); };
    (@own [$($path:tt)*] $name:ident) => {
        const _: () = {
            static CHAIN: $crate::calls::NamedChain = $crate::calls::NamedChain::new(&$($path)* $name);
            $crate::inventory::submit! { $crate::calls::OwnChain { name: stringify!($name), chain: &CHAIN } }
        };
    };
    (@own [$($path:tt)*] $head:ident :: $($rest:tt)+) => { $crate::export_chains!(@own [$($path)* $head ::] $($rest)+); };
    ($($($part:ident)::+),* $(,)?) => {
        $(
            $crate::export_chains!(@one [] $($part)::+);
            $crate::export_chains!(@own [] $($part)::+);
            $crate::export!(@mark $($part)::+);
        )*
    };
}
