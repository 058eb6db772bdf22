//! Transcendental functions: the expansions of [`crate::math`] as LLVM instructions.

use super::{Emitter, R};
use crate::error::CompileError;
use crate::gpu::Accuracy;
use crate::math::{self, Arith};
use atlas_dsl::op::{BinaryOp, UnaryOp};
use inkwell::FloatPredicate;
use inkwell::builder::BuilderError;
use inkwell::values::{BasicValueEnum, FloatValue, IntValue};

/// Emits arithmetic. Keeps the first error, after which values have no meaning.
struct Expand<'e, 'c, 'k> {
    e: &'e Emitter<'c, 'k>,
    error: Option<CompileError>,
}

impl<'c> Emitter<'c, '_> {
    /// An elementary function of f32.
    pub(super) fn math(&mut self, op: UnaryOp, by: Accuracy, x: FloatValue<'c>) -> R<FloatValue<'c>> {
        let mut a = Expand { e: self, error: None };
        let y = match by {
            Accuracy::Approximate => math::approximate(&mut a, op, x),
            Accuracy::Precise => math::precise(&mut a, op, x),
        };
        match (a.error, y) {
            (Some(error), _) => Err(error),
            (None, Some(y)) => Ok(y),
            (None, None) => Err(CompileError::bug(format!("no expansion of `{}`", op.name()))),
        }
    }

    /// A function of two operands of f32.
    pub(super) fn math_of_two(&self, op: BinaryOp, x: FloatValue<'c>, y: FloatValue<'c>) -> R<FloatValue<'c>> {
        let mut a = Expand { e: self, error: None };
        let z = math::precise_of_two(&mut a, op, x, y);
        match (a.error, z) {
            (Some(error), _) => Err(error),
            (None, Some(z)) => Ok(z),
            (None, None) => Err(CompileError::bug(format!("no expansion of `{}`", op.name()))),
        }
    }
}

