//! Which bytes a tiled tensor copy moves: a box at coordinates, as pieces of global and shared memory.

use crate::fault::{Fault, FaultKind, Result};
use crate::tensor::swizzle::Swizzle;
use crate::tma::map::{TensorMap, illegal};

/// Alignment of the box in shared memory.
pub const SHARED_ALIGN: u32 = 128;

/// More than the shared memory of any GPU.
const SHARED_BYTES: u32 = 1 << 18;

/// The granularity of the swizzle, and of the engine.
const CHUNK: u32 = 16;

/// Bytes that are contiguous on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// `None` outside of the tensor: a load fills, a store drops.
    pub global: Option<u64>,
    /// The address in shared memory, after the swizzle.
    pub shared: u32,
    pub bytes: u32,
}

/// The pieces of the box at these coordinates (innermost first), in the order of the box. They cover each byte of the box once,
/// so they add up to `TensorMap::box_bytes`.
pub fn pieces(map: &TensorMap, coordinates: &[i32], shared_base: u32) -> Result<Vec<Piece>> {
    map.validate()?;
    if coordinates.len() != map.dimensions() {
        return Err(illegal(format!("{} coordinates for a tensor of rank {}", coordinates.len(), map.rank)));
    }
    check_base(map, shared_base)?;
    check_start(map, coordinates)?;
    if map.element.converts() {
        return Err(illegal(format!("what a copy does to elements of type {:?} is not simulated", map.element)));
    }
    if map.box_bytes() > SHARED_BYTES {
        return Err(illegal(format!("its box of {} bytes is larger than shared memory", map.box_bytes())));
    }
    let mut tile = Tile { map, pieces: Vec::new() };
    let mut shared = shared_base;
    // The position in the box along each outer dimension: an odometer.
    let mut outer = [0u32; 5];
    loop {
        tile.row(coordinates, &outer, shared);
        shared = shared.wrapping_add(map.row_bytes());
        let mut d = 1;
        while d < map.dimensions() {
            outer[d] += 1;
            if outer[d] < map.count(d) {
                break;
            }
            outer[d] = 0;
            d += 1;
        }
        if d >= map.dimensions() {
            return Ok(tile.pieces);
        }
    }
}

fn check_base(map: &TensorMap, base: u32) -> Result<()> {
    let (span, repeat) = (map.swizzle.span(), map.swizzle.repeat());
    let needed = if map.swizzle == Swizzle::None { SHARED_ALIGN } else { repeat };
    if !base.is_multiple_of(needed) {
        let why = if needed == SHARED_ALIGN { "" } else { ", at which the pattern of its swizzle begins" };
        let message = format!("tensor copy: shared address {base:#x} is not a multiple of {needed}{why}");
        return Err(Fault::new(FaultKind::Misaligned, message));
    }
    if map.swizzle != Swizzle::None && map.row_bytes() != span {
        return Err(illegal(format!(
            "a row of the box has {} bytes and its swizzle {span}: where such rows lie is not simulated",
            map.row_bytes()
        )));
    }
    Ok(())
}

/// The engine moves chunks of 16 bytes. A box that begins within one stops the kernel on hardware (error 715).
fn check_start(map: &TensorMap, coordinates: &[i32]) -> Result<()> {
    let first = coordinates.first().copied().unwrap_or(0);
    let begin = i64::from(first) * i64::from(map.element.bytes());
    if begin % i64::from(CHUNK) != 0 {
        let message =
            format!("tensor copy: coordinate {first} is {begin} bytes along the row, not a multiple of {CHUNK}");
        return Err(Fault::new(FaultKind::Misaligned, message));
    }
    Ok(())
}

struct Tile<'a> {
    map: &'a TensorMap,
    pieces: Vec<Piece>,
}

impl Tile<'_> {
    /// One row of the box, at a linear shared address.
    fn row(&mut self, coordinates: &[i32], outer: &[u32; 5], shared: u32) {
        let (map, element) = (self.map, i64::from(self.map.element.bytes()));
        let start = coordinates.first().map_or(0, |&c| i64::from(c));
        let mut inside = true;
        let mut address = map.address;
        for (d, (&coordinate, &position)) in coordinates.iter().zip(outer).enumerate().skip(1) {
            let index = i64::from(coordinate) + i64::from(position) * i64::from(map.element_strides[d]);
            match u64::try_from(index) {
                Ok(index) if index < map.dims[d] => {
                    address = address.wrapping_add(index.wrapping_mul(map.strides_bytes[d]));
                }
                _ => inside = false,
            }
        }
        // Bytes of the row before the tensor, within it, and after it.
        let row = i64::from(map.row_bytes());
        let size = i64::try_from(map.dims[0]).unwrap_or(i64::MAX);
        let (first, last) = if inside {
            ((-start * element).clamp(0, row), ((size - start) * element).clamp(0, row))
        } else {
            (row, row)
        };
        let last = last.max(first);
        let source = address.wrapping_add_signed((start + first / element) * element);
        self.span(shared, 0, first, None);
        self.span(shared, first, last, Some(source));
        self.span(shared, last, row, None);
    }

    /// Bytes `from..to` of a row, chunk by chunk if the swizzle splits them.
    fn span(&mut self, shared: u32, from: i64, to: i64, mut global: Option<u64>) {
        let (mut from, to) = (from as u32, to as u32);
        while from < to {
            let end = if self.map.swizzle == Swizzle::None { to } else { to.min((from / CHUNK + 1) * CHUNK) };
            let bytes = end - from;
            self.push(Piece { global, shared: self.map.swizzle.apply(shared.wrapping_add(from)), bytes });
            global = global.map(|address| address.wrapping_add(bytes.into()));
            from = end;
        }
    }

    /// Adds a piece, or extends the last one if they are contiguous.
    fn push(&mut self, piece: Piece) {
        if let Some(last) = self.pieces.last_mut() {
            let global = match (last.global, piece.global) {
                (None, None) => true,
                (Some(a), Some(b)) => a.wrapping_add(last.bytes.into()) == b,
                _ => false,
            };
            if global && last.shared.wrapping_add(last.bytes) == piece.shared {
                last.bytes += piece.bytes;
                return;
            }
        }
        self.pieces.push(piece);
    }
}
