//! Consecutive elements of memory: the types by which they are loaded and stored, and the registers of the elements.
//!
//! Elements of 8 bits travel in integers of 16 and 32 bits. LLVM takes vectors of bytes apart by way of a stack in some places, and
//! by shifts of each byte alone in others.

use super::{Emitter, R, Regs, element};
use atlas_dsl::DType;
use inkwell::context::Context;
use inkwell::types::{BasicType, BasicTypeEnum, IntType};
use inkwell::values::{BasicValueEnum, IntValue};

/// The type of `run` consecutive elements in memory.
pub(super) fn memory_type(cx: &Context, dtype: DType, run: u32) -> BasicTypeEnum<'_> {
    match (element(cx, dtype), dtype.bytes(), run) {
        (one, _, 1) => one,
        (_, 1, 2) => cx.i16_type().into(),
        (_, 1, 4) => cx.i32_type().into(),
        (_, 1, n) => cx.i32_type().vec_type(n / 4).into(),
        (BasicTypeEnum::FloatType(t), _, n) => t.vec_type(n).as_basic_type_enum(),
        (BasicTypeEnum::IntType(t), _, n) => t.vec_type(n).as_basic_type_enum(),
        (t, _, _) => t,
    }
}

impl<'c> Emitter<'c, '_> {
    /// The registers of `run` consecutive elements that were loaded by their [`memory_type`].
    pub(super) fn unpack(&self, loaded: BasicValueEnum<'c>, dtype: DType, run: u32) -> R<Regs<'c>> {
        let at = |i: u32| self.i32(i64::from(i));
        if run == 1 {
            return Ok(vec![loaded]);
        }
        if dtype.bytes() > 1 {
            let v = loaded.into_vector_value();
            return (0..run).map(|i| Ok(self.b.build_extract_element(v, at(i), "")?)).collect();
        }
        let words = match loaded {
            BasicValueEnum::VectorValue(v) => (0..run / 4)
                .map(|i| Ok(self.b.build_extract_element(v, at(i), "")?.into_int_value()))
                .collect::<R<_>>()?,
            word => vec![word.into_int_value()],
        };
        let mut out = Vec::with_capacity(run as usize);
        for word in words {
            let ty = word.get_type();
            for byte in 0..run.min(4) {
                let shift = ty.const_int(u64::from(8 * byte), false);
                let moved = if byte == 0 { word } else { self.b.build_right_shift(word, shift, false, "")? };
                out.push(self.b.build_int_truncate(moved, self.cx.i8_type(), "")?.into());
            }
        }
        Ok(out)
    }

    /// Consecutive elements by their [`memory_type`].
    pub(super) fn pack(&self, values: &[BasicValueEnum<'c>], dtype: DType) -> R<BasicValueEnum<'c>> {
        if let [one] = values {
            return Ok(*one);
        }
        if let ([a, b], 1) = (values, dtype.bytes()) {
            return Ok(self.bytes_in(self.cx.i16_type(), &[*a, *b])?.into());
        }
        let (parts, ty) = match dtype.bytes() {
            1 => {
                let word = |bytes: &[BasicValueEnum<'c>]| Ok(self.bytes_in(self.i32_type(), bytes)?.into());
                (values.chunks(4).map(word).collect::<R<Vec<_>>>()?, memory_type(self.cx, dtype, values.len() as u32))
            }
            _ => (values.to_vec(), memory_type(self.cx, dtype, values.len() as u32)),
        };
        if let [word] = parts[..] {
            return Ok(word);
        }
        let mut v = ty.into_vector_type().get_undef();
        for (i, x) in parts.into_iter().enumerate() {
            v = self.b.build_insert_element(v, x, self.i32(i as i64), "")?;
        }
        Ok(v.into())
    }

    /// Bytes as an integer, the first one lowest.
    fn bytes_in(&self, ty: IntType<'c>, bytes: &[BasicValueEnum<'c>]) -> R<IntValue<'c>> {
        let mut word = ty.const_zero();
        for (i, byte) in bytes.iter().enumerate() {
            let wide = self.b.build_int_z_extend(byte.into_int_value(), ty, "")?;
            let moved = self.b.build_left_shift(wide, ty.const_int(8 * i as u64, false), "")?;
            word = self.b.build_or(word, moved, "")?;
        }
        Ok(word)
    }

    /// A packed value as 32-bit words, or as one word of 16 bits. A single byte is in the low half of one.
    pub(super) fn words(&self, packed: BasicValueEnum<'c>, bytes: u32) -> R<Vec<IntValue<'c>>> {
        let i32t = self.i32_type();
        Ok(match bytes {
            1 => vec![self.b.build_int_z_extend(packed.into_int_value(), self.cx.i16_type(), "")?],
            2 => vec![self.b.build_bit_cast(packed, self.cx.i16_type(), "")?.into_int_value()],
            4 => vec![self.b.build_bit_cast(packed, i32t, "")?.into_int_value()],
            n => {
                let v = self.b.build_bit_cast(packed, i32t.vec_type(n / 4), "")?.into_vector_value();
                (0..n / 4)
                    .map(|i| Ok(self.b.build_extract_element(v, self.i32(i64::from(i)), "")?.into_int_value()))
                    .collect::<R<_>>()?
            }
        })
    }
}
