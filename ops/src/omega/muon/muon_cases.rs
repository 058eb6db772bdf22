//! The ops of the Omega rule with Muon: their rows of the table, and their problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use atlas_dsl::DType;

/// Kernels by their places in the lists of both rows.
const MLP: usize = 0;
const GATED: usize = 1;
const LINEAR: usize = 2;
const NORMED: usize = 3;
const FORMS: [usize; 4] = [MLP, GATED, LINEAR, NORMED];
/// The kernels by tokens that walk over their matrices, in the order of their forms.
const WIDE_BY_TOKEN: [usize; 4] = [4, 5, LINEAR_WIDE_BY_TOKEN, 7];
const LINEAR_WIDE_BY_TOKEN: usize = 6;
/// Of one step.
const OPTIMIZATION: usize = 4;
const DESCENT: usize = 5;
/// The kernels that walk over their matrices, in the order of their forms.
const WIDE: [usize; 4] = [6, 7, LINEAR_WIDE, 9];
const LINEAR_WIDE: usize = 8;

/// Of the iterations of Newton-Schulz, which magnify roundings more than what they end in.
const SCRATCH: &[&str] = &["iterates", "gram", "poly", "iterates1", "gram1", "poly1", "iterates2", "gram2", "poly2"];

const STATE: &[&str] = &["w", "s", "w1", "w2", "w3", "s1", "s2", "s3"];

pub(crate) const BY_CHUNK: Op = Op {
    scalars: &[("scale", 2.0), ("predicts", 1.0), ("eps", 1e-2), ("count", 5.0)],
    state: STATE,
    scratch: SCRATCH,
    fill: crate::omega::problem::fill,
    rounded: super::problem::rounded,
    far_from_one: far_from_one_chunks,
    ..Op::of(Required {
        name: "omega_muon",
        kernels: const {
            &[
                &super::omega_muon,
                &super::omega_muon_gated,
                &super::omega_muon_linear,
                &super::omega_muon_normed,
                &super::fused_optimization,
                &super::fused_descent,
                &super::omega_muon_wide,
                &super::omega_muon_gated_wide,
                &super::omega_muon_linear_wide,
                &super::omega_muon_normed_wide,
            ]
        },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: super::problem::checked,
        flops: super::problem::flops,
        verification: verification_chunks,
        simulation: simulation_chunks,
        measured: &[
            Measured::bf16("omega_muon_32", "omega_muon", &[8, 2048, 16, 32, 2048, 32, 128, 24, 16, 128]),
            Measured::bf16("omega_muon", "omega_muon", &[8, 2048, 16, 64, 2048, 64, 32, 80, 64, 256]),
            Measured::bf16("omega_muon_gated_32", "omega_muon_gated", &[8, 2048, 16, 32, 2048, 32, 128, 24, 16, 128]),
            Measured::bf16("omega_muon_gated", "omega_muon_gated", &[8, 2048, 16, 64, 2048, 64, 32, 64, 64, 256]),
            Measured::bf16("omega_muon_linear", "omega_muon_linear", &[8, 2048, 16, 64, 2048, 64, 32, 80, 64]),
            Measured::bf16("omega_muon_normed_32", "omega_muon_normed", &[8, 2048, 16, 32, 2048, 32, 128, 24, 16, 128]),
            Measured::bf16("omega_muon_normed", "omega_muon_normed", &[8, 2048, 16, 64, 2048, 64, 32, 80, 64, 256]),
            Measured::bf16("omega_muon_wide", "omega_muon_wide", &[4, 2048, 16, 128, 2048, 128, 32, 80, 64, 512]),
            Measured::bf16(
                "omega_muon_gated_wide",
                "omega_muon_gated_wide",
                &[4, 2048, 16, 128, 2048, 128, 32, 80, 64, 512],
            ),
            Measured::bf16(
                "omega_muon_linear_wide",
                "omega_muon_linear_wide",
                &[4, 2048, 16, 2152, 2048, 64, 32, 80, 64],
            ),
            Measured::bf16(
                "omega_muon_normed_wide",
                "omega_muon_normed_wide",
                &[4, 2048, 16, 128, 2048, 128, 32, 80, 64, 512],
            ),
            Measured::bf16("fused_optimization_32", "fused_optimization", &[128, 64, 32, 32, 128]),
            Measured::bf16("fused_optimization", "fused_optimization", &[128, 64, 64, 64, 256]),
            Measured::bf16("fused_descent", "fused_descent", &[128, 64, 64, 64, 256]),
        ],
    })
};

