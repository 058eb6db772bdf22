//! The kernels of the Omega rule one by one: how their inputs are made, and the references of those without Muon.

use super::reference::{Factors, Gates, LastChunk, Mixed, Query, Sequence, SequenceSizes, State};
use super::reference::{chunks_and_last, mix, of_head};
use super::{Chunking, Loss, MemoryForm, OmegaRule};
use crate::problem::{Fill, Inputs, Problem};

/// Fills of the inputs of all of the kernels: gates that forget slowly, and weights so small that no memory diverges.
pub(crate) fn fill(p: &Problem, name: &str) -> Fill {
    let unit = |dim: &str| (p.dim(dim).max(1) as f64).powf(-0.5);
    let weight = 0.3 / (p.dim("K") * p.dim("M").max(4)) as f64;
    match name {
        "alpha" => Fill::Around(0.95, 0.02),
        "theta" => Fill::Around(0.8, 0.05),
        "eta" | "steps" => Fill::Around(0.03, 0.01),
        "gamma" | "weight" | "gain" => Fill::Around(0.5, 0.1),
        "decay" => Fill::Around(0.8, 0.1),
        "q" | "k" | "rq" | "rk" => Fill::Normal(unit("D")),
        "v" => Fill::Normal(unit("E")),
        "psi" | "psi_end" => Fill::Normal(weight),
        "phi_end" => Fill::Around(0.5, 0.1),
        "live" => Fill::Around(1.0, 0.1),
        "lam" | "lam_end" | "beta_end" => Fill::Around(0.8, 0.05),
        "old" | "old_end" => Fill::Normal(weight),
        "x" | "r" => Fill::Normal(unit("D")),
        "c" => Fill::Around(0.5, 0.1),
        "w1" => Fill::Normal(unit("M")),
        "w" => Fill::Normal(unit("D")),
        "norm" => Fill::Around(1.0, 0.2),
        "s" | "s1" | "s2" | "s3" => Fill::Normal(0.01),
        _ => Fill::Normal(1.0),
    }
}

/// Sizes of a kernel's problem; a memory without hidden elements is linear.
fn sizes(p: &Problem, hidden: usize) -> SequenceSizes {
    let past = p.kernel.dims.iter().any(|d| d.name == "P");
    SequenceSizes {
        n: p.dim("N"),
        p: p.dim(if past { "P" } else { "N" }),
        h: p.dim("H"),
        d: p.dim("D"),
        e: p.dim("E"),
        m: hidden,
        l: p.dim("L"),
        w: p.dim("W"),
        k: p.dim("K"),
    }
}

/// The name of a memory's kernel, whether its rows are whole or in tiles.
fn form(p: &Problem) -> &'static str {
    p.kernel.name.strip_suffix("_wide").unwrap_or(p.kernel.name)
}

/// The rule of a kernel's problem. Of a loss that predicts nothing the factor is left out.
fn rule(p: &Problem) -> OmegaRule {
    let rule = OmegaRule::omega_net(Chunking::new(1, 1));
    let memory = match form(p) {
        "omega_linear" => MemoryForm::Linear,
        "omega_gated" => MemoryForm::Gated,
        "omega_normed" => MemoryForm::Normed { eps: p.scalar("eps") },
        _ => MemoryForm::Mlp,
    };
    let loss = if p.scalar("predicts") > 0.0 { Loss::Scaled(p.scalar("scale")) } else { Loss::Dot };
    OmegaRule { memory, loss, ..rule }
}

/// The reference of a problem of one of the kernels.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    match p.kernel.name {
        "omega_mix" => mixed(p, inputs),
        "omega_token_gates" | "omega_decay_gates" => vec![band(p, inputs)],
        _ => trained(p, inputs),
    }
}

/// The reference of the bands of gates.
fn band(p: &Problem, inputs: &Inputs) -> Vec<f64> {
    let [n, h, w] = ["N", "H", "W"].map(|dim| p.dim(dim));
    let [weight, gain, decay] = ["weight", "gain", "decay"].map(|name| inputs.get(name));
    let gate = |at: usize| {
        let (row, back) = (at / w, w - 1 - at % w);
        let t = row / h % n;
        match p.kernel.name {
            "omega_decay_gates" => gain[row] * decay[row].powi(back as i32),
            _ if back <= t => weight[row - back * h],
            _ => 0.0,
        }
    };
    (0..p.dim("B") * n * h * w).map(gate).collect()
}

/// The reference of the mixing weights.
fn mixed(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let s = sizes(p, 0);
    let (before, commit) = (p.scalar("before") > 0.0, p.scalar("commit") as usize);
    let names = ["alpha", "theta", "eta", "gamma"].map(|name| inputs.get(name));
    let mut out = vec![vec![]; 10];
    for b in 0..p.dim("B") {
        for head in 0..s.h {
            let rows = |i: usize, width: usize| {
                of_head(&names[i][b * s.n * s.h * width..][..s.n * s.h * width], head, s.h, width)
            };
            let gates = Gates { alpha: rows(0, 1), theta: rows(1, 1), eta: rows(2, 1), gamma: rows(3, s.w) };
            let Mixed { psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps } =
                mix(&s, &gates, before, commit);
            let of_head = [psi, lam, old, psi_end, phi_end, live, lam_end, old_end, beta_end, steps];
            out.iter_mut().zip(of_head).for_each(|(to, from)| to.extend(from));
        }
    }
    out
}

