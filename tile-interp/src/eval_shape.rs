//! Operations that move elements, and `or`.

use crate::error::InterpError;
use crate::eval::Program;
use crate::eval_memory::overlay;
use crate::tile::{Data, Tile, mismatch};
use crate::walk::{Row, Walk, dense_strides};
use atlas_dsl::{TileType, Value};

impl Program<'_> {
    pub(crate) fn broadcast(&self, value: Value, shape: &[u32]) -> Result<Tile, InterpError> {
        let tile = self.tile(value)?;
        let from = &tile.ty.shape;
        let Some(added) = shape.len().checked_sub(from.len()) else { return Err(mismatch("broadcast")) };
        let steps = dense_strides(from.iter().map(|&e| u64::from(e)));
        let to_steps = dense_strides(shape.iter().map(|&e| u64::from(e)));
        let mut valid = Vec::with_capacity(shape.len());
        let mut axes = Vec::with_capacity(shape.len());
        for (axis, &extent) in shape.iter().enumerate() {
            let source = axis.checked_sub(added);
            let step = match source {
                Some(i) if from[i] == extent => {
                    valid.push(tile.valid[i].clone());
                    steps[i]
                }
                Some(i) if from[i] == 1 => {
                    valid.push(if tile.valid[i].is_empty() { 0..0 } else { 0..extent });
                    0
                }
                None => {
                    valid.push(0..extent);
                    0
                }
                Some(_) => return Err(mismatch("broadcast")),
            };
            axes.push(Row { count: extent as usize, a: to_steps[axis], b: step });
        }
        let ty = TileType::new(tile.ty.dtype, shape);
        let data = gather(&tile.data, ty.elements() as usize, Walk::new(axes.into_iter(), 0, 0));
        Ok(Tile { ty, valid, data })
    }

    /// The tile with `other` where an element is not valid along some axes. The result is valid along these axes.
    pub(crate) fn other(&self, value: Value, other: f64, axes: &[u8]) -> Result<Tile, InterpError> {
        let tile = self.tile(value)?;
        let shape = &tile.ty.shape;
        let ty = tile.ty.clone();
        // The elements that stay are a box: the valid part of these axes, and all of the others.
        let parts = || (0..).zip(tile.valid.iter().zip(shape)).map(|(axis, part)| (axes.contains(&axis), part));
        let stays: Vec<_> = parts().map(|(filled, (v, &e))| if filled { v.clone() } else { 0..e }).collect();
        let valid = parts().map(|(filled, (v, &e))| if filled { 0..e } else { v.clone() }).collect();
        if stays.iter().zip(shape).all(|(v, &e)| *v == (0..e)) {
            return Ok(Tile { ty, valid, data: tile.data.clone() });
        }
        let mut data = Data::filled(ty.dtype, self.launch.mode, ty.elements() as usize, other);
        let steps = dense_strides(shape.iter().map(|&e| u64::from(e)));
        let first: i64 = stays.iter().zip(&steps).map(|(v, &step)| i64::from(v.start) * step).sum();
        let rows = stays.iter().zip(&steps).map(|(v, &step)| Row { count: v.len(), a: step, b: step });
        if let Some(walk) = Walk::new(rows, first, first) {
            overlay(&walk, &mut data, &tile.data)?;
        }
        Ok(Tile { ty, valid, data })
    }

    pub(crate) fn reshape(&self, value: Value, axes: &[Option<u8>]) -> Result<Tile, InterpError> {
        let tile = self.tile(value)?;
        let kept = |axis: &Option<u8>| match axis {
            Some(axis) => {
                let axis = usize::from(*axis);
                Some((*tile.ty.shape.get(axis)?, tile.valid.get(axis)?.clone()))
            }
            None => Some((1, 0..1)),
        };
        let made: Option<Vec<_>> = axes.iter().map(kept).collect();
        let (shape, valid): (Vec<u32>, Vec<_>) = made.ok_or_else(|| mismatch("reshape"))?.into_iter().unzip();
        // An axis that goes takes along that it is not valid: what is left is 0.
        let gone = (0..).zip(&tile.valid).any(|(axis, v)| !axes.contains(&Some(axis)) && v.is_empty());
        let data = if gone { tile.filled(0.0)?.data } else { tile.data.clone() };
        Ok(Tile { ty: TileType::new(tile.ty.dtype, shape), valid, data })
    }

    pub(crate) fn transpose(&self, value: Value) -> Result<Tile, InterpError> {
        let tile = self.tile(value)?;
        let (m, n) = tile.matrix()?;
        let axes = [Row { count: n, a: m as i64, b: 1 }, Row { count: m, a: 1, b: n as i64 }];
        let data = gather(&tile.data, m * n, Walk::new(axes.into_iter(), 0, 0));
        let valid = tile.valid.iter().rev().cloned().collect();
        Ok(Tile { ty: TileType::new(tile.ty.dtype, [n as u32, m as u32]), valid, data })
    }
}

/// `count` elements. The walk copies those that it visits from `from`.
fn gather(from: &Data, count: usize, walk: Option<Walk>) -> Data {
    fn of<T: Copy + Default>(from: &[T], count: usize, walk: Option<Walk>) -> Vec<T> {
        let mut to = vec![T::default(); count];
        if let Some(walk) = walk {
            walk.copy(&mut to, from);
        }
        to
    }
    match from {
        Data::Bool(x) => Data::Bool(of(x, count, walk)),
        Data::I32(x) => Data::I32(of(x, count, walk)),
        Data::I64(x) => Data::I64(of(x, count, walk)),
        Data::F32(x) => Data::F32(of(x, count, walk)),
        Data::F64(x) => Data::F64(of(x, count, walk)),
        Data::Ring(x) => Data::Ring(of(x, count, walk)),
    }
}
