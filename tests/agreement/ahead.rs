//! Loads that run ahead of their iterations, and cursors of rings, in boundary cases.

use super::{Given, agrees, input, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::DType;
use atlas_dsl::DType::{Bf16, F16, F32, I32, I64};

atlas_kernel! {
    /// Loads into registers only: 96 registers per thread, but 384 KiB of rings.
    kernel three_wide(
        x: &Tensor<f32, [N, L]>,
        z: &Tensor<f32, [N, L]>,
        w: &Tensor<f32, [N, L]>,
        y: &mut Tensor<f32, [N]>,
    )
    tune { BN: [32], BL: [256], stages: [4], warps: [8] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for l in pipeline(tiles(L, BL)) {
                total += sum(load(x[n, l]) * load(z[n, l]) + load(w[n, l]), axis = 1);
            }
            store(y[n], total);
        }
    }

    /// Loads that cannot be copied ahead (16-bit spans) stay where they are, beside others that can.
    kernel partly_ahead<T: Float>(x: &Tensor<T, [N, L]>, f: &Tensor<f32, [N, L]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4], BL: [32], stages: [3, 2], warps: [2, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for l in pipeline(tiles(L, BL)) {
                let shifted = load(x[n, span(l * BL + 1, BL)]).cast::<f32>();
                total += sum(shifted * load(f[n, span(l * BL - 1, BL)]), axis = 1);
            }
            store(y[n], total);
        }
    }

    /// A product, a row and a tile of registers in one pipeline.
    kernel mixed<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [K, N]>,
        s: &Tensor<f32, [K]>,
        t: &Tensor<f32, [M, K]>,
        y: &mut Tensor<f32, [M, N]>,
    )
    tune { BM: [32], BN: [32], BK: [32], stages: [5, 4, 3, 2], warps: [2] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            let mut rows = zeros::<f32>([BM, 1]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[k, n]));
                rows += sum(load(t[m, k]) * load(s[k]), axis = 1);
            }
            store(y[m, n], acc + rows);
        }
    }

    /// A tile in an accumulator's layout comes from a ring that no atom reads.
    kernel masked_product<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [K, N]>,
        t: &Tensor<T, [R, N]>,
        y: &mut Tensor<f32, [M, N]>,
    )
    tune { BM: [24], BN: [16, 40], BK: [16], stages: [3], warps: [1] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[k, n])) * load(t[span(k * BM, BM), n]).or(1.0).cast::<f32>();
            }
            store(y[m, n], acc);
        }
    }

    /// A pipelined load that a reduction and a store use.
    kernel centred<T: Float>(x: &Tensor<T, [N, L]>, y: &mut Tensor<f32, [N, L]>, s: &mut Tensor<f32, [N]>)
    tune { BN: [8], BL: [20], stages: [4, 2], warps: [2] }
    {
        for n in grid(tiles(N, BN)) {
            let mut most = zeros::<f32>([BN, 1]) - 1000.0;
            for l in pipeline(tiles(L, BL)) {
                let xs = load(x[n, l]).cast::<f32>();
                store(y[n, l], xs - sum(xs, axis = 1));
                most = max(most, max(log(abs(xs)), axis = 1));
            }
            store(s[n], most);
        }
    }

    /// The same load, stored unchanged and transposed.
    kernel copied_and_turned(x: &Tensor<f32, [N, L]>, y: &mut Tensor<f32, [N, L]>, t: &mut Tensor<f32, [L, N]>)
    tune { BN: [24, 8], BL: [20], stages: [3], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            for l in pipeline(tiles(L, BL)) {
                let xs = load(x[n, l]);
                store(y[n, l], xs);
                store(t[l, n], xs.t());
            }
        }
    }

    /// Integers of both widths in rings.
    kernel chosen(
        at: &Tensor<i32, [N, L]>,
        big: &Tensor<i64, [N, L]>,
        x: &Tensor<f32, [N, L]>,
        c: i32,
        y: &mut Tensor<f32, [N]>,
        z: &mut Tensor<f32, [N]>,
    )
    tune { BN: [4], BL: [32, 10], stages: [3, 2], warps: [2] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            let mut all = zeros::<f32>([BN, 1]);
            for l in pipeline(tiles(L, BL)) {
                total += sum(select(load(at[n, l]) == c, load(x[n, l]), 0.0), axis = 1);
                all += sum(load(big[n, l]).cast::<f32>(), axis = 1);
            }
            store(y[n], total);
            store(z[n], all);
        }
    }

    /// Rank 1, with lengths that are not multiples of a vector.
    kernel odd_pieces(x: &Tensor<f32, [G, L]>, b: &Tensor<i32, [L]>, y: &mut Tensor<f32, [G]>)
    tune { BL: [33, 1], stages: [3], warps: [1, 4] }
    {
        for g in grid(G) {
            let mut total = 0.0;
            for l in pipeline(tiles(L, BL)) {
                total += sum(load(x[g, l]) * load(b[l]).cast::<f32>());
            }
            store(y[g], total);
        }
    }

    /// Tiles that are not multiples of 16-byte chunks: the rows of a ring are padded.
    kernel uneven<T: Float>(x: &Tensor<T, [N, L]>, w: &Tensor<T, [L]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [5], BL: [12, 36], stages: [4], warps: [1, 32] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for l in pipeline(tiles(L, BL)) {
                total += sum(exp(load(x[n, l]).cast::<f32>()) * load(w[l]).cast::<f32>(), axis = 1);
            }
            store(y[n], total);
        }
    }

    /// Bounds that depend on data, including negative ones.
    kernel between(
        x: &Tensor<f32, [N, L]>,
        first: &Tensor<i32, [N]>,
        last: &Tensor<i32, [N]>,
        y: &mut Tensor<f32, [N]>,
    )
    tune { BL: [8], stages: [4, 5], warps: [1, 2] }
    {
        for n in grid(N) {
            let lo = load(first[n]);
            let hi = load(last[n]);
            let mut total = 0.0;
            for l in pipeline(lo..hi) {
                total += sum(load(x[n, span(l * BL, BL)])) * (l + 2).cast::<f32>();
            }
            store(y[n], total);
        }
    }

    /// Windows that start before the dim.
    kernel differences(x: &Tensor<f32, [N, L]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4], BL: [16, 12], stages: [3], warps: [2, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for l in pipeline(tiles(L, BL)) {
                total += sum(abs(load(x[n, l]) - load(x[n, span(l * BL - 1, BL)]).or(0.5)), axis = 1);
            }
            store(y[n], total);
        }
    }

    /// Columns, whose elements are not adjacent. The second may be out of range.
    kernel columns_of(x: &Tensor<f32, [L, C]>, at: i32, y: &mut Tensor<f32, [C]>)
    tune { BL: [32, 7], stages: [4], warps: [1, 2] }
    {
        for c in grid(C) {
            let mut total = 0.0;
            for l in pipeline(tiles(L, BL)) {
                total += sum(load(x[l, c]) - 0.5 * load(x[l, c + at]));
            }
            store(y[c], total);
        }
    }

    /// An empty tensor beside a non-empty one: nothing of it may be read.
    kernel empty_side(x: &Tensor<f32, [N, L]>, m: &Tensor<f32, [N, K]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4], BL: [16], stages: [3], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for l in pipeline(tiles(L, BL)) {
                total += sum(load(x[n, l]), axis = 1) + sum(load(m[n, span(l * 4, 4)]), axis = 1);
            }
            store(y[n], total);
        }
    }

    /// The next iteration uses a load of the previous one: from registers, and as an operand.
    kernel tile_before(x: &Tensor<f32, [N, L]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [8], BL: [32], stages: [2, 4], warps: [2] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            let mut before = zeros::<f32>([BN, BL]);
            for l in pipeline(tiles(L, BL)) {
                let xs = load(x[n, l]).or(0.0);
                total += sum(abs(xs - before), axis = 1);
                before = xs;
            }
            store(y[n], total);
        }
    }

    kernel delayed<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [32], BN: [32], BK: [32], stages: [2, 3, 4], warps: [4] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            let mut before = full::<T>([BK, BN], 0.5);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), before);
                before = load(b[k, n]).or(0.0);
            }
            store(y[m, n], acc);
        }
    }

    /// Nested pipelines: the outer tile is used in the inner pipeline and after it.
    kernel two_levels<T: Float>(
        x: &Tensor<T, [N, H]>,
        w: &Tensor<T, [H, D]>,
        z: &Tensor<T, [N, K]>,
        v: &Tensor<T, [K, D]>,
        y: &mut Tensor<f32, [N, D]>,
    )
    tune { BN: [16], BH: [32], BK: [16], stages: [3, 2, 4], warps: [2] }
    {
        for n in grid(tiles(N, BN)) {
            let mut acc = zeros::<f32>([BN, D]);
            for h in pipeline(tiles(H, BH)) {
                let xs = load(x[n, h]);
                let mut part = zeros::<f32>([BN, D]);
                for k in pipeline(tiles(K, BK)) {
                    part += dot(load(z[n, k]), load(v[k, ..])) * sum(xs.cast::<f32>(), axis = 1);
                }
                acc += part + dot(xs, load(w[h, ..]));
            }
            store(y[n, ..], acc);
        }
    }

    /// An inner loop reads the pipeline's tile repeatedly.
    kernel used_often(x: &Tensor<f32, [N, L]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [8], BL: [64], stages: [3, 2], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for l in pipeline(tiles(L, BL)) {
                let xs = load(x[n, l]);
                let mut p = xs;
                for _i in 0..4 {
                    p = p * xs + 0.25;
                }
                total += sum(p, axis = 1);
            }
            store(y[n], total);
        }
    }

    /// A load that is the same in every iteration is still copied in every iteration.
    kernel invariant(x: &Tensor<f32, [N, L]>, w: &Tensor<f32, [R, L]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4], stages: [3, 2], warps: [2] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for r in pipeline(0..size(R)) {
                total += sum(load(x[n, ..]) * load(w[span(r, 1), ..]), axis = 1);
            }
            store(y[n], total);
        }
    }
}

