//! The kernels whose passes over a chunk are launches, one by one: their row of the table, references and problems.

use super::chunk_inputs::{ChunkPlace, Given, column, dot};
use crate::memory::{gelu, gelu_slope};
use crate::problem::{Fill, Inputs, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use atlas_dsl::DType;

pub(crate) const OMEGA_SPLIT: Op = Op {
    scalars: &[("scale", 2.0), ("predicts", 1.0), ("at", 1.0)],
    state: &["w1", "w2", "s1", "s2", "rows", "slopes"],
    fill: |p, name| match name {
        // Of chunk 1 of every sequence and head, the first key is another token, of some none.
        "oldest" => Fill::Every(3, 0),
        "errors" | "reads" | "change" | "hidden" | "slopes" | "act" | "rows" => Fill::Normal(0.5),
        "mixed" => Fill::Normal(0.3 / p.dim("K") as f64),
        name => super::problem::fill(p, name.trim_end_matches("_before")),
    },
    ..Op::of(Required {
        name: "omega_split",
        kernels: const {
            &[
                &super::omega_split_mixed,
                &super::omega_mlp_split_hidden,
                &super::omega_mlp_split_errors,
                &super::omega_mlp_split_train,
                &super::omega_mlp_split_inner,
                &super::omega_mlp_split_outer,
                &super::omega_split_reads,
                &super::omega_mlp_cluster_train,
            ]
        },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: checked,
        flops,
        verification: |op, dtype| problems(op, dtype, &VERIFICATION),
        simulation: |op, dtype| problems(op, dtype, &SIMULATION),
        measured: &[
            Measured::bf16("omega_split_mixed", "omega_split_mixed", &[1, 32768, 16, 64, 32768, 512, 64, 80]),
            Measured::bf16("omega_mlp_split_hidden", "omega_mlp_split_hidden", &[1, 16, 2, 128, 64, 80, 256]),
            Measured::bf16("omega_mlp_split_errors", "omega_mlp_split_errors", &[1, 16, 2, 128, 64, 80, 256, 16]),
            Measured::bf16("omega_mlp_split_train", "omega_mlp_split_train", &[1, 16, 2, 128, 64, 80, 16, 64, 256]),
            Measured::bf16("omega_mlp_split_inner", "omega_mlp_split_inner", &[1, 1088, 16, 64, 17, 64, 80, 16, 256]),
            Measured::bf16("omega_mlp_split_outer", "omega_mlp_split_outer", &[1, 1088, 16, 64, 17, 64, 80, 16, 256]),
            Measured::bf16(
                "omega_mlp_cluster_train",
                "omega_mlp_cluster_train",
                &[1, 16, 16, 1088, 64, 64, 80, 256, 16],
            ),
            Measured::bf16("omega_split_reads", "omega_split_reads", &[1, 16, 16, 64, 64, 1088]),
        ],
    })
};

/// Sizes of a problem: B, N, H, D, P, E, C, R, L, K, M.
type Sizes = [u64; 11];

/// Chunk 1 is trained on, and those from there on are read. These end within what is kept, or behind it.
const VERIFICATION: [(Sizes, &str); 5] = [
    ([2, 23, 2, 16, 23, 24, 3, 2, 8, 16, 40], "ragged"),
    ([1, 37, 1, 72, 45, 136, 2, 3, 32, 40, 70], "several tiles of all rows; keys before the first chunk"),
    ([1, 3, 2, 153, 3, 24, 3, 1, 1, 8, 40], "chunks of one token"),
    ([1, 70, 2, 64, 70, 64, 2, 2, 64, 80, 256], "a short last chunk"),
    ([1, 9, 1, 1, 9, 1, 2, 1, 8, 8, 1], "rows of one element"),
];

const SIMULATION: [(Sizes, &str); 2] = [
    ([1, 23, 2, 45, 23, 16, 3, 2, 8, 16, 32], "ragged"),
    ([1, 19, 1, 72, 19, 72, 2, 3, 16, 24, 40], "several tiles of all rows"),
];

fn problems(op: &'static Op, dtype: DType, of: &[(Sizes, &'static str)]) -> Vec<Problem> {
    let made = |&(sizes, note): &(Sizes, &'static str)| {
        let [b, n, h, d, p, e, c, r, l, k, m] = sizes;
        let on = move |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims).note(note);
        [
            on(0, &[b, n, h, d, p, c, l, k]),
            on(1, &[b, h, c, p, d, k, m]),
            on(2, &[b, h, c, p, e, k, m, r]),
            on(2, &[b, h, c, p, e, k, m, r]).with_scalar("predicts", 0.0),
            on(3, &[b, h, c, p, d, k, r, e, m]),
            on(3, &[b, h, c, p, d, k, r, e, m]).with_scalar("at", (c - 1) as f32),
            on(4, &[b, n, h, d, c, l, k, r, m]),
            on(5, &[b, n, h, e, c, l, k, r, m]),
            on(6, &[b, h, r, l, e, n]),
            // Its chain takes rows of at most 64 elements, and targets without clusters run it in one tile.
            on(7, &[b, h, c, p, d.min(64), e.min(64), k, m.min(64), r]),
            on(7, &[b, h, c, p, d.min(64), e.min(64), k, m.min(64), r])
                .with_scalar("predicts", 0.0)
                .with_scalar("at", (c - 1) as f32),
        ]
    };
    of.iter().flat_map(made).collect()
}

fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let read = Given { problem: p, inputs };
    let (at, name) = (p.scalar("at") as usize, p.kernel.name);
    let of = match name {
        "omega_split_mixed" => mixed,
        "omega_mlp_split_hidden" => hidden,
        "omega_mlp_split_errors" => errors,
        "omega_mlp_split_train" => train,
        "omega_mlp_split_inner" => inner,
        "omega_mlp_split_outer" => outer,
        "omega_mlp_cluster_train" => super::cluster_cases::train,
        _ => return reads(&read, at),
    };
    let mut out: Vec<Vec<f64>> = Vec::new();
    for (b, h) in (0..p.dim("B")).flat_map(|b| (0..p.dim("H")).map(move |h| (b, h))) {
        let chunks = if name == "omega_split_mixed" { 0..p.dim("C") } else { at..at + 1 };
        for c in chunks {
            let made = of(&read, [b, h, c]);
            out.resize(made.len(), vec![]);
            out.iter_mut().zip(made).for_each(|(to, from)| to.extend(from));
        }
    }
    out
}

fn mixed(x: &Given<'_>, place: ChunkPlace) -> Vec<Vec<f64>> {
    let [l, k] = ["L", "K"].map(|dim| x.dim(dim));
    let first = x.oldest(place);
    let keys = x.alive("k", place, first);
    let queries = x.tokens("q", place, (place[2] * l) as i64, l);
    let psi = x.row("psi", place, l * k);
    let of = |i: usize| -dot(&queries[i / k], &keys[i % k]) * psi[i];
    vec![(0..l * k).map(of).collect(), vec![first as f64]]
}

/// Behind gelu and its slope: of the keys of a chunk at a matrix `[M, D]`.
fn rows_of(x: &Given<'_>, place: ChunkPlace, w: &[Vec<f64>]) -> [Vec<f64>; 2] {
    let keys = x.alive("k", place, x.oldest(place));
    let z: Vec<f64> = keys.iter().flat_map(|key| w.iter().map(|row| dot(key, row))).collect();
    [z.iter().map(|&z| gelu(z)).collect(), z.iter().map(|&z| gelu_slope(z)).collect()]
}

/// Of the first chunk, whichever one is trained on.
fn hidden(x: &Given<'_>, [b, h, _]: ChunkPlace) -> Vec<Vec<f64>> {
    let place = [b, h, 0];
    rows_of(x, place, &x.matrix("w2", place, [x.dim("M"), x.dim("D")])).to_vec()
}

