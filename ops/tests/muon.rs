//! Newton-Schulz and Muon on matrices of any size, against the same polynomial in f64.

use atlas_dsl::DType;
use atlas_dsl::rounding::{to_bf16, to_f16};
use atlas_ops::Comparison;
use atlas_ops::muon::reference::{iterate, step};
use atlas_ops::muon::{Form, Momentum, Muon, MuonMatrix, MuonSpace, MuonSpaces, NewtonSchulz, NormEps, StepScale};
use atlas_runtime::{Device, Stream, Tensor};

pub(crate) fn noise(i: usize) -> f64 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / f64::from(1 << 23) - 1.0
}

pub(crate) fn matrix(seed: usize, len: usize, scale: f64) -> Vec<f64> {
    (0..len).map(|i| f64::from((scale * noise(i + 7919 * seed)) as f32)).collect()
}

pub(crate) fn tensor(device: &Device, dtype: DType, values: &[f64], shape: &[usize]) -> Tensor {
    match dtype {
        DType::F16 => device.tensor_from(&values.iter().copied().map(to_f16).collect::<Vec<_>>(), shape),
        DType::Bf16 => device.tensor_from(&values.iter().copied().map(to_bf16).collect::<Vec<_>>(), shape),
        _ => device.tensor_from(&values.iter().map(|&v| v as f32).collect::<Vec<_>>(), shape),
    }
    .unwrap()
}

/// What the launches make of matrices of one shape, and of the numbers as their element type holds them, f64.
pub(crate) fn both(of: &NewtonSchulz, dtype: DType, g: &[f64], [b, m, n]: [usize; 3]) -> (Vec<f64>, Vec<f64>) {
    let stream = Stream::default_of(&crate::device());
    let given = tensor(stream.device(), dtype, g, &[b, m, n]);
    let mut y = Tensor::zeros(stream.device(), dtype, [b, m, n]).unwrap();
    let mut space = MuonSpace::new(&stream, of, dtype, b, m, n).unwrap();
    of.launch(&stream, &given, &mut y, &mut space).unwrap();
    let held = given.to_f64_vec().unwrap();
    (y.to_f64_vec().unwrap(), held.chunks(m * n).flat_map(|g| iterate(of, g, [m, n])).collect())
}

pub(crate) fn error(found: &[f64], wanted: &[f64]) -> f64 {
    let c = Comparison::of_all([(found, wanted)]);
    if c.same_places { c.rel_f } else { f64::INFINITY }
}

/// All iterations that have a name.
pub(crate) fn iterations() -> [NewtonSchulz; 6] {
    [
        NewtonSchulz::classic(),
        NewtonSchulz::torch(),
        NewtonSchulz::you(),
        NewtonSchulz::polar_express(),
        NewtonSchulz::polar_express_steps(9),
        NewtonSchulz::modded_nanogpt(),
    ]
}

#[test]
fn iterations_of_any_shape_and_coefficients() {
    for of in iterations() {
        for shape in [[1, 40, 160], [2, 70, 33], [1, 1, 50], [1, 64, 64], [3, 9, 17]] {
            let g = matrix(1, shape.iter().product(), 0.7);
            // Of nearly square matrices the smallest singular values are next to 0, where the polynomial is steep.
            let bounds = [(DType::F32, 1e-5), (DType::F16, 5e-3), (DType::Bf16, 3e-2)];
            for (dtype, bound) in bounds {
                let (found, wanted) = both(&of, dtype, &g, shape);
                // A row alone has one singular value, near 1, where the first step of Polar Express magnifies by 17.
                let bound = match shape {
                    [_, 1, _] => 17.0 * bound,
                    [_, m, n] if m < 2 * n && n < 2 * m => 4.0 * bound,
                    _ => bound,
                };
                let e = error(&found, &wanted);
                assert!(e <= bound, "{shape:?} {dtype}: {e:.1e}");
            }
        }
    }
}

