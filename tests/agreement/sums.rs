//! Sums of many wide tiles: each is added as it is loaded, so that registers hold only a few of them.

use super::{Given, agrees, input, noise, output};
use atlas::prelude::*;
use atlas_dsl::DType;
use atlas_dsl::DType::{Bf16, F32, F64};

atlas_kernel! {
    /// Eight rows, each of which takes 32 registers per thread.
    kernel sum_of_eight<T: Float>(
        a: &Tensor<T, [N, D]>, b: &Tensor<T, [N, D]>, c: &Tensor<T, [N, D]>, d: &Tensor<T, [N, D]>,
        e: &Tensor<T, [N, D]>, f: &Tensor<T, [N, D]>, g: &Tensor<T, [N, D]>, h: &Tensor<T, [N, D]>,
        y: &mut Tensor<T, [N, D]>,
    ) {
        for n in grid(N) {
            store(y[n, ..], load(a[n, ..]) + load(b[n, ..]) + load(c[n, ..]) + load(d[n, ..])
                + load(e[n, ..]) + load(f[n, ..]) + load(g[n, ..]) + load(h[n, ..]));
        }
    }

    /// The same for doubles, which take twice the registers, and a reduction of the sum.
    kernel fold_of_eight(
        a: &Tensor<f64, [N, D]>, b: &Tensor<f64, [N, D]>, c: &Tensor<f64, [N, D]>, d: &Tensor<f64, [N, D]>,
        e: &Tensor<f64, [N, D]>, f: &Tensor<f64, [N, D]>, g: &Tensor<f64, [N, D]>, h: &Tensor<f64, [N, D]>,
        y: &mut Tensor<f64, [N]>,
    ) {
        for n in grid(N) {
            let first = load(a[n, ..]);
            let second = load(b[n, ..]);
            let third = load(c[n, ..]);
            let fourth = load(d[n, ..]);
            let all = first + second + third + fourth + load(e[n, ..]) + load(f[n, ..]) + load(g[n, ..]) + load(h[n, ..]);
            store(y[n], sum(all, axis = 0));
        }
    }

    /// A polynomial whose coefficients are rows, and a product computed with it.
    kernel polynomial(
        a: &Tensor<f32, [N, D]>, b: &Tensor<f32, [N, D]>, c: &Tensor<f32, [N, D]>, d: &Tensor<f32, [N, D]>,
        e: &Tensor<f32, [N, D]>, f: &Tensor<f32, [N, D]>, g: &Tensor<f32, [N, D]>, x: &Tensor<f32, [N, D]>,
        y: &mut Tensor<f32, [N, D]>, z: &mut Tensor<f32, [N, D]>,
    ) {
        for n in grid(N) {
            let at = load(x[n, ..]);
            let mut p = load(a[n, ..]);
            p = p * at + load(b[n, ..]);
            p = p * at + load(c[n, ..]);
            p = p * at + load(d[n, ..]);
            p = p * at + load(e[n, ..]);
            p = p * at + load(f[n, ..]);
            let last = load(g[n, ..]);
            store(y[n, ..], p * at + last);
            store(z[n, ..], select(at < last, at, last));
        }
    }
}

fn rows(dtype: DType, n: usize, d: usize) -> Vec<Given> {
    (0..8).map(|row| input(dtype, &[n, d], move |i| noise(i + 7 * row) * 0.3)).collect()
}

#[test]
fn sums_of_many_rows_have_a_config() {
    for (dtype, tolerance) in [(F32, 1e-5), (Bf16, 4e-2)] {
        let mut args = rows(dtype, 2, 4096);
        args.push(output(dtype, &[2, 4096]));
        agrees(&sum_of_eight, &args, tolerance);
    }
    let mut args = rows(F64, 2, 2048);
    args.push(output(F64, &[2]));
    agrees(&fold_of_eight, &args, 1e-9);
}

#[test]
fn polynomials_of_rows_have_a_config() {
    let mut args = rows(F32, 2, 4096);
    args.extend([output(F32, &[2, 4096]), output(F32, &[2, 4096])]);
    agrees(&polynomial, &args, 1e-4);
}
