//! Transcendental functions.
use super::{Emitter, R};
use atlas_dsl::op::UnaryOp;
use inkwell::values::FloatValue;

impl<'c> Emitter<'c, '_> {
    pub(super) fn math(&mut self, op: UnaryOp, x: FloatValue<'c>) -> R<FloatValue<'c>> {
        let f = self.cx.f32_type();
        let c = |v: f64| f.const_float(v);
        let call1 = |e: &Self, n: &str, x: FloatValue<'c>| -> R<FloatValue<'c>> { Ok(e.call(n, f.into(), &[x.into()])?.into_float_value()) };
        Ok(match op {
            UnaryOp::Exp => { let t = self.b.build_float_mul(x, c(std::f64::consts::LOG2_E), "")?; call1(self, "llvm.nvvm.ex2.approx.ftz.f", t)? }
            UnaryOp::Rsqrt => call1(self, "llvm.nvvm.rsqrt.approx.f", x)?,
            UnaryOp::Sqrt => call1(self, "llvm.nvvm.sqrt.approx.f", x)?,
            _ => x,
        })
    }
}
