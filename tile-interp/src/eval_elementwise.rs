//! Element-wise operations: one match per operation, then a loop over slices.

use crate::error::InterpError;
use crate::eval::Program;
use crate::eval_reduce::{max_f32, max_f64, min_f32, min_f64};
use crate::ring::Word;
use crate::rounding::{round_all, to_narrow};
use crate::tile::{Data, Tile, common, held, mismatch, whole};
use atlas_dsl::op::{BinaryOp, Predicate, UnaryOp, multiply_high, shift_left, shift_right, shift_right_logical};
use atlas_dsl::{DType, TileType, Value};

impl Program<'_> {
    pub(crate) fn unary(&self, op: UnaryOp, x: Value) -> Result<Tile, InterpError> {
        let x = self.tile(x)?;
        let data = match (&x.data, op) {
            (Data::F32(v), _) => Data::F32(unary_f32(op, v)?),
            (Data::F64(v), _) => Data::F64(unary_f64(op, v)?),
            (Data::Ring(v), UnaryOp::Neg) => Data::Ring(map(v, Word::neg)),
            (Data::I32(v), UnaryOp::Neg) => Data::I32(map(v, i32::wrapping_neg)),
            (Data::I32(v), UnaryOp::Abs) => Data::I32(map(v, i32::wrapping_abs)),
            (Data::I64(v), UnaryOp::Neg) => Data::I64(map(v, i64::wrapping_neg)),
            (Data::I64(v), UnaryOp::Abs) => Data::I64(map(v, i64::wrapping_abs)),
            (Data::I32(v), UnaryOp::Not) => Data::I32(map(v, |x| !x)),
            (Data::I64(v), UnaryOp::Not) => Data::I64(map(v, |x| !x)),
            (Data::I32(v), UnaryOp::Popcount) => Data::I32(map(v, |x| x.count_ones() as i32)),
            (Data::I64(v), UnaryOp::Popcount) => Data::I64(map(v, |x| i64::from(x.count_ones()))),
            (Data::Bool(v), UnaryOp::Not) => Data::Bool(map(v, |b| !b)),
            _ => return Err(mismatch(op.name())),
        };
        Ok(rounded(Tile { ty: x.ty.clone(), valid: x.valid.clone(), data }))
    }

    pub(crate) fn binary(&self, op: BinaryOp, x: Value, y: Value) -> Result<Tile, InterpError> {
        let (x, y) = (self.tile(x)?, self.tile(y)?);
        if x.ty != y.ty {
            return Err(mismatch(op.name()));
        }
        let data = match (&x.data, &y.data) {
            (Data::F32(a), Data::F32(b)) => Data::F32(match op {
                BinaryOp::Min => zip(a, b, min_f32),
                BinaryOp::Max => zip(a, b, max_f32),
                // Through f64, which no library rounds to another f32 than the nearest one or its neighbour.
                BinaryOp::Pow => zip(a, b, |x, y| f64::from(x).powf(f64::from(y)) as f32),
                BinaryOp::Atan2 => zip(a, b, |y, x| f64::from(y).atan2(f64::from(x)) as f32),
                _ => arithmetic(op, a, b)?,
            }),
            (Data::F64(a), Data::F64(b)) => Data::F64(match op {
                BinaryOp::Min => zip(a, b, min_f64),
                BinaryOp::Max => zip(a, b, max_f64),
                BinaryOp::Pow => zip(a, b, f64::powf),
                BinaryOp::Atan2 => zip(a, b, f64::atan2),
                _ => arithmetic(op, a, b)?,
            }),
            (Data::Ring(a), Data::Ring(b)) => Data::Ring(match op {
                BinaryOp::Add => zip(a, b, Word::add),
                BinaryOp::Sub => zip(a, b, Word::sub),
                BinaryOp::Mul => zip(a, b, Word::mul),
                _ => return Err(mismatch(op.name())),
            }),
            (Data::I32(a), Data::I32(b)) => Data::I32(binary_i32(op, a, b)?),
            (Data::I64(a), Data::I64(b)) => Data::I64(binary_i64(op, a, b)?),
            (Data::Bool(a), Data::Bool(b)) => Data::Bool(match op {
                BinaryOp::And | BinaryOp::BitAnd => zip(a, b, |a, b| a & b),
                BinaryOp::Or | BinaryOp::BitOr => zip(a, b, |a, b| a | b),
                BinaryOp::BitXor => zip(a, b, |a, b| a ^ b),
                _ => return Err(mismatch(op.name())),
            }),
            _ => return Err(mismatch(op.name())),
        };
        Ok(rounded(Tile { ty: x.ty.clone(), valid: common(&x.valid, &y.valid), data }))
    }

    pub(crate) fn compare(&self, p: Predicate, x: Value, y: Value) -> Result<Tile, InterpError> {
        let (x, y) = (self.tile(x)?, self.tile(y)?);
        if x.ty != y.ty {
            return Err(mismatch(p.name()));
        }
        let data = match (&x.data, &y.data) {
            (Data::F32(a), Data::F32(b)) => comparison(p, a, b),
            (Data::F64(a), Data::F64(b)) => comparison(p, a, b),
            (Data::I32(a), Data::I32(b)) => comparison(p, a, b),
            (Data::I64(a), Data::I64(b)) => comparison(p, a, b),
            (Data::Bool(a), Data::Bool(b)) => comparison(p, a, b),
            _ => return Err(mismatch(p.name())),
        };
        let ty = x.ty.with_dtype(DType::Bool);
        Ok(Tile { ty, valid: common(&x.valid, &y.valid), data: Data::Bool(data) })
    }

    pub(crate) fn select(&self, cond: Value, on_true: Value, on_false: Value) -> Result<Tile, InterpError> {
        let (c, x, y) = (self.tile(cond)?, self.tile(on_true)?, self.tile(on_false)?);
        let Data::Bool(cond) = &c.data else { return Err(mismatch("select")) };
        if x.ty != y.ty || c.ty.shape != x.ty.shape {
            return Err(mismatch("select"));
        }
        let data = match (&x.data, &y.data) {
            (Data::F32(a), Data::F32(b)) => Data::F32(choose(cond, a, b)),
            (Data::F64(a), Data::F64(b)) => Data::F64(choose(cond, a, b)),
            (Data::Ring(a), Data::Ring(b)) => Data::Ring(choose(cond, a, b)),
            (Data::I32(a), Data::I32(b)) => Data::I32(choose(cond, a, b)),
            (Data::I64(a), Data::I64(b)) => Data::I64(choose(cond, a, b)),
            (Data::Bool(a), Data::Bool(b)) => Data::Bool(choose(cond, a, b)),
            _ => return Err(mismatch("select")),
        };
        let valid = common(&c.valid, &common(&x.valid, &y.valid));
        Ok(Tile { ty: x.ty.clone(), valid, data })
    }

    /// `a * b + c`, rounded once, and then to 16 bits where the elements have those.
    pub(crate) fn fma(&self, operands: [Value; 3]) -> Result<Tile, InterpError> {
        let [x, y, z] = operands.map(|v| self.tile(v));
        let (x, y, z) = (x?, y?, z?);
        if x.ty != y.ty || x.ty != z.ty {
            return Err(mismatch("fma"));
        }
        let data = match (&x.data, &y.data, &z.data) {
            (Data::F32(a), Data::F32(b), Data::F32(c)) => Data::F32(zip_three(a, b, c, f32::mul_add)),
            (Data::F64(a), Data::F64(b), Data::F64(c)) => Data::F64(zip_three(a, b, c, f64::mul_add)),
            (Data::Ring(a), Data::Ring(b), Data::Ring(c)) => {
                Data::Ring(zip_three(a, b, c, |a, b, c| Word::add(Word::mul(a, b), c)))
            }
            _ => return Err(mismatch("fma")),
        };
        let valid = common(&x.valid, &common(&y.valid, &z.valid));
        Ok(rounded(Tile { ty: x.ty.clone(), valid, data }))
    }

    pub(crate) fn cast(&self, dtype: DType, x: Value) -> Result<Tile, InterpError> {
        let x = self.tile(x)?;
        let number = |code: i32| x.ty.dtype.fp8().map_or_else(|| f64::from(code), |fp8| fp8.decode(code as u8));
        let data = match (&x.data, held(dtype, self.launch.mode)) {
            (Data::I32(v), DType::I32) if x.ty.dtype == dtype => Data::I32(v.clone()),
            (Data::Ring(v), _) if dtype.is_float() => Data::Ring(map(v, |x| x.cast(dtype))),
            (Data::F32(v), DType::F32) => {
                let mut v = v.clone();
                round_all(dtype, &mut v);
                Data::F32(v)
            }
            (Data::F32(v), DType::F64) => Data::F64(map(v, f64::from)),
            (Data::F32(v), DType::I32) => Data::I32(map(v, |x| whole(dtype, x.into()))),
            (Data::F32(v), DType::I64) => Data::I64(map(v, |x| x as i64)),
            (Data::F64(v), DType::F32) => Data::F32(map(v, |x| to_narrow(dtype, x))),
            (Data::F64(v), DType::F64) => Data::F64(v.clone()),
            (Data::F64(v), DType::I32) => Data::I32(map(v, |x| whole(dtype, x))),
            (Data::F64(v), DType::I64) => Data::I64(map(v, |x| x as i64)),
            (Data::I32(v), DType::F32) => Data::F32(map(v, |x| to_narrow(dtype, number(x)))),
            (Data::I32(v), DType::F64) => Data::F64(map(v, number)),
            (Data::I32(v), DType::I32) if dtype.is_fp8() => Data::I32(map(v, |x| whole(dtype, number(x)))),
            (Data::I32(v), DType::I32) => Data::I32(map(v, |x| dtype.low_bits(x.into()) as i32)),
            (Data::I32(v), DType::I64) => Data::I64(map(v, i64::from)),
            (Data::I64(v), DType::F32) if dtype == DType::F32 => Data::F32(map(v, |x| x as f32)),
            (Data::I64(v), DType::F32) => Data::F32(map(v, |x| to_narrow(dtype, odd_f64(x)))),
            (Data::I64(v), DType::F64) => Data::F64(map(v, |x| x as f64)),
            (Data::I64(v), DType::I32) => Data::I32(map(v, |x| dtype.low_bits(x) as i32)),
            (Data::I64(v), DType::I64) => Data::I64(v.clone()),
            (Data::Bool(v), DType::F32) => Data::F32(map(v, |b| f32::from(u8::from(b)))),
            (Data::Bool(v), DType::F64) => Data::F64(map(v, |b| f64::from(u8::from(b)))),
            (Data::Bool(v), DType::I32) => Data::I32(map(v, i32::from)),
            (Data::Bool(v), DType::I64) => Data::I64(map(v, i64::from)),
            (Data::Bool(v), DType::Bool) => Data::Bool(v.clone()),
            _ => return Err(mismatch("cast")),
        };
        Ok(Tile { ty: TileType::new(dtype, x.ty.shape.clone()), valid: x.valid.clone(), data })
    }
}

