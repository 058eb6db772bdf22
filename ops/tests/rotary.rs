//! Both forms of the rotary embedding on tensors as models have them, `[tokens, heads, 2 D]`.

use atlas_dsl::{DType, KernelDef};
use atlas_ops::rotary::{rotary_halves, rotary_interleaved};
use atlas_runtime::{Launch, Tensor, args};

const N: usize = 5;
const H: usize = 3;
const D: usize = 4;

fn angle(token: usize, pair: usize) -> f64 {
    token as f64 * 10_000_f64.powf(-(pair as f64) / D as f64)
}

fn number(i: usize) -> f32 {
    (i * 37 % 23) as f32 / 8.0 - 1.25
}

/// What a kernel makes of `x`, whose last axis is split by this size.
fn turned(kernel: &'static KernelDef, x: &[f32], split: usize) -> Vec<f32> {
    let device = crate::device();
    let table = |f: fn(f64) -> f64| {
        let values: Vec<f32> = (0..N * D).map(|i| f(angle(i / D, i % D)) as f32).collect();
        device.tensor_from(&values, [N, D]).unwrap()
    };
    let given = device.tensor_from(x, [N, H, 2 * D]).unwrap();
    let y = Tensor::zeros(&device, DType::F32, [N, H, 2 * D]).unwrap();
    let (c, s) = (table(f64::cos), table(f64::sin));
    let mut pairs = y.split(2, split).unwrap();
    kernel.launch(&device, args!(given.split(2, split).unwrap(), c, s, &mut pairs)).unwrap();
    y.to_vec().unwrap()
}

/// Where the two numbers of a pair stand in a head.
type Pair = fn(usize) -> [usize; 2];

const HALVES: Pair = |pair| [pair, D + pair];
const NEIGHBOURS: Pair = |pair| [2 * pair, 2 * pair + 1];

/// The greatest error beside multiplication of `a + b i` by `exp(i angle)`.
fn error(x: &[f32], y: &[f32], pair: Pair) -> f64 {
    let mut worst = 0.0_f64;
    for (head, (x, y)) in x.chunks(2 * D).zip(y.chunks(2 * D)).enumerate() {
        for at in 0..D {
            let [a, b] = pair(at).map(|i| f64::from(x[i]));
            let (length, angle) = (a.hypot(b), b.atan2(a) + angle(head / H, at));
            let [found_a, found_b] = pair(at).map(|i| f64::from(y[i]));
            worst = worst.max((found_a - length * angle.cos()).abs()).max((found_b - length * angle.sin()).abs());
        }
    }
    worst
}

#[test]
fn pairs_are_turned_as_complex_numbers() {
    let x: Vec<f32> = (0..N * H * 2 * D).map(number).collect();
    let halves = turned(&rotary_halves, &x, D);
    assert!(error(&x, &halves, HALVES) < 1e-6);
    let interleaved = turned(&rotary_interleaved, &x, 2);
    assert!(error(&x, &interleaved, NEIGHBOURS) < 1e-6);
    // One taken for the other is noticed.
    assert!(error(&x, &halves, NEIGHBOURS) > 0.1 && error(&x, &interleaved, HALVES) > 0.1);
}

#[test]
fn one_form_is_the_other_in_another_order() {
    let x: Vec<f32> = (0..N * H * 2 * D).map(number).collect();
    let reordered = |x: &[f32], from: Pair, to: Pair| {
        let mut y = vec![0.0; x.len()];
        for (x, y) in x.chunks(2 * D).zip(y.chunks_mut(2 * D)) {
            (0..D).for_each(|at| (0..2).for_each(|k| y[to(at)[k]] = x[from(at)[k]]));
        }
        y
    };
    let by_halves = turned(&rotary_halves, &reordered(&x, NEIGHBOURS, HALVES), D);
    assert_eq!(reordered(&by_halves, HALVES, NEIGHBOURS), turned(&rotary_interleaved, &x, 2));
}
