//! Nested loops, and loops that use many buffers: renumbering in each iteration keeps numbers consistent.

use super::{agrees_with, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F32};

atlas_kernel! {
    /// Rows from last to first, each by tiles, twice. The tile counters are carried from loop to loop.
    kernel walked(x: &Tensor<f32, [G, A, N]>, y: &mut Tensor<f32, [G, A, N]>, z: &mut Tensor<f32, [G, A]>)
    tune { BN: [16], warps: [1, 2] }
    {
        for g in grid(G) {
            let mut count = 0.cast::<i32>();
            let mut total = 0.0;
            for i in 0..size(A) {
                let row = size(A) - 1 - i;
                let mut inner = 0.cast::<i32>();
                for n in tiles(N, BN) {
                    store(y[g, row, n], load(x[g, row, n]) * 2.0 + (count + inner).cast::<f32>());
                    inner += 1;
                }
                count += inner;
                for n in tiles(N, BN) {
                    total += sum(load(y[g, row, n]));
                }
                store(z[g, row], total + count.cast::<f32>());
            }
        }
    }

    /// Three levels: each has a product whose operands other loops count.
    kernel nested<T: Float>(x: &Tensor<T, [G, A, M, K]>, w: &Tensor<T, [G, C, K, N]>, y: &mut Tensor<f32, [G, A, M, N]>)
    tune { BM: [16], BN: [16, 32], BK: [16], stages: [2, 3], warps: [1, 4] }
    {
        for g in grid(G) {
            for a in 0..size(A) {
                for m in tiles(M, BM) {
                    for n in tiles(N, BN) {
                        let mut acc = zeros::<f32>([BM, BN]);
                        for c in 0..size(C) {
                            for k in pipeline(tiles(K, BK)) {
                                acc += dot(load(x[g, a, m, k]), load(w[g, c, k, n]));
                            }
                            acc *= 0.5;
                        }
                        store(y[g, a, m, n], acc + (a - size(C)).cast::<f32>());
                    }
                }
            }
        }
    }

    /// A recurrence over time by products of whole matrices: eight buffers in one loop.
    kernel recurrent<T: Float>(
        x: &Tensor<T, [G, S, B, D]>,
        wx: &Tensor<T, [D, D]>,
        wh: &Tensor<T, [D, D]>,
        ux: &Tensor<T, [D, D]>,
        uh: &Tensor<T, [D, D]>,
        y: &mut Tensor<f32, [G, S, B, D]>,
    )
    tune { warps: [2, 4] }
    {
        for g in grid(G) {
            let mut h = zeros::<f32>([B, D]);
            for s in 0..size(S) {
                let xs = load(x[g, s, .., ..]);
                let hs = h.cast::<T>();
                let gate = sigmoid(dot(xs, load(ux[.., ..])) + dot(hs, load(uh[.., ..])));
                let kept = (h * gate).cast::<T>();
                let new = tanh(dot(xs, load(wx[.., ..])) + dot(kept, load(wh[.., ..])));
                h = gate * h + (1.0 - gate) * new;
                store(y[g, s, .., ..], h);
            }
        }
    }
}

#[test]
fn counters_go_from_loop_to_loop() {
    let (g, a, n) = (2, 5, 50);
    let args = [random(F32, &[g, a, n]), output(F32, &[g, a, n]), output(F32, &[g, a])];
    super::agrees(&walked, &args, 1e-5);
}

#[test]
fn products_in_loops_in_loops() {
    for (dtype, bound) in [(F32, 1e-5), (Bf16, 1e-4)] {
        let (g, a, m, k, c, n) = (1, 3, 20, 40, 2, 24);
        let args = [random(dtype, &[g, a, m, k]), random(dtype, &[g, c, k, n]), output(F32, &[g, a, m, n])];
        agrees_with(&nested, &args, bound, |v| {
            let (x, w) = (&v[0], &v[1]);
            let at = |i: usize| {
                let (col, row, a) = (i % n, i / n % m, i / n / m);
                let mut acc = 0.0;
                for c in 0..c {
                    let dot: f64 = (0..k).map(|k_| x[(a * m + row) * k + k_] * w[(c * k + k_) * n + col]).sum();
                    acc = (acc + dot) * 0.5;
                }
                acc + a as f64 - c as f64
            };
            vec![(0..a * m * n).map(at).collect()]
        });
    }
}

#[test]
fn a_recurrence_by_products() {
    let (g, s, b, d) = (2, 4, 16, 24);
    let matrix = |salt: usize| super::input(F32, &[d, d], move |i| 0.3 * super::noise(i + 1000 * salt));
    let args = [random(F32, &[g, s, b, d]), matrix(1), matrix(2), matrix(3), matrix(4), output(F32, &[g, s, b, d])];
    agrees_with(&recurrent, &args, 1e-5, |v| {
        let times =
            |x: &[f64], w: &[f64]| -> Vec<f64> { (0..d).map(|j| (0..d).map(|i| x[i] * w[i * d + j]).sum()).collect() };
        let mut out = vec![0.0; g * s * b * d];
        for g in 0..g {
            for b_ in 0..b {
                let mut h = vec![0.0; d];
                for s_ in 0..s {
                    let at = ((g * s + s_) * b + b_) * d;
                    let x = &v[0][at..][..d];
                    let (a, c) = (times(x, &v[3]), times(&h, &v[4]));
                    let gate: Vec<f64> = a.iter().zip(&c).map(|(a, c)| 1.0 / (1.0 + (-(a + c)).exp())).collect();
                    let kept: Vec<f64> = h.iter().zip(&gate).map(|(h, g)| h * g).collect();
                    let (a, c) = (times(x, &v[1]), times(&kept, &v[2]));
                    h = (0..d).map(|i| gate[i] * h[i] + (1.0 - gate[i]) * (a[i] + c[i]).tanh()).collect();
                    out[at..][..d].copy_from_slice(&h);
                }
            }
        }
        vec![out]
    });
}
