//! Tensors as the interpreter sees them: bytes, an element type and a strided layout.

use crate::error::InterpError;
use crate::overlap::Span;
use crate::storage::MemoryElement;
use crate::tile::{Data, Tile};
use crate::walk::{Row, Walk, dense_strides};
use atlas_dsl::DType;
use atlas_dsl::op::Update;
use half::{bf16, f16};
use std::sync::Arc;

/// The layout of a tensor: a first element, and a size and a stride per dim.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout {
    offset: i64,
    dims: Vec<u64>,
    strides: Vec<i64>,
}

impl Layout {
    /// Checks that every element lies inside `bytes` bytes.
    fn new(dtype: DType, bytes: usize, offset: i64, dims: Vec<u64>, strides: Vec<i64>) -> Result<Layout, InterpError> {
        if dtype == DType::Bool {
            return Err(InterpError::View("a tensor of bool cannot be in memory".to_owned()));
        }
        if dims.len() != strides.len() {
            return Err(InterpError::View(format!("a view of rank {} has {} strides", dims.len(), strides.len())));
        }
        if !dims.contains(&0) {
            let held = (bytes / dtype.bytes() as usize) as i128;
            let (mut least, mut most) = (i128::from(offset), i128::from(offset));
            for (&dim, &stride) in dims.iter().zip(&strides) {
                let reach = i128::from(dim - 1) * i128::from(stride);
                let end = if reach < 0 { &mut least } else { &mut most };
                *end = end.saturating_add(reach);
            }
            if least < 0 || most >= held {
                return Err(InterpError::View(format!(
                    "a view with dims {dims:?}, strides {strides:?} and offset {offset} reaches elements \
                     {least}..={most}, but its buffer holds {held}"
                )));
            }
        }
        Ok(Layout { offset, dims, strides })
    }

    fn dense(dtype: DType, bytes: usize, dims: &[u64]) -> Result<Layout, InterpError> {
        let strides = dense_strides(dims.iter().copied());
        Layout::new(dtype, bytes, 0, dims.to_vec(), strides)
    }

    /// True if distinct coordinates share an element, or if that is too hard to decide.
    fn overlaps_itself(&self, dtype: DType) -> bool {
        let axes = self.dims.iter().copied().zip(self.strides.iter().copied());
        Span::new(0, dtype.bytes(), axes).overlaps_itself()
    }

    /// Walks over the part of `region` inside the tensor: the dense region on one side, elements with these strides on the other. Of an
    /// axis with places, one walk for each place inside of the tensor.
    fn walks(&self, region: &Region, places: Option<&Places>, strides: &[i64], offset: i64) -> Vec<Walk> {
        let bounds = self.bounds();
        let Some(Places { axis, at }) = places else {
            return region.walk(&bounds, strides, offset).into_iter().collect();
        };
        let (own, mut one) = (region.strides(), region.clone());
        one.extent[*axis] = 1;
        let each = (0..).zip(at).filter_map(|(number, place)| {
            one.start[*axis] = (*place)?;
            one.walk_in((&own, number * own[*axis]), &bounds, strides, offset)
        });
        each.collect()
    }

    /// A walk over the part of `region` inside the tensor: the dense region on one side, memory on the other.
    fn walk(&self, region: &Region) -> Option<Walk> {
        region.walk(&self.bounds(), &self.strides, self.offset)
    }

    /// The coordinates of each dim, as half-open ranges.
    fn bounds(&self) -> Vec<(i64, i64)> {
        self.dims.iter().map(|&dim| (0, dim as i64)).collect()
    }
}

/// A box of a tensor: a first coordinate, which may lie outside the tensor, and an extent per dim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// First coordinate per dim.
    pub(crate) start: Vec<i64>,
    /// Extent per dim.
    pub(crate) extent: Vec<u32>,
}

impl Region {
    fn strides(&self) -> Vec<i64> {
        dense_strides(self.extent.iter().map(|&e| u64::from(e)))
    }