/// An i64 as an f64, such that a later rounding to 16 bits gives the same as rounding the integer once. An integer that an f64
/// cannot hold is rounded to odd.
fn odd_f64(x: i64) -> f64 {
    let inexact = x.unsigned_abs() >> 53 != 0 && x & 0x3ff != 0;
    if inexact { ((x & !0x3ff) | 0x400) as f64 } else { x as f64 }
}

/// The tile with f16 and bf16 results rounded. In f64 mode there is no f32 data to round.
fn rounded(mut tile: Tile) -> Tile {
    if let Data::F32(v) = &mut tile.data {
        round_all(tile.ty.dtype, v);
    }
    tile
}

fn map<T: Copy, U>(x: &[T], f: impl Fn(T) -> U) -> Vec<U> {
    x.iter().map(|&x| f(x)).collect()
}

fn zip<T: Copy, U>(x: &[T], y: &[T], f: impl Fn(T, T) -> U) -> Vec<U> {
    x.iter().zip(y).map(|(&x, &y)| f(x, y)).collect()
}

fn zip_three<T: Copy>(x: &[T], y: &[T], z: &[T], f: impl Fn(T, T, T) -> T) -> Vec<T> {
    x.iter().zip(y).zip(z).map(|((&x, &y), &z)| f(x, y, z)).collect()
}

