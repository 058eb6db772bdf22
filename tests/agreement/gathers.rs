//! Loads at the places of a tile: rows, columns and elements, of products too, ragged, twice named and outside of the tensor.

use super::{Given, agrees, agrees_on_hopper, agrees_with, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32, F64, I32, I64};

atlas_kernel! {
    /// Rows of a table.
    kernel table_rows<T: Float>(table: &Tensor<T, [V, D]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [16, 1, 64], BD: [32, 128], warps: [4, 1, 8] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store(y[n, d], load(table[load(ids[n]), d]));
        }
    }

    /// The same of other types.
    kernel other_rows(
        i: &Tensor<i32, [V, D]>, l: &Tensor<i64, [V, D]>, x: &Tensor<f64, [V, D]>, ids: &Tensor<i32, [N]>,
        of_i: &mut Tensor<i32, [N, D]>, of_l: &mut Tensor<i64, [N, D]>, of_x: &mut Tensor<f64, [N, D]>,
    )
    tune { BN: [16, 8], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let at = load(ids[n]);
            store(of_i[n, ..], load(i[at, ..]));
            store(of_l[n, ..], load(l[at, ..]));
            store(of_x[n, ..], load(x[at, ..]));
        }
    }

    /// Columns, at places that are computed.
    kernel columns<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, E]>, step: i32)
    tune { BN: [8, 32], BE: [32, 16], warps: [2, 4] }
    {
        for (n, e) in grid(tiles(N, BN), tiles(E, BE)) {
            let at = (e * BE + iota([BE], 0)) * step - 3;
            store(y[n, e], load(x[n, at]) * 2.0);
        }
    }

    /// Elements of a row, and the greatest of them.
    kernel elements(
        x: &Tensor<f32, [B, N]>, ids: &Tensor<i32, [K]>, y: &mut Tensor<f32, [B, K]>, most: &mut Tensor<f32, [B]>,
    )
    tune { BK: [32, 128], warps: [1, 4] }
    {
        for b in grid(B) {
            let mut greatest = -1e30;
            for k in pipeline(tiles(K, BK)) {
                let found = load(x[b, load(ids[k])]) - 5.0;
                store(y[b, k], found);
                greatest = max(greatest, max(found));
            }
            store(most[b], greatest);
        }
    }

    /// Both operands of a product, of which one is turned.
    kernel product<T: Float>(
        a: &Tensor<T, [V, K]>, b: &Tensor<T, [W, K]>,
        left: &Tensor<i32, [M]>, right: &Tensor<i32, [N]>, y: &mut Tensor<f32, [M, N]>,
    )
    tune { BM: [64, 16, 128], BN: [32, 64], BK: [32, 16], warps: [4, 8], stages: [2, 3] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let at = load(left[m]);
            let from = load(right[n]);
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[at, k]), load(b[from, k]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// A sum over what is contracted, which is gathered.
    kernel contracted<T: Float>(
        w: &Tensor<T, [M, K]>, table: &Tensor<T, [V, D]>, ids: &Tensor<i32, [K]>, y: &mut Tensor<f32, [M, D]>,
    )
    tune { BM: [16, 64], BD: [32], BK: [16, 32], warps: [4], stages: [1, 3] }
    {
        for (m, d) in grid(tiles(M, BM), tiles(D, BD)) {
            let mut acc = zeros::<f32>([BM, BD]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(w[m, k]), load(table[load(ids[k]), d]));
            }
            store(y[m, d], acc);
        }
    }

    /// One element, to which a product is added whose accumulator has more places than it.
    kernel beside_product(x: &Tensor<f32, [N, D]>, at: &Tensor<i32, [N]>, w: &Tensor<f32, [D, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [1], BD: [1, 16], warps: [1] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let mut acc = load(x[load(at[n]), d]);
            acc += dot(load(x[n, ..]), load(w[.., d])).precision(bf16x3);
            store(y[n, d], acc);
        }
    }

    /// The middle one of three axes, in a loop whose places change, and reductions whose edges come from the places.
    kernel cubes(x: &Tensor<f32, [B, N, D]>, ids: &Tensor<i32, [K]>, y: &mut Tensor<f32, [B, D]>)
    tune { BK: [8, 32], BD: [16, 64], warps: [2, 4] }
    {
        for (b, d) in grid(B, tiles(D, BD)) {
            let mut least = zeros::<f32>([1, BD]) + 1e30;
            for k in 0..(size(K) + BK - 1) / BK {
                least = min(least, min(load(x[b, load(ids[span(k * BK, BK)]), d]) + 5.0, axis = 0));
            }
            store(y[b, d], least);
        }
    }
}

fn at(places: &[usize], within: usize) -> Given {
    // Some twice, some before the first element and past the last.
    input(I32, places, |i| (i * 7919 % (within + 5)) as f64 - 2.0)
}

