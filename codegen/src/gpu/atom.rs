//! The table of matrix atoms: PTX form, shape, operand layouts, and what a target must offer.

use super::warp_grid::{Split, WarpGrid, warp_grid_of};
use crate::arch::{Capability, Target};
use crate::layout::{Fragment, Mode};
use atlas_dsl::op::Precision;
use atlas_dsl::{DType, table};

/// An operand of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// `[M, K]`.
    Left,
    /// `[K, N]`.
    Right,
}

impl Side {
    /// Both.
    pub const ALL: [Side; 2] = [Side::Left, Side::Right];

    /// The word of the text form.
    pub fn name(self) -> &'static str {
        match self {
            Side::Left => "left",
            Side::Right => "right",
        }
    }

    /// The axis that is not K.
    pub fn outer(self) -> u8 {
        match self {
            Side::Left => 0,
            Side::Right => 1,
        }
    }
}

/// One row of the table of matrix atoms.
#[derive(Clone, Copy, Debug)]
pub struct MmaInfo {
    /// Spelling in the text form.
    pub name: &'static str,
    /// Element type of both operands in memory.
    pub operand: DType,
    /// Element type of the accumulator.
    pub accumulator: DType,
    /// Extents of one instruction: M, N, K.
    pub shape: (u32, u32, u32),
    /// What a target needs to have it; nothing if each has it.
    pub needs: Option<Capability>,
    /// Multiply-adds of 16-bit operands that tensor cores do in the time of one.
    pub time: u32,
    /// True if a warpgroup issues it and waits for it later, and it reads shared memory itself, by descriptors.
    pub asynchronous: bool,
    /// True if f32 operands are split: each is a number of the instruction's type and what that leaves, rounded to it too. Three
    /// products of these are added, all but that of the two rests.
    pub is_split: bool,
}

table! {
    /// A matrix instruction.
    MmaAtom: MmaInfo {
        /// `mma.sync.m16n8k16` on bf16.
        M16N8K16Bf16 = MmaInfo {
            name: "mma.m16n8k16.bf16",
            operand: DType::Bf16,
            accumulator: DType::F32,
            shape: (16, 8, 16),
            needs: Some(Capability::MmaHalf),
            time: 1,
            asynchronous: false,
            is_split: false,
        },
        /// `mma.sync.m16n8k16` on f16.
        M16N8K16F16 = MmaInfo {
            name: "mma.m16n8k16.f16",
            operand: DType::F16,
            accumulator: DType::F32,
            shape: (16, 8, 16),
            needs: Some(Capability::MmaHalf),
            time: 1,
            asynchronous: false,
            is_split: false,
        },
        /// `mma.sync.m16n8k8` on tf32.
        M16N8K8Tf32 = MmaInfo {
            name: "mma.m16n8k8.tf32",
            operand: DType::F32,
            accumulator: DType::F32,
            shape: (16, 8, 8),
            needs: Some(Capability::MmaTf32),
            time: 2,
            asynchronous: false,
            is_split: false,
        },
        /// Three `mma.sync.m16n8k16` on the parts of f32 operands that are split into bf16.
        M16N8K16Bf16x3 = MmaInfo {
            name: "mma.m16n8k16.bf16x3",
            operand: DType::F32,
            accumulator: DType::F32,
            shape: (16, 8, 16),
            needs: Some(Capability::MmaHalf),
            time: 3,
            asynchronous: false,
            is_split: true,
        },
        /// Three `mma.sync.m16n8k8` on the parts of f32 operands that are split into tf32.
        M16N8K8Tf32x3 = MmaInfo {
            name: "mma.m16n8k8.tf32x3",
            operand: DType::F32,
            accumulator: DType::F32,
            shape: (16, 8, 8),
            needs: Some(Capability::MmaTf32),
            time: 6,
            asynchronous: false,
            is_split: true,
        },
        /// `mma.sync.m16n8k8` on f64.
        M16N8K8F64 = MmaInfo {
            name: "mma.m16n8k8.f64",
            operand: DType::F64,
            accumulator: DType::F64,
            shape: (16, 8, 8),
            needs: Some(Capability::MmaF64),
            time: 16,
            asynchronous: false,
            is_split: false,
        },
        /// Fused multiply-add of f32, one element at a time.
        FmaF32 = MmaInfo {
            name: "fma.f32",
            operand: DType::F32,
            accumulator: DType::F32,
            shape: (1, 1, 1),
            needs: None,
            time: 1,
            asynchronous: false,
            is_split: false,
        },
        /// Fused multiply-add of f64, one element at a time.
        FmaF64 = MmaInfo {
            name: "fma.f64",
            operand: DType::F64,
            accumulator: DType::F64,
            shape: (1, 1, 1),
            needs: None,
            time: 1,
            asynchronous: false,
            is_split: false,
        },
        /// `wgmma.mma_async.m64nNk16` on bf16.
        WgmmaBf16 = MmaInfo {
            name: "wgmma.m64k16.bf16",
            operand: DType::Bf16,
            accumulator: DType::F32,
            shape: (64, 8, 16),
            needs: Some(Capability::Wgmma),
            time: 1,
            asynchronous: true,
            is_split: false,
        },
        /// `wgmma.mma_async.m64nNk16` on f16.
        WgmmaF16 = MmaInfo {
            name: "wgmma.m64k16.f16",
            operand: DType::F16,
            accumulator: DType::F32,
            shape: (64, 8, 16),
            needs: Some(Capability::Wgmma),
            time: 1,
            asynchronous: true,
            is_split: false,
        },
        /// `wgmma.mma_async.m64nNk8` on tf32, to which it truncates f32. Both operands run along K.
        WgmmaTf32 = MmaInfo {
            name: "wgmma.m64k8.tf32",
            operand: DType::F32,
            accumulator: DType::F32,
            shape: (64, 8, 8),
            needs: Some(Capability::Wgmma),
            time: 2,
            asynchronous: true,
            is_split: false,
        },
    }
}

