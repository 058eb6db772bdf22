//! Programs whose iterations several CTAs share.

use super::{Given, agrees, agrees_on_hopper, in_place, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32};
use atlas_runtime::Arg;

atlas_kernel! {
    /// A product, with fewer and more iterations than CTAs.
    kernel product<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<T, [M, N]>)
    tune {
        BM: [64, 128, 16], BN: [64, 32, 128], BK: [32, 64], stages: [2, 3, 4, 1], warps: [4, 8, 2],
        stores: [auto, engine], split_k: [2, 3, 16, 1],
    }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc.cast::<T>());
        }
    }

    /// Sums that begin as a tile of the output itself, from an iteration on, with a tile beside them.
    kernel updated<T: Float>(
        a: &Tensor<T, [G, K, M]>,
        b: &Tensor<T, [G, K, N]>,
        bias: &Tensor<f32, [N]>,
        y: &mut Tensor<f32, [G, M, N]>,
    )
    tune { BM: [64, 32], BN: [64, 128], stages: [2, 3], warps: [4, 8], split_k: [2, 5] }
    {
        for (g, m, n) in grid(G, tiles(M, BM), tiles(N, BN)) {
            let mut acc = load(y[g, m, n]);
            for k in pipeline(1..(size(K) + 31) / 32) {
                acc += dot(load(a[g, span(32 * k, 32), m]).t(), load(b[g, span(32 * k, 32), n]));
            }
            store(y[g, m, n], acc * 0.5 + load(bias[n]));
        }
    }

    /// Sums of rows and of their squares, without a product: more CTAs than the rows' tiles fill.
    kernel moments<T: Float>(x: &Tensor<T, [N, V]>, s: &mut Tensor<f32, [N]>, q: &mut Tensor<f32, [N]>)
    tune { BN: [1, 4], BV: [64, 256], stages: [1, 3], warps: [1, 4], split_k: [4, 7] }
    {
        for n in grid(tiles(N, BN)) {
            let mut total = zeros::<f32>([BN, 1]);
            let mut squares = zeros::<f32>([BN, 1]);
            for v in pipeline(tiles(V, BV)) {
                let z = load(x[n, v]).cast::<f32>();
                total += sum(z, axis = 1);
                squares = sum(z * z, axis = 1) + squares;
            }
            store(s[n], total);
            store(q[n], squares - total * total / size(V).cast::<f32>());
        }
    }

    /// A tile beside the accumulator, which the engine fetches behind the sum, and differences.
    kernel beside<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        r: &Tensor<T, [M, N]>,
        c: &Tensor<f32, [M, N]>,
        y: &mut Tensor<T, [M, N]>,
    )
    tune { BM: [64, 128], BN: [64, 128], stages: [2, 3], warps: [4, 8], stores: [threads, engine], split_k: [3, 4] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = load(c[m, n]);
            for k in pipeline(tiles(K, 64)) {
                acc -= dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], (acc + load(r[m, n]).cast::<f32>()).cast::<T>());
        }
    }

    /// A wide tile beside the sum, of which columns are read behind the sum: the whole takes too many registers.
    kernel wide_beside<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, r: &Tensor<T, [M, N]>, y: &mut Tensor<T, [M, N]>)
    tune { stages: [2, 3], warps: [8], split_k: [2] }
    {
        for (m, n) in grid(tiles(M, 128), tiles(N, 256)) {
            let mut acc = zeros::<f32>([128, 256]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], (acc + load(r[m, n]).cast::<f32>()).cast::<T>());
        }
    }

    /// From one number to another, which may be far below it.
    kernel counted(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, lo: i32, hi: i32)
    tune { stages: [1], warps: [1, 4], split_k: [3, 1] }
    {
        for n in grid(tiles(N, 32)) {
            let mut acc = load(x[n]);
            for _ in lo..hi {
                acc += load(x[n]) * 0.5;
            }
            store(y[n], acc);
        }
    }

    /// Two products in a chain, and pairs of tiles.
    kernel hidden<T: Float>(x: &Tensor<T, [B, M, D]>, w: &Tensor<T, [H, D]>, v: &Tensor<T, [H, D]>, y: &mut Tensor<f32, [B, M, D]>)
    tune { BH: [64, 32], stages: [2, 3], warps: [4], split_k: [2, 4] }
    {
        for (b, m) in grid(B, tiles(M, 64)) {
            let rows = load(x[b, m, ..]);
            let mut acc = zeros::<f32>([64, D]);
            for h in pipeline(tiles(H, BH)) {
                acc += dot(gelu(dot(rows, load(w[h, ..]).t())).cast::<T>(), load(v[h, ..]));
            }
            store(y[b, m, ..], acc);
        }
    }

    kernel symmetric<T: Float>(x: &Tensor<T, [M, K]>, e: &mut Tensor<T, [M, M]>)
    tune { stages: [2, 4], warps: [4, 8], order: [linear, groups(2)], split_k: [3] }
    {
        for (i, j) in grid(pairs(tiles(M, 64))) {
            let mut acc = zeros::<f32>([64, 64]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(x[i, k]), load(x[j, k]).t());
            }
            let es = acc.cast::<T>();
            store(e[j, i], es.t());
            store(e[i, j], es);
        }
    }

    // ----- refused -----

    kernel largest<T: Float>(x: &Tensor<T, [N, V]>, y: &mut Tensor<f32, [N]>)
    tune { warps: [4], split_k: [2] }
    {
        for n in grid(tiles(N, 4)) {
            let mut top = zeros::<f32>([4, 1]);
            for v in pipeline(tiles(V, 64)) {
                top = max(top, max(load(x[n, v]).cast::<f32>().or(0.0), axis = 1));
            }
            store(y[n], top);
        }
    }

    /// One sum in registers, and one in shared memory, where the product behind the loop reads it.
    kernel multiplied<T: Float>(x: &Tensor<T, [N, V]>, y: &mut Tensor<f32, [N]>)
    tune { warps: [4], split_k: [2] }
    {
        for n in grid(tiles(N, 16)) {
            let mut total = zeros::<f32>([16, 1]);
            let mut all = zeros::<f32>([16, 64]);
            for v in pipeline(tiles(V, 64)) {
                let z = load(x[n, v]).or(0.0).cast::<f32>();
                total += sum(z, axis = 1);
                all += z;
            }
            store(y[n], total + sum(dot(all, all.t()), axis = 1));
        }
    }

    kernel decayed<T: Float>(x: &Tensor<T, [N, V]>, y: &mut Tensor<f32, [N]>)
    tune { warps: [4], split_k: [2] }
    {
        for n in grid(tiles(N, 4)) {
            let mut total = zeros::<f32>([4, 1]);
            for v in pipeline(tiles(V, 64)) {
                total = 0.5 * total + sum(load(x[n, v]).cast::<f32>(), axis = 1);
            }
            store(y[n], total);
        }
    }

    kernel doubled<T: Float>(x: &Tensor<T, [N, V]>, y: &mut Tensor<f32, [N]>)
    tune { warps: [4], split_k: [2] }
    {
        for n in grid(tiles(N, 4)) {
            let mut total = zeros::<f32>([4, 1]);
            for v in pipeline(tiles(V, 64)) {
                let now = total + sum(load(x[n, v]).cast::<f32>(), axis = 1);
                total = now + now;
            }
            store(y[n], total);
        }
    }

    kernel running<T: Float>(x: &Tensor<T, [N, V]>, y: &mut Tensor<f32, [N, V]>)
    tune { warps: [4], split_k: [2] }
    {
        for n in grid(tiles(N, 4)) {
            let mut total = zeros::<f32>([4, 1]);
            for v in 0..(size(V) + 63) / 64 {
                total += sum(load(x[n, span(64 * v, 64)]).cast::<f32>(), axis = 1);
                store(y[n, span(64 * v, 64)], broadcast(total, [4, 64]));
            }
        }
    }

    kernel nested<T: Float>(x: &Tensor<T, [N, V]>, y: &mut Tensor<f32, [N]>)
    tune { warps: [4], split_k: [2] }
    {
        for n in grid(tiles(N, 16)) {
            let mut acc = zeros::<f32>([16, 16]);
            for _ in 0..size(N) {
                for v in pipeline(tiles(V, 64)) {
                    let z = load(x[n, v]);
                    acc += dot(z, z.t());
                }
            }
            store(y[n], sum(acc, axis = 1));
        }
    }

    kernel twice<T: Float>(x: &Tensor<T, [N, V]>, y: &mut Tensor<f32, [N]>)
    tune { warps: [4], split_k: [2] }
    {
        for n in grid(tiles(N, 4)) {
            let mut total = zeros::<f32>([4, 1]);
            for v in pipeline(tiles(V, 64)) {
                total += sum(load(x[n, v]).cast::<f32>(), axis = 1);
            }
            let mut squares = zeros::<f32>([4, 1]);
            for v in pipeline(tiles(V, 64)) {
                let z = load(x[n, v]).cast::<f32>() - total;
                squares += sum(z * z, axis = 1);
            }
            store(y[n], squares);
        }
    }
}

