//! Numbers at the ends of what a kernel is for: what its documentation says of them holds.

use atlas_dsl::{DType, KernelDef};
use atlas_ops::attention::attention;
use atlas_ops::attention_decode::ATTENTION_DECODE;
use atlas_ops::block_attention::block_attention;
use atlas_ops::fused_forward::{lerp_gate, silu_gate};
use atlas_ops::gated_memory::memory_read_normed;
use atlas_ops::inverse::inverse;
use atlas_ops::monomials::{count, monomials2, monomials3};
use atlas_ops::random_features::{favor_features, fourier_pairs};
use atlas_ops::rbf_features::rbf_features;
use atlas_ops::transpose::transpose;
use atlas_ops::windowed_attention::windowed_attention;
use atlas_ops::{OPS, Problem};
use atlas_runtime::{Arg, Launch, Tensor, args};
use half::{bf16, f16};

fn of(dtype: DType, shape: &[usize], f: impl Fn(usize) -> f64) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product()).map(f).collect();
    let cpu = crate::device();
    match dtype {
        DType::F16 => cpu.tensor_from(&values.iter().map(|&v| f16::from_f64(v)).collect::<Vec<_>>(), shape),
        DType::Bf16 => cpu.tensor_from(&values.iter().map(|&v| bf16::from_f64(v)).collect::<Vec<_>>(), shape),
        DType::I32 => cpu.tensor_from(&values.iter().map(|&v| v as i32).collect::<Vec<_>>(), shape),
        _ => cpu.tensor_from(&values.iter().map(|&v| v as f32).collect::<Vec<_>>(), shape),
    }
    .unwrap()
}

fn f32s(shape: &[usize], values: &[f64]) -> Tensor {
    of(DType::F32, shape, |i| values[i % values.len()])
}

fn all(t: &Tensor) -> Vec<f64> {
    t.to_f64_vec().unwrap()
}

fn near(found: &[f64], wanted: &[f64], bound: f64) {
    assert_eq!(found.len(), wanted.len());
    for (f, w) in found.iter().zip(wanted) {
        assert!(f == w || (f - w).abs() <= bound * w.abs().max(1e-30), "{f} for {w}: {found:?} for {wanted:?}");
    }
}

fn launch<'a>(kernel: &'static KernelDef, args: impl AsRef<[Arg<'a>]>) {
    kernel.launch(&crate::device(), args).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
}

/// The inverse and the status of one matrix.
fn inverted(a: &Tensor, count: i32, damping: f32) -> (Vec<f64>, f64) {
    let n = a.shape()[1];
    let (mut x, mut status) = (of(a.dtype(), &[1, n, n], |_| 7.0), of(DType::I32, &[1], |_| 7.0));
    launch(&inverse, args!(a, &mut x, &mut status, count, damping));
    (all(&x), all(&status)[0])
}

#[test]
fn matrices_whose_first_steps_change_little_have_an_inverse() {
    let (x, status) = inverted(&f32s(&[1, 2, 2], &[1.0, 0.0, 0.0, 2.5e-4]), 60, 0.0);
    near(&x, &[1.0, 0.0, 0.0, f64::from(1.0 / 2.5e-4_f32)], 1e-4);
    assert_eq!(status, 0.0);
    let (x, status) = inverted(&f32s(&[1, 2, 2], &[1.0, 100.0, 0.0, 1.0]), 60, 0.0);
    assert_eq!(status, 0.0);
    for (x, wanted) in x.iter().zip([1.0, -100.0, 0.0, 1.0]) {
        assert!((x - wanted).abs() < 1e-1, "{x} for {wanted}");
    }
    // Of ones and 1e-3 I: (1000 I - 1000 / (8.001e-3 1e6) ones).
    let (x, status) = inverted(&f32s(&[1, 8, 8], &[1.0]), 60, 1e-3);
    assert_eq!(status, 0.0);
    for (i, x) in x.iter().enumerate() {
        let wanted = if i % 9 == 0 { 1000.0 } else { 0.0 } - 1000.0 / 8.001;
        assert!((x - wanted).abs() < 5.0, "{x} for {wanted}");
    }
    for n in [2, 5, 12] {
        for kappa in [10.0, 1e3, 1e4] {
            let at = |i: usize| {
                if !i.is_multiple_of(n + 1) { 0.0 } else { f64::powf(kappa, -((i / n) as f64) / (n - 1) as f64) }
            };
            let (x, status) = inverted(&of(DType::F32, &[1, n, n], at), 80, 0.0);
            assert_eq!(status, 0.0, "{n} {kappa}");
            (0..n).for_each(|i| near(&[x[i * n + i]], &[1.0 / at(i * n + i)], 1e-2));
        }
    }
}

