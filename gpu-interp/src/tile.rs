//! Tiles as dense arrays of elements by logical coordinates, and the two arithmetics in which floats are computed.

use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Predicate, UnaryOp, multiply_high, shift_left, shift_right, shift_right_logical};
use atlas_dsl::rounding::{to_bf16, to_f16};

/// How floats are computed, and what the bits of an element mean. Integers and truth values are those of an i64 in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Elements of the interpreter's finite ring: two residues modulo 2^16. The low one is 0 for 16-bit floats. The bits are
    /// those of an f32; for a 16-bit float they are in the upper half.
    Ring,
    /// f64 without any rounding, for kernels that have no meaning in the ring. The bits are those of an f64.
    Real,
}

/// A tile. An element holds the bits of an i64, of a residue pair or of an f64, depending on its type and the arithmetic.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tile {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u32>,
    /// Row-major.
    pub(crate) data: Vec<u64>,
}

/// An operation on elements.
type One = Box<dyn Fn(u64) -> u64>;
type Two = Box<dyn Fn(u64, u64) -> u64>;

/// The number of elements of a tile with these extents.
pub(crate) fn count(shape: &[u32]) -> usize {
    shape.iter().map(|&e| e as usize).product()
}

/// The strides of a row-major tile: the elements between neighbours along each axis.
pub(crate) fn steps(shape: &[u32]) -> Vec<usize> {
    (0..shape.len()).map(|axis| count(&shape[axis + 1..])).collect()
}

impl Tile {
    /// An i32 scalar.
    pub(crate) fn int(x: i64) -> Tile {
        Tile { dtype: DType::I32, shape: Vec::new(), data: vec![i64::from(x as i32) as u64] }
    }

    /// A tile computed element by element from a tile of the same extents.
    pub(crate) fn map(&self, dtype: DType, f: impl Fn(u64) -> u64) -> Tile {
        Tile { dtype, shape: self.shape.clone(), data: self.data.iter().map(|&x| f(x)).collect() }
    }

    /// The same of two tiles.
    pub(crate) fn zip(&self, other: &Tile, dtype: DType, f: impl Fn(u64, u64) -> u64) -> Result<Tile, String> {
        if (&self.shape, self.dtype) != (&other.shape, other.dtype) {
            let (a, b) = ((self.dtype, &self.shape), (other.dtype, &other.shape));
            return Err(format!("operands {a:?} and {b:?} of an element-wise operation"));
        }
        let data = self.data.iter().zip(&other.data).map(|(&a, &b)| f(a, b)).collect();
        Ok(Tile { dtype, shape: self.shape.clone(), data })
    }

    /// A tile of elements of this one, found by coordinates.
    pub(crate) fn gather(&self, shape: &[u32], from: impl Fn(&[u32]) -> usize) -> Tile {
        self.gather_or(0, shape, |at| Some(from(at)))
    }

    /// The same, with another element where there is none.
    pub(crate) fn gather_or(&self, other: u64, shape: &[u32], from: impl Fn(&[u32]) -> Option<usize>) -> Tile {
        let mut data = Vec::with_capacity(count(shape));
        let mut at = vec![0; shape.len()];
        for _ in 0..count(shape) {
            data.push(from(&at).map_or(other, |i| self.data[i]));
            next(&mut at, shape);
        }
        Tile { dtype: self.dtype, shape: shape.to_vec(), data }
    }
}

/// The next coordinates, row-major.
pub(crate) fn next(at: &mut [u32], shape: &[u32]) {
    for (at, &extent) in at.iter_mut().zip(shape).rev() {
        *at += 1;
        if *at < extent {
            return;
        }
        *at = 0;
    }
}

/// Applies a function to each residue.
fn each(a: u64, b: u64, f: fn(u16, u16) -> u16) -> u64 {
    let part = |shift: u32| u64::from(f((a >> shift) as u16, (b >> shift) as u16)) << shift;
    part(16) | part(0)
}

