//! Pipelines of every depth and length, products of many steps, and programs in groups.

use super::{Given, agrees, output, random, run};
use crate::command::folder;
use atlas::prelude::*;
use atlas_dsl::Config;
use atlas_dsl::DType::{Bf16, F16, F32};
use atlas_runtime::simulator::fault::FaultKind;
use atlas_runtime::{CacheDir, Device, RuntimeError, SimOptions, Target};

atlas_kernel! {
    /// Pipelined loads of two shapes that only registers use.
    kernel weighted_rows<T: Float>(x: &Tensor<T, [N, L]>, w: &Tensor<T, [L]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [8, 4], BL: [64, 32], stages: [3, 1, 2, 5], warps: [2, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for l in pipeline(tiles(L, BL)) {
                total += sum(load(x[n, l]).cast::<f32>() * load(w[l]).cast::<f32>(), axis = 1);
            }
            store(y[n], total);
        }
    }

    /// A pipeline in an outer loop, and a pipeline that does not start at 0.
    kernel rows_below<T: Float>(x: &Tensor<T, [N, L]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [8], BL: [32], stages: [3, 4], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for first in 0..3 {
                for l in pipeline(tiles(L, BL)) {
                    total += sum(load(x[n, l]).cast::<f32>(), axis = 1);
                }
                for l in pipeline(first..(size(L) + BL - 1) / BL) {
                    total += sum(load(x[n, span(l * BL, BL)]).cast::<f32>(), axis = 1);
                }
            }
            store(y[n], total);
        }
    }

    /// Products in a pipeline whose bounds are the caller's. The first iteration reads the first columns, whatever its number is.
    kernel product_between<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        y: &mut Tensor<f32, [M, N]>,
        from: i32,
        to: i32,
    )
    tune { stages: [3, 2, 5], warps: [4], copies: [threads, engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            let mut acc = zeros::<f32>([64, 64]);
            for k in pipeline(from..to) {
                let at = (k - from) * 64;
                acc += dot(load(a[m, span(0, 64)]), load(b[n, span(at, 64)]).or(0.0).t());
            }
            store(y[m, n], acc);
        }
    }

    /// A pipeline with a product and a load into registers.
    kernel scaled_product<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        s: &Tensor<T, [M, K]>,
        y: &mut Tensor<f32, [M, N]>,
    )
    tune { BM: [64, 32], BN: [64, 16], BK: [64, 32], stages: [3, 2, 4], warps: [4, 2] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            let mut rows = zeros::<f32>([BM, 1]);
            for k in pipeline(tiles(K, BK)) {
                rows += sum(load(s[m, k]).cast::<f32>(), axis = 1);
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc + rows);
        }
    }

    /// Products with so many steps along K that they become loops, with plain and transposed operands.
    kernel deep<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { warps: [4, 8, 1] }
    {
        for i in grid(tiles(M, 32)) {
            let bs = load(b[.., ..]);
            store(y[i, ..], dot(load(a[i, ..]), bs));
        }
    }

    kernel deep_gram<T: Float>(a: &Tensor<T, [G, K, M]>, y: &mut Tensor<f32, [G, M, M]>)
    tune { warps: [4, 2, 8] }
    {
        for g in grid(G) {
            let x = load(a[g, .., ..]);
            store(y[g, .., ..], dot(x.t(), x));
        }
    }

    /// A grid whose rows and columns read different tensors.
    kernel outer<T: Float>(a: &Tensor<T, [G, M]>, b: &Tensor<T, [G, N]>, y: &mut Tensor<f32, [G, M, N]>)
    tune { BM: [4], BN: [8, 4], warps: [1] }
    {
        for (g, m, n) in grid(G, tiles(M, BM), tiles(N, BN)) {
            let column = broadcast(load(a[g, m]).cast::<f32>(), [1, BM]).t();
            store(y[g, m, n], column * load(b[g, n]).cast::<f32>());
        }
    }
}

