//! Kernels that gather, as somebody would write them who reads the documents alone.

use super::{Given, agrees, agrees_on_hopper, agrees_with, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32, I32};

atlas_kernel! {
    /// Cross-entropy of each row: logsumexp - logit of the target. The logits are a flat view for the pick.
    kernel cross_entropy<T: Float>(
        x: &Tensor<T, [N, V]>, flat: &Tensor<T, [NV]>, target: &Tensor<i32, [N]>, loss: &mut Tensor<f32, [N]>,
    )
    tune { BN: [4, 1, 16], BV: [64, 32], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut most = full::<f32>([BN, 1], -1e30);
            let mut total = zeros::<f32>([BN, 1]);
            for v in pipeline(tiles(V, BV)) {
                let xs = load(x[n, v]).cast::<f32>();
                let next = max(most, max(xs, axis = 1));
                total = total * exp(most - next) + sum(exp(xs - next), axis = 1);
                most = next;
            }
            let row = n * BN + iota([BN], 0);
            let picked = load(flat[row * size(V) + load(target[n])]).cast::<f32>();
            store(loss[n], most + log(total) - picked.t());
        }
    }

    /// Paged attention, decode: one query for each head, keys and values in pages.
    kernel paged_decode<T: Float>(
        q: &Tensor<T, [B, H, D]>, keys: &Tensor<T, [R, H, D]>, values: &Tensor<T, [R, H, D]>,
        pages: &Tensor<i32, [B, P]>, lengths: &Tensor<i32, [B]>, y: &mut Tensor<T, [B, H, D]>, page: i32,
    )
    tune { BK: [32, 16, 64], warps: [4, 1] , stages: [2, 3]}
    {
        for (b, h) in grid(B, H) {
            let qs = load(q[b, h, ..]).cast::<f32>();
            let length = load(lengths[b]);
            let mut most = full::<f32>([1, 1], -1e30);
            let mut total = zeros::<f32>([1, 1]);
            let mut acc = zeros::<f32>([1, D]);
            for k in pipeline(0..(length + BK - 1) / BK) {
                let at = k * BK + iota([BK], 0);
                let rows = load(pages[b, at / page]) * page + at % page;
                let ks = load(keys[rows, h, ..]).cast::<f32>();
                let s = sum(ks * qs, axis = 1);
                let s = select(at.t() < length, s, -1e30);
                let next = max(most, max(s, axis = 0));
                let w = exp(s - next);
                let decay = exp(most - next);
                total = total * decay + sum(w, axis = 0);
                acc = acc * decay + sum(w * load(values[rows, h, ..]).cast::<f32>(), axis = 0);
                most = next;
            }
            store(y[b, h, ..], (acc / total).cast::<T>());
        }
    }

    /// The same for a block of queries, with products.
    kernel paged_prefill<T: Float>(
        q: &Tensor<T, [B, H, N, D]>, keys: &Tensor<T, [R, H, D]>, values: &Tensor<T, [R, H, D]>,
        pages: &Tensor<i32, [B, P]>, lengths: &Tensor<i32, [B]>, y: &mut Tensor<T, [B, H, N, D]>, page: i32,
    )
    tune { BN: [64, 16], BK: [64, 32], warps: [4, 8], stages: [2, 3] }
    {
        for (b, h, n) in grid(B, H, tiles(N, BN)) {
            let qs = load(q[b, h, n, ..]);
            let length = load(lengths[b]);
            let mut most = full::<f32>([BN, 1], -1e30);
            let mut total = zeros::<f32>([BN, 1]);
            let mut acc = zeros::<f32>([BN, D]);
            for k in pipeline(0..(length + BK - 1) / BK) {
                let at = k * BK + iota([BK], 0);
                let rows = load(pages[b, at / page]) * page + at % page;
                let s = dot(qs, load(keys[rows, h, ..]).t());
                let s = select(broadcast(at, [1, BK]) < length, s, -1e30);
                let next = max(most, max(s, axis = 1));
                let w = exp(s - next);
                let decay = exp(most - next);
                total = total * decay + sum(w, axis = 1);
                acc = acc * decay + dot(w.cast::<T>(), load(values[rows, h, ..]));
                most = next;
            }
            store(y[b, h, n, ..], (acc / total).cast::<T>());
        }
    }

    /// A convolution of 3 x 3 as an implicit product; images [B, P, C] with P = height * width, zeros around.
    kernel conv3<T: Float>(x: &Tensor<T, [B, P, C]>, w: &Tensor<T, [S, C, E]>, y: &mut Tensor<T, [B, P, E]>, height: i32, width: i32)
    tune { BP: [64, 128, 16], BE: [64, 32], BC: [32, 16], warps: [4, 8], stages: [2, 3] }
    {
        for (b, p, e) in grid(B, tiles(P, BP), tiles(E, BE)) {
            let at = p * BP + iota([BP], 0);
            let row = at / width;
            let col = at % width;
            let mut acc = zeros::<f32>([BP, BE]);
            for s in 0..9 {
                let from_row = row + s / 3 - 1;
                let from_col = col + s % 3 - 1;
                let inside = from_row >= 0 && from_row < height && from_col >= 0 && from_col < width;
                let places = select(inside, from_row * width + from_col, -1);
                for c in pipeline(tiles(C, BC)) {
                    acc += dot(load(x[b, places, c]), load(w[s, c, e]));
                }
            }
            store(y[b, p, e], acc.cast::<T>());
        }
    }

    /// Tokens of a mixture back to their places, times their weights.
    kernel unpermute<T: Float>(
        x: &Tensor<T, [M, D]>, places: &Tensor<i32, [N, K]>, weight: &Tensor<f32, [N, K]>, y: &mut Tensor<T, [N, D]>,
    )
    tune { BN: [16, 64, 1], BD: [64, 128], warps: [4, 1] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let mut acc = zeros::<f32>([BN, BD]);
            for k in 0..size(K) {
                let rows = load(x[load(places[n, k]), d]).cast::<f32>();
                acc += rows * load(weight[n, k]).t();
            }
            store(y[n, d], acc.cast::<T>());
        }
    }

    /// The mean of the K neighbours of each point; -1 is none.
    kernel neighbours<T: Float>(x: &Tensor<T, [M, D]>, near: &Tensor<i32, [N, K]>, y: &mut Tensor<T, [N, D]>)
    tune { BD: [32, 64], warps: [1, 4] }
    {
        for (n, d) in grid(N, tiles(D, BD)) {
            let ids = load(near[n, ..]);
            let count = max(sum((ids >= 0).cast::<f32>()), 1.0);
            let mean = sum(load(x[ids, d]).cast::<f32>(), axis = 0) / count;
            store(y[n, d], mean.cast::<T>());
        }
    }

    /// Rows between rows.
    kernel between<T: Float>(x: &Tensor<T, [M, D]>, at: &Tensor<f32, [N]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [16, 32, 1], BD: [64, 32], warps: [4, 1] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let at = load(at[n]);
            let low = floor(at);
            let part = (at - low).t();
            let low = low.cast::<i32>();
            let a = load(x[low, d]).cast::<f32>();
            let b = load(x[low + 1, d]).cast::<f32>();
            store(y[n, d], (a + (b - a) * part).cast::<T>());
        }
    }

    /// y = x w, where each row of w is one of a codebook, scaled.
    kernel codebook<T: Float>(
        x: &Tensor<T, [N, K]>, book: &Tensor<T, [C, D]>, codes: &Tensor<i32, [K]>, scale: &Tensor<T, [K]>, y: &mut Tensor<f32, [N, D]>,
    )
    tune { BN: [64, 16], BD: [64, 32], BK: [32, 16], warps: [4, 8] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let mut acc = zeros::<f32>([BN, BD]);
            for k in pipeline(tiles(K, BK)) {
                let packed = load(codes[k]);
                let code = (packed >> 4) & 15;
                let w = load(book[code, d]) * load(scale[k]).t();
                acc += dot(load(x[n, k]), w);
            }
            store(y[n, d], acc);
        }
    }

    /// Scores plus a bias for each relative position, which a row of the bias holds.
    kernel relative(s: &Tensor<f32, [N, N]>, bias: &Tensor<f32, [R]>, y: &mut Tensor<f32, [N, N]>)
    tune { BN: [64, 32, 16], warps: [4, 1] }
    {
        for (i, j) in grid(N, tiles(N, BN)) {
            let distance = i - (j * BN + iota([BN], 0)) + size(N) - 1;
            store(y[i, j], load(s[i, j]) + load(bias[distance]));
        }
    }

    /// Places that begin where a tile begins, and are other elements: few, of another dim, turned, walking and added up.
    kernel beginnings(x: &Tensor<f32, [N, D]>, longer: &Tensor<f32, [M, D]>, y: &mut Tensor<f32, [N, D]>, z: &mut Tensor<f32, [N, D]>, w: &mut Tensor<f32, [N, D]>, steps: i32)
    tune { BN: [16], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]) + sum(load(x[n * BN + iota([3], 0), ..]), axis = 0));
            store(z[n, ..], load(longer[n * BN + iota([BN], 0), ..]) + load(x[-(n * BN + iota([BN], 0)), ..]));
            let mut at = n * BN + iota([BN], 0);
            let mut all = zeros::<f32>([BN, D]);
            for s in 0..steps {
                all += load(x[at, ..]);
                at += s + 1;
            }
            store(w[n, ..], all);
        }
    }
}

