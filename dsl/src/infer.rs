//! The typing rule of every operation: from operand types to result types, or to an error.

use crate::diag::Diagnostic;
use crate::entity::{Param, Table, Value};
use crate::ir::{DimSize, Kernel, Loc, ParamKind};
use crate::op::{BinaryOp, Op, Precision, Predicate, ReduceOp, Slice};
use crate::types::{DType, TileType, broadcast_shapes, dropped_axes};
use atlas_vocabulary::Takes;

/// The result types of `op` in `kernel`. Loops give the types of their carried values.
///
/// Reads nothing but operand types, parameters, dims and tables, so it serves the builder, the
/// parser and the verifier alike.
pub fn infer(kernel: &Kernel, op: &Op, loc: Loc) -> Result<Vec<TileType>, Diagnostic> {
    TypingRules { kernel, loc }.infer(op)
}

/// The rules for an operation at a place.
#[derive(Clone, Copy)]
struct TypingRules<'k> {
    kernel: &'k Kernel,
    loc: Loc,
}

type Typed<X> = Result<X, Diagnostic>;

impl<'k> TypingRules<'k> {
    fn infer(self, op: &Op) -> Typed<Vec<TileType>> {
        let scalar_i32 = TileType::scalar(DType::I32);
        let one = match op {
            Op::Splat { value, dtype, shape } => {
                holds(*dtype, *value, self.loc)?;
                TileType::new(*dtype, shape.clone())
            }
            Op::Iota { shape, axis } => {
                if usize::from(*axis) >= shape.len() {
                    let rank = shape.len();
                    return self.err(101, format!("iota counts axis {axis}, but the tile {shape:?} has rank {rank}"));
                }
                TileType::new(DType::I32, shape.clone())
            }
            Op::DimSize(_) | Op::DimTiles { .. } => scalar_i32,
            Op::ScalarParam(p) => match &self.kernel.params[*p].kind {
                ParamKind::Scalar { dtype } => TileType::scalar(*dtype),
                ParamKind::Tensor { .. } => {
                    let name = &self.kernel.params[*p].name;
                    return self.err(102, format!("`{name}` is a tensor; load a tile of it"));
                }
            },
            Op::TableGet { table, indices } => self.table_get(*table, indices)?,
            Op::Unary(op, v) => self.taken(op.name(), op.row().takes, *v)?.clone(),
            Op::Binary(op, a, b) => self.binary(*op, *a, *b)?,
            Op::Compare(p, a, b) => self.compare(*p, *a, *b)?,
            Op::Select { cond, on_true, on_false } => self.select(*cond, *on_true, *on_false)?,
            Op::Fma(a, b, c) => self.fma([*a, *b, *c])?,
            Op::Cast(dtype, v) => self.cast(*dtype, *v)?,
            Op::Other { value, other, axes } => {
                let t = self.ty(*value);
                if t.dtype == DType::Bool {
                    return self.err(104, format!("`or` does not apply to {t}"));
                }
                let ascending = axes.windows(2).all(|w| w[0] < w[1]);
                if !ascending || axes.last().is_some_and(|&a| usize::from(a) >= t.rank()) {
                    return self.err(101, format!("`or` along axes {axes:?} of a tile {t}"));
                }
                holds(t.dtype, *other, self.loc)?;
                t.clone()
            }
            Op::Broadcast { value, shape } => self.broadcast(*value, shape)?,
            Op::Reshape { value, axes } => self.reshape(*value, axes)?,
            Op::Transpose(v) => {
                let t = self.ty(*v);
                let [m, n] = t.shape[..] else {
                    return self.err(108, format!("transpose needs a tile of rank 2, found {t}"));
                };
                TileType::new(t.dtype, [n, m])
            }
            Op::Reduce { op, value, axes } => self.reduce(*op, *value, axes)?,
            Op::Scan { op, value, axis, .. } => {
                let (t, name) = (self.ty(*value), op.scan_name());
                if usize::from(*axis) >= t.rank() {
                    return self.err(101, format!("`{name}` along axis {axis} of a tile {t}"));
                }
                self.taken(name, Takes::Numbers, *value)?.clone()
            }
            Op::ClusterSum(v) => {
                let t = self.ty(*v);
                if t.dtype != DType::F32 && t.dtype != DType::F64 {
                    return self.err(104, format!("`cluster_sum` adds tiles of f32 or f64, found {t}"));
                }
                t.clone()
            }
            Op::Dot { a, b, acc, precision } => self.dot(*a, *b, *acc, *precision)?,
            Op::Load { param, slices } => access(self.kernel, *param, slices, self.loc)?,
            Op::Store { param, slices, value, update } => {
                self.store(*param, slices, *value)?;
                if update.is_atomic() {
                    self.taken(update.statement(), Takes::Numbers, *value)?;
                }
                return Ok(vec![]);
            }
            Op::Loop { lo, hi, inits, .. } => {
                if let Some(&v) = [lo, hi].into_iter().find(|&&v| *self.ty(v) != scalar_i32) {
                    return self.err(112, format!("a loop bound must be a scalar i32, found {}", self.ty(v)));
                }
                return Ok(inits.iter().map(|&v| self.ty(v).clone()).collect());
            }
            Op::Yield(_) => return Ok(vec![]),
        };
        Ok(vec![one])
    }

