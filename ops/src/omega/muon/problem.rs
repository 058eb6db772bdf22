//! The kernels of the Omega rule with Muon one by one: their references, by any arithmetic, and what they compute.

use crate::omega::reference::{Gates, Mixed, Sequence, SequenceSizes, State, of_head};
use crate::omega::rounded::Arithmetic;
use crate::omega::{Chunking, Loss, MemoryForm, OmegaRule, Read, Step};
use crate::problem::{Inputs, Problem};
use atlas_dsl::DType;

/// The reference of a problem of one of the kernels.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    expected(p, inputs, &arithmetic(p, DType::F64))
}

/// The same with the roundings of the kernels, which the iteration magnifies.
pub(crate) fn rounded(p: &Problem, inputs: &Inputs) -> Option<Vec<Vec<f64>>> {
    (p.kernel.name != "fused_descent").then(|| expected(p, inputs, &arithmetic(p, p.dtype)))
}

fn arithmetic(p: &Problem, dtype: DType) -> Arithmetic {
    Arithmetic { walks: is_wide(p), ..Arithmetic::of(dtype) }
}

/// What is written of a problem, by some arithmetic.
pub fn expected(p: &Problem, inputs: &Inputs, arithmetic: &Arithmetic) -> Vec<Vec<f64>> {
    if p.kernel.name.starts_with("fused_") {
        return stepped(p, inputs, arithmetic);
    }
    trained(p, inputs, arithmetic)
}

/// The rule of a kernel's problem. Of a loss that predicts nothing the factor is left out: see [`of_values`].
fn rule(p: &Problem) -> OmegaRule {
    let name = p.kernel.name;
    let memory = match name.strip_suffix("_wide").unwrap_or(name).rsplit('_').next() {
        Some("gated") => MemoryForm::Gated,
        Some("linear") => MemoryForm::Linear,
        Some("normed") => MemoryForm::Normed { eps: p.scalar("eps") },
        _ => MemoryForm::Mlp,
    };
    OmegaRule {
        memory,
        step: if by_tokens(p) { Step::MuonByToken } else { Step::MuonByChunk },
        loss: if p.scalar("predicts") > 0.0 { Loss::Scaled(p.scalar("scale")) } else { Loss::Dot },
        read: if p.scalar("before") > 0.0 { Read::Before } else { Read::After },
        chunking: Chunking::new(1, 1),
    }
}

/// A loss that predicts nothing is that of values which are as much longer.
fn of_values(p: &Problem) -> f64 {
    if p.scalar("predicts") > 0.0 { 1.0 } else { f64::from(p.scalar("scale")) }
}

fn by_tokens(p: &Problem) -> bool {
    p.kernel.name.starts_with("omega_muon_tokens")
}

/// Whether a kernel walks over its matrices, and keeps them in the element type of products.
fn is_wide(p: &Problem) -> bool {
    p.kernel.name.ends_with("_wide")
}

/// The tensors that are written, less `y`: weights, momenta and what a kernel keeps in global memory.
fn written(p: &Problem) -> Vec<&'static str> {
    let written = p.tensors().into_iter().filter(|t| p.has_reference(t) && t.name != "y");
    written.map(|t| t.name).collect()
}

/// The reference of a memory that is trained over sequences.
fn trained(p: &Problem, inputs: &Inputs, arithmetic: &Arithmetic) -> Vec<Vec<f64>> {
    let rule = rule(p);
    let [b, n, past_and_n, h, d, e, k, c] = ["B", "N", "P", "H", "D", "E", "K", "C"].map(|dim| p.dim(dim));
    let m = if rule.memory == MemoryForm::Linear { 0 } else { p.dim("M") };
    let l = if by_tokens(p) { (p.scalar("chunk") as usize).clamp(1, k) } else { p.dim("L") };
    let s = SequenceSizes { n, p: past_and_n, h, d, e, m, l, w: p.dim("W"), k };
    let names = written(p);
    let mut after = vec![vec![]; names.len()];
    let mut y = vec![0.0; b * n * h * e];
    let shapes = s.matrices(&rule);
    for at in 0..b * h {
        let (sequence, head) = (at / h, at % h);
        let rows = |name: &str, tokens: usize, width: usize| {
            let len = tokens * h * width;
            of_head(&inputs.get(name)[sequence * len..][..len], head, h, width)
        };
        let x = Sequence {
            q: rows("q", n, d),
            k: rows("k", past_and_n, d),
            v: rows("v", past_and_n, e).into_iter().map(|v| of_values(p) * v).collect(),
            rq: rows("rq", n, e),
            rk: rows("rk", past_and_n, e),
            norm: inputs.get("norm").get(head * e..(head + 1) * e).unwrap_or_default().to_vec(),
        };
        let part = |(i, name): (usize, &&str)| {
            let [rows, cols] = shapes[i % shapes.len()];
            inputs.get(name)[at * rows * cols..][..rows * cols].to_vec()
        };
        let mut w: Vec<Vec<f64>> = names.iter().take(2 * shapes.len()).enumerate().map(part).collect();
        let mut state = State { s: w.split_off(shapes.len()), w };
        let (read, kept) = if by_tokens(p) {
            let gates = Gates {
                alpha: rows("alpha", n, 1),
                theta: rows("theta", n, 1),
                eta: rows("eta", n, 1),
                gamma: rows("gamma", n, s.w),
            };
            arithmetic.tokens(&s, &rule, &x, &gates, &mut state)
        } else {
            let of = |name: &str, len: usize| inputs.get(name)[at * len..][..len].to_vec();
            let mixed = Mixed {
                phi_end: of("phi_end", c * k),
                live: of("live", c * k),
                lam_end: of("lam_end", c),
                beta_end: of("beta_end", c),
                steps: of("steps", c * l),
                ..Mixed::default()
            };
            arithmetic.chunks_and_last(&s, &rule, &x, &mixed, &mut state)
        };
        for (t, row) in read.chunks(e).enumerate() {
            y[((sequence * n + t) * h + head) * e..][..e].copy_from_slice(row);
        }
        let done = state.w.into_iter().chain(state.s).chain(kept);
        after.iter_mut().zip(done).for_each(|(to, from)| to.extend(from));
    }
    after.push(y);
    after
}