fn ids(shape: &[usize], within: usize) -> Given {
    input(I32, shape, |i| (i * 7919 % (within + 5)) as f64 - 2.0)
}

#[test]
fn losses() {
    for dtype in [F32, Bf16] {
        for (n, v) in [(7, 100), (16, 64), (1, 1)] {
            let x = random(dtype, &[n, v]);
            let mut flat = x.clone();
            if let Given::In(d) = &mut flat {
                d.shape = vec![n * v];
            }
            let args = [x, flat, input(I32, &[n], |i| (i * 31 % v) as f64), output(F32, &[n])];
            agrees_with(&cross_entropy, &args, 1e-5, |x| {
                vec![
                    (0..n)
                        .map(|r| {
                            let row = &x[0][r * v..(r + 1) * v];
                            row.iter().map(|a| a.exp()).sum::<f64>().ln() - row[x[2][r] as usize]
                        })
                        .collect(),
                ]
            });
        }
    }
}

#[test]
fn pages() {
    for dtype in [F32, Bf16] {
        for (b, h, d, page, p) in [(3, 2, 64, 16, 5), (1, 1, 16, 8, 3)] {
            let r = b * p * page;
            let lengths = input(I32, &[b], |i| [page * p, 1, page + 3][i % 3] as f64);
            let table = input(I32, &[b, p], |i| ((i * 7) % (b * p)) as f64);
            let args = [
                random(dtype, &[b, h, d]),
                random(dtype, &[r, h, d]),
                random(dtype, &[r, h, d]),
                table.clone(),
                lengths.clone(),
                output(dtype, &[b, h, d]),
                Given::I32(page as i32),
            ];
            agrees(&paged_decode, &args, 1e-2);
            for n in [64, 20] {
                let args = [
                    random(dtype, &[b, h, n, d]),
                    random(dtype, &[r, h, d]),
                    random(dtype, &[r, h, d]),
                    table.clone(),
                    lengths.clone(),
                    output(dtype, &[b, h, n, d]),
                    Given::I32(page as i32),
                ];
                agrees(&paged_prefill, &args, 2e-2);
                agrees_on_hopper(&paged_prefill, &args, 2e-2);
            }
        }
    }
}