    fn err<X>(self, code: u16, message: String) -> Typed<X> {
        Err(Diagnostic::new(code, self.loc, message))
    }

    fn ty(self, v: Value) -> &'k TileType {
        self.kernel.ty(v)
    }

    /// The type of an operand, if the operation takes it.
    fn taken(self, name: &str, takes: Takes, v: Value) -> Typed<&'k TileType> {
        let t = self.ty(v);
        match takes.holds(t.dtype) {
            true => Ok(t),
            false => Err(self.not_taken(name, t)),
        }
    }

    /// The refusal of an operand whose type an operation does not take.
    fn not_taken(self, name: &str, t: &TileType) -> Diagnostic {
        let refused = Diagnostic::new(104, self.loc, format!("`{name}` does not apply to {t}"));
        match no_arithmetic(&[t.dtype]) {
            Some(note) => refused.note(note),
            None => refused,
        }
    }

    fn table_get(self, table: Table, indices: &[Value]) -> Typed<TileType> {
        let data = &self.kernel.tables[table];
        let (rank, given) = (data.shape.len(), indices.len());
        if given != rank {
            return self
                .err(103, format!("table `{}` has rank {rank}, but the number of its indices is {given}", data.name));
        }
        match indices.iter().find(|&&i| *self.ty(i) != TileType::scalar(DType::I32)) {
            Some(&i) => self.err(103, format!("a table index must be a scalar i32, found {}", self.ty(i))),
            None => Ok(TileType::scalar(DType::F32)),
        }
    }

    fn binary(self, op: BinaryOp, a: Value, b: Value) -> Typed<TileType> {
        let (x, y) = (self.ty(a), self.ty(b));
        if x != y {
            return self
                .err(105, format!("`{}` needs two operands of one type, found {x} and {y}", op.name()))
                .map_err(|d: Diagnostic| d.note("there is no implicit promotion: use `cast`"));
        }
        Ok(self.taken(op.name(), op.row().takes, a)?.clone())
    }

    fn compare(self, p: Predicate, a: Value, b: Value) -> Typed<TileType> {
        let (x, y) = (self.ty(a), self.ty(b));
        if x != y {
            let message = format!("comparison `{}` needs two operands of one type, found {x} and {y}", p.name());
            return self.err(105, message);
        }
        if x.dtype.is_small() {
            return Err(self.not_taken(p.name(), x));
        }
        Ok(x.with_dtype(DType::Bool))
    }

    fn select(self, cond: Value, on_true: Value, on_false: Value) -> Typed<TileType> {
        let (c, x, y) = (self.ty(cond), self.ty(on_true), self.ty(on_false));
        if x != y {
            return self.err(105, format!("`select` needs two choices of one type, found {x} and {y}"));
        }
        let wanted = x.with_dtype(DType::Bool);
        if *c != wanted {
            return self.err(105, format!("`select` between tiles {x} needs a condition {wanted}, found {c}"));
        }
        Ok(x.clone())
    }

    fn fma(self, [a, b, c]: [Value; 3]) -> Typed<TileType> {
        let (x, y, z) = (self.ty(a), self.ty(b), self.ty(c));
        if x != y || x != z {
            return self
                .err(105, format!("`fma` needs three operands of one type, found {x}, {y} and {z}"))
                .map_err(|d: Diagnostic| d.note("there is no implicit promotion: use `cast`"));
        }
        Ok(self.taken("fma", Takes::Floats, a)?.clone())
    }

    fn cast(self, dtype: DType, v: Value) -> Typed<TileType> {
        let t = self.ty(v);
        if t.dtype != dtype && dtype == DType::Bool {
            return self.err(106, format!("cannot cast {t} to bool; compare it with 0"));
        }
        if let Some(why) = DType::no_conversion(t.dtype, dtype) {
            return self.err(106, format!("cannot cast {t} to {dtype}")).map_err(|d: Diagnostic| d.note(why));
        }
        Ok(t.with_dtype(dtype))
    }

    fn broadcast(self, value: Value, shape: &[u32]) -> Typed<TileType> {
        let t = self.ty(value);
        if t.rank() > shape.len() || broadcast_shapes(&t.shape, shape).as_deref() != Some(shape) {
            return self.err(107, format!("a tile {t} does not broadcast to {shape:?}"));
        }
        Ok(TileType::new(t.dtype, shape))
    }

    fn reshape(self, value: Value, axes: &[Option<u8>]) -> Typed<TileType> {
        let t = self.ty(value);
        let kept: Vec<u8> = axes.iter().copied().flatten().collect();
        let ascending = kept.windows(2).all(|w| w[0] < w[1]);
        if !ascending || kept.last().is_some_and(|&a| usize::from(a) >= t.rank()) {
            return self.err(101, format!("reshape to axes {kept:?} of a tile {t}"));
        }
        let extent = |axis: &Option<u8>| axis.map_or(1, |a| t.shape[usize::from(a)]);
        let shape: Vec<u32> = axes.iter().map(extent).collect();
        if dropped_axes(t.rank(), axes).iter().any(|&a| t.shape[usize::from(a)] != 1) {
            return self.err(107, format!("reshape of {t} to {shape:?} may only add or drop axes of extent 1"));
        }
        Ok(TileType::new(t.dtype, shape))
    }

    fn reduce(self, op: ReduceOp, value: Value, axes: &[u8]) -> Typed<TileType> {
        let t = self.ty(value);
        let ascending = axes.windows(2).all(|w| w[0] < w[1]);
        if axes.is_empty() || !ascending || axes.iter().any(|&a| usize::from(a) >= t.rank()) {
            return self.err(101, format!("`{}` along axes {axes:?} of a tile {t}", op.name()));
        }
        let mut shape = self.taken(op.name(), Takes::Numbers, value)?.shape.clone();
        for &a in axes {
            shape[usize::from(a)] = 1;
        }
        Ok(TileType::new(t.dtype, shape))
    }

    fn dot(self, a: Value, b: Value, acc: Option<Value>, precision: Precision) -> Typed<TileType> {
        let (x, y) = (self.ty(a), self.ty(b));
        let ([m, k], [k2, n]) = (&x.shape[..], &y.shape[..]) else {
            return self.err(108, format!("dot needs two tiles of rank 2, found {x} and {y}"));
        };
        if k != k2 {
            return self.err(109, format!("dot of {x} and {y}: the inner extents {k} and {k2} differ"));
        }
        if x.dtype != y.dtype || !x.dtype.is_float() {
            let message = format!("dot needs two float operands of one type, found {x} and {y}");
            let refused = Diagnostic::new(105, self.loc, message);
            return Err(match no_arithmetic(&[x.dtype, y.dtype]) {
                Some(note) => refused.note(note),
                None => refused,
            });
        }
        if precision != Precision::Default && x.dtype != DType::F32 {
            return self.err(110, format!("precision {} needs f32 operands, found {}", precision.name(), x.dtype));
        }
        let out = TileType::new(x.dtype.accumulator(), [*m, *n]);
        match acc.map(|c| self.ty(c)).filter(|c| **c != out) {
            Some(c) => self.err(105, format!("dot accumulates {out}, but is added to {c}")),
            None => Ok(out),
        }
    }

    fn store(self, param: Param, slices: &[Slice], value: Value) -> Typed<()> {
        let want = access(self.kernel, param, slices, self.loc)?;
        let found = self.ty(value);
        if *found == want {
            return Ok(());
        }
        let name = &self.kernel.params[param].name;
        let d = Diagnostic::new(111, self.loc, format!("store to `{name}` wants {want}, found {found}"));
        let broadcasts = broadcast_shapes(&found.shape, &want.shape).as_ref() == Some(&want.shape);
        Err(if found.dtype == want.dtype && broadcasts {
            d.note(format!("a store does not broadcast: write `broadcast(.., {:?})`", want.shape))
        } else {
            d
        })
    }
}

