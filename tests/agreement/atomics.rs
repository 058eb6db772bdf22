//! Atomic stores: sums, the greater and the less, at tiles, elements and places that meet, of every type.

use super::{Given, agrees, agrees_on_hopper, agrees_with, devices, in_place, input, random, run};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32, F64, I32, I64};

atlas_kernel! {
    /// Sums of rows to the rows that ids names: the gradient of an embedding.
    kernel scatter_add<T: Float>(x: &Tensor<T, [N, D]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<T, [V, D]>)
    tune { BN: [16, 1, 64], BD: [32, 128], warps: [4, 1, 8] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            atomic_add(y[load(ids[n]), d], load(x[n, d]));
        }
    }

    /// How often each number occurs.
    kernel histogram(ids: &Tensor<i32, [N]>, count: &mut Tensor<i32, [V]>)
    tune { BN: [64, 128, 1], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_add(count[load(ids[n])], 1);
        }
    }

    /// Sums along the axis that the grid counts, which many programs share.
    kernel column_sums(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [D]>)
    tune { BN: [16, 4], BD: [32, 64], warps: [1, 4] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            atomic_add(y[d], sum(load(x[n, d]), axis = 0));
        }
    }

    /// One element for all programs.
    kernel all_of(x: &Tensor<f32, [N]>, total: &mut Tensor<f32, [K]>, most: &mut Tensor<f32, [K]>, least: &mut Tensor<f32, [K]>)
    tune { BN: [64, 256], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n]);
            atomic_add(total[0], sum(xs));
            atomic_max(most[1], max(xs));
            atomic_min(least[0], min(xs));
        }
    }

    /// The greatest and the least of each segment.
    kernel segments<T: Float>(
        x: &Tensor<T, [N, D]>, of: &Tensor<i32, [N]>, most: &mut Tensor<T, [S, D]>, least: &mut Tensor<T, [S, D]>,
    )
    tune { BN: [16, 8], BD: [16, 64], warps: [1, 4] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let xs = load(x[n, d]);
            let at = load(of[n]);
            atomic_max(most[at, d], xs);
            atomic_min(least[at, d], xs);
        }
    }

    /// The same of integers.
    kernel integers(
        x: &Tensor<i32, [N]>, l: &Tensor<i64, [N]>, of: &Tensor<i32, [N]>,
        sums: &mut Tensor<i64, [S]>, most: &mut Tensor<i32, [S]>, least: &mut Tensor<i64, [S]>,
    )
    tune { BN: [32, 128], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let at = load(of[n]);
            atomic_add(sums[at], load(l[n]));
            atomic_max(most[at], load(x[n]));
            atomic_min(least[at], load(l[n]));
        }
    }

    /// Doubles have no instruction for the greater one.
    kernel doubles(x: &Tensor<f64, [N]>, of: &Tensor<i32, [N]>, most: &mut Tensor<f64, [S]>, least: &mut Tensor<f64, [S]>)
    tune { BN: [32, 128], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            atomic_max(most[load(of[n])], load(x[n]));
            atomic_min(least[load(of[n])], load(x[n]));
        }
    }

    /// Columns, at places that are computed, in a loop.
    kernel columns(x: &Tensor<f64, [N, D]>, y: &mut Tensor<f64, [B, E]>, step: i32)
    tune { BN: [8], BD: [16, 32], warps: [1, 2] }
    {
        for b in grid(B) {
            for n in tiles(N, BN) {
                for d in tiles(D, BD) {
                    atomic_add(y[b, (d * BD + iota([BD], 0)) / step], sum(load(x[n, d]).or(0.0), axis = 0));
                }
            }
        }
    }

    /// A product whose parts along K belong to programs: split-K.
    kernel product<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64, 16], BN: [64, 32], BK: [32, 16], warps: [4, 2] }
    {
        for (m, n, k) in grid(tiles(M, BM), tiles(N, BN), tiles(K, BK)) {
            atomic_add(y[m, n], dot(load(a[m, k]), load(b[k, n])));
        }
    }

    /// A product of few warps, which is stored range by range.
    kernel wide_scatter<T: Float>(
        x: &Tensor<T, [N, K]>, w: &Tensor<T, [K, D]>, g: &Tensor<f32, [N, D]>, t: &Tensor<i32, [N]>, y: &mut Tensor<f32, [V, D]>,
    )
    tune { BN: [64], BD: [128], warps: [1, 2] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let a = dot(load(x[n, ..]), load(w[.., d]));
            atomic_add(y[load(t[n]), d], exp(a) * load(g[n, d]));
        }
    }

    /// Rows of a product go to places of their own: the second half of a mixture of experts.
    kernel combine<T: Float>(
        x: &Tensor<T, [N, K]>, w: &Tensor<T, [K, D]>, gate: &Tensor<f32, [N]>, token: &Tensor<i32, [N]>,
        y: &mut Tensor<f32, [V, D]>,
    )
    tune { BN: [64, 16], BD: [64, 32], BK: [32, 16], warps: [4, 2], stages: [2, 3] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let mut acc = zeros::<f32>([BN, BD]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[n, k]), load(w[k, d]));
            }
            atomic_add(y[load(token[n]), d], acc * load(gate[n]).t());
        }
    }
}

