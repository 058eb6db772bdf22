//! Tiles at run time: dense elements in row-major order, and which of them are valid.
//!
//! A tile that is loaded past the end of a dim is *ragged*. Its elements there are 0 and take part in computations like all
//! others, but they are not *valid*, and neither is anything that is computed from them. Reductions and `dot` use valid
//! elements only. Validity is a range per axis.

use crate::Mode;
use crate::error::InterpError;
use crate::ring::Word;
use crate::rounding::to_narrow;
use atlas_dsl::{DType, TileType};
use std::ops::Range;

/// The elements of a tile. Integers below 32 bits are held as i32, always in their range, and so are the codes of
/// floats of 8 bits. f16 and bf16 are held as f32, always
/// rounded. In the ring, they have a low residue of 0.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Ring(Vec<Word>),
}

impl Data {
    /// `count` elements of `dtype`, all of them `x` rounded to it.
    pub(crate) fn filled(dtype: DType, mode: Mode, count: usize, x: f64) -> Data {
        if mode == Mode::Ring && dtype.is_float() {
            return Data::Ring(vec![Word::of(dtype, x); count]);
        }
        match held(dtype, mode) {
            DType::Bool => Data::Bool(vec![x != 0.0; count]),
            DType::I32 => Data::I32(vec![whole(dtype, x); count]),
            DType::I64 => Data::I64(vec![x as i64; count]),
            DType::F64 => Data::F64(vec![x; count]),
            _ => Data::F32(vec![to_narrow(dtype, x); count]),
        }
    }
}

/// The type in which elements of `dtype` are held.
pub(crate) fn held(dtype: DType, mode: Mode) -> DType {
    match dtype {
        DType::F16 | DType::Bf16 | DType::F32 if matches!(mode, Mode::Native | Mode::Noisy(_)) => DType::F32,
        dtype if dtype.is_float() => DType::F64,
        dtype if dtype.is_small() => DType::I32,
        dtype => dtype,
    }
}

/// A number as the i32 that holds it: the code of a float of 8 bits, or the number itself.
pub(crate) fn whole(dtype: DType, x: f64) -> i32 {
    match dtype.fp8() {
        Some(fp8) => fp8.encode(x).into(),
        None => dtype.saturated(x) as i32,
    }
}

/// A tile at run time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tile {
    /// Element type in the kernel and extents.
    pub(crate) ty: TileType,
    /// The valid part of each axis.
    pub(crate) valid: Vec<Range<u32>>,
    /// The elements in row-major order.
    pub(crate) data: Data,
}

impl Tile {
    /// A tile that is valid everywhere.
    pub(crate) fn full(ty: TileType, data: Data) -> Tile {
        let valid = ty.shape.iter().map(|&e| 0..e).collect();
        Tile { ty, valid, data }
    }

    /// True if every element is valid.
    pub(crate) fn is_valid(&self) -> bool {
        self.valid.iter().zip(&self.ty.shape).all(|(v, &e)| *v == (0..e))
    }

    /// The same, with a number for elements that are not valid.
    pub(crate) fn filled(&self, other: f64) -> Result<Tile, InterpError> {
        fn fill<T: Copy>(data: &mut [T], other: T, shape: &[u32], valid: &[Range<u32>]) {
            for (i, x) in data.iter_mut().enumerate() {
                let mut left = i;
                let inside = shape.iter().zip(valid).rev().all(|(&extent, valid)| {
                    let at = left % extent as usize;
                    left /= extent as usize;
                    valid.contains(&(at as u32))
                });
                if !inside {
                    *x = other;
                }
            }
        }
        let mut tile = self.clone();
        let (shape, valid) = (&self.ty.shape, &self.valid);
        match &mut tile.data {
            Data::Bool(x) => fill(x, other != 0.0, shape, valid),
            Data::I32(x) => fill(x, whole(self.ty.dtype, other), shape, valid),
            Data::I64(x) => fill(x, other as i64, shape, valid),
            Data::F32(x) => fill(x, other as f32, shape, valid),
            Data::F64(x) => fill(x, other, shape, valid),
            Data::Ring(x) => fill(x, Word::of(self.ty.dtype, other), shape, valid),
        }
        Ok(tile)
    }

    /// An i32 scalar.
    pub(crate) fn index(x: i32) -> Tile {
        Tile::full(TileType::scalar(DType::I32), Data::I32(vec![x]))
    }

    /// The value of an i32 scalar.
    pub(crate) fn as_index(&self) -> Result<i32, InterpError> {
        match &self.data {
            Data::I32(x) if x.len() == 1 => Ok(x[0]),
            _ => Err(InterpError::kernel(format!("an index is {}, not a scalar i32", self.ty))),
        }
    }

    /// Extents of a rank-2 tile.
    pub(crate) fn matrix(&self) -> Result<(usize, usize), InterpError> {
        match self.ty.shape[..] {
            [m, n] => Ok((m as usize, n as usize)),
            _ => Err(InterpError::kernel(format!("a tile {} is not a matrix", self.ty))),
        }
    }
}

/// The common valid part of two tiles of one shape.
pub(crate) fn common(a: &[Range<u32>], b: &[Range<u32>]) -> Vec<Range<u32>> {
    let both = |(a, b): (&Range<u32>, &Range<u32>)| {
        let start = a.start.max(b.start);
        start..a.end.min(b.end).max(start)
    };
    a.iter().zip(b).map(both).collect()
}

/// The error for operands that the typing rules exclude.
pub(crate) fn mismatch(what: &str) -> InterpError {
    InterpError::kernel(format!("`{what}` of operands that do not fit it"))
}
