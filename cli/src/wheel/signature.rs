//! Parameters of a kernel for Python.

use atlas_dsl::KernelDef;
use atlas_dsl::def::{DTypeRef, ParamDef};

/// The parameters of a function for a kernel, with types for type checkers: `x: Any, a: float, y: Any`.
pub(super) fn params(kernel: &KernelDef) -> String {
    let of = |param: &ParamDef| match *param {
        ParamDef::Tensor { name, .. } => format!("{name}: Any"),
        ParamDef::Scalar { name, dtype } => format!("{name}: {}", number(kernel, dtype)),
    };
    kernel.params.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// The type of a number in Python.
fn number(kernel: &KernelDef, dtype: DTypeRef) -> &'static str {
    let is_whole = match dtype {
        DTypeRef::Fixed(dtype) => !dtype.is_float(),
        DTypeRef::Generic(i) => kernel.types[i].allowed.iter().all(|d| !d.is_float()),
    };
    if is_whole { "int" } else { "float" }
}
