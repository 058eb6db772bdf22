//! The kernels of the Omega rule one by one: how their inputs are made, and their references.

use super::reference::{Gates, Mixed, Sequence, SequenceSizes, State, chunks, mix, of_head};
use super::rounded::Arithmetic;
use super::{Chunking, Loss, MemoryForm, OmegaRule};
use crate::problem::{Fill, Inputs, Problem};
use atlas_dsl::DType;

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
        "s" | "s1" | "s2" => Fill::Normal(0.01),
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

/// The rule of a kernel's problem.
fn rule(p: &Problem) -> OmegaRule {
    let rule = OmegaRule::omega_net(Chunking::new(1, 1));
    let memory = if p.kernel.name == "omega_linear" { MemoryForm::Linear } else { MemoryForm::Mlp };
    OmegaRule { memory, loss: Loss::Scaled(p.scalar("scale") as f32), ..rule }
}

/// The reference of a problem of one of the kernels.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    expected(p, inputs, &Arithmetic::of(DType::F64))
}

/// The same with the roundings of the kernels with Muon, which the iteration magnifies.
pub(crate) fn rounded(p: &Problem, inputs: &Inputs) -> Option<Vec<Vec<f64>>> {
    let is_muon = matches!(p.kernel.name, "omega_muon" | "omega_muon_tokens" | "fused_optimization");
    is_muon.then(|| expected(p, inputs, &Arithmetic::of(p.dtype)))
}

/// What is written of a problem, by some arithmetic of the kernels with Muon.
pub fn expected(p: &Problem, inputs: &Inputs, arithmetic: &Arithmetic) -> Vec<Vec<f64>> {
    match p.kernel.name {
        "omega_mix" => mixed(p, inputs),
        "omega_token_gates" | "omega_decay_gates" => vec![band(p, inputs)],
        "fused_optimization" | "fused_descent" => stepped(p, inputs, arithmetic),
        "omega_muon_tokens" => by_tokens(p, inputs, arithmetic),
        _ => trained(p, inputs, arithmetic),
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

/// The reference of a memory's chunks: of two layers, or of one.
fn trained(p: &Problem, inputs: &Inputs, arithmetic: &Arithmetic) -> Vec<Vec<f64>> {
    let is_linear = p.kernel.name == "omega_linear";
    let s = sizes(p, if is_linear { 0 } else { p.dim("M") });
    let (heads, c) = (s.h, p.dim("C"));
    let names = ["q", "k", "v", "rq", "rk"].map(|name| inputs.get(name));
    let mixed = ["psi", "lam", "old", "psi_end", "phi_end", "live", "lam_end", "old_end", "beta_end", "steps"];
    let mixed = mixed.map(|name| inputs.get(name));
    let matrices: &[&str] = if is_linear { &["w", "s"] } else { &["w1", "w2", "s1", "s2"] };
    let matrices: Vec<Vec<f64>> = matrices.iter().map(|name| inputs.get(name)).collect();
    let mut after = vec![vec![]; matrices.len()];
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
                v: rows(2, s.p, s.e),
                rq: rows(3, s.n, s.e),
                rk: rows(4, s.p, s.e),
                norm: vec![],
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
            let rule = rule(p);
            let shapes = s.matrices(&rule);
            let part = |(i, given): (usize, &Vec<f64>)| {
                let [rows, cols] = shapes[i % shapes.len()];
                given[at * rows * cols..][..rows * cols].to_vec()
            };
            let mut w: Vec<Vec<f64>> = matrices.iter().enumerate().map(part).collect();
            let mut state = State { s: w.split_off(shapes.len()), w };
            let scale = f64::from(p.scalar("scale"));
            let read = match p.kernel.name {
                "omega_muon" => arithmetic.chunks(&s, &sequence, &m, &mut state, scale),
                _ => chunks(&s, &sequence, &m, &mut state, &rule),
            };
            for (t, row) in read.chunks(s.e).enumerate() {
                y[((b * s.n + t) * heads + head) * s.e..][..s.e].copy_from_slice(row);
            }
            let done = state.w.iter().chain(&state.s);
            after.iter_mut().zip(done).for_each(|(to, from)| to.extend(from));
        }
    }
    after.push(y);
    after
}

