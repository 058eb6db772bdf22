//! The arguments of a recipe: the positions and the values of each tensor's elements.

use super::recipe::{Fill, ParamRecipe, Recipe, Rng, View};
use atlas_dsl::DType;
use atlas_dsl::ir::Stride;
use atlas_dsl::rounding::{to_bf16, to_f16};
use atlas_dsl::specialization::{DimFact, Specialization, largest_class};
use half::{bf16, f16};

/// Elements after the last one of a tensor that are part of its buffer.
const BEHIND: u64 = 3;
/// The bytes between elements. As floats they are NaNs, which spoil every result that uses them.
const PADDING: u8 = 0xff;

/// The position of a tensor in its buffer, in elements.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) dtype: DType,
    pub(super) dims: Vec<u64>,
    pub(super) strides: Vec<i64>,
    pub(super) offset: u64,
}

impl Placed {
    /// Places a tensor according to its view.
    pub(super) fn new(recipe: &Recipe, dtype: DType, dims: &[usize], view: View) -> Placed {
        let dims: Vec<u64> = dims.iter().map(|&d| recipe.size(d)).collect();
        let mut strides = vec![0; dims.len()];
        let inner_first: Vec<usize> =
            if view.reversed { (0..dims.len()).collect() } else { (0..dims.len()).rev().collect() };
        let mut step = if view.spread { 2 } else { 1 };
        for (i, &axis) in inner_first.iter().enumerate() {
            strides[axis] = step as i64;
            step = step * dims[axis].max(1) + if i == 0 { u64::from(view.pad) } else { 0 };
        }
        if let (true, Some(first)) = (view.expanded, strides.first_mut()) {
            *first = 0;
        }
        Placed { dtype, dims, strides, offset: u64::from(view.offset) }.with_contiguous_ones()
    }

    /// Gives axes of at most one element the stride of a contiguous tensor, as the runtime does.
    fn with_contiguous_ones(mut self) -> Placed {
        let contiguous = self.contiguous();
        for (axis, &contiguous) in contiguous.iter().enumerate() {
            if self.dims[axis] <= 1 {
                self.strides[axis] = contiguous;
            }
        }
        self
    }

    fn contiguous(&self) -> Vec<i64> {
        (0..self.dims.len()).map(|axis| self.dims[axis + 1..].iter().map(|&n| n as i64).product()).collect()
    }

    /// The facts of a specialization about the strides.
    pub(super) fn facts(&self, recipe: &Recipe, dims: &[usize]) -> Vec<Stride> {
        let fact = |&d: &usize| DimFact::of(recipe.dims[d].whole, recipe.size(d));
        let expected = Specialization::contiguous_strides(&dims.iter().map(fact).collect::<Vec<_>>());
        let of_axis = |axis: usize| match Stride::from(expected[axis]) {
            expected if self.dims[axis] <= 1 => expected,
            expected @ Stride::Const(c) if c == self.strides[axis] => expected,
            _ if self.strides[axis] == 1 => Stride::Const(1),
            _ => Stride::Dynamic { divisor: largest_class(self.strides[axis].unsigned_abs()) },
        };
        (0..dims.len()).map(of_axis).collect()
    }

    /// The known alignment of the first element in bytes.
    pub(super) fn align(&self) -> u32 {
        let bytes = self.dtype.bytes();
        (1 << (self.offset * u64::from(bytes)).trailing_zeros().min(4)).max(bytes)
    }

    /// The size of the buffer in elements.
    fn held(&self) -> u64 {
        let reach: u64 = self.dims.iter().zip(&self.strides).map(|(&n, &s)| n.saturating_sub(1) * s as u64).sum();
        self.offset + reach + 1 + BEHIND
    }

    /// The offsets of the elements in bytes, in row-major order.
    pub(super) fn offsets(&self) -> Vec<usize> {
        let count: u64 = self.dims.iter().product();
        let offset = |mut i: u64| {
            let mut at = self.offset;
            for (&n, &s) in self.dims.iter().zip(&self.strides).rev() {
                at += i % n * s as u64;
                i /= n;
            }
            at as usize * self.dtype.bytes() as usize
        };
        (0..count).map(offset).collect()
    }

    /// The buffer with its elements filled in.
    pub(super) fn filled(&self, fill: Fill, seed: u64) -> Vec<u8> {
        let mut bytes = vec![PADDING; self.held() as usize * self.dtype.bytes() as usize];
        let mut rng = Rng::new(seed);
        for at in self.offsets() {
            write(self.dtype, &mut bytes[at..], value(fill, &mut rng));
        }
        bytes
    }

    /// The elements of a buffer.
    pub(super) fn read(&self, bytes: &[u8]) -> Vec<f64> {
        self.offsets().into_iter().map(|at| read(self.dtype, &bytes[at..])).collect()
    }

