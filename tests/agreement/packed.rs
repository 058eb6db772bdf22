//! Packed operands: copies that the engine takes, and split numbers.

use super::{Given, agrees, agrees_on_hopper, input, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// Rows of any pitch.
    kernel product<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<T, [M, N]>)
    tune { BM: [64, 128], BN: [64, 128], BK: [64, 32], stages: [3, 2], warps: [4, 8], operands: [packed, direct] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc.cast::<T>());
        }
    }

    /// Operands along M and N, in groups, one of them shared, with a tile beside the sum.
    kernel grouped(
        a: &Tensor<bf16, [G, K, M]>,
        b: &Tensor<bf16, [K, N]>,
        r: &Tensor<bf16, [G, M, N]>,
        y: &mut Tensor<bf16, [G, M, N]>,
    )
    tune { BM: [64], BN: [64, 128], stages: [3], warps: [4, 8], split_k: [1, 2], operands: [packed] }
    {
        for (g, m, n) in grid(G, tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, 32)) {
                acc += dot(load(a[g, k, m]).t(), load(b[k, n]));
            }
            store(y[g, m, n], (acc + load(r[g, m, n]).cast::<f32>()).cast::<bf16>());
        }
    }

    /// Split numbers, of one operand along K and of one along N.
    kernel in_bf16x3(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64, 128], BN: [64], BK: [32, 64], stages: [3, 2], warps: [4, 8], operands: [packed] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[k, n])).precision(bf16x3);
            }
            store(y[m, n], acc);
        }
    }

    kernel in_tf32x3(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64], BN: [64, 128], BK: [32], stages: [3, 2], warps: [4, 8], operands: [packed] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[k, n])).precision(tf32x3);
            }
            store(y[m, n], acc);
        }
    }

    /// tf32 along M and N, which wgmma takes along K alone.
    kernel in_tf32(a: &Tensor<f32, [K, M]>, b: &Tensor<f32, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64], BN: [64, 128], stages: [3], warps: [4, 8], operands: [packed] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, 32)) {
                acc += dot(load(a[k, m]).t(), load(b[k, n])).precision(tf32);
            }
            store(y[m, n], acc);
        }
    }

    /// One tensor as both operands, and read beside the product too.
    kernel squared(x: &Tensor<f32, [M, K]>, y: &mut Tensor<f32, [M, M]>, s: &mut Tensor<f32, [M, M]>)
    tune { stages: [2], warps: [4], operands: [packed] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(M, 64)) {
            let mut acc = zeros::<f32>([64, 64]);
            let mut sums = zeros::<f32>([64, 64]);
            for k in pipeline(tiles(K, 32)) {
                let left = load(x[m, k]);
                acc += dot(left, load(x[n, k]).t()).precision(bf16x3);
                sums += sum(left, axis = 1);
            }
            store(y[m, n], acc);
            store(s[m, n], sums);
        }
    }
}

/// Relative errors of each term of a product, and of sums in f32.
const OF_BF16X3: f64 = 3.0 / (1 << 16) as f64;
const OF_TF32X3: f64 = 3.0 / (1 << 22) as f64;
const OF_TF32: f64 = 1.0 / (1 << 9) as f64;
const OF_SUMS: f64 = 2e-6;

#[test]
fn rows_of_any_pitch() {
    for (m, n, k) in [(70, 72, 300), (64, 66, 75), (129, 100, 67), (1, 3, 5), (20, 30, 0), (0, 4, 8)] {
        for dtype in [Bf16, F16] {
            agrees_on_hopper(&product, &[random(dtype, &[m, k]), random(dtype, &[n, k]), output(dtype, &[m, n])], 2e-2);
        }
    }
    // A view whose address and pitch are odd numbers of elements, and one by columns.
    let given = [
        random(Bf16, &[70, 64]).within(1, 2),
        random(Bf16, &[66, 64]).within(0, 3).by_columns(),
        output(Bf16, &[70, 66]).within(3, 2),
    ];
    agrees_on_hopper(&product, &given, 2e-2);
    // Other targets pack nothing.
    agrees(&product, &[random(Bf16, &[33, 75]), random(Bf16, &[40, 75]), output(Bf16, &[33, 40])], 2e-2);
}

#[test]
fn groups_of_transposed_operands() {
    for (g, m, n, k) in [(2, 70, 66, 100), (1, 65, 131, 33), (3, 4, 6, 7)] {
        let given =
            [random(Bf16, &[g, k, m]), random(Bf16, &[k, n]), random(Bf16, &[g, m, n]), output(Bf16, &[g, m, n])];
        agrees_on_hopper(&grouped, &given, 2e-2);
    }
}

