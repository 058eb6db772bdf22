//! Constants, element-wise operations, conversions and renamings of registers.

use super::{Emitter, R, Regs, element};
use crate::error::CompileError;
use crate::gpu::{Accuracy, Op, Slice, Type, UnsignedOp, Valid, Value};
use crate::gpu_ops;
use crate::layout::Fragment;
use crate::mutation::{Mutation, is_planted};
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Predicate, UnaryOp};
use inkwell::builder::BuilderError;
use inkwell::types::BasicTypeEnum;
use inkwell::values::{BasicValueEnum, FloatValue, IntValue};
use inkwell::{AddressSpace, FloatPredicate, IntPredicate};
use std::collections::BTreeMap;

impl<'c> Emitter<'c, '_> {
    /// Emits an operation without effects.
    pub(super) fn elementwise(&mut self, op: &Op, result: Value) -> R<Regs<'c>> {
        let (dtype, layout) = match &self.k.values[result].ty {
            Type::Fragment { dtype, layout } => (*dtype, layout),
            _ => return Err(CompileError::bug("an element-wise operation that gives no fragment")),
        };
        let n = layout.reg_count();
        match op {
            Op::Const(x) => Ok(vec![self.constant(dtype, *x); n as usize]),
            Op::Iota { axis, offset } => {
                let base = self.thread_coord(layout, *axis)?.value;
                // In a loop, what indices give is cheaper to make again than to keep in registers.
                let base = if self.loops > 0 { self.opaque(base)? } else { base };
                (0..n)
                    .map(|r| {
                        let c = layout.reg_coord(r)[usize::from(*axis)] + offset;
                        Ok(self.b.build_int_add(base, self.i32(i64::from(c)), "")?.into())
                    })
                    .collect()
            }
            Op::DimSize(d) => Ok(vec![self.dim_size(*d)?.into()]),
            Op::DimTiles(d, size) => Ok(vec![self.dim_tiles(*d, *size)?.into()]),
            Op::CtaNumber => Ok(vec![self.call("llvm.nvvm.read.ptx.sreg.ctaid.x", self.i32_type().into(), &[])?]),
            Op::SplitCount => Ok(vec![self.i32(i64::from(self.k.index_map.splits)).into()]),
            Op::SplitNumber => Ok(vec![self.split_number()?.into()]),
            Op::CtaCount => Ok(vec![self.call("llvm.nvvm.read.ptx.sreg.nctaid.x", self.i32_type().into(), &[])?]),
            Op::Unsigned(op, a, b) => {
                let (a, b) = (self.int(*a)?, self.int(*b)?);
                Ok(vec![match op {
                    UnsignedOp::Div => self.b.build_int_unsigned_div(a, b, "")?.into(),
                    UnsignedOp::Min => {
                        let less = self.b.build_int_compare(IntPredicate::ULT, a, b, "")?;
                        self.b.build_select(less, a, b, "")?
                    }
                }])
            }
            Op::Coordinate(a, _) => Ok(self.regs(*a)?.clone()),
            Op::ScalarParam(p) => {
                Ok(vec![*self.scalars.get(p).ok_or_else(|| CompileError::bug("a scalar without a parameter"))?])
            }
            Op::TableGet(table, indices) => {
                let mut at = self.i32(0);
                let mut inside: Option<IntValue<'c>> = None;
                let shape = self.k.tables[*table].shape.clone();
                for (&i, extent) in indices.iter().zip(shape) {
                    let (i, extent) = (self.int(i)?, self.i32(i64::from(extent)));
                    let p = self.b.build_int_compare(IntPredicate::ULT, i, extent, "")?;
                    inside = Some(match inside {
                        None => p,
                        Some(q) => self.b.build_and(p, q, "")?,
                    });
                    let scaled = self.b.build_int_mul(at, extent, "")?;
                    at = self.b.build_int_add(scaled, i, "")?;
                }
                // Outside a table stands 0, as outside a tensor.
                let inside = inside.unwrap_or(self.cx.bool_type().const_int(1, false));
                let at = self.b.build_select(inside, at, self.i32(0), "")?.into_int_value();
                let element = self.table_element(*table, at)?;
                Ok(vec![self.b.build_select(inside, element, self.zero(DType::F32), "")?])
            }
            Op::Unary(..) | Op::Binary(..) | Op::Compare(..) | Op::Select(..) | Op::Fma(..) | Op::Cast(_) => {
                self.computed(op, dtype, 0..n as usize)
            }
            Op::Rematerialize(a) => {
                let regs = self.regs(*a)?.clone();
                self.forget(&regs, dtype)
            }
            Op::Broadcast(a) => {
                let source = self.k.tile(*a).1.clone();
                self.rename(*a, &source, layout, |c| {
                    let lead = c.len() - source.shape.len();
                    source.shape.iter().enumerate().map(|(i, &e)| if e == 1 { 0 } else { c[i + lead] }).collect()
                })
            }
            Op::Reshape(a) => {
                let source = self.k.tile(*a).1.clone();
                let real = |s: &[u32]| (0..s.len()).filter(|&i| s[i] != 1).collect::<Vec<_>>();
                let (from, to) = (real(&source.shape), real(&layout.shape));
                self.rename(*a, &source, layout, |c| {
                    let mut out = vec![0; source.shape.len()];
                    for (&i, &j) in from.iter().zip(&to) {
                        out[i] = c[j];
                    }
                    out
                })
            }
            Op::Transpose(a) => {
                let source = self.k.tile(*a).1.clone();
                self.rename(*a, &source, layout, |c| vec![c[1], c[0]])
            }
            Op::ExtractSlice { value, axis, offset } => {
                let source = self.k.tile(*value).1.clone();
                self.rename(*value, &source, layout, |c| {
                    let mut c = c.to_vec();
                    c[usize::from(*axis)] += offset;
                    c
                })
            }
            Op::MaskInvalid { value, neutral, valid } => self.refill(*value, *neutral, valid, dtype, layout),
            Op::Reduce { .. }
            | Op::Scan { .. }
            | Op::ConvertLayout(_)
            | gpu_ops!(global shared clusters products rings orders control) => {
                Err(CompileError::bug("not an element-wise operation"))
            }
        }
    }

    /// Registers of a result that are registers of the source, found by coordinates.
    fn rename(&self, a: Value, source: &Fragment, layout: &Fragment, map: impl Fn(&[u32]) -> Vec<u32>) -> R<Regs<'c>> {
        let regs = self.regs(a)?;
        let by_coord: BTreeMap<Vec<u32>, usize> =
            (0..source.reg_count()).rev().map(|r| (source.reg_coord(r), r as usize)).collect();
        (0..layout.reg_count())
            .map(|r| {
                let c = map(&layout.reg_coord(r));
                let at =
                    by_coord.get(&c).ok_or_else(|| CompileError::bug(format!("no register at {c:?} of {source}")))?;
                Ok(regs[*at])
            })
            .collect()
    }

    pub(super) fn constant(&self, dtype: DType, x: f64) -> BasicValueEnum<'c> {
        match element(self.cx, dtype) {
            BasicTypeEnum::FloatType(t) => t.const_float(x).into(),
            BasicTypeEnum::IntType(t) => match dtype.fp8() {
                Some(fp8) => t.const_int(fp8.encode(x).into(), false).into(),
                None => t.const_int(x as i64 as u64, !dtype.is_unsigned()).into(),
            },
            t => t.const_zero(),
        }
    }

    fn table_element(&mut self, table: atlas_dsl::Table, at: IntValue<'c>) -> R<BasicValueEnum<'c>> {
        let f32t = self.cx.f32_type();
        let data = &self.k.tables[table];
        let array = f32t.array_type(data.values.len() as u32);
        let pointer = match self.tables.get(&table) {
            Some(p) => *p,
            None => {
                let values: Vec<FloatValue<'c>> = data.values.iter().map(|&v| f32t.const_float(f64::from(v))).collect();
                let global = self.module.add_global(
                    array,
                    Some(AddressSpace::from(super::CONSTANT)),
                    &format!("table_{}", data.name),
                );
                global.set_initializer(&f32t.const_array(&values));
                global.set_constant(true);
                global.set_linkage(inkwell::module::Linkage::Internal);
                global.set_alignment(16);
                let p = global.as_pointer_value();
                self.tables.insert(table, p);
                p
            }
        };
        // SAFETY: the index was checked against the table's extents, and is that of the first element otherwise.
        let element = unsafe { self.b.build_in_bounds_gep(f32t, pointer, &[at], "")? };
        Ok(self.b.build_load(f32t, element, "")?)
    }

    /// The same registers, opaque to the optimiser. 16-bit ones stay in pairs.
    fn forget(&self, regs: &Regs<'c>, dtype: DType) -> R<Regs<'c>> {
        let per = if dtype.is_half() && regs.len().is_multiple_of(2) { 2 } else { 1 };
        if dtype.bytes() * per != 4 {
            return Ok(regs.clone());
        }
        let mut out = Vec::with_capacity(regs.len());
        for chunk in regs.chunks(per as usize) {
            let packed = self.pack(chunk, dtype)?;
            let word = self.b.build_bit_cast(packed, self.i32_type(), "")?.into_int_value();
            let back = self.b.build_bit_cast(self.opaque(word)?, packed.get_type(), "")?;
            if per == 1 {
                out.push(back);
            } else {
                for i in 0..per {
                    out.push(self.b.build_extract_element(back.into_vector_value(), self.i32(i64::from(i)), "")?);
                }
            }
        }
        Ok(out)
    }

    fn widen(&self, x: BasicValueEnum<'c>) -> R<BasicValueEnum<'c>> {
        Ok(self.b.build_float_ext(x.into_float_value(), self.cx.f32_type(), "")?.into())
    }

    pub(super) fn unary(
        &mut self,
        op: UnaryOp,
        by: Accuracy,
        dtype: DType,
        x: BasicValueEnum<'c>,
    ) -> R<BasicValueEnum<'c>> {
        if dtype.is_half() && !matches!(op, UnaryOp::Neg | UnaryOp::Abs) {
            let wide = self.widen(x)?;
            let y = self.unary(op, by, DType::F32, wide)?;
            return Ok(self.b.build_float_trunc(y.into_float_value(), x.get_type().into_float_type(), "")?.into());
        }
        let ty = x.get_type();
        Ok(match (op, x) {
            (UnaryOp::Not, BasicValueEnum::IntValue(i)) => self.b.build_not(i, "")?.into(),
            (UnaryOp::Popcount, x) => self.call(&format!("llvm.ctpop.i{}", 8 * dtype.bytes()), ty, &[x])?,
            (UnaryOp::Neg, BasicValueEnum::IntValue(i)) => self.b.build_int_neg(i, "")?.into(),
            (UnaryOp::Neg, BasicValueEnum::FloatValue(f)) => self.b.build_float_neg(f, "")?.into(),
            (UnaryOp::Abs, BasicValueEnum::IntValue(i)) => {
                let negative = self.b.build_int_compare(IntPredicate::SLT, i, i.get_type().const_zero(), "")?;
                let minus = self.b.build_int_neg(i, "")?;
                self.b.build_select(negative, minus, i, "")?
            }
            (UnaryOp::Abs, x) => self.call(&format!("llvm.fabs.{}", type_name(dtype)), ty, &[x])?,
            (UnaryOp::Sqrt, x) if by == Accuracy::Precise => {
                self.call(&format!("llvm.sqrt.{}", type_name(dtype)), ty, &[x])?
            }
            (UnaryOp::Floor, x) => self.call(&format!("llvm.floor.{}", type_name(dtype)), ty, &[x])?,
            (UnaryOp::Ceil, x) => self.call(&format!("llvm.ceil.{}", type_name(dtype)), ty, &[x])?,
            (UnaryOp::Trunc, x) => self.call(&format!("llvm.trunc.{}", type_name(dtype)), ty, &[x])?,
            (UnaryOp::Round, x) => self.call(&format!("llvm.roundeven.{}", type_name(dtype)), ty, &[x])?,
            (UnaryOp::Rsqrt, BasicValueEnum::FloatValue(f)) if dtype == DType::F64 => {
                let root = self.call("llvm.sqrt.f64", ty, &[f.into()])?.into_float_value();
                self.b.build_float_div(self.cx.f64_type().const_float(1.0), root, "")?.into()
            }
            (op, BasicValueEnum::FloatValue(f)) if dtype == DType::F32 => self.math(op, by, f)?.into(),
            (op, _) => {
                return Err(CompileError::bug(format!("`{}` of {dtype}", op.name())));
            }
        })
    }

    /// `x * y + z`, rounded once. In 16 bits it is computed in f32, where the product is exact, and the sum is rounded twice.
    pub(super) fn fused(&mut self, operands: [BasicValueEnum<'c>; 3], dtype: DType) -> R<BasicValueEnum<'c>> {
        let ty = operands[0].get_type();
        if !dtype.is_half() {
            return self.call(&format!("llvm.fma.{}", type_name(dtype)), ty, &operands);
        }
        let [x, y, z] = operands.map(|x| self.widen(x));
        let sum = self.call("llvm.fma.f32", self.cx.f32_type().into(), &[x?, y?, z?])?;
        Ok(self.b.build_float_trunc(sum.into_float_value(), ty.into_float_type(), "")?.into())
    }

    pub(super) fn binary(
        &mut self,
        (op, by): (BinaryOp, Accuracy),
        dtype: DType,
        x: BasicValueEnum<'c>,
        y: BasicValueEnum<'c>,
    ) -> R<BasicValueEnum<'c>> {
        if dtype.is_half() {
            let (a, b) = (self.widen(x)?, self.widen(y)?);
            let z = self.binary((op, by), DType::F32, a, b)?;
            return Ok(self.b.build_float_trunc(z.into_float_value(), x.get_type().into_float_type(), "")?.into());
        }
        Ok(match (x, y) {
            (BasicValueEnum::FloatValue(a), BasicValueEnum::FloatValue(b)) => {
                let b_ = &self.b;
                let ty = x.get_type();
                match op {
                    BinaryOp::Add => b_.build_float_add(a, b, "")?.into(),
                    BinaryOp::Sub => b_.build_float_sub(a, b, "")?.into(),
                    BinaryOp::Mul => b_.build_float_mul(a, b, "")?.into(),
                    BinaryOp::Div => self.divide(by, a, b)?.into(),
                    // NaN of either operand wins.
                    BinaryOp::Min => self.call(&format!("llvm.minimum.{}", type_name(dtype)), ty, &[x, y])?,
                    BinaryOp::Max => self.call(&format!("llvm.maximum.{}", type_name(dtype)), ty, &[x, y])?,
                    op if op.is_function() && dtype == DType::F32 => self.math_of_two(op, a, b)?.into(),
                    _ => return Err(CompileError::bug(format!("`{}` of {dtype}", op.name()))),
                }
            }
            (BasicValueEnum::IntValue(a), BasicValueEnum::IntValue(b)) => {
                let b_ = &self.b;
                let pick = |p| -> R<BasicValueEnum<'c>> {
                    let c = b_.build_int_compare(p, a, b, "")?;
                    Ok(b_.build_select(c, a, b, "")?)
                };
                match op {
                    BinaryOp::Add => b_.build_int_add(a, b, "")?.into(),
                    BinaryOp::Sub => b_.build_int_sub(a, b, "")?.into(),
                    BinaryOp::Mul => b_.build_int_mul(a, b, "")?.into(),
                    BinaryOp::Div => self.guarded_division(a, b, false)?.into(),
                    BinaryOp::Rem => self.guarded_division(a, b, true)?.into(),
                    BinaryOp::Min => pick(IntPredicate::SLT)?,
                    BinaryOp::Max => pick(IntPredicate::SGT)?,
                    BinaryOp::And | BinaryOp::BitAnd => b_.build_and(a, b, "")?.into(),
                    BinaryOp::Or | BinaryOp::BitOr => b_.build_or(a, b, "")?.into(),
                    BinaryOp::BitXor => b_.build_xor(a, b, "")?.into(),
                    BinaryOp::Shl => self.shifted(a, b, |a, by| b_.build_left_shift(a, by, ""))?.into(),
                    BinaryOp::Shr => self.shifted_right(a, b)?.into(),
                    BinaryOp::MulHi => self.multiply_high(a, b)?,
                    BinaryOp::Pow | BinaryOp::Atan2 => {
                        return Err(CompileError::bug(format!("`{}` of {dtype}", op.name())));
                    }
                    BinaryOp::ShrLogical => self.shifted(a, b, |a, by| b_.build_right_shift(a, by, false, ""))?.into(),
                }
            }
            _ => return Err(CompileError::bug("operands of two kinds")),
        })
    }

    /// `a` moved by `shift`, and 0 for a count that LLVM leaves undefined: one that is not below the width, as an unsigned number.
    fn shifted(
        &self,
        a: IntValue<'c>,
        by: IntValue<'c>,
        shift: impl Fn(IntValue<'c>, IntValue<'c>) -> Result<IntValue<'c>, BuilderError>,
    ) -> R<IntValue<'c>> {
        let ty = a.get_type();
        let width = ty.const_int(u64::from(ty.get_bit_width()), false);
        let fits = self.b.build_int_compare(IntPredicate::ULT, by, width, "")?;
        let moved = shift(a, by)?;
        Ok(self.b.build_select(fits, moved, ty.const_zero(), "")?.into_int_value())
    }

    /// `a >> by`, filled with the sign. Any count that is not below the width, as an unsigned number, leaves the sign alone.
    fn shifted_right(&self, a: IntValue<'c>, by: IntValue<'c>) -> R<IntValue<'c>> {
        let ty = a.get_type();
        let most = ty.const_int(u64::from(ty.get_bit_width()) - 1, false);
        let fits = self.b.build_int_compare(IntPredicate::ULT, by, most, "")?;
        let by = self.b.build_select(fits, by, most, "")?.into_int_value();
        Ok(self.b.build_right_shift(a, by, true, "")?)
    }

    /// The upper half of the product of unsigned numbers. LLVM makes `mul.hi` of a wide product and a shift, too. But it merges such a
    /// shift with those around it, and then multiplies 64 bits.
    fn multiply_high(&self, a: IntValue<'c>, b: IntValue<'c>) -> R<BasicValueEnum<'c>> {
        let name = if a.get_type().get_bit_width() == 64 { "llvm.nvvm.mulhi.ull" } else { "llvm.nvvm.mulhi.ui" };
        self.call(name, a.get_type().into(), &[a.into(), b.into()])
    }

    /// Integer quotient or remainder. It is 0 if the divisor is 0, and wraps if the quotient is too large.
    fn guarded_division(&self, a: IntValue<'c>, b: IntValue<'c>, remainder: bool) -> R<IntValue<'c>> {
        let zero = b.get_type().const_zero();
        let one = b.get_type().const_int(1, false);
        let minus = b.get_type().const_all_ones();
        let by_zero = self.b.build_int_compare(IntPredicate::EQ, b, zero, "")?;
        let by_minus = self.b.build_int_compare(IntPredicate::EQ, b, minus, "")?;
        let bad = self.b.build_or(by_zero, by_minus, "")?;
        let safe = self.b.build_select(bad, one, b, "")?.into_int_value();
        if remainder {
            // Of a division by 1 it is 0, as it is of those by 0 and -1.
            return Ok(self.b.build_int_signed_rem(a, safe, "")?);
        }
        let q = self.b.build_int_signed_div(a, safe, "")?;
        let negated = self.b.build_int_neg(a, "")?;
        let q = self.b.build_select(by_minus, negated, q, "")?.into_int_value();
        Ok(self.b.build_select(by_zero, zero, q, "")?.into_int_value())
    }

    fn divide(&self, by: Accuracy, a: FloatValue<'c>, b: FloatValue<'c>) -> R<FloatValue<'c>> {
        if by == Accuracy::Approximate {
            // Of the approximate divisions the one that knows divisors above 2^126.
            return Ok(self
                .call("llvm.nvvm.div.full", self.cx.f32_type().into(), &[a.into(), b.into()])?
                .into_float_value());
        }
        Ok(self.b.build_float_div(a, b, "")?)
    }

    pub(super) fn compare(
        &self,
        p: Predicate,
        dtype: DType,
        x: BasicValueEnum<'c>,
        y: BasicValueEnum<'c>,
    ) -> R<IntValue<'c>> {
        if dtype.is_float() {
            let p = match p {
                Predicate::Eq => FloatPredicate::OEQ,
                Predicate::Ne => FloatPredicate::UNE,
                Predicate::Lt => FloatPredicate::OLT,
                Predicate::Le => FloatPredicate::OLE,
                Predicate::Gt => FloatPredicate::OGT,
                Predicate::Ge => FloatPredicate::OGE,
            };
            return Ok(self.b.build_float_compare(p, x.into_float_value(), y.into_float_value(), "")?);
        }
        let p = match p {
            Predicate::Eq => IntPredicate::EQ,
            Predicate::Ne => IntPredicate::NE,
            Predicate::Lt => IntPredicate::SLT,
            Predicate::Le => IntPredicate::SLE,
            Predicate::Gt => IntPredicate::SGT,
            Predicate::Ge => IntPredicate::SGE,
        };
        Ok(self.b.build_int_compare(p, x.into_int_value(), y.into_int_value(), "")?)
    }

    /// Converts registers. Pairs of f32 become 16-bit pairs in one instruction.
    pub(super) fn cast_all(&self, a: &Regs<'c>, from: DType, to: DType) -> R<Regs<'c>> {
        if from != to && (from.is_fp8() || to.is_fp8()) {
            return self.cast_fp8(a, from, to);
        }
        if takes_pairs(from, to) && a.len().is_multiple_of(2) {
            let wide = self.cx.f32_type().vec_type(2);
            let narrow = element(self.cx, to).into_float_type().vec_type(2);
            let mut out = Vec::with_capacity(a.len());
            for pair in a.chunks(2) {
                let v = self.b.build_insert_element(wide.get_undef(), pair[0], self.i32(0), "")?;
                let v = self.b.build_insert_element(v, pair[1], self.i32(1), "")?;
                let v = self.b.build_float_trunc(v, narrow, "")?;
                out.push(self.b.build_extract_element(v, self.i32(0), "")?);
                out.push(self.b.build_extract_element(v, self.i32(1), "")?);
            }
            return Ok(out);
        }
        a.iter().map(|&x| self.cast(x, from, to)).collect()
    }

    /// An integer as f32, rounded to odd, so that a later rounding to 16 bits gives the same as rounding the integer once.
    fn odd_float(&self, i: IntValue<'c>) -> R<FloatValue<'c>> {
        let f32t = self.cx.f32_type();
        let name = if i.get_type().get_bit_width() == 64 { "llvm.nvvm.ll2f.rz" } else { "llvm.nvvm.i2f.rz" };
        let near = self.call(name, f32t.into(), &[i.into()])?.into_float_value();
        let back = self.b.build_float_to_signed_int(near, i.get_type(), "")?;
        let inexact = self.b.build_int_compare(IntPredicate::NE, back, i, "")?;
        let odd = self.b.build_int_z_extend(inexact, self.i32_type(), "")?;
        let bits = self.b.build_bit_cast(near, self.i32_type(), "")?.into_int_value();
        let bits = self.b.build_or(bits, odd, "")?;
        Ok(self.b.build_bit_cast(bits, f32t, "")?.into_float_value())
    }

    pub(super) fn cast(&self, x: BasicValueEnum<'c>, from: DType, to: DType) -> R<BasicValueEnum<'c>> {
        if from == to {
            return Ok(x);
        }
        if from.is_fp8() || to.is_fp8() {
            return Err(CompileError::bug(format!("a code of 8 bits is cast as a number: {from} to {to}")));
        }
        let b = &self.b;
        let target = element(self.cx, to);
        Ok(match (x, target) {
            (BasicValueEnum::FloatValue(f), BasicTypeEnum::FloatType(t)) => {
                if from.is_half() && to.is_half() {
                    let wide = b.build_float_ext(f, self.cx.f32_type(), "")?;
                    b.build_float_trunc(wide, t, "")?.into()
                } else {
                    b.build_float_cast(f, t, "")?.into()
                }
            }
            (BasicValueEnum::FloatValue(f), BasicTypeEnum::IntType(t)) => {
                let wide = if from.is_half() { b.build_float_ext(f, self.cx.f32_type(), "")? } else { f };
                let wide_name = type_name(if from.is_half() { DType::F32 } else { from });
                if let Some((least, most)) = to.range().filter(|_| to.is_small()) {
                    let name = format!("llvm.fptosi.sat.i32.{wide_name}");
                    let whole = self.call(&name, self.i32_type().into(), &[wide.into()])?.into_int_value();
                    return Ok(self.b.build_int_truncate(self.clamped(whole, least, most)?, t, "")?.into());
                }
                let name = format!("llvm.fptosi.sat.i{}.{wide_name}", t.get_bit_width());
                self.call(&name, t.into(), &[wide.into()])?
            }
            // Every such integer is an f32, so that a 16-bit float is rounded once.
            (BasicValueEnum::IntValue(i), BasicTypeEnum::FloatType(t)) if from.is_small() => {
                let i = b.build_int_cast_sign_flag(i, self.i32_type(), has_sign(from), "")?;
                let wide = if to.is_half() { self.cx.f32_type() } else { t };
                b.build_float_cast(b.build_signed_int_to_float(i, wide, "")?, t, "")?.into()
            }
            (BasicValueEnum::IntValue(i), BasicTypeEnum::FloatType(t)) => {
                let i = if from == DType::Bool { b.build_int_z_extend(i, self.i32_type(), "")? } else { i };
                if to.is_half() {
                    b.build_float_trunc(self.odd_float(i)?, t, "")?.into()
                } else {
                    b.build_signed_int_to_float(i, t, "")?.into()
                }
            }
            (BasicValueEnum::IntValue(i), BasicTypeEnum::IntType(t)) => {
                b.build_int_cast_sign_flag(i, t, has_sign(from), "")?.into()
            }
            _ => return Err(CompileError::bug(format!("cast from {from} to {to}"))),
        })
    }

    /// An i32, at least and at most these numbers.
    fn clamped(&self, x: IntValue<'c>, least: i64, most: i64) -> R<IntValue<'c>> {
        let ty = self.i32_type();
        let above = self.call("llvm.smax.i32", ty.into(), &[x.into(), self.i32(least).into()])?;
        Ok(self.call("llvm.smin.i32", ty.into(), &[above, self.i32(most).into()])?.into_int_value())
    }

    fn refill(&mut self, value: Value, neutral: f64, valid: &[Valid], dtype: DType, layout: &Fragment) -> R<Regs<'c>> {
        let regs = self.regs(value)?.clone();
        if is_planted(Mutation::FillForgotten) {
            return Ok(regs);
        }
        let fill = self.constant(dtype, neutral);
        let mut checks: Vec<(u8, Slice, atlas_dsl::Dim)> = valid.iter().map(|v| (v.axis, v.slice, v.dim)).collect();
        for axis in 0..layout.shape.len() as u8 {
            if layout.is_padded(axis) && !checks.iter().any(|c| c.0 == axis && c.1.len().is_some()) {
                let len = layout.shape[usize::from(axis)];
                let whole = Slice::Whole { offset: 0, len };
                checks.push((axis, whole, atlas_dsl::Dim::from_u32(u32::MAX - 1)));
            }
        }
        let mut masks = self.masks(layout, &checks)?;
        let mut out = Vec::with_capacity(regs.len());
        for (r, x) in regs.into_iter().enumerate() {
            out.push(match self.mask(&mut masks, layout, r as u32)? {
                None => x,
                Some(p) => self.b.build_select(p, x, fill, "")?,
            });
        }
        Ok(out)
    }
}

/// True for a conversion that is one instruction for two registers.
pub(super) fn takes_pairs(from: DType, to: DType) -> bool {
    from != to && (from == DType::F32 && to.is_half() || from.is_fp8() || to.is_fp8())
}

/// True if a wider integer repeats the highest bit of an integer of this type.
fn has_sign(dtype: DType) -> bool {
    !dtype.is_unsigned() || (dtype.is_small() && is_planted(Mutation::SignOfUnsigned))
}

/// LLVM's name of an element type in intrinsics.
pub(super) fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "i1",
        _ => dtype.name(),
    }
}
