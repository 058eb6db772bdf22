//! Scans within a warp: digit by digit of the index along the axis, from the one of the smallest steps on.

use super::{Emitter, R, Regs};
use crate::error::CompileError;
use crate::gpu::{Accuracy, Direction, Value};
use crate::layout::RowDigit;
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, ReduceOp};
use inkwell::IntPredicate;
use inkwell::values::{BasicValueEnum, IntValue};
use std::collections::BTreeMap;

/// How two elements are combined, and what changes none.
#[derive(Clone, Copy)]
struct Combined {
    op: BinaryOp,
    dtype: DType,
    neutral: f64,
}

impl<'c> Emitter<'c, '_> {
    /// What an element is combined with grows by one digit at a time: first by the elements of its row in the thread's adjacent
    /// registers, say, then by those of other lanes. Each register knows, beside its own result, what the whole group of the digits
    /// so far comes to, which is one number for all registers that differ in these digits alone.
    pub(super) fn scan(&mut self, op: ReduceOp, direction: Direction, value: Value, axis: u8) -> R<Regs<'c>> {
        let (dtype, layout) = self.k.tile(value);
        let digits = layout.row_digits(axis).ok_or_else(|| CompileError::bug("a scan of rows that warps share"))?;
        // 16-bit values travel as f32, exactly.
        let wide = if dtype.is_half() { DType::F32 } else { dtype };
        let combined = Combined { op: op.combine(), dtype: wide, neutral: op.neutral(wide) };
        let mut own = self.regs(value)?.clone();
        if wide != dtype {
            own = own.into_iter().map(|x| self.cast(x, dtype, wide)).collect::<R<_>>()?;
        }
        let mut groups: BTreeMap<usize, BasicValueEnum<'c>> = own.iter().copied().enumerate().collect();
        // The register by which a group is known: all digits of the row that have been done are 0.
        let mut group_of: Vec<usize> = (0..own.len()).collect();
        for (n, &digit) in digits.iter().enumerate() {
            let is_last = n + 1 == digits.len();
            match digit {
                RowDigit::Registers { extent, step } => {
                    let digit = |r: usize| r as u32 / step % extent;
                    let first = |r: usize| r - (digit(r) * step) as usize;
                    let (before, after) = self.along_registers(combined, direction, &groups, (extent, step))?;
                    for r in 0..own.len() {
                        if let Some(&x) = before.get(&group_of[r]) {
                            own[r] = self.combine(combined, x, own[r])?;
                        }
                        group_of[r] = first(group_of[r]);
                    }
                    groups = after;
                }
                RowDigit::Lanes { extent, step } => {
                    let mut before = BTreeMap::new();
                    for (&group, all) in &mut groups {
                        let (x, sum) = self.along_lanes(combined, direction, *all, (extent, step), is_last)?;
                        before.insert(group, x);
                        *all = sum;
                    }
                    for r in 0..own.len() {
                        own[r] = self.combine(combined, before[&group_of[r]], own[r])?;
                    }
                }
            }
        }
        if wide == dtype { Ok(own) } else { own.into_iter().map(|x| self.cast(x, wide, dtype)).collect() }
    }

    fn combine(&mut self, by: Combined, a: BasicValueEnum<'c>, b: BasicValueEnum<'c>) -> R<BasicValueEnum<'c>> {
        self.binary((by.op, Accuracy::Precise), by.dtype, a, b)
    }

    /// For groups that differ in a digit of the register: what is before each of them, if anything is, and what all of them come
    /// to, by the group whose digit is 0.
    fn along_registers(
        &mut self,
        by: Combined,
        direction: Direction,
        groups: &BTreeMap<usize, BasicValueEnum<'c>>,
        (extent, step): (u32, u32),
    ) -> R<(BTreeMap<usize, BasicValueEnum<'c>>, BTreeMap<usize, BasicValueEnum<'c>>)> {
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        for &first in groups.keys().filter(|&&r| (r as u32 / step).is_multiple_of(extent)) {
            let mut met: Option<BasicValueEnum<'c>> = None;
            for n in 0..extent {
                let digit = if direction == Direction::Up { n } else { extent - 1 - n };
                let group = first + (digit * step) as usize;
                met = Some(match met {
                    Some(met) => {
                        before.insert(group, met);
                        self.combine(by, met, groups[&group])?
                    }
                    None => groups[&group],
                });
            }
            after.extend(met.map(|met| (first, met)));
        }
        Ok((before, after))
    }

    /// What the lanes before this one come to, and what all of them come to: butterfly shuffles, after each of which a lane knows
    /// the sum of twice as many. The sum of all is not needed after the last digit.
    fn along_lanes(
        &mut self,
        by: Combined,
        direction: Direction,
        own: BasicValueEnum<'c>,
        (extent, step): (u32, u32),
        is_last: bool,
    ) -> R<(BasicValueEnum<'c>, BasicValueEnum<'c>)> {
        let (mut before, mut all) = (self.constant(by.dtype, by.neutral), own);
        let mut bit = step;
        while bit < step * extent {
            let other = self.shuffle_xor(all, bit)?;
            let is_after = self.lane_is_after(direction, bit)?;
            let more = self.combine(by, other, before)?;
            before = self.b.build_select(is_after, more, before, "")?;
            bit *= 2;
            if !is_last || bit < step * extent {
                all = self.combine(by, all, other)?;
            }
        }
        Ok((before, all))
    }

    /// True for a lane whose elements come after those of the lane that differs from it in a bit of its number.
    fn lane_is_after(&self, direction: Direction, bit: u32) -> R<IntValue<'c>> {
        let own = self.b.build_and(self.coords.tid, self.i32(i64::from(bit)), "")?;
        let predicate = if direction == Direction::Up { IntPredicate::NE } else { IntPredicate::EQ };
        Ok(self.b.build_int_compare(predicate, own, self.i32(0), "")?)
    }
}
