//! Operations that compute a tile from tiles and have no other effect.

use crate::tile::{Arithmetic, Tile, count, next, steps};
use atlas_codegen::gpu::{Direction, Kernel, Op, Type, UnsignedOp, Value};
use atlas_codegen::gpu_ops;
use atlas_codegen::layout::Fragment;
use atlas_dsl::DType;
use atlas_dsl::op::ReduceOp;
use std::ops::Range;
use std::rc::Rc;

/// Reads a value of a role by its number.
type Read<'a> = &'a dyn Fn(Value) -> Result<Rc<Tile>, String>;

/// The arguments of a launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// How floats are computed.
    pub arithmetic: Arithmetic,
    /// Size of each dim.
    pub dims: Vec<u64>,
    /// The element of each parameter that is a scalar.
    pub scalars: Vec<Option<u64>>,
}

/// The result of an operation; `None` if the operation is not handled here.
pub(crate) fn evaluate(k: &Kernel, launch: &Launch, op: &Op, result: &Type, tile: Read<'_>) -> Evaluated {
    let Some((dtype, layout)) = result.tile() else { return Ok(None) };
    let a = launch.arithmetic;
    let filled = |x: u64| Tile { dtype, shape: layout.shape.clone(), data: vec![x; count(&layout.shape)] };
    Ok(Some(match op {
        Op::Const(x) => filled(a.constant(dtype, *x)),
        Op::Iota { axis, offset } => {
            let from = Tile {
                data: (0..layout.shape[usize::from(*axis)]).map(|i| u64::from(i + offset)).collect(),
                ..filled(0)
            };
            from.gather(&layout.shape, |at| at[usize::from(*axis)] as usize)
        }
        Op::DimSize(d) => Tile::int(launch.dims[d.as_u32() as usize] as i64),
        Op::DimTiles(d, size) => Tile::int(launch.dims[d.as_u32() as usize].div_ceil(u64::from(*size)) as i64),
        Op::Unsigned(op, x, y) => {
            let [x, y] = [tile(*x)?, tile(*y)?].map(|x| x.data[0] as u32);
            let made = match op {
                UnsignedOp::Div => x.checked_div(y).ok_or("a division by 0")?,
                UnsignedOp::Min => x.min(y),
            };
            Tile::int(i64::from(made))
        }
        Op::Coordinate(v, axis) => {
            let x = tile(*v)?;
            let (at, count) = (x.data[0] as i64, axis.count(&launch.dims));
            if !(0..count as i64).contains(&at) {
                return Err(format!("{at} is no coordinate of an axis of {count}"));
            }
            (*x).clone()
        }
        Op::ScalarParam(p) => filled(launch.scalars[p.as_u32() as usize].ok_or("a tensor is no scalar")?),
        Op::TableGet(table, indices) => {
            let data = &k.tables[*table];
            let mut at = Some(0);
            for (&v, &extent) in indices.iter().zip(&data.shape) {
                let i = tile(v)?.data[0] as i64;
                at = at.filter(|_| (0..i64::from(extent)).contains(&i)).map(|at| at * i64::from(extent) + i);
            }
            // Outside a table stands 0.
            let x = at.map_or(0.0, |at| f64::from(data.values[at as usize]));
            filled(a.constant(DType::F32, x))
        }
        Op::Unary(op, _, v) => tile(*v)?.map(dtype, a.unary(*op, dtype)?),
        Op::Binary(op, _, x, y) => tile(*x)?.zip(&*tile(*y)?, dtype, a.binary(*op, dtype)?)?,
        Op::Compare(p, x, y) => {
            let x = tile(*x)?;
            x.zip(&*tile(*y)?, dtype, a.compare(*p, x.dtype)?)?
        }
        Op::Select(c, x, y) => {
            let (c, x, y) = (tile(*c)?, tile(*x)?, tile(*y)?);
            if c.shape != x.shape || x.shape != y.shape {
                return Err(format!("a choice by {:?} of {:?} and {:?}", c.shape, x.shape, y.shape));
            }
            let data = (0..x.data.len()).map(|i| if c.data[i] != 0 { x.data[i] } else { y.data[i] }).collect();
            Tile { data, ..(*x).clone() }
        }
        Op::Fma(x, y, z) => {
            let (x, y, z) = (tile(*x)?, tile(*y)?, tile(*z)?);
            if x.shape != y.shape || x.shape != z.shape {
                return Err(format!("`fma` of {:?}, {:?} and {:?}", x.shape, y.shape, z.shape));
            }
            let data = (0..x.data.len()).map(|i| a.fma(x.data[i], y.data[i], z.data[i])).collect::<Result<_, _>>()?;
            Tile { data, ..(*x).clone() }
        }
        Op::Cast(v) => {
            let x = tile(*v)?;
            x.map(dtype, a.cast(x.dtype, dtype)?)
        }
        Op::Rematerialize(v) | Op::ConvertLayout(v) => (*tile(*v)?).clone(),
        Op::Broadcast(v) => broadcast(&*tile(*v)?, &layout.shape)?,
        Op::Reshape(v) => {
            let x = tile(*v)?;
            Tile { shape: layout.shape.clone(), ..(*x).clone() }
        }
        Op::Transpose(v) => {
            let x = tile(*v)?;
            x.gather(&layout.shape, |at| (at[1] * x.shape[1] + at[0]) as usize)
        }
        Op::ExtractSlice { value, axis, offset } => {
            let (x, axis) = (tile(*value)?, usize::from(*axis));
            let step = steps(&x.shape);
            let moved = |at: &[u32]| at.iter().zip(&step).map(|(&c, s)| c as usize * s).sum::<usize>();
            // What is beyond the tile is its padding, which is taken for 0.
            let real = x.shape[axis].saturating_sub(*offset);
            let from = |at: &[u32]| (at[axis] < real).then(|| moved(at) + *offset as usize * step[axis]);
            x.gather_or(0, &layout.shape, from)
        }
        Op::Reduce { op, value, axes } => {
            let source = k.values[*value].ty.tile().map(|(_, l)| l).ok_or("a reduction of no tile")?;
            reduce(a, *op, &*tile(*value)?, axes, source, layout)?
        }
        Op::Scan { op, direction, value, axis } => scan(a, *op, *direction, &*tile(*value)?, usize::from(*axis))?,
        // What needs more than operands, or has effects.
        Op::CtaNumber | Op::CtaCount | Op::SplitNumber | Op::SplitCount | Op::MaskInvalid { .. } => return Ok(None),
        gpu_ops!(global shared clusters products rings orders control) => return Ok(None),
    }))
}

