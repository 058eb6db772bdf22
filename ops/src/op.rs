//! The table of ops: their kernels, references, bounds and costs.

use crate::problem::{Inputs, Problem};
use crate::random_features::Feature;
use crate::tolerance::Class;
use crate::{
    attention, log_sum_exp, matmul, memory_read, newton_schulz_small, poly_features, random_features, rbf_features,
    rms_norm, rotary, softmax, transpose,
};
use atlas_dsl::KernelDef;

/// An op.
pub struct Op {
    /// Its name: that of its file.
    pub name: &'static str,
    /// Its kernels.
    pub kernels: &'static [&'static KernelDef],
    /// Which bound it must meet.
    pub class: Class,
    /// The dim whose indices are independent of each other; a reference may be taken of some of them.
    pub batch: &'static str,
    /// Values of the scalar arguments.
    pub scalars: &'static [(&'static str, f32)],
    /// Standard deviation of an input.
    pub scale: fn(&Problem, &str) -> f64,
    /// The f64 reference.
    pub reference: fn(&Problem, &Inputs) -> Vec<f64>,
    /// Floating-point operations of a problem.
    pub flops: fn(&Problem) -> f64,
}

/// Learned coefficients of a polynomial feature map start near those of an exponential.
const COEFFICIENTS: [(&str, f32); 4] = [("a1", 1.0), ("a2", 0.5), ("a3", -0.25), ("a4", 0.125)];

