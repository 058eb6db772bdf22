//! The ops of the Omega rule: their rows of the table, and their problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use atlas_dsl::DType;

pub(crate) const OMEGA: Op = Op {
    scalars: &[("scale", 2.0), ("predicts", 1.0), ("commit", 1000.0), ("eps", 1e-5)],
    state: &["w", "s", "w1", "w2", "w3", "s1", "s2", "s3"],
    fill: super::problem::fill,
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
                &super::omega_gated,
                &super::omega_normed,
                &super::omega_mlp_wide,
                &super::omega_linear_wide,
                &super::omega_gated_wide,
                &super::omega_normed_wide,
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
            Measured::bf16("omega_gated_short_chunks", "omega_gated", &[8, 2048, 16, 64, 2048, 64, 128, 16, 24, 256]),
            Measured::bf16("omega_gated", "omega_gated", &[8, 2048, 16, 64, 2048, 64, 32, 64, 80, 256]),
            Measured::bf16("omega_normed_short_chunks", "omega_normed", &[8, 2048, 16, 64, 2048, 64, 128, 16, 24, 256]),
            Measured::bf16("omega_normed", "omega_normed", &[8, 2048, 16, 64, 2048, 64, 32, 64, 80, 256]),
            Measured::bf16("omega_linear", "omega_linear", &[8, 2048, 16, 64, 2048, 64, 32, 64, 80]),
            Measured::bf16("omega_mlp_wide", "omega_mlp_wide", &[8, 2048, 8, 256, 2048, 256, 32, 64, 80, 1024]),
            Measured::bf16("omega_mlp_wide_keys", "omega_mlp_wide", &[8, 2048, 16, 2152, 2048, 64, 32, 64, 80, 256]),
            Measured::bf16("omega_gated_wide", "omega_gated_wide", &[8, 2048, 8, 256, 2048, 256, 32, 64, 80, 1024]),
            Measured::bf16("omega_normed_wide", "omega_normed_wide", &[8, 2048, 8, 256, 2048, 256, 32, 64, 80, 1024]),
            Measured::bf16("omega_linear_wide", "omega_linear_wide", &[8, 2048, 16, 2152, 2048, 64, 32, 64, 80]),
        ],
    })
};

