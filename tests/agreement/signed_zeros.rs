//! The sign of a zero: every device gives the same, except for sums.

use super::{agrees_with, input, output};
use atlas::prelude::*;
use atlas_dsl::DType::{F16, F32, F64};

/// The number of results for each element.
const RESULTS: usize = 17;

atlas_kernel! {
    /// The reciprocal of each zero, which is an infinity of its sign.
    kernel signs<T: Float>(x: &Tensor<T, [N]>, y: &mut Tensor<f32, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let z = load(x[n]);
            let wide = z.cast::<f32>();
            store(y[0, n], 1.0 / wide);
            store(y[1, n], 1.0 / (-z).cast::<f32>());
            store(y[2, n], 1.0 / (z * -1.0).cast::<f32>());
            store(y[3, n], 1.0 / (z + -0.0).cast::<f32>());
            store(y[4, n], 1.0 / (z + 0.0).cast::<f32>());
            store(y[5, n], 1.0 / max(z, -0.0).cast::<f32>());
            store(y[6, n], 1.0 / min(z, 0.0).cast::<f32>());
            store(y[7, n], 1.0 / max(z, -z).cast::<f32>());
            store(y[8, n], 1.0 / min(z, -z).cast::<f32>());
            store(y[9, n], 1.0 / floor(z).cast::<f32>());
            store(y[10, n], 1.0 / round(z - 0.25).cast::<f32>());
            store(y[11, n], 1.0 / sqrt(z).cast::<f32>());
            store(y[12, n], 1.0 / abs(z).cast::<f32>());
            store(y[13, n], 1.0 / wide.cast::<f16>().cast::<f32>());
            store(y[14, n], 1.0 / select(wide == 0.0, wide, 1.0));
            store(y[15, n], 1.0 / (wide - wide));
            store(y[16, n], 1.0 / (wide.cast::<i32>().cast::<f32>()));
        }
    }

    kernel signs64(x: &Tensor<f64, [N]>, y: &mut Tensor<f64, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let z = load(x[n]);
            store(y[0, n], 1.0 / z);
            store(y[1, n], 1.0 / -z);
            store(y[2, n], 1.0 / (z * -1.0));
            store(y[3, n], 1.0 / (z + -0.0));
            store(y[4, n], 1.0 / (z + 0.0));
            store(y[5, n], 1.0 / max(z, -0.0));
            store(y[6, n], 1.0 / min(z, 0.0));
            store(y[7, n], 1.0 / max(z, -z));
            store(y[8, n], 1.0 / min(z, -z));
            store(y[9, n], 1.0 / floor(z));
            store(y[10, n], 1.0 / round(z - 0.25));
            store(y[11, n], 1.0 / sqrt(z));
            store(y[12, n], 1.0 / abs(z));
            store(y[13, n], 1.0 / z.cast::<f32>().cast::<f64>());
            store(y[14, n], 1.0 / select(z == 0.0, z, 1.0));
            store(y[15, n], 1.0 / (z - z));
            store(y[16, n], 1.0 / z.cast::<i32>().cast::<f64>());
        }
    }

    kernel folds(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [F, N]>)
    tune { BN: [8], warps: [1, 2] }
    {
        for n in grid(tiles(N, BN)) {
            let z = load(x[n, span(0, 32)]);
            store(y[0, n], 1.0 / max(z, axis = 1));
            store(y[1, n], 1.0 / min(z, axis = 1));
            store(y[2, n], 1.0 / abs(sum(z, axis = 1)));
        }
    }
}

/// Zeros of alternating sign.
fn zero(i: usize) -> f64 {
    if i.is_multiple_of(2) { 0.0 } else { -0.0 }
}

fn wanted(x: &[f64]) -> Vec<f64> {
    let each = |f: fn(f64) -> f64| x.iter().map(|&x| 1.0 / f(x)).collect::<Vec<f64>>();
    let all: [fn(f64) -> f64; RESULTS] = [
        |x| x,
        |x| -x,
        |x| -x,
        |x| x,
        |_| 0.0,
        |x| x,
        |x| x,
        |_| 0.0,
        |_| -0.0,
        |x| x,
        |_| -0.0,
        |x| x,
        |_| 0.0,
        |x| x,
        |x| x,
        |_| 0.0,
        |_| 0.0,
    ];
    all.into_iter().flat_map(each).collect()
}

#[test]
fn element_wise_operations_keep_the_sign_of_a_zero() {
    for dtype in [F32, F16] {
        let args = [input(dtype, &[40], zero), output(F32, &[RESULTS, 40])];
        agrees_with(&signs, &args, 0.0, |a| vec![wanted(&a[0])]);
    }
    let args = [input(F64, &[40], zero), output(F64, &[RESULTS, 40])];
    agrees_with(&signs64, &args, 0.0, |a| vec![wanted(&a[0])]);
}

#[test]
fn folds_order_zeros_by_their_sign() {
    let args = [input(F32, &[11, 21], |i| if i / 21 == 3 { -0.0 } else { zero(i) }), output(F32, &[3, 11])];
    agrees_with(&folds, &args, 0.0, |a| {
        let inf = f64::INFINITY;
        let all_below = |r: &[f64]| r.iter().all(|x| x.is_sign_negative());
        let most = a[0].chunks(21).map(|r| if all_below(r) { -inf } else { inf });
        let rest = std::iter::repeat_n(-inf, 11).chain(std::iter::repeat_n(inf, 11));
        vec![most.chain(rest).collect()]
    });
}