/// True if an integer type holds a number, that is, if the number is whole, in range and known exactly. True for all other
/// types.
pub fn is_held(dtype: DType, x: f64) -> bool {
    match dtype {
        // From 2^53 on, numbers that differ are one f64.
        DType::I64 => x.fract() == 0.0 && x.abs() < LEAST_INEXACT,
        dtype => {
            dtype.range().is_none_or(|(least, most)| x.fract() == 0.0 && (least as f64..=most as f64).contains(&x))
        }
    }
}

/// What to write where a type without arithmetic is computed with.
fn no_arithmetic(dtypes: &[DType]) -> Option<&'static str> {
    if dtypes.iter().any(|d| d.is_fp8()) {
        return Some(
            "floats of 8 bits are loaded, converted and stored: use `.cast::<f32>()` or `.cast::<f16>()` before it",
        );
    }
    dtypes.iter().any(|d| d.is_small()).then_some(
        "integers below 32 bits are loaded, converted and stored: use `.cast::<i32>()` or `.cast::<f32>()` before it",
    )
}

/// 2^53. Below it, f64 holds every whole number.
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
fn access(kernel: &Kernel, param: Param, slices: &[Slice], loc: Loc) -> Result<TileType, Diagnostic> {
    let data = &kernel.params[param];
    let ParamKind::Tensor { dtype, dims, .. } = &data.kind else {
        return Err(Diagnostic::new(102, loc, format!("`{}` is a scalar; it has no tiles", data.name)));
    };
    if slices.len() != dims.len() {
        return Err(Diagnostic::new(
            113,
            loc,
            format!("`{}` has rank {}, but the number of its indices is {}", data.name, dims.len(), slices.len()),
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
            Slice::Gather(v) => {
                let places = kernel.ty(v);
                let [extent] = places.shape[..] else { return Err(not_an_index(kernel, param, v, loc)) };
                if places.dtype != DType::I32 {
                    return Err(not_an_index(kernel, param, v, loc));
                }
                shape.push(extent);
                None
            }
        };
        if let Some(v) = coordinate
            && *kernel.ty(v) != TileType::scalar(DType::I32)
        {
            return Err(not_an_index(kernel, param, v, loc));
        }
    }
    Ok(TileType::new(*dtype, shape))
}

fn not_an_index(kernel: &Kernel, param: Param, v: Value, loc: Loc) -> Diagnostic {
    let (name, found) = (&kernel.params[param].name, kernel.ty(v));
    let message = format!("an index of `{name}` must be a scalar i32, or a tile of them along one axis, found {found}");
    Diagnostic::new(113, loc, message)
}
