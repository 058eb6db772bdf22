//! Launches: arguments from C, and kernels by name or prepared.

use crate::device::{AtlasDevice, AtlasStream};
use crate::dlpack::{self, DLTensor};
use crate::kernels::find;
use crate::status::{AtlasStatus, Failure, Result, give, handle, status};
use atlas::kernel::{Arg, KernelDef, Launch, PreparedLaunch};
use atlas::{Device, Tensor};
use atlas_dsl::def::{DTypeRef, ParamDef};
use smallvec::SmallVec;
use std::ffi::c_char;

/// `AtlasArg::kind` of a tensor. Whether a kernel reads or writes it is up to the kernel.
pub const ATLAS_ARG_TENSOR: u32 = 0;
/// `AtlasArg::kind` of a number, for parameters of floats. It is rounded to the parameter's type, and refused if that has no
/// number near it.
pub const ATLAS_ARG_FLOAT: u32 = 1;
/// `AtlasArg::kind` of a whole number, for parameters of integers, and for those of floats if f64 has it.
pub const ATLAS_ARG_INT: u32 = 2;

/// The value of an argument.
#[repr(C)]
#[derive(Clone, Copy)]
pub union AtlasValue {
    /// For `ATLAS_ARG_TENSOR`.
    pub tensor: *const DLTensor,
    /// For `ATLAS_ARG_FLOAT`.
    pub real: f64,
    /// For `ATLAS_ARG_INT`.
    pub whole: i64,
}

/// One argument of a launch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AtlasArg {
    /// One of `ATLAS_ARG_TENSOR`, `ATLAS_ARG_FLOAT` and `ATLAS_ARG_INT`.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// Its value.
    pub value: AtlasValue,
}

/// A kernel that is ready for one problem: sizes, strides, types and alignments of its arguments.
pub struct AtlasPrepared(PreparedLaunch);

/// An argument of a launch, taken apart.
pub(crate) enum Given<'a> {
    Tensor(&'a DLTensor),
    Real(f64),
    Whole(i64),
}

/// The arguments of a kernel, with the tensors that they are of.
pub(crate) struct Arguments {
    tensors: SmallVec<[Option<Tensor>; 16]>,
    numbers: SmallVec<[Arg<'static>; 16]>,
}

impl Arguments {
    /// Borrows the tensors of a call.
    ///
    /// # Safety
    /// As `Tensor::from_raw_parts`, for each tensor.
    pub(crate) unsafe fn new<'a>(
        device: &Device,
        kernel: &KernelDef,
        given: impl Iterator<Item = Result<Given<'a>>>,
    ) -> Result<Arguments> {
        let mut arguments = Arguments { tensors: SmallVec::new(), numbers: SmallVec::new() };
        for (i, given) in given.enumerate() {
            let (tensor, number) = match given? {
                Given::Tensor(tensor) => {
                    let name = kernel.params.get(i).map_or("an argument too many", |param| param.name());
                    // SAFETY: the caller's promise.
                    (Some(unsafe { dlpack::borrow(device, &name, tensor) }?), Arg::I64(0))
                }
                Given::Real(x) => (None, Arg::F64(x)),
                Given::Whole(x) => match kernel.params.get(i) {
                    // Languages such as Python write `1` for `1.0`.
                    Some(param) if takes_floats(kernel, param) && x as f64 as i64 == x => (None, Arg::F64(x as f64)),
                    _ => (None, Arg::I64(x)),
                },
            };
            arguments.tensors.push(tensor);
            arguments.numbers.push(number);
        }
        Ok(arguments)
    }

    /// The arguments of a launch.
    pub(crate) fn list(&mut self) -> SmallVec<[Arg<'_>; 16]> {
        let all = self.tensors.iter_mut().zip(&self.numbers);
        all.map(|(tensor, number)| match (tensor, number) {
            (Some(tensor), _) => Arg::Out(tensor),
            (None, Arg::F64(x)) => Arg::F64(*x),
            (None, Arg::I64(x)) => Arg::I64(*x),
            // No other number is made above.
            (None, _) => Arg::I64(0),
        })
        .collect()
    }
}

/// Whether a parameter is a number that is a float, whatever the types of the launch.
fn takes_floats(kernel: &KernelDef, param: &ParamDef) -> bool {
    match *param {
        ParamDef::Scalar { dtype: DTypeRef::Fixed(dtype), .. } => dtype.is_float(),
        ParamDef::Scalar { dtype: DTypeRef::Generic(i), .. } => kernel.types[i].allowed.iter().all(|d| d.is_float()),
        ParamDef::Tensor { .. } => false,
    }
}

