//! Arguments of launches, as C and tvm-ffi give them.

use crate::dlpack::{self, DLTensor};
use crate::launch::{ATLAS_ARG_FLOAT, ATLAS_ARG_INT, ATLAS_ARG_TENSOR, AtlasArg};
use crate::status::{Failure, Result};
use atlas::kernel::{Arg, KernelDef};
use atlas::{Device, Tensor};
use atlas_dsl::def::{DTypeRef, ParamDef};
use smallvec::SmallVec;

/// What is called by name with arguments: a kernel or a chain.
pub(crate) trait Callee {
    /// Its name.
    fn name(&self) -> &'static str;
    /// A parameter by its number; `None` beyond the last one.
    fn param(&self, number: usize) -> Option<Param>;
    /// Its signature, for messages.
    fn signature(&self) -> String;
}

/// What a caller has to know of a parameter.
#[derive(Clone, Copy)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    /// Whether it is a number that is a float.
    pub(crate) is_float: bool,
}

impl Callee for KernelDef {
    fn name(&self) -> &'static str {
        self.name
    }

    fn param(&self, number: usize) -> Option<Param> {
        let param = self.params.get(number)?;
        Some(Param { name: param.name(), is_float: takes_floats(self, param) })
    }

    fn signature(&self) -> String {
        KernelDef::signature(self)
    }
}

/// An argument of a launch, taken apart.
pub(crate) enum Given<'a> {
    Tensor(&'a DLTensor),
    Real(f64),
    Whole(i64),
}

/// The arguments of a kernel or a chain, with the tensors that they are of.
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
                    Some(param) if param.is_float && x as f64 as i64 == x => (None, Arg::F64(x as f64)),
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
pub(crate) fn takes_floats(kernel: &KernelDef, param: &ParamDef) -> bool {
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
