//! Thread coordinates of layouts, and byte offsets in swizzled buffers.

use super::{Emitter, R};
use crate::layout::{Fragment, Mode, SharedLayout};
use inkwell::basic_block::BasicBlock;
use inkwell::values::IntValue;
use std::collections::HashMap;

/// A runtime number with some bits known to be zero.
#[derive(Clone, Copy)]
pub(super) struct Masked<'c> {
    pub value: IntValue<'c>,
    /// Bits that may be set.
    pub bits: u32,
}

/// The number of a panel, unless the layout has one, and the column in it.
type InPanels<'c> = (Option<(Masked<'c>, u32)>, (Masked<'c>, u32));

/// The index of this thread and its coordinates computed so far. All are in one block: the kernel's first one, or that of a
/// long loop.
pub(super) struct ThreadCoords<'c> {
    pub(super) block: BasicBlock<'c>,
    /// The block in which it continues, if that is not the kernel's first.
    pub(super) rest: Option<BasicBlock<'c>>,
    /// The index of the thread in its CTA.
    pub(super) tid: IntValue<'c>,
    /// Only looked up, never iterated.
    made: HashMap<(Vec<Mode>, u8), Masked<'c>>,
}

impl<'c> ThreadCoords<'c> {
    pub(super) fn new(block: BasicBlock<'c>, tid: IntValue<'c>) -> ThreadCoords<'c> {
        ThreadCoords { block, rest: None, tid, made: HashMap::new() }
    }
}

/// The bits that `digit * scale` may set, for `digit < extent`.
fn digit_bits(extent: u32, scale: u32) -> u32 {
    if extent <= 1 || scale == 0 {
        return 0;
    }
    let top = 32 - ((extent - 1) * scale).leading_zeros();
    let low = scale.trailing_zeros();
    (u32::MAX >> (32 - top)) & !((1 << low) - 1)
}

/// The bits that a sum may set.
fn sum_bits(a: u32, b: u32) -> u32 {
    if a & b == 0 {
        return a | b;
    }
    // A carry may reach any bit above the lowest shared one.
    let low = (a | b).trailing_zeros();
    !((1u32 << low) - 1)
}