    /// Walks the part of the region inside `bounds` (a half-open range per dim). The dense elements of
    /// the region are the first side; the second side has the given strides, and `origin` at coordinate 0.
    fn walk(&self, bounds: &[(i64, i64)], strides: &[i64], origin: i64) -> Option<Walk> {
        self.walk_in((&self.strides(), 0), bounds, strides, origin)
    }

    /// The same where the first side are elements of a larger box: with these strides, from `first` on.
    fn walk_in(
        &self,
        (own, first): (&[i64], i64),
        bounds: &[(i64, i64)],
        strides: &[i64],
        origin: i64,
    ) -> Option<Walk> {
        let (mut a, mut b) = (first, origin);
        let mut axes = Vec::with_capacity(bounds.len());
        for (axis, &(low, high)) in bounds.iter().enumerate() {
            let start = self.start[axis];
            let lo = start.max(low);
            let hi = start.saturating_add(i64::from(self.extent[axis])).min(high);
            if lo >= hi {
                return None;
            }
            a += (lo - start) * own[axis];
            b += lo * strides[axis];
            axes.push(Row { count: (hi - lo) as usize, a: own[axis], b: strides[axis] });
        }
        Walk::new(axes.into_iter(), a, b)
    }

    /// Walks the part that this region and `other` share inside a tensor. The dense elements of each are one side.
    pub(crate) fn walk_shared(&self, other: &Region, dims: &[u64]) -> Option<Walk> {
        let ends = |r: &Region, i: usize| r.start[i].saturating_add(i64::from(r.extent[i]));
        if (0..dims.len()).any(|i| ends(self, i) <= other.start[i] || ends(other, i) <= self.start[i]) {
            return None;
        }
        let bounds: Vec<(i64, i64)> = (0..dims.len())
            .map(|i| {
                let start = other.start[i];
                (start.max(0), start.saturating_add(i64::from(other.extent[i])).min(dims[i] as i64))
            })
            .collect();
        let strides = other.strides();
        let origin = other.start.iter().zip(&strides).map(|(&s, &stride)| -s * stride).sum();
        self.walk(&bounds, &strides, origin)
    }
}

/// A tensor argument that the kernel reads.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    dtype: DType,
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> TensorView<'a> {
    /// A view of `bytes`, elements of `dtype` in native byte order at any alignment.
    ///
    /// `offset` and `strides` count elements; a stride may be 0 or negative.
    pub fn new(
        dtype: DType,
        bytes: &'a [u8],
        offset: i64,
        dims: &[u64],
        strides: &[i64],
    ) -> Result<TensorView<'a>, InterpError> {
        let layout = Layout::new(dtype, bytes.len(), offset, dims.to_vec(), strides.to_vec())?;
        Ok(TensorView { dtype, bytes, layout })
    }

    /// A row-major view from the first byte on.
    pub fn contiguous(dtype: DType, bytes: &'a [u8], dims: &[u64]) -> Result<TensorView<'a>, InterpError> {
        Ok(TensorView { dtype, bytes, layout: Layout::dense(dtype, bytes.len(), dims)? })
    }

    /// Element type in memory.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dims, outermost first.
    pub fn dims(&self) -> &[u64] {
        &self.layout.dims
    }

    pub(crate) fn read(&self, region: &Region, into: &mut Data) -> Result<(), InterpError> {
        read(self.dtype, self.bytes, &self.layout, region, into)
    }
}

/// A tensor argument that the kernel writes, and may read.
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    dtype: DType,
    bytes: &'a mut [u8],
    layout: Layout,
}

