//! Products of f32 at each precision: of tf32 by warps and by warpgroups, and of operands that are split in two.

use super::{Given, agrees, agrees_on_hopper, disagreements, input, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::F32;

atlas_kernel! {
    /// Both operands run along K, in panels of 128 and of 64 bytes.
    kernel in_tf32(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [128, 64], BN: [64, 128, 96], BK: [32, 16, 64, 48], stages: [3, 2, 1], warps: [4, 8], copies: [engine, threads] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t()).precision(tf32);
            }
            store(y[m, n], acc);
        }
    }

    /// A left operand that is computed, and a tile that one product reads along K and another one along N.
    kernel handed_on(
        x: &Tensor<f32, [N, D]>,
        w: &Tensor<f32, [H, D]>,
        y: &mut Tensor<f32, [N, D]>,
    )
    tune { BN: [64, 128], stages: [2, 1], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]) * 0.5;
            let mut acc = zeros::<f32>([BN, D]);
            for h in pipeline(tiles(H, 64)) {
                let ws = load(w[h, ..]);
                acc += dot(dot(xs, ws.t()).precision(tf32), ws).precision(tf32);
            }
            store(y[n, ..], acc);
        }
    }

    kernel in_bf16x3(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64, 16, 128], BN: [64, 8], BK: [32, 16, 8], stages: [2, 1, 3], warps: [4, 8, 1] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t()).precision(bf16x3);
            }
            store(y[m, n], acc);
        }
    }

    kernel in_tf32x3(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64, 16, 128], BN: [64, 8], BK: [32, 16, 8], stages: [2, 1, 3], warps: [4, 8, 1] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t()).precision(tf32x3);
            }
            store(y[m, n], acc);
        }
    }

    /// Operands of any extents and along any axis, one of them computed.
    kernel small_splits(a: &Tensor<f32, [K, M]>, b: &Tensor<f32, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { warps: [4, 1, 2, 8] }
    {
        for m in grid(tiles(M, 24)) {
            let left = load(a[.., m]).t();
            let twice = dot(left * 2.0, load(b[.., ..])).precision(bf16x3);
            store(y[m, ..], twice + dot(left, load(b[.., ..])).precision(tf32x3));
        }
    }

    /// What is left of a product of split operands without their rests.
    kernel bf16_alone(a: &Tensor<f32, [M, K]>, b: &Tensor<f32, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            let mut acc = zeros::<f32>([64, 64]);
            for k in pipeline(tiles(K, 32)) {
                acc += dot(load(a[m, k]).cast::<bf16>(), load(b[n, k]).t().cast::<bf16>());
            }
            store(y[m, n], acc);
        }
    }
}

/// Relative errors that each term of a product may have.
const OF_TF32: f64 = 1.0 / (1 << 9) as f64;
const OF_BF16X3: f64 = 3.0 / (1 << 16) as f64;
const OF_TF32X3: f64 = 3.0 / (1 << 22) as f64;
/// The error of sums in f32, relative to the largest one.
const OF_SUMS: f64 = 2e-6;

/// The elements of operands `[m, k]` and `[n, k]`.
fn elements(given: &[Given]) -> [Vec<f64>; 2] {
    let of = |g: &Given| match g {
        Given::In(d) => d.values.iter().map(|&x| f64::from(x as f32)).collect(),
        _ => panic!("an input"),
    };
    [of(&given[0]), of(&given[1])]
}

/// `a · bᵀ` in f64.
fn plain(a: &[f64], b: &[f64], k: usize) -> Vec<f64> {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    a.chunks(k).flat_map(|x| b.chunks(k).map(move |y| dot(x, y))).collect()
}

/// What an error of each term comes to, relative to the largest result.
fn bound(given: &[Given], k: usize, relative: f64) -> f64 {
    let [a, b] = elements(given);
    let sizes = |x: &[f64]| x.iter().map(|x| x.abs()).collect::<Vec<_>>();
    let greatest = |x: Vec<f64>| x.into_iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    relative * greatest(plain(&sizes(&a), &sizes(&b), k)) / greatest(plain(&a, &b, k)) + OF_SUMS
}

fn operands([m, n, k]: [usize; 3]) -> [Given; 3] {
    [random(F32, &[m, k]), random(F32, &[n, k]), output(F32, &[m, n])]
}

/// Operands that tf32 holds exactly.
fn short(rows: usize, k: usize) -> Given {
    input(F32, &[rows, k], |i| (noise(i + rows) * 512.0).round() / 64.0)
}

#[test]
fn tf32_by_warpgroups_rounds_or_truncates() {
    for dims in [[70, 72, 200], [129, 100, 128], [64, 96, 36]] {
        let given = operands(dims);
        agrees_on_hopper(&in_tf32, &given, bound(&given, dims[2], OF_TF32));
    }
}

