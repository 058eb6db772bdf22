//! Products of random shapes, transposes, accumulators and precisions.

use crate::support::{Buffer, assert_close, noise, run_text};
use atlas_dsl::DType;
use atlas_tile_interp::Mode;
use half::bf16;
use proptest::prelude::*;

/// `y = op(x) · op(w)`, in one tile of the whole.
fn whole_text(dtype: DType, [m, k, n]: [u64; 3], transpose: (bool, bool), precision: &str) -> String {
    let out = dtype.accumulator();
    let x = if transpose.0 { "K, M" } else { "M, K" };
    let w = if transpose.1 { "N, K" } else { "K, N" };
    let at = if transpose.0 { "transpose %a0".to_owned() } else { format!("reshape %a0 : {dtype}[{m}, {k}]") };
    let bt = if transpose.1 { "transpose %b0".to_owned() } else { format!("reshape %b0 : {dtype}[{k}, {n}]") };
    format!(
        "kernel @matmul(%x: {dtype}[{x}], %w: {dtype}[{w}], %y: out {out}[G, M, N])
         dims M = {m}, K = {k}, N = {n}, G: ?1
         grid (%g) = (G) {{
           %a0 = load %x[.., ..]
           %b0 = load %w[.., ..]
           %a = {at}
           %b = {bt}
           %c = dot %a, %b {precision}
           store %y[%g, .., ..], %c
         }}"
    )
}

fn naive(x: &[f64], w: &[f64], [m, k, n]: [u64; 3], transpose: (bool, bool)) -> Vec<f64> {
    let (m, k, n) = (m as usize, k as usize, n as usize);
    let a = |i: usize, j: usize| if transpose.0 { x[j * m + i] } else { x[i * k + j] };
    let b = |i: usize, j: usize| if transpose.1 { w[j * k + i] } else { w[i * n + j] };
    (0..m * n).map(|at| (0..k).map(|j| a(at / n, j) * b(j, at % n)).sum()).collect()
}

fn product(dtype: DType, mkn: [u64; 3], transpose: (bool, bool), precision: &str, mode: Mode) -> (Vec<f64>, Vec<f64>) {
    let [m, k, n] = mkn;
    let x = Buffer::new(dtype, &noise(m * 31 + k, (m * k) as usize));
    let w = Buffer::new(dtype, &noise(n * 17 + k, (k * n) as usize));
    let out = if mode == Mode::F64 { DType::F64 } else { dtype.accumulator() };
    let dims_x = if transpose.0 { [k, m] } else { [m, k] };
    let dims_w = if transpose.1 { [n, k] } else { [k, n] };
    let text = whole_text(dtype, mkn, transpose, precision);
    let inputs: [(&Buffer, &[u64]); 2] = [(&x, &dims_x), (&w, &dims_w)];
    let got = run_text(&text, &[m, k, n, 1], &inputs, (out, &[1, m, n]), mode).unwrap();
    (got.values(), naive(&x.values(), &w.values(), mkn, transpose))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_shapes(m in 1u64..70, k in 1u64..70, n in 1u64..70, transpose: (bool, bool), kind in 0usize..4) {
        let dtype = [DType::F16, DType::Bf16, DType::F32, DType::F64][kind];
        let (got, want) = product(dtype, [m, k, n], transpose, "", Mode::Native);
        let tolerance = if dtype == DType::F64 { 1e-14 } else { 1e-6 } * k as f64;
        assert_close(&got, &want, 0.0, tolerance);
        let (got, want) = product(dtype, [m, k, n], transpose, "", Mode::F64);
        assert_close(&got, &want, 0.0, 1e-14 * k as f64);
    }
}

#[test]
fn tf32_rounds_its_operands() {
    let round = |x: f64| {
        // To 10 bits of mantissa, ties away from zero.
        let unit = 2f64.powi(x.abs().log2().floor() as i32 - 10);
        (x / unit).round() * unit
    };
    let mkn = [9, 16, 11];
    let x: Vec<f64> = Buffer::new(DType::F32, &noise(9 * 31 + 16, 9 * 16)).values();
    let w: Vec<f64> = Buffer::new(DType::F32, &noise(11 * 17 + 16, 16 * 11)).values();
    let rounded = |x: &[f64]| x.iter().map(|&x| round(x)).collect::<Vec<_>>();
    let want = naive(&rounded(&x), &rounded(&w), mkn, (false, false));
    let (got, exact) = product(DType::F32, mkn, (false, false), "precision tf32", Mode::Native);
    assert_close(&got, &want, 0.0, 4e-6);
    assert!(got.iter().zip(&exact).any(|(g, e)| (g - e).abs() > 2e-5));
    // In f64 mode nothing is rounded.
    let (got, exact) = product(DType::F32, mkn, (false, false), "precision tf32", Mode::F64);
    assert_close(&got, &exact, 0.0, 1e-14);
}

#[test]
fn split_operands_lose_a_rest_of_a_rest() {
    let mkn = [9, 16, 11];
    for (precision, unit) in [("precision bf16x3", 2f64.powi(-8)), ("precision tf32x3", 2f64.powi(-11))] {
        let (got, exact) = product(DType::F32, mkn, (false, false), precision, Mode::Native);
        // Elements are below 1, so that the terms add up to 16 at most.
        assert_close(&got, &exact, 0.0, 3.0 * unit * unit * 16.0 + 4e-6);
        let (got, exact) = product(DType::F32, mkn, (false, false), precision, Mode::F64);
        assert_close(&got, &exact, 0.0, 1e-14);
    }
}

#[test]
fn a_transpose_that_is_also_used_otherwise() {
    let text = "kernel @both(%x: bf16[N, N], %y: out f32[N, N])
        dims N = 12
        grid (%n) = (tiles(N, 12)) {
          %a = load %x[.., ..]
          %t = transpose %a
          %u = transpose %a
          %f = cast %t : f32[12, 12]
          %c = dot %u, %t acc %f
          store %y[%n : 12, ..], %c
        }";
    let x = Buffer::new(DType::Bf16, &noise(13, 144));
    let got = run_text(text, &[12], &[(&x, &[12, 12])], (DType::F32, &[12, 12]), Mode::Native).unwrap().values();
    let x = x.values();
    let want: Vec<f64> = (0..144)
        .map(|at| {
            let (i, j) = (at / 12, at % 12);
            x[j * 12 + i] + (0..12).map(|k| x[k * 12 + i] * x[j * 12 + k]).sum::<f64>()
        })
        .collect();
    assert_close(&got, &want, 0.0, 1e-5);
}

#[test]
fn sums_of_bf16_accumulate_in_f32() {
    // 256 + 1 + 1 + ...: in bf16 every single addition would be lost.
    let mut x = vec![1.0; 257];
    x[0] = 256.0;
    let text = "kernel @sum(%x: bf16[N, D], %y: out bf16[N])
        dims N: ?1, D = 257
        grid (%n) = (N) {
          %a = load %x[%n, ..]
          %s = reduce sum %a axes [0]
          %r = reshape %s : bf16
          store %y[%n], %r
        }";
    let x = Buffer::new(DType::Bf16, &x);
    let out = run_text(text, &[1, 257], &[(&x, &[1, 257])], (DType::Bf16, &[1]), Mode::Native).unwrap();
    assert_eq!(out.values(), [bf16::from_f32(512.0).to_f64()]);
}