fn errors(x: &Given<'_>, place: ChunkPlace) -> Vec<Vec<f64>> {
    let [k, e, m] = ["K", "E", "M"].map(|dim| x.dim(dim));
    let first = x.oldest(place);
    let (values, residuals) = (x.alive("v", place, first), x.alive("rk", place, first));
    let (act, w) = (x.matrix("rows", place, [k, m]), x.matrix("w1", place, [e, m]));
    let (scale, predicts) = (f64::from(x.problem.scalar("scale")), x.problem.scalar("predicts") > 0.0);
    let of = |i: usize| {
        let found = if predicts { residuals[i / e][i % e] + dot(&act[i / e], &w[i % e]) } else { 0.0 };
        scale * (found - values[i / e][i % e])
    };
    vec![x.to_keep(place[2], &(0..k * e).map(of).collect::<Vec<_>>())]
}

fn train(x: &Given<'_>, place @ [b, h, c]: ChunkPlace) -> Vec<Vec<f64>> {
    let [k, d, e, m, r] = ["K", "D", "E", "M", "R"].map(|dim| x.dim(dim));
    let keys = x.alive("k", place, x.oldest(place));
    let (error, act) = (x.kept("errors", [b, h, c % r], [k, e]), x.matrix("rows", place, [k, m]));
    let (slopes, w1) = (x.matrix("slopes", place, [k, m]), x.matrix("w1", place, [e, m]));
    let change = |i: usize| slopes[i / m][i % m] * dot(&error[i / m], &column(&w1, i % m));
    let change: Vec<f64> = (0..k * m).map(change).collect();
    let [w1, s1] = trained(x, place, ["w1", "s1"], [e, m], |row, col, weights| {
        (0..k).map(|j| weights[j] * error[j][row] * act[j][col]).sum()
    });
    let [w2, s2] = trained(x, place, ["w2", "s2"], [m, d], |row, col, weights| {
        (0..k).map(|j| weights[j] * change[j * m + row] * keys[j][col]).sum()
    });
    let before = [("w1", [e, m]), ("w2", [m, d]), ("s1", [e, m]), ("s2", [m, d])];
    let before = before.map(|(name, shape)| x.to_keep(c, &x.matrix(name, place, shape).concat()));
    let next = [b, h, (c + 1).min(x.dim("C") - 1)];
    let [rows, next_slopes] = rows_of(x, next, &w2.chunks(d).map(<[f64]>::to_vec).collect::<Vec<_>>());
    let kept = [x.to_keep(c, &act.concat()), x.to_keep(c, &change)];
    [rows, next_slopes, w1, w2, s1, s2].into_iter().chain(kept).chain(before).collect()
}

/// Places that belong to no chunk are not written.
fn inner(x: &Given<'_>, [b, h, at]: ChunkPlace) -> Vec<Vec<f64>> {
    let [l, k, d, m, chunks] = ["L", "K", "D", "M", "C"].map(|dim| x.dim(dim));
    let mut out = vec![];
    for slot in 0..x.dim("R") {
        let place = [b, h, at + slot];
        if place[2] >= chunks {
            out.extend(vec![f64::NAN; l * m]);
            continue;
        }
        let queries = x.tokens("q", place, (place[2] * l) as i64, l);
        let [w, s] = ["w2_before", "s2_before"].map(|name| x.kept(name, [b, h, slot], [m, d]));
        let [lam, old] = ["lam", "old"].map(|name| x.row(name, place, l));
        let (mixed, change) = (x.row("mixed", place, l * k), x.kept("change", [b, h, slot], [k, m]));
        out.extend((0..l * m).map(|i| {
            let (row, col) = (i / m, i % m);
            let own = lam[row] * dot(&queries[row], &w[col]) - old[row] * dot(&queries[row], &s[col]);
            gelu(own + dot(&mixed[row * k..][..k], &column(&change, col)))
        }));
    }
    vec![out]
}

