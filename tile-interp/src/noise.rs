//! Native arithmetic in which each inexact operation is disturbed by about as much as correct devices may differ.
//!
//! A device adds in another order, and its functions are off by some ulp. After either, a rounding to 16 bits may fall on the
//! other side. Runs with different seeds and signs show how far the results of a kernel move. A value that is about to be
//! truncated or compared is moved to one side as a whole. So one of two runs with opposite signs falls on the other side of a
//! step.

use crate::error::InterpError;
use crate::eval::Program;
use crate::rounding::round_all;
use crate::tile::{Data, Tile};
use atlas_dsl::op::{BinaryOp, Precision, ReduceOp, UnaryOp};
use atlas_dsl::{DType, Kernel, Op, Value};
use std::sync::Arc;

/// Relative errors in f32: of sums and products (relative to the sum of the absolute values of their terms), of functions, and
/// of the approximate functions that are used where 16 bits are written.
const OF_SUMS: f64 = 1.0 / (1 << 23) as f64;
const OF_FUNCTIONS: f64 = 1.0 / (1 << 21) as f64;
const OF_APPROXIMATIONS: f64 = 1.0 / (1 << 13) as f64;
/// The error of a product in tf32, each of whose operands a device may truncate instead of rounding it.
const OF_TF32: f64 = 1.0 / (1 << 9) as f64;
/// The errors of products of split operands, one of which may be split elsewhere: each part has half the bits.
const OF_BF16X3: f64 = 1.0 / (1 << 16) as f64;
const OF_TF32X3: f64 = 1.0 / (1 << 21) as f64;
/// How much more accurate f64 is.
const OF_DOUBLES: f64 = 1.0 / (1 << 29) as f64;
/// An absolute error of values near 0, and of functions near a zero where they are as exact as their arguments.
const LEAST_PUSH: f64 = 1e-6;
const NEAR_ZERO: f64 = 0.125;

/// How inexact operations are disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Noise {
    /// The seed of the errors.
    pub seed: u64,
    /// The errors of the same seed with the opposite sign.
    pub negative: bool,
    /// True if functions may be approximate, as they are where 16 bits are written.
    pub approximate: bool,
}

impl Noise {
    fn sign(self) -> f64 {
        if self.negative { -1.0 } else { 1.0 }
    }

    /// The error of one element, between 1/2 and 1 in size and of either sign: larger than most errors are.
    fn of(self, at: u64, element: usize) -> f64 {
        let chance = scattered(self.seed ^ scattered(at << 32 ^ element as u64));
        let size = 0.5 + (chance >> 12) as f64 / (1_u64 << 53) as f64;
        self.sign() * if chance & 1 == 0 { size } else { -size }
    }
}

