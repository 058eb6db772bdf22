//! Small problems, which the simulator solves in seconds.

use crate::op::OPS;
use crate::problem::{Fill, Layout, Op, Problem};
use atlas_dsl::DType;

/// The element types that every op is verified in.
pub const DTYPES: [DType; 3] = [DType::Bf16, DType::F16, DType::F32];

/// Problems for the simulator, which executes about a million instructions a second: every kernel in every element type
/// with ragged and single tiles, two and three tiles along each axis of its grid, and strided tensors.
pub fn simulation() -> Vec<Problem> {
    DTYPES.into_iter().flat_map(|dtype| OPS.iter().flat_map(move |op| small(op, dtype))).collect()
}

fn small(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let p = |dims: &[u64]| on(0, dims);
    match op.name {
        "memory_read" => vec![
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
        ],
        "newton_schulz_small" => vec![
            p(&[2, 16, 64]),
            p(&[1, 48, 96]),
            p(&[2, 8, 24]).note("odd"),
            p(&[1, 24, 40]).note("odd"),
            p(&[1, 32, 64]).layout("g", Layout::Padded).note("padded rows"),
            p(&[2, 16, 32]).fill("g", Fill::ZeroAt(1)).note("one zero"),
        ],
        "poly_features" => (0..4)
            .flat_map(|k| {
                [
                    on(k, &[133, 48]).note("ragged"),
                    on(k, &[64, 64]),
                    on(k, &[1, 64]).note("one row"),
                    on(k, &[37, 40]).layout("x", Layout::Padded).note("padded rows"),
                    on(k, &[5, 3]).note("odd"),
                ]
            })
            .collect(),
        "attention" => vec![p(&[1, 70, 32, 90]).note("ragged"), p(&[2, 16, 64, 64])],
        "log_sum_exp" => vec![p(&[5, 1100]).note("ragged"), p(&[3, 2048]), p(&[4, 33]).note("odd")],
        "linear_gelu" => vec![p(&[70, 40, 72]).note("ragged"), p(&[64, 64, 64])],
        "matmul" => vec![p(&[70, 40, 72]).note("ragged"), p(&[64, 64, 64]), p(&[5, 33, 17]).note("odd")],
        "memory_grad" | "window_sums" | "attention_decode" | "windowed_attention" | "omega" => {
            small_of_sequences(op, dtype)
        }
        "transpose" => vec![
            p(&[70, 40]).note("ragged"),
            p(&[128, 64]),
            p(&[5, 33]).note("odd"),
            on(1, &[2, 5, 37, 24]).note("ragged"),
            on(1, &[1, 3, 2, 5]).note("odd"),
        ],
        "taylor_features" => vec![p(&[21, 16, 273]).note("ragged"), p(&[5, 3, 13]).note("odd")],
        "gated_memory" => {
            (0..4).flat_map(|k| [on(k, &[1, 37, 32, 40, 24]).note("ragged"), on(k, &[2, 16, 16, 64, 16])]).collect()
        }
        "block_attention" => {
            vec![p(&[1, 150, 2, 32, 150, 1, 3, 3]).note("ragged"), p(&[1, 40, 1, 16, 70, 1, 1, 2]).note("sees nothing")]
        }
        "monomials" | "inverse" | "packing" | "omega_muon_tokens" => small_of_others(op, dtype),
        "muon" => of_muon(op, dtype, &[&[2, 37, 70], &[1, 5, 9]]),
        "layer" => (0..6)
            .filter(|&k| k < 5 || dtype == DType::F32)
            .map(|k| on(k, &[2, 21, 3, 40][..4 - usize::from(k == 5)]).note("ragged"))
            .collect(),
        "fused_forward" => (0..3)
            .flat_map(|k| {
                [
                    on(k, &[1, 37, 48, 96]).note("ragged"),
                    on(k, &[2, 32, 32, 64]),
                    on(k, &[1, 20, 16, 40]).note("ragged H"),
                ]
            })
            .chain((3..7).map(|k| on(k, &[2, 21, 40]).note("ragged")))
            .collect(),
        "rotary" => vec![p(&[3, 9, 2, 32]).note("ragged"), p(&[2, 8, 2, 5]).note("odd")],
        "random_features" => (0..3)
            .flat_map(|k| {
                let on = |n: u64, d: u64, m: u64| on(k, &[n, d, m, 2][..3 + usize::from(k == 2)]);
                [on(70, 32, 72).note("ragged"), on(64, 64, 64), on(5, 3, 17).note("odd")]
            })
            .collect(),
        "rbf_features" => vec![p(&[70, 32, 72]).note("ragged"), p(&[64, 64, 64]), p(&[5, 3, 17]).note("odd")],
        _ => vec![
            p(&[5, 40]).note("ragged"),
            p(&[19, 136]).note("ragged"),
            p(&[3, 1000]),
            p(&[2, 4096]),
            p(&[7, 3]).note("odd"),
            p(&[6, 1]).note("one column"),
            p(&[1, 64]).note("one row"),
            p(&[9, 72]).layout("x", Layout::Padded).note("padded rows"),
            p(&[4, 64]).fill("x", Fill::NanAt(2)).note("NaN in one row"),
        ],
    }
}

