//! The problems on which kernels are verified and demonstrated.

use crate::op::{OPS, find};
use crate::problem::{Fill, Layout, Op, Problem};
use crate::scale_cases::far_from_one;
use crate::small_cases::DTYPES;
use crate::small_cases::of_muon;
use atlas_dsl::{DType, KernelDef};

/// Problems that together reach each op's edges; small, so that a CPU solves all of them within a minute.
pub fn verification() -> Vec<Problem> {
    let of_ops = DTYPES.into_iter().flat_map(|dtype| OPS.iter().flat_map(move |op| of(op, dtype)));
    of_ops.chain(far_from_one()).collect()
}

fn of(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let p = |dims: &[u64]| on(0, dims);
    match op.name {
        "memory_read" => vec![
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
        ],
        // A 128 x 512 matrix of f32 fills more shared memory than any CTA has.
        "newton_schulz_small" => (dtype != DType::F32)
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
            .collect(),
        "log_sum_exp" => vec![
            p(&[5, 3000]),
            p(&[9, 8192]),
            p(&[7, 4097]).note("odd"),
            p(&[3, 1]).note("one column"),
            p(&[9, 1500]).layout("x", Layout::Padded).note("padded rows"),
            p(&[4, 600]).fill("x", Fill::Around(500.0, 20.0)).note("large"),
            p(&[4, 64]).fill("x", Fill::NanAt(2)).note("NaN in one row"),
        ],
        "poly_features" | "random_features" | "rbf_features" => of_features(op, dtype),
        "attention" | "linear_gelu" | "matmul" | "rotary" | "transpose" => of_plain(op, dtype),
        "attention_decode" | "windowed_attention" => of_windows(op, dtype),
        "window_sums" => of_sums(op, dtype),
        "memory_grad" => (0..3).flat_map(|k| of_gradients(op, k, dtype)).collect(),
        "fused_forward" => of_forwards(op, dtype),
        "taylor_features" | "monomials" | "inverse" => of_monomials(op, dtype),
        "gated_memory" => (0..4)
            .flat_map(|k| {
                [
                    on(k, &[2, 64, 64, 256, 64]),
                    on(k, &[3, 37, 48, 72, 40]).note("ragged"),
                    on(k, &[2, 1, 16, 40, 16]).note("one token"),
                ]
            })
            .collect(),
        "block_attention" => vec![
            p(&[2, 200, 4, 64, 200, 2, 4, 4]).note("ragged"),
            p(&[1, 128, 2, 48, 256, 2, 2, 4]).with_scalar("causal", 0.0).note("more keys than queries"),
            p(&[1, 40, 2, 32, 40, 1, 1, 1]).note("one block"),
            p(&[2, 150, 2, 64, 300, 1, 3, 5]).fill("blocks", Fill::Down).note("the last blocks first"),
            p(&[1, 200, 2, 32, 200, 2, 4, 2]).note("counts above what is listed"),
            p(&[1, 150, 2, 32, 150, 1, 3, 3]).fill("counts", Fill::Starts(1)).note("queries that see nothing"),
            p(&[1, 150, 2, 32, 150, 1, 3, 3]).with_scalar("scale", -0.18).note("a negative scale"),
            p(&[1, 150, 2, 32, 150, 1, 3, 3]).with_scalar("scale", 0.0).note("scale 0"),
            p(&[1, 150, 2, 32, 150, 1, 3, 3]).fill("blocks", Fill::Every(1 << 26, 0)).note("blocks that are none"),
        ],
        "muon" => of_muon(op, dtype, &[&[2, 100, 300], &[1, 64, 256], &[3, 7, 9], &[1, 1, 40]]),
        "layer" => (0..6)
            .filter(|&k| k < 5 || dtype == DType::F32)
            .flat_map(|k| {
                let dims = |d: [u64; 4]| on(k, &d[..4 - usize::from(k == 5)]);
                [dims([2, 37, 3, 40]).note("ragged"), dims([1, 1, 2, 64]).note("one token"), dims([2, 64, 2, 48])]
            })
            .collect(),
        "omega" => of_omega(op, dtype),
        "packing" | "omega_muon_tokens" => of_documents(op, dtype),
        "rms_norm" => rows(op, dtype)
            .into_iter()
            .chain([
                p(&[5, 64]).fill("x", Fill::Normal(1e-3)).note("small"),
                p(&[3, 40]).fill("x", Fill::ZeroAt(1)).note("a zero row"),
            ])
            .collect(),
        _ => rows(op, dtype)
            .into_iter()
            .chain([
                p(&[5, 64]).fill("x", Fill::Around(500.0, 20.0)).note("large"),
                p(&[4, 64]).fill("x", Fill::Around(-500.0, 20.0)).note("large negative"),
            ])
            .collect(),
    }
}

