//! What is known of a problem when its kernel is compiled.
//!
//! A specialization fixes type parameters, whole dims, divisors of the other dims, strides and
//! alignments. Problems with equal specializations share a compiled kernel.

use crate::ir::{DimSize, Stride};
use crate::types::DType;
use std::collections::BTreeMap;

/// What is known of one tensor argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorFacts {
    /// Known alignment of the base address, in bytes.
    pub align: u32,
    /// One per dim, outermost first.
    pub strides: Vec<StrideFact>,
}

/// [`Stride`] with an order, so that specializations can be keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StrideFact {
    /// Exactly this many elements.
    Const(i64),
    /// Bound at launch, a multiple of this.
    Dynamic(u32),
}

impl From<StrideFact> for Stride {
    fn from(fact: StrideFact) -> Stride {
        match fact {
            StrideFact::Const(n) => Stride::Const(n),
            StrideFact::Dynamic(divisor) => Stride::Dynamic { divisor },
        }
    }
}

/// [`DimSize`] with an order, so that specializations can be keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DimFact {
    /// Exactly this size.
    Const(u64),
    /// Bound at launch, a multiple of this.
    Dynamic(u32),
}

impl DimFact {
    /// What a kernel that uses the dim whole, or not, is compiled for where the dim has this size.
    pub fn of(whole: bool, size: u64) -> DimFact {
        if whole { DimFact::Const(size) } else { DimFact::Dynamic(largest_class(size)) }
    }
}

impl From<DimFact> for DimSize {
    fn from(fact: DimFact) -> DimSize {
        match fact {
            DimFact::Const(n) => DimSize::Const(n),
            DimFact::Dynamic(divisor) => DimSize::Dynamic { divisor },
        }
    }
}

/// Everything about a problem that enters its compiled kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Specialization {
    /// Type parameters of the kernel by name.
    pub types: BTreeMap<String, DType>,
    /// Dims by name. A dim that is used whole must be `Const`.
    pub dims: BTreeMap<String, DimFact>,
    /// Tensor parameters by name. A missing tensor is contiguous and 16-byte aligned.
    pub tensors: BTreeMap<String, TensorFacts>,
}

impl Specialization {
    /// Sets a type parameter.
    #[must_use]
    pub fn with_type(mut self, name: &str, dtype: DType) -> Specialization {
        self.types.insert(name.to_owned(), dtype);
        self
    }

    /// Sets a dim's fact.
    #[must_use]
    pub fn with_dim(mut self, name: &str, fact: DimFact) -> Specialization {
        self.dims.insert(name.to_owned(), fact);
        self
    }

    /// Strides of a contiguous tensor with these dims. A stride is constant if all inner dims are.
    pub fn contiguous_strides(dims: &[DimFact]) -> Vec<StrideFact> {
        let mut strides = vec![StrideFact::Const(1); dims.len()];
        let mut inner = StrideFact::Const(1);
        for axis in (0..dims.len()).rev() {
            strides[axis] = inner;
            inner = match (inner, dims[axis]) {
                (StrideFact::Const(s), DimFact::Const(n)) => {
                    StrideFact::Const(s.saturating_mul(i64::try_from(n).unwrap_or(i64::MAX)))
                }
                (s, n) => {
                    let s = match s {
                        StrideFact::Const(s) => s.unsigned_abs(),
                        StrideFact::Dynamic(d) => u64::from(d),
                    };
                    let n = match n {
                        DimFact::Const(n) => n,
                        DimFact::Dynamic(d) => u64::from(d),
                    };
                    StrideFact::Dynamic(largest_class(s.saturating_mul(n)))
                }
            };
        }
        strides
    }
}

/// The largest class: every class divides it.
pub const LARGEST_CLASS: u32 = 128;

/// The divisor class of a number: the largest power of two up to 128 that divides it (128 for 0).
///
/// Classes keep the number of specializations small; 128 elements is the largest tile for which divisibility can remove a mask.
pub fn largest_class(n: u64) -> u32 {
    1 << n.trailing_zeros().min(LARGEST_CLASS.ilog2())
}
