//! Arguments for a kernel of which nothing is known but its signature: small numbers that differ.

use anyhow::Result;
use atlas_dsl::def::{DTypeRef, ParamDef};
use atlas_dsl::ir::Access;
use atlas_dsl::{DType, KernelDef};
use atlas_runtime::{Arg, Device, Tensor};
use half::{bf16, f16};

/// Tensors and numbers for each parameter of a kernel.
pub(super) struct Arguments {
    def: &'static KernelDef,
    tensors: Vec<Tensor>,
}

impl Arguments {
    /// Contiguous tensors of these sizes of the dims, in the signature's order, all of one type where the kernel leaves it open.
    pub(super) fn new(def: &'static KernelDef, dtype: DType, dims: &[u64], device: &Device) -> Result<Arguments> {
        Arguments::of(def, &vec![dtype; def.types.len()], dims, device)
    }

    /// The same with a type for each of the kernel's type parameters.
    pub(super) fn of(def: &'static KernelDef, types: &[DType], dims: &[u64], device: &Device) -> Result<Arguments> {
        let mut tensors = Vec::new();
        for param in def.params {
            if let ParamDef::Tensor { dtype: of, dims: axes, .. } = param {
                let of = match of {
                    DTypeRef::Fixed(fixed) => *fixed,
                    DTypeRef::Generic(at) => types[*at],
                };
                let shape: Vec<usize> = axes.iter().map(|&d| dims[d] as usize).collect();
                tensors.push(tensor(device, of, &shape)?);
            }
        }
        Ok(Arguments { def, tensors })
    }

    /// In the order of the parameters.
    pub(super) fn args(&mut self) -> Vec<Arg<'_>> {
        let mut rest = self.tensors.iter_mut();
        let mut args = Vec::new();
        for param in self.def.params {
            match param {
                ParamDef::Tensor { access, .. } => args.extend(rest.next().map(|t| match access {
                    Access::In => Arg::In(t),
                    Access::Out => Arg::Out(t),
                })),
                ParamDef::Scalar { dtype: DTypeRef::Fixed(DType::I32 | DType::I64), .. } => args.push(Arg::I32(1)),
                ParamDef::Scalar { .. } => args.push(Arg::F32(0.5)),
            }
        }
        args
    }

    /// Bytes of the tensors.
    pub(super) fn bytes(&self) -> f64 {
        self.tensors.iter().map(|t| t.len() as f64 * f64::from(t.dtype().bytes())).sum()
    }

    /// What is written, `most` elements of each tensor at most: those of its first rows.
    pub(super) fn outputs(&self, most: usize) -> Result<Vec<Vec<f64>>> {
        let params = self.def.params.iter().filter_map(|p| match p {
            ParamDef::Tensor { access, .. } => Some(*access),
            ParamDef::Scalar { .. } => None,
        });
        let written = params.zip(&self.tensors).filter(|(access, _)| *access == Access::Out).map(|(_, t)| t);
        let first = |t: &Tensor| -> Result<Vec<f64>> {
            let rows = t.shape().first().copied().unwrap_or(1);
            let row = t.len() / rows.max(1);
            Ok(match t.rank() {
                0 => t.to_f64_vec()?,
                _ => t.slice(0, 0..rows.min((most / row.max(1)).max(1)))?.to_f64_vec()?,
            })
        };
        written.map(first).collect()
    }
}

/// A tensor of small numbers that differ.
fn tensor(device: &Device, dtype: DType, shape: &[usize]) -> Result<Tensor> {
    let len: usize = shape.iter().product();
    let values = (0..len).map(|i| (i * 37 % 101) as f32 / 101.0 - 0.5);
    Ok(match dtype {
        DType::F16 => device.tensor_from(&values.map(f16::from_f32).collect::<Vec<_>>(), shape)?,
        DType::Bf16 => device.tensor_from(&values.map(bf16::from_f32).collect::<Vec<_>>(), shape)?,
        DType::F32 => device.tensor_from(&values.collect::<Vec<_>>(), shape)?,
        DType::F64 => device.tensor_from(&values.map(f64::from).collect::<Vec<_>>(), shape)?,
        // Whole numbers are mostly indices: zero is always one of them.
        other => Tensor::zeros(device, other, shape)?,
    })
}
