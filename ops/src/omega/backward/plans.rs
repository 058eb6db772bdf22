//! The backward pass as it is measured, alone and after the forward pass: all segments of a whole sequence.

use super::check::TrainingCase;
use super::problem::flops_of_chunk;
use super::trained::MLP;
use super::{OmegaTraining, TrainingSizes};
use crate::omega::{Chunking, OmegaRule, Tokens};
use crate::plan::{Plan, PlanSizes, Steps, Work, heads_of};
use crate::run::plan_tensor;
use crate::usual::unit;
use atlas_dsl::DType;
use atlas_runtime::{Device, Result, Tensor};

pub(crate) const PLANS: &[Plan] = &[
    Plan::new("omega_mlp_backward_plan", &BACKWARD, [128, 2048, 64, 256, 64, 16]),
    Plan::new("omega_mlp_backward_plan_few", &BACKWARD, [16, 2048, 64, 256, 64, 16]),
    Plan::new("omega_mlp_step_plan", &STEP, [128, 2048, 64, 256, 64, 16]),
    Plan::new("omega_mlp_step_plan_few", &STEP, [16, 2048, 64, 256, 64, 16]),
];

/// Sizes: groups, tokens, elements of a head, hidden elements, tokens of a chunk, tokens of a window.
static BACKWARD: Steps = Steps {
    names: &["G", "T", "D", "M", "L", "W"],
    dtype: DType::Bf16,
    bound: 1e-2,
    // Five rows of a token come in and four gradients go out; gates both ways; the memory before and its gradients.
    bytes: |[g, t, d, m, _, w]| (g * (26 * t * d + 8 * t * (w + 3) + 32 * d * m)) as f64,
    flops: |[g, t, d, m, l, w]| {
        let sizes = [l, l + w - 1, d, d, m].map(|size| size as f64);
        let names = MLP.backward.iter().map(|[kernel, _]| kernel.declared().name);
        (g * t.div_ceil(l)) as f64 * names.map(|name| flops_of_chunk(name, sizes)).sum::<f64>()
    },
    small: |[_, _, d, m, l, w]| [2, l + 5, d, m, l, w],
    start: |device, sizes| start(device, sizes, false),
    check: |device, [g, t, d, m, l, w]| {
        let case = TrainingCase { dtype: DType::Bf16, ..TrainingCase::new([1, t, g], [d, d, m], Chunking::new(l, w)) };
        case.check(device)
    },
};

/// Both passes. Its bytes and operations are those of the backward pass and of [`omega_mlp`](crate::omega::omega_mlp).
static STEP: Steps = Steps {
    bytes: |sizes @ [g, t, d, m, _, w, ..]| {
        (BACKWARD.bytes)(sizes) + (g * (8 * t * d + 4 * t * (w + 3) + 32 * d * m)) as f64
    },
    flops: |sizes @ [g, t, d, m, l, w, ..]| {
        let (k, chunks) = (l + w - 1, t.div_ceil(l));
        (BACKWARD.flops)(sizes) + (g * chunks * ((14 * k + 8 * l) * d * m + 4 * l * k * (d + m))) as f64
    },
    start: |device, sizes| start(device, sizes, true),
    ..BACKWARD
};

/// The backward pass after one forward pass, or with a forward pass each time.
fn start(device: &Device, [g, t, d, m, l, w]: PlanSizes, with_forward: bool) -> Result<Work> {
    let (heads, chunking) = (heads_of(g), Chunking::new(l, w));
    let b = g / heads;
    let of = |dtype, name: &str, fill, sizes: &[usize]| plan_tensor(device, dtype, name, fill, sizes);
    let token = |name: &str| of(DType::Bf16, name, (0.0, unit(d)), &[b, t, heads, d]);
    let gate = |name: &str, mean: f64| of(DType::F32, name, (mean, mean / 20.0), &[b, t, heads]);
    let (q, k, v, dy) = (token("q")?, token("k")?, token("v")?, token("dy")?);
    let (alpha, theta, eta) = (gate("alpha", 0.95)?, gate("theta", 0.8)?, gate("eta", 1e-5)?);
    let gamma = of(DType::F32, "gamma", (0.5, 0.1), &[b, t, heads, w])?;
    let matrix =
        |name: &str, sd: f64, rows: usize, cols: usize| of(DType::F32, name, (0.0, sd), &[b, heads, rows, cols]);
    let mut state = [
        matrix("w1", unit(m), d, m)?,
        matrix("w2", unit(d), m, d)?,
        matrix("s1", 0.01, d, m)?,
        matrix("s2", 0.01, m, d)?,
    ];
    let mut y = Tensor::zeros(device, DType::Bf16, [b, t, heads, d])?;
    let sizes = TrainingSizes { sequences: b, tokens: t, heads, key: d, value: d, hidden: m, dtype: DType::Bf16 };
    let mut training = OmegaTraining::new(device, OmegaRule::omega_net(chunking), sizes, None)?;
    let (mut kept, mut gradients) = (training.kept()?, training.gradients()?);
    let stream = device.default_stream();
    let mut is_kept = false;
    Ok(Box::new(move || {
        let tokens =
            Tokens { q: &q, k: &k, v: &v, rq: &q, rk: &k, alpha: &alpha, theta: &theta, eta: &eta, gamma: &gamma };
        if with_forward || !is_kept {
            training.forward(&stream, &tokens, &mut state.each_mut(), &mut y, &mut kept)?;
            is_kept = true;
        }
        training.backward(&stream, &tokens, &kept, &dy, None, &mut gradients)
    }))
}
