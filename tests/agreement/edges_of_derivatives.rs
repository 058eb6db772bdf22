//! Derivatives over ragged tiles: a reduction adds up as many elements of a derivative as the function has.

use super::{agrees_with, input, output, random};
use atlas::dsl::DType::F32;
use atlas::prelude::*;

atlas_kernel! {
    tile fn scale(x) { 3.0 * x }
    tile fn shifted(x, b) { x + b }
    tile fn filled(x) { (x * x).or(2.0) }
    tile fn partly(x, y) { (x * y).or(1.0) + y }
    tile fn bent(x) { grad(scale)(x) * x }
    tile fn bound(x) { max(x, 0.5) }

    /// Slopes that are numbers, or that read less than the function does.
    kernel numbers(x: &Tensor<f32, [N, D]>, b: &Tensor<f32, [D]>, y: &mut Tensor<f32, [F, N]>)
    tune { BN: [8], BD: [16], warps: [1, 2] }
    {
        for n in grid(tiles(N, BN)) {
            let mut a0 = zeros::<f32>([BN, 1]);
            let mut a1 = zeros::<f32>([BN, 1]);
            let mut a2 = zeros::<f32>([BN, 1]);
            let mut a3 = zeros::<f32>([BN, 1]);
            let mut a4 = zeros::<f32>([BN, 1]);
            let mut a5 = zeros::<f32>([BN, 1]);
            for d in tiles(D, BD) {
                let xs = load(x[n, d]);
                let bs = load(b[d]);
                a0 += sum(grad(scale)(xs), axis = 1);
                a1 += sum(jvp(scale)(xs, 1.0), axis = 1);
                let (by_x, by_b) = grad(shifted)(xs, bs);
                a2 += sum(by_x + 2.0 * by_b, axis = 1);
                a3 += sum(grad(floor)(xs) + 1.0, axis = 1);
                a4 += sum(grad(bent)(xs), axis = 1);
                a5 += sum(jvp(bound)(xs, 1.0) + 1.0, axis = 1);
            }
            store(y[0, n], a0);
            store(y[1, n], a1);
            store(y[2, n], a2);
            store(y[3, n], a3);
            store(y[4, n], a4);
            store(y[5, n], a5);
        }
    }

    /// Functions that say what stands past the edge.
    kernel filling(x: &Tensor<f32, [N, D]>, b: &Tensor<f32, [D]>, y: &mut Tensor<f32, [F, N]>)
    tune { BN: [8], BD: [16], warps: [1, 2] }
    {
        for n in grid(tiles(N, BN)) {
            let mut slope = zeros::<f32>([BN, BD]);
            let mut along = zeros::<f32>([BN, BD]);
            let mut places = zeros::<f32>([BN, 1]);
            let mut valid = zeros::<f32>([BN, 1]);
            for d in tiles(D, BD) {
                let xs = load(x[n, d]);
                // Every element is valid, and so the loop may carry them out.
                slope += grad(filled)(xs);
                along += jvp(filled)(xs, xs);
                places += sum(jvp(filled)(xs, 1.0) * 0.0 + 1.0, axis = 1);
                let (by_x, by_b) = grad(partly)(xs, load(b[d]).or(0.25));
                valid += sum(by_x + by_b, axis = 1);
            }
            store(y[0, n], sum(slope, axis = 1));
            store(y[1, n], sum(along, axis = 1));
            store(y[2, n], places);
            store(y[3, n], valid);
        }
    }
}

#[test]
fn a_number_is_valid_where_its_function_is() {
    let (n, d) = (11, 21);
    let args = [random(F32, &[n, d]), random(F32, &[d]), output(F32, &[6, n])];
    agrees_with(&numbers, &args, 1e-6, |a| {
        let rows = || a[0].chunks(d);
        let each = |x: f64| vec![x * d as f64; n];
        let above = rows().map(|r| (d + r.iter().filter(|x| **x > 0.5).count()) as f64).collect();
        vec![[each(3.0), each(3.0), each(3.0), each(1.0), each(3.0), above].concat()]
    });
}

#[test]
fn past_an_or_stands_zero() {
    let (n, d, padded) = (11, 21, 32.0);
    let args = [random(F32, &[n, d]), input(F32, &[d], |i| 0.5 + i as f64 * 0.01), output(F32, &[4, n])];
    agrees_with(&filling, &args, 1e-5, |a| {
        let (x, b) = (&a[0], &a[1]);
        let rows = |f: &dyn Fn(&[f64]) -> f64| x.chunks(d).map(f).collect::<Vec<f64>>();
        let slope = rows(&|r| r.iter().map(|x| 2.0 * x).sum());
        let along = rows(&|r| r.iter().map(|x| 2.0 * x * x).sum());
        // By the second argument x + 1, and 1 past the edge of `x`, where that argument is valid.
        let valid = rows(&|r| r.iter().zip(b).map(|(x, b)| b + x + 1.0).sum::<f64>() + padded - d as f64);
        vec![[slope, along, vec![padded; n], valid].concat()]
    });
}
