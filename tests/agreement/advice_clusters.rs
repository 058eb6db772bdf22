//! The advice of diagnostics on clusters and on sums of several programs, applied: the results are the intended ones.
//! dsl/macros/tests/ui/clusters.rs has the messages.

use super::{agrees_with, in_place, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{F32, I32};

atlas_kernel! {
    /// ATL234: 0 stands around all that is added, of which a factor is no load. ATL005: a mean.
    kernel added(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [F, N]>)
    tune { BN: [4, 1], BD: [16, 32, 64], warps: [1, 4] }
    {
        for (n, d) in grid(tiles(N, BN), cluster(tiles(D, BD))) {
            let tiles = cluster_sum((exp(load(x[n, d]))).or(0.0));
            store(y[0, n], sum(tiles, axis = 1));
            store(y[1, n], cluster_sum(sum(load(x[n, d]), axis = 1)) / size(D).cast::<f32>());
        }
    }

    /// ATL005: the greatest and the least number of a cluster.
    kernel extremes(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [F, N]>)
    tune { BN: [4, 1], BD: [16, 32, 64], warps: [1, 4] }
    {
        for (n, d) in grid(tiles(N, BN), cluster(tiles(D, BD))) {
            let greatest = max(load(x[n, d]), axis = 1);
            let all = cluster_sum(select(iota([BN, 64], 1) == d, greatest, 0.0));
            store(y[0, n], max(select(iota([BN, 64], 1) < (size(D) + BD - 1) / BD, all, f32::NEG_INFINITY), axis = 1));
            let least = min(load(x[n, d]), axis = 1);
            let all = cluster_sum(select(iota([BN, 64], 1) == d, least, 0.0));
            store(y[1, n], min(select(iota([BN, 64], 1) < (size(D) + BD - 1) / BD, all, f32::INFINITY), axis = 1));
        }
    }

    /// ATL104: whole numbers are added up in f64.
    kernel whole(x: &Tensor<i32, [N, D]>, y: &mut Tensor<i32, [N]>)
    tune { BD: [16, 32, 64], warps: [1] }
    {
        for (n, d) in grid(N, cluster(tiles(D, BD))) {
            store(y[n], cluster_sum((sum(load(x[n, d]))).cast::<f64>()).cast::<i32>());
        }
    }

    /// ATL005 of `atomic_add`, and ATL119: the grid counts the parts.
    kernel parts(x: &Tensor<f32, [N, D]>, part: &mut Tensor<f32, [N, P]>)
    tune { BN: [4, 8], BD: [16], warps: [1] }
    {
        for (n, p) in grid(tiles(N, BN), P) {
            store(part[n, p], sum(load(x[n, span(p * BD, BD)]), axis = 1));
        }
    }

    /// ATL116: a loop carries a row, which is broadcast where it begins.
    kernel row(x: &Tensor<f32, [N, D]>, w: &mut Tensor<f32, [D]>)
    tune { BN: [4], BD: [16, 32, 64], warps: [1] }
    {
        for d in grid(tiles(D, BD)) {
            let mut ws = broadcast(load(w[d]), [1, BD]);
            for n in tiles(N, BN) {
                ws -= 0.125 * sum(load(x[n, d]) * ws, axis = 0);
            }
            store(w[d], ws);
        }
    }
}

#[test]
fn all_that_is_added_has_a_number_past_the_end() {
    for (n, d) in [(6, 64), (5, 37), (3, 9)] {
        agrees_with(&added, &[random(F32, &[n, d]), output(F32, &[2, n])], 1e-5, |a| {
            let sums = a[0].chunks(d).map(|of_row| of_row.iter().map(|x| x.exp()).sum());
            let means = a[0].chunks(d).map(|of_row| of_row.iter().sum::<f64>() / d as f64);
            vec![sums.chain(means).collect()]
        });
    }
}

#[test]
fn a_cluster_has_extremes() {
    for (n, d) in [(6, 64), (5, 37), (3, 9)] {
        // Numbers of one sign, for which 0 in the place of a program would be wrong.
        for sign in [1.0, -1.0] {
            let x = input(F32, &[n, d], |i| sign * (1.0 + (i * 29 % 61) as f64));
            agrees_with(&extremes, &[x, output(F32, &[2, n])], 0.0, |a| {
                let greatest = a[0].chunks(d).map(|of_row| of_row.iter().copied().fold(f64::NEG_INFINITY, f64::max));
                let least = a[0].chunks(d).map(|of_row| of_row.iter().copied().fold(f64::INFINITY, f64::min));
                vec![greatest.chain(least).collect()]
            });
        }
    }
}

#[test]
fn whole_numbers_and_parts_are_added_up() {
    let (n, d) = (5, 37);
    let x = input(I32, &[n, d], |i| (i * 7_654_321 % 20_000_003) as f64 - 9e6);
    agrees_with(&whole, &[x, output(I32, &[n])], 0.0, |a| {
        vec![a[0].chunks(d).map(|of_row| of_row.iter().sum()).collect()]
    });
    agrees_with(&parts, &[random(F32, &[n, d]), output(F32, &[n, 3])], 1e-6, |a| {
        vec![a[0].chunks(d).flat_map(|of_row| of_row.chunks(16).map(|few| few.iter().sum::<f64>())).collect()]
    });
}

#[test]
fn a_carried_row_begins_as_one() {
    let (n, d) = (11, 37);
    agrees_with(&row, &[random(F32, &[n, d]), in_place(F32, &[d])], 1e-5, |a| {
        let mut w = a[1].clone();
        for rows in a[0].chunks(4 * d) {
            let before = w.clone();
            for (i, x) in rows.iter().enumerate() {
                w[i % d] -= 0.125 * x * before[i % d];
            }
        }
        vec![w]
    });
}
