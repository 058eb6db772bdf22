//! Kernels whose tiles barely fit, or whose load positions depend on the iteration: each was once refused, or was slow.

use super::{Given, agrees, input, noise, output};
use atlas::prelude::*;
use atlas_dsl::DType;
use atlas_dsl::DType::{Bf16, F16, F32, I32};

atlas_kernel! {
    /// A load of an iteration gives the position of an operand of the same iteration.
    kernel paged<T: Float>(q: &Tensor<T, [G, M, D]>, at: &Tensor<i32, [G, L]>, t: &Tensor<T, [R, D]>, y: &mut Tensor<f32, [G, M]>)
    tune { warps: [1, 4] }
    {
        for g in grid(G) {
            let qs = load(q[g, .., ..]);
            let mut total = zeros::<f32>([M, 1]);
            for i in 0..size(L) {
                let page = load(at[g, i]);
                total += sum(dot(qs, load(t[span(page * 16, 16), ..]).t()), axis = 1);
            }
            store(y[g, ..], total);
        }
    }

    /// The same in a pipeline with other operands running ahead.
    kernel paged_ahead<T: Float>(q: &Tensor<T, [G, M, D]>, w: &Tensor<T, [L, D, D]>, at: &Tensor<i32, [G, L]>, t: &Tensor<T, [R, D]>, y: &mut Tensor<f32, [G, M]>)
    tune { stages: [3, 2, 1], warps: [4, 1] }
    {
        for g in grid(G) {
            let qs = load(q[g, .., ..]);
            let mut total = zeros::<f32>([M, 1]);
            for i in pipeline(0..size(L)) {
                let page = load(at[g, i]);
                let near = dot(qs, load(w[i, .., ..])).cast::<T>();
                total += sum(dot(near, load(t[span(page * 16, 16), ..]).t()), axis = 1);
            }
            store(y[g, ..], total);
        }
    }

    /// A product by one warp: its columns are computed in as many ranges as divide them.
    kernel whole_product<T: Float>(x: &Tensor<T, [G, M, K]>, w: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [G, M, N]>)
    tune { warps: [1] }
    {
        for g in grid(G) {
            store(y[g, .., ..], dot(load(x[g, .., ..]), load(w[.., ..])));
        }
    }

    /// A product that takes half the registers, and an equally wide tile that is added to it.
    kernel residual<T: Float>(x: &Tensor<T, [N, K]>, w: &Tensor<T, [K, D]>, r: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], dot(load(x[n, ..]), load(w[.., ..])) + load(r[n, ..]));
        }
    }

    /// Rows that threads share in chunks: several per round, part of one, or neither.
    kernel dealt<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [D, E]>, y: &mut Tensor<f32, [N, E]>)
    tune { warps: [4, 1, 3, 2, 6] }
    {
        for n in grid(tiles(N, 16)) {
            store(y[n, ..], dot(load(x[n, ..]), load(w[.., ..])));
        }
    }

    /// A row that runs ahead with the operands of a product, and whose length is not a multiple of its vectors.
    kernel weighted<T: Float>(x: &Tensor<T, [L, D]>, w: &Tensor<f32, [L]>, y: &mut Tensor<f32, [L, L]>)
    tune { BQ: [16], BK: [13, 14, 15, 3], stages: [2], warps: [4] }
    {
        for t in grid(tiles(L, BQ)) {
            for s in pipeline(tiles(L, BK)) {
                store(y[t, s], dot(load(x[t, ..]), load(x[s, ..]).t()) * load(w[s]));
            }
        }
    }

    /// Operands by spans along K.
    kernel product_by_spans<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64], BN: [64], BK: [32], stages: [3], warps: [4] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(0..(size(K) + BK - 1) / BK) {
                acc += dot(load(a[m, span(k * BK, BK)]), load(b[n, span(k * BK, BK)]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// A pipeline with many stages in a loop. It is more than a product, so no operands are carried.
    kernel nested_fills<T: Float>(x: &Tensor<T, [N, K]>, w: &Tensor<T, [K, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16], BK: [16], stages: [8], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let mut acc = zeros::<f32>([BN, D]);
            for _i in 0..6 {
                let mut part = zeros::<f32>([BN, D]);
                for k in pipeline(tiles(K, BK)) {
                    // More than a product, so `carry_operands` leaves the loop unchanged.
                    part += dot(load(x[n, k]), load(w[k, ..])) * 0.5;
                }
                acc = acc * 0.5 + part;
            }
            store(y[n, ..], acc);
        }
    }
}

fn small(dtype: DType, shape: &[usize]) -> Given {
    input(dtype, shape, |i| noise(i + 3 * shape.len()) * 0.3)
}

#[test]
fn a_loop_gathers_operands() {
    for dtype in [Bf16, F32] {
        let at = || input(I32, &[2, 3], |i| (i * 5 % 4) as f64);
        let (q, t) = (small(dtype, &[2, 16, 32]), small(dtype, &[60, 32]));
        agrees(&paged, &[q.clone(), at(), t.clone(), output(F32, &[2, 16])], 1e-4);
        let tolerance = if dtype == F32 { 1e-4 } else { 2e-2 };
        agrees(&paged_ahead, &[q, small(dtype, &[3, 32, 32]), at(), t, output(F32, &[2, 16])], tolerance);
    }
}

#[test]
fn a_narrower_product_is_no_harder() {
    for n in [96, 80, 112] {
        let args = [small(Bf16, &[1, 80, 32]), small(Bf16, &[32, n]), output(F32, &[1, 80, n])];
        agrees(&whole_product, &args, 1e-4);
    }
}

#[test]
fn a_residual_as_wide_as_its_product_is_added() {
    let args = [small(Bf16, &[64, 32]), small(Bf16, &[32, 256]), small(F32, &[64, 256]), output(F32, &[64, 256])];
    agrees(&residual, &args, 1e-4);
}

#[test]
fn chunks_of_rows_of_any_length() {
    for (dtype, d, e) in [(F16, 24, 16), (F16, 48, 80), (F16, 136, 48), (F16, 16, 512), (F32, 20, 96), (F16, 17, 33)] {
        agrees(&dealt, &[small(dtype, &[40, d]), small(dtype, &[d, e]), output(F32, &[40, e])], 1e-4);
    }
    // Chunks of single elements in loops: rows of 3, 6, 9 and 11 rounds of all threads.
    for (dtype, d, e) in [(F16, 17, 95), (F16, 17, 191), (F32, 33, 383), (F16, 95, 33), (F16, 9, 287), (F32, 9, 351)] {
        agrees(&dealt, &[small(dtype, &[20, d]), small(dtype, &[d, e]), output(F32, &[20, e])], 1e-4);
    }
}

#[test]
fn vectors_of_a_staged_row_end_where_it_does() {
    for (dtype, l) in [(F16, 40), (F32, 31)] {
        let given = [small(dtype, &[l, 16]), small(F32, &[l]), output(F32, &[l, l])];
        agrees(&weighted, &given, 1e-4);
    }
}

#[test]
fn operands_by_spans() {
    for k in [64, 96, 80] {
        agrees(&product_by_spans, &[small(F16, &[64, k]), small(F16, &[72, k]), output(F32, &[64, 72])], 1e-4);
    }
}

#[test]
fn a_pipeline_in_a_loop_is_filled_again() {
    for k in [0, 16, 100, 200] {
        agrees(&nested_fills, &[small(Bf16, &[20, k]), small(Bf16, &[k, 32]), output(F32, &[20, 32])], 1e-4);
    }
}
