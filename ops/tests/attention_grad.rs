//! The gradient of attention over a window: its reference against differences of the forward pass, all launches against the
//! reference, and kernels with a mistake each.

use crate::controls::{caught, compare};
use crate::training::{noise, slopes_agree};
use atlas_dsl::DType;
use atlas_macros::atlas_kernel;
use atlas_ops::windowed_attention::{self, WindowedAttentionSizes, windowed_attention};
use atlas_ops::windowed_attention_grad::{Sight, WINDOWED_ATTENTION_GRAD, reference};
use atlas_ops::{Comparison, cases};
use atlas_runtime::{Device, Launch, Tensor, args};
use half::{bf16, f16};
use std::f64::consts::LOG2_E;

/// Sizes, the window, how many tokens a document has, and how far numbers of queries spread.
type Case = (WindowedAttentionSizes, i64, usize, f64);

const fn sizes([b, m, n, h, j, d, s]: [usize; 7]) -> WindowedAttentionSizes {
    WindowedAttentionSizes { b, m, n, h, j, d, s }
}

const CASES: [Case; 9] = [
    (sizes([2, 21, 21, 4, 2, 8, 3]), 6, 1000, 1.0),
    (sizes([1, 19, 19, 2, 1, 4, 2]), 1, 1000, 1.0),
    (sizes([1, 17, 17, 2, 2, 4, 0]), 40, 1000, 1.0),
    (sizes([1, 24, 24, 2, 1, 4, 2]), 9, 7, 1.0),
    // Queries that see nothing: more of them than keys, documents that begin behind them, no window.
    (sizes([2, 20, 9, 2, 1, 4, 0]), 5, 1000, 1.0),
    (sizes([1, 8, 30, 1, 1, 4, 0]), 12, 1000, 1.0),
    (sizes([1, 9, 9, 1, 1, 4, 0]), 0, 1000, 1.0),
    (sizes([2, 1, 1, 2, 1, 4, 1]), 3, 1000, 1.0),
    (sizes([1, 20, 20, 1, 1, 8, 2]), 7, 1000, 20.0),
];

/// q, k, v, pk, pv, and the gradient by the output.
fn inputs((s, _, _, spread): Case) -> ([Vec<f64>; 5], Vec<f64>) {
    let (queries, keys, prefix) = (s.b * s.m * s.h * s.d, s.b * s.n * s.j * s.d, s.j * s.s * s.d);
    let q = noise(1, queries).into_iter().map(|q| q * spread).collect();
    let qkv = [q, noise(2, keys), noise(3, keys), noise(4, prefix), noise(5, prefix)];
    (qkv, noise(6, queries))
}

fn documents((s, _, each, _): Case) -> Vec<f64> {
    (0..s.b * s.m).map(|i| (i % s.m / each * each) as f64).collect()
}

fn slices(of: &[Vec<f64>; 5]) -> [&[f64]; 5] {
    of.each_ref().map(Vec::as_slice)
}

#[test]
fn the_reference_is_the_slope_of_the_forward_pass() {
    const SCALE: f64 = 0.4;
    for case in CASES {
        let (s, window, ..) = case;
        let (qkv, dout) = inputs(case);
        let first = documents(case);
        let loss = |qkv: &[Vec<f64>; 5]| {
            let [o, _] = windowed_attention::reference(slices(qkv), &first, window, SCALE, s);
            o.iter().zip(&dout).map(|(o, d)| o * d).sum()
        };
        let found = reference(slices(&qkv), &dout, Sight { first: &first, window, scale: SCALE }, s);
        slopes_agree(&qkv, &found, loss);
    }
}

/// A tensor, and what its element type holds of the numbers.
fn rounded(device: &Device, dtype: DType, shape: &[usize], values: &[f64]) -> (Tensor, Vec<f64>) {
    let tensor = match dtype {
        DType::F16 => device.tensor_from(&values.iter().map(|&v| f16::from_f64(v)).collect::<Vec<_>>(), shape),
        DType::Bf16 => device.tensor_from(&values.iter().map(|&v| bf16::from_f64(v)).collect::<Vec<_>>(), shape),
        DType::I32 => device.tensor_from(&values.iter().map(|&v| v as i32).collect::<Vec<_>>(), shape),
        _ => device.tensor_from(&values.iter().map(|&v| v as f32).collect::<Vec<_>>(), shape),
    };
    let tensor = tensor.unwrap();
    let held = tensor.to_f64_vec().unwrap();
    (tensor, held)
}