/// Places, some named often, some before the first element and past the last.
fn places(shape: &[usize], within: usize) -> Given {
    input(I32, shape, |i| (i * 7919 % (within + 5)) as f64 - 2.0)
}

/// Applies `f` to the elements of `y` that rows of `d` elements go to.
fn scattered(y: &[f64], x: &[f64], ids: &[f64], d: usize, f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let mut y = y.to_vec();
    for (row, &id) in x.chunks(d.max(1)).zip(ids) {
        let of_row = usize::try_from(id as i64).ok().and_then(|id| y.get_mut(id * d..(id + 1) * d));
        of_row.into_iter().flatten().zip(row).for_each(|(y, &x)| *y = f(*y, x));
    }
    y
}

#[test]
fn rows_are_added_where_they_meet() {
    for (dtype, bound) in [(F32, 1e-6), (Bf16, 4e-2), (F16, 5e-3)] {
        for (n, d, v) in [(33, 64, 10), (64, 130, 7), (1, 3, 5), (70, 1, 1), (0, 32, 4)] {
            let args = [random(dtype, &[n, d]), places(&[n], v), in_place(dtype, &[v, d])];
            agrees_with(&scatter_add, &args, bound, |x| vec![scattered(&x[2], &x[0], &x[1], d, |y, x| y + x)]);
        }
    }
    // Rows that lie apart, of which no byte between them is written.
    let apart = [random(F32, &[50, 64]).within(3, 5), places(&[50], 9), in_place(F32, &[9, 64]).within(1, 2)];
    agrees(&scatter_add, &apart, 1e-6);
    let halves = [random(Bf16, &[50, 64]).by_columns(), places(&[50], 9), in_place(Bf16, &[9, 64]).within(1, 2)];
    agrees(&scatter_add, &halves, 4e-2);
}

#[test]
fn a_histogram() {
    for (n, v) in [(1000, 10), (64, 1), (1, 3), (0, 2), (129, 200)] {
        let args = [places(&[n], v), input(I32, &[v], |_| 0.0).into_output()];
        agrees_with(&histogram, &args, 0.0, |x| vec![scattered(&x[1], &vec![1.0; n], &x[0], 1, |y, x| y + x)]);
    }
}

#[test]
fn sums_of_many_programs() {
    for (n, d) in [(100, 64), (7, 33), (1, 1), (0, 5)] {
        let args = [random(F32, &[n, d]), in_place(F32, &[d])];
        agrees_with(&column_sums, &args, 2e-6, |x| {
            vec![(0..d).map(|j| x[1][j] + (0..n).map(|i| x[0][i * d + j]).sum::<f64>()).collect()]
        });
    }
    for n in [1000, 64, 1] {
        let none = || input(F32, &[2], |i| i as f64 * 0.25).into_output();
        let args = [random(F32, &[n]), none(), none(), none()];
        agrees_with(&all_of, &args, 2e-6, |x| {
            let [greatest, least] =
                [f64::max, f64::min].map(|f: fn(f64, f64) -> f64| x[0].iter().copied().reduce(f).unwrap());
            vec![
                vec![x[1][0] + x[0].iter().sum::<f64>(), x[1][1]],
                vec![x[2][0], x[2][1].max(greatest)],
                vec![x[3][0].min(least), x[3][1]],
            ]
        });
    }
}

