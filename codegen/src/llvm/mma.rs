//! Steps of matrix products on tensor cores.

use super::{Emitter, R, Regs, element, struct_of};
use crate::error::CompileError;
use crate::gpu::atom::{MmaAtom, Side};
use crate::gpu::{Operand, Value};
use atlas_dsl::DType;
use inkwell::FloatPredicate;
use inkwell::values::{BasicValueEnum, FloatValue, IntValue};

/// The words of an operand whose elements are split in two.
struct SplitWords<'c> {
    /// Of the elements rounded to the instruction's type.
    rounded: Regs<'c>,
    /// Of what that leaves, rounded likewise.
    rest: Regs<'c>,
}

impl<'c> Emitter<'c, '_> {
    pub(super) fn mma(
        &mut self,
        (a, b): (&Operand, &Operand),
        acc: Option<Value>,
        atom: MmaAtom,
        shape: (u32, u32, u32),
        result: Option<Value>,
    ) -> R<Regs<'c>> {
        let result = result.ok_or_else(|| CompileError::bug("a product without a result"))?;
        let (dtype, layout) = self.k.tile(result);
        let layout = layout.clone();
        let start = match acc {
            Some(v) => self.regs(v)?.clone(),
            None => vec![self.zero(dtype); layout.reg_count() as usize],
        };
        match (atom, a, b) {
            (_, Operand::Fragment(a), Operand::Fragment(b)) if atom.is_tensor_core() => self.step(atom, *a, *b, start),
            (_, Operand::Shared(a), Operand::Shared(b)) if !atom.is_tensor_core() => {
                self.fma(a, b, start, shape, &layout, dtype)
            }
            _ => Err(CompileError::bug(format!("operands that {} does not take", atom.row().name))),
        }
    }

    /// One step of a tile of products: every block of rows by every block of columns.
    fn step(&mut self, atom: MmaAtom, a: Value, b: Value, mut acc: Regs<'c>) -> R<Regs<'c>> {
        if atom.row().is_split {
            return self.split_step(atom, a, b, acc);
        }
        let (left, right) = (self.operand_words(a)?, self.operand_words(b)?);
        let columns = right.len() / 2;
        for (n, b) in right.chunks(2).enumerate() {
            self.column(atom, &left, b, (n, columns), &mut acc)?;
        }
        Ok(acc)
    }

    /// The same of operands that are split: three products for each block. A block of columns is split just before its products,
    /// so that few of its words are held at once.
    ///
    /// Tensor cores truncate sums. That would be off by up to 2^-24 of the accumulator for each of thousands of products, which is
    /// more than splitting leaves. So the three products of a block have a sum of their own, which is added with rounding.
    fn split_step(&mut self, atom: MmaAtom, a: Value, b: Value, mut acc: Regs<'c>) -> R<Regs<'c>> {
        let left = self.split_words(atom, self.regs(a)?, Side::Left)?;
        let right = self.regs(b)?;
        let held = atom.row().shape.2 as usize / 4;
        let columns = right.len() / held;
        for (n, b) in right.chunks(held).enumerate() {
            let right = self.split_words(atom, b, Side::Right)?;
            // The smaller products first. The product of both rests is as small as what rounding them loses.
            let terms = [(&left.rest, &right.rounded), (&left.rounded, &right.rest), (&left.rounded, &right.rounded)];
            for (m, into) in acc.chunks_mut(4).skip(n).step_by(columns).enumerate() {
                let mut sums: Regs<'c> = vec![self.zero(DType::F32); 4];
                for (a, b) in terms {
                    sums = self.mma_step(atom, &a[4 * m..4 * m + 4], b, &sums)?;
                }
                for (into, sum) in into.iter_mut().zip(sums) {
                    *into = self.b.build_float_add(into.into_float_value(), sum.into_float_value(), "")?.into();
                }
            }
        }
        Ok(acc)
    }

    /// The products of every block of rows by one block of columns, given their words.
    fn column(
        &self,
        atom: MmaAtom,
        left: &[BasicValueEnum<'c>],
        b: &[BasicValueEnum<'c>],
        (n, columns): (usize, usize),
        acc: &mut Regs<'c>,
    ) -> R<()> {
        for (m, a) in left.chunks(4).enumerate() {
            let at = (m * columns + n) * 4;
            let out = self.mma_step(atom, a, b, &acc[at..at + 4])?;
            acc[at..at + 4].copy_from_slice(&out);
        }
        Ok(())
    }

    /// The words of f32 registers of an operand that is split.
    fn split_words(&self, atom: MmaAtom, regs: &[BasicValueEnum<'c>], side: Side) -> R<SplitWords<'c>> {
        let mut words = SplitWords { rounded: Vec::new(), rest: Vec::new() };
        if atom == MmaAtom::M16N8K8Tf32x3 {
            for &x in regs {
                let rounded = self.tf32(x)?;
                let near = self.b.build_bit_cast(rounded, self.cx.f32_type(), "")?.into_float_value();
                words.rounded.push(rounded);
                words.rest.push(self.tf32(self.rest(x, near)?)?);
            }
            return Ok(words);
        }
        // Of 16 elements along K, a lane has one of each four. A word has those of two neighbouring fours, in both operands alike.
        let pairs: &[(usize, usize)] = match side {
            Side::Left => &[(0, 2), (1, 3), (4, 6), (5, 7)],
            Side::Right => &[(0, 1), (2, 3)],
        };
        let f32t = self.cx.f32_type();
        for block in regs.chunks(2 * pairs.len()) {
            for &(low, high) in pairs {
                let word = self.bf16_pair([block[low], block[high]])?;
                let shifted = self.b.build_left_shift(word, self.i32(16), "")?;
                let upper = self.b.build_and(word, self.i32(-0x1_0000), "")?;
                let low_near = self.b.build_bit_cast(shifted, f32t, "")?.into_float_value();
                let high_near = self.b.build_bit_cast(upper, f32t, "")?.into_float_value();
                let rests = [self.rest(block[low], low_near)?, self.rest(block[high], high_near)?];
                words.rounded.push(word.into());
                words.rest.push(self.bf16_pair(rests)?.into());
            }
        }
        Ok(words)
    }

    /// An f32 rounded to tf32, as the bits of an instruction's operand.
    fn tf32(&self, x: BasicValueEnum<'c>) -> R<BasicValueEnum<'c>> {
        self.call("llvm.nvvm.f2tf32.rna", self.i32_type().into(), &[x])
    }

    /// Two f32 rounded to bf16, as one word.
    fn bf16_pair(&self, pair: [BasicValueEnum<'c>; 2]) -> R<IntValue<'c>> {
        let narrow = self.cast_all(&pair.to_vec(), DType::F32, DType::Bf16)?;
        self.pair(&narrow, DType::Bf16)
    }

    /// What rounding leaves of an f32, exactly; 0 of one that is infinite or no number, or that rounds to infinity. Such a number
    /// still meets both parts of the other operand, so what it reaches is infinite or no number.
    fn rest(&self, x: BasicValueEnum<'c>, near: FloatValue<'c>) -> R<BasicValueEnum<'c>> {
        let f32t = self.cx.f32_type();
        let rest = self.b.build_float_sub(x.into_float_value(), near, "")?;
        let size = self.call("llvm.fabs.f32", f32t.into(), &[rest.into()])?.into_float_value();
        let infinity = f32t.const_float(f64::INFINITY);
        let is_finite = self.b.build_float_compare(FloatPredicate::OLT, size, infinity, "")?;
        Ok(self.b.build_select(is_finite, rest, f32t.const_zero(), "")?)
    }

    /// The registers of an operand: words of two 16-bit elements, unless they were loaded as such, of an element rounded to
    /// tf32, or an f64.
    pub(super) fn operand_words(&self, v: Value) -> R<Regs<'c>> {
        let dtype = self.k.tile(v).0;
        let regs = self.regs(v)?;
        match (dtype, regs.first()) {
            (DType::F64, _) | (_, Some(BasicValueEnum::IntValue(_))) => Ok(regs.clone()),
            (DType::F32, _) => regs.iter().map(|&r| self.tf32(r)).collect(),
            _ => regs.chunks(2).map(|pair| Ok(self.pair(pair, dtype)?.into())).collect(),
        }
    }

    /// Two 16-bit registers as one 32-bit register.
    pub(super) fn pair(&self, values: &[BasicValueEnum<'c>], dtype: DType) -> R<IntValue<'c>> {
        let v = self.pack(values, dtype)?;
        Ok(self.b.build_bit_cast(v, self.i32_type(), "")?.into_int_value())
    }

    fn mma_step(
        &self,
        atom: MmaAtom,
        a: &[BasicValueEnum<'c>],
        b: &[BasicValueEnum<'c>],
        c: &[BasicValueEnum<'c>],
    ) -> R<Vec<BasicValueEnum<'c>>> {
        let info = atom.row();
        let types = match info.operand {
            DType::Bf16 => "bf16",
            DType::F32 if atom == MmaAtom::M16N8K16Bf16x3 => "bf16",
            DType::F16 => "f32.f32",
            DType::F32 => "tf32",
            DType::F64 => "f64",
            _ => return Err(CompileError::bug(format!("{} has no steps", info.name))),
        };
        let (m, n, k) = info.shape;
        let name = format!("llvm.nvvm.mma.m{m}n{n}k{k}.row.col.{types}");
        let out = struct_of(self.cx, element(self.cx, info.accumulator), 4);
        let mut args: Vec<BasicValueEnum<'c>> = Vec::new();
        for &r in a.iter().chain(b) {
            args.push(if info.operand == DType::F16 {
                self.b.build_bit_cast(r, self.cx.f16_type().vec_type(2), "")?
            } else {
                r
            });
        }
        args.extend_from_slice(c);
        let r = self.call(&name, out.into(), &args)?;
        self.fields(r, 4)
    }
}
