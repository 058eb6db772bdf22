//! Scalars that place stages of rings: each goes to the end of a list, with the place in the source of another instruction.

use crate::gpu::{Inst, Kernel, Op, Type, Value};
use atlas_dsl::DType;
use atlas_dsl::op::BinaryOp;

/// The constant.
pub(in crate::passes) fn int(k: &mut Kernel, x: u32, like: Inst, out: &mut Vec<Inst>) -> Value {
    let int = k.scalar_type(DType::I32);
    push(k, Op::Const(f64::from(x)), int, like, out)
}

/// Of two i32 scalars.
pub(in crate::passes) fn binary(
    k: &mut Kernel,
    op: BinaryOp,
    a: Value,
    b: Value,
    like: Inst,
    out: &mut Vec<Inst>,
) -> Value {
    let int = k.scalar_type(DType::I32);
    push(k, Op::binary(op, a, b), int, like, out)
}

/// Any scalar operation.
pub(in crate::passes) fn push(k: &mut Kernel, op: Op, ty: Type, like: Inst, out: &mut Vec<Inst>) -> Value {
    let loc = k.locs[like];
    let inst = k.new_inst(op, vec![ty], loc);
    out.push(inst);
    k.results[inst][0]
}
