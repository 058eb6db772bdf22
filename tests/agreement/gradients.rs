//! Derivatives of tile functions, in reverse and forward mode, against central differences in f64; and functions that
//! return several tiles.

use super::{agrees, agrees_with, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    tile fn soft(x) { log(1.0 + exp(x)) }
    tile fn swish(x, b) { x * sigmoid(b * x) }
    tile fn bent(x) { max(x, 0.0) + min(0.5 * x, x * x) }
    tile fn chained(x) { soft(gelu(x)) * tanh(sin(x) + cos(x)) }
    tile fn quotient(x, y) { (x + sqrt(y)) / (y * y + 1.0) - rsqrt(y) * exp2(x) }
    tile fn chosen(x, y) { select(x < y, x * y, x - y * 3.0) }
    tile fn bell(x, m) { exp(-abs(x - m)) * erf(x) }

    /// Functions of one argument.
    kernel slopes(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            store(y[0, n], grad(gelu)(xs));
            store(y[1, n], grad(soft)(xs));
            store(y[2, n], grad(bent)(xs));
            store(y[3, n], grad(chained)(xs));
            store(y[4, n], grad(tanh)(xs) * xs);
            store(y[5, n], grad(floor)(xs));
        }
    }

    /// Functions of two arguments, one of which may be a number or repeated.
    kernel partials(x: &Tensor<f32, [M, N]>, z: &Tensor<f32, [N]>, b: f32, y: &mut Tensor<f32, [F, M, N]>)
    tune { BM: [16], BN: [32], warps: [2] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let xs = load(x[m, n]);
            let zs = load(z[n]);
            let (by_x, by_z) = grad(quotient)(xs, zs);
            store(y[0, m, n], by_x);
            store(y[1, m, n], by_z);
            let (by_x, by_z) = grad(chosen)(xs, zs);
            store(y[2, m, n], by_x);
            store(y[3, m, n], by_z);
            let (by_x, by_b) = grad(swish)(xs, b);
            store(y[4, m, n], by_x);
            store(y[5, m, n], by_b);
            // The same tile for both, as two separate arguments.
            let (first, second) = grad(bell)(xs, xs * 1.0);
            store(y[6, m, n], first);
            store(y[7, m, n], second);
            let (first, second) = grad(quotient)(zs, zs);
            store(y[8, m, n], broadcast(first, [BM, BN]));
            store(y[9, m, n], broadcast(second, [BM, BN]));
        }
    }

    tile fn bend(x) { jvp(soft)(x, 1.0) }

    /// Directional derivatives: by all arguments, by one, by numbers, by repeated tiles, and twice.
    kernel directions(x: &Tensor<f32, [M, N]>, z: &Tensor<f32, [N]>, b: f32, y: &mut Tensor<f32, [F, M, N]>)
    tune { BM: [16], BN: [32], warps: [2] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let xs = load(x[m, n]);
            let zs = load(z[n]);
            store(y[0, m, n], jvp(quotient)(xs, zs, zs, 0.5));
            store(y[1, m, n], jvp(quotient)(xs, zs, 0.0, 1.0));
            store(y[2, m, n], jvp(chosen)(xs, zs, xs, zs));
            store(y[3, m, n], jvp(swish)(xs, b, 2.0, b));
            store(y[4, m, n], jvp(bell)(xs, xs, xs, 0.0));
            store(y[5, m, n], jvp(bent)(xs, xs));
            store(y[6, m, n], jvp(chained)(xs, zs));
            store(y[7, m, n], jvp(bend)(xs, 1.0));
            store(y[8, m, n], jvp(gelu)(xs, 3.0));
            store(y[9, m, n], jvp(floor)(xs, zs));
        }
    }

    /// In 16 bits, by way of f32.
    tile fn through(x) { gelu(x.cast::<f32>()).cast::<f16>() }
    kernel narrow(x: &Tensor<f16, [N]>, y: &mut Tensor<f16, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            let xs = load(x[n]);
            store(y[n], 0.5 * grad(through)(xs) + jvp(through)(xs, 0.5));
        }
    }
}