#[test]
fn convolutions() {
    for dtype in [F32, Bf16] {
        for (b, height, width, c, e) in [(2, 8, 9, 32, 64), (1, 5, 3, 20, 7)] {
            let p = height * width;
            let args = [
                random(dtype, &[b, p, c]),
                random(dtype, &[9, c, e]),
                output(dtype, &[b, p, e]),
                Given::I32(height as i32),
                Given::I32(width as i32),
            ];
            agrees_with(&conv3, &args, 2e-2, |x| {
                let mut y = vec![];
                for bb in 0..b {
                    for i in 0..height as i64 {
                        for j in 0..width as i64 {
                            for ee in 0..e {
                                let mut t = 0.0;
                                for s in 0..9 {
                                    let (r, q) = (i + s / 3 - 1, j + s % 3 - 1);
                                    if r < 0 || q < 0 || r >= height as i64 || q >= width as i64 {
                                        continue;
                                    }
                                    for cc in 0..c {
                                        t += x[0][(bb * p + r as usize * width + q as usize) * c + cc]
                                            * x[1][(s as usize * c + cc) * e + ee];
                                    }
                                }
                                y.push(t);
                            }
                        }
                    }
                }
                vec![y]
            });
            agrees_on_hopper(&conv3, &args, 2e-2);
        }
    }
}

