//! What most ops have in common: their inputs, their counts of operations, and the problems of products and of ops that work row by row.

use crate::problem::{DTYPES, Fill, Inputs, Layout, Op, Problem, Required};
use atlas_dsl::DType;

impl Op {
    /// An op of which this is known, and that is as usual in everything that its row does not say besides.
    pub(crate) const fn of(known: Required) -> Op {
        let Required { name, kernels, class, batch, reference, flops, verification, simulation, measured } = known;
        Op {
            name,
            kernels,
            class,
            dtypes: &DTYPES,
            batch,
            scalars: &[],
            state: &[],
            scratch: &[],
            fill: standard_normal,
            reference,
            rounded: magnifies_no_rounding,
            flops,
            verification,
            simulation,
            far_from_one: |_, _| vec![],
            demo: |_| vec![],
            as_in_a_model: |p| p,
            measured,
            plans: &[],
        }
    }
}

fn standard_normal(_: &Problem, _: &str) -> Fill {
    Fill::Normal(1.0)
}

fn magnifies_no_rounding(_: &Problem, _: &Inputs) -> Option<Vec<Vec<f64>>> {
    None
}

/// Rows of `x` and `c` are of about unit length, as normalised keys are.
pub(crate) fn of_unit_rows(p: &Problem, name: &str) -> Fill {
    match name {
        "x" | "c" => Fill::Normal((p.dim("D").max(1) as f64).powf(-0.5)),
        // Widths of radial functions: all positive.
        "g" => Fill::Around(0.5, 0.1),
        _ => Fill::Normal(1.0),
    }
}

/// The spread of weights that sum over so many elements.
pub(crate) fn unit(width: usize) -> f64 {
    (width.max(1) as f64).powf(-0.5)
}

/// Problems to verify that every product has, in the order of dims M, K, N: whole tiles, ragged ones, and the edges.
pub(crate) fn usual_products(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[256, 256, 512]),
        p(&[200, 72, 136]).note("ragged"),
        p(&[37, 51, 29]).note("odd"),
        p(&[1, 1, 1]).note("single elements"),
        p(&[0, 64, 32]).note("no row"),
        p(&[24, 0, 32]).note("a product over nothing"),
    ]
}

/// The product of the sizes of dims.
pub(crate) fn product(p: &Problem, dims: &[&str]) -> f64 {
    dims.iter().map(|d| p.dim(d) as f64).product()
}

/// Problems of an op that works row by row.
pub(crate) fn rows(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[5, 8]),
        p(&[37, 40]).note("ragged"),
        p(&[3, 1000]),
        p(&[9, 4096]),
        p(&[3, 8192]),
        p(&[7, 3]).note("odd"),
        p(&[6, 1]).note("one column"),
        p(&[1, 64]).note("one row"),
        p(&[0, 64]).note("no row"),
        p(&[9, 768]).layout("x", Layout::Padded).note("padded rows"),
        p(&[4, 64]).fill("x", Fill::NanAt(2)).note("NaN in one row"),
    ]
}

/// The same for the simulator.
pub(crate) fn small_rows(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[5, 40]).note("ragged"),
        p(&[19, 136]).note("ragged"),
        p(&[3, 1000]),
        p(&[2, 4096]),
        p(&[7, 3]).note("odd"),
        p(&[6, 1]).note("one column"),
        p(&[1, 64]).note("one row"),
        p(&[9, 72]).layout("x", Layout::Padded).note("padded rows"),
        p(&[4, 64]).fill("x", Fill::NanAt(2)).note("NaN in one row"),
    ]
}

/// Norms of rows of these lengths are between 1e18 and 1.8e19; f16 holds less.
pub(crate) fn long_rows(p: Problem) -> Problem {
    let size = if p.dtype == DType::F16 { 1e4 } else { 2e17 };
    p.fill("x", Fill::Normal(size)).note("rows near the longest")
}

/// Rows whose squares are nothing beside `eps`.
pub(crate) fn short_rows(p: Problem) -> Problem {
    let size = if p.dtype == DType::F16 { 1e-3 } else { 1e-20 };
    p.fill("x", Fill::Normal(size)).note("rows far below eps")
}

/// Sizes of a model of the ATLAS paper.
pub(crate) struct Model {
    pub(crate) tokens: u64,
    /// Elements of a head, of which a model has 16.
    pub(crate) head: u64,
    /// Hidden elements of a head's memory.
    pub(crate) hidden: u64,
    /// Elements of all heads.
    pub(crate) width: u64,
}

/// The paper's 170M and 340M models, each at a round number of tokens and at another one.
pub(crate) fn models() -> impl Iterator<Item = Model> {
    let sizes = [(48, 192, 768), (64, 256, 1024)];
    sizes.into_iter().flat_map(|(head, hidden, width)| [2048, 2000].map(|tokens| Model { tokens, head, hidden, width }))
}
