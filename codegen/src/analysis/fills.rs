//! The result of operations on a fill: what [`fold`] proves, or the former wrong result if a test plants that mistake.

use crate::mutation::{Mutation, is_planted};
use atlas_dsl::DType;
use atlas_dsl::fold::{self, Known};
use atlas_dsl::op::{BinaryOp, UnaryOp};

pub(super) fn unary(op: UnaryOp, dtype: DType, x: Known) -> Option<Known> {
    match (op, x) {
        (UnaryOp::Sqrt, Known::Exact(x)) if is_planted(Mutation::FillThroughFunctions) => Some(Known::Exact(x.sqrt())),
        (UnaryOp::Log, Known::Exact(x)) if is_planted(Mutation::FillThroughFunctions) => Some(Known::Exact(x.ln())),
        _ => fold::unary(op, dtype, x),
    }
}

pub(super) fn cast(from: DType, to: DType, x: Known) -> Option<Known> {
    if is_planted(Mutation::FillUnrounded) { Some(x) } else { fold::cast(from, to, x) }
}

pub(super) fn binary(op: BinaryOp, dtype: DType, x: Known, y: Known) -> Option<Known> {
    match (op, x, y) {
        // Of a NaN and a number they take the number.
        (BinaryOp::Max, Known::Exact(x), Known::Exact(y)) if is_planted(Mutation::FillThroughFunctions) => {
            Some(Known::Exact(x.max(y)))
        }
        (BinaryOp::Min, Known::Exact(x), Known::Exact(y)) if is_planted(Mutation::FillThroughFunctions) => {
            Some(Known::Exact(x.min(y)))
        }
        (BinaryOp::Add, Known::Exact(x), Known::Exact(y)) if is_planted(Mutation::FillUnrounded) => {
            Some(Known::Exact(x + y))
        }
        (BinaryOp::Sub, Known::Exact(x), Known::Exact(y)) if is_planted(Mutation::FillUnrounded) => {
            Some(Known::Exact(x - y))
        }
        _ => fold::binary(op, dtype, x, y),
    }
}