/// A matrix and its momentum after a chunk, of what the weighed keys add to a place.
fn trained(
    x: &Given<'_>,
    place: ChunkPlace,
    names: [&str; 2],
    shape: [usize; 2],
    added: impl Fn(usize, usize, &[f64]) -> f64,
) -> [Vec<f64>; 2] {
    let k = x.dim("K");
    let [w, s] = names.map(|name| x.matrix(name, place, shape));
    let [lam, old, beta] = ["lam_end", "old_end", "beta_end"].map(|name| x.row(name, place, 1)[0]);
    let [psi, phi] = ["psi_end", "phi_end"].map(|name| x.row(name, place, k));
    let all = |of: &dyn Fn(usize, usize) -> f64| {
        (0..shape[0] * shape[1]).map(|i| of(i / shape[1], i % shape[1])).collect::<Vec<f64>>()
    };
    [all(&|i, j| lam * w[i][j] - old * s[i][j] - added(i, j, &psi)), all(&|i, j| beta * s[i][j] + added(i, j, &phi))]
}

/// Places that belong to no chunk are not written.
fn outer(x: &Given<'_>, [b, h, at]: ChunkPlace) -> Vec<Vec<f64>> {
    let [l, k, e, m, chunks] = ["L", "K", "E", "M", "C"].map(|dim| x.dim(dim));
    let mut out = vec![];
    for slot in 0..x.dim("R") {
        let (place, kept) = ([b, h, at + slot], [b, h, slot]);
        if place[2] >= chunks {
            out.extend(vec![f64::NAN; l * e]);
            continue;
        }
        let (error, act) = (x.kept("errors", kept, [k, e]), x.kept("act", kept, [k, m]));
        let hidden = x.kept("hidden", kept, [l, m]);
        let [w1, s1] = ["w1_before", "s1_before"].map(|name| x.kept(name, kept, [e, m]));
        let [lam, old] = ["lam", "old"].map(|name| x.row(name, place, l));
        let psi = x.row("psi", place, l * k);
        let residuals = x.tokens("rq", place, (place[2] * l) as i64, l);
        for i in 0..l {
            let met: Vec<f64> = (0..k).map(|j| -psi[i * k + j] * dot(&hidden[i], &act[j])).collect();
            out.extend((0..e).map(|j| {
                let own = lam[i] * dot(&hidden[i], &w1[j]) - old[i] * dot(&hidden[i], &s1[j]);
                residuals[i][j] + own + dot(&met, &column(&error, j))
            }));
        }
    }
    vec![out]
}

/// Tokens outside the chunks are not written.
fn reads(x: &Given<'_>, at: usize) -> Vec<Vec<f64>> {
    let [n, heads, l, e, r] = ["N", "H", "L", "E", "R"].map(|dim| x.dim(dim));
    let mut y = vec![f64::NAN; x.dim("B") * n * heads * e];
    for (b, h) in (0..x.dim("B")).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        for slot in 0..r {
            for (i, row) in x.kept("reads", [b, h, slot], [l, e]).into_iter().enumerate() {
                let token = (at + slot) * l + i;
                if token < n {
                    y[((b * n + token) * heads + h) * e..][..e].copy_from_slice(&row);
                }
            }
        }
    }
    vec![y]
}

/// Operations of one launch.
fn flops(p: &Problem) -> f64 {
    let of = |name: &str| p.dim(name) as f64;
    let heads = of("B") * of("H");
    let kept = || p.dim("R").min(p.dim("C").saturating_sub(p.scalar("at") as usize)) as f64;
    match p.kernel.name {
        "omega_split_mixed" => 2.0 * heads * of("C") * of("L") * of("K") * of("D"),
        "omega_mlp_split_hidden" => 2.0 * heads * of("M") * of("D") * of("K"),
        "omega_mlp_split_errors" => 2.0 * heads * of("M") * of("E") * of("K"),
        "omega_mlp_split_train" => 2.0 * heads * of("M") * of("K") * (3.0 * of("E") + 3.0 * of("D")),
        "omega_mlp_cluster_train" => 2.0 * heads * kept() * of("M") * of("K") * (4.0 * of("E") + 3.0 * of("D")),
        "omega_mlp_split_inner" => 2.0 * heads * kept() * of("M") * of("L") * (2.0 * of("D") + of("K")),
        "omega_mlp_split_outer" => {
            2.0 * heads * kept() * of("L") * (of("M") * (2.0 * of("E") + of("K")) + of("K") * of("E"))
        }
        _ => 0.0,
    }
}
