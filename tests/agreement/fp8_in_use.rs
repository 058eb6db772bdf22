//! Floats of 8 bits where kernels have them: weights of products, rows that are quantised with their scales, element-wise chains, the
//! copy engine, and derivatives.

use super::fp8::{nearest, number};
use super::{Given, agrees, agrees_on_hopper, agrees_with, input, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{self, Bf16, F8E4M3 as E4M3, F8E5M2 as E5M2, F16, F32};
use atlas_dsl::KernelDef;
use atlas_runtime::{Arg, CacheDir, SimOptions, Target};

atlas_kernel! {
    /// y = x (s w): weights of 8 bits with a scale for each output column.
    kernel linear<T: Float>(
        x: &Tensor<T, [M, K]>, w: &Tensor<f8e4m3, [K, N]>, s: &Tensor<f32, [N]>, y: &mut Tensor<T, [M, N]>,
    )
    tune { BM: [64, 16, 128], BN: [64, 32, 128], BK: [32, 64, 16], warps: [4, 8], stages: [2, 3, 1] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[m, k]), load(w[k, n]).cast::<T>());
            }
            store(y[m, n], (acc * load(s[n])).cast::<T>());
        }
    }

    /// Both factors in 8 bits, of different types, which f16 holds; the weights lie by output column.
    kernel of_both(
        x: &Tensor<f8e5m2, [M, K]>, w: &Tensor<f8e4m3, [N, K]>, y: &mut Tensor<f32, [M, N]>,
    )
    tune { BM: [16, 64], BN: [32, 64], BK: [64, 32], warps: [4], stages: [1, 2] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[m, k]).cast::<f16>(), load(w[n, k]).cast::<f16>().t());
            }
            store(y[m, n], acc);
        }
    }

    /// One row at a time, by sums.
    kernel matvec<T: Float>(
        x: &Tensor<T, [B, K]>, w: &Tensor<f8e4m3, [N, K]>, s: &Tensor<f32, [N]>, y: &mut Tensor<T, [B, N]>,
    )
    tune { BN: [8, 4], BK: [128, 512, 64], warps: [4, 1], stages: [3, 2] }
    {
        for (b, n) in grid(B, tiles(N, BN)) {
            let mut acc = zeros::<f32>([BN, 1]);
            for k in pipeline(tiles(K, BK)) {
                acc += sum(load(w[n, k]).cast::<f32>() * load(x[b, k]).cast::<f32>(), axis = 1);
            }
            store(y[b, n], (acc * load(s[n]).t()).cast::<T>());
        }
    }

    /// Each row in 8 bits, with its scale.
    kernel quantized<T: Float>(x: &Tensor<T, [N, D]>, q: &mut Tensor<f8e4m3, [N, D]>, s: &mut Tensor<f32, [N]>)
    tune { BN: [4, 1, 16], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            let scale = max(max(abs(xs), axis = 1) / 448.0, 1e-30);
            store(q[n, ..], (xs / scale).cast::<f8e4m3>());
            store(s[n], scale);
        }
    }

    /// A chain without an intermediate tensor: two types in, one out.
    kernel chain(
        x: &Tensor<f8e4m3, [N, D]>, g: &Tensor<f8e5m2, [N, D]>, b: &Tensor<bf16, [D]>, y: &mut Tensor<f8e5m2, [N, D]>,
    )
    tune { BN: [16, 3], BD: [64, 5, 256], warps: [4, 1] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let xs = load(x[n, d]).cast::<f32>();
            let gate = load(g[n, d]).cast::<f32>();
            store(y[n, d], (max(xs, 0.0) * gate + load(b[d]).cast::<f32>()).cast::<f8e5m2>());
        }
    }

    /// A tile in 8 bits between two products: what attention in 8 bits does with its weights.
    kernel between(a: &Tensor<bf16, [M, K]>, b: &Tensor<bf16, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64, 32], warps: [4] }
    {
        for m in grid(tiles(M, BM)) {
            let ps = load(a[m, ..]).cast::<f8e4m3>().cast::<bf16>();
            store(y[m, ..], dot(ps, load(b[.., ..])));
        }
    }

    kernel codes_by_engine(x: &Tensor<f8e4m3, [N, D]>, y: &mut Tensor<f8e4m3, [N, D]>)
    tune { BN: [64], BD: [128, 96, 32], warps: [4], programs: [persistent], stores: [engine, threads] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store(y[n, d], load(x[n, d]));
        }
    }

    tile fn scaled(x, w) { x * w }

    /// A derivative is valid where what it does not use is valid, which here are codes.
    kernel slopes(
        x: &Tensor<f32, [N, D]>, w: &Tensor<f8e4m3, [N, D]>, a: &mut Tensor<f32, [N, D]>, b: &mut Tensor<f32, [N, D]>,
    )
    tune { BN: [16, 3], BD: [64, 32] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let (by_x, by_w) = grad(scaled)(load(x[n, d]), load(w[n, d]).cast::<f32>());
            store(a[n, d], by_x);
            store(b[n, d], by_w);
        }
    }
}

