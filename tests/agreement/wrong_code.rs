//! Small kernels that were once miscompiled, or refused needlessly: each shows one rule of the compiler.

use super::{agrees, in_place, input, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32, I32};

atlas_kernel! {
    kernel outer_products(a: &Tensor<f32, [G, N]>, b: &Tensor<f32, [G, M]>, y: &mut Tensor<f32, [G, N, M]>)
    tune { BN: [16], BM: [8, 32], warps: [1, 4] }
    {
        for (g, n, m) in grid(G, tiles(N, BN), tiles(M, BM)) {
            store(y[g, n, m], load(a[span(g, 1), n]).t() * load(b[g, m]));
        }
    }

    kernel element_by_element(x: &Tensor<f32, [B, T]>, y: &mut Tensor<f32, [B, T]>)
    tune { warps: [1, 2] }
    {
        for b in grid(B) {
            store(y[b, ..], load(x[b, ..]));
            let mut h = zeros::<f32>([1]);
            for t in 0..size(T) {
                h = 0.5 * h + load(x[b, span(t, 1)]);
                store(y[b, span(t, 1)], h + load(y[b, span(t, 1)]) + load(x[b, span(t - 1, 1)]).or(2.0));
            }
        }
    }

    kernel shifted_rows<T: Float>(x: &Tensor<T, [N, D]>, b: &Tensor<T, [N]>, w: &Tensor<T, [D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16, 32], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let column = load(b[n]).cast::<f32>().t();
            store(y[n, ..], load(x[n, ..]).cast::<f32>() * column + load(w[..]).cast::<f32>() * max(column, 0.5));
        }
    }

    kernel causal_counts(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BQ: [16], warps: [1, 4] }
    {
        for q in grid(tiles(N, BQ)) {
            let mut total = zeros::<f32>([BQ, 1]);
            for k in 0..q + 1 {
                let s = dot(load(x[q, ..]), load(x[span(k * BQ, BQ), ..]).t());
                let before = k * BQ + iota([1, BQ], 1) <= q * BQ + iota([BQ, 1], 0);
                total += sum(select(before, s, 0.0), axis = 1);
            }
            store(y[q], total);
        }
    }

    kernel gathered(table: &Tensor<f32, [R, D]>, at: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N, D]>)
    {
        for n in grid(N) {
            store(y[n, ..], load(table[load(at[n]), ..]));
        }
    }

    kernel quotients(a: &Tensor<i32, [N]>, b: &Tensor<i32, [N]>, q: &mut Tensor<i32, [N]>, r: &mut Tensor<i32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(q[n], load(a[n]) / load(b[n]));
            store(r[n], load(a[n]) % load(b[n]));
        }
    }

    kernel over_both_dims(x: &Tensor<f32, [B, T]>, y: &mut Tensor<f32, [B, T]>)
    tune { BS: [1], warps: [1, 4] }
    {
        for (b, t) in grid(B, T) {
            store(y[b, t], sum(load(x[b, span(t, BS)])) + sum(load(x[b, ..])));
        }
    }

    kernel weighted_row_sum(x: &Tensor<f32, [N, K]>, m: &Tensor<f32, [N, L]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4, 32], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], sum(load(x[n, ..]) * load(m[n, span(0, 1)]), axis = 1));
        }
    }

    kernel scaled_product<T: Float>(x: &Tensor<T, [N, K]>, m: &Tensor<T, [N, L]>, w: &Tensor<T, [K, D]>, at: i32, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16, 32], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], dot(load(x[n, ..]) * load(m[n, span(at, 1)]), load(w[.., ..])));
        }
    }

    kernel clamped_roots(x: &Tensor<f32, [N, K]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4], BK: [64], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let mut s = zeros::<f32>([BN, 1]);
            for k in pipeline(tiles(K, BK)) {
                s += sum(max(sqrt(load(x[n, k]) - 1.0), 0.0), axis = 1);
            }
            store(y[n], s);
        }
    }

    kernel truncated(x: &Tensor<f32, [N, K]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4], BK: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let mut s = zeros::<f32>([BN, 1]);
            for k in pipeline(tiles(K, BK)) {
                s += sum((load(x[n, k]) + 0.75).cast::<i32>().cast::<f32>() - 0.75, axis = 1);
            }
            store(y[n], s);
        }
    }

    kernel rounded<T: Float>(x: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4], BK: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let mut s = zeros::<f32>([BN, 1]);
            for k in pipeline(tiles(K, BK)) {
                s += sum(((((load(x[n, k]) + 256.0) + 1.0) + 1.0) - 258.0).cast::<f32>(), axis = 1);
            }
            store(y[n], s);
        }
    }

    kernel product<T: Float>(x: &Tensor<T, [M, K]>, w: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [16, 64], BN: [16, 32], BK: [16, 32], stages: 1..=3, warps: [1, 4] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[m, k]), load(w[k, n]));
            }
            store(y[m, n], acc);
        }
    }

    kernel sums(x: &Tensor<f32, [N, K]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4], BK: [64] }
    {
        for n in grid(tiles(N, BN)) {
            let mut s = full::<f32>([BN, 1], 3.0);
            for k in pipeline(tiles(K, BK)) {
                s += sum(load(x[n, k]), axis = 1);
            }
            store(y[n], s);
        }
    }

    kernel delay_line<T: Float>(p: &Tensor<T, [G, D, D]>, x: &Tensor<T, [G, D, E]>, y: &mut Tensor<f32, [G, D, E]>)
    tune { warps: [1, 2, 4] }
    {
        for g in grid(G) {
            let ps = load(p[g, .., ..]);
            let mut a = load(x[g, .., ..]);
            let mut b = load(x[g, .., ..]);
            for _i in 0..3 {
                let next = dot(ps, a).cast::<T>() + dot(ps, b).cast::<T>();
                b = a;
                a = next;
            }
            store(y[g, .., ..], dot(ps, a) + dot(ps, b));
        }
    }

    kernel exchange<T: Float>(p: &Tensor<T, [G, D, D]>, x: &Tensor<T, [G, D, E]>, z: &Tensor<T, [G, D, E]>, y: &mut Tensor<f32, [G, D, E]>)
    tune { warps: [1, 4] }
    {
        for g in grid(G) {
            let ps = load(p[g, .., ..]);
            let mut a = load(x[g, .., ..]);
            let mut b = load(z[g, .., ..]);
            let mut s = zeros::<f32>([D, E]);
            for _i in 0..3 {
                s += dot(ps, a) - 2.0 * dot(ps, b);
                let kept = a;
                a = b;
                b = kept;
            }
            store(y[g, .., ..], s);
        }
    }

    kernel squares<T: Float>(x: &Tensor<T, [G, D, D]>, z: &Tensor<f32, [G, D, D]>, y: &mut Tensor<f32, [G, D, D]>)
    tune { warps: [4, 1, 2] }
    {
        for g in grid(G) {
            let mut u = load(x[g, .., ..]);
            for _i in 0..2 {
                u = dot(u, u).cast::<T>();
            }
            store(y[g, .., ..], load(z[g, .., ..]) + u.cast::<f32>());
        }
    }

    kernel two_widths<T: Float>(p: &Tensor<T, [G, D, D]>, x: &Tensor<T, [G, D, E]>, z: &Tensor<T, [G, D, F]>, y: &mut Tensor<f32, [G, D, E]>, v: &mut Tensor<f32, [G, D, F]>)
    tune { warps: [1, 4] }
    {
        for g in grid(G) {
            let ps = load(p[g, .., ..]);
            let mut a = load(x[g, .., ..]);
            let mut b = load(z[g, .., ..]);
            for _i in 0..2 {
                a = (0.5 * dot(ps, a)).cast::<T>();
                b = (0.25 * dot(ps, b)).cast::<T>();
            }
            store(y[g, .., ..], dot(ps, a));
            store(v[g, .., ..], dot(ps, b));
        }
    }

    kernel init_used_again<T: Float>(p: &Tensor<T, [G, D, D]>, x: &Tensor<T, [G, D, D]>, y: &mut Tensor<f32, [G, D, D]>, r: &mut Tensor<f32, [G, D]>)
    {
        for g in grid(G) {
            let ps = load(p[g, .., ..]);
            let t = load(x[g, .., ..]);
            let first = t * 0.5;
            let mut a = first;
            let mut b = first;
            for _i in 0..2 {
                a = dot(ps, a).cast::<T>();
                b = dot(b, ps).cast::<T>();
            }
            store(y[g, .., ..], dot(a, b) + first.cast::<f32>());
            store(r[g, ..], sum(t.cast::<f32>(), axis = 1));
        }
    }

    kernel axpy_in_place(a: f32, x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64, 256], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], a * load(x[n]) + load(y[n]));
        }
    }

    kernel padded_in_place<T: Float>(a: f32, x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [1, 4], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], (a * load(x[n, ..]).cast::<f32>()).cast::<T>() + load(y[n, ..]));
        }
    }

    kernel normalise_state(w: &mut Tensor<f32, [G, H]>)
    tune { BH: [32, 128] }
    {
        for g in grid(G) {
            let mut s = zeros::<f32>([1]);
            for h in tiles(H, BH) {
                s += sum(load(w[g, h]), axis = 0);
            }
            for h in tiles(H, BH) {
                store(w[g, h], load(w[g, h]) / s);
            }
        }
    }

    kernel literal_rows(w: &mut Tensor<f32, [G, H, D]>)
    {
        for g in grid(G) {
            store(w[g, 0, ..], load(w[g, 0, ..]) + 1.0);
            store(w[g, 0, ..], load(w[g, 0, ..]) * 2.0 + load(w[g, 1, ..]));
        }
    }

    kernel odd_warps(x: &Tensor<f32, [M, K]>, w: &Tensor<f32, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { warps: [8, 1, 2, 4] }
    {
        for m in grid(tiles(M, 16)) {
            store(y[m, ..], dot(load(x[m, ..]), load(w[.., ..])).precision(tf32));
        }
    }

    kernel small_differences<T: Float>(x: &Tensor<T, [N]>, y: &mut Tensor<T, [N]>, z: &mut Tensor<T, [N]>)
    {
        for n in grid(tiles(N, 128)) {
            let t = load(x[n]).cast::<f32>();
            store(y[n], (((1.0 - cos(t)) / (t * t)) - 0.5).cast::<T>());
            store(z[n], ((t - tanh(t)) / (t * t * t)).cast::<T>());
        }
    }
}

