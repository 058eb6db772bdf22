//! The partial tiles that the CTAs of a split program leave for each other: how a thread moves them, and their bytes.

use super::{Kernel, Op, Value};

/// Registers of a thread that it stores and loads at once.
pub(crate) const REGISTERS_AT_ONCE: u32 = 4;
/// Their bytes, of which the address is a multiple.
pub(crate) const STEP_BYTES: u32 = 4 * REGISTERS_AT_ONCE;
/// The most loads of parts in a block, unless those of one CTA alone are more.
pub(crate) const LOADS_AT_ONCE: u32 = 16;

impl Kernel {
    /// Bytes that the CTAs of one program leave for each other in global memory: 0 if each has its own program.
    pub fn partial_bytes(&self) -> u64 {
        let sums =
            self.insts.values().filter_map(|op| if let Op::SumSplits(values) = op { Some(values) } else { None });
        let bytes = |values: &Vec<Value>| u64::from(self.partial_steps(values) * self.threads * STEP_BYTES);
        u64::from(self.index_map.splits) * sums.map(bytes).sum::<u64>()
    }

    /// The number of stores of a thread for partial tiles.
    pub(crate) fn partial_steps(&self, values: &[Value]) -> u32 {
        let registers: u32 = values.iter().map(|&v| self.tile(v).1.reg_count()).sum();
        registers.div_ceil(REGISTERS_AT_ONCE)
    }
}