/// Weights of the size that quantisation leaves.
fn weights(shape: &[usize]) -> Given {
    input(E4M3, shape, |i| noise(i + 3) * 400.0)
}

fn scales(n: usize) -> Given {
    input(F32, &[n], |i| (1.0 + noise(i).abs()) / 448.0)
}

#[test]
fn weights_of_products() {
    for (dtype, bound) in [(Bf16, 2e-2), (F16, 3e-3), (F32, 1e-4)] {
        for (m, n, k) in [(65, 80, 70), (16, 64, 128), (3, 5, 7), (0, 16, 32), (33, 48, 0)] {
            let given = [random(dtype, &[m, k]), weights(&[k, n]), scales(n), output(dtype, &[m, n])];
            agrees(&linear, &given, bound);
        }
    }
    // Rows that begin anywhere, and weights that lie by column.
    let (m, n, k) = (33, 48, 64);
    let given = [random(Bf16, &[m, k]), weights(&[k, n]).within(3, 5), scales(n), output(Bf16, &[m, n])];
    agrees(&linear, &given, 2e-2);
    let given = [random(Bf16, &[m, k]), weights(&[k, n]).by_columns(), scales(n), output(Bf16, &[m, n])];
    agrees(&linear, &given, 2e-2);
}

#[test]
fn products_are_those_of_the_numbers() {
    for (m, n, k) in [(64, 64, 64), (33, 70, 40)] {
        let x = input(E5M2, &[m, k], |i| noise(i) * 4.0);
        agrees_with(&of_both, &[x, weights(&[n, k]), output(F32, &[m, n])], 1e-5, |x| {
            let of = |i: usize, j: usize| (0..k).map(|l| x[0][i * k + l] * x[1][j * k + l]).sum::<f64>();
            vec![(0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| of(i, j)).collect()]
        });
    }
    for (dtype, bound) in [(Bf16, 2e-2), (F32, 1e-5)] {
        for (b, n, k) in [(2, 33, 700), (1, 8, 128), (3, 5, 7)] {
            let given = [random(dtype, &[b, k]), weights(&[n, k]), scales(n), output(dtype, &[b, n])];
            agrees(&matvec, &given, bound);
        }
    }
}

#[test]
fn weights_of_asynchronous_products() {
    for dtype in [Bf16, F16] {
        let (m, n, k) = (128, 128, 160);
        let given = [random(dtype, &[m, k]), weights(&[k, n]), scales(n), output(dtype, &[m, n])];
        agrees_on_hopper(&linear, &given, 2e-2);
    }
}

#[test]
fn rows_are_quantized_with_their_scales() {
    for dtype in [F32, Bf16] {
        for (n, d) in [(9, 64), (4, 130), (1, 3), (0, 16)] {
            // The largest of each row is 448 steps of a power of two, so that every quotient is exact on all devices. The others
            // have as many digits as bf16, which the type rounds.
            let steps = |i: usize| match i % d == i / d % d {
                true => -448.0,
                false => atlas_dsl::rounding::to_bf16(noise(i) * 448.0).to_f64(),
            };
            let x = input(dtype, &[n, d], |i| steps(i) * [0.125, 1.0, 8.0][i / d % 3]);
            agrees_with(&quantized, &[x, output(E4M3, &[n, d]), output(F32, &[n])], 0.0, |_| {
                let scales = (0..n).map(|i| [0.125, 1.0, 8.0][i % 3]).collect();
                let codes = (0..n * d).map(|i| number(E4M3, nearest(E4M3, steps(i)))).collect();
                vec![codes, scales]
            });
        }
    }
}

#[test]
fn chains_of_elements() {
    for (n, d) in [(40, 64), (33, 130), (5, 3), (1, 1), (0, 16)] {
        let of = |dtype: DType, step: usize| input(dtype, &[n, d], move |i| number(dtype, (i * step) as u8 & 0xb7));
        let shift = input(Bf16, &[d], |i| (i % 7) as f64 - 3.0);
        agrees_with(&chain, &[of(E4M3, 37), of(E5M2, 91), shift, output(E5M2, &[n, d])], 0.0, |x| {
            let at = |i: usize| {
                let product = (x[0][i].max(0.0) * x[1][i]) as f32;
                number(E5M2, nearest(E5M2, f64::from(product + x[2][i % d] as f32)))
            };
            vec![(0..n * d).map(at).collect()]
        });
    }
}