/// Columns of the widest product that one `wgmma` makes.
pub const WGMMA_COLUMNS: u32 = 256;
/// Warps of a warpgroup.
pub const WARPGROUP: u32 = 4;

/// Rows of a product that a warpgroup has next to each other.
pub const WARPGROUP_ROWS: u32 = 64;

impl MmaAtom {
    /// The synchronous atom that multiplies `operand` at a precision on a target.
    pub fn select(operand: DType, precision: Precision, target: Target) -> Option<MmaAtom> {
        let atom = match (operand, precision) {
            (DType::Bf16, _) => MmaAtom::M16N8K16Bf16,
            (DType::F16, _) => MmaAtom::M16N8K16F16,
            (DType::F32, Precision::Tf32) => MmaAtom::M16N8K8Tf32,
            // Exact products are within what split ones promise.
            (DType::F32, Precision::Bf16x3) if MmaAtom::M16N8K16Bf16x3.is_on(target) => MmaAtom::M16N8K16Bf16x3,
            (DType::F32, Precision::Tf32x3) if MmaAtom::M16N8K8Tf32x3.is_on(target) => MmaAtom::M16N8K8Tf32x3,
            (DType::F32, _) => MmaAtom::FmaF32,
            (DType::F64, _) if MmaAtom::M16N8K8F64.is_on(target) => MmaAtom::M16N8K8F64,
            (DType::F64, _) => MmaAtom::FmaF64,
            _ => return None,
        };
        atom.is_on(target).then_some(atom)
    }

    /// The asynchronous atom that multiplies `operand` at a precision on a target, if there is one.
    pub fn select_asynchronous(operand: DType, precision: Precision, target: Target) -> Option<MmaAtom> {
        let atom = match (operand, precision) {
            (DType::Bf16, _) => MmaAtom::WgmmaBf16,
            (DType::F16, _) => MmaAtom::WgmmaF16,
            (DType::F32, Precision::Tf32) => MmaAtom::WgmmaTf32,
            _ => return None,
        };
        atom.is_on(target).then_some(atom)
    }

