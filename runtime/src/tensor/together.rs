//! Tensors in one allocation, in the order of a stream.

use super::storage::Storage;
use super::{Tensor, TensorMemory, byte_count, contiguous_strides};
use crate::device::{Backend, Stream};
use crate::error::{DeviceError, Result, TensorError};
use crate::gpu::SCRATCH_ALIGN;
use atlas_dsl::DType;
use std::sync::Arc;

impl Tensor {
    /// Contiguous tensors of these types and shapes in one allocation that is made, and with the last of them freed, in the order of
    /// a stream. Their elements are arbitrary. A stream that records a graph makes the allocation a part of the graph.
    ///
    /// [`Tensor::empty`] allocates on the default stream, and serves any stream that is ordered with that.
    ///
    /// # Errors
    /// As [`Tensor::empty`]; [`DeviceError::DriverTooOld`] if the stream records a graph, which cannot allocate on this driver.
    ///
    /// # Safety
    /// What uses them is launched on this stream, or ordered with it. The last of them is dropped before the stream ends.
    pub unsafe fn empty_on(stream: &Stream, of: &[(DType, Vec<usize>)]) -> Result<Vec<Tensor>> {
        let device = stream.device();
        let Backend::Cuda(context) = device.backend() else {
            // The host's lock is one of an allocation, and a simulated GPU finds what lies past an allocation's end.
            return of.iter().map(|(dtype, shape)| Tensor::empty(device, *dtype, shape)).collect();
        };
        if of.is_empty() {
            return Ok(Vec::new());
        }
        if context.pool.is_none() && stream.is_recording()? {
            let found =
                "one that allocates no memory in graphs on this GPU, as workspaces of chains need it".to_owned();
            return Err(DeviceError::DriverTooOld { found, wanted: "11.4".to_owned() }.into());
        }
        let (mut total, mut starts) = (0_u64, Vec::with_capacity(of.len()));
        for (dtype, shape) in of {
            starts.push(total);
            let bytes = byte_count(*dtype, shape)?.checked_next_multiple_of(SCRATCH_ALIGN);
            total = bytes
                .and_then(|bytes| total.checked_add(bytes))
                .filter(|&total| total <= i64::MAX as u64)
                .ok_or_else(|| TensorError::TooLarge { shape: shape.clone() })?;
        }
        // SAFETY: the caller's promise.
        let storage = Arc::new(unsafe { Storage::empty_on(stream, total) }?);
        let part = |((dtype, shape), start): (&(DType, Vec<usize>), u64)| Tensor {
            memory: TensorMemory::Shared(storage.clone()),
            dtype: *dtype,
            shape: shape.as_slice().into(),
            strides: contiguous_strides(shape),
            // A part begins at a multiple of any element's size.
            offset: start / u64::from(dtype.bytes()),
        };
        Ok(of.iter().zip(starts).map(part).collect())
    }
}
