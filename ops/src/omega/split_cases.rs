//! The kernels whose passes over a chunk are launches, one by one: their row of the table, references and problems.

use crate::memory::{gelu, gelu_slope};
use crate::problem::{Fill, Inputs, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use atlas_dsl::DType;

pub(crate) const OMEGA_SPLIT: Op = Op {
    scalars: &[("scale", 2.0), ("predicts", 1.0), ("at", 1.0)],
    state: &["w1", "w2", "s1", "s2"],
    fill: |p, name| match name {
        // Of chunk 1 of every sequence and head, the first key is another token, of some none.
        "oldest" => Fill::Every(3, 0),
        "errors" | "inner" | "hidden" | "slopes" | "act" => Fill::Normal(0.5),
        "mixed" => Fill::Normal(0.3 / p.dim("K") as f64),
        name => super::problem::fill(p, name),
    },
    ..Op::of(Required {
        name: "omega_split",
        kernels: const {
            &[
                &super::omega_split_mixed,
                &super::omega_mlp_split_hidden,
                &super::omega_mlp_split_errors,
                &super::omega_mlp_split_inner,
                &super::omega_mlp_split_outer,
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
            Measured::bf16("omega_mlp_split_hidden", "omega_mlp_split_hidden", &[1, 128, 16, 64, 128, 2, 64, 80, 256]),
            Measured::bf16("omega_mlp_split_errors", "omega_mlp_split_errors", &[1, 16, 2, 128, 64, 80, 256]),
            Measured::bf16("omega_mlp_split_inner", "omega_mlp_split_inner", &[1, 16, 2, 128, 64, 80, 64, 64, 256]),
            Measured::bf16("omega_mlp_split_outer", "omega_mlp_split_outer", &[1, 128, 16, 64, 2, 64, 80, 256]),
        ],
    })
};

/// Sizes of a problem: B, N, H, D, P, E, C, L, K, M.
type Sizes = [u64; 10];

const VERIFICATION: [(Sizes, &str); 5] = [
    ([2, 23, 2, 16, 23, 24, 3, 8, 16, 40], "ragged"),
    ([1, 37, 1, 72, 45, 136, 2, 32, 40, 70], "several tiles of all rows; keys before the first chunk"),
    ([1, 3, 2, 153, 3, 24, 3, 1, 8, 40], "chunks of one token"),
    ([1, 70, 2, 64, 70, 64, 2, 64, 80, 256], "a short last chunk"),
    ([1, 9, 1, 1, 9, 1, 2, 8, 8, 1], "rows of one element"),
];

const SIMULATION: [(Sizes, &str); 2] = [
    ([1, 23, 2, 45, 23, 16, 3, 8, 16, 32], "ragged"),
    ([1, 19, 1, 72, 19, 72, 2, 16, 24, 40], "several tiles of all rows"),
];

fn problems(op: &'static Op, dtype: DType, of: &[(Sizes, &'static str)]) -> Vec<Problem> {
    let made = |&(sizes, note): &(Sizes, &'static str)| {
        let [b, n, h, d, p, e, c, l, k, m] = sizes;
        let on = move |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims).note(note);
        [
            on(0, &[b, n, h, d, p, c, l, k]),
            on(1, &[b, n, h, d, p, c, l, k, m]),
            on(2, &[b, h, c, p, e, k, m]),
            on(2, &[b, h, c, p, e, k, m]).with_scalar("predicts", 0.0),
            on(3, &[b, h, c, p, d, k, l, e, m]),
            on(4, &[b, n, h, e, c, l, k, m]),
        ]
    };
    of.iter().flat_map(made).collect()
}

/// The inputs of a problem, and its sizes by name.
struct Given<'p> {
    problem: &'p Problem,
    inputs: &'p Inputs,
}

/// A sequence, a head and a chunk.
type ChunkPlace = [usize; 3];

/// One row for each key or token.
type RowsOfChunk = Vec<Vec<f64>>;