/// The forward pass and all launches of the gradient with a window and a scale; and the reference with the case's own.
fn gradients(case: Case, dtype: DType, window: i64, scale: f64) -> [[Vec<f64>; 5]; 2] {
    const SCALE: f64 = 0.4;
    let device = crate::device();
    let (s, right, ..) = case;
    let (queries, keys, prefix) = ([s.b, s.m, s.h, s.d], [s.b, s.n, s.j, s.d], [s.j, s.s, s.d]);
    let shapes: [&[usize]; 5] = [&queries, &keys, &keys, &prefix, &prefix];
    let (values, dout) = inputs(case);
    let made: Vec<(Tensor, Vec<f64>)> =
        shapes.iter().zip(&values).map(|(shape, values)| rounded(&device, dtype, shape, values)).collect();
    let (dout, held_dout) = rounded(&device, dtype, &queries, &dout);
    let (first, starts) = rounded(&device, DType::I32, &[s.b, s.m], &documents(case));
    let zeros = |dtype: DType, shape: &[usize]| Tensor::zeros(&device, dtype, shape).unwrap();
    let (mut o, mut lse) = (zeros(dtype, &queries), zeros(DType::F32, &[s.b, s.h, s.m]));
    let [q, k, v, pk, pv] = [0, 1, 2, 3, 4].map(|i| &made[i].0);
    let forward = SCALE as f32;
    windowed_attention
        .launch(&device, args!(q, k, v, pk, pv, &first, right as i32, forward, &mut o, &mut lse))
        .unwrap();
    let [mut dq, mut dk, mut dv] = [0, 1, 2].map(|i| zeros(dtype, shapes[i]));
    let [mut dpk, mut dpv] = [3, 4].map(|i| zeros(DType::F32, shapes[i]));
    let dims = [("B", s.b), ("H", s.h), ("M", s.m)];
    let mut space = WINDOWED_ATTENTION_GRAD.workspace(&device, &[], &dims).unwrap();
    let args = args!(
        q,
        k,
        v,
        pk,
        pv,
        &first,
        window as i32,
        scale as f32,
        &o,
        &lse,
        &dout,
        &mut dq,
        &mut dk,
        &mut dv,
        &mut dpk,
        &mut dpv
    );
    WINDOWED_ATTENTION_GRAD.launch(&device, args, &mut space).unwrap();
    let held = [0, 1, 2, 3, 4].map(|i| made[i].1.clone());
    let wanted = reference(slices(&held), &held_dout, Sight { first: &starts, window: right, scale: SCALE }, s);
    let found = [dq, dk, dv, dpk, dpv].map(|t| t.to_f64_vec().unwrap());
    assert!(found.iter().flatten().all(|v| v.is_finite()), "{case:?}");
    [found, wanted]
}

fn compared(case: Case, dtype: DType, window: i64, scale: f64) -> Comparison {
    let [found, wanted] = gradients(case, dtype, window, scale);
    Comparison::of_all(found.iter().map(Vec::as_slice).zip(wanted.iter().map(Vec::as_slice)))
}

/// The bound of chained products.
fn bound(dtype: DType) -> f64 {
    atlas_ops::tolerance::bound(atlas_ops::tolerance::ToleranceClass::Mlp, dtype).unwrap()
}

#[test]
fn all_launches_give_the_gradient() {
    for dtype in cases::DTYPES {
        // Where one key has nearly all weight, `dout v` and `delta` nearly cancel: what is left shows how `o` was rounded.
        for case in CASES.into_iter().filter(|case| dtype == DType::F32 || case.3 == 1.0) {
            let found = compared(case, dtype, case.1, 0.4);
            assert!(found.passes(bound(dtype)), "{case:?} {dtype}: {found:?}");
        }
    }
}

/// Softmax of one key is 1 whatever the logit is. So `dq` and `dk` are 0 but for the rounding of `o`, of which each number is at
/// most 1 here, in a sum of four.
#[test]
fn a_query_that_sees_itself_alone_has_no_slope() {
    for dtype in cases::DTYPES {
        for sizes in [sizes([1, 19, 19, 2, 1, 4, 0]), sizes([2, 1, 1, 2, 1, 4, 0])] {
            let [found, wanted] = gradients((sizes, 1, 1000, 1.0), dtype, 1, 0.4);
            assert!(found[..2].iter().flatten().all(|v| v.abs() <= bound(dtype)), "{dtype}: {found:?}");
            assert!(Comparison::new(&found[2], &wanted[2]).passes(bound(dtype)), "{dtype}");
        }
    }
}

