//! Products of f64: tensor cores on sm_90, fused multiply-adds before.

use super::{Given, agrees, agrees_with, input, noise, output};
use atlas::prelude::*;
use atlas_dsl::DType::F64;

atlas_kernel! {
    kernel product(a: &Tensor<f64, [M, K]>, b: &Tensor<f64, [K, N]>, y: &mut Tensor<f64, [M, N]>)
    tune { BM: [32, 64], BN: [48, 16], BK: [16, 20], stages: [2, 3], warps: [4, 2] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f64>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[k, n]));
            }
            store(y[m, n], acc);
        }
    }

    kernel turned(a: &Tensor<f64, [K, M]>, b: &Tensor<f64, [N, K]>, y: &mut Tensor<f64, [M, N]>)
    tune { BM: [32], BN: [40], BK: [24, 8], stages: [2], warps: [3, 4] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f64>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[k, m]).t(), load(b[n, k]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// A left operand that was itself a product, rounded or not.
    kernel chain(x: &Tensor<f64, [N, D]>, w: &Tensor<f64, [H, D]>, v: &Tensor<f64, [H, D]>, y: &mut Tensor<f64, [N, D]>)
    tune { BN: [32, 16], BH: [16, 40], stages: [2], warps: [2, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let mut acc = zeros::<f64>([BN, D]);
            for h in pipeline(tiles(H, BH)) {
                acc += dot(max(dot(xs, load(w[h, ..]).t()), 0.0), load(v[h, ..]));
            }
            store(y[n, ..], acc + sum(acc, axis = 1));
        }
    }

    /// The whole of K at once: many steps.
    kernel long(a: &Tensor<f64, [M, K]>, b: &Tensor<f64, [K, N]>, y: &mut Tensor<f64, [M, N]>)
    tune { BM: [16, 32], BN: [16], warps: [1, 2] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            store(y[m, n], dot(load(a[m, ..]), load(b[.., n])));
        }
    }
}

/// Numbers that fill a mantissa.
fn thirds(shape: [usize; 2]) -> Given {
    input(F64, &shape, |i| noise(i + shape[0] * 7 + shape[1]) / 3.0)
}

fn wanted(a: &[f64], b: &[f64], (m, n, k): (usize, usize, usize), flip: bool) -> Vec<f64> {
    let at =
        |i: usize, j: usize, p: usize| if flip { a[p * m + i] * b[j * k + p] } else { a[i * k + p] * b[p * n + j] };
    (0..m * n).map(|e| (0..k).map(|p| at(e / n, e % n, p)).sum()).collect()
}

#[test]
fn products_of_any_size_are_what_a_loop_makes() {
    for (m, n, k) in [(67, 51, 45), (5, 130, 7), (1, 1, 1)] {
        let plain = |flip: bool| move |args: &[Vec<f64>]| vec![wanted(&args[0], &args[1], (m, n, k), flip)];
        agrees_with(&product, &[thirds([m, k]), thirds([k, n]), output(F64, &[m, n])], 1e-14, plain(false));
        agrees_with(&turned, &[thirds([k, m]), thirds([n, k]), output(F64, &[m, n])], 1e-14, plain(true));
    }
}

#[test]
fn what_a_product_made_is_multiplied_again() {
    for (n, d, h) in [(37, 24, 61), (3, 5, 9)] {
        agrees(&chain, &[thirds([n, d]), thirds([h, d]), thirds([h, d]), output(F64, &[n, d])], 1e-14);
    }
}

#[test]
fn a_product_at_once_has_as_many_steps_as_it_takes() {
    for (m, n, k) in [(20, 18, 256), (16, 16, 77)] {
        agrees(&long, &[thirds([m, k]), thirds([k, n]), output(F64, &[m, n])], 1e-14);
    }
}
