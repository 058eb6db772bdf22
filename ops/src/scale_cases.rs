//! Problems whose numbers are far from 1: norms beyond the squares of f32, and those at the border of a domain.

use crate::op::OPS;
use crate::problem::{Fill, Op, Problem};
use crate::small_cases::DTYPES;
use atlas_dsl::DType;

/// Of each kernel that takes a norm: matrices that are scaled before they are squared far from 1, and rows near the longest that
/// their kernels admit.
pub fn far_from_one() -> Vec<Problem> {
    DTYPES.into_iter().flat_map(|dtype| OPS.iter().flat_map(move |op| of(op, dtype))).collect()
}

fn of(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    // Norms of rows of these lengths are between 1e18 and 1.8e19; f16 holds less.
    let [row, matrix] = if dtype == DType::F16 { [1e4, 1e4] } else { [2e17, 1e30] };
    let long = |p: Problem| p.fill("x", Fill::Normal(row)).note("rows near the longest");
    let short = |p: Problem| {
        let size = if dtype == DType::F16 { 1e-3 } else { 1e-20 };
        p.fill("x", Fill::Normal(size)).note("rows far below eps")
    };
    match op.name {
        "rms_norm" => vec![long(on(0, &[3, 1000])), short(on(0, &[5, 40]))],
        "fused_forward" => vec![long(on(3, &[2, 5, 64])), short(on(3, &[2, 5, 40]))],
        "layer" => vec![long(on(1, &[1, 5, 2, 64])), short(on(1, &[1, 5, 2, 40]))],
        "gated_memory" => vec![long(on(1, &[2, 9, 16, 40, 16])).fill("w1", Fill::Normal(0.1))],
        "newton_schulz_small" => vec![
            on(0, &[2, 16, 64])
                .fill("g", Fill::Normal(if dtype == DType::F16 { 1e3 } else { 1e17 }))
                .note("far above 1"),
            on(0, &[1, 1, 1])
                .fill("g", Fill::Around(if dtype == DType::F16 { 3e4 } else { 1e18 }, 1.0))
                .note("one number"),
        ],
        "muon" => (0..2).map(|k| on(k, &[2, 5, 70]).fill("g", Fill::Normal(matrix)).note("far above 1")).collect(),
        "inverse" => [if dtype == DType::F16 { 1e3 } else { 1e20 }, if dtype == DType::F16 { 2e-3 } else { 1e-24 }]
            .into_iter()
            .map(|size| {
                let p = on(0, &[2, 16]).fill("a", Fill::Normal(0.25 * size)).with_scalar("damping", 4.0 * size as f32);
                p.note(if size > 1.0 { "far above 1" } else { "far below 1" })
            })
            .collect(),
        // Momenta are f32 whatever keys are.
        "omega" => [on(5, &[1, 9, 1, 16, 9, 16, 2, 8, 8, 32]), on(6, &[1, 9, 16, 24, 40])].map(of_momentum).into(),
        "omega_muon_tokens" => vec![of_momentum(on(0, &[1, 3, 1, 16, 3, 16, 3, 32, 8]).with_scalar("chunk", 4.0))],
        _ => vec![],
    }
}

fn of_momentum(p: Problem) -> Problem {
    let size = Fill::Normal(1e25);
    p.fill("s1", size).fill("s2", size).note("momenta far above 1")
}