#[test]
fn a_column_of_one_element_is_repeated_whole() {
    for (n, k) in [(5, 33), (37, 64), (1, 1), (4, 7)] {
        agrees(&weighted_row_sum, &[random(F32, &[n, k]), random(F32, &[n, 3]), output(F32, &[n])], 1e-6);
    }
    for at in [0, 2, 3, -1] {
        for dtype in [F32, F16, Bf16] {
            let args = [random(dtype, &[21, 48]), random(dtype, &[21, 3]), random(dtype, &[48, 24])];
            let [x, m, w] = args;
            agrees(&scaled_product, &[x, m, w, super::Given::I32(at), output(F32, &[21, 24])], 1e-5);
        }
    }
}

#[test]
fn what_padding_holds_is_known_in_the_type() {
    for k in [1, 63, 64, 100] {
        agrees(&clamped_roots, &[input(F32, &[5, k], |i| 1.0 + noise(i).abs()), output(F32, &[5])], 1e-6);
        agrees(&truncated, &[random(F32, &[5, k]), output(F32, &[5])], 1e-6);
        for dtype in [Bf16, F16, F32] {
            agrees(&rounded, &[random(dtype, &[5, k]), output(F32, &[5])], 1e-5);
        }
    }
}

#[test]
fn a_dim_of_no_elements_has_no_tiles() {
    for dtype in [F32, F16, Bf16] {
        for (m, n, k) in [(17, 20, 0), (17, 20, 1), (1, 1, 33)] {
            let args = [random(dtype, &[m, k]), random(dtype, &[k, n]), output(F32, &[m, n])];
            agrees(&product, &args, 1e-5);
        }
    }
    agrees(&sums, &[random(F32, &[7, 0]), output(F32, &[7])], 0.0);
}

