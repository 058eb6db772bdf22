//! Tensor maps: what the copy engine is told of a tensor, once for each launch.
//!
//! A map names the tensor's axes from the innermost on, the box that one copy moves, and how the engine permutes what it
//! brings within rows of shared memory. A launch adds address, sizes and strides (CUDA driver API, `cuTensorMapEncodeTiled`).

use atlas_dsl::Param;
use atlas_dsl::ir::Stride;

/// The most axes that a map has.
pub const MOST_AXES: usize = 5;
/// The most elements of a box along one axis.
pub const MOST_BOX: u32 = 256;
/// What address, strides and the first byte of a box are multiples of.
pub const ALIGNMENT: u32 = 16;

/// True if the engine takes a tensor of elements of `bytes` bytes: its last axis is contiguous, and its address and its other
/// strides are multiples of [`ALIGNMENT`].
pub fn takes_strides(strides: &[Stride], align: u32, bytes: u32) -> bool {
    let of_chunks = |n: u64| (n * u64::from(bytes)).is_multiple_of(u64::from(ALIGNMENT));
    let is_pitch = |s: &Stride| of_chunks(s.divisor()) && !matches!(s, Stride::Const(n) if *n < 0);
    strides.split_last().is_some_and(|(last, outer)| {
        *last == Stride::Const(1) && outer.iter().all(is_pitch) && align.is_multiple_of(ALIGNMENT)
    })
}

/// One axis of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapAxis {
    /// The axis of the tensor.
    pub axis: u8,
    /// Elements of the box along it.
    pub size: u32,
}

/// A tensor as the copy engine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapData {
    /// The tensor.
    pub param: Param,
    /// Its axes, innermost first. The innermost has stride 1.
    pub axes: Vec<MapAxis>,
    /// Bytes of a row within which the engine permutes chunks of 16 bytes: 32, 64 or 128; 0 if it permutes none.
    pub span: u32,
}

/// Sizes and strides of a map for one launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapExtents {
    /// Elements along each axis, innermost first.
    pub sizes: [u64; MOST_AXES],
    /// Bytes from one element to the next along each axis but the innermost.
    pub strides: [u64; MOST_AXES - 1],
}

impl TensorMapData {
    /// True if the numbers are such as the engine takes: a box of elements on each axis, and a span that exists.
    pub fn is_encodable(&self) -> bool {
        let sizes = self.axes.iter().all(|a| (1..=MOST_BOX).contains(&a.size));
        sizes && (1..=MOST_AXES).contains(&self.axes.len()) && matches!(self.span, 0 | 32 | 64 | 128)
    }

    /// Elements of a box.
    pub fn box_elements(&self) -> u32 {
        self.axes.iter().fold(1, |n, a| n.saturating_mul(a.size))
    }

    /// The sizes and strides of the map, from those of the tensor in elements; `None` if the engine takes no such tensor:
    /// a stride that is negative or no multiple of [`ALIGNMENT`], or a tensor of fewer axes.
    ///
    /// The engine takes no axis without elements, so it counts as one. The kernel begins the boxes of such a tensor past that one.
    pub fn extents(&self, sizes: &[u64], strides: &[i64], element_bytes: u32) -> Option<MapExtents> {
        let mut extents = MapExtents::default();
        for (n, a) in self.axes.iter().enumerate() {
            let (&size, &stride) = (sizes.get(usize::from(a.axis))?, strides.get(usize::from(a.axis))?);
            *extents.sizes.get_mut(n)? = size.max(1);
            if n > 0 {
                // The stride of an axis of one element is never used, but the driver refuses one of 2^40 bytes.
                let bytes = match size {
                    0 | 1 => u64::from(ALIGNMENT),
                    _ => u64::try_from(stride).ok()?.checked_mul(u64::from(element_bytes))?,
                };
                if !bytes.is_multiple_of(u64::from(ALIGNMENT)) {
                    return None;
                }
                *extents.strides.get_mut(n - 1)? = bytes;
            }
        }
        Some(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> TensorMapData {
        let axes = vec![MapAxis { axis: 1, size: 64 }, MapAxis { axis: 0, size: 128 }];
        TensorMapData { param: Param::from_u32(0), axes, span: 128 }
    }

    #[test]
    fn extents_are_those_of_the_axes_innermost_first() {
        let extents = map().extents(&[100, 72], &[80, 1], 2).unwrap();
        assert_eq!((extents.sizes, extents.strides), ([72, 100, 0, 0, 0], [160, 0, 0, 0]));
        assert_eq!(map().box_elements(), 64 * 128);
    }

    #[test]
    fn what_the_engine_takes_not_has_none() {
        assert_eq!(map().extents(&[100, 72], &[76, 1], 2), None);
        assert_eq!(map().extents(&[100, 72], &[-80, 1], 2), None);
        assert_eq!(map().extents(&[100], &[80], 2), None);
        // Nothing is read of an empty dim; one row has no pitch.
        assert_eq!(map().extents(&[0, 72], &[80, 1], 2).unwrap().sizes[1], 1);
        assert_eq!(map().extents(&[1, 72], &[76, 1], 2).unwrap().strides[0], 16);
    }
}