fn small(dtype: DType, shape: &[usize]) -> Given {
    input(dtype, shape, |i| noise(i + 3 * shape.len()) * 0.3)
}

// 1. Most likely to fail: rings have no room where registers had.
#[test]
fn rings_of_what_registers_held_have_room() {
    for l in [256, 600] {
        let args = [random(F32, &[33, l]), random(F32, &[33, l]), random(F32, &[33, l]), output(F32, &[33])];
        agrees(&three_wide, &args, 1e-5);
    }
}

// 3. Copies of zero bytes from an empty tensor.
#[test]
fn nothing_of_an_empty_tensor_is_copied() {
    for (l, k) in [(40, 0), (40, 1), (16, 5), (0, 0)] {
        agrees(&empty_side, &[random(F32, &[6, l]), random(F32, &[6, k]), output(F32, &[6])], 1e-5);
    }
}

#[test]
fn few_trips_of_deep_pipelines() {
    for trips in [0, 1, 2, 3, 5] {
        for k in [trips * 32, trips * 32 + 3] {
            let args = [small(F16, &[35, k]), small(F16, &[k, 24]), random(F32, &[k]), random(F32, &[35, k])];
            let [a, b, s, t] = args;
            agrees(&mixed, &[a, b, s, t, output(F32, &[35, 24])], 2e-5);
        }
    }
}

