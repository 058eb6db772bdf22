//! Products of many steps, grids of warps, refills between steps, and groups of programs, in boundary cases.

use super::{Given, agrees, input, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::DType;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// Deep pipelined steps: the refill comes after the first step, and the others are a loop over groups from K 16 on.
    kernel deep_steps<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64], BN: [64], BK: [272, 192], stages: [2], warps: [4, 1] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[k, n]));
            }
            store(y[m, n], acc);
        }
    }

    /// The same with both operands transposed, with pitches of odd numbers of chunks.
    kernel deep_steps_turned<T: Float>(a: &Tensor<T, [K, M]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [80, 64], BN: [48], BK: [144, 256], stages: [2], warps: [1, 2] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[k, m]).t(), load(b[n, k]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// Two products in one pipeline: only the first is split.
    kernel two_products<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [K, N]>,
        c: &Tensor<T, [K, N]>,
        y: &mut Tensor<f32, [M, N]>,
        z: &mut Tensor<f32, [M, N]>,
    )
    tune { BM: [32], BN: [32, 16], BK: [48, 32], stages: [3, 2], warps: [2] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut first = zeros::<f32>([BM, BN]);
            let mut second = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                let xs = load(a[m, k]);
                first += dot(xs, load(b[k, n]));
                second += dot(xs, load(c[k, n]));
            }
            store(y[m, n], first);
            store(z[m, n], second - first);
        }
    }

    /// tf32: steps of 8, the first of them before the refill.
    kernel in_tf32(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [32], BN: [16], BK: [40, 12], stages: [3, 2], warps: [4] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t()).precision(tf32);
            }
            store(y[m, n], acc);
        }
    }

    /// Column ranges of a long product: nonzero origins, loops over K, and validity in multiples of a dim's divisor.
    kernel ranged<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64], BN: [160], warps: [4, 2] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            store(y[m, n], dot(load(a[m, ..]), load(b[.., n])));
        }
    }

    kernel ranged_turned<T: Float>(a: &Tensor<T, [K, M]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64], BN: [160], warps: [4, 2] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            store(y[m, n], dot(load(a[.., m]).t(), load(b[n, ..]).t()));
        }
    }

    /// Computing the left operand takes long, and the refill waits for it.
    kernel activated<T: Float>(x: &Tensor<T, [M, K]>, w: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [32], BN: [32], BK: [64, 32], stages: [2, 3], warps: [4] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                let a = tanh(load(x[m, k]).cast::<f32>()).cast::<T>();
                acc += dot(a, load(w[k, n]));
            }
            store(y[m, n], acc);
        }
    }

    /// Warps that divide no extent evenly, and reductions of the result along both axes.
    kernel odd_grids<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [48], BN: [80], BK: [32], stages: [3], warps: [8, 6, 5, 12] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc - max(acc, axis = 1) + 0.5 * sum(acc, axis = 0));
        }
    }

    /// A left operand that is passed on in registers, or is not.
    kernel chain<T: Float>(x: &Tensor<T, [N, D]>, w1: &Tensor<T, [H, D]>, w2: &Tensor<T, [H, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [48, 80], BH: [80, 16], stages: [3], warps: [8] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let mut acc = zeros::<f32>([BN, D]);
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w1[h, ..]).t());
                acc += dot(max(z, 0.0).cast::<T>(), load(w2[h, ..]));
            }
            store(y[n, ..], acc);
        }
    }

    kernel chain_narrow<T: Float>(x: &Tensor<T, [N, D]>, w1: &Tensor<T, [H, D]>, w2: &Tensor<T, [H, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [128, 32], BH: [24], stages: [2], warps: [8, 3] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let mut acc = zeros::<f32>([BN, D]);
            let mut rows = zeros::<f32>([BN, 1]);
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w1[h, ..]).t());
                let p = exp(z);
                rows += sum(p, axis = 1);
                acc += dot(p.cast::<T>(), load(w2[h, ..]));
            }
            store(y[n, ..], acc / rows);
        }
    }

    /// Programs in groups, with two batch axes.
    kernel batched<T: Float>(a: &Tensor<T, [B, G, M, K]>, b: &Tensor<T, [B, G, K, N]>, y: &mut Tensor<f32, [B, G, M, N]>)
    tune { BM: [16], BN: [16], BK: [16], stages: [2], warps: [1] }
    {
        for (i, g, m, n) in grid(B, G, tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[i, g, m, k]), load(b[i, g, k, n]));
            }
            store(y[i, g, m, n], acc);
        }
    }

    /// Rows and columns that are single elements.
    kernel point_by_point(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { warps: [1] }
    {
        for (m, n) in grid(M, N) {
            store(y[m, n], sum(load(a[m, ..]) * load(b[n, ..])));
        }
    }
}