atlas_kernel! {
    tile fn ratio(x, y) { 0.001 * (x / y) }
    tile fn inverse_root(x) { rsqrt(x) }

    /// Slopes that f16 can represent although intermediate values cannot be.
    kernel steep(x: &Tensor<f16, [N]>, z: &Tensor<f16, [N]>, y: &mut Tensor<f16, [F, N]>)
    {
        for n in grid(tiles(N, 64)) {
            let a = load(x[n]);
            let b = load(z[n]);
            store(y[0, n], grad(gelu_slope)(a * 1000.0));
            store(y[1, n], grad(inverse_root)(b));
            let (by_a, by_b) = grad(ratio)(a - a, b * 0.03);
            store(y[2, n], by_a);
            store(y[3, n], by_b);
            let (_, by_b) = grad(ratio)(a * 20.0, b * 3000.0);
            store(y[4, n], by_b);
        }
    }
}

fn soft_of(x: f64) -> f64 {
    (1.0 + x.exp()).ln()
}
fn erf(x: f64) -> f64 {
    // The series converges everywhere in the tested range.
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}
fn gelu_of(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
}
fn bent_of(x: f64) -> f64 {
    x.max(0.0) + (0.5 * x).min(x * x)
}
fn chained_of(x: f64) -> f64 {
    soft_of(gelu_of(x)) * (x.sin() + x.cos()).tanh()
}
fn quotient_of(x: f64, y: f64) -> f64 {
    (x + y.sqrt()) / (y * y + 1.0) - x.exp2() / y.sqrt()
}
fn chosen_of(x: f64, y: f64) -> f64 {
    if x < y { x * y } else { x - 3.0 * y }
}
fn swish_of(x: f64, b: f64) -> f64 {
    x / (1.0 + (-b * x).exp())
}

/// A central difference.
fn slope(f: impl Fn(f64) -> f64, x: f64) -> f64 {
    (f(x + 1e-6) - f(x - 1e-6)) / 2e-6
}

#[test]
fn of_one_tile() {
    // Away from the bends at 0 and 1/2, and from whole numbers.
    let args = [input(F32, &[90], |i| (i as f64 - 44.7) * 0.0613), output(F32, &[6, 90])];
    agrees_with(&slopes, &args, 1e-5, |a| {
        let x = &a[0];
        let of = |f: fn(f64) -> f64| x.iter().map(move |&x| slope(f, x)).collect::<Vec<f64>>();
        let scaled: Vec<f64> = x.iter().map(|&x| slope(f64::tanh, x) * x).collect();
        vec![[of(gelu_of), of(soft_of), of(bent_of), of(chained_of), scaled, vec![0.0; x.len()]].concat()]
    });
}

#[test]
fn of_two() {
    let args = [
        random(F32, &[20, 40]),
        input(F32, &[40], |i| 0.21 + i as f64 * 0.031),
        super::Given::F32(1.5),
        output(F32, &[10, 20, 40]),
    ];
    agrees_with(&partials, &args, 1e-4, |a| {
        let (x, z, b) = (&a[0], &a[1], 1.5);
        let each =
            |f: &dyn Fn(f64, f64) -> f64| -> Vec<f64> { x.iter().enumerate().map(|(i, &x)| f(x, z[i % 40])).collect() };
        vec![
            [
                each(&|x, z| slope(|x| quotient_of(x, z), x)),
                each(&|x, z| slope(|z| quotient_of(x, z), z)),
                each(&|x, z| slope(|x| chosen_of(x, z), x)),
                each(&|x, z| slope(|z| chosen_of(x, z), z)),
                each(&|x, _| slope(|x| swish_of(x, b), x)),
                each(&|x, _| slope(|b| swish_of(x, b), b)),
                // At its peak the bell is flat, by the convention of `abs`.
                each(&|x, _| slope(erf, x)),
                each(&|_, _| 0.0),
                each(&|_, z| slope(|x| quotient_of(x, z), z)),
                each(&|_, z| slope(|y| quotient_of(z, y), z)),
            ]
            .concat(),
        ]
    });
}

#[test]
fn along_directions() {
    let args = [
        input(F32, &[20, 40], |i| (i as f64 - 399.7) * 0.0073),
        input(F32, &[40], |i| 0.21 + i as f64 * 0.031),
        super::Given::F32(1.5),
        output(F32, &[10, 20, 40]),
    ];
    agrees_with(&directions, &args, 1e-4, |a| {
        let (x, z, b) = (&a[0], &a[1], 1.5);
        let each =
            |f: &dyn Fn(f64, f64) -> f64| -> Vec<f64> { x.iter().enumerate().map(|(i, &x)| f(x, z[i % 40])).collect() };
        let along =
            |f: fn(f64, f64) -> f64, at: (f64, f64), d: (f64, f64)| slope(|t| f(at.0 + t * d.0, at.1 + t * d.1), 0.0);
        // 1 / (1 + e^-x), and its slope.
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        vec![
            [
                each(&|x, z| along(quotient_of, (x, z), (z, 0.5))),
                each(&|x, z| along(quotient_of, (x, z), (0.0, 1.0))),
                each(&|x, z| along(chosen_of, (x, z), (x, z))),
                each(&|x, _| along(swish_of, (x, b), (2.0, b))),
                // At its peak the bell is flat, by the convention of `abs`.
                each(&|x, _| slope(erf, x) * x),
                each(&|x, _| slope(bent_of, x) * x),
                each(&|x, z| slope(chained_of, x) * z),
                each(&|x, _| sigmoid(x) * (1.0 - sigmoid(x))),
                each(&|x, _| slope(gelu_of, x) * 3.0),
                each(&|_, _| 0.0),
            ]
            .concat(),
        ]
    });
}

