//! The kernels of the backward pass one by one: how their inputs are made, and what they should write.

use super::reference::{End, KeyFactors, MemoryState, Mixing, Weights, after, applied, factors, hidden, read, rows};
use super::tape::{Matrix, Tape, Var};
use crate::omega::reference::SequenceSizes;
use crate::problem::{Fill, Inputs, Problem};
use atlas_dsl::def::ParamDef;
use std::collections::BTreeMap;

/// Fills of the inputs of all of the kernels. Gradients are as large as the rows that they belong to.
pub(crate) fn fill(p: &Problem, name: &str) -> Fill {
    let unit = |dim: &str| (p.dim(dim).max(1) as f64).powf(-0.5);
    match name {
        "w1_start" | "w2_start" | "s1_start" | "s2_start" | "w_start" | "s_start" => {
            crate::omega::problem::fill(p, name.trim_end_matches("_start"))
        }
        "w2" => Fill::Normal(unit("D")),
        "errors" | "by_read" | "dv" | "drk" | "dy" => Fill::Normal(unit("E")),
        "by_key" | "dk" => Fill::Normal(unit("D")),
        "queries" | "factors" => Fill::Normal(unit("M")),
        "mixed" | "psi" | "psi_end" | "phi_end" | "old" | "old_end" => Fill::Normal(unit("K")),
        "dw1" | "ds1" => Fill::Normal(unit("E")),
        "dw2" | "ds2" | "dw" | "ds" => Fill::Normal(unit("D")),
        _ => crate::omega::problem::fill(p, name),
    }
}

/// The tensors of one head by name.
type Head = BTreeMap<&'static str, Vec<f64>>;

/// Sizes of the axes of a tensor, and which of them counts sequences and which heads.
struct Axes {
    sizes: Vec<usize>,
    batch: [usize; 2],
}

impl Axes {
    fn of(p: &Problem, dims: &[usize]) -> Axes {
        let at = |name: &str| dims.iter().position(|&d| p.kernel.dims[d].name == name).unwrap_or(0);
        Axes { sizes: dims.iter().map(|&d| p.dims[d] as usize).collect(), batch: [at("B"), at("H")] }
    }

    /// The row-major indices of the elements of a head, in their order.
    fn indices(&self, head: [usize; 2]) -> Vec<usize> {
        let count: usize = self.sizes.iter().product();
        let index = |at: usize, axis: usize| at / self.sizes[axis + 1..].iter().product::<usize>() % self.sizes[axis];
        (0..count).filter(|&at| (0..2).all(|i| index(at, self.batch[i]) == head[i])).collect()
    }
}

/// What the kernel of a problem should write.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
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
        let found = match p.kernel.name {
            "omega_mix_backward" => mixed(p, &given),
            "omega_key_backward" => key_backward(p, given),
            "omega_linear_states" | "omega_mlp_states" => states(p, &given),
            "omega_linear_read_backward" | "omega_mlp_read_backward" => read_backward(p, &given),
            "omega_mlp_query_backward" => query_backward(p, &given),
            _ => train_backward(p, given),
        };
        for (name, axes) in &tensors {
            let Some(values) = found.get(name) else { continue };
            let all = written.entry(*name).or_insert_with(|| vec![0.0; axes.sizes.iter().product()]);
            axes.indices(head).into_iter().zip(values).for_each(|(i, value)| all[i] = *value);
        }
    }
    tensors.iter().filter_map(|(name, _)| written.remove(name)).collect()
}

