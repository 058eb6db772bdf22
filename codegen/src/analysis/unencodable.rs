//! Operations of a kernel that no GPU instruction implements. They are refused from Tile IR and its placement, before anything
//! is lowered.
//!
//! # Promise
//! For a kernel that passes, every function and every tile in shared memory that `lower_tiles` creates has an instruction.
//!
//! # Argument
//! Lowering adds no functions. Every tile in shared memory has one of the three homes there, except the scratch of a
//! `convert.layout`, which stores bits as numbers. If something is missed, the verifier of the phases reports it as a defect.
//!
//! # Breaks it
//! tests/cases/passes/lower_tiles has a transposed tile of bool and a function of f64.

use super::{Home, Placement, Uses};
use crate::error::CompileError;
use crate::gpu::is_function_of_f64;
use atlas_dsl::{DType, Kernel, Op};

/// Refuses operations without an instruction on any target.
pub(crate) fn refuse_unencodable(kernel: &Kernel, uses: &Uses, placement: &Placement) -> Result<(), CompileError> {
    for (inst, op) in kernel.insts.iter().filter(|&(inst, _)| uses.is_live(inst)) {
        let of_f64 = kernel.results[inst].iter().any(|&v| kernel.ty(v).dtype == DType::F64);
        let refused = match op {
            Op::Unary(f, _) if !is_function_of_f64(*f) => f.name(),
            Op::Binary(f, ..) if f.is_function() => f.name(),
            _ => continue,
        };
        if of_f64 {
            return Err(CompileError::refusal(format!("`{refused}` of f64 has no GPU lowering")));
        }
    }
    let is_shared = |v| matches!(placement.home(v), Home::Copied(_) | Home::Stored | Home::Carried);
    for v in kernel.values.keys().filter(|&v| is_shared(v) && !uses.get(v).is_empty()) {
        refuse_bits_in_shared(kernel.ty(v).dtype)?;
    }
    Ok(())
}

/// Refuses a tile of bits in shared memory: bits are not addressable, and vectors of bits would be packed.
fn refuse_bits_in_shared(dtype: DType) -> Result<(), CompileError> {
    match dtype {
        DType::Bool => {
            Err(CompileError::refusal("a tile of bool would have to pass through shared memory; make it an i32 first"))
        }
        _ => Ok(()),
    }
}