#[test]
fn the_form_of_gram() {
    // More than five steps are for the standard form.
    for of in iterations().into_iter().filter(|of| of.steps.len() == 5) {
        for shape in [[1, 64, 256], [1, 420, 100], [2, 131, 32], [3, 17, 70], [1, 40, 41]] {
            let g = matrix(1, shape.iter().product(), 0.7);
            for (dtype, bound) in [(DType::F32, 1e-5), (DType::F16, 1e-2), (DType::Bf16, 8e-2)] {
                let (found, wanted) = both(&of.clone().gram(), dtype, &g, shape);
                let e = error(&found, &wanted);
                // Of few rows the smallest singular value may be small by chance.
                let bound = if shape[1].min(shape[2]) < 64 { 2.0 * bound } else { bound };
                assert!(e <= bound, "{shape:?} {dtype}: {e:.1e}");
            }
        }
    }
    // Any number of steps, and restarts anywhere.
    let g = matrix(2, 20 * 90, 0.7);
    for (steps, restart) in [(0, 2), (1, 2), (2, 2), (3, 1), (4, 0), (5, 4), (5, 9)] {
        let steps = NewtonSchulz::classic().steps[..steps].to_vec();
        let of = NewtonSchulz { steps, form: Form::Gram { restart }, ..NewtonSchulz::classic() };
        let (found, wanted) = both(&of, DType::F32, &g, [1, 20, 90]);
        let e = error(&found, &wanted);
        assert!(e <= 1e-5, "{} steps, restart {restart}: {e:.1e}", of.steps.len());
    }
}

#[test]
fn scales_zeros_and_neighbours() {
    let shape = [1, 24, 40];
    let g = matrix(3, 960, 1.0);
    let safe = NewtonSchulz { scale_safe: true, ..NewtonSchulz::classic() };
    let (usual, _) = both(&safe, DType::F32, &g, shape);
    for power in [-100, 100] {
        let scaled: Vec<f64> = g.iter().map(|v| v * f64::from(power).exp2()).collect();
        let (found, wanted) = both(&safe, DType::F32, &scaled, shape);
        assert_eq!(found, usual, "2^{power}");
        assert!(error(&found, &wanted) < 1e-5);
        // As Muon defines it, what is far below `eps` fades.
        let (found, wanted) = both(&NewtonSchulz::classic(), DType::F32, &scaled, shape);
        assert!(error(&found, &wanted) < 1e-5, "2^{power}");
    }
    for of in [&safe, &NewtonSchulz::classic(), &NewtonSchulz::torch()] {
        let (zero, _) = both(of, DType::F32, &vec![0.0; 960], shape);
        assert!(zero.iter().all(|&v| v == 0.0));
    }
    let mut two = matrix(5, 1920, 1.0);
    two[17] = f64::NAN;
    let (found, _) = both(&NewtonSchulz::classic(), DType::F32, &two, [2, 24, 40]);
    assert!(found[..960].iter().all(|v| v.is_nan()) && found[960..].iter().all(|v| v.is_finite()));
}

#[test]
fn what_keeps_a_norm_from_zero_has_a_name() {
    let g = matrix(3, 960, 1.0);
    let norm = g.iter().map(|v| v * v).sum::<f64>().sqrt();
    let none = NewtonSchulz { steps: vec![], ..NewtonSchulz::classic() };
    for (length, added, at_least) in [(1e-7, 0.5, 1.0), (3e-7, 0.75, 1.0), (1e-8, 1.0 / 11.0, 0.1), (1.0, 1.0, 1.0)] {
        let g: Vec<f64> = g.iter().map(|v| v * length / norm).collect();
        for (eps, wanted) in [(NormEps::Added(1e-7), added), (NormEps::AtLeast(1e-7), at_least)] {
            let (x, by_reference) = both(&NewtonSchulz { eps, ..none.clone() }, DType::F32, &g, [1, 24, 40]);
            let found = x.iter().map(|v| v * v).sum::<f64>().sqrt();
            assert!((found - wanted).abs() < 1e-5, "{eps:?} {length:e}: {found} for {wanted}");
            assert!(error(&x, &by_reference) < 1e-6);
        }
    }
}