#[test]
fn mixtures_and_neighbours() {
    for dtype in [F32, F16] {
        for (m, n, k, d) in [(40, 33, 4, 64), (5, 1, 1, 3)] {
            let args = [random(dtype, &[m, d]), ids(&[n, k], m), random(F32, &[n, k]), output(dtype, &[n, d])];
            agrees_with(&unpermute, &args, 1e-3, |x| {
                vec![
                    (0..n * d)
                        .map(|i| {
                            (0..k)
                                .map(|j| {
                                    let at = x[1][i / d * k + j];
                                    if at < 0.0 || at >= m as f64 {
                                        0.0
                                    } else {
                                        x[2][i / d * k + j] * x[0][at as usize * d + i % d]
                                    }
                                })
                                .sum()
                        })
                        .collect(),
                ]
            });
            let args = [random(dtype, &[m, d]), ids(&[n, k], m), output(dtype, &[n, d])];
            agrees(&neighbours, &args, 1e-3);
        }
    }
}

#[test]
fn rows_between_rows() {
    for dtype in [F32, Bf16] {
        for (m, n, d) in [(40, 33, 64), (5, 1, 3)] {
            let args = [
                random(dtype, &[m, d]),
                input(F32, &[n], |i| (i * 7919 % (10 * m)) as f64 / 9.0 - 1.0),
                output(dtype, &[n, d]),
            ];
            agrees(&between, &args, 1e-2);
        }
    }
}

#[test]
fn codebooks() {
    for dtype in [F32, Bf16] {
        for (n, k, d) in [(64, 64, 64), (20, 37, 40)] {
            let args = [
                random(dtype, &[n, k]),
                random(dtype, &[16, d]),
                input(I32, &[k], |i| (i * 7919 % 256) as f64),
                random(dtype, &[k]),
                output(F32, &[n, d]),
            ];
            agrees(&codebook, &args, 2e-2);
            agrees_on_hopper(&codebook, &args, 2e-2);
        }
    }
}

#[test]
fn biases() {
    for n in [64, 33, 1] {
        let args = [random(F32, &[n, n]), random(F32, &[2 * n - 1]), output(F32, &[n, n])];
        agrees(&relative, &args, 1e-6);
    }
}

#[test]
fn beginnings_of_tiles() {
    for (n, m, d) in [(40usize, 50usize, 9usize), (16, 3, 32), (1, 1, 1)] {
        let args = [
            random(F32, &[n, d]),
            random(F32, &[m, d]),
            output(F32, &[n, d]),
            output(F32, &[n, d]),
            output(F32, &[n, d]),
            Given::I32(4),
        ];
        agrees_with(&beginnings, &args, 1e-6, |x| {
            let row = |t: &[f64], len: usize, at: i64, j: usize| {
                if (0..len as i64).contains(&at) { t[at as usize * d + j] } else { 0.0 }
            };
            let all =
                |f: &dyn Fn(i64, usize) -> f64| -> Vec<f64> { (0..n * d).map(|i| f((i / d) as i64, i % d)).collect() };
            vec![
                all(&|i, j| row(&x[0], n, i, j) + (0..3).map(|k| row(&x[0], n, i / 16 * 16 + k, j)).sum::<f64>()),
                all(&|i, j| row(&x[1], m, i, j) + row(&x[0], n, -i, j)),
                all(&|i, j| [0, 1, 3, 6].iter().map(|k| row(&x[0], n, i + k, j)).sum::<f64>()),
            ]
        });
    }
}
