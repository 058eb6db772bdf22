//! Tiles of one element: a config determines the size of tiles, never the results.

use super::{Data, Given, agrees, difference, input, noise, output, random, run};
use atlas::prelude::*;
use atlas_dsl::DType::{F32, I32};
use atlas_dsl::{Config, KernelDef};

/// Fails if a kernel differs from a plain loop on the CPU in any config, or on simulated GPUs in some.
#[track_caller]
fn same_in_every_config(kernel: &'static KernelDef, given: &[Given], plain: impl Fn(&[Vec<f64>]) -> Vec<f64>) {
    let of = |g: &Given| match g {
        Given::In(Data { values, .. }) | Given::Out(Data { values, .. }) => values.clone(),
        Given::F32(x) => vec![f64::from(*x)],
        Given::I32(x) => vec![f64::from(*x)],
        Given::I64(x) => vec![*x as f64],
    };
    let wanted = plain(&given.iter().map(of).collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for config in kernel.configs() {
        match run(kernel, &Device::cpu(), Some(&config), given) {
            Err(e) => wrong.push(format!("{config}: {e}")),
            Ok(found) => {
                let (d, i) = difference(&found[0], &wanted);
                if d > 1e-5 {
                    wrong.push(format!("{config}: {} for {} at {i}", found[0][i], wanted[i]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}: {}", kernel.name, wrong.join("\n"));
    agrees(kernel, given, 1e-5);
}

/// A multiple of 1/8, which f32 represents exactly, as it does sums of a few.
fn eighths(shape: &[usize]) -> Given {
    let salt = shape.len();
    input(F32, shape, |i| (noise(i + salt) * 16.0).round() / 8.0)
}

atlas_kernel! {
    /// The previous element, as a column. Row 0 gets 5.
    kernel column_before(x: &Tensor<f32, [N, D]>, b: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [1, 2, 4, 16], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let before = load(b[span(n * BN - 1, BN)]).t().or(5.0);
            store(y[n, ..], load(x[n, ..]) + before);
        }
    }

    /// The same in tiles along both axes, and the next element of a row.
    kernel cross_of_neighbours(x: &Tensor<f32, [N, D]>, b: &Tensor<f32, [N]>, c: &Tensor<f32, [D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [4, 1], BD: [8, 1], warps: [1] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let column = (load(b[span(n * BN - 1, BN)]).t() * 2.0).or(-3.0);
            let row = load(c[span(d * BD + 1, BD)]).or(7.0);
            store(y[n, d], load(x[n, d]) * column + row);
        }
    }

    /// A reduction of a column that may be out of range: it then adds nothing.
    kernel folded_column(b: &Tensor<f32, [N]>, y: &mut Tensor<f32, [M]>)
    tune { BN: [1, 2, 8], warps: [1] }
    {
        for m in grid(M) {
            let mut most = full::<f32>([1, 1], -100.0);
            for n in tiles(N, BN) {
                let both = load(b[n]).t() + load(b[span(n * BN + 1, BN)]).t();
                most = max(most, max(exp(both) - 2.0, axis = 0));
            }
            store(y[m], max(most) + m.cast::<f32>());
        }
    }

    /// A row and a column of the same tile: a reduction must keep track of the axes.
    kernel folds_of_columns(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [D]>)
    tune { BD: [1, 2, 8], warps: [1] }
    {
        for d in grid(tiles(D, BD)) {
            let next = load(x[.., span(d * BD + 1, BD)]).or(0.5);
            store(y[d], max(load(x[.., d]) * next, axis = 0));
        }
    }

    /// A partial derivative by a tile that is passed twice.
    kernel slope_of_twice(b: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [1, 4], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let v = load(b[span(n * BN - 1, BN)]);
            let (by_first, by_second) = grad(product)(v, v);
            store(y[n], by_first.or(3.0) + by_second.or(0.25));
        }
    }

    tile fn product(a, b) { a * b * b }

    /// A product of columns and rows that may be out of range.
    kernel outer(b: &Tensor<f32, [N]>, c: &Tensor<f32, [D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [16, 1], BD: [16, 1, 3], warps: [1] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let column = load(b[span(n * BN - 1, BN)]).t();
            let row = broadcast(load(c[span(d * BD - 1, BD)]), [1, BD]);
            store(y[n, d], dot(column, row).or(9.0));
        }
    }

    /// Whole numbers, and a condition on a column.
    kernel chosen_column(x: &Tensor<i32, [N, D]>, b: &Tensor<i32, [N]>, y: &mut Tensor<i32, [N, D]>)
    tune { BN: [1, 2, 4], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let before = load(b[span(n * BN - 1, BN)]).t().or(1);
            store(y[n, ..], select(before > 0, load(x[n, ..]), before));
        }
    }
}

fn before(b: &[f64], i: usize, other: f64) -> f64 {
    i.checked_sub(1).map_or(other, |i| b[i])
}

fn after(b: &[f64], i: usize, other: f64) -> f64 {
    b.get(i + 1).copied().unwrap_or(other)
}

#[test]
fn a_column_of_one_element_keeps_its_edge() {
    let given = [eighths(&[7, 8]), eighths(&[7]), output(F32, &[7, 8])];
    same_in_every_config(&column_before, &given, |a| (0..56).map(|i| a[0][i] + before(&a[1], i / 8, 5.0)).collect());
    let given = [eighths(&[7, 13]), eighths(&[7]), eighths(&[13]), output(F32, &[7, 13])];
    same_in_every_config(&cross_of_neighbours, &given, |a| {
        let column = |n: usize| n.checked_sub(1).map_or(-3.0, |n| a[1][n] * 2.0);
        (0..91).map(|i| a[0][i] * column(i / 13) + after(&a[2], i % 13, 7.0)).collect()
    });
    let given = [
        input(I32, &[5, 4], |i| i as f64 - 9.0),
        input(I32, &[5], |i| [0.0, 3.0, -2.0, 1.0, 4.0][i]),
        output(I32, &[5, 4]),
    ];
    same_in_every_config(&chosen_column, &given, |a| {
        let chosen = |i: usize, b: f64| if b > 0.0 { a[0][i] } else { b };
        (0..20).map(|i| chosen(i, before(&a[1], i / 4, 1.0))).collect()
    });
}

#[test]
fn folds_and_products_leave_out_what_is_not_valid() {
    let given = [eighths(&[9]), output(F32, &[2])];
    same_in_every_config(&folded_column, &given, |a| {
        let both = a[0].windows(2).map(|w| (w[0] + w[1]).exp() - 2.0).fold(-100.0, f64::max);
        vec![both, both + 1.0]
    });
    let given = [eighths(&[3, 9]), output(F32, &[9])];
    same_in_every_config(&folds_of_columns, &given, |a| {
        let at = |n: usize, d: usize| a[0][n * 9 + d] * if d == 8 { 0.5 } else { a[0][n * 9 + d + 1] };
        (0..9).map(|d| (0..3).map(|n| at(n, d)).fold(f64::NEG_INFINITY, f64::max)).collect()
    });
    let given = [eighths(&[5]), eighths(&[7]), output(F32, &[5, 7])];
    same_in_every_config(&outer, &given, |a| {
        let at = |n: usize, d: usize| if n == 0 || d == 0 { 9.0 } else { a[0][n - 1] * a[1][d - 1] };
        (0..35).map(|i| at(i / 7, i % 7)).collect()
    });
}

#[test]
fn a_tile_that_is_given_twice_keeps_its_edge() {
    let given = [random(F32, &[6]), output(F32, &[6])];
    same_in_every_config(&slope_of_twice, &given, |a| {
        let b = |i: usize| f64::from(a[0][i] as f32);
        (0_usize..6).map(|n| n.checked_sub(1).map_or(3.25, |n| b(n) * b(n) + 2.0 * b(n) * b(n))).collect()
    });
}

/// Configs outside the tune space behave like any other.
#[test]
fn any_size_of_a_tile_will_do() {
    let given = [eighths(&[7, 8]), eighths(&[7]), output(F32, &[7, 8])];
    let cpu = Device::cpu();
    let wanted = run(&column_before, &cpu, None, &given).unwrap();
    for size in [1, 3, 5, 7, 9] {
        let config: Config = format!("BN={size} stages=2 warps=1").parse().unwrap();
        assert_eq!(run(&column_before, &cpu, Some(&config), &given).unwrap(), wanted, "BN={size}");
    }
}
