//! Binding: checks the arguments of a launch against the kernel's signature.
//!
//! Every device takes a [`BoundLaunch`]. In it, dims have sizes, type parameters have types, tensors are on the right
//! device, and a written tensor overlaps no other argument.

use super::args::Arg;
use crate::device::Device;
use crate::error::{LaunchError, RuntimeError};
use crate::tensor::Tensor;
use atlas_dsl::def::{DTypeRef, ParamDef};
use atlas_dsl::ir::Access;
use atlas_dsl::rounding::{to_bf16, to_f16};
use atlas_dsl::{DType, KernelDef};

/// The largest size of one dim.
pub const MAX_DIM: usize = i32::MAX as usize;

/// A kernel and its arguments, checked.
#[derive(Clone)]
pub struct BoundLaunch {
    def: &'static KernelDef,
    device: Device,
    types: Vec<DType>,
    dims: Vec<u64>,
    args: Vec<BoundArg>,
}

/// A checked argument.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "most arguments are tensors, and a box for each would be an allocation")]
pub enum BoundArg {
    /// A tensor. The handle keeps its memory alive.
    Tensor {
        /// The view.
        tensor: Tensor,
        /// Whether the kernel writes it.
        access: Access,
    },
    /// A number in the parameter's own type.
    Scalar {
        /// The parameter's type.
        dtype: DType,
        /// The value's bits in that type, zero-extended.
        bits: u64,
    },
}

impl BoundLaunch {
    /// Checks the arguments of a launch.
    ///
    /// # Errors
    /// A [`LaunchError`] for the first mistake found, in parameter order; [`RuntimeError::Kernel`] if the kernel does
    /// not exist because its parts cannot be fused, or because it has too many configs.
    pub fn new(def: &'static KernelDef, device: &Device, args: &[Arg<'_>]) -> Result<BoundLaunch, RuntimeError> {
        let kernel = def.name;
        if let Some(diagnostics) = def.refusal() {
            let kernel = kernel.to_owned();
            return Err(RuntimeError::Kernel { kernel, config: Box::default(), diagnostics });
        }
        if args.len() != def.params.len() {
            return Err(LaunchError::WrongArgumentCount {
                kernel,
                found: args.len(),
                wanted: def.params.len(),
                names: def.params.iter().map(ParamDef::name).collect::<Vec<_>>().join(", "),
            }
            .into());
        }
        let mut binder = Binder { def, device, dims: vec![None; def.dims.len()], types: vec![None; def.types.len()] };
        let pairs = || def.params.iter().zip(args);
        for (param, arg) in pairs() {
            binder.tensor(param, arg)?;
        }
        for (param, arg) in pairs() {
            binder.scalar_type(param, arg)?;
        }
        let types: Vec<DType> = (0..def.types.len()).map(|i| binder.resolved(i)).collect();
        let bound = pairs().map(|(param, arg)| bind_arg(def, &types, param, arg)).collect::<Result<Vec<_>, _>>()?;
        check_aliasing(def, args)?;
        let sizes = def.dims.iter().zip(&binder.dims).map(|(d, b)| match b {
            Some(b) => Ok(b.size as u64),
            None => Err(LaunchError::UnboundDim { kernel, dim: d.name }),
        });
        let dims = sizes.collect::<Result<Vec<_>, LaunchError>>()?;
        if let Some(unmet) = def.requires.iter().find(|r| !r.holds(&dims)) {
            let names: Vec<&str> = def.dims.iter().map(|d| d.name).collect();
            let sizes: Vec<String> = unmet.dims().iter().map(|&d| format!("{} = {}", names[d], dims[d])).collect();
            let (requirement, sizes) = (unmet.text(&names).to_string(), sizes.join(", "));
            return Err(LaunchError::Unmet { kernel, requirement, sizes }.into());
        }
        Ok(BoundLaunch { def, device: device.clone(), types, dims, args: bound })
    }

    /// The kernel.
    pub fn def(&self) -> &'static KernelDef {
        self.def
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The type of each type parameter.
    pub fn types(&self) -> &[DType] {
        &self.types
    }

    /// The size of each dim, in the signature's order.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// The arguments in parameter order.
    pub fn args(&self) -> &[BoundArg] {
        &self.args
    }

    /// True if nothing is written, because every output has an axis of size 0. Nothing needs to run then.
    pub fn is_empty(&self) -> bool {
        self.args.iter().all(|a| match a {
            BoundArg::Tensor { tensor, access: Access::Out } => tensor.is_empty(),
            _ => true,
        })
    }
}

