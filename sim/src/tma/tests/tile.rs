//! Tiled copies against an enumeration of the box, element by element.

use super::{load, store, tiled};
use crate::fault::FaultKind;
use crate::tensor::swizzle::Swizzle;
use crate::tma::{Element, Fill, Piece, TensorMap, pieces};
use proptest::prelude::*;

const BASE: u32 = 4096;

/// The position of each byte of the box: its shared address, and its global address if it is in bounds.
fn enumerate(map: &TensorMap, coordinates: &[i32]) -> Vec<(u32, Option<u64>)> {
    let bytes = map.element.bytes();
    let counts: Vec<u32> = (0..5).map(|d| if d < map.rank as usize { map.count(d) } else { 1 }).collect();
    let mut all = Vec::new();
    let mut linear = BASE;
    for flat in 0..counts.iter().product::<u32>() {
        let (mut rest, mut address, mut inside) = (flat, i128::from(map.address), true);
        for (d, &coordinate) in coordinates.iter().enumerate() {
            let step = if d == 0 { 1 } else { map.element_strides[d] };
            let index = i128::from(coordinate) + i128::from(rest % counts[d] * step);
            rest /= counts[d];
            inside &= (0..i128::from(map.dims[d])).contains(&index);
            address += index * if d == 0 { i128::from(bytes) } else { i128::from(map.strides_bytes[d]) };
        }
        for b in 0..bytes {
            let shared = map.swizzle.apply(linear);
            all.push((shared, inside.then(|| address as u64 + u64::from(b))));
            linear += 1;
        }
    }
    all
}

/// The same from pieces.
fn expand(pieces: &[Piece]) -> Vec<(u32, Option<u64>)> {
    let bytes = |p: &Piece| {
        let (shared, global) = (p.shared, p.global);
        (0..p.bytes).map(move |i| (shared + i, global.map(|g| g + u64::from(i))))
    };
    pieces.iter().flat_map(bytes).collect()
}

/// A small tensor, a box and coordinates around its edges.
fn cases() -> impl Strategy<Value = (TensorMap, Vec<i32>)> {
    let element = prop::sample::select(&[Element::U8, Element::Bf16, Element::F32, Element::I64][..]);
    let swizzle = prop::sample::select(&Swizzle::ALL[..]);
    (element, swizzle, 1..=5usize).prop_flat_map(|(element, swizzle, rank)| {
        let dims = prop::collection::vec(1..24u64, rank);
        let boxes = prop::collection::vec(1..6u32, rank);
        let steps = prop::collection::vec(1..4u32, rank);
        let at = prop::collection::vec(-9..26i32, rank);
        (dims, boxes, steps, at, 1..5u32, 0..3u64).prop_map(move |(dims, boxes, steps, at, chunks, pad)| {
            let mut map = tiled(TensorMap::dense(element, 0x1_0000, &dims, &boxes), swizzle);
            map.element_strides[..rank].copy_from_slice(&steps);
            let row = if swizzle == Swizzle::None { 16 * chunks } else { swizzle.span() };
            map.box_dims[0] = row / element.bytes();
            let at =
                at.iter().enumerate().map(|(d, &c)| if d == 0 { c / 4 * (16 / element.bytes() as i32) } else { c });
            let at = at.collect();
            let mut stride = (dims[0] * u64::from(element.bytes())).next_multiple_of(16) + 16 * pad;
            for (place, size) in map.strides_bytes[..rank].iter_mut().zip(dims).skip(1) {
                (*place, stride) = (stride, stride * size);
            }
            (map, at)
        })
    })
}

proptest! {
    #[test]
    fn pieces_are_the_box((map, at) in cases()) {
        let found = pieces(&map, &at, BASE).unwrap();
        let mut expected = enumerate(&map, &at);
        prop_assert_eq!(expand(&found), expected.clone());
        prop_assert_eq!(found.iter().map(|p| p.bytes).sum::<u32>(), map.box_bytes());
        // Shared addresses are a permutation of the box.
        expected.sort_unstable();
        let addresses: Vec<u32> = expected.iter().map(|&(shared, _)| shared).collect();
        prop_assert_eq!(addresses, (BASE..BASE + map.box_bytes()).collect::<Vec<u32>>());
        // Pieces are as long as they can be.
        let goes_on = |a: &Piece, b: &Piece| {
            let global = match (a.global, b.global) {
                (Some(x), Some(y)) => x + u64::from(a.bytes) == y,
                (x, y) => x == y,
            };
            global && a.shared + a.bytes == b.shared
        };
        prop_assert!(!found.windows(2).any(|w| goes_on(&w[0], &w[1])));
    }

    #[test]
    fn loading_undoes_storing((map, at) in cases(), seed in any::<u8>()) {
        let found = pieces(&map, &at, BASE).unwrap();
        let mut shared: Vec<u8> = (0..BASE + map.box_bytes()).map(|i| (i as u8).wrapping_mul(37) ^ seed | 1).collect();
        let size = (0..map.rank as usize).map(|d| map.dims[d] * map.strides_bytes[d].max(8)).max().unwrap_or(0);
        let mut global = vec![0; 2 * size as usize + 64];
        let before = shared.clone();
        store(&map, &found, &shared, &mut global);
        shared[BASE as usize..].fill(0xcc);
        load(&map, &found, &global, &mut shared);
        for (address, source) in enumerate(&map, &at) {
            let expected = if source.is_some() { before[address as usize] } else { 0 };
            prop_assert_eq!(shared[address as usize], expected);
        }
        prop_assert_eq!(&shared[..BASE as usize], &before[..BASE as usize]);
    }
}

