//! Reproducible data, and the number formats to which it is rounded.

use half::{bf16, f16};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A format of numbers in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    I8,
    I32,
    E4m3,
    F16,
    Bf16,
    F32,
    F64,
}

/// A number as an f32 that rounds to 16 bits like the number itself, because its last bit is sticky. `half` rounds f64 twice.
pub(crate) fn to_odd(x: f64) -> f32 {
    let y = x as f32;
    let wide = f64::from(y);
    if wide == x || !y.is_finite() || y.to_bits() & 1 == 1 {
        return y;
    }
    f32::from_bits(if wide.abs() < x.abs() { y.to_bits() + 1 } else { y.to_bits() - 1 })
}

impl Format {
    /// Bytes of one number.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Format::I8 | Format::E4m3 => 1,
            Format::F16 | Format::Bf16 => 2,
            Format::I32 | Format::F32 => 4,
            Format::F64 => 8,
        }
    }

    /// The distance from 1 to the next number.
    pub(crate) fn epsilon(self) -> f64 {
        let bits = match self {
            Format::I8 | Format::I32 => return 0.0,
            Format::E4m3 => 3,
            Format::Bf16 => 7,
            Format::F16 => 10,
            Format::F32 => 23,
            Format::F64 => 52,
        };
        0.5f64.powi(bits)
    }

    fn encode_one(self, x: f64) -> Vec<u8> {
        match self {
            Format::I8 => vec![x.round() as i8 as u8],
            Format::I32 => (x as i32).to_le_bytes().to_vec(),
            Format::E4m3 => vec![encode_e4m3(x)],
            Format::F16 => f16::from_f32(to_odd(x)).to_le_bytes().to_vec(),
            Format::Bf16 => bf16::from_f32(to_odd(x)).to_le_bytes().to_vec(),
            Format::F32 => (x as f32).to_le_bytes().to_vec(),
            Format::F64 => x.to_le_bytes().to_vec(),
        }
    }

    fn decode_one(self, b: &[u8]) -> f64 {
        match self {
            Format::I8 => (b[0] as i8).into(),
            Format::I32 => i32::from_le_bytes(b.try_into().unwrap()).into(),
            Format::E4m3 => decode_e4m3(b[0]),
            Format::F16 => f16::from_le_bytes(b.try_into().unwrap()).to_f64(),
            Format::Bf16 => bf16::from_le_bytes(b.try_into().unwrap()).to_f64(),
            Format::F32 => f32::from_le_bytes(b.try_into().unwrap()).into(),
            Format::F64 => f64::from_le_bytes(b.try_into().unwrap()),
        }
    }

    /// Numbers as bytes.
    pub(crate) fn encode(self, values: &[f64]) -> Vec<u8> {
        values.iter().flat_map(|&x| self.encode_one(x)).collect()
    }

    /// Bytes as numbers.
    pub(crate) fn decode(self, bytes: &[u8]) -> Vec<f64> {
        bytes.chunks_exact(self.bytes()).map(|b| self.decode_one(b)).collect()
    }
}

fn decode_e4m3(b: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(b >> 3 & 15), f64::from(b & 7));
    let size = if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
    if b & 0x80 == 0 { size } else { -size }
}

/// The nearest number of `e4m3`, ties to even mantissas, large numbers to the largest.
fn encode_e4m3(x: f64) -> u8 {
    let distance = |b: &u8| (decode_e4m3(*b) - x.abs()).abs();
    let nearest = (0..=0x7e).min_by(|a, b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
    nearest.unwrap() | u8::from(x.is_sign_negative()) << 7
}

/// A source of data.
pub(crate) struct Data(StdRng);

impl Data {
    /// Each set-up has its own seed.
    pub(crate) fn new(seed: u64) -> Data {
        Data(StdRng::seed_from_u64(seed))
    }

    /// Numbers around zero that the format holds exactly.
    pub(crate) fn reals(&mut self, n: usize, format: Format) -> Vec<f64> {
        let values: Vec<f64> = (0..n).map(|_| self.0.random_range(-2.0..2.0)).collect();
        format.decode(&format.encode(&values))
    }

    /// Integers of 4 bits and a sign, as numbers.
    pub(crate) fn integers(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.0.random_range(-16i32..=16).into()).collect()
    }

    /// Numbers below a bound.
    pub(crate) fn below(&mut self, n: usize, bound: u64) -> Vec<u64> {
        (0..n).map(|_| self.0.random_range(0..bound)).collect()
    }

    /// Any 32 bits.
    pub(crate) fn words(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.0.random()).collect()
    }
}

/// Little-endian bytes of 32-bit integers.
pub(crate) fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Little-endian bytes of 64-bit integers.
pub(crate) fn longs(values: impl IntoIterator<Item = u64>) -> Vec<u8> {
    values.into_iter().flat_map(u64::to_le_bytes).collect()
}
