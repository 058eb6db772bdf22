//! Sums over windows through the function that chooses the kernel, for sequences of any length.

use atlas_dsl::DType;
use atlas_ops::window_sums::{WINDOW_LOSS, sum_windows};
use atlas_runtime::{Tensor, args};

fn value(i: usize) -> f32 {
    (i * 37 % 23) as f32 / 8.0 - 1.25
}

#[test]
fn sums_of_sequences_of_any_length() {
    let device = crate::device();
    let (b, d) = (2, 5);
    for n in [1, 7, 8, 9, 16, 30, 64] {
        for window in [-3, 0, 1, 5, 8, 13, 100, i32::MAX] {
            let x: Vec<f32> = (0..b * n * d).map(value).collect();
            let mut y = Tensor::zeros(&device, DType::F32, [b, n, d]).unwrap();
            let given = device.tensor_from(&x, [b, n, d]).unwrap();
            sum_windows(&device.default_stream(), &given, &mut y, window).unwrap();
            // Eighths, which f32 adds without rounding.
            let wanted = |at: usize| {
                let terms = (window.max(0) as usize).min(at / d % n + 1);
                (0..terms).map(|back| x[at - back * d]).sum::<f32>()
            };
            let wanted: Vec<f32> = (0..x.len()).map(wanted).collect();
            assert_eq!(y.to_vec::<f32>().unwrap(), wanted, "{n} tokens, a window of {window}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let device = crate::device();
    let x = Tensor::zeros(&device, DType::F32, [2, 8, 4]).unwrap();
    for shape in [vec![2, 9, 4], vec![8, 4], vec![2, 8, 4, 1]] {
        let mut y = Tensor::zeros(&device, DType::F32, shape).unwrap();
        assert!(sum_windows(&device.default_stream(), &x, &mut y, 3).is_err());
    }
}

#[test]
fn losses_over_a_window() {
    let device = crate::device();
    let (b, n, d, window) = (2, 21, 6, 4);
    let [p, v] = [0, 11].map(|salt| (0..b * n * d).map(|i| value(i + salt)).collect::<Vec<f32>>());
    let [given, wanted] = [&p, &v].map(|x| device.tensor_from(x, [b, n, d]).unwrap());
    let mut y = Tensor::zeros(&device, DType::F32, [b, n]).unwrap();
    let mut space = WINDOW_LOSS.workspace(&device, &[], &[("B", b), ("N", n)]).unwrap();
    WINDOW_LOSS.launch(&device, args!(given, wanted, 0.5, &mut y, window), &mut space).unwrap();
    // Half the scale, as the losses of memories have it.
    let loss = |t: usize| (0..d).map(|i| 0.25 * (p[t * d + i] - v[t * d + i]).powi(2)).sum::<f32>();
    let sum = |t: usize| (0..(window as usize).min(t % n + 1)).map(|back| loss(t - back)).sum::<f32>();
    for (t, found) in y.to_vec::<f32>().unwrap().into_iter().enumerate() {
        assert!((found - sum(t)).abs() <= 1e-5 * sum(t).max(1.0), "token {t}: {found} for {}", sum(t));
    }
}
