//! `wgmma` against a triple loop: operands from shared memory in every layout, and from registers.

use super::{matrix, random, spread, wgmma_spec};
use crate::alu::Arithmetic;
use crate::fault::{Fault, FaultKind};
use crate::program::{MmaType, Wgmma, WgmmaA};
use crate::tensor::WarpRegister;
use crate::tensor::descriptor::{Descriptor, Major};
use crate::tensor::element;
use crate::tensor::layout::operand_offset;
use crate::tensor::swizzle::Swizzle;
use crate::tensor::wgmma::{SharedOperand, WARP_ROWS, WgmmaOperand, accumulator, check, left, wgmma};
use rand::Rng;

/// Reads chunks of a slice.
fn reader(memory: &[u8]) -> impl FnMut(u32) -> Result<[u8; 16], Fault> {
    move |address| {
        let chunk = memory.get(address as usize..address as usize + 16);
        chunk.and_then(|c| c.try_into().ok()).ok_or_else(|| Fault::new(FaultKind::OutOfBounds, "beyond shared memory"))
    }
}

/// A descriptor that places an operand of this many rows without gaps.
fn tight(start: u32, major: Major, element_bits: u32, rows: u32, swizzle: Swizzle) -> Descriptor {
    let k = 256 / element_bits;
    let (leading, stride) = match (major, swizzle) {
        (Major::K, Swizzle::None) => (128, 256),
        (Major::K, _) => (16, swizzle.repeat()),
        (Major::Mn, Swizzle::None) => (16 * rows, 128),
        (Major::Mn, _) => (k * swizzle.span(), swizzle.repeat()),
    };
    Descriptor { start, leading, stride, base_offset: 0, swizzle }
}

