//! `mma.sync` against a triple loop, its corner cases, and exact arithmetic.

use super::{matrix, mma_spec, random, spread};
use crate::alu::Arithmetic;
use crate::fault::FaultKind;
use crate::program::{Mma, MmaType};
use crate::tensor::mma::{check, fragments, mma};
use crate::tensor::{WarpRegister, element};
use rand::Rng;

/// m, n, k, and the types of d, a, b, c.
type MmaCase = ((u16, u16, u16), [MmaType; 4]);

const SHAPES: &[MmaCase] = {
    use MmaType::*;
    &[
        ((16, 8, 16), [F32, F16, F16, F32]),
        ((16, 8, 16), [F16, F16, F16, F16]),
        ((16, 8, 8), [F32, F16, F16, F32]),
        ((16, 8, 16), [F32, Bf16, Bf16, F32]),
        ((16, 8, 8), [F32, Bf16, Bf16, F32]),
        ((16, 8, 4), [F32, Tf32, Tf32, F32]),
        ((16, 8, 8), [F32, Tf32, Tf32, F32]),
        ((8, 8, 4), [F64, F64, F64, F64]),
        ((16, 8, 4), [F64, F64, F64, F64]),
        ((16, 8, 8), [F64, F64, F64, F64]),
        ((16, 8, 16), [F64, F64, F64, F64]),
        ((8, 8, 16), [S32, S8, U8, S32]),
        ((16, 8, 16), [S32, S8, S8, S32]),
        ((16, 8, 32), [S32, U8, S8, S32]),
        ((16, 8, 16), [F32, E4m3, E5m2, F32]),
        ((16, 8, 32), [F32, E5m2, E4m3, F32]),
        ((16, 8, 32), [F16, E4m3, E4m3, F16]),
    ]
};

/// The elements of D, row by row.
fn result(spec: &Mma, d: &[WarpRegister]) -> Vec<Vec<u64>> {
    let mut matrix = vec![vec![0; spec.n.into()]; spec.m.into()];
    let n = usize::from(spec.n);
    fragments(spec)[3].scatter(d, (n, 1), |index, bits| matrix[index / n][index % n] = bits);
    matrix
}

#[test]
fn products_are_those_of_a_triple_loop() {
    let mut rng = random(2);
    for &(shape, types) in SHAPES {
        let spec = mma_spec(shape, types);
        check(&spec, Arithmetic::Ieee).unwrap();
        let [m, n, k] = [spec.m, spec.n, spec.k].map(usize::from);
        let (a, b) = (matrix(&mut rng, m, k, spec.a_type), matrix(&mut rng, k, n, spec.b_type));
        let c = matrix(&mut rng, m, n, spec.c_type);
        let [fa, fb, fc, _] = fragments(&spec);
        let d = mma(&spec, &spread(&fa, &a), &spread(&fb, &b), &spread(&fc, &c), Arithmetic::Ieee);
        for (row, values) in result(&spec, &d).iter().enumerate() {
            for (column, &bits) in values.iter().enumerate() {
                let product =
                    |i: usize| element::to_f64(spec.a_type, a[row][i]) * element::to_f64(spec.b_type, b[i][column]);
                let expected = (0..k).map(product).sum::<f64>() + element::to_f64(spec.c_type, c[row][column]);
                assert_eq!(element::to_f64(spec.d_type, bits), expected, "{shape:?} {types:?} ({row}, {column})");
            }
        }
    }
}

/// One product per lane with everything else zero. This shows roundings without the noise of a sum.
fn first_element(types: [MmaType; 4], shape: (u16, u16, u16), a: &[u64], b: &[u64], c: u64, saturate: bool) -> u64 {
    let spec = Mma { saturate, ..mma_spec(shape, types) };
    let [m, n, k] = [spec.m, spec.n, spec.k].map(usize::from);
    let mut matrices = [vec![vec![0; k]; m], vec![vec![0; n]; k], vec![vec![0; n]; m]];
    matrices[0][0][..a.len()].copy_from_slice(a);
    b.iter().enumerate().for_each(|(i, &bits)| matrices[1][i][0] = bits);
    matrices[2][0][0] = c;
    let [fa, fb, fc, _] = fragments(&spec);
    let [a, b, c] = [spread(&fa, &matrices[0]), spread(&fb, &matrices[1]), spread(&fc, &matrices[2])];
    result(&spec, &mma(&spec, &a, &b, &c, Arithmetic::Ieee))[0][0]
}

#[test]
fn sums_round_once_to_nearest_even() {
    use MmaType::*;
    let one = u64::from(1f32.to_bits());
    let (bf16, shape) = ([F32, Bf16, Bf16, F32], (16, 8, 16));
    // 1 + 2^-24 lies halfway and goes to even; a second half takes it up, which rounding each addition would not.
    let half_ulp = u64::from(half::bf16::from_f32(1.0 / 4096.0).to_bits());
    assert_eq!(first_element(bf16, shape, &[half_ulp], &[half_ulp], one, false), one);
    assert_eq!(first_element(bf16, shape, &[half_ulp; 2], &[half_ulp; 2], one, false), one + 1);
    // f16 accumulators: 2048 + 1 lies halfway too.
    let f16 = |x: f32| u64::from(half::f16::from_f32(x).to_bits());
    let types = [F16, F16, F16, F16];
    assert_eq!(first_element(types, shape, &[f16(1.0)], &[f16(1.0)], f16(2048.0), false), f16(2048.0));
    assert_eq!(first_element(types, shape, &[f16(1.0); 2], &[f16(1.0); 2], f16(2048.0), false), f16(2050.0));
}

