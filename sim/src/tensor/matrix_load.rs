//! `ldmatrix` and `stmatrix` of 8x8 matrices of 16-bit elements: between rows of memory and a warp's registers.
//!
//! Row `r` of matrix `i` is the 16 bytes at the address of lane `8 i + r`. Register `i` of lane `l` holds two
//! neighbours of row `l / 4`, or with `.trans` of column `l / 4`.

use crate::tensor::WarpRegister;

/// The 16 bytes of one row of a matrix.
pub type MatrixRow = [u8; 16];

/// Rows of one matrix.
pub const ROWS: usize = 8;

/// The lane whose address gives a row of a matrix.
pub fn address_lane(matrix: usize, row: usize) -> usize {
    matrix * ROWS + row
}

/// Row and column that one half, 0 or 1, of a lane's register holds.
pub fn position(lane: usize, half: usize, transposed: bool) -> (usize, usize) {
    let (across, along) = (lane / 4, 2 * (lane % 4) + half);
    if transposed { (along, across) } else { (across, along) }
}

/// The registers that `ldmatrix` fills: one for each 8 rows, which are in order of `address_lane`.
pub fn load(rows: &[MatrixRow], transposed: bool) -> Vec<WarpRegister> {
    let element = |matrix: &[MatrixRow], lane, half| {
        let (row, column) = position(lane, half, transposed);
        let bytes = matrix.get(row).and_then(|r| r.get(2 * column..2 * column + 2));
        bytes.map_or(0, |b| b.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte)))
    };
    let register = |matrix| std::array::from_fn(|lane| element(matrix, lane, 0) | element(matrix, lane, 1) << 16);
    rows.chunks_exact(ROWS).map(register).collect()
}

/// The rows that `stmatrix` writes: eight for each register, in order of `address_lane`.
pub fn store(registers: &[WarpRegister], transposed: bool) -> Vec<MatrixRow> {
    let mut rows = vec![[0; 16]; registers.len() * ROWS];
    for (matrix, register) in rows.chunks_exact_mut(ROWS).zip(registers) {
        for (lane, &value) in register.iter().enumerate() {
            for half in 0..2 {
                let (row, column) = position(lane, half, transposed);
                let bytes = ((value >> (16 * half)) as u16).to_le_bytes();
                if let Some(place) = matrix.get_mut(row).and_then(|r| r.get_mut(2 * column..2 * column + 2)) {
                    place.copy_from_slice(&bytes);
                }
            }
        }
    }
    rows
}