#[test]
fn tiles_in_8_bits_between_products() {
    for (m, k, n) in [(64, 64, 32), (40, 48, 24)] {
        let a = random(Bf16, &[m, k]);
        agrees_with(&between, &[a, random(Bf16, &[k, n]), output(F32, &[m, n])], 1e-5, |x| {
            let a: Vec<f64> = x[0].iter().map(|&x| number(E4M3, nearest(E4M3, x))).collect();
            let of = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * x[1][l * n + j]).sum::<f64>();
            vec![(0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| of(i, j)).collect()]
        });
    }
}

#[test]
fn the_engine_moves_codes() {
    for (n, d) in [(200, 256), (130, 208)] {
        let x = || input(E4M3, &[n, d], |i| number(E4M3, (i * 37) as u8));
        agrees_on_hopper(&codes_by_engine, &[x(), output(E4M3, &[n, d])], 0.0);
        agrees_on_hopper(&codes_by_engine, &[x(), output(E4M3, &[n, d]).within(16, 16)], 0.0);
    }
}

#[test]
fn derivatives_of_what_was_codes() {
    for (n, d) in [(33, 70), (1, 1), (16, 64)] {
        let w = input(E4M3, &[n, d], |i| number(E4M3, (i * 37) as u8 & 0xf7));
        let given = [random(F32, &[n, d]), w, output(F32, &[n, d]), output(F32, &[n, d])];
        agrees_with(&slopes, &given, 0.0, |x| vec![x[1].clone(), x[0].clone()]);
    }
}

/// The PTX of a kernel with its first config, for tensors of these sizes.
fn ptx(kernel: &'static KernelDef, target: &str, tensors: &[(DType, &[usize])]) -> String {
    let target: Target = target.parse().expect("a target");
    let device = Device::sim_with(target, SimOptions::default(), CacheDir::Off);
    let mut made: Vec<Tensor> =
        tensors.iter().map(|(dtype, shape)| Tensor::zeros(&device, *dtype, shape).expect("memory")).collect();
    let (out, read) = made.split_last_mut().expect("an output");
    let args: Vec<Arg<'_>> = read.iter().map(Arg::In).chain([Arg::Out(out)]).collect();
    let launch = kernel.prepare_with(&device, &kernel.configs()[0], &args).unwrap_or_else(|e| panic!("{e}"));
    launch.image().expect("a compiled kernel").ptx.to_string()
}

#[test]
fn sixteen_bytes_and_pairs_of_codes() {
    let sizes: [(DType, &[usize]); 4] = [(E4M3, &[128, 128]), (E5M2, &[128, 128]), (Bf16, &[128]), (E5M2, &[128, 128])];
    for target in ["sm_80", "sm_89", "sm_90"] {
        let text = ptx(&chain, target, &sizes);
        let has = |a: &str, b: &str| text.lines().any(|line| line.contains(a) && line.contains(b));
        assert!(has("ld.global", ".v4.b32") && has("st.global", ".v4.b32"), "{target}:\n{text}");
        assert!(!has("ld.global", ".b8") && !has("st.global", ".b8"), "{target}:\n{text}");
        let instructions = ["cvt.rn.f16x2.e4m3x2", "cvt.rn.f16x2.e5m2x2", "cvt.rn.satfinite.e5m2x2.f32"];
        assert_eq!(instructions.map(|i| text.contains(i)), [target != "sm_80"; 3], "{target}:\n{text}");
        // On Ada only the later version of PTX has them.
        assert_eq!(text.contains(".version 8.1"), target == "sm_89", "{target}:\n{text}");
        let sizes: [(DType, &[usize]); 4] =
            [(Bf16, &[128, 128]), (E4M3, &[128, 128]), (F32, &[128]), (Bf16, &[128, 128])];
        let text = ptx(&linear, target, &sizes);
        let wide = |line: &str| line.contains("cp.async.cg") || (line.contains("ld.global") && line.contains("v4.b32"));
        assert!(text.lines().any(wide), "{target}:\n{text}");
        assert!(text.contains("mma.sync.aligned"), "{target}:\n{text}");
        assert!(!text.lines().any(|l| l.contains("ld.global") && l.contains("8 ")), "{target}:\n{text}");
    }
}
