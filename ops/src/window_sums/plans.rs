//! The loss over a sliding window as it is measured: both launches.

use super::WINDOW_LOSS;
use crate::compare::Comparison;
use crate::plan::{Plan, PlanSizes, Steps, Work};
use crate::run::plan_tensor;
use atlas_dsl::DType;
use atlas_runtime::{Device, Result, Tensor, Workspace, args};

pub(crate) const PLANS: &[Plan] = &[Plan::new("window_loss_plan", &LOSS, [16, 8192, 512, 64])];

/// Sizes: sequences, tokens, elements, tokens of a window.
static LOSS: Steps = Steps {
    names: &["B", "N", "D", "W"],
    dtype: DType::Bf16,
    bound: 4e-3,
    bytes: |[b, n, d, ..]| (b * n * (4 * d + 4)) as f64,
    flops: |[b, n, d, w, ..]| (b * n * (3 * d + w)) as f64,
    small: |[_, _, d, w, ..]| [2, 3 * w + 5, d, w, 0, 0],
    start: |device, sizes| Ok(losses(device, sizes)?.work()),
    check: |device, sizes| losses(device, sizes)?.check(),
};

/// Tokens and what was wanted of them.
struct Losses {
    device: Device,
    sizes: PlanSizes,
    p: Tensor,
    v: Tensor,
    y: Tensor,
    space: Workspace,
}

fn losses(device: &Device, sizes: PlanSizes) -> Result<Losses> {
    let [b, n, d, ..] = sizes;
    let of = |name: &str| plan_tensor(device, DType::Bf16, name, (0.0, 1.0), &[b, n, d]);
    let space = WINDOW_LOSS.workspace(device, &[], &[("B", b), ("N", n)])?;
    let y = Tensor::zeros(device, DType::F32, [b, n])?;
    Ok(Losses { device: device.clone(), sizes, p: of("p")?, v: of("v")?, y, space })
}

impl Losses {
    fn launch(&mut self) -> Result<()> {
        let Losses { device, sizes, p, v, y, space } = self;
        WINDOW_LOSS.launch(device, args!(p, v, 1.0, &mut *y, sizes[3] as i32), space)
    }

    fn work(mut self) -> Work {
        Box::new(move || self.launch())
    }

    fn check(mut self) -> Result<Comparison> {
        self.launch()?;
        let [_, n, d, w, ..] = self.sizes;
        let (p, v) = (self.p.to_f64_vec()?, self.v.to_f64_vec()?);
        let loss = |(p, v): (&[f64], &[f64])| p.iter().zip(v).map(|(p, v)| (p - v) * (p - v) / 2.0).sum::<f64>();
        let losses: Vec<f64> = p.chunks(d).zip(v.chunks(d)).map(loss).collect();
        let window = |at: usize| losses[at - (at % n).min(w - 1)..=at].iter().sum::<f64>();
        let wanted: Vec<f64> = (0..losses.len()).map(window).collect();
        Ok(Comparison::of_all([(&self.y.to_f64_vec()?[..], &wanted[..])]))
    }
}
