//! The advice of diagnostics, applied: the results are the intended ones. dsl/macros/tests/ui/advice.rs has the
//! messages.

use super::{agrees_with, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F32, I32};

atlas_kernel! {
    /// ATL226: values past the edge that do not change the carried value.
    kernel carried(x: &Tensor<f32, [N, D]>, i: &Tensor<i32, [N, D]>, y: &mut Tensor<f32, [F, N]>, j: &mut Tensor<i32, [N]>)
    tune { BN: [8], BD: [16], warps: [1, 2] }
    {
        for n in grid(tiles(N, BN)) {
            let mut greatest = full::<f32>([BN, BD], f32::NEG_INFINITY);
            let mut lowest = full::<f32>([BN, BD], f32::INFINITY);
            let mut least = full::<i32>([BN, BD], 2147483647);
            let mut highest = full::<i32>([BN, BD], -2147483648);
            let mut product = full::<f32>([BN, BD], 1.0);
            let mut powers = zeros::<f32>([BN, BD]);
            let mut turned = zeros::<f32>([BD, BN]);
            for d in tiles(D, BD) {
                greatest = max(load(x[n, d]).or(f32::NEG_INFINITY), greatest);
                lowest = min(lowest, load(x[n, d]).or(f32::INFINITY));
                least = min(least, load(i[n, d]).or(2147483647));
                highest = max(highest, load(i[n, d]).or(-2147483648));
                product *= load(x[n, d]).or(1.0);
                powers += (exp(load(x[n, d]))).or(0.0);
                turned += load(x[n, d]).or(0.0).t();
            }
            store(y[0, n], max(greatest, axis = 1));
            store(y[1, n], min(lowest, axis = 1));
            // A product over all columns, by halves.
            store(y[2, n], exp(sum(log(product), axis = 1)));
            store(y[3, n], sum(powers, axis = 1));
            store(y[4, n], sum(turned, axis = 0).t());
            store(j[n], min(least, axis = 1) + max(highest, axis = 1));
        }
    }

    /// ATL111 and ATL105: whole numbers stay exact where an f32 does not.
    kernel counts(x: &Tensor<f32, [N]>, start: i32, c: &mut Tensor<i32, [F, N]>)
    tune { BN: [32], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut count = 0.cast::<i32>();
            for _ in 0..3 {
                count += 1;
            }
            store(c[0, n], broadcast(count + start, [BN]));
            store(c[1, n], broadcast(sum(select(load(x[n]) > 0.0, 1, 0.cast::<i32>())) + start, [BN]));
        }
    }

    /// ATL105: 16-bit floats represent few whole numbers.
    kernel short<T: Float>(x: &Tensor<T, [N]>, i: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 64)) {
            store(y[n], load(x[n]).cast::<f32>() * load(i[n]).cast::<f32>());
        }
    }

    /// ATL119: the next tile.
    kernel after(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [16], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[span((n + 1) * BN, BN)]).or(0.0) - load(x[n]));
        }
    }

    /// ATL119: a list of starts, which has one more element than there are rows.
    kernel listed(starts: &Tensor<i32, [P]>, x: &Tensor<f32, [E]>, y: &mut Tensor<f32, [R]>)
    tune { warps: [1] }
    {
        for r in grid(R) {
            let mut total = 0.0;
            for e in load(starts[r + 0])..load(starts[r + 1]) {
                total += load(x[e]);
            }
            store(y[r], total);
        }
    }

    /// ATL005: the index of the greatest and the least element of a row: the first of several, or the first NaN.
    kernel places(x: &Tensor<f32, [N, D]>, y: &mut Tensor<i32, [F, N]>)
    tune { BN: [4], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let x = load(x[n, ..]);
            store(y[0, n], min(select(x == max(x, axis = 1) || x != x, iota([BN, D], 1), size(D)), axis = 1));
            store(y[1, n], min(select(x == min(x, axis = 1) || x != x, iota([BN, D], 1), size(D)), axis = 1));
        }
    }

    /// ATL227: the previous element, which the first element does not have, for whole numbers.
    kernel before_of_whole(x: &Tensor<i32, [N]>, y: &mut Tensor<i32, [F, N]>) {
        for n in grid(tiles(N, 64)) {
            store(y[0, n], max(load(x[span(n * 64 - 1, 64)]).or(-2147483648), load(x[n])));
            store(y[1, n], load(x[span(n * 64 - 1, 64)]).or(0) + load(x[n]));
            store(y[2, n], load(x[span(n * 64 - 1, 64)]).or(1) * load(x[n]));
        }
    }

    /// ATL227: the previous element, which the first element does not have.
    kernel before(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [F, N]>) {
        for n in grid(tiles(N, 64)) {
            store(y[0, n], max(load(x[span(n * 64 - 1, 64)]).or(f32::NEG_INFINITY), load(x[n])));
            store(y[1, n], load(x[span(n * 64 - 1, 64)]).or(0.0) + load(x[n]));
            store(y[2, n], load(x[span(n * 64 - 1, 64)]).or(1.0) * load(x[n]));
        }
    }
}

