//! Tensors of i8, u8, i16 and u16: moved as they are, converted both ways, and as the weights of products.

use super::{Given, agrees, agrees_on_hopper, agrees_with, input, noise, output, random};
use atlas::prelude::*;
use atlas_dsl::DType::{self, Bf16, F16, F32, F64, I8, I16, I32, I64, U8, U16};
use atlas_dsl::KernelDef;
use atlas_dsl::rounding::{to_bf16, to_f16};
use atlas_runtime::{Arg, CacheDir, Device, SimOptions, Target, Tensor};

/// Kernels of one small type.
macro_rules! of_type {
    ($small:ident, $copied:ident, $widened:ident, $narrowed:ident, $recast:ident, $shaped:ident, $picked:ident, $latest:ident) => {
        atlas_kernel! {
            kernel $copied(x: &Tensor<$small, [N, D]>, y: &mut Tensor<$small, [N, D]>)
            tune { BN: [16, 3, 64], BD: [64, 5, 16, 256], warps: [4, 1, 2] }
            {
                for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
                    store(y[n, d], load(x[n, d]));
                }
            }

            kernel $widened(
                x: &Tensor<$small, [N, D]>,
                i: &mut Tensor<i32, [N, D]>, l: &mut Tensor<i64, [N, D]>, h: &mut Tensor<f16, [N, D]>,
                b: &mut Tensor<bf16, [N, D]>, s: &mut Tensor<f32, [N, D]>, w: &mut Tensor<f64, [N, D]>,
            )
            tune { BN: [8, 3, 16], BD: [64, 5, 32], warps: [2, 1, 4] }
            {
                for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
                    let xs = load(x[n, d]);
                    store(i[n, d], xs.cast::<i32>());
                    store(l[n, d], xs.cast::<i64>());
                    store(h[n, d], xs.cast::<f16>());
                    store(b[n, d], xs.cast::<bf16>());
                    store(s[n, d], xs.cast::<f32>());
                    store(w[n, d], xs.cast::<f64>());
                }
            }

            kernel $narrowed(
                i: &Tensor<i32, [N]>, l: &Tensor<i64, [N]>, h: &Tensor<f16, [N]>,
                b: &Tensor<bf16, [N]>, s: &Tensor<f32, [N]>, w: &Tensor<f64, [N]>,
                y: &mut Tensor<$small, [P, N]>,
            )
            tune { BN: [64, 5, 32], warps: [1, 2] }
            {
                for n in grid(tiles(N, BN)) {
                    store(y[0, n], load(i[n]).cast::<$small>());
                    store(y[1, n], load(l[n]).cast::<$small>());
                    store(y[2, n], load(h[n]).cast::<$small>());
                    store(y[3, n], load(b[n]).cast::<$small>());
                    store(y[4, n], load(s[n]).cast::<$small>());
                    store(y[5, n], load(w[n]).cast::<$small>());
                    store(y[6, n], (load(s[n]) > 0.0).cast::<$small>());
                }
            }

            /// To each of the four types.
            kernel $recast(
                x: &Tensor<$small, [N]>,
                a: &mut Tensor<i8, [N]>, b: &mut Tensor<u8, [N]>, c: &mut Tensor<i16, [N]>, d: &mut Tensor<u16, [N]>,
            )
            tune { BN: [64, 5], warps: [1, 2] }
            {
                for n in grid(tiles(N, BN)) {
                    let xs = load(x[n]);
                    store(a[n], xs.cast::<i8>());
                    store(b[n], xs.cast::<u8>());
                    store(c[n], xs.cast::<i16>());
                    store(d[n], xs.cast::<u16>());
                }
            }

            /// Choices, broadcasts, transposes, numbers and what stands past the edge.
            kernel $shaped(
                x: &Tensor<$small, [N, D]>, r: &Tensor<$small, [D]>, at: &Tensor<i32, [N]>,
                y: &mut Tensor<$small, [N, D]>, z: &mut Tensor<$small, [D, N]>, e: &mut Tensor<$small, [N, D]>,
            )
            tune { BN: [16, 3, 32], BD: [32, 64, 5], warps: [4, 1, 2] }
            {
                for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
                    let xs = load(x[n, d]);
                    let row = load(r[d]);
                    let is_less = xs.cast::<i32>() < row.cast::<i32>();
                    store(y[n, d], select(is_less, xs, select(load(at[n]).t() > 2, row, 9)));
                    store(z[d, n], xs.t());
                    let before = load(x[span(n * BN - 2, BN), span(d * BD - 3, BD)]).or(7);
                    store(e[n, d], before);
                }
            }

            /// Rows at places that are loaded, and a loop over them.
            kernel $picked(
                table: &Tensor<$small, [V, D]>, ids: &Tensor<i32, [N]>,
                y: &mut Tensor<$small, [N, D]>, total: &mut Tensor<i32, [D]>,
            )
            tune { BN: [16, 8, 1], BD: [32, 128, 16], warps: [4, 1], stages: [2, 3] }
            {
                for d in grid(tiles(D, BD)) {
                    let mut sums = zeros::<i32>([1, BD]);
                    for n in pipeline(tiles(N, BN)) {
                        let rows = load(table[load(ids[n]), d]);
                        store(y[n, d], rows);
                        sums += sum(rows.cast::<i32>(), axis = 0);
                    }
                    store(total[d], sums);
                }
            }

            /// A small tile that a loop carries.
            kernel $latest(x: &Tensor<$small, [N, D]>, y: &mut Tensor<$small, [D]>)
            tune { BD: [32, 5, 128], warps: [1, 4] }
            {
                for d in grid(tiles(D, BD)) {
                    let mut last = full::<$small>([BD], 3);
                    for n in 0..size(N) {
                        let xs = load(x[n, d]);
                        last = select(xs.cast::<f32>() > 20.0, xs, last);
                    }
                    store(y[d], last);
                }
            }
        }
    };
}

