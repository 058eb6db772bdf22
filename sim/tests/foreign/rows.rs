//! Kernels that reduce rows: softmax, layer norm, sums by one CTA, by a cluster, by the last CTA.

use crate::data::Format::{self, Bf16, F16, F32};
use crate::data::{Data, words};
use crate::kernels;
use crate::setup::{Expect, Setup, close};

kernels!(softmax_rows, triton_softmax, layer_norm, triton_layer_norm, last_block, cluster_reduce, bulk_reduce);

pub(crate) fn softmax_rows() -> Setup {
    softmax("softmax_rows", "y")
}

fn triton_softmax() -> Setup {
    softmax("triton_softmax", "out")
}

fn softmax(name: &'static str, out: &str) -> Setup {
    let (rows, columns) = (3, 333);
    let x = Data::new(10).reals(rows * columns, F32);
    let mut want = Vec::new();
    for row in x.chunks(columns) {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|v| (v - top).exp()).sum();
        want.extend(row.iter().map(|v| (v - top).exp() / sum));
    }
    // Exponents up to 4 are rounded before they are raised, and the sum has a few hundred terms.
    let bound: Vec<f64> = want.iter().map(|w| w * 64.0 * F32.epsilon()).collect();
    Setup::new(name, [rows as u32, 1, 1]).input("x", F32, &x).close(out, F32, &want, &bound).int("columns", columns)
}

fn layer_norm() -> Setup {
    norm("layer_norm", F16, "y")
}

fn triton_layer_norm() -> Setup {
    norm("triton_layer_norm", Bf16, "out")
}

fn norm(name: &'static str, format: Format, out: &str) -> Setup {
    let (rows, columns, epsilon) = (3, 400, 1e-5f32);
    let mut data = Data::new(11);
    let x = data.reals(rows * columns, format);
    let (gamma, beta) = (data.reals(columns, F32), data.reals(columns, F32));
    let (mut want, mut bound) = (Vec::new(), Vec::new());
    for row in x.chunks(columns) {
        let mean = row.iter().sum::<f64>() / columns as f64;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / columns as f64;
        let scale = (variance + f64::from(epsilon)).sqrt().recip();
        for (v, (g, b)) in row.iter().zip(gamma.iter().zip(&beta)) {
            let scaled = (v - mean) * scale * g;
            want.push(scaled + b);
            bound.push((scaled.abs() + g.abs() + b.abs()) * 64.0 * F32.epsilon() + 1e-7);
        }
    }
    Setup::new(name, [rows as u32, 1, 1])
        .input("x", format, &x)
        .input("gamma", F32, &gamma)
        .input("beta", F32, &beta)
        .close(out, format, &want, &bound)
        .int("columns", columns)
        .float("epsilon", epsilon)
}

/// Bound of a sum in f32 in any order.
fn sum_bound(terms: &[f64]) -> f64 {
    terms.iter().map(|t| t.abs()).sum::<f64>() * terms.len() as f64 * F32.epsilon()
}

pub(crate) fn last_block() -> Setup {
    let (n, ctas) = (1500, 4);
    let x = Data::new(12).reals(n, F32);
    Setup::new("last_block", [ctas, 1, 1])
        .input("x", F32, &x)
        .scratch("parts", 4 * ctas as usize)
        .update("count", words([0]), Expect::Exact(words([0])))
        .close("total", F32, &[x.iter().sum()], &[sum_bound(&x)])
        .int("n", n)
}

pub(crate) fn cluster_reduce() -> Setup {
    let (matrices, rows, columns) = (2, 10, 128);
    let x = Data::new(13).reals(matrices * rows * columns, F32);
    let columns_of = |m: usize, c: usize| (0..rows).map(move |r| (m * rows + r) * columns + c);
    let terms: Vec<Vec<f64>> = (0..matrices)
        .flat_map(|m| (0..columns).map(move |c| (m, c)))
        .map(|(m, c)| columns_of(m, c).map(|i| x[i]).collect())
        .collect();
    let want: Vec<f64> = terms.iter().map(|t| t.iter().sum()).collect();
    let bound: Vec<f64> = terms.iter().map(|t| sum_bound(t)).collect();
    Setup::new("cluster_reduce", [4 * matrices as u32, 1, 1])
        .input("x", F32, &x)
        .close("sums", F32, &want, &bound)
        .int("rows", rows)
}

pub(crate) fn bulk_reduce() -> Setup {
    let (ctas, columns) = (5, 64);
    let mut data = Data::new(14);
    let (x, initial) = (data.reals(ctas * columns, F32), data.reals(columns, F32));
    let terms: Vec<Vec<f64>> =
        (0..columns).map(|c| (0..ctas).map(|r| x[r * columns + c] * 0.5).chain([initial[c]]).collect()).collect();
    let want: Vec<f64> = terms.iter().map(|t| t.iter().sum()).collect();
    let bound: Vec<f64> = terms.iter().map(|t| sum_bound(t)).collect();
    Setup::new("bulk_reduce", [ctas as u32, 1, 1]).input("x", F32, &x).update(
        "sums",
        F32.encode(&initial),
        close(F32, &want, &bound),
    )
}
