//! Matrix products. Elements of an operand that are not valid along K count as 0.

use crate::error::InterpError;
use crate::eval::Program;
use crate::ring::Word;
use crate::rounding::to_tf32;
use crate::tile::{Data, Tile, common, mismatch};
use atlas_dsl::op::Precision;
use atlas_dsl::{Op, TileType, Value};
use half::bf16;
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, LinalgScalar};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// An operand: a tile, possibly read as its transpose.
struct Factor {
    tile: Arc<Tile>,
    transposed: bool,
    rows: Range<u32>,
    cols: Range<u32>,
}

impl Factor {
    /// The extents in the product.
    fn extents(&self) -> Result<(usize, usize), InterpError> {
        let (m, n) = self.tile.matrix()?;
        Ok(if self.transposed { (n, m) } else { (m, n) })
    }

    /// The same, with 0 for elements that are not valid.
    fn zeroed(self) -> Result<Factor, InterpError> {
        Ok(Factor { tile: Arc::new(self.tile.filled(0.0)?), ..self })
    }

    fn view<'a, T>(&self, data: &'a [T]) -> Result<ArrayView2<'a, T>, InterpError> {
        let view = ArrayView2::from_shape(self.tile.matrix()?, data).map_err(|_| mismatch("dot"))?;
        Ok(if self.transposed { view.reversed_axes() } else { view })
    }
}

impl Program<'_> {
    fn factor(&self, v: Value) -> Result<Factor, InterpError> {
        let transposed = self.launch.deferred[v.as_u32() as usize];
        let original = match self.launch.kernel.def_op(v) {
            Some((_, Op::Transpose(original))) if transposed => *original,
            _ => v,
        };
        let tile = self.tile(original)?;
        let (rows, cols) = match &tile.valid[..] {
            [m, n] if transposed => (n.clone(), m.clone()),
            [m, n] => (m.clone(), n.clone()),
            _ => return Err(mismatch("dot")),
        };
        Ok(Factor { tile, transposed, rows, cols })
    }

    pub(crate) fn dot(
        &self,
        a: Value,
        b: Value,
        acc: Option<Value>,
        precision: Precision,
    ) -> Result<Tile, InterpError> {
        let (a, b) = (self.factor(a)?, self.factor(b)?);
        let ((m, k), (inner, n)) = (a.extents()?, b.extents()?);
        if k != inner {
            return Err(mismatch("dot"));
        }
        let acc = acc.map(|v| self.tile(v)).transpose()?;
        let (a, b, contracted) = if a.cols == b.rows {
            // Zeros times zeros are left out.
            let contracted = a.cols.start as usize..a.cols.end as usize;
            (a, b, contracted)
        } else {
            (a.zeroed()?, b.zeroed()?, 0..k)
        };
        let data = match (&a.tile.data, &b.tile.data, acc.as_ref().map(|t| &t.data)) {
            (Data::F32(x), Data::F32(y), acc) => {
                let mut out = match acc {
                    Some(Data::F32(c)) => c.clone(),
                    Some(_) => return Err(mismatch("dot")),
                    None => vec![0.0; m * n],
                };
                for (x, y) in terms(precision, x, y) {
                    multiply(&a.view(&x)?, &b.view(&y)?, contracted.clone(), &mut out)?;
                }
                Data::F32(out)
            }
            (Data::F64(x), Data::F64(y), acc) => {
                let mut out = match acc {
                    Some(Data::F64(c)) => c.clone(),
                    Some(_) => return Err(mismatch("dot")),
                    None => vec![0.0; m * n],
                };
                multiply(&a.view(x)?, &b.view(y)?, contracted, &mut out)?;
                Data::F64(out)
            }
            (Data::Ring(x), Data::Ring(y), acc) => {
                let mut out = match acc {
                    Some(Data::Ring(c)) => c.clone(),
                    Some(_) => return Err(mismatch("dot")),
                    None => vec![Word(0); m * n],
                };
                multiply_ring(&a.view(x)?, &b.view(y)?, contracted, &mut out);
                Data::Ring(out)
            }
            _ => return Err(mismatch("dot")),
        };
        let mut valid = vec![a.rows, b.cols];
        if let Some(acc) = acc {
            valid = common(&valid, &acc.valid);
        }
        let dtype = a.tile.ty.dtype.accumulator();
        Ok(Tile { ty: TileType::new(dtype, [m as u32, n as u32]), valid, data })
    }
}

/// The operands of a product.
type Term<'a> = (Cow<'a, [f32]>, Cow<'a, [f32]>);

/// The products of which the product of two f32 operands is the sum, the smallest first.
fn terms<'a>(precision: Precision, x: &'a [f32], y: &'a [f32]) -> Vec<Term<'a>> {
    let rounded = |x: &[f32], round: fn(f32) -> f32| x.iter().map(|&x| round(x)).collect::<Vec<_>>();
    let split = |round: fn(f32) -> f32| {
        let rests = |x: &[f32]| x.iter().map(|&x| round(rest(x, round(x)))).collect::<Vec<_>>();
        let (high, low) = ([rounded(x, round), rounded(y, round)], [rests(x), rests(y)]);
        let ([x, y], [x_rest, y_rest]) = (high, low);
        vec![(x_rest.into(), y.clone().into()), (x.clone().into(), y_rest.into()), (x.into(), y.into())]
    };
    match precision {
        Precision::Default => vec![(x.into(), y.into())],
        Precision::Tf32 => vec![(rounded(x, to_tf32).into(), rounded(y, to_tf32).into())],
        Precision::Bf16x3 => split(|x| bf16::from_f32(x).to_f32()),
        Precision::Tf32x3 => split(to_tf32),
    }
}

/// What rounding leaves of a number; 0 where that is infinite or no number. Such a number still meets both parts of the other operand,
/// so what it reaches is infinite or no number.
fn rest(x: f32, rounded: f32) -> f32 {
    let rest = x - rounded;
    if rest.is_finite() { rest } else { 0.0 }
}

/// `out += a · b`, over a part of K.
fn multiply<T: LinalgScalar>(
    a: &ArrayView2<'_, T>,
    b: &ArrayView2<'_, T>,
    k: Range<usize>,
    out: &mut [T],
) -> Result<(), InterpError> {
    let mut out = ArrayViewMut2::from_shape((a.nrows(), b.ncols()), out).map_err(|_| mismatch("dot"))?;
    if !k.is_empty() {
        let a = a.slice_axis(Axis(1), k.clone().into());
        let b = b.slice_axis(Axis(0), k.into());
        general_mat_mul(T::one(), &a, &b, T::one(), &mut out);
    }
    Ok(())
}

/// The same in the ring, where rounding to tf32 has no meaning, and splitting is refused.
fn multiply_ring(a: &ArrayView2<'_, Word>, b: &ArrayView2<'_, Word>, k: Range<usize>, out: &mut [Word]) {
    for (i, row) in out.chunks_exact_mut(b.ncols().max(1)).enumerate() {
        for k in k.clone() {
            let a = a[(i, k)];
            row.iter_mut().zip(b.row(k)).for_each(|(out, &b)| *out = out.add(a.mul(b)));
        }
    }
}