#[test]
fn products_by_several_ctas() {
    for (m, n, k) in [(70, 72, 1000), (1, 128, 512), (128, 64, 64), (200, 136, 72), (5, 8, 0)] {
        for dtype in [Bf16, F16] {
            let given = [random(dtype, &[m, k]), random(dtype, &[n, k]), output(dtype, &[m, n])];
            agrees_on_hopper(&product, &given, 2e-2);
        }
    }
    agrees(&product, &[random(F32, &[20, 300]), random(F32, &[40, 300]), output(F32, &[20, 40])], 1e-2);
    agrees(&product, &[random(F16, &[33, 520]), random(F16, &[70, 520]), output(F16, &[33, 70])], 2e-2);
}

#[test]
fn sums_that_begin_as_a_tile_of_the_output() {
    for (g, m, n, k) in [(2, 70, 72, 300), (1, 64, 128, 64), (3, 10, 40, 20)] {
        let given = [random(Bf16, &[g, k, m]), random(Bf16, &[g, k, n]), random(F32, &[n]), in_place(F32, &[g, m, n])];
        agrees(&updated, &given, 2e-2);
        agrees_on_hopper(&updated, &given, 2e-2);
    }
}

#[test]
fn several_sums_without_a_product() {
    for (n, v) in [(5, 3000), (1, 64), (9, 700), (2, 0)] {
        agrees(&moments, &[random(Bf16, &[n, v]), output(F32, &[n]), output(F32, &[n])], 2e-2);
    }
}

