//! Kernels that scan and that store atomically, as somebody would write them who reads the documents alone.

use super::{Given, agrees_with, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{self, Bf16, F16, F32, I32};

atlas_kernel! {
    /// How far each element is under the greatest of its row up to it, and the farthest of the row.
    kernel drawdown<T: Float>(x: &Tensor<T, [N, L]>, under: &mut Tensor<f32, [N, L]>, deepest: &mut Tensor<f32, [N]>)
    tune { BN: [8, 1, 4], BL: [64, 32], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut peak = full::<f32>([BN, 1], f32::NEG_INFINITY);
            let mut most = zeros::<f32>([BN, 1]);
            for l in pipeline(tiles(L, BL)) {
                let xs = load(x[n, l]).cast::<f32>();
                let drop = max(peak, cummax(xs, axis = 1)) - xs;
                store(under[n, l], drop);
                most = max(most, max(drop, axis = 1));
                peak = max(peak, max(xs, axis = 1));
            }
            store(deepest[n], most);
        }
    }

    /// What is still to come, from each step on; the tiles are visited from the last one to the first.
    kernel rewards_to_go(r: &Tensor<f32, [N, L]>, g: &mut Tensor<f32, [N, L]>)
    tune { BN: [8, 1, 16], BL: [32, 16], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let count = (size(L) + BL - 1) / BL;
            let mut after = zeros::<f32>([BN, 1]);
            for i in 0..count {
                let at = (count - 1 - i) * BL;
                let rs = load(r[n, span(at, BL)]);
                store(g[n, span(at, BL)], after + cumsum(rs, axis = 1, reverse = true));
                after += sum(rs, axis = 1);
            }
        }
    }

    /// Where each row of a CSR matrix begins, from how many elements each row has: an exclusive scan.
    kernel row_starts(count: &Tensor<i32, [B, R]>, starts: &mut Tensor<i32, [B, Q]>)
    tune { BQ: [64, 32], warps: [1, 4] }
    require { Q == R + 1 }
    {
        for b in grid(B) {
            let mut before = 0.cast::<i32>();
            for q in tiles(Q, BQ) {
                let shifted = load(count[b, span(q * BQ - 1, BQ)]).or(0);
                store(starts[b, q], before + cumsum(shifted, axis = 0));
                before += sum(shifted);
            }
        }
    }

    /// A token of each row, drawn by the inverse of the row's distribution, and how much weight lies before it.
    kernel draw<T: Float>(
        p: &Tensor<T, [N, V]>, u: &Tensor<f32, [N]>, token: &mut Tensor<i32, [N]>, below: &mut Tensor<f32, [N]>,
    )
    tune { BN: [4, 1, 8], BV: [64, 32], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let wanted = load(u[n]).t();
            let mut before = zeros::<f32>([BN, 1]);
            let mut passed = zeros::<i32>([BN, 1]);
            let mut weight = zeros::<f32>([BN, 1]);
            for v in pipeline(tiles(V, BV)) {
                let ps = load(p[n, v]).cast::<f32>();
                let cdf = before + cumsum(ps, axis = 1);
                passed += sum((cdf <= wanted).cast::<i32>(), axis = 1);
                weight = max(weight, max(select(cdf <= wanted, cdf, 0.0), axis = 1));
                before += sum(ps, axis = 1);
            }
            store(token[n], min(passed, size(V) - 1));
            store(below[n], weight);
        }
    }

    /// Running sums of numbers not below 0 that begin anew where there is a flag.
    kernel restarted_sums(x: &Tensor<f32, [N, L]>, flag: &Tensor<i32, [N, L]>, y: &mut Tensor<f32, [N, L]>)
    tune { BN: [8, 1], BL: [32, 64], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut before = zeros::<f32>([BN, 1]);
            let mut base = zeros::<f32>([BN, 1]);
            for l in pipeline(tiles(L, BL)) {
                let xs = load(x[n, l]);
                let upto = before + cumsum(xs, axis = 1);
                let begins = select(load(flag[n, l]) != 0, upto - xs, 0.0);
                store(y[n, l], upto - max(base, cummax(begins, axis = 1)));
                base = max(base, max(begins, axis = 1));
                before += sum(xs, axis = 1);
            }
        }
    }

    /// The elements of each row that are above a number, packed to the front of a row of zeros, in their order.
    kernel compact(x: &Tensor<f32, [B, N]>, kept: &mut Tensor<f32, [B, N]>, count: &mut Tensor<i32, [B]>, least: f32)
    tune { BN: [64, 32, 128], warps: [1, 4] }
    {
        for b in grid(B) {
            let mut before = 0.cast::<i32>();
            for n in tiles(N, BN) {
                let xs = load(x[b, n]);
                let one = (xs > least).cast::<i32>();
                let slot = before + cumsum(one, axis = 0) - 1;
                atomic_add(kept[b, select(xs > least, slot, -1)], xs);
                before += sum(one);
            }
            store(count[b], before);
        }
    }

    /// A step of message passing: y[dst] += w x[src]; an edge of -1 is none.
    kernel messages<T: Float>(
        x: &Tensor<T, [M, D]>, src: &Tensor<i32, [E]>, dst: &Tensor<i32, [E]>, w: &Tensor<f32, [E]>, y: &mut Tensor<f32, [M, D]>,
    )
    tune { BE: [32, 16], BD: [32, 64], warps: [4, 1] }
    {
        for (e, d) in grid(tiles(E, BE), tiles(D, BD)) {
            let rows = load(x[load(src[e]), d]).cast::<f32>();
            atomic_add(y[load(dst[e]), d], rows * load(w[e]).t());
        }
    }

    /// The greatest score of the edges into each node, for each head.
    kernel segment_most<T: Float>(s: &Tensor<T, [E, H]>, dst: &Tensor<i32, [E]>, most: &mut Tensor<f32, [M, H]>)
    tune { BE: [32, 64], warps: [4, 1] }
    {
        for e in grid(tiles(E, BE)) {
            atomic_max(most[load(dst[e]), ..], load(s[e, ..]).cast::<f32>());
        }
    }

    /// The denominators of a softmax over the edges into each node.
    kernel segment_denominators<T: Float>(
        s: &Tensor<T, [E, H]>, dst: &Tensor<i32, [E]>, most: &Tensor<f32, [M, H]>, total: &mut Tensor<f32, [M, H]>,
    )
    tune { BE: [32, 64], warps: [4, 1] }
    {
        for e in grid(tiles(E, BE)) {
            let nodes = load(dst[e]);
            let scores = load(s[e, ..]).cast::<f32>();
            atomic_add(total[nodes, ..], exp(scores - load(most[nodes, ..])));
        }
    }

    /// Edges into and out of each node.
    kernel degrees(src: &Tensor<i32, [E]>, dst: &Tensor<i32, [E]>, outward: &mut Tensor<i32, [M]>, inward: &mut Tensor<i32, [M]>)
    tune { BE: [128, 32], warps: [4, 1] }
    {
        for e in grid(tiles(E, BE)) {
            atomic_add(outward[load(src[e])], 1);
            atomic_add(inward[load(dst[e])], 1);
        }
    }

    /// How often each true class is taken for each other one; a class outside of 0..classes is not counted.
    kernel confusion(truth: &Tensor<i32, [N]>, guess: &Tensor<i32, [N]>, table: &mut Tensor<i32, [KK]>, classes: i32)
    tune { BN: [128, 32], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let t = load(truth[n]);
            let g = load(guess[n]);
            let counted = t >= 0 && t < classes && g >= 0 && g < classes;
            atomic_add(table[select(counted, t * classes + g, -1)], 1);
        }
    }

    /// Points and the sums of their features in the cells of a cube.
    kernel voxels<T: Float>(
        points: &Tensor<f32, [N, C]>, f: &Tensor<T, [N, D]>, cells: &mut Tensor<f32, [G, D]>, count: &mut Tensor<i32, [G]>,
        per_unit: f32, side: i32,
    )
    tune { BN: [32, 16], warps: [4, 1] }
    require { C == 3 }
    {
        for n in grid(tiles(N, BN)) {
            let i = floor(load(points[n, 0]) * per_unit).cast::<i32>();
            let j = floor(load(points[n, 1]) * per_unit).cast::<i32>();
            let k = floor(load(points[n, 2]) * per_unit).cast::<i32>();
            let inside = i >= 0 && i < side && j >= 0 && j < side && k >= 0 && k < side;
            let cell = select(inside, (i * side + j) * side + k, -1);
            atomic_add(cells[cell, ..], load(f[n, ..]).cast::<f32>());
            atomic_add(count[cell], 1);
        }
    }

    /// The squared errors of the rows that have a label, and how many these are, added to what batches before came to.
    kernel running_loss<T: Float>(
        x: &Tensor<T, [N, D]>, y: &Tensor<T, [N, D]>, label: &Tensor<i32, [N]>, total: &mut Tensor<f32, [Z]>,
    )
    tune { BN: [16, 32, 1], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let has = load(label[n]) >= 0;
            let e = load(x[n, ..]).cast::<f32>() - load(y[n, ..]).cast::<f32>();
            let rows = sum(e * e, axis = 1);
            atomic_add(total[0], sum(select(has.t(), rows, 0.0)));
            atomic_add(total[1], sum(has.cast::<f32>()));
        }
    }
}

