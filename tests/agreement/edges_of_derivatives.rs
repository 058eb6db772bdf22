//! Derivatives over ragged tiles: a reduction sums as many elements of a derivative as of the function.

use super::{agrees_with, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::F32;

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

    /// Functions that define the elements past the edge.
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
                // Every element is valid, so the loop may carry them out.
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
        // The derivative by the second argument is x + 1, or 1 past the edge of `x`, where that argument is valid.
        let valid = rows(&|r| r.iter().zip(b).map(|(x, b)| b + x + 1.0).sum::<f64>() + padded - d as f64);
        vec![[slope, along, vec![padded; n], valid].concat()]
    });
}

atlas_kernel! {
    tile fn keep(x) { x.or(0.0) }
    tile fn kept_product(x, y) { (x * y).or(2.0) * y }

    /// Whole rows with a tangent shifted by one element, whose last element is invalid.
    kernel tangents(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>, z: &mut Tensor<f32, [N, D]>)
    tune { BN: [4, 1, 3] }
    {
        for n in grid(tiles(N, BN)) {
            let v = load(x[n, ..]);
            let w = load(x[n, span(1, D)]);
            store(y[n], sum(jvp(keep)(v, w) + 1.0, axis = 1));
            store(z[n, ..], jvp(keep)(v, w).or(50.0));
        }
    }

    /// A tangent from another tensor with the argument's edge, which the loop carries out, and a shifted one.
    kernel ragged(x: &Tensor<f32, [N, D]>, t: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [F, N]>)
    tune { BN: [4, 1, 3], BD: [8, 1, 16] }
    {
        for n in grid(tiles(N, BN)) {
            let mut same = zeros::<f32>([BN, BD]);
            let mut moved = zeros::<f32>([BN, 1]);
            let mut products = zeros::<f32>([BN, 1]);
            for d in tiles(D, BD) {
                let xs = load(x[n, d]);
                same += jvp(keep)(xs, load(t[n, d]));
                let next = load(t[n, span(d * BD + 1, BD)]);
                moved += sum(jvp(keep)(xs, next) + 1.0, axis = 1);
                products += sum(jvp(kept_product)(xs, load(t[n, d]), next, 1.0) + 1.0, axis = 1);
            }
            store(y[0, n], sum(same, axis = 1));
            store(y[1, n], moved);
            store(y[2, n], products);
        }
    }

    /// Past the rows, which both have, the value is 0. Past the tangent's columns there is none.
    kernel of_both_kinds(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [G]>)
    {
        for g in grid(G) {
            store(y[g], sum(jvp(keep)(load(x[span(0, 8), span(0, 16)]), load(x[span(0, 8), span(1, 16)])) + 1.0));
        }
    }

    /// Stores a value that was not computed.
    kernel uncomputed(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(N) {
            store(y[n], jvp(keep)(load(x[span(n, 1)]), load(x[span(n + 1, 1)])));
        }
    }
}

#[test]
fn an_or_says_nothing_of_a_tangent() {
    for (n, d) in [(1, 4), (7, 9), (5, 1)] {
        let args = [random(F32, &[n, d]), output(F32, &[n]), output(F32, &[n, d])];
        agrees_with(&tangents, &args, 1e-6, |a| {
            let sums = a[0].chunks(d).map(|r| r[1..].iter().map(|x| x + 1.0).sum()).collect();
            let along = a[0].chunks(d).flat_map(|r| r[1..].iter().copied().chain([50.0])).collect();
            vec![sums, along]
        });
    }
    for (n, d) in [(7, 21), (5, 1), (4, 16)] {
        let args = [random(F32, &[n, d]), input(F32, &[n, d], |i| 0.5 + i as f64 * 0.01), output(F32, &[3, n])];
        agrees_with(&ragged, &args, 1e-5, |a| {
            let rows = |f: &dyn Fn(&[f64], &[f64]) -> f64| {
                a[0].chunks(d).zip(a[1].chunks(d)).map(|(x, t)| f(x, t)).collect::<Vec<f64>>()
            };
            let same = rows(&|_, t| t.iter().sum());
            let moved = rows(&|_, t| t[1..].iter().map(|t| t + 1.0).sum());
            let products = rows(&|x, t| (0..d - 1).map(|j| t[j + 1] * t[j] * t[j] + 2.0 * x[j] * t[j] + 1.0).sum());
            vec![[same, moved, products].concat()]
        });
    }
    let (n, d) = (5, 9);
    agrees_with(&of_both_kinds, &[random(F32, &[n, d]), output(F32, &[1])], 1e-6, |a| {
        vec![vec![a[0].chunks(d).flat_map(|r| &r[1..]).sum::<f64>() + 8.0 * (d - 1) as f64]]
    });
    let cpu = Device::cpu();
    let x = Tensor::zeros(&cpu, F32, [4]).unwrap();
    let mut y = Tensor::zeros(&cpu, F32, [4]).unwrap();
    let refused = uncomputed.launch(&cpu, args!(&x, &mut y)).unwrap_err().to_string();
    assert!(refused.contains("ATL227"), "{refused}");
}
