//! The advice of diagnostics about forms of Python and C, applied: the results are the intended ones.
//! dsl/macros/tests/ui has the messages: `forms_of_python_and_c`, `loops_downwards`, `part_and_whole` and `operands_elsewhere`.

use super::{agrees_with, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F32};

atlas_kernel! {
    /// ATL020: a name, a choice, a step, an added axis, a part of a row, and a column of what is computed. ATL107: a row of a tile.
    kernel forms(x: &Tensor<f32, [N, D]>, v: &Tensor<f32, [N]>, w: &Tensor<f32, [E, D]>, y: &mut Tensor<f32, [F, N, D]>, z: &mut Tensor<f32, [N, J]>)
    tune { BN: [8], BD: [4], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let a = load(x[n, ..]);
            let mut b = select(n > 0, a, -a);
            b += 1;
            store(y[0, n, ..], b);
            store(y[1, n, ..], load(v[n]).t() * a + load(w[0, ..]));
            store(z[n, span(0, 3)], load(x[n, span(0, 3)]) * sum(select(iota([BN, D], 1) == 2, exp(a), 0), axis = 1));
            for d in tiles(D, BD) {
                store(y[2, n, d], load(w[0, d]) * load(x[n, d]));
            }
        }
    }

    /// ATL112: loops that go through elements from the last to the first, and what counts down to the lower bound only.
    kernel downwards(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [F]>) {
        for f in grid(F) {
            let mut last_first = 0.0;
            for i in 0..4 { last_first = 0.5 * last_first + load(x[3 - i]); }
            let mut without_the_first = 0.0;
            for i in 0..4 { without_the_first = 0.5 * without_the_first + load(x[4 - i]); }
            let mut of_two = 0.0;
            for i in 2..8 { of_two = 0.5 * of_two + load(x[9 - i]); }
            let mut all = 0.0;
            for i in 0..size(N) { all = 0.5 * all + load(x[size(N) - 1 - i]); }
            store(y[f], select(f == 0, last_first, select(f == 1, without_the_first, select(f == 2, of_two, all))));
        }
    }

    /// ATL105 and ATL021: a product is added up in f32, and converted at its end.
    kernel sums<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [K, N]>, c: &mut Tensor<T, [M, N]>)
    tune { BM: [16], BN: [16], BK: [16], warps: [1] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut sum = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                sum += dot(load(a[m, k]), load(b[k, n]));
            }
            store(c[m, n], sum.cast::<T>() + full::<T>([BM, BN], 1.0));
        }
    }

    /// ATL105, ATL104 and ATL001: a quotient, a mask as a factor, and two comparisons. ATL107: a column that a loop carries.
    kernel operands(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [F, N, D]>, s: &mut Tensor<f32, [N]>)
    tune { BN: [8], BD: [4], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let t = load(x[n, ..]);
            store(y[0, n, ..], t * (1.0 / size(D).cast::<f32>()));
            store(y[1, n, ..], (t > 0.0).cast::<f32>() * t);
            store(y[2, n, ..], select(0.0 < t && t < 0.5, t, 0.0));
            let mut total = zeros::<f32>([BN, 1]);
            for d in tiles(D, BD) { total += sum(load(x[n, d]), axis = 1); }
            store(s[n], total);
        }
    }

    /// ATL001: a dim of which the extent is known. ATL026: a grid of elements.
    kernel three(x: &Tensor<f32, [N, D3]>, y: &mut Tensor<f32, [N]>)
    require { D3 == 3 }
    {
        for n in grid(N) { store(y[n], sum(load(x[n, ..]))); }
    }
}

#[test]
fn forms_of_python_and_c_have_forms_here() {
    let (n, d) = (13, 6);
    let args =
        [random(F32, &[n, d]), random(F32, &[n]), random(F32, &[2, d]), output(F32, &[3, n, d]), output(F32, &[n, 3])];
    agrees_with(&forms, &args, 1e-6, |a| {
        let (x, v, w) = (&a[0], &a[1], &a[2]);
        let each =
            |f: &dyn Fn(usize, usize, f64) -> f64| -> Vec<f64> { (0..n * d).map(|i| f(i / d, i % d, x[i])).collect() };
        let matrices = [
            each(&|r, _, x| if r >= 8 { x + 1.0 } else { 1.0 - x }),
            each(&|r, c, x| v[r] * x + w[c]),
            each(&|_, c, x| w[c] * x),
        ];
        let parts = x.chunks(d).flat_map(|row| row[..3].iter().map(|x| x * row[2].exp()));
        vec![matrices.concat(), parts.collect()]
    });
}

#[test]
fn loops_downwards_have_forms_here() {
    let n = 11;
    agrees_with(&downwards, &[random(F32, &[n]), output(F32, &[4])], 1e-6, |a| {
        let down = |from: usize, to: usize| (to..=from).rev().fold(0.0, |sum, i| 0.5 * sum + a[0][i]);
        vec![vec![down(3, 0), down(4, 1), down(7, 2), down(n - 1, 0)]]
    });
}

#[test]
fn products_and_extents_have_forms_here() {
    let (m, k, n) = (17, 40, 19);
    // One more rounding to bf16 than the plain loop has.
    let args = [random(Bf16, &[m, k]), random(Bf16, &[k, n]), output(Bf16, &[m, n])];
    agrees_with(&sums, &args, 1.0 / 128.0, |a| {
        let product = |i: usize, j: usize| (0..k).map(|l| a[0][i * k + l] * a[1][l * n + j]).sum::<f64>();
        vec![(0..m * n).map(|at| product(at / n, at % n) + 1.0).collect()]
    });
    agrees_with(&three, &[input(F32, &[5, 3], |i| i as f64), output(F32, &[5])], 0.0, |a| {
        vec![a[0].chunks(3).map(|row| row.iter().sum()).collect()]
    });
}

#[test]
fn operands_have_forms_here() {
    let (n, d) = (13, 6);
    agrees_with(&operands, &[random(F32, &[n, d]), output(F32, &[3, n, d]), output(F32, &[n])], 1e-6, |a| {
        let x = &a[0];
        let within = |v: f64| if 0.0 < v && v < 0.5 { v } else { 0.0 };
        let matrices =
            x.iter().map(|v| v / d as f64).chain(x.iter().map(|v| v.max(0.0))).chain(x.iter().map(|&v| within(v)));
        vec![matrices.collect(), x.chunks(d).map(|row| row.iter().sum()).collect()]
    });
}