/// Numbers from -2 to `within` + 2.
fn ids(shape: &[usize], within: usize, factor: usize) -> Given {
    input(I32, shape, |i| ((i + 1) * factor % (within + 5)) as f64 - 2.0)
}

/// An output that holds one number before the launch.
fn filled(dtype: DType, shape: &[usize], value: f64) -> Given {
    input(dtype, shape, |_| value).into_output()
}

/// The place if it is one of `0..len`.
fn place(at: f64, len: usize) -> Option<usize> {
    (at >= 0.0 && at < len as f64).then_some(at as usize)
}

#[test]
fn drawdowns() {
    for dtype in [F32, Bf16, F16] {
        for (n, l) in [(7, 131), (16, 64), (3, 1), (1, 1), (0, 5), (3, 0), (13, 257)] {
            let args = [random(dtype, &[n, l]), output(F32, &[n, l]), output(F32, &[n])];
            agrees_with(&drawdown, &args, 1e-6, |x| {
                let mut under = vec![];
                let mut deepest = vec![];
                for r in 0..n {
                    let mut peak = f64::NEG_INFINITY;
                    let mut most = 0.0_f64;
                    for c in 0..l {
                        let v = x[0][r * l + c];
                        peak = peak.max(v);
                        under.push(peak - v);
                        most = most.max(peak - v);
                    }
                    deepest.push(most);
                }
                vec![under, deepest]
            });
        }
    }
}