    /// True if an operand in shared memory has to run along K. An instruction transposes elements of 16 bits only.
    pub fn reads_along_k_alone(self) -> bool {
        self.row().asynchronous && !self.row().operand.is_half()
    }

    /// True if code for a target may use it.
    pub fn is_on(self, target: Target) -> bool {
        self.row().needs.is_none_or(|c| target.has(c))
    }

    /// The grid of `warps` warps over a tile `[m, n]`: the one that is given, else fewest products first, then as asked.
    pub fn warp_grid(self, m: u32, n: u32, warps: u32, split: Split) -> WarpGrid {
        let blocks_n = n.div_ceil(self.warp_block().1);
        // No more columns than there are blocks of them: the other warps repeat what these do.
        let with_rows = |rows: u32| {
            let mut cols = (warps / rows).min(blocks_n.next_power_of_two());
            while !(warps / rows).is_multiple_of(cols) {
                cols -= 1;
            }
            WarpGrid { rows, cols }
        };
        if let Split::Given(grid) = split {
            let fitting = with_rows(grid.rows);
            // Columns that nothing divides are left over at the end of the tile instead.
            return if fitting.cols < blocks_n.min(grid.cols) { grid } else { fitting };
        }
        let grids = (1..=warps).rev().filter(|m| warps.is_multiple_of(*m)).map(with_rows);
        let key = |g: &WarpGrid| {
            let (blocks_m, blocks_n) = self.warp_blocks(*g, m, n);
            let reads = if split == Split::Both { self.operand_reads(blocks_m, blocks_n) } else { 0 };
            (!self.fits(m, n, *g), blocks_m * blocks_n, reads)
        };
        // Of equals the first, which has most rows.
        grids.min_by_key(key).unwrap_or(WarpGrid { rows: 1, cols: 1 })
    }

    /// True if the instruction makes a tile `[m, n]` by a grid of warps without a part of a tile left over, which an
    /// asynchronous one has to: whole warpgroups below each other, 64 rows and as many columns each as one instruction makes.
    pub fn fits(self, m: u32, n: u32, grid: WarpGrid) -> bool {
        !self.row().asynchronous
            || (grid.rows.is_multiple_of(WARPGROUP)
                && m.is_multiple_of(16 * grid.rows)
                && n.is_multiple_of(16 * grid.cols)
                && n / grid.cols <= WGMMA_COLUMNS)
    }

    /// Blocks of rows and of columns of a product `[m, n]` that a warp has.
    pub fn warp_blocks(self, grid: WarpGrid, m: u32, n: u32) -> (u32, u32) {
        let (block_m, block_n) = self.warp_block();
        (m.div_ceil(block_m * grid.rows), n.div_ceil(block_n * grid.cols))
    }

    /// Rows and columns of the smallest tile that a warp makes: a pair of instructions on tensor cores, a vector of each lane
    /// elsewhere.
    pub fn warp_block(self) -> (u32, u32) {
        if self.is_tensor_core() { (16, 16) } else { (4, 32) }
    }

    /// Reads of shared memory for a step of a warp's product of so many blocks of rows and of columns.
    pub fn operand_reads(self, rows: u32, cols: u32) -> u32 {
        match self.row().asynchronous {
            // An instruction reads its 64 rows and all its columns; a warp's share of the rows is a block.
            true => rows * (WARPGROUP + cols),
            // A block of tensor cores' operands is an `ldmatrix`.
            false if self.is_tensor_core() => rows + cols,
            // A row is a read and a vector of columns four.
            false => rows + 4 * cols,
        }
    }

    /// The same where the left operand is in registers.
    pub fn right_reads(self, rows: u32, cols: u32) -> u32 {
        if self.row().asynchronous { rows * cols } else { self.operand_reads(0, cols) }
    }

