//! Small integers where few kernels have them: under derivatives, stored by the copy engine, beside an accumulator of warpgroups, at
//! places, and in tiles of many elements a thread.

use super::{agrees, agrees_on_hopper, agrees_with, in_place, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F32, I8, I32, U8, U16};

atlas_kernel! {
    tile fn scaled(x, w) { x * w }

    /// A derivative is valid where what it does not use is valid, which here are bytes.
    kernel slopes(
        x: &Tensor<f32, [N, D]>, w: &Tensor<i8, [N, D]>, a: &mut Tensor<f32, [N, D]>, b: &mut Tensor<f32, [N, D]>,
    )
    tune { BN: [16, 3], BD: [64, 32] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let (by_x, by_w) = grad(scaled)(load(x[n, d]), load(w[n, d]).cast::<f32>());
            store(a[n, d], by_x);
            store(b[n, d], by_w);
        }
    }

    /// Along a direction, with bytes that are filled past the edge.
    kernel direction(x: &Tensor<f32, [N, D]>, w: &Tensor<u8, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [16, 3], BD: [64, 32] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for d in tiles(D, BD) {
                let ws = load(w[n, d]).cast::<f32>().or(1.0);
                total += sum(jvp(scaled)(load(x[n, d]), ws, 1.0, load(w[n, d]).cast::<f32>()), axis = 1);
            }
            store(y[n], total);
        }
    }

    /// Bytes by the engine, in panels of each width.
    kernel bytes_by_engine(x: &Tensor<i8, [N, D]>, y: &mut Tensor<i8, [N, D]>)
    tune { BN: [64], BD: [128, 96, 32], warps: [4], programs: [persistent], stores: [engine, threads] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store(y[n, d], load(x[n, d]));
        }
    }

    kernel words_by_engine(x: &Tensor<u16, [N, D]>, y: &mut Tensor<u16, [N, D]>)
    tune { BN: [64], BD: [64, 128], warps: [4], stores: [engine] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store(y[n, d], load(x[n, d]));
        }
    }

    /// A mask of bytes, loaded before the loop whose accumulator it meets.
    kernel masked(a: &Tensor<bf16, [M, K]>, b: &Tensor<bf16, [K, N]>, m: &Tensor<i8, [M, N]>, y: &mut Tensor<bf16, [M, N]>)
    tune { BM: [128, 64], BN: [128, 96], BK: [64], warps: [8, 4], stages: [3], copies: [engine, threads] }
    {
        for (i, j) in grid(tiles(M, BM), tiles(N, BN)) {
            let mask = load(m[i, j]);
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[i, k]), load(b[k, j]));
            }
            store(y[i, j], (acc * mask.cast::<f32>()).cast::<bf16>());
        }
    }

    /// The bytes of each row that are not 0, side by side.
    kernel packed(x: &Tensor<u8, [B, N]>, y: &mut Tensor<u8, [B, N]>)
    tune { BN: [128, 512], warps: [4, 1] }
    {
        for b in grid(B) {
            let mut before = 0.cast::<i32>();
            for n in tiles(N, BN) {
                let xs = load(x[b, n]).or(0);
                let is_kept = xs.cast::<i32>() > 0;
                let kept = select(is_kept, 1, 0).cast::<i32>();
                store_disjoint(y[b, select(is_kept, before + cumsum(kept, axis = 0) - 1, -1)], xs);
                before += sum(kept);
            }
        }
    }

    /// The low bits of a row's number choose what is read: many rows read the same.
    kernel by_low_bits(table: &Tensor<f32, [V]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(N) {
            store(y[n], load(table[n.cast::<u8>().cast::<i32>()]));
        }
    }

    /// A row of bytes that a warp holds, and adds up afterwards.
    kernel row_sums(x: &Tensor<u8, [N, D]>, y: &mut Tensor<i32, [N]>)
    tune { warps: [4, 1] }
    {
        for n in grid(N) {
            store(y[n], sum(load(x[n, ..]).cast::<i32>()));
        }
    }
}

fn bytes(i: usize) -> f64 {
    ((i * 7919 + i / 3) % 256) as f64
}

fn signed(i: usize) -> f64 {
    bytes(i) - 128.0
}

#[test]
fn derivatives_of_what_was_bytes() {
    for (n, d) in [(33, 70), (1, 1), (16, 64)] {
        let out = || output(F32, &[n, d]);
        let given = [random(F32, &[n, d]), input(I8, &[n, d], signed), out(), out()];
        agrees_with(&slopes, &given, 0.0, |x| vec![x[1].clone(), x[0].clone()]);
        let given = [random(F32, &[n, d]), input(U8, &[n, d], bytes), output(F32, &[n])];
        agrees_with(&direction, &given, 1e-5, |x| {
            let of = |i: usize| x[1][i] + x[0][i] * x[1][i];
            vec![(0..n).map(|row| (0..d).map(|j| of(row * d + j)).sum()).collect()]
        });
    }
}

#[test]
fn the_engine_stores_small_integers() {
    for (n, d) in [(200, 256), (130, 208)] {
        agrees_on_hopper(&bytes_by_engine, &[input(I8, &[n, d], signed), output(I8, &[n, d])], 0.0);
        agrees_on_hopper(&words_by_engine, &[input(U16, &[n, d], |i| bytes(i) * 251.0), output(U16, &[n, d])], 0.0);
        let rows = output(I8, &[n, d]).within(16, 16);
        agrees_on_hopper(&bytes_by_engine, &[input(I8, &[n, d], signed), rows], 0.0);
    }
}

#[test]
fn bytes_meet_an_accumulator() {
    for (m, n, k) in [(128, 128, 128), (136, 272, 96)] {
        let mask = input(I8, &[m, n], |i| (i % 3) as f64 - 1.0);
        let given = [random(Bf16, &[m, k]), random(Bf16, &[k, n]), mask, output(Bf16, &[m, n])];
        agrees(&masked, &given, 2e-2);
        agrees_on_hopper(&masked, &given, 2e-2);
    }
}

#[test]
fn bytes_at_places() {
    for (b, n) in [(2, 700), (1, 1), (3, 128), (1, 0)] {
        let x = input(U8, &[b, n], |i| if i % 3 == 0 { 0.0 } else { bytes(i) });
        let there = input(U8, &[b, n], |i| (i % 5) as f64).into_output();
        agrees_with(&packed, &[x, there], 0.0, |x| {
            let mut y = x[1].clone();
            for row in 0..b {
                let kept: Vec<f64> = x[0][row * n..(row + 1) * n].iter().copied().filter(|&x| x > 0.0).collect();
                y[row * n..][..kept.len()].copy_from_slice(&kept);
            }
            vec![y]
        });
    }
    for n in [600, 3] {
        agrees_with(&by_low_bits, &[random(F32, &[1000]), in_place(F32, &[n])], 0.0, |x| {
            vec![(0..n).map(|i| x[0][i % 256]).collect()]
        });
    }
}

#[test]
fn rows_of_bytes_are_held() {
    for (n, d) in [(3, 8192), (2, 4096), (5, 33)] {
        agrees_with(&row_sums, &[input(U8, &[n, d], bytes), output(I32, &[n])], 0.0, |x| {
            vec![x[0].chunks(d).map(|row| row.iter().sum()).collect()]
        });
    }
}
