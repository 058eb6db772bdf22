//! Reduces within a warp: registers pairwise, then lanes by butterfly shuffles.

use super::{Emitter, R, Regs};
use crate::error::CompileError;
use crate::gpu::{Accuracy, Value};
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, ReduceOp};
use inkwell::values::BasicValueEnum;
use std::collections::BTreeMap;

impl<'c> Emitter<'c, '_> {
    pub(super) fn reduce(&mut self, op: ReduceOp, value: Value, axes: &[u8], result: Option<Value>) -> R<Regs<'c>> {
        let result = result.ok_or_else(|| CompileError::bug("a reduction without a result"))?;
        let (dtype, source) = self.k.tile(value);
        let source = source.clone();
        let layout = self.k.tile(result).1.clone();
        let regs = self.regs(value)?.clone();
        let combine = op.combine();
        // Group the registers that reduce to one.
        let rank = source.shape.len();
        let mut groups: BTreeMap<Vec<u32>, Vec<BasicValueEnum<'c>>> = BTreeMap::new();
        for (r, x) in regs.into_iter().enumerate() {
            let mut c = source.reg_coord(r as u32);
            for &a in axes {
                c[usize::from(a)] = 0;
            }
            groups.entry(c).or_default().push(x);
        }
        let mut out = Vec::with_capacity(layout.reg_count() as usize);
        for r in 0..layout.reg_count() {
            let mut c = layout.reg_coord(r);
            c.truncate(rank);
            let group =
                groups.get(&c).ok_or_else(|| CompileError::bug(format!("no registers reduce to {c:?}")))?.clone();
            let one = self.tree(combine, dtype, group)?;
            out.push(self.across_lanes(combine, dtype, one, &source, axes)?);
        }
        Ok(out)
    }

    /// Reduces pairwise, which gives short chains, and sums whose error grows with the logarithm of their length.
    fn tree(&mut self, op: BinaryOp, dtype: DType, mut v: Vec<BasicValueEnum<'c>>) -> R<BasicValueEnum<'c>> {
        while v.len() > 1 {
            let mut next = Vec::with_capacity(v.len().div_ceil(2));
            for pair in v.chunks(2) {
                next.push(match *pair {
                    [a, b] => self.binary((op, Accuracy::Precise), dtype, a, b)?,
                    _ => pair[0],
                });
            }
            v = next;
        }
        v.pop().ok_or_else(|| CompileError::bug("a reduction of nothing"))
    }

    fn across_lanes(
        &mut self,
        op: BinaryOp,
        dtype: DType,
        x: BasicValueEnum<'c>,
        source: &crate::layout::Fragment,
        axes: &[u8],
    ) -> R<BasicValueEnum<'c>> {
        // 16-bit values travel as f32, exactly.
        let (mut x, wide) = if dtype.is_half() { (self.cast(x, dtype, DType::F32)?, DType::F32) } else { (x, dtype) };
        let mut below = 1;
        for m in &source.threads {
            if below >= 32 {
                break;
            }
            if m.axis.is_some_and(|a| axes.contains(&a)) {
                let mut step = 1;
                while step < m.extent {
                    let other = self.shuffle_xor(x, below * step)?;
                    x = self.binary((op, Accuracy::Precise), wide, x, other)?;
                    step *= 2;
                }
            }
            below *= m.extent;
        }
        if wide == dtype { Ok(x) } else { self.cast(x, wide, dtype) }
    }
}