    /// True for tensor-core atoms.
    pub fn is_tensor_core(self) -> bool {
        self.row().shape != (1, 1, 1)
    }

    /// The accumulator's layout for a tile `[m, n]` over `warps` warps, which share it by a grid.
    ///
    /// Tensor cores: lane `4g + t` holds rows `g` and `g + 8`, columns `2t` and `2t + 1` of each 16x8
    /// block (PTX ISA, mma.m16n8k16 accumulator).
    pub fn accumulator(self, m: u32, n: u32, grid: WarpGrid, warps: u32) -> Fragment {
        if !self.is_tensor_core() {
            return Self::fma_accumulator(m, n, grid, warps);
        }
        let rep_m = m.div_ceil(16 * grid.rows);
        // Blocks of 8 columns per warp, an even number so that operands load in pairs.
        let rep_n = n.div_ceil(16 * grid.cols) * 2;
        let threads = [
            Mode::new(4, 2, 1),
            Mode::new(8, 1, 0),
            Mode::new(grid.rows, 16, 0),
            Mode::new(grid.cols, 8 * rep_n, 1),
            Mode::replicated(warps / grid.warps()),
        ];
        let regs =
            [Mode::new(2, 1, 1), Mode::new(2, 8, 0), Mode::new(rep_n, 8, 1), Mode::new(rep_m, 16 * grid.rows, 0)];
        Self::fragment(m, n, &threads, &regs)
    }

    /// The layout in which registers serve as the left operand `[m, k]` of a product whose accumulator's warps lie in a
    /// grid. Tensor-core atoms only.
    ///
    /// Lane `4g + t` holds, of rows `g` and `g + 8` of each 16 rows, elements `2t`, `2t + 1` of each 8 along K if they are of
    /// 16 bits, and elements `t` of each 4 if of more (PTX ISA, mma.m16n8k16 and mma.m16n8k8, fragments of A). Operands that are
    /// split lie as they are in memory, and the order of their elements along K is another one in the instruction.
    pub fn left_operand(self, m: u32, k: u32, grid: WarpGrid, warps: u32) -> Fragment {
        let rows = Mode::new(2, 8, 0);
        let (lanes, held) = match self.row().operand {
            DType::F32 | DType::F64 => {
                (Mode::new(4, 1, 1), [rows, Mode::new(2 * k.div_ceil(8), 4, 1), Mode::new(1, 1, 1)])
            }
            _ => (Mode::new(4, 2, 1), [Mode::new(2, 1, 1), rows, Mode::new(2 * k.div_ceil(16), 8, 1)]),
        };
        let threads = [
            lanes,
            Mode::new(8, 1, 0),
            Mode::new(grid.rows, 16, 0),
            Mode::replicated(grid.cols),
            Mode::replicated(warps / grid.warps()),
        ];
        let blocks = Mode::new(m.div_ceil(16 * grid.rows), 16 * grid.rows, 0);
        Self::fragment(m, k, &threads, &[held[0], held[1], held[2], blocks])
    }

    /// The layout in which registers serve as the right operand `[k, n]` of one step along K. Tensor-core atoms only.
    ///
    /// Lane `4g + t` holds column `g` of each 8 columns, and along K what a lane of the left operand does (PTX ISA,
    /// mma.m16n8k16 and mma.m16n8k8, fragments of B).
    pub fn right_operand(self, k: u32, n: u32, grid: WarpGrid, warps: u32) -> Fragment {
        let (lanes, held) = match self.row().operand {
            DType::F32 | DType::F64 => (Mode::new(4, 1, 0), [Mode::new(2 * k.div_ceil(8), 4, 0), Mode::new(1, 1, 0)]),
            _ => (Mode::new(4, 2, 0), [Mode::new(2, 1, 0), Mode::new(2, 8, 0)]),
        };
        // As the accumulator has them.
        let blocks = n.div_ceil(16 * grid.cols) * 2;
        let threads = [
            lanes,
            Mode::new(8, 1, 1),
            Mode::replicated(grid.rows),
            Mode::new(grid.cols, 8 * blocks, 1),
            Mode::replicated(warps / grid.warps()),
        ];
        Self::fragment(k, n, &threads, &[held[0], held[1], Mode::new(blocks, 8, 1)])
    }

