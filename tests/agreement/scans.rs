//! Scans: `cumsum`, `cummax` and `cummin`, along each axis, from either end, within tiles and across them.

use super::{agrees, agrees_on_hopper, agrees_with, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{self, Bf16, F16, F32, F64, I32, I64};

atlas_kernel! {
    /// The sums of each row up to an element, and from it on.
    kernel of_rows<T: Float>(x: &Tensor<T, [N, D]>, up: &mut Tensor<T, [N, D]>, down: &mut Tensor<T, [N, D]>)
    tune { BN: [4, 1, 16], warps: [1, 4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            store(up[n, ..], cumsum(rows, axis = 1));
            store(down[n, ..], cumsum(rows, axis = 1, reverse = true));
        }
    }

    /// The same of whole numbers and of doubles.
    kernel of_other_rows(
        i: &Tensor<i32, [N, D]>, l: &Tensor<i64, [N, D]>, x: &Tensor<f64, [N, D]>,
        of_i: &mut Tensor<i32, [N, D]>, of_l: &mut Tensor<i64, [N, D]>, of_x: &mut Tensor<f64, [N, D]>,
    )
    tune { BN: [4, 8], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(of_i[n, ..], cumsum(load(i[n, ..]), axis = 1) - cummax(load(i[n, ..]), axis = 0));
            store(of_l[n, ..], cummin(load(l[n, ..]), axis = 1, reverse = true) + cumsum(load(l[n, ..]), axis = 1));
            store(of_x[n, ..], cumsum(load(x[n, ..]), axis = 1) + cummax(load(x[n, ..]), axis = 1));
        }
    }

    /// The sums of each column up to a row: within a tile, and what the tiles before come to.
    kernel of_columns<T: Float>(x: &Tensor<T, [B, N, D]>, y: &mut Tensor<f32, [B, N, D]>)
    tune { BN: [32, 8, 128], BD: [32, 16], warps: [4, 1], stages: [1, 3] }
    {
        for (b, d) in grid(B, tiles(D, BD)) {
            let mut before = zeros::<f32>([1, BD]);
            for n in pipeline(tiles(N, BN)) {
                let rows = load(x[b, n, d]).cast::<f32>();
                store(y[b, n, d], before + cumsum(rows, axis = 0));
                before += sum(rows, axis = 0);
            }
        }
    }

    /// The same from the last row up, of tiles that begin before the first row.
    kernel from_the_end(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16, 64], warps: [2, 4] }
    {
        for d in grid(D) {
            let mut after = 0.0;
            for i in 0..(size(N) + BN - 1) / BN {
                let first = size(N) - (i + 1) * BN;
                let rows = load(x[span(first, BN), d]);
                store(y[span(first, BN), d], after + cumsum(rows, axis = 0, reverse = true));
                after += sum(rows);
            }
        }
    }

    /// The greatest and the least element so far.
    kernel of_ends<T: Float>(
        x: &Tensor<T, [N, D]>, greatest: &mut Tensor<T, [N, D]>, least: &mut Tensor<T, [N, D]>,
    )
    tune { BD: [32, 64], warps: [4, 2] }
    {
        for d in grid(tiles(D, BD)) {
            let rows = load(x[.., d]);
            store(greatest[.., d], cummax(rows, axis = 0));
            store(least[.., d], cummin(rows, axis = 0, reverse = true));
        }
    }

    /// Tiles whose columns past the edge hold what changes no scan, and whose rows are padded.
    kernel of_filled(x: &Tensor<f32, [N, D]>, greatest: &mut Tensor<f32, [N, D]>, least: &mut Tensor<f32, [N, D]>)
    tune { BD: [32, 64], warps: [4, 1, 2] }
    {
        for d in grid(tiles(D, BD)) {
            store(greatest[.., d], cummax(load(x[.., d]).or(f32::NEG_INFINITY), axis = 0, reverse = true));
            store(least[.., d], cummin(load(x[.., d]).or(f32::INFINITY), axis = 0, reverse = true));
        }
    }

    /// Scans of a product, and of what goes into the next one.
    kernel between_products<T: Float>(
        a: &Tensor<T, [M, K]>, b: &Tensor<T, [K, N]>, c: &Tensor<T, [N, E]>, y: &mut Tensor<f32, [M, E]>,
    )
    tune { BM: [64, 16, 128], warps: [4, 8] }
    {
        for m in grid(tiles(M, BM)) {
            let product = dot(load(a[m, ..]), load(b[.., ..]));
            let scanned = cumsum(product, axis = 1) + cumsum(product, axis = 0).or(0.0) * 0.0;
            store(y[m, ..], dot(scanned.cast::<T>(), load(c[.., ..])));
        }
    }

    /// Three axes, and a scan of a scan.
    kernel of_cubes(x: &Tensor<f32, [B, N, D]>, y: &mut Tensor<f32, [B, N, D]>)
    tune { BB: [2, 4], warps: [1, 4] }
    {
        for b in grid(tiles(B, BB)) {
            let cube = load(x[b, .., ..]);
            store(y[b, .., ..], cumsum(cumsum(cube, axis = 2), axis = 1, reverse = true));
        }
    }
}

