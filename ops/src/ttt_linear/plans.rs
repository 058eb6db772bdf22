//! TTT-Linear as it is measured: a whole sequence by both launches.

use super::check::TttCase;
use super::{MiniBatches, TTT_LINEAR};
use crate::plan::{Plan, PlanSizes, Steps, Work};
use crate::run::plan_tensor;
use crate::usual::unit;
use atlas_dsl::DType;
use atlas_runtime::{Arg, Device, Result, Tensor};

/// Heads of the paper's models, with 64 elements, and of 128.
pub(crate) const PLANS: &[Plan] = &[
    Plan::new("ttt_linear_plan", &LINEAR, [1, 8192, 32, 64, 16]),
    Plan::new("ttt_linear_plan_heads_of_128", &LINEAR, [1, 8192, 16, 128, 16]),
];

/// Sizes: sequences, tokens, heads, elements of a head, tokens of a mini-batch.
static LINEAR: Steps = Steps {
    names: &["B", "T", "H", "D", "L"],
    dtype: DType::Bf16,
    bound: 1e-2,
    bytes: |[b, t, h, d, ..]| (b * t * h * (8 * d + 4) + 8 * b * h * d * (d + 1)) as f64,
    flops: |[b, t, h, d, l, _]| (2 * b * t * h * (3 * d * d + 2 * l * d)) as f64,
    small: |[b, _, _, d, l, _]| [b, 2 * l + 5, 2, d, l, 0],
    start: work,
    check: |device, [b, t, h, d, l, _]| TttCase { dtype: DType::Bf16, ..TttCase::new([b, t, h], d, l) }.check(device),
};

/// The memory goes on from run to run.
fn work(device: &Device, [b, t, h, d, l, _]: PlanSizes) -> Result<Work> {
    let of = |dtype, name: &str, fill, sizes: &[usize]| plan_tensor(device, dtype, name, fill, sizes);
    let tokens = |name: &str, sd| of(DType::Bf16, name, (0.0, sd), &[b, t, h, d]);
    let (q, k, v) = (tokens("q", 1.0)?, tokens("k", unit(d))?, tokens("v", 1.0)?);
    let eta = of(DType::F32, "eta", (0.1, 0.02), &[b, t, h])?;
    let (weight, shift) =
        (of(DType::F32, "weight", (1.0, 0.1), &[h, d])?, of(DType::F32, "shift", (0.0, 0.1), &[h, d])?);
    let mut s = of(DType::F32, "s", (0.0, 1.0), &[b, h, d, d])?;
    let mut bias = of(DType::F32, "bias", (0.0, 0.1), &[b, h, d])?;
    let mut o = Tensor::zeros(device, DType::Bf16, [b, t, h, d])?;
    let dims = MiniBatches::new(l).dims([b, t, h]);
    let mut space = TTT_LINEAR.workspace(device, &[("T", DType::Bf16)], &dims)?;
    let (device, mut prepared) = (device.clone(), None);
    Ok(Box::new(move || {
        let mut all = vec![Arg::In(&q), Arg::In(&k), Arg::In(&eta), Arg::F32((d as f32).powf(-0.5)), Arg::In(&v)];
        all.extend([Arg::In(&weight), Arg::In(&shift), Arg::Out(&mut s), Arg::Out(&mut bias), Arg::Out(&mut o)]);
        all.push(Arg::F32(1e-6));
        if prepared.is_none() {
            prepared = Some(TTT_LINEAR.prepare(&device, &mut all[..], &mut space)?);
        }
        match &prepared {
            Some(prepared) => prepared.launch(&mut all[..], &mut space),
            None => Ok(()),
        }
    }))
}
