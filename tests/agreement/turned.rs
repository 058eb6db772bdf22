//! Tensors that are contiguous along another axis than their last one, as transposed views are: operands of products are loaded with
//! that axis last.

use super::{agrees, agrees_on_hopper, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// The README's product.
    kernel product<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64, 128], BN: [64, 128], BK: [64, 32], stages: [3, 1], warps: [4, 8] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// A sum that is stored on both sides of the diagonal, and multiplied by another one that an iteration transposes too.
    kernel both_ways<T: Float>(x: &Tensor<T, [M, K]>, y: &mut Tensor<f32, [M, M]>, z: &mut Tensor<f32, [M, M]>)
    tune { stages: [2, 3, 1], warps: [4, 2], products: [auto, warps] }
    {
        for (i, j) in grid(tiles(M, 64), tiles(M, 64)) {
            let mut acc = zeros::<f32>([64, 64]);
            let mut turned = zeros::<f32>([64, 64]);
            for k in pipeline(tiles(K, 32)) {
                let product = dot(load(x[i, k]).or(0.0), load(x[j, k]).or(0.0).t());
                acc += product;
                turned = turned.t() * 0.5 + product;
            }
            store(y[j, i], acc.t() + acc.t() * acc.t());
            store(z[i, j], acc + turned.t());
        }
    }

    /// Products of batches, of tensors with three axes; the batch may be the last one in memory.
    kernel batches<T: Float>(a: &Tensor<T, [B, M, K]>, b: &Tensor<T, [B, K, N]>, y: &mut Tensor<f32, [B, M, N]>)
    tune { stages: [2], warps: [4] }
    {
        for (i, m, n) in grid(B, tiles(M, 64), tiles(N, 64)) {
            let mut acc = zeros::<f32>([64, 64]);
            for k in pipeline(tiles(K, 32)) {
                acc += dot(load(a[i, m, k]), load(b[i, k, n]));
            }
            store(y[i, m, n], acc);
        }
    }

    /// One tensor that a product and a sum read, and one that is whole along an axis.
    kernel read_twice<T: Float>(a: &Tensor<T, [M, D]>, b: &Tensor<T, [N, D]>, y: &mut Tensor<f32, [M, N]>)
    tune { warps: [4, 2] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 32)) {
            let rows = load(a[m, ..]);
            store(y[m, n], dot(rows, load(b[n, ..]).t()) + sum(rows.cast::<f32>(), axis = 1));
        }
    }

    /// A tensor that two loads turn, one tile by one and one row by row.
    kernel rows_and_tiles<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { stages: [2, 1], warps: [4] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            let mut acc = zeros::<f32>([64, 64]);
            for k in pipeline(0..(size(K) + 63) / 64) {
                acc += dot(load(a[m, span(k * 64, 64)]), load(b[n, span(k * 64, 64)]).t());
            }
            store(y[m, n], acc);
        }
    }
}

#[test]
fn operands_of_any_layout_multiply() {
    for (m, n, k) in [(72, 136, 200), (70, 65, 33), (64, 64, 0)] {
        for (a_turned, b_turned) in [(true, true), (false, true), (true, false)] {
            let turn = |g: super::Given, turned: bool| if turned { g.by_columns() } else { g };
            let given = |dtype| {
                let (a, b) = (random(dtype, &[m, k]), random(dtype, &[n, k]));
                [turn(a, a_turned), turn(b, b_turned), output(F32, &[m, n])]
            };
            agrees_on_hopper(&product, &given(Bf16), 1e-5);
            agrees(&rows_and_tiles, &given(F16), 1e-5);
            if (m, n) == (72, 136) {
                agrees(&product, &given(Bf16), 1e-5);
                agrees(&product, &given(F32), 2e-3);
            }
        }
    }
}

#[test]
fn views_into_wider_tensors_multiply() {
    let given = |before, after| {
        let (a, b) = (random(Bf16, &[72, 96]).within(before, after), random(Bf16, &[80, 96]).within(before, after));
        [a.by_columns(), b.by_columns(), output(F32, &[72, 80])]
    };
    // The engine takes the second alone.
    agrees(&product, &given(3, 2), 1e-5);
    agrees(&product, &given(8, 8), 1e-5);
}

#[test]
fn batches_of_any_layout_multiply() {
    for (m, n, k) in [(72, 80, 96), (65, 33, 40)] {
        let (a, b) = (random(Bf16, &[3, m, k]), random(Bf16, &[3, k, n]));
        agrees(&batches, &[a.clone().by_columns(), b.clone().by_columns(), output(F32, &[3, m, n])], 1e-5);
        agrees(&batches, &[a, b.by_columns(), output(F32, &[3, m, n])], 1e-5);
    }
}

#[test]
fn other_readers_see_the_same_tile() {
    for (m, n) in [(72, 40), (65, 33)] {
        let (a, b) = (random(Bf16, &[m, 64]), random(Bf16, &[n, 64]));
        agrees(&read_twice, &[a.by_columns(), b.by_columns(), output(F32, &[m, n])], 1e-4);
    }
}

/// Both operands of the first product are copied in 16-byte chunks of memory, and its products are asynchronous where they may be.
#[test]
fn turned_operands_are_fast() {
    let device = Device::sim("sm_90a").unwrap();
    let tensor = |shape: &[usize]| Tensor::zeros(&device, Bf16, shape).unwrap().transpose(0, 1).unwrap();
    let (a, b) = (tensor(&[256, 128]), tensor(&[256, 128]));
    let mut y = Tensor::zeros(&device, F32, [128, 128]).unwrap();
    let launch = product.prepare(&device, args![&a, &b, &mut y]).unwrap();
    let image = launch.image().unwrap();
    assert!(image.ptx.contains("wgmma.mma_async"));
    assert_eq!(image.maps.iter().map(|m| m.axes[0].axis).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn sums_are_transposed_behind_their_loop() {
    for (m, k) in [(64, 128), (100, 72), (130, 0)] {
        let given = [random(Bf16, &[m, k]), output(F32, &[m, m]), output(F32, &[m, m])];
        agrees(&both_ways, &given, 3e-2);
        agrees_on_hopper(&both_ways, &given, 3e-2);
    }
}
