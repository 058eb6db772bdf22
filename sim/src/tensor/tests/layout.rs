//! Canonical layouts: evaluates CuTe's coordinate and stride notation, and has examples and refused cases.

use crate::fault::FaultKind;
use crate::tensor::descriptor::{Descriptor, Major};
use crate::tensor::layout::{CHUNK, check, chunks, operand_offset, operand_ranges};
use crate::tensor::swizzle::Swizzle;
use proptest::prelude::*;

fn descriptor(start: u32, leading: u32, stride: u32, swizzle: Swizzle) -> Descriptor {
    Descriptor { start, leading, stride, base_offset: 0, swizzle }
}

/// A mode of a CuTe layout: sizes and strides, innermost first. The last size is unbounded.
fn mode(mut index: u32, shape: &[(u32, u32)]) -> u32 {
    let mut offset = 0;
    for (i, &(size, stride)) in shape.iter().enumerate() {
        let last = i + 1 == shape.len();
        offset += (if last { index } else { index % size }) * stride;
        index /= size;
    }
    offset
}

/// The documented layouts, in elements: `((rows), (k))`, each a list of (size, stride).
#[test]
fn offsets_are_the_documented_layouts() {
    let (leading, stride) = (0x2100, 0x4600);
    for (major, bits) in [(Major::K, 8), (Major::K, 16), (Major::K, 32), (Major::Mn, 16)] {
        for swizzle in Swizzle::ALL {
            let t = 128 / bits;
            let (lbo, sbo) = (leading * 8 / bits, stride * 8 / bits);
            let w = swizzle.span() / CHUNK;
            let d = descriptor(0x400, leading, stride, swizzle);
            for (row, k) in (0..128).flat_map(|row| (0..256 / bits).map(move |k| (row, k))) {
                let elements = match (major, swizzle) {
                    (Major::K, Swizzle::None) => mode(row, &[(8, t), (99, sbo)]) + mode(k, &[(t, 1), (2, lbo)]),
                    (Major::K, _) => mode(row, &[(8, w * t), (99, sbo)]) + mode(k, &[(t, 1), (2, t)]),
                    (Major::Mn, Swizzle::None) => {
                        mode(row, &[(t, 1), (1, t), (99, sbo)]) + mode(k, &[(8, t), (99, lbo)])
                    }
                    (Major::Mn, _) => mode(row, &[(t, 1), (w, t), (99, lbo)]) + mode(k, &[(8, w * t), (99, sbo)]),
                };
                let expected = swizzle.apply(0x400 + elements * bits / 8);
                assert_eq!(operand_offset(&d, major, bits, row, k), expected, "{major:?} {bits} {swizzle:?} {row} {k}");
            }
        }
    }
}

/// Values worked out by hand.
#[test]
fn landmarks() {
    let k128 = descriptor(0x800, 16, 1024, Swizzle::B128);
    assert_eq!(operand_offset(&k128, Major::K, 16, 0, 0), 0x800);
    // Row 1: chunk 0 lies in chunk 1 of the next line.
    assert_eq!(operand_offset(&k128, Major::K, 16, 1, 0), 0x890);
    assert_eq!(operand_offset(&k128, Major::K, 16, 9, 9), 0x800 + 1024 + 128 + 2);
    // The second k16 step starts 32 bytes on: chunk 2 of row 3 lies in chunk 1.
    let step = Descriptor { start: 0x820, ..k128 };
    assert_eq!(operand_offset(&step, Major::K, 16, 3, 0), 0x800 + 3 * 128 + 16);
    let mn128 = descriptor(0, 8192, 1024, Swizzle::B128);
    assert_eq!(operand_offset(&mn128, Major::Mn, 16, 70, 9), 8192 + 1024 + 128 + 16 + 12);
}