#[test]
fn in_sixteen_bits() {
    let args = [random(F16, &[200]), output(F16, &[200])];
    agrees_with(&narrow, &args, 2e-3, |a| vec![a[0].iter().map(|&x| slope(gelu_of, x)).collect()]);
}

#[test]
fn slopes_that_are_numbers_stay_so() {
    let args = [
        input(F16, &[20], |i| 20.0 + 2.0 * i as f64),
        input(F16, &[20], |i| 5.0e-4 + 1e-5 * i as f64),
        output(F16, &[5, 20]),
    ];
    agrees_with(&steep, &args, 5e-3, |a| {
        let (x, z) = (&a[0], &a[1]);
        let root = z.iter().map(|z| -0.5 * z.powf(-1.5));
        let by_a = z.iter().map(|z| 0.001 / (0.03 * z));
        let by_b = x.iter().zip(z).map(|(x, z)| -0.02 * x / (3000.0 * z * 3000.0 * z));
        let none = || std::iter::repeat_n(0.0, 20);
        vec![none().chain(root).chain(by_a).chain(none()).chain(by_b).collect()]
    });
}

atlas_kernel! {
    /// One step of an online softmax: the running maximum, the sum of exponentials and the weighted values.
    tile fn step(z, v, top, total, acc) {
        let higher = max(top, max(z, axis = 1));
        let e = exp(z - higher);
        let kept = exp(top - higher);
        (higher, total * kept + sum(e, axis = 1), acc * kept + dot(e, v))
    }

    kernel weighted(s: &Tensor<f32, [M, N]>, v: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [M, D]>)
    tune { BM: [16], BN: [16], warps: [1, 2] }
    {
        for m in grid(tiles(M, BM)) {
            let mut top = full::<f32>([BM, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BM, 1]);
            let mut acc = zeros::<f32>([BM, D]);
            for n in tiles(N, BN) {
                (top, total, acc) = step(load(s[m, n]), load(v[n, ..]), top, total, acc);
            }
            store(y[m, ..], acc / total + 0.0 * top);
        }
    }

    tile fn both(x) { (x + 1.0, x * 2.0) }
    kernel two<T: Float>(x: &Tensor<T, [N]>, y: &mut Tensor<T, [N]>, z: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            let (mut more, twice) = both(load(x[n]));
            more += twice;
            store(y[n], more);
            let (_, again) = both(twice);
            store(z[n], again);
        }
    }
}

#[test]
fn a_function_gives_several_tiles() {
    let args = [random(F32, &[20, 50]), random(F32, &[50, 24]), output(F32, &[20, 24])];
    agrees_with(&weighted, &args, 1e-5, |a| {
        let row = |s: &[f64]| {
            let e: Vec<f64> = s.iter().map(|s| s.exp()).collect();
            let total: f64 = e.iter().sum();
            (0..24).map(move |d| e.iter().zip(a[1].chunks(24)).map(|(e, v)| e * v[d]).sum::<f64>() / total).collect()
        };
        vec![a[0].chunks(50).flat_map(|s| -> Vec<f64> { row(s) }).collect()]
    });
    for dtype in [F32, Bf16] {
        agrees(&two, &[random(dtype, &[100]), output(dtype, &[100]), output(dtype, &[100])], 0.0);
    }
}

