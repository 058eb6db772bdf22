//! Kernels of single rows followed by kernels of tiles: the rows become tiles if that is equivalent, and are refused
//! otherwise.

use super::stages::*;
use atlas::prelude::*;
use atlas_dsl::KernelDef;
use atlas_dsl::def::ParamDef;
use atlas_runtime::Arg;

atlas_kernel! {
    /// A reduction by a loop, and a factor that carries the tile's edge.
    kernel row_scale(x: &Tensor<f32, [N, D]>, g: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BC: [16] }
    {
        for n in grid(N) {
            let mut acc = 0.0;
            for d in tiles(D, BC) {
                acc += sum(load(x[n, d]));
            }
            store(y[n], acc * load(g[n]));
        }
    }

    /// The same for an input that all rows share, which may become a tile.
    kernel shared_scale(x: &Tensor<f32, [D]>, g: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BC: [16] }
    {
        for n in grid(N) {
            let mut acc = 0.0;
            for d in tiles(D, BC) {
                acc += sum(load(x[d]));
            }
            store(y[n], acc * load(g[n]));
        }
    }

    kernel picked(x: &Tensor<f32, [N, V]>, label: &Tensor<i32, [N]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(N) {
            store(y[n], load(x[n, load(label[n])]));
        }
    }

    kernel diagonal(x: &Tensor<f32, [N, N]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(N) {
            store(y[n], load(x[n, n]));
        }
    }

    kernel banded(x: &Tensor<f32, [N, M]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(N) {
            store(y[n], sum(load(x[n, span(n, 4)])));
        }
    }

    kernel negated(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 16)) {
            store(y[n], -load(x[n]));
        }
    }

    /// Columns that `x` does not have are 0.
    kernel padded(x: &Tensor<f32, [N, E]>, like: &Tensor<f32, [D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [4], BD: [64] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store(y[n, d], load(x[n, span(d * BD, BD)]).or(0.0) + load(like[d]));
        }
    }

    kernel row_sum(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(N) {
            store(y[n], sum(load(x[n, ..])));
        }
    }

    /// Each number relative to the greatest of all.
    kernel share(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [16] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], exp(load(x[n]) - max(load(x[..]))));
        }
    }

    kernel rooted_256(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    {
        for n in grid(tiles(N, 256)) {
            store(y[n], sqrt(load(x[n])));
        }
    }

    kernel twice(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    {
        for (n, d) in grid(tiles(N, 4), tiles(D, 8)) {
            store(y[n, d], load(x[n, d]) * 2.0);
        }
    }

    kernel gelu_rows(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    {
        for n in grid(tiles(N, 4)) {
            store(y[n, ..], gelu(load(x[n, ..])));
        }
    }

    /// A norm whose reduction is a loop over the row.
    kernel streamed_norm(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [8], BD: [8], BC: [8] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            let mut q = full::<f32>([BN, 1], 0.5);
            for c in tiles(D, BC) {
                let v = load(x[n, c]);
                q += sum(v * v, axis = 1);
            }
            store(y[n, d], load(x[n, d]) * rsqrt(q));
        }
    }

    /// The product of a row and a table.
    kernel multiplied(x: &Tensor<f32, [N, K]>, w: &Tensor<f32, [K, M]>, y: &mut Tensor<f32, [N, M]>)
    tune { BN: [8], BM: [16], BK: [8] }
    {
        for (n, m) in grid(tiles(N, BN), tiles(M, BM)) {
            let mut acc = zeros::<f32>([BN, BM]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[n, k]), load(w[k, m]));
            }
            store(y[n, m], acc);
        }
    }

    /// The products of each row with all rows.
    kernel gram(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, N]>)
    tune { BM: [16, 32], BN: [16, 32] }
    {
        for (i, j) in grid(tiles(N, BM), tiles(N, BN)) {
            store(y[i, j], dot(load(x[i, ..]), load(x[j, ..]).t()));
        }
    }

    kernel soft_rows(x: &Tensor<f32, [N, M]>, y: &mut Tensor<f32, [N, M]>)
    tune { BR: [16] }
    {
        for i in grid(tiles(N, BR)) {
            let z = load(x[i, ..]);
            let e = exp(z - max(z, axis = 1));
            store(y[i, ..], e / sum(e, axis = 1));
        }
    }

    kernel unit_rows(x: &Tensor<f32, [K, D]>, y: &mut Tensor<f32, [K, D]>)
    tune { BR: [8] }
    {
        for k in grid(tiles(K, BR)) {
            let v = load(x[k, ..]);
            store(y[k, ..], v * rsqrt(sum(v * v, axis = 1) + 1.0));
        }
    }

    /// An outer loop over columns, an inner one over rows.
    kernel mixed_rows(x: &Tensor<f32, [K, D]>, a: &Tensor<f32, [N, K]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [8], BD: [8], BK: [8] }
    {
        for n in grid(tiles(N, BN)) {
            for d in tiles(D, BD) {
                let mut acc = zeros::<f32>([BN, BD]);
                for k in pipeline(tiles(K, BK)) {
                    acc += dot(load(a[n, k]), load(x[k, d]));
                }
                store(y[n, d], acc);
            }
        }
    }

    kernel plus(x: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    {
        for (n, d) in grid(tiles(N, 4), tiles(D, 8)) {
            store(y[n, d], load(x[n, d]) + 1.0);
        }
    }
}

