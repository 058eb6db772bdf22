//! The op `matmul_add`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{product, usual_products};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("alpha", 0.5), ("beta", -1.5)],
    ..Op::of(Required {
        name: "matmul_add",
        kernels: const { &[&super::matmul_add] },
        class: ToleranceClass::Mlp,
        batch: "M",
        reference: |p, i| {
            let [a, b, c] = ["a", "b", "c"].map(|name| i.get(name));
            let factors = ["alpha", "beta"].map(|name| f64::from(p.scalar(name)));
            vec![super::reference([&a, &b, &c], factors, ["M", "N", "K"].map(|dim| p.dim(dim)))]
        },
        flops: |p| 2.0 * product(p, &["M", "N", "K"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("matmul_add", "matmul_add", &[4096, 4096, 4096]),
            Measured::bf16("matmul_add_shallow", "matmul_add", &[8192, 1024, 4096]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    let more = vec![
        p(&[200, 72, 136]).with_scalar("beta", 0.0).fill("c", Fill::NanAt(3)).note("beta 0, NaN in C"),
        p(&[37, 51, 29]).with_scalar("beta", 0.0).fill("c", Fill::NanAt(36)).note("odd, beta 0, NaN in C"),
        p(&[70, 64, 40]).fill("c", Fill::NanAt(2)).note("NaN in C"),
        p(&[70, 64, 40]).with_scalar("alpha", 0.0).note("alpha 0"),
        p(&[70, 64, 40]).with_scalar("alpha", 1.0).with_scalar("beta", 1.0).note("a sum"),
        p(&[70, 64, 40]).layout("c", Layout::Padded).note("padded rows of C"),
        p(&[70, 64, 40]).layout("c", Layout::Swapped).note("C by columns"),
        p(&[70, 64, 40]).layout("c", Layout::Shared).note("one row for all of C"),
        p(&[37, 51, 29]).layout("a", Layout::Swapped).layout("b", Layout::Swapped).note("odd, A and B by columns"),
    ];
    [usual_products(op, dtype), more].concat()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[70, 72, 40]).note("ragged"),
        p(&[64, 64, 64]),
        p(&[5, 17, 33]).note("odd"),
        p(&[72, 72, 136]).with_scalar("beta", 0.0).fill("c", Fill::NanAt(3)).note("beta 0, NaN in C"),
        p(&[40, 72, 72]).layout("c", Layout::Padded).note("padded rows of C"),
        p(&[40, 72, 72]).layout("c", Layout::Swapped).note("C by columns"),
    ]
}
