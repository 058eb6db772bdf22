//! Tests of tensor maps and tiled copies, and of their agreement with what `wgmma` reads.

mod agreement;
mod map;
mod tile;

use crate::tensor::swizzle::Swizzle;
use crate::tma::{Piece, TensorMap};

/// The map with another swizzle.
fn tiled(map: TensorMap, swizzle: Swizzle) -> TensorMap {
    TensorMap { swizzle, ..map }
}

/// Executes a load: memory of both sides as slices, global addresses counted from `map.address`.
fn load(map: &TensorMap, pieces: &[Piece], global: &[u8], shared: &mut [u8]) {
    let fill = map.fill_bytes();
    for piece in pieces {
        let (at, bytes) = (piece.shared as usize, piece.bytes as usize);
        match piece.global {
            Some(address) => {
                let from = (address - map.address) as usize;
                shared[at..at + bytes].copy_from_slice(&global[from..from + bytes]);
            }
            None => shared[at..at + bytes].iter_mut().zip(fill.iter().cycle()).for_each(|(b, f)| *b = *f),
        }
    }
}

/// Executes a store.
fn store(map: &TensorMap, pieces: &[Piece], shared: &[u8], global: &mut [u8]) {
    for piece in pieces {
        if let Some(address) = piece.global {
            let (at, to, bytes) = (piece.shared as usize, (address - map.address) as usize, piece.bytes as usize);
            global[to..to + bytes].copy_from_slice(&shared[at..at + bytes]);
        }
    }
}
