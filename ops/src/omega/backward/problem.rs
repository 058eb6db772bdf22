//! The kernels of the backward pass one by one: how their inputs are made, and what they should write.

use super::reference::{
    End, How, KeyFactors, MemoryState, Mixing, Norm, after, applied, hidden, keys, outward, products, read, rows,
    slopes,
};
use super::tape::{Matrix, Tape, Var};
use crate::omega::reference::SequenceSizes;
use crate::problem::{Fill, Inputs, Problem};
use atlas_dsl::def::ParamDef;
use std::collections::BTreeMap;

/// Fills of the inputs of all of the kernels. Gradients are as large as the rows that they belong to.
pub(crate) fn fill(p: &Problem, name: &str) -> Fill {
    let unit = |dim: &str| (p.dim(dim).max(1) as f64).powf(-0.5);
    match name {
        "w1_start" | "w2_start" | "w3_start" | "s1_start" | "s2_start" | "s3_start" | "w_start" | "s_start" => {
            crate::omega::problem::fill(p, name.trim_end_matches("_start"))
        }
        // Chunks of states follow each other as those of a forward pass do.
        "psi_end" | "phi_end" | "old_end" if p.kernel.name.ends_with("_states") => crate::omega::problem::fill(p, name),
        "w2" | "w3" => Fill::Normal(unit("D")),
        "errors" | "by_read" | "dv" | "drk" | "dy" | "dout" | "outer" | "dnorm_read" | "dnorm" => {
            Fill::Normal(unit("E"))
        }
        "by_key" | "dk" => Fill::Normal(unit("D")),
        "queries" | "factors" => Fill::Normal(unit("M")),
        "mixed" | "psi" | "psi_end" | "phi_end" | "old" | "old_end" => Fill::Normal(unit("K")),
        "dw1" | "ds1" => Fill::Normal(unit("E")),
        "dw2" | "ds2" | "dw3" | "ds3" | "dw" | "ds" => Fill::Normal(unit("D")),
        _ => crate::omega::problem::fill(p, name),
    }
}

/// The tensors of one head by name.
pub(super) type Head = BTreeMap<&'static str, Vec<f64>>;

/// Sizes of the axes of a tensor, and which of them counts sequences and which heads, if it has such an axis.
struct Axes {
    sizes: Vec<usize>,
    batch: [Option<usize>; 2],
}

impl Axes {
    fn of(p: &Problem, dims: &[usize]) -> Axes {
        let at = |name: &str| dims.iter().position(|&d| p.kernel.dims[d].name == name);
        Axes { sizes: dims.iter().map(|&d| p.dims[d] as usize).collect(), batch: [at("B"), at("H")] }
    }

    /// The row-major indices of the elements of a head, in their order.
    fn indices(&self, head: [usize; 2]) -> Vec<usize> {
        let count: usize = self.sizes.iter().product();
        let index = |at: usize, axis: usize| at / self.sizes[axis + 1..].iter().product::<usize>() % self.sizes[axis];
        (0..count).filter(|&at| (0..2).all(|i| self.batch[i].is_none_or(|axis| index(at, axis) == head[i]))).collect()
    }
}