/// The parameter and the axis that gave a dim its size.
#[derive(Clone, Copy)]
struct DimBinding {
    size: usize,
    param: &'static str,
    axis: usize,
}

struct Binder<'a> {
    def: &'static KernelDef,
    device: &'a Device,
    dims: Vec<Option<DimBinding>>,
    types: Vec<Option<(DType, &'static str)>>,
}

impl Binder<'_> {
    fn tensor(&mut self, param: &'static ParamDef, arg: &Arg<'_>) -> Result<(), LaunchError> {
        let kernel = self.def.name;
        let (name, dtype, dims, access) = match *param {
            ParamDef::Tensor { name, dtype, dims, access } => (name, dtype, dims, access),
            ParamDef::Scalar { name, .. } => match arg.tensor() {
                None => return Ok(()),
                Some(_) => {
                    return Err(LaunchError::WrongKind { kernel, param: name, found: "a tensor", wanted: "a number" });
                }
            },
        };
        let Some(tensor) = arg.tensor() else {
            return Err(LaunchError::WrongKind { kernel, param: name, found: "a number", wanted: "a tensor" });
        };
        if access == Access::Out && matches!(arg, Arg::In(_)) {
            return Err(LaunchError::NotMutable { kernel, param: name });
        }
        if tensor.device() != self.device {
            let (found, wanted) = tensor.device().beside(self.device);
            return Err(LaunchError::WrongDevice { kernel, param: name, found, wanted });
        }
        if tensor.rank() != dims.len() {
            let names: Vec<&str> = dims.iter().map(|&d| self.def.dims[d].name).collect();
            let dims = format!("[{}]", names.join(", "));
            return Err(LaunchError::WrongRank { kernel, param: name, shape: tensor.shape().to_vec(), dims });
        }
        self.dtype(name, dtype, tensor.dtype())?;
        for (axis, (&dim, &size)) in dims.iter().zip(tensor.shape()).enumerate() {
            self.dim(dim, DimBinding { size, param: name, axis })?;
        }
        if access == Access::Out && tensor.touched().overlaps_itself() {
            return Err(LaunchError::SelfOverlap {
                kernel,
                output: name,
                shape: tensor.shape().to_vec(),
                strides: tensor.strides().to_vec(),
            });
        }
        Ok(())
    }

    fn dim(&mut self, dim: usize, b: DimBinding) -> Result<(), LaunchError> {
        let (kernel, name) = (self.def.name, self.def.dims[dim].name);
        if b.size > MAX_DIM {
            return Err(LaunchError::DimTooLarge { kernel, dim: name, param: b.param, axis: b.axis, size: b.size });
        }
        match self.dims[dim] {
            Some(first) if first.size != b.size => Err(LaunchError::DimConflict {
                kernel,
                dim: name,
                first: first.param,
                first_axis: first.axis,
                first_size: first.size,
                second: b.param,
                second_axis: b.axis,
                second_size: b.size,
            }),
            Some(_) => Ok(()),
            None => {
                self.dims[dim] = Some(b);
                Ok(())
            }
        }
    }

    fn dtype(&mut self, param: &'static str, wanted: DTypeRef, found: DType) -> Result<(), LaunchError> {
        let kernel = self.def.name;
        let index = match wanted {
            DTypeRef::Fixed(wanted) if wanted == found => return Ok(()),
            DTypeRef::Fixed(wanted) => return Err(LaunchError::WrongDType { kernel, param, found, wanted }),
            DTypeRef::Generic(index) => index,
        };
        let parameter = &self.def.types[index];
        match self.types[index] {
            Some((dtype, _)) if dtype == found => Ok(()),
            Some((first_dtype, first)) => Err(LaunchError::TypeConflict {
                kernel,
                name: parameter.name,
                first,
                first_dtype,
                second: param,
                second_dtype: found,
            }),
            None if parameter.allowed.contains(&found) => {
                self.types[index] = Some((found, param));
                Ok(())
            }
            None => {
                let allowed: Vec<&str> = parameter.allowed.iter().map(|d| d.name()).collect();
                Err(LaunchError::TypeNotAllowed {
                    kernel,
                    name: parameter.name,
                    param,
                    found,
                    allowed: allowed.join(", "),
                })
            }
        }
    }

    /// A type parameter that no tensor binds gets the type of the first number that has it.
    fn scalar_type(&mut self, param: &'static ParamDef, arg: &Arg<'_>) -> Result<(), LaunchError> {
        match (param, arg.scalar_dtype()) {
            (ParamDef::Scalar { name, dtype: DTypeRef::Generic(i) }, Some(found)) if self.types[*i].is_none() => {
                self.dtype(name, DTypeRef::Generic(*i), found)
            }
            _ => Ok(()),
        }
    }

    fn resolved(&self, index: usize) -> DType {
        let fallback = || self.def.types[index].allowed.first().copied().unwrap_or(DType::F32);
        self.types[index].map_or_else(fallback, |(dtype, _)| dtype)
    }
}

