//! Rotary embeddings: pairs of elements, turned by angles.

use crate::apply1;
use crate::error::refuse;
use crate::operation::{Backward, Operation};
use crate::rows::{merge, mergeable};
use atlas::args;
use atlas::device::Stream;
use atlas::kernel::{DType, Launch};
use candle_core::{Result, Tensor};

/// Turns the pairs of each head, `x` `[.., N, H, 2 D]`, by angles whose cosines and sines are broadcast to `[.., N, D]`. A pair is
/// elements `d` and `D + d`, or `2 d` and `2 d + 1` if interleaved. No gradient goes to `cos` and `sin`.
///
/// # Errors
/// As a launch of [`atlas::ops::rotary_halves`].
pub fn rotary(x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Result<Tensor> {
    let dims = x.dims();
    let [tokens @ .., _, width] = dims else { return Err(wrong_rank(dims)) };
    if tokens.is_empty() || !width.is_multiple_of(2) {
        return Err(wrong_rank(dims));
    }
    let wanted: Vec<usize> = tokens.iter().copied().chain([width / 2]).collect();
    let angles = |of: &Tensor| match of.broadcast_as(&wanted[..]) {
        Ok(of) => mergeable(&of, 1),
        Err(_) => {
            let (cos, sin) = (cos.dims(), sin.dims());
            Err(refuse(
                604,
                format_args!(
                    "`cos` and `sin` of `rotary` have shapes {cos:?} and {sin:?}; they are broadcast to {wanted:?}"
                ),
            ))
        }
    };
    apply1(Rotary { cos: angles(cos)?, sin: angles(sin)?, interleaved }, &mergeable(x, 2)?)
}

fn wrong_rank(found: &[usize]) -> candle_core::Error {
    refuse(603, format_args!("`x` of `rotary` has dims [.., N, H, 2 D], but a tensor of shape {found:?} is given"))
}

struct Rotary {
    cos: Tensor,
    sin: Tensor,
    interleaved: bool,
}

// SAFETY: it launches a kernel that writes its result.
unsafe impl Operation<1> for Rotary {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn beside(&self) -> Vec<(&'static str, &Tensor)> {
        vec![("cos", &self.cos), ("sin", &self.sin)]
    }

    fn outputs(&self, reads: &[atlas::Tensor]) -> atlas::Result<Vec<(DType, Vec<usize>)>> {
        Ok(vec![(reads[0].dtype(), reads[0].shape().to_vec())])
    }

    fn launch(&self, stream: &Stream, reads: &[atlas::Tensor], writes: &mut [atlas::Tensor]) -> atlas::Result<()> {
        let (kernel, size) = match (self.interleaved, reads[0].shape().last()) {
            (true, _) => (&atlas::ops::rotary_interleaved, 2),
            (false, width) => (&atlas::ops::rotary_halves, width.map_or(1, |width| (width / 2).max(1))),
        };
        let pairs = |of: &atlas::Tensor| merge(of, 2)?.split(2, size);
        let (x, mut y) = (pairs(&reads[0])?, pairs(&writes[0])?);
        let (cos, sin) = (merge(&reads[1], 1)?, merge(&reads[2], 1)?);
        kernel.launch_on(stream, args!(x, cos, sin, &mut y))
    }

    fn gradients(&self, of: Backward<'_, 1>) -> Result<[Option<Tensor>; 1]> {
        // The gradient of a turn is the turn back.
        Ok([Some(rotary(of.grad, &self.cos, &self.sin.neg()?, self.interleaved)?)])
    }
}