/// Problems of monomials, whose rows begin anywhere, and of inverses.
fn of_monomials(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let p = |dims: &[u64]| on(0, dims);
    match op.name {
        "taylor_features" => vec![
            p(&[40, 64, 4161]),
            p(&[37, 16, 273]).note("ragged"),
            p(&[5, 3, 13]).note("odd"),
            p(&[1, 1, 3]).note("one number"),
        ],
        "monomials" => vec![
            on(0, &[40, 64, 2145]),
            on(0, &[37, 16, 153]).with_scalar("plain", 1.0).note("plain"),
            on(0, &[21, 16, 160]).note("columns left over"),
            on(0, &[5, 3, 10]).note("odd"),
            on(0, &[1, 1, 3]).note("one number"),
            on(1, &[19, 8, 165]).note("ragged"),
            on(1, &[7, 5, 56]).with_scalar("plain", 1.0).note("plain"),
            on(1, &[4, 8, 168]).note("columns left over"),
            on(1, &[1, 1, 4]).note("one number"),
            on(2, &[37, 24]).note("ragged"),
            on(3, &[9, 8]),
        ],
        _ => vec![
            p(&[3, 48]),
            p(&[2, 17]).note("odd"),
            p(&[2, 1]).note("one number"),
            p(&[3, 24]).fill("a", Fill::NanAt(1)).note("NaN in one matrix"),
            p(&[2, 16])
                .with_scalar("damping", 0.0)
                .fill("a", Fill::ZeroAt(0))
                .with_scalar("count", 60.0)
                .note("singular"),
        ],
    }
}

/// Problems of packed documents, and of steps by tokens.
fn of_documents(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let p = |dims: &[u64]| on(0, dims);
    match op.name {
        "packing" => (0..3)
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
            .collect(),
        // B N H D P E W M K
        _ => vec![
            p(&[2, 11, 2, 16, 11, 16, 5, 32, 16]).note("ragged"),
            p(&[1, 5, 1, 16, 9, 24, 3, 40, 8]).with_scalar("chunk", 1.0).note("chunks of one token"),
            p(&[1, 9, 2, 8, 9, 8, 4, 16, 4]).with_scalar("chunk", 4.0).with_scalar("before", 1.0).note("read before"),
            p(&[1, 3, 1, 48, 3, 48, 9, 192, 16]).note("one short chunk"),
        ],
    }
}

/// Problems of maps of features.
fn of_features(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let p = |dims: &[u64]| on(0, dims);
    match op.name {
        "poly_features" => (0..4)
            .flat_map(|k| {
                [
                    on(k, &[64, 64]),
                    on(k, &[37, 48]).note("ragged"),
                    on(k, &[1, 64]).note("one row"),
                    on(k, &[200, 40]).layout("x", Layout::Padded).note("padded rows"),
                ]
            })
            .chain([on(2, &[5, 3]).note("odd"), on(2, &[0, 64]).note("no row")])
            .collect(),
        "random_features" => (0..3)
            .flat_map(|k| {
                let on = |n: u64, d: u64, m: u64| on(k, &[n, d, m, 2][..3 + usize::from(k == 2)]);
                [
                    on(130, 64, 256),
                    on(37, 48, 100).note("ragged"),
                    on(1, 64, 64).note("one row"),
                    on(20, 5, 33).note("odd"),
                    on(0, 64, 64).note("no row"),
                    on(40, 64, 64).layout("x", Layout::Padded).note("padded rows"),
                    on(3, 64, 64).fill("x", Fill::ZeroAt(1)).note("a zero row"),
                    on(4, 64, 32).fill("x", Fill::NanAt(2)).note("NaN in one row"),
                ]
            })
            .collect(),
        _ => [
            p(&[130, 64, 256]),
            p(&[37, 48, 100]).note("ragged"),
            p(&[1, 64, 64]).note("one row"),
            p(&[20, 5, 33]).note("odd"),
            p(&[0, 64, 64]).note("no row"),
            p(&[40, 64, 64]).layout("x", Layout::Padded).layout("c", Layout::Padded).note("padded rows"),
            p(&[3, 64, 64]).fill("x", Fill::ZeroAt(1)).fill("c", Fill::ZeroAt(0)).note("a centre that is met"),
            p(&[4, 64, 32]).fill("x", Fill::NanAt(2)).note("NaN in one row"),
        ]
        .to_vec(),
    }
}

