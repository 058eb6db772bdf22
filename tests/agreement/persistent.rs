//! Programs that a CTA runs one after the other, with the copies of the next one ahead.

use super::{agrees_on_hopper, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32, I32};
use atlas_runtime::Arg;

atlas_kernel! {
    /// A product, with fewer and more iterations than stages.
    kernel product<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<T, [M, N]>)
    tune {
        BM: [64, 128], BN: [64, 128, 192, 256], BK: [32, 64], stages: [2, 3, 4], warps: [4, 8],
        stores: [auto, threads], order: [auto, linear], programs: [persistent],
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

    /// Tiles of which each warpgroup stores its own rows, in panels: an even number of them, and an odd one.
    kernel wide<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<T, [M, N]>)
    tune { BM: [128, 192], BN: [256, 192], stages: [3], warps: [8, 12], products: [warpgroups], programs: [persistent] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc.cast::<T>());
        }
    }

    /// Batches, an operand of which all share, a bias, and two outputs: one by each thread, and one of another type.
    kernel batches<T: Float>(
        a: &Tensor<T, [G, M, K]>,
        b: &Tensor<T, [K, N]>,
        bias: &Tensor<f32, [N]>,
        y: &mut Tensor<T, [G, M, N]>,
        z: &mut Tensor<f32, [G, M, N]>,
    )
    tune { BN: [64, 128], stages: [3, 2], warps: [4, 8], stores: [engine, threads], programs: [persistent, single] }
    {
        for (g, m, n) in grid(G, tiles(M, 64), tiles(N, BN)) {
            let mut acc = zeros::<f32>([64, BN]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[g, m, k]), load(b[k, n]));
            }
            let sum = acc + load(bias[n]);
            store(y[g, m, n], sum.cast::<T>());
            store(z[g, m, n], sum * 0.5);
        }
    }

    /// A tile beside the accumulator, which the engine fetches for each program.
    kernel residual<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        r: &Tensor<T, [M, N]>,
        y: &mut Tensor<T, [M, N]>,
        z: &mut Tensor<T, [M, N]>,
    )
    tune { BN: [64, 128], stages: [3, 2], warps: [4, 8], stores: [engine, threads], programs: [persistent] }
    {
        for (m, n) in grid(tiles(M, 128), tiles(N, BN)) {
            let mut acc = zeros::<f32>([128, BN]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            let sum = acc + load(r[m, n]).cast::<f32>();
            store(y[m, n], sum.cast::<T>());
            store(z[m, n], (sum * sum).cast::<T>());
        }
    }

    /// Pairs of tiles, each stored on both sides of the diagonal.
    kernel symmetric<T: Float>(x: &Tensor<T, [B, M, K]>, e: &mut Tensor<T, [B, M, M]>)
    tune {
        BI: [64, 128], stages: [2, 4], warps: [4, 8], order: [linear, groups(2), groups(3)],
        stores: [engine, threads], programs: [persistent, single],
    }
    {
        for (b, i, j) in grid(B, pairs(tiles(M, BI))) {
            let mut acc = zeros::<f32>([BI, BI]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(x[b, i, k]), load(x[b, j, k]).t());
            }
            store(e[b, j, i], acc.t().cast::<T>());
            store(e[b, i, j], acc.cast::<T>());
        }
    }

    /// A product in each iteration of a loop, whose first stages are filled in that loop: its programs have a CTA each.
    kernel in_a_loop<T: Float>(a: &Tensor<T, [G, M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<T, [M, G, N]>)
    tune { BN: [64, 256], stages: [2, 3], warps: [4, 8], stores: [auto, engine], programs: [persistent, auto, single] }
    {
        for (m, n) in grid(tiles(M, 128), tiles(N, BN)) {
            for g in 0..size(G) {
                let mut acc = zeros::<f32>([128, BN]);
                for k in pipeline(tiles(K, 64)) {
                    acc += dot(load(a[g, m, k]), load(b[n, k]).t());
                }
                store(y[m, g, n], acc.cast::<T>());
            }
        }
    }

    /// A tile that is stored in each iteration of a loop, and once behind it, in one layout.
    kernel steps<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        z: &mut Tensor<T, [M, G, N]>,
        y: &mut Tensor<T, [M, N]>,
    )
    tune { BN: [64, 128, 192], stages: [2, 3], warps: [4, 8], programs: [persistent, single] }
    {
        for (m, n) in grid(tiles(M, 128), tiles(N, BN)) {
            let mut acc = zeros::<f32>([128, BN]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            for g in 0..size(G) {
                acc = acc * 0.5;
                store(z[m, g, n], acc.cast::<T>());
            }
            store(y[m, n], (acc + 1.0).cast::<T>());
        }
    }

    /// As many iterations as the program's number, and one more: each program fills its own first stages.
    kernel triangle<T: Float>(q: &Tensor<T, [M, D]>, k: &Tensor<T, [N, D]>, v: &Tensor<T, [N, D]>, y: &mut Tensor<f32, [M, D]>)
    tune { stages: [2, 3], warps: [4], products: [warpgroups], programs: [persistent] }
    {
        for m in grid(tiles(M, 64)) {
            let rows = load(q[m, ..]);
            let mut acc = zeros::<f32>([64, D]);
            for n in pipeline(0..min(m + 1, (size(N) + 63) / 64)) {
                let z = dot(rows, load(k[span(64 * n, 64), ..]).t());
                acc += dot(z.cast::<T>(), load(v[span(64 * n, 64), ..]));
            }
            store(y[m, ..], acc);
        }
    }

    /// Two pipelined loops, of which the second has another number of iterations, and a tile that both read.
    kernel chained<T: Float>(
        x: &Tensor<T, [N, D]>,
        w: &Tensor<T, [H, D]>,
        v: &Tensor<T, [H, D]>,
        u: &Tensor<T, [E, D]>,
        y: &mut Tensor<f32, [N, D]>,
        s: &mut Tensor<f32, [N]>,
    )
    tune { BN: [64, 128], BH: [64, 32], stages: [2, 3], warps: [4, 8], products: [warpgroups], programs: [persistent] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            let mut acc = zeros::<f32>([BN, D]);
            for h in pipeline(tiles(H, BH)) {
                let hidden = dot(rows, load(w[h, ..]).t());
                acc += dot(hidden.cast::<T>(), load(v[h, ..]));
            }
            let mut largest = zeros::<f32>([BN, 1]);
            for e in pipeline(tiles(E, 64)) {
                largest = max(largest, max(dot(rows, load(u[e, ..]).t()).or(0.0), axis = 1));
            }
            store(y[n, ..], acc);
            store(s[n], largest);
        }
    }

    /// Rows from where a table says.
    kernel by_table<T: Float>(
        at: &Tensor<i32, [G]>,
        a: &Tensor<T, [P, M, K]>,
        b: &Tensor<T, [N, K]>,
        y: &mut Tensor<f32, [G, M, N]>,
    )
    tune { stages: [2, 3], warps: [4], programs: [persistent] }
    {
        for (g, m, n) in grid(G, tiles(M, 64), tiles(N, 64)) {
            let page = load(at[g]);
            let mut acc = zeros::<f32>([64, 64]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[page, m, k]), load(b[n, k]).t());
            }
            store(y[g, m, n], acc);
        }
    }
}

