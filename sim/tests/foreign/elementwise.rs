//! Kernels without communication: sums, copies through shared memory, elementary functions.

use crate::data::Format::{self, Bf16, E4m3, F16, F32, F64};
use crate::data::{Data, to_odd, words};
use crate::kernels;
use crate::setup::{Setup, close};

kernels!(vector_add, triton_vector_add, saxpy, barrier_copy, elementary, half_math, quantise);

pub(crate) fn vector_add() -> Setup {
    sum("vector_add", ["a", "b", "c"], [8, 1, 1])
}

fn triton_vector_add() -> Setup {
    sum("triton_vector_add", ["x", "y", "out"], [2, 1, 1])
}

fn sum(name: &'static str, [a, b, c]: [&str; 3], grid: [u32; 3]) -> Setup {
    // A multiple of 16, as Triton was told, and of nothing larger.
    let n = 976;
    let mut data = Data::new(1);
    let (x, y) = (data.reals(n, F32), data.reals(n, F32));
    let want: Vec<f64> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
    Setup::new(name, grid).input(a, F32, &x).input(b, F32, &y).close(c, F32, &want, &vec![0.0; n]).int("n", n)
}

pub(crate) fn saxpy() -> Setup {
    let (n, alpha) = (1000, 1.25f32);
    let mut data = Data::new(2);
    let (x, y) = (data.reals(n, F32), data.reals(n, F32));
    let want: Vec<f64> = x.iter().zip(&y).map(|(x, y)| f64::from(alpha) * x + y).collect();
    let bound: Vec<f64> = x.iter().zip(&y).map(|(x, y)| (x.abs() + y.abs()) * F32.epsilon()).collect();
    Setup::new("saxpy", [3, 1, 1])
        .float("alpha", alpha)
        .input("x", F32, &x)
        .update("y", F32.encode(&y), close(F32, &want, &bound))
        .int("n", n)
}

pub(crate) fn barrier_copy() -> Setup {
    let (chunk, chunks) = (128, 3);
    let x = Data::new(3).words(chunk * chunks);
    let y = x.chunks(chunk).flat_map(|c| c.iter().rev().map(|v| v.wrapping_mul(2)));
    Setup::new("barrier_copy", [1, 1, 1]).read("x", words(x.iter().copied())).exact("y", words(y)).int("chunks", chunks)
}

type Function = fn(f64) -> f64;

/// Arguments from tiny ones to those for which the reduction of an angle takes its slow path.
fn elementary() -> Setup {
    let n = 100;
    let scale = |i: usize| [1.0, 1e-3, 8.0, 300.0, 1e6, 1e17][i % 6];
    let x: Vec<f64> = Data::new(4).reals(n, F32).iter().enumerate().map(|(i, v)| v * scale(i)).collect();
    let x = F32.decode(&F32.encode(&x));
    // Units in the last place are those that CUDA's guide grants, and one more for the argument's rounding.
    let single: [(Function, f64, f64); 8] = [
        (f64::sin, 3.0, 0.0),
        (|v| (v * 0.0625).exp(), 3.0, 0.0),
        (|v| (v.abs() + f64::from(1e-3f32)).ln(), 3.0, 1.0),
        (f64::tanh, 3.0, 0.0),
        (libm::erf, 3.0, 0.0),
        (|v| v.abs().powf(1.25), 5.0, 0.0),
        (|v| v / (v * v + 1.0), 3.0, 0.0),
        (|v| v.abs().sqrt(), 1.0, 0.0),
    ];
    let double: [Function; 5] =
        [f64::cbrt, |v| (v * 0.0625).exp(), |v| (v.abs() + 1e-3).ln(), |v| v / (v * v + 1.0), |v| v.abs().sqrt()];
    let (mut f, mut bounds) = (Vec::new(), Vec::new());
    for (function, ulps, absolute) in single {
        f.extend(x.iter().map(|&v| function(v)));
        // Below the normal numbers an ulp is the least number.
        let bound = |w: f64| (w.abs() * ulps + absolute) * F32.epsilon() + 4.0 * f64::from(f32::from_bits(1));
        bounds.extend(x.iter().map(|&v| bound(function(v))));
    }
    let d: Vec<f64> = double.iter().flat_map(|function| x.iter().map(|&v| function(v))).collect();
    let tight: Vec<f64> = d.iter().map(|w| (w.abs() * 3.0 + 1.0) * F64.epsilon()).collect();
    Setup::new("elementary", [2, 1, 1])
        .input("x", F32, &x)
        .close("f", F32, &f, &bounds)
        .close("d", F64, &d, &tight)
        .int("n", n)
}

fn half_math() -> Setup {
    let n = 100;
    let mut data = Data::new(5);
    let (x, y) = (data.reals(2 * n, F16), data.reals(2 * n, Bf16));
    let pairs = |f: fn(&[f64]) -> [f64; 2], v: &[f64]| v.chunks(2).flat_map(f).collect::<Vec<f64>>();
    let half = |v: f64| half::f16::from_f32(to_odd(v)).to_f64();
    let rounded = |v: Vec<f64>, format: Format| format.encode(&v);
    let fused = x.chunks(2).flat_map(|p| [0, 1].map(|i: usize| p[i] * p[i].max(p[0]) + half(p[i] - 0.5)));
    let mut all = rounded(fused.collect(), F16);
    all.extend(rounded(x.iter().map(|v| (v * v).clamp(0.0, 1.0)).collect(), F16));
    all.extend(rounded(x.iter().map(|v| f64::from(u8::from(*v > 0.0))).collect(), F16));
    all.extend(rounded(pairs(|p| [-p[1].abs(), -p[0].abs()], &x), F16));
    let mut b = rounded(y.iter().map(|w| w * w + w.min(0.25)).collect(), Bf16);
    b.extend(rounded(pairs(|p| [p[0] * 3.0, p[1] * -2.0], &y), Bf16));
    let integer = |(p, w): (&[f64], &[f64])| {
        let sum = p[0].floor() as i32 * 1000 + p[1].round_ties_even() as i32;
        (sum + i32::from(w[0] > w[1])) as u32
    };
    Setup::new("half_math", [2, 1, 1])
        .input("x", F16, &x)
        .input("y", Bf16, &y)
        .exact("h", all)
        .exact("b", b)
        .exact("i", words(x.chunks(2).zip(y.chunks(2)).map(integer)))
        .int("n", n)
}

fn quantise() -> Setup {
    let (rows, columns) = (3, 256);
    let x = Data::new(6).reals(rows * columns, F32);
    let (mut q, mut scales) = (Vec::new(), Vec::new());
    for row in x.chunks(columns) {
        let top = row.iter().fold(0.0f64, |t, v| t.max(v.abs()));
        let scale = 2f64.powf(top.log2().ceil() - 8.0);
        q.extend(E4m3.encode(&row.iter().map(|v| v / scale).collect::<Vec<_>>()));
        scales.push(scale);
    }
    let back = F16.encode(&E4m3.decode(&q));
    Setup::new("quantise", [rows as u32, 1, 1])
        .input("x", F32, &x)
        .exact("q", q)
        .exact("scales", F32.encode(&scales))
        .exact("back", back)
}
