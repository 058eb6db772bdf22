//! What the kernels that go back from chunk to chunk should write.

use super::problem::{
    FactorParts, Head, chunk, end, given_factors, gradient, how, matrices, oldest, parts, sizes, sum, times, token_rows,
};
use super::reference::{KeyFactors, MemoryState, after, before_norm, iterates, outward};
use super::tape::{Matrix, Tape, Var};
use crate::omega::reference::SequenceSizes;
use crate::problem::{Inputs, Problem};
use std::collections::BTreeMap;

/// What the kernel of a problem should write.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    super::problem::checked(p, inputs, |p, head| match p.kernel.name {
        "omega_step_backward" => step_backward(p, &head),
        "omega_step_gate_backward" => step_gate_backward(p, head),
        _ => train_backward(p, head),
    })
}

/// What the gradients by the errors of a chunk's keys become.
struct BehindErrors {
    /// Those by what the memory reads of a key less its value.
    by_read: Vec<f64>,
    /// Those by what the first matrix makes of a key.
    by_made: Vec<f64>,
    /// Those by the weight of a norm.
    by_norm: Vec<f64>,
}

impl BehindErrors {
    fn of(p: &Problem, head: &Head, s: &SequenceSizes, at: (usize, usize), by_errors: &[f64]) -> BehindErrors {
        let mut tape = Tape::default();
        let how = how(p, &mut tape, head);
        let scaled = |by: &[f64]| by.iter().map(|by| how.scale * by).collect::<Vec<f64>>();
        let Some(norm) = how.norm else {
            let by_read = scaled(by_errors);
            let by_made = if how.predicts { by_read.clone() } else { vec![0.0; by_read.len()] };
            return BehindErrors { by_read, by_made, by_norm: vec![] };
        };
        let [made, outer] = ["made", "outer"].map(|name| tape.given(chunk(head, name, s.e, at)));
        let g = tape.mul(outer, norm.weight);
        let errors = before_norm(&mut tape, made, g, norm.eps);
        let mut weights = vec![(errors, Matrix::new(s.e, by_errors.to_vec()))];
        let by_read = scaled(&tape.gradients(&weights).by(&tape, outer));
        if how.predicts {
            let out = outward(&mut tape, made, how.norm);
            weights.push((out, Matrix::new(s.e, by_read.clone())));
        }
        let found = tape.gradients(&weights);
        BehindErrors { by_read, by_made: found.by(&tape, made), by_norm: found.by(&tape, norm.weight) }
    }
}

/// What a kernel named `.._train_backward` should write of one head.
fn train_backward(p: &Problem, mut head: Head) -> Head {
    let (s, chunks) = (sizes(p), p.dim("C"));
    let names = matrices(p);
    let ends = ["dpsi_end", "dphi_end", "dlam_end", "dold_end", "dbeta_end"];
    let mut of_ends: BTreeMap<&'static str, Vec<Vec<f64>>> = BTreeMap::new();
    for c in (0..chunks).rev() {
        let (at, mut tape) = ((c, chunks), Tape::default());
        let of_chunk: Vec<Matrix> = names.iter().map(|&(name, cols)| chunk(&head, name, cols, at)).collect();
        let state = MemoryState::given(&mut tape, &of_chunk);
        let x = tape.given(token_rows(&head, "k", s.d, oldest(&s, c), s.k));
        let errors = tape.given(chunk(&head, "errors", s.e, at));
        let f = given_factors(&mut tape, p, &head, &s, at, [x, errors]);
        let end = end(&mut tape, &head, at);
        let next = after(&mut tape, &state, &f, x, &end);
        // What comes from later chunks and from reading this one, then what goes on through the factors.
        let mut weights: Vec<(Var, Matrix)> = names
            .iter()
            .zip(next.all())
            .map(|(&(name, cols), var)| (var, Matrix::new(cols, head[gradient(name)].clone())))
            .collect();
        weights.extend(of_reading(&head, &s, at, &state, &f, x));
        let mut inner = vec![];
        let given = FactorParts::of(p, &head, &s, at);
        if let Some(FactorParts { each, bends, .. }) = &given {
            let found = tape.gradients(&weights);
            let by_deltas: Vec<Vec<f64>> = f.deltas.iter().map(|&delta| found.by(&tape, delta)).collect();
            let back = tape.dot(errors, state.w[0]);
            let each_back = each.iter().zip(&by_deltas).map(|([_, slope], by)| times(&slope.values, by));
            let by_back = each_back.reduce(|a, b| sum(&a, &b)).unwrap_or_default();
            head.insert("dback", by_back.clone());
            weights.push((back, Matrix::new(s.m, by_back)));
            let by_act = tape.gradients(&weights).by(&tape, f.act);
            for (i, ([_, slope], bend)) in each.iter().zip(bends).enumerate() {
                let mut by = sum(&times(bend, &by_deltas[0]), &times(&slope.values, &by_act));
                if let (0, Some(cross), Some(by_gate)) = (i, bends.get(1), by_deltas.get(1)) {
                    by = sum(&by, &times(cross, by_gate));
                }
                head.insert(["dz", "du"][i], by.clone());
                inner.push(by);
            }
        }
        let by_errors = tape.gradients(&weights).by(&tape, errors);
        let mut by_errors = by_errors;
        if head.contains_key("norm") {
            // What comes before the first token is normed to nothing.
            let before = usize::try_from(-oldest(&s, c)).unwrap_or(0).min(s.k);
            by_errors[..before * s.e].fill(0.0);
        }
        let BehindErrors { by_read, by_made, by_norm } = BehindErrors::of(p, &head, &s, at, &by_errors);
        if !by_norm.is_empty() {
            head.insert("dmade", by_made.clone());
        }
        let product = tape.dot_turned(f.act, state.w[0]);
        let by_made = Matrix::new(s.e, by_made);
        weights.push((product, by_made.clone()));
        let by_product = tape.gradients(&[(product, by_made)]).by(&tape, f.act);
        for (i, (by, [_, slope])) in inner.iter().zip(given.iter().flat_map(|given| &given.each)).enumerate() {
            let z = tape.dot_turned(x, state.w[i + 1]);
            weights.push((z, Matrix::new(s.m, sum(by, &times(&slope.values, &by_product)))));
        }
        let found = tape.gradients(&weights);
        for ((name, _), var) in names.iter().zip(state.all()) {
            head.insert(gradient(name), found.by(&tape, var));
        }
        if let Some(so_far) = head.get("dnorm") {
            let read = chunk(&head, "dnorm_read", s.e, at).values;
            head.insert("dnorm", sum(so_far, &sum(&read, &by_norm)));
        }
        for (name, values) in [("by_key", found.by(&tape, x)), ("by_read", by_read)] {
            of_ends.entry(name).or_default().insert(0, values);
        }
        for (name, var) in ends.into_iter().zip([end.psi, end.phi, end.lam, end.old, end.beta]) {
            of_ends.entry(name).or_default().insert(0, found.by(&tape, var));
        }
    }
    let written = names.iter().map(|(name, _)| gradient(name)).chain(["dz", "du", "dback", "dmade", "dnorm"]);
    let mut out: Head = written.filter_map(|name| Some((name, head.remove(name)?))).collect();
    out.extend(of_ends.into_iter().map(|(name, parts)| (name, parts.concat())));
    out
}

