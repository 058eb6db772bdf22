//! Products that a warpgroup makes asynchronously, of operands as copies, threads and registers hand them on.

use super::{agrees, agrees_on_hopper, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// One warpgroup and several, below and beside each other; the widest product of one instruction.
    kernel by_warpgroups<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<T, [M, N]>)
    tune { BM: [128, 64, 256], BN: [64, 128, 256], BK: [64, 32, 16], stages: [3, 1, 4], warps: [4, 8, 16], copies: [threads] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc.cast::<T>());
        }
    }

    /// Operands that run along M and N.
    kernel across<T: Float>(a: &Tensor<T, [K, M]>, b: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BK: [64, 128, 32], stages: [2, 3], warps: [4], copies: [threads, engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            let mut acc = zeros::<f32>([64, 64]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[k, m]).t(), load(b[k, n]));
            }
            store(y[m, n], acc);
        }
    }

    /// A product whose left operand is another one's result, in registers, and whose right one is kept in shared memory.
    kernel handed_on<T: Float>(
        x: &Tensor<T, [N, D]>,
        w: &Tensor<T, [H, D]>,
        v: &Tensor<T, [H, D]>,
        y: &mut Tensor<f32, [N, D]>,
    )
    tune { BN: [128, 64], stages: [2, 1, 3], warps: [4, 8], copies: [threads, engine] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let mut acc = zeros::<f32>([BN, D]);
            for h in pipeline(tiles(H, 64)) {
                let z = dot(xs, load(w[h, ..]).t());
                acc += dot((z * z).cast::<T>(), load(v[h, ..]));
            }
            store(y[n, ..], acc);
        }
    }

    /// A product whose left operand is computed before the loop, and another one whose is computed in it.
    kernel prepared<T: Float>(
        x: &Tensor<T, [N, D]>,
        w: &Tensor<T, [H, D]>,
        v: &Tensor<T, [H, D]>,
        y: &mut Tensor<f32, [N, D]>,
    )
    tune { BN: [64, 128], stages: [2, 1, 3], warps: [4, 8], copies: [threads, engine] }
    {
        for n in grid(tiles(N, BN)) {
            let loaded = load(x[n, ..]).cast::<f32>();
            let xs = (loaded * (loaded + 0.5)).cast::<T>();
            let mut acc = loaded;
            for h in pipeline(tiles(H, 64)) {
                let z = dot(xs, load(w[h, ..]).t());
                acc += dot((z * 0.1).cast::<T>(), load(v[h, ..]));
            }
            store(y[n, ..], acc);
        }
    }

    /// A tile that a loop carries in shared memory: read by products, then replaced.
    kernel iterated<T: Float>(x: &Tensor<T, [B, D, D]>, y: &mut Tensor<T, [B, D, D]>)
    tune { warps: [4] }
    {
        for b in grid(B) {
            let mut state = load(x[b, .., ..]);
            for _i in 0..3 {
                let gram = dot(state, state.t());
                state = (dot(gram.cast::<T>(), state) * 0.01).cast::<T>() + state;
            }
            store(y[b, .., ..], state);
        }
    }

    /// A product of a class whose other one no warpgroup makes, for its depth is no multiple of a step's.
    kernel unlike<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        c: &Tensor<T, [M, E]>,
        d: &Tensor<T, [N, E]>,
        y: &mut Tensor<f32, [M, N]>,
    )
    tune { warps: [4, 8] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            let mut acc = dot(load(c[m, ..]), load(d[n, ..]).t());
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// Only some of the programs' iterations multiply, and the number of iterations is the caller's.
    kernel sometimes<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>, from: i32)
    tune { stages: [3, 2, 5], warps: [4], copies: [threads, engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            let mut acc = zeros::<f32>([64, 64]);
            for k in pipeline(from..(size(K) + 63) / 64) {
                acc += dot(load(a[m, span(0, 64)]).or(0.0), load(b[n, span(k * 64, 64)]).or(0.0).t());
            }
            store(y[m, n], acc);
        }
    }
}

