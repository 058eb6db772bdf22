//! The oracle: computes a bound launch in f64 on host copies of its arguments, for comparison with any device.

use super::native::{failure, scalar};
use crate::compile::build_kernel;
use crate::error::Result;
use crate::launch::bind::{BoundArg, BoundLaunch};
use crate::launch::problem::specialize;
use crate::tensor::{Element, Tensor, bytes_of};
use atlas_dsl::DType;
use atlas_dsl::ir::Access;
use atlas_tile_interp::{Mode, Scalar, TensorView, TensorViewMut};
use float8::{F8E4M3, F8E5M2};

/// The values that a launch would write to one output.
#[derive(Clone, Debug, PartialEq)]
pub struct OracleOutput {
    /// The parameter.
    pub name: &'static str,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its elements, row-major.
    pub values: Vec<f64>,
}

/// Computes a launch with every float an f64 and nothing rounded, and returns the outputs in parameter order.
///
/// The arguments stay unchanged, on any device. The current content of an output is its content before the launch.
///
/// # Errors
/// `RuntimeError::Kernel` if the kernel cannot be built with any config; `RuntimeError::Cpu`; driver errors.
pub fn run_f64(bound: &BoundLaunch) -> Result<Vec<OracleOutput>> {
    let def = bound.def();
    let mut spec = specialize(bound);
    // The copies are contiguous, which is the meaning of a missing entry.
    spec.tensors.clear();
    // For fused kernels, not every config is legal.
    let mut built = def.configs().into_iter().map(|config| build_kernel(def, &spec, &config));
    let kernel = match built.next() {
        Some(Err(e)) => built.find_map(Result::ok).ok_or(e)?,
        Some(built) => built?,
        None => build_kernel(def, &spec, &def.default_config())?,
    };
    let mut copies: Vec<HostCopy> = bound.args().iter().map(HostCopy::new).collect::<Result<_>>()?;
    let mut views = Vec::with_capacity(copies.len());
    for copy in &mut copies {
        let view = match copy {
            HostCopy::Scalar(x) => Ok(atlas_tile_interp::Arg::Scalar(*x)),
            HostCopy::Tensor { dtype, bytes, dims, access: Access::In } => {
                TensorView::contiguous(*dtype, bytes, dims).map(atlas_tile_interp::Arg::In)
            }
            HostCopy::Tensor { dtype, bytes, dims, access: Access::Out } => {
                TensorViewMut::contiguous(*dtype, bytes, dims).map(atlas_tile_interp::Arg::Out)
            }
        };
        views.push(view.map_err(|e| failure(&kernel, &e))?);
    }
    atlas_tile_interp::run(&kernel, bound.dims(), views, Mode::F64).map_err(|e| failure(&kernel, &e))?;
    Ok(def.params.iter().zip(&copies).filter_map(|(param, copy)| copy.output(param.name())).collect())
}

/// A host copy of an argument, with floats as f64.
enum HostCopy {
    Tensor { dtype: DType, bytes: Vec<u8>, dims: Vec<u64>, access: Access },
    Scalar(Scalar),
}

impl HostCopy {
    fn new(arg: &BoundArg) -> Result<HostCopy> {
        Ok(match arg {
            BoundArg::Tensor { tensor, access } => {
                let (dtype, bytes) = host_bytes(tensor)?;
                let dims = tensor.shape().iter().map(|&n| n as u64).collect();
                HostCopy::Tensor { dtype, bytes, dims, access: *access }
            }
            BoundArg::Scalar { dtype, bits } => HostCopy::Scalar(scalar(*dtype, *bits)),
        })
    }

    fn output(&self, name: &'static str) -> Option<OracleOutput> {
        let HostCopy::Tensor { dtype, bytes, dims, access: Access::Out } = self else { return None };
        let words = |size| bytes.chunks_exact(size);
        let values = match dtype {
            DType::I64 => words(8).map(|b| i64::from_ne_bytes(array(b)) as f64).collect(),
            DType::I32 => words(4).map(|b| f64::from(i32::from_ne_bytes(array(b)))).collect(),
            DType::I16 => words(2).map(|b| i16::from_ne_bytes(array(b)).into()).collect(),
            DType::U16 => words(2).map(|b| u16::from_ne_bytes(array(b)).into()).collect(),
            DType::I8 => bytes.iter().map(|&b| (b as i8).into()).collect(),
            DType::U8 => bytes.iter().map(|&b| b.into()).collect(),
            DType::F8E4M3 => bytes.iter().map(|&b| F8E4M3::from_bits(b)).map(Element::to_f64).collect(),
            DType::F8E5M2 => bytes.iter().map(|&b| F8E5M2::from_bits(b)).map(Element::to_f64).collect(),
            _ => words(8).map(|b| f64::from_ne_bytes(array(b))).collect(),
        };
        Some(OracleOutput { name, shape: dims.iter().map(|&n| n as usize).collect(), values })
    }
}

/// Row-major elements: whole numbers and floats of 8 bits unchanged, other floats as f64.
fn host_bytes(tensor: &Tensor) -> Result<(DType, Vec<u8>)> {
    Ok(match tensor.dtype() {
        DType::I32 => (DType::I32, bytes_of(&tensor.to_vec::<i32>()?).to_vec()),
        DType::I64 => (DType::I64, bytes_of(&tensor.to_vec::<i64>()?).to_vec()),
        DType::I16 => (DType::I16, bytes_of(&tensor.to_vec::<i16>()?).to_vec()),
        DType::U16 => (DType::U16, bytes_of(&tensor.to_vec::<u16>()?).to_vec()),
        DType::I8 => (DType::I8, bytes_of(&tensor.to_vec::<i8>()?).to_vec()),
        DType::U8 => (DType::U8, tensor.to_vec::<u8>()?),
        DType::F8E4M3 => (DType::F8E4M3, bytes_of(&tensor.to_vec::<F8E4M3>()?).to_vec()),
        DType::F8E5M2 => (DType::F8E5M2, bytes_of(&tensor.to_vec::<F8E5M2>()?).to_vec()),
        _ => (DType::F64, bytes_of(&tensor.to_f64_vec()?).to_vec()),
    })
}

/// Exactly `N` bytes as an array.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}