/// The result of an operation.
pub(crate) type Evaluated = Result<Option<Tile>, String>;

fn broadcast(x: &Tile, shape: &[u32]) -> Result<Tile, String> {
    let lead = shape.len().checked_sub(x.shape.len()).ok_or("a broadcast to fewer axes")?;
    let step = steps(&x.shape);
    let wrong = x.shape.iter().zip(&shape[lead..]).any(|(&from, &to)| from != to && from != 1);
    if wrong {
        return Err(format!("{:?} does not broadcast to {shape:?}", x.shape));
    }
    let place = |axis: usize, c: u32| if x.shape[axis] == 1 { 0 } else { c as usize * step[axis] };
    Ok(x.gather(shape, |at| (0..x.shape.len()).map(|axis| place(axis, at[lead + axis])).sum()))
}

/// The tile with a number where an element lies outside the ranges of some axes.
pub(crate) fn refill(x: &Tile, neutral: u64, valid: &[(u8, Range<i64>)]) -> Tile {
    let mut at = vec![0; x.shape.len()];
    let mut out = x.clone();
    for element in &mut out.data {
        if !valid.iter().all(|(axis, real)| real.contains(&i64::from(at[usize::from(*axis)]))) {
            *element = neutral;
        }
        next(&mut at, &x.shape);
    }
    out
}

/// A reduction within each warp. If several warps share the axes, a trailing axis of the result numbers the warps' partial
/// results.
fn reduce(
    a: Arithmetic,
    op: ReduceOp,
    x: &Tile,
    axes: &[u8],
    source: &Fragment,
    result: &Fragment,
) -> Result<Tile, String> {
    let rank = x.shape.len();
    let (combine, neutral) = (a.binary(op.combine(), x.dtype)?, a.constant(x.dtype, op.neutral(x.dtype)));
    let parts = parts(axes, source, result)?;
    let step = steps(&result.shape);
    let mut data = vec![neutral; count(&result.shape)];
    let mut at = vec![0; rank];
    for (i, &element) in x.data.iter().enumerate() {
        let kept = |axis: usize| if axes.contains(&(axis as u8)) { 0 } else { at[axis] as usize * step[axis] };
        let part = parts.get(i).copied().unwrap_or(0);
        let to = (0..rank).map(kept).sum::<usize>() + part as usize;
        data[to] = combine(data[to], element);
        next(&mut at, &x.shape);
    }
    Ok(Tile { dtype: x.dtype, shape: result.shape.clone(), data })
}

fn scan(a: Arithmetic, op: ReduceOp, direction: Direction, x: &Tile, axis: usize) -> Result<Tile, String> {
    let combine = a.binary(op.combine(), x.dtype)?;
    let (step, extent) = (steps(&x.shape)[axis], x.shape[axis] as usize);
    let mut data = x.data.clone();
    for first in (0..data.len()).filter(|i| i / step % extent == 0) {
        let place = |n: usize| match direction {
            Direction::Up => first + n * step,
            Direction::Down => first + (extent - 1 - n) * step,
        };
        for n in 1..extent {
            data[place(n)] = combine(data[place(n - 1)], data[place(n)]);
        }
    }
    Ok(Tile { data, ..x.clone() })
}

/// The index along the trailing axis to which each element of the source is reduced; empty if there is no such axis.
fn parts(axes: &[u8], source: &Fragment, result: &Fragment) -> Result<Vec<u32>, String> {
    let rank = source.shape.len();
    if result.shape.len() == rank {
        let mut lanes = 1;
        for m in &source.threads {
            if lanes >= 32 && m.extent > 1 && m.axis.is_some_and(|a| axes.contains(&a)) {
                return Err(format!("a reduction along {axes:?}, which warps of {source} share"));
            }
            lanes *= m.extent;
        }
        return Ok(Vec::new());
    }
    let step = steps(&source.shape);
    let mut parts = vec![None; count(&source.shape)];
    for thread in 0..source.thread_count() {
        let part = result.thread_coord(thread)[rank];
        let base = source.thread_coord(thread);
        for reg in 0..source.reg_count() {
            let at = base.iter().zip(source.reg_coord(reg)).map(|(a, b)| a + b);
            if at.clone().zip(&source.shape).any(|(c, &extent)| c >= extent) {
                continue;
            }
            let i = at.zip(&step).map(|(c, s)| c as usize * s).sum::<usize>();
            if parts[i].is_some_and(|other| other != part) {
                return Err(format!("an element that is reduced to parts {part} and {:?} of {result}", parts[i]));
            }
            parts[i] = Some(part);
        }
    }
    parts.into_iter().map(|p| p.ok_or_else(|| format!("an element that no thread of {source} holds"))).collect()
}