#[test]
fn matrices_without_an_inverse_have_none() {
    let without = |a: &Tensor, count: i32| {
        let (x, status) = inverted(a, count, 0.0);
        assert!(status == 1.0 && x.iter().all(|x| x.is_nan()), "{:?}: {status} {:?}", a.shape(), &x[..2]);
    };
    for count in [0, 3, 60] {
        without(&f32s(&[1, 3, 3], &[0.0]), count);
        without(&f32s(&[1, 8, 8], &[1.0]), count);
        without(&f32s(&[1, 3, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]), count);
        // All but one of many directions.
        without(&of(DType::F32, &[1, 64, 64], |i| if i % 65 == 0 && i > 0 { 1.0 } else { 0.0 }), count);
    }
    without(&f32s(&[1, 2, 2], &[1.0, f64::NAN, 0.0, 1.0]), 60);
    // An inverse beyond the element type.
    without(&f32s(&[1, 1, 1], &[1e-40]), 60);
    without(&of(DType::F16, &[1, 1, 1], |_| 1e-5), 60);
    let (x, status) = inverted(&of(DType::F16, &[1, 1, 1], |_| 2_f64.powi(-15)), 60, 0.0);
    assert_eq!((x, status), (vec![32768.0], 0.0));
}

#[test]
fn blocks_of_attention_are_of_64_keys() {
    let (q, k, v) =
        (f32s(&[1, 4, 1, 1], &[0.0]), f32s(&[1, 128, 1, 1], &[0.0]), of(DType::F32, &[1, 128, 1, 1], |i| i as f64));
    let (blocks, counts) = (of(DType::I32, &[1, 1, 1], |_| 1.0), of(DType::I32, &[1, 1], |_| 1.0));
    let (mut o, mut lse) = (f32s(&[1, 4, 1, 1], &[0.0]), f32s(&[1, 1, 4], &[0.0]));
    let mut with = |config: &str| {
        let args = args!(&q, &k, &v, &blocks, &counts, 0, 1.0, &mut o, &mut lse);
        let launched = block_attention.launch_with(&crate::device(), &config.parse().unwrap(), args);
        launched.map(|()| all(&o)).map_err(|e| e.to_string())
    };
    assert_eq!(with("warps=4"), Ok(vec![95.5; 4]));
    for config in ["BM=32", "BM=128"] {
        assert!(with(config).unwrap_err().contains("ATL616"), "{config}");
    }
}

#[test]
fn pairs_are_two() {
    let (x, w) = (f32s(&[5, 2], &[0.5]), f32s(&[3, 2], &[0.5]));
    for p in [0, 1, 3] {
        let mut y = f32s(&[5, p, 3], &[0.0]);
        let refused = fourier_pairs.launch(&crate::device(), args!(&x, &w, &mut y)).unwrap_err().to_string();
        assert!(refused.contains("requires P == 2"), "{refused}");
    }
}

#[test]
fn columns_past_the_last_monomial_are_zero() {
    for last in [f64::INFINITY, f64::NAN, 1e20] {
        let x = f32s(&[1, 2], &[0.5, last]);
        let e = count(2, 2);
        let mut y = f32s(&[1, e + 1], &[7.0]);
        launch(&monomials2, args!(&x, &mut y, 1.0, 1.0, 1.0, 1));
        let y = all(&y);
        assert_eq!((y[..2].to_vec(), y[3], y[e]), (vec![1.0, 0.5], 0.25, 0.0), "{last}");
        let e = count(2, 3);
        let mut y = f32s(&[1, e + 1], &[7.0]);
        launch(&monomials3, args!(&x, &mut y, 1.0, 1.0, 1.0, 1.0, 1));
        let y = all(&y);
        assert_eq!((y[6], y[e]), (0.125, 0.0), "{last}");
    }
}

#[test]
fn gates_of_any_numbers() {
    let cases = [(1e20, -1e20, 0.0), (1e37, -100.0, -3.72e-5), (1e38, 1.0, 7.310_585_8e37), (3e38, -3e38, 0.0)];
    for (x, gate, wanted) in cases {
        let mut y = f32s(&[1, 1, 1], &[7.0]);
        launch(&silu_gate, args!(&f32s(&[1, 1, 1], &[x]), &f32s(&[1, 1, 1], &[gate]), &mut y));
        // The sigmoid of -100 is a number of few digits.
        near(&all(&y), &[wanted], 3e-2);
    }
    let cases = [
        (1.0, 1e8, 100.0, 1.0),
        (1e20, 1.0, -100.0, 1.0),
        (3e38, -3e38, 0.0, 0.0),
        (1.0, 2.0, 0.0, 1.5),
        (1.0, 1e8, 10.0, 4540.786),
    ];
    for (x, m, gate, wanted) in cases {
        let mut y = f32s(&[1, 1, 1], &[7.0]);
        let [x, m, gate] = [x, m, gate].map(|v| f32s(&[1, 1, 1], &[v]));
        launch(&lerp_gate, args!(&x, &m, &gate, &mut y));
        near(&all(&y), &[wanted], 1e-5);
    }
    for dtype in [DType::F16, DType::Bf16] {
        let (x, gate) = (of(dtype, &[1, 1, 9], |_| 65000.0), of(dtype, &[1, 1, 9], |i| i as f64 - 4.0));
        let mut y = of(dtype, &[1, 1, 9], |_| 7.0);
        launch(&lerp_gate, args!(&x, &x.contiguous().unwrap(), &gate, &mut y));
        assert_eq!(all(&y), all(&x));
    }
}