    /// The layout of an operand `[m, k]` or `[k, n]` of a step of a product whose accumulator has a layout.
    pub fn operand(self, side: Side, shape: [u32; 2], accumulator: &Fragment) -> Fragment {
        let (grid, warps) = (warp_grid_of(accumulator), accumulator.thread_count() / 32);
        match side {
            Side::Left => self.left_operand(shape[0], shape[1], grid, warps),
            Side::Right => self.right_operand(shape[0], shape[1], grid, warps),
        }
    }

    /// Four columns per vector, 8 x 4 lanes.
    fn fma_accumulator(m: u32, n: u32, grid: WarpGrid, warps: u32) -> Fragment {
        let threads = [
            Mode::new(8, 4, 1),
            Mode::new(4, 1, 0),
            Mode::new(grid.rows, 4, 0),
            Mode::new(grid.cols, 32, 1),
            Mode::replicated(warps / grid.warps()),
        ];
        let regs = [
            Mode::new(4, 1, 1),
            Mode::new(n.div_ceil(32 * grid.cols), 32 * grid.cols, 1),
            Mode::new(m.div_ceil(4 * grid.rows), 4 * grid.rows, 0),
        ];
        Self::fragment(m, n, &threads, &regs)
    }

    fn fragment(m: u32, n: u32, threads: &[Mode], regs: &[Mode]) -> Fragment {
        let keep = |modes: &[Mode]| modes.iter().filter(|x| x.extent != 1).copied().collect();
        Fragment { shape: vec![m, n], threads: keep(threads), regs: keep(regs) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accumulator_is_the_next_left_operand_when_warps_split_rows() {
        for (m, n) in [(64, 64), (64, 32), (128, 128)] {
            let warps = m / 16;
            let rows = WarpGrid { rows: warps, cols: 1 };
            let acc = MmaAtom::M16N8K16Bf16.accumulator(m, n, rows, warps);
            assert!(acc.same_map(&MmaAtom::M16N8K16Bf16.left_operand(m, n, rows, warps)), "{acc}");
        }
        // Warps that split columns break it.
        let both = WarpGrid { rows: 4, cols: 2 };
        let acc = MmaAtom::M16N8K16Bf16.accumulator(64, 64, both, 8);
        assert!(!acc.same_map(&MmaAtom::M16N8K16Bf16.left_operand(64, 64, both, 8)));
    }

    #[test]
    fn accumulators_cover_any_extent() {
        for atom in [MmaAtom::M16N8K16Bf16, MmaAtom::FmaF32] {
            for (m, n, warps) in [(48, 192, 3), (1, 8, 4), (64, 256, 4), (208, 96, 8), (16, 16, 8)] {
                for split in [Split::Rows, Split::Both] {
                    let grid = atom.warp_grid(m, n, warps, split);
                    let f = atom.accumulator(m, n, grid, warps);
                    assert_eq!(f.thread_count(), warps * 32);
                    assert!(f.cover(0) >= m && f.cover(1) >= n, "{f}");
                    assert_eq!(warp_grid_of(&f), grid, "{f}");
                }
            }
        }
    }

    #[test]
    fn targets_without_an_atom_do_not_get_it() {
        let volta = Target { sm: 70, specific: false };
        assert_eq!(MmaAtom::select(DType::F32, Precision::Bf16x3, volta), Some(MmaAtom::FmaF32));
        assert_eq!(MmaAtom::select(DType::F32, Precision::Tf32, volta), None);
        assert_eq!(MmaAtom::select(DType::Bf16, Precision::Default, volta), None);
        assert_eq!(MmaAtom::select(DType::F32, Precision::Default, volta), Some(MmaAtom::FmaF32));
    }
}
