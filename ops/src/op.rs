//! The table of ops: their kernels, references, bounds and costs.

use crate::problem::{Fill, Inputs, Op, Problem};
use crate::random_features::Feature;
use crate::tolerance::ToleranceClass;
use crate::{
    attention, attention_decode, block_attention, fused_forward, gated_memory, inverse, layer, linear_gelu,
    log_sum_exp, matmul, memory_grad, memory_read, monomials, muon, newton_schulz_small, omega, poly_features,
    random_features, rbf_features, rms_norm, rotary, softmax, taylor_features, transpose, window_sums,
    windowed_attention,
};

/// Learned coefficients of a polynomial feature map start near those of an exponential.
const COEFFICIENTS: [(&str, f32); 4] = [("a1", 1.0), ("a2", 0.5), ("a3", -0.25), ("a4", 0.125)];

/// Every op, by name.
pub static OPS: [Op; 28] = [
    Op {
        name: "attention",
        kernels: &[&attention::attention],
        class: ToleranceClass::Mlp,
        batch: "H",
        scalars: &[("scale", 0.18)],
        state: &[],
        fill: normal,
        reference: |p, i| {
            let shape = [p.dim("M"), p.dim("N"), p.dim("D")];
            vec![attention::reference(&i.get("q"), &i.get("k"), &i.get("v"), f64::from(p.scalar("scale")), shape)]
        },
        rounded: nothing,
        flops: |p| 4.0 * product(p, &["H", "M", "N", "D"]),
    },
    Op {
        name: "attention_decode",
        kernels: &[&attention_decode::decode_parts, &attention_decode::decode_join],
        class: ToleranceClass::Mlp,
        batch: "S",
        scalars: &[("scale", 0.18)],
        state: &[],
        fill: |p, name| match name {
            "tokens" => Fill::Around(0.8 * p.dim("W") as f64, 0.3 * p.dim("W") as f64),
            "totals" => Fill::Around(20.0, 2.0),
            _ => Fill::Normal(1.0),
        },
        reference: attention_decode::checked,
        rounded: nothing,
        flops: |p| 4.0 * product(p, &["S", "J", "R", "D"]) * p.dim("W").max(p.dim("X")) as f64,
    },
    Op {
        name: "block_attention",
        kernels: &[&block_attention::block_attention],
        class: ToleranceClass::Mlp,
        batch: "B",
        scalars: &[("scale", 0.18), ("causal", 1.0)],
        state: &[],
        // Each block of queries sees the blocks of keys up to its own.
        fill: |_, name| match name {
            "blocks" => Fill::Starts(1),
            "counts" => Fill::Ordinals,
            _ => Fill::Normal(1.0),
        },
        reference: block_attention::checked,
        rounded: nothing,
        flops: |p| 4.0 * product(p, &["B", "M", "H", "D", "K"]) * block_attention::BLOCK as f64 / 2.0,
    },
    Op {
        name: "fused_forward",
        kernels: &[
            &fused_forward::fused_forward,
            &fused_forward::mag_forward,
            &fused_forward::lerp_forward,
            &fused_forward::group_norm,
            &fused_forward::silu_gate,
            &fused_forward::sigmoid_gate,
            &fused_forward::lerp_gate,
        ],
        class: ToleranceClass::Mlp,
        batch: "G",
        scalars: &[("a1", 1.0), ("a2", 0.5), ("a3", -0.25), ("eps", 1e-6)],
        state: &[],
        fill: |p, name| match name {
            "w2" => Fill::Normal((p.dim("D").max(1) as f64).powf(-0.5)),
            "w1" => Fill::Normal((p.dim("H").max(1) as f64).powf(-0.5)),
            _ => Fill::Normal(1.0),
        },
        reference: fused_forward::reference,
        rounded: nothing,
        flops: |p| (4.0 * p.dim("H") as f64 + 15.0) * product(p, &["G", "N", "D"]),
    },
    Op {
        name: "gated_memory",
        kernels: &[
            &gated_memory::memory_read_gated,
            &gated_memory::memory_read_normed,
            &gated_memory::memory_gated_errors,
            &gated_memory::memory_gated_grads,
        ],
        class: ToleranceClass::Mlp,
        batch: "G",
        scalars: &[("scale", 2.0), ("eps", 1e-5)],
        state: &[],
        fill: |p, name| match name {
            "w2" | "w3" => Fill::Normal((p.dim("D").max(1) as f64).powf(-0.5)),
            "w1" => Fill::Normal((p.dim("H").max(1) as f64).powf(-0.5)),
            "c" => Fill::Around(0.5, 0.2),
            _ => Fill::Normal(1.0),
        },
        reference: gated_memory::checked,
        rounded: nothing,
        flops: |p| {
            let products = match p.kernel.name {
                "memory_read_normed" => 4.0,
                "memory_gated_grads" => 12.0,
                _ => 6.0,
            };
            products * product(p, &["G", "N", "H"]) * (p.dim("D") + p.dim("E")) as f64 / 2.0
        },
    },
    Op {
        name: "inverse",
        kernels: &[&inverse::inverse],
        class: ToleranceClass::Mlp,
        batch: "B",
        scalars: &[("count", 20.0), ("damping", 4.0)],
        state: &[],
        fill: |p, _| Fill::Normal((p.dim("N").max(1) as f64).powf(-0.5)),
        reference: |p, i| inverse::reference(&i.get("a"), p.dim("N"), f64::from(p.scalar("damping"))).into(),
        rounded: nothing,
        flops: |p| 4.0 * f64::from(p.scalar("count")) * product(p, &["B", "N", "N", "N"]),
    },
    Op {
        name: "layer",
        kernels: &[
            &layer::layer_features,
            &layer::layer_norm,
            &layer::layer_gate,
            &layer::layer_combine,
            &omega::stream::omega_copy_tokens,
            &omega::stream::omega_copy_gates,
        ],
        class: ToleranceClass::Norm,
        batch: "B",
        scalars: &[("a1", 1.0), ("a2", 0.5), ("a3", -0.25), ("eps", 1e-6)],
        state: &[],
        fill: normal,
        reference: layer::reference::checked,
        rounded: nothing,
        flops: |p| 10.0 * product(p, &["B", "N", "H", "D"]),
    },
    Op {
        name: "linear_gelu",
        kernels: &[&linear_gelu::linear_gelu],
        class: ToleranceClass::Mlp,
        batch: "M",
        scalars: &[],
        state: &[],
        fill: |p, name| Fill::Normal(if name == "w" { (p.dim("K").max(1) as f64).powf(-0.5) } else { 1.0 }),
        reference: |p, i| {
            let [x, w, b] = ["x", "w", "b"].map(|name| i.get(name));
            vec![linear_gelu::reference(&x, &w, &b, ["M", "N", "K"].map(|dim| p.dim(dim)))]
        },
        rounded: nothing,
        flops: |p| 2.0 * product(p, &["M", "N", "K"]),
    },
    Op {
        name: "log_sum_exp",
        kernels: &[&log_sum_exp::log_sum_exp],
        class: ToleranceClass::Norm,
        batch: "N",
        scalars: &[],
        state: &[],
        fill: normal,
        reference: |p, i| vec![log_sum_exp::reference(&i.get("x"), p.dim("V"))],
        rounded: nothing,
        flops: |p| 4.0 * product(p, &["N", "V"]),
    },
    Op {
        name: "matmul",
        kernels: &[&matmul::matmul],
        class: ToleranceClass::Mlp,
        batch: "M",
        scalars: &[],
        state: &[],
        fill: normal,
        reference: |p, i| vec![matmul::reference(&i.get("a"), &i.get("b"), ["M", "N", "K"].map(|dim| p.dim(dim)))],
        rounded: nothing,
        flops: |p| 2.0 * product(p, &["M", "N", "K"]),
    },
    Op {
        name: "memory_grad",
        kernels: &[&memory_grad::memory_errors, &memory_grad::memory_weight_grads, &memory_grad::memory_input_grad],
        class: ToleranceClass::Mlp,
        batch: "G",
        scalars: &[("scale", 2.0)],
        state: &[],
        fill: |p, name| match name {
            "w2" => Fill::Normal((p.dim("D").max(1) as f64).powf(-0.5)),
            "w1" => Fill::Normal((p.dim("H").max(1) as f64).powf(-0.5)),
            "c" => Fill::Around(0.5, 0.2),
            _ => Fill::Normal(1.0),
        },
        reference: memory_grad::checked,
        rounded: nothing,
        flops: |p| {
            let products = match p.kernel.name {
                "memory_errors" => 4.0,
                "memory_weight_grads" => 8.0,
                _ => 6.0,
            };
            products * product(p, &["G", "N", "H"]) * (p.dim("D") + p.dim("E")) as f64 / 2.0
        },
    },
    Op {
        name: "memory_read",
        kernels: &[&memory_read::memory_read],
        class: ToleranceClass::Mlp,
        batch: "G",
        scalars: &[],
        state: &[],
        fill: |p, name| match name {
            "w2" => Fill::Normal((p.dim("D").max(1) as f64).powf(-0.5)),
            "w1" => Fill::Normal((p.dim("H").max(1) as f64).powf(-0.5)),
            _ => Fill::Normal(1.0),
        },
        reference: |p, i| {
            let shape = [p.dim("N"), p.dim("D"), p.dim("H")];
            vec![memory_read::reference(&i.get("x"), &i.get("w2"), &i.get("w1"), &i.get("r"), shape)]
        },
        rounded: nothing,
        flops: |p| 4.0 * product(p, &["G", "N", "D", "H"]),
    },
    Op {
        name: "monomials",
        kernels: &[&monomials::monomials2, &monomials::monomials3, &monomials::powers2, &monomials::powers3],
        class: ToleranceClass::Features,
        batch: "N",
        scalars: &[("c0", 1.0), ("c1", 1.0), ("c2", 0.75), ("c3", 0.5)],
        state: &[],
        fill: normal,
        reference: |p, i| {
            let (x, d, is_plain) = (i.get("x"), p.dim("D"), p.scalar("plain") > 0.0);
            let c = ["c0", "c1", "c2", "c3"].map(|c| f64::from(p.scalar(c)));
            vec![match p.kernel.name {
                "monomials2" => monomials::reference(&x, d, p.dim("E"), &c[..3], is_plain),
                "monomials3" => monomials::reference(&x, d, p.dim("E"), &c, is_plain),
                "powers2" => monomials::powers(&x, d, 2),
                _ => monomials::powers(&x, d, 3),
            }]
        },
        rounded: nothing,
        flops: |p| match p.kernel.name {
            "powers2" => 2.0 * product(p, &["N", "D", "D"]),
            "powers3" => 3.0 * product(p, &["N", "D", "D", "D"]),
            _ => 2.0 * product(p, &["N", "E"]),
        },
    },
    Op {
        name: "muon",
        kernels: &[
            &muon::ns_squares,
            &muon::ns_normalise,
            &muon::ns_gram,
            &muon::ns_product,
            &muon::ns_apply,
            &muon::muon_momentum,
            &muon::muon_apply,
        ],
        class: ToleranceClass::Mlp,
        batch: "B",
        scalars: &[
            ("stretch", 1.02),
            ("eps", 1e-7),
            ("safe", 0.0),
            ("centre", 0.25),
            ("first", 3.4),
            ("second", -4.8),
            ("third", 2.0),
            ("mu", 0.95),
            ("fresh", 1.0),
            ("ahead", 1.0),
            ("momentum", 0.95),
            ("keep", 0.99),
            ("step", 0.02),
        ],
        state: &["buf", "w"],
        fill: |p, name| match name {
            "largest" | "squares" => Fill::Around(3.0, 0.3),
            "p" | "q" if p.kernel.name == "ns_product" => Fill::Circulant((p.dim("M").max(1) as f64).powf(-0.5)),
            "p" => Fill::Normal((p.dim("M").max(1) as f64).powf(-0.5)),
            _ => Fill::Normal(1.0),
        },
        reference: muon::reference::checked,
        rounded: nothing,
        flops: |p| match p.kernel.name {
            "ns_apply" => 2.0 * product(p, &["B", "M", "M", "N"]),
            // Half of it: what is symmetric is needed once.
            "ns_gram" => product(p, &["B", "M", "M", "N"]),
            "ns_product" => product(p, &["B", "M", "M", "M"]),
            _ => 4.0 * product(p, &["B", "M", "N"]),
        },
    },
    Op {
        name: "newton_schulz_small",
        kernels: &[&newton_schulz_small::newton_schulz_small],
        class: ToleranceClass::NewtonSchulz,
        batch: "B",
        scalars: &[],
        state: &[],
        fill: normal,
        reference: |p, i| vec![newton_schulz_small::reference(&i.get("g"), [p.dim("M"), p.dim("N")])],
        rounded: nothing,
        flops: |p| 20.0 * product(p, &["B", "M", "M", "N"]) + 10.0 * product(p, &["B", "M", "M", "M"]),
    },
    Op {
        name: "omega",
        kernels: &[
            &omega::omega_mix,
            &omega::omega_mlp,
            &omega::omega_linear,
            &omega::omega_token_gates,
            &omega::omega_decay_gates,
            &omega::omega_muon,
            &omega::fused_optimization,
            &omega::fused_descent,
        ],
        class: ToleranceClass::Mlp,
        batch: "B",
        scalars: &[("scale", 2.0), ("commit", 1000.0), ("count", 5.0)],
        state: &["w", "s", "w1", "w2", "s1", "s2"],
        fill: omega::problem::fill,
        reference: omega::problem::checked,
        rounded: omega::problem::rounded,
        flops: omega::problem::flops,
    },
    Op {
        name: "omega_muon_tokens",
        kernels: &[&omega::omega_muon_tokens],
        // Weights are sums of orthogonalised steps, and no closer than those.
        class: ToleranceClass::NewtonSchulz,
        batch: "B",
        scalars: &[("scale", 2.0), ("chunk", 8.0)],
        state: &["w1", "w2", "s1", "s2"],
        fill: omega::problem::fill,
        reference: omega::problem::checked,
        rounded: omega::problem::rounded,
        flops: omega::problem::flops,
    },
    Op {
        name: "packing",
        kernels: &[
            &omega::packed::omega_unpack_tokens,
            &omega::packed::omega_unpack_gates,
            &omega::packed::omega_pack_tokens,
        ],
        class: ToleranceClass::Exact,
        // Documents are no dim of what is packed.
        batch: "H",
        scalars: &[("fill", 1.0)],
        state: &[],
        fill: |p, name| {
            let each = (p.dim("P") / p.dim("B").max(1)) as u64;
            match name {
                "starts" => Fill::Every(each, 0),
                "ends" => Fill::Every(each, each.saturating_sub(1)),
                _ => Fill::Normal(1.0),
            }
        },
        reference: omega::packed::checked,
        rounded: nothing,
        flops: |_| 0.0,
    },
    Op {
        name: "poly_features",
        kernels: &[&poly_features::poly1, &poly_features::poly2, &poly_features::poly3, &poly_features::poly4],
        class: ToleranceClass::Features,
        batch: "N",
        scalars: &COEFFICIENTS,
        state: &[],
        fill: normal,
        reference: |p, i| {
            let degree = p.kernel.params.len() - 2;
            let a: Vec<f64> = COEFFICIENTS[..degree].iter().map(|(_, a)| f64::from(*a)).collect();
            vec![poly_features::reference(&i.get("x"), &a)]
        },
        rounded: nothing,
        flops: |p| 2.0 * (p.kernel.params.len() - 2) as f64 * product(p, &["N", "D"]),
    },
    Op {
        name: "random_features",
        kernels: &[
            &random_features::favor_features,
            &random_features::fourier_features,
            &random_features::fourier_pairs,
        ],
        class: ToleranceClass::Projected,
        batch: "N",
        scalars: &[("scale", 0.35), ("shift", 0.5)],
        state: &[],
        fill: of_unit_rows,
        reference: |p, i| {
            let b = i.get("b");
            let feature = match p.kernel.name {
                "favor_features" => Feature::Favor(f64::from(p.scalar("scale")), f64::from(p.scalar("shift"))),
                "fourier_features" => Feature::Cosine(&b),
                _ => Feature::Pair,
            };
            vec![random_features::reference(&i.get("x"), &i.get("w"), &feature, [p.dim("D"), p.dim("M")])]
        },
        rounded: nothing,
        flops: |p| 2.0 * product(p, &["N", "D", "M"]),
    },
    Op {
        name: "rbf_features",
        kernels: &[&rbf_features::rbf_features],
        class: ToleranceClass::Projected,
        batch: "N",
        scalars: &[],
        state: &[],
        fill: of_unit_rows,
        reference: |p, i| vec![rbf_features::reference(&i.get("x"), &i.get("c"), &i.get("g"), p.dim("D"))],
        rounded: nothing,
        flops: |p| 2.0 * product(p, &["N", "D", "M"]),
    },
    Op {
        name: "rms_norm",
        kernels: &[&rms_norm::rms_norm],
        class: ToleranceClass::Norm,
        batch: "N",
        scalars: &[("eps", 1e-6)],
        state: &[],
        fill: normal,
        reference: |p, i| vec![rms_norm::reference(&i.get("x"), &i.get("w"), f64::from(p.scalar("eps")))],
        rounded: nothing,
        flops: |p| 4.0 * product(p, &["N", "D"]),
    },
    Op {
        name: "rotary",
        kernels: &[&rotary::rotary],
        class: ToleranceClass::Features,
        batch: "N",
        scalars: &[],
        state: &[],
        fill: normal,
        reference: |p, i| vec![rotary::reference(&i.get("x"), &i.get("c"), &i.get("s"), [p.dim("H"), p.dim("D")])],
        rounded: nothing,
        flops: |p| 6.0 * product(p, &["N", "H", "D"]),
    },
    Op {
        name: "softmax",
        kernels: &[&softmax::softmax],
        class: ToleranceClass::Norm,
        batch: "N",
        scalars: &[],
        state: &[],
        fill: normal,
        reference: |p, i| vec![softmax::reference(&i.get("x"), p.dim("D"))],
        rounded: nothing,
        flops: |p| 5.0 * product(p, &["N", "D"]),
    },
    Op {
        name: "taylor_features",
        kernels: &[&taylor_features::taylor2_features],
        class: ToleranceClass::Features,
        batch: "N",
        scalars: &[],
        state: &[],
        fill: normal,
        reference: |p, i| vec![taylor_features::reference(&i.get("x"), p.dim("D"))],
        rounded: nothing,
        flops: |p| 2.0 * product(p, &["N", "D", "D"]),
    },
    Op {
        name: "transpose",
        kernels: &[&transpose::transpose, &transpose::swap_axes],
        class: ToleranceClass::Exact,
        batch: "N",
        scalars: &[],
        state: &[],
        fill: normal,
        reference: |p, i| {
            vec![match p.kernel.name {
                "swap_axes" => transpose::swapped(&i.get("x"), [p.dim("B"), p.dim("C"), p.dim("D")]),
                _ => transpose::reference(&i.get("x"), [p.dim("N"), p.dim("M")]),
            }]
        },
        rounded: nothing,
        flops: |_| 0.0,
    },
    Op {
        name: "window_sums",
        kernels: &[
            &window_sums::window_sum,
            &window_sums::token_losses,
            &window_sums::window_totals,
            &window_sums::window_sum_eights,
        ],
        class: ToleranceClass::Norm,
        batch: "B",
        scalars: &[("window", 64.0), ("scale", 0.5)],
        state: &[],
        fill: normal,
        reference: window_sums::checked,
        rounded: nothing,
        flops: |p| {
            let terms = if p.kernel.name == "token_losses" { 3.0 } else { f64::from(p.scalar("window")) };
            // What does the same in blocks counts as what it does.
            terms
                * if p.kernel.name == "window_sum_eights" {
                    product(p, &["B", "M", "E", "D"])
                } else {
                    product(p, &["B", "N", "D"])
                }
        },
    },
    Op {
        name: "windowed_attention",
        kernels: &[&windowed_attention::windowed_attention],
        class: ToleranceClass::Mlp,
        batch: "B",
        scalars: &[("scale", 0.18), ("window", 512.0)],
        state: &[],
        fill: |_, name| if name == "first" { Fill::Starts(1 << 30) } else { Fill::Normal(1.0) },
        reference: windowed_attention::checked,
        rounded: nothing,
        flops: |p| {
            let (n, w) = (p.dim("N") as f64, f64::from(p.scalar("window")).min(p.dim("N") as f64));
            let seen = (w * n - w * (w - 1.0) / 2.0) * p.dim("M") as f64 / n.max(1.0);
            4.0 * product(p, &["B", "H", "D"]) * (seen + product(p, &["M", "S"]))
        },
    },
];

/// Rows of `x` and `c` are of about unit length, as normalised keys are.
fn of_unit_rows(p: &Problem, name: &str) -> Fill {
    match name {
        "x" | "c" => Fill::Normal((p.dim("D").max(1) as f64).powf(-0.5)),
        // Widths of radial functions: all positive.
        "g" => Fill::Around(0.5, 0.1),
        _ => Fill::Normal(1.0),
    }
}

/// Of kernels that magnify no rounding.
fn nothing(_: &Problem, _: &Inputs) -> Option<Vec<Vec<f64>>> {
    None
}

fn normal(_: &Problem, _: &str) -> Fill {
    Fill::Normal(1.0)
}

/// An op by name, or by the name of one of its kernels.
pub fn find(name: &str) -> Option<&'static Op> {
    OPS.iter().find(|op| op.name == name || op.defs().any(|k| k.name == name))
}

/// True if a kernel is one of an op, and not another of the same name.
pub fn ships(def: &atlas_dsl::KernelDef) -> bool {
    OPS.iter().flat_map(Op::defs).any(|k| std::ptr::eq(k, def))
}

fn product(p: &Problem, dims: &[&str]) -> f64 {
    dims.iter().map(|d| p.dim(d) as f64).product()
}