/// What the kernel of a problem should write; `others` knows those that go from chunk to chunk.
pub(super) fn checked(p: &Problem, inputs: &Inputs, others: fn(&Problem, Head) -> Head) -> Vec<Vec<f64>> {
    let tensors: Vec<(&'static str, Axes)> = p
        .kernel
        .params
        .iter()
        .filter_map(|param| match param {
            ParamDef::Tensor { name, dims, .. } => Some((*name, Axes::of(p, dims))),
            ParamDef::Scalar { .. } => None,
        })
        .collect();
    let mut written: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    for head in (0..p.dim("B")).flat_map(|b| (0..p.dim("H")).map(move |h| [b, h])) {
        let mut given = Head::new();
        for (name, axes) in &tensors {
            let values = inputs.get(name);
            if !values.is_empty() {
                given.insert(*name, axes.indices(head).into_iter().map(|i| values[i]).collect());
            }
        }
        let found = match as_narrow(p.kernel.name).as_str() {
            "omega_mix_backward" => mixed(p, &given),
            "omega_key_backward" => key_backward(p, given),
            "omega_normed_read_backward" => norm_backward(p, &given),
            name if name.contains("_split_") => others(p, given),
            name if name.ends_with("_states") => states(p, &given),
            name if name.ends_with("_read_backward") => read_backward(p, &given),
            name if name.ends_with("_query_backward") => query_backward(p, &given),
            _ => others(p, given),
        };
        for (name, axes) in &tensors {
            let Some(values) = found.get(name) else { continue };
            let all = written.entry(*name).or_insert_with(|| vec![0.0; axes.sizes.iter().product()]);
            axes.indices(head).into_iter().zip(values).for_each(|(i, value)| all[i] = *value);
        }
    }
    let compared = tensors.iter().filter(|(name, _)| !p.op.scratch.contains(name));
    compared.filter_map(|(name, _)| written.remove(name)).collect()
}

/// The name of the kernel that computes the same with whole rows.
fn as_narrow(kernel: &str) -> String {
    kernel.replace("_wide_", "_")
}

/// Sizes of a problem. Those of chunks are scalars where no tensor has them.
pub(super) fn sizes(p: &Problem) -> SequenceSizes {
    let has = |name: &str| p.kernel.dims.iter().any(|d| d.name == name);
    let (p_tokens, k) = (p.dim(if has("P") { "P" } else { "N" }), p.dim("K"));
    let past = p.scalar("past") as usize;
    SequenceSizes {
        n: if has("N") { p.dim("N") } else { p_tokens - past },
        p: p_tokens,
        h: 1,
        d: p.dim("D"),
        e: p.dim("E"),
        m: if has("M") { p.dim("M") } else { 0 },
        l: if has("L") { p.dim("L") } else { p.scalar("chunk") as usize },
        w: p.dim("W"),
        k,
    }
}

/// The part of a head's tensor for chunk `c`, as rows of `cols`.
pub(super) fn chunk(head: &Head, name: &str, cols: usize, (c, chunks): (usize, usize)) -> Matrix {
    let all = &head[name];
    let len = all.len() / chunks;
    Matrix::new(cols, all[c * len..][..len].to_vec())
}

/// The rows of a head's tokens from `first` on, zeros where there are none.
pub(super) fn token_rows(head: &Head, name: &str, cols: usize, first: i64, count: usize) -> Matrix {
    let row = |i: usize| {
        let at = usize::try_from(first + i as i64).ok().map(|at| at * cols).filter(|&at| at < head[name].len());
        at.map_or(vec![0.0; cols], |at| head[name][at..][..cols].to_vec())
    };
    Matrix::new(cols, (0..count).flat_map(row).collect())
}

/// The first key of chunk `c`, which may come before the first token.
pub(super) fn oldest(s: &SequenceSizes, c: usize) -> i64 {
    (c * s.l + s.p - s.n + s.l) as i64 - s.k as i64
}

/// Names of the state's tensors and their columns.
pub(super) fn matrices(p: &Problem) -> Vec<(&'static str, usize)> {
    let [d, m] = ["D", "M"].map(|dim| p.dim(dim));
    match p.kernel.name {
        name if name.starts_with("omega_linear") => vec![("w", d), ("s", d)],
        name if name.starts_with("omega_gated") => {
            vec![("w1", m), ("w2", d), ("w3", d), ("s1", m), ("s2", d), ("s3", d)]
        }
        _ => vec![("w1", m), ("w2", d), ("s1", m), ("s2", d)],
    }
}

/// The name of a tensor's gradient.
pub(super) fn gradient(name: &str) -> &'static str {
    let all = ["dw", "ds", "dw1", "dw2", "dw3", "ds1", "ds2", "ds3"];
    all.into_iter().find(|of| of[1..] == *name).unwrap_or_default()
}

/// What the memory of a problem is trained for, with the norm inside it.
pub(super) fn how(p: &Problem, tape: &mut Tape, head: &Head) -> How {
    let weight = head.get("norm").map(|norm| tape.given(Matrix::new(norm.len(), norm.clone())));
    let norm = weight.map(|weight| Norm { weight, eps: p.scalar("eps").into() });
    How { scale: p.scalar("scale").into(), predicts: p.scalar("predicts") > 0.0, norm, by_chunk: false }
}