proptest! {
    /// A hostile map gives either a refusal, or pieces that add up.
    #[test]
    fn nothing_panics(
        codes in (0..13usize, 0..8u32, 0..4usize, any::<bool>()),
        numbers in (any::<u64>(), any::<[u64; 5]>(), any::<[u64; 5]>()),
        shifts in (0..64u32, 0..64u32),
        sizes in (any::<[u8; 5]>(), [0..10u32, 0..10, 0..10, 0..10, 0..10]),
        at in prop::collection::vec(any::<i32>(), 0..7),
        base in any::<u32>(),
    ) {
        let map = TensorMap {
            element: Element::ALL[codes.0],
            rank: codes.1,
            address: numbers.0 & !15,
            dims: numbers.1.map(|d| d >> shifts.0),
            strides_bytes: numbers.2.map(|s| (s >> shifts.1) & !15),
            box_dims: sizes.0.map(|b| u32::from(b) / 4),
            element_strides: sizes.1,
            swizzle: Swizzle::ALL[codes.2],
            fill: if codes.3 { Fill::Nan } else { Fill::Zeros },
        };
        let _ = TensorMap::from_bytes(&map.to_bytes());
        if let Ok(found) = pieces(&map, &at, base & !1023) {
            prop_assert_eq!(found.iter().map(|p| p.bytes).sum::<u32>(), map.box_bytes());
        }
    }
}

#[test]
fn a_swizzled_row_goes_in_chunks() {
    let map = tiled(TensorMap::dense(Element::Bf16, 0, &[64, 8], &[64, 8]), Swizzle::B128);
    let found = pieces(&map, &[0, 0], 0).unwrap();
    // Row 0 is in order, row 1 has its chunks exchanged in pairs.
    assert_eq!(found[0], Piece { global: Some(0), shared: 0, bytes: 128 });
    assert_eq!(found[1], Piece { global: Some(128), shared: 128 + 16, bytes: 16 });
    assert_eq!(found[2], Piece { global: Some(144), shared: 128, bytes: 16 });
}

#[test]
fn a_box_of_whole_rows_is_one_piece() {
    let map = TensorMap::dense(Element::F32, 0x100, &[32, 100], &[32, 50]);
    let found = pieces(&map, &[0, 20], 0x400).unwrap();
    assert_eq!(found, [Piece { global: Some(0x100 + 20 * 128), shared: 0x400, bytes: 50 * 128 }]);
}

#[test]
fn ragged_edges_are_filled() {
    let map = TensorMap { fill: Fill::Nan, ..TensorMap::dense(Element::Bf16, 0x100, &[24, 2], &[16, 2]) };
    let found = pieces(&map, &[-8, 1], 0).unwrap();
    let expected = [
        Piece { global: None, shared: 0, bytes: 16 },
        Piece { global: Some(0x100 + 48), shared: 16, bytes: 16 },
        Piece { global: None, shared: 32, bytes: 32 },
    ];
    assert_eq!(found, expected);
    assert_eq!(map.fill_bytes(), [0xff, 0x7f]);
    let far = pieces(&map, &[i32::MIN, i32::MAX], 0).unwrap();
    assert_eq!(far, [Piece { global: None, shared: 0, bytes: 64 }]);
    assert_eq!(pieces(&map, &[i32::MAX - 7, 0], 0).unwrap(), far);
}

#[test]
fn misplaced_boxes_are_refused() {
    let plain = TensorMap::dense(Element::Bf16, 0, &[64, 64], &[64, 8]);
    let kind = |map: TensorMap, at: &[i32], base| pieces(&map, at, base).map(|_| ()).unwrap_err().kind;
    assert!(pieces(&plain, &[0, 0], 128).is_ok());
    assert_eq!(kind(plain, &[0, 0], 64), FaultKind::Misaligned);
    for swizzle in [Swizzle::B32, Swizzle::B64, Swizzle::B128] {
        let mut map = tiled(plain, swizzle);
        map.box_dims[0] = swizzle.span() / 2;
        assert!(pieces(&map, &[0, 0], swizzle.repeat()).is_ok());
        assert_eq!(kind(map, &[0, 0], swizzle.repeat() / 2), FaultKind::Misaligned);
    }
    assert_eq!(kind(plain, &[0], 0), FaultKind::Illegal);
    assert_eq!(kind(plain, &[0, 0, 0], 0), FaultKind::Illegal);
    // Neither narrow rows under a swizzle nor converting types are simulated, and no box is larger than the memory.
    assert_eq!(
        kind(TensorMap { box_dims: [32, 8, 1, 1, 1], ..tiled(plain, Swizzle::B128) }, &[0, 0], 0),
        FaultKind::Illegal
    );
    assert_eq!(kind(TensorMap::dense(Element::Tf32, 0, &[64, 64], &[32, 8]), &[0, 0], 0), FaultKind::Illegal);
    let huge = TensorMap::dense(Element::I64, 0, &[256; 5], &[256; 5]);
    assert_eq!(kind(TensorMap { strides_bytes: [0, 16, 16, 16, 16], ..huge }, &[0; 5], 0), FaultKind::Illegal);
}

#[test]
fn boxes_begin_at_multiples_of_16_bytes() {
    for (element, step) in [(Element::U8, 16), (Element::Bf16, 8), (Element::F32, 4), (Element::I64, 2)] {
        let map = TensorMap::dense(element, 0, &[64, 64], &[16, 8]);
        for first in -40..40 {
            let found = pieces(&map, &[first, 1], 0).map(|_| ()).map_err(|f| f.kind);
            assert_eq!(
                found,
                if first % step == 0 { Ok(()) } else { Err(FaultKind::Misaligned) },
                "{element:?} {first}"
            );
            assert!(pieces(&map, &[0, first], 0).is_ok(), "other axes are free");
        }
    }
}