#[test]
fn rewards() {
    for (n, l) in [(7, 131), (16, 64), (3, 1), (1, 1), (0, 5), (3, 0), (17, 97)] {
        let args = [random(F32, &[n, l]), output(F32, &[n, l])];
        agrees_with(&rewards_to_go, &args, 1e-5, |x| {
            let mut g = vec![0.0; n * l];
            for r in 0..n {
                let mut after = 0.0;
                for c in (0..l).rev() {
                    after += x[0][r * l + c];
                    g[r * l + c] = after;
                }
            }
            vec![g]
        });
    }
}

#[test]
fn starts_of_rows() {
    for (b, r) in [(3, 131), (1, 63), (2, 64), (5, 1), (2, 0), (0, 7)] {
        let args = [input(I32, &[b, r], |i| (i * 7919 % 11) as f64), output(I32, &[b, r + 1])];
        agrees_with(&row_starts, &args, 0.0, |x| {
            let mut starts = vec![];
            for row in 0..b {
                let mut before = 0.0;
                starts.push(before);
                for c in 0..r {
                    before += x[0][row * r + c];
                    starts.push(before);
                }
            }
            vec![starts]
        });
    }
}

#[test]
fn draws() {
    for dtype in [F32, Bf16, F16] {
        for (n, v) in [(7, 131), (16, 64), (5, 1), (1, 1), (0, 9), (3, 0)] {
            // Multiples of 1/64, whose sums are exact, and a wanted weight between two of them.
            let p = input(dtype, &[n, v], |i| (i * 7919 % 6) as f64 / 64.0);
            let u = input(F32, &[n], |i| ((i * 37 % (3 * v + 2)) as f64 + 0.5) / 64.0);
            agrees_with(&draw, &[p, u, output(I32, &[n]), output(F32, &[n])], 1e-6, |x| {
                let mut token = vec![];
                let mut below = vec![];
                for r in 0..n {
                    let (mut cdf, mut passed, mut weight) = (0.0, 0.0, 0.0_f64);
                    for c in 0..v {
                        cdf += x[0][r * v + c];
                        if cdf <= x[1][r] {
                            passed += 1.0;
                            weight = weight.max(cdf);
                        }
                    }
                    token.push(f64::min(passed, v as f64 - 1.0));
                    below.push(weight);
                }
                vec![token, below]
            });
        }
    }
}

