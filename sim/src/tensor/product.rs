//! The inner product behind every tensor-core instruction, over three number systems.
//!
//! Floating point: products are exact in `f64` and are summed there in the order of k. Then c is added, and the sum is rounded
//! once, to nearest even. The ISA leaves the order and the precision of the sum open. Hardware aligns the addends to the
//! largest one and truncates (on sm_90 it keeps about 14 bits of fp8 sums), so its results differ in the last bits. Compare
//! with it by a bound that grows with `k * max|a * b|`, not bit for bit. NaN results are canonical.

use crate::alu::{Arithmetic, f16_bits};
use crate::fault::{Fault, FaultKind, Result};
use crate::program::MmaType;
use crate::tensor::element;

/// Eight neighbouring rows of an operand at one k.
pub(super) type Panel<T> = [T; 8];

/// How sums become results: types of c and d, and whether integers saturate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounding {
    pub(super) c_type: MmaType,
    pub(super) d_type: MmaType,
    pub(super) saturate: bool,
}

/// A number system of inner products.
pub(super) trait NumberSystem: Copy {
    const ZERO: Self;
    /// The value of an operand's element.
    fn operand(ty: MmaType, bits: u64) -> Self;
    /// The values of many elements.
    fn operands(ty: MmaType, bits: &[u64], values: &mut [Self]) {
        bits.iter().zip(values).for_each(|(&bits, value)| *value = Self::operand(ty, bits));
    }
    fn negate(self) -> Self;
    fn multiply_add(self, a: Self, b: Self) -> Self;
    /// The start value of sums, given the bits of c.
    fn start(c: Panel<u64>, rounding: Rounding) -> Panel<Self>;
    /// The bits of the results, given the sums and the bits of c.
    fn finish(sums: Panel<Self>, c: Panel<u64>, rounding: Rounding) -> Panel<u64>;
}

/// f16, bf16, tf32 and fp8 operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloatElement(f64);

impl NumberSystem for FloatElement {
    const ZERO: FloatElement = FloatElement(0.0);
    #[inline]
    fn operand(ty: MmaType, bits: u64) -> FloatElement {
        FloatElement(element::to_f64(ty, bits))
    }
    /// One loop for each type, so that the type is not checked for every element.
    fn operands(ty: MmaType, bits: &[u64], values: &mut [FloatElement]) {
        macro_rules! convert {
            ($($ty:ident)*) => {
                match ty {
                    $(MmaType::$ty => {
                        bits.iter().zip(values).for_each(|(&b, v)| *v = FloatElement(element::to_f64(MmaType::$ty, b)));
                    })*
                }
            };
        }
        convert!(F16 Bf16 Tf32 F32 F64 E4m3 E5m2 S8 U8 S32)
    }
    fn negate(self) -> FloatElement {
        FloatElement(-self.0)
    }
    #[inline]
    fn multiply_add(self, a: FloatElement, b: FloatElement) -> FloatElement {
        FloatElement(self.0 + a.0 * b.0)
    }
    #[inline]
    fn start(_: Panel<u64>, _: Rounding) -> Panel<FloatElement> {
        [FloatElement::ZERO; 8]
    }
    #[inline]
    fn finish(sums: Panel<FloatElement>, c: Panel<u64>, rounding: Rounding) -> Panel<u64> {
        let c = match rounding.c_type {
            MmaType::F16 => c.map(|bits| element::to_f64(MmaType::F16, bits)),
            _ => c.map(|bits| f32::from_bits(bits as u32).into()),
        };
        let sums: Panel<f64> = std::array::from_fn(|i| sums[i].0 + c[i]);
        match rounding.d_type {
            MmaType::F16 => sums.map(|x| if x.is_nan() { 0x7fff } else { f16_bits(x) }),
            _ => sums.map(|x| if x.is_nan() { 0x7fff_ffff } else { (x as f32).to_bits().into() }),
        }
    }
}

/// f64 operands: a fused multiply-add for each k, in order, from c.
#[derive(Clone, Copy, Debug)]
pub(super) struct DoubleElement(f64);

impl NumberSystem for DoubleElement {
    const ZERO: DoubleElement = DoubleElement(0.0);
    fn operand(_: MmaType, bits: u64) -> DoubleElement {
        DoubleElement(f64::from_bits(bits))
    }
    fn negate(self) -> DoubleElement {
        DoubleElement(-self.0)
    }
    fn multiply_add(self, a: DoubleElement, b: DoubleElement) -> DoubleElement {
        DoubleElement(libm::fma(a.0, b.0, self.0))
    }
    fn start(c: Panel<u64>, _: Rounding) -> Panel<DoubleElement> {
        c.map(|bits| DoubleElement(f64::from_bits(bits)))
    }
    fn finish(sums: Panel<DoubleElement>, _: Panel<u64>, _: Rounding) -> Panel<u64> {
        sums.map(|sum| if sum.0.is_nan() { 0x7ff8_0000_0000_0000 } else { sum.0.to_bits() })
    }
}