#[test]
fn tf32_by_warpgroups_multiplies_what_needs_no_rounding() {
    for [m, n, k] in [[70, 72, 200], [129, 100, 128], [64, 64, 64], [1, 8, 0], [65, 63, 33]] {
        let (a, b, y) = (short(m, k), short(n, k), output(F32, &[m, n]));
        agrees_on_hopper(&in_tf32, &[a.clone(), b.clone(), y.clone()], OF_SUMS);
        // By rows, the operand does not run along K.
        agrees_on_hopper(&in_tf32, &[a, b.by_columns(), y], OF_SUMS);
    }
}

#[test]
fn tf32_of_computed_operands() {
    for (n, h, d) in [(70, 200, 64), (128, 64, 32)] {
        let given = [random(F32, &[n, d]), random(F32, &[h, d]), output(F32, &[n, d])];
        agrees_on_hopper(&handed_on, &given, 1e-2);
        agrees(&handed_on, &given, 1e-2);
    }
}

/// The kernels above test what they are meant to.
#[test]
fn tf32_is_asynchronous_where_operands_run_along_k() {
    let device = Device::sim("sm_90a").unwrap();
    let tensor = |shape: &[usize]| Tensor::zeros(&device, F32, shape).unwrap();
    let (a, b, mut y) = (tensor(&[128, 256]), tensor(&[256, 128]), tensor(&[128, 128]));
    let config: Config = "BM=128 BN=64 BK=64 stages=2 warps=8 copies=engine".parse().unwrap();
    let launch = in_tf32.prepare_with(&device, &config, args![&a, &a, &mut y]).unwrap();
    let image = launch.image().unwrap();
    assert!(image.ptx.contains("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32"));
    assert!(!image.ptx.contains("mma.sync.aligned.m16n8"));
    assert_eq!(image.maps.len(), 2);
    let turned = b.transpose(0, 1).unwrap();
    let launch = in_tf32.prepare_with(&device, &config, args![&a, &turned, &mut y]).unwrap();
    let ptx = &launch.image().unwrap().ptx;
    assert!(!ptx.contains("wgmma.mma_async") && ptx.contains("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32"));
}

#[test]
fn split_products_are_alike_on_all_devices() {
    for dims in [[70, 72, 72], [33, 9, 17], [5, 1, 1], [3, 8, 0]] {
        let given = operands(dims);
        agrees(&in_bf16x3, &given, OF_SUMS);
        agrees(&in_tf32x3, &given, OF_SUMS);
    }
}

#[test]
fn split_operands_of_any_layout() {
    for [m, n, k] in [[40, 24, 40], [25, 33, 19], [1, 1, 1]] {
        let given = [random(F32, &[k, m]), random(F32, &[k, n]), output(F32, &[m, n])];
        agrees(&small_splits, &given, OF_SUMS);
    }
}

/// Split products keep their bounds, which what is left without the rests of their operands does not.
#[test]
fn split_products_are_as_exact_as_they_promise() {
    let dims @ [_, _, k] = [70, 72, 200];
    let given = operands(dims);
    let check = |kernel: &'static KernelDef, relative: f64| {
        let of = bound(&given, k, relative);
        let wrong = exceeding(kernel, &given, k, of);
        (wrong, of)
    };
    for (split, alone, relative) in [(&in_bf16x3, &bf16_alone, OF_BF16X3), (&in_tf32x3, &in_tf32, OF_TF32X3)] {
        let (wrong, of) = check(split, relative);
        assert!(wrong.is_empty(), "{} exceeds {of:.1e}: {wrong:?}", split.name);
        let (wrong, of) = check(alone, relative);
        assert!(!wrong.is_empty(), "{} keeps {of:.1e}", alone.name);
    }
}

/// The devices on which a kernel's result is further from a sum in f64 than a bound.
fn exceeding(kernel: &'static KernelDef, given: &[Given], k: usize, bound: f64) -> Vec<String> {
    let [a, b] = elements(given);
    let wanted = plain(&a, &b, k);
    let devices = super::devices().chain([("cpu".to_owned(), Device::cpu())]);
    let is_far = |device: &Device| {
        let found = super::run(kernel, device, None, given).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
        super::difference(&found[0], &wanted).0 > bound
    };
    devices.filter(|(_, device)| is_far(device)).map(|(name, _)| name).collect()
}

/// What is infinite or no number is split into itself and nothing; numbers near the end of f32 are rounded to infinity in bf16.
#[test]
fn infinite_operands_are_not_split() {
    let odd = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e30, -1e-30, 0.0];
    let special = |rows: usize| {
        input(F32, &[rows, 20], move |i| if i % 20 == 3 { odd[i / 20 % odd.len()] } else { noise(i).abs() + 0.5 })
    };
    let plain = input(F32, &[9, 20], |i| noise(i).abs() + 0.5);
    let given = [special(30), plain, output(F32, &[30, 9])];
    for kernel in [&in_bf16x3, &in_tf32x3] {
        let wrong = disagreements(kernel, &given, OF_SUMS);
        assert!(wrong.is_empty(), "{wrong:?}");
        let found = super::run(kernel, &Device::cpu(), None, &given).unwrap();
        assert_eq!(found[0][0], f64::INFINITY);
        assert_eq!(found[0][9], f64::NEG_INFINITY);
        assert!(found[0][18].is_nan());
    }
}
