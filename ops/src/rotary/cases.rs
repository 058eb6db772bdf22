//! The op `rotary`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op::of(Required {
    name: "rotary",
    kernels: const { &[&super::rotary_halves, &super::rotary_interleaved] },
    class: ToleranceClass::Features,
    batch: "N",
    reference: |p, i| {
        let of = if p.kernel.name == "rotary_halves" { super::halves } else { super::interleaved };
        vec![of(&i.get("x"), &i.get("c"), &i.get("s"), [p.dim("H"), p.dim("D")])]
    },
    flops: |p| 6.0 * product(p, &["N", "H", "D"]),
    verification,
    simulation,
    measured: &[
        Measured::bf16("rotary", "rotary_halves", &[32768, 32, 2, 64]),
        Measured::bf16("rotary_interleaved", "rotary_interleaved", &[32768, 32, 64, 2]),
    ],
});

/// Both kernels on so many tokens, heads and pairs.
fn both(op: &'static Op, dtype: DType, [n, h, d]: [u64; 3]) -> [Problem; 2] {
    let on = |kernel: usize, dims: [u64; 4]| Problem::new(op, op.kernel(kernel), dtype, &dims);
    [on(0, [n, h, 2, d]), on(1, [n, h, d, 2])]
}

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let of = |sizes: [u64; 3]| both(op, dtype, sizes).into_iter();
    of([5, 16, 64])
        .chain(of([3, 33, 48]).map(|p| p.note("ragged")))
        .chain(of([2, 1, 5]).map(|p| p.note("odd")))
        .chain(of([1, 8, 64]).map(|p| p.note("one token")))
        .chain(of([4, 3, 48]).map(|p| p.fill("x", Fill::NanAt(1)).note("NaN in one token")))
        .chain(of([0, 8, 64]).map(|p| p.note("no token")))
        .chain(of([40, 8, 64]).map(|p| p.layout("c", Layout::Padded).note("padded rows")))
        .collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let of = |sizes: [u64; 3]| both(op, dtype, sizes).into_iter();
    of([3, 9, 32]).map(|p| p.note("ragged")).chain(of([2, 8, 5]).map(|p| p.note("odd"))).collect()
}