/// Values just beside a tie of f16, by less than f32 can represent.
#[test]
fn a_sum_in_f16_does_not_round_in_f32_first() {
    use MmaType::F16;
    let half_step_and_more = [0x3c00, 0x1000, 0x0010];
    assert_eq!(first_element([F16; 4], (16, 8, 16), &half_step_and_more, &[0x3c00, 0x3c00, 0x0010], 0, false), 0x3c01);
    assert_eq!(first_element([F16; 4], (16, 8, 16), &half_step_and_more, &[0x3c00, 0x3c00, 0x8010], 0, false), 0x3c00);
}

#[test]
fn nans_are_canonical_and_infinities_stay() {
    use MmaType::*;
    let (types, shape) = ([F32, F16, F16, F32], (16, 8, 16));
    assert_eq!(first_element(types, shape, &[0x7c00], &[0], 0, false), 0x7fff_ffff);
    assert_eq!(first_element(types, shape, &[0xfe01], &[0x3c00], 0, false), 0x7fff_ffff);
    assert_eq!(first_element(types, shape, &[0x7c00], &[0xbc00], 0, false), 0xff80_0000);
    assert_eq!(first_element([F16, F16, F16, F16], shape, &[0x7c00], &[0], 0, false), 0x7fff);
    // 65504 * 2 overflows f16 and not f32.
    assert_eq!(first_element([F16, F16, F16, F16], shape, &[0x7bff], &[0x4000], 0, false), 0x7c00);
}

#[test]
fn integers_wrap_or_saturate() {
    use MmaType::*;
    let (types, shape) = ([S32, S8, S8, S32], (16, 8, 32));
    let (top, bottom) = (i32::MAX as u32 as u64, i32::MIN as u32 as u64);
    assert_eq!(first_element(types, shape, &[1], &[1], top, false), bottom);
    assert_eq!(first_element(types, shape, &[1], &[1], top, true), top);
    assert_eq!(first_element(types, shape, &[0xff], &[1], bottom, true), bottom);
    assert_eq!(first_element(types, shape, &[0x80], &[0x80], 0, false), 16384);
    assert_eq!(first_element([S32, U8, U8, S32], shape, &[0xff], &[0xff], 0, false), 65025);
}

#[test]
fn exact_words_are_pairs_modulo_65536() {
    use MmaType::*;
    let mut rng = random(3);
    for &(shape, types) in SHAPES.iter().filter(|(_, t)| !matches!(t[1], F64 | S8 | U8 | E4m3 | E5m2)) {
        let spec = mma_spec(shape, types);
        let [m, n, k] = [spec.m, spec.n, spec.k].map(usize::from);
        let mut any = |rows, columns, ty| -> Vec<Vec<u64>> {
            let mask = (1 << element::bits(ty)) - 1;
            (0..rows).map(|_| (0..columns).map(|_| rng.random::<u64>() & mask).collect()).collect()
        };
        let (a, b, c) = (any(m, k, spec.a_type), any(k, n, spec.b_type), any(m, n, spec.c_type));
        let [fa, fb, fc, _] = fragments(&spec);
        let d = mma(&spec, &spread(&fa, &a), &spread(&fb, &b), &spread(&fc, &c), Arithmetic::Exact);
        let word = |bits: u64, ty| if element::bits(ty) == 32 { (bits >> 16, bits & 0xffff) } else { (bits, 0) };
        for (row, column) in (0..m).flat_map(|r| (0..n).map(move |c| (r, c))) {
            let (mut upper, mut lower) = word(c[row][column], spec.c_type);
            for i in 0..k {
                let (x, y) = (word(a[row][i], spec.a_type), word(b[i][column], spec.b_type));
                (upper, lower) = ((upper + x.0 * y.0) & 0xffff, (lower + x.1 * y.1) & 0xffff);
            }
            let expected = if spec.d_type == F16 { upper } else { upper << 16 | lower };
            assert_eq!(result(&spec, &d)[row][column], expected, "{shape:?} {types:?}");
        }
    }
}

#[test]
fn what_does_not_exist_is_refused() {
    use MmaType::*;
    let wrong = [
        ((16, 8, 32), [F32, F16, F16, F32]),
        ((16, 8, 16), [F32, F16, Bf16, F32]),
        ((16, 8, 16), [F16, Bf16, Bf16, F16]),
        ((16, 16, 16), [F32, F16, F16, F32]),
        ((16, 8, 16), [F32, S8, S8, F32]),
        ((16, 8, 16), [F32, F16, F16, F16]),
        ((0, 0, 0), [F32, F16, F16, F32]),
    ];
    for (shape, types) in wrong {
        assert_eq!(
            check(&mma_spec(shape, types), Arithmetic::Ieee).unwrap_err().kind,
            FaultKind::Illegal,
            "{shape:?} {types:?}"
        );
    }
    let mut short = mma_spec((16, 8, 16), [F32, F16, F16, F32]);
    short.a.pop();
    assert!(
        check(&short, Arithmetic::Ieee).unwrap_err().message.contains("operand a has 3 registers, its shape needs 4")
    );
    for (shape, types) in [((8, 8, 4), [F64; 4]), ((16, 8, 32), [F32, E4m3, E4m3, F32])] {
        let spec = mma_spec(shape, types);
        assert!(check(&spec, Arithmetic::Ieee).is_ok() && check(&spec, Arithmetic::Exact).is_err());
    }
    // Neither missing registers nor an absurd shape panic.
    mma(&short, &[], &[], &[], Arithmetic::Ieee);
    mma(&mma_spec((200, 80, 96), [F32, F16, F16, F32]), &[], &[], &[], Arithmetic::Ieee);
}
