//! Whole kernels against naive references.

use crate::support::{Buffer, assert_close, noise, run_text};
use atlas_dsl::DType;
use atlas_tile_interp::Mode;

/// y = r + W1 · gelu(W2 · x), with tiles of 16 rows and 32 hidden units.
fn memory_read_text(dtype: DType, d: u64) -> String {
    format!(
        "kernel @memory_read(%x: {dtype}[G, N, D], %w2: {dtype}[G, H, D], %w1: {dtype}[G, D, H],
                             %r: {dtype}[G, N, D], %y: out {dtype}[G, N, D])
         dims G: ?1, N: ?1, D = {d}, H: ?1
         grid (%g, %n) = (G, tiles(N, 16)) {{
           %xs = load %x[%g, %n : 16, ..]
           %r0 = load %r[%g, %n : 16, ..]
           %acc = cast %r0 : f32[16, {d}]
           %lo = splat 0 : i32
           %hi = tiles(H, 32)
           %sum = pipeline %h in %lo..%hi carry (%a = %acc) {{
             %v2 = load %w2[%g, %h : 32, ..]
             %t2 = transpose %v2
             %z = dot %xs, %t2
             %c = splat 0.7071067811865476 : f32[16, 32]
             %one = splat 1.0 : f32[16, 32]
             %half = splat 0.5 : f32[16, 32]
             %zc = mul %z, %c
             %e = erf %zc
             %e1 = add %one, %e
             %hz = mul %half, %z
             %u = mul %hz, %e1
             %uc = cast %u : {dtype}[16, 32]
             %v1 = load %w1[%g, .., %h : 32]
             %t1 = transpose %v1
             %b = dot %uc, %t1 acc %a
             yield %b
           }}
           %out = cast %sum : {dtype}[16, {d}]
           store %y[%g, %n : 16, ..], %out
         }}"
    )
}

fn memory_read(dtype: DType, [g, n, d, h]: [usize; 4], mode: Mode) -> (Vec<f64>, Vec<f64>) {
    let scaled = |seed, count| Buffer::new(dtype, &noise(seed, count).iter().map(|x| x * 0.5).collect::<Vec<_>>());
    let (x, r) = (scaled(21, g * n * d), scaled(22, g * n * d));
    let (w2, w1) = (scaled(23, g * h * d), scaled(24, g * d * h));
    let [gu, nu, du, hu] = [g, n, d, h].map(|x| x as u64);
    let inputs: [(&Buffer, &[u64]); 4] =
        [(&x, &[gu, nu, du]), (&w2, &[gu, hu, du]), (&w1, &[gu, du, hu]), (&r, &[gu, nu, du])];
    let out = if mode == Mode::F64 { DType::F64 } else { dtype };
    let text = memory_read_text(dtype, du);
    let got = run_text(&text, &[gu, nu, du, hu], &inputs, (out, &[gu, nu, du]), mode).unwrap();
    let (x, r, w2, w1) = (x.values(), r.values(), w2.values(), w1.values());
    let mut want = r;
    for row in 0..g * n {
        let group = row / n;
        for j in 0..h {
            let z: f64 = (0..d).map(|k| x[row * d + k] * w2[(group * h + j) * d + k]).sum();
            let u = 0.5 * z * (1.0 + libm::erf(z * std::f64::consts::FRAC_1_SQRT_2));
            for k in 0..d {
                want[row * d + k] += w1[(group * d + k) * h + j] * u;
            }
        }
    }
    (got.values(), want)
}

#[test]
fn memory_read_in_f64() {
    for shape in [[2, 37, 48, 70], [1, 1, 8, 3], [3, 16, 64, 64]] {
        let (got, want) = memory_read(DType::Bf16, shape, Mode::F64);
        assert_close(&got, &want, 1e-13, 1e-13);
    }
}

#[test]
fn memory_read_natively() {
    let (got, want) = memory_read(DType::F32, [2, 37, 48, 70], Mode::Native);
    assert_close(&got, &want, 1e-5, 1e-5);
    let (got, want) = memory_read(DType::Bf16, [2, 37, 48, 70], Mode::Native);
    assert_close(&got, &want, 2f64.powi(-7), 0.05);
    // Rounding does happen.
    assert!(got.iter().zip(&want).any(|(g, w)| (g - w).abs() > 1e-3));
}