/// The arguments at a pointer.
///
/// # Safety
/// `args` has `count` arguments, and their tensors are as `Tensor::from_raw_parts` says.
unsafe fn arguments(device: &Device, kernel: &KernelDef, args: *const AtlasArg, count: usize) -> Result<Arguments> {
    let args = match (args.is_null(), count) {
        (_, 0) => &[][..],
        (true, _) => return Err(Failure::misuse("the arguments are null")),
        // SAFETY: the caller's promise.
        (false, _) => unsafe { std::slice::from_raw_parts(args, count) },
    };
    let given = args.iter().enumerate().map(|(i, arg)| match arg.kind {
        _ if arg.reserved != 0 => {
            Err(Failure::misuse(format_args!("`reserved` of argument {i} of `{}` is not 0", kernel.name)))
        }
        // SAFETY: the kind says which value it is, here and below; a tensor that is not null is one.
        ATLAS_ARG_TENSOR => match unsafe { arg.value.tensor.as_ref() } {
            Some(tensor) => Ok(Given::Tensor(tensor)),
            None => Err(Failure::misuse(format_args!("argument {i} of `{}` is a tensor that is null", kernel.name))),
        },
        // SAFETY: as above.
        ATLAS_ARG_FLOAT => Ok(Given::Real(unsafe { arg.value.real })),
        // SAFETY: as above.
        ATLAS_ARG_INT => Ok(Given::Whole(unsafe { arg.value.whole })),
        kind => {
            Err(Failure::misuse(format_args!("argument {i} of `{}` has kind {kind}; kinds are 0 to 2", kernel.name)))
        }
    });
    // SAFETY: the caller's promise.
    unsafe { Arguments::new(device, kernel, given) }
}

/// Launches a kernel: on a stream of `atlas_stream_open`, or on the device's default stream if that is null. On a GPU it is
/// queued, and on the CPU done, when this returns.
///
/// If the arguments do not fit the kernel, nothing is written. A CUDA graph may record the launch if `atlas_prepare` was called
/// for such arguments, and what it gave lives as long as the graph.
///
/// # Safety
/// Device and stream are open. `kernel` is a string that ends with a zero byte. `args` has `count` arguments. Tensors are
/// as DLPack says: their memory, from the first element to the last, is allocated until the launch has run, and no other work that is
/// not ordered with the stream writes what the kernel reads, or touches what it writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_launch(
    device: *const AtlasDevice,
    stream: *const AtlasStream,
    kernel: *const c_char,
    args: *const AtlasArg,
    count: usize,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise, here and below.
        let (device, kernel) = unsafe { (handle("device", device)?, find(kernel)?) };
        // SAFETY: as above.
        let mut arguments = unsafe { arguments(&device.0, kernel, args, count) }?;
        // SAFETY: as above.
        match unsafe { stream.as_ref() } {
            Some(stream) if *stream.0.device() == device.0 => kernel.launch_on(&stream.0, arguments.list())?,
            Some(stream) => {
                let (found, wanted) = (stream.0.device().id(), device.0.id());
                return Err(Failure::misuse(format_args!("the stream is of {found}, but the launch is on {wanted}")));
            }
            None => kernel.launch(&device.0, arguments.list())?,
        }
        Ok(())
    })
}

/// Makes a kernel ready for arguments such as these: chooses its config and loads its code. Nothing runs. If it fails,
/// `*prepared` is null.
///
/// # Safety
/// As `atlas_launch`; `prepared` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_prepare(
    device: *const AtlasDevice,
    kernel: *const c_char,
    args: *const AtlasArg,
    count: usize,
    prepared: *mut *mut AtlasPrepared,
) -> AtlasStatus {
    status(|| {
        let ready = || {
            // SAFETY: the caller's promise, here and below.
            let (device, kernel) = unsafe { (handle("device", device)?, find(kernel)?) };
            // SAFETY: as above.
            let mut arguments = unsafe { arguments(&device.0, kernel, args, count) }?;
            Ok(AtlasPrepared(kernel.prepare(&device.0, arguments.list())?))
        };
        // SAFETY: as above.
        unsafe { give(prepared, ready) }
    })
}

/// Launches a prepared kernel with arguments of the same sizes, strides, types and alignments: on a stream of `atlas_stream_open`,
/// or on the device's default stream if that is null.
///
/// # Safety
/// As `atlas_launch`; `prepared` came from `atlas_prepare`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_prepared_launch(
    prepared: *const AtlasPrepared,
    stream: *const AtlasStream,
    args: *const AtlasArg,
    count: usize,
) -> AtlasStatus {
    status(|| {
        // SAFETY: the caller's promise, here and below.
        let AtlasPrepared(prepared) = unsafe { handle("prepared launch", prepared) }?;
        // SAFETY: as above.
        let mut arguments = unsafe { arguments(prepared.device(), prepared.def(), args, count) }?;
        // SAFETY: as above.
        match unsafe { stream.as_ref() } {
            Some(stream) => prepared.launch_on(&stream.0, arguments.list())?,
            None => prepared.launch(arguments.list())?,
        }
        Ok(())
    })
}

/// Closes a prepared launch. Launches that are queued still run. Null is ignored.
///
/// # Safety
/// It came from `atlas_prepare`, and is not used again, nor is a CUDA graph that recorded its launches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atlas_prepared_close(prepared: *mut AtlasPrepared) {
    if !prepared.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(prepared) });
    }
}
