//! A copy by the driver, the upper bound for memory-bound kernels in benchmarks.

use super::Tensor;
use crate::device::{Backend, Stream};
use crate::error::{Result, TensorError};

/// Copies a contiguous tensor to another one of equal size in bytes on the stream's device, by the driver. Does not
/// wait.
///
/// On the CPU nothing is copied, because there is no driver.
///
/// # Errors
/// [`TensorError::NotContiguous`], [`TensorError::WrongLength`]; driver errors.
pub fn copy_on_device(from: &Tensor, to: &mut Tensor, stream: &Stream) -> Result<()> {
    for t in [from, &*to] {
        if !t.is_contiguous() {
            return Err(TensorError::NotContiguous { shape: t.shape().to_vec(), strides: t.strides().to_vec() }.into());
        }
    }
    let bytes = |t: &Tensor| t.len() * t.dtype().bytes() as usize;
    if bytes(from) != bytes(to) || from.device() != stream.device() || to.device() != stream.device() {
        return Err(TensorError::WrongLength { found: from.len(), shape: to.shape().to_vec() }.into());
    }
    let Backend::Cuda(context) = stream.device().backend() else { return Ok(()) };
    let api = context.enter()?;
    // SAFETY: the context is current. Both tensors are on this device, hold `bytes` bytes from their first element on,
    // and are freed in stream order; the stream is live.
    let status = unsafe { (api.copy_on_device)(to.address(), from.address(), bytes(from), stream.as_raw().cast()) };
    context.check("cuMemcpyDtoDAsync", status)
}