fn mixed(p: &Problem, head: &Head) -> Head {
    let (s, chunks) = (sizes(p), p.dim("C"));
    let (before, commit) = (p.scalar("before") > 0.0, p.scalar("commit") as usize);
    let mut out = Head::new();
    for c in 0..chunks {
        let mut tape = Tape::default();
        let gates = [("alpha", 1), ("theta", 1), ("eta", 1), ("gamma", s.w)]
            .map(|(name, cols)| tape.given(Matrix::new(cols, head[name].clone())));
        let rows = rows(&mut tape, &s, gates, c);
        let by = |name: &str, cols: usize| chunk(head, name, cols, (c, chunks));
        let mut weights = vec![];
        for (name, cols, rows, start) in [
            ("dpsi", s.k, &rows.psi, rows.start[0]),
            ("dlam", 1, &rows.lam, rows.start[1]),
            ("dold", 1, &rows.old, rows.start[2]),
        ] {
            let read = std::iter::repeat_n(&start, usize::from(before)).chain(rows).take(s.l);
            let by = by(name, cols);
            weights.extend(read.zip(by.values.chunks(cols)).map(|(row, by)| (*row, Matrix::new(cols, by.to_vec()))));
        }
        if c < commit {
            let ends = [
                ("dpsi_end", s.k, &rows.psi),
                ("dphi_end", s.k, &rows.phi),
                ("dlam_end", 1, &rows.lam),
                ("dold_end", 1, &rows.old),
                ("dbeta_end", 1, &rows.beta),
            ];
            weights.extend(ends.map(|(name, cols, rows)| (rows[s.l - 1], by(name, cols))));
        }
        let found = tape.gradients(&weights);
        for n in 0..s.l {
            let t = c * s.l + n;
            for (name, rows) in [
                ("phi_rows", &rows.phi),
                ("psi_rows", &rows.psi),
                ("beta_rows", &rows.beta),
                ("lam_rows", &rows.lam),
                ("old_rows", &rows.old),
            ] {
                out.entry(name).or_default().extend(&tape.value(rows[n]).values);
            }
            for (name, rows) in [("dphi_rows", &rows.phi), ("dpsi_rows", &rows.psi)] {
                let row = if t < s.n { found.by(&tape, rows[n]) } else { vec![0.0; s.k] };
                out.entry(name).or_default().extend(row);
            }
            for (name, gate, cols) in
                [("dalpha", gates[0], 1), ("dtheta", gates[1], 1), ("deta", gates[2], 1), ("dgamma", gates[3], s.w)]
            {
                let all = found.by(&tape, gate);
                let none = vec![0.0; cols];
                out.entry(name).or_default().extend(all.get(t * cols..(t + 1) * cols).unwrap_or(&none));
            }
        }
    }
    out
}

fn key_backward(p: &Problem, mut head: Head) -> Head {
    let (s, chunks) = (sizes(p), p.dim("C"));
    for (to, from, sign) in [("dk", "by_key", 1.0), ("dv", "by_read", -1.0), ("drk", "by_read", 1.0)] {
        let cols = if to == "dk" { s.d } else { s.e };
        // Residuals are part of what is predicted.
        let sign = if to == "drk" && p.scalar("predicts") <= 0.0 { 0.0 } else { sign };
        for c in 0..chunks {
            let part = chunk(&head, from, cols, (c, chunks)).values;
            let tokens = oldest(&s, c)..;
            for (token, row) in tokens.zip(part.chunks(cols)).filter(|(token, _)| (0..s.p as i64).contains(token)) {
                let to = head.get_mut(to).into_iter().flat_map(|all| &mut all[token as usize * cols..][..cols]);
                to.zip(row).for_each(|(to, by)| *to += sign * by);
            }
        }
    }
    head.retain(|name, _| ["dk", "dv", "drk"].contains(name));
    head
}

/// A chunk's mixing weights for its end.
pub(super) fn end(tape: &mut Tape, head: &Head, at: (usize, usize)) -> End {
    let mut of = |name: &str| tape.given(chunk(head, name, 1, at));
    End { lam: of("lam_end"), old: of("old_end"), beta: of("beta_end"), psi: of("psi_end"), phi: of("phi_end") }
}