#[test]
fn what_stands_past_an_edge_leaves_what_is_carried() {
    let (n, d) = (11, 21);
    let args = [
        // Negative and positive numbers, alternating by rows.
        input(F32, &[n, d], |i| (0.5 + i as f64 * 0.002) * if i / d % 2 == 0 { 1.0 } else { -1.0 }),
        input(I32, &[n, d], |i| (1000.0 + i as f64) * if i / d % 2 == 0 { 1.0 } else { -1.0 }),
        output(F32, &[5, n]),
        output(I32, &[n]),
    ];
    agrees_with(&carried, &args, 1e-5, |a| {
        let rows = |f: &dyn Fn(&[f64]) -> f64| a[0].chunks(d).map(f).collect::<Vec<f64>>();
        let halves = |r: &[f64]| {
            let columns = (0..16).map(|c| if c + 16 < d { r[c] * r[c + 16] } else { r[c] });
            columns.map(f64::ln).sum::<f64>().exp()
        };
        let ends = |r: &[f64]| r.iter().copied().fold(f64::MAX, f64::min) + r.iter().copied().fold(f64::MIN, f64::max);
        let floats = [
            rows(&|r| r.iter().copied().fold(f64::MIN, f64::max)),
            rows(&|r| r.iter().copied().fold(f64::MAX, f64::min)),
            rows(&halves),
            rows(&|r| r.iter().map(|x| x.exp()).sum()),
            rows(&|r| r.iter().sum()),
        ];
        vec![floats.concat(), a[1].chunks(d).map(ends).collect()]
    });
}

#[test]
fn counts_are_whole_numbers() {
    let start = 1 << 24;
    let args = [random(F32, &[50]), super::Given::I32(start), output(I32, &[2, 50])];
    agrees_with(&counts, &args, 0.0, |a| {
        let start = f64::from(start);
        let above = |tile: &[f64]| vec![start + tile.iter().filter(|x| **x > 0.0).count() as f64; tile.len()];
        vec![[vec![start + 3.0; 50], a[0].chunks(32).flat_map(above).collect()].concat()]
    });
}

#[test]
fn whole_numbers_do_not_pass_sixteen_bits() {
    let args = [random(Bf16, &[100]), input(I32, &[100], |i| 70_001.0 + i as f64), output(F32, &[100])];
    agrees_with(&short, &args, 1e-6, |a| vec![a[0].iter().zip(&a[1]).map(|(x, i)| x * i).collect()]);
}

#[test]
fn the_element_before_the_first_is_left_out() {
    let args = [input(F32, &[100], |i| -1.0 - i as f64 * 0.01), output(F32, &[3, 100])];
    agrees_with(&before, &args, 1e-6, |a| {
        let x = &a[0];
        let each = |f: &dyn Fn(f64, f64) -> f64, first: f64| -> Vec<f64> {
            (0..x.len()).map(|i| f(if i == 0 { first } else { x[i - 1] }, x[i])).collect()
        };
        vec![[each(&f64::max, f64::MIN), each(&|a, b| a + b, 0.0), each(&|a, b| a * b, 1.0)].concat()]
    });
}

#[test]
fn a_place_is_an_element_and_not_a_tile() {
    let args = [random(F32, &[50]), output(F32, &[50])];
    agrees_with(&after, &args, 1e-6, |a| {
        let x = &a[0];
        vec![(0..x.len()).map(|i| x.get(i + 16).copied().unwrap_or(0.0) - x[i]).collect()]
    });
    let starts = [0.0, 3.0, 3.0, 7.0, 9.0];
    let args = [input(I32, &[5], |i| starts[i]), random(F32, &[9]), output(F32, &[4])];
    agrees_with(&listed, &args, 1e-6, |a| {
        let ends: Vec<usize> = a[0].iter().map(|&s| s as usize).collect();
        vec![ends.windows(2).map(|w| a[1][w[0]..w[1]].iter().sum()).collect()]
    });
}

#[test]
fn functions_of_other_languages_are_right_at_the_ends() {
    let rows = [[3.0, 1.0, 3.0], [f64::NAN, 2.0, 1.0], [5.0, f64::NAN, f64::NAN], [2.0, 1.0, 1.0], [0.0, -0.0, 0.0]];
    let args = [input(F32, &[5, 3], |i| rows[i / 3][i % 3]), output(I32, &[2, 5])];
    agrees_with(&places, &args, 0.0, |_| vec![vec![0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]]);
}

#[test]
fn the_whole_number_before_the_first_is_left_out() {
    let args = [input(I32, &[100], |i| -1.0 - i as f64), output(I32, &[3, 100])];
    agrees_with(&before_of_whole, &args, 0.0, |a| {
        let x = &a[0];
        let each = |f: fn(f64, f64) -> f64, first: f64| -> Vec<f64> {
            (0..x.len()).map(|i| f(if i == 0 { first } else { x[i - 1] }, x[i])).collect()
        };
        vec![[each(f64::max, f64::MIN), each(|a, b| a + b, 0.0), each(|a, b| a * b, 1.0)].concat()]
    });
}