/// The reference of the rule with Muon by tokens.
fn by_tokens(p: &Problem, inputs: &Inputs, arithmetic: &Arithmetic) -> Vec<Vec<f64>> {
    let s = SequenceSizes { l: (p.scalar("chunk") as usize).clamp(1, p.dim("K")), ..sizes(p, p.dim("M")) };
    let (heads, before) = (s.h, p.scalar("before") > 0.0);
    let names = ["q", "k", "v", "rq", "rk", "alpha", "theta", "eta", "gamma"].map(|name| inputs.get(name));
    let matrices = ["w1", "w2", "s1", "s2"].map(|name| inputs.get(name));
    let mut after = vec![vec![]; 7];
    let mut y = vec![0.0; p.dim("B") * s.n * heads * s.e];
    for b in 0..p.dim("B") {
        for head in 0..heads {
            let rows = |i: usize, tokens: usize, width: usize| {
                let len = tokens * heads * width;
                of_head(&names[i][b * len..][..len], head, heads, width)
            };
            let sequence = Sequence {
                q: rows(0, s.n, s.d),
                k: rows(1, s.p, s.d),
                v: rows(2, s.p, s.e),
                rq: rows(3, s.n, s.e),
                rk: rows(4, s.p, s.e),
                norm: vec![],
            };
            let gates = Gates {
                alpha: rows(5, s.n, 1),
                theta: rows(6, s.n, 1),
                eta: rows(7, s.n, 1),
                gamma: rows(8, s.n, s.w),
            };
            let lens = [s.e * s.m, s.m * s.d];
            let part = |i: usize| matrices[i][(b * heads + head) * lens[i % 2]..][..lens[i % 2]].to_vec();
            let mut state = State { w: vec![part(0), part(1)], s: vec![part(2), part(3)] };
            let scale = f64::from(p.scalar("scale"));
            let (read, kept) = arithmetic.tokens(&s, &sequence, &gates, &mut state, scale, before);
            for (t, row) in read.chunks(s.e).enumerate() {
                y[((b * s.n + t) * heads + head) * s.e..][..s.e].copy_from_slice(row);
            }
            let done = state.w.into_iter().chain(state.s).chain(kept);
            after.iter_mut().zip(done).for_each(|(to, from)| to.extend(from));
        }
    }
    after.push(y);
    after
}

/// The reference of one step of a memory on a window.
fn stepped(p: &Problem, inputs: &Inputs, arithmetic: &Arithmetic) -> Vec<Vec<f64>> {
    let [n, d, e, m] = ["N", "D", "E", "M"].map(|dim| p.dim(dim));
    let s = SequenceSizes { n, p: n, h: 1, d, e, m, l: n, w: 1, k: n };
    let [x, v, r, c] = ["x", "v", "r", "c"].map(|name| inputs.get(name));
    let gates = ["alpha", "theta", "eta"].map(|name| inputs.get(name));
    let matrices = ["w1", "w2", "s1", "s2"].map(|name| inputs.get(name));
    let is_muon = p.kernel.name == "fused_optimization";
    let (scale, count) = (f64::from(p.scalar("scale")), is_muon.then(|| p.scalar("count") as usize));
    let mut after = vec![vec![]; 5];
    for g in 0..p.dim("G") {
        let tokens = [&x[g * n * d..][..n * d], &v[g * n * e..][..n * e], &r[g * n * e..][..n * e]];
        let part = |i: usize| {
            let len = if i & 1 == 0 { e * m } else { d * m };
            matrices[i][g * len..][..len].to_vec()
        };
        let mut state = State { w: vec![part(0), part(1)], s: vec![part(2), part(3)] };
        let gates = [gates[0][g], gates[1][g], gates[2][g]];
        let loss = arithmetic.step(&s, tokens, &c[g * n..][..n], gates, &mut state, (scale, count));
        let done = state.w.into_iter().chain(state.s).chain([vec![loss]]);
        after.iter_mut().zip(done).for_each(|(to, from)| to.extend(from));
    }
    after
}

/// Operations of a memory's chunks.
pub(crate) fn flops(p: &Problem) -> f64 {
    let [b, h, c, l, k, d, e, m] = ["B", "H", "C", "L", "K", "D", "E", "M"].map(|dim| p.dim(dim) as f64);
    if p.kernel.name.starts_with("fused_") {
        let [g, n] = ["G", "N"].map(|dim| p.dim(dim) as f64);
        let is_muon = f64::from(u8::from(p.kernel.name == "fused_optimization"));
        let iterations =
            is_muon * f64::from(p.scalar("count")) * (4.0 * (d * d + e * e) * m + 2.0 * (d.powi(3) + e.powi(3)));
        return g * (5.0 * n * (d + e) * m + iterations);
    }
    if p.kernel.name == "omega_muon_tokens" {
        let n = p.dim("N") as f64;
        let chunks = n / f64::from(p.scalar("chunk")).max(1.0);
        let iteration = 20.0 * (d * d + e * e) * m + 10.0 * (d.powi(3) + e.powi(3));
        return b * h * (chunks * 5.0 * k * (d + e) * m + n * (iteration + (2.0 * k + 2.0) * (d + e) * m));
    }
    let heads = b * h * c;
    if p.kernel.name == "omega_mix" {
        return 6.0 * heads * l * k;
    }
    if p.kernel.name.ends_with("_gates") {
        return b * h * p.dim("N") as f64 * p.dim("W") as f64;
    }
    if p.kernel.name == "omega_linear" {
        return heads * (2.0 * d * e * (3.0 * k + 2.0 * l) + 2.0 * l * k * (d + e));
    }
    let width = (d + e) / 2.0;
    heads * ((14.0 * k + 8.0 * l) * width * m + 4.0 * l * k * (width + m))
}
