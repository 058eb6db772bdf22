//! Fragments: which element of a matrix each register of each lane holds, for `mma.sync` and for `wgmma`.
//!
//! One rule covers every shape from sm_75 to sm_90. A lane `l` has a group `g = l / 4` and a place `t = l % 4` in it.
//! - A (m x k): the group chooses one of 8 rows, and the place a run of `v` elements along k, where `v` is the number of
//!   elements in a register. Registers go first through the blocks of 8 rows, then along k by `4 v`.
//! - B (k x n): the same with columns instead of rows, and always one block of 8 columns.
//! - C and D (m x n): a place holds two neighbours along n. Pairs go first through the blocks of 8 rows, then along n in steps
//!   of 8. A register holds one element, or one pair if elements have 16 bits.

use crate::program::MmaType;
use crate::tensor::{WarpRegister, element};

/// The operand of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The left operand, m x k.
    A,
    /// The right operand, k x n.
    B,
    /// The addend or the result, m x n.
    Accumulator,
}

/// The layout of an operand over the registers of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    role: Role,
    rows: usize,
    columns: usize,
    element_bits: u32,
}

/// Lanes of a warp.
pub const LANES: usize = 32;

impl Fragment {
    /// The fragment of an operand with these rows and columns; for `wgmma`, the 16 rows of one warp.
    pub fn new(role: Role, rows: usize, columns: usize, ty: MmaType) -> Fragment {
        Fragment { role, rows, columns, element_bits: element::bits(ty) }
    }

    /// Elements in one register.
    #[inline]
    pub fn per_register(&self) -> usize {
        (32 / self.element_bits as usize).max(1)
    }

    /// Registers of a lane.
    pub fn registers(&self) -> usize {
        self.rows * self.columns / (LANES * self.per_register())
    }

    /// Row and column that element `element` of register `register` of lane `lane` holds.
    pub fn position(&self, lane: usize, register: usize, element: usize) -> (usize, usize) {
        let (group, place, v) = (lane / 4, lane % 4, self.per_register());
        let (row, column) = self.corner(register);
        match self.role {
            Role::A => (row + group, column + place * v + element),
            Role::B => (row + place * v + element, column + group),
            Role::Accumulator => (row + group, column + 2 * place + element),
        }
    }

    /// Position of the first element of lane 0's register.
    #[inline]
    fn corner(&self, register: usize) -> (usize, usize) {
        let (v, blocks) = (self.per_register(), (self.rows / 8).max(1));
        match self.role {
            Role::A => (8 * (register % blocks), 4 * v * (register / blocks)),
            Role::B => (4 * v * register, 0),
            Role::Accumulator => {
                let first = register * v;
                (8 * (first / 2 % blocks), 8 * (first / 2 / blocks) + first % 2)
            }
        }
    }

    /// The steps of a linear index by a group, a place and an element, for the given steps by a row and a column.
    fn steps(&self, row: usize, column: usize) -> [usize; 3] {
        let v = self.per_register();
        match self.role {
            Role::A => [row, v * column, column],
            Role::B => [column, v * row, row],
            Role::Accumulator => [row, 2 * column, column],
        }
    }

    /// Calls `put` with the index and the bits of every element, where rows and columns have the given steps.
    #[inline]
    pub fn scatter(&self, registers: &[WarpRegister], (row, column): (usize, usize), mut put: impl FnMut(usize, u64)) {
        match self.per_register() {
            1 => self.scatter_by::<1>(registers, row, column, &mut put),
            2 => self.scatter_by::<2>(registers, row, column, &mut put),
            _ => self.scatter_by::<4>(registers, row, column, &mut put),
        }
    }

    /// Constant widths let the compiler unroll the innermost loop.
    #[inline]
    fn scatter_by<const V: usize>(
        &self,
        registers: &[WarpRegister],
        row: usize,
        column: usize,
        put: &mut impl FnMut(usize, u64),
    ) {
        let [by_group, by_place, by_element] = self.steps(row, column);
        for (r, values) in registers.iter().enumerate().take(self.registers()) {
            let (down, right) = self.corner(r);
            let mut start = down * row + right * column;
            for group in values.chunks_exact(4) {
                let mut index = start;
                for &value in group {
                    for e in 0..V {
                        put(index.wrapping_add(e.wrapping_mul(by_element)), self.extract_of::<V>(value, e));
                    }
                    index = index.wrapping_add(by_place);
                }
                start = start.wrapping_add(by_group);
            }
        }
    }

    /// The registers with the elements that `get` gives by index.
    #[inline]
    pub fn gather(&self, (row, column): (usize, usize), get: impl Fn(usize) -> u64) -> Vec<WarpRegister> {
        match self.per_register() {
            1 => self.gather_by::<1>(row, column, &get),
            2 => self.gather_by::<2>(row, column, &get),
            _ => self.gather_by::<4>(row, column, &get),
        }
    }

    #[inline]
    fn gather_by<const V: usize>(&self, row: usize, column: usize, get: &impl Fn(usize) -> u64) -> Vec<WarpRegister> {
        let [by_group, by_place, by_element] = self.steps(row, column);
        let mut registers = vec![[0; LANES]; self.registers()];
        for (r, values) in registers.iter_mut().enumerate() {
            let (down, right) = self.corner(r);
            let mut start = down * row + right * column;
            for group in values.chunks_exact_mut(4) {
                let mut index = start;
                for value in group {
                    for e in 0..V {
                        *value |= get(index.wrapping_add(e.wrapping_mul(by_element))) << (32 / V * e);
                    }
                    index = index.wrapping_add(by_place);
                }
                start = start.wrapping_add(by_group);
            }
        }
        registers
    }

    /// `extract` for a known number of elements in a register.
    #[inline]
    fn extract_of<const V: usize>(&self, register: u64, element: usize) -> u64 {
        if V == 1 { register } else { register >> (32 / V * element) & ((1 << (32 / V)) - 1) }
    }

    /// The bits of one element of a register's value.
    #[inline]
    pub fn extract(&self, register: u64, element: usize) -> u64 {
        if self.element_bits >= 64 {
            return register;
        }
        register >> (element as u32 * self.element_bits) & ((1 << self.element_bits) - 1)
    }

    /// An element's bits at their position in a register.
    #[inline]
    pub fn insert(&self, bits: u64, element: usize) -> u64 {
        bits << (element as u32 * self.element_bits)
    }
}