/// Dims: of the mixing weights B N H W C L K; of the memories B N H D P E C L K and, of two layers, M; of gates B N H W.
fn verification_rule(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let mixed = (dtype == DType::F32).then(|| {
        [
            on(0, &[2, 23, 2, 5, 3, 8, 16]).note("ragged"),
            on(0, &[1, 64, 3, 16, 2, 32, 48]),
            on(0, &[1, 5, 1, 1, 5, 1, 1]).note("chunks of one token"),
            on(0, &[1, 23, 2, 5, 4, 6, 16]).note("chunks of no multiple of four tokens"),
            on(0, &[1, 9, 1, 16, 1, 16, 16]).note("a window longer than the sequence"),
            on(0, &[2, 23, 2, 5, 3, 8, 16]).fill("theta", Fill::TokenIs(11, f32::NAN)).note("a gate is no number"),
            on(0, &[2, 23, 2, 5, 3, 8, 16]).fill("gamma", Fill::TokenIs(11, f32::NAN)).note("weights are no numbers"),
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
        on(1, &[2, 23, 2, 16, 23, 24, 3, 8, 16, 40]).with_scalar("predicts", 0.0).note("a loss that predicts nothing"),
        on(2, &[2, 23, 2, 16, 23, 24, 3, 8, 16]).with_scalar("predicts", 0.0).note("a loss that predicts nothing"),
        on(5, &[2, 23, 2, 16, 23, 16, 3, 8, 16, 32]).note("ragged"),
        on(5, &[1, 64, 1, 48, 72, 48, 2, 32, 40, 192]).note("keys before the first chunk"),
        on(5, &[1, 40, 1, 64, 40, 64, 1, 64, 80, 256]).note("one short chunk"),
        on(5, &[1, 3, 2, 16, 3, 24, 3, 1, 8, 40]).note("chunks of one token"),
        on(5, &[2, 23, 2, 16, 23, 24, 3, 8, 16, 40]).with_scalar("predicts", 0.0).note("a loss that predicts nothing"),
        on(6, &[2, 23, 2, 16, 23, 16, 3, 8, 16, 32]).note("ragged"),
        on(6, &[1, 64, 1, 48, 72, 48, 2, 32, 40, 192]).note("keys before the first chunk"),
        on(6, &[1, 40, 1, 64, 40, 64, 1, 64, 80, 256]).note("one short chunk"),
        on(6, &[1, 3, 2, 16, 3, 24, 3, 1, 8, 40]).note("chunks of one token"),
        on(6, &[2, 23, 2, 16, 23, 24, 3, 8, 16, 40]).with_scalar("predicts", 0.0).note("a loss that predicts nothing"),
    ]);
    problems.extend(WIDE.into_iter().flat_map(|kernel| {
        let on = |dims: &[u64; 10]| on(kernel, if kernel == LINEAR_WIDE { &dims[..9] } else { dims });
        [
            on(&[2, 23, 2, 45, 23, 16, 3, 8, 16, 32]).note("ragged"),
            on(&[1, 37, 1, 300, 45, 136, 2, 32, 40, 70]).note("several tiles of all rows; keys before the first chunk"),
            on(&[1, 3, 2, 153, 3, 24, 3, 1, 8, 40]).note("chunks of one token"),
            on(&[1, 1, 1, 70, 1, 70, 1, 4, 8, 70]).note("one token"),
            on(&[2, 23, 2, 70, 23, 24, 3, 8, 16, 40]).with_scalar("predicts", 0.0).note("a loss that predicts nothing"),
        ]
    }));
    problems
}

/// The kernels for rows of any width, by their places in the list.
const WIDE: [usize; 4] = [7, LINEAR_WIDE, 9, 10];
const LINEAR_WIDE: usize = 8;

fn simulation_rule(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let mixed = (dtype == DType::F32).then(|| {
        [
            on(0, &[1, 19, 2, 5, 3, 8, 16]).note("ragged"),
            on(0, &[1, 13, 2, 5, 2, 7, 16]).note("chunks of no multiple of four tokens"),
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
            on(5, &[1, 23, 2, 16, 23, 16, 3, 8, 16, 32]).note("ragged"),
            on(5, &[1, 40, 1, 48, 40, 48, 2, 32, 40, 96]),
            on(6, &[1, 23, 2, 16, 23, 16, 3, 8, 16, 32]).note("ragged"),
            on(6, &[1, 40, 1, 48, 40, 48, 2, 32, 40, 96]),
        ])
        .chain(WIDE.into_iter().flat_map(|kernel| {
            let on = |dims: &[u64; 10]| on(kernel, if kernel == LINEAR_WIDE { &dims[..9] } else { dims });
            [
                on(&[1, 23, 2, 45, 23, 16, 3, 8, 16, 32]).note("ragged"),
                on(&[1, 19, 1, 144, 19, 72, 2, 16, 24, 40]).note("several tiles of all rows"),
                on(&[1, 1, 1, 40, 1, 40, 1, 4, 8, 96]).note("one token"),
            ]
        }))
        .collect()
}

pub(crate) const PACKING: Op = Op {
    scalars: &[("fill", 1.0), ("chunk", 8.0)],
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
                &super::packed::omega_unpack_steps,
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
            Measured::bf16("omega_unpack_steps", "omega_unpack_steps", &[1, 16384, 16, 16, 2048]),
            Measured::bf16("omega_pack_tokens", "omega_pack_tokens", &[16, 2048, 16, 64, 1, 16384]),
        ],
    })
};

fn verification_packing(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..4)
        .filter(|&k| k % 2 == 0 || dtype == DType::F32)
        .flat_map(|k| {
            // Z P H D B N, and of what packs B N H D Z P.
            let dims = |[p, h, d, b, n]: [u64; 5]| match k {
                0 => on(0, &[1, p, h, d, b, n]),
                2 => on(2, &[b, n, h, d, 1, p]),
                gates => on(gates, &[1, p, h, b, n]),
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
    let of_gates = [1, 3].map(|k| on(k, &[1, 37, 2, 3, 20]).note("ragged"));
    problems.extend(of_gates.into_iter().filter(|_| dtype == DType::F32));
    problems
}
