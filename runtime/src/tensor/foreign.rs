//! Tensors in memory that another library allocated: PyTorch's, candle's, a C program's, a Rust vector.
//!
//! Such a tensor is a tensor like any other: launches, views and copies take it, and nothing is copied to make it.

use super::storage::{HostBytes, Storage};
use super::{Extents, Tensor, TensorMemory, element_count};
use crate::device::{Backend, Device};
use crate::error::{Result, TensorError};
use crate::gpu::MemoryAt;
use atlas_dsl::DType;
use smallvec::SmallVec;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

impl Tensor {
    /// A tensor in memory of another library, which stays until `owner` is dropped: with the last view of the tensor.
    ///
    /// `address` is that of the first element: an address of the process for [`Device::cpu`], of the GPU for a GPU (a
    /// `CUdeviceptr`). Strides count elements, and are not negative. The tensor may be a part of its allocation.
    ///
    /// # Errors
    /// [`TensorError::ForeignLayout`], [`TensorError::Misaligned`], [`TensorError::TooLarge`], [`TensorError::NoHostType`]
    /// for bool; [`TensorError::NotOfDevice`] if the bytes from the first to the last element are not memory of the GPU.
    /// Memory of the host is not looked up.
    ///
    /// # Safety
    /// - The bytes from the first to the last element are allocated until `owner` is dropped, and initialised if the
    ///   device is the CPU. On a GPU they belong to its primary context.
    /// - As long as a view of the tensor exists, nobody else writes them during a launch that has the tensor as an argument,
    ///   nor reads what that launch writes. On the CPU that includes launches of other tensors with the same bytes, and
    ///   Rust references to them. On a GPU the order of streams may see to it.
    /// - If they may not be written, no kernel gets the tensor as an output.
    pub unsafe fn from_foreign(
        device: &Device,
        dtype: DType,
        address: u64,
        shape: impl AsRef<[usize]>,
        strides: impl AsRef<[i64]>,
        owner: impl Any + Send + Sync,
    ) -> Result<Tensor> {
        let layout = Layout::new(dtype, address, shape.as_ref(), strides.as_ref())?;
        layout.check_reach(device)?;
        // SAFETY: the caller's promise.
        let storage = unsafe { Storage::foreign(device, layout.bytes.clone(), Some(Box::new(owner))) };
        Ok(layout.tensor(TensorMemory::Shared(Arc::new(storage))))
    }

    /// A tensor in memory of another library that outlives it. Allocates nothing for up to six axes, and asks the driver
    /// nothing, so a program may make one for each launch.
    ///
    /// `address`, `shape` and `strides` are as for [`Tensor::from_foreign`].
    ///
    /// # Errors
    /// As [`Tensor::from_foreign`], but for [`TensorError::NotOfDevice`].
    ///
    /// # Safety
    /// As [`Tensor::from_foreign`]: the bytes are there as long as the tensor, its clones and its views, and until all launches with
    /// them have run. A [`Graph`](crate::Graph) that recorded the tensor has a clone of it.
    pub unsafe fn from_raw_parts(
        device: &Device,
        dtype: DType,
        address: u64,
        shape: impl AsRef<[usize]>,
        strides: impl AsRef<[i64]>,
    ) -> Result<Tensor> {
        let layout = Layout::new(dtype, address, shape.as_ref(), strides.as_ref())?;
        // SAFETY: the caller's promise.
        let storage = unsafe { Storage::foreign(device, layout.bytes.clone(), None) };
        Ok(layout.tensor(TensorMemory::Borrowed(storage)))
    }
}

/// The elements of a foreign tensor.
struct Layout {
    dtype: DType,
    shape: Extents<usize>,
    strides: Extents<i64>,
    /// The addresses of their bytes; empty if there is no element.
    bytes: Range<u64>,
}

