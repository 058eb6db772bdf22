//! The canonical layouts of `wgmma` operands in shared memory: the address of each element, and the bytes of an operand.
//!
//! A chunk is 16 bytes: `T` neighbours along the contiguous dimension. Eight chunks along the other dimension form a core
//! matrix. In CuTe's notation, with `W` chunks to the swizzle's span:
//! - K-major: `((8, m), (T, 2)) : ((W T, SBO), (1, T))`, and LBO for the last stride without swizzle;
//! - MN-major: `((T, W, m), (8, k)) : ((1, T, LBO), (W T, SBO))`, and with LBO and SBO exchanged without swizzle.
//!
//! The swizzle then permutes the bits of the address itself, not of the offset in the tile.

use crate::fault::Result;
use crate::tensor::descriptor::{Descriptor, Major, illegal};
use crate::tensor::swizzle::Swizzle;
use std::ops::Range;

/// Bytes of a chunk.
pub const CHUNK: u32 = 16;

/// Bytes along k of an operand of one instruction, whatever its type.
pub const K_BYTES: u32 = 32;

/// Elements of a chunk.
fn per_chunk(element_bits: u32) -> u32 {
    (8 * CHUNK / element_bits.max(1)).max(1)
}

/// Shared address of element `k` of row `row` (of B: column).
pub fn operand_offset(desc: &Descriptor, major: Major, element_bits: u32, row: u32, k: u32) -> u32 {
    let (t, span) = (per_chunk(element_bits), desc.swizzle.span());
    let times = |count: u32, bytes: u32| count.wrapping_mul(bytes);
    let (offset, along) = match (major, desc.swizzle) {
        (Major::K, Swizzle::None) => (times(row / 8, desc.stride) + times(k / t, desc.leading) + row % 8 * CHUNK, k),
        (Major::K, _) => (times(row / 8, desc.stride) + row % 8 * span + k / t * CHUNK, k),
        (Major::Mn, Swizzle::None) => (times(row / t, desc.stride) + times(k / 8, desc.leading) + k % 8 * CHUNK, row),
        (Major::Mn, _) => {
            let (chunk, wide) = (row / t, span / CHUNK);
            let across = times(chunk / wide, desc.leading) + chunk % wide * CHUNK;
            (across + times(k / 8, desc.stride) + k % 8 * span, row)
        }
    };
    desc.swizzle.apply(desc.start.wrapping_add(offset)) + along % t * element_bits / 8
}

/// Refuses operands of this many rows that the layouts do not allow.
pub fn check(desc: &Descriptor, major: Major, element_bits: u32, rows: u32) -> Result<()> {
    if major == Major::Mn && element_bits != 16 {
        return Err(illegal(format!("an operand of {element_bits}-bit elements can only be K-major")));
    }
    if desc.swizzle == Swizzle::None {
        return Ok(());
    }
    if desc.base_offset != 0 {
        return Err(illegal(format!("base offset {} is not simulated", desc.base_offset)));
    }
    let (span, start) = (desc.swizzle.span(), desc.start % desc.swizzle.repeat());
    if start >= span {
        return Err(illegal(format!(
            "start {:#x} is {start} bytes into a swizzle pattern that repeats every {} bytes: more than a row, which \
             needs a base offset",
            desc.start,
            desc.swizzle.repeat()
        )));
    }
    let extent = match major {
        Major::K => K_BYTES,
        Major::Mn => (rows * element_bits / 8).min(span),
    };
    if start + extent > span {
        return Err(illegal(format!(
            "start {:#x} is {start} bytes into a row of {span} bytes, and the operand needs {extent} there",
            desc.start
        )));
    }
    Ok(())
}

/// Addresses of the chunks of an operand, each with the row and the k of its first element.
pub fn chunks(
    desc: &Descriptor,
    major: Major,
    element_bits: u32,
    rows: u32,
) -> impl Iterator<Item = (u32, u32, u32)> + use<> {
    let (t, k_count, desc) = (per_chunk(element_bits), 8 * K_BYTES / element_bits.max(1), *desc);
    let (row_step, k_step) = match major {
        Major::K => (1, t),
        Major::Mn => (t, 1),
    };
    (0..rows).step_by(row_step as usize).flat_map(move |row| {
        let address = move |k| operand_offset(&desc, major, element_bits, row, k);
        (0..k_count).step_by(k_step as usize).map(move |k| (address(k), row, k))
    })
}

/// The bytes of shared memory that an operand occupies, in ascending order and merged.
pub fn operand_ranges(desc: &Descriptor, major: Major, element_bits: u32, rows: u32) -> Vec<Range<u32>> {
    let mut starts: Vec<u32> = chunks(desc, major, element_bits, rows).map(|(address, ..)| address).collect();
    starts.sort_unstable();
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for start in starts {
        let end = start.saturating_add(CHUNK);
        match ranges.last_mut() {
            Some(last) if last.end >= start => last.end = last.end.max(end),
            _ => ranges.push(start..end),
        }
    }
    ranges
}
