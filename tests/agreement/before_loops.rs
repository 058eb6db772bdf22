//! Tiles that the copy engine fetches outside of loops, for products in loops; and sums of split programs.

use super::{agrees_on_hopper, input, output, random};
use atlas::prelude::*;
use atlas_dsl::Config;
use atlas_dsl::DType::{self, Bf16, F16, F32, I32};
use atlas_runtime::Arg;

atlas_kernel! {
    /// A tile between two loops, behind whose first one it would fit.
    kernel between<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        x: &Tensor<T, [N, D]>,
        c: &Tensor<T, [J, D]>,
        d: &Tensor<T, [J, D]>,
        y: &mut Tensor<f32, [M, N]>,
        z: &mut Tensor<f32, [M, N]>,
    )
    tune { stages: [2], warps: [4], products: [warpgroups], programs: [single] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 192)) {
            let mut first = zeros::<f32>([64, 192]);
            for k in pipeline(tiles(K, 128)) {
                first += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], first);
            let xs = load(x[n, ..]);
            let mut second = zeros::<f32>([64, 192]);
            for j in pipeline(tiles(J, 64)) {
                second += dot(load(c[j, ..]).or(0.0), xs.t());
                second += dot(load(d[j, ..]).or(0.0), xs.t());
            }
            store(z[m, n], second);
        }
    }

    /// A sum of many registers by any number of CTAs.
    kernel split_sum<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune {
        BM: [128, 64], BN: [128, 64], stages: [2], warps: [4, 8], products: [warpgroups], copies: [engine],
        split_k: [5, 6, 7, 2, 12],
    }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// A row that registers hold.
    kernel divided(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { warps: [4], occupancy: [10, 11] }
    {
        for n in grid(tiles(N, 1)) {
            let v = load(x[n, ..]);
            store(y[n, ..], v / sum(v * v, axis = 1));
        }
    }

    /// A tile whose first row, or whose matrix, is a number in memory: before it and behind it, and at the ends of i32.
    kernel from_memory<T: Float>(
        at: &Tensor<i32, [G]>,
        page: &Tensor<i32, [G]>,
        x: &Tensor<T, [P, R, D]>,
        w: &Tensor<T, [H, D]>,
        y: &mut Tensor<f32, [G, D]>,
    )
    tune { stages: [2, 3], warps: [4], products: [warpgroups], copies: [engine, threads], programs: [single, persistent] }
    {
        for g in grid(G) {
            let matrix = load(page[g]);
            let first = load(at[g]);
            let xs = load(x[matrix, span(first, 64), ..]);
            let mut acc = zeros::<f32>([64, D]);
            for h in pipeline(tiles(H, 64)) {
                let ws = load(w[h, ..]);
                let z = dot(xs, ws.t());
                acc += dot(z.cast::<T>(), ws);
            }
            store(y[g, ..], sum(acc, axis = 0));
        }
    }

    /// One tensor by several loads; a tile that two loops read, as it is and transposed, and a product behind both; a tile behind
    /// the loops that only a product outside of loops reads.
    kernel everywhere<T: Float>(
        x: &Tensor<T, [N, D]>,
        u: &Tensor<T, [E, D]>,
        p: &Tensor<T, [D, D]>,
        y: &mut Tensor<T, [N, D]>,
        q: &mut Tensor<f32, [N, D]>,
    )
    tune {
        BN: [64, 128], stages: [2, 3], warps: [4, 8], products: [warpgroups], stores: [engine, threads],
        programs: [persistent, single],
    }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            let mut acc = zeros::<f32>([BN, D]);
            for h in pipeline(tiles(N, 64)) {
                let others = load(x[h, ..]);
                acc += dot((dot(rows, others.t()) * 0.1).cast::<T>(), others);
            }
            let mut more = zeros::<f32>([BN, D]);
            for e in pipeline(tiles(E, 32)) {
                let others = load(u[e, ..]);
                more += dot((dot(rows, others.t()) * 0.1).cast::<T>(), others);
            }
            let square = load(p[.., ..]);
            store(y[n, ..], (dot(acc.cast::<T>(), square) + more).cast::<T>());
            store(q[n, ..], dot(rows, square.t()));
        }
    }

    /// A tile of an axis that may be empty, while the others are not, and that a split loop reads, and the program behind it.
    kernel around_a_split<T: Float>(
        x: &Tensor<T, [P, D]>,
        w: &Tensor<T, [H, D]>,
        v: &Tensor<T, [H, D]>,
        r: &Tensor<T, [D, D]>,
        y: &mut Tensor<f32, [N, D]>,
    )
    tune { stages: [2, 3], warps: [4], products: [warpgroups], split_k: [3, 7, 1, 2] }
    {
        for n in grid(tiles(N, 64)) {
            let xs = load(x[span(64 * n, 64), ..]).or(0.0);
            let mut acc = zeros::<f32>([64, D]);
            for h in pipeline(tiles(H, 64)) {
                acc += dot((dot(xs, load(w[h, ..]).t()) * 0.1).cast::<T>(), load(v[h, ..]));
            }
            store(y[n, ..], acc + dot(xs, load(r[.., ..])));
        }
    }
}