of_type!(i8, copied_i8, widened_i8, narrowed_i8, recast_i8, shaped_i8, picked_i8, latest_i8);
of_type!(u8, copied_u8, widened_u8, narrowed_u8, recast_u8, shaped_u8, picked_u8, latest_u8);
of_type!(i16, copied_i16, widened_i16, narrowed_i16, recast_i16, shaped_i16, picked_i16, latest_i16);
of_type!(u16, copied_u16, widened_u16, narrowed_u16, recast_u16, shaped_u16, picked_u16, latest_u16);

atlas_kernel! {
    /// y = x (s w): int8 weights with a scale for each output column.
    kernel linear<T: Float>(
        x: &Tensor<T, [M, K]>, w: &Tensor<i8, [K, N]>, s: &Tensor<f32, [N]>, y: &mut Tensor<T, [M, N]>,
    )
    tune { BM: [64, 16, 128], BN: [64, 32, 128], BK: [32, 64, 16], warps: [4, 8], stages: [2, 3, 1] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[m, k]), load(w[k, n]).cast::<T>());
            }
            store(y[m, n], (acc * load(s[n])).cast::<T>());
        }
    }

    /// The same with weights that lie by output column, without a pipeline.
    kernel linear_by_columns<T: Float>(
        x: &Tensor<T, [M, K]>, w: &Tensor<i8, [N, K]>, s: &Tensor<f32, [N]>, y: &mut Tensor<T, [M, N]>,
    )
    tune { BM: [16, 64], BN: [32, 64], BK: [64, 32], warps: [4] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in tiles(K, BK) {
                let ws = load(w[n, k]).cast::<T>();
                acc += dot(load(x[m, k]), ws.t());
            }
            store(y[m, n], (acc * load(s[n])).cast::<T>());
        }
    }

    /// One row at a time, by sums: what decoding does.
    kernel matvec<T: Float>(
        x: &Tensor<T, [B, K]>, w: &Tensor<i8, [N, K]>, s: &Tensor<f32, [N]>, y: &mut Tensor<T, [B, N]>,
    )
    tune { BN: [8, 4], BK: [128, 512, 64], warps: [4, 1], stages: [3, 2] }
    {
        for (b, n) in grid(B, tiles(N, BN)) {
            let mut acc = zeros::<f32>([BN, 1]);
            for k in pipeline(tiles(K, BK)) {
                acc += sum(load(w[n, k]).cast::<f32>() * load(x[b, k]).cast::<f32>(), axis = 1);
            }
            store(y[b, n], (acc * load(s[n]).t()).cast::<T>());
        }
    }

    /// Each row in 8 bits, with its scale.
    kernel quantized(x: &Tensor<f32, [N, D]>, q: &mut Tensor<i8, [N, D]>, s: &mut Tensor<f32, [N]>)
    tune { BN: [4, 1, 16], warps: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let scale = max(max(abs(xs), axis = 1) / 127.0, 1e-30);
            store(q[n, ..], round(xs / scale).cast::<i8>());
            store(s[n], scale);
        }
    }

    /// A table of 256 bytes, and codes.
    kernel looked_up(table: &Tensor<u8, [V]>, codes: &Tensor<u8, [N]>, y: &mut Tensor<u8, [N]>)
    tune { BN: [256, 32, 7], warps: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(table[load(codes[n]).cast::<i32>()]));
        }
    }
}

