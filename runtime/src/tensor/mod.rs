//! Tensors: a typed, strided view of memory on one device.
//!
//! The room may depend on `device`, which provides the memory, and on `error`. It knows no kernels.
//!
//! | file | holds |
//! |---|---|
//! | `element` | the Rust type of each element type |
//! | `storage` | the memory behind tensors |
//! | `foreign` | tensors in memory of other libraries |
//! | `together` | tensors in one allocation, in the order of a stream |
//! | `timing` | a copy by the driver, as a reference for benchmarks |

mod element;
mod foreign;
mod storage;
pub mod timing;
mod together;

pub use element::Element;
pub(crate) use element::bytes_of;
pub(crate) use storage::{HostBytes, Storage, host_room};

use self::element::bytes_of_mut;
use crate::device::Device;
use crate::error::{Result, TensorError};
use atlas_dsl::DType;
use atlas_tile_interp::Span;
use smallvec::SmallVec;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A tensor or a view of one: element type, shape, strides in elements, and shared memory on a device.
///
/// `clone` and the view methods copy no elements. The results share memory, and a launch checks that its outputs
/// overlap none of its other arguments.
#[derive(Clone)]
pub struct Tensor {
    memory: TensorMemory,
    dtype: DType,
    shape: Extents<usize>,
    strides: Extents<i64>,
    /// The index of the first element, from the start of the storage.
    offset: u64,
}

/// A number for each axis. Few kernels take tensors of more axes than fit without an allocation.
pub(crate) type Extents<T> = SmallVec<[T; 6]>;

/// The storage of a tensor.
enum TensorMemory {
    /// Lives as long as a view of it.
    Shared(Arc<Storage>),
    /// Memory of another library, which outlives all views. A launch makes such a tensor without an allocation.
    Borrowed(Storage),
}

impl Clone for TensorMemory {
    fn clone(&self) -> TensorMemory {
        match self {
            TensorMemory::Shared(storage) => TensorMemory::Shared(storage.clone()),
            TensorMemory::Borrowed(storage) => TensorMemory::Borrowed(storage.borrowed_again()),
        }
    }
}

impl Deref for TensorMemory {
    type Target = Storage;

    fn deref(&self) -> &Storage {
        match self {
            TensorMemory::Shared(storage) => storage,
            TensorMemory::Borrowed(storage) => storage,
        }
    }
}

impl Device {
    /// A contiguous tensor with the given elements, row-major.
    ///
    /// # Errors
    /// [`TensorError::WrongLength`] if the number of values is not the product of the shape; out of memory; driver
    /// errors.
    pub fn tensor_from<T: Element>(&self, values: &[T], shape: impl AsRef<[usize]>) -> Result<Tensor> {
        let shape = shape.as_ref();
        if element_count(shape) != Some(values.len() as u64) {
            return Err(TensorError::WrongLength { found: values.len(), shape: shape.to_vec() }.into());
        }
        let tensor = Tensor::empty(self, T::DTYPE, shape)?;
        tensor.memory.write(0, bytes_of(values))?;
        Ok(tensor)
    }
}

impl Tensor {
    /// A contiguous tensor whose elements are arbitrary (zero on the CPU).
    ///
    /// # Errors
    /// [`TensorError::TooLarge`], [`TensorError::NoHostType`] for bool, out of memory; driver errors.
    pub fn empty(device: &Device, dtype: DType, shape: impl AsRef<[usize]>) -> Result<Tensor> {
        let shape = shape.as_ref();
        let bytes = byte_count(dtype, shape)?;
        let memory = TensorMemory::Shared(Arc::new(Storage::empty(device, bytes)?));
        Ok(Tensor { memory, dtype, shape: shape.into(), strides: contiguous_strides(shape), offset: 0 })
    }

    /// A contiguous tensor of zeros.
    ///
    /// # Errors
    /// As [`Tensor::empty`].
    pub fn zeros(device: &Device, dtype: DType, shape: impl AsRef<[usize]>) -> Result<Tensor> {
        let tensor = Tensor::empty(device, dtype, shape)?;
        tensor.memory.zero()?;
        Ok(tensor)
    }