#[test]
fn sums_that_restart() {
    for (n, l) in [(7, 131), (16, 64), (3, 1), (1, 1), (0, 5), (3, 0), (5, 67)] {
        let args = [
            input(F32, &[n, l], |i| (i * 7919 % 9) as f64 / 8.0),
            input(I32, &[n, l], |i| f64::from(u8::from(i * 31 % 17 == 3))),
            output(F32, &[n, l]),
        ];
        agrees_with(&restarted_sums, &args, 1e-6, |x| {
            let mut y = vec![];
            for r in 0..n {
                let mut sum = 0.0;
                for c in 0..l {
                    if x[1][r * l + c] != 0.0 {
                        sum = 0.0;
                    }
                    sum += x[0][r * l + c];
                    y.push(sum);
                }
            }
            vec![y]
        });
    }
}

#[test]
fn packed_to_the_front() {
    for (b, n) in [(3, 131), (1, 64), (2, 1), (2, 0), (0, 7)] {
        for least in [0.0, -2.0, 2.0] {
            let args = [random(F32, &[b, n]), filled(F32, &[b, n], 0.0), output(I32, &[b]), Given::F32(least)];
            agrees_with(&compact, &args, 1e-6, |x| {
                let mut kept = x[1].clone();
                let mut count = vec![];
                for r in 0..b {
                    let mut at = 0;
                    for c in 0..n {
                        if x[0][r * n + c] > x[3][0] {
                            kept[r * n + at] += x[0][r * n + c];
                            at += 1;
                        }
                    }
                    count.push(at as f64);
                }
                vec![kept, count]
            });
        }
    }
}

#[test]
fn messages_of_a_graph() {
    for dtype in [F32, Bf16, F16] {
        for (m, e, d) in [(11, 97, 37), (1, 33, 1), (64, 1, 64), (5, 0, 3), (7, 64, 65)] {
            let args = [
                random(dtype, &[m, d]),
                ids(&[e], m, 7919),
                ids(&[e], m, 104_729),
                random(F32, &[e]),
                random(F32, &[m, d]).into_output(),
            ];
            agrees_with(&messages, &args, 1e-5, |x| {
                let mut y = x[4].clone();
                for k in 0..e {
                    if let (Some(s), Some(t)) = (place(x[1][k], m), place(x[2][k], m)) {
                        for c in 0..d {
                            y[t * d + c] += x[3][k] * x[0][s * d + c];
                        }
                    }
                }
                vec![y]
            });
        }
    }
}