fn real(f: impl Fn(f64, f64) -> f64 + 'static) -> Two {
    Box::new(move |a, b| f(f64::from_bits(a), f64::from_bits(b)).to_bits())
}

fn int(dtype: DType, f: impl Fn(i64, i64) -> i64 + 'static) -> Two {
    Box::new(move |a, b| wrapped(dtype, f(a as i64, b as i64)))
}

/// An integer, wrapped to its type.
fn wrapped(dtype: DType, x: i64) -> u64 {
    dtype.low_bits(x) as u64
}

/// `x/2 (1 + erf(x / sqrt 2))`, with its limit where infinity would be multiplied by 0.
fn gelu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2) }
}

/// The derivative of [`gelu`], with its limits where infinity would be multiplied by 0.
fn gelu_slope(x: f64) -> f64 {
    use std::f64::consts::{FRAC_1_SQRT_2, PI};
    let density = (-0.5 * x * x).exp() / (2.0 * PI).sqrt();
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2) + if density == 0.0 { 0.0 } else { x * density }
}

/// The larger by `above`; NaN if either operand is NaN.
fn extreme(a: f64, b: f64, above: fn(f64, f64) -> bool, of_zeros: fn(f64) -> bool) -> f64 {
    if above(a, b) || a.is_nan() || (a == b && of_zeros(a)) { a } else { b }
}

impl Arithmetic {
    /// A number in a type.
    pub(crate) fn constant(self, dtype: DType, x: f64) -> u64 {
        match (dtype, self) {
            (DType::Bool, _) => u64::from(x != 0.0),
            (dtype, _) if dtype.is_whole() => dtype.saturated(x) as u64,
            (DType::F8E4M3 | DType::F8E5M2, _) => dtype.fp8().map_or(0, |fp8| fp8.encode(x).into()),
            (_, Arithmetic::Real) => x.to_bits(),
            (DType::F16, _) => u64::from(to_f16(x).to_bits()) << 16,
            (DType::Bf16, _) => u64::from(to_bf16(x).to_bits()) << 16,
            _ => u64::from((x as f32).to_bits()),
        }
    }

    /// An element-wise operation of one operand.
    pub(crate) fn unary(self, op: UnaryOp, dtype: DType) -> Result<One, String> {
        Ok(match (op, self) {
            (UnaryOp::Not, _) if dtype == DType::Bool => Box::new(|x| x ^ 1),
            (UnaryOp::Not, _) => Box::new(|x| !x),
            (UnaryOp::Popcount, _) if dtype == DType::I32 => Box::new(|x| u64::from((x as u32).count_ones())),
            (UnaryOp::Popcount, _) => Box::new(|x| u64::from(x.count_ones())),
            (UnaryOp::Neg, _) if dtype.is_int() => Box::new(move |x| wrapped(dtype, (x as i64).wrapping_neg())),
            (UnaryOp::Abs, _) if dtype.is_int() => Box::new(move |x| wrapped(dtype, (x as i64).wrapping_abs())),
            (UnaryOp::Neg, Arithmetic::Ring) => Box::new(|x| each(0, x, u16::wrapping_sub)),
            // The vocabulary has no number for these.
            (UnaryOp::Erf, Arithmetic::Real) => Box::new(|x| libm::erf(f64::from_bits(x)).to_bits()),
            (UnaryOp::Erfc, Arithmetic::Real) => Box::new(|x| libm::erfc(f64::from_bits(x)).to_bits()),
            (UnaryOp::Gelu, Arithmetic::Real) => Box::new(|x| gelu(f64::from_bits(x)).to_bits()),
            (UnaryOp::GeluSlope, Arithmetic::Real) => Box::new(|x| gelu_slope(f64::from_bits(x)).to_bits()),
            (_, Arithmetic::Real) => {
                let f = op.row().of_number.ok_or_else(|| format!("`{}` of a number is not known", op.name()))?;
                Box::new(move |x| f(f64::from_bits(x)).to_bits())
            }
            _ => return Err(format!("`{}` of {dtype} has no meaning in the ring", op.name())),
        })
    }