impl<'c> Emitter<'c, '_> {
    /// The coordinate along an axis that comes from this thread in a layout.
    pub(super) fn thread_coord(&mut self, layout: &Fragment, axis: u8) -> R<Masked<'c>> {
        let key = (layout.threads.clone(), axis);
        if let Some(&c) = self.coords.made.get(&key) {
            return Ok(c);
        }
        let here = self.b.get_insert_block();
        self.b.position_at_end(self.coords.block);
        let mut sum = Masked { value: self.i32(0), bits: 0 };
        let mut below = 1;
        let total = layout.thread_count();
        for m in &layout.threads {
            if m.axis == Some(axis) {
                let digit = self.digit(below, m.extent, total)?;
                let term = self.b.build_int_mul(digit, self.i32(i64::from(m.stride)), "")?;
                sum.value = self.b.build_int_add(sum.value, term, "")?;
                sum.bits = sum_bits(sum.bits, digit_bits(m.extent, m.stride));
            }
            below *= m.extent;
        }
        if let Some(block) = here {
            self.b.position_at_end(block);
        }
        self.coords.made.insert(key, sum);
        Ok(sum)
    }

    /// A digit of the thread index.
    fn digit(&self, below: u32, extent: u32, total: u32) -> R<IntValue<'c>> {
        let mut d = self.coords.tid;
        if below > 1 {
            d = self.b.build_int_unsigned_div(d, self.i32(i64::from(below)), "")?;
        }
        if below * extent < total {
            d = self.b.build_int_unsigned_rem(d, self.i32(i64::from(extent)), "")?;
        }
        Ok(d)
    }

    /// True in one thread of each group that holds the same elements; `None` if no two threads do.
    pub(super) fn is_first_copy(&mut self, layout: &Fragment) -> R<Option<IntValue<'c>>> {
        let mut below = 1;
        let total = layout.thread_count();
        let mut first: Option<IntValue<'c>> = None;
        for m in &layout.threads {
            if m.axis.is_none() && m.extent > 1 {
                let d = self.digit(below, m.extent, total)?;
                let p = self.b.build_int_compare(inkwell::IntPredicate::EQ, d, self.i32(0), "")?;
                first = Some(match first {
                    None => p,
                    Some(q) => self.b.build_and(p, q, "")?,
                });
            }
            below *= m.extent;
        }
        Ok(first)
    }

    /// `a * scale + b`, with the known bits of the result.
    pub(super) fn scale_add(&self, a: Masked<'c>, scale: u32, b: Masked<'c>) -> R<Masked<'c>> {
        let scaled = self.b.build_int_mul(a.value, self.i32(i64::from(scale)), "")?;
        let bits = if scale.is_power_of_two() {
            a.bits << scale.trailing_zeros()
        } else if a.bits == 0 {
            0
        } else {
            let low = a.bits.trailing_zeros() + scale.trailing_zeros();
            !((1u32 << low) - 1)
        };
        Ok(Masked { value: self.b.build_int_add(scaled, b.value, "")?, bits: sum_bits(bits, b.bits) })
    }

    /// Byte offset in a buffer of an element whose row and column each have a runtime and a constant part.
    ///
    /// The swizzle is linear over F2. If the two parts share no bits below its reach, their sum is their XOR, and the constant
    /// part is swizzled at compile time.
    pub(super) fn shared_offset(
        &self,
        layout: &SharedLayout,
        element_bytes: u32,
        row: (Masked<'c>, u32),
        col: (Masked<'c>, u32),
    ) -> R<IntValue<'c>> {
        let none = Masked { value: self.i32(0), bits: 0 };
        let (panels, col) = if layout.panel == layout.cols { (None, col) } else { self.in_panels(layout, col)? };
        let base = match panels {
            None => none,
            Some((moving, _)) => self.scale_add(moving, layout.panel_bytes(), none)?,
        };
        let moving = self.scale_add(col.0, element_bytes, base)?;
        let moving = self.scale_add(row.0, layout.pitch, moving)?;
        let panel = panels.map_or(0, |(_, fixed)| fixed * layout.panel_bytes());
        let fixed = panel + row.1 * layout.pitch + col.1 * element_bytes;
        let s = layout.swizzle;
        if s.bits == 0 {
            return Ok(self.b.build_int_add(moving.value, self.i32(i64::from(fixed)), "")?);
        }
        let (seen, rest) = layout.split(fixed);
        if moving.bits & seen == 0 {
            let mixed = self.swizzle(moving.value, s)?;
            // In a loop, one XOR per access is cheaper than a register per address kept across it.
            let mixed = if self.loops > 0 { self.opaque(mixed)? } else { mixed };
            let low = self.b.build_xor(mixed, self.i32(i64::from(s.apply(seen))), "")?;
            return Ok(self.b.build_int_add(low, self.i32(i64::from(rest)), "")?);
        }
        let all = self.b.build_int_add(moving.value, self.i32(i64::from(fixed)), "")?;
        self.swizzle(all, s)
    }

    /// The panel of a column, and the column in its panel, each as a runtime and a constant part.
    fn in_panels(&self, layout: &SharedLayout, col: (Masked<'c>, u32)) -> R<InPanels<'c>> {
        let panel = layout.panel;
        // Parts that share no bits below a panel's columns are added without a carry into its number.
        let apart = panel.is_power_of_two() && col.0.bits & col.1 & (panel - 1) == 0;
        let (moving, fixed) = if apart {
            col
        } else {
            let value = self.b.build_int_add(col.0.value, self.i32(i64::from(col.1)), "")?;
            (Masked { value, bits: u32::MAX }, 0)
        };
        let width = self.i32(i64::from(panel));
        let number = Masked {
            value: self.b.build_int_unsigned_div(moving.value, width, "")?,
            bits: if panel.is_power_of_two() { moving.bits >> panel.trailing_zeros() } else { u32::MAX },
        };
        let within = Masked {
            value: self.b.build_int_unsigned_rem(moving.value, width, "")?,
            bits: moving.bits & (panel.next_power_of_two() - 1),
        };
        Ok((Some((number, fixed / panel)), (within, fixed % panel)))
    }

    fn swizzle(&self, offset: IntValue<'c>, s: crate::layout::Swizzle) -> R<IntValue<'c>> {
        let shifted = self.b.build_right_shift(offset, self.i32(i64::from(s.shift)), false, "")?;
        let masked = self.b.build_and(shifted, self.i32(i64::from(s.target_mask())), "")?;
        Ok(self.b.build_xor(offset, masked, "")?)
    }
}
