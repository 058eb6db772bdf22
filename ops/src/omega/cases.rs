//! The ops of the Omega rule: their rows of the table, and their problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use atlas_dsl::DType;

pub(crate) const OMEGA: Op = Op {
    scalars: &[("scale", 2.0), ("commit", 1000.0), ("count", 5.0)],
    state: &["w", "s", "w1", "w2", "s1", "s2"],
    fill: super::problem::fill,
    rounded: super::problem::rounded,
    far_from_one: far_from_one_rule,
    plans: super::plans::PLANS,
    ..Op::of(Required {
        name: "omega",
        kernels: const {
            &[
                &super::omega_mix,
                &super::omega_mlp,
                &super::omega_linear,
                &super::omega_token_gates,
                &super::omega_decay_gates,
                &super::omega_muon,
                &super::fused_optimization,
                &super::fused_descent,
            ]
        },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: super::problem::checked,
        flops: super::problem::flops,
        verification: verification_rule,
        simulation: simulation_rule,
        measured: &[
            Measured::bf16("omega_mix", "omega_mix", &[8, 2048, 16, 16, 32, 64, 80]),
            Measured::bf16("omega_mlp_short_chunks", "omega_mlp", &[8, 2048, 16, 64, 2048, 64, 128, 16, 24, 256]),
            Measured::bf16("omega_mlp", "omega_mlp", &[8, 2048, 16, 64, 2048, 64, 32, 64, 80, 256]),
            Measured::bf16("omega_mlp_48", "omega_mlp", &[8, 2048, 16, 48, 2048, 48, 32, 64, 80, 192]),
            Measured::bf16("omega_mlp_16_heads", "omega_mlp", &[1, 2048, 16, 64, 2048, 64, 32, 64, 80, 256]),
            Measured::bf16("omega_token_gates", "omega_token_gates", &[8, 2048, 16, 16]),
            Measured::bf16("omega_decay_gates", "omega_decay_gates", &[8, 2048, 16, 16]),
            Measured::bf16("omega_muon_32", "omega_muon", &[8, 2048, 16, 32, 2048, 32, 128, 24, 16, 128]),
            Measured::bf16("omega_muon", "omega_muon", &[8, 2048, 16, 64, 2048, 64, 32, 80, 64, 256]),
            Measured::bf16("fused_optimization_32", "fused_optimization", &[128, 64, 32, 32, 128]),
            Measured::bf16("fused_optimization", "fused_optimization", &[128, 64, 64, 64, 256]),
            Measured::bf16("fused_descent", "fused_descent", &[128, 64, 64, 64, 256]),
            Measured::bf16("omega_linear", "omega_linear", &[8, 2048, 16, 64, 2048, 64, 32, 64, 80]),
        ],
    })
};

/// Dims: of the mixing weights B N H W C L K; of the memories B N H D P E C L K and, of two layers, M; with Muon B N H D P E C K
/// L M; of gates B N H W; of one step G N D E M.
fn verification_rule(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let mixed = (dtype == DType::F32).then(|| {
        [
            on(0, &[2, 23, 2, 5, 3, 8, 16]).note("ragged"),
            on(0, &[1, 64, 3, 16, 2, 32, 48]),
            on(0, &[1, 5, 1, 1, 5, 1, 1]).note("chunks of one token"),
            on(0, &[1, 9, 1, 16, 1, 16, 16]).note("a window longer than the sequence"),
            on(3, &[2, 70, 3, 5]).note("ragged"),
            on(3, &[1, 3, 2, 8]).note("a window longer than the sequence"),
            on(4, &[2, 70, 3, 5]).note("ragged"),
        ]
    });
    let mut problems: Vec<Problem> = mixed.into_iter().flatten().collect();
    problems.extend([
        on(1, &[2, 23, 2, 16, 23, 16, 3, 8, 16, 32]).note("ragged"),
        on(1, &[1, 64, 1, 48, 72, 48, 2, 32, 40, 192]).note("keys before the first chunk"),
        on(1, &[1, 40, 1, 64, 40, 64, 1, 64, 80, 256]).note("one short chunk"),
        on(1, &[1, 3, 2, 16, 3, 24, 3, 1, 8, 40]).note("chunks of one token"),
        on(2, &[2, 23, 2, 16, 23, 24, 3, 8, 16]).note("ragged"),
        on(2, &[1, 64, 1, 64, 72, 100, 2, 32, 40]).note("ragged E"),
        on(5, &[2, 23, 2, 16, 23, 16, 3, 16, 8, 32]).note("ragged"),
        on(5, &[1, 40, 1, 48, 48, 48, 2, 40, 32, 192]).note("keys before the first chunk"),
        on(6, &[2, 37, 16, 24, 40]).note("ragged"),
        on(6, &[1, 64, 48, 48, 192]),
        on(6, &[2, 1, 16, 16, 32]).with_scalar("count", 3.0).note("one token"),
        on(6, &[1, 5, 16, 16, 32]).with_scalar("count", 0.0).note("no step"),
        on(7, &[2, 37, 16, 24, 40]).note("ragged"),
        on(7, &[1, 64, 64, 64, 256]),
    ]);
    problems
}

