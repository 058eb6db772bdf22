//! The gated delta rule as it is measured: a whole sequence by each of its chains.

use super::check::DeltaCase;
use super::{DeltaChunks, GATED_DELTA_RULE, GATED_DELTA_RULE_SPLIT};
use crate::plan::{Plan, PlanSizes, Steps, Work};
use crate::run::plan_tensor;
use crate::usual::unit;
use atlas_dsl::DType;
use atlas_runtime::{Arg, Chain, Device, Result, Tensor};

/// Head counts of Qwen3.5 models, for which FlashQLA publishes times on an H200.
pub(crate) const PLANS: &[Plan] = &[
    Plan::new("gated_delta_rule_plan", &FUSED, [1, 32_768, 64, 16, 128, 64]),
    Plan::new("gated_delta_rule_plan_32_heads", &FUSED, [1, 8192, 32, 16, 128, 64]),
    Plan::new("gated_delta_rule_plan_short", &FUSED, [1, 2048, 64, 16, 128, 64]),
    Plan::new("gated_delta_rule_split_plan", &SPLIT, [1, 32_768, 8, 2, 128, 64]),
    Plan::new("gated_delta_rule_split_plan_16_heads", &SPLIT, [1, 8192, 16, 16, 128, 64]),
    Plan::new("gated_delta_rule_split_plan_short", &SPLIT, [1, 2048, 16, 16, 128, 64]),
];

const NAMES: &[&str] = &["B", "T", "H", "J", "D", "L"];

/// Sizes: sequences, tokens, heads of values, heads of keys, elements of a head, tokens of a chunk.
static FUSED: Steps = Steps {
    names: NAMES,
    dtype: DType::Bf16,
    bound: 1e-2,
    bytes,
    flops,
    small,
    start: |device, sizes| work(&GATED_DELTA_RULE, device, sizes),
    check: |device, sizes| case(sizes).check_of(&GATED_DELTA_RULE, device),
};

static SPLIT: Steps = Steps {
    names: NAMES,
    dtype: DType::Bf16,
    bound: 1e-2,
    bytes,
    flops,
    small,
    start: |device, sizes| work(&GATED_DELTA_RULE_SPLIT, device, sizes),
    check: |device, sizes| case(sizes).check_of(&GATED_DELTA_RULE_SPLIT, device),
};

fn bytes([b, t, h, j, d, _]: PlanSizes) -> f64 {
    (b * t * (4 * (j + h) * d + 8 * h) + 8 * b * h * d * d) as f64
}

fn flops([b, t, h, _, d, l]: PlanSizes) -> f64 {
    (2 * b * t * h * (3 * d * d + 4 * l * d)) as f64
}

fn small([b, _, h, j, d, l]: PlanSizes) -> PlanSizes {
    let groups = h / j;
    [b, 2 * l + 5, groups, 1, d, l]
}

fn case([b, t, h, j, d, l]: PlanSizes) -> DeltaCase {
    DeltaCase { dtype: DType::Bf16, ..DeltaCase::new([b, t, h], j, [d, d], l) }
}

/// A chain; the memory goes on from run to run.
fn work(chain: &'static Chain, device: &Device, [b, t, h, j, d, l]: PlanSizes) -> Result<Work> {
    let of = |dtype, name: &str, fill, sizes: &[usize]| plan_tensor(device, dtype, name, fill, sizes);
    let keys = |name: &str| of(DType::Bf16, name, (0.0, unit(d)), &[b, t, j, d]);
    let (q, k, v) = (keys("q")?, keys("k")?, of(DType::Bf16, "v", (0.0, 1.0), &[b, t, h, d])?);
    let g = of(DType::F32, "g", (-0.1, 0.02), &[b, t, h])?;
    let beta = of(DType::F32, "beta", (0.5, 0.1), &[b, t, h])?;
    let mut s = of(DType::F32, "s", (0.0, unit(d)), &[b, h, d, d])?;
    let mut o = Tensor::zeros(device, DType::Bf16, [b, t, h, d])?;
    let dims = DeltaChunks::new(l).dims([b, t, h], [d, d]);
    let mut space = chain.workspace(device, &[("T", DType::Bf16)], &dims)?;
    let (device, mut prepared) = (device.clone(), None);
    Ok(Box::new(move || {
        let mut all = vec![Arg::In(&k), Arg::In(&g), Arg::In(&beta), Arg::In(&q), Arg::In(&v)];
        all.extend([Arg::Out(&mut s), Arg::Out(&mut o), Arg::F32((d as f32).powf(-0.5))]);
        if prepared.is_none() {
            prepared = Some(chain.prepare(&device, &mut all[..], &mut space)?);
        }
        match &prepared {
            Some(prepared) => prepared.launch(&mut all[..], &mut space),
            None => Ok(()),
        }
    }))
}