    /// An element-wise operation of two operands.
    pub(crate) fn binary(self, op: BinaryOp, dtype: DType) -> Result<Two, String> {
        let below = |a: f64, b: f64| a < b;
        let above = |a: f64, b: f64| a > b;
        Ok(match (op, self) {
            (BinaryOp::And | BinaryOp::BitAnd, _) => Box::new(|a, b| a & b),
            (BinaryOp::Or | BinaryOp::BitOr, _) => Box::new(|a, b| a | b),
            (BinaryOp::BitXor, _) => Box::new(|a, b| a ^ b),
            (BinaryOp::Shl, _) => int(dtype, shift_left),
            (BinaryOp::Shr, _) => int(dtype, shift_right),
            (BinaryOp::ShrLogical, _) => int(dtype, move |x, by| shift_right_logical(x, by, 8 * dtype.bytes())),
            (BinaryOp::MulHi, _) => int(dtype, move |x, y| multiply_high(x, y, 8 * dtype.bytes())),
            (BinaryOp::Add, _) if dtype.is_int() => int(dtype, i64::wrapping_add),
            (BinaryOp::Sub, _) if dtype.is_int() => int(dtype, i64::wrapping_sub),
            (BinaryOp::Mul, _) if dtype.is_int() => int(dtype, i64::wrapping_mul),
            (BinaryOp::Min, _) if dtype.is_int() => int(dtype, Ord::min),
            (BinaryOp::Max, _) if dtype.is_int() => int(dtype, Ord::max),
            (BinaryOp::Div, _) if dtype.is_int() => int(dtype, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
            (BinaryOp::Rem, _) if dtype.is_int() => int(dtype, |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
            (BinaryOp::Add, Arithmetic::Ring) => Box::new(|a, b| each(a, b, u16::wrapping_add)),
            (BinaryOp::Sub, Arithmetic::Ring) => Box::new(|a, b| each(a, b, u16::wrapping_sub)),
            (BinaryOp::Mul, Arithmetic::Ring) => Box::new(|a, b| each(a, b, u16::wrapping_mul)),
            (BinaryOp::Add, Arithmetic::Real) => real(|a, b| a + b),
            (BinaryOp::Sub, Arithmetic::Real) => real(|a, b| a - b),
            (BinaryOp::Mul, Arithmetic::Real) => real(|a, b| a * b),
            (BinaryOp::Div, Arithmetic::Real) => real(|a, b| a / b),
            (BinaryOp::Min, Arithmetic::Real) => real(move |a, b| extreme(a, b, below, f64::is_sign_negative)),
            (BinaryOp::Max, Arithmetic::Real) => real(move |a, b| extreme(a, b, above, f64::is_sign_positive)),
            (BinaryOp::Pow, Arithmetic::Real) => real(f64::powf),
            (BinaryOp::Atan2, Arithmetic::Real) => real(f64::atan2),
            _ => return Err(format!("`{}` of {dtype} has no meaning in this arithmetic", op.name())),
        })
    }

    /// `x * y + z`, rounded once.
    pub(crate) fn fma(self, x: u64, y: u64, z: u64) -> Result<u64, String> {
        match self {
            Arithmetic::Real => Ok(f64::from_bits(x).mul_add(f64::from_bits(y), f64::from_bits(z)).to_bits()),
            Arithmetic::Ring => Ok(each(each(x, y, u16::wrapping_mul), z, u16::wrapping_add)),
        }
    }

    /// A comparison of elements of a type.
    pub(crate) fn compare(self, p: Predicate, dtype: DType) -> Result<Two, String> {
        fn holds<T: PartialOrd>(p: Predicate, a: T, b: T) -> u64 {
            u64::from(match p {
                Predicate::Eq => a == b,
                Predicate::Ne => a != b,
                Predicate::Lt => a < b,
                Predicate::Le => a <= b,
                Predicate::Gt => a > b,
                Predicate::Ge => a >= b,
            })
        }
        Ok(match self {
            _ if !dtype.is_float() => Box::new(move |a, b| holds(p, a as i64, b as i64)),
            Arithmetic::Real => Box::new(move |a, b| holds(p, f64::from_bits(a), f64::from_bits(b))),
            Arithmetic::Ring => return Err(format!("`{}` of {dtype} has no meaning in the ring", p.name())),
        })
    }

    /// A change of type.
    pub(crate) fn cast(self, from: DType, to: DType) -> Result<One, String> {
        if from == to {
            return Ok(Box::new(|x| x));
        }
        match (from.fp8(), to.fp8(), self) {
            (Some(from), Some(to), _) => return Ok(Box::new(move |x| to.encode(from.decode(x as u8)).into())),
            (Some(from), None, Arithmetic::Real) => return Ok(Box::new(move |x| from.decode(x as u8).to_bits())),
            (None, Some(to), Arithmetic::Real) => return Ok(Box::new(move |x| to.encode(f64::from_bits(x)).into())),
            (None, None, _) => {}
            _ => return Err(format!("a cast from {from} to {to} has no meaning in the ring")),
        }
        Ok(match (from.is_float(), to.is_float(), self) {
            (true, true, Arithmetic::Ring) if to == DType::F32 => Box::new(|x| x),
            (true, true, Arithmetic::Ring) => Box::new(|x| x & 0xffff_0000),
            (true, true, Arithmetic::Real) => Box::new(|x| x),
            (false, false, _) => Box::new(move |x| wrapped(to, x as i64)),
            (true, false, Arithmetic::Real) => Box::new(move |x| to.saturated(f64::from_bits(x)) as u64),
            (false, true, Arithmetic::Real) => Box::new(|x| (x as i64 as f64).to_bits()),
            _ => return Err(format!("a cast from {from} to {to} has no meaning in the ring")),
        })
    }

    /// `acc + a · b`, with operands `[m, k]` and `[k, n]`.
    pub(crate) fn multiply(self, a: &[u64], b: &[u64], acc: &mut [u64], (m, n, k): (usize, usize, usize)) {
        for i in 0..m {
            let sums = &mut acc[i * n..][..n];
            match self {
                Arithmetic::Real => {
                    let mut row: Vec<f64> = sums.iter().map(|&x| f64::from_bits(x)).collect();
                    for l in 0..k {
                        let x = f64::from_bits(a[i * k + l]);
                        let from = &b[l * n..][..n];
                        for j in 0..n {
                            row[j] += x * f64::from_bits(from[j]);
                        }
                    }
                    sums.iter_mut().zip(row).for_each(|(sum, x)| *sum = x.to_bits());
                }
                Arithmetic::Ring => {
                    // Products are below 2^32, so that no sum of them overflows; only residues are kept of it.
                    let (mut high, mut low) = (vec![0u64; n], vec![0u64; n]);
                    for l in 0..k {
                        let (x, y) = (a[i * k + l] >> 16, a[i * k + l] & 0xffff);
                        let from = &b[l * n..][..n];
                        for j in 0..n {
                            high[j] += x * (from[j] >> 16);
                        }
                        // Of 16-bit floats the low residues are 0.
                        for j in 0..if y == 0 { 0 } else { n } {
                            low[j] += y * (from[j] & 0xffff);
                        }
                    }
                    for j in 0..n {
                        let product = (high[j] & 0xffff) << 16 | low[j] & 0xffff;
                        sums[j] = each(sums[j], product, u16::wrapping_add);
                    }
                }
            }
        }
    }
}
