//! Muon and its iterations by the names of public code: coefficients, where singular values end, and steps.

use crate::muon::{both, error, iterations, matrix, noise, tensor};
use atlas_dsl::DType;
use atlas_ops::muon::reference::step;
use atlas_ops::muon::{Momentum, Muon, MuonMatrix, MuonSpaces, NewtonSchulz, StepScale};
use atlas_ops::muon::{POLAR_EXPRESS, POLAR_EXPRESS_MODDED_NANOGPT};
use atlas_runtime::Stream;

/// Weights and gradients of the steps of PyTorch below.
fn number(i: usize, salt: usize) -> f64 {
    ((i * 37 + salt * 11) % 23) as f64 / 8.0 - 1.25
}

/// Weights after two steps of a matrix, along gradients of this length, and what the reference says.
fn after_two(of: &Muon, shape: [usize; 2], length: f64) -> [Vec<f64>; 2] {
    let stream = Stream::default_of(&crate::device());
    let len = shape[0] * shape[1];
    let [mut w, mut buf] = [|i| number(i, 0), |_| 0.0].map(|f: fn(usize) -> f64| (0..len).map(f).collect::<Vec<_>>());
    let [mut dw, mut dbuf] = [&w, &buf].map(|x| tensor(stream.device(), DType::F32, x, &shape));
    let mut spaces = MuonSpaces::default();
    for salt in [1, 2] {
        let g: Vec<f64> = (0..len).map(|i| f64::from((number(i, salt) * length) as f32)).collect();
        let dg = tensor(stream.device(), DType::F32, &g, &shape);
        of.step(&stream, &mut [MuonMatrix { w: &mut dw, buf: &mut dbuf, g: &dg }], &mut spaces).unwrap();
        [w, buf] = step(of, [&w, &buf, &g], shape);
    }
    [dw.to_f64_vec().unwrap(), w]
}

fn furthest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// A shape, and the length of its gradients; the weights of `torch.optim.Muon` after two steps.
type TorchSteps = ([usize; 2], f64, Muon, [f64; 15]);

/// From PyTorch 2.15 with `lr=0.5`, its `_zeropower_via_newtonschulz` in f32 and not in bf16.
fn steps_of_torch() -> [TorchSteps; 5] {
    let usual = Muon { rate: 0.5, dtype: DType::F32, ..Muon::torch() };
    let plain = Muon { nesterov: false, momentum: 0.9, decay: 0.0, ..usual.clone() };
    let [tall, rms, aspect, without_nesterov, short] = [
        [
            -1.712328, 0.674007, -0.717661, 0.808133, -0.533968, -0.780574, 0.759304, -0.665176, 0.831026, -0.554333,
            -0.70963, 0.738472, -0.584129, 0.869856, 0.699317,
        ],
        [
            -1.230777, 0.613422, -0.536001, 1.043242, -0.140072, -0.960542, 0.575821, -0.554807, 1.013569, -0.164041,
            -0.849185, 0.694233, -0.425818, 1.108774, 0.443473,
        ],
        [
            -1.305923, 0.73214, -0.515458, 1.063688, -0.242612, -0.920447, 0.584428, -0.630616, 0.929708, -0.366711,
            -0.810156, 0.70694, -0.489784, 1.012023, 0.60295,
        ],
        [
            -1.568836, 1.002237, -0.640288, 1.124103, -0.43668, -1.095844, 0.686271, -0.818207, 1.069481, -0.524222,
            -0.989618, 0.918281, -0.682357, 1.035399, 0.832071,
        ],
        [
            -1.327586, 0.773805, -0.495973, 0.988101, -0.312145, -0.974074, 0.599851, -0.653902, 0.896213, -0.451676,
            -0.870695, 0.753845, -0.548692, 0.992095, 0.687848,
        ],
    ];
    [
        ([5, 3], 1.0, usual.clone(), tall),
        ([3, 5], 1.0, Muon { scale: StepScale::Size, ..usual.clone() }, rms),
        ([3, 5], 1.0, Muon { scale: StepScale::Aspect, ..usual.clone() }, aspect),
        ([3, 5], 1.0, plain, without_nesterov),
        ([3, 5], 1e-8, usual, short),
    ]
}

