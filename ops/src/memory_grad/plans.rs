//! The gradients of a memory as they are measured: both launches.

use super::MEMORY_GRAD;
use crate::compare::Comparison;
use crate::omega::plans::{Window, window};
use crate::plan::{Plan, Steps, Work};
use atlas_dsl::DType;
use atlas_runtime::{Result, Tensor, Workspace, args};

pub(crate) const PLANS: &[Plan] = &[
    Plan::new("memory_grad_plan", &GRADIENT, [512, 64, 64, 256]),
    Plan::new("memory_grad_plan_128x128", &GRADIENT, [256, 128, 128, 512]),
];

/// Sizes: groups, tokens, elements, hidden elements.
static GRADIENT: Steps = Steps {
    names: &["G", "N", "D", "M"],
    dtype: DType::Bf16,
    bound: 1e-2,
    bytes: |[g, n, d, m, ..]| (g * (4 * n * d + 4 * n + 12 * d * m)) as f64,
    flops: |[g, n, d, m, ..]| (10 * g * n * d * m) as f64,
    small: |[_, n, d, m, ..]| [2, n, d, m, 0, 0],
    start: |device, sizes| Ok(Gradients(window(device, sizes)?).work()),
    check: |device, sizes| Gradients(window(device, sizes)?).check(),
};

/// What gradients are taken of.
struct Gradients(Window);

impl Gradients {
    fn launch(&self, made: &mut [Tensor; 3], space: &mut Workspace) -> Result<()> {
        let Window { x, v, c, w1, w2, .. } = &self.0;
        let [loss, dw2, dw1] = made;
        MEMORY_GRAD.launch(&self.0.device, args!(x, w2, w1, x, v, c, 2.0, &mut *loss, &mut *dw2, &mut *dw1), space)
    }

    fn made(&self) -> Result<([Tensor; 3], Workspace)> {
        let [g, n, d, m] = self.0.sizes;
        let zeros = |shape: &[usize]| Tensor::zeros(&self.0.device, DType::F32, shape);
        let dims = [("G", g), ("N", n), ("E", d)];
        let space = MEMORY_GRAD.workspace(&self.0.device, &[("T", DType::Bf16)], &dims)?;
        Ok(([zeros(&[g, n])?, zeros(&[g, m, d])?, zeros(&[g, d, m])?], space))
    }

    fn work(self) -> Work {
        let mut made = None;
        Box::new(move || {
            if made.is_none() {
                made = Some(self.made()?);
            }
            match &mut made {
                Some((made, space)) => self.launch(made, space),
                None => Ok(()),
            }
        })
    }

    fn check(self) -> Result<Comparison> {
        let [g, _, d, m] = self.0.sizes;
        let (mut made, mut space) = self.made()?;
        self.launch(&mut made, &mut space)?;
        let none = vec![0.0; g * d * m];
        let (w1, w2) = (self.0.w1.to_f64_vec()?, self.0.w2.to_f64_vec()?);
        // A momentum that keeps nothing is the gradient itself.
        let [_, _, by1, by2] = self.0.expected([&w1, &w2, &none, &none], [1.0, 0.0, 0.0], 0)?;
        let (dw2, dw1) = (made[1].to_f64_vec()?, made[2].to_f64_vec()?);
        Ok(Comparison::of_all([(&dw1[..], &by1[..]), (&dw2[..], &by2[..])]))
    }
}