impl<'c> Expand<'_, 'c, '_> {
    fn float(&mut self, r: Result<FloatValue<'c>, BuilderError>) -> FloatValue<'c> {
        r.unwrap_or_else(|e| {
            self.error.get_or_insert(e.into());
            self.e.cx.f32_type().get_undef()
        })
    }

    fn int(&mut self, r: Result<IntValue<'c>, BuilderError>) -> IntValue<'c> {
        r.unwrap_or_else(|e| {
            self.error.get_or_insert(e.into());
            self.e.cx.i32_type().get_undef()
        })
    }

    fn value(&mut self, r: Result<BasicValueEnum<'c>, BuilderError>) -> BasicValueEnum<'c> {
        r.unwrap_or_else(|e| {
            self.error.get_or_insert(e.into());
            self.e.cx.f32_type().get_undef().into()
        })
    }

    fn call(&mut self, name: &str, args: &[FloatValue<'c>]) -> FloatValue<'c> {
        let args: Vec<BasicValueEnum<'c>> = args.iter().map(|&a| a.into()).collect();
        match self.e.call(name, self.e.cx.f32_type().into(), &args) {
            Ok(v) => v.into_float_value(),
            Err(e) => {
                self.error.get_or_insert(e);
                self.e.cx.f32_type().get_undef()
            }
        }
    }
}

impl<'c> Arith for Expand<'_, 'c, '_> {
    type F = FloatValue<'c>;
    type I = IntValue<'c>;
    type B = IntValue<'c>;

    fn f(&mut self, x: f32) -> Self::F {
        self.e.cx.f32_type().const_float(f64::from(x))
    }
    fn i(&mut self, x: i32) -> Self::I {
        self.e.i32(i64::from(x))
    }
    fn add(&mut self, x: Self::F, y: Self::F) -> Self::F {
        let r = self.e.b.build_float_add(x, y, "");
        self.float(r)
    }
    fn sub(&mut self, x: Self::F, y: Self::F) -> Self::F {
        let r = self.e.b.build_float_sub(x, y, "");
        self.float(r)
    }
    fn mul(&mut self, x: Self::F, y: Self::F) -> Self::F {
        let r = self.e.b.build_float_mul(x, y, "");
        self.float(r)
    }
    fn fma(&mut self, x: Self::F, y: Self::F, z: Self::F) -> Self::F {
        self.call("llvm.fma.f32", &[x, y, z])
    }
    fn div(&mut self, x: Self::F, y: Self::F) -> Self::F {
        let r = self.e.b.build_float_div(x, y, "");
        self.float(r)
    }
    fn sqrt(&mut self, x: Self::F) -> Self::F {
        self.call("llvm.sqrt.f32", &[x])
    }
    fn neg(&mut self, x: Self::F) -> Self::F {
        let r = self.e.b.build_float_neg(x, "");
        self.float(r)
    }
    fn abs(&mut self, x: Self::F) -> Self::F {
        self.call("llvm.fabs.f32", &[x])
    }
    fn copysign(&mut self, x: Self::F, sign: Self::F) -> Self::F {
        self.call("llvm.copysign.f32", &[x, sign])
    }
    fn minimum(&mut self, x: Self::F, y: Self::F) -> Self::F {
        self.call("llvm.minimum.f32", &[x, y])
    }
    fn maximum(&mut self, x: Self::F, y: Self::F) -> Self::F {
        self.call("llvm.maximum.f32", &[x, y])
    }
    fn lt(&mut self, x: Self::F, y: Self::F) -> Self::B {
        let r = self.e.b.build_float_compare(FloatPredicate::OLT, x, y, "");
        self.int(r)
    }
    fn eq(&mut self, x: Self::F, y: Self::F) -> Self::B {
        let r = self.e.b.build_float_compare(FloatPredicate::OEQ, x, y, "");
        self.int(r)
    }
    fn select(&mut self, c: Self::B, x: Self::F, y: Self::F) -> Self::F {
        let r = self.e.b.build_select(c, x, y, "");
        self.value(r).into_float_value()
    }
    fn bits(&mut self, x: Self::F) -> Self::I {
        let r = self.e.b.build_bit_cast(x, self.e.cx.i32_type(), "");
        self.value(r).into_int_value()
    }
    fn from_bits(&mut self, x: Self::I) -> Self::F {
        let r = self.e.b.build_bit_cast(x, self.e.cx.f32_type(), "");
        self.value(r).into_float_value()
    }
    fn iadd(&mut self, x: Self::I, y: Self::I) -> Self::I {
        let r = self.e.b.build_int_add(x, y, "");
        self.int(r)
    }
    fn isub(&mut self, x: Self::I, y: Self::I) -> Self::I {
        let r = self.e.b.build_int_sub(x, y, "");
        self.int(r)
    }
    fn ixor(&mut self, x: Self::I, y: Self::I) -> Self::I {
        let r = self.e.b.build_xor(x, y, "");
        self.int(r)
    }
    fn shl(&mut self, x: Self::I, by: u32) -> Self::I {
        let r = self.e.b.build_left_shift(x, self.e.i32(i64::from(by)), "");
        self.int(r)
    }
    fn ashr(&mut self, x: Self::I, by: u32) -> Self::I {
        let r = self.e.b.build_right_shift(x, self.e.i32(i64::from(by)), true, "");
        self.int(r)
    }
    fn approx_ex2(&mut self, x: Self::F) -> Self::F {
        self.call("llvm.nvvm.ex2.approx.ftz.f32", &[x])
    }
    fn approx_rcp(&mut self, x: Self::F) -> Self::F {
        self.call("llvm.nvvm.rcp.approx.ftz.f", &[x])
    }
    fn approx_rsqrt(&mut self, x: Self::F) -> Self::F {
        self.call("llvm.nvvm.rsqrt.approx.ftz.f", &[x])
    }
    fn approx_sqrt(&mut self, x: Self::F) -> Self::F {
        self.call("llvm.nvvm.sqrt.approx.ftz.f", &[x])
    }
}
