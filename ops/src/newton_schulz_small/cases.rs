//! The op `newton_schulz_small`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{models, product};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    far_from_one,
    demo,
    ..Op::of(Required {
        name: "newton_schulz_small",
        kernels: const { &[&super::newton_schulz_small] },
        class: ToleranceClass::NewtonSchulz,
        batch: "B",
        reference: |p, i| vec![super::reference(&i.get("g"), [p.dim("M"), p.dim("N")])],
        flops: |p| 20.0 * product(p, &["B", "M", "M", "N"]) + 10.0 * product(p, &["B", "M", "M", "M"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("newton_schulz_small", "newton_schulz_small", &[512, 64, 256]),
            Measured::bf16("newton_schulz_small_128x512", "newton_schulz_small", &[512, 128, 512]),
            Measured::bf16("newton_schulz_small_48x192", "newton_schulz_small", &[512, 48, 192]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    // A 128 x 512 matrix of f32 fills more shared memory than any CTA has.
    (dtype != DType::F32)
        .then(|| p(&[1, 128, 512]))
        .into_iter()
        .chain([
            p(&[4, 48, 192]),
            p(&[3, 64, 256]),
            p(&[2, 16, 64]),
            p(&[3, 8, 24]),
            p(&[2, 24, 40]),
            p(&[1, 48, 192]).fill("g", Fill::ZeroAt(0)).note("zero"),
            p(&[3, 64, 256]).fill("g", Fill::ZeroAt(1)).note("one zero"),
            p(&[3, 48, 192]).fill("g", Fill::NanAt(1)).note("NaN in one matrix"),
            p(&[2, 48, 192]).fill("g", Fill::Normal(300.0)).note("large"),
            p(&[2, 64, 256]).layout("g", Layout::Padded).note("padded rows"),
        ])
        .collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[2, 16, 64]),
        p(&[1, 48, 96]),
        p(&[2, 8, 24]).note("odd"),
        p(&[1, 24, 40]).note("odd"),
        p(&[1, 32, 64]).layout("g", Layout::Padded).note("padded rows"),
        p(&[2, 16, 32]).fill("g", Fill::ZeroAt(1)).note("one zero"),
    ]
}

fn far_from_one(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    vec![
        on(0, &[2, 16, 64]).fill("g", Fill::Normal(if dtype == DType::F16 { 1e3 } else { 1e17 })).note("far above 1"),
        on(0, &[1, 1, 1]).fill("g", Fill::Around(if dtype == DType::F16 { 3e4 } else { 1e18 }, 1.0)).note("one number"),
    ]
}

fn demo(op: &'static Op) -> Vec<Problem> {
    // Both matrices of each head's memory.
    let heads = models().filter(|m| m.tokens == 2048);
    heads.map(|m| Problem::new(op, op.kernel(0), DType::Bf16, &[32, m.head, m.hidden])).collect()
}