atlas_kernel! {
    tile fn product_of(a, b) { a * b * b }
    tile fn slopes_of_one(x) { let (a, b) = grad(product_of)(x, x); a + b }
    tile fn along_one(x) { jvp(product_of)(x, x, 1.0, 2.0) }

    /// Second derivatives of functions that get one tile twice.
    kernel of_a_tile_twice(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [F, N]>)
    tune { BN: [32, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            store(y[0, n], grad(slopes_of_one)(xs));
            store(y[1, n], jvp(slopes_of_one)(xs, 1.0));
            store(y[2, n], grad(along_one)(xs));
            store(y[3, n], jvp(along_one)(xs, xs));
        }
    }

    tile fn log_above(x) { select(x > 0.0, log(x), 0.0) }
    tile fn root_above(x) { max(sqrt(x), 0.5) }
    tile fn nested_above(x) { select(x < 2.0, select(x > 0.0, x * log(x), 3.0 * x), x * x) }
    tile fn shared_above(x) { let l = log(x); select(x > 0.0, l, 0.0) + select(x > 1.0, l * l, 1.0) }
    tile fn shared_within(x) { let l = log(x); select(x > 0.0, select(x > 1.0, l, 2.0 * l) + l * x, 0.0) }
    tile fn filled_above(x) { select(x > 0.0, (log(x) * 2.0).or(1.0), 0.0) }
    tile fn chosen_above(x) { let l = sqrt(x); min(l, select(x > 0.0, 2.0, -1.0)) * min(l, -1.0) }
    tile fn second_above(x) { grad(log_above)(x) }

    /// The branch that is not taken has an infinite slope.
    kernel not_taken(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [F, N]>)
    tune { BN: [32, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            store(y[0, n], grad(log_above)(xs));
            store(y[1, n], jvp(log_above)(xs, 1.0));
            store(y[2, n], grad(root_above)(xs));
            store(y[3, n], jvp(root_above)(xs, 1.0));
            store(y[4, n], grad(nested_above)(xs));
            store(y[5, n], jvp(nested_above)(xs, 1.0));
            store(y[6, n], grad(shared_above)(xs));
            store(y[7, n], jvp(shared_above)(xs, 1.0));
            store(y[8, n], grad(shared_within)(xs));
            store(y[9, n], jvp(shared_within)(xs, 1.0));
            store(y[10, n], grad(filled_above)(xs));
            store(y[11, n], jvp(filled_above)(xs, 1.0));
            store(y[12, n], grad(chosen_above)(xs));
            store(y[13, n], jvp(chosen_above)(xs, 1.0));
            store(y[14, n], grad(second_above)(xs));
            store(y[15, n], jvp(second_above)(xs, 1.0));
        }
    }
}

#[test]
fn a_derivative_of_one_tile_given_twice_has_a_derivative() {
    agrees_with(&of_a_tile_twice, &[random(F32, &[50]), output(F32, &[4, 50])], 1e-5, |a| {
        // b² + 2ab at a = b = x, and b² + 4ab.
        let each = |f: &dyn Fn(f64) -> f64| a[0].iter().map(|&x| f(x)).collect::<Vec<f64>>();
        vec![[each(&|x| 6.0 * x), each(&|x| 6.0 * x), each(&|x| 10.0 * x), each(&|x| 10.0 * x * x)].concat()]
    });
}

#[test]
fn a_side_that_is_not_taken_counts_nothing_whatever_its_slope() {
    let given = [input(F32, &[7], |i| [0.0, 0.5, 1.5, 3.0, 0.25, 0.0, 0.75][i]), output(F32, &[16, 7])];
    agrees_with(&not_taken, &given, 2e-5, |a| {
        let twice = |f: &dyn Fn(f64) -> f64| {
            let each: Vec<f64> = a[0].iter().map(|&x| f(x)).collect();
            [each.clone(), each].concat()
        };
        let above = |x: f64, f: &dyn Fn(f64) -> f64| if x > 0.0 { f(x) } else { 0.0 };
        let all = [
            twice(&|x| above(x, &|x| 1.0 / x)),
            twice(&|x| if x > 0.25 { 0.5 / x.sqrt() } else { 0.0 }),
            twice(&|x| {
                if x >= 2.0 {
                    2.0 * x
                } else if x > 0.0 {
                    x.ln() + 1.0
                } else {
                    3.0
                }
            }),
            twice(&|x| above(x, &|x| 1.0 / x + if x > 1.0 { 2.0 * x.ln() / x } else { 0.0 })),
            twice(&|x| above(x, &|x| if x > 1.0 { 1.0 } else { 2.0 } / x + x.ln() + 1.0)),
            twice(&|x| above(x, &|x| 2.0 / x)),
            twice(&|x| above(x, &|x| -0.5 / x.sqrt())),
            twice(&|x| above(x, &|x| -1.0 / (x * x))),
        ];
        vec![all.concat()]
    });
}