impl Layout {
    fn new(dtype: DType, address: u64, shape: &[usize], strides: &[i64]) -> Result<Layout> {
        if dtype == DType::Bool {
            return Err(TensorError::NoHostType { dtype }.into());
        }
        let refuse = |reason| TensorError::ForeignLayout { shape: shape.to_vec(), strides: strides.to_vec(), reason };
        if shape.len() != strides.len() {
            return Err(refuse("each axis has one stride").into());
        }
        let count = element_count(shape).ok_or_else(|| TensorError::TooLarge { shape: shape.to_vec() })?;
        let moves = |&(&size, _): &(&usize, &i64)| count > 0 && size > 1;
        let mut last = Some(0_i64);
        for (&size, &stride) in shape.iter().zip(strides).filter(moves) {
            if stride < 0 {
                return Err(refuse("no stride is negative; reverse a copy instead").into());
            }
            let reach = i64::try_from(size - 1).ok().and_then(|n| n.checked_mul(stride));
            last = last.zip(reach).and_then(|(a, b)| a.checked_add(b));
        }
        let size = u64::from(dtype.bytes());
        let bytes = match count {
            0 => Some(0),
            _ => last.and_then(|last| (last as u64 + 1).checked_mul(size)),
        };
        let end = bytes.filter(|&b| b <= i64::MAX as u64).and_then(|b| address.checked_add(b));
        let end = end.ok_or_else(|| TensorError::TooLarge { shape: shape.to_vec() })?;
        if count > 0 && address == 0 {
            return Err(refuse("its address is null").into());
        }
        if count > 0 && !address.is_multiple_of(size) {
            return Err(TensorError::Misaligned { address, dtype }.into());
        }
        // The stride of an axis that does not move may be anything.
        let strides = shape.iter().zip(strides).map(|(_, &stride)| stride.max(0)).collect();
        Ok(Layout { dtype, shape: SmallVec::from_slice(shape), strides, bytes: address..end })
    }

    /// Refuses bytes that are not memory of a GPU.
    fn check_reach(&self, device: &Device) -> Result<()> {
        let refuse = |found: String| {
            let Range { start, end } = self.bytes;
            TensorError::NotOfDevice { address: start, bytes: end - start, device: device.id().to_string(), found }
        };
        let mut next = self.bytes.start;
        // An allocation of the virtual memory interface consists of several, side by side.
        while next < self.bytes.end {
            let at = match device.backend() {
                Backend::Cpu => return Ok(()),
                Backend::Cuda(context) => context.memory_at(next)?,
                Backend::Virtual(gpu) => gpu.allocation_at(next).map_or(MemoryAt::Host, MemoryAt::Here),
            };
            next = match at {
                MemoryAt::Here(allocation) if allocation.contains(&next) => allocation.end,
                MemoryAt::OtherGpu(ordinal) => return Err(refuse(format!("it is of cuda:{ordinal}")).into()),
                _ if next == self.bytes.start => return Err(refuse("it is not memory of a GPU".to_owned()).into()),
                _ => {
                    let there = next - self.bytes.start;
                    return Err(refuse(format!("the allocation ends after {there} bytes")).into());
                }
            };
        }
        Ok(())
    }

    fn tensor(self, memory: TensorMemory) -> Tensor {
        Tensor { memory, dtype: self.dtype, shape: self.shape, strides: self.strides, offset: 0 }
    }
}

impl Storage {
    /// Memory of another library.
    ///
    /// # Safety
    /// As [`Tensor::from_foreign`]. Without an owner, the memory outlives the result.
    unsafe fn foreign(device: &Device, bytes: Range<u64>, owner: Option<Box<dyn Any + Send + Sync>>) -> Storage {
        let host = match device.backend() {
            // SAFETY: the caller's promise.
            Backend::Cpu => Some(unsafe { HostBytes::foreign(bytes.clone()) }),
            Backend::Cuda(_) | Backend::Virtual(_) => None,
        };
        Storage::of_foreign(device, host, bytes, owner)
    }
}
