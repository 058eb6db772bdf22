//! Solves a problem on a device and checks the result against the f64 reference.

use crate::compare::Comparison;
use crate::problem::{HostTensor, Inputs, Layout, Problem, normal, round};
use atlas_dsl::def::ParamDef;
use atlas_dsl::ir::Access;
use atlas_dsl::{Config, DType};
use atlas_runtime::{Arg, BoundLaunch, Device, Element, Launch, PreparedLaunch, Result, Tensor};
use half::{bf16, f16};
use rayon::prelude::*;
use std::ops::Range;

/// Elements that lie after each row of a padded tensor. They are NaN: a kernel that reads them is found out.
const PADDING: usize = 8;

/// A problem's tensors on a device.
pub struct Prepared<'p> {
    problem: &'p Problem,
    device: Device,
    /// One per tensor parameter, in signature order.
    tensors: Vec<Tensor>,
}

impl Problem {
    /// Puts the inputs and the outputs on a device. What is written alone starts as NaN, so that what is not written shows.
    ///
    /// # Errors
    /// Those of making tensors.
    pub fn prepare(&self, device: &Device, inputs: &Inputs) -> Result<Prepared<'_>> {
        let tensors = self
            .tensors()
            .into_iter()
            .map(|t| match inputs.0.get(t.name) {
                Some(host) => upload(device, t.dtype, host, self.layout_of(t.name)),
                None => {
                    let len = t.sizes.iter().product();
                    let unwritten = HostTensor { sizes: t.sizes, values: vec![f32::NAN; len] };
                    upload(device, t.dtype, &unwritten, self.layout_of(t.name))
                }
            })
            .collect::<Result<_>>()?;
        Ok(Prepared { problem: self, device: device.clone(), tensors })
    }

    /// Solves the problem on a device and compares all of the result.
    ///
    /// # Errors
    /// Those of making tensors and of the launch.
    pub fn check(&self, device: &Device, config: Option<&Config>) -> Result<Comparison> {
        let inputs = self.inputs();
        self.check_on(device, config, &inputs, &self.expected(&inputs))
    }

    /// The same with inputs and expected results that are known, as where several configs or devices solve one problem.
    ///
    /// # Errors
    /// As [`Problem::check`].
    pub fn check_on(
        &self,
        device: &Device,
        config: Option<&Config>,
        inputs: &Inputs,
        expected: &Expected,
    ) -> Result<Comparison> {
        let mut prepared = self.prepare(device, inputs)?;
        prepared.launch(config)?;
        prepared.compare(expected)
    }

    /// What the kernel should write.
    pub fn expected(&self, inputs: &Inputs) -> Expected {
        Expected { exact: (self.op.reference)(self, inputs), rounded: (self.op.rounded)(self, inputs) }
    }

    /// The launch of the problem on a device, bound and not run.
    ///
    /// # Errors
    /// Those of making tensors and of binding.
    pub fn bind(&self, device: &Device) -> Result<BoundLaunch> {
        let mut prepared = self.prepare(device, &self.inputs())?;
        self.kernel.bind(device, prepared.args())
    }

    /// The axis, of a tensor of these dims, of the op's independent dim.
    fn batch_axis(&self, dims: &[usize]) -> Option<usize> {
        dims.iter().position(|&d| self.kernel.dims[d].name == self.op.batch)
    }

    /// The same problem at some indices of the op's independent dim alone.
    fn at(&self, inputs: &Inputs, indices: &[usize]) -> (Problem, Inputs) {
        let batch = self.op.batch;
        let mut part = self.clone();
        let mut picked = inputs.clone();
        for (d, size) in self.kernel.dims.iter().zip(&mut part.dims) {
            if d.name == batch {
                *size = indices.len() as u64;
            }
        }
        for p in self.kernel.params {
            if let ParamDef::Tensor { name, dims, .. } = p
                && let Some(axis) = self.batch_axis(dims)
                && let Some(tensor) = picked.0.get_mut(name)
            {
                let inner: usize = tensor.sizes[axis + 1..].iter().product();
                let outer = tensor.values.chunks((tensor.sizes[axis] * inner).max(1));
                let part =
                    outer.flat_map(|o| indices.iter().flat_map(move |i| o[i * inner..][..inner].iter().copied()));
                tensor.values = part.collect();
                tensor.sizes[axis] = indices.len();
            }
        }
        (part, picked)
    }
}

