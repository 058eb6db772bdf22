//! Edges that depend on sizes: a value that a maker stores as 0 is a number for its reader, fused or not.

use super::stages::*;
use atlas::prelude::*;
use atlas_runtime::{Arg, RuntimeError};

atlas_kernel! {
    /// The rows of x, padded with invalid elements.
    kernel cut_to<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, E]>)
    tune { BN: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, span(0, E)]));
        }
    }

    /// The same, with a function that does not keep 0, rounded at the end.
    kernel cut_gelu<T: Float, U: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<U, [N, E]>)
    tune { BN: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], gelu(load(x[n, span(0, E)]).cast::<f32>() + 1.0).cast::<U>());
        }
    }

    kernel plus_one<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]).or(9.0) + 1.0);
        }
    }

    kernel doubled_plus<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]) * 2.0 + 1.0);
        }
    }

    /// Sums and minima of the valid elements.
    kernel counts<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<f32, [D]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            let v = load(x[n, ..]).cast::<f32>() * load(w[..]);
            store(y[n], sum(exp(v), axis = 1) + 100.0 * min(v, axis = 1));
        }
    }

    kernel products<T: Float>(x: &Tensor<T, [N, D]>, w: &Tensor<T, [D, M]>, y: &mut Tensor<T, [N, M]>)
    tune { BN: [16, 1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], dot(exp(load(x[n, ..])), load(w[.., ..])).cast::<T>());
        }
    }

    /// Tiles along the axis that a maker pads.
    kernel tiled<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [4, 1], BD: [4, 1] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store(y[n, d], load(x[n, d]) + 1.0);
        }
    }

    /// An element for each row of a tile, which does not exist if a dim is short.
    kernel with_element<T: Float>(x: &Tensor<T, [N, D]>, b: &Tensor<T, [E]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [4, 1] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]) + load(b[span(2, 1)]).t());
        }
    }
}

fuse! {
    kernel padded_plus_one = cut_to >> plus_one;
    kernel padded_counts = cut_to >> counts;
    kernel padded_products = cut_to >> products;
    kernel padded_tiles = cut_to >> tiled;
    kernel three = cut_to >> doubled_plus >> counts;
    kernel element_of_rows = with_element >> plus_one;
    kernel one_element = biased >> totals;
    kernel unrounded(keep_f32) = cut_gelu(U = bf16) >> counts;
}

fn tensor(shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| ((i * 7 + 3) % 11) as f32 / 8.0 - 0.5).collect();
    Device::cpu().tensor_from(&values, shape).unwrap()
}

fn empty(shape: &[usize]) -> Tensor {
    Device::cpu().tensor_from(&vec![-77.0_f32; shape.iter().product()], shape).unwrap()
}

/// Launches in every config. All of them must give the same result, which is returned.
fn launched(kernel: &'static atlas_dsl::KernelDef, inputs: &[&Tensor], shape: &[usize]) -> Vec<f64> {
    let mut first: Option<Vec<f64>> = None;
    for config in kernel.configs() {
        let mut y = empty(shape);
        let args = inputs.iter().map(|t| Arg::In(t)).chain([Arg::Out(&mut y)]);
        kernel
            .launch_with(&Device::cpu(), &config, args.collect::<Vec<_>>())
            .unwrap_or_else(|e| panic!("{} with {config}: {e}", kernel.name));
        let found = y.to_f64_vec().unwrap();
        match &first {
            Some(first) => assert_eq!(&found, first, "{} with {config}", kernel.name),
            None => first = Some(found),
        }
    }
    first.expect("a config")
}

fn at(t: &Tensor) -> Vec<f64> {
    t.to_f64_vec().unwrap()
}

/// Rows of `x` cut or padded with 0.
fn padded_to(x: &Tensor, e: usize) -> Tensor {
    let (n, d, v) = (x.shape()[0], x.shape()[1], at(x));
    let of = |i: usize| if i % e < d { v[i / e * d + i % e] as f32 } else { 0.0 };
    Device::cpu().tensor_from(&(0..n * e).map(of).collect::<Vec<_>>(), [n, e]).unwrap()
}

