//! The op `window_sums`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("window", 64.0), ("scale", 0.5)],
    plans: super::plans::PLANS,
    ..Op::of(Required {
        name: "window_sums",
        kernels: const { &[&super::window_sum, &super::token_losses, &super::window_totals, &super::window_sum_eights] },
        class: ToleranceClass::Norm,
        batch: "B",
        reference: super::reference::checked,
        flops: |p| {
            let terms = if p.kernel.name == "token_losses" { 3.0 } else { f64::from(p.scalar("window")) };
            // What does the same in blocks counts as what it does.
            terms
                * if p.kernel.name == "window_sum_eights" {
                    product(p, &["B", "M", "E", "D"])
                } else {
                    product(p, &["B", "N", "D"])
                }
        },
        verification,
        simulation,
        measured: &[
            Measured::bf16("window_sum", "window_sum", &[16, 8192, 512]),
            Measured::bf16("token_losses", "token_losses", &[16, 8192, 512]),
            Measured::bf16("window_sum_eights", "window_sum_eights", &[16, 1024, 8, 512]),
            Measured::bf16("window_totals", "window_totals", &[16, 8192]),
            // As it is used: of losses and of gradients.
            Measured::f32("window_sum_f32", "window_sum_eights", &[16, 1024, 8, 512]),
        ],
    })
};

/// Dims: B N D, and B N of totals.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let mut problems = vec![
        on(0, &[2, 100, 72]).note("ragged"),
        on(0, &[1, 40, 64]).with_scalar("window", 1.0).note("itself alone"),
        on(0, &[2, 30, 40]).with_scalar("window", 100.0).note("a window longer than the sequence"),
        on(0, &[3, 70, 33]).with_scalar("window", 5.0).fill("x", Fill::NanAt(1)).note("NaN in one sequence"),
        on(0, &[1, 1, 5]).note("one token"),
        on(1, &[2, 37, 72]).note("ragged"),
        on(1, &[1, 5, 512]),
        on(1, &[3, 4, 64]).fill("v", Fill::NanAt(1)).note("NaN in one sequence"),
        on(0, &[2, 30, 40]).with_scalar("window", -9.0).note("a window of less than nothing"),
    ];
    let eights = |window: f32, dims: &[u64]| on(3, dims).with_scalar("window", window);
    problems.extend([
        eights(64.0, &[2, 13, 8, 72]).note("ragged"),
        eights(8.0, &[1, 5, 8, 64]),
        eights(1.0, &[1, 9, 8, 33]).note("itself alone"),
        eights(13.0, &[2, 6, 8, 40]).note("a window that is no multiple"),
        eights(100.0, &[2, 4, 8, 40]).note("a window longer than the sequence"),
        eights(i32::MAX as f32, &[1, 3, 8, 16]).note("no window"),
        eights(-9.0, &[1, 3, 8, 16]).note("a window of less than nothing"),
        eights(21.0, &[3, 9, 8, 33]).fill("x", Fill::NanAt(1)).note("NaN in one sequence"),
    ]);
    if dtype == DType::F32 {
        let totals = |window: f32, dims: &[u64]| on(2, dims).with_scalar("window", window);
        problems.extend([on(2, &[2, 300]).note("ragged"), totals(100.0, &[1, 40]), totals(-9.0, &[1, 40])]);
    }
    problems
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let mut problems = vec![
        on(0, &[1, 70, 40]).with_scalar("window", 5.0).note("ragged"),
        on(0, &[2, 10, 33]).with_scalar("window", 20.0).note("odd"),
        on(1, &[2, 9, 72]).note("ragged"),
    ];
    problems.extend((dtype == DType::F32).then(|| on(2, &[2, 150]).with_scalar("window", 9.0).note("ragged")));
    problems
}
