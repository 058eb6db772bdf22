//! The kernels of the rule one by one: how their inputs are made, and their references.

use super::reference::{DeltaHead, DeltaSizes, transposed};
use crate::omega::reference::{of_head, times};
use crate::problem::{Fill, Inputs, Problem};
use crate::usual::{product, unit};

/// Fills of the inputs of all of the kernels: keys of about unit length, memories that forget slowly.
pub(crate) fn fill(p: &Problem, name: &str) -> Fill {
    match name {
        "q" | "k" | "s" | "w" | "before" => Fill::Normal(unit(p.dim("D"))),
        "g" => Fill::Around(-0.1, 0.05),
        "beta" => Fill::Around(0.5, 0.2),
        "reach" | "tail" => Fill::Around(0.6, 0.2),
        "x" => Fill::Normal(unit(p.dim("Z"))),
        "t" | "p" => Fill::Normal(unit(p.dim("L"))),
        _ => Fill::Normal(1.0),
    }
}

/// The heads of a problem: the inputs of each, and what the kernel's own tensors hold of it.
struct Heads<'p> {
    problem: &'p Problem,
    inputs: &'p Inputs,
    sizes: DeltaSizes,
}

impl Heads<'_> {
    fn tokens(&self, name: &str, b: usize, head: usize, heads: usize, width: usize) -> Vec<f64> {
        let len = self.sizes.n * heads * width;
        let all = self.inputs.get(name);
        if all.is_empty() { all } else { of_head(&all[b * len..][..len], head, heads, width) }
    }

    /// A tensor `[B, H, ..]` with this number of elements for each head.
    fn own(&self, name: &str, b: usize, head: usize, len: usize) -> Vec<f64> {
        self.inputs.get(name)[(b * self.sizes.h + head) * len..][..len].to_vec()
    }

    fn head(&self, b: usize, head: usize) -> DeltaHead {
        let DeltaSizes { h, j, d, e, .. } = self.sizes;
        let of_keys = head / (h / j);
        DeltaHead {
            q: self.tokens("q", b, of_keys, j, d),
            k: self.tokens("k", b, of_keys, j, d),
            v: self.tokens("v", b, head, h, e),
            g: self.tokens("g", b, head, h, 1),
            beta: self.tokens("beta", b, head, h, 1),
        }
    }

    /// What the kernel writes of one head, in the order of its parameters.
    fn written(&self, b: usize, head: usize) -> Vec<Vec<f64>> {
        let (x, z, p) = (self.head(b, head), &self.sizes, self.problem);
        let chunks = p.dim("C");
        let scale = f64::from(p.scalar("scale"));
        let (l, d, e) = (z.l, z.d, z.e);
        let mut out: Vec<Vec<f64>> = vec![vec![]; 4];
        let mut add = |at: usize, values: Vec<f64>| out[at].extend(values);
        if p.kernel.name == "delta_blocks" {
            let blocks = p.dim("R") * chunks;
            (0..blocks).for_each(|r| add(0, x_inverse(z, &x, r, p.dim("Z"))));
            return vec![out.swap_remove(0)];
        }
        let own = |name: &str, len: usize| self.own(name, b, head, chunks * len);
        let part = |of: &[f64], c: usize| of[c * (of.len() / chunks)..][..of.len() / chunks].to_vec();
        if p.kernel.name == "delta_solve" {
            let blocks = own("x", l * l / 2);
            for c in 0..chunks {
                let solved = z.solved(&x, c, &part(&blocks, c));
                solved.into_iter().enumerate().for_each(|(i, values)| add(i, values));
            }
            return out;
        }
        let reach = own("reach", l);
        if p.kernel.name == "delta_factors" {
            let t = own("t", l * l);
            for c in 0..chunks {
                let [w, u] = z.factors(&x, c, &part(&t, c), &part(&reach, c));
                add(0, w);
                add(1, u);
            }
            return out[..2].to_vec();
        }
        if p.kernel.name == "delta_outputs" {
            let [weights, before, step] = [own("p", l * l), own("before", e * d), own("step", e * l)];
            for c in 0..chunks {
                let [s, step] = [transposed(&part(&before, c), d), transposed(&part(&step, c), l)];
                add(0, z.outputs(&x, c, [&part(&weights, c), &part(&reach, c), &s, &step], scale));
            }
            out[0].truncate(z.n * e);
            return vec![out.swap_remove(0)];
        }
        let tail = own("tail", l);
        let mut s = self.own("s", b, head, d * e);
        if p.kernel.name == "delta_states" {
            let [w, u] = [own("w", l * d), own("u", e * l)];
            for c in 0..chunks {
                add(1, transposed(&s, e));
                let held = times(&part(&w, c), &s, d, e);
                let step: Vec<f64> = transposed(&part(&u, c), l).iter().zip(held).map(|(u, held)| u - held).collect();
                add(2, transposed(&step, e));
                z.stepped(&x, c, [&step, &part(&reach, c), &part(&tail, c)], &mut s);
            }
            out[0] = s;
            return out[..3].to_vec();
        }
        let [t, weights] = [own("t", l * l), own("p", l * l)];
        let mut read = Vec::new();
        for c in 0..chunks {
            let step = z.steps(&x, c, [&part(&t, c), &part(&reach, c), &s]);
            read.extend(z.outputs(&x, c, [&part(&weights, c), &part(&reach, c), &s, &step], scale));
            z.stepped(&x, c, [&step, &part(&reach, c), &part(&tail, c)], &mut s);
        }
        read.truncate(z.n * e);
        vec![s, read]
    }
}

