//! Fused kernels at dims of one element and of exactly one tile: legality does not depend on the size.

use atlas::prelude::*;
use atlas_dsl::KernelDef;
use atlas_runtime::Arg;

atlas_kernel! {
    // Makers: twice x, by elements, by tiles, by whole rows and columns.
    kernel twice_points(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    { for n in grid(N) { store(y[n], load(x[n]) * 2.0); } }

    kernel twice_elements(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    { for (n, d) in grid(N, D) { store(y[n, d], load(x[n, d]) * 2.0); } }

    kernel twice_tiles(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [4, 1], BD: [4, 1] }
    { for (n, d) in grid(tiles(N, BN), tiles(D, BD)) { store(y[n, d], load(x[n, d]) * 2.0); } }

    kernel twice_rows(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [4, 1] }
    { for n in grid(tiles(N, BN)) { store(y[n, ..], load(x[n, ..]) * 2.0); } }

    kernel twice_columns(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BD: [4, 1] }
    { for d in grid(tiles(D, BD)) { store(y[.., d], load(x[.., d]) * 2.0); } }

    // Readers.
    kernel beside_greatest(t: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    { for n in grid(tiles(N, 4)) { store(y[n], load(t[n]) - max(load(t[..]))); } }

    kernel beside_greatest_of_points(t: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    { for n in grid(N) { store(y[n], load(t[n]) - max(load(t[..]))); } }

    kernel sums_of_read_rows(t: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    { for n in grid(N) { store(y[n], sum(load(t[n, ..]))); } }

    kernel sums_by_elements(t: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    { for n in grid(N) { let mut s = 0.0; for d in 0..size(D) { s += load(t[n, d]); } store(y[n], s); } }

    kernel sums_by_spans(t: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let mut s = zeros::<f32>([BN, 1]);
            for d in 0..size(D) { s += load(t[n, span(d, 1)]); }
            store(y[n], s);
        }
    }

    kernel first_elements(t: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    { for n in grid(N) { store(y[n], load(t[n, 0]) + 0.0 * sum(load(t[n, ..]))); } }

    kernel first_columns(t: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    { for n in grid(tiles(N, 4)) { store(y[n], load(t[n, span(0, 1)]) + 0.0 * sum(load(t[n, ..]), axis = 1)); } }

    /// The previous and the next element, in tiles of any size.
    kernel neighbours(t: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [4, 1, 2], BD: [4, 1, 8] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let above = load(t[span(n * BN - 1, BN), d]).or(0.5);
            store(y[n, d], above + load(t[n, span(d * BD + 1, BD)]).or(0.25));
        }
    }

    /// Elements counted by a constant number of iterations, and a whole row, whose length is then known.
    kernel first_four(t: &Tensor<f32, [N, D]>, w: &Tensor<f32, [D]>, y: &mut Tensor<f32, [N, E]>, z: &mut Tensor<f32, [N]>)
    {
        for n in grid(N) {
            for k in 0..4 { store(y[n, k], load(t[n, k])); }
            store(z[n], sum(load(w[..])));
        }
    }

    kernel first_four_of_tiles(t: &Tensor<f32, [N, D]>, w: &Tensor<f32, [D]>, y: &mut Tensor<f32, [N, E]>, z: &mut Tensor<f32, [N]>)
    tune { BN: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            for k in 0..4 { store(y[n, k], load(t[n, k])); }
            store(z[n], load(t[n, 1]) + broadcast(sum(load(w[..])), [BN]));
        }
    }
}

fuse! {
    kernel points_whole = twice_points >> beside_greatest;
    kernel points_whole_of_points = twice_points >> beside_greatest_of_points;
    kernel elements_rows = twice_elements >> sums_of_read_rows;
    kernel elements_elements = twice_elements >> sums_by_elements;
    kernel elements_spans = twice_elements >> sums_by_spans;
    kernel elements_first = twice_elements >> first_elements;
    kernel elements_first_column = twice_elements >> first_columns;
    kernel elements_neighbours = twice_elements >> neighbours;
    kernel tiles_rows = twice_tiles >> sums_of_read_rows;
    kernel tiles_elements = twice_tiles >> sums_by_elements;
    kernel tiles_spans = twice_tiles >> sums_by_spans;
    kernel tiles_first = twice_tiles >> first_elements;
    kernel tiles_first_column = twice_tiles >> first_columns;
    kernel tiles_neighbours = twice_tiles >> neighbours;
    kernel rows_rows = twice_rows >> sums_of_read_rows;
    kernel rows_elements = twice_rows >> sums_by_elements;
    kernel rows_spans = twice_rows >> sums_by_spans;
    kernel rows_first = twice_rows >> first_elements;
    kernel rows_first_column = twice_rows >> first_columns;
    kernel rows_neighbours = twice_rows >> neighbours;
    kernel columns_rows = twice_columns >> sums_of_read_rows;
    kernel columns_elements = twice_columns >> sums_by_elements;
    kernel columns_spans = twice_columns >> sums_by_spans;
    kernel columns_first = twice_columns >> first_elements;
    kernel columns_first_column = twice_columns >> first_columns;
    kernel columns_neighbours = twice_columns >> neighbours;
    kernel tiles_four = twice_tiles >> first_four;
    kernel rows_four = twice_rows >> first_four;
    kernel elements_four = twice_elements >> first_four;
    kernel tiles_four_of_tiles = twice_tiles >> first_four_of_tiles;
    kernel rows_four_of_tiles = twice_rows >> first_four_of_tiles;
    kernel elements_four_of_tiles = twice_elements >> first_four_of_tiles;
}

/// The outputs of a kernel on the CPU, in every config and without one, with these shapes.
fn made(
    kernel: &'static KernelDef,
    inputs: &[(&[f32], &[usize])],
    outputs: &[&[usize]],
    what: &str,
) -> Vec<Vec<Vec<f32>>> {
    let cpu = Device::cpu();
    let configs = kernel.configs();
    let inputs: Vec<Tensor> = inputs.iter().map(|(x, shape)| cpu.tensor_from(x, shape).unwrap()).collect();
    let run = |config: Option<&atlas_dsl::Config>| {
        let mut outs: Vec<Tensor> = outputs.iter().map(|s| Tensor::zeros(&cpu, DType::F32, s).unwrap()).collect();
        let args = inputs.iter().map(Arg::In).chain(outs.iter_mut().map(Arg::Out)).collect::<Vec<_>>();
        match config {
            Some(config) => kernel.launch_with(&cpu, config, args),
            None => kernel.launch(&cpu, args),
        }
        .unwrap_or_else(|e| panic!("{} {what} {config:?}: {e}", kernel.name));
        outs.iter().map(|o| o.to_vec::<f32>().unwrap()).collect()
    };
    std::iter::once(None).chain(configs.iter().map(Some)).map(run).collect()
}

fn noise(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + 11) % 64) as f32 / 16.0 - 2.0).collect()
}

#[test]
fn a_dim_of_one_element_is_read_as_any_other() {
    for n in [1, 2, 3, 4, 5, 8] {
        let x = noise(n);
        let greatest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let want: Vec<f32> = x.iter().map(|x| 2.0 * x - 2.0 * greatest).collect();
        for kernel in [&points_whole, &points_whole_of_points] {
            for found in made(kernel, &[(&x, &[n])], &[&[n]], &format!("N={n}")) {
                assert_eq!(found.concat(), want, "{} N={n}", kernel.name);
            }
        }
    }
    for (n, d) in [(1, 1), (5, 1), (1, 4), (5, 2), (4, 8), (3, 5)] {
        let x = noise(n * d);
        let at = |i: usize, j: usize| 2.0 * x[i * d + j];
        let sums: Vec<f32> = (0..n).map(|i| (0..d).map(|j| at(i, j)).sum()).collect();
        let firsts: Vec<f32> = (0..n).map(|i| at(i, 0)).collect();
        let moved: Vec<f32> = (0..n * d)
            .map(|k| {
                let (i, j) = (k / d, k % d);
                (if i > 0 { at(i - 1, j) } else { 0.5 }) + if j + 1 < d { at(i, j + 1) } else { 0.25 }
            })
            .collect();
        let of_sums: [&'static KernelDef; 12] = [
            &elements_rows,
            &elements_elements,
            &elements_spans,
            &tiles_rows,
            &tiles_elements,
            &tiles_spans,
            &rows_rows,
            &rows_elements,
            &rows_spans,
            &columns_rows,
            &columns_elements,
            &columns_spans,
        ];
        let of_firsts: [&'static KernelDef; 8] = [
            &elements_first,
            &elements_first_column,
            &tiles_first,
            &tiles_first_column,
            &rows_first,
            &rows_first_column,
            &columns_first,
            &columns_first_column,
        ];
        let of_neighbours: [&'static KernelDef; 4] =
            [&elements_neighbours, &tiles_neighbours, &rows_neighbours, &columns_neighbours];
        let what = format!("N={n} D={d}");
        let cases = of_sums.iter().map(|k| (k, &sums)).chain(of_firsts.iter().map(|k| (k, &firsts)));
        for (kernel, want) in cases {
            for found in made(kernel, &[(&x, &[n, d])], &[&[n]], &what) {
                assert_eq!(&found.concat(), want, "{} {what}", kernel.name);
            }
        }
        for kernel in of_neighbours {
            for found in made(kernel, &[(&x, &[n, d])], &[&[n, d]], &what) {
                assert_eq!(found.concat(), moved, "{} {what}", kernel.name);
            }
        }
    }
}

#[test]
fn elements_that_a_constant_counts_are_read_of_longer_dims() {
    for (n, d, e) in [(3, 8, 5), (1, 4, 9), (5, 6, 6)] {
        let (x, w) = (noise(n * d), noise(d));
        let total: f32 = w.iter().sum();
        let mut y = vec![0.0; n * e];
        for (i, k) in (0..n).flat_map(|i| (0..4).map(move |k| (i, k))) {
            y[i * e + k] = 2.0 * x[i * d + k];
        }
        let with_second: Vec<f32> = (0..n).map(|i| 2.0 * x[i * d + 1] + total).collect();
        let cases: [(&'static KernelDef, Vec<f32>); 6] = [
            (&tiles_four, vec![total; n]),
            (&rows_four, vec![total; n]),
            (&elements_four, vec![total; n]),
            (&tiles_four_of_tiles, with_second.clone()),
            (&rows_four_of_tiles, with_second.clone()),
            (&elements_four_of_tiles, with_second),
        ];
        for (kernel, z) in cases {
            let what = format!("N={n} D={d} E={e}");
            for found in made(kernel, &[(&x, &[n, d]), (&w, &[d])], &[&[n, e], &[n]], &what) {
                assert_eq!(found, [y.clone(), z.clone()], "{} {what}", kernel.name);
            }
        }
    }
}