/// Problems of attention over windows. Dims: of a sequence B M H D N J S; of decoding S J R D W X.
fn of_windows(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    if op.name == "attention_decode" {
        return vec![
            on(0, &[3, 2, 4, 64, 200, 3]).note("partly filled"),
            on(0, &[2, 1, 1, 128, 70, 4]).fill("tokens", Fill::Around(500.0, 1.0)).note("a ring that is full"),
            on(0, &[2, 2, 8, 48, 33, 1]).fill("tokens", Fill::Around(1.0, 0.1)).note("one token"),
            on(0, &[2, 2, 3, 64, 40, 5]).fill("tokens", Fill::Around(0.0, 0.1)).note("no token"),
            on(0, &[2, 2, 3, 32, 40, 5])
                .fill("tokens", Fill::Around(f64::from(i32::MIN), 0.0))
                .note("fewer tokens than none"),
            on(0, &[2, 1, 4, 32, 70, 2]).with_scalar("scale", -0.18).note("a negative scale"),
            on(0, &[2, 1, 4, 32, 70, 2]).with_scalar("scale", 0.0).note("scale 0"),
            on(1, &[3, 2, 4, 64, 8]),
            on(1, &[2, 1, 1, 40, 3]).note("odd"),
        ];
    }
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
        with(20.0, &[1, 70, 1, 32, 70, 1, 3]).with_scalar("scale", -0.18).note("a negative scale"),
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

/// Problems of sums over windows. Dims: B N D, and B N of totals.
fn of_sums(op: &'static Op, dtype: DType) -> Vec<Problem> {
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

/// Problems of the kernels of a memory's gradients. Dims: G N D H E.
fn of_gradients(op: &'static Op, kernel: usize, dtype: DType) -> Vec<Problem> {
    let p = |dims: [u64; 5]| Problem::new(op, op.kernel(kernel), dtype, &dims);
    vec![
        p([2, 64, 64, 256, 64]),
        p([3, 37, 48, 192, 48]).note("ragged"),
        p([2, 1, 64, 256, 64]).note("one token"),
        p([1, 33, 16, 40, 24]).note("ragged H"),
        p([2, 0, 64, 64, 64]).note("no token"),
        p([1, 200, 32, 64, 32]).note("many tokens"),
        p([2, 37, 32, 64, 32]).layout("w1", Layout::Shared).layout("w2", Layout::Shared).note("shared weights"),
        p([3, 20, 32, 64, 32]).fill("x", Fill::NanAt(1)).note("NaN in one group"),
        p([3, 20, 32, 64, 32]).fill("x", Fill::NanAt(1)).fill("c", Fill::ZeroAt(1)).note("NaN without weight"),
    ]
}

/// Problems of the kernels of the Omega rule. Dims: of the mixing weights B N H W C L K; of the memories B N H D P E C L K
/// and, of two layers, M; with Muon B N H D P E C K L M; of gates B N H W; of one step G N D E M.
fn of_omega(op: &'static Op, dtype: DType) -> Vec<Problem> {
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

/// Problems of fused read-outs, and of the kernels that only they are made of. Dims: G N D, and of those with a memory H.
fn of_forwards(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let fused = (0..3).flat_map(|k| {
        [
            on(k, &[2, 128, 64, 256]),
            on(k, &[2, 200, 48, 192]).note("ragged"),
            on(k, &[3, 1, 64, 256]).note("one token"),
            on(k, &[1, 33, 16, 40]).note("ragged H"),
            on(k, &[2, 0, 64, 256]).note("no token"),
            on(k, &[2, 37, 64, 256]).layout("q", Layout::Swapped).layout("y", Layout::Swapped).note("tokens first"),
            on(k, &[3, 24, 48, 192]).fill("q", Fill::NanAt(1)).note("NaN in one group"),
        ]
    });
    fused.chain((3..7).map(|k| on(k, &[2, 37, 40]).note("ragged"))).collect()
}

/// Problems of plain kernels: products, attention, and what moves or turns elements.
fn of_plain(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    let swap = |dims: &[u64]| Problem::new(op, op.kernel(op.kernels.len() - 1), dtype, dims);
    match op.name {
        "attention" => vec![
            p(&[3, 130, 64, 200]).note("ragged"),
            p(&[2, 128, 128, 256]),
            p(&[2, 1, 64, 70]).note("one query"),
            p(&[1, 40, 48, 33]).note("ragged"),
            p(&[2, 50, 64, 96]).layout("q", Layout::Padded).layout("k", Layout::Padded).note("padded rows"),
            p(&[2, 40, 64, 96]).with_scalar("scale", -0.18).note("a negative scale"),
            p(&[2, 40, 32, 96]).with_scalar("scale", -3.0).fill("q", Fill::Normal(30.0)).note("large, and negative"),
            p(&[1, 33, 16, 70]).with_scalar("scale", 0.0).note("scale 0: a mean"),
            p(&[2, 17, 32, 0]).note("no key"),
        ],
        "linear_gelu" => vec![
            p(&[256, 512, 256]),
            p(&[200, 136, 72]).note("ragged"),
            p(&[37, 29, 51]).note("odd"),
            p(&[70, 64, 128]).layout("w", Layout::Padded).note("padded rows"),
        ],
        "matmul" => vec![
            p(&[256, 512, 256]),
            p(&[200, 136, 72]).note("ragged"),
            p(&[1, 300, 64]).note("one row"),
            p(&[37, 29, 51]).note("odd"),
            p(&[1200, 96, 700]).note("a last group of programs"),
            p(&[64, 64, 128]).layout("a", Layout::Padded).note("padded rows"),
        ],
        "rotary" => vec![
            p(&[5, 16, 2, 64]),
            p(&[3, 33, 2, 48]).note("ragged"),
            p(&[2, 1, 2, 5]).note("odd"),
            p(&[40, 8, 2, 64]).layout("c", Layout::Padded).note("padded rows"),
        ],
        _ => vec![
            p(&[256, 192]),
            p(&[130, 70]).note("ragged"),
            p(&[1, 300]).note("one row"),
            p(&[300, 1]).note("one column"),
            p(&[37, 51]).note("odd"),
            p(&[0, 64]).note("no row"),
            p(&[100, 64]).layout("x", Layout::Padded).note("padded rows"),
            p(&[20, 40]).fill("x", Fill::NanAt(2)).note("NaN in one row"),
            swap(&[2, 50, 6, 64]),
            swap(&[3, 7, 37, 20]).note("ragged"),
            swap(&[1, 5, 3, 1]).note("odd"),
            swap(&[2, 0, 4, 8]).note("nothing"),
            swap(&[2, 40, 3, 24]).layout("x", Layout::Padded).note("padded rows"),
        ],
    }
}

/// Problems of an op that works row by row.
fn rows(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[5, 8]),
        p(&[37, 40]).note("ragged"),
        p(&[3, 1000]),
        p(&[9, 4096]),
        p(&[3, 8192]),
        p(&[7, 3]).note("odd"),
        p(&[6, 1]).note("one column"),
        p(&[1, 64]).note("one row"),
        p(&[0, 64]).note("no row"),
        p(&[9, 768]).layout("x", Layout::Padded).note("padded rows"),
        p(&[4, 64]).fill("x", Fill::NanAt(2)).note("NaN in one row"),
    ]
}

/// The ops at the sizes of the ATLAS paper's 170M and 340M models: 16 heads of 48 and 64, T = 2048 and 2000.
pub fn demo() -> Vec<Problem> {
    let mut problems = Vec::new();
    for (d, h, width) in [(48, 192, 768), (64, 256, 1024)] {
        for t in [2048, 2000] {
            problems.extend(problem("memory_read", DType::Bf16, &[16, t, d, h]));
            problems.extend(problem("poly3", DType::Bf16, &[16 * t, d]));
            problems.extend(problem("rms_norm", DType::Bf16, &[t, width]));
            problems.extend(problem("softmax", DType::Bf16, &[t, t]));
        }
        // Both matrices of each head's memory.
        problems.extend(problem("newton_schulz_small", DType::Bf16, &[32, d, h]));
    }
    let mut problems: Vec<Problem> = problems.into_iter().map(as_in_a_model).collect();
    problems.sort_by_key(|p| OPS.iter().position(|op| op.name == p.op.name));
    problems
}

/// Inputs as a model has them: features of normalised keys, whose elements are about `D^-1/2`, scores of about 1/2, and
/// monomials of numbers near 1.
fn as_in_a_model(p: Problem) -> Problem {
    match p.op.name {
        "poly_features" => {
            let scale = (p.dim("D") as f64).powf(-0.5);
            p.fill("x", Fill::Normal(scale))
        }
        "softmax" => p.fill("x", Fill::Normal(0.5)),
        "monomials" => p.fill("x", Fill::Around(1.0, 0.25)),
        // Longer steps magnify what each token's iteration rounds.
        "omega_muon_tokens" => p.fill("eta", Fill::Around(3e-3, 1e-3)),
        _ => p,
    }
}

/// A problem of the kernel of this name; `None` if no op has it.
pub fn problem(kernel: &str, dtype: DType, dims: &[u64]) -> Option<Problem> {
    let op = find(kernel)?;
    let def: &'static KernelDef = op.defs().find(|k| k.name == kernel)?;
    Some(Problem::new(op, def, dtype, dims))
}

/// The same with inputs as a model has them.
pub fn model_problem(kernel: &str, dtype: DType, dims: &[u64]) -> Option<Problem> {
    problem(kernel, dtype, dims).map(as_in_a_model)
}
