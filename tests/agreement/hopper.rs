//! Products that a warpgroup makes asynchronously, of operands as copies, threads and registers hand them on.

use super::{agrees, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// One warpgroup and several, below and beside each other; the widest product of one instruction.
    kernel by_warpgroups<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<T, [M, N]>)
    tune { BM: [128, 64, 256], BN: [64, 128, 256], BK: [64, 32, 16], stages: [3, 1, 4], warps: [4, 8, 16] }
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
    tune { BK: [64, 128, 32], stages: [2, 3], warps: [4] }
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
    tune { BN: [128, 64], stages: [2, 1, 3], warps: [4, 8] }
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
    tune { BN: [64, 128], stages: [2, 1, 3], warps: [4, 8] }
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
    tune { stages: [3, 2, 5], warps: [4] }
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
