//! The Newton-Schulz iteration of Muon.

use crate::apply1;
use crate::error::refuse;
use crate::operation::Operation;
use crate::rows::{merge, mergeable};
use atlas::device::Stream;
use atlas::kernel::DType;
use atlas::ops::muon::{MuonSpace, NewtonSchulz};
use candle_core::{Result, Tensor};

/// An iteration of each matrix of `g`, `[.., M, N]`, such as [`NewtonSchulz::torch`]. It has the element type of `g`. There is no
/// gradient.
///
/// # Errors
/// As [`NewtonSchulz::launch`].
pub fn newton_schulz(g: &Tensor, iteration: &NewtonSchulz) -> Result<Tensor> {
    if g.rank() < 2 {
        let found = g.dims();
        return Err(refuse(
            603,
            format_args!("`g` of `newton_schulz` has dims [.., M, N], but a tensor of shape {found:?} is given"),
        ));
    }
    apply1(Iteration(iteration.clone()), &mergeable(g, 2)?)
}

struct Iteration(NewtonSchulz);

// SAFETY: it launches kernels that write its result.
unsafe impl Operation<1> for Iteration {
    fn name(&self) -> &'static str {
        "newton_schulz"
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        Ok(vec![(reads[0].dtype(), reads[0].shape().to_vec())])
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        let (g, mut out) = (merge(&reads[0], 2)?, merge(&writes[0], 2)?);
        if g.is_empty() {
            return Ok(());
        }
        let &[count, rows, cols] = g.shape() else { return Ok(()) };
        let tensors = MuonSpace::tensors(&self.0, out.dtype(), count, rows, cols);
        // SAFETY: the launches below are on this stream. Its memory is freed there behind them, before this returns.
        let made = unsafe { atlas::Tensor::empty_on(stream, &tensors) }?;
        let mut space = MuonSpace::of(made.into_iter().map(Ok))?;
        self.0.launch(stream, &g, &mut out, &mut space)
    }
}
