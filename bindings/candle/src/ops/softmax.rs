//! Softmax and log-sum-exp.

use crate::operation::{Backward, Operation};
use crate::rows::{merge, mergeable};
use crate::{apply1, apply1_into};
use atlas::args;
use atlas::device::Stream;
use atlas::kernel::{DType, Launch};
use candle_core::{D, Result, Tensor};

/// The softmax along the last axis, in f32 whatever the element type.
///
/// # Errors
/// As a launch of [`atlas::ops::softmax`].
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    apply1(Softmax, &mergeable(x, 1)?)
}

/// [`softmax`] into a tensor that is there. There is no gradient.
///
/// # Errors
/// As [`softmax`] and [`apply1_into`].
pub fn softmax_into(into: &Tensor, x: &Tensor) -> Result<()> {
    apply1_into(&Softmax, into, &mergeable(x, 1)?)
}

/// The logarithm of the sum of exponentials along the last axis.
///
/// # Errors
/// As a launch of [`atlas::ops::log_sum_exp`].
pub fn log_sum_exp(x: &Tensor) -> Result<Tensor> {
    apply1(LogSumExp, &mergeable(x, 1)?)
}

/// [`log_sum_exp`] into a tensor that is there. There is no gradient.
///
/// # Errors
/// As [`log_sum_exp`] and [`apply1_into`].
pub fn log_sum_exp_into(into: &Tensor, x: &Tensor) -> Result<()> {
    apply1_into(&LogSumExp, into, &mergeable(x, 1)?)
}

struct Softmax;

// SAFETY: it launches a kernel that writes its result.
unsafe impl Operation<1> for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        Ok(vec![(reads[0].dtype(), reads[0].shape().to_vec())])
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        let (x, mut y) = (merge(&reads[0], 1)?, merge(&writes[0], 1)?);
        atlas::ops::softmax.launch_on(stream, args!(x, &mut y))
    }

    fn gradients(&self, of: Backward<'_, 1>) -> Result<[Option<Tensor>; 1]> {
        // In f32, as the forward pass.
        let [y, dy] = [of.result, of.grad].map(|x| x.detach().to_dtype(candle_core::DType::F32));
        let (y, dy) = (y?, dy?);
        let mean = (&y * &dy)?.sum_keepdim(D::Minus1)?;
        let dx = (y * dy.broadcast_sub(&mean)?)?;
        Ok([Some(dx.to_dtype(of.result.dtype())?)])
    }
}

struct LogSumExp;

// SAFETY: it launches a kernel that writes its result.
unsafe impl Operation<1> for LogSumExp {
    fn name(&self) -> &'static str {
        "log_sum_exp"
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        let shape = reads[0].shape();
        Ok(vec![(reads[0].dtype(), shape[..shape.len().saturating_sub(1)].to_vec())])
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        let (x, mut y) = (merge(&reads[0], 1)?, merge(&writes[0], 0)?);
        atlas::ops::log_sum_exp.launch_on(stream, args!(x, &mut y))
    }

    fn gradients(&self, of: Backward<'_, 1>) -> Result<[Option<Tensor>; 1]> {
        let [x] = of.args;
        Ok([Some(softmax(&x.detach())?.broadcast_mul(&of.grad.unsqueeze(D::Minus1)?)?)])
    }
}