#[test]
fn steps_of_torch_are_those_of_torch() {
    for (shape, length, of, wanted) in steps_of_torch() {
        let [found, by_reference] = after_two(&of, shape, length);
        assert!(furthest(&by_reference, &wanted) < 2e-6, "{shape:?} {length:e}: {by_reference:?}");
        assert!(furthest(&found, &wanted) < 1e-5, "{shape:?} {length:e}: {found:?}");
    }
    // What differs from it is noticed: an added eps, another scale, no decay, another momentum where gradients are short.
    let (shape, _, of, wanted) = steps_of_torch()[0].clone();
    for other in [
        Muon { scale: StepScale::One, ..of.clone() },
        Muon { decay: 0.0, ..of.clone() },
        Muon { nesterov: false, ..of.clone() },
        Muon { iteration: NewtonSchulz::you(), ..of.clone() },
    ] {
        assert!(furthest(&after_two(&other, shape, 1.0)[0], &wanted) > 1e-3, "{other:?}");
    }
    let (shape, length, of, wanted) = steps_of_torch()[4].clone();
    for other in
        [Muon { iteration: NewtonSchulz::classic(), ..of.clone() }, Muon { buffer: Momentum::Sum, ..of.clone() }]
    {
        assert!(furthest(&after_two(&other, shape, length)[0], &wanted) > 1e-3, "{other:?}");
    }
}

#[test]
fn optimisers_by_name_are_what_their_formulas_say() {
    let with = |of: Muon| Muon { dtype: DType::F32, ..of };
    // Weight decay, scale and rate by hand, of a step along what the iteration makes of `u`.
    for (of, fresh, lr, decay, scale) in [
        (with(Muon::torch()), 0.05, 1e-3, 0.1, (5.0_f64 / 3.0).sqrt()),
        (with(Muon::jordan()), 0.05, 0.02, 0.0, (5.0_f64 / 3.0).sqrt()),
        (with(Muon::moonshot()), 1.0, 1e-3, 0.1, 0.2 * 5.0_f64.sqrt()),
    ] {
        let g: Vec<f64> = (0..15).map(|i| number(i, 1)).collect();
        // From a buffer of 0: u = fresh g + 0.95 fresh g.
        let u: Vec<f64> = g.iter().map(|g| 1.95 * fresh * g).collect();
        let along = atlas_ops::muon::reference::iterate(&of.iteration, &u, [5, 3]);
        let w: Vec<f64> = (0..15).map(|i| number(i, 0)).collect();
        let wanted: Vec<f64> = w.iter().zip(&along).map(|(w, o)| (1.0 - lr * decay) * w - lr * scale * o).collect();
        let stream = Stream::default_of(&crate::device());
        let [mut dw, mut buf, dg] =
            [w, vec![0.0; 15], g.clone()].map(|x| tensor(stream.device(), DType::F32, &x, &[5, 3]));
        let mut list = [MuonMatrix { w: &mut dw, buf: &mut buf, g: &dg }];
        of.step(&stream, &mut list, &mut MuonSpaces::default()).unwrap();
        assert!(furthest(&dw.to_f64_vec().unwrap(), &wanted) < 1e-6, "{of:?}");
        let kept: Vec<f64> = g.iter().map(|g| fresh * g).collect();
        assert!(furthest(&buf.to_f64_vec().unwrap(), &kept) < 1e-6, "{of:?}");
    }
    // Where gradients are not short, a sum and a mean make the same steps.
    let mean = with(Muon::jordan());
    let sum = Muon { buffer: Momentum::Sum, ..mean.clone() };
    assert!(furthest(&after_two(&mean, [3, 5], 1.0)[0], &after_two(&sum, [3, 5], 1.0)[0]) < 1e-5);
}

/// Where an iteration takes a singular value, after the division by the norm.
fn image(of: &NewtonSchulz, x: f64) -> f64 {
    of.steps.iter().fold(x / f64::from(of.stretch), |x, [a, b, c]| x * (a + x * x * (b + x * x * c)))
}

/// Numbers from `low` to 1, evenly by their logarithms.
fn spread(low: f64, count: usize) -> impl Iterator<Item = f64> {
    (0..count).map(move |i| low.powf(1.0 - i as f64 / (count - 1) as f64))
}