/// The PTX for Hopper, its tensor maps, and whether programs are persistent; or the refusal.
fn compiled(
    kernel: &'static KernelDef,
    config: &str,
    dtype: DType,
    read: &[&[usize]],
    written: &[&[usize]],
) -> std::result::Result<(String, usize, bool), String> {
    let device = Device::sim("sm_90a").unwrap();
    let zeros = |dtype: DType, shape: &[usize]| Tensor::zeros(&device, dtype, shape).unwrap();
    let read: Vec<Tensor> = read.iter().map(|shape| zeros(dtype, shape)).collect();
    let mut written: Vec<Tensor> = written.iter().map(|shape| zeros(F32, shape)).collect();
    let mut given: Vec<Arg<'_>> = read.iter().map(Arg::In).collect();
    given.extend(written.iter_mut().map(Arg::Out));
    let config: Config = config.parse().unwrap();
    let launch = kernel.prepare_with(&device, &config, given).map_err(|e| e.to_string())?;
    let image = launch.image().expect("PTX");
    Ok((image.ptx.clone(), image.maps.len(), image.persistent))
}

/// A loop over groups of CTAs that ran once would become one block with the first group.
#[test]
fn blocks_of_a_split_sum_have_few_loads() {
    for (config, steps, at_once) in [
        ("BM=128 BN=128 stages=2 warps=4 split_k=2", 32, 1),
        ("BM=128 BN=128 stages=2 warps=8 split_k=2", 16, 1),
        ("BM=128 BN=64 stages=2 warps=8 split_k=4", 8, 2),
        ("BM=64 BN=64 stages=2 warps=4 split_k=4", 8, 2),
        ("BM=64 BN=64 stages=2 warps=8 split_k=8", 4, 4),
    ] {
        let config = format!("{config} products=warpgroups copies=engine");
        let (ptx, ..) = compiled(&split_sum, &config, Bf16, &[&[256, 4096], &[256, 4096]], &[&[256, 256]]).unwrap();
        let (mut most, mut here) = (0, 0);
        for line in ptx.lines().map(str::trim) {
            if line.starts_with("$L") || line.contains("bra") {
                here = 0;
            }
            here += usize::from(line.contains("ld.global") && line.contains(".v4"));
            most = most.max(here);
        }
        assert!(most <= steps * at_once, "{config}: {most} loads in a block, not {}", steps * at_once);
    }
}

/// The engine's fill of `xs` stands before the first loop, so its bytes are those of no other tile: threads copy it where they do not
/// fit.
#[test]
fn a_tile_between_loops_is_not_moved_to_where_nothing_fits() {
    let read: [&[usize]; 5] = [&[64, 256], &[192, 256], &[192, 256], &[128, 256], &[128, 256]];
    let with = |copies: &str| {
        let config = format!("stages=2 warps=4 products=warpgroups programs=single copies={copies}");
        compiled(&between, &config, Bf16, &read, &[&[64, 192], &[64, 192]]).map(|found| found.1)
    };
    assert!(with("threads").is_ok(), "{:?}", with("threads"));
    assert!(with("engine").is_ok(), "{:?}", with("engine"));
}

#[test]
fn a_lower_occupancy_takes_what_a_higher_one_does() {
    for d in (2048..5632).step_by(128) {
        let takes = |occupancy: u32| {
            compiled(&divided, &format!("warps=4 occupancy={occupancy}"), F32, &[&[4, d]], &[&[4, d]]).is_ok()
        };
        assert!(!takes(11) || takes(10), "rows of {d}: an occupancy of 11 is taken, and 10 refused");
    }
}

/// Coordinates do not wrap, and a matrix that is none is not read.
#[test]
fn places_of_tiles_outside_of_loops_come_from_memory() {
    let starts = [-64, -63, -1, 0, 37, 99, 100, i32::MAX, i32::MAX - 62, i32::MIN, i32::MIN + 1, 5];
    let pages = [0, 1, 2, 1, 0, 2, 1, 0, 1, 2, 1, -1];
    for (p, rows, h) in [(3, 100, 200), (1, 40, 64), (0, 100, 64), (3, 0, 64), (3, 100, 0)] {
        let given = [
            input(I32, &[12], |i| f64::from(starts[i])),
            input(I32, &[12], |i| f64::from(pages[i])),
            random(Bf16, &[p, rows, 64]),
            random(Bf16, &[h, 64]),
            output(F32, &[12, 64]),
        ];
        agrees_on_hopper(&from_memory, &given, 3e-2);
    }
}

/// A stage goes back to the engine behind its last reader.
#[test]
fn tiles_are_read_in_loops_and_outside() {
    for (n, e, d) in [(500, 72, 64), (1000, 33, 128), (64, 0, 64), (130, 200, 80), (1, 1, 64)] {
        for dtype in [Bf16, F16] {
            let given = [
                random(dtype, &[n, d]),
                random(dtype, &[e, d]),
                random(dtype, &[d, d]),
                output(dtype, &[n, d]),
                output(F32, &[n, d]),
            ];
            agrees_on_hopper(&everywhere, &given, 5e-2);
        }
    }
}

/// A CTA without iterations waits for the fill, too.
#[test]
fn a_tile_around_a_split_loop() {
    for (n, p, h) in [(130, 130, 200), (130, 70, 64), (64, 0, 64), (200, 200, 0), (64, 1, 1000)] {
        let given = [
            random(Bf16, &[p, 64]),
            random(Bf16, &[h, 64]),
            random(Bf16, &[h, 64]),
            random(Bf16, &[64, 64]),
            output(F32, &[n, 64]),
        ];
        agrees_on_hopper(&around_a_split, &given, 5e-2);
    }
}

/// Groups of 1, 2, 3, 4 and all CTAs.
#[test]
fn any_number_of_parts_is_added() {
    for k in [0, 64, 1000, 64 * 13] {
        let given = [random(Bf16, &[130, k]), random(Bf16, &[200, k]), output(F32, &[130, 200])];
        agrees_on_hopper(&split_sum, &given, 1e-4);
    }
}
