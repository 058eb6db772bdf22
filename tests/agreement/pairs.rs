//! Grids of pairs of tiles: one triangle is computed, and both are stored.

use super::{agrees, agrees_with, in_place, output, random};
use atlas::prelude::*;
use atlas_dsl::DType;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// e = x xᵀ, with each product of two tiles computed once.
    kernel symmetric<T: Float>(x: &Tensor<T, [B, M, N]>, e: &mut Tensor<f32, [B, M, M]>)
    tune { BI: [32, 16, 64], BK: [32], stages: [2], warps: [2, 4, 1] }
    {
        for (b, i, j) in grid(B, pairs(tiles(M, BI))) {
            let mut acc = zeros::<f32>([BI, BI]);
            for k in pipeline(tiles(N, BK)) {
                acc += dot(load(x[b, i, k]), load(x[b, j, k]).t());
            }
            store(e[b, j, i], acc.t());
            store(e[b, i, j], acc);
        }
    }

    /// The view of a single pair: its coordinates, the greater first, and the previous content on both sides.
    kernel mirrored(x: &mut Tensor<f32, [M, M]>, at: &mut Tensor<i32, [M, M]>)
    tune { BI: [4], warps: [1], order: [linear, groups(1), groups(2), groups(3), groups(5)] }
    {
        for (i, j) in grid(pairs(tiles(M, BI))) {
            let below = load(x[i, j]);
            let above = load(x[j, i]);
            store(x[j, i], 2.0 * below.t());
            store(x[i, j], below + above.t());
            store(at[i, j], broadcast(1000 * i + j, [BI, BI]));
        }
    }

    /// Only the lower triangle and its diagonal, with two outer axes.
    kernel below(x: &Tensor<f32, [A, B, M]>, y: &mut Tensor<f32, [A, B, M, M]>)
    tune { BI: [16], warps: [1, 8], order: [groups(4), linear] }
    {
        for (a, b, i, j) in grid(A, B, pairs(tiles(M, BI))) {
            store(y[a, b, i, j], load(x[a, b, i]).t() - broadcast(load(x[a, b, j]), [1, BI]));
        }
    }
}

#[test]
fn a_product_with_its_own_transpose() {
    for (dtype, bound) in [(F32, 1e-5), (Bf16, 1e-5), (F16, 1e-5)] {
        for (b, m, n) in [(2, 70, 40), (1, 1, 1), (3, 32, 33), (1, 129, 8)] {
            let args = [random(dtype, &[b, m, n]), output(F32, &[b, m, m])];
            agrees_with(&symmetric, &args, bound, |a| {
                let rows: Vec<&[f64]> = a[0].chunks(n).collect();
                let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
                let of = |b: usize| (0..m * m).map(move |at| (b * m + at / m, b * m + at % m));
                vec![(0..b).flat_map(of).map(|(i, j)| dot(rows[i], rows[j])).collect()]
            });
        }
    }
}

#[test]
fn both_tiles_of_a_pair_are_its_own() {
    for m in [1, 7, 8, 30] {
        agrees(&mirrored, &[in_place(F32, &[m, m]), output(DType::I32, &[m, m])], 0.0);
    }
}

#[test]
fn one_triangle_leaves_the_other() {
    for (a, b, m) in [(1, 1, 5), (2, 3, 17), (2, 0, 4), (1, 2, 64)] {
        agrees(&below, &[random(F32, &[a, b, m]), output(F32, &[a, b, m, m])], 0.0);
    }
}
