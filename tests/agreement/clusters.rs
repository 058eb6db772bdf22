//! Clusters: programs that run together and add up what they have.

use super::{agrees, agrees_on_hopper, agrees_with, in_place, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F32, F64};

atlas_kernel! {
    /// y = the sum of each row, and z = what is left of the row without its share of that.
    kernel shares(x: &Tensor<f32, [B, N]>, y: &mut Tensor<f32, [B]>, z: &mut Tensor<f32, [B, N]>)
    tune { T: [128, 16, 32, 64], warps: [1, 4] }
    {
        for (b, n) in grid(B, cluster(tiles(N, T))) {
            let own = load(x[b, n]);
            let total = cluster_sum(sum(own));
            store(y[b], total);
            store(z[b, n], own - 0.125 * total);
        }
    }

    /// A product whose inner axis a cluster shares.
    kernel split_product<T: Float>(
        a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, c: &mut Tensor<f32, [M, N]>,
    )
    tune { BM: [64, 16, 32], BN: [32, 64], BK: [128, 16, 32, 64], warps: [4, 2, 8], copies: [auto, threads], stages: [1, 2] }
    {
        for (i, j, k) in grid(tiles(M, BM), tiles(N, BN), cluster(tiles(K, BK))) {
            store(c[i, j], cluster_sum(dot(load(a[i, k]).or(0.0), load(b[j, k]).or(0.0).t())));
        }
    }

    /// A memory of which each program has some columns, trained on one block of rows after the other: what it reads is a sum over the
    /// cluster, and the error of that goes into each program's columns.
    kernel trained<T: Float>(
        x: &Tensor<T, [B, S, L, M]>,
        v: &Tensor<f32, [B, S, L, E]>,
        w: &mut Tensor<f32, [B, E, M]>,
        errors: &mut Tensor<f32, [B, S, L, E]>,
        rate: f32,
    )
    tune { BM: [64, 16, 32], warps: [4, 2, 8] }
    {
        for (b, m) in grid(B, cluster(tiles(M, BM))) {
            let mut memory = load(w[b, .., m]).or(0.0);
            for s in 0..size(S) {
                let rows = load(x[b, s, .., m]).or(0.0);
                let read = cluster_sum(dot(rows, memory.cast::<T>().t()));
                let error = read - load(v[b, s, .., ..]);
                store(errors[b, s, .., ..], error);
                memory -= rate * dot(error.cast::<T>().t(), rows);
            }
            store(w[b, .., m], memory);
        }
    }

    /// Rows whose place is a sum over the cluster, in each iteration another one.
    kernel placed(
        x: &Tensor<bf16, [R, D]>, w: &Tensor<bf16, [E, L]>, of: &Tensor<f32, [N]>, y: &mut Tensor<f32, [S, E, D]>,
    )
    tune { warps: [4, 1], stages: [1, 2], copies: [auto, threads] }
    {
        for n in grid(cluster(N)) {
            let mut step = load(of[n]);
            for s in 0..size(S) {
                let at = cluster_sum(step).cast::<i32>();
                let rows = load(x[span(at, L), ..]).or(0.0);
                store(y[s, .., ..], cluster_sum(dot(load(w[.., ..]), rows)));
                step += 1.0;
            }
        }
    }

    /// The same in a pipeline.
    kernel placed_ahead(x: &Tensor<bf16, [R, D]>, w: &Tensor<bf16, [E, L]>, y: &mut Tensor<f32, [S, E, D]>, n: &Tensor<f32, [N]>)
    tune { warps: [4, 1], stages: [1, 2, 3], copies: [auto, threads] }
    {
        for i in grid(cluster(N)) {
            for s in pipeline(0..size(S)) {
                let at = cluster_sum((s + i).cast::<f32>()).cast::<i32>();
                let rows = load(x[span(at, L), ..]).or(0.0);
                store(y[s, .., ..], cluster_sum(dot(load(w[.., ..]), rows) * load(n[i])));
            }
        }
    }

    /// Two sums, of which one is a scalar and one is of f64, of elements and not of tiles.
    kernel of_elements(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>, total: &mut Tensor<f64, [D]>)
    tune { warps: [1, 2] }
    {
        for n in grid(cluster(N)) {
            let row = load(x[n, ..]);
            let all = cluster_sum(sum(row));
            store(y[n, ..], row / all);
            store(total[..], cluster_sum(row.cast::<f64>()));
        }
    }
}

#[test]
fn sums_of_tiles_and_shares() {
    for (b, n) in [(3, 128), (2, 100), (1, 65), (5, 7), (0, 32)] {
        let args = [random(F32, &[b, n]), output(F32, &[b]), output(F32, &[b, n])];
        agrees_with(&shares, &args, 1e-5, |a| {
            let y: Vec<f64> = a[0].chunks(n).map(|row| row.iter().sum()).collect();
            let z = a[0].iter().enumerate().map(|(i, x)| x - 0.125 * y[i / n]).collect();
            vec![y, z]
        });
    }
}

#[test]
fn a_product_that_a_cluster_shares() {
    for dtype in [Bf16, F32] {
        for (m, n, k) in [(64, 64, 128), (33, 40, 120), (1, 1, 17)] {
            let args = [random(dtype, &[m, k]), random(dtype, &[n, k]), output(F32, &[m, n])];
            agrees(&split_product, &args, 2e-3);
            agrees_on_hopper(&split_product, &args, 2e-3);
        }
    }
}

#[test]
fn a_recurrence_with_a_sum_in_each_step() {
    for (b, s, l, e, m) in [(2, 3, 32, 32, 128), (1, 0, 16, 16, 64), (1, 5, 16, 48, 50), (1, 2, 16, 16, 240)] {
        let args = [
            random(Bf16, &[b, s, l, m]),
            random(F32, &[b, s, l, e]),
            in_place(F32, &[b, e, m]),
            output(F32, &[b, s, l, e]),
            super::Given::F32(0.01),
        ];
        // Other targets run it where one tile is the whole row.
        if m <= 64 {
            agrees(&trained, &args, 2e-2);
        }
        agrees_on_hopper(&trained, &args, 2e-2);
    }
}

#[test]
fn sums_of_scalars_and_of_doubles() {
    for (n, d) in [(1, 9), (2, 32), (7, 20), (8, 64)] {
        let args = [random(F32, &[n, d]), output(F32, &[n, d]), output(F64, &[d])];
        agrees_on_hopper(&of_elements, &args, 1e-4);
    }
}

#[test]
fn loads_whose_places_are_sums() {
    for (n, r, s) in [(1, 40, 3), (4, 30, 4)] {
        let tensors = || [random(Bf16, &[r, 32]), random(Bf16, &[16, 16])];
        let [x, w] = tensors();
        agrees_on_hopper(&placed, &[x, w, random(F32, &[n]), output(F32, &[s, 16, 32])], 1e-2);
        let [x, w] = tensors();
        agrees_on_hopper(&placed_ahead, &[x, w, output(F32, &[s, 16, 32]), random(F32, &[n])], 1e-2);
    }
}