#[test]
fn loads_that_registers_use_run_ahead() {
    for dtype in [Bf16, F32] {
        for l in [0, 8, 32, 64, 104, 200, 500] {
            let args = [random(dtype, &[11, l]), random(dtype, &[l]), output(F32, &[11])];
            agrees(&weighted_rows, &args, 1e-5);
        }
    }
    // Rows of an odd length cannot be copied by `cp.async`.
    agrees(&weighted_rows, &[random(F16, &[5, 101]), random(F16, &[101]), output(F32, &[5])], 1e-5);
}

#[test]
fn a_pipeline_begins_anywhere() {
    for l in [0, 32, 64, 96, 130, 256] {
        agrees(&rows_below, &[random(F16, &[9, l]), output(F32, &[9])], 1e-5);
    }
}

fn between(from: i32, to: i32) -> [Given; 5] {
    let [a, b] = [[70, 328], [72, 328]].map(|shape| random(Bf16, &shape));
    [a, b, output(F32, &[70, 72]), Given::I32(from), Given::I32(to)]
}

#[test]
fn a_pipeline_begins_and_ends_near_the_least_and_the_last_number() {
    let near = [(i32::MIN, 0), (i32::MIN, 1), (i32::MIN, 2), (i32::MIN + 1, 5), (i32::MAX - 3, 3), (-2, 4)];
    for (from, steps) in near {
        agrees(&product_between, &between(from, from + steps), 1e-5);
    }
    for (from, to) in [(i32::MIN + 2, i32::MIN), (i32::MAX, i32::MIN), (0, i32::MIN), (i32::MAX, -1)] {
        agrees(&product_between, &between(from, to), 1e-5);
    }
}

/// Such a loop has more iterations than an i32 counts. It ends at the budget, not at a stage that nothing filled.
#[test]
fn a_pipeline_of_more_iterations_than_an_i32_counts_is_filled() {
    let budget = SimOptions { budget: 40_000, ..SimOptions::default() };
    for (arch, copies) in [("sm_80", "threads"), ("sm_90a", "threads"), ("sm_90a", "engine")] {
        let (compiled, target) = (folder(), arch.parse::<Target>().unwrap());
        let device = Device::sim_with(target, budget, CacheDir::At(compiled.path().to_owned()));
        for stages in [2, 5] {
            let config: Config = format!("stages={stages} warps=4 copies={copies}").parse().unwrap();
            for (from, to) in [(i32::MIN, 0), (i32::MIN + 1, 5), (-1, i32::MAX)] {
                let at = format!("{arch} {config} {from}..{to}");
                match run(&product_between, &device, Some(&config), &between(from, to)) {
                    Err(RuntimeError::Fault(found)) => assert_eq!(found.fault.kind, FaultKind::Budget, "{at}: {found}"),
                    other => panic!("{at}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_product_and_a_fold_share_a_pipeline() {
    for (m, n, k) in [(64, 64, 256), (70, 40, 8), (33, 17, 200), (32, 16, 0)] {
        let args = [random(Bf16, &[m, k]), random(Bf16, &[n, k]), random(Bf16, &[m, k]), output(F32, &[m, n])];
        agrees(&scaled_product, &args, 2e-5);
    }
}

#[test]
fn products_of_many_steps() {
    for k in [128, 176, 192, 256, 320] {
        for (m, n) in [(64, 64), (40, 48), (32, 96)] {
            agrees(&deep, &[random(F16, &[m, k]), random(F16, &[k, n]), output(F32, &[m, n])], 2e-5);
        }
        agrees(&deep_gram, &[random(Bf16, &[2, k, 64]), output(F32, &[2, 64, 64])], 2e-5);
        agrees(&deep_gram, &[random(Bf16, &[1, k, 80]), output(F32, &[1, 80, 80])], 2e-5);
    }
}

#[test]
fn programs_of_a_grid_in_groups() {
    for (g, m, n) in [(2, 37, 24), (1, 32, 1), (3, 4, 40), (1, 1, 9), (2, 70, 33)] {
        let args = [random(F16, &[g, m]), random(F16, &[g, n]), output(F32, &[g, m, n])];
        agrees(&outer, &args, 1e-6);
    }
}
