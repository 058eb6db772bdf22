//! `ldmatrix` and `stmatrix`: the ISA's figure, and each as the inverse of the other.

use super::random;
use crate::program::MmaType;
use crate::tensor::fragment::{Fragment, Role};
use crate::tensor::matrix_load::{MatrixRow, address_lane, load, store};
use rand::Rng;

/// Rows whose element at (row, column) of matrix `i` is `0x100 i + 0x10 row + column`.
fn numbered(matrices: usize) -> Vec<MatrixRow> {
    (0..8 * matrices)
        .map(|r| std::array::from_fn(|b| if b % 2 == 0 { (r % 8 * 16 + b / 2) as u8 } else { (r / 8) as u8 }))
        .collect()
}

#[test]
fn lanes_hold_neighbours_of_a_row_or_of_a_column() {
    for matrices in [1, 2, 4] {
        for (lane, i) in (0..32).flat_map(|lane| (0..matrices).map(move |i| (lane, i))) {
            let (g, t) = ((lane / 4) as u64, (lane % 4) as u64);
            let number = |row: u64, column: u64| 0x100 * i as u64 + 0x10 * row + column;
            let plain = number(g, 2 * t) | number(g, 2 * t + 1) << 16;
            assert_eq!(load(&numbered(matrices), false)[i][lane], plain);
            let transposed = number(2 * t, g) | number(2 * t + 1, g) << 16;
            assert_eq!(load(&numbered(matrices), true)[i][lane], transposed);
        }
    }
}

#[test]
fn storing_undoes_loading() {
    let mut rng = random(1);
    for (matrices, transposed) in [(1, false), (2, true), (4, false), (4, true)] {
        let rows: Vec<MatrixRow> = (0..8 * matrices).map(|_| rng.random()).collect();
        assert_eq!(store(&load(&rows, transposed), transposed), rows);
        assert_ne!(store(&load(&rows, transposed), !transposed), rows, "transposing once is seen");
    }
}

/// The purpose of the instruction: four 8x8 blocks, rows first, are the A fragment of m16n8k16.
#[test]
fn four_matrices_make_a_fragment() {
    let value = |row: usize, column: usize| (row * 16 + column) as u16;
    let mut rows = vec![[0; 16]; 32];
    for (matrix, row) in (0..4).flat_map(|m| (0..8).map(move |r| (m, r))) {
        for column in 0..8 {
            let bytes = value(row + matrix % 2 * 8, column + matrix / 2 * 8).to_le_bytes();
            rows[address_lane(matrix, row)][2 * column..2 * column + 2].copy_from_slice(&bytes);
        }
    }
    let registers = load(&rows, false);
    let fragment = Fragment::new(Role::A, 16, 16, MmaType::F16);
    for (register, lane, e) in (0..4).flat_map(|r| (0..32).flat_map(move |l| (0..2).map(move |e| (r, l, e)))) {
        let (row, column) = fragment.position(lane, register, e);
        assert_eq!(fragment.extract(registers[register][lane], e), u64::from(value(row, column)));
    }
}
