//! Tiles that the copy engine stores: of each type, width and rank, past the ends of tensors, in loops and beside other ones.

use super::{Given, agrees_on_hopper, input, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{Bf16, F16, F32, F64, I32};
use atlas_runtime::Arg;

atlas_kernel! {
    /// A tile of each width of a span, in one panel and in several.
    kernel scaled<T: Float>(x: &Tensor<T, [M, N]>, y: &mut Tensor<T, [M, N]>)
    tune { BM: [64, 256, 12], BN: [64, 16, 48, 128, 192], warps: [4, 1], stores: [engine] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            store(y[m, n], load(x[m, n]) * 2.0);
        }
    }

    /// A product: the stage has the bytes of the loop's ring.
    kernel product<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<T, [M, N]>)
    tune { BM: [128, 64], BN: [128, 64, 256], stages: [3, 2], warps: [4, 8], copies: [engine, threads], stores: [engine] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc.cast::<T>());
        }
    }

    /// Accumulators as they are, of batches.
    kernel product_of_batches<T: Float>(a: &Tensor<T, [G, M, K]>, b: &Tensor<T, [G, N, K]>, y: &mut Tensor<f32, [G, M, N]>)
    tune { BN: [64, 128], stages: [3], warps: [4, 8], copies: [engine], stores: [engine, threads] }
    {
        for (g, m, n) in grid(G, tiles(M, 64), tiles(N, BN)) {
            let mut acc = zeros::<f32>([64, BN]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[g, m, k]), load(b[g, n, k]).t());
            }
            store(y[g, m, n], acc);
        }
    }

    /// Several stores of a program, which share a stage or have their own.
    kernel several<T: Float>(
        x: &Tensor<T, [M, N]>,
        y: &mut Tensor<T, [M, N]>,
        z: &mut Tensor<f32, [M, N]>,
        w: &mut Tensor<T, [M, N]>,
    )
    tune { warps: [4, 2], stores: [engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            let t = load(x[m, n]);
            store(y[m, n], t * 2.0);
            store(z[m, n], t.cast::<f32>() + 1.0);
            store(w[m, n], t * t);
        }
    }

    /// A store in each iteration of a loop in a loop, of another tile each.
    kernel repeatedly<T: Float>(x: &Tensor<T, [G, M, N]>, y: &mut Tensor<T, [G, M, N]>)
    tune { warps: [4, 2], stores: [engine] }
    {
        for n in grid(tiles(N, 64)) {
            let mut last = zeros::<T>([64, 64]);
            for g in 0..size(G) {
                for m in pipeline(tiles(M, 64)) {
                    let t = load(x[g, m, n]).or(0.0);
                    store(y[g, m, n], t + last);
                    last = t;
                }
            }
        }
    }

    /// A store of the same tile in each iteration, which threads make.
    kernel again<T: Float>(x: &Tensor<T, [G, M, N]>, y: &mut Tensor<T, [M, N]>)
    tune { warps: [4], stores: [engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            for g in 0..size(G) {
                store(y[m, n], load(x[g, m, n]));
            }
        }
    }

    /// A tensor that is loaded and stored, which threads do.
    kernel replaced<T: Float>(y: &mut Tensor<T, [M, N]>)
    tune { warps: [4], stores: [engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            store(y[m, n], load(y[m, n]) * 0.5);
        }
    }

    /// A product in each iteration of a loop: the stage stands beside the loop's ring.
    kernel product_in_a_loop<T: Float>(a: &Tensor<T, [G, M, K]>, b: &Tensor<T, [N, K]>, y: &mut Tensor<T, [M, G, N]>)
    tune { stages: [3, 2], warps: [4, 8], copies: [engine, threads], stores: [engine] }
    {
        for (m, n) in grid(tiles(M, 128), tiles(N, 64)) {
            for g in 0..size(G) {
                let mut acc = zeros::<f32>([128, 64]);
                for k in pipeline(tiles(K, 64)) {
                    acc += dot(load(a[g, m, k]), load(b[n, k]).t());
                }
                store(y[m, g, n], acc.cast::<T>());
            }
        }
    }

    /// A tile that a loop carries in shared memory, then whole rows.
    kernel carried<T: Float>(x: &Tensor<T, [B, D, D]>, y: &mut Tensor<T, [B, D, D]>)
    tune { warps: [4, 8], stores: [engine] }
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

    /// Numbers of other types.
    kernel counted(x: &Tensor<i32, [M, N]>, z: &Tensor<f64, [M, N]>, y: &mut Tensor<i32, [M, N]>, w: &mut Tensor<f64, [M, N]>)
    tune { warps: [4, 1], stores: [engine] }
    {
        for (m, n) in grid(tiles(M, 32), tiles(N, 32)) {
            store(y[m, n], load(x[m, n]) + 3);
            store(w[m, n], load(z[m, n]) * 2.0);
        }
    }

    /// Rows of matrices, whole.
    kernel whole_rows<T: Float>(x: &Tensor<T, [M, D]>, y: &mut Tensor<T, [M, D]>)
    tune { BM: [1, 32, 5], warps: [4, 1], stores: [engine] }
    {
        for m in grid(tiles(M, BM)) {
            let t = load(x[m, ..]).cast::<f32>();
            store(y[m, ..], (t / (sum(t * t, axis = 1) + 1.0)).cast::<T>());
        }
    }

    /// A row.
    kernel row<T: Float>(x: &Tensor<T, [N]>, y: &mut Tensor<T, [N]>)
    tune { BN: [1024, 2048, 1152], warps: [4, 1], stores: [engine] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]) + 1.0);
        }
    }

    /// A tile that is computed transposed.
    kernel flipped<T: Float>(x: &Tensor<T, [M, N]>, y: &mut Tensor<T, [N, M]>)
    tune { warps: [4], stores: [engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 32)) {
            store(y[n, m], load(x[m, n]).t());
        }
    }

    /// Tiles that stand before the engine's stage and behind it in shared memory.
    kernel between<T: Float>(
        a: &Tensor<T, [M, K]>,
        b: &Tensor<T, [N, K]>,
        y: &mut Tensor<T, [M, N]>,
        z: &mut Tensor<T, [M, N]>,
    )
    tune { stages: [3], warps: [4], copies: [engine], stores: [engine] }
    {
        for (m, n) in grid(tiles(M, 64), tiles(N, 64)) {
            let mut acc = zeros::<f32>([64, 64]);
            for k in pipeline(tiles(K, 64)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(y[m, n], acc.cast::<T>());
            let mut second = acc * 0.5;
            for k in pipeline(tiles(K, 64)) {
                second += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(z[m, n], second.cast::<T>());
        }
    }
}

/// The copies to tensors that the engine makes by a config, and the stores of threads. The last tensors are the outputs.
fn stored(kernel: &'static KernelDef, config: &str, shapes: &[&[usize]], outputs: usize) -> (usize, usize) {
    let device = Device::sim("sm_90a").unwrap();
    let mut tensors: Vec<Tensor> = shapes.iter().map(|shape| Tensor::zeros(&device, Bf16, shape).unwrap()).collect();
    let (read, written) = tensors.split_at_mut(shapes.len() - outputs);
    let args: Vec<Arg<'_>> = read.iter().map(Arg::In).chain(written.iter_mut().map(Arg::Out)).collect();
    let launch = kernel.prepare_with(&device, &config.parse().unwrap(), args).unwrap();
    let ptx = launch.image().unwrap().ptx.clone();
    (ptx.matches(".bulk_group").count(), ptx.matches("st.global").count())
}

#[test]
fn threads_store_what_the_engine_cannot() {
    let by = |config: &str, n| stored(&scaled, config, &[&[64, n], &[64, n]], 1);
    assert_eq!(by("BM=64 BN=128 stores=engine", 128), (2, 0));
    let is_by_threads = |stores: (usize, usize)| stores.0 == 0 && stores.1 > 0;
    // Nobody asks, or for loads alone; a tile of 384 bytes; a pitch of 8 bytes.
    for (config, n) in [
        ("BM=64 BN=128", 128),
        ("BM=64 BN=128 copies=engine", 128),
        ("BM=12 BN=16 stores=engine", 128),
        ("BM=64 BN=128 stores=engine", 132),
    ] {
        assert!(is_by_threads(by(config, n)), "{config}");
    }
    // The same tile in each iteration, and a tensor that is loaded too.
    assert!(is_by_threads(stored(&again, "stores=engine", &[&[2, 64, 64], &[64, 64]], 1)));
    assert!(is_by_threads(stored(&replaced, "stores=engine", &[&[64, 64]], 1)));
    assert_eq!(stored(&repeatedly, "stores=engine", &[&[2, 64, 64], &[2, 64, 64]], 1), (1, 0));
}

#[test]
fn the_engine_stores_tiles_of_any_width() {
    for dtype in [Bf16, F16, F32] {
        for (m, n) in [(64, 64), (70, 72), (1, 8), (300, 200), (0, 8)] {
            agrees_on_hopper(&scaled, &[random(dtype, &[m, n]), output(dtype, &[m, n])], 1e-6);
        }
    }
}

#[test]
fn the_engine_stores_products() {
    for (m, n, k) in [(128, 128, 192), (70, 72, 200), (129, 264, 64), (1, 8, 0)] {
        for dtype in [Bf16, F16] {
            let given = [random(dtype, &[m, k]), random(dtype, &[n, k]), output(dtype, &[m, n])];
            agrees_on_hopper(&product, &given, 2e-2);
        }
    }
    // The output's pitch is no multiple of 16 bytes: threads store.
    agrees_on_hopper(&product, &[random(F16, &[65, 72]), random(F16, &[63, 72]), output(F16, &[65, 63])], 2e-2);
}

#[test]
fn the_engine_stores_batches() {
    for (g, m, n, k) in [(3, 70, 72, 72), (1, 64, 200, 200), (0, 8, 8, 8), (2, 0, 8, 8)] {
        let given = [random(Bf16, &[g, m, k]), random(Bf16, &[g, n, k]), output(F32, &[g, m, n])];
        agrees_on_hopper(&product_of_batches, &given, 1e-5);
    }
}

#[test]
fn stores_share_a_stage() {
    for (m, n) in [(64, 64), (70, 72), (130, 8)] {
        let outputs = [output(Bf16, &[m, n]), output(F32, &[m, n]), output(Bf16, &[m, n])];
        let given: Vec<Given> = std::iter::once(random(Bf16, &[m, n])).chain(outputs).collect();
        agrees_on_hopper(&several, &given, 1e-2);
    }
}

#[test]
fn iterations_store_one_after_the_other() {
    for (g, m) in [(1, 64), (2, 200), (3, 70), (0, 64)] {
        agrees_on_hopper(&repeatedly, &[random(F16, &[g, m, 72]), output(F16, &[g, m, 72])], 1e-2);
        agrees_on_hopper(&again, &[random(F16, &[g, m, 72]), output(F16, &[m, 72])], 1e-2);
    }
}

#[test]
fn the_engine_stores_rows() {
    for dtype in [F32, Bf16] {
        for n in [1024, 1000, 4096, 8] {
            agrees_on_hopper(&row, &[random(dtype, &[n]), output(dtype, &[n])], 1e-2);
        }
    }
}

#[test]
fn a_stage_stands_beside_a_ring_in_a_loop() {
    for (g, k) in [(3, 200), (1, 64), (2, 0), (0, 64)] {
        let given = [random(Bf16, &[g, 130, k]), random(Bf16, &[72, k]), output(Bf16, &[130, g, 72])];
        agrees_on_hopper(&product_in_a_loop, &given, 2e-2);
    }
}

#[test]
fn the_engine_stores_what_a_loop_carried() {
    for dtype in [Bf16, F16] {
        agrees_on_hopper(&carried, &[random(dtype, &[2, 64, 64]), output(dtype, &[2, 64, 64])], 4e-2);
    }
}

#[test]
fn the_engine_stores_numbers_of_other_types() {
    for (m, n) in [(40, 72), (32, 32), (1, 4)] {
        let whole = input(I32, &[m, n], |i| (i % 1000) as f64 - 500.0);
        let given = [whole, random(F64, &[m, n]), output(I32, &[m, n]), output(F64, &[m, n])];
        agrees_on_hopper(&counted, &given, 1e-6);
    }
}

#[test]
fn the_engine_stores_whole_rows() {
    for (dtype, d) in [(F32, 1024), (Bf16, 192), (Bf16, 2048), (F16, 200), (F32, 24)] {
        for m in [1, 33] {
            agrees_on_hopper(&whole_rows, &[random(dtype, &[m, d]), output(dtype, &[m, d])], 1e-2);
        }
    }
}

#[test]
fn the_engine_stores_what_was_transposed() {
    for (m, n) in [(64, 64), (72, 70)] {
        agrees_on_hopper(&flipped, &[random(F32, &[m, n]), output(F32, &[n, m])], 1e-6);
        agrees_on_hopper(&flipped, &[random(Bf16, &[m, n]), output(Bf16, &[n, m])], 1e-6);
    }
}

#[test]
fn a_stage_stands_beside_other_tiles() {
    for k in [64, 200] {
        let given = [random(Bf16, &[70, k]), random(Bf16, &[72, k]), output(Bf16, &[70, 72]), output(Bf16, &[70, 72])];
        agrees_on_hopper(&between, &given, 2e-2);
    }
}