impl Given<'_> {
    fn dim(&self, name: &str) -> usize {
        self.problem.dim(name)
    }

    /// Rows of tokens `[B, tokens, H, width]` from one on; zeros where there is no token.
    fn tokens(&self, name: &str, [b, h, _]: ChunkPlace, first: i64, rows: usize) -> RowsOfChunk {
        let x = self.inputs.get(name);
        let heads = self.dim("H");
        let tokens = self.dim(if ["q", "rq"].contains(&name) { "N" } else { "P" });
        let width = x.len() / (self.dim("B") * tokens * heads).max(1);
        let row = |t: i64| match usize::try_from(t) {
            Ok(t) if t < tokens => x[((b * tokens + t) * heads + h) * width..][..width].to_vec(),
            _ => vec![0.0; width],
        };
        (first..first + rows as i64).map(row).collect()
    }

    /// A row `[B, H, C, len]`, of one number if the tensor has no such axis.
    fn row(&self, name: &str, [b, h, c]: ChunkPlace, len: usize) -> Vec<f64> {
        let at = (b * self.dim("H") + h) * self.dim("C") + c;
        self.inputs.get(name)[at * len..][..len].to_vec()
    }

    /// A matrix `[B, H, rows, width]`.
    fn matrix(&self, name: &str, [b, h, _]: ChunkPlace, [rows, width]: [usize; 2]) -> RowsOfChunk {
        let at = (b * self.dim("H") + h) * rows * width;
        self.inputs.get(name)[at..][..rows * width].chunks(width).map(<[f64]>::to_vec).collect()
    }

    /// The keys of a chunk that some token weighs, or their values; zeros for the others.
    fn alive(&self, name: &str, place: ChunkPlace, first: i64) -> RowsOfChunk {
        let k = self.dim("K");
        let live = self.row("live", place, k);
        let mut rows = self.tokens(name, place, first, k);
        rows.iter_mut().zip(live).filter(|(_, live)| *live <= 0.0).for_each(|(row, _)| row.fill(0.0));
        rows
    }

    /// The first key of a chunk.
    fn oldest(&self, place: ChunkPlace) -> i64 {
        match self.problem.kernel.name {
            "omega_mlp_split_errors" | "omega_mlp_split_inner" => self.row("oldest", place, 1)[0] as i64,
            _ => {
                let [n, p, l, k] = ["N", "P", "L", "K"].map(|dim| self.dim(dim) as i64);
                place[2] as i64 * l + p - n + l - k
            }
        }
    }
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn column(m: &RowsOfChunk, i: usize) -> Vec<f64> {
    m.iter().map(|row| row[i]).collect()
}

fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let read = Given { problem: p, inputs };
    let (at, name) = (p.scalar("at") as usize, p.kernel.name);
    let of = match name {
        "omega_split_mixed" => mixed,
        "omega_mlp_split_hidden" => hidden,
        "omega_mlp_split_errors" => errors,
        "omega_mlp_split_inner" => inner,
        _ => return outer(&read, at),
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

fn hidden(x: &Given<'_>, place: ChunkPlace) -> Vec<Vec<f64>> {
    let [l, d, m] = ["L", "D", "M"].map(|dim| x.dim(dim));
    let keys = x.alive("k", place, x.oldest(place));
    let queries = x.tokens("q", place, (place[2] * l) as i64, l);
    let [w, s] = ["w2", "s2"].map(|name| x.matrix(name, place, [m, d]));
    let [lam, old] = ["lam", "old"].map(|name| x.row(name, place, l));
    let z: Vec<f64> = keys.iter().flat_map(|key| w.iter().map(|row| dot(key, row))).collect();
    let of = |i: usize| lam[i / m] * dot(&queries[i / m], &w[i % m]) - old[i / m] * dot(&queries[i / m], &s[i % m]);
    let (act, slopes) = (z.iter().map(|&z| gelu(z)).collect(), z.iter().map(|&z| gelu_slope(z)).collect());
    vec![act, slopes, (0..l * m).map(of).collect()]
}

fn errors(x: &Given<'_>, place: ChunkPlace) -> Vec<Vec<f64>> {
    let [k, e, m] = ["K", "E", "M"].map(|dim| x.dim(dim));
    let first = x.oldest(place);
    let (values, residuals) = (x.alive("v", place, first), x.alive("rk", place, first));
    let (act, w) = (x.matrix("act", place, [k, m]), x.matrix("w1", place, [e, m]));
    let (scale, predicts) = (f64::from(x.problem.scalar("scale")), x.problem.scalar("predicts") > 0.0);
    let of = |i: usize| {
        let found = if predicts { residuals[i / e][i % e] + dot(&act[i / e], &w[i % e]) } else { 0.0 };
        scale * (found - values[i / e][i % e])
    };
    vec![(0..k * e).map(of).collect()]
}

fn inner(x: &Given<'_>, place: ChunkPlace) -> Vec<Vec<f64>> {
    let [l, k, d, e, m] = ["L", "K", "D", "E", "M"].map(|dim| x.dim(dim));
    let keys = x.alive("k", place, x.oldest(place));
    let (error, slopes) = (x.matrix("errors", place, [k, e]), x.matrix("slopes", place, [k, m]));
    let (w1, queries) = (x.matrix("w1", place, [e, m]), x.matrix("inner", place, [l, m]));
    let change = |i: usize| slopes[i / m][i % m] * dot(&error[i / m], &column(&w1, i % m));
    let change: Vec<f64> = (0..k * m).map(change).collect();
    let change: RowsOfChunk = change.chunks(m).map(<[f64]>::to_vec).collect();
    let mixed = x.row("mixed", place, l * k);
    let of = |i: usize| gelu(queries[i / m][i % m] + dot(&mixed[i / m * k..][..k], &column(&change, i % m)));
    let read: Vec<f64> = (0..l * m).map(of).collect();
    let [w, s] = trained(x, place, ["w2", "s2"], [m, d], |row, col, weights| {
        (0..k).map(|j| weights[j] * change[j][row] * keys[j][col]).sum()
    });
    vec![w, s, read]
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

/// Tokens outside the chunk are not written.
fn outer(x: &Given<'_>, at: usize) -> Vec<Vec<f64>> {
    let [n, heads, l, k, e, m] = ["N", "H", "L", "K", "E", "M"].map(|dim| x.dim(dim));
    let mut out = vec![vec![], vec![], vec![f64::NAN; x.dim("B") * n * heads * e]];
    for (b, h) in (0..x.dim("B")).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        let place = [b, h, at];
        let (error, act) = (x.matrix("errors", place, [k, e]), x.matrix("act", place, [k, m]));
        let hidden = x.matrix("hidden", place, [l, m]);
        let [w1, s1] = ["w1", "s1"].map(|name| x.matrix(name, place, [e, m]));
        let [lam, old] = ["lam", "old"].map(|name| x.row(name, place, l));
        let psi = x.row("psi", place, l * k);
        let residuals = x.tokens("rq", place, (at * l) as i64, l);
        for i in (0..l).filter(|i| at * l + i < n) {
            let met: Vec<f64> = (0..k).map(|j| -psi[i * k + j] * dot(&hidden[i], &act[j])).collect();
            for j in 0..e {
                let own = lam[i] * dot(&hidden[i], &w1[j]) - old[i] * dot(&hidden[i], &s1[j]);
                let found = residuals[i][j] + own + dot(&met, &column(&error, j));
                out[2][((b * n + at * l + i) * heads + h) * e + j] = found;
            }
        }
        let [w, s] = trained(x, place, ["w1", "s1"], [e, m], |row, col, weights| {
            (0..k).map(|j| weights[j] * error[j][row] * act[j][col]).sum()
        });
        out[0].extend(w);
        out[1].extend(s);
    }
    out
}

/// Operations of one launch.
fn flops(p: &Problem) -> f64 {
    let of = |name: &str| p.dim(name) as f64;
    let heads = of("B") * of("H");
    match p.kernel.name {
        "omega_split_mixed" => 2.0 * heads * of("C") * of("L") * of("K") * of("D"),
        "omega_mlp_split_hidden" => 2.0 * heads * of("M") * of("D") * (of("K") + 2.0 * of("L")),
        "omega_mlp_split_errors" => 2.0 * heads * of("M") * of("E") * of("K"),
        "omega_mlp_split_inner" => 2.0 * heads * of("M") * of("K") * (of("E") + of("L") + 2.0 * of("D")),
        _ => {
            2.0 * heads
                * (of("M") * (of("E") * (2.0 * of("L") + 2.0 * of("K")) + of("L") * of("K"))
                    + of("L") * of("K") * of("E"))
        }
    }
}
