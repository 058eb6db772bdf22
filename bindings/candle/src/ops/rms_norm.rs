//! The root-mean-square norm.

use super::{exactly, launch_chain};
use crate::operation::{Backward, Operation, run};
use crate::rows::{merge, mergeable};
use crate::{apply2, apply2_into};
use atlas::args;
use atlas::device::Stream;
use atlas::kernel::{DType, Launch};
use candle_core::{Result, Tensor};

/// `x / sqrt(mean(x^2) + eps) * weight` along the last axis; `weight` has the element type of `x`.
///
/// # Errors
/// As a launch of [`atlas::ops::rms_norm`].
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    apply2(RmsNorm { eps }, &mergeable(x, 1)?, weight)
}

/// [`rms_norm`] into a tensor that is there. There is no gradient.
///
/// # Errors
/// As [`rms_norm`] and [`apply2_into`].
pub fn rms_norm_into(into: &Tensor, x: &Tensor, weight: &Tensor, eps: f32) -> Result<()> {
    apply2_into(&RmsNorm { eps }, into, &mergeable(x, 1)?, weight)
}

struct RmsNorm {
    eps: f32,
}

// SAFETY: it launches a kernel that writes its result.
unsafe impl Operation<2> for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        Ok(vec![(reads[0].dtype(), reads[0].shape().to_vec())])
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        let (x, mut y) = (merge(&reads[0], 1)?, merge(&writes[0], 1)?);
        atlas::ops::rms_norm.launch_on(stream, args!(x, reads[1], &mut y, self.eps))
    }

    fn gradients(&self, of: Backward<'_, 2>) -> Result<[Option<Tensor>; 2]> {
        let [x, weight] = of.args;
        let grads = run(&RmsNormGrad { eps: self.eps }, [x, weight, &mergeable(of.grad, 1)?])?;
        let [dx, dw] = exactly(grads)?;
        Ok([Some(dx), Some(dw.to_dtype(weight.dtype())?)])
    }
}

struct RmsNormGrad {
    eps: f32,
}

// SAFETY: it launches a chain that writes its results.
unsafe impl Operation<3> for RmsNormGrad {
    fn name(&self) -> &'static str {
        "rms_norm_grad"
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        let [x, weight] = [0, 1].map(|i| reads[i].shape().to_vec());
        Ok(vec![(reads[0].dtype(), x), (DType::F32, weight)])
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        let (x, dy, mut dx) = (merge(&reads[0], 1)?, merge(&reads[2], 1)?, merge(&writes[0], 1)?);
        let mut args = args!(x, reads[1], dy, self.eps, &mut dx, &mut writes[1]);
        launch_chain(&atlas::ops::training::RMS_NORM_GRAD, stream, &mut args, &[])
    }
}
