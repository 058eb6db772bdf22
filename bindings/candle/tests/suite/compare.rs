//! Values, distances and gradients of both sides.

use super::devices::{beside, on_host};
use candle_core::{DType, Device, Result, Tensor, Var};

/// What f32 may differ by, relative to the norm of what is wanted: sums of a few hundred terms.
pub(crate) const F32: f64 = 1e-5;

/// Numbers between -1 and 1 that look random, and are the same each time; on the CPU.
pub(crate) fn values(seed: u64, shape: &[usize]) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32) / ((1_u64 << 23) as f32) - 1.0
    };
    let count = shape.iter().product();
    Tensor::from_vec((0..count).map(|_| next()).collect::<Vec<f32>>(), shape, &Device::Cpu).unwrap()
}

/// The norm of the difference, relative to that of what is wanted.
pub(crate) fn distance(found: &Tensor, wanted: &Tensor) -> f64 {
    assert_eq!(found.dims(), wanted.dims());
    let of = |x: &Tensor| on_host(x).flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let (found, wanted) = (of(found), of(wanted));
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let apart = norm(&mut found.iter().zip(&wanted).map(|(a, b)| a - b));
    // Not a number is as far away as can be.
    if apart == 0.0 {
        0.0
    } else if apart.is_nan() {
        f64::INFINITY
    } else {
        apart / norm(&mut wanted.iter().copied())
    }
}

#[track_caller]
pub(crate) fn close(found: &Tensor, wanted: &Tensor, bound: f64) {
    let distance = distance(found, wanted);
    assert!(
        distance <= bound,
        "{distance:e} apart on {:?}, and at most {bound:e} is allowed",
        found.device().location()
    );
}

/// The gradients of a weighted sum of what `f` gives, by each input. The weights are rounded to an element type.
pub(crate) fn gradients(inputs: &[Tensor], rounded: DType, f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Vec<Tensor> {
    let vars: Vec<Var> = inputs.iter().map(|x| Var::from_tensor(x).unwrap()).collect();
    let tracked: Vec<Tensor> = vars.iter().map(|var| var.as_tensor().clone()).collect();
    let y = f(&tracked).unwrap();
    let weights = values(99, y.dims()).to_dtype(rounded).unwrap();
    let gradients = (&y * beside(&weights, &y)).unwrap().sum_all().unwrap().backward().unwrap();
    vars.iter().map(|var| gradients.get(var).expect("a gradient by each input").clone()).collect()
}

/// Compares the gradients of two functions.
#[track_caller]
pub(crate) fn same_gradients(
    inputs: &[Tensor],
    bound: f64,
    found: impl Fn(&[Tensor]) -> Result<Tensor>,
    wanted: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let long: Vec<Tensor> = inputs.iter().map(on_host).collect();
    for (found, wanted) in gradients(inputs, DType::F32, found).iter().zip(&gradients(&long, DType::F32, wanted)) {
        close(found, wanted, bound);
    }
}

#[test]
fn what_differs_is_seen() {
    let x = values(1, &[8, 8]);
    assert_eq!(distance(&x, &x), 0.0);
    let off = (&x * 1.001).unwrap();
    assert!(distance(&off, &x) > 10.0 * F32);
    let nan = (&x * f64::NAN).unwrap();
    assert_eq!(distance(&nan, &x), f64::INFINITY);
}

#[test]
#[should_panic(expected = "apart")]
fn a_wrong_gradient_is_seen() {
    let x = values(2, &[4, 8]);
    same_gradients(&[x], F32, |x| x[0].sqr(), |x| x[0].sqr()? * 1.01);
}