/// Sizes of a problem. Those of chunks are scalars where no tensor has them.
fn sizes(p: &Problem) -> SequenceSizes {
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
fn chunk(head: &Head, name: &str, cols: usize, (c, chunks): (usize, usize)) -> Matrix {
    let all = &head[name];
    let len = all.len() / chunks;
    Matrix::new(cols, all[c * len..][..len].to_vec())
}

/// The rows of a head's tokens from `first` on, zeros where there are none.
fn token_rows(head: &Head, name: &str, cols: usize, first: i64, count: usize) -> Matrix {
    let row = |i: usize| {
        let at = usize::try_from(first + i as i64).ok().map(|at| at * cols).filter(|&at| at < head[name].len());
        at.map_or(vec![0.0; cols], |at| head[name][at..][..cols].to_vec())
    };
    Matrix::new(cols, (0..count).flat_map(row).collect())
}

/// The first key of chunk `c`, which may come before the first token.
fn oldest(s: &SequenceSizes, c: usize) -> i64 {
    (c * s.l + s.p - s.n + s.l) as i64 - s.k as i64
}

/// Names of the state's tensors and their columns.
fn matrices(s: &SequenceSizes) -> Vec<(&'static str, usize)> {
    if s.m == 0 { vec![("w", s.d), ("s", s.d)] } else { vec![("w1", s.m), ("w2", s.d), ("s1", s.m), ("s2", s.d)] }
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
fn end(tape: &mut Tape, head: &Head, at: (usize, usize)) -> End {
    let mut of = |name: &str| tape.given(chunk(head, name, 1, at));
    End { lam: of("lam_end"), old: of("old_end"), beta: of("beta_end"), psi: of("psi_end"), phi: of("phi_end") }
}

fn states(p: &Problem, head: &Head) -> Head {
    let (s, chunks) = (sizes(p), p.dim("C"));
    let names = matrices(&s);
    let mut tape = Tape::default();
    let starts = [
        ("w", "w_start"),
        ("s", "s_start"),
        ("w1", "w1_start"),
        ("w2", "w2_start"),
        ("s1", "s1_start"),
        ("s2", "s2_start"),
    ];
    let start = |name: &str| starts.iter().find(|(of, _)| *of == name).map_or("", |(_, start)| start);
    let given: Vec<Matrix> = names.iter().map(|&(name, cols)| Matrix::new(cols, head[start(name)].clone())).collect();
    let mut state = MemoryState::given(&mut tape, &given);
    let mut out = Head::new();
    for c in 0..chunks {
        for ((name, _), var) in names.iter().zip(state.all()) {
            out.entry(*name).or_default().extend(&tape.value(var).values);
        }
        let [k, v, rk] = [("k", s.d), ("v", s.e), ("rk", s.e)]
            .map(|(name, cols)| tape.given(token_rows(head, name, cols, oldest(&s, c), s.k)));
        let off = tape.sub(rk, v);
        let f = factors(&mut tape, &state.w, k, off, f64::from(p.scalar("scale")));
        out.entry("errors").or_default().extend(&tape.value(f.errors).values);
        let end = end(&mut tape, head, (c, chunks));
        state = after(&mut tape, &state, &f, k, &end);
    }
    out
}

/// KeyFactors of a chunk's keys whose errors are given. Gradients do not go on through them.
fn given_factors(tape: &mut Tape, w: &Weights, x: Var, errors: Var) -> KeyFactors {
    let (act, z) = hidden(tape, w, x);
    let delta = z.map(|z| {
        let (back, slope) = (tape.dot(errors, w[0]), tape.gelu_slope(z));
        tape.mul(back, slope)
    });
    let mut alone = |var: Var| {
        let value = tape.value(var).clone();
        tape.given(value)
    };
    // The keys themselves are what a linear memory is applied to.
    KeyFactors { act: if z.is_some() { alone(act) } else { act }, errors, delta: delta.map(&mut alone) }
}

fn read_backward(p: &Problem, head: &Head) -> Head {
    let (s, chunks) = (sizes(p), p.dim("C"));
    let mut out = Head::new();
    for c in 0..chunks {
        let (at, mut tape) = ((c, chunks), Tape::default());
        let of_chunk: Vec<Matrix> = matrices(&s).iter().map(|&(name, cols)| chunk(head, name, cols, at)).collect();
        let state = MemoryState::given(&mut tape, &of_chunk);
        let x = tape.given(token_rows(head, "k", s.d, oldest(&s, c), s.k));
        let xq = tape.given(token_rows(head, "q", s.d, (c * s.l) as i64, s.l));
        let errors = tape.given(chunk(head, "errors", s.e, at));
        let [psi, lam, old] =
            [("psi", s.k), ("lam", 1), ("old", 1)].map(|(name, cols)| tape.given(chunk(head, name, cols, at)));
        let f = given_factors(&mut tape, &state.w, x, errors);
        let read = read(&mut tape, &state, &f, x, xq, &Mixing { psi, lam, old });
        let found = tape.gradients(&[(read.y, token_rows(head, "dy", s.e, (c * s.l) as i64, s.l))]);
        let mut all = vec![
            ("dq", found.by(&tape, xq)),
            ("by_key", found.by(&tape, x)),
            ("by_read", found.by(&tape, errors)),
            ("dpsi", found.by(&tape, psi)),
            ("dlam", found.by(&tape, lam)),
            ("dold", found.by(&tape, old)),
        ];
        if let (Some([zq, hq]), Some(delta)) = (read.hidden, f.delta) {
            let [slope, bend] = slopes(&mut tape, &state.w, x, errors);
            let [act, delta] = [f.act, delta].map(|var| tape.value(var).values.clone());
            all.push(("factors", [act, delta, slope, bend].concat()));
            all.push(("queries", [tape.value(hq).values.clone(), found.by(&tape, zq)].concat()));
            all.push(("mixed", [tape.value(read.mixed).values.clone(), found.by(&tape, read.met)].concat()));
        }
        all.into_iter().for_each(|(name, values)| out.entry(name).or_default().extend(values));
    }
    out
}

/// The slope of gelu at what keys give before it, and its slope in turn times what comes back from the errors.
fn slopes(tape: &mut Tape, w: &Weights, x: Var, errors: Var) -> [Vec<f64>; 2] {
    let z = tape.dot_turned(x, w[1]);
    let (slope, back) = (tape.gelu_slope(z), tape.dot(errors, w[0]));
    let bend = tape.gradients(&[(slope, tape.value(back).clone())]).by(tape, z);
    [tape.value(slope).values.clone(), bend]
}

/// The matrices that a chunk's tensor has one after the other.
fn parts<const COUNT: usize>(head: &Head, name: &str, cols: usize, at: (usize, usize)) -> [Matrix; COUNT] {
    let all = chunk(head, name, cols, at).values;
    let len = all.len() / COUNT;
    std::array::from_fn(|i| Matrix::new(cols, all[i * len..][..len].to_vec()))
}

fn query_backward(p: &Problem, head: &Head) -> Head {
    let (s, chunks) = (sizes(p), p.dim("C"));
    let mut out = Head::new();
    for c in 0..chunks {
        let (at, mut tape) = ((c, chunks), Tape::default());
        let nothing = Matrix::new(s.m, vec![0.0; s.e * s.m]);
        let [w2, s2] = ["w2", "s2"].map(|name| chunk(head, name, s.d, at));
        let state = MemoryState::given(&mut tape, &[nothing.clone(), w2, nothing, s2]);
        let x = tape.given(token_rows(head, "k", s.d, oldest(&s, c), s.k));
        let xq = tape.given(token_rows(head, "q", s.d, (c * s.l) as i64, s.l));
        let mut of = |name: &str, cols: usize| tape.given(chunk(head, name, cols, at));
        let errors = of("errors", s.e);
        let by = Mixing { psi: of("psi", s.k), lam: of("lam", 1), old: of("old", 1) };
        let [act, delta, _, _] = parts(head, "factors", s.m, at).map(|part| tape.given(part));
        let [hq, dzq] = parts(head, "queries", s.m, at);
        let hq = tape.given(hq);
        let zq = applied(&mut tape, &state, 1, xq, [x, delta], &by).y;
        let y = applied(&mut tape, &state, 0, hq, [act, errors], &by).y;
        let dy = token_rows(head, "dy", s.e, (c * s.l) as i64, s.l);
        let found = tape.gradients(&[(y, dy), (zq, dzq)]);
        for (name, var) in [("dq", xq), ("by_key", x), ("by_read", errors), ("dpsi", by.psi)] {
            out.entry(name).or_default().extend(found.by(&tape, var));
        }
    }
    out
}

fn train_backward(p: &Problem, mut head: Head) -> Head {
    let (s, chunks, scale) = (sizes(p), p.dim("C"), f64::from(p.scalar("scale")));
    let names = matrices(&s);
    let gradients = [("w", "dw"), ("s", "ds"), ("w1", "dw1"), ("w2", "dw2"), ("s1", "ds1"), ("s2", "ds2")];
    let gradient = |name: &str| gradients.iter().find(|(of, _)| *of == name).map_or("", |(_, by)| by);
    let ends = ["dpsi_end", "dphi_end", "dlam_end", "dold_end", "dbeta_end"];
    let mut of_ends: BTreeMap<&'static str, Vec<Vec<f64>>> = BTreeMap::new();
    for c in (0..chunks).rev() {
        let (at, mut tape) = ((c, chunks), Tape::default());
        let of_chunk: Vec<Matrix> = names.iter().map(|&(name, cols)| chunk(&head, name, cols, at)).collect();
        let state = MemoryState::given(&mut tape, &of_chunk);
        let x = tape.given(token_rows(&head, "k", s.d, oldest(&s, c), s.k));
        let errors = tape.given(chunk(&head, "errors", s.e, at));
        let given = (s.m > 0).then(|| parts(&head, "factors", s.m, at));
        let mut of = |i: usize| given.as_ref().map(|given: &[Matrix; 4]| tape.given(given[i].clone()));
        let (act, delta) = (of(0).unwrap_or(x), of(1));
        let f = KeyFactors { act, errors, delta };
        let end = end(&mut tape, &head, at);
        let next = after(&mut tape, &state, &f, x, &end);
        // What comes from later chunks and from reading this one, then what goes on through the factors.
        let mut weights: Vec<(Var, Matrix)> = names
            .iter()
            .zip(next.all())
            .map(|(&(name, cols), var)| (var, Matrix::new(cols, head[gradient(name)].clone())))
            .collect();
        weights.extend(of_reading(&head, &s, at, &state, &f, x));
        let mut dz = None;
        if let (Some(delta), Some([_, _, slope, bend])) = (delta, given) {
            let by_delta = tape.gradients(&weights).by(&tape, delta);
            let [slope, bend] = [slope.values, bend.values];
            let times = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).collect::<Vec<f64>>();
            let back = tape.dot(errors, state.w[0]);
            let by_back = times(&slope, &by_delta);
            head.insert("dback", by_back.clone());
            weights.push((back, Matrix::new(s.m, by_back)));
            let by_act = tape.gradients(&weights).by(&tape, act);
            let sum = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(&b).map(|(a, b)| a + b).collect::<Vec<f64>>();
            dz = Some((sum(times(&bend, &by_delta), times(&slope, &by_act)), slope));
        }
        let by_read: Vec<f64> = tape.gradients(&weights).by(&tape, errors).iter().map(|by| scale * by).collect();
        let product = tape.dot_turned(act, state.w[0]);
        weights.push((product, Matrix::new(s.e, by_read.clone())));
        if let Some((mut dz, slope)) = dz {
            head.insert("dz", dz.clone());
            let by_product = tape.gradients(&weights[weights.len() - 1..]).by(&tape, act);
            dz.iter_mut().zip(slope.iter().zip(&by_product)).for_each(|(dz, (slope, by))| *dz += slope * by);
            let z = tape.dot_turned(x, state.w[1]);
            weights.push((z, Matrix::new(s.m, dz)));
        }
        let found = tape.gradients(&weights);
        for ((name, _), var) in names.iter().zip(state.all()) {
            head.insert(gradient(name), found.by(&tape, var));
        }
        for (name, values) in [("by_key", found.by(&tape, x)), ("by_read", by_read)] {
            of_ends.entry(name).or_default().insert(0, values);
        }
        for (name, var) in ends.into_iter().zip([end.psi, end.phi, end.lam, end.old, end.beta]) {
            of_ends.entry(name).or_default().insert(0, found.by(&tape, var));
        }
    }
    let written = names.iter().map(|(name, _)| gradient(name)).chain(["dz", "dback"]);
    let mut out: Head = written.filter_map(|name| Some((name, head.remove(name)?))).collect();
    out.extend(of_ends.into_iter().map(|(name, parts)| (name, parts.concat())));
    out
}

/// What reading the chunk adds to the gradients of its factors and of the state: each as a result and its weights.
fn of_reading(
    head: &Head,
    s: &SequenceSizes,
    at: (usize, usize),
    state: &MemoryState,
    f: &KeyFactors,
    x: Var,
) -> Vec<(Var, Matrix)> {
    let mut tape = Tape::default();
    let first = (at.0 * s.l) as i64;
    let mut given = |value: Matrix| tape.given(value);
    let [lam, old] = ["lam", "old"].map(|name| given(chunk(head, name, 1, at)));
    let (dy, xq) = (given(token_rows(head, "dy", s.e, first, s.l)), given(token_rows(head, "q", s.d, first, s.l)));
    // Of `rows^T`, weighted by token, and `columns`.
    let outer = |weight: Var, sign: f64, rows: Var, columns: Var, tape: &mut Tape| {
        let weighted = tape.mul(rows, weight);
        let weighted = tape.scale(weighted, sign);
        let product = tape.turned_dot(weighted, columns);
        tape.value(product).clone()
    };
    let mut all = vec![(f.errors, chunk(head, "by_read", s.e, at)), (x, chunk(head, "by_key", s.d, at))];
    let Some(delta) = f.delta else {
        all.push((state.w[0], outer(lam, 1.0, dy, xq, &mut tape)));
        all.push((state.s[0], outer(old, -1.0, dy, xq, &mut tape)));
        return all;
    };
    let [hq, dzq] = parts(head, "queries", s.m, at).map(|part| tape.given(part));
    let [mixed, dmet] = parts(head, "mixed", s.k, at).map(|part| tape.given(part));
    all.push((state.w[0], outer(lam, 1.0, dy, hq, &mut tape)));
    all.push((state.s[0], outer(old, -1.0, dy, hq, &mut tape)));
    all.push((state.w[1], outer(lam, 1.0, dzq, xq, &mut tape)));
    all.push((state.s[1], outer(old, -1.0, dzq, xq, &mut tape)));
    for (to, rows, columns) in [(f.act, dmet, hq), (delta, mixed, dzq)] {
        let product = tape.turned_dot(rows, columns);
        all.push((to, tape.value(product).clone()));
    }
    all
}

/// Operations of a kernel.
pub(crate) fn flops(p: &Problem) -> f64 {
    let [b, h, c] = ["B", "H", "C"].map(|dim| p.dim(dim) as f64);
    b * h * c * flops_of_chunk(p.kernel.name, ["L", "K", "D", "E", "M"].map(|dim| p.dim(dim) as f64))
}

/// Operations of a kernel for one chunk of one head.
pub(super) fn flops_of_chunk(kernel: &str, [l, k, d, e, m]: [f64; 5]) -> f64 {
    let (width, both) = ((d + e) / 2.0, d + e);
    match kernel {
        "omega_mix_backward" => 18.0 * l * k,
        "omega_key_backward" => k * (d + 2.0 * e),
        "omega_linear_states" => 6.0 * k * d * e,
        "omega_linear_read_backward" => 8.0 * l * d * e + 4.0 * l * k * both + 4.0 * l * k * d,
        "omega_linear_train_backward" => (12.0 * k + 4.0 * l) * d * e,
        "omega_mlp_states" => 16.0 * k * width * m,
        "omega_mlp_read_backward" => (4.0 * k + 8.0 * l) * width * m + 4.0 * l * k * m + 2.0 * l * k * both,
        "omega_mlp_query_backward" => 4.0 * l * width * m + 4.0 * l * k * m + 4.0 * l * k * e + 6.0 * l * k * d,
        "omega_mlp_train_backward" => (28.0 * k + 8.0 * l) * width * m + 4.0 * l * k * m,
        _ => 0.0,
    }
}