fn small(dtype: DType, shape: &[usize]) -> Given {
    input(dtype, shape, |i| noise(i + 3 * shape.len()) * 0.3)
}

#[test]
fn a_deep_step_goes_on_behind_the_refill() {
    let (m, n) = (70, 40);
    for k in [16, 200, 272, 560] {
        agrees(&deep_steps, &[small(F16, &[m, k]), small(F16, &[k, n]), output(F32, &[m, n])], 2e-5);
        agrees(&deep_steps_turned, &[small(Bf16, &[k, m]), small(Bf16, &[n, k]), output(F32, &[m, n])], 2e-5);
    }
}

#[test]
fn products_share_a_refill() {
    for k in [0, 32, 48, 100, 144, 250] {
        let args = [small(Bf16, &[40, k]), small(Bf16, &[k, 24]), small(Bf16, &[k, 24])];
        let [a, b, c] = args;
        agrees(&two_products, &[a, b, c, output(F32, &[40, 24]), output(F32, &[40, 24])], 2e-5);
        agrees(&in_tf32, &[small(F32, &[40, k]), small(F32, &[24, k]), output(F32, &[40, 24])], 1e-3);
    }
}

#[test]
fn ranges_of_long_products() {
    // The divisors of N: 160, 40, 8, 4, 2, 1.
    for (k, n) in [(144, 160), (208, 160), (192, 120), (192, 168), (192, 100), (192, 90), (192, 45)] {
        agrees(&ranged, &[small(F16, &[70, k]), small(F16, &[k, n]), output(F32, &[70, n])], 2e-5);
    }
    for k in [144, 192, 208] {
        agrees(&ranged_turned, &[small(Bf16, &[k, 72]), small(Bf16, &[120, k]), output(F32, &[72, 120])], 2e-5);
    }
}

#[test]
fn a_computed_left_operand_in_a_pipeline() {
    for k in [0, 32, 64, 130, 256] {
        agrees(&activated, &[random(Bf16, &[40, k]), small(Bf16, &[k, 40]), output(F32, &[40, 40])], 2e-2);
    }
}

#[test]
fn warps_that_divide_nothing_evenly() {
    for dtype in [F16, F32] {
        for (m, n, k) in [(48, 80, 64), (100, 170, 40), (17, 9, 33)] {
            agrees(&odd_grids, &[small(dtype, &[m, k]), small(dtype, &[n, k]), output(F32, &[m, n])], 2e-5);
        }
    }
}

#[test]
fn left_operands_handed_on_by_any_grid() {
    for dtype in [Bf16, F16] {
        for (n, h, d) in [(48, 160, 64), (100, 90, 40), (80, 16, 128), (13, 0, 24)] {
            let args = [small(dtype, &[n, d]), small(dtype, &[h, d]), small(dtype, &[h, d]), output(F32, &[n, d])];
            agrees(&chain, &args, 2e-2);
            if h > 0 {
                agrees(&chain_narrow, &args, 2e-2);
            }
        }
    }
}

#[test]
fn groups_of_rows_behind_batches() {
    // 9, 8, 1, 7, 17 and 0 rows of tiles; 1, 3 and 0 columns.
    for (m, n) in [(144, 48), (128, 16), (5, 40), (112, 33), (270, 8), (0, 16), (16, 0)] {
        let args = [small(F16, &[2, 3, m, 20]), small(F16, &[2, 3, 20, n]), output(F32, &[2, 3, m, n])];
        agrees(&batched, &args, 2e-5);
    }
    for (m, n) in [(9, 5), (1, 1), (8, 3), (23, 1), (1, 17)] {
        agrees(&point_by_point, &[random(F32, &[m, 12]), random(F32, &[n, 12]), output(F32, &[m, n])], 1e-5);
    }
}