/// Five steps of the quintic Newton-Schulz iteration on a whole [M, N].
fn newton_schulz_text(m: usize, n: usize) -> String {
    format!(
        "kernel @newton_schulz(%x: bf16[G, M, N], %y: out bf16[G, M, N])
         dims G: ?1, M = {m}, N = {n}
         table @C: f32[5, 3] = [4.0848, -6.8946, 2.9270, 3.9505, -6.3029, 2.6377, 3.7418, -5.5913, 2.3037,
                                2.8769, -3.1427, 1.2046, 2.8366, -3.0525, 1.2012]
         grid (%g) = (G) {{
           %x0 = load %x[%g, .., ..]
           %x1 = cast %x0 : f32[{m}, {n}]
           %sq = mul %x1, %x1
           %ss = reduce sum %sq axes [0, 1]
           %s = reshape %ss : f32
           %eps = splat 1e-14 : f32
           %s1 = add %s, %eps
           %inv = rsqrt %s1
           %invt = broadcast %inv : f32[{m}, {n}]
           %xn = mul %x1, %invt
           %zero = splat 0 : i32
           %five = splat 5 : i32
           %one = splat 1 : i32
           %two = splat 2 : i32
           %r = loop %i in %zero..%five carry (%c = %xn) {{
             %a = get @C[%i, %zero]
             %b = get @C[%i, %one]
             %d = get @C[%i, %two]
             %at = broadcast %a : f32[{m}, {n}]
             %bt = broadcast %b : f32[{m}, {m}]
             %dt = broadcast %d : f32[{m}, {m}]
             %ct = transpose %c
             %gram = dot %c, %ct
             %gg = dot %gram, %gram
             %p = mul %bt, %gram
             %q = mul %dt, %gg
             %pq = add %p, %q
             %ax = mul %at, %c
             %next = dot %pq, %c acc %ax
             yield %next
           }}
           %o = cast %r : bf16[{m}, {n}]
           store %y[%g, .., ..], %o
         }}"
    )
}

fn matmul(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|at| (0..k).map(|j| a[at / n * k + j] * b[j * n + at % n]).sum()).collect()
}

#[test]
fn newton_schulz_in_f64() {
    let (g, m, n) = (2, 24, 48);
    let x = Buffer::new(DType::Bf16, &noise(31, g * m * n));
    let dims = [g as u64, m as u64, n as u64];
    let text = newton_schulz_text(m, n);
    let got = run_text(&text, &dims, &[(&x, &dims)], (DType::F64, &dims), Mode::F64).unwrap().values();
    let steps: [[f32; 3]; 5] = [
        [4.0848, -6.8946, 2.9270],
        [3.9505, -6.3029, 2.6377],
        [3.7418, -5.5913, 2.3037],
        [2.8769, -3.1427, 1.2046],
        [2.8366, -3.0525, 1.2012],
    ];
    let mut want = Vec::new();
    for x in x.values().chunks(m * n) {
        let norm = (x.iter().map(|x| x * x).sum::<f64>() + 1e-14).sqrt();
        let mut x: Vec<f64> = x.iter().map(|x| x / norm).collect();
        for [a, b, c] in steps.map(|s| s.map(f64::from)) {
            let t: Vec<f64> = (0..m * n).map(|i| x[i % m * n + i / m]).collect();
            let gram = matmul(&x, &t, m, n, m);
            let gg = matmul(&gram, &gram, m, m, m);
            let p: Vec<f64> = gram.iter().zip(&gg).map(|(g, h)| b * g + c * h).collect();
            let px = matmul(&p, &x, m, m, n);
            x = x.iter().zip(&px).map(|(x, p)| a * x + p).collect();
        }
        want.extend(x);
    }
    assert_close(&got, &want, 1e-11, 1e-11);
    // The rows come out near orthonormal.
    let t: Vec<f64> = (0..m * n).map(|i| got[i % m * n + i / m]).collect();
    let gram = matmul(&got[..m * n], &t, m, n, m);
    assert!((0..m).all(|i| (gram[i * m + i] - 1.0).abs() < 0.3));
}