#[test]
fn softmaxes_of_segments() {
    for dtype in [F32, Bf16] {
        for (m, e, h) in [(11, 97, 3), (1, 33, 1), (64, 1, 8), (5, 0, 2)] {
            let (s, dst) = (random(dtype, &[e, h]), ids(&[e], m, 7919));
            let args = [s.clone(), dst.clone(), filled(F32, &[m, h], f64::NEG_INFINITY)];
            agrees_with(&segment_most, &args, 0.0, |x| {
                let mut most = x[2].clone();
                for k in 0..e {
                    if let Some(t) = place(x[1][k], m) {
                        for c in 0..h {
                            most[t * h + c] = most[t * h + c].max(x[0][k * h + c]);
                        }
                    }
                }
                vec![most]
            });
            let args = [s, dst, random(F32, &[m, h]), filled(F32, &[m, h], 0.0)];
            agrees_with(&segment_denominators, &args, 1e-5, |x| {
                let mut total = x[3].clone();
                for k in 0..e {
                    if let Some(t) = place(x[1][k], m) {
                        for c in 0..h {
                            total[t * h + c] += (x[0][k * h + c] - x[2][t * h + c]).exp();
                        }
                    }
                }
                vec![total]
            });
        }
    }
}

#[test]
fn degrees_of_a_graph() {
    for (m, e) in [(11, 257), (1, 31), (64, 1), (5, 0)] {
        let args = [ids(&[e], m, 7919), ids(&[e], m, 104_729), filled(I32, &[m], 0.0), filled(I32, &[m], 3.0)];
        agrees_with(&degrees, &args, 0.0, |x| {
            let (mut outward, mut inward) = (x[2].clone(), x[3].clone());
            x[0].iter().filter_map(|&s| place(s, m)).for_each(|s| outward[s] += 1.0);
            x[1].iter().filter_map(|&t| place(t, m)).for_each(|t| inward[t] += 1.0);
            vec![outward, inward]
        });
    }
}

#[test]
fn confusions() {
    for (n, k) in [(257, 7), (31, 1), (1, 3), (0, 2)] {
        let args = [ids(&[n], k, 7919), ids(&[n], k, 31), filled(I32, &[k * k], 0.0), Given::I32(k as i32)];
        agrees_with(&confusion, &args, 0.0, |x| {
            let mut table = x[2].clone();
            for (&t, &g) in x[0].iter().zip(&x[1]) {
                if let (Some(t), Some(g)) = (place(t, k), place(g, k)) {
                    table[t * k + g] += 1.0;
                }
            }
            vec![table]
        });
    }
}

#[test]
fn grids_of_voxels() {
    for dtype in [F32, F16] {
        for (n, d, side) in [(131, 5, 3), (1, 1, 1), (64, 16, 2), (0, 3, 2)] {
            let g = side * side * side;
            let args = [
                // Multiples of 1/16 from -1/4 to above the cube; 2 cells for each unit.
                input(F32, &[n, 3], |i| ((i * 7919) % (8 * side + 9)) as f64 / 16.0 - 0.25),
                random(dtype, &[n, d]),
                filled(F32, &[g, d], 0.0),
                filled(I32, &[g], 0.0),
                Given::F32(2.0),
                Given::I32(side as i32),
            ];
            agrees_with(&voxels, &args, 1e-5, |x| {
                let (mut cells, mut count) = (x[2].clone(), x[3].clone());
                for p in 0..n {
                    let axis = |a: usize| place((x[0][p * 3 + a] * 2.0).floor(), side);
                    if let (Some(i), Some(j), Some(k)) = (axis(0), axis(1), axis(2)) {
                        let cell = (i * side + j) * side + k;
                        count[cell] += 1.0;
                        for c in 0..d {
                            cells[cell * d + c] += x[1][p * d + c];
                        }
                    }
                }
                vec![cells, count]
            });
        }
    }
}

#[test]
fn losses_that_run() {
    for dtype in [F32, Bf16] {
        for (n, d) in [(131, 37), (1, 1), (16, 64), (0, 3)] {
            let mut y = random(dtype, &[n, d]);
            if let Given::In(data) = &mut y {
                data.values.reverse();
            }
            let args = [random(dtype, &[n, d]), y, ids(&[n], 3, 7919), filled(F32, &[2], 1.5)];
            agrees_with(&running_loss, &args, 1e-5, |x| {
                let mut total = x[3].clone();
                for r in 0..n {
                    if x[2][r] >= 0.0 {
                        total[1] += 1.0;
                        total[0] += (0..d).map(|c| (x[0][r * d + c] - x[1][r * d + c]).powi(2)).sum::<f64>();
                    }
                }
                vec![total]
            });
        }
    }
}
