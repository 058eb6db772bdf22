//! The problems on which kernels are verified, demonstrated and measured: those of all ops, which their rows have.

use crate::op::{OPS, find};
pub use crate::problem::DTYPES;

use crate::problem::{Measured, Op, Problem};
use atlas_dsl::{DType, KernelDef};

/// Problems of ops in all their element types.
fn of_all(ops: &'static [Op], problems: impl Fn(&'static Op, DType) -> Vec<Problem>) -> Vec<Problem> {
    let in_one = |dtype: DType| {
        let ops = ops.iter().filter(|op| op.dtypes.contains(&dtype));
        ops.flat_map(|op| problems(op, dtype)).collect::<Vec<_>>()
    };
    DTYPES.into_iter().flat_map(in_one).collect()
}

/// Problems that together reach each op's edges; small, so that a CPU solves all of them within a minute.
pub fn verification() -> Vec<Problem> {
    let mut all = of_all(&OPS, |op, dtype| (op.verification)(op, dtype));
    all.extend(far_from_one());
    all
}

/// Problems for the simulator, which executes about a million instructions a second: every kernel in every element type
/// with ragged and single tiles, two and three tiles along each axis of its grid, and strided tensors.
pub fn simulation() -> Vec<Problem> {
    of_all(&OPS, |op, dtype| (op.simulation)(op, dtype))
}

/// Of each kernel that takes a norm: matrices that are scaled before they are squared far from 1, and rows near the longest that
/// their kernels admit.
pub fn far_from_one() -> Vec<Problem> {
    of_all(&OPS, |op, dtype| (op.far_from_one)(op, dtype))
}

/// The ops at the sizes of the ATLAS paper's 170M and 340M models: 16 heads of 48 and 64, T = 2048 and 2000.
pub fn demo() -> Vec<Problem> {
    OPS.iter().flat_map(|op| (op.demo)(op)).map(as_in_a_model).collect()
}

fn as_in_a_model(p: Problem) -> Problem {
    (p.op.as_in_a_model)(p)
}

/// A problem of the kernel of this name; `None` if no op has it.
pub fn problem(kernel: &str, dtype: DType, dims: &[u64]) -> Option<Problem> {
    let op = find(kernel)?;
    let def: &'static KernelDef = op.defs().find(|k| k.name == kernel)?;
    Some(Problem::new(op, def, dtype, dims))
}

/// The same with inputs as a model has them.
pub fn model_problem(kernel: &str, dtype: DType, dims: &[u64]) -> Option<Problem> {
    problem(kernel, dtype, dims).map(as_in_a_model)
}

/// A problem to measure, and the name under which its result is kept.
pub struct Bench {
    /// The name in records.
    pub name: &'static str,
    /// The problem.
    pub problem: Problem,
}

/// The problems that `atlas bench` measures.
pub fn benches() -> Vec<Bench> {
    let bench = |m: &Measured| {
        let mut problem = model_problem(m.kernel, m.dtype, m.dims)?;
        problem.layouts.extend(m.layouts.iter().copied());
        Some(Bench { name: m.name, problem })
    };
    OPS.iter().flat_map(|op| op.measured).filter_map(bench).collect()
}

/// The dims for which a kernel that ships here is usually compiled; empty for any other kernel.
pub fn usual_dims(kernel: &str) -> Vec<u64> {
    if let Some(bench) = benches().into_iter().find(|b| b.problem.kernel.name == kernel) {
        return bench.problem.dims;
    }
    find(kernel).map(|_| vec![2_097_152, 64]).unwrap_or_default()
}