#[test]
fn products_of_several_programs_of_a_cta() {
    // No iterations, fewer than stages, as many, and more; one program, fewer programs than CTAs, and many.
    for (m, n, k) in [(128, 128, 192), (70, 72, 200), (129, 520, 64), (1, 8, 0), (200, 136, 520), (500, 264, 32)] {
        for dtype in [Bf16, F16] {
            let given = [random(dtype, &[m, k]), random(dtype, &[n, k]), output(dtype, &[m, n])];
            agrees_on_hopper(&product, &given, 2e-2);
        }
    }
}

#[test]
fn warpgroups_store_their_own_rows() {
    for (m, n, k) in [(500, 520, 136), (200, 1040, 32), (129, 264, 0)] {
        agrees_on_hopper(&wide, &[random(Bf16, &[m, k]), random(Bf16, &[n, k]), output(Bf16, &[m, n])], 2e-2);
    }
}

#[test]
fn batches_and_two_outputs() {
    for (g, m, n, k) in [(3, 70, 72, 200), (2, 200, 264, 64), (1, 1, 8, 0), (5, 64, 136, 136)] {
        let given = [
            random(Bf16, &[g, m, k]),
            random(Bf16, &[k, n]),
            random(F32, &[n]),
            output(Bf16, &[g, m, n]),
            output(F32, &[g, m, n]),
        ];
        agrees_on_hopper(&batches, &given, 2e-2);
    }
}

#[test]
fn a_tile_beside_the_accumulator() {
    for (m, n, k) in [(500, 264, 200), (300, 136, 64), (129, 520, 0)] {
        let given = [
            random(Bf16, &[m, k]),
            random(Bf16, &[n, k]),
            random(Bf16, &[m, n]),
            output(Bf16, &[m, n]),
            output(Bf16, &[m, n]),
        ];
        agrees_on_hopper(&residual, &given, 2e-2);
    }
}