    /// Sets all elements to zero, ordered on the device's default stream. The tensor must be all of its memory.
    ///
    /// # Errors
    /// [`TensorError::NotContiguous`] for a view; driver errors.
    pub fn clear(&mut self) -> Result<()> {
        let bytes = self.len() as u64 * u64::from(self.dtype.bytes());
        if !self.is_contiguous() || self.offset != 0 || bytes != self.memory.len() {
            return Err(
                TensorError::NotContiguous { shape: self.shape.to_vec(), strides: self.strides.to_vec() }.into()
            );
        }
        self.memory.zero()
    }

    /// The device that it lives on.
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Elements per axis, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The strides per axis, in elements.
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements of the view.
    pub fn len(&self) -> usize {
        // If an axis has size 0, the others may have any size. Otherwise their product was checked.
        if self.is_empty() { 0 } else { self.shape.iter().product() }
    }

    /// True if some axis has size 0.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// True if the elements are row-major without gaps. The strides of axes of size 1 do not matter.
    pub fn is_contiguous(&self) -> bool {
        let mut inner = 1;
        self.is_empty()
            || self.shape.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
                let fits = size <= 1 || stride == inner;
                inner *= size as i64;
                fits
            })
    }

    /// The address of the first element, in host memory or in the device's address space.
    pub fn address(&self) -> u64 {
        self.memory.address() + self.byte_offset()
    }

    /// The half-open range of byte addresses that the view covers; empty for an empty view.
    pub fn address_range(&self) -> Range<u64> {
        if self.is_empty() {
            return self.address()..self.address();
        }
        let reach: i64 = self.shape.iter().zip(&self.strides).map(|(&n, &s)| (n as i64 - 1) * s).sum();
        self.address()..self.address() + (reach as u64 + 1) * u64::from(self.dtype.bytes())
    }

    /// Whether two views share a byte. Also true if that is too hard to decide, which never happens for views made by
    /// slicing, permuting and expanding.
    pub fn shares_memory_with(&self, other: &Tensor) -> bool {
        self.device() == other.device() && self.touched().overlaps(other.touched())
    }

    /// A view of the elements `range` of one axis.
    ///
    /// # Errors
    /// [`TensorError::NoSuchAxis`], [`TensorError::SliceOutOfRange`].
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Result<Tensor> {
        let size = self.axis_size(axis)?;
        let Range { start, end } = range;
        if start > end || end > size {
            return Err(TensorError::SliceOutOfRange { axis, start, end, size }.into());
        }
        let mut view = self.clone();
        view.shape[axis] = end - start;
        // A view without elements has no first element.
        if start < end && !self.is_empty() {
            view.offset += start as u64 * self.strides[axis] as u64;
        }
        Ok(view)
    }

    /// A view with two axes exchanged.
    ///
    /// # Errors
    /// [`TensorError::NoSuchAxis`].
    pub fn transpose(&self, a: usize, b: usize) -> Result<Tensor> {
        self.axis_size(a)?;
        self.axis_size(b)?;
        let mut view = self.clone();
        view.shape.swap(a, b);
        view.strides.swap(a, b);
        Ok(view)
    }

    /// A view whose axis `i` is axis `axes[i]` of this tensor.
    ///
    /// # Errors
    /// [`TensorError::NotAPermutation`].
    pub fn permute(&self, axes: impl AsRef<[usize]>) -> Result<Tensor> {
        let axes = axes.as_ref();
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.rank()) {
            return Err(TensorError::NotAPermutation { axes: axes.to_vec(), rank: self.rank() }.into());
        }
        let mut view = self.clone();
        view.shape = axes.iter().map(|&a| self.shape[a]).collect();
        view.strides = axes.iter().map(|&a| self.strides[a]).collect();
        Ok(view)
    }

    /// A view of the given shape: axes of size 1 are repeated, and axes are prepended. Repeated axes have stride 0.
    ///
    /// # Errors
    /// [`TensorError::CannotExpand`].
    pub fn expand(&self, shape: impl AsRef<[usize]>) -> Result<Tensor> {
        let shape = shape.as_ref();
        let refuse = || TensorError::CannotExpand { from: self.shape.to_vec(), to: shape.to_vec() };
        let added = shape.len().checked_sub(self.rank()).ok_or_else(refuse)?;
        let mut strides: Extents<i64> = SmallVec::from_elem(0, added);
        for ((&old, &new), &stride) in self.shape.iter().zip(&shape[added..]).zip(&self.strides) {
            match (old, new) {
                _ if old == new => strides.push(stride),
                (1, _) => strides.push(0),
                _ => return Err(refuse().into()),
            }
        }
        element_count(shape).ok_or_else(|| TensorError::TooLarge { shape: shape.to_vec() })?;
        Ok(Tensor { shape: shape.into(), strides, ..self.clone() })
    }

    /// A view with the given strides, in elements, that starts at element `offset` of this tensor, which has to be
    /// contiguous.
    ///
    /// # Errors
    /// [`TensorError::BeyondTensor`] if it reaches past the last element, or the number of strides is not the number of
    /// axes; [`TensorError::NotContiguous`].
    pub fn as_strided(
        &self,
        shape: impl AsRef<[usize]>,
        strides: impl AsRef<[usize]>,
        offset: usize,
    ) -> Result<Tensor> {
        let (shape, strides) = (shape.as_ref(), strides.as_ref());
        if !self.is_contiguous() {
            return Err(
                TensorError::NotContiguous { shape: self.shape.to_vec(), strides: self.strides.to_vec() }.into()
            );
        }
        let last = shape
            .iter()
            .zip(strides)
            .try_fold(offset, |at, (&n, &stride)| at.checked_add(n.saturating_sub(1).checked_mul(stride)?));
        let is_empty = element_count(shape) == Some(0);
        let within = if is_empty { offset <= self.len() } else { last.is_some_and(|last| last < self.len()) };
        if shape.len() != strides.len() || element_count(shape).is_none() || !within {
            let (shape, strides) = (shape.to_vec(), strides.to_vec());
            return Err(TensorError::BeyondTensor { shape, strides, offset, len: self.len() }.into());
        }
        // A stride that exceeds the tensor belongs to an axis of one element, and is not used.
        let stride = |&s: &usize| i64::try_from(s).unwrap_or(0);
        let strides = strides.iter().map(stride).collect();
        Ok(Tensor { shape: shape.into(), strides, offset: self.offset + offset as u64, ..self.clone() })
    }

    /// A view with an axis split into two, of which the second has `size` consecutive elements.
    ///
    /// # Errors
    /// [`TensorError::NoSuchAxis`]; [`TensorError::UnevenSplit`] if the size of the axis is not a multiple of `size`.
    pub fn split(&self, axis: usize, size: usize) -> Result<Tensor> {
        let of = self.axis_size(axis)?;
        let mut view = self.clone();
        if size == 0 || !of.is_multiple_of(size) {
            return Err(TensorError::UnevenSplit { axis, size: of, by: size }.into());
        }
        view.shape.insert(axis + 1, size);
        view.shape[axis] = of / size;
        // If the product does not fit an i64, the axis has at most one element, and its stride is not used.
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        view.strides.insert(axis, self.strides[axis].saturating_mul(size));
        Ok(view)
    }

    /// A view of the same elements in row-major order with another shape.
    ///
    /// # Errors
    /// [`TensorError::CannotReshape`], [`TensorError::NotContiguous`].
    pub fn reshape(&self, shape: impl AsRef<[usize]>) -> Result<Tensor> {
        let shape = shape.as_ref();
        if element_count(shape) != Some(self.len() as u64) {
            return Err(TensorError::CannotReshape { from: self.shape.to_vec(), to: shape.to_vec() }.into());
        }
        if !self.is_contiguous() {
            return Err(
                TensorError::NotContiguous { shape: self.shape.to_vec(), strides: self.strides.to_vec() }.into()
            );
        }
        Ok(Tensor { shape: shape.into(), strides: contiguous_strides(shape), ..self.clone() })
    }

    /// The elements in row-major order, including repeated ones. Waits for the device.
    ///
    /// # Errors
    /// [`TensorError::WrongElement`] if `T` is not the element type; [`TensorError::OutOfMemory`] if the host has no room
    /// for them; driver errors.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.expect::<T>()?;
        let mut values = host_values(self.len())?;
        if self.is_contiguous() {
            self.memory.read(self.byte_offset(), bytes_of_mut(&mut values))?;
            return Ok(values);
        }
        let mut span = host_values(self.span())?;
        self.memory.read(self.byte_offset(), bytes_of_mut(&mut span))?;
        let mut next = values.iter_mut();
        each_offset(&self.shape, &self.strides, &mut |at| {
            if let Some(value) = next.next() {
                *value = span[at as usize];
            }
        });
        Ok(values)
    }

    /// The elements in row-major order, converted to f64. Waits for the device.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] if the host has no room for them; driver errors.
    pub fn to_f64_vec(&self) -> Result<Vec<f64>> {
        fn all<T: Element>(t: &Tensor) -> Result<Vec<f64>> {
            let mut values = host_room(t.len())?;
            values.extend(t.to_vec::<T>()?.into_iter().map(T::to_f64));
            Ok(values)
        }
        match self.dtype {
            DType::F64 => self.to_vec(),
            DType::F32 => all::<f32>(self),
            DType::F16 => all::<half::f16>(self),
            DType::Bf16 => all::<half::bf16>(self),
            DType::I64 => all::<i64>(self),
            DType::I32 => all::<i32>(self),
            DType::I16 => all::<i16>(self),
            DType::I8 => all::<i8>(self),
            DType::U16 => all::<u16>(self),
            DType::U8 => all::<u8>(self),
            DType::F8E4M3 => all::<float8::F8E4M3>(self),
            DType::F8E5M2 => all::<float8::F8E5M2>(self),
            DType::Bool => Err(TensorError::NoHostType { dtype: DType::Bool }.into()),
        }
    }

    /// Overwrites the elements of a contiguous tensor in row-major order. Waits for the device.
    ///
    /// # Errors
    /// [`TensorError::WrongElement`], [`TensorError::WrongLength`], [`TensorError::NotContiguous`]; driver errors.
    pub fn copy_from<T: Element>(&mut self, values: &[T]) -> Result<()> {
        self.expect::<T>()?;
        if values.len() != self.len() {
            return Err(TensorError::WrongLength { found: values.len(), shape: self.shape.to_vec() }.into());
        }
        if !self.is_contiguous() {
            return Err(
                TensorError::NotContiguous { shape: self.shape.to_vec(), strides: self.strides.to_vec() }.into()
            );
        }
        self.device().synchronize()?;
        self.memory.write(self.byte_offset(), bytes_of(values))
    }

    /// A contiguous copy of this view on a device, made through the host. Repeated elements are copied as often as the
    /// view repeats them.
    ///
    /// # Errors
    /// Out of memory; driver errors.
    pub fn to_device(&self, device: &Device) -> Result<Tensor> {
        fn copy<T: Element>(t: &Tensor, device: &Device) -> Result<Tensor> {
            device.tensor_from(&t.to_vec::<T>()?, &t.shape)
        }
        match self.dtype {
            DType::F64 => copy::<f64>(self, device),
            DType::F32 => copy::<f32>(self, device),
            DType::F16 => copy::<half::f16>(self, device),
            DType::Bf16 => copy::<half::bf16>(self, device),
            DType::I64 => copy::<i64>(self, device),
            DType::I32 => copy::<i32>(self, device),
            DType::I16 => copy::<i16>(self, device),
            DType::I8 => copy::<i8>(self, device),
            DType::U16 => copy::<u16>(self, device),
            DType::U8 => copy::<u8>(self, device),
            DType::F8E4M3 => copy::<float8::F8E4M3>(self, device),
            DType::F8E5M2 => copy::<float8::F8E5M2>(self, device),
            DType::Bool => Err(TensorError::NoHostType { dtype: DType::Bool }.into()),
        }
    }

    /// This view if it is contiguous, else a contiguous copy on the same device, made through the host.
    ///
    /// # Errors
    /// Out of memory; driver errors.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() { Ok(self.clone()) } else { self.to_device(self.device()) }
    }

    /// The same view of a copy on the CPU. The copy holds the memory from the first element to the last, so repeated
    /// elements are copied once. Waits for the device.
    ///
    /// # Errors
    /// Out of memory; driver errors.
    pub(crate) fn copy_to_host(&self) -> Result<Tensor> {
        let range = self.address_range();
        let bytes = range.end - range.start;
        let storage = Storage::empty(&Device::cpu(), bytes)?;
        let mut copied = Ok(());
        storage.with_host_mut(|data| copied = self.memory.read(self.byte_offset(), &mut data[..bytes as usize]));
        copied?;
        Ok(Tensor { memory: TensorMemory::Shared(Arc::new(storage)), offset: 0, ..self.clone() })
    }

    /// The bytes that it covers.
    pub(crate) fn touched(&self) -> Span {
        let axes = self.shape.iter().zip(&self.strides).map(|(&size, &stride)| (size as u64, stride));
        Span::new(self.address(), self.dtype.bytes(), axes)
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.memory
    }

    /// The index of the first element, from the start of the storage.
    pub(crate) fn element_offset(&self) -> u64 {
        self.offset
    }

    fn byte_offset(&self) -> u64 {
        self.offset * u64::from(self.dtype.bytes())
    }

    /// The number of elements from the first to the last of the view, both included.
    fn span(&self) -> usize {
        let range = self.address_range();
        ((range.end - range.start) / u64::from(self.dtype.bytes())) as usize
    }

    fn axis_size(&self, axis: usize) -> Result<usize> {
        let rank = self.rank();
        self.shape.get(axis).copied().ok_or_else(|| TensorError::NoSuchAxis { axis, rank }.into())
    }

    fn expect<T: Element>(&self) -> Result<()> {
        if T::DTYPE == self.dtype {
            Ok(())
        } else {
            Err(TensorError::WrongElement { found: T::DTYPE, wanted: self.dtype }.into())
        }
    }
}

