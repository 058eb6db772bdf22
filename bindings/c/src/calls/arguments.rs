//! Arguments of launches, as C and tvm-ffi give them.

use super::callee::Callee;
use crate::dlpack::{self, DLTensor};
use crate::status::{Failure, Result};
use atlas::kernel::Arg;
use atlas::{Device, Tensor};
use smallvec::SmallVec;

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

/// An argument of a launch, taken apart.
pub(crate) enum Given<'a> {
    Tensor(&'a DLTensor),
    Real(f64),
    Whole(i64),
}

/// The arguments of a kernel or a chain, with the tensors that they are of.
pub(crate) struct Arguments {
    /// Few are kept in place, because a tensor is large, and all of this is moved.
    tensors: SmallVec<[Option<Tensor>; 6]>,
    numbers: SmallVec<[Arg<'static>; 16]>,
}

impl Arguments {
    /// Borrows the tensors of a call.
    ///
    /// # Safety
    /// As `Tensor::from_raw_parts`, for each tensor.
    pub(crate) unsafe fn new<'a>(
        device: &Device,
        of: &dyn Callee,
        given: impl Iterator<Item = Result<Given<'a>>>,
    ) -> Result<Arguments> {
        let mut arguments = Arguments { tensors: SmallVec::new(), numbers: SmallVec::new() };
        for (i, given) in given.enumerate() {
            let (tensor, number) = match given? {
                Given::Tensor(tensor) => {
                    let name = of.param(i).map_or("an argument too many", |param| param.name);
                    // SAFETY: the caller's promise.
                    (Some(unsafe { dlpack::borrow(device, &name, tensor) }?), Arg::I64(0))
                }
                Given::Real(x) => (None, Arg::F64(x)),
                Given::Whole(x) => match of.param(i) {
                    // Languages such as Python write `1` for `1.0`.
                    Some(param) if param.is_float && (x as f64) as i128 == i128::from(x) => (None, Arg::F64(x as f64)),
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

/// The arguments at a pointer.
///
/// # Safety
/// `args` has `count` arguments, and their tensors are as `Tensor::from_raw_parts` says.
pub(crate) unsafe fn arguments(
    device: &Device,
    of: &dyn Callee,
    args: *const AtlasArg,
    count: usize,
) -> Result<Arguments> {
    let args = match (args.is_null(), count) {
        (_, 0) => &[][..],
        (true, _) => return Err(Failure::misuse("the arguments are null")),
        // SAFETY: the caller's promise.
        (false, _) => unsafe { std::slice::from_raw_parts(args, count) },
    };
    let given = args.iter().enumerate().map(|(i, arg)| match arg.kind {
        _ if arg.reserved != 0 => {
            Err(Failure::misuse(format_args!("`reserved` of argument {i} of `{}` is not 0", of.name())))
        }
        // SAFETY: the kind says which value it is, here and below; a tensor that is not null is one.
        ATLAS_ARG_TENSOR => match unsafe { arg.value.tensor.as_ref() } {
            Some(tensor) => Ok(Given::Tensor(tensor)),
            None => Err(Failure::misuse(format_args!("argument {i} of `{}` is a tensor that is null", of.name()))),
        },
        // SAFETY: as above.
        ATLAS_ARG_FLOAT => Ok(Given::Real(unsafe { arg.value.real })),
        // SAFETY: as above.
        ATLAS_ARG_INT => Ok(Given::Whole(unsafe { arg.value.whole })),
        kind => Err(Failure::misuse(format_args!("argument {i} of `{}` has kind {kind}; kinds are 0 to 2", of.name()))),
    });
    // SAFETY: the caller's promise.
    unsafe { Arguments::new(device, of, given) }
}