#[test]
fn another_polynomial_is_noticed() {
    let g = matrix(1, 6400, 0.7);
    let (found, _) = both(&NewtonSchulz::classic(), DType::Bf16, &g, [1, 40, 160]);
    let wanted = iterate(&NewtonSchulz::you(), &g, [40, 160]);
    assert!(error(&found, &wanted) > 3e-2);
    let short = NewtonSchulz { steps: NewtonSchulz::classic().steps[..4].to_vec(), ..NewtonSchulz::classic() };
    assert!(error(&found, &iterate(&short, &g, [40, 160])) > 3e-2);
}

#[test]
fn a_step_on_a_list_of_matrices() {
    let shapes = [[24, 40], [40, 24], [24, 40], [8, 8], [24, 40]];
    for (nesterov, buffer, scale) in [
        (true, Momentum::Mean, StepScale::Tall),
        (false, Momentum::Sum, StepScale::Size),
        (true, Momentum::Sum, StepScale::One),
        (false, Momentum::Mean, StepScale::Aspect),
    ] {
        let of = Muon { buffer, nesterov, scale, ..optimiser() };
        let stream = Stream::default_of(&crate::device());
        let host: Vec<[Vec<f64>; 3]> =
            shapes.iter().enumerate().map(|(i, [m, n])| [0, 1, 2].map(|k| matrix(10 * i + k, m * n, 0.5))).collect();
        let mut tensors: Vec<[Tensor; 3]> = host
            .iter()
            .zip(&shapes)
            .map(|(x, shape)| x.each_ref().map(|v| tensor(stream.device(), DType::F32, v, shape)))
            .collect();
        let mut spaces = MuonSpaces::default();
        let mut wanted = host.clone();
        for _ in 0..2 {
            let mut list: Vec<MuonMatrix<'_>> =
                tensors.iter_mut().map(|[w, buf, g]| MuonMatrix { w, buf, g }).collect();
            of.step(&stream, &mut list, &mut spaces).unwrap();
            for (x, shape) in wanted.iter_mut().zip(&shapes) {
                let [w, buf] = step(&of, [&x[0], &x[1], &x[2]], *shape);
                (x[0], x[1]) = (w, buf);
            }
        }
        for (t, x) in tensors.iter().zip(&wanted) {
            let e = [0, 1].map(|k| error(&t[k].to_f64_vec().unwrap(), &x[k]));
            assert!(e[0] < 1e-5 && e[1] < 1e-6, "{e:?}");
        }
        // Five matrices, three shapes; the second step allocates nothing.
        assert!(spaces.bytes() > 0);
    }
}

/// One step from weights and a momentum of 0, along a gradient of this scale: what was found, and the same in f64.
fn step_of_scale(of: &Muon, shape: [usize; 2], scale: f64) -> [Vec<f64>; 2] {
    let stream = Stream::default_of(&crate::device());
    let len = shape.iter().product();
    let g = matrix(1, len, 0.7).iter().map(|v| f64::from((v * scale) as f32)).collect();
    let host = [vec![0.0; len], vec![0.0; len], g];
    let mut tensors = host.each_ref().map(|v| tensor(stream.device(), DType::F32, v, &shape));
    let [w, buf, g] = &mut tensors;
    of.step(&stream, &mut [MuonMatrix { w, buf, g }], &mut MuonSpaces::default()).unwrap();
    let [wanted, _] = step(of, [&host[0], &host[1], &host[2]], shape);
    [tensors[0].to_f64_vec().unwrap(), wanted]
}