/// What the kernel that goes back through a step should write of one head.
fn step_backward(p: &Problem, head: &Head) -> Head {
    let mut tape = Tape::default();
    let cols = p.dim("Q");
    let [s, dw] = ["s", "dw"].map(|name| tape.given(Matrix::new(cols, head[name].clone())));
    let all = iterates(&mut tape, s);
    let step = head["steps"].last().copied().unwrap_or_default();
    let by_end = tape.scale(dw, -step);
    let found = tape.gradients(&[(all[5], tape.value(by_end).clone())]);
    let along: f64 = times(&tape.value(dw).values, &tape.value(all[5]).values).iter().sum();
    [("ds", sum(&head["ds"], &found.by(&tape, s))), ("dstep", vec![-along])].into()
}

/// What the kernel that goes from steps to their gates should write of one head.
fn step_gate_backward(p: &Problem, mut head: Head) -> Head {
    let (n, [l, matrices]) = (p.scalar("tokens") as usize, ["L", "X"].map(|dim| p.dim(dim)));
    let mut deta = head.remove("deta").unwrap_or_default();
    for (c, by) in head["dsteps"].chunks(matrices).enumerate() {
        deta[((c + 1) * l).min(n) - 1] += by.iter().sum::<f64>();
    }
    [("deta", deta)].into()
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
    if f.deltas.is_empty() {
        all.push((state.w[0], outer(lam, 1.0, dy, xq, &mut tape)));
        all.push((state.s[0], outer(old, -1.0, dy, xq, &mut tape)));
        return all;
    }
    let queries: Vec<Var> =
        parts(head, "queries", s.m, at, 1 + f.deltas.len()).into_iter().map(|part| tape.given(part)).collect();
    let mixed: Vec<Var> = parts(head, "mixed", s.k, at, 2).into_iter().map(|part| tape.given(part)).collect();
    let (hq, by_products) = (queries[0], &queries[1..]);
    all.push((state.w[0], outer(lam, 1.0, dy, hq, &mut tape)));
    all.push((state.s[0], outer(old, -1.0, dy, hq, &mut tape)));
    let mut more = vec![(f.act, mixed[1], hq)];
    for (i, (&by, &delta)) in by_products.iter().zip(&f.deltas).enumerate() {
        all.push((state.w[i + 1], outer(lam, 1.0, by, xq, &mut tape)));
        all.push((state.s[i + 1], outer(old, -1.0, by, xq, &mut tape)));
        more.push((delta, mixed[0], by));
    }
    for (to, rows, columns) in more {
        let product = tape.turned_dot(rows, columns);
        all.push((to, tape.value(product).clone()));
    }
    all
}
