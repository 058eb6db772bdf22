//! Conversions from and to the floats of 8 bits, whose registers hold their codes.
//!
//! Targets with an instruction convert two numbers at once. On the others integers are computed with, to the same codes: to the
//! nearest number, ties to even; what is too large, and infinity, to the largest number; NaN to 0x7f.

use super::{Emitter, R, Regs};
use crate::arch::Capability;
use crate::error::CompileError;
use crate::mutation::{Mutation, is_planted};
use atlas_dsl::{DType, Fp8};
use inkwell::values::{BasicValueEnum, FloatValue, IntValue};
use inkwell::{FloatPredicate, InlineAsmDialect, IntPredicate};

impl<'c> Emitter<'c, '_> {
    /// Converts registers from or to a float of 8 bits.
    pub(super) fn cast_fp8(&self, a: &Regs<'c>, from: DType, to: DType) -> R<Regs<'c>> {
        let (a, from) = match from.fp8() {
            // f16 has every number of both types.
            Some(parts) => (self.halves_of_codes(a, from, parts)?, DType::F16),
            None if from == DType::F64 => {
                (a.iter().map(|&x| Ok(self.odd_single(x.into_float_value())?.into())).collect::<R<_>>()?, DType::F32)
            }
            None => (a.clone(), from),
        };
        match to.fp8() {
            Some(parts) => self.codes_of_singles(&self.cast_all(&a, from, DType::F32)?, to, parts),
            None => self.cast_all(&a, from, to),
        }
    }

    /// An f64 as f32, rounded to odd, so that a later rounding to 8 bits gives the same as rounding the number once.
    fn odd_single(&self, x: FloatValue<'c>) -> R<FloatValue<'c>> {
        let f32t = self.cx.f32_type();
        let near = self.call("llvm.nvvm.d2f.rz", f32t.into(), &[x.into()])?.into_float_value();
        let back = self.b.build_float_ext(near, x.get_type(), "")?;
        let inexact = self.b.build_float_compare(FloatPredicate::ONE, back, x, "")?;
        let odd = self.b.build_int_z_extend(inexact, self.i32_type(), "")?;
        let bits = self.b.build_bit_cast(near, self.i32_type(), "")?.into_int_value();
        Ok(self.b.build_bit_cast(self.b.build_or(bits, odd, "")?, f32t, "")?.into_float_value())
    }

    /// Codes as f16.
    fn halves_of_codes(&self, codes: &Regs<'c>, from: DType, parts: Fp8) -> R<Regs<'c>> {
        if !self.k.target.has(Capability::ConvertFp8) {
            return codes.iter().map(|code| self.half_of_code(code.into_int_value(), parts)).collect();
        }
        let (word, i16t) = (self.i32_type(), self.cx.i16_type());
        let ty = word.fn_type(&[i16t.into()], false);
        let text = format!("cvt.rn.f16x2.{} $0, $1;", pair_name(from)?);
        let mut out = Vec::with_capacity(codes.len());
        for pair in codes.chunks(2) {
            let packed = match pair {
                [one] => self.b.build_int_z_extend(one.into_int_value(), i16t, "")?,
                both => self.pack(both, from)?.into_int_value(),
            };
            let asm = self.cx.create_inline_asm(
                ty,
                text.clone(),
                "=r,h".to_owned(),
                false,
                false,
                Some(InlineAsmDialect::ATT),
                false,
            );
            let made = self.b.build_indirect_call(ty, asm, &[packed.into()], "")?.try_as_basic_value().unwrap_basic();
            let halves = self.b.build_bit_cast(made, self.cx.f16_type().vec_type(2), "")?.into_vector_value();
            for i in 0..pair.len() {
                out.push(self.b.build_extract_element(halves, self.i32(i as i64), "")?);
            }
        }
        Ok(out)
    }

    /// The f16 of a code. With 5 bits of exponent, a code is its upper byte. With 4, the fraction is moved to its place, which
    /// leaves an exponent that is 8 too small.
    fn half_of_code(&self, code: IntValue<'c>, parts: Fp8) -> R<BasicValueEnum<'c>> {
        let (b, ty, half) = (&self.b, self.cx.i16_type(), self.cx.f16_type());
        let number = |n: u64| ty.const_int(n, false);
        let code = b.build_int_z_extend(code, ty, "")?;
        let upper = b.build_left_shift(code, number(8), "")?;
        if parts.fraction == 2 {
            return Ok(b.build_bit_cast(upper, half, "")?);
        }
        let size = b.build_and(code, number(0x7f), "")?;
        let sign = b.build_and(upper, number(0x8000), "")?;
        let bits = b.build_or(b.build_left_shift(size, number(7), "")?, sign, "")?;
        let small = b.build_bit_cast(bits, half, "")?.into_float_value();
        let scale = half.const_float(f64::from(1 << (15 - parts.bias)));
        let scaled = b.build_float_mul(small, scale, "")?;
        let is_nan = b.build_int_compare(IntPredicate::UGT, size, number(parts.largest.into()), "")?;
        let nan = b.build_bit_cast(number(0x7fff), half, "")?;
        Ok(b.build_select(is_nan, nan, scaled.into(), "")?)
    }

    /// The codes of f32.
    fn codes_of_singles(&self, numbers: &Regs<'c>, to: DType, parts: Fp8) -> R<Regs<'c>> {
        let numbers = numbers.iter().map(|x| self.as_planted(x.into_float_value(), parts)).collect::<R<Vec<_>>>()?;
        if !self.k.target.has(Capability::ConvertFp8) {
            return numbers.into_iter().map(|x| Ok(self.code_of_single(x, parts)?.into())).collect();
        }
        let (f32t, i16t) = (self.cx.f32_type(), self.cx.i16_type());
        let ty = i16t.fn_type(&[f32t.into(), f32t.into()], false);
        // The first operand becomes the upper byte.
        let text = format!("cvt.rn.satfinite.{}.f32 $0, $2, $1;", pair_name(to)?);
        let mut out = Vec::with_capacity(numbers.len());
        for pair in numbers.chunks(2) {
            let upper = pair.get(1).copied().unwrap_or_else(|| f32t.const_zero());
            let asm = self.cx.create_inline_asm(
                ty,
                text.clone(),
                "=h,f,f".to_owned(),
                false,
                false,
                Some(InlineAsmDialect::ATT),
                false,
            );
            let call = self.b.build_indirect_call(ty, asm, &[pair[0].into(), upper.into()], "")?;
            let codes = call.try_as_basic_value().unwrap_basic();
            out.extend(self.unpack(codes, to, 2)?.into_iter().take(pair.len()));
        }
        Ok(out)
    }

    /// The code of an f32, by integers.
    fn code_of_single(&self, x: FloatValue<'c>, parts: Fp8) -> R<IntValue<'c>> {
        let (b, ty, f32t) = (&self.b, self.i32_type(), self.cx.f32_type());
        let number = |n: u32| ty.const_int(n.into(), false);
        let dropped = 23 - parts.fraction;
        let bits = b.build_bit_cast(x, ty, "")?.into_int_value();
        let size = b.build_and(bits, number(0x7fff_ffff), "")?;
        let sign = b.build_and(b.build_right_shift(bits, number(24), false, "")?, number(0x80), "")?;
        // A normal number: half a step less one, and one more where the last bit that stays is odd.
        let odd = b.build_and(b.build_right_shift(size, number(dropped), false, "")?, number(1), "")?;
        let up = b.build_int_add(b.build_int_add(size, number((1 << (dropped - 1)) - 1), "")?, odd, "")?;
        let rebias = number(((127 - parts.bias) as u32) << parts.fraction);
        let normal = b.build_int_sub(b.build_right_shift(up, number(dropped), false, "")?, rebias, "")?;
        // Below the least normal number: a sum whose last bit is the least number rounds as it should.
        let anchor = f32t.const_float(2f64.powi(parts.least_step() + 23));
        let sum = b.build_float_add(b.build_bit_cast(size, f32t, "")?.into_float_value(), anchor, "")?;
        let base = number((2f32.powi(parts.least_step() + 23)).to_bits());
        let subnormal = b.build_int_sub(b.build_bit_cast(sum, ty, "")?.into_int_value(), base, "")?;
        let least = number(2f32.powi(1 - parts.bias).to_bits());
        let is_small = b.build_int_compare(IntPredicate::ULT, size, least, "")?;
        let code = b.build_select(is_small, subnormal, normal, "")?;
        let most = number(parts.largest.into());
        let code = self.call("llvm.umin.i32", ty.into(), &[code, most.into()])?.into_int_value();
        let is_nan = b.build_int_compare(IntPredicate::UGT, size, number(0x7f80_0000), "")?;
        let code = b.build_select(is_nan, number(0x7f), b.build_or(code, sign, "")?, "")?.into_int_value();
        Ok(b.build_int_truncate(code, self.cx.i8_type(), "")?)
    }

    /// The number without what a planted mistake drops.
    fn as_planted(&self, x: FloatValue<'c>, parts: Fp8) -> R<FloatValue<'c>> {
        if !is_planted(Mutation::Fp8TowardZero) {
            return Ok(x);
        }
        let ty = self.i32_type();
        let bits = self.b.build_bit_cast(x, ty, "")?.into_int_value();
        let kept = self.b.build_and(bits, ty.const_int(u64::from(u32::MAX << (23 - parts.fraction)), false), "")?;
        Ok(self.b.build_bit_cast(kept, self.cx.f32_type(), "")?.into_float_value())
    }
}

/// PTX's name of a pair.
fn pair_name(dtype: DType) -> R<&'static str> {
    match dtype {
        DType::F8E4M3 => Ok("e4m3x2"),
        DType::F8E5M2 => Ok("e5m2x2"),
        _ => Err(CompileError::bug(format!("{dtype} is no float of 8 bits"))),
    }
}