/// SplitMix64's finalizer: each bit of the result depends on each bit of the number.
fn scattered(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Which parts of a kernel are inexact: per value, true if an inexact operation contributed to it.
pub(crate) fn inexact(kernel: &Kernel, noise: Noise) -> Vec<bool> {
    let mut off = vec![false; kernel.values.len()];
    loop {
        let before = off.clone();
        for (inst, op) in kernel.insts.iter() {
            let mut any = is_inexact(kernel, op, noise);
            op.visit_operands(|v| any |= off[v.as_u32() as usize]);
            let mut carried = Vec::new();
            if let Op::Loop { body, .. } = op {
                for &inner in &kernel.blocks[*body].insts {
                    if let Op::Yield(values) = &kernel.insts[inner] {
                        any |= values.iter().any(|v| off[v.as_u32() as usize]);
                    }
                }
                carried.extend(kernel.blocks[*body].params.iter().skip(1).copied());
            }
            if any {
                kernel.results[inst].iter().chain(&carried).for_each(|v| off[v.as_u32() as usize] = true);
            }
        }
        if off == before {
            return off;
        }
    }
}

/// True for an operation on which correct devices differ.
fn is_inexact(kernel: &Kernel, op: &Op, noise: Noise) -> bool {
    let is_float = |v: Value| kernel.values[v].ty.dtype.is_float();
    match op {
        Op::Unary(UnaryOp::Sqrt, _) | Op::Binary(BinaryOp::Div, ..) if !noise.approximate => false,
        Op::Unary(op, x) => is_float(*x) && !(op.row().exact && *op != UnaryOp::Sqrt),
        Op::Binary(op, x, _) => is_float(*x) && (*op == BinaryOp::Div || op.is_function()),
        Op::Reduce { op: ReduceOp::Sum, value, .. } | Op::Scan { op: ReduceOp::Sum, value, .. } => is_float(*value),
        Op::Dot { .. } => true,
        _ => false,
    }
}

impl Program<'_> {
    /// The result of an operation, disturbed by as much as it and the roundings after it may be.
    pub(crate) fn disturbed(&mut self, noise: Noise, op: &Op, v: Value, tile: Tile) -> Result<Tile, InterpError> {
        self.disturbances += 1;
        let is_off = |program: &Self, v: Value| program.launch.inexact[v.as_u32() as usize];
        let steps = match op {
            Op::Unary(op, _) => op.row().is_discontinuous,
            Op::Cast(to, _) => to.is_whole() || to.is_fp8(),
            _ => false,
        };
        let mut tile = match op {
            Op::Unary(op, x) if steps && is_off(self, *x) => {
                let pushed = self.pushed(noise, *x)?;
                self.with(vec![pushed], |p| p.unary(*op, *x))?
            }
            Op::Cast(dtype, x) if steps && is_off(self, *x) => {
                let pushed = self.pushed(noise, *x)?;
                self.with(vec![pushed], |p| p.cast(*dtype, *x))?
            }
            Op::Compare(p, x, y) if is_off(self, *x) || is_off(self, *y) => {
                let pushed = self.pushed(noise, if is_off(self, *x) { *x } else { *y })?;
                self.with(vec![pushed], |program| program.compare(*p, *x, *y))?
            }
            _ if !is_inexact(self.launch.kernel, op, noise) => tile,
            Op::Unary(UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan | UnaryOp::Log | UnaryOp::Log2, _) => {
                let size = |y: f64| y.abs().max(NEAR_ZERO);
                self.off_by(noise, tile, |_, y| size(y) * of_functions(noise))
            }
            Op::Unary(..) | Op::Binary(..) => self.off_by(noise, tile, |_, y| y.abs() * of_functions(noise)),
            Op::Reduce { op, value, axes } => {
                let terms = self.absolute(*value)?;
                let sizes = self.with(vec![terms], |p| p.reduce(*op, *value, axes))?;
                let sizes = numbers(&sizes.data);
                self.off_by(noise, tile, |i, _| sizes[i] * OF_SUMS)
            }
            Op::Scan { op, value, axis, reverse } => {
                let terms = self.absolute(*value)?;
                let sizes = self.with(vec![terms], |p| p.scan(*op, *value, *axis, *reverse))?;
                let sizes = numbers(&sizes.data);
                self.off_by(noise, tile, |i, _| sizes[i] * OF_SUMS)
            }
            Op::Dot { a, b, acc, precision } => {
                let operands = [Some(self.original(*a)), Some(self.original(*b)), *acc];
                let any_is_off = operands[..2].iter().flatten().any(|v| is_off(self, *v));
                let relative = match precision {
                    Precision::Tf32 if any_is_off || self.is_wider_than_tf32(*a)? || self.is_wider_than_tf32(*b)? => {
                        OF_TF32
                    }
                    Precision::Bf16x3 if any_is_off => OF_BF16X3,
                    Precision::Tf32x3 if any_is_off => OF_TF32X3,
                    _ => OF_SUMS,
                };
                let terms = operands.into_iter().flatten().map(|v| self.absolute(v)).collect::<Result<_, _>>()?;
                let sizes = self.with(terms, |p| p.dot(*a, *b, *acc, *precision))?;
                let sizes = numbers(&sizes.data);
                self.off_by(noise, tile, |i, _| sizes[i] * relative)
            }
            _ => tile,
        };
        let rounds = matches!(
            op,
            Op::Unary(..)
                | Op::Binary(..)
                | Op::Fma(..)
                | Op::Cast(..)
                | Op::Reduce { op: ReduceOp::Sum, .. }
                | Op::Scan { op: ReduceOp::Sum, .. }
        );
        if rounds && tile.ty.dtype.is_half() && is_off(self, v) {
            let half_ulp = if tile.ty.dtype == DType::F16 { 1.0 / 2048.0 } else { 1.0 / 256.0 };
            self.disturbances += 1;
            tile = self.off_by(noise, tile, |_, y| y.abs() * half_ulp);
        }
        Ok(tile)
    }

    /// The source of a value: a transpose that only products use is not computed.
    fn original(&self, v: Value) -> Value {
        match self.launch.kernel.def_op(v) {
            Some((_, Op::Transpose(original))) if self.launch.deferred[v.as_u32() as usize] => *original,
            _ => v,
        }
    }

    /// True if rounding to tf32 changes an element.
    fn is_wider_than_tf32(&self, v: Value) -> Result<bool, InterpError> {
        let tile = self.tile(self.original(v))?;
        Ok(numbers(&tile.data).into_iter().any(|x| (x as f32).to_bits() & 0x1fff != 0))
    }

    fn absolute(&self, v: Value) -> Result<(Value, Tile), InterpError> {
        Ok((v, changed((*self.tile(v)?).clone(), |_, x| x.abs())))
    }

    /// A value that is moved to one side as a whole.
    fn pushed(&self, noise: Noise, v: Value) -> Result<(Value, Tile), InterpError> {
        let tile = (*self.tile(v)?).clone();
        let relative = match tile.ty.dtype {
            DType::F16 => 1.0 / 512.0,
            DType::Bf16 => 1.0 / 64.0,
            DType::F64 => 8.0 * OF_SUMS * OF_DOUBLES,
            _ if noise.approximate => 4.0 * OF_APPROXIMATIONS,
            _ => 8.0 * OF_SUMS,
        };
        let least = if tile.ty.dtype == DType::F64 { LEAST_PUSH * OF_DOUBLES } else { LEAST_PUSH };
        Ok((v, changed(tile, |_, x| x + noise.sign() * (x.abs() * relative + least))))
    }

    /// A tile whose elements are each disturbed by a fraction of what `most` gives for its position and value.
    fn off_by(&self, noise: Noise, tile: Tile, most: impl Fn(usize, f64) -> f64) -> Tile {
        let finer = if tile.ty.dtype == DType::F64 { OF_DOUBLES } else { 1.0 };
        let at = self.disturbances;
        changed(tile, |i, x| if x.is_finite() { x + noise.of(at, i) * most(i, x) * finer } else { x })
    }

    /// Runs a function while some values are replaced.
    fn with<T>(
        &mut self,
        others: Vec<(Value, Tile)>,
        f: impl FnOnce(&mut Self) -> Result<T, InterpError>,
    ) -> Result<T, InterpError> {
        let mut before = Vec::new();
        for (v, tile) in others {
            before.push((v, self.tile(v)?));
            self.set(v, Arc::new(tile));
        }
        let done = f(self);
        // A value may stand there twice: what was there first comes last.
        before.into_iter().rev().for_each(|(v, tile)| self.set(v, tile));
        done
    }
}

fn of_functions(noise: Noise) -> f64 {
    if noise.approximate { OF_APPROXIMATIONS } else { OF_FUNCTIONS }
}

/// A tile of floats with other values, rounded to its type. Other tiles are unchanged.
fn changed(mut tile: Tile, f: impl Fn(usize, f64) -> f64) -> Tile {
    match &mut tile.data {
        Data::F32(xs) => {
            xs.iter_mut().enumerate().for_each(|(i, x)| *x = f(i, f64::from(*x)) as f32);
            round_all(tile.ty.dtype, xs);
        }
        Data::F64(xs) => xs.iter_mut().enumerate().for_each(|(i, x)| *x = f(i, *x)),
        _ => {}
    }
    tile
}

fn numbers(data: &Data) -> Vec<f64> {
    match data {
        Data::F32(xs) => xs.iter().map(|&x| f64::from(x)).collect(),
        Data::F64(xs) => xs.clone(),
        _ => Vec::new(),
    }
}