fn states(p: &Problem, head: &Head) -> Head {
    let (s, chunks) = (sizes(p), p.dim("C"));
    let names = matrices(p);
    let mut tape = Tape::default();
    let start = |name: &str| head.get(format!("{name}_start").as_str()).cloned().unwrap_or_default();
    let given: Vec<Matrix> = names.iter().map(|&(name, cols)| Matrix::new(cols, start(name))).collect();
    let mut state = MemoryState::given(&mut tape, &given);
    let mut out = Head::new();
    for c in 0..chunks {
        for ((name, _), var) in names.iter().zip(state.all()) {
            out.entry(*name).or_default().extend(&tape.value(var).values);
        }
        let [k, v, rk] = [("k", s.d), ("v", s.e), ("rk", s.e)]
            .map(|(name, cols)| tape.given(token_rows(head, name, cols, oldest(&s, c), s.k)));
        let how = how(p, &mut tape, head);
        let keys = keys(&mut tape, &state.w, k, [v, rk], &how);
        let f = keys.factors;
        for (name, var) in [("made", keys.made), ("outer", keys.outer), ("errors", f.errors)] {
            out.entry(name).or_default().extend(&tape.value(var).values);
        }
        let end = end(&mut tape, head, (c, chunks));
        state = after(&mut tape, &state, &f, k, &end);
    }
    out
}

/// What a chunk is read by, on a tape.
struct Reading {
    tape: Tape,
    state: MemoryState,
    x: Var,
    xq: Var,
    by: Mixing,
    f: KeyFactors,
    dy: Matrix,
}

/// Chunk `c` of a problem. Gradients do not go on through the factors of keys. The keys themselves are what a linear memory is
/// applied to.
fn reading(p: &Problem, s: &SequenceSizes, head: &Head, at: (usize, usize), dy: &str) -> Reading {
    let (c, mut tape) = (at.0, Tape::default());
    let of_chunk: Vec<Matrix> = matrices(p).iter().map(|&(name, cols)| chunk(head, name, cols, at)).collect();
    let state = MemoryState::given(&mut tape, &of_chunk);
    let x = tape.given(token_rows(head, "k", s.d, oldest(s, c), s.k));
    let xq = tape.given(token_rows(head, "q", s.d, (c * s.l) as i64, s.l));
    let errors = tape.given(chunk(head, "errors", s.e, at));
    let [psi, lam, old] =
        [("psi", s.k), ("lam", 1), ("old", 1)].map(|(name, cols)| tape.given(chunk(head, name, cols, at)));
    let products = products(&mut tape, &state.w, x);
    let act = hidden(&mut tape, x, &products);
    let back = tape.dot(errors, state.w[0]);
    let deltas = slopes(&mut tape, &products).into_iter().map(|slope| tape.mul(back, slope)).collect::<Vec<_>>();
    let mut alone = |var: Var| {
        let value = tape.value(var).clone();
        tape.given(value)
    };
    let act = if deltas.is_empty() { x } else { alone(act) };
    let deltas = deltas.into_iter().map(&mut alone).collect();
    let dy = token_rows(head, dy, s.e, (c * s.l) as i64, s.l);
    Reading { tape, state, x, xq, by: Mixing { psi, lam, old }, f: KeyFactors { act, errors, deltas }, dy }
}

fn read_backward(p: &Problem, head: &Head) -> Head {
    let (s, chunks) = (sizes(p), p.dim("C"));
    let mut out = Head::new();
    for c in 0..chunks {
        let Reading { mut tape, state, x, xq, by, f, dy } = reading(p, &s, head, (c, chunks), "dy");
        let read = read(&mut tape, &state, &f, x, xq, &by);
        let found = tape.gradients(&[(read.made, dy)]);
        let mut all = vec![
            ("dq", found.by(&tape, xq)),
            ("by_key", found.by(&tape, x)),
            ("by_read", found.by(&tape, f.errors)),
            ("dpsi", found.by(&tape, by.psi)),
            ("dlam", found.by(&tape, by.lam)),
            ("dold", found.by(&tape, by.old)),
        ];
        if !f.deltas.is_empty() {
            let value = |var: Var| tape.value(var).values.clone();
            let mut queries = value(read.act);
            queries.extend(read.products.iter().flat_map(|&z| found.by(&tape, z)));
            let (act, deltas) = (value(f.act), f.deltas.iter().map(|&delta| value(delta)).collect());
            all.push(("queries", queries));
            all.push(("mixed", [value(read.mixed), found.by(&tape, read.met)].concat()));
            all.push(("factors", factors(&mut tape, &state.w, [x, f.errors], act, deltas)));
        }
        all.into_iter().for_each(|(name, values)| out.entry(name).or_default().extend(values));
    }
    out
}

