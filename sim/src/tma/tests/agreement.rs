//! `wgmma` reads what TMA writes: tiles are copied in pieces and read back through descriptors.

use super::{load, store, tiled};
use crate::program::MmaType;
use crate::tensor::descriptor::{Descriptor, Major};
use crate::tensor::element;
use crate::tensor::fragment::{Fragment, Role};
use crate::tensor::layout::{K_BYTES, check, operand_offset};
use crate::tensor::swizzle::Swizzle;
use crate::tensor::{WarpRegister, matrix_load};
use crate::tma::{Element, TensorMap, pieces};

/// Where the tile begins in shared memory.
const BASE: u32 = 2048;

/// Bits of element (row, k) of the operand. They are distinct for 16-bit elements, and nearly so for 8-bit ones.
fn value(row: u32, k: u32, bits: u32) -> u64 {
    let mixed = row.wrapping_mul(256).wrapping_add(k).wrapping_mul(40503);
    u64::from(mixed) & ((1 << bits) - 1)
}

/// A tile of an operand: `rows` by `k_count` elements of this width, with one contiguous dimension.
#[derive(Clone, Copy, Debug)]
struct OperandTile {
    ty: MmaType,
    element: Element,
    major: Major,
    rows: u32,
    k_count: u32,
    swizzle: Swizzle,
}

impl OperandTile {
    fn bits(&self) -> u32 {
        element::bits(self.ty)
    }

    /// Elements of a row of a box.
    fn panel(&self) -> u32 {
        self.swizzle.span() * 8 / self.bits()
    }

    /// Contiguous and other extent.
    fn extents(&self) -> (u32, u32) {
        match self.major {
            Major::K => (self.k_count, self.rows),
            Major::Mn => (self.rows, self.k_count),
        }
    }

    /// Copies the tile from the middle of a larger tensor: one box for each panel.
    fn copy(&self) -> Vec<u8> {
        let (along, lines) = self.extents();
        let (width, height) = (along + 64, lines + 5);
        let bytes = (self.bits() / 8) as usize;
        let mut global = Vec::new();
        for (line, column) in (0..height).flat_map(|l| (0..width).map(move |c| (l, c))) {
            let (line, column) = (line.wrapping_sub(3), column.wrapping_sub(32));
            let (row, k) = if self.major == Major::K { (line, column) } else { (column, line) };
            global.extend(&value(row, k, self.bits()).to_le_bytes()[..bytes]);
        }
        let dims = [u64::from(width), u64::from(height)];
        let map = tiled(TensorMap::dense(self.element, 0x1000, &dims, &[self.panel(), lines]), self.swizzle);
        let mut shared = vec![0; (BASE + along.next_multiple_of(self.panel()) * lines * self.bits() / 8) as usize];
        for panel in 0..along.div_ceil(self.panel()) {
            let base = BASE + panel * map.box_bytes();
            let copied = pieces(&map, &[32 + (panel * self.panel()) as i32, 3], base).unwrap();
            load(&map, &copied, &global, &mut shared);
        }
        shared
    }

    /// The descriptor of the instruction that begins at element `k`.
    fn descriptor(&self, k: u32) -> Descriptor {
        let (span, repeat) = (self.swizzle.span(), self.swizzle.repeat());
        let (_, lines) = self.extents();
        let panel_bytes = lines * span;
        let k_bytes = k * self.bits() / 8;
        let (advance, leading, stride) = match (self.major, self.swizzle) {
            (Major::K, Swizzle::None) => (k_bytes / 16 * panel_bytes, panel_bytes, 128),
            (Major::K, _) => (k_bytes / span * panel_bytes + k_bytes % span, 16, repeat),
            (Major::Mn, Swizzle::None) => (k * span, 128, panel_bytes),
            (Major::Mn, _) => (k * span, panel_bytes, repeat),
        };
        let bits =
            Descriptor { start: BASE + advance, leading, stride, base_offset: 0, swizzle: self.swizzle }.encode();
        Descriptor::decode(bits).unwrap()
    }

    /// The bits read back through descriptors, for every element that differs from what was written.
    fn differences(&self, shared: &[u8], read_swizzle: Swizzle) -> usize {
        let (step, bytes) = (8 * K_BYTES / self.bits(), (self.bits() / 8) as usize);
        let mut differences = 0;
        for k0 in (0..self.k_count).step_by(step as usize) {
            let descriptor = self.descriptor(k0);
            check(&descriptor, self.major, self.bits(), self.rows).unwrap();
            let descriptor = Descriptor { swizzle: read_swizzle, ..descriptor };
            for (row, k) in (0..self.rows).flat_map(|row| (0..step).map(move |k| (row, k))) {
                let at = operand_offset(&descriptor, self.major, self.bits(), row, k) as usize;
                let read = shared.get(at..at + bytes).map(|b| b.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b)));
                differences += usize::from(read != Some(value(row, k0 + k, self.bits())));
            }
        }
        differences
    }
}

