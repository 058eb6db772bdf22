//! The origin of operands: small queries that several analyses share.

use atlas_dsl::ir::ValueDef;
use atlas_dsl::{Kernel, Op, Value};
use std::collections::BTreeSet;

/// A value seen through transposes, and whether there is an odd number of them.
pub(crate) fn root(kernel: &Kernel, v: Value) -> (Value, bool) {
    let (mut v, mut turned) = (v, false);
    while let Some((_, &Op::Transpose(inner))) = kernel.def_op(v) {
        (v, turned) = (inner, !turned);
    }
    (v, turned)
}

/// All values from which an operation is computed, each once.
pub(crate) fn sources(kernel: &Kernel, op: &Op) -> BTreeSet<Value> {
    let (mut seen, mut open) = (BTreeSet::new(), Vec::new());
    op.visit_operands(|v| open.push(v));
    while let Some(v) = open.pop() {
        if let (true, ValueDef::Result(inst, _)) = (seen.insert(v), kernel.values[v].def) {
            kernel.insts[inst].visit_operands(|o| open.push(o));
        }
    }
    seen
}
