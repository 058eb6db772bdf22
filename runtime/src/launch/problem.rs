//! A problem: a checked launch, the [`Specialization`] that its kernel is compiled for, and properties derived from the
//! two.

use super::bind::{BoundArg, BoundLaunch};
use crate::compile::specialization_class::class_text;
use crate::device::Device;
use crate::tensor::{Tensor, contiguous_strides};
use atlas_dsl::def::ParamDef;
use atlas_dsl::specialization::{DimFact, LARGEST_CLASS, StrideFact, TensorFacts, largest_class};
use atlas_dsl::{KernelDef, Specialization};

/// A checked launch with its specialization, which is computed once. Every step after the check of the arguments takes
/// this.
pub(super) struct Problem<'a> {
    bound: &'a BoundLaunch,
    spec: Specialization,
}

impl<'a> Problem<'a> {
    /// The problem of a checked launch.
    pub(super) fn new(bound: &'a BoundLaunch) -> Problem<'a> {
        Problem { bound, spec: specialize(bound) }
    }

    /// The checked launch.
    pub(super) fn bound(&self) -> &'a BoundLaunch {
        self.bound
    }

    /// The kernel.
    pub(super) fn def(&self) -> &'static KernelDef {
        self.bound.def()
    }

    /// The device that it runs on.
    pub(super) fn device(&self) -> &'a Device {
        self.bound.device()
    }

    /// The size of each dim, in the signature's order.
    pub(super) fn dims(&self) -> &'a [u64] {
        self.bound.dims()
    }

    /// The specialization that its kernel is compiled for.
    pub(super) fn spec(&self) -> &Specialization {
        &self.spec
    }

    /// The specialization's class as text: element types, and the tensors that are not usual.
    pub(super) fn class_text(&self) -> (String, String) {
        class_text(self.def(), &self.spec)
    }
}

/// The facts about a problem that its kernel is compiled for.
///
/// Whole dims are constants, and the others are known up to their divisor class. A stride is a constant if it is 1 or
/// the product of constant inner dims, and is otherwise known up to its class. A base address is known up to 16 bytes.
pub fn specialize(bound: &BoundLaunch) -> Specialization {
    let def = bound.def();
    let mut spec = Specialization::default();
    for (parameter, &dtype) in def.types.iter().zip(bound.types()) {
        spec = spec.with_type(parameter.name, dtype);
    }
    for (dim, &size) in def.dims.iter().zip(bound.dims()) {
        spec = spec.with_dim(dim.name, DimFact::of(dim.whole, size));
    }
    for (param, arg) in def.params.iter().zip(bound.args()) {
        if let (ParamDef::Tensor { name, dims, .. }, BoundArg::Tensor { tensor, .. }) = (param, arg) {
            spec.tensors.insert((*name).to_owned(), tensor_facts(def, bound.dims(), dims, tensor));
        }
    }
    spec
}

fn tensor_facts(def: &KernelDef, sizes: &[u64], dims: &[usize], tensor: &Tensor) -> TensorFacts {
    let facts: Vec<DimFact> = dims.iter().map(|&d| DimFact::of(def.dims[d].whole, sizes[d])).collect();
    let expected = Specialization::contiguous_strides(&facts);
    let strides = expected
        .into_iter()
        .zip(tensor.shape())
        .zip(tensor.strides())
        .map(|((expected, &size), &stride)| match expected {
            // The stride of an axis of size 1 is never used, so the stride of a contiguous tensor stands for it.
            expected if size <= 1 => expected,
            StrideFact::Const(c) if c == stride => expected,
            _ if stride == 1 => StrideFact::Const(1),
            // The copy engine takes no tensor whose rows run backwards, and their class says so.
            _ if stride < 0 => StrideFact::Dynamic(1),
            _ => StrideFact::Dynamic(largest_class(stride.unsigned_abs())),
        })
        .collect();
    TensorFacts { align: alignment(tensor), strides }
}

/// The strides to launch with, in elements: those of the tensor, except for axes of size 1, whose stride is never used.
/// The value for these is a multiple of every class, so it meets the assumptions of any compiled kernel.
pub fn launch_strides(tensor: &Tensor) -> Vec<i64> {
    let contiguous = contiguous_strides(tensor.shape());
    let axes = tensor.shape().iter().zip(tensor.strides()).zip(contiguous);
    let multiple = |stride: i64| (stride.unsigned_abs().next_multiple_of(u64::from(LARGEST_CLASS))) as i64;
    axes.map(|((&size, &stride), contiguous)| if size <= 1 { multiple(contiguous) } else { stride }).collect()
}

/// The known alignment of a tensor's first element, in bytes: a power of two from the element's size to 16.
///
/// Storage starts aligned. On the CPU, where alignment has no effect, only the offset into the storage counts, so a
/// problem has the same specialization on every device and in every run.
pub fn alignment(tensor: &Tensor) -> u32 {
    let bytes = tensor.dtype().bytes();
    let address = if tensor.device().is_cpu() { tensor.element_offset() * u64::from(bytes) } else { tensor.address() };
    (1 << address.trailing_zeros().min(4)).max(bytes)
}