impl<'a> TensorViewMut<'a> {
    /// Like [`TensorView::new`], but no two coordinates may share an element.
    pub fn new(
        dtype: DType,
        bytes: &'a mut [u8],
        offset: i64,
        dims: &[u64],
        strides: &[i64],
    ) -> Result<TensorViewMut<'a>, InterpError> {
        let layout = Layout::new(dtype, bytes.len(), offset, dims.to_vec(), strides.to_vec())?;
        if layout.overlaps_itself(dtype) {
            return Err(InterpError::View(format!(
                "a view with dims {dims:?} and strides {strides:?} overlaps itself, so it cannot be written"
            )));
        }
        Ok(TensorViewMut { dtype, bytes, layout })
    }

    /// A row-major view from the first byte on.
    pub fn contiguous(dtype: DType, bytes: &'a mut [u8], dims: &[u64]) -> Result<TensorViewMut<'a>, InterpError> {
        let layout = Layout::dense(dtype, bytes.len(), dims)?;
        Ok(TensorViewMut { dtype, bytes, layout })
    }

    /// Element type in memory.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dims, outermost first.
    pub fn dims(&self) -> &[u64] {
        &self.layout.dims
    }

    pub(crate) fn read(&self, region: &Region, into: &mut Data) -> Result<(), InterpError> {
        read(self.dtype, self.bytes, &self.layout, region, into)
    }

    /// The memory, and walks over what a tile is combined with: the tile on one side, memory on the other.
    pub(crate) fn walks(&mut self, region: &Region, places: Option<&Places>) -> (&mut [u8], Vec<Walk>) {
        let Layout { offset, strides, .. } = &self.layout;
        let walks = self.layout.walks(region, places, strides, *offset);
        (self.bytes, walks)
    }

    /// Walks over the elements of a tile, and over their numbers in a row-major tensor of these dims.
    pub(crate) fn numbers(&self, region: &Region, places: Option<&Places>) -> Vec<Walk> {
        self.layout.walks(region, places, &dense_strides(self.layout.dims.iter().copied()), 0)
    }

    pub(crate) fn write(&mut self, region: &Region, places: Option<&Places>, from: &Data) -> Result<(), InterpError> {
        let dtype = self.dtype;
        let (bytes, walks) = self.walks(region, places);
        walks.iter().try_for_each(|walk| write(dtype, bytes, walk, from))
    }
}

fn write(dtype: DType, bytes: &mut [u8], walk: &Walk, from: &Data) -> Result<(), InterpError> {
    match (dtype, from) {
        (DType::F16, Data::F32(from)) => write_rows::<f16, _>(bytes, walk, from),
        (DType::Bf16, Data::F32(from)) => write_rows::<bf16, _>(bytes, walk, from),
        (DType::F32, Data::F32(from)) => write_rows::<f32, _>(bytes, walk, from),
        (DType::F16, Data::F64(from)) => write_rows::<f16, _>(bytes, walk, from),
        (DType::Bf16, Data::F64(from)) => write_rows::<bf16, _>(bytes, walk, from),
        (DType::F32, Data::F64(from)) => write_rows::<f32, _>(bytes, walk, from),
        (DType::F64, Data::F64(from)) => write_rows::<f64, _>(bytes, walk, from),
        (DType::F16 | DType::Bf16, Data::Ring(from)) => write_rows::<u16, _>(bytes, walk, from),
        (DType::F32, Data::Ring(from)) => write_rows::<u32, _>(bytes, walk, from),
        (DType::I8, Data::I32(from)) => write_rows::<i8, _>(bytes, walk, from),
        (DType::U8 | DType::F8E4M3 | DType::F8E5M2, Data::I32(from)) => write_rows::<u8, _>(bytes, walk, from),
        (DType::I16, Data::I32(from)) => write_rows::<i16, _>(bytes, walk, from),
        (DType::U16, Data::I32(from)) => write_rows::<u16, _>(bytes, walk, from),
        (DType::I32, Data::I32(from)) => write_rows::<i32, _>(bytes, walk, from),
        (DType::I64, Data::I64(from)) => write_rows::<i64, _>(bytes, walk, from),
        _ => return Err(InterpError::kernel(format!("a tile of other elements is stored as {dtype}"))),
    }
    Ok(())
}