/// A problem of a form of memory by chunks: B N H D P E C K L and, unless it is linear, M.
fn by_chunk(op: &'static Op, dtype: DType, form: usize, dims: [u64; 10]) -> Problem {
    let own = if [LINEAR, LINEAR_WIDE].contains(&form) { &dims[..9] } else { &dims };
    Problem::new(op, op.kernel(form), dtype, own)
}

/// Dims of one step: G N D E M.
fn verification_chunks(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let mut problems = Vec::new();
    for form in FORMS {
        let of = |dims: [u64; 10]| by_chunk(op, dtype, form, dims);
        problems.extend([
            of([2, 23, 2, 16, 23, 16, 3, 16, 8, 32]).with_scalar("before", 1.0).note("ragged"),
            of([1, 40, 1, 48, 48, 48, 2, 40, 32, 192]).note("keys before the first chunk, read after"),
            of([1, 9, 2, 24, 9, 40, 3, 24, 4, 32]).note("more rows than hidden elements"),
            of([1, 6, 1, 40, 6, 16, 2, 24, 3, 32]).with_scalar("predicts", 0.0).note("the inner product as the loss"),
        ]);
    }
    for kernel in WIDE {
        let of = |dims: [u64; 10]| by_chunk(op, dtype, kernel, dims);
        problems.extend([
            of([2, 23, 2, 45, 23, 72, 3, 16, 8, 70])
                .with_scalar("before", 1.0)
                .note("ragged, several tiles of all rows"),
            of([1, 40, 1, 48, 48, 48, 2, 40, 32, 192]).note("keys before the first chunk, read after"),
            of([1, 9, 2, 24, 9, 40, 3, 24, 4, 32]).note("more rows than hidden elements"),
            of([1, 1, 1, 16, 1, 16, 1, 8, 4, 24]).note("one token"),
            inside_a_chunk(of([2, 3, 2, 24, 3, 40, 1, 16, 8, 72])),
            of([1, 6, 1, 40, 6, 16, 2, 24, 3, 32]).with_scalar("predicts", 0.0).note("the inner product as the loss"),
        ]);
    }
    problems.extend([
        on(OPTIMIZATION, &[2, 37, 16, 24, 40]).note("ragged"),
        on(OPTIMIZATION, &[1, 64, 48, 48, 192]),
        on(OPTIMIZATION, &[2, 1, 16, 16, 32]).with_scalar("count", 3.0).note("one token"),
        on(OPTIMIZATION, &[1, 5, 16, 16, 32]).with_scalar("count", 0.0).note("no step"),
        on(OPTIMIZATION, &[1, 37, 16, 16, 32]).with_scalar("predicts", 0.0).note("the inner product as the loss"),
        on(DESCENT, &[2, 37, 16, 24, 40]).note("ragged"),
        on(DESCENT, &[1, 64, 64, 64, 256]),
        on(DESCENT, &[1, 37, 16, 24, 40]).with_scalar("predicts", 0.0).note("the inner product as the loss"),
    ]);
    problems
}