/// Chunks partition the operand: each element is in the chunk that lists it, and no two chunks overlap.
#[test]
fn chunks_cover_every_element_once() {
    let (rows, cases) = (64, [(Major::K, 8), (Major::K, 16), (Major::K, 32), (Major::Mn, 16)]);
    for ((major, bits), swizzle) in cases.into_iter().flat_map(|c| Swizzle::ALL.map(|s| (c, s))) {
        let d = match major {
            Major::K if swizzle == Swizzle::None => descriptor(0, 128, 256, swizzle),
            Major::K => descriptor(0, 0, swizzle.repeat(), swizzle),
            Major::Mn if swizzle == Swizzle::None => descriptor(0, 128, 256, swizzle),
            Major::Mn => descriptor(0, 2 * swizzle.repeat(), swizzle.repeat(), swizzle),
        };
        let t = 128 / bits;
        let mut count = 0;
        for (address, row, k) in chunks(&d, major, bits, rows) {
            for i in 0..t {
                let (row, k) = if major == Major::K { (row, k + i) } else { (row + i, k) };
                assert_eq!(operand_offset(&d, major, bits, row, k), address + i * bits / 8);
                count += 1;
            }
        }
        assert_eq!(count, rows * 256 / bits);
        let ranges = operand_ranges(&d, major, bits, rows);
        assert_eq!(ranges.iter().map(|r| r.end - r.start).sum::<u32>(), rows * 32, "{major:?} {bits} {swizzle:?}");
        assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
    }
}

#[test]
fn a_step_of_128_bytes_of_k_is_the_whole_tile() {
    // The four k16 steps of a 64 x 64 tile of bf16 touch different bytes, which together are all of its 8 KiB.
    let step = |k: u32| operand_ranges(&descriptor(0x400 + 32 * k, 16, 1024, Swizzle::B128), Major::K, 16, 64);
    let mut starts: Vec<u32> = (0..4).flat_map(step).flat_map(|r| r.step_by(16)).collect();
    starts.sort_unstable();
    assert_eq!(starts, (0x400..0x400 + 8192).step_by(16).collect::<Vec<u32>>());
}

#[test]
fn misplaced_operands_are_refused() {
    let fine = [
        (Major::K, 16, descriptor(0x460, 16, 1024, Swizzle::B128)),
        (Major::K, 8, descriptor(0x220, 16, 512, Swizzle::B64)),
        (Major::K, 32, descriptor(0x300, 16, 256, Swizzle::B32)),
        (Major::K, 8, descriptor(0x310, 128, 256, Swizzle::None)),
        (Major::Mn, 16, descriptor(0x800, 4096, 1024, Swizzle::B128)),
    ];
    for (major, bits, d) in fine {
        check(&d, major, bits, 64).unwrap();
    }
    let wrong = [
        ("row", Major::K, 16, descriptor(0x480, 16, 1024, Swizzle::B128)),
        ("needs 32", Major::K, 16, descriptor(0x470, 16, 1024, Swizzle::B128)),
        ("needs 32", Major::K, 16, descriptor(0x310, 16, 256, Swizzle::B32)),
        ("needs 128", Major::Mn, 16, descriptor(0x820, 4096, 1024, Swizzle::B128)),
        ("only be K-major", Major::Mn, 8, descriptor(0x800, 4096, 1024, Swizzle::B128)),
        ("only be K-major", Major::Mn, 32, descriptor(0x800, 4096, 1024, Swizzle::None)),
        ("base offset 1", Major::K, 16, Descriptor { base_offset: 1, ..descriptor(0x400, 16, 1024, Swizzle::B128) }),
    ];
    for (words, major, bits, d) in wrong {
        let fault = check(&d, major, bits, 64).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Illegal);
        assert!(fault.message.contains(words), "{}", fault.message);
    }
}

proptest! {
    /// Arbitrary bits: either a refusal, or an operand of the right number of distinct or repeated bytes.
    #[test]
    fn nothing_panics(bits: u64, mn: bool, width in 0..3u32, rows in 1..33u32) {
        let (major, width, rows) = (if mn { Major::Mn } else { Major::K }, 8 << width, 8 * rows);
        // Most bits are reserved ones: without them, decoding succeeds.
        prop_assert!(Descriptor::decode(bits & 0xc00e_3fff_3fff_3fff).is_ok());
        let d = Descriptor::decode(bits & 0xc000_3fff_3fff_3fff).unwrap();
        let ranges = operand_ranges(&d, major, width, rows);
        if check(&d, major, width, rows).is_ok() {
            let bytes: u32 = ranges.iter().map(|r| r.end - r.start).sum();
            prop_assert!((CHUNK..=rows * 32).contains(&bytes));
        }
    }
}