#[test]
fn a_ring_in_an_accumulators_layout() {
    for dtype in [F16, F32] {
        for (m, n, k, r) in [(32, 32, 64, 64), (50, 48, 40, 70), (24, 40, 16, 24)] {
            let args = [small(dtype, &[m, k]), small(dtype, &[k, n]), random(dtype, &[r, n]), output(F32, &[m, n])];
            agrees(&masked_product, &args, 2e-3);
        }
    }
}

#[test]
fn a_fold_and_a_store_use_one_load() {
    for dtype in [F32, Bf16] {
        for l in [1, 20, 48, 77, 200, 240] {
            agrees(&centred, &[random(dtype, &[11, l]), output(F32, &[11, l]), output(F32, &[11])], 1e-4);
        }
    }
    for (n, l) in [(24, 40), (37, 61), (8, 100)] {
        agrees(&copied_and_turned, &[random(F32, &[n, l]), output(F32, &[n, l]), output(F32, &[l, n])], 0.0);
    }
}

#[test]
fn integers_run_ahead() {
    for l in [5, 32, 40, 70, 101] {
        let args = [
            input(I32, &[7, l], |i| (i * 7 % 5) as f64 - 2.0),
            input(I64, &[7, l], |i| (i * 13 % 1000) as f64 - 500.0),
            random(F32, &[7, l]),
            Given::I32(-1),
            output(F32, &[7]),
            output(F32, &[7]),
        ];
        agrees(&chosen, &args, 1e-5);
    }
}