impl fmt::Debug for Tensor {
    /// `Tensor(f32 [2, 3] on cpu)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {:?} on {})", self.dtype, self.shape, self.device().id())
    }
}

/// A vector of `len` default values on the host.
fn host_values<T: Element>(len: usize) -> Result<Vec<T>> {
    let mut values = host_room(len)?;
    values.resize(len, T::default());
    Ok(values)
}

/// The bytes of a contiguous tensor.
fn byte_count(dtype: DType, shape: &[usize]) -> Result<u64> {
    if dtype == DType::Bool {
        return Err(TensorError::NoHostType { dtype }.into());
    }
    let bytes = element_count(shape).and_then(|n| n.checked_mul(u64::from(dtype.bytes())));
    bytes.filter(|&b| b <= i64::MAX as u64).ok_or_else(|| TensorError::TooLarge { shape: shape.to_vec() }.into())
}

/// The product of a shape; `None` above 2^63.
fn element_count(shape: &[usize]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1_u64, |n, &s| n.checked_mul(s as u64)).filter(|&n| n <= i64::MAX as u64)
}

/// Row-major strides of a shape.
pub(crate) fn contiguous_strides(shape: &[usize]) -> Extents<i64> {
    let mut strides: Extents<i64> = SmallVec::from_elem(1, shape.len());
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1) as i64);
    }
    strides
}

/// Calls `f` with the offset of each element in row-major order.
pub(crate) fn each_offset(shape: &[usize], strides: &[i64], f: &mut impl FnMut(i64)) {
    fn walk(shape: &[usize], strides: &[i64], at: i64, f: &mut impl FnMut(i64)) {
        match (shape, strides) {
            ([n, shape @ ..], [s, strides @ ..]) => (0..*n as i64).for_each(|i| walk(shape, strides, at + i * s, f)),
            _ => f(at),
        }
    }
    if !shape.contains(&0) {
        walk(shape, strides, 0, f);
    }
}