impl Prepared<'_> {
    /// The arguments in the order of the kernel's parameters.
    pub fn args(&mut self) -> Vec<Arg<'_>> {
        let mut tensors = self.tensors.iter_mut();
        let mut args = Vec::new();
        for p in self.problem.kernel.params {
            match p {
                ParamDef::Scalar { name, dtype } => args.push(match self.problem.dtype_of(*dtype) {
                    DType::I32 => Arg::I32(self.problem.scalar(name) as i32),
                    _ => Arg::F32(self.problem.scalar(name)),
                }),
                ParamDef::Tensor { access, .. } => args.extend(tensors.next().map(|t| match access {
                    Access::In => Arg::In(t),
                    Access::Out => Arg::Out(t),
                })),
            }
        }
        args
    }

    /// Launches the kernel, with a config of its own choice unless one is given. Does not wait.
    ///
    /// # Errors
    /// Those of the launch.
    pub fn launch(&mut self, config: Option<&Config>) -> Result<()> {
        let (kernel, device) = (self.problem.kernel, self.device.clone());
        match config {
            Some(config) => kernel.launch_with(&device, config, self.args()),
            None => kernel.launch(&device, self.args()),
        }
    }

    /// Compiles the kernel and keeps all that a launch of this problem needs.
    ///
    /// # Errors
    /// Those of the launch.
    pub fn resolve(&mut self, config: Option<&Config>) -> Result<PreparedLaunch> {
        let (kernel, device) = (self.problem.kernel, self.device.clone());
        match config {
            Some(config) => kernel.prepare_with(&device, config, self.args()),
            None => kernel.prepare(&device, self.args()),
        }
    }

    /// Sets what the kernel writes and does not read to zero, so that nothing of an earlier launch is taken for its own.
    ///
    /// # Errors
    /// Those of the driver; of outputs that are views.
    pub fn clear_outputs(&mut self) -> Result<()> {
        let params = self.problem.tensors();
        for (p, tensor) in params.iter().zip(&mut self.tensors) {
            if p.access == Access::Out && !self.problem.reads(p) {
                tensor.clear()?;
            }
        }
        Ok(())
    }

    /// What the kernel writes that has a reference, in the order of its parameters.
    pub fn outputs(&self) -> Vec<&Tensor> {
        let params = self.problem.tensors();
        params.iter().zip(&self.tensors).filter(|(p, _)| self.problem.has_reference(p)).map(|(_, t)| t).collect()
    }

    /// Compares all results with their references.
    ///
    /// # Errors
    /// Those of reading the outputs.
    pub fn compare(&self, expected: &Expected) -> Result<Comparison> {
        let found = self.outputs().into_iter().map(Tensor::to_f64_vec).collect::<Result<Vec<_>>>()?;
        Ok(expected.beside(&found))
    }

    /// The outputs' axes of the op's independent dim.
    fn output_axes(&self) -> Vec<usize> {
        let outputs = self.problem.kernel.params.iter().filter_map(|p| match p {
            ParamDef::Tensor { name, dims, access: Access::Out, .. } => Some((name, dims)),
            _ => None,
        });
        let with_reference = outputs.filter(|(name, _)| !self.problem.op.scratch.contains(name));
        with_reference.map(|(_, dims)| self.problem.batch_axis(dims).unwrap_or(0)).collect()
    }

    /// What the result should be at `count` indices of the op's independent dim, spread from the first to the last.
    pub fn sample(&self, inputs: &Inputs, count: usize) -> Sample {
        let Some(total) = self.problem.kernel.dims.iter().position(|d| d.name == self.problem.op.batch) else {
            // Nothing is independent: all of it.
            return Sample { indices: None, expected: self.problem.expected(inputs) };
        };
        let total = self.problem.dims[total] as usize;
        let count = count.min(total);
        let indices: Vec<usize> = (0..count).map(|i| i * (total - 1) / (count - 1).max(1)).collect();
        let (part, picked) = self.problem.at(inputs, &indices);
        Sample { indices: Some(indices), expected: part.expected(&picked) }
    }

    /// Compares the results with a sample.
    ///
    /// # Errors
    /// Those of reading the outputs.
    pub fn check_sample(&self, sample: &Sample) -> Result<Comparison> {
        let Some(indices) = &sample.indices else { return self.compare(&sample.expected) };
        let parts = self.outputs().into_iter().zip(self.output_axes());
        let found = parts.map(|(t, axis)| picked(t, axis, indices)).collect::<Result<Vec<_>>>()?;
        Ok(sample.expected.beside(&found))
    }
}

/// The elements of a tensor at some indices of an axis, row-major.
fn picked(tensor: &Tensor, axis: usize, indices: &[usize]) -> Result<Vec<f64>> {
    let at = |&i: &usize| tensor.slice(axis, Range { start: i, end: i + 1 })?.to_f64_vec();
    let parts = indices.iter().map(at).collect::<Result<Vec<_>>>()?;
    let inner: usize = tensor.shape()[axis + 1..].iter().product();
    let outer = parts.first().map_or(0, |part| part.len() / inner.max(1));
    let rows = (0..outer).flat_map(|o| parts.iter().flat_map(move |part| &part[o * inner..][..inner]));
    Ok(rows.copied().collect())
}