fn choose<T: Copy>(cond: &[bool], x: &[T], y: &[T]) -> Vec<T> {
    cond.iter().zip(x.iter().zip(y)).map(|(&c, (&x, &y))| if c { x } else { y }).collect()
}

fn comparison<T: Copy + PartialOrd>(p: Predicate, x: &[T], y: &[T]) -> Vec<bool> {
    match p {
        Predicate::Eq => zip(x, y, |x, y| x == y),
        Predicate::Ne => zip(x, y, |x, y| x != y),
        Predicate::Lt => zip(x, y, |x, y| x < y),
        Predicate::Le => zip(x, y, |x, y| x <= y),
        Predicate::Gt => zip(x, y, |x, y| x > y),
        Predicate::Ge => zip(x, y, |x, y| x >= y),
    }
}

fn arithmetic<T>(op: BinaryOp, x: &[T], y: &[T]) -> Result<Vec<T>, InterpError>
where
    T: Copy
        + std::ops::Add<Output = T>
        + std::ops::Sub<Output = T>
        + std::ops::Mul<Output = T>
        + std::ops::Div<Output = T>,
{
    Ok(match op {
        BinaryOp::Add => zip(x, y, |x, y| x + y),
        BinaryOp::Sub => zip(x, y, |x, y| x - y),
        BinaryOp::Mul => zip(x, y, |x, y| x * y),
        BinaryOp::Div => zip(x, y, |x, y| x / y),
        _ => return Err(mismatch(op.name())),
    })
}

