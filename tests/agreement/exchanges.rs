//! Kernels whose tiles change their place: reused buffers, transposes, padding, tables and ranges of columns.

use super::{Given, agrees, in_place, input, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

const WEIGHTS: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

atlas_kernel! {
    /// The mask of rows is needed in the layouts of an accumulator, of an operand and of a store.
    kernel masked_rows<T: Float>(
        x: &Tensor<T, [N, D]>, w: &Tensor<T, [D, D]>, c: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N, D]>, z: &mut Tensor<T, [N, D]>,
    )
    tune { BN: [16, 40], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let alive = load(c[n]).t() > 0.0;
            let xs = select(alive, load(x[n, ..]), 0.0);
            let product = dot(xs, load(w[.., ..]));
            store(y[n, ..], select(alive, product, -1.0));
            store(z[n, ..], select(alive, xs * 2.0, 1.0));
        }
    }

    kernel twice<T: Float>(x: &Tensor<T, [G, M, M]>, y: &mut Tensor<f32, [G, M, M]>)
    tune { warps: [4, 1] }
    {
        for g in grid(G) {
            let a = load(x[g, .., ..]);
            let mut total = zeros::<f32>([M, M]);
            for _i in 0..2 {
                let mut z = a * 0.5;
                for _j in 0..2 {
                    z = dot(z, z).cast::<T>();
                }
                total += z.cast::<f32>();
            }
            store(y[g, .., ..], total);
        }
    }

    kernel columns(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [32], BD: [32, 16], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut s = zeros::<f32>([1, BN]);
            for d in tiles(D, BD) {
                s += sum(1.0 - exp(load(x[n, d])).t(), axis = 0);
            }
            store(y[n], s);
        }
    }

    kernel transposed_or(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [32], BD: [32] }
    {
        for n in grid(tiles(N, BN)) {
            let mut s = zeros::<f32>([1, BN]);
            for d in tiles(D, BD) {
                s += sum(exp(load(x[n, d])).t().or(1.0), axis = 0);
            }
            store(y[n], s);
        }
    }

    kernel squared_states<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [D, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [32] }
    {
        for n in grid(tiles(N, BN)) {
            let ws = load(w[.., ..]);
            let mut t = exp(load(x[n, ..]).cast::<f32>()).cast::<T>();
            let mut acc = zeros::<f32>([BN, D]);
            let mut s = zeros::<f32>([BN, 1]);
            for _i in 0..2 {
                acc += dot(t, ws);
                s += sum(1.0 - t.cast::<f32>(), axis = 1);
                t = t * t;
            }
            store(y[n, ..], acc + s);
        }
    }

    kernel late_edge<T: Float>(x: &Tensor<T, [M, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BN: [32], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let ones = full::<T>([BN, BN], 1.0);
            let mut t = full::<T>([M, BN], 1.0);
            let mut acc = zeros::<f32>([M, BN]);
            for _i in 0..2 {
                acc += dot(t, ones);
                t = load(x[.., n]);
            }
            store(y[.., n], acc);
        }
    }

    kernel shifted(x: &Tensor<f32, [N, K]>, m: &Tensor<f32, [N, L]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], sum(load(x[n, ..]) + load(m[n, span(0, 1)]), axis = 1));
        }
    }

    kernel gram_and_transpose<T: Float>(x: &Tensor<T, [G, N, D]>, a: &mut Tensor<f32, [G, N, N]>, t: &mut Tensor<T, [G, D, N]>)
    tune { warps: [4, 1] }
    {
        for g in grid(G) {
            let xs = load(x[g, .., ..]);
            let xt = xs.t();
            store(a[g, .., ..], dot(xs, xt));
            store(t[g, .., ..], xt);
        }
    }

    kernel relax(x: &Tensor<f32, [G, D]>, w: &mut Tensor<f32, [G, D]>)
    tune { warps: [4, 1] }
    {
        for g in grid(G) {
            store(w[g, ..], load(x[g, ..]));
            for _i in 0..8 {
                let l = load(w[g, span(0, 512)]);
                let r = load(w[g, span(8, 512)]);
                store(w[g, span(4, 512)], (l + r) * 0.5);
            }
        }
    }

    kernel widened(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, E]>)
    tune { BN: [4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, span(0, 64)], exp(load(x[n, span(0, 64)])));
        }
    }

    kernel ratio<T: Float>(x: &Tensor<T, [N]>, z: &Tensor<T, [N]>, y: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 128)) {
            store(y[n], load(x[n]) / load(z[n]));
        }
    }

    kernel narrowed<T: Float>(w: i32, y: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 128)) {
            store(y[n], broadcast((w.cast::<T>().cast::<f32>() / 65536.0).cast::<T>(), [128]));
        }
    }

    kernel wide_tf32(x: &Tensor<f32, [M, K]>, w: &Tensor<f32, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { warps: [32] }
    {
        for m in grid(tiles(M, 256)) {
            store(y[m, ..], dot(load(x[m, ..]), load(w[.., ..]).t()).precision(tf32));
        }
    }

    kernel weighted(x: &Tensor<f32, [K, N]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 128)) {
            let mut s = zeros::<f32>([128]);
            for k in 0..size(K) {
                s += WEIGHTS[k] * load(x[k, n]);
            }
            store(y[n], s);
        }
    }

    kernel peaks<T: Float>(x: &Tensor<T, [G, M, K]>, w: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [G, N]>)
    tune { warps: [4, 16] }
    {
        for g in grid(G) {
            store(y[g, ..], max(dot(load(x[g, .., ..]), load(w[.., ..])), axis = 0));
        }
    }

    kernel nested<T: Float>(x: &Tensor<T, [N, H]>, w: &Tensor<T, [H, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [32], BH: [16], stages: [4, 3], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let mut acc = zeros::<f32>([BN, D]);
            for h in pipeline(tiles(H, BH)) {
                let mut t = dot(load(x[n, h]), load(w[h, ..]));
                for _i in 0..3 {
                    t = t * 0.5 + 1.0;
                }
                acc += t;
            }
            store(y[n, ..], acc);
        }
    }
}

