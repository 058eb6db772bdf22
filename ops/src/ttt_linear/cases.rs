//! The op `ttt_linear`: the row of the table, and its problems to verify, simulate and measure.

use super::reference::{TttHead, TttMemory, TttScalars};
use crate::omega::reference::of_head;
use crate::problem::{Fill, Inputs, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{product, unit};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("scale", 0.25), ("eps", 1e-6)],
    state: &["s", "bias"],
    fill,
    plans: super::plans::PLANS,
    ..Op::of(Required {
        name: "ttt_linear",
        kernels: const { &[&super::ttt_mix, &super::ttt_linear] },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: checked,
        flops,
        verification,
        simulation,
        measured: &[
            Measured::bf16("ttt_mix", "ttt_mix", &[1, 8192, 16, 64, 512, 16]),
            Measured::bf16("ttt_linear", "ttt_linear", &[1, 8192, 16, 64, 512, 16]),
        ],
    })
};

/// Keys of about unit length, and a memory that makes rows of about the deviation 1 of them.
fn fill(p: &Problem, name: &str) -> Fill {
    match name {
        "k" => Fill::Normal(unit(p.dim("D"))),
        "q" => Fill::Normal(4.0 * unit(p.dim("D"))),
        "eta" => Fill::Around(0.1, 0.02),
        "p" => Fill::Normal(0.1),
        "weight" => Fill::Around(1.0, 0.1),
        "bias" | "shift" => Fill::Normal(0.1),
        _ => Fill::Normal(1.0),
    }
}

fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [n, h, d, c, l] = ["N", "H", "D", "C", "L"].map(|dim| p.dim(dim));
    let tokens = |name: &str, b: usize, head: usize, width: usize| {
        let (all, len) = (inputs.get(name), n * h * width);
        if all.is_empty() { all } else { of_head(&all[b * len..][..len], head, h, width) }
    };
    let own = |name: &str, at: usize, len: usize| {
        let all = inputs.get(name);
        if all.is_empty() { all } else { all[at * len..][..len].to_vec() }
    };
    let scalars = TttScalars { scale: f64::from(p.scalar("scale")), eps: f64::from(p.scalar("eps")) };
    let (mut mixes, mut memories, mut biases) = (vec![], vec![], vec![]);
    let mut read = vec![0.0; p.dim("B") * n * h * d];
    for at in 0..p.dim("B") * h {
        let (b, head) = (at / h, at % h);
        let of = TttHead {
            d,
            l,
            q: tokens("q", b, head, d),
            k: tokens("k", b, head, d),
            v: tokens("v", b, head, d),
            eta: tokens("eta", b, head, 1),
            weight: own("weight", head, d),
            shift: own("shift", head, d),
        };
        if p.kernel.name == "ttt_mix" {
            mixes.extend(of.mix(c, scalars.scale));
            continue;
        }
        let mut memory = TttMemory { w: own("s", at, d * d), b: own("bias", at, d) };
        for (t, row) in of.mixed(&own("p", at, c * l * l), &mut memory, scalars).chunks(d).enumerate() {
            read[((b * n + t) * h + head) * d..][..d].copy_from_slice(row);
        }
        memories.extend(memory.w);
        biases.extend(memory.b);
    }
    if p.kernel.name == "ttt_mix" { vec![mixes] } else { vec![memories, biases, read] }
}

/// Operations of a kernel, those of triangles in full.
fn flops(p: &Problem) -> f64 {
    let [l, d] = ["L", "D"].map(|dim| p.dim(dim) as f64);
    let pairs = 2.0 * product(p, &["B", "H", "C"]) * l * l * d;
    if p.kernel.name == "ttt_mix" { pairs } else { pairs + 6.0 * product(p, &["B", "H", "C"]) * l * d * d }
}

/// Sizes: B N H D C L, the order of both kernels.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let of = |kernel: usize, sizes: [u64; 6]| Problem::new(op, op.kernel(kernel), dtype, &sizes);
    let mut problems = Vec::new();
    for kernel in 0..2 {
        problems.extend([
            of(kernel, [2, 64, 2, 64, 4, 16]),
            of(kernel, [2, 23, 2, 24, 3, 8]).note("ragged"),
            of(kernel, [1, 70, 2, 48, 5, 16]).note("ragged"),
            of(kernel, [1, 70, 1, 96, 3, 32]).note("ragged"),
            of(kernel, [1, 100, 1, 128, 2, 64]).note("ragged"),
            of(kernel, [1, 11, 1, 40, 3, 5]).note("odd"),
            of(kernel, [1, 1, 1, 128, 1, 16]).note("one token"),
            of(kernel, [1, 6, 2, 16, 6, 1]).note("the shortest mini-batches"),
            of(kernel, [1, 0, 1, 32, 0, 16]).note("no token"),
            of(kernel, [2, 40, 1, 32, 3, 16]).fill("eta", Fill::Around(0.0, 0.0)).note("no step"),
            of(kernel, [2, 20, 1, 32, 2, 16]).fill("k", Fill::NanAt(1)).note("NaN in one sequence"),
        ]);
    }
    problems.push(of(1, [1, 40, 1, 64, 3, 16]).fill("s", Fill::Around(0.0, 0.0)).note("an empty memory"));
    problems.push(equal_rows(op, dtype));
    problems
}

/// Rows of equal numbers that are far from 0, which a norm makes zeros.
fn equal_rows(op: &'static Op, dtype: DType) -> Problem {
    let zero = Fill::Around(0.0, 0.0);
    let p = Problem::new(op, op.kernel(1), dtype, &[1, 20, 1, 96, 2, 16]);
    p.fill("s", zero).fill("bias", Fill::Around(100.3, 0.0)).fill("p", zero).note("rows of equal numbers")
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let sizes =
        [([1, 23, 1, 24, 3, 8], "ragged"), ([1, 36, 2, 64, 3, 16], "ragged"), ([1, 40, 1, 48, 2, 32], "ragged")];
    (0..2)
        .flat_map(|kernel| sizes.map(|(sizes, note)| Problem::new(op, op.kernel(kernel), dtype, &sizes).note(note)))
        .chain([equal_rows(op, dtype)])
        .collect()
}