macro_rules! binary_int {
    ($name:ident, $t:ty) => {
        fn $name(op: BinaryOp, x: &[$t], y: &[$t]) -> Result<Vec<$t>, InterpError> {
            Ok(match op {
                BinaryOp::Add => zip(x, y, <$t>::wrapping_add),
                BinaryOp::Sub => zip(x, y, <$t>::wrapping_sub),
                BinaryOp::Mul => zip(x, y, <$t>::wrapping_mul),
                BinaryOp::Div => zip(x, y, |x, y| if y == 0 { 0 } else { x.wrapping_div(y) }),
                BinaryOp::Rem => zip(x, y, |x, y| if y == 0 { 0 } else { x.wrapping_rem(y) }),
                BinaryOp::Min => zip(x, y, Ord::min),
                BinaryOp::Max => zip(x, y, Ord::max),
                BinaryOp::BitAnd => zip(x, y, |x, y| x & y),
                BinaryOp::BitOr => zip(x, y, |x, y| x | y),
                BinaryOp::BitXor => zip(x, y, |x, y| x ^ y),
                BinaryOp::Shl => zip(x, y, |x, y| shift_left(x.into(), y.into()) as $t),
                BinaryOp::Shr => zip(x, y, |x, y| shift_right(x.into(), y.into()) as $t),
                BinaryOp::ShrLogical => zip(x, y, |x, y| shift_right_logical(x.into(), y.into(), <$t>::BITS) as $t),
                BinaryOp::MulHi => zip(x, y, |x, y| multiply_high(x.into(), y.into(), <$t>::BITS) as $t),
                BinaryOp::And | BinaryOp::Or | BinaryOp::Pow | BinaryOp::Atan2 => return Err(mismatch(op.name())),
            })
        }
    };
}
binary_int!(binary_i32, i32);
binary_int!(binary_i64, i64);