    /// True if two buffers have the same bytes between the elements.
    pub(super) fn same_padding(&self, one: &[u8], other: &[u8]) -> bool {
        let size = self.dtype.bytes() as usize;
        let mut between = vec![true; one.len()];
        self.offsets().into_iter().for_each(|at| between[at..at + size].fill(false));
        between.iter().zip(one.iter().zip(other)).all(|(between, (a, b))| !between || a == b)
    }
}

fn value(fill: Fill, rng: &mut Rng) -> f64 {
    let quarters = |rng: &mut Rng| (rng.below(31) as f64 - 15.0) / 4.0;
    match fill {
        Fill::Ones => 1.0,
        Fill::Quarters => quarters(rng),
        Fill::Uniform => rng.unit() * 4.0 - 2.0,
        Fill::Positive => 0.125 + rng.unit() * 3.0,
        Fill::Large => 1.0 + rng.below(16) as f64 / 4.0,
        Fill::Wild => {
            let wild = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 60000.0, -1e30, 1e-30, -0.0, 0.0];
            if rng.percent(8) { rng.of(&wild) } else { quarters(rng) }
        }
    }
}

/// What numbers are multiplied by as small integers, so that some have the highest bit of 8.
const SMALL: f64 = 40.0;

/// Writes a number as an element.
fn write(dtype: DType, to: &mut [u8], x: f64) {
    match dtype {
        DType::I8 | DType::U8 => to[0] = dtype.saturated(SMALL * x) as u8,
        DType::I16 | DType::U16 => to[..2].copy_from_slice(&(dtype.saturated(SMALL * x) as u16).to_le_bytes()),
        DType::F8E4M3 | DType::F8E5M2 => to[0] = dtype.fp8().map_or(0, |fp8| fp8.encode(x)),
        DType::F16 => to[..2].copy_from_slice(&to_f16(x).to_le_bytes()),
        DType::Bf16 => to[..2].copy_from_slice(&to_bf16(x).to_le_bytes()),
        DType::I32 => to[..4].copy_from_slice(&(x as i32).to_le_bytes()),
        DType::I64 => to[..8].copy_from_slice(&(x as i64).to_le_bytes()),
        DType::F64 => to[..8].copy_from_slice(&x.to_le_bytes()),
        _ => to[..4].copy_from_slice(&(x as f32).to_le_bytes()),
    }
}

/// An element as a number.
fn read(dtype: DType, from: &[u8]) -> f64 {
    let bits = from[..dtype.bytes() as usize].iter().rev().fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
    match dtype {
        DType::F16 => f16::from_bits(bits as u16).to_f64(),
        DType::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        dtype if dtype.is_whole() => dtype.low_bits(bits as i64) as f64,
        DType::F64 => f64::from_bits(bits),
        DType::F8E4M3 | DType::F8E5M2 => dtype.fp8().map_or(f64::NAN, |fp8| fp8.decode(bits as u8)),
        _ => f64::from(f32::from_bits(bits as u32)),
    }
}

/// An argument: a tensor in its buffer, or the bits of a number.
#[derive(Clone, Debug)]
pub(super) enum Argument {
    Tensor { placed: Placed, out: bool, bytes: Vec<u8> },
    Scalar { dtype: DType, value: f64, bits: u64 },
}

/// The arguments of a recipe.
pub(super) fn arguments(recipe: &Recipe) -> Vec<Argument> {
    let argument = |(i, p): (usize, &ParamRecipe)| match p {
        ParamRecipe::Tensor { dtype, dims, out, view, fill } => {
            let placed = Placed::new(recipe, *dtype, dims, *view);
            let bytes = placed.filled(*fill, recipe.seed.wrapping_add(i as u64));
            Argument::Tensor { placed, out: *out, bytes }
        }
        ParamRecipe::Scalar { dtype, value } => {
            let mut bytes = [0; 8];
            write(*dtype, &mut bytes, *value);
            Argument::Scalar { dtype: *dtype, value: *value, bits: u64::from_le_bytes(bytes) }
        }
    };
    recipe.params.iter().enumerate().map(argument).collect()
}

/// The same arguments with random bits for floats, which only have a meaning in the ring.
pub(super) fn ring_arguments(recipe: &Recipe) -> Vec<Argument> {
    let mut all = arguments(recipe);
    let mut rng = Rng::new(recipe.seed ^ 0x5eed);
    for argument in &mut all {
        if let Argument::Tensor { placed, bytes, .. } = argument
            && placed.dtype.is_float()
        {
            for at in placed.offsets() {
                let size = placed.dtype.bytes() as usize;
                bytes[at..at + size].copy_from_slice(&rng.next().to_le_bytes()[..size]);
            }
        }
    }
    all
}