/// The reference of one step of a memory on a window.
fn stepped(p: &Problem, inputs: &Inputs, arithmetic: &Arithmetic) -> Vec<Vec<f64>> {
    let [n, d, e, m] = ["N", "D", "E", "M"].map(|dim| p.dim(dim));
    let s = SequenceSizes { n, p: n, h: 1, d, e, m, l: n, w: 1, k: n };
    let [x, mut v, r, c] = ["x", "v", "r", "c"].map(|name| inputs.get(name));
    v.iter_mut().for_each(|v| *v *= of_values(p));
    let gates = ["alpha", "theta", "eta"].map(|name| inputs.get(name));
    let matrices = ["w1", "w2", "s1", "s2"].map(|name| inputs.get(name));
    let is_muon = p.kernel.name == "fused_optimization";
    let how = (&rule(p), is_muon.then(|| p.scalar("count") as usize));
    let mut after = vec![vec![]; 5];
    for g in 0..p.dim("G") {
        let tokens = [&x[g * n * d..][..n * d], &v[g * n * e..][..n * e], &r[g * n * e..][..n * e]];
        let part = |i: usize| {
            let len = if i & 1 == 0 { e * m } else { d * m };
            matrices[i][g * len..][..len].to_vec()
        };
        let mut state = State { w: vec![part(0), part(1)], s: vec![part(2), part(3)] };
        let gates = [gates[0][g], gates[1][g], gates[2][g]];
        let loss = arithmetic.step(&s, how, tokens, &c[g * n..][..n], gates, &mut state);
        let done = state.w.into_iter().chain(state.s).chain([vec![loss]]);
        after.iter_mut().zip(done).for_each(|(to, from)| to.extend(from));
    }
    after
}

/// Operations: products with keys and queries, and those of the iterations.
pub(crate) fn flops(p: &Problem) -> f64 {
    let [b, h, n, d, e] = ["B", "H", "N", "D", "E"].map(|dim| p.dim(dim) as f64);
    let shapes = rule(p).memory.matrices(p.dim("D"), p.dim("E"), p.dim("M"));
    let elements: f64 = shapes.iter().map(|[rows, cols]| (rows * cols) as f64).sum();
    // Forward, once more for the gradients but for the first matrix, back through the first one, and the gradients.
    let of_key = 2.0 * (3.0 * elements) - if shapes.len() == 1 { 2.0 * elements } else { 0.0 };
    let side = |(i, [rows, cols]): (usize, &[usize; 2])| {
        let is_turned = if is_wide(p) { rows > cols } else { i > 0 };
        let (side, other) = if is_turned { (*cols as f64, *rows as f64) } else { (*rows as f64, *cols as f64) };
        4.0 * side * side * other + 2.0 * side.powi(3)
    };
    let round: f64 = shapes.iter().enumerate().map(side).sum();
    if p.kernel.name.starts_with("fused_") {
        let count = if p.kernel.name == "fused_optimization" { f64::from(p.scalar("count")) } else { 0.0 };
        return p.dim("G") as f64 * (n * of_key + count * round + 4.0 * (d + e));
    }
    let k = p.dim("K") as f64;
    if by_tokens(p) {
        let chunks = (n / f64::from(p.scalar("chunk")).max(1.0)).ceil();
        return b * h * (chunks * k * (of_key - 2.0 * elements) + n * (5.0 * round + (2.0 * k + 2.0) * elements));
    }
    let [c, l] = ["C", "L"].map(|dim| p.dim(dim) as f64);
    b * h * c * (k * of_key + 2.0 * l * elements + 5.0 * round)
}