macro_rules! unary_float {
    (
        $name:ident,
        $t:ty,
        erf = $erf:expr,
        erfc = $erfc:expr,
        softplus = $softplus:expr,
        silu = $silu:expr,
        rsqrt = $rsqrt:expr,
        sigmoid = $sigmoid:expr,
        gelu = $gelu:expr,
        gelu_slope = $gelu_slope:expr
    ) => {
        fn $name(op: UnaryOp, x: &[$t]) -> Result<Vec<$t>, InterpError> {
            Ok(match op {
                UnaryOp::Neg => map(x, |x| -x),
                UnaryOp::Abs => map(x, <$t>::abs),
                UnaryOp::Exp => map(x, <$t>::exp),
                UnaryOp::Exp2 => map(x, <$t>::exp2),
                UnaryOp::Log => map(x, <$t>::ln),
                UnaryOp::Log2 => map(x, <$t>::log2),
                UnaryOp::Log1p => map(x, <$t>::ln_1p),
                UnaryOp::Expm1 => map(x, <$t>::exp_m1),
                UnaryOp::Tanh => map(x, <$t>::tanh),
                UnaryOp::Tan => map(x, <$t>::tan),
                UnaryOp::Atan => map(x, <$t>::atan),
                UnaryOp::Sinh => map(x, <$t>::sinh),
                UnaryOp::Cosh => map(x, <$t>::cosh),
                UnaryOp::Erf => map(x, $erf),
                UnaryOp::Erfc => map(x, $erfc),
                UnaryOp::Softplus => map(x, $softplus),
                UnaryOp::Silu => map(x, $silu),
                UnaryOp::Sqrt => map(x, <$t>::sqrt),
                UnaryOp::Rsqrt => map(x, $rsqrt),
                UnaryOp::Sin => map(x, <$t>::sin),
                UnaryOp::Cos => map(x, <$t>::cos),
                UnaryOp::Sigmoid => map(x, $sigmoid),
                UnaryOp::Gelu => map(x, $gelu),
                UnaryOp::GeluSlope => map(x, $gelu_slope),
                UnaryOp::Floor => map(x, <$t>::floor),
                UnaryOp::Ceil => map(x, <$t>::ceil),
                UnaryOp::Trunc => map(x, <$t>::trunc),
                UnaryOp::Round => map(x, <$t>::round_ties_even),
                UnaryOp::Popcount | UnaryOp::Not => return Err(mismatch(op.name())),
            })
        }
    };
}
unary_float!(
    unary_f32,
    f32,
    erf = libm::erff,
    erfc = |x| libm::erfc(f64::from(x)) as f32,
    softplus = |x| softplus(f64::from(x)) as f32,
    silu = |x| silu(f64::from(x)) as f32,
    rsqrt = |x| (1.0 / f64::from(x).sqrt()) as f32,
    sigmoid = |x| sigmoid(f64::from(x)) as f32,
    gelu = |x| gelu(f64::from(x)) as f32,
    gelu_slope = |x| gelu_slope(f64::from(x)) as f32
);
unary_float!(
    unary_f64,
    f64,
    erf = libm::erf,
    erfc = libm::erfc,
    softplus = softplus,
    silu = silu,
    rsqrt = |x| 1.0 / x.sqrt(),
    sigmoid = sigmoid,
    gelu = gelu,
    gelu_slope = gelu_slope
);

/// The logistic function without overflow on either side.
fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// `log(1 + exp(x))`, accurate and without overflow on either side.
fn softplus(x: f64) -> f64 {
    let above = if x < 0.0 { 0.0 } else { x };
    above + (-x.abs()).exp().ln_1p()
}

