//! What a memory of two layers makes of tokens.

use super::exactly;
use crate::apply3;
use crate::error::refuse;
use crate::operation::{Backward, Operation, run};
use atlas::args;
use atlas::device::Stream;
use atlas::kernel::{DType, Launch};
use candle_core::{Result, Tensor};

/// `r + W1 gelu(W2 x)` of `G` memories: `x` and `r` `[G, N, D]`, `w2` `[G, H, D]`, `w1` `[G, D, H]`. `r` is zero if it is left out.
///
/// # Errors
/// As a launch of [`atlas::ops::memory::memory_read`].
pub fn memory_read(x: &Tensor, w2: &Tensor, w1: &Tensor, r: Option<&Tensor>) -> Result<Tensor> {
    // candle has operations of three tensors with gradients. What goes in as `r` goes out as it is, so its gradient is that of a sum.
    if let Some(r) = r.filter(|r| r.track_op()) {
        return memory_read(x, w2, w1, None)? + r;
    }
    let Ok((groups, tokens, width)) = x.dims3() else {
        let found = x.dims();
        return Err(refuse(
            603,
            format_args!("`x` of `memory_read` has dims [G, N, D], but a tensor of shape {found:?} is given"),
        ));
    };
    let r = match r {
        Some(r) => r.clone(),
        None => Tensor::zeros((1, 1, 1), x.dtype(), x.device())?.broadcast_as((groups, tokens, width))?,
    };
    Ok(apply3(MemoryRead { r }, [x, w2, w1])?.0)
}

struct MemoryRead {
    r: Tensor,
}

// SAFETY: it launches a kernel that writes its result.
unsafe impl Operation<3> for MemoryRead {
    fn name(&self) -> &'static str {
        "memory_read"
    }

    fn beside(&self) -> Vec<(&'static str, &Tensor)> {
        vec![("r", &self.r)]
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        Ok(vec![(reads[0].dtype(), reads[0].shape().to_vec())])
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        let ([x, w2, w1, r], [y]) = (reads, writes) else { return Ok(()) };
        atlas::ops::memory::memory_read.launch_on(stream, args!(x, w2, w1, r, &mut *y))
    }

    fn gradients(&self, of: Backward<'_, 3>) -> Result<[Option<Tensor>; 3]> {
        let [x, w2, w1] = of.args;
        let (groups, tokens, _) = x.dims3()?;
        // The kernels weight tokens, and here all count alike.
        let weights = Tensor::ones((1, 1), candle_core::DType::F32, x.device())?.broadcast_as((groups, tokens))?;
        let [dx, dw2, dw1] = exactly(run(&MemoryReadGrad, [x, w2, w1, &weights, of.grad])?)?;
        Ok([Some(dx), Some(dw2.to_dtype(w2.dtype())?), Some(dw1.to_dtype(w1.dtype())?)])
    }
}

struct MemoryReadGrad;

// SAFETY: it launches kernels that write its results.
unsafe impl Operation<5> for MemoryReadGrad {
    fn name(&self) -> &'static str {
        "memory_read_grad"
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        let [x, w2, w1] = [0, 1, 2].map(|i| reads[i].shape().to_vec());
        Ok(vec![(reads[0].dtype(), x), (DType::F32, w2), (DType::F32, w1)])
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        let ([x, w2, w1, c, dy], [dx, dw2, dw1]) = (reads, writes) else { return Ok(()) };
        atlas::ops::memory::memory_weight_grads.launch_on(stream, args!(x, w2, w1, c, dy, &mut *dw2, &mut *dw1))?;
        atlas::ops::memory::memory_input_grad.launch_on(stream, args!(x, w2, w1, c, dy, &mut *dx))
    }
}