/// The reference of a memory's chunks.
fn trained(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let rule = rule(p);
    let s = sizes(p, if rule.memory == MemoryForm::Linear { 0 } else { p.dim("M") });
    let (heads, c) = (s.h, p.dim("C"));
    let scale = f64::from(p.scalar("scale"));
    // A loss that predicts nothing is that of values which are as much longer.
    let of_values = if rule.loss.predicts() { 1.0 } else { scale };
    let names = ["q", "k", "v", "rq", "rk"].map(|name| inputs.get(name));
    let mixed = ["psi", "lam", "old", "psi_end", "phi_end", "live", "lam_end", "old_end", "beta_end", "steps"];
    let mixed = mixed.map(|name| inputs.get(name));
    let norm = inputs.get("norm");
    let matrices: &[&str] = match rule.memory {
        MemoryForm::Linear => &["w", "s"],
        MemoryForm::Gated => &["w1", "w2", "w3", "s1", "s2", "s3"],
        _ => &["w1", "w2", "s1", "s2"],
    };
    let matrices: Vec<Vec<f64>> = matrices.iter().map(|name| inputs.get(name)).collect();
    let passed = passed(p);
    let mut after = vec![vec![]; matrices.len() + passed.len()];
    let mut y = vec![0.0; p.dim("B") * s.n * heads * s.e];
    for b in 0..p.dim("B") {
        for head in 0..heads {
            let at = b * heads + head;
            let rows = |i: usize, tokens: usize, width: usize| {
                let len = tokens * heads * width;
                of_head(&names[i][b * len..][..len], head, heads, width)
            };
            let sequence = Sequence {
                q: rows(0, s.n, s.d),
                k: rows(1, s.p, s.d),
                v: rows(2, s.p, s.e).into_iter().map(|v| of_values * v).collect(),
                rq: rows(3, s.n, s.e),
                rk: rows(4, s.p, s.e),
                norm: norm.get(head * s.e..(head + 1) * s.e).unwrap_or_default().to_vec(),
            };
            let of = |i: usize, len: usize| mixed[i].get(at * len..(at + 1) * len).unwrap_or_default().to_vec();
            let m = Mixed {
                psi: of(0, c * s.l * s.k),
                lam: of(1, c * s.l),
                old: of(2, c * s.l),
                psi_end: of(3, c * s.k),
                phi_end: of(4, c * s.k),
                live: of(5, c * s.k),
                lam_end: of(6, c),
                old_end: of(7, c),
                beta_end: of(8, c),
                steps: of(9, c * s.l),
            };
            let shapes = s.matrices(&rule);
            let part = |(i, given): (usize, &Vec<f64>)| {
                let [rows, cols] = shapes[i % shapes.len()];
                given[at * rows * cols..][..rows * cols].to_vec()
            };
            let mut w: Vec<Vec<f64>> = matrices.iter().enumerate().map(part).collect();
            let mut state = State { s: w.split_off(shapes.len()), w };
            let (read, last) = chunks_and_last(&s, &sequence, &m, &mut state, &rule);
            for (t, row) in read.chunks(s.e).enumerate() {
                y[((b * s.n + t) * heads + head) * s.e..][..s.e].copy_from_slice(row);
            }
            let kept = passed.iter().map(|name| of_last(name, &s, &last));
            let done = state.w.into_iter().chain(state.s).chain(kept);
            after.iter_mut().zip(done).for_each(|(to, from)| to.extend(from));
        }
    }
    after.push(y);
    after
}

/// What a kernel keeps in global memory from one pass over a chunk to the next, in the order of its parameters.
fn passed(p: &Problem) -> Vec<&'static str> {
    let names = ["errors", "act", "delta", "delta3", "hidden", "hidden3", "outs"];
    p.tensors().into_iter().map(|t| t.name).filter(|name| names.contains(name)).collect()
}

/// What stands there after the last chunk, in rows for all of its keys or of its tokens.
fn of_last(name: &str, s: &SequenceSizes, last: &LastChunk) -> Vec<f64> {
    let keys = |of: &dyn Fn(&Factors) -> Vec<f64>| last.keys.iter().flat_map(of).collect::<Vec<f64>>();
    // Tokens behind the last one have queries of zeros.
    let queries = |width: usize, of: &dyn Fn(&Query) -> Vec<f64>| {
        let mut rows: Vec<f64> = last.queries.iter().flat_map(of).collect();
        rows.resize(s.l * width, 0.0);
        rows
    };
    match name {
        "errors" => keys(&|key| key.left[0].clone()),
        "act" => keys(&|key| key.right[0].clone()),
        "delta" => keys(&|key| key.left[1].clone()),
        "delta3" => keys(&|key| key.left[2].clone()),
        "hidden" => queries(s.m, &|query| query.hidden.clone()),
        "hidden3" => queries(s.m, &|query| query.products[1].clone()),
        _ => queries(s.e, &|query| query.out.clone()),
    }
}

/// Operations of a memory's chunks.
pub(crate) fn flops(p: &Problem) -> f64 {
    let [b, h, c, l, k, d, e, m] = ["B", "H", "C", "L", "K", "D", "E", "M"].map(|dim| p.dim(dim) as f64);
    let heads = b * h * c;
    if p.kernel.name == "omega_mix" {
        return 6.0 * heads * l * k;
    }
    if p.kernel.name.ends_with("_gates") {
        return b * h * p.dim("N") as f64 * p.dim("W") as f64;
    }
    if form(p) == "omega_linear" {
        return heads * (2.0 * d * e * (3.0 * k + 2.0 * l) + 2.0 * l * k * (d + e));
    }
    let width = (d + e) / 2.0;
    if form(p) == "omega_gated" {
        // The third matrix is trained and read as the second one is.
        let third = (6.0 * k + 4.0 * l) * d * m + 2.0 * l * k * m;
        return heads * ((14.0 * k + 8.0 * l) * width * m + 4.0 * l * k * (width + m) + third);
    }
    heads * ((14.0 * k + 8.0 * l) * width * m + 4.0 * l * k * (width + m))
}