#[test]
fn pairs_in_groups() {
    for (b, m, k) in [(1, 200, 136), (2, 456, 64), (1, 1000, 8), (3, 64, 264)] {
        agrees_on_hopper(&symmetric, &[random(Bf16, &[b, m, k]), output(Bf16, &[b, m, m])], 2e-2);
    }
}

#[test]
fn trips_that_depend_on_the_program() {
    for (m, n, d) in [(300, 200, 64), (64, 0, 64), (500, 500, 128)] {
        let given = [random(Bf16, &[m, d]), random(Bf16, &[n, d]), random(Bf16, &[n, d]), output(F32, &[m, d])];
        agrees_on_hopper(&triangle, &given, 3e-2);
    }
}

#[test]
fn loops_in_loops() {
    for (g, m, n, k) in [(3, 300, 136, 200), (1, 500, 72, 64), (2, 200, 200, 0), (0, 300, 64, 64)] {
        agrees_on_hopper(
            &in_a_loop,
            &[random(Bf16, &[g, m, k]), random(Bf16, &[n, k]), output(Bf16, &[m, g, n])],
            2e-2,
        );
    }
}

#[test]
fn stores_in_loops_and_behind_them() {
    for (g, m, n, k) in [(3, 300, 264, 200), (2, 500, 520, 64), (0, 200, 136, 136), (1, 129, 384, 0)] {
        let given = [random(Bf16, &[m, k]), random(Bf16, &[n, k]), output(Bf16, &[m, g, n]), output(Bf16, &[m, n])];
        agrees_on_hopper(&steps, &given, 2e-2);
    }
}

#[test]
fn two_loops_go_on_each_by_itself() {
    for (n, d, h, e) in [(200, 64, 200, 72), (500, 128, 64, 300), (64, 64, 0, 64), (130, 80, 136, 1)] {
        let rows = |n| random(Bf16, &[n, d]);
        let given = [rows(n), rows(h), rows(h), rows(e), output(F32, &[n, d]), output(F32, &[n])];
        agrees_on_hopper(&chained, &given, 3e-2);
    }
}

#[test]
fn places_from_memory() {
    let pages = input(I32, &[4], |i| [2.0, 0.0, 1.0, 2.0][i]);
    let given = [pages, random(Bf16, &[3, 100, 200]), random(Bf16, &[72, 200]), output(F32, &[4, 100, 72])];
    agrees_on_hopper(&by_table, &given, 2e-2);
}

/// The key and the choice of `auto` ask for persistent programs, and no pass does what suits these alone.
#[test]
fn products_in_loops_have_single_programs_altogether() {
    let device = Device::sim("sm_90a").unwrap();
    let [a, b] = [&[2, 128, 64][..], &[256, 64]].map(|shape| Tensor::zeros(&device, Bf16, shape).unwrap());
    let mut y = Tensor::zeros(&device, Bf16, [128, 2, 256]).unwrap();
    let mut image = |programs: &str| {
        let config = format!("BN=256 stages=3 warps=8 programs={programs}").parse().unwrap();
        let args = vec![Arg::In(&a), Arg::In(&b), Arg::Out(&mut y)];
        let launch = in_a_loop.prepare_with(&device, &config, args).unwrap();
        let image = launch.image().unwrap();
        assert!(!image.persistent, "{programs}");
        (image.ptx.clone(), image.maps.clone())
    };
    let single = image("single");
    for programs in ["persistent", "auto"] {
        assert_eq!(image(programs), single, "{programs}");
    }
}

/// True if a CTA of a product runs several programs by a config.
fn is_persistent(config: &str, k: usize) -> bool {
    let device = Device::sim("sm_90a").unwrap();
    let read = Tensor::zeros(&device, Bf16, [64, k]).unwrap();
    let mut written = Tensor::zeros(&device, Bf16, [64, 64]).unwrap();
    let args = vec![Arg::In(&read), Arg::In(&read), Arg::Out(&mut written)];
    let launch = product.prepare_with(&device, &config.parse().unwrap(), args).unwrap();
    launch.image().unwrap().persistent
}

#[test]
fn programs_whose_tiles_threads_fetch_have_a_cta_each() {
    let by = |more: &str, k| is_persistent(&format!("BM=64 BN=64 BK=64 stages=3 warps=4 programs={more}"), k);
    assert!(by("persistent", 64));
    for (config, k) in [
        ("single", 64),
        ("auto", 64),
        ("persistent copies=threads", 64),
        ("persistent products=warps", 64),
        ("persistent", 60),
        ("persistent", 0),
    ] {
        assert!(!by(config, k), "{config} of {k}");
    }
}