#[test]
fn chains_and_pairs() {
    for (b, m, d, h) in [(2, 100, 64, 520), (1, 64, 128, 64), (3, 20, 64, 200)] {
        let given = [random(Bf16, &[b, m, d]), random(Bf16, &[h, d]), random(Bf16, &[h, d]), output(F32, &[b, m, d])];
        agrees_on_hopper(&hidden, &given, 3e-2);
        agrees(&hidden, &given, 3e-2);
    }
    for (m, k) in [(200, 1000), (64, 64), (130, 200)] {
        agrees_on_hopper(&symmetric, &[random(Bf16, &[m, k]), output(Bf16, &[m, m])], 2e-2);
    }
}

#[test]
fn a_tile_beside_the_sum_comes_behind_it() {
    for (m, n, k) in [(70, 72, 1000), (128, 128, 64), (200, 264, 0)] {
        let given = [
            random(Bf16, &[m, k]),
            random(Bf16, &[n, k]),
            random(Bf16, &[m, n]),
            random(F32, &[m, n]),
            output(Bf16, &[m, n]),
        ];
        agrees_on_hopper(&beside, &given, 2e-2);
    }
}

#[test]
fn a_wide_tile_beside_the_sum_is_read_by_ranges() {
    for (m, n, k) in [(128, 256, 192), (70, 264, 64)] {
        let given = [random(Bf16, &[m, k]), random(Bf16, &[n, k]), random(Bf16, &[m, n]), output(Bf16, &[m, n])];
        agrees_on_hopper(&wide_beside, &given, 2e-2);
    }
}

#[test]
fn bounds_that_lie_far_apart() {
    for (lo, hi) in [(0, 7), (5, 5), (9, 2), (2_147_483_640, -2_147_483_640), (-3, 4), (2_000_000_000, -2_000_000_000)]
    {
        agrees(&counted, &[random(F32, &[70]), output(F32, &[70]), Given::I32(lo), Given::I32(hi)], 1e-5);
    }
}

/// Why the simulator refuses a kernel's only config.
fn refusal(kernel: &'static KernelDef, wide: bool) -> String {
    let device = Device::sim("sm_80").unwrap();
    let x = Tensor::zeros(&device, Bf16, [8, 128]).unwrap();
    let shape: &[usize] = if wide { &[8, 128] } else { &[8] };
    let mut y = Tensor::zeros(&device, F32, shape).unwrap();
    kernel.launch(&device, vec![Arg::In(&x), Arg::Out(&mut y)]).unwrap_err().to_string()
}

#[test]
fn what_is_no_sum_is_refused() {
    for kernel in [&largest, &decayed, &doubled] {
        let said = refusal(kernel, false);
        assert!(said.contains("split_k=2: what the loop carries is not a sum"), "{}: {said}", kernel.name);
    }
    let said = refusal(&multiplied, false);
    assert!(said.contains("split_k=2: the loop carries a tile in shared memory"), "{said}");
    let said = refusal(&nested, false);
    assert!(
        said.contains("split_k=2: the sum runs through a loop inside of the program's loop, over tiles(V, 64),"),
        "{said}"
    );
    let said = refusal(&twice, false);
    assert!(said.contains("split_k=2: the program is not one loop and what follows from it; use split_k=1"), "{said}");
    assert!(refusal(&running, true).contains("stores before the loop's end"), "{}", refusal(&running, true));
    let both: Result<Config, _> = "split_k=2 programs=persistent".parse();
    assert!(both.unwrap().schedule.check().unwrap_err().contains("CTAs that share a program run one each"));
}
