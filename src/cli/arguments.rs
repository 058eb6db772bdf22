//! Arguments for a kernel of which nothing is known but its signature: small numbers that differ.

use anyhow::{Context, Result};
use atlas_dsl::def::{DTypeRef, ParamDef};
use atlas_dsl::ir::Access;
use atlas_dsl::specialization::{StrideFact, TensorFacts};
use atlas_dsl::{DType, KernelDef};
use atlas_runtime::{Arg, Device, Tensor};
use half::{bf16, f16};
use std::collections::BTreeMap;

/// Tensors and numbers for each parameter of a kernel.
pub(super) struct Arguments {
    def: &'static KernelDef,
    tensors: Vec<Tensor>,
}

impl Arguments {
    /// Tensors of the element types and sizes, and of the facts that a class has of those that are not contiguous or not
    /// aligned.
    ///
    /// # Errors
    /// If there is no memory for them, or a class asks for what no tensor has.
    pub(super) fn new(
        def: &'static KernelDef,
        types: &[DType],
        dims: &[u64],
        unusual: &BTreeMap<String, TensorFacts>,
        device: &Device,
    ) -> Result<Arguments> {
        let mut tensors = Vec::new();
        for param in def.params {
            if let ParamDef::Tensor { name, dtype: of, dims: axes, .. } = param {
                let of = match of {
                    DTypeRef::Fixed(fixed) => *fixed,
                    DTypeRef::Generic(at) => types[*at],
                };
                let shape: Vec<usize> = axes.iter().map(|&d| dims[d] as usize).collect();
                tensors.push(match unusual.get(*name) {
                    None => tensor(device, of, &shape)?,
                    Some(facts) => view(device, of, &shape, facts).with_context(|| format!("tensor `{name}`"))?,
                });
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

    /// What is written, `most` elements of each tensor at most: those of its first rows and of its last.
    pub(super) fn outputs(&self, most: usize) -> Result<Vec<Vec<f64>>> {
        let params = self.def.params.iter().filter_map(|p| match p {
            ParamDef::Tensor { access, .. } => Some(*access),
            ParamDef::Scalar { .. } => None,
        });
        let written = params.zip(&self.tensors).filter(|(access, _)| *access == Access::Out).map(|(_, t)| t);
        let first = |t: &Tensor| -> Result<Vec<f64>> {
            let rows = t.shape().first().copied().unwrap_or(1);
            let row = t.len() / rows.max(1);
            let part = (most / row.max(1)).max(2) / 2;
            if t.rank() == 0 || rows <= 2 * part {
                return Ok(t.to_f64_vec()?);
            }
            let mut all = t.slice(0, 0..part)?.to_f64_vec()?;
            all.extend(t.slice(0, rows - part..rows)?.to_f64_vec()?);
            Ok(all)
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

/// A view of which these facts hold and no more: strides are odd multiples of what divides them, as small as lets no two
/// elements meet.
fn view(device: &Device, dtype: DType, shape: &[usize], facts: &TensorFacts) -> Result<Tensor> {
    let fixed = |axis: usize| match facts.strides[axis] {
        StrideFact::Const(n) => usize::try_from(n).ok(),
        StrideFact::Dynamic(_) => None,
    };
    let last = |axis: usize, stride: usize| shape[axis].saturating_sub(1).saturating_mul(stride);
    let mut strides: Vec<usize> = (0..shape.len()).map(|axis| fixed(axis).unwrap_or(0)).collect();
    let mut reach: usize = (0..shape.len()).map(|axis| last(axis, strides[axis])).fold(0, usize::saturating_add);
    for axis in (0..shape.len()).rev() {
        if let StrideFact::Dynamic(divisor) = facts.strides[axis] {
            let divisor = divisor as usize;
            strides[axis] = ((reach + 1).div_ceil(divisor) | 1).saturating_mul(divisor);
            reach = reach.saturating_add(last(axis, strides[axis]));
        }
    }
    // An address of the alignment and of none above it, if that is less than what all memory has.
    let offset = if facts.align < 16 { (facts.align / dtype.bytes()) as usize } else { 0 };
    let len = reach.saturating_add(offset).saturating_add(1);
    Ok(tensor(device, dtype, &[len])?.as_strided(shape, strides, offset)?)
}

/// How far the results of two kernels may lie apart, relative to their size: they sum in other orders.
pub(super) fn bound(def: &KernelDef, types: &[DType]) -> f64 {
    let of = |t: DType| match t {
        DType::Bf16 => 3e-2,
        DType::F16 => 5e-3,
        _ => 1e-4,
    };
    let fixed = def.params.iter().filter_map(|p| match p {
        ParamDef::Tensor { dtype: DTypeRef::Fixed(dtype), .. } => Some(*dtype),
        _ => None,
    });
    types.iter().copied().chain(fixed).map(of).fold(1e-4, f64::max)
}
