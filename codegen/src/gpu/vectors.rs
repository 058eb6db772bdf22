//! How wide tensors can be accessed.

use super::{Kernel, Slice};
use atlas_dsl::Param;
use atlas_dsl::ir::{ParamKind, Stride};

/// The widest vector, in elements, in which a tile of a tensor can be copied: limited by 16 bytes, the
/// base alignment, and what is known of strides, dims and the tile's place along the last axis.
pub(crate) fn vector_elements(kernel_params: &ParamKind, inner_divisor: u64) -> u32 {
    let ParamKind::Tensor { dtype, strides, align, .. } = kernel_params else { return 1 };
    let Some((Stride::Const(1), outer)) = strides.split_last() else { return 1 };
    let mut v = u64::from(16 / dtype.bytes()).min(u64::from(align / dtype.bytes()).max(1));
    let divides = |v: u64, n: u64| n.is_multiple_of(v);
    while v > 1 && !(outer.iter().all(|s| divides(v, s.divisor())) && divides(v, inner_divisor)) {
        v /= 2;
    }
    v as u32
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What is known to divide the first element and the extent of a slice of a dim.
pub(crate) fn inner_divisor(slice: Slice, dim: u64) -> u64 {
    match slice {
        Slice::At { .. } | Slice::Span { .. } | Slice::Gather { .. } => 1,
        Slice::Tile { size, offset, len, .. } => gcd(gcd(u64::from(size), u64::from(offset)), gcd(u64::from(len), dim)),
        Slice::Whole { offset, len } => gcd(gcd(u64::from(offset), u64::from(len)), dim),
    }
}

/// The widest vector, in elements, in which a tile of a tensor can be accessed.
pub(crate) fn access_elements(k: &Kernel, param: Param, slices: &[Slice]) -> u32 {
    let kind = &k.params[param].kind;
    let ParamKind::Tensor { dims, .. } = kind else { return 1 };
    let inner = match (slices.last(), dims.last()) {
        (Some(&slice), Some(&dim)) => inner_divisor(slice, k.dims[dim].size.divisor()),
        _ => 1,
    };
    vector_elements(kind, inner)
}