/// What a chunk's keys give, in the order of the kernels: what is behind gelu, then of each matrix but the first the gradient
/// and the slope that it has, then the slopes of these slopes times what comes back from the errors.
fn factors(tape: &mut Tape, w: &[Var], [x, errors]: [Var; 2], act: Vec<f64>, deltas: Vec<Vec<f64>>) -> Vec<f64> {
    let products = products(tape, w, x);
    let slopes = slopes(tape, &products);
    let back = tape.dot(errors, w[0]);
    let bends = tape.gradients(&[(slopes[0], tape.value(back).clone())]);
    let bends = products.iter().map(|&z| bends.by(tape, z));
    let values = slopes.iter().map(|&slope| tape.value(slope).values.clone());
    let mut parts: Vec<Vec<f64>> = deltas.into_iter().zip(values).flat_map(|(delta, slope)| [delta, slope]).collect();
    parts.extend(bends);
    std::iter::once(act).chain(parts).flatten().collect()
}

/// Through the norm behind what is read.
fn norm_backward(p: &Problem, head: &Head) -> Head {
    let (s, chunks) = (sizes(p), p.dim("C"));
    let mut out = Head::new();
    for c in 0..chunks {
        let Reading { mut tape, state, x, xq, by, f, dy } = reading(p, &s, head, (c, chunks), "dout");
        let how = how(p, &mut tape, head);
        let read = read(&mut tape, &state, &f, x, xq, &by);
        let y = outward(&mut tape, read.made, how.norm);
        let found = tape.gradients(&[(y, dy)]);
        out.entry("dy_rows").or_default().extend(found.by(&tape, read.made));
        let weight = how.norm.map(|norm| found.by(&tape, norm.weight));
        out.entry("dnorm_read").or_default().extend(weight.unwrap_or_default());
    }
    out
}

/// The matrices that a chunk's tensor has one after the other.
pub(super) fn parts(head: &Head, name: &str, cols: usize, at: (usize, usize), count: usize) -> Vec<Matrix> {
    let all = chunk(head, name, cols, at).values;
    all.chunks(all.len() / count).map(|part| Matrix::new(cols, part.to_vec())).collect()
}

fn query_backward(p: &Problem, head: &Head) -> Head {
    let (s, chunks) = (sizes(p), p.dim("C"));
    let others = matrices(p).len() / 2 - 1;
    let mut out = Head::new();
    for c in 0..chunks {
        let (at, mut tape) = ((c, chunks), Tape::default());
        // The first matrix is not asked for here.
        let of_chunk = matrices(p).into_iter().map(|(name, cols)| match name {
            "w1" | "s1" => Matrix::new(s.m, vec![0.0; s.e * s.m]),
            _ => chunk(head, name, cols, at),
        });
        let state = MemoryState::given(&mut tape, &of_chunk.collect::<Vec<_>>());
        let x = tape.given(token_rows(head, "k", s.d, oldest(&s, c), s.k));
        let xq = tape.given(token_rows(head, "q", s.d, (c * s.l) as i64, s.l));
        let mut of = |name: &str, cols: usize| tape.given(chunk(head, name, cols, at));
        let errors = of("errors", s.e);
        let by = Mixing { psi: of("psi", s.k), lam: of("lam", 1), old: of("old", 1) };
        let f = given_factors(&mut tape, p, head, &s, at, [x, errors]);
        let mut queries = parts(head, "queries", s.m, at, 1 + others).into_iter();
        let hq = queries.next().map_or(xq, |hq| tape.given(hq));
        let y = applied(&mut tape, &state, 0, hq, [f.act, errors], &by).y;
        let mut weights = vec![(y, token_rows(head, "dy", s.e, (c * s.l) as i64, s.l))];
        for (i, (by_product, &delta)) in queries.zip(&f.deltas).enumerate() {
            weights.push((applied(&mut tape, &state, i + 1, xq, [x, delta], &by).y, by_product));
        }
        let found = tape.gradients(&weights);
        for (name, var) in [("dq", xq), ("by_key", x), ("by_read", errors), ("dpsi", by.psi)] {
            out.entry(name).or_default().extend(found.by(&tape, var));
        }
    }
    out
}