#[test]
fn carried_tiles_are_replaced_together() {
    for dtype in [F16, Bf16, F32] {
        for (d, e) in [(16, 16), (48, 24), (32, 64)] {
            let small = |shape: &[usize]| input(dtype, shape, |i| noise(i) * 0.3);
            let (p, x, z) = (small(&[3, d, d]), small(&[3, d, e]), small(&[3, d, e]));
            let bound = if dtype == F32 { 1e-5 } else { 2e-2 };
            agrees(&delay_line, &[p.clone(), x.clone(), output(F32, &[3, d, e])], bound);
            agrees(&exchange, &[p.clone(), x.clone(), z, output(F32, &[3, d, e])], bound);
            let wide = small(&[3, d, 128]);
            agrees(&two_widths, &[p, x, wide, output(F32, &[3, d, e]), output(F32, &[3, d, 128])], bound);
        }
    }
}

#[test]
fn a_buffer_is_taken_over_only_from_a_tile_that_is_dead() {
    for dtype in [F16, Bf16, F32] {
        let small = |shape: &[usize]| input(dtype, shape, |i| noise(i) * 0.3);
        let args = [small(&[2, 32, 32]), small(&[2, 32, 32]), output(F32, &[2, 32, 32]), output(F32, &[2, 32])];
        agrees(&init_used_again, &args, if dtype == F32 { 1e-5 } else { 2e-2 });
    }
}

#[test]
fn matrix_accesses_belong_to_no_thread() {
    for dtype in [F16, Bf16] {
        for d in [16, 48, 64] {
            let x = input(dtype, &[2, d, d], |i| noise(i) * 0.2);
            agrees(&squares, &[x, random(F32, &[2, d, d]), output(F32, &[2, d, d])], 2e-2);
        }
    }
}

