//! Loads that start first in a block, in boundary cases.

use super::{agrees, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};

atlas_kernel! {
    /// Two loads from one place, one through a ring and one to registers.
    kernel one_place<T: Float>(x: &Tensor<T, [N, L]>, f: &Tensor<f32, [N, L]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4], BL: [32], stages: [3, 2], warps: [2, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for l in pipeline(tiles(L, BL)) {
                let at = l * BL + 1;
                total += sum(load(x[n, span(at, BL)]).cast::<f32>() * load(f[n, span(at, BL)]), axis = 1);
            }
            store(y[n], total);
        }
    }

    /// The same in a plain loop, beside a product.
    kernel one_place_of_three<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [K, N]>,
        s: &Tensor<T, [M, K]>,
        y: &mut Tensor<f32, [M, N]>,
    )
    tune { BM: [16], BN: [16], BK: [16], warps: [1] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            let mut rows = zeros::<f32>([BM, 1]);
            for k in tiles(K, BK) {
                let at = k * BK;
                acc += dot(load(a[m, span(at, BK)]), load(b[span(at, BK), n]));
                rows += sum(load(s[m, span(at, BK)]).cast::<f32>(), axis = 1);
            }
            store(y[m, n], acc + rows);
        }
    }

    /// A nested pipeline that starts at a number which the outer one loads.
    kernel begins_with<T: Float>(x: &Tensor<T, [N, L]>, f: &Tensor<f32, [N, L]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4], stages: [3, 2], warps: [1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            for h in pipeline(tiles(L, 32)) {
                let first = h * 2;
                let rows = load(f[n, span(first * 16, 32)]);
                total += sum(rows, axis = 1);
                for k in pipeline(first..first + 2) {
                    total += sum(load(f[n, span(k * 16, 16)]), axis = 1) * 0.5;
                }
                total += sum(load(x[n, span(first * 16, 32)]).cast::<f32>(), axis = 1);
            }
            store(y[n], total);
        }
    }

    /// More operands than fit in shared memory at once.
    kernel layers<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [D, D]>, v: &Tensor<T, [D, D]>, u: &Tensor<T, [D, D]>, t: &Tensor<T, [D, D]>, s: &Tensor<T, [D, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [16], warps: [4] }
    {
        for n in grid(tiles(N, BN)) {
            let a = load(x[n, ..]);
            let a = dot(a, load(w[.., ..])).cast::<T>();
            let a = dot(a, load(v[.., ..])).cast::<T>();
            let a = dot(a, load(u[.., ..])).cast::<T>();
            let a = dot(a, load(t[.., ..])).cast::<T>();
            let a = dot(a, load(s[.., ..])).cast::<T>();
            store(y[n, ..], a);
        }
    }
}

#[test]
fn a_place_of_two_loads_stands_once() {
    for l in [31, 64, 97] {
        agrees(&one_place, &[random(F16, &[9, l]), random(F32, &[9, l]), output(F32, &[9])], 4e-3);
        agrees(&begins_with, &[random(F16, &[9, l]), random(F32, &[9, l]), output(F32, &[9])], 4e-3);
    }
    for k in [16, 40] {
        let given = [random(F16, &[17, k]), random(F16, &[k, 24]), random(F16, &[17, k]), output(F32, &[17, 24])];
        agrees(&one_place_of_three, &given, 4e-3);
    }
}

#[test]
fn operands_start_as_far_as_there_is_room() {
    let w = || random(Bf16, &[128, 128]);
    agrees(&layers, &[random(Bf16, &[20, 128]), w(), w(), w(), w(), w(), output(Bf16, &[20, 128])], 6e-2);
}