fn picked(table: &[f64], ids: &[f64], d: usize) -> Vec<f64> {
    let rows = table.len() / d.max(1);
    let row = |&id: &f64| match (id as i64).try_into() {
        Ok(id) if (0..rows).contains(&id) => table[id * d..(id + 1) * d].to_vec(),
        _ => vec![0.0; d],
    };
    ids.iter().flat_map(row).collect()
}

#[test]
fn rows_of_a_table() {
    for dtype in [F32, Bf16, F16] {
        for (v, d, n) in [(100, 64, 33), (7, 130, 64), (5, 3, 1), (1, 1, 70), (40, 32, 0)] {
            agrees_with(&table_rows, &[random(dtype, &[v, d]), at(&[n], v), output(dtype, &[n, d])], 0.0, |x| {
                vec![picked(&x[0], &x[1], d)]
            });
        }
    }
    // A table whose rows lie apart, and one that is turned.
    agrees(&table_rows, &[random(F32, &[50, 64]).within(3, 5), at(&[40], 50), output(F32, &[40, 64])], 0.0);
    agrees(&table_rows, &[random(Bf16, &[50, 64]).by_columns(), at(&[40], 50), output(Bf16, &[40, 64])], 0.0);
}

#[test]
fn rows_of_whole_numbers_and_of_doubles() {
    for (v, d, n) in [(20, 64, 33), (5, 3, 1)] {
        let of = [I32, I64, F64];
        let inputs = of.map(|dtype| random(dtype, &[v, d])).into_iter().chain([at(&[n], v)]);
        let args: Vec<Given> = inputs.chain(of.map(|dtype| output(dtype, &[n, d]))).collect();
        agrees_with(&other_rows, &args, 0.0, |x| (0..3).map(|i| picked(&x[i], &x[3], d)).collect());
    }
}

#[test]
fn columns_at_computed_places() {
    for dtype in [F32, Bf16] {
        for (n, d, e, step) in [(20, 64, 40, 1), (8, 33, 64, 2), (3, 10, 5, -1), (1, 1, 1, 0)] {
            let args = [random(dtype, &[n, d]), output(dtype, &[n, e]), Given::I32(step)];
            agrees_with(&columns, &args, 0.0, |x| {
                let one = |row: usize, e: i32| match (e * step - 3).try_into() {
                    Ok(at) if (0..d).contains(&at) => 2.0 * x[0][row * d + at],
                    _ => 0.0,
                };
                vec![(0..n).flat_map(|row| (0..e as i32).map(move |e| one(row, e))).collect()]
            });
        }
    }
}

#[test]
fn elements_of_a_row() {
    for (b, n, k) in [(3, 100, 70), (1, 1, 1), (5, 33, 128)] {
        let args = [random(F32, &[b, n]), at(&[k], n), output(F32, &[b, k]), output(F32, &[b])];
        agrees_with(&elements, &args, 1e-6, |x| {
            let found: Vec<f64> =
                x[0].chunks(n).flat_map(|row| picked(row, &x[1], 1).into_iter().map(|v| v - 5.0)).collect();
            let most = found.chunks(k).map(|row| row.iter().copied().fold(-1e30, f64::max)).collect();
            vec![found, most]
        });
    }
}

#[test]
fn products_of_rows() {
    for dtype in [Bf16, F16, F32] {
        for (v, w, k, m, n) in [(90, 70, 64, 64, 64), (5, 9, 33, 70, 40), (1, 1, 16, 1, 1)] {
            let args = [random(dtype, &[v, k]), random(dtype, &[w, k]), at(&[m], v), at(&[n], w), output(F32, &[m, n])];
            agrees(&product, &args, 2e-2);
            agrees_on_hopper(&product, &args, 2e-2);
        }
        for (m, k, v, d) in [(64, 64, 50, 64), (20, 37, 9, 40)] {
            let args = [random(dtype, &[m, k]), random(dtype, &[v, d]), at(&[k], v), output(F32, &[m, d])];
            agrees(&contracted, &args, 2e-2);
            agrees_on_hopper(&contracted, &args, 2e-2);
        }
    }
}

#[test]
fn one_row_beside_a_product() {
    for (n, d) in [(5, 1), (3, 20)] {
        let args = [random(F32, &[n, d]), at(&[n], n), random(F32, &[d, d]), output(F32, &[n, d])];
        agrees(&beside_product, &args, 1e-4);
        agrees_on_hopper(&beside_product, &args, 1e-4);
    }
}

#[test]
fn rows_in_the_middle_of_three_axes() {
    for (b, n, d, k) in [(2, 30, 20, 33), (1, 1, 1, 1), (3, 8, 64, 8)] {
        let args = [random(F32, &[b, n, d]), at(&[k], n), output(F32, &[b, d])];
        agrees_with(&cubes, &args, 1e-6, |x| {
            let least = |cube: &[f64]| -> Vec<f64> {
                let found = picked(cube, &x[1], d);
                (0..d).map(|j| found.iter().skip(j).step_by(d).fold(1e30, |a, &v| f64::min(a, v + 5.0))).collect()
            };
            vec![x[0].chunks(n * d).flat_map(least).collect()]
        });
    }
}