#[test]
fn gradients_of_any_size_in_f16() {
    let gram = NewtonSchulz::classic().gram();
    let none = NewtonSchulz { steps: vec![], ..NewtonSchulz::classic() };
    for iteration in [NewtonSchulz::classic(), NewtonSchulz::polar_express(), gram, none] {
        for shape in [[16, 70], [70, 16]] {
            for scale_safe in [true, false] {
                let iteration = NewtonSchulz { scale_safe, ..iteration.clone() };
                let of = Muon { iteration, dtype: DType::F16, ..optimiser() };
                for scale in [1.0, 1e5, 1e-7, 1e-8, 1e30, 1e-30] {
                    let [found, wanted] = step_of_scale(&of, shape, scale);
                    let e = error(&found, &wanted);
                    // Far below `eps`, which is of this size where it is not of the matrix's, f16 holds zero.
                    let is_lost = !scale_safe && scale < 1e-8;
                    if is_lost {
                        assert!(found.iter().all(|&v| v == 0.0));
                    } else {
                        assert!(e <= 1e-2, "{:?} {shape:?} {scale:e} {scale_safe}: {e:.1e}", of.iteration.form);
                    }
                }
                if scale_safe {
                    let [usual, _] = step_of_scale(&of, shape, 1.0);
                    for power in [-100, -27, 17, 100] {
                        let [found, _] = step_of_scale(&of, shape, f64::from(power).exp2());
                        assert_eq!(found, usual, "{shape:?} 2^{power}");
                    }
                }
            }
        }
    }
}

#[test]
fn workspaces_serve_the_element_type_that_they_were_made_for() {
    let stream = Stream::default_of(&crate::device());
    let mut spaces = MuonSpaces::default();
    let steps = [optimiser().iteration, NewtonSchulz { steps: vec![], ..NewtonSchulz::classic() }];
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for iteration in steps.clone() {
            let of = Muon { dtype, iteration, ..optimiser() };
            for _ in 0..2 {
                let host = [0, 1, 2].map(|k| matrix(k, 24 * 40, 0.5));
                let mut tensors = host.each_ref().map(|v| tensor(stream.device(), DType::F32, v, &[24, 40]));
                let [w, buf, g] = &mut tensors;
                of.step(&stream, &mut [MuonMatrix { w, buf, g }], &mut spaces).unwrap();
                let [wanted, _] = step(&of, [&host[0], &host[1], &host[2]], [24, 40]);
                assert!(error(&tensors[0].to_f64_vec().unwrap(), &wanted) < 1e-3, "{dtype}");
            }
        }
    }
}

#[test]
fn a_step_without_iterations_is_along_the_gradient() {
    let none = NewtonSchulz { steps: vec![], ..NewtonSchulz::classic() };
    let of = Muon { iteration: none, ..optimiser() };
    let stream = Stream::default_of(&crate::device());
    for shape in [[8, 20], [20, 8]] {
        let host = [0, 1, 2].map(|k| matrix(k, 160, 0.5));
        let mut tensors = host.each_ref().map(|v| tensor(stream.device(), DType::F32, v, &shape));
        let [w, buf, g] = &mut tensors;
        of.step(&stream, &mut [MuonMatrix { w, buf, g }], &mut MuonSpaces::default()).unwrap();
        let [wanted, _] = step(&of, [&host[0], &host[1], &host[2]], shape);
        assert!(error(&tensors[0].to_f64_vec().unwrap(), &wanted) < 1e-6);
    }
}

#[test]
fn what_is_no_matrix_of_f32_is_refused_before_a_step() {
    let (stream, of) = (Stream::default_of(&crate::device()), optimiser());
    let make = |dtype, shape: &[usize]| tensor(stream.device(), dtype, &matrix(1, shape.iter().product(), 0.5), shape);
    let wrong = [(DType::F32, vec![8]), (DType::F32, vec![2, 4, 8]), (DType::F32, vec![]), (DType::Bf16, vec![8, 8])];
    for (dtype, shape) in wrong {
        let mut good = [0, 1, 2].map(|_| make(DType::F32, &[8, 8]));
        let mut bad = [make(dtype, &shape), make(DType::F32, &shape), make(DType::F32, &shape)];
        let before = good[1].to_f64_vec().unwrap();
        let ([w, buf, g], [bw, bbuf, bg]) = (&mut good, &mut bad);
        let mut list = [MuonMatrix { w, buf, g }, MuonMatrix { w: bw, buf: bbuf, g: bg }];
        assert!(of.step(&stream, &mut list, &mut MuonSpaces::default()).is_err(), "{dtype} {shape:?}");
        assert_eq!(good[1].to_f64_vec().unwrap(), before);
    }
}

fn optimiser() -> Muon {
    Muon { rate: 0.02, dtype: DType::F32, ..Muon::torch() }
}