type Of = (DType, [&'static KernelDef; 7]);

const fn types() -> [Of; 4] {
    [
        (I8, [&copied_i8, &widened_i8, &narrowed_i8, &recast_i8, &shaped_i8, &picked_i8, &latest_i8]),
        (U8, [&copied_u8, &widened_u8, &narrowed_u8, &recast_u8, &shaped_u8, &picked_u8, &latest_u8]),
        (I16, [&copied_i16, &widened_i16, &narrowed_i16, &recast_i16, &shaped_i16, &picked_i16, &latest_i16]),
        (U16, [&copied_u16, &widened_u16, &narrowed_u16, &recast_u16, &shaped_u16, &picked_u16, &latest_u16]),
    ]
}

/// All numbers of a type of 8 bits in turn; of 16 bits every 257th, with both ends of the range.
fn number(dtype: DType, i: usize) -> f64 {
    let (least, most) = dtype.range().expect("an integer type");
    let count = (most - least) as usize + 1;
    let step = count / 256;
    least as f64 + (i % 256 * step + if i % 256 == 255 { step - 1 } else { 0 }) as f64
}

fn numbers(dtype: DType, shape: &[usize]) -> Given {
    // Not in order along a row.
    input(dtype, shape, |i| number(dtype, i * 37))
}

#[test]
fn tiles_are_copied_as_they_are() {
    for (dtype, [copied, ..]) in types() {
        for (n, d) in [(40, 64), (33, 130), (5, 3), (1, 1), (7, 257), (0, 16), (3, 0), (64, 8)] {
            agrees_with(copied, &[numbers(dtype, &[n, d]), output(dtype, &[n, d])], 0.0, |x| vec![x[0].clone()]);
        }
        // Rows that begin anywhere, and a tensor that is turned.
        for (before, after) in [(1, 2), (4, 12), (16, 0)] {
            let given =
                [numbers(dtype, &[20, 64]).within(before, after), output(dtype, &[20, 64]).within(after, before)];
            agrees(copied, &given, 0.0);
        }
        agrees(copied, &[numbers(dtype, &[50, 64]).by_columns(), output(dtype, &[50, 64])], 0.0);
    }
}

#[test]
fn every_number_is_widened_exactly() {
    for (dtype, [_, widened, ..]) in types() {
        for (n, d) in [(8, 64), (37, 7), (0, 5)] {
            let wide = [I32, I64, F16, Bf16, F32, F64];
            let given: Vec<Given> =
                [numbers(dtype, &[n, d])].into_iter().chain(wide.map(|to| output(to, &[n, d]))).collect();
            agrees_with(widened, &given, 0.0, |x| {
                let each = |f: fn(f64) -> f64| x[0].iter().map(|&v| f(v)).collect::<Vec<f64>>();
                let same = each(|v| v);
                let halves = [each(|v| to_f16(v).to_f64()), each(|v| to_bf16(v).to_f64())];
                assert!(dtype.bytes() > 1 || halves == [same.clone(), same.clone()]);
                let [h, b] = halves;
                vec![same.clone(), same.clone(), h, b, same.clone(), same]
            });
        }
    }
}

/// The test above would notice a u8 that is widened with a sign.
#[test]
#[should_panic(expected = "output 0 differs")]
fn a_sign_of_unsigned_numbers_is_noticed() {
    let wide = [I32, I64, F16, Bf16, F32, F64];
    let given: Vec<Given> = [numbers(U8, &[8, 64])].into_iter().chain(wide.map(|to| output(to, &[8, 64]))).collect();
    agrees_with(&widened_u8, &given, 0.0, |x| {
        vec![x[0].iter().map(|&v| I8.low_bits(v as i64) as f64).collect::<Vec<f64>>(); 6]
    });
}

#[test]
fn narrowing_keeps_low_bits_of_integers_and_saturates_floats() {
    let ends = [127.0, 128.0, 255.0, 256.0, 32_767.0, 32_768.0, 65_535.0, 65_536.0];
    let mut floats = vec![0.0, -0.0, 0.5, 0.99, 1.0, 1.99, f64::NAN, f64::INFINITY, 1e30, 3.0e9, 1e-30];
    floats.extend(ends.iter().flat_map(|e| [*e, e - 0.5, e + 0.5, e + 1.0]));
    let floats: Vec<f64> = floats.iter().flat_map(|&x| [x, -x]).collect();
    let whole: Vec<f64> = floats.iter().map(|x| x.clamp(-2e9, 2e9).round()).collect();
    let n = floats.len();
    let of = |dtype, from: &[f64]| {
        let from = from.to_vec();
        input(dtype, &[n], move |i| from[i])
    };
    for (dtype, [_, _, narrowed, ..]) in types() {
        let long: Vec<f64> = whole.iter().map(|x| x * 4_294_967.0 + 130.0).collect();
        let given = [of(I32, &whole), of(I64, &long)]
            .into_iter()
            .chain([F16, Bf16, F32, F64].map(|from| of(from, &floats)))
            .chain([output(dtype, &[7, n])])
            .collect::<Vec<Given>>();
        agrees_with(narrowed, &given, 0.0, |x| {
            let low = |x: &[f64]| x.iter().map(|&v| dtype.low_bits(v as i64) as f64).collect::<Vec<f64>>();
            let cut = |x: &[f64]| x.iter().map(|&v| dtype.saturated(v) as f64).collect::<Vec<f64>>();
            let above = x[4].iter().map(|&v| f64::from(u8::from(v > 0.0))).collect();
            vec![[low(&x[0]), low(&x[1]), cut(&x[2]), cut(&x[3]), cut(&x[4]), cut(&x[5]), above].concat()]
        });
    }
}

#[test]
fn small_types_become_each_other() {
    for (dtype, [_, _, _, recast, ..]) in types() {
        for n in [256, 77] {
            let to = [I8, U8, I16, U16];
            let given: Vec<Given> = [numbers(dtype, &[n])].into_iter().chain(to.map(|to| output(to, &[n]))).collect();
            agrees_with(recast, &given, 0.0, |x| {
                to.iter().map(|to| x[0].iter().map(|&v| to.low_bits(v as i64) as f64).collect()).collect()
            });
        }
    }
}

#[test]
fn tiles_are_chosen_from_broadcast_and_turned() {
    for (dtype, [_, _, _, _, shaped, ..]) in types() {
        for (n, d) in [(40, 64), (33, 70), (5, 3), (1, 1), (0, 8)] {
            let places = input(I32, &[n], |i| (i % 5) as f64);
            let (tile, row) = (numbers(dtype, &[n, d]), input(dtype, &[d], |i| number(dtype, i * 91 + 5)));
            let outputs = [output(dtype, &[n, d]), output(dtype, &[d, n]), output(dtype, &[n, d])];
            let given: Vec<Given> = [tile, row, places].into_iter().chain(outputs).collect();
            agrees_with(shaped, &given, 0.0, |x| {
                let at = |i: usize, j: usize| x[0][i * d + j];
                let every = |f: &dyn Fn(usize, usize) -> f64| {
                    (0..n).flat_map(|i| (0..d).map(move |j| (i, j))).map(|(i, j)| f(i, j)).collect::<Vec<f64>>()
                };
                let chosen = every(&|i, j| match (at(i, j) < x[1][j], x[2][i] > 2.0) {
                    (true, _) => at(i, j),
                    (false, true) => x[1][j],
                    (false, false) => 9.0,
                });
                let turned = (0..d).flat_map(|j| (0..n).map(move |i| (i, j))).map(|(i, j)| at(i, j)).collect();
                vec![chosen, turned, every(&|i, j| if i < 2 || j < 3 { 7.0 } else { at(i - 2, j - 3) })]
            });
        }
    }
}

#[test]
fn rows_are_gathered_in_pipelines() {
    for (dtype, [_, _, _, _, _, picked, _]) in types() {
        for (v, d, n) in [(50, 64, 33), (7, 130, 64), (5, 3, 2), (40, 32, 0)] {
            let ids = input(I32, &[n], |i| (i * 7919 % (v + 5)) as f64 - 2.0);
            let given = [numbers(dtype, &[v, d]), ids, output(dtype, &[n, d]), output(I32, &[d])];
            agrees_with(picked, &given, 0.0, |x| {
                let row = |&id: &f64| match usize::try_from(id as i64) {
                    Ok(id) if id < v => x[0][id * d..(id + 1) * d].to_vec(),
                    _ => vec![0.0; d],
                };
                let rows: Vec<f64> = x[1].iter().flat_map(row).collect();
                let total = (0..d).map(|j| rows.chunks(d).map(|r| r[j]).sum()).collect();
                vec![rows, total]
            });
        }
    }
}

#[test]
fn loops_carry_small_tiles() {
    for (dtype, [.., latest]) in types() {
        for (n, d) in [(30, 64), (5, 3), (0, 40)] {
            agrees_with(latest, &[numbers(dtype, &[n, d]), output(dtype, &[d])], 0.0, |x| {
                let of = |j: usize| (0..n).rev().map(|i| x[0][i * d + j]).find(|&v| v > 20.0).unwrap_or(3.0);
                vec![(0..d).map(of).collect()]
            });
        }
    }
}

fn weights(shape: &[usize]) -> Given {
    input(I8, shape, |i| number(I8, (noise(i).abs() * 255.0) as usize))
}

fn scales(n: usize) -> Given {
    input(F32, &[n], |i| (1.0 + (i % 7) as f64) / 512.0)
}

fn product(x: &[Vec<f64>], (m, n, k): (usize, usize, usize), by_columns: bool) -> Vec<Vec<f64>> {
    let w = |l: usize, j: usize| if by_columns { x[1][j * k + l] } else { x[1][l * n + j] };
    let of = |i: usize, j: usize| (0..k).map(|l| x[0][i * k + l] * w(l, j)).sum::<f64>() * x[2][j];
    vec![(0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| of(i, j)).collect()]
}

#[test]
fn weights_of_products() {
    for (dtype, bound) in [(Bf16, 8e-3), (F16, 1e-3), (F32, 1e-5)] {
        for (m, n, k) in [(48, 64, 96), (17, 40, 33), (1, 1, 5)] {
            let given = [random(dtype, &[m, k]), weights(&[k, n]), scales(n), output(dtype, &[m, n])];
            agrees_with(&linear, &given, bound, |x| product(x, (m, n, k), false));
            let given = [random(dtype, &[m, k]), weights(&[n, k]), scales(n), output(dtype, &[m, n])];
            agrees_with(&linear_by_columns, &given, bound, |x| product(x, (m, n, k), true));
            agrees_with(&matvec, &given, bound, |x| product(x, (m, n, k), true));
        }
    }
    // Rows that lie apart, and weights that are turned.
    let (m, n, k) = (20, 48, 64);
    let given = [random(Bf16, &[m, k]), weights(&[k, n]).within(3, 5), scales(n), output(Bf16, &[m, n])];
    agrees(&linear, &given, 2e-2);
    let given = [random(Bf16, &[m, k]), weights(&[k, n]).by_columns(), scales(n), output(Bf16, &[m, n])];
    agrees(&linear, &given, 2e-2);
}

#[test]
fn weights_of_asynchronous_products() {
    for dtype in [Bf16, F16] {
        let (m, n, k) = (128, 128, 160);
        let given = [random(dtype, &[m, k]), weights(&[k, n]), scales(n), output(dtype, &[m, n])];
        agrees_on_hopper(&linear, &given, 2e-2);
    }
}

#[test]
fn rows_are_quantized_with_their_scales() {
    for (n, d) in [(9, 64), (4, 130), (1, 3), (0, 16)] {
        // The largest of each row is 127 steps, so that every quotient is whole on all devices.
        let steps = |i: usize| if i % d == i / d % d { -127.0 } else { number(I8, i * 37).max(-127.0) };
        let x = input(F32, &[n, d], |i| steps(i) * [0.125, 1.0, 8.0][i / d % 3]);
        agrees_with(&quantized, &[x, output(I8, &[n, d]), output(F32, &[n])], 0.0, |_| {
            let scales = (0..n).map(|i| [0.125, 1.0, 8.0][i % 3]).collect();
            vec![(0..n * d).map(steps).collect(), scales]
        });
    }
}

#[test]
fn tables_of_bytes() {
    for (v, n) in [(256, 1000), (256, 33), (100, 64), (256, 0)] {
        let table = input(U8, &[v], |i| number(U8, i * 91 + 3));
        let given = [table, numbers(U8, &[n]), output(U8, &[n])];
        agrees_with(&looked_up, &given, 0.0, |x| {
            vec![x[1].iter().map(|&c| x[0].get(c as usize).copied().unwrap_or(0.0)).collect()]
        });
    }
}

/// The PTX of a kernel with its first config, for tensors of these sizes.
fn ptx(kernel: &'static KernelDef, target: &str, tensors: &[(DType, &[usize])]) -> String {
    let target: Target = target.parse().expect("a target");
    let device = Device::sim_with(target, SimOptions::default(), CacheDir::Off);
    let mut made: Vec<Tensor> =
        tensors.iter().map(|(dtype, shape)| Tensor::zeros(&device, *dtype, shape).expect("memory")).collect();
    let (out, read) = made.split_last_mut().expect("an output");
    let args: Vec<Arg<'_>> = read.iter().map(Arg::In).chain([Arg::Out(out)]).collect();
    let launch = kernel.prepare_with(&device, &kernel.configs()[0], &args).unwrap_or_else(|e| panic!("{e}"));
    launch.image().expect("a compiled kernel").ptx.to_string()
}

#[test]
fn sixteen_bytes_are_moved_at_once() {
    for target in ["sm_80", "sm_90"] {
        for (dtype, [copied, ..]) in types() {
            let text = ptx(copied, target, &[(dtype, &[128, 128]), (dtype, &[128, 128])]);
            let has = |a: &str, b: &str| text.lines().any(|line| line.contains(a) && line.contains(b));
            assert!(has("ld.global", ".v4.b32"), "{target}:\n{text}");
            assert!(has("st.global", ".v4.b32"), "{target}:\n{text}");
            assert!(!has("ld.global", ".b8") && !has("st.global", ".b8"), "{target}:\n{text}");
            // Nothing is gained by taking the words apart where nothing is computed.
            assert!(!text.contains("prmt"), "{target}:\n{text}");
        }
        let sizes: [(DType, &[usize]); 4] =
            [(Bf16, &[128, 128]), (I8, &[128, 128]), (F32, &[128]), (Bf16, &[128, 128])];
        let text = ptx(&linear, target, &sizes);
        let wide = |line: &str| line.contains("cp.async.cg") || (line.contains("ld.global") && line.contains("v4.b32"));
        assert!(text.lines().any(wide), "{target}:\n{text}");
        assert!(!text.lines().any(|l| l.contains("ld.global") && l.contains("8 ")), "{target}:\n{text}");
    }
}