#[test]
fn a_window_that_is_off_by_one_and_another_scale_are_caught() {
    for dtype in cases::DTYPES {
        for (window, scale) in [(7, 0.4), (5, 0.4), (6, 0.41), (6, 0.4 * LOG2_E)] {
            let found = compared(CASES[0], dtype, window, scale);
            assert!(!found.passes(bound(dtype)), "{window} {scale} {dtype}: {found:?}");
        }
    }
}

/// The kernel of the keys in plain form, with what a mistake is about: the end of the window, the heads that are summed over,
/// and the factor of `dk`.
macro_rules! key_grad {
    ($name:ident, |$row:ident, $window:ident| $oldest:expr, |$group:ident| $heads:expr, |$scale:ident| $factor:expr) => {
        atlas_kernel! {
            kernel $name<T: Float>(
                q: &Tensor<T, [B, M, H, D]>, k: &Tensor<T, [B, N, J, D]>, v: &Tensor<T, [B, N, J, D]>,
                first: &Tensor<i32, [B, M]>, window: i32, scale: f32, lse: &Tensor<f32, [B, H, M]>,
                delta: &Tensor<f32, [B, H, M]>, dout: &Tensor<T, [B, M, H, D]>,
                dk: &mut Tensor<T, [B, N, J, D]>, dv: &mut Tensor<T, [B, N, J, D]>,
            )
            tune { BN: [32], BM: [32] }
            {
                for (b, j, n) in grid(B, J, tiles(N, BN)) {
                    let ks = load(k[b, n, j, ..]);
                    let vs = load(v[b, n, j, ..]);
                    let key = n * BN + iota([BN, 1], 0);
                    let $group = size(H) / size(J);
                    let count = (size(M) + BM - 1) / BM;
                    let mut by_k = zeros::<f32>([BN, D]);
                    let mut by_v = zeros::<f32>([BN, D]);
                    for i in 0..$heads * count {
                        let h = j * $group + i / count;
                        let at = i % count * BM;
                        let qs = load(q[b, span(at, BM), h, ..]);
                        let douts = load(dout[b, span(at, BM), h, ..]);
                        let $row = at + size(N) - size(M) + iota([1, BM], 1);
                        let $window = min(window, size(N));
                        let seen = (key <= $row) && (key >= max($oldest, load(first[b, span(at, BM)])));
                        let z = dot(ks, qs.t()) * scale - load(lse[b, h, span(at, BM)]);
                        let p = select(seen, exp(z), 0.0);
                        by_v += dot(p.cast::<T>(), douts);
                        let ds = p * (dot(vs, douts.t()) - load(delta[b, h, span(at, BM)]));
                        by_k += dot(ds.cast::<T>(), qs);
                    }
                    let $scale = scale;
                    store(dk[b, n, j, ..], (by_k * $factor).cast::<T>());
                    store(dv[b, n, j, ..], by_v.cast::<T>());
                }
            }
        }
    };
}

key_grad!(without_a_mistake, |row, window| row - window + 1, |group| group, |scale| scale);
key_grad!(one_key_more, |row, window| row - window, |group| group, |scale| scale);
key_grad!(one_key_less, |row, window| row - window + 2, |group| group, |scale| scale);
key_grad!(first_head_alone, |row, window| row - window + 1, |group| group / group, |scale| scale);
key_grad!(without_scale, |row, window| row - window + 1, |group| group, |scale| scale / scale);

#[test]
fn mistakes_of_the_kernel_of_the_keys_are_caught() {
    for dtype in cases::DTYPES {
        let dims = [2, 70, 4, 32, 70, 2];
        let p = cases::problem("attention_key_grad", dtype, &dims).unwrap().with_scalar("window", 9.0);
        let right = compare(&p, &without_a_mistake, &dims);
        assert!(right.passes(p.bound()), "{right:?}");
        for wrong in [&one_key_more, &one_key_less, &first_head_alone, &without_scale] {
            caught(&p, wrong, &dims);
        }
    }
}
