//! Steps of matrix products on tensor cores.

use super::{Emitter, R, Regs, element, struct_of};
use crate::error::CompileError;
use crate::gpu::atom::MmaAtom;
use crate::gpu::{Operand, Value};
use atlas_dsl::DType;
use inkwell::values::{BasicValueEnum, IntValue};

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
        let (left, right) = (self.operand_words(a)?, self.operand_words(b)?);
        let columns = right.len() / 2;
        for (n, b) in right.chunks(2).enumerate() {
            for (m, a) in left.chunks(4).enumerate() {
                let at = (m * columns + n) * 4;
                let out = self.mma_step(atom, a, b, &acc[at..at + 4])?;
                acc[at..at + 4].copy_from_slice(&out);
            }
        }
        Ok(acc)
    }

    /// The registers of an operand: words of two 16-bit elements, unless they were loaded as such, of an element rounded to
    /// tf32, or an f64.
    pub(super) fn operand_words(&self, v: Value) -> R<Regs<'c>> {
        let dtype = self.k.tile(v).0;
        let regs = self.regs(v)?;
        match (dtype, regs.first()) {
            (DType::F64, _) | (_, Some(BasicValueEnum::IntValue(_))) => Ok(regs.clone()),
            (DType::F32, _) => {
                let round = |&r| self.call("llvm.nvvm.f2tf32.rna", self.i32_type().into(), &[r]);
                regs.iter().map(round).collect()
            }
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