/// The parts of `factors`, in the order in which the function of that name gives them.
pub(super) struct FactorParts {
    pub(super) act: Matrix,
    /// Of each matrix but the first: its gradients and its slope.
    pub(super) each: Vec<[Matrix; 2]>,
    /// The slopes of the first slope times what comes back from the errors.
    pub(super) bends: Vec<Vec<f64>>,
}

impl FactorParts {
    pub(super) fn of(p: &Problem, head: &Head, s: &SequenceSizes, at: (usize, usize)) -> Option<FactorParts> {
        let others = matrices(p).len() / 2 - 1;
        let mut parts = (others > 0).then(|| parts(head, "factors", s.m, at, 1 + 3 * others))?.into_iter();
        let act = parts.next()?;
        let each = (0..others).filter_map(|_| Some([parts.next()?, parts.next()?])).collect();
        Some(FactorParts { act, each, bends: parts.map(|part| part.values).collect() })
    }
}

/// The factors of a chunk's keys as they are given to a kernel.
pub(super) fn given_factors(
    tape: &mut Tape,
    p: &Problem,
    head: &Head,
    s: &SequenceSizes,
    at: (usize, usize),
    [x, errors]: [Var; 2],
) -> KeyFactors {
    let Some(FactorParts { act, each, .. }) = FactorParts::of(p, head, s, at) else {
        return KeyFactors { act: x, errors, deltas: vec![] };
    };
    let deltas = each.into_iter().map(|[delta, _]| tape.given(delta)).collect();
    KeyFactors { act: tape.given(act), errors, deltas }
}

pub(super) fn times(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

pub(super) fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// Operations of a kernel.
pub(crate) fn flops(p: &Problem) -> f64 {
    let [b, h, c, r, q] = ["B", "H", "C", "R", "Q"].map(|dim| p.dim(dim) as f64);
    if p.kernel.name == "omega_step_backward" {
        return b * h * (50.0 * r * r * q + 30.0 * r * r * r);
    }
    b * h * c * flops_of_chunk(p.kernel.name, ["L", "K", "D", "E", "M"].map(|dim| p.dim(dim) as f64))
}

/// Operations of a kernel for one chunk of one head.
pub(super) fn flops_of_chunk(kernel: &str, [l, k, d, e, m]: [f64; 5]) -> f64 {
    let (width, both) = ((d + e) / 2.0, d + e);
    match as_narrow(kernel).as_str() {
        "omega_mix_backward" => 18.0 * l * k,
        "omega_key_backward" => k * (d + 2.0 * e),
        "omega_linear_states" => 6.0 * k * d * e,
        "omega_linear_read_backward" => 8.0 * l * d * e + 4.0 * l * k * both + 4.0 * l * k * d,
        "omega_linear_train_backward" => (12.0 * k + 4.0 * l) * d * e,
        "omega_mlp_states" => 16.0 * k * width * m,
        "omega_mlp_read_backward" => (4.0 * k + 8.0 * l) * width * m + 4.0 * l * k * m + 2.0 * l * k * both,
        "omega_mlp_query_backward" => 4.0 * l * width * m + 4.0 * l * k * m + 4.0 * l * k * e + 6.0 * l * k * d,
        // Another matrix is trained and read as the second one is, and its factors are two more.
        "omega_gated_states" => 22.0 * k * width * m,
        "omega_gated_read_backward" => (6.0 * k + 12.0 * l) * width * m + 6.0 * l * k * m + 2.0 * l * k * both,
        "omega_gated_query_backward" => 8.0 * l * width * m + 6.0 * l * k * m + 4.0 * l * k * e + 6.0 * l * k * d,
        "omega_gated_train_backward" => (40.0 * k + 12.0 * l) * width * m + 6.0 * l * k * m,
        "omega_normed_states" => 16.0 * k * width * m,
        "omega_normed_read_backward" => (4.0 * k + 8.0 * l) * width * m + 4.0 * l * k * m + 2.0 * l * k * both,
        "omega_mlp_train_backward" | "omega_normed_train_backward" => {
            (28.0 * k + 8.0 * l) * width * m + 4.0 * l * k * m
        }
        _ => 0.0,
    }
}
