//! Attention of a new token as it is measured: both launches.

use super::ATTENTION_DECODE;
use crate::compare::Comparison;
use crate::plan::{Plan, PlanSizes, Steps, Work};
use crate::run::plan_tensor;
use atlas_dsl::DType;
use atlas_runtime::{Device, Result, Tensor, Workspace, args};

pub(crate) const PLANS: &[Plan] = &[Plan::new("attention_decode_plan", &DECODE, [64, 8, 4, 128, 2048, 4])];

/// Sizes: sequences, heads of keys, queries of each, elements, slots, parts.
static DECODE: Steps = Steps {
    names: &["S", "J", "R", "D", "W", "X"],
    dtype: DType::Bf16,
    bound: 1e-2,
    bytes: |[s, j, r, d, w, _]| (4 * s * j * d * (w + r)) as f64,
    flops: |[s, j, r, d, w, _]| (4 * s * j * r * d * w) as f64,
    small: |[_, j, r, d, w, x]| [2, j, r, d, w, x],
    start: |device, sizes| Ok(decode(device, sizes)?.work()),
    check: |device, sizes| decode(device, sizes)?.check(),
};

/// One token of each sequence, and the cache that it attends to.
struct Decode {
    device: Device,
    sizes: PlanSizes,
    /// q `[S, J, R, D]`, k and v `[S, W, J, D]`.
    inputs: [Tensor; 3],
    tokens: Tensor,
    o: Tensor,
    lse: Tensor,
    space: Workspace,
}

fn decode(device: &Device, sizes: PlanSizes) -> Result<Decode> {
    let [s, j, r, d, w, x] = sizes;
    let of = |name: &str, sizes: &[usize]| plan_tensor(device, DType::Bf16, name, (0.0, 1.0), sizes);
    let dims = [("S", s), ("J", j), ("X", x), ("R", r), ("D", d)];
    Ok(Decode {
        device: device.clone(),
        sizes,
        inputs: [of("q", &[s, j, r, d])?, of("k", &[s, w, j, d])?, of("v", &[s, w, j, d])?],
        tokens: device.tensor_from(&vec![w as i32; s], [s])?,
        o: Tensor::zeros(device, DType::Bf16, [s, j, r, d])?,
        lse: Tensor::zeros(device, DType::F32, [s, j, r])?,
        space: ATTENTION_DECODE.workspace(device, &[], &dims)?,
    })
}

impl Decode {
    fn scale(&self) -> f32 {
        (self.sizes[3] as f32).sqrt().recip()
    }

    fn launch(&mut self) -> Result<()> {
        let scale = self.scale();
        let Decode { device, inputs: [q, k, v], tokens, o, lse, space, .. } = self;
        ATTENTION_DECODE.launch(device, args!(q, k, v, tokens, scale, &mut *o, &mut *lse), space)
    }

    fn work(mut self) -> Work {
        Box::new(move || self.launch())
    }

    fn check(mut self) -> Result<Comparison> {
        self.launch()?;
        let [s, j, r, d, w, x] = self.sizes;
        let sizes = super::DecodeSizes { s, j, r, d, w, x };
        let [q, k, v] = &self.inputs;
        let (q, k, v, tokens) = (q.to_f64_vec()?, k.to_f64_vec()?, v.to_f64_vec()?, vec![w as f64; s]);
        let parts = super::parts([&q, &k, &v], &tokens, f64::from(self.scale()), sizes);
        let [o, lse] = super::join(parts.each_ref().map(Vec::as_slice), sizes);
        let found = [self.o.to_f64_vec()?, self.lse.to_f64_vec()?];
        Ok(Comparison::of_all([(&found[0][..], &o[..]), (&found[1][..], &lse[..])]))
    }
}