fn bind_arg(
    def: &'static KernelDef,
    types: &[DType],
    param: &'static ParamDef,
    arg: &Arg<'_>,
) -> Result<BoundArg, LaunchError> {
    match (*param, arg.tensor()) {
        (ParamDef::Tensor { access, .. }, Some(tensor)) => Ok(BoundArg::Tensor { tensor: tensor.clone(), access }),
        (ParamDef::Scalar { name, dtype }, _) => {
            let dtype = match dtype {
                DTypeRef::Fixed(d) => d,
                DTypeRef::Generic(i) => types[i],
            };
            let bits = scalar_bits(def.name, name, dtype, arg)?;
            Ok(BoundArg::Scalar { dtype, bits })
        }
        (ParamDef::Tensor { name, .. }, None) => {
            Err(LaunchError::WrongKind { kernel: def.name, param: name, found: "a number", wanted: "a tensor" })
        }
    }
}

/// A number as bits of the parameter's type: floats are rounded, and whole numbers have to fit.
pub(crate) fn scalar_bits(
    kernel: &'static str,
    param: &'static str,
    wanted: DType,
    arg: &Arg<'_>,
) -> Result<u64, LaunchError> {
    let Some(found) = arg.scalar_dtype() else {
        return Err(LaunchError::WrongKind { kernel, param, found: "a tensor", wanted: "a number" });
    };
    let refuse = Err(LaunchError::WrongScalar { kernel, param, found, wanted });
    let float = match *arg {
        Arg::F32(x) => Some(f64::from(x)),
        Arg::F64(x) => Some(x),
        _ => None,
    };
    let whole = match *arg {
        Arg::I32(x) => Some(i64::from(x)),
        Arg::I64(x) => Some(x),
        _ => None,
    };
    if let Some(x) = float
        && let Some(why) = wanted.overflow(x)
    {
        return Err(LaunchError::ScalarTooLarge { kernel, param, wanted, value: format!("{x:e}"), why });
    }
    match (wanted, float, whole) {
        (DType::F64, Some(x), _) => Ok(x.to_bits()),
        (DType::F32, Some(x), _) => Ok(u64::from((x as f32).to_bits())),
        (DType::F16, Some(x), _) => Ok(u64::from(to_f16(x).to_bits())),
        (DType::Bf16, Some(x), _) => Ok(u64::from(to_bf16(x).to_bits())),
        (DType::I64, _, Some(x)) => Ok(x as u64),
        (DType::I32, _, Some(value)) => match i32::try_from(value) {
            Ok(x) => Ok(u64::from(x as u32)),
            Err(_) => Err(LaunchError::ScalarOutOfRange { kernel, param, value }),
        },
        _ => refuse,
    }
}

/// True if a kernel writes this parameter.
pub(crate) fn is_written(param: &ParamDef) -> bool {
    matches!(param, ParamDef::Tensor { access: Access::Out, .. })
}

/// Refuses a written tensor that shares a byte with another argument. Assumes that the kinds are checked.
pub(crate) fn check_aliasing(def: &'static KernelDef, args: &[Arg<'_>]) -> Result<(), LaunchError> {
    refuse_aliasing(def.name, def.params.iter(), args)
}

/// The same for the parameters of what has this name.
pub(super) fn refuse_aliasing(
    kernel: &'static str,
    params: impl Iterator<Item = &'static ParamDef> + Clone,
    args: &[Arg<'_>],
) -> Result<(), LaunchError> {
    for (i, param) in params.clone().enumerate().filter(|(_, param)| is_written(param)) {
        let Some(written) = args[i].tensor() else { continue };
        let range = written.address_range();
        for (j, (other, of)) in args.iter().zip(params.clone()).enumerate() {
            let Some(other) = other.tensor().filter(|_| i != j) else { continue };
            let beside = other.address_range();
            // Most arguments are far apart, so the check costs a launch two comparisons.
            if range.start < beside.end && beside.start < range.end && written.touched().overlaps(other.touched()) {
                return Err(LaunchError::Overlap { kernel, output: param.name(), other: of.name() });
            }
        }
    }
    Ok(())
}