/// The same of monomials, inverses, documents and steps by tokens.
fn small_of_others(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let p = |dims: &[u64]| on(0, dims);
    match op.name {
        "monomials" => vec![
            on(0, &[21, 16, 153]).note("ragged"),
            on(0, &[5, 3, 11]).note("odd"),
            on(1, &[19, 6, 84]).note("ragged"),
            on(2, &[21, 8]).note("ragged"),
            on(3, &[5, 3]).note("odd"),
        ],
        "inverse" => vec![p(&[2, 16]).with_scalar("count", 8.0), p(&[1, 9]).with_scalar("count", 8.0).note("odd")],
        "packing" => {
            let mut problems =
                vec![on(0, &[1, 37, 2, 24, 3, 20]).note("ragged"), on(2, &[3, 20, 2, 24, 1, 37]).note("ragged")];
            problems.extend((dtype == DType::F32).then(|| on(1, &[1, 37, 2, 3, 20]).note("ragged")));
            problems
        }
        _ => vec![p(&[1, 6, 1, 16, 6, 16, 3, 32, 8]).with_scalar("chunk", 4.0).note("ragged")],
    }
}

/// The same of ops on sequences, and of the gradients of their memories.
fn small_of_sequences(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    match op.name {
        "memory_grad" => {
            (0..3).flat_map(|k| [on(k, &[2, 37, 32, 72, 32]).note("ragged"), on(k, &[1, 64, 16, 32, 24])]).collect()
        }
        "window_sums" => {
            let mut problems = vec![
                on(0, &[1, 70, 40]).with_scalar("window", 5.0).note("ragged"),
                on(0, &[2, 10, 33]).with_scalar("window", 20.0).note("odd"),
                on(1, &[2, 9, 72]).note("ragged"),
            ];
            problems.extend((dtype == DType::F32).then(|| on(2, &[2, 150]).with_scalar("window", 9.0).note("ragged")));
            problems
        }
        "attention_decode" => vec![
            on(0, &[2, 1, 4, 32, 70, 2]).fill("tokens", Fill::Around(50.0, 10.0)).note("partly filled"),
            on(1, &[1, 2, 2, 32, 3]).note("odd"),
        ],
        "windowed_attention" => {
            let with = |window: f32, dims: &[u64]| on(0, dims).with_scalar("window", window);
            vec![
                with(20.0, &[1, 70, 2, 32, 70, 1, 5]).fill("first", Fill::Starts(30)).note("documents and prefix"),
                with(16.0, &[1, 40, 1, 64, 20, 1, 0]).note("queries that see nothing"),
            ]
        }
        _ => {
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
    }
}

/// Problems of the launches of Muon, for these numbers and sizes of matrices.
pub(crate) fn of_muon(op: &'static Op, dtype: DType, sizes: &[&[u64; 3]]) -> Vec<Problem> {
    let of = |k: usize| {
        sizes.iter().map(move |&&[b, m, n]| {
            let dims: &[u64] = match k {
                3 => &[b, m],
                5 | 6 => &[m, n],
                _ => &[b, m, n],
            };
            Problem::new(op, op.kernel(k), dtype, dims).note(if n % 8 == 0 { "" } else { "odd" })
        })
    };
    (0..7).flat_map(of).collect()
}