#[test]
fn one_element_that_is_counted_is_the_one_that_is_read() {
    for (g, n) in [(1, 1), (5, 7), (3, 33)] {
        agrees(&outer_products, &[random(F32, &[g, n]), random(F32, &[g, 19]), output(F32, &[g, n, 19])], 1e-6);
        agrees(&element_by_element, &[random(F32, &[g, n]), output(F32, &[g, n])], 1e-5);
        agrees(&over_both_dims, &[random(F32, &[g, n]), output(F32, &[g, n])], 1e-6);
    }
}

#[test]
fn a_row_becomes_a_column() {
    for dtype in [F32, Bf16] {
        for (n, d) in [(1, 1), (33, 7), (100, 40)] {
            let args = [random(dtype, &[n, d]), random(dtype, &[n]), random(dtype, &[d]), output(F32, &[n, d])];
            agrees(&shifted_rows, &args, 1e-5);
        }
    }
}

#[test]
fn coordinates_are_numbers() {
    for n in [1, 16, 37] {
        agrees(&causal_counts, &[random(F32, &[n, 24]), output(F32, &[n])], 1e-4);
    }
    let at = input(I32, &[9], |i| (i * 5 % 7) as f64 - 1.0);
    agrees(&gathered, &[random(F32, &[5, 33]), at, output(F32, &[9, 33])], 1e-6);
}

#[test]
fn whole_numbers_are_divided_as_the_page_says() {
    let (a, b) =
        (|i: usize| [7.0, -7.0, 0.0, 2147483647.0, -2147483648.0][i % 5], |i: usize| [2.0, -3.0, 0.0, -1.0][i % 4]);
    agrees(&quotients, &[input(I32, &[20], a), input(I32, &[20], b), output(I32, &[20]), output(I32, &[20])], 0.0);
}

#[test]
fn in_place_at_any_size() {
    for n in [1, 31, 1000] {
        let args = [super::Given::F32(2.0), random(F32, &[n]), in_place(F32, &[n])];
        agrees(&axpy_in_place, &args, 1e-6);
    }
    for dtype in [F32, F16, Bf16] {
        for d in [1, 7, 24, 33] {
            let (x, y) = (random(dtype, &[13, d]), in_place(dtype, &[13, d]));
            agrees(&padded_in_place, &[super::Given::F32(0.5), x.clone(), y.clone()], 1e-2);
            agrees(&padded_in_place, &[super::Given::F32(0.5), x.within(1, 2), y.within(3, 0)], 1e-2);
        }
    }
}

#[test]
fn a_program_reads_what_it_wrote_by_any_slice() {
    for h in [1, 50, 300] {
        agrees(&normalise_state, &[in_place(F32, &[3, h])], 1e-4);
    }
    agrees(&literal_rows, &[in_place(F32, &[3, 4, 40])], 1e-6);
}

#[test]
fn warps_past_the_end_of_a_product_repeat_its_last_block() {
    for n in [16, 24, 8, 40] {
        let args = [random(F32, &[19, 24]), random(F32, &[24, n]), output(F32, &[19, n])];
        agrees(&odd_warps, &args, 1e-5);
    }
}

#[test]
fn differences_of_nearly_equal_numbers_keep_their_digits() {
    for dtype in [F16, Bf16] {
        // The differences are of the order of 2^-6, and their terms are near 1.
        let x = input(dtype, &[300], |i| 0.25 + 0.25 * noise(i).abs());
        agrees(&small_differences, &[x, output(dtype, &[300]), output(dtype, &[300])], 2f64.powi(-7));
    }
}

atlas_kernel! {
    /// The signs of zeros past an edge, which a reciprocal shows.
    kernel signs_of_zero(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [F, N]>)
    {
        for n in grid(N) {
            store(y[0, n], 1.0 / (-load(x[span(n - 1, 1)])).or(0.0));
            store(y[1, n], 1.0 / load(x[span(n - 1, 1)]).or(-0.0));
            store(y[2, n], 1.0 / load(x[span(n - 1, 1)]).or(0.0));
            store(y[3, n], 1.0 / (0.0 * load(x[span(n - 1, 1)])).or(0.0));
            store(y[4, n], 1.0 / (load(x[span(n - 1, 1)]) - 1.0).or(-1.0));
        }
    }
}

#[test]
fn a_zero_past_an_edge_has_the_sign_that_is_written() {
    agrees(&signs_of_zero, &[input(F32, &[40], |i| i as f64 - 19.5), output(F32, &[5, 40])], 0.0);
}