#[test]
fn rows_of_odd_lengths_run_ahead() {
    for l in [0, 1, 33, 34, 66, 98] {
        let b = input(I32, &[l], |i| (i % 9) as f64 - 4.0);
        agrees(&odd_pieces, &[random(F32, &[3, l]), b, output(F32, &[3])], 1e-5);
    }
    for dtype in [F16, F32] {
        // In chunks of 4, 8 and 16 bytes, and of none, with data around the view.
        for l in [12, 34, 36, 40, 72, 101] {
            let args = [random(dtype, &[9, l]), random(dtype, &[l]), output(F32, &[9])];
            agrees(&uneven, &args, 1e-5);
            let [x, w, y] = args;
            agrees(&uneven, &[x.clone().within(1, 2), w.clone(), y.clone()], 1e-5);
            agrees(&uneven, &[x.within(4, 4), w, y], 1e-5);
        }
    }
    for l in [31, 32, 64, 97] {
        agrees(&partly_ahead, &[random(F16, &[6, l]), random(F32, &[6, l]), output(F32, &[6])], 1e-5);
    }
}

#[test]
fn data_decide_where_a_pipeline_begins() {
    // The difference of the last bounds is below the least i32.
    let first = input(I32, &[9], |i| [0.0, 1.0, -2.0, 5.0, 3.0, 7.0, 0.0, 2.0, 1.0][i]);
    let last = input(I32, &[9], |i| [7.0, 2.0, 3.0, 2.0, 9.0, 7.0, 1.0, 5.0, f64::from(i32::MIN)][i]);
    for l in [52, 56, 3] {
        agrees(&between, &[random(F32, &[9, l]), first.clone(), last.clone(), output(F32, &[9])], 1e-5);
    }
}

#[test]
fn windows_and_columns_run_ahead() {
    for l in [1, 12, 16, 35, 80] {
        agrees(&differences, &[random(F32, &[6, l]), output(F32, &[6])], 1e-5);
        for at in [0, 1, -1, 3] {
            agrees(&columns_of, &[random(F32, &[l, 5]), Given::I32(at), output(F32, &[5])], 1e-5);
        }
    }
}

#[test]
fn what_an_iterate_loads_the_next_one_uses() {
    for l in [1, 32, 64, 65, 200] {
        agrees(&tile_before, &[random(F32, &[9, l]), output(F32, &[9])], 1e-5);
        agrees(&delayed, &[small(Bf16, &[40, l]), small(Bf16, &[l, 40]), output(F32, &[40, 40])], 2e-5);
    }
}

#[test]
fn pipelines_in_pipelines() {
    for (h, k) in [(0, 16), (32, 0), (32, 16), (64, 40), (100, 33), (130, 64)] {
        let args = [small(Bf16, &[20, h]), small(Bf16, &[h, 24]), small(Bf16, &[20, k]), small(Bf16, &[k, 24])];
        let [x, w, z, v] = args;
        agrees(&two_levels, &[x, w, z, v, output(F32, &[20, 24])], 1e-3);
    }
    for l in [1, 64, 150, 192] {
        agrees(&used_often, &[random(F32, &[9, l]), output(F32, &[9])], 1e-5);
    }
    for (r, l) in [(1, 8), (5, 33), (0, 8), (3, 64)] {
        agrees(&invariant, &[random(F32, &[6, l]), random(F32, &[r, l]), output(F32, &[6])], 1e-5);
    }
}