fn small(dtype: DType, shape: &[usize]) -> Given {
    input(dtype, shape, |i| noise(i) * 0.3)
}

fn bound(dtype: DType) -> f64 {
    if dtype == F32 { 1e-5 } else { 2e-2 }
}

#[test]
fn a_tile_from_outside_a_loop_outlives_its_iterates() {
    for dtype in [Bf16, F16, F32] {
        for m in [16, 32] {
            agrees(&twice, &[small(dtype, &[1, m, m]), output(F32, &[1, m, m])], bound(dtype));
        }
    }
}

#[test]
fn what_lies_in_shared_memory_is_zero_past_the_edge() {
    for (n, d) in [(32, 40), (33, 24), (5, 7)] {
        agrees(&columns, &[random(F32, &[n, d]), output(F32, &[n])], 1e-5);
        agrees(&transposed_or, &[random(F32, &[n, d]), output(F32, &[n])], 1e-5);
    }
    for dtype in [Bf16, F32] {
        let args = [small(dtype, &[37, 24]), small(dtype, &[24, 24]), output(F32, &[37, 24])];
        let [x, w, y] = args;
        agrees(&squared_states, &[x, w, y], bound(dtype));
    }
}

#[test]
fn a_loop_begins_with_the_edge_that_it_carries() {
    for dtype in [Bf16, F32] {
        agrees(&late_edge, &[random(dtype, &[16, 40]), output(F32, &[16, 40])], bound(dtype));
    }
}

#[test]
fn padding_beside_a_repeated_column_is_refilled() {
    agrees(&shifted, &[random(F32, &[5, 33]), random(F32, &[5, 3]), output(F32, &[5])], 1e-5);
}

#[test]
fn a_buffer_for_an_atom_is_padded_whoever_asks_first() {
    for dtype in [Bf16, F16, F32] {
        for (n, d) in [(64, 24), (24, 40)] {
            let args = [small(dtype, &[2, n, d]), output(F32, &[2, n, n]), output(dtype, &[2, d, n])];
            agrees(&gram_and_transpose, &args, bound(dtype));
        }
    }
}

#[test]
fn threads_exchange_data_through_a_tensor() {
    agrees(&relax, &[random(F32, &[2, 1024]), in_place(F32, &[2, 1024])], 1e-5);
}

#[test]
fn what_is_not_valid_is_stored_as_zero() {
    agrees(&widened, &[random(F32, &[4, 50]), output(F32, &[4, 64])], 1e-6);
}

#[test]
fn quotients_and_conversions_at_the_ends_of_their_range() {
    agrees(&ratio, &[input(Bf16, &[200], |_| 1e38), input(Bf16, &[200], |_| 1e38), output(Bf16, &[200])], 1e-2);
    for w in [33_685_505, i32::MAX, i32::MIN, -16_777_217, 7] {
        agrees(&narrowed, &[Given::I32(w), output(Bf16, &[130])], 0.0);
    }
}

#[test]
fn columns_of_a_product_stay_in_their_buffers() {
    agrees(&wide_tf32, &[random(F32, &[256, 32]), random(F32, &[160, 32]), output(F32, &[256, 160])], 1e-3);
    agrees(&peaks, &[small(Bf16, &[1, 64, 64]), small(Bf16, &[64, 128]), output(F32, &[1, 128])], 1e-5);
}

#[test]
fn outside_a_table_stands_zero() {
    agrees(&weighted, &[random(F32, &[6, 130]), output(F32, &[130])], 1e-6);
}

#[test]
fn a_mask_of_rows_serves_every_layout() {
    for dtype in [Bf16, F32] {
        let args = [
            small(dtype, &[50, 24]),
            small(dtype, &[24, 24]),
            random(F32, &[50]),
            output(F32, &[50, 24]),
            output(dtype, &[50, 24]),
        ];
        agrees(&masked_rows, &args, 1e-4);
    }
}

#[test]
fn a_loop_in_a_pipeline_changes_nothing() {
    agrees(&nested, &[small(Bf16, &[40, 100]), small(Bf16, &[100, 24]), output(F32, &[40, 24])], 1e-4);
}