/// `x` times the logistic function.
fn silu(x: f64) -> f64 {
    // Infinity times 0 has no value.
    if x == f64::NEG_INFINITY { -0.0 } else { x * sigmoid(x) }
}

/// `x/2 (1 + erf(x / sqrt 2))`, by erfc, which does not cancel on the negative side.
fn gelu(x: f64) -> f64 {
    // Infinity times 0 has no value.
    if x == f64::NEG_INFINITY { -0.0 } else { 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2) }
}

/// `Phi(x) + x phi(x)`, by erfc.
fn gelu_slope(x: f64) -> f64 {
    use std::f64::consts::{FRAC_1_SQRT_2, PI};
    let density = (-0.5 * x * x).exp() / (2.0 * PI).sqrt();
    // Infinity times 0 has no value.
    let moved = if density == 0.0 { 0.0 } else { x * density };
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2) + moved
}

#[cfg(test)]
mod tests {
    use super::{UnaryOp, unary_f32, unary_f64};

    /// Values from 50-digit arithmetic.
    const GELU: [(f64, f64); 8] = [
        (-20.25, -3.596804726522879e-90),
        (-14.0, -1.091095154686992e-43),
        (-5.5, -1.0444259356238246e-7),
        (-1.25, -0.13206221708356907),
        (-0.001, -0.000499601057786089),
        (0.75, 0.5800294857173488),
        (3.0, 2.99595030590511),
        (9.0, 9.0),
    ];

    #[test]
    fn gelu_has_its_limits_and_its_digits_far_below_0() {
        let same = |got: Vec<f64>, want: &[f64]| {
            let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
            assert_eq!(bits(&got), bits(want));
        };
        let ends = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1e30, -1e30];
        let want = [0.0, -0.0, f64::INFINITY, -0.0, 1e30, -0.0];
        same(unary_f64(UnaryOp::Gelu, &ends).unwrap(), &want);
        let narrow = unary_f32(UnaryOp::Gelu, &ends.map(|x| x as f32)).unwrap();
        same(narrow.into_iter().map(f64::from).collect(), &want.map(|x| f64::from(x as f32)));
        assert!(unary_f64(UnaryOp::Gelu, &[f64::NAN]).unwrap()[0].is_nan());
        for (x, want) in GELU {
            let got = unary_f64(UnaryOp::Gelu, &[x]).unwrap()[0];
            assert!((got - want).abs() <= 1e-13 * want.abs(), "gelu({x}) = {got:e}, not {want:e}");
        }
    }

    #[test]
    fn whole_numbers_below_and_nearest() {
        let x = [-2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, 8_388_607.5, f32::INFINITY];
        let floor = [-3.0, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 8_388_607.0, f32::INFINITY];
        let ceil = [-2.0, -1.0, -0.0, -0.0, 1.0, 2.0, 3.0, 8_388_608.0, f32::INFINITY];
        let trunc = [-2.0, -1.0, -0.0, -0.0, 0.0, 1.0, 2.0, 8_388_607.0, f32::INFINITY];
        let round = [-2.0, -2.0, -0.0, -0.0, 0.0, 2.0, 2.0, 8_388_608.0, f32::INFINITY];
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        let all = [(UnaryOp::Floor, floor), (UnaryOp::Ceil, ceil), (UnaryOp::Trunc, trunc), (UnaryOp::Round, round)];
        for (op, want) in all {
            assert_eq!(bits(&unary_f32(op, &x).unwrap()), bits(&want), "{op:?}");
            let wide = unary_f64(op, &x.map(f64::from)).unwrap();
            assert_eq!(wide, want.map(f64::from), "{op:?}");
            assert!(unary_f32(op, &[f32::NAN]).unwrap()[0].is_nan(), "{op:?}");
        }
    }
}
