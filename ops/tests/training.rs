//! Gradients, a loss and an optimizer: references against differences of what they are gradients of, and what launches give
//! together.

use atlas_dsl::DType;
use atlas_ops::adamw::{adamw, bias_correction};
use atlas_ops::clip_factor::{CLIP_FACTOR, clip_factor, square_sums};
use atlas_ops::layer_grad::combine_grad;
use atlas_ops::rms_norm_grad::{
    RMS_NORM_GRAD, RMS_NORM_INPUT_GRAD, RMS_NORM_RESIDUAL_GRAD, RMS_NORM_RESIDUAL_INPUT_GRAD,
};
use atlas_ops::scaled_gate::{gradient, reference as gates};
use atlas_ops::{Comparison, cross_entropy, rms_norm, rms_norm_grad};
use atlas_runtime::{Chain, Launch, Tensor, args};

/// Numbers of -1 to 1, the same each time.
pub(crate) fn noise(seed: usize, len: usize) -> Vec<f64> {
    let of = |i: usize| ((i * 7919 + seed * 104_729 + 13) % 2003) as f64 / 1001.0 - 1.0;
    (0..len).map(|i| of(i * (i % 7 + 1))).collect()
}

/// Each gradient is the slope of the loss by its input, at about two dozen elements of each.
#[track_caller]
pub(crate) fn slopes_agree<const N: usize>(
    inputs: &[Vec<f64>; N],
    gradients: &[Vec<f64>],
    loss: impl Fn(&[Vec<f64>; N]) -> f64,
) {
    const STEP: f64 = 1e-5;
    for (of, gradient) in gradients.iter().enumerate() {
        assert_eq!(gradient.len(), inputs[of].len(), "input {of}");
        for at in (0..gradient.len()).step_by(gradient.len() / 23 + 1) {
            let moved = |by: f64| {
                let mut moved = inputs.clone();
                moved[of][at] += by;
                loss(&moved)
            };
            let slope = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
            let error = (slope - gradient[at]).abs();
            assert!(error <= 1e-6 * slope.abs().max(1.0), "input {of} at {at}: {} for {slope}", gradient[at]);
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn gradients_of_norms_are_slopes() {
    for (n, d, eps) in [(5, 7, 1e-6), (1, 3, 0.5), (4, 1, 1.0)] {
        let inputs = [noise(1, n * d), noise(2, d)];
        let dy = noise(3, n * d);
        let [dx, dw, _] = rms_norm_grad::reference([&inputs[0], &inputs[1], &dy], eps);
        slopes_agree(&inputs, &[dx, dw], |[x, w]| dot(&rms_norm::reference(x, w, eps), &dy));
    }
}

#[test]
fn gradients_of_a_gate_of_norms_are_slopes() {
    let (rows, heads, d, eps) = (6, 2, 5, 1e-3);
    let inputs = [noise(1, rows * d), noise(2, heads * d), noise(3, rows * d), noise(4, heads * d)];
    let dy = noise(5, rows * d);
    let norm = |x: &[f64], w: &[f64]| -> Vec<f64> {
        let of = |(at, x): (usize, &[f64])| rms_norm::reference(x, &w[at % heads * d..][..d], eps);
        x.chunks(d).enumerate().flat_map(of).collect()
    };
    let [m, wm, a, wa] = &inputs;
    let found = combine_grad([m, wm, a, wa, &dy], d, eps);
    let gradients = [found.memory, found.memory_norm, found.attention, found.attention_norm];
    slopes_agree(&inputs, &gradients, |[m, wm, a, wa]| {
        let gated = norm(a, wa).into_iter().zip(norm(m, wm)).map(|(a, m)| a / (1.0 + (-m).exp()));
        dot(&gated.collect::<Vec<f64>>(), &dy)
    });
}

#[test]
fn gradients_of_cross_entropy_are_slopes() {
    let (v, scale) = (9, 0.3);
    let target = [0.0, 8.0, -100.0, 3.0, 9.0];
    let logits = [noise(1, 5 * v)];
    let [_, slopes] = cross_entropy::reference(&logits[0], &target, v, scale);
    slopes_agree(&logits, &[slopes], |[logits]| {
        // Of the definition: the logarithm of the weight of softmax.
        let row = |n: usize| {
            let all: f64 = logits[n * v..][..v].iter().map(|z| z.exp()).sum();
            -(logits[n * v + target[n] as usize].exp() / all).ln()
        };
        scale * [0, 1, 3].map(row).iter().sum::<f64>()
    });
}

fn f32s(values: &[f64], shape: &[usize]) -> Tensor {
    let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
    crate::device().tensor_from(&values, shape).unwrap()
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(&crate::device(), DType::F32, shape).unwrap()
}

/// The gradient of `x + norm(x)` is that of both.
#[test]
fn a_residual_adds_its_gradient() {
    let (n, d, eps) = (37, 24, 1e-6);
    let [x, w, dy, dr] = [(1, n * d), (2, d), (3, n * d), (4, n * d)].map(|(seed, len)| noise(seed, len));
    let given = [f32s(&x, &[n, d]), f32s(&w, &[d]), f32s(&dy, &[n, d]), f32s(&dr, &[n, d])];
    let held = given.each_ref().map(|t| t.to_f64_vec().unwrap());
    let [mut dx, mut dw] = [zeros(&[n, d]), zeros(&[d])];
    let device = crate::device();
    let mut space = RMS_NORM_RESIDUAL_GRAD.workspace(&device, &[], &[("N", n)]).unwrap();
    let [x, w, dy, dr] = &given;
    RMS_NORM_RESIDUAL_GRAD.launch(&device, args!(x, w, dy, dr, eps, &mut dx, &mut dw), &mut space).unwrap();
    let [mut by_x, by_w, _] = rms_norm_grad::reference([&held[0], &held[1], &held[2]], eps);
    by_x.iter_mut().zip(&held[3]).for_each(|(x, r)| *x += r);
    let found = [dx, dw].map(|t| t.to_f64_vec().unwrap());
    let c = Comparison::of_all([(&found[0][..], &by_x[..]), (&found[1][..], &by_w[..])]);
    assert!(c.passes(2e-6), "{c:?}");
}

/// Weights that do not learn leave the gradient by tokens as it is.
#[test]
fn a_norm_has_its_gradient_without_that_of_its_weights() {
    let (n, d, eps) = (19, 40, 1e-6);
    let [x, w, dy, dr] = [(1, n * d), (2, d), (3, n * d), (4, n * d)].map(|(seed, len)| noise(seed, len));
    let [x, w, dy, dr] = [f32s(&x, &[n, d]), f32s(&w, &[d]), f32s(&dy, &[n, d]), f32s(&dr, &[n, d])];
    let device = crate::device();
    let space = |chain: &Chain| chain.workspace(&device, &[], &[("N", n)]).unwrap();
    let [mut dx, mut alone, mut dw] = [zeros(&[n, d]), zeros(&[n, d]), zeros(&[d])];

    let (both, one) = (&RMS_NORM_GRAD, &RMS_NORM_INPUT_GRAD);
    both.launch(&device, args!(x, w, dy, eps, &mut dx, &mut dw), &mut space(both)).unwrap();
    one.launch(&device, args!(x, w, dy, eps, &mut alone), &mut space(one)).unwrap();
    assert_eq!(dx.to_f64_vec().unwrap(), alone.to_f64_vec().unwrap());

    let (both, one) = (&RMS_NORM_RESIDUAL_GRAD, &RMS_NORM_RESIDUAL_INPUT_GRAD);
    both.launch(&device, args!(x, w, dy, dr, eps, &mut dx, &mut dw), &mut space(both)).unwrap();
    assert_ne!(dx.to_f64_vec().unwrap(), alone.to_f64_vec().unwrap());
    one.launch(&device, args!(x, w, dy, dr, eps, &mut alone), &mut space(one)).unwrap();
    assert_eq!(dx.to_f64_vec().unwrap(), alone.to_f64_vec().unwrap());
}

#[test]
fn gradients_of_gates_are_slopes() {
    let (n, d, scale) = (7, 5, 0.3);
    let inputs = [noise(1, n * d), noise(2, d)];
    let dy = noise(3, n * d);
    let by_z = gradient([&inputs[0], &inputs[1], &dy], scale);
    let by_bias = (0..d).map(|i| by_z.iter().skip(i).step_by(d).sum()).collect();
    slopes_agree(&inputs, &[by_z, by_bias], |[z, bias]| dot(&gates(z, bias, scale), &dy));
}

/// The means of a constant gradient, divided by their corrections, are the gradient and its square. So each step is the rate, in
/// the direction against the gradient, whatever its size.
#[test]
fn steps_on_a_constant_gradient_are_as_long_as_the_rate() {
    let device = crate::device();
    let g: Vec<f64> = vec![1e-3, -5.0, 80.0, -0.25, 0.0];
    let (rate, betas, decay) = (1e-2, [0.9, 0.999], 0.1);
    let [given, factor] = [f32s(&g, &[5]), f32s(&[0.5], &[1])];
    let [mut p, mut m, mut v] = [f32s(&[1.0; 5], &[5]), zeros(&[5]), zeros(&[5])];
    let mut wanted = [1.0; 5];
    for step in 1..=20 {
        let [bias1, bias2] = betas.map(|beta| bias_correction(beta, step));
        let numbers = (betas[0], betas[1], 1e-10_f32);
        adamw
            .launch(
                &device,
                args!(
                    &mut p, &mut m, &mut v, &given, &factor, rate, numbers.0, numbers.1, numbers.2, decay, bias1, bias2
                ),
            )
            .unwrap();
        for (w, g) in wanted.iter_mut().zip(&g) {
            let direction = if *g == 0.0 { 0.0 } else { g.signum() };
            *w -= rate * (decay * *w + direction);
        }
    }
    for (found, wanted) in p.to_f64_vec().unwrap().iter().zip(wanted) {
        assert!((found - wanted).abs() < 2e-5, "{found} for {wanted}");
    }
}

#[test]
fn the_norm_of_several_tensors_is_clipped() {
    let device = crate::device();
    let sizes = [20_001, 70, 1];
    let gradients: Vec<Vec<f64>> = sizes.iter().enumerate().map(|(i, &n)| noise(i + 1, n)).collect();
    let tensors: Vec<Tensor> = gradients.iter().map(|g| f32s(g, &[g.len()])).collect();
    let norm = gradients.iter().flatten().map(|g| g * g).sum::<f64>().sqrt();
    let parts = 7;
    let sums = zeros(&[3 * parts]);
    for (i, g) in tensors.iter().enumerate() {
        square_sums.launch(&device, args!(g, &mut sums.slice(0, i * parts..(i + 1) * parts).unwrap())).unwrap();
    }
    for (limit, wanted) in [(2.0, 2.0 / norm), (1e6, 1.0)] {
        let [mut found, mut factor] = [zeros(&[1]), zeros(&[1])];
        clip_factor.launch(&device, args!(&sums, limit, &mut found, &mut factor)).unwrap();
        let [found, factor] = [found, factor].map(|t| t.to_f64_vec().unwrap()[0]);
        assert!((found / norm - 1.0).abs() < 1e-6 && (factor / wanted - 1.0).abs() < 1e-6, "{found} {factor}");
    }
    // One tensor alone, by both launches.
    let [mut found, mut factor] = [zeros(&[1]), zeros(&[1])];
    let mut space = CLIP_FACTOR.workspace(&device, &[], &[("X", parts)]).unwrap();
    CLIP_FACTOR.launch(&device, args!(&tensors[0], 1.0, &mut found, &mut factor), &mut space).unwrap();
    let norm = dot(&gradients[0], &gradients[0]).sqrt();
    assert!((found.to_f64_vec().unwrap()[0] / norm - 1.0).abs() < 1e-6);
    assert!((factor.to_f64_vec().unwrap()[0] * norm - 1.0).abs() < 1e-5);
}
