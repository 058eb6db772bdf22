//! The typing rule of every operation: operand types in, result types out, or what is wrong.

use crate::diag::Diagnostic;
use crate::ir::{DimSize, Kernel, Loc, ParamKind};
use crate::op::{BinaryOp, Op, Precision, Slice, UnaryOp};
use crate::types::{DType, TileType, broadcast_shapes};

/// The result types of `op` in `kernel`. Loops give the types of their carried values.
///
/// Reads nothing but operand types, parameters, dims and tables, so it serves the builder, the
/// parser and the verifier alike.
pub fn infer(kernel: &Kernel, op: &Op, loc: Loc) -> Result<Vec<TileType>, Diagnostic> {
    let err = |code: u16, message: String| Err(Diagnostic::new(code, loc, message));
    let ty = |v| kernel.ty(v);
    let scalar_i32 = TileType::scalar(DType::I32);
    Ok(match op {
        Op::Splat { value, dtype, shape } => {
            holds(*dtype, *value, loc)?;
            vec![TileType::new(*dtype, shape.clone())]
        }
        Op::Other { value, other } => {
            let t = ty(*value);
            if t.dtype == DType::Bool {
                return err(104, format!("`or` does not apply to {t}"));
            }
            holds(t.dtype, *other, loc)?;
            vec![t.clone()]
        }
        Op::Iota { shape, axis } => {
            if usize::from(*axis) >= shape.len() {
                return err(101, format!("iota counts axis {axis}, but the tile {shape:?} has rank {}", shape.len()));
            }
            vec![TileType::new(DType::I32, shape.clone())]
        }
        Op::DimSize(_) | Op::DimTiles { .. } => vec![scalar_i32],
        Op::ScalarParam(p) => match &kernel.params[*p].kind {
            ParamKind::Scalar { dtype } => vec![TileType::scalar(*dtype)],
            ParamKind::Tensor { .. } => {
                return err(102, format!("`{}` is a tensor; load a tile of it", kernel.params[*p].name));
            }
        },
        Op::TableGet { table, indices } => {
            let data = &kernel.tables[*table];
            if indices.len() != data.shape.len() {
                return err(
                    103,
                    format!(
                        "table `{}` has rank {}, but {} indices are given",
                        data.name,
                        data.shape.len(),
                        indices.len()
                    ),
                );
            }
            for &i in indices {
                if *ty(i) != scalar_i32 {
                    return err(103, format!("a table index must be a scalar i32, found {}", ty(i)));
                }
            }
            vec![TileType::scalar(DType::F32)]
        }
        Op::Unary(op, v) => {
            let t = ty(*v);
            let fits = match op {
                UnaryOp::Not => t.dtype == DType::Bool,
                UnaryOp::Neg | UnaryOp::Abs => t.dtype != DType::Bool,
                _ => t.dtype.is_float(),
            };
            if !fits {
                return err(104, format!("`{}` does not apply to {t}", op.name()));
            }
            vec![t.clone()]
        }
        Op::Binary(op, a, b) => {
            let (x, y) = (ty(*a), ty(*b));
            if x != y {
                return err(105, format!("`{}` needs two operands of one type, found {x} and {y}", op.name()))
                    .map_err(|d: Diagnostic| d.note("there is no implicit promotion: use `cast`"));
            }
            let fits = match op {
                BinaryOp::And | BinaryOp::Or => x.dtype == DType::Bool,
                BinaryOp::Rem => x.dtype.is_int(),
                _ => x.dtype != DType::Bool,
            };
            if !fits {
                return err(104, format!("`{}` does not apply to {x}", op.name()));
            }
            vec![x.clone()]
        }
        Op::Compare(p, a, b) => {
            let (x, y) = (ty(*a), ty(*b));
            if x != y {
                return err(
                    105,
                    format!("comparison `{}` needs two operands of one type, found {x} and {y}", p.name()),
                );
            }
            vec![x.with_dtype(DType::Bool)]
        }
        Op::Select { cond, on_true, on_false } => {
            let (c, x, y) = (ty(*cond), ty(*on_true), ty(*on_false));
            if x != y {
                return err(105, format!("`select` needs two choices of one type, found {x} and {y}"));
            }
            if *c != x.with_dtype(DType::Bool) {
                return err(
                    105,
                    format!("`select` between tiles {x} needs a condition {}, found {c}", x.with_dtype(DType::Bool)),
                );
            }
            vec![x.clone()]
        }
        Op::Cast(dtype, v) => {
            let t = ty(*v);
            if t.dtype != *dtype && *dtype == DType::Bool {
                return err(106, format!("cannot cast {t} to bool; compare it with 0"));
            }
            vec![t.with_dtype(*dtype)]
        }
        Op::Broadcast { value, shape } => {
            let t = ty(*value);
            if t.rank() > shape.len() || broadcast_shapes(&t.shape, shape).as_deref() != Some(shape) {
                return err(107, format!("a tile {t} does not broadcast to {shape:?}"));
            }
            vec![TileType::new(t.dtype, shape.clone())]
        }
        Op::Reshape { value, shape } => {
            let t = ty(*value);
            let core = |s: &[u32]| s.iter().copied().filter(|&e| e != 1).collect::<Vec<_>>();
            if core(&t.shape) != core(shape) {
                return err(107, format!("reshape of {t} to {shape:?} may only add or drop axes of extent 1"));
            }
            vec![TileType::new(t.dtype, shape.clone())]
        }
        Op::Transpose(v) => {
            let t = ty(*v);
            let [m, n] = t.shape[..] else {
                return err(108, format!("transpose needs a tile of rank 2, found {t}"));
            };
            vec![TileType::new(t.dtype, [n, m])]
        }
        Op::Reduce { op, value, axes } => {
            let t = ty(*value);
            if axes.is_empty()
                || !axes.windows(2).all(|w| w[0] < w[1])
                || axes.iter().any(|&a| usize::from(a) >= t.rank())
            {
                return err(101, format!("`{}` along axes {axes:?} of a tile {t}", op.name()));
            }
            if t.dtype == DType::Bool {
                return err(104, format!("`{}` does not apply to {t}", op.name()));
            }
            let mut shape = t.shape.clone();
            for &a in axes {
                shape[usize::from(a)] = 1;
            }
            vec![TileType::new(t.dtype, shape)]
        }
        Op::Dot { a, b, acc, precision } => {
            let (x, y) = (ty(*a), ty(*b));
            let ([m, k], [k2, n]) = (&x.shape[..], &y.shape[..]) else {
                return err(108, format!("dot needs two tiles of rank 2, found {x} and {y}"));
            };
            if k != k2 {
                return err(109, format!("dot of {x} and {y}: the inner extents {k} and {k2} differ"));
            }
            if x.dtype != y.dtype || !x.dtype.is_float() {
                return err(105, format!("dot needs two float operands of one type, found {x} and {y}"));
            }
            if *precision == Precision::Tf32 && x.dtype != DType::F32 {
                return err(110, format!("precision tf32 needs f32 operands, found {}", x.dtype));
            }
            let out = TileType::new(x.dtype.accumulator(), [*m, *n]);
            if let Some(c) = acc
                && *ty(*c) != out
            {
                return err(105, format!("dot accumulates {out}, but is added to {}", ty(*c)));
            }
            vec![out]
        }
        Op::Load { param, slices } => vec![access(kernel, *param, slices, loc)?],
        Op::Store { param, slices, value } => {
            let want = access(kernel, *param, slices, loc)?;
            let found = ty(*value);
            if *found != want {
                let d = Diagnostic::new(
                    111,
                    loc,
                    format!("store to `{}` wants {want}, found {found}", kernel.params[*param].name),
                );
                let broadcasts = broadcast_shapes(&found.shape, &want.shape).as_ref() == Some(&want.shape);
                return Err(if found.dtype == want.dtype && broadcasts {
                    d.note(format!("a store does not broadcast: write `broadcast(.., {:?})`", want.shape))
                } else {
                    d
                });
            }
            vec![]
        }
        Op::Loop { lo, hi, inits, .. } => {
            for &v in [lo, hi] {
                if *ty(v) != scalar_i32 {
                    return err(112, format!("a loop bound must be a scalar i32, found {}", ty(v)));
                }
            }
            inits.iter().map(|&v| ty(v).clone()).collect()
        }
        Op::Yield(_) => vec![],
    })
}