fn simulation_chunks(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let mut problems: Vec<Problem> =
        FORMS.map(|form| by_chunk(op, dtype, form, [1, 23, 1, 16, 23, 16, 3, 16, 8, 32]).note("ragged")).into();
    for kernel in WIDE {
        problems.extend([
            by_chunk(op, dtype, kernel, [1, 11, 1, 40, 11, 24, 2, 16, 8, 40]).note("ragged"),
            by_chunk(op, dtype, kernel, [1, 5, 1, 16, 5, 24, 2, 8, 4, 72]).with_scalar("before", 1.0),
            inside_a_chunk(by_chunk(op, dtype, kernel, [1, 3, 1, 40, 3, 24, 1, 16, 8, 40])),
        ]);
    }
    problems.extend([
        by_chunk(op, dtype, MLP, [1, 9, 1, 16, 9, 24, 2, 16, 8, 16]).with_scalar("before", 1.0),
        on(OPTIMIZATION, &[1, 23, 16, 24, 40]).note("ragged"),
        on(DESCENT, &[1, 23, 16, 24, 40]).note("ragged"),
    ]);
    problems
}

/// As a stream launches the first piece of a sequence that ends inside its chunk: the chunk is read, and leaves the memory as it was.
fn inside_a_chunk(p: Problem) -> Problem {
    let kept = ["lam_end", "beta_end"].into_iter().fold(p, |p, name| p.fill(name, Fill::Around(1.0, 0.0)));
    let still = ["phi_end", "steps"].into_iter().fold(kept, |p, name| p.fill(name, Fill::Around(0.0, 0.0)));
    still.with_scalar("before", 1.0).note("a first piece that ends inside its chunk")
}

fn far_from_one_chunks(op: &'static Op, dtype: DType) -> Vec<Problem> {
    // Momenta are f32 whatever keys are.
    let mut problems: Vec<Problem> =
        FORMS.map(|form| of_momentum(by_chunk(op, dtype, form, [1, 9, 1, 16, 9, 16, 2, 8, 8, 32]))).into();
    problems.extend(WIDE.map(|kernel| of_momentum(by_chunk(op, dtype, kernel, [1, 9, 1, 16, 9, 16, 2, 8, 8, 72]))));
    problems.push(of_momentum(Problem::new(op, op.kernel(OPTIMIZATION), dtype, &[1, 9, 16, 24, 40])));
    problems
}

pub(crate) const BY_TOKEN: Op = Op {
    scalars: &[("scale", 2.0), ("predicts", 1.0), ("eps", 1e-2), ("chunk", 8.0)],
    state: STATE,
    scratch: SCRATCH,
    fill: crate::omega::problem::fill,
    rounded: super::problem::rounded,
    far_from_one: far_from_one_tokens,
    as_in_a_model: as_in_a_model_tokens,
    ..Op::of(Required {
        name: "omega_muon_tokens",
        kernels: const {
            &[
                &super::omega_muon_tokens,
                &super::omega_muon_tokens_gated,
                &super::omega_muon_tokens_linear,
                &super::omega_muon_tokens_normed,
                &super::omega_muon_tokens_wide,
                &super::omega_muon_tokens_gated_wide,
                &super::omega_muon_tokens_linear_wide,
                &super::omega_muon_tokens_normed_wide,
            ]
        },
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
            Measured::bf16(
                "omega_muon_tokens_gated_32",
                "omega_muon_tokens_gated",
                &[8, 32, 16, 32, 32, 32, 16, 128, 24],
            ),
            Measured::bf16("omega_muon_tokens_gated", "omega_muon_tokens_gated", &[8, 32, 16, 64, 32, 64, 16, 256, 24]),
            Measured::bf16("omega_muon_tokens_linear", "omega_muon_tokens_linear", &[8, 32, 16, 64, 32, 64, 16, 24]),
            Measured::bf16(
                "omega_muon_tokens_normed_32",
                "omega_muon_tokens_normed",
                &[8, 32, 16, 32, 32, 32, 16, 128, 24],
            ),
            Measured::bf16(
                "omega_muon_tokens_normed",
                "omega_muon_tokens_normed",
                &[8, 32, 16, 64, 32, 64, 16, 256, 24],
            ),
            Measured::bf16("omega_muon_tokens_wide", "omega_muon_tokens_wide", &[4, 32, 16, 128, 32, 128, 16, 512, 24]),
            Measured::bf16(
                "omega_muon_tokens_gated_wide",
                "omega_muon_tokens_gated_wide",
                &[4, 32, 16, 128, 32, 128, 16, 512, 24],
            ),
            Measured::bf16(
                "omega_muon_tokens_linear_wide",
                "omega_muon_tokens_linear_wide",
                &[4, 32, 16, 2152, 32, 64, 16, 24],
            ),
            Measured::bf16(
                "omega_muon_tokens_normed_wide",
                "omega_muon_tokens_normed_wide",
                &[4, 32, 16, 128, 32, 128, 16, 512, 24],
            ),
        ],
    })
};

