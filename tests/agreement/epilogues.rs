//! Tiles that meet the accumulator of a product behind its loop, which the copy engine loads, and several results of one product.

use super::{Given, agrees_on_hopper, in_place as before, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{self, Bf16, F16, F32};
use atlas_runtime::Arg;

atlas_kernel! {
    /// A residual behind the loop: filled before it, or behind it where shared memory has no room.
    kernel added<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        r: &Tensor<T, [M, N]>,
        y: &mut Tensor<T, [M, N]>,
    )
    tune {
        BM: [128, 64], BN: [64, 48, 256], stages: [2, 4], warps: [8, 4], stores: [threads, engine]
    }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], (acc + load(r[m, n]).cast::<f32>()).cast::<T>());
        }
    }

    /// What the product begins with, and what it is multiplied by, of batches.
    kernel around<T: Float>(
        a: &Tensor<T, [G, M, K]>,
        b: &Tensor<T, [G, N, K]>,
        r: &Tensor<T, [G, M, N]>,
        s: &Tensor<T, [M, N]>,
        y: &mut Tensor<f32, [G, M, N]>,
    )
    tune { BN: [64, 128], stages: [2, 3], warps: [4, 8], copies: [engine, threads] }
    {
        for (g, m, n) in grid(G, tiles(M, 64), tiles(N, BN)) {
            let mut acc = load(r[g, m, n]).cast::<f32>();
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[g, m, k]), load(b[g, n, k]).t());
            }
            store(y[g, m, n], acc * load(s[m, n]).cast::<f32>());
        }
    }

    /// A residual in each iteration of a loop around the product, which threads copy.
    kernel in_a_loop<T: Float>(
        a: &Tensor<T, [G, M, K]>,
        b: &Tensor<T, [N, K]>,
        r: &Tensor<T, [G, M, N]>,
        y: &mut Tensor<T, [G, M, N]>,
    )
    tune { stages: [2, 3], warps: [4, 8], copies: [engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            for g in 0..size(G) {
                let mut acc = zeros::<f32>([64, 64]);
                for k in pipeline(tiles(K, 64)) {
                    acc += dot(load(a[g, m, k]), load(b[n, k]).t());
                }
                store(y[g, m, n], (acc + load(r[g, m, n]).cast::<f32>()).cast::<T>());
            }
        }
    }

    /// Two loops: the second residual stands behind both, the first one between them.
    kernel twice<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        r: &Tensor<T, [M, N]>,
        s: &Tensor<T, [M, N]>,
        y: &mut Tensor<T, [M, N]>,
    )
    tune { stages: [2, 3], warps: [4, 8], copies: [engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 128)) {
            let mut acc = zeros::<f32>([64, 128]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            acc = acc * load(r[m, n]).cast::<f32>();
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], (acc - load(s[m, n]).cast::<f32>()).cast::<T>());
        }
    }

    /// A tensor that the kernel writes too, which threads load.
    kernel in_place<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<T, [M, N]>)
    tune { BN: [64, 128], stages: [2, 3], warps: [4], copies: [engine], stores: [threads, engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, BN)) {
            let mut acc = zeros::<f32>([64, BN]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], (acc + load(y[m, n]).cast::<f32>()).cast::<T>());
        }
    }

    /// Two results of sums with a row and a column.
    kernel both<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        row: &Tensor<T, [N]>,
        column: &Tensor<f32, [M]>,
        y: &mut Tensor<T, [M, N]>,
        z: &mut Tensor<T, [M, N]>,
    )
    tune { BM: [64, 128], BN: [64, 48, 256], stages: [2, 3], warps: [4, 8], stores: [threads, engine] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            let sums = acc * load(column[m]).t() + load(row[n]).cast::<f32>();
            store(y[m, n], sums.cast::<T>());
            store(z[m, n], max(sums, 0.0).cast::<T>());
        }
    }
}

const BOUND: f64 = 2e-2;

/// The text of the kernel of a config, the last of whose tensors is written, and its shared memory in KiB.
fn compiled(kernel: &'static KernelDef, config: &str, dtypes: &[DType], shapes: &[&[usize]]) -> (String, u32) {
    let device = Device::sim("sm_90a").unwrap();
    let zeros = |(&dtype, shape): (&DType, &&[usize])| Tensor::zeros(&device, dtype, shape).unwrap();
    let mut tensors: Vec<Tensor> = dtypes.iter().zip(shapes).map(zeros).collect();
    let (read, written) = tensors.split_at_mut(shapes.len() - 1);
    let args: Vec<Arg<'_>> = read.iter().map(Arg::In).chain(written.iter_mut().map(Arg::Out)).collect();
    let launch = kernel.prepare_with(&device, &config.parse().unwrap(), args).unwrap();
    let image = launch.image().unwrap();
    (image.ptx.to_string(), image.shared_bytes / 1024)
}

/// Of the kernel of a config: the copies to shared memory by the engine and by threads in its text, and its shared memory in KiB.
fn copies(kernel: &'static KernelDef, config: &str, shapes: &[&[usize]]) -> (usize, usize, u32) {
    let (ptx, shared) = compiled(kernel, config, &[Bf16; 4], shapes);
    (ptx.matches("mbarrier::complete_tx::bytes").count(), ptx.matches("cp.async.c").count(), shared)
}