fuse! {
    kernel scaled = row_scale >> negated;
    kernel scaled_alike = shared_scale >> negated;
    kernel nll = picked >> negated;
    kernel negated_diagonal = diagonal >> negated;
    kernel negated_band = banded >> negated;
    kernel soft_pad = softmaxed(T = f32) >> affine >> padded;
    kernel shares = row_sum >> share;
    kernel shares_of_tiles = totals(T = f32) >> share;
    kernel roots = row_sum >> rooted_256;
    kernel normed_product = streamed_norm >> multiplied;
    kernel similar = gram >> soft_rows;
    kernel mixed_units = unit_rows >> mixed_rows;
    kernel three = twice >> gelu_rows >> plus;
}

/// The output `y` of a launch on the CPU, or the error. Each input's elements are numbered.
fn made(kernel: &'static KernelDef, sizes: &[(&str, usize)]) -> Result<Vec<f32>, String> {
    let cpu = Device::cpu();
    let size = |d: usize| sizes.iter().find(|s| s.0 == kernel.dims[d].name).map_or(20, |s| s.1);
    let mut tensors = Vec::new();
    for p in kernel.params {
        let ParamDef::Tensor { name, dims, .. } = p else { continue };
        let shape: Vec<usize> = dims.iter().map(|&d| size(d)).collect();
        let count = shape.iter().product::<usize>();
        let tensor = if *name == "label" {
            cpu.tensor_from(&(0..count as i32).map(|i| i % 3).collect::<Vec<_>>(), shape)
        } else {
            cpu.tensor_from(&(0..count).map(|i| (i % 37) as f32 / 8.0).collect::<Vec<_>>(), shape)
        };
        tensors.push(tensor.unwrap());
    }
    let mut y = tensors.pop().unwrap();
    let mut rest = tensors.iter();
    let mut out = Some(&mut y);
    let args: Vec<Arg<'_>> = kernel
        .params
        .iter()
        .map(|p| match p {
            ParamDef::Scalar { .. } => Arg::F32(1.0),
            p if p.name() == "y" => Arg::Out(out.take().unwrap()),
            _ => Arg::In(rest.next().unwrap()),
        })
        .collect();
    kernel.launch(&cpu, args).map_err(|e| e.to_string())?;
    Ok(y.to_vec::<f32>().unwrap())
}

#[track_caller]
fn refused(kernel: &'static KernelDef, sizes: &[(&str, usize)], says: &str) {
    let found = made(kernel, sizes);
    let text = found.expect_err("it is fused, and computes something else");
    assert!(text.contains("ATL231") && text.contains(says), "{text}");
}

#[test]
fn rows_whose_number_does_more_than_pick_them_are_no_tiles() {
    refused(&scaled, &[("D", 33)], "it is made in a loop");
    refused(&nll, &[], "its number is computed with");
    refused(&negated_diagonal, &[], "its number is computed with");
    refused(&negated_band, &[("M", 40)], "its number is computed with");
}

#[test]
fn a_loop_that_all_rows_share_is_made_once() {
    let total: f32 = (0..33).map(|i| i as f32 / 8.0).sum();
    let wanted: Vec<f32> = (0..20).map(|i| -total * (i as f32 / 8.0)).collect();
    assert_eq!(made(&scaled_alike, &[("D", 33)]).unwrap(), wanted);
}

