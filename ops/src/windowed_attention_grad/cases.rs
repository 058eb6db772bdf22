//! The op `windowed_attention_grad`: the rows of the table, and their problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: SCALARS,
    fill,
    ..Op::of(Required {
        name: "windowed_attention_grad",
        kernels: const { &[&super::attention_query_grad, &super::attention_key_grad] },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: super::reference::checked,
        flops: |p| {
            let (n, w) = (p.dim("N") as f64, f64::from(p.scalar("window")).min(p.dim("N") as f64));
            let seen = (w * n - w * (w - 1.0) / 2.0) * p.dim("M") as f64 / n.max(1.0);
            let (each, prefix) = if p.kernel.name == "attention_key_grad" { (8.0, 0) } else { (6.0, p.dim("S")) };
            each * product(p, &["B", "H", "D"]) * (seen + (p.dim("M") * prefix) as f64)
        },
        verification,
        simulation,
        measured: &[
            Measured::bf16("attention_query_grad", "attention_query_grad", &[4, 4096, 16, 128, 4096, 16, 0]),
            Measured::bf16("attention_key_grad", "attention_key_grad", &[4, 4096, 16, 128, 4096, 16]),
        ],
    })
};

/// The gradient of the prefix, which sums over the sequences.
pub(crate) const PREFIX: Op = Op {
    scalars: SCALARS,
    fill,
    ..Op::of(Required {
        name: "attention_prefix_grad",
        kernels: const { &[&super::attention_prefix_grad] },
        class: ToleranceClass::Mlp,
        batch: "S",
        reference: super::reference::checked,
        flops: |p| 8.0 * product(p, &["B", "M", "H", "D", "S"]),
        verification: prefix_verification,
        simulation: prefix_simulation,
        measured: &[Measured::bf16("attention_prefix_grad", "attention_prefix_grad", &[4, 4096, 16, 128, 16, 16])],
    })
};

const SCALARS: &[(&str, f32)] = &[("scale", 0.125), ("window", 512.0)];

fn fill(_: &Problem, name: &str) -> Fill {
    match name {
        "first" => Fill::Starts(1 << 30),
        "lse" => Fill::Around(3.0, 0.5),
        _ => Fill::Normal(1.0),
    }
}

/// Dims: B M H D N J, and S of the queries' kernel.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let with = |window: f32, dims: &[u64; 7]| {
        [0, 1]
            .map(|kernel| Problem::new(op, op.kernel(kernel), dtype, &dims[..7 - kernel]).with_scalar("window", window))
    };
    let each = |problems: [Problem; 2], of: &dyn Fn(Problem) -> Problem| problems.map(of);
    [
        with(50.0, &[2, 130, 4, 64, 130, 2, 5]).map(|p| p.note("prefix and groups of heads")),
        with(1.0, &[1, 70, 2, 64, 70, 2, 0]).map(|p| p.note("itself alone")),
        with(1000.0, &[1, 150, 2, 48, 150, 1, 3]).map(|p| p.note("a window longer than the sequence")),
        with(i32::MAX as f32, &[1, 100, 1, 64, 50, 1, 0]).map(|p| p.note("no window, and more queries than keys")),
        with(64.0, &[1, 40, 2, 64, 200, 2, 0]).map(|p| p.note("more keys than queries")),
        with(16.0, &[1, 100, 1, 64, 40, 1, 0]).map(|p| p.note("queries that see nothing")),
        with(0.0, &[1, 70, 1, 32, 70, 1, 0]).map(|p| p.note("no window")),
        with(i32::MIN as f32, &[1, 70, 1, 32, 70, 1, 3]).map(|p| p.note("a window of less than nothing, and a prefix")),
        with(20.0, &[1, 70, 1, 32, 70, 1, 3]).map(|p| p.with_scalar("scale", -0.125).note("a negative scale")),
        with(33.0, &[2, 1, 2, 128, 1, 1, 0]).map(|p| p.note("one token")),
        with(33.0, &[2, 0, 2, 32, 0, 1, 2]).map(|p| p.note("no token")),
        with(33.0, &[1, 200, 2, 64, 200, 2, 16]).map(|p| p.fill("first", Fill::Starts(70)).note("documents")),
        each(with(40.0, &[2, 60, 2, 64, 60, 2, 3]), &|p| {
            ["q", "k", "dout"].iter().fold(p, |p, name| p.layout(name, Layout::Padded)).note("padded rows")
        }),
        with(10.0, &[3, 40, 1, 64, 40, 1, 0]).map(|p| p.fill("q", Fill::NanAt(1)).note("NaN in one sequence")),
    ]
    .concat()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let with = |window: f32, dims: &[u64; 7]| {
        [0, 1]
            .map(|kernel| Problem::new(op, op.kernel(kernel), dtype, &dims[..7 - kernel]).with_scalar("window", window))
    };
    [
        with(20.0, &[1, 70, 2, 32, 70, 1, 5]).map(|p| p.fill("first", Fill::Starts(30)).note("documents and prefix")),
        with(16.0, &[1, 40, 1, 64, 20, 1, 0]).map(|p| p.note("queries that see nothing")),
    ]
    .concat()
}

/// Dims: B M H D J S.
fn prefix_verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[2, 130, 4, 64, 2, 5]).note("groups of heads"),
        p(&[3, 70, 2, 48, 2, 20]).note("ragged"),
        p(&[1, 1, 2, 128, 1, 1]).note("one token"),
        p(&[2, 0, 2, 32, 1, 3]).note("no token"),
        p(&[2, 40, 2, 32, 1, 0]).note("no prefix"),
        p(&[2, 60, 1, 32, 1, 3]).with_scalar("scale", -0.125).note("a negative scale"),
        p(&[2, 60, 2, 64, 2, 3]).layout("q", Layout::Padded).layout("dout", Layout::Padded).note("padded rows"),
    ]
}

fn prefix_simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[2, 70, 2, 32, 1, 5]).note("groups of heads"), p(&[1, 40, 1, 64, 1, 20]).note("ragged")]
}