/// The residual of each batch is read by one program. The operands are not, nor is the factor, which all batches have.
#[test]
fn lines_that_are_read_once_leave_first() {
    let shapes: [&[usize]; 5] = [&[2, 128, 128], &[2, 128, 128], &[2, 128, 128], &[128, 128], &[2, 128, 128]];
    for stages in [2, 3] {
        let config = format!("BN=128 stages={stages} warps=4 copies=engine");
        let (ptx, _) = compiled(&around, &config, &[Bf16, Bf16, Bf16, Bf16, F32], &shapes);
        let copies = ptx.matches("mbarrier::complete_tx::bytes").count();
        let hinted = ptx.matches("mbarrier::complete_tx::bytes.L2::cache_hint").count();
        // Two panels of 64 columns; as many of the factor, and both operands, before the loop and in it.
        assert_eq!((copies, hinted), (2 + 2 + 2 * stages, 2), "{ptx}");
        assert!(ptx.contains("createpolicy.fractional.L2::evict_first.b64"));
    }
}

#[test]
fn the_engine_loads_what_meets_an_accumulator() {
    let of = |config: &str, [m, n, k]: [usize; 3]| copies(&added, config, &[&[m, k], &[n, k], &[m, n], &[m, n]]);
    let by = |config: &str| of(config, [256, 512, 512]);
    // Two operands before the loop, for all stages but one, and in it, and four panels. Two stages of 48 KiB leave room for them
    // before the loop; behind it they have the bytes of four.
    assert_eq!(by("BM=128 BN=256 stages=2 warps=8 programs=single"), (2 * 2 + 4, 0, 2 * 48 + 64));
    assert_eq!(by("BM=128 BN=256 stages=4 warps=8"), (2 * 4 + 4, 0, 4 * 48));
    // Threads: by the config, and where the residual's pitch is no multiple of 16 bytes.
    assert!(by("BM=128 BN=64 stages=2 warps=8 copies=threads").1 > 0);
    let (engine, threads, _) = of("BM=128 BN=64 stages=2 warps=8", [256, 68, 512]);
    assert!(engine == 2 * 2 && threads > 0);
}

#[test]
fn a_residual_is_added_at_any_size() {
    let given = |dtype: DType, [m, n, k]: [usize; 3]| {
        [random(dtype, &[m, k]), random(dtype, &[n, k]), random(dtype, &[m, n]), output(dtype, &[m, n])]
    };
    for size in [[128, 256, 64], [70, 72, 200], [129, 264, 40], [1, 8, 0], [37, 51, 29], [0, 8, 8]] {
        agrees_on_hopper(&added, &given(Bf16, size), BOUND);
    }
    agrees_on_hopper(&added, &given(F16, [70, 72, 200]), BOUND);
    let [a, b, r, y] = given(F16, [70, 64, 72]);
    agrees_on_hopper(&added, &[a.clone(), b.clone(), r.clone().within(8, 16), y.clone()], BOUND);
    agrees_on_hopper(&added, &[a.clone(), b.clone(), r.clone().within(3, 2), y.clone()], BOUND);
    agrees_on_hopper(&added, &[a, b, r.by_columns(), y], BOUND);
}

#[test]
fn products_begin_with_a_tile_and_are_multiplied_by_one() {
    for (g, m, n, k) in [(2, 70, 72, 200), (1, 64, 136, 64), (0, 8, 8, 8), (1, 37, 29, 51), (2, 9, 8, 0)] {
        let inputs = [random(Bf16, &[g, m, k]), random(Bf16, &[g, n, k]), random(Bf16, &[g, m, n])];
        let given: Vec<Given> = inputs.into_iter().chain([random(Bf16, &[m, n]), output(F32, &[g, m, n])]).collect();
        agrees_on_hopper(&around, &given, 1e-5);
    }
}

#[test]
fn residuals_of_loops_and_between_them_are_added() {
    for (g, m, n, k) in [(3, 70, 72, 200), (1, 64, 64, 64), (0, 8, 8, 8)] {
        let given =
            [random(Bf16, &[g, m, k]), random(Bf16, &[n, k]), random(Bf16, &[g, m, n]), output(Bf16, &[g, m, n])];
        agrees_on_hopper(&in_a_loop, &given, BOUND);
        let inputs = [random(Bf16, &[m, k]), random(Bf16, &[n, k]), random(Bf16, &[m, n]), random(Bf16, &[m, n])];
        let given: Vec<Given> = inputs.into_iter().chain([output(Bf16, &[m, n])]).collect();
        agrees_on_hopper(&twice, &given, BOUND);
    }
}

#[test]
fn a_tensor_that_is_written_is_added_to() {
    for (m, n, k) in [(70, 72, 200), (64, 64, 64), (37, 51, 29)] {
        agrees_on_hopper(&in_place, &[random(Bf16, &[m, k]), random(Bf16, &[n, k]), before(Bf16, &[m, n])], BOUND);
    }
}

#[test]
fn a_product_has_two_results() {
    for (m, n, k) in [(128, 256, 64), (70, 72, 200), (37, 51, 29), (1, 8, 0)] {
        let inputs = [random(Bf16, &[m, k]), random(Bf16, &[n, k]), random(Bf16, &[n]), random(F32, &[m])];
        let given: Vec<Given> = inputs.into_iter().chain([output(Bf16, &[m, n]), output(Bf16, &[m, n])]).collect();
        agrees_on_hopper(&both, &given, BOUND);
    }
}
