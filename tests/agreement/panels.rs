//! Operands of asynchronous products in several panels: rows of more than 128 bytes, along K, M and N.

use super::{agrees_on_hopper, output, random};
use atlas::prelude::*;
use atlas_codegen::KernelImage;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// Both operands run along K.
    kernel deep<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64, 128], BN: [64, 96], BK: [128, 256, 96, 48], stages: [2, 3], warps: [4, 8], copies: [threads, engine] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// The right operand runs along N, as the weights of `x @ w` do.
    kernel plain<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [K, N]>, y: &mut Tensor<T, [M, N]>)
    tune { BM: [128, 64, 256], BN: [128, 64, 256, 48, 192], BK: [64, 32, 128], stages: [3, 2], warps: [4, 8], copies: [engine, threads] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[k, n]));
            }
            store(y[m, n], acc.cast::<T>());
        }
    }

    /// Both operands run along M and N.
    kernel across<T: Float>(a: &Tensor<T, [K, M]>, b: &Tensor<T, [K, N]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [128, 64, 256], BN: [128, 64, 96], BK: [64, 16], stages: [2, 3], warps: [4, 8], copies: [engine, threads] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[k, m]).t(), load(b[k, n]));
            }
            store(y[m, n], acc);
        }
    }

    /// The left operand runs along M, the right one along K.
    kernel left_across<T: Float>(a: &Tensor<T, [K, M]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [128, 64], BN: [64, 192], BK: [64, 128], stages: [2], warps: [4, 8], copies: [engine, threads] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[k, m]).t(), load(b[n, k]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// Attention's shape: one tile is read along K by one product, and another one along N by the next.
    kernel handed_on<T: Float>(
        x: &Tensor<T, [N, D]>,
        w: &Tensor<T, [H, D]>,
        v: &Tensor<T, [H, D]>,
        y: &mut Tensor<f32, [N, D]>,
    )
    tune { BN: [64, 128], BH: [64, 128, 32], stages: [2, 1], warps: [4, 8], products: [warpgroups, warps, auto] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let mut acc = zeros::<f32>([BN, D]);
            for h in pipeline(tiles(H, BH)) {
                let z = dot(xs, load(w[h, ..]).t());
                acc += dot((z * z).cast::<T>(), load(v[h, ..]));
            }
            store(y[n, ..], acc);
        }
    }

    /// One tile that two products read, along K and along N, and threads as well.
    kernel read_thrice<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [H, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64, 128], stages: [2, 1], warps: [4, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let mut acc = zeros::<f32>([BN, D]);
            for h in pipeline(tiles(H, 64)) {
                let ws = load(w[h, ..]);
                acc += dot(dot(xs, ws.t()).cast::<T>(), ws) + sum(ws.cast::<f32>(), axis = 0);
            }
            store(y[n, ..], acc);
        }
    }

    /// A tile that a loop carries in shared memory: read by products, then replaced.
    kernel carried<T: Float>(x: &Tensor<T, [B, D, E]>, y: &mut Tensor<T, [B, D, E]>)
    tune { warps: [4, 8] }
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
}

#[test]
fn rows_along_k_lie_in_panels() {
    for (m, n, k) in [(70, 72, 520), (129, 100, 128), (1, 8, 0), (64, 96, 264)] {
        agrees_on_hopper(&deep, &[random(Bf16, &[m, k]), random(Bf16, &[n, k]), output(F32, &[m, n])], 1e-5);
    }
    // Threads copy what has no pitch of 16 bytes.
    agrees_on_hopper(&deep, &[random(F16, &[65, 260]), random(F16, &[63, 260]), output(F32, &[65, 63])], 1e-5);
}

#[test]
fn rows_along_n_lie_in_panels() {
    for (m, n, k) in [(70, 264, 200), (257, 72, 64), (1, 8, 136), (64, 1000, 8)] {
        agrees_on_hopper(&plain, &[random(Bf16, &[m, k]), random(Bf16, &[k, n]), output(Bf16, &[m, n])], 2e-2);
    }
    agrees_on_hopper(&plain, &[random(F16, &[65, 76]), random(F16, &[76, 130]), output(F16, &[65, 130])], 2e-2);
}

#[test]
fn rows_along_m_and_n_lie_in_panels() {
    for (m, n, k) in [(72, 200, 100), (264, 136, 72), (8, 8, 0), (100, 130, 130)] {
        agrees_on_hopper(&across, &[random(Bf16, &[k, m]), random(Bf16, &[k, n]), output(F32, &[m, n])], 1e-5);
        agrees_on_hopper(&left_across, &[random(F16, &[k, m]), random(F16, &[n, k]), output(F32, &[m, n])], 1e-5);
    }
}

#[test]
fn tiles_of_several_readers_lie_in_panels() {
    for d in [128, 192, 80] {
        for (n, h) in [(70, 200), (128, 64)] {
            let tensor = |rows| random(Bf16, &[rows, d]);
            agrees_on_hopper(&handed_on, &[tensor(n), tensor(h), tensor(h), output(F32, &[n, d])], 2e-2);
            agrees_on_hopper(&read_thrice, &[tensor(n), tensor(h), output(F32, &[n, d])], 2e-2);
        }
    }
}

#[test]
fn carried_tiles_lie_in_panels() {
    for (d, e) in [(64, 128), (128, 64), (64, 192)] {
        agrees_on_hopper(&carried, &[random(Bf16, &[2, d, e]), output(Bf16, &[2, d, e])], 4e-2);
    }
}

/// The kernels above test what they are meant to: their products are asynchronous, and the engine copies by panels.
#[test]
fn products_of_panels_are_asynchronous() {
    let device = Device::sim("sm_90a").unwrap();
    let zeros = |shape: &[usize]| Tensor::zeros(&device, Bf16, shape).unwrap();
    let f32s = |shape: &[usize]| Tensor::zeros(&device, F32, shape).unwrap();
    let check = |image: &KernelImage, name: &str, maps: usize| {
        assert!(image.ptx.contains("wgmma.mma_async") && !image.ptx.contains("mma.sync.aligned.m16n8"), "{name}");
        assert_eq!(image.maps.len(), maps, "{name}");
    };
    let (a, b) = (zeros(&[128, 256]), zeros(&[256, 128]));
    let config = |text: &str| text.parse::<Config>().unwrap();
    let (mut y, mut z) = (f32s(&[128, 128]), zeros(&[128, 128]));
    let engine = config("BM=128 BN=64 BK=128 stages=2 warps=8 copies=engine");
    check(deep.prepare_with(&device, &engine, args![&a, &a, &mut y]).unwrap().image().unwrap(), "deep", 2);
    let wide = config("BM=128 BN=128 BK=64 stages=3 warps=8 copies=engine");
    check(plain.prepare_with(&device, &wide, args![&a, &b, &mut z]).unwrap().image().unwrap(), "plain", 2);
    check(across.prepare_with(&device, &wide, args![&b, &b, &mut y]).unwrap().image().unwrap(), "across", 2);
    let mixed = config("BM=128 BN=192 BK=64 stages=2 warps=8 copies=engine");
    check(left_across.prepare_with(&device, &mixed, args![&b, &a, &mut y]).unwrap().image().unwrap(), "left_across", 2);
}