fn x_inverse(sizes: &DeltaSizes, x: &DeltaHead, block: usize, z: usize) -> Vec<f64> {
    sizes.inverse(x, block * z, z)
}

/// The reference of a problem of one of the kernels.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [n, h, j, d, e] = ["N", "H", "J", "D", "E"].map(|dim| p.dim(dim));
    let l = if p.kernel.name == "delta_blocks" { p.dim("R") * p.dim("Z") } else { p.dim("L") };
    let heads = Heads { problem: p, inputs, sizes: DeltaSizes { n, h, j, d, e, l } };
    let mut all: Vec<Vec<f64>> = Vec::new();
    for b in 0..p.dim("B") {
        let of: Vec<Vec<Vec<f64>>> = (0..h).map(|head| heads.written(b, head)).collect();
        let count = of.first().map_or(0, Vec::len);
        all.resize(count, vec![]);
        for (at, all) in all.iter_mut().enumerate() {
            // What is read lies by tokens, and the rest by heads.
            let by_tokens = at + 1 == count && matches!(p.kernel.name, "delta_rule" | "delta_outputs");
            if by_tokens {
                all.extend((0..n).flat_map(|t| of.iter().flat_map(move |of| of[at][t * e..][..e].to_vec())));
            } else {
                of.iter().for_each(|of| all.extend(&of[at]));
            }
        }
    }
    all
}

/// Operations of a kernel, those of triangles in full.
pub(crate) fn flops(p: &Problem) -> f64 {
    let [l, d, e, z] = ["L", "D", "E", "Z"].map(|dim| p.dim(dim) as f64);
    let chunks = product(p, &["B", "H", "C"]);
    chunks
        * match p.kernel.name {
            "delta_blocks" => 2.0 * (2.0 * z * z * d + 4.0 * z.powi(3)),
            "delta_solve" => 2.0 * (l * l * d + z * z * d + 2.0 * z.powi(3)),
            "delta_factors" => 2.0 * l * l * (d + e),
            "delta_states" => 4.0 * l * d * e,
            "delta_outputs" => 2.0 * l * e * (d + l),
            _ => 2.0 * l * e * (3.0 * d + 2.0 * l),
        }
}