/// What every attention gives for one query of logits `z`, but for the first, which is 0; and two log-sum-exps.
fn attentions(dtype: DType, value: impl Fn(usize) -> f64, n: usize, z: f64) -> ([f64; 4], [f64; 2]) {
    let q = of(dtype, &[1, 1, 1], |_| 1.0);
    let (k, v) = (of(dtype, &[1, n, 1], |i| if i == 0 { 0.0 } else { 1.0 }), of(dtype, &[1, n, 1], value));
    let scale = z as f32;
    let one = |shape: &[usize]| of(dtype, shape, |_| 7.0);
    let wide = |t: &Tensor| t.reshape([1, t.shape()[1], 1, 1]).unwrap();
    let mut found = [0.0; 4];
    let mut o = one(&[1, 1, 1]);
    launch(&attention, args!(&q, &k, &v, scale, &mut o));
    found[0] = all(&o)[0];
    let (q, k, v) = (wide(&q), wide(&k), wide(&v));
    let (mut o, mut lse) = (one(&[1, 1, 1, 1]), f32s(&[1, 1, 1], &[0.0]));
    let (none, first) = (of(dtype, &[1, 0, 1], |_| 0.0), of(DType::I32, &[1, 1], |_| 0.0));
    launch(&windowed_attention, args!(&q, &k, &v, &none, &none, &first, 1000, scale, &mut o, &mut lse));
    found[1] = all(&o)[0];
    let of_window = all(&lse)[0];
    let blocks = of(DType::I32, &[1, 1, n.div_ceil(64)], |i| i as f64);
    let counts = of(DType::I32, &[1, 1], |_| 1000.0);
    launch(&block_attention, args!(&q, &k, &v, &blocks, &counts, 0, scale, &mut o, &mut lse));
    found[2] = all(&o)[0];
    let of_blocks = all(&lse)[0];
    let tokens = of(DType::I32, &[1], |_| 1000.0);
    let dims = [("S", 1), ("J", 1), ("X", 2), ("R", 1), ("D", 1)];
    let mut space = ATTENTION_DECODE.workspace(&crate::device(), &[], &dims).unwrap();
    let args = args!(&q, &k, &v, &tokens, scale, &mut o, &mut lse);
    ATTENTION_DECODE.launch(&crate::device(), args, &mut space).unwrap();
    found[3] = all(&o)[0];
    (found, [of_window, of_blocks])
}

#[test]
fn the_scale_of_attention_is_the_usual_one() {
    // Of two keys, the weight of the second is a sigmoid: 0.8808 for 2, where a power of two would give 0.8.
    for scale in [0.0, 1.0, 2.0, -1.0, -2.0] {
        let (found, sums) = attentions(DType::F32, |i| i as f64, 2, scale);
        near(&found, &[1.0 / (1.0 + (-scale).exp()); 4], 1e-6);
        near(&sums, &[(1.0 + scale.exp()).ln(); 2], 1e-6);
    }
    // The greatest that may be, and one that may not: the logit of the first key is 0 times it.
    for (scale, wanted) in [(2.3e38, 1.0), (-2.3e38, 0.0)] {
        assert_eq!(attentions(DType::F32, |i| i as f64, 2, scale).0, [wanted; 4], "{scale}");
    }
    for scale in [f64::INFINITY, f64::NEG_INFINITY] {
        assert!(attentions(DType::F32, |i| i as f64, 2, scale).0.iter().all(|o| o.is_nan()), "{scale}");
    }
}

#[test]
fn the_greatest_values_that_attention_is_for() {
    for o in attentions(DType::F32, |_| 5e36, 64, 0.0).0 {
        near(&[o], &[5e36], 1e-5);
    }
    // Weights that are all rounded up.
    let z = (0.0625_f64 * (1.0 + 1.02 / 2048.0)).ln();
    for o in attentions(DType::F16, |_| 65472.0, 201, z).0 {
        near(&[o], &[65472.0], 1e-3);
    }
    let z = (0.0625_f64 * (1.0 + 1.02 / 256.0)).ln();
    for o in attentions(DType::Bf16, |_| 1e36, 201, z).0 {
        near(&[o], &[1e36], 1e-2);
    }
}