fn scanned(x: &[f64], along: usize, reverse: bool, f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let mut y = x.to_vec();
    for row in y.chunks_mut(along) {
        if reverse {
            row.reverse();
        }
        for i in 1..row.len() {
            row[i] = f(row[i - 1], row[i]);
        }
        if reverse {
            row.reverse();
        }
    }
    y
}

fn turned(x: &[f64], cols: usize) -> Vec<f64> {
    let rows = x.len() / cols.max(1);
    (0..x.len()).map(|i| x[i % rows * cols + i / rows]).collect()
}

fn bound(dtype: DType) -> f64 {
    if dtype == F32 { 1e-5 } else { 1e-2 }
}

#[test]
fn sums_along_rows() {
    for dtype in [F32, F16, Bf16] {
        for (n, d) in [(5, 64), (33, 40), (1, 1), (3, 257), (0, 16)] {
            let args = [random(dtype, &[n, d]), output(dtype, &[n, d]), output(dtype, &[n, d])];
            agrees_with(&of_rows, &args, bound(dtype), |x| {
                [false, true].map(|down| scanned(&x[0], d, down, |a, b| a + b)).to_vec()
            });
        }
    }
}

#[test]
fn scans_of_whole_numbers_and_of_doubles() {
    for (n, d) in [(8, 64), (5, 33), (1, 1)] {
        let inputs = [I32, I64, F64].map(|dtype| random(dtype, &[n, d]));
        let outputs = [I32, I64, F64].map(|dtype| output(dtype, &[n, d]));
        agrees(&of_other_rows, &inputs.into_iter().chain(outputs).collect::<Vec<_>>(), 1e-6);
    }
}

#[test]
fn sums_along_columns_and_across_tiles() {
    for dtype in [F32, Bf16] {
        for (b, n, d) in [(1, 64, 32), (2, 37, 17), (1, 1, 1), (1, 300, 5), (1, 0, 8)] {
            let args = [random(dtype, &[b, n, d]), output(F32, &[b, n, d])];
            agrees_with(&of_columns, &args, 1e-5, |x| {
                let sums = x[0]
                    .chunks((n * d).max(1))
                    .flat_map(|x| turned(&scanned(&turned(x, d), n, false, |a, b| a + b), n));
                vec![sums.collect()]
            });
        }
    }
}

#[test]
fn sums_from_the_end_of_tiles_that_begin_before_the_first_row() {
    for (n, d) in [(64, 3), (50, 2), (1, 1), (129, 4)] {
        agrees_with(&from_the_end, &[random(F32, &[n, d]), output(F32, &[n, d])], 1e-5, |x| {
            vec![turned(&scanned(&turned(&x[0], d), n, true, |a, b| a + b), n)]
        });
    }
}

#[test]
fn the_greatest_and_the_least_so_far() {
    for dtype in [F32, Bf16, F16] {
        for (n, d) in [(48, 64), (7, 33), (1, 1), (130, 40)] {
            let args = [random(dtype, &[n, d]), output(dtype, &[n, d]), output(dtype, &[n, d])];
            agrees_with(&of_ends, &args, 0.0, |x| {
                let of = |down, f: fn(f64, f64) -> f64| turned(&scanned(&turned(&x[0], d), n, down, f), n);
                vec![of(false, f64::max), of(true, f64::min)]
            });
        }
    }
    // A NaN stays, and -0 is below 0.
    let special = input(F32, &[6, 40], |i| [-0.0, 0.0, f64::NEG_INFINITY, f64::NAN, 1.0, f64::INFINITY][i * 7 % 6]);
    agrees(&of_ends, &[special, output(F32, &[6, 40]), output(F32, &[6, 40])], 0.0);
}

#[test]
fn padding_that_a_change_of_layout_adds_is_left_out() {
    for sign in [-1.0, 1.0] {
        for (n, d) in [(5, 70), (37, 33), (1, 1)] {
            let x = input(F32, &[n, d], |i| sign * (2.0 + super::noise(i)));
            agrees_with(&of_filled, &[x, output(F32, &[n, d]), output(F32, &[n, d])], 0.0, |x| {
                let of = |f: fn(f64, f64) -> f64| turned(&scanned(&turned(&x[0], d), n, true, f), n);
                vec![of(f64::max), of(f64::min)]
            });
        }
    }
}

#[test]
fn scans_of_products() {
    for dtype in [Bf16, F32] {
        for (m, k, n, e) in [(64, 32, 64, 16), (33, 16, 24, 40)] {
            let args = [random(dtype, &[m, k]), random(dtype, &[k, n]), random(dtype, &[n, e]), output(F32, &[m, e])];
            agrees(&between_products, &args, 2e-2);
            agrees_on_hopper(&between_products, &args, 2e-2);
        }
    }
}

#[test]
fn scans_of_three_axes() {
    for (b, n, d) in [(4, 8, 16), (3, 5, 33)] {
        let args = [random(F32, &[b, n, d]), output(F32, &[b, n, d])];
        agrees_with(&of_cubes, &args, 1e-5, |x| {
            let along = scanned(&x[0], d, false, |a, b| a + b);
            let cube = |x: &[f64]| turned(&scanned(&turned(x, d), n, true, |a, b| a + b), n);
            vec![along.chunks(n * d).flat_map(cube).collect()]
        });
    }
}
