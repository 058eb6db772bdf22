//! Atomic stores. Each element becomes what the operation makes of it and of what is stored, one after the other: the programs in
//! the order of the grid, and the elements of a tile in theirs.

use crate::error::InterpError;
use crate::eval_reduce::{max_f32, max_f64, min_f32, min_f64};
use crate::memory::{Places, Region, TensorViewMut};
use crate::ring::Word;
use crate::storage::MemoryElement;
use crate::tile::{Data, Tile, mismatch};
use crate::walk::{Row, Walk};
use atlas_dsl::DType;
use atlas_dsl::op::Update;
use half::{bf16, f16};

impl Places {
    /// Those that a tile holds along an axis of a tensor.
    pub(crate) fn of(axis: usize, tile: &Tile) -> Result<Places, InterpError> {
        let (Data::I32(places), [valid]) = (&tile.data, &tile.valid[..]) else { return Err(mismatch("store")) };
        let at = (0..).zip(places).map(|(i, &place)| valid.contains(&i).then_some(i64::from(place))).collect();
        Ok(Places { axis, at })
    }
}

impl TensorViewMut<'_> {
    /// Combines a tile with the elements of a region. What lies outside of the tensor is dropped.
    pub(crate) fn update(
        &mut self,
        update: Update,
        region: &Region,
        places: Option<&Places>,
        from: &Data,
    ) -> Result<(), InterpError> {
        let dtype = self.dtype();
        let (bytes, walks) = self.walks(region, places);
        let mut to = Target { bytes, walks: &walks };
        let other =
            || InterpError::kernel(format!("`{}` of a tile of other elements than {dtype}", update.statement()));
        match from {
            Data::F32(x) => {
                let f = choose(update, |a, b| a + b, max_f32, min_f32).ok_or_else(other)?;
                match dtype {
                    DType::F16 => to.combine::<f16, _>(x, f),
                    DType::Bf16 => to.combine::<bf16, _>(x, f),
                    DType::F32 => to.combine::<f32, _>(x, f),
                    _ => return Err(other()),
                }
            }
            Data::F64(x) => {
                let f = choose(update, |a, b| a + b, max_f64, min_f64).ok_or_else(other)?;
                match dtype {
                    DType::F16 => to.combine::<f16, _>(x, f),
                    DType::Bf16 => to.combine::<bf16, _>(x, f),
                    DType::F32 => to.combine::<f32, _>(x, f),
                    DType::F64 => to.combine::<f64, _>(x, f),
                    _ => return Err(other()),
                }
            }
            Data::I32(x) if dtype == DType::I32 => {
                to.combine::<i32, _>(x, choose(update, i32::wrapping_add, Ord::max, Ord::min).ok_or_else(other)?);
            }
            Data::I64(x) if dtype == DType::I64 => {
                to.combine::<i64, _>(x, choose(update, i64::wrapping_add, Ord::max, Ord::min).ok_or_else(other)?);
            }
            Data::Ring(x) if dtype == DType::F32 && update == Update::Add => to.combine::<u32, _>(x, Word::add),
            Data::I32(_) | Data::I64(_) | Data::Ring(_) | Data::Bool(_) => return Err(other()),
        }
        Ok(())
    }
}

fn choose<T>(update: Update, add: fn(T, T) -> T, max: fn(T, T) -> T, min: fn(T, T) -> T) -> Option<fn(T, T) -> T> {
    match update {
        Update::Replace | Update::Disjoint => None,
        Update::Add => Some(add),
        Update::Max => Some(max),
        Update::Min => Some(min),
    }
}

/// Memory, and the walks over the elements that are combined.
struct Target<'a> {
    bytes: &'a mut [u8],
    walks: &'a [Walk],
}

impl Target<'_> {
    fn combine<S: MemoryElement<T>, T: Copy>(&mut self, from: &[T], f: fn(T, T) -> T) {
        for walk in self.walks {
            let Row { count, a: step_a, b: step_b } = walk.row;
            walk.rows(|a, b| {
                for i in 0..count as i64 {
                    let at = (b as i64 + i * step_b) as usize * S::BYTES;
                    let place = &mut self.bytes[at..at + S::BYTES];
                    let new = f(S::get(place), from[(a as i64 + i * step_a) as usize]);
                    S::put(place, new);
                }
            });
        }
    }
}