/// Writes a matrix, row by row along k, where a descriptor says.
fn put(memory: &mut [u8], d: &Descriptor, major: Major, ty: MmaType, matrix: &[Vec<u64>]) {
    let bytes = (element::bits(ty) / 8) as usize;
    for (row, values) in matrix.iter().enumerate() {
        for (k, bits) in values.iter().enumerate() {
            let at = operand_offset(d, major, element::bits(ty), row as u32, k as u32) as usize;
            memory[at..at + bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
        }
    }
}

/// The product by all four warps, as a matrix of 64 rows.
fn execute(spec: &Wgmma, a: &[WgmmaOperand], b: &WgmmaOperand, scale_d: bool, d: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let fragment = accumulator(spec);
    let mut result = vec![vec![0; spec.n.into()]; 64];
    for warp in 0..4 {
        let rows = WARP_ROWS * warp;
        let before: Vec<WarpRegister> = spread(&fragment, &d[rows..rows + WARP_ROWS]);
        let (operand, first) = if a.len() == 1 { (&a[0], rows) } else { (&a[warp], 0) };
        let after = wgmma(spec, first, operand, b, scale_d, &before).unwrap();
        let n = usize::from(spec.n);
        fragment.scatter(&after, (n, 1), |index, bits| result[rows + index / n][index % n] = bits);
    }
    result
}

fn expect(spec: &Wgmma, a: &[Vec<u64>], b: &[Vec<u64>], d: &[Vec<u64>], signs: f64, result: &[Vec<u64>]) {
    for (row, column) in (0..64).flat_map(|r| (0..usize::from(spec.n)).map(move |c| (r, c))) {
        let product = |k: usize| element::to_f64(spec.a_type, a[row][k]) * element::to_f64(spec.b_type, b[column][k]);
        let sum = (0..usize::from(spec.k)).map(product).sum::<f64>() * signs;
        let expected = sum + element::to_f64(spec.d_type, d[row][column]);
        let value = element::to_f64(spec.d_type, result[row][column]);
        assert_eq!(value, expected, "m64n{}k{} {:?} ({row}, {column})", spec.n, spec.k, spec.a_type);
    }
}

const TYPES: &[(u16, [MmaType; 3])] = {
    use MmaType::*;
    &[
        (16, [F32, Bf16, Bf16]),
        (16, [F16, F16, F16]),
        (8, [F32, Tf32, Tf32]),
        (32, [F32, E4m3, E5m2]),
        (32, [S32, S8, U8]),
    ]
};

#[test]
fn operands_in_shared_memory() {
    let mut rng = random(4);
    for &(k, types) in TYPES {
        for (i, swizzle) in Swizzle::ALL.into_iter().enumerate() {
            for transposed in [false, true] {
                let bits = element::bits(types[1]);
                if transposed && bits != 16 {
                    continue;
                }
                let n = [16, 64, 96, 256][i];
                let mut spec = wgmma_spec(n, k, types, false);
                let major = if transposed { Major::Mn } else { Major::K };
                let (da, db) = (tight(0, major, bits, 64, swizzle), tight(32768, major, bits, n.into(), swizzle));
                if let WgmmaA::Descriptor { transposed: t, .. } = &mut spec.a {
                    *t = transposed;
                }
                spec.b_transposed = transposed;
                check(&spec, Arithmetic::Ieee).unwrap();
                let mut memory = vec![0xee; 98304];
                let a = matrix(&mut rng, 64, k.into(), spec.a_type);
                let b = matrix(&mut rng, n.into(), k.into(), spec.b_type);
                let d = matrix(&mut rng, 64, n.into(), spec.d_type);
                put(&mut memory, &da, major, spec.a_type, &a);
                put(&mut memory, &db, major, spec.b_type, &b);
                let mut read = reader(&memory);
                let load = |place: SharedOperand, read: &mut _| {
                    WgmmaOperand::from_shared(&place, false, Arithmetic::Ieee, read)
                };
                let left = load(SharedOperand::of_a(&spec, da.encode()).unwrap(), &mut read).unwrap();
                let right = load(SharedOperand::of_b(&spec, db.encode()).unwrap(), &mut read).unwrap();
                let result = execute(&spec, std::slice::from_ref(&left), &right, true, &d);
                expect(&spec, &a, &b, &d, 1.0, &result);
                let zeros = vec![vec![0; n.into()]; 64];
                expect(&spec, &a, &b, &zeros, 1.0, &execute(&spec, &[left], &right, false, &d));
            }
        }
    }
}

#[test]
fn left_operand_in_registers() {
    let mut rng = random(5);
    for &(k, types) in TYPES {
        let mut spec = wgmma_spec(24, k, types, true);
        (spec.negate_a, spec.negate_b) = (true, true);
        check(&spec, Arithmetic::Ieee).unwrap();
        let bits = element::bits(spec.b_type);
        let db = tight(1024, Major::K, bits, 24, Swizzle::B128);
        let a = matrix(&mut rng, 64, k.into(), spec.a_type);
        let b = matrix(&mut rng, 24, k.into(), spec.b_type);
        let d = matrix(&mut rng, 64, 24, spec.d_type);
        let mut memory = vec![0; 8192];
        put(&mut memory, &db, Major::K, spec.b_type, &b);
        let place = SharedOperand::of_b(&spec, db.encode()).unwrap();
        for negate_b in [true, false] {
            let right = WgmmaOperand::from_shared(&place, negate_b, Arithmetic::Ieee, &mut reader(&memory)).unwrap();
            let warps: Vec<WgmmaOperand> = a
                .chunks(WARP_ROWS)
                .map(|rows| WgmmaOperand::from_registers(&spec, Arithmetic::Ieee, &spread(&left(&spec), rows)))
                .collect();
            let signs = if negate_b { 1.0 } else { -1.0 };
            expect(&spec, &a, &b, &d, signs, &execute(&spec, &warps, &right, true, &d));
        }
    }
}

#[test]
fn exact_words_and_their_negation() {
    let mut rng = random(6);
    let spec = wgmma_spec(8, 16, [MmaType::F32, MmaType::Bf16, MmaType::Bf16], false);
    let mut any = |rows: usize, columns: usize, mask: u64| -> Vec<Vec<u64>> {
        (0..rows).map(|_| (0..columns).map(|_| rng.random::<u64>() & mask).collect()).collect()
    };
    let (a, b, d) = (any(64, 16, 0xffff), any(8, 16, 0xffff), any(64, 8, 0xffff_ffff));
    let (da, db) = (tight(0, Major::K, 16, 64, Swizzle::B128), tight(8192, Major::K, 16, 8, Swizzle::B128));
    let mut memory = vec![0; 16384];
    put(&mut memory, &da, Major::K, MmaType::Bf16, &a);
    put(&mut memory, &db, Major::K, MmaType::Bf16, &b);
    let load = |place: SharedOperand, negate| {
        WgmmaOperand::from_shared(&place, negate, Arithmetic::Exact, &mut reader(&memory)).unwrap()
    };
    let left = load(SharedOperand::of_a(&spec, da.encode()).unwrap(), true);
    let right = load(SharedOperand::of_b(&spec, db.encode()).unwrap(), false);
    let result = execute(&spec, &[left], &right, true, &d);
    for (row, column) in (0..64).flat_map(|r| (0..8).map(move |c| (r, c))) {
        let sum = (0..16).fold(0u64, |sum, k| sum.wrapping_add(a[row][k] * b[column][k]));
        let upper = (d[row][column] >> 16).wrapping_sub(sum) & 0xffff;
        assert_eq!(result[row][column], upper << 16 | d[row][column] & 0xffff);
    }
}

#[test]
fn faults() {
    use MmaType::*;
    let good = wgmma_spec(64, 16, [F32, Bf16, Bf16], false);
    let wrong = [
        wgmma_spec(12, 16, [F32, Bf16, Bf16], false),
        wgmma_spec(264, 16, [F32, Bf16, Bf16], false),
        wgmma_spec(64, 32, [F32, Bf16, Bf16], false),
        wgmma_spec(40, 32, [S32, S8, S8], false),
        wgmma_spec(64, 16, [F16, Bf16, Bf16], false),
        Wgmma { d: vec![], ..good.clone() },
        Wgmma { a: WgmmaA::Registers(vec![]), ..good.clone() },
        Wgmma { b_transposed: true, ..wgmma_spec(64, 32, [F32, E4m3, E4m3], false) },
    ];
    check(&good, Arithmetic::Ieee).unwrap();
    for spec in wrong {
        assert_eq!(check(&spec, Arithmetic::Ieee).unwrap_err().kind, FaultKind::Illegal, "{spec:?}");
    }
    // Faults of reading pass through, and a hostile descriptor does not panic.
    let place = SharedOperand::of_b(&good, tight(0, Major::K, 16, 64, Swizzle::B128).encode()).unwrap();
    let kind = WgmmaOperand::from_shared(&place, false, Arithmetic::Ieee, &mut reader(&[0; 100])).unwrap_err().kind;
    assert_eq!(kind, FaultKind::OutOfBounds);
    let place = SharedOperand::of_b(&good, 0x3fff_3fff_3fff).unwrap();
    assert!(WgmmaOperand::from_shared(&place, false, Arithmetic::Ieee, &mut reader(&[0; 100])).is_err());
}

/// The layouts that an operand may have are free of bank conflicts: each core matrix is on all banks once.
#[test]
fn core_matrices_are_on_distinct_banks() {
    for (ty, major) in
        [(MmaType::Bf16, Major::K), (MmaType::E4m3, Major::K), (MmaType::Tf32, Major::K), (MmaType::Bf16, Major::Mn)]
    {
        for (swizzle, rows) in Swizzle::ALL.into_iter().flat_map(|s| [64, 128, 256].map(|rows| (s, rows))) {
            let descriptor = tight(2048, major, element::bits(ty), rows, swizzle);
            let operand = SharedOperand { descriptor, major, ty, rows };
            let chunks = operand.core_matrices();
            assert_eq!(chunks.len() as u32, rows * 2);
            for matrix in chunks.chunks(8) {
                let banks: std::collections::BTreeSet<u32> = matrix.iter().map(|chunk| chunk % 128).collect();
                assert_eq!(banks.len(), 8, "{ty:?} {major:?} {swizzle:?} {rows}: {matrix:x?}");
            }
        }
    }
}
