//! `store_disjoint`: rows, elements and tiles of products at places of which no two are the same; and what finds two that are.

use super::{Given, agrees_on_hopper, agrees_with, devices, in_place, input, random, run};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32, F64, I32, I64};
use atlas_runtime::Device;

atlas_kernel! {
    /// Rows go where ids says: a permutation.
    kernel permuted<T: Float>(x: &Tensor<T, [N, D]>, ids: &Tensor<i32, [N]>, y: &mut Tensor<T, [V, D]>)
    tune { BN: [16, 1, 64], BD: [32, 128], warps: [4, 1, 8] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store_disjoint(y[load(ids[n]), d], load(x[n, d]));
        }
    }

    /// The elements of each row that are above 0, side by side, and how many there are.
    kernel compacted(x: &Tensor<f32, [B, N]>, y: &mut Tensor<f32, [B, N]>, count: &mut Tensor<i32, [B]>)
    tune { BN: [32, 128], warps: [1, 4] }
    {
        for b in grid(B) {
            let mut before = 0.cast::<i32>();
            for n in tiles(N, BN) {
                let xs = load(x[b, n]).or(0.0);
                let kept = select(xs > 0.0, 1, 0).cast::<i32>();
                let place = before + cumsum(kept, axis = 0) - 1;
                store_disjoint(y[b, select(xs > 0.0, place, -1)], xs);
                before += sum(kept);
            }
            store(count[b], before);
        }
    }

    /// Rows of different lengths, one behind the other: the length of each, and where it begins.
    kernel concatenated<T: Float>(
        x: &Tensor<T, [B, N]>, length: &Tensor<i32, [B]>, start: &Tensor<i32, [B]>, y: &mut Tensor<T, [V]>,
    )
    tune { BN: [16, 64], warps: [1, 2] }
    {
        for (b, n) in grid(B, tiles(N, BN)) {
            let at = n * BN + iota([BN], 0);
            let place = select(at < load(length[b]), load(start[b]) + at, -1);
            store_disjoint(y[place], load(x[b, n]).or(0.0));
        }
    }

    /// Every other row, in an order of its own; the index has no coordinate of the grid as it stands.
    kernel spread(x: &Tensor<i64, [N, D]>, y: &mut Tensor<i64, [M, D]>)
    tune { BD: [16, 64], warps: [1, 4] }
    {
        for (n, d) in grid(N, tiles(D, BD)) {
            store_disjoint(y[2 * (size(N) - 1 - n), d], load(x[n, d]));
        }
    }

    /// Columns at places, of doubles.
    kernel columns(x: &Tensor<f64, [N, D]>, at: &Tensor<i32, [D]>, y: &mut Tensor<f64, [N, E]>)
    tune { BN: [8, 1], BD: [16, 32], warps: [1, 2] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store_disjoint(y[n, load(at[d])], load(x[n, d]));
        }
    }

    /// Rows of a product go to places of their own.
    kernel product<T: Float>(
        x: &Tensor<T, [N, K]>, w: &Tensor<T, [K, D]>, token: &Tensor<i32, [N]>, y: &mut Tensor<T, [V, D]>,
    )
    tune { BN: [64, 16], BD: [64, 128], BK: [32, 16], warps: [4, 2], stages: [2, 3] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let mut acc = zeros::<f32>([BN, BD]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[n, k]), load(w[k, d]));
            }
            store_disjoint(y[load(token[n]), d], acc.cast::<T>());
        }
    }
}

/// Places of which no two are the same: a permutation of `within` numbers, of which some are before the first element, and past the
/// last one. `within` is no multiple of 17.
fn apart(n: usize, within: usize) -> Given {
    assert!(n <= within && !within.is_multiple_of(17));
    input(I32, &[n], move |i| (i * 17 % within) as f64 - 2.0)
}

/// The elements of `y` after rows of `d` elements have gone where `ids` says.
fn placed(y: &[f64], x: &[f64], ids: &[f64], d: usize) -> Vec<f64> {
    let mut y = y.to_vec();
    for (row, &id) in x.chunks(d.max(1)).zip(ids) {
        if let Some(to) = usize::try_from(id as i64).ok().and_then(|id| y.get_mut(id * d..(id + 1) * d)) {
            to.copy_from_slice(row);
        }
    }
    y
}

#[test]
fn rows_go_to_places() {
    for dtype in [F32, Bf16, F16] {
        for (n, d, v) in [(33, 64, 40), (64, 130, 62), (1, 3, 5), (70, 1, 71), (0, 32, 4)] {
            let args = [random(dtype, &[n, d]), apart(n, v + 2), in_place(dtype, &[v, d])];
            agrees_with(&permuted, &args, 0.0, |x| vec![placed(&x[2], &x[0], &x[1], d)]);
        }
    }
    // Rows that lie apart, of which no byte between them is written.
    let rows = [random(F32, &[50, 64]).within(3, 5), apart(50, 52), in_place(F32, &[52, 64]).within(1, 2)];
    agrees_with(&permuted, &rows, 0.0, |x| vec![placed(&x[2], &x[0], &x[1], 64)]);
    let halves = [random(Bf16, &[50, 64]).by_columns(), apart(50, 52), in_place(Bf16, &[52, 64]).within(1, 2)];
    agrees_with(&permuted, &halves, 0.0, |x| vec![placed(&x[2], &x[0], &x[1], 64)]);
}