#[test]
fn what_was_stored_as_zero_is_read_as_zero() {
    let x = tensor(&[5, 4]);
    for e in [8, 4, 3, 1] {
        let mid = padded_to(&x, e);
        let (rows, numbers) = ([5, e], [5]);
        assert_eq!(launched(&padded_plus_one, &[&x], &rows), launched(&plus_one, &[&mid], &rows), "E = {e}");
        let w = tensor(&[e]);
        let sums = launched(&padded_counts, &[&x, &w], &numbers);
        assert_eq!(sums, launched(&counts, &[&mid, &w], &numbers), "E = {e}");
        let mut more = empty(&rows);
        doubled_plus.launch(&Device::cpu(), args!(&mid, &mut more)).unwrap();
        assert_eq!(launched(&three, &[&x, &w], &numbers), launched(&counts, &[&more, &w], &numbers), "E = {e}");
        let mut exact = empty(&rows);
        cut_gelu.launch(&Device::cpu(), args!(&x, &mut exact)).unwrap();
        let sums = launched(&unrounded, &[&x, &w], &numbers);
        assert_eq!(sums, launched(&counts, &[&exact, &w], &numbers), "E = {e}");
    }
    // The first padding element, where a mistake would be visible.
    let found = launched(&padded_plus_one, &[&x], &[5, 8]);
    assert_eq!(found[3..6], [at(&x)[3] + 1.0, 1.0, 1.0]);
}

#[test]
fn products_take_the_zeros() {
    let (x, w) = (tensor(&[5, 4]), tensor(&[8, 16]));
    let mid = padded_to(&x, 8);
    assert_eq!(launched(&padded_products, &[&x, &w], &[5, 16]), launched(&products, &[&mid, &w], &[5, 16]));
}

#[test]
fn a_reader_by_tiles_of_the_padded_axis_is_refused_or_the_same() {
    let x = tensor(&[5, 4]);
    let mut y = empty(&[5, 8]);
    match padded_tiles.launch(&Device::cpu(), args!(&x, &mut y)) {
        Ok(()) => assert_eq!(at(&y), launched(&tiled, &[&padded_to(&x, 8)], &[5, 8])),
        Err(e) => {
            let text = e.to_string();
            assert!(text.contains("ATL231") && text.contains("`y` of `cut_to`"), "{text}");
        }
    }
}

#[test]
fn an_edge_beside_that_of_the_tensor_is_refused_by_name() {
    let (x, b) = (tensor(&[5, 4]), tensor(&[2]));
    let (mut y, mut mid) = (empty(&[5, 4]), empty(&[5, 4]));
    let config = |text: &str| text.parse::<Config>().unwrap();
    let launched =
        |config: &Config, y: &mut Tensor| element_of_rows.launch_with(&Device::cpu(), config, args!(&x, &b, &mut *y));
    let said = launched(&config("BN=4 stages=2 warps=4"), &mut y).unwrap_err();
    let RuntimeError::Kernel { .. } = said else { panic!("{said}") };
    let text = said.to_string();
    for words in ["ATL232", "`y` of `with_element`", "`plus_one`", "outside of `E`", "axis 0"] {
        assert!(text.contains(words), "no {words} in {text}");
    }
    // Tiles of one row have no edge.
    launched(&config("BN=1 stages=2 warps=4"), &mut y).unwrap();
    with_element.launch(&Device::cpu(), args!(&x, &b, &mut mid)).unwrap();
    let apart = at(&mid).into_iter().map(|v| v + 1.0).collect::<Vec<_>>();
    assert_eq!(at(&y), apart);
}

#[test]
fn an_axis_of_one_element_is_fused_as_larger_ones_are() {
    for d in [1, 2, 8] {
        let (x, b) = (tensor(&[5, d]), tensor(&[d]));
        let mut mid = empty(&[5, d]);
        biased.launch(&Device::cpu(), args!(&x, &b, &mut mid)).unwrap();
        assert_eq!(launched(&one_element, &[&x, &b], &[5]), launched(&totals, &[&mid], &[5]), "D = {d}");
    }
}
