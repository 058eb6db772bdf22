//! The op `windowed_attention`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("scale", 0.125), ("window", 512.0)],
    fill: |_, name| if name == "first" { Fill::Starts(1 << 30) } else { Fill::Normal(1.0) },
    ..Op::of(Required {
        name: "windowed_attention",
        kernels: const { &[&super::windowed_attention] },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: super::reference::checked,
        flops: |p| {
            let (n, w) = (p.dim("N") as f64, f64::from(p.scalar("window")).min(p.dim("N") as f64));
            let seen = (w * n - w * (w - 1.0) / 2.0) * p.dim("M") as f64 / n.max(1.0);
            4.0 * product(p, &["B", "H", "D"]) * (seen + product(p, &["M", "S"]))
        },
        verification,
        simulation,
        measured: &[
            Measured::bf16("windowed_attention_4096", "windowed_attention", &[4, 4096, 16, 128, 4096, 16, 0]),
            Measured::bf16("windowed_attention_16384", "windowed_attention", &[2, 16384, 16, 128, 16384, 16, 0]),
        ],
    })
};

/// Dims: B M H D N J S.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let with = |window: f32, dims: &[u64]| on(0, dims).with_scalar("window", window);
    vec![
        with(50.0, &[2, 130, 4, 64, 130, 2, 5]).note("prefix and groups of heads"),
        with(1.0, &[1, 70, 2, 64, 70, 2, 0]).note("itself alone"),
        with(1000.0, &[1, 150, 2, 48, 150, 1, 0]).note("a window longer than the sequence"),
        with(i32::MAX as f32, &[1, 100, 1, 64, 50, 1, 0]).note("no window, and more queries than keys"),
        with(64.0, &[1, 40, 2, 64, 200, 2, 0]).note("more keys than queries"),
        with(16.0, &[1, 100, 1, 64, 40, 1, 0]).note("queries that see nothing"),
        with(0.0, &[1, 70, 1, 32, 70, 1, 0]).note("no window"),
        with(i32::MIN as f32, &[1, 70, 1, 32, 70, 1, 3]).note("a window of less than nothing, and a prefix"),
        with(20.0, &[1, 70, 1, 32, 70, 1, 3]).with_scalar("scale", -0.125).note("a negative scale"),
        with(20.0, &[1, 70, 1, 32, 70, 1, 3]).with_scalar("scale", 0.0).note("scale 0"),
        with(33.0, &[2, 1, 2, 128, 1, 1, 0]).note("one token"),
        with(33.0, &[1, 200, 2, 64, 200, 2, 16]).fill("first", Fill::Starts(70)).note("documents"),
        with(20.0, &[1, 90, 1, 256, 90, 1, 0]).fill("q", Fill::Normal(30.0)).note("large"),
        with(40.0, &[2, 60, 2, 64, 60, 2, 3])
            .layout("q", Layout::Padded)
            .layout("k", Layout::Padded)
            .note("padded rows"),
        with(10.0, &[3, 40, 1, 64, 40, 1, 0]).fill("k", Fill::NanAt(1)).note("NaN in one sequence"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let with = |window: f32, dims: &[u64]| on(0, dims).with_scalar("window", window);
    vec![
        with(20.0, &[1, 70, 2, 32, 70, 1, 5]).fill("first", Fill::Starts(30)).note("documents and prefix"),
        with(16.0, &[1, 40, 1, 64, 20, 1, 0]).note("queries that see nothing"),
    ]
}