fn tiles() -> Vec<OperandTile> {
    let mut tiles = Vec::new();
    for swizzle in Swizzle::ALL {
        for (rows, k_bytes) in [(64, 128), (8, 32), (128, 64), (192, 256), (256, 128)] {
            let span = if swizzle == Swizzle::None { 32 } else { swizzle.span() };
            let types = [(MmaType::Bf16, Element::Bf16), (MmaType::E4m3, Element::U8), (MmaType::Tf32, Element::F32)];
            for (ty, element) in types {
                let k_count = u32::max(k_bytes, span) * 8 / element::bits(ty);
                tiles.push(OperandTile { ty, element, major: Major::K, rows, k_count, swizzle });
            }
            let (ty, element) = (MmaType::Bf16, Element::Bf16);
            tiles.push(OperandTile { ty, element, major: Major::Mn, rows, k_count: k_bytes / 2, swizzle });
        }
    }
    tiles
}

#[test]
fn tiles_read_back_as_written() {
    for tile in tiles() {
        assert_eq!(tile.differences(&tile.copy(), tile.swizzle), 0, "{tile:?}");
    }
}

/// The negative control: a different swizzle for reading finds wrong elements.
#[test]
fn mismatched_swizzles_do_not_agree() {
    let tile = OperandTile {
        ty: MmaType::Bf16,
        element: Element::Bf16,
        major: Major::K,
        rows: 64,
        k_count: 64,
        swizzle: Swizzle::B128,
    };
    let shared = tile.copy();
    for swizzle in [Swizzle::None, Swizzle::B32, Swizzle::B64] {
        assert!(tile.differences(&shared, swizzle) > 1000, "{swizzle:?}");
    }
}

/// An epilogue that is known to work on sm_90. Accumulators of m64n64 are packed to bf16, written by `stmatrix.x4` to a
/// swizzled panel at the addresses that the kernel computes, and stored by TMA.
fn epilogue(transposed: bool) -> Vec<u8> {
    let fragment = Fragment::new(Role::Accumulator, 16, 64, MmaType::F32);
    let map = tiled(TensorMap::dense(Element::Bf16, 0, &[64, 64], &[64, 64]), Swizzle::B128);
    let mut shared = vec![0; (BASE + map.box_bytes()) as usize];
    for (warp, group) in (0..4u32).flat_map(|warp| (0..8usize).step_by(2).map(move |group| (warp, group))) {
        let number = |lane: usize, register: usize, e: usize| {
            let (row, column) = fragment.position(lane, register + e, 0);
            value(16 * warp + row as u32, column as u32, 16)
        };
        let pack =
            |lane: usize, i: usize| number(lane, 4 * group + 2 * i, 0) | number(lane, 4 * group + 2 * i, 1) << 16;
        let registers: Vec<WarpRegister> = (0..4).map(|i| std::array::from_fn(|lane| pack(lane, i))).collect();
        let step = group as u32;
        for (lane, row) in (0u32..).zip(matrix_load::store(&registers, transposed)) {
            let (low, middle, high) = (lane & 7, lane >> 3 & 1, lane >> 4);
            let at = if transposed {
                (BASE + ((8 * high + low) << 7 | ((2 * warp + middle) ^ low) << 4)) + (step << 10)
            } else {
                (BASE + ((16 * warp + low + 8 * middle) << 7 | (high ^ low) << 4)) ^ (step << 4)
            };
            shared[at as usize..at as usize + 16].copy_from_slice(&row);
        }
    }
    let mut global = vec![0; 64 * 64 * 2];
    store(&map, &pieces(&map, &[0, 0], BASE).unwrap(), &shared, &mut global);
    global
}

#[test]
fn accumulators_leave_through_stmatrix_and_tma() {
    for transposed in [false, true] {
        let element = |row: u32, column: u32| value(row, column, 16) as u16;
        let order = |i: u32, j: u32| if transposed { element(j, i) } else { element(i, j) };
        let expected: Vec<u8> = (0..64 * 64).flat_map(|at| order(at / 64, at % 64).to_le_bytes()).collect();
        assert_eq!(epilogue(transposed), expected, "transposed: {transposed}");
    }
}