/// A problem of a form of memory by tokens: B N H D P E W, M unless it is linear, and K.
fn by_token(op: &'static Op, dtype: DType, form: usize, dims: [u64; 9]) -> Problem {
    let mut own = dims.to_vec();
    if [LINEAR, LINEAR_WIDE_BY_TOKEN].contains(&form) {
        own.remove(7);
    }
    Problem::new(op, op.kernel(form), dtype, &own)
}

fn verification_tokens(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let mut problems = Vec::new();
    for form in FORMS.into_iter().chain(WIDE_BY_TOKEN) {
        let of = |dims: [u64; 9]| by_token(op, dtype, form, dims);
        problems.extend([
            of([2, 11, 2, 16, 11, 16, 5, 32, 16]).note("ragged"),
            of([1, 5, 1, 16, 9, 24, 3, 40, 8]).with_scalar("chunk", 1.0).note("chunks of one token"),
            of([1, 9, 2, 8, 9, 8, 4, 16, 4]).with_scalar("chunk", 4.0).with_scalar("before", 1.0).note("read before"),
            of([1, 3, 1, 48, 3, 48, 9, 192, 16]).note("one short chunk"),
            of([1, 5, 1, 24, 5, 40, 3, 16, 8])
                .with_scalar("predicts", 0.0)
                .note("the inner product as the loss, more rows than hidden elements"),
        ]);
    }
    for kernel in WIDE_BY_TOKEN {
        let of = |dims: [u64; 9]| by_token(op, dtype, kernel, dims);
        problems.extend([
            of([1, 3, 1, 72, 3, 40, 2, 70, 8]).note("several tiles of all rows"),
            of([1, 1, 1, 16, 1, 24, 2, 40, 8]).note("one token"),
        ]);
    }
    problems
}

fn simulation_tokens(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let of = |form: usize| by_token(op, dtype, form, [1, 6, 1, 16, 6, 16, 3, 32, 8]).with_scalar("chunk", 4.0);
    let mut problems: Vec<Problem> = FORMS.map(|form| of(form).note("ragged")).into();
    problems.extend(WIDE_BY_TOKEN.map(|kernel| {
        by_token(op, dtype, kernel, [1, 3, 1, 40, 3, 24, 2, 72, 8]).with_scalar("chunk", 2.0).note("ragged")
    }));
    problems.extend(WIDE_BY_TOKEN.map(|kernel| {
        let piece = by_token(op, dtype, kernel, [1, 2, 1, 16, 2, 24, 3, 40, 8]).with_scalar("chunk", 6.0);
        piece.with_scalar("before", 1.0).note("a first piece that ends inside its chunk")
    }));
    if dtype == DType::F32 {
        problems
            .push(by_token(op, dtype, GATED, [1, 2, 1, 32, 2, 32, 2, 256, 2]).note("tiles that have to share memory"));
    }
    problems
}

fn far_from_one_tokens(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let of = |form: usize| by_token(op, dtype, form, [1, 3, 1, 16, 3, 16, 3, 32, 8]).with_scalar("chunk", 4.0);
    FORMS.into_iter().chain(WIDE_BY_TOKEN).map(|form| of_momentum(of(form))).collect()
}

/// Longer steps magnify what each token's iteration rounds.
fn as_in_a_model_tokens(p: Problem) -> Problem {
    p.fill("eta", Fill::Around(3e-3, 1e-3))
}

fn of_momentum(p: Problem) -> Problem {
    let size = Fill::Normal(1e25);
    let names = ["s", "s1", "s2", "s3"];
    names.into_iter().fold(p, |p, name| p.fill(name, size)).note("momenta far above 1")
}