/// Every op, by name.
pub static OPS: [Op; 12] = [
    Op {
        name: "attention",
        kernels: &[&attention::attention],
        class: Class::Mlp,
        batch: "H",
        scalars: &[("scale", 0.18)],
        scale: |_, _| 1.0,
        reference: |p, i| {
            let shape = [p.dim("M"), p.dim("N"), p.dim("D")];
            attention::reference(&i.get("q"), &i.get("k"), &i.get("v"), f64::from(p.scalar("scale")), shape)
        },
        flops: |p| 4.0 * product(p, &["H", "M", "N", "D"]),
    },
    Op {
        name: "log_sum_exp",
        kernels: &[&log_sum_exp::log_sum_exp],
        class: Class::Norm,
        batch: "N",
        scalars: &[],
        scale: |_, _| 1.0,
        reference: |p, i| log_sum_exp::reference(&i.get("x"), p.dim("V")),
        flops: |p| 4.0 * product(p, &["N", "V"]),
    },
    Op {
        name: "matmul",
        kernels: &[&matmul::matmul],
        class: Class::Mlp,
        batch: "M",
        scalars: &[],
        scale: |_, _| 1.0,
        reference: |p, i| matmul::reference(&i.get("a"), &i.get("b"), [p.dim("N"), p.dim("K")]),
        flops: |p| 2.0 * product(p, &["M", "N", "K"]),
    },
    Op {
        name: "memory_read",
        kernels: &[&memory_read::memory_read],
        class: Class::Mlp,
        batch: "G",
        scalars: &[],
        scale: |p, name| match name {
            "w2" => (p.dim("D").max(1) as f64).powf(-0.5),
            "w1" => (p.dim("H").max(1) as f64).powf(-0.5),
            _ => 1.0,
        },
        reference: |p, i| {
            memory_read::reference(
                &i.get("x"),
                &i.get("w2"),
                &i.get("w1"),
                &i.get("r"),
                [p.dim("N"), p.dim("D"), p.dim("H")],
            )
        },
        flops: |p| 4.0 * product(p, &["G", "N", "D", "H"]),
    },
    Op {
        name: "newton_schulz_small",
        kernels: &[&newton_schulz_small::newton_schulz_small],
        class: Class::NewtonSchulz,
        batch: "B",
        scalars: &[],
        scale: |_, _| 1.0,
        reference: |p, i| newton_schulz_small::reference(&i.get("g"), [p.dim("M"), p.dim("N")]),
        flops: |p| 20.0 * product(p, &["B", "M", "M", "N"]) + 10.0 * product(p, &["B", "M", "M", "M"]),
    },
    Op {
        name: "poly_features",
        kernels: &[&poly_features::poly1, &poly_features::poly2, &poly_features::poly3, &poly_features::poly4],
        class: Class::Features,
        batch: "N",
        scalars: &COEFFICIENTS,
        scale: |_, _| 1.0,
        reference: |p, i| {
            let degree = p.kernel.params.len() - 2;
            let a: Vec<f64> = COEFFICIENTS[..degree].iter().map(|(_, a)| f64::from(*a)).collect();
            poly_features::reference(&i.get("x"), &a)
        },
        flops: |p| 2.0 * (p.kernel.params.len() - 2) as f64 * product(p, &["N", "D"]),
    },
    Op {
        name: "random_features",
        kernels: &[
            &random_features::favor_features,
            &random_features::fourier_features,
            &random_features::fourier_pairs,
        ],
        class: Class::Projected,
        batch: "N",
        scalars: &[("scale", 0.35), ("shift", 0.5)],
        scale: of_unit_rows,
        reference: |p, i| {
            let b = i.get("b");
            let feature = match p.kernel.name {
                "favor_features" => Feature::Favor(f64::from(p.scalar("scale")), f64::from(p.scalar("shift"))),
                "fourier_features" => Feature::Cosine(&b),
                _ => Feature::Pair,
            };
            random_features::reference(&i.get("x"), &i.get("w"), &feature, [p.dim("D"), p.dim("M")])
        },
        flops: |p| 2.0 * product(p, &["N", "D", "M"]),
    },
    Op {
        name: "rbf_features",
        kernels: &[&rbf_features::rbf_features],
        class: Class::Projected,
        batch: "N",
        scalars: &[],
        scale: of_unit_rows,
        reference: |p, i| rbf_features::reference(&i.get("x"), &i.get("c"), &i.get("g"), p.dim("D")),
        flops: |p| 2.0 * product(p, &["N", "D", "M"]),
    },
    Op {
        name: "rms_norm",
        kernels: &[&rms_norm::rms_norm],
        class: Class::Norm,
        batch: "N",
        scalars: &[("eps", 1e-6)],
        scale: |_, _| 1.0,
        reference: |p, i| rms_norm::reference(&i.get("x"), &i.get("w"), f64::from(p.scalar("eps"))),
        flops: |p| 4.0 * product(p, &["N", "D"]),
    },
    Op {
        name: "rotary",
        kernels: &[&rotary::rotary],
        class: Class::Features,
        batch: "N",
        scalars: &[],
        scale: |_, _| 1.0,
        reference: |p, i| rotary::reference(&i.get("x"), &i.get("c"), &i.get("s"), [p.dim("H"), p.dim("D")]),
        flops: |p| 6.0 * product(p, &["N", "H", "D"]),
    },
    Op {
        name: "softmax",
        kernels: &[&softmax::softmax],
        class: Class::Norm,
        batch: "N",
        scalars: &[],
        scale: |_, _| 1.0,
        reference: |p, i| softmax::reference(&i.get("x"), p.dim("D")),
        flops: |p| 5.0 * product(p, &["N", "D"]),
    },
    Op {
        name: "transpose",
        kernels: &[&transpose::transpose],
        class: Class::Exact,
        batch: "N",
        scalars: &[],
        scale: |_, _| 1.0,
        reference: |p, i| transpose::reference(&i.get("x"), [p.dim("N"), p.dim("M")]),
        flops: |_| 0.0,
    },
];

/// Rows of `x` and `c` are of about unit length, as normalised keys are.
fn of_unit_rows(p: &Problem, name: &str) -> f64 {
    if matches!(name, "x" | "c") { (p.dim("D").max(1) as f64).powf(-0.5) } else { 1.0 }
}

/// An op by name, or by the name of one of its kernels.
pub fn find(name: &str) -> Option<&'static Op> {
    OPS.iter().find(|op| op.name == name || op.kernels.iter().any(|k| k.name == name))
}

fn product(p: &Problem, dims: &[&str]) -> f64 {
    dims.iter().map(|d| p.dim(d) as f64).product()
}