#[test]
fn split_numbers() {
    for (m, n, k) in [(70, 72, 200), (65, 63, 33), (1, 8, 0), (128, 64, 64)] {
        let given = |f: &dyn Fn(usize) -> f64| {
            [input(F32, &[m, k], f), input(F32, &[k, n], |i| noise(i + 7)), output(F32, &[m, n])]
        };
        agrees_on_hopper(&in_bf16x3, &given(&noise), 8.0 * OF_BF16X3 + OF_SUMS);
        agrees_on_hopper(&in_tf32x3, &given(&noise), 8.0 * OF_TF32X3 + OF_SUMS);
        // Of all magnitudes that have a product.
        let wide = |i: usize| noise(i) * 2_f64.powi((i % 7) as i32 * 30 - 60);
        agrees_on_hopper(&in_bf16x3, &given(&wide), 8.0 * OF_BF16X3 + OF_SUMS);
        agrees_on_hopper(&in_tf32x3, &given(&wide), 8.0 * OF_TF32X3 + OF_SUMS);
        let given = [random(F32, &[k, m]), random(F32, &[k, n]), output(F32, &[m, n])];
        agrees_on_hopper(&in_tf32, &given, 8.0 * OF_TF32 + OF_SUMS);
        let given: [Given; 3] = [random(F32, &[m, k]), output(F32, &[m, m]), output(F32, &[m, m])];
        agrees_on_hopper(&squared, &given, 8.0 * OF_BF16X3 + OF_SUMS);
    }
}

/// The product of a split number and 1, on the simulator with a config.
fn times_one(kernel: &'static KernelDef, config: &str, x: f32) -> f32 {
    let device = Device::sim("sm_90a").unwrap();
    let mut numbers = vec![0_f32; 64 * 32];
    numbers[0] = x;
    let mut ones = vec![0_f32; 32 * 64];
    ones[0] = 1.0;
    let a = device.tensor_from(&numbers, [64, 32]).unwrap();
    let b = device.tensor_from(&ones, [32, 64]).unwrap();
    let mut y = Tensor::zeros(&device, F32, [64, 64]).unwrap();
    kernel.launch_with(&device, &config.parse().unwrap(), atlas::args!(&a, &b, &mut y)).unwrap();
    y.to_vec::<f32>().unwrap()[0]
}

#[test]
fn numbers_without_a_rest_stay_what_they_are() {
    let (packed, direct) = ("BK=32 stages=2 operands=packed", "BK=32 stages=2 operands=direct");
    for kernel in [&in_bf16x3, &in_tf32x3] {
        for x in [0.0, 1.0, -3.5, 2_f32.powi(126), -2_f32.powi(-126)] {
            assert_eq!(times_one(kernel, packed, x), x, "{}", kernel.name);
        }
        for x in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 3.402e38] {
            let (packed, direct) = (times_one(kernel, packed, x), times_one(kernel, direct, x));
            assert!(packed == direct || packed.is_nan() && direct.is_nan(), "{}: {packed} {direct}", kernel.name);
        }
    }
    // The largest number whose parts are finite, and ones with all bits set.
    for x in [3.38e38_f32, 1.999_999_9, -1.234_567_9e-20] {
        assert!((f64::from(times_one(&in_tf32x3, packed, x)) / f64::from(x) - 1.0).abs() <= OF_TF32X3);
        assert!((f64::from(times_one(&in_bf16x3, packed, x)) / f64::from(x) - 1.0).abs() <= OF_BF16X3);
    }
}

/// True if the cost model packs the operands of an M x N x K product.
fn is_packed(def: &'static KernelDef, [m, n, k]: [usize; 3]) -> bool {
    let device = Device::sim("sm_90a").unwrap();
    let tensor = |dtype, shape: [usize; 2]| Tensor::empty(&device, dtype, shape).unwrap();
    let dtype = if std::ptr::eq(def, &atlas::ops::matmul) { Bf16 } else { F32 };
    let (a, b, mut c) = (tensor(dtype, [m, k]), tensor(dtype, [n, k]), tensor(dtype, [m, n]));
    let selection = def.select(&device, atlas::args!(&a, &b, &mut c)).unwrap();
    selection.chosen().unwrap().schedule.packs_operands()
}

#[test]
fn operands_are_packed_where_the_product_is_large() {
    assert!(is_packed(&atlas::ops::matmul_bf16x3, [2048; 3]));
    assert!(!is_packed(&atlas::ops::matmul_bf16x3, [64; 3]));
    assert!(!is_packed(&atlas::ops::matmul, [256, 256, 252]));
    // Nothing has to be packed.
    assert!(!is_packed(&atlas::ops::matmul, [2048; 3]));
}