atlas_kernel! {
    /// Operands that the copy engine brings, of every width of a span.
    kernel by_engine<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<T, [M, N]>)
    tune { BM: [128, 64], BN: [64, 256], BK: [64, 32, 16], stages: [3, 2, 4], warps: [4, 8], copies: [engine] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc.cast::<T>());
        }
    }

    /// Operands that run along M and N, of which the pitch of one may fit the engine and that of the other not.
    kernel engine_across<T: Float>(a: &Tensor<T, [K, M]>, b: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BK: [64, 32], stages: [2, 3], warps: [4], copies: [engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            let mut acc = zeros::<f32>([64, 64]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[k, m]).t(), load(b[k, n]));
            }
            store(y[m, n], acc);
        }
    }

    /// A pipeline in a loop and behind another one: the ring goes on where it stood. The tensors have more axes than the tiles.
    kernel engine_again<T: Float>(
        a: &Tensor<T, [G, M, K]>,
        b: &Tensor<T, [G, N, K]>,
        y: &mut Tensor<f32, [M, N]>,
    )
    tune { stages: [3, 2, 4], warps: [4], copies: [engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            let mut acc = zeros::<f32>([64, 64]);
            for g in 0..size(G) {
                for k in pipeline(tiles(K, 64)) {
                    acc += dot(load(a[g, m, k]), load(b[g, n, k]).t());
                }
                acc = acc * 0.5;
                for k in pipeline(tiles(K, 32)) {
                    acc += dot(load(a[g, m, k]), load(b[g, n, k]).t());
                }
            }
            store(y[m, n], acc);
        }
    }

    /// Two pipelines behind each other, whose rings may have the same bytes.
    kernel engine_twice<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        c: &Tensor<T, [M, L]>,
        d: &Tensor<T, [N, L]>,
        y: &mut Tensor<f32, [M, N]>,
    )
    tune { stages: [3, 2], warps: [4, 8], copies: [engine, threads] }
    {
        for (m, n) in grid(tiles(M, 128), tiles(N, 64)) {
            let mut acc = zeros::<f32>([128, 64]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            for l in pipeline(tiles(L, 64)) {
                acc += dot(load(c[m, l]), load(d[n, l]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// A matrix of several, which may be none: there is nothing to read, so it is 0.
    kernel engine_of_none<T: Float>(
        a: &Tensor<T, [G, M, K]>,
        b: &Tensor<T, [N, K]>,
        y: &mut Tensor<f32, [M, N]>,
        g: i32,
    )
    tune { stages: [3], warps: [4], copies: [engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            let mut acc = zeros::<f32>([64, 64]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[g, m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// What a loop computes of products goes through shared memory beside the ring.
    kernel engine_beside<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        w: &Tensor<T, [N, N]>,
        y: &mut Tensor<T, [M, N]>,
    )
    tune { stages: [3, 2], warps: [4, 8], copies: [engine] }
    {
        for m in grid(tiles(M, 128)) {
            let mut acc = zeros::<f32>([128, N]);
            for k in pipeline(tiles(K, 64)) {
                let part = dot(load(a[m, k]), load(b[.., k]).t());
                acc += part * part;
            }
            let total = sum(acc, axis = 1);
            store(y[m, ..], (dot(acc.cast::<T>(), load(w[.., ..])) / (total + 1.0)).cast::<T>());
        }
    }
}

#[test]
fn the_engine_brings_operands() {
    for (m, n, k) in [(70, 72, 200), (129, 264, 64), (64, 64, 1000), (1, 8, 0)] {
        let given = [random(Bf16, &[m, k]), random(Bf16, &[n, k]), output(Bf16, &[m, n])];
        agrees_on_hopper(&by_engine, &given, 2e-2);
    }
    agrees_on_hopper(&by_engine, &[random(F16, &[65, 72]), random(F16, &[63, 72]), output(F16, &[65, 63])], 2e-2);
    // The pitch is no multiple of 16 bytes: threads copy.
    agrees_on_hopper(&by_engine, &[random(F16, &[65, 76]), random(F16, &[63, 76]), output(F16, &[65, 63])], 2e-2);
}

#[test]
fn the_engine_fits_one_operand_or_both() {
    for (m, n, k) in [(72, 200, 100), (72, 68, 130), (70, 72, 64), (64, 64, 8)] {
        agrees_on_hopper(&engine_across, &[random(Bf16, &[k, m]), random(Bf16, &[k, n]), output(F32, &[m, n])], 1e-5);
    }
}

#[test]
fn rings_of_the_engine_go_on_in_loops() {
    for (g, k) in [(1, 64), (2, 0), (3, 72), (2, 200), (3, 328), (0, 64)] {
        let given = [random(Bf16, &[g, 65, k]), random(Bf16, &[g, 72, k]), output(F32, &[65, 72])];
        agrees_on_hopper(&engine_again, &given, 1e-5);
    }
}

#[test]
fn tiles_of_threads_stand_beside_those_of_the_engine() {
    for (m, k) in [(130, 200), (128, 64)] {
        let given = [random(Bf16, &[m, k]), random(Bf16, &[64, k]), random(Bf16, &[64, 64]), output(Bf16, &[m, 64])];
        agrees_on_hopper(&engine_beside, &given, 4e-2);
    }
}

#[test]
fn one_pipeline_follows_another() {
    for (k, l) in [(200, 72), (64, 0), (0, 328)] {
        let operands = [[130, k], [72, k], [130, l], [72, l]].map(|shape| random(Bf16, &shape));
        let given: Vec<_> = operands.into_iter().chain([output(F32, &[130, 72])]).collect();
        agrees_on_hopper(&engine_twice, &given, 1e-5);
    }
}

#[test]
fn nothing_is_read_of_an_empty_tensor() {
    for (g, at) in [(0, 0), (1, 0), (2, 1), (2, -1), (2, 2)] {
        let given =
            [random(Bf16, &[g, 65, 72]), random(Bf16, &[72, 72]), output(F32, &[65, 72]), super::Given::I32(at)];
        agrees_on_hopper(&engine_of_none, &given, 1e-5);
    }
}

/// The tensors that the engine copies, and those that threads copy, in the first config of a space.
fn copied(kernel: &'static KernelDef, shapes: [&[usize]; 3]) -> (usize, usize) {
    let device = Device::sim("sm_90a").unwrap();
    let [a, b, mut y] = shapes.map(|shape| Tensor::zeros(&device, Bf16, shape).unwrap());
    let config = kernel.configs().into_iter().next().unwrap();
    let launch = kernel.prepare_with(&device, &config, args![a, b, &mut y]).unwrap();
    let image = launch.image().unwrap();
    (image.maps.len(), usize::from(image.ptx.contains("cp.async.c")))
}

#[test]
fn the_engine_copies_what_fits_it() {
    assert_eq!(copied(&by_engine, [&[65, 72], &[63, 72], &[65, 63]]), (2, 0));
    assert_eq!(copied(&by_engine, [&[65, 76], &[63, 76], &[65, 63]]), (0, 1));
}

#[test]
fn warpgroups_share_a_tile() {
    for dtype in [Bf16, F16] {
        for (m, n, k) in [(70, 72, 200), (1, 8, 16), (257, 264, 72), (64, 64, 64)] {
            let given = [random(dtype, &[m, k]), random(dtype, &[n, k]), output(dtype, &[m, n])];
            agrees(&by_warpgroups, &given, 2e-2);
        }
    }
}

#[test]
fn operands_run_along_either_axis() {
    for (m, n, k) in [(70, 72, 200), (64, 64, 8), (8, 200, 136)] {
        agrees(&across, &[random(Bf16, &[k, m]), random(Bf16, &[k, n]), output(F32, &[m, n])], 1e-5);
    }
}

#[test]
fn operands_are_handed_on_in_registers_and_in_shared_memory() {
    for dtype in [Bf16, F16] {
        let given =
            |n, h| [random(dtype, &[n, 64]), random(dtype, &[h, 64]), random(dtype, &[h, 64]), output(F32, &[n, 64])];
        agrees(&handed_on, &given(70, 200), 2e-2);
        agrees(&handed_on, &given(128, 64), 2e-2);
        agrees(&prepared, &given(70, 328), 2e-2);
        agrees(&iterated, &[random(dtype, &[2, 64, 64]), output(dtype, &[2, 64, 64])], 4e-2);
    }
}

#[test]
fn a_class_is_asynchronous_as_a_whole() {
    let given = |m, n, k| {
        let operands = [[m, k], [n, k], [m, 8], [n, 8]].map(|shape| random(Bf16, &shape));
        operands.into_iter().chain([output(F32, &[m, n])]).collect::<Vec<_>>()
    };
    agrees(&unlike, &given(70, 72, 200), 1e-5);
    agrees(&unlike, &given(64, 64, 64), 1e-5);
}

#[test]
fn any_number_of_iterations_multiplies() {
    for steps in [0, 1, 2, 3, 5, 11] {
        for from in [0, 1] {
            let k = 64 * steps + 8;
            let given =
                [random(Bf16, &[70, k]), random(Bf16, &[72, k]), output(F32, &[70, 72]), super::Given::I32(from)];
            agrees(&sometimes, &given, 1e-5);
        }
    }
}

/// A product that is too short for `wgmma` unless the config asks for it, and one that uses it unless the config says no.
#[test]
fn the_config_says_who_multiplies() {
    let device = Device::sim("sm_90a").unwrap();
    let a = Tensor::zeros(&device, Bf16, [64, 64]).unwrap();
    let mut y = Tensor::zeros(&device, Bf16, [64, 64]).unwrap();
    let mut is_asynchronous = |text: &str| {
        let config: Config = text.parse().unwrap();
        let launch = by_engine.prepare_with(&device, &config, args![&a, &a, &mut y]).unwrap();
        launch.image().unwrap().ptx.contains("wgmma.mma_async")
    };
    let (short, long) = ("BM=64 BN=64 BK=16 stages=2 warps=4", "BM=64 BN=64 BK=64 stages=2 warps=4");
    assert!(!is_asynchronous(short) && is_asynchronous(&format!("{short} products=warpgroups")));
    assert!(is_asynchronous(long) && !is_asynchronous(&format!("{long} products=warps")));
}

/// A fence orders only what wrote the registers of a product before it: between the two, nothing may be computed. The tokens of
/// a last chunk that is not full are masked in a left operand, which LLVM would do right before each product.
#[test]
fn nothing_is_computed_between_a_fence_and_its_product() {
    let device = Device::sim("sm_90a").unwrap();
    let zeros = |dtype, shape: &[usize]| Tensor::zeros(&device, dtype, shape).unwrap();
    let (tokens, chunks) = (zeros(Bf16, &[1, 150, 1, 64]), zeros(Bf16, &[1, 1, 3, 64, 64]));
    let (gates, mut state, mut out) =
        (zeros(F32, &[1, 1, 3, 64]), zeros(F32, &[1, 1, 64, 64]), zeros(Bf16, &[1, 150, 1, 64]));
    let config: Config = "BE=64 stages=1 warps=4 warp_grid=4x1 products=warpgroups".parse().unwrap();
    let args = args![&tokens, &tokens, &tokens, &chunks, &chunks, &gates, &gates, &mut state, &mut out, 1.0];
    let launch = atlas_ops::gated_delta_rule::delta_rule.prepare_with(&device, &config, args).unwrap();
    let ptx = launch.image().unwrap().ptx.clone();
    let mut in_registers = 0;
    for after in ptx.split("wgmma.fence.sync.aligned;").skip(1) {
        let (between, product) = after.split_once("wgmma.mma_async").expect("a product after each fence");
        in_registers += usize::from(product.lines().next().unwrap().matches('{').count() == 2);
        for line in between.lines().map(str::trim).filter(|line| !line.is_empty()) {
            assert!(line.starts_with("//"), "`{line}` is between a fence and its product");
        }
    }
    assert!(in_registers > 1 && ptx.contains("selp.b16"), "masked left operands in registers:\n{ptx}");
}