/// Where singular values from 0.001 and from 0.01 on end, as the documentation of the coefficients says.
fn bands() -> [(NewtonSchulz, [[f64; 2]; 2]); 6] {
    [
        (NewtonSchulz::classic(), [[0.47, 1.21], [0.68, 1.14]]),
        (NewtonSchulz::torch(), [[0.47, 1.21], [0.68, 1.14]]),
        (NewtonSchulz::you(), [[0.47, 1.15], [0.97, 1.04]]),
        (NewtonSchulz::polar_express(), [[0.84, 1.13], [0.87, 1.13]]),
        (NewtonSchulz::polar_express_steps(6), [[0.99, 1.01], [0.99, 1.01]]),
        (NewtonSchulz::modded_nanogpt(), [[0.84, 1.15], [0.85, 1.15]]),
    ]
}

#[test]
fn singular_values_end_in_the_band_of_their_iteration() {
    for (of, bands) in bands() {
        for (low, [least, most]) in [1e-3, 1e-2].into_iter().zip(bands) {
            let ends: Vec<f64> = spread(low, 20_001).map(|x| image(&of, x)).collect();
            let [lowest, highest] = ends.iter().fold([f64::MAX, 0.0], |[a, b], &x| [x.min(a), x.max(b)]);
            assert!(lowest >= least && highest <= most, "{of:?} from {low}: {lowest} to {highest}");
            // The band is no wider than it has to be.
            assert!(lowest - least <= 0.02 && most - highest <= 0.02, "{of:?} from {low}: {lowest} to {highest}");
        }
    }
}

/// `x - 2 v (v·x)` for each column of `rows x cols`, which turns it by a matrix that is its own inverse.
fn reflected(x: &[f64], [rows, cols]: [usize; 2], seed: usize) -> Vec<f64> {
    let v: Vec<f64> = (0..rows).map(|i| noise(i + 100 * seed)).collect();
    let square: f64 = v.iter().map(|v| v * v).sum();
    let dots: Vec<f64> = (0..cols).map(|c| (0..rows).map(|r| v[r] * x[r * cols + c]).sum()).collect();
    (0..x.len()).map(|i| x[i] - 2.0 * v[i / cols] * dots[i % cols] / square).collect()
}

fn transposed(x: &[f64], [rows, cols]: [usize; 2]) -> Vec<f64> {
    (0..x.len()).map(|i| x[i % rows * cols + i / rows]).collect()
}

/// A matrix turned on both sides, and back if it was.
fn turned(x: &[f64], [rows, cols]: [usize; 2]) -> Vec<f64> {
    let x = reflected(x, [rows, cols], 1);
    transposed(&reflected(&transposed(&x, [rows, cols]), [cols, rows], 2), [cols, rows])
}

#[test]
fn launches_take_singular_values_where_the_polynomials_do() {
    let shape @ [m, n] = [12, 40];
    let values: Vec<f64> = spread(3e-3, m).collect();
    let norm = values.iter().map(|v| v * v).sum::<f64>().sqrt();
    let mut diagonal = vec![0.0; m * n];
    values.iter().enumerate().for_each(|(i, v)| diagonal[i * n + i] = *v);
    for of in iterations() {
        for of in [of.clone(), NewtonSchulz { scale_safe: true, ..of.clone() }] {
            let (found, _) = both(&of, DType::F32, &turned(&diagonal, shape), [1, m, n]);
            let found = turned(&found, shape);
            for (i, x) in found.iter().enumerate() {
                let wanted = if i / n == i % n { image(&of, values[i % n] / norm) } else { 0.0 };
                assert!((x - wanted).abs() < 2e-3, "{of:?}: {x} for {wanted} at {i}");
            }
        }
    }
}

/// The solution of four equations.
fn solved(mut rows: [[f64; 5]; 4]) -> [f64; 4] {
    for at in 0..4 {
        let best = (at..4).max_by(|&i, &j| rows[i][at].abs().total_cmp(&rows[j][at].abs())).unwrap();
        rows.swap(at, best);
        let pivot = rows[at];
        for (i, row) in rows.iter_mut().enumerate() {
            if i == at {
                continue;
            }
            let by = row[at] / pivot[at];
            row.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= by * p);
        }
    }
    [0, 1, 2, 3].map(|i| rows[i][4] / rows[i][i])
}