#[test]
fn elements_that_are_kept_stand_side_by_side() {
    for (b, n) in [(3, 100), (2, 257), (1, 1), (0, 5), (4, 0)] {
        let args = [random(F32, &[b, n]), in_place(F32, &[b, n]), input(I32, &[b], |_| -1.0).into_output()];
        agrees_with(&compacted, &args, 0.0, |x| {
            let (mut y, mut count) = (x[1].clone(), vec![0.0; b]);
            for i in 0..b {
                let kept: Vec<f64> = x[0][i * n..(i + 1) * n].iter().copied().filter(|&x| x > 0.0).collect();
                y[i * n..][..kept.len()].copy_from_slice(&kept);
                count[i] = kept.len() as f64;
            }
            vec![y, count]
        });
    }
}

#[test]
fn rows_of_different_lengths_one_behind_the_other() {
    for (dtype, lengths, n) in [(F32, vec![5_usize, 0, 70, 1], 70), (Bf16, vec![33; 3], 40), (F16, vec![0], 1)] {
        let b = lengths.len();
        let start: Vec<usize> = lengths.iter().scan(0, |sum, &l| Some(std::mem::replace(sum, *sum + l))).collect();
        let total = lengths.iter().sum::<usize>() + 3;
        let number = |of: &[usize]| input(I32, &[b], |i| of[i] as f64);
        let args = [random(dtype, &[b, n]), number(&lengths), number(&start), in_place(dtype, &[total])];
        agrees_with(&concatenated, &args, 0.0, |x| {
            let mut y = x[3].clone();
            for i in 0..b {
                y[start[i]..][..lengths[i]].copy_from_slice(&x[0][i * n..][..lengths[i]]);
            }
            vec![y]
        });
    }
}

#[test]
fn places_of_programs_and_of_columns() {
    for (n, d) in [(5, 40), (1, 1), (17, 64)] {
        let args = [random(I64, &[n, d]), in_place(I64, &[2 * n, d])];
        let args = args.map(|a| if let Given::In(_) = a { input(I64, &[n, d], |i| i as f64 * 1e9) } else { a });
        agrees_with(&spread, &args, 0.0, |x| {
            let ids: Vec<f64> = (0..n).map(|i| (2 * (n - 1 - i)) as f64).collect();
            vec![placed(&x[1], &x[0], &ids, d)]
        });
    }
    for (n, d, e) in [(9, 40, 45), (1, 1, 3), (8, 64, 64)] {
        let args = [random(F64, &[n, d]), apart(d, e + 2), in_place(F64, &[n, e])];
        agrees_with(&columns, &args, 0.0, |x| {
            vec![(0..n).flat_map(|i| placed(&x[2][i * e..][..e], &x[0][i * d..][..d], &x[1], 1)).collect()]
        });
    }
}

#[test]
fn rows_of_products_go_to_places() {
    for dtype in [Bf16, F32] {
        for (n, k, d, v) in [(64, 64, 64, 80), (33, 40, 70, 40), (1, 1, 1, 1), (130, 32, 256, 131)] {
            let args = [random(dtype, &[n, k]), random(dtype, &[k, d]), apart(n, v + 2), in_place(dtype, &[v, d])];
            let wanted = |x: &[Vec<f64>]| {
                let row = |i: usize, j: usize| (0..k).map(|l| x[0][i * k + l] * x[1][l * d + j]).sum::<f64>();
                let rows: Vec<f64> = (0..n).flat_map(|i| (0..d).map(move |j| row(i, j))).collect();
                vec![placed(&x[3], &rows, &x[2], d)]
            };
            agrees_with(&product, &args, 3e-2, wanted);
            agrees_on_hopper(&product, &args, 3e-2);
        }
    }
}

/// Two stores of one element: the CPU names it, and the simulator sees threads race.
#[test]
fn places_that_meet_are_found() {
    let ids = [4.0, 1.0, 0.0, 1.0];
    let args = [random(F32, &[4, 8]), input(I32, &[4], |i| ids[i]), in_place(F32, &[6, 8])];
    let error = run(&permuted, &Device::cpu(), None, &args).unwrap_err().to_string();
    assert!(error.contains("ATL665") && error.contains("[1, 0] of `y`"), "{error}");
    for (name, device) in devices().filter(|(_, device)| device.simulates()) {
        let error = run(&permuted, &device, None, &args).unwrap_err().to_string();
        assert!(error.contains("Race"), "{name}: {error}");
    }
}