fn simulation_rule(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let mixed = (dtype == DType::F32).then(|| {
        [
            on(0, &[1, 19, 2, 5, 3, 8, 16]).note("ragged"),
            on(3, &[1, 40, 2, 5]).note("ragged"),
            on(4, &[1, 40, 2, 5]).note("ragged"),
        ]
    });
    mixed
        .into_iter()
        .flatten()
        .chain([
            on(1, &[1, 23, 2, 16, 23, 16, 3, 8, 16, 32]).note("ragged"),
            on(1, &[1, 40, 1, 48, 40, 48, 2, 32, 40, 96]),
            on(2, &[1, 23, 1, 16, 23, 24, 3, 8, 16]).note("ragged"),
            on(5, &[1, 23, 1, 16, 23, 16, 3, 16, 8, 32]).note("ragged"),
            on(6, &[1, 23, 16, 24, 40]).note("ragged"),
            on(7, &[1, 23, 16, 24, 40]).note("ragged"),
        ])
        .collect()
}

fn far_from_one_rule(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    // Momenta are f32 whatever keys are.
    [on(5, &[1, 9, 1, 16, 9, 16, 2, 8, 8, 32]), on(6, &[1, 9, 16, 24, 40])].map(of_momentum).into()
}

pub(crate) const OMEGA_MUON_TOKENS: Op = Op {
    scalars: &[("scale", 2.0), ("chunk", 8.0)],
    state: &["w1", "w2", "s1", "s2"],
    fill: super::problem::fill,
    rounded: super::problem::rounded,
    far_from_one: far_from_one_tokens,
    as_in_a_model: as_in_a_model_tokens,
    ..Op::of(Required {
        name: "omega_muon_tokens",
        kernels: const { &[&super::omega_muon_tokens] },
        // Weights are sums of orthogonalised steps, and no closer than those.
        class: ToleranceClass::NewtonSchulz,
        batch: "B",
        reference: super::problem::checked,
        flops: super::problem::flops,
        verification: verification_tokens,
        simulation: simulation_tokens,
        measured: &[
            Measured::bf16("omega_muon_tokens_32", "omega_muon_tokens", &[8, 32, 16, 32, 32, 32, 16, 128, 24]),
            Measured::bf16("omega_muon_tokens", "omega_muon_tokens", &[8, 32, 16, 64, 32, 64, 16, 256, 24]),
        ],
    })
};

/// Dims: B N H D P E W M K.
fn verification_tokens(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[2, 11, 2, 16, 11, 16, 5, 32, 16]).note("ragged"),
        p(&[1, 5, 1, 16, 9, 24, 3, 40, 8]).with_scalar("chunk", 1.0).note("chunks of one token"),
        p(&[1, 9, 2, 8, 9, 8, 4, 16, 4]).with_scalar("chunk", 4.0).with_scalar("before", 1.0).note("read before"),
        p(&[1, 3, 1, 48, 3, 48, 9, 192, 16]).note("one short chunk"),
    ]
}

fn simulation_tokens(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[1, 6, 1, 16, 6, 16, 3, 32, 8]).with_scalar("chunk", 4.0).note("ragged")]
}

fn far_from_one_tokens(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    vec![of_momentum(on(0, &[1, 3, 1, 16, 3, 16, 3, 32, 8]).with_scalar("chunk", 4.0))]
}

/// Longer steps magnify what each token's iteration rounds.
fn as_in_a_model_tokens(p: Problem) -> Problem {
    p.fill("eta", Fill::Around(3e-3, 1e-3))
}

pub(crate) const PACKING: Op = Op {
    scalars: &[("fill", 1.0)],
    fill: |p, name| {
        let each = (p.dim("P") / p.dim("B").max(1)) as u64;
        match name {
            "starts" => Fill::Every(each, 0),
            "ends" => Fill::Every(each, each.saturating_sub(1)),
            _ => Fill::Normal(1.0),
        }
    },
    ..Op::of(Required {
        name: "packing",
        kernels: const {
            &[
                &super::packed::omega_unpack_tokens,
                &super::packed::omega_unpack_gates,
                &super::packed::omega_pack_tokens,
            ]
        },
        class: ToleranceClass::Exact,
        // Documents are no dim of what is packed.
        batch: "H",
        reference: super::packed::checked,
        flops: |_| 0.0,
        verification: verification_packing,
        simulation: simulation_packing,
        measured: &[
            Measured::bf16("omega_unpack_tokens", "omega_unpack_tokens", &[1, 16384, 16, 64, 16, 2048]),
            Measured::bf16("omega_unpack_gates", "omega_unpack_gates", &[1, 16384, 16, 16, 2048]),
            Measured::bf16("omega_pack_tokens", "omega_pack_tokens", &[16, 2048, 16, 64, 1, 16384]),
        ],
    })
};

fn verification_packing(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..3)
        .filter(|&k| k != 1 || dtype == DType::F32)
        .flat_map(|k| {
            // Z P H D B N, and of what packs B N H D Z P.
            let dims = |[p, h, d, b, n]: [u64; 5]| match k {
                0 => on(0, &[1, p, h, d, b, n]),
                1 => on(1, &[1, p, h, b, n]),
                _ => on(2, &[b, n, h, d, 1, p]),
            };
            [
                dims([100, 2, 40, 3, 40]).note("ragged"),
                dims([37, 3, 16, 5, 8]),
                dims([20, 1, 5, 1, 12]).note("a document that is too long"),
                dims([140, 2, 8, 70, 2]).note("many documents"),
            ]
        })
        .collect()
}

fn simulation_packing(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let mut problems = vec![on(0, &[1, 37, 2, 24, 3, 20]).note("ragged"), on(2, &[3, 20, 2, 24, 1, 37]).note("ragged")];
    problems.extend((dtype == DType::F32).then(|| on(1, &[1, 37, 2, 3, 20]).note("ragged")));
    problems
}

fn of_momentum(p: Problem) -> Problem {
    let size = Fill::Normal(1e25);
    p.fill("s1", size).fill("s2", size).note("momenta far above 1")
}
