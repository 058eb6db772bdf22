//! The op `memory_read`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{models, product};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    fill: |p, name| match name {
        "w2" => Fill::Normal((p.dim("D").max(1) as f64).powf(-0.5)),
        "w1" => Fill::Normal((p.dim("H").max(1) as f64).powf(-0.5)),
        _ => Fill::Normal(1.0),
    },
    demo,
    ..Op::of(Required {
        name: "memory_read",
        kernels: const { &[&super::memory_read] },
        class: ToleranceClass::Mlp,
        batch: "G",
        reference: |p, i| {
            let shape = [p.dim("N"), p.dim("D"), p.dim("H")];
            vec![super::reference(&i.get("x"), &i.get("w2"), &i.get("w1"), &i.get("r"), shape)]
        },
        flops: |p| 4.0 * product(p, &["G", "N", "D", "H"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("memory_read", "memory_read", &[512, 64, 64, 256]),
            Measured::bf16("memory_read_256x64", "memory_read", &[256, 256, 64, 256]),
            Measured::bf16("memory_read_256x128", "memory_read", &[256, 128, 128, 512]),
            Measured::bf16("memory_read_2000x48", "memory_read", &[128, 2000, 48, 192]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[2, 64, 48, 192]),
        p(&[2, 128, 64, 256]),
        p(&[2, 200, 64, 256]).note("ragged"),
        p(&[3, 37, 48, 192]).note("ragged"),
        p(&[4, 1, 64, 256]).note("one token"),
        p(&[1, 33, 16, 40]).note("ragged H"),
        p(&[1, 20, 96, 384]),
        p(&[2, 0, 64, 256]).note("no token"),
        p(&[4, 50, 64, 256]).layout("w1", Layout::Shared).layout("w2", Layout::Shared).note("shared weights"),
        p(&[4, 40, 48, 192])
            .layout("x", Layout::Swapped)
            .layout("r", Layout::Swapped)
            .layout("y", Layout::Swapped)
            .note("tokens first"),
        p(&[2, 37, 64, 256]).layout("x", Layout::Padded).layout("w1", Layout::Padded).note("padded rows"),
        p(&[3, 24, 48, 192]).fill("x", Fill::NanAt(1)).note("NaN in one group"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[1, 133, 48, 136]).note("ragged"),
        p(&[2, 37, 48, 96]).note("ragged N"),
        p(&[1, 32, 64, 128]),
        p(&[2, 1, 64, 64]).note("one token"),
        p(&[1, 20, 16, 40]).note("ragged H"),
        p(&[2, 17, 32, 64]).layout("w1", Layout::Shared).layout("w2", Layout::Shared).note("shared weights"),
        p(&[2, 24, 48, 72])
            .layout("x", Layout::Swapped)
            .layout("r", Layout::Swapped)
            .layout("y", Layout::Swapped)
            .note("tokens first"),
        p(&[1, 37, 32, 64]).layout("x", Layout::Padded).layout("w1", Layout::Padded).note("padded rows"),
        p(&[2, 0, 64, 64]).note("no token"),
    ]
}

fn demo(op: &'static Op) -> Vec<Problem> {
    models().map(|m| Problem::new(op, op.kernel(0), DType::Bf16, &[16, m.tokens, m.head, m.hidden])).collect()
}
