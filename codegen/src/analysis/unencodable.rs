//! What of a kernel no GPU instruction does: refused from Tile IR and its placement, before anything is lowered.
//!
//! # Promise
//! A kernel that passes has an instruction for each function and each tile in shared memory that `lower_tiles` makes of
//! it.
//!
//! # Argument
//! Lowering makes no function of its own, and every tile in shared memory but the scratch of a `convert.layout`, by which bits go
//! as numbers, has one of the three homes there. The verifier of the phases counts what slips through as a defect.
//!
//! # Breaks it
//! tests/cases/passes/lower_tiles has a transposed tile of bool and a function of f64.

use super::{Home, Placement, Uses};
use crate::error::CompileError;
use crate::gpu::is_function_of_f64;
use atlas_dsl::{DType, Kernel, Op};

/// Refuses what has no instruction on any target.
pub(crate) fn refuse_unencodable(kernel: &Kernel, uses: &Uses, placement: &Placement) -> Result<(), CompileError> {
    for (inst, op) in kernel.insts.iter().filter(|&(inst, _)| uses.is_live(inst)) {
        let of_f64 = kernel.results[inst].iter().any(|&v| kernel.ty(v).dtype == DType::F64);
        if let Op::Unary(f, _) = op
            && of_f64
            && !is_function_of_f64(*f)
        {
            return Err(CompileError::refusal(format!("`{}` of f64 has no GPU lowering", f.name())));
        }
    }
    let is_shared = |v| matches!(placement.home(v), Home::Copied(_) | Home::Stored | Home::Carried);
    for v in kernel.values.keys().filter(|&v| is_shared(v) && !uses.get(v).is_empty()) {
        refuse_bits_in_shared(kernel.ty(v).dtype)?;
    }
    Ok(())
}

/// Refuses a tile of bits in shared memory: a bit is no byte, and vectors of bits would be packed there.
fn refuse_bits_in_shared(dtype: DType) -> Result<(), CompileError> {
    match dtype {
        DType::Bool => {
            Err(CompileError::refusal("a tile of bool would have to pass through shared memory; make it an i32 first"))
        }
        _ => Ok(()),
    }
}