/// The reference at some indices of an op's independent dim.
pub struct Sample {
    /// `None` for all of the results.
    indices: Option<Vec<usize>>,
    expected: Expected,
}

/// What a kernel should write, in the order of its parameters, less the op's `scratch`.
#[derive(Clone, Debug)]
pub struct Expected {
    /// In f64.
    pub exact: Vec<Vec<f64>>,
    /// The same with the roundings of the kernel, of one that magnifies them.
    pub rounded: Option<Vec<Vec<f64>>>,
}

impl Expected {
    /// Compares what was found, tensor by tensor; the worst of each figure. A tensor without a reference never passes.
    pub fn beside(&self, found: &[Vec<f64>]) -> Comparison {
        let Expected { exact, rounded } = self;
        let all = match rounded {
            None => Comparison::of_all(found.iter().map(Vec::as_slice).zip(exact.iter().map(Vec::as_slice))),
            Some(rounded) => {
                let each = found.iter().zip(exact).zip(rounded);
                let each = each.map(|((found, exact), rounded)| Comparison::beside(found, exact, rounded));
                each.fold(Comparison::new(&[], &[]), Comparison::and)
            }
        };
        let references = rounded.as_ref().map_or(exact.len(), |rounded| exact.len().min(rounded.len()));
        Comparison { same_length: all.same_length && references == found.len(), ..all }
    }
}

/// Puts a tensor on a device in a given layout.
pub(crate) fn upload(device: &Device, dtype: DType, host: &HostTensor, layout: Layout) -> Result<Tensor> {
    let sizes = &host.sizes;
    let last = sizes.len() - 1;
    let dense = |values: &[f32], sizes: &[usize]| match dtype {
        DType::F16 => make(device, values, sizes, f16::from_f32),
        DType::Bf16 => make(device, values, sizes, bf16::from_f32),
        DType::I32 => make(device, values, sizes, |v| v as i32),
        _ => make(device, values, sizes, |v| v),
    };
    match layout {
        Layout::Contiguous => dense(&host.values, sizes),
        Layout::Padded => {
            let row = |r: &[f32]| r.iter().copied().chain([f32::NAN; PADDING]).collect::<Vec<f32>>();
            let values: Vec<f32> = host.values.chunks(sizes[last].max(1)).flat_map(row).collect();
            let mut padded = sizes.clone();
            padded[last] += PADDING;
            dense(&values, &padded)?.slice(last, 0..sizes[last])
        }
        Layout::Swapped => {
            let (a, b) = (sizes[0], sizes[1]);
            let row: usize = sizes[2..].iter().product();
            let values: Vec<f32> =
                (0..a * b).flat_map(|i| &host.values[((i % a) * b + i / a) * row..][..row]).copied().collect();
            let mut swapped = sizes.clone();
            swapped.swap(0, 1);
            dense(&values, &swapped)?.transpose(0, 1)
        }
        Layout::Transposed => {
            let (rows, cols) = (sizes[last - 1], sizes[last]);
            let columns = |m: &[f32]| (0..rows * cols).map(|i| m[i % rows * cols + i / rows]).collect::<Vec<f32>>();
            let values: Vec<f32> = host.values.chunks((rows * cols).max(1)).flat_map(columns).collect();
            let mut transposed = sizes.clone();
            transposed.swap(last - 1, last);
            dense(&values, &transposed)?.transpose(last - 1, last)
        }
        Layout::Shared => {
            let row: usize = sizes[1..].iter().product();
            let mut one = sizes.clone();
            one[0] = 1;
            dense(&host.values[..row], &one)?.expand(sizes)
        }
    }
}

fn make<T: Element>(device: &Device, values: &[f32], sizes: &[usize], to: fn(f32) -> T) -> Result<Tensor> {
    let values: Vec<T> = values.par_iter().map(|&v| to(v)).collect();
    device.tensor_from(&values, sizes)
}

/// An input of a plan: numbers around a mean, the same for the same name and sizes.
pub(crate) fn plan_tensor(
    device: &Device,
    dtype: DType,
    name: &str,
    (mean, sd): (f64, f64),
    sizes: &[usize],
) -> Result<Tensor> {
    let mut values = normal(&format!("plan {name} {sizes:?}"), mean, sd, sizes.iter().product());
    values.iter_mut().for_each(|v| *v = round(*v, dtype));
    upload(device, dtype, &HostTensor { sizes: sizes.to_vec(), values }, Layout::Contiguous)
}