/// s8 and u8 operands. Up to 32 products fit `i32`; only adding c can overflow.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntegerElement(i32);

impl NumberSystem for IntegerElement {
    const ZERO: IntegerElement = IntegerElement(0);
    #[inline]
    fn operand(ty: MmaType, bits: u64) -> IntegerElement {
        IntegerElement(element::to_i32(ty, bits))
    }
    fn negate(self) -> IntegerElement {
        IntegerElement(self.0.wrapping_neg())
    }
    #[inline]
    fn multiply_add(self, a: IntegerElement, b: IntegerElement) -> IntegerElement {
        IntegerElement(self.0.wrapping_add(a.0.wrapping_mul(b.0)))
    }
    #[inline]
    fn start(_: Panel<u64>, _: Rounding) -> Panel<IntegerElement> {
        [IntegerElement::ZERO; 8]
    }
    #[inline]
    fn finish(sums: Panel<IntegerElement>, c: Panel<u64>, rounding: Rounding) -> Panel<u64> {
        let add = if rounding.saturate { i32::saturating_add } else { i32::wrapping_add };
        std::array::from_fn(|i| u64::from(add(sums[i].0, c[i] as i32) as u32))
    }
}

/// Exact arithmetic: a word is a pair of integers modulo 2^16. The upper and the lower half are added and multiplied
/// separately.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairElement {
    upper: u16,
    lower: u16,
}

impl PairElement {
    /// A word has both halves. A narrower value has the upper one.
    #[inline]
    fn widen(ty: MmaType, bits: u64) -> PairElement {
        match element::bits(ty) {
            32 => PairElement { upper: (bits >> 16) as u16, lower: bits as u16 },
            _ => PairElement { upper: bits as u16, lower: 0 },
        }
    }
}

impl NumberSystem for PairElement {
    const ZERO: PairElement = PairElement { upper: 0, lower: 0 };
    #[inline]
    fn operand(ty: MmaType, bits: u64) -> PairElement {
        PairElement::widen(ty, bits)
    }
    fn negate(self) -> PairElement {
        PairElement { upper: self.upper.wrapping_neg(), lower: self.lower.wrapping_neg() }
    }
    #[inline]
    fn multiply_add(self, a: PairElement, b: PairElement) -> PairElement {
        PairElement {
            upper: self.upper.wrapping_add(a.upper.wrapping_mul(b.upper)),
            lower: self.lower.wrapping_add(a.lower.wrapping_mul(b.lower)),
        }
    }
    #[inline]
    fn start(c: Panel<u64>, rounding: Rounding) -> Panel<PairElement> {
        c.map(|bits| PairElement::widen(rounding.c_type, bits))
    }
    #[inline]
    fn finish(sums: Panel<PairElement>, _: Panel<u64>, rounding: Rounding) -> Panel<u64> {
        match rounding.d_type {
            MmaType::F16 => sums.map(|sum| sum.upper.into()),
            _ => sums.map(|sum| u64::from(sum.upper) << 16 | u64::from(sum.lower)),
        }
    }
}

/// The number system of operands of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    Float,
    Double,
    Integer,
    Pair,
}

impl System {
    /// The system of an instruction: integers stay integers whatever the arithmetic.
    pub(super) fn of(a_type: MmaType, arithmetic: Arithmetic) -> System {
        match (a_type, arithmetic) {
            (ty, _) if element::is_integer(ty) => System::Integer,
            (MmaType::F64, _) => System::Double,
            (_, Arithmetic::Exact) => System::Pair,
            _ => System::Float,
        }
    }

    /// Refuses operands without a meaning in an arithmetic.
    pub(super) fn check(a_type: MmaType, arithmetic: Arithmetic) -> Result<()> {
        let exact = arithmetic == Arithmetic::Exact;
        if exact && matches!(a_type, MmaType::F64 | MmaType::E4m3 | MmaType::E5m2) {
            let message = format!("products of type {a_type:?} have no exact arithmetic");
            return Err(Fault::new(FaultKind::Illegal, message));
        }
        Ok(())
    }
}

/// Eight neighbouring results of one row: c plus the products of a row of A with eight columns of B, over all k.
#[inline]
pub(super) fn panel<T: NumberSystem>(a: &[T], b: &[Panel<T>], c: Panel<u64>, rounding: Rounding) -> Panel<u64> {
    let mut sums = T::start(c, rounding);
    accumulate(&mut sums, a, b);
    T::finish(sums, c, rounding)
}

/// The hottest loop. It is out of line, because the compiler vectorises only sums that end in memory.
#[inline(never)]
fn accumulate<T: NumberSystem>(sums: &mut Panel<T>, a: &[T], b: &[Panel<T>]) {
    let mut local = *sums;
    for (&a, b) in a.iter().zip(b) {
        for i in 0..8 {
            local[i] = local[i].multiply_add(a, b[i]);
        }
    }
    *sums = local;
}
