//! Schedules that fix decisions of the compiler: grids of warps, orders of programs.

use super::{agrees, input, noise, output};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F32};
use atlas_dsl::{Config, DType};

atlas_kernel! {
    /// A product whose tiles are divided over warps by rows, by columns or by both, and whose programs run in groups of
    /// rows.
    kernel product<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [48], BN: [80], BK: [16], warps: [8], warp_grid: [1x8, 8x1, 2x4, 4x2], order: [groups(2), linear] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// Grids that divide neither the blocks of warps nor each other.
    kernel by_five<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [64], BN: [64], BK: [16], warps: [5], warp_grid: [1x5, 5x1] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc);
        }
    }

    /// The same with fewer columns than warps.
    kernel by_seven<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<f32, [M, N]>)
    tune { BM: [32], BN: [48], BK: [16], warps: [7], warp_grid: [1x7, 7x1] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc - max(acc.or(f32::NEG_INFINITY), axis = 1) * 0.0);
        }
    }

    /// A product that is computed by ranges of columns.
    kernel by_ranges<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [D, H]>, y: &mut Tensor<T, [N, H]>)
    tune { BN: [128], warps: [8], warp_grid: [1x8, 2x4, 4x2, 8x1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], exp(dot(load(x[n, ..]), load(w[.., ..]))).cast::<T>());
        }
    }

    /// Two products with a reduction of rows between them. Warps that split the columns of a row reduce it
    /// together and pass the result through shared memory, for every grid of six warps.
    kernel handed_on<T: Float>(x: &Tensor<T, [G, N, D]>, w: &Tensor<T, [D, H]>, v: &Tensor<T, [H, D]>, y: &mut Tensor<f32, [G, N, D]>)
    tune { BN: [96], warps: [6], warp_grid: [3x2, 1x6, 6x1, 2x3] }
    {
        for (g, n) in grid(G, tiles(N, BN)) {
            let h = max(dot(load(x[g, n, ..]), load(w[.., ..])), 0.0);
            let hidden = (h - sum(h, axis = 1) * 0.02).cast::<T>();
            store(y[g, n, ..], dot(hidden, load(v[.., ..])));
        }
    }
}

fn small(dtype: DType, shape: &[usize]) -> super::Given {
    input(dtype, shape, |i| noise(i + 3 * shape.len()) * 0.3)
}

#[test]
fn products_by_every_grid_of_warps() {
    for dtype in [Bf16, F32] {
        let (a, b) = (small(dtype, &[100, 40]), small(dtype, &[170, 40]));
        agrees(&product, &[a, b, output(F32, &[100, 170])], 1e-3);
        let (a, b) = (small(dtype, &[70, 40]), small(dtype, &[90, 40]));
        agrees(&by_five, &[a.clone(), b.clone(), output(F32, &[70, 90])], 1e-3);
        agrees(&by_seven, &[a, b, output(F32, &[70, 90])], 1e-3);
        agrees(&by_ranges, &[small(dtype, &[140, 16]), small(dtype, &[16, 192]), output(dtype, &[140, 192])], 2e-2);
        let (x, w, v) = (small(dtype, &[2, 70, 32]), small(dtype, &[32, 48]), small(dtype, &[48, 32]));
        agrees(&handed_on, &[x, w, v, output(F32, &[2, 70, 32])], 2e-2);
    }
}

/// A schedule's choices are in the kernel, and impossible choices are refused with a reason.
#[test]
fn a_schedule_is_obeyed_or_refused() -> atlas::Result<()> {
    let device = Device::sim("sm_80")?;
    let (x, w) =
        (device.tensor_from(&[half::bf16::ONE; 32 * 32], [32, 32])?, Tensor::zeros(&device, DType::Bf16, [32, 32])?);
    let refused = |config: &str| -> String {
        let mut y = Tensor::zeros(&device, DType::F32, [1, 32, 32]).expect("room for a tile");
        let config: Config = format!("BN=96 {config}").parse().expect("a config");
        let x = x.reshape([1, 32, 32]).expect("a view");
        let launched = handed_on.launch_with(&device, &config, args!(&x, &w, &w, &mut y));
        launched.map_or_else(|e| e.to_string(), |_| String::new())
    };
    assert_eq!(refused("warps=6 warp_grid=3x2"), "");
    assert_eq!(refused("warps=4 warp_grid=4x1 order=linear"), "");
    let mismatch = refused("warps=4 warp_grid=3x2");
    assert!(mismatch.contains("warp_grid = 3x2 has 6 warps, but warps = 4"), "{mismatch}");
    Ok(())
}