/// Reads the part of `region` that lies in the tensor; the rest of `into` stays as it is.
fn read(dtype: DType, bytes: &[u8], layout: &Layout, region: &Region, into: &mut Data) -> Result<(), InterpError> {
    let Some(walk) = layout.walk(region) else { return Ok(()) };
    match (dtype, into) {
        (DType::F16, Data::F32(into)) => read_rows::<f16, _>(bytes, &walk, into),
        (DType::Bf16, Data::F32(into)) => read_rows::<bf16, _>(bytes, &walk, into),
        (DType::F32, Data::F32(into)) => read_rows::<f32, _>(bytes, &walk, into),
        (DType::F16, Data::F64(into)) => read_rows::<f16, _>(bytes, &walk, into),
        (DType::Bf16, Data::F64(into)) => read_rows::<bf16, _>(bytes, &walk, into),
        (DType::F32, Data::F64(into)) => read_rows::<f32, _>(bytes, &walk, into),
        (DType::F64, Data::F64(into)) => read_rows::<f64, _>(bytes, &walk, into),
        (DType::F16 | DType::Bf16, Data::Ring(into)) => read_rows::<u16, _>(bytes, &walk, into),
        (DType::F32, Data::Ring(into)) => read_rows::<u32, _>(bytes, &walk, into),
        (DType::I8, Data::I32(into)) => read_rows::<i8, _>(bytes, &walk, into),
        (DType::U8 | DType::F8E4M3 | DType::F8E5M2, Data::I32(into)) => read_rows::<u8, _>(bytes, &walk, into),
        (DType::I16, Data::I32(into)) => read_rows::<i16, _>(bytes, &walk, into),
        (DType::U16, Data::I32(into)) => read_rows::<u16, _>(bytes, &walk, into),
        (DType::I32, Data::I32(into)) => read_rows::<i32, _>(bytes, &walk, into),
        (DType::I64, Data::I64(into)) => read_rows::<i64, _>(bytes, &walk, into),
        _ => return Err(InterpError::kernel(format!("a tensor of {dtype} is loaded as a tile of other elements"))),
    }
    Ok(())
}

fn read_rows<S: MemoryElement<T>, T: Copy>(bytes: &[u8], walk: &Walk, into: &mut [T]) {
    let Row { count, a: step_a, b: step_b } = walk.row;
    let size = S::BYTES;
    walk.rows(|a, b| {
        if step_a == 1 && step_b == 1 {
            let from = bytes[b * size..(b + count) * size].chunks_exact(size);
            into[a..a + count].iter_mut().zip(from).for_each(|(x, from)| *x = S::get(from));
        } else {
            for i in 0..count as i64 {
                let at = (b as i64 + i * step_b) as usize * size;
                into[(a as i64 + i * step_a) as usize] = S::get(&bytes[at..at + size]);
            }
        }
    });
}

fn write_rows<S: MemoryElement<T>, T: Copy>(bytes: &mut [u8], walk: &Walk, from: &[T]) {
    let Row { count, a: step_a, b: step_b } = walk.row;
    let size = S::BYTES;
    walk.rows(|a, b| {
        if step_a == 1 && step_b == 1 {
            let into = bytes[b * size..(b + count) * size].chunks_exact_mut(size);
            from[a..a + count].iter().zip(into).for_each(|(&x, into)| S::put(into, x));
        } else {
            for i in 0..count as i64 {
                let at = (b as i64 + i * step_b) as usize * size;
                S::put(&mut bytes[at..at + size], from[(a as i64 + i * step_a) as usize]);
            }
        }
    });
}

/// The place of each element along an axis. One that is not valid has none.
pub(crate) struct Places {
    pub(crate) axis: usize,
    pub(crate) at: Vec<Option<i64>>,
}

/// A tile on its way to a tensor.
pub(crate) struct PendingStore {
    /// What becomes of the elements that are there.
    pub(crate) update: Update,
    /// Where the elements of one axis go. That axis of the region counts them.
    pub(crate) places: Option<Places>,
    /// Index of the parameter.
    pub(crate) param: usize,
    /// The target of the tile. The part outside of the tensor is dropped.
    pub(crate) region: Region,
    /// What is stored.
    pub(crate) tile: Arc<Tile>,
}

impl PendingStore {
    /// The memory that the tile takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.tile.ty.elements() * 8
    }
}
