//! Launches of kernels that Atlas emits, with what they compute in f64.

use crate::data::Data;
use crate::data::Format::{self, Bf16, F32};
use crate::setup::{Setup, Value};

/// An unsigned 64-bit integer: a stride in elements.
fn stride(setup: Setup, name: &str, elements: usize) -> Setup {
    setup.value(name, Value::Bytes((elements as u64).to_le_bytes().to_vec()))
}

fn rounded(format: Format, values: &[f64]) -> Vec<f64> {
    format.decode(&format.encode(values))
}

/// A fraction of each result, in steps of bf16.
fn steps(want: &[f64], steps: f64) -> Vec<f64> {
    want.iter().map(|w| w.abs() * steps * Bf16.epsilon()).collect()
}

pub(crate) fn rms_norm() -> Setup {
    let (rows, columns, eps) = (3, 512, 1e-5f32);
    let mut data = Data::new(80);
    let (x, w) = (data.reals(rows * columns, Bf16), data.reals(columns, Bf16));
    let mut want = Vec::new();
    for row in x.chunks(columns) {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / columns as f64;
        let scale = (mean + f64::from(eps)).sqrt().recip();
        want.extend(row.iter().zip(&w).map(|(v, w)| v * scale * w));
    }
    Setup::new("rms_norm_bf16", [rows as u32, 1, 1])
        .input("x", Bf16, &x)
        .input("w", Bf16, &w)
        .close("y", Bf16, &want, &steps(&want, 0.01))
        .float("eps", eps)
        .int("n", rows)
}

pub(crate) fn softmax() -> Setup {
    let (rows, columns) = (8, 512);
    let x = Data::new(81).reals(rows * columns, Bf16);
    let mut want = Vec::new();
    for row in x.chunks(columns) {
        let sum: f64 = row.iter().map(|v| v.exp()).sum();
        want.extend(row.iter().map(|v| v.exp() / sum));
    }
    Setup::new("softmax_bf16", [rows as u32 / 4, 1, 1])
        .input("x", Bf16, &x)
        .close("y", Bf16, &want, &steps(&want, 0.01))
        .int("n", rows)
}

/// Sizes that no tile divides.
pub(crate) fn gemm() -> Setup {
    let (m, n, k) = (40, 36, 44);
    let mut data = Data::new(82);
    // Numbers that tf32 holds too.
    let (a, b) = (data.reals(m * k, Bf16), data.reals(k * n, Bf16));
    let (mut want, mut bound) = (Vec::new(), Vec::new());
    for row in a.chunks(k) {
        for j in 0..n {
            let terms = || row.iter().enumerate().map(|(i, v)| v * b[i * n + j]);
            want.push(terms().sum());
            bound.push(terms().map(f64::abs).sum::<f64>() * k as f64 * F32.epsilon());
        }
    }
    let setup = Setup::new("gemm_tf32", [4, 1, 1])
        .input("a", F32, &a)
        .input("b", F32, &b)
        .close("c", F32, &want, &bound)
        .int("m", m)
        .int("n", n)
        .int("k", k);
    [("a.stride", k), ("b.stride", n), ("c.stride", n)].into_iter().fold(setup, |s, (name, n)| stride(s, name, n))
}

/// `r + gelu(x * w2^T) * w1^T`.
pub(crate) fn memory_read() -> Setup {
    let (g, n, d, h) = (2, 64, 32, 128);
    let mut data = Data::new(83);
    let mut draw = |n| data.reals(n, Bf16);
    let (x, w2, w1, r) = (draw(g * n * d), draw(g * h * d), draw(g * d * h), draw(g * n * d));
    let (mut want, mut bound) = (Vec::new(), Vec::new());
    for (row, rest) in x.chunks(d).zip(r.chunks(d)).enumerate().map(|(i, p)| ((i / n, p.0), p.1)) {
        let (of, row) = row;
        let hidden: Vec<f64> = w2[of * h * d..][..h * d]
            .chunks(d)
            .map(|w| w.iter().zip(row).map(|(w, v)| w * v).sum::<f64>())
            .map(|v| 0.5 * v * (1.0 + libm::erf(v * 0.5f64.sqrt())))
            .collect();
        for (w, rest) in w1[of * d * h..][..d * h].chunks(h).zip(rest) {
            let terms = || w.iter().zip(&hidden).map(|(w, v)| w * v);
            want.push(rest + terms().sum::<f64>());
            // Each hidden number is rounded to bf16, and its erf is an approximation.
            bound.push(terms().map(f64::abs).sum::<f64>() * 0.5 * Bf16.epsilon());
        }
    }
    let setup = Setup::new("memory_read_bf16", [(g * n / 16) as u32, 1, 1])
        .input("x", Bf16, &x)
        .input("w2", Bf16, &w2)
        .input("w1", Bf16, &w1)
        .input("r", Bf16, &r)
        .close("y", Bf16, &want, &bound)
        .int("g", g)
        .int("n", n)
        .int("h", h);
    [
        ("x.stride", n * d),
        ("w2.stride", h * d),
        ("w1.stride", d * h),
        ("w1.row", h),
        ("r.stride", n * d),
        ("y.stride", n * d),
    ]
    .into_iter()
    .fold(setup, |s, (name, n)| stride(s, name, n))
}

/// Coefficients of the steps, as the kernel has them.
const STEPS: [[f32; 3]; 5] = [
    [3.4445, -3.3501556, 0.0],
    [2.3777187, -2.637502, 0.35632676],
    [0.701, -0.49954152, 1.425307],
    [1.0059688, -1.212195, 1.0689802],
    [1.0059688, -1.212195, 1.0689802],
];

/// The product of a row-major matrix of `k` columns and the columns that `b` gives.
fn matmul(a: &[f64], k: usize, n: usize, b: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    a.chunks(k).flat_map(|row| (0..n).map(|j| row.iter().enumerate().map(|(i, v)| v * b(i, j)).sum())).collect()
}

/// Rounded to bf16 where the kernel rounds. The effect of f32 sums on these roundings is within the bound.
pub(crate) fn newton_schulz() -> Setup {
    let (count, m, n) = (2, 16, 32);
    let g = Data::new(84).reals(count * m * n, Bf16);
    let mut want = Vec::new();
    for matrix in g.chunks(m * n) {
        let norm = matrix.iter().map(|v| v * v).sum::<f64>().sqrt() + 1e-7;
        let scale = 1.1938622133552008 / norm;
        let mut x = rounded(Bf16, &matrix.iter().map(|v| v * scale).collect::<Vec<_>>());
        for [a, b, c] in STEPS.map(|step| step.map(f64::from)) {
            let diagonal = |i: usize| f64::from(u8::from(i / m == i % m));
            let gram = matmul(&x, n, m, |i, j| x[j * n + i]);
            let z: Vec<f64> = gram.iter().enumerate().map(|(i, v)| v - c * diagonal(i)).collect();
            let z_rounded = rounded(Bf16, &z);
            let square = matmul(&z_rounded, m, m, |i, j| z_rounded[i * m + j]);
            let p: Vec<f64> = (0..m * m).map(|i| square[i] + b * z[i] + a * diagonal(i)).collect();
            x = rounded(Bf16, &matmul(&rounded(Bf16, &p), m, n, |i, j| x[i * n + j]));
        }
        want.extend(x.iter().map(|v| v * 0.8376175984242141));
    }
    Setup::new("newton_schulz", [count as u32, 1, 1])
        .input("g", Bf16, &g)
        .close("y", Bf16, &want, &vec![0.01; want.len()])
        .int("n", count)
}