/// The odd polynomial of degree 5 that is nearest to 1 from `low` to `high`, by Remez's exchange.
fn nearest_to_one(low: f64, high: f64) -> [f64; 3] {
    if low / high >= 1.0 - 5e-6 {
        return [1.875 / high, -1.25 / high.powi(3), 0.375 / high.powi(5)];
    }
    let [mut q, mut r] = [(3.0 * low + high) / 4.0, (low + 3.0 * high) / 4.0];
    let mut best = [0.0; 3];
    for _ in 0..60 {
        let row = |x: f64, sign: f64| [x, x.powi(3), x.powi(5), sign, 1.0];
        let [a, b, c, _] = solved([row(low, 1.0), row(q, -1.0), row(r, 1.0), row(high, -1.0)]);
        let root = (9.0 * b * b - 20.0 * a * c).sqrt();
        [q, r] = [-root, root].map(|root| ((root - 3.0 * b) / (10.0 * c)).sqrt());
        best = [a, b, c];
    }
    best
}

/// The polynomials of the paper: each is the best one for what those before it leave of 0.001 to 1. A range is taken as no wider
/// than 1 to `cushion`, and each polynomial but the last is one of a number that is `safety` times as large.
fn composed(count: usize, cushion: f64, safety: f64) -> Vec<[f64; 3]> {
    let (mut low, mut high) = (1e-3_f64, 1.0_f64);
    let mut steps = Vec::new();
    for i in 0..count {
        let mut step = nearest_to_one(low.max(cushion * high), high);
        let value = |[a, b, c]: [f64; 3], x: f64| x * (a + x * x * (b + x * x * c));
        if cushion * high > low {
            let middle = (value(step, low) + value(step, high)) / 2.0;
            step = step.map(|x| x / middle);
        }
        if i + 1 < count {
            step = safe(step, safety);
        }
        steps.push(step);
        low = value(step, low);
        high = 2.0 - low;
    }
    steps
}

fn safe([a, b, c]: [f64; 3], by: f64) -> [f64; 3] {
    [a / by, b / by.powi(3), c / by.powi(5)]
}

#[test]
fn coefficients_of_polar_express_are_those_of_its_definition() {
    let apart = |found: &[[f64; 3]], wanted: &[[f64; 3]]| {
        assert_eq!(found.len(), wanted.len());
        let each = found.iter().flatten().zip(wanted.iter().flatten());
        each.map(|(f, w)| (f / w - 1.0).abs()).fold(0.0, f64::max)
    };
    let mut paper = composed(8, 0.024_073_274_241_827_61, 1.0);
    paper[..7].iter_mut().for_each(|step| *step = safe(*step, 1.01));
    assert!(apart(&POLAR_EXPRESS, &paper) < 1e-7, "{paper:?}");
    let modded = composed(5, 0.02, 1.02);
    assert!(apart(&POLAR_EXPRESS_MODDED_NANOGPT, &modded) < 1e-12, "{modded:?}");
    // One is not the other.
    assert!(apart(&POLAR_EXPRESS[..5], &POLAR_EXPRESS_MODDED_NANOGPT) > 5e-3);
    let steps = NewtonSchulz::polar_express_steps(10).steps;
    assert_eq!((&steps[..8], steps[8], steps[9]), (&POLAR_EXPRESS[..], [1.875, -1.25, 0.375], [1.875, -1.25, 0.375]));
    assert_eq!(NewtonSchulz::polar_express().steps, POLAR_EXPRESS[..5]);
}

#[test]
fn one_polar_express_is_noticed_for_the_other() {
    let g = matrix(1, 6400, 0.7);
    let (found, wanted) = both(&NewtonSchulz::polar_express(), DType::F32, &g, [1, 40, 160]);
    let other = atlas_ops::muon::reference::iterate(&NewtonSchulz::modded_nanogpt(), &g, [40, 160]);
    assert!(error(&found, &wanted) < 1e-5 && error(&found, &other) > 1e-2, "{:.1e}", error(&found, &other));
}