/// True if an integer type holds a number, which is whole and known exactly. True for the other types.
pub fn is_held(dtype: DType, x: f64) -> bool {
    match dtype {
        DType::I32 => x.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&x),
        // From 2^53 on, numbers that differ are one f64.
        DType::I64 => x.fract() == 0.0 && x.abs() < LEAST_INEXACT,
        _ => true,
    }
}

/// 2^53: below it f64 holds every whole number.
pub const LEAST_INEXACT: f64 = 9_007_199_254_740_992.0;

fn holds(dtype: DType, x: f64, loc: Loc) -> Result<(), Diagnostic> {
    if is_held(dtype, x) {
        return Ok(());
    }
    let why = match dtype {
        _ if x.fract() != 0.0 || x.is_nan() => "is not a whole number",
        DType::I64 => "is not known exactly: numbers are exact below 2^53",
        _ => "is out of its range",
    };
    Err(Diagnostic::new(117, loc, format!("the number {x} meets {dtype}, but {why}")))
}

/// The type of the tile that `slices` cut out of a tensor parameter.
fn access(kernel: &Kernel, param: crate::Param, slices: &[Slice], loc: Loc) -> Result<TileType, Diagnostic> {
    let data = &kernel.params[param];
    let ParamKind::Tensor { dtype, dims, .. } = &data.kind else {
        return Err(Diagnostic::new(102, loc, format!("`{}` is a scalar; it has no tiles", data.name)));
    };
    if slices.len() != dims.len() {
        return Err(Diagnostic::new(
            113,
            loc,
            format!("`{}` has rank {}, but {} indices are given", data.name, dims.len(), slices.len()),
        ));
    }
    let mut shape = Vec::new();
    for (slice, &dim) in slices.iter().zip(dims) {
        let coordinate = match *slice {
            Slice::At(v) => Some(v),
            Slice::Tile { index, size } => {
                shape.push(size);
                Some(index)
            }
            Slice::Span { start, len } => {
                shape.push(len);
                Some(start)
            }
            Slice::Whole => {
                let name = &kernel.dims[dim].name;
                match kernel.dims[dim].size {
                    DimSize::Const(n) => shape.push(u32::try_from(n).map_err(|_| {
                        Diagnostic::new(114, loc, format!("dim `{name}` of {n} elements is too large to be used whole"))
                    })?),
                    DimSize::Dynamic { .. } => {
                        return Err(Diagnostic::new(
                            114,
                            loc,
                            format!("dim `{name}` is used whole, so it must be a constant"),
                        ));
                    }
                }
                None
            }
        };
        if let Some(v) = coordinate
            && *kernel.ty(v) != TileType::scalar(DType::I32)
        {
            return Err(Diagnostic::new(
                113,
                loc,
                format!("an index of `{}` must be a scalar i32, found {}", data.name, kernel.ty(v)),
            ));
        }
    }
    Ok(TileType::new(*dtype, shape))
}