#[test]
fn a_tile_that_may_lie_outside_does_so_in_every_kernel_behind() {
    refused(&soft_pad, &[("N", 8), ("D", 64), ("D2", 128), ("E", 64)], "`softmaxed`");
}

#[test]
fn tiles_are_not_made_larger_than_programs_hold() {
    refused(&roots, &[("N", 512), ("D", 1024)], "a tile of 262144 elements would be made at once");
    refused(&shares, &[("N", 512), ("D", 512)], "a tile of 262144 elements would be made at once");
    refused(&shares_of_tiles, &[("N", 512), ("D", 512)], "elements would be made at once");
    assert!(made(&roots, &[("N", 300), ("D", 40)]).is_ok());
}

/// The result of launching kernels with one input and one output one after the other. Further inputs of the last one
/// are as in `made`.
fn apart(kernels: &[&'static KernelDef], shapes: &[&[usize]], second: Option<&[usize]>) -> Vec<f32> {
    let cpu = Device::cpu();
    let numbered = |shape: &[usize]| {
        let count = shape.iter().product::<usize>();
        cpu.tensor_from(&(0..count).map(|i| (i % 37) as f32 / 8.0).collect::<Vec<_>>(), shape).unwrap()
    };
    let mut x = numbered(shapes[0]);
    for (at, (kernel, shape)) in kernels.iter().zip(&shapes[1..]).enumerate() {
        let mut y = Tensor::zeros(&cpu, DType::F32, shape).unwrap();
        let more = second.filter(|_| at + 1 == kernels.len()).map(numbered);
        let args: Vec<Arg<'_>> = match &more {
            Some(more) => vec![Arg::In(&x), Arg::In(more), Arg::Out(&mut y)],
            None => vec![Arg::In(&x), Arg::Out(&mut y)],
        };
        kernel.launch(&cpu, args).unwrap();
        x = y;
    }
    x.to_vec::<f32>().unwrap()
}

#[test]
fn what_was_stored_before_is_not_made_beside() {
    let found = made(&three, &[("N", 16), ("D", 32)]).unwrap();
    let shapes: [&[usize]; 4] = [&[16, 32]; 4];
    assert_eq!(found, apart(&[&twice, &gelu_rows, &plus], &shapes, None));
}

#[test]
fn a_tensor_may_have_a_dim_twice() {
    let found = made(&similar, &[("N", 40), ("D", 24)]).unwrap();
    assert_eq!(found, apart(&[&gram, &soft_rows], &[&[40, 24], &[40, 40], &[40, 40]], None));
}

/// The number of operations of each kind in loops, by depth.
fn loops_of(kernel: &'static KernelDef, dims: &[(&str, u64)]) -> Vec<usize> {
    use atlas_dsl::ir::Kernel;
    use atlas_dsl::specialization::DimFact;
    use atlas_dsl::{Block, Op, Specialization};
    fn walk(kernel: &Kernel, block: Block, depth: usize, all: &mut Vec<usize>) {
        for &inst in &kernel.blocks[block].insts {
            if let Op::Loop { body, .. } = kernel.insts[inst] {
                all.push(depth);
                walk(kernel, body, depth + 1, all);
            }
        }
    }
    let spec = dims.iter().fold(Specialization::default(), |s, d| s.with_dim(d.0, DimFact::Const(d.1)));
    let built = (kernel.build)(&spec, &kernel.default_config()).unwrap();
    let mut all = Vec::new();
    walk(&built, built.body, 0, &mut all);
    all
}

#[test]
fn a_makers_loop_stands_before_the_loops_that_it_does_not_follow() {
    // The norm's loop, then the product's: side by side, not nested.
    assert_eq!(loops_of(&normed_product, &[]), [0, 0]);
    let found = made(&normed_product, &[("N", 16), ("D", 32), ("K", 32), ("M", 20)]).unwrap();
    let wanted = apart(&[&streamed_norm, &multiplied], &[&[16, 32], &[16, 32], &[16, 20]], Some(&[32, 20]));
    assert_eq!(found, wanted);
}

#[test]
fn a_row_is_not_made_again_for_each_of_its_tiles() {
    refused(&mixed_units, &[("K", 16), ("D", 32), ("N", 8)], "each element is made of all of `D`");
}