#[test]
fn the_greatest_and_the_least_of_segments() {
    for dtype in [F32, Bf16, F16] {
        for (n, d, s) in [(40, 20, 6), (17, 64, 2), (1, 1, 1)] {
            let args = [random(dtype, &[n, d]), places(&[n], s), in_place(dtype, &[s, d]), in_place(dtype, &[s, d])];
            agrees_with(&segments, &args, 0.0, |x| {
                let f: [fn(f64, f64) -> f64; 2] = [f64::max, f64::min];
                [2, 3].iter().zip(f).map(|(&y, f)| scattered(&x[y], &x[0], &x[1], d, f)).collect()
            });
        }
    }
    for (n, s) in [(100, 7), (1, 1)] {
        let args = [random(F64, &[n]), places(&[n], s), in_place(F64, &[s]), in_place(F64, &[s])];
        agrees_with(&doubles, &args, 0.0, |x| {
            let f: [fn(f64, f64) -> f64; 2] = [f64::max, f64::min];
            [2, 3].iter().zip(f).map(|(&y, f)| scattered(&x[y], &x[0], &x[1], 1, f)).collect()
        });
    }
    // NaN stays, whichever comes first, and whatever its sign; zeros have the sign of the element-wise operations.
    let special = [f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1.0, -1.0];
    for dtype in [F32, F16] {
        let x = input(dtype, &[64, 8], |i| special[(i / 8 * 5 + i % 8 * (i / 8 % 3)) % 8]);
        let there = || input(dtype, &[8, 8], |i| special[(i / 8 + i % 8) % 8]).into_output();
        let args = [x, input(I32, &[64], |i| (i % 8) as f64), there(), there()];
        agrees(&segments, &args, 0.0);
    }
}

#[test]
fn whole_numbers() {
    for (n, s) in [(200, 9), (33, 1), (1, 4)] {
        let far = |k: i64| move |i: usize| ((i as i64 * 2_654_435_761 + k) % 2_000_000_011 - 1_000_000_005) as f64;
        let there = |dtype| input(dtype, &[s], |i| i as f64 - 3.0).into_output();
        let args =
            [input(I32, &[n], far(1)), input(I64, &[n], far(2)), places(&[n], s), there(I64), there(I32), there(I64)];
        agrees_with(&integers, &args, 0.0, |x| {
            vec![
                scattered(&x[3], &x[1], &x[2], 1, |y, x| y + x),
                scattered(&x[4], &x[0], &x[2], 1, f64::max),
                scattered(&x[5], &x[1], &x[2], 1, f64::min),
            ]
        });
    }
}

#[test]
fn columns_at_computed_places() {
    for (n, d, e, step) in [(20, 64, 40, 2), (8, 33, 33, 1), (3, 10, 2, 4), (1, 1, 1, 1)] {
        agrees(&columns, &[random(F64, &[n, d]), in_place(F64, &[2, e]), Given::I32(step)], 1e-12);
    }
}

#[test]
fn products_whose_parts_are_added() {
    for dtype in [Bf16, F32] {
        for (m, n, k) in [(64, 64, 128), (30, 70, 33), (1, 1, 1)] {
            let args = [random(dtype, &[m, k]), random(dtype, &[k, n]), in_place(F32, &[m, n])];
            agrees(&product, &args, 2e-2);
            agrees_on_hopper(&product, &args, 2e-2);
        }
        for (n, k, d, v) in [(64, 64, 64, 20), (33, 40, 70, 3)] {
            let gate = random(F32, &[n]);
            let args = [random(dtype, &[n, k]), random(dtype, &[k, d]), gate, places(&[n], v), in_place(F32, &[v, d])];
            agrees(&combine, &args, 2e-2);
            agrees_on_hopper(&combine, &args, 2e-2);
        }
    }
}

#[test]
fn wide_products_scattered() {
    for (n, k, d, v) in [(64, 64, 128, 20), (33, 64, 200, 3)] {
        let ids = input(I32, &[n], |i| (i * 7919 % (v + 5)) as f64 - 2.0);
        let args = [random(Bf16, &[n, k]), random(Bf16, &[k, d]), random(F32, &[n, d]), ids, in_place(F32, &[v, d])];
        agrees(&wide_scatter, &args, 3e-2);
        agrees_on_hopper(&wide_scatter, &args, 3e-2);
    }
}

#[test]
fn gpus_take_subnormal_terms_of_sums_for_0() {
    let there = [1e-40, 1e-20, 1.0];
    let y = input(F32, &[3, 1], |i| there[i]).into_output();
    let args = [input(F32, &[3, 1], |_| 1e-40), input(I32, &[3], |i| i as f64), y];
    for (name, device) in devices() {
        let found = run(&scatter_add, &device, None, &args).unwrap_or_else(|e| panic!("{name}: {e}"));
        let wanted = [0.0, f64::from(1e-20_f32), 1.0];
        assert_eq!(found, [wanted], "{name}");
    }
    let found = run(&scatter_add, &atlas_runtime::Device::cpu(), None, &args).unwrap_or_else(|e| panic!("{e}"));
    assert!(found[0][0] > 0.0);
}