#[test]
fn logarithms_of_rounded_weights_are_off_by_as_much_as_their_documentation_says() {
    for (dtype, bound) in [(DType::F32, 1e-6), (DType::F16, 2_f64.powi(-11)), (DType::Bf16, 2_f64.powi(-8))] {
        for k in 0..16 {
            let z = f64::from((0.0625 * (1.0 + f64::from(k) / 1000.0)).ln() as f32);
            let exact = (1.0 + 200.0 * z.exp()).ln();
            for found in attentions(dtype, |_| 1.0, 201, z).1 {
                assert!((found - exact).abs() <= bound, "{dtype} {z}: {found} for {exact}");
            }
        }
    }
}

#[test]
fn a_transpose_moves_bits_but_those_of_signalling_nans() {
    let bits = [0x7e01, 0xfc00, 0x8000, 0x0001, 0x3c00, 0x7c01];
    let x = crate::device().tensor_from(&bits.map(f16::from_bits), [2, 3]).unwrap();
    let mut y = of(DType::F16, &[3, 2], |_| 7.0);
    launch(&transpose, args!(&x, &mut y));
    let found: Vec<u16> = y.to_vec::<f16>().unwrap().into_iter().map(f16::to_bits).collect();
    // A signalling NaN comes out as it was or quiet.
    assert!([0x7c01, 0x7e01].contains(&found[5]), "{found:x?}");
    assert_eq!(found[..5], [0x7e01, 0x0001, 0xfc00, 0x3c00, 0x8000]);
}

#[test]
fn features_of_the_longest_rows_that_they_are_for() {
    for (x, c) in [(1.3e19, -1.3e19), (1.3e19, 1.3e19), (0.0, 1.3e19)] {
        for g in [0.0, 1.1e38, -1.1e38] {
            let mut y = f32s(&[1, 1], &[7.0]);
            launch(&rbf_features, args!(&f32s(&[1, 1], &[x]), &f32s(&[1, 1], &[c]), &f32s(&[1], &[g]), &mut y));
            let wanted = if g == 0.0 || x == c {
                1.0
            } else if g > 0.0 {
                0.0
            } else {
                f64::INFINITY
            };
            assert_eq!(all(&y), [wanted], "{x} {c} {g}");
        }
    }
    // What a feature is off by, at most.
    for x in [10.3, 30.3, 300.3, 1000.3] {
        let d = 8;
        let row = |seed: usize| of(DType::F32, &[1, d], |i| x + 0.001 * ((i * 7 + seed * 5) % 11) as f64);
        let (a, b) = (row(1), row(2));
        let dot = |a: &Tensor, b: &Tensor| all(a).iter().zip(all(b)).map(|(a, b)| a * b).sum::<f64>();
        let shift = (dot(&a, &b) - dot(&a, &a) / 2.0) as f32;
        let mut y = f32s(&[1, 1], &[7.0]);
        launch(&favor_features, args!(&a, &b, 1.0, shift, &mut y));
        let exact = dot(&a, &b) - dot(&a, &a) / 2.0 - f64::from(shift);
        let terms = dot(&a, &b) + dot(&a, &a) / 2.0 + f64::from(shift.abs());
        let off = all(&y)[0].ln() - exact;
        assert!(off.abs() <= terms * (d + 4) as f64 * 2_f64.powi(-24) + 1e-6, "{x}: {off}");
    }
}

#[test]
fn a_row_of_equal_numbers_adds_nothing() {
    for (m, e) in [(12345.678, 3), (1e3, 48), (0.1, 7), (1e20, 3)] {
        // gelu(20) = 20.
        let [x, w2, w1] = [f32s(&[1, 2, 1], &[20.0]), f32s(&[1, 1, 1], &[1.0]), f32s(&[1, e, 1], &[m / 20.0])];
        let (w, r, mut y) = (f32s(&[1, e], &[1.0]), f32s(&[1, 2, e], &[0.5]), f32s(&[1, 2, e], &[7.0]));
        launch(&memory_read_normed, args!(&x, &w2, &w1, &w, &r, 1e-6, &mut y));
        for y in all(&y) {
            assert!((y - 0.5).abs() < 1e-4, "{m} {e}: {y}");
        }
    }
}

#[test]
fn products_over_nothing_are_zero_in_references_too() {
    for name in ["matmul", "matmul_add", "linear_gelu", "linear_gelu_train", "linear_residual", "linear_row_scale"] {
        let op = OPS.iter().find(|op| op.name == name).unwrap();
        let p = Problem::new(op, op.kernel(0), DType::F32, &[2, 0, 3]);
        let inputs = p.inputs();
        assert_eq!((op.reference)(&p, &inputs)[0].len(), 2 * p.dim("N"), "{name}");
        p.check(&crate::device(), None).unwrap();
    }
}
