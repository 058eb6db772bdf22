//! Launches of the kernels written beside: rings of TMA loads, wgmma, clusters, flags between CTAs.

use crate::data::Format::{Bf16, F32};
use crate::data::{Data, words};
use crate::setup::{Expect, Matrix, Setup, close};

/// Operands of C = A * B^T, the expected result and its tolerance.
struct Product {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
    bound: Vec<f64>,
}

fn product(seed: u64, [m, n, k]: [usize; 3]) -> Product {
    let mut data = Data::new(seed);
    let (a, b) = (data.reals(m * k, Bf16), data.reals(n * k, Bf16));
    let rows = || a.chunks(k).flat_map(|row| b.chunks(k).map(move |column| row.iter().zip(column)));
    let c = rows().map(|pairs| pairs.map(|(x, y)| x * y).sum()).collect();
    let bound = rows().map(|pairs| pairs.map(|(x, y)| (x * y).abs()).sum::<f64>() * k as f64 * F32.epsilon()).collect();
    Product { a, b, c, bound }
}

/// Boxes of 64 of K, in the 128-byte swizzle.
fn operand(rows: usize, k: usize, tile: u32) -> Matrix {
    Matrix { format: Bf16, rows: rows as u64, columns: k as u64, tile: [64, tile], swizzle_bytes: 128 }
}

fn operands(name: &'static str, grid: [u32; 3], p: &Product, [m, n, k]: [usize; 3], columns: u32) -> Setup {
    Setup::new(name, grid)
        .input("map_a", Bf16, &p.a)
        .input("map_b", Bf16, &p.b)
        .map("map_a", operand(m, k, 64))
        .map("map_b", operand(n, k, columns))
        .int("steps", k / 64)
}

/// More steps than stages, and an odd number of them, so that tiles start in different stages.
pub(crate) fn ring() -> Setup {
    let (tiles, sizes) = (3, [128, 48, 192]);
    let p = product(70, sizes);
    let c = Matrix { format: Bf16, rows: 128, columns: 48, tile: [16, 64], swizzle_bytes: 32 };
    operands("ring", [2, 1, 1], &p, sizes, 16).close("map_c", Bf16, &p.c, &p.bound).map("map_c", c).int("tiles", tiles)
}

pub(crate) fn pingpong() -> Setup {
    let (tiles, sizes) = (4, [128, 64, 192]);
    let p = product(71, sizes);
    operands("pingpong", [2, 1, 1], &p, sizes, 16).close("c", F32, &p.c, &p.bound).int("tiles", tiles)
}

/// Two clusters; a box of `map_b` is what one CTA sends.
pub(crate) fn cluster_ring() -> Setup {
    let sizes = [128, 32, 320];
    let p = product(72, sizes);
    operands("cluster_ring", [2, 2, 1], &p, sizes, 8).close("c", F32, &p.c, &p.bound).int("columns", sizes[1])
}

pub(crate) fn written_operand() -> Setup {
    let p = product(73, [64, 16, 64]);
    Setup::new("written_operand", [1, 1, 1]).input("a", F32, &p.a).input("b", F32, &p.b).close("c", F32, &p.c, &p.bound)
}

pub(crate) fn written_map() -> Setup {
    let x = Data::new(75).reals(8 * 32, F32);
    let matrix = Matrix { format: F32, rows: 8, columns: 32, tile: [32, 8], swizzle_bytes: 0 };
    Setup::new("written_map", [1, 1, 1]).input("map", F32, &x).map("map", matrix).scratch("copy", 256).close(
        "y",
        F32,
        &x,
        &vec![0.0; x.len()],
    )
}

pub(crate) fn flag() -> Setup {
    let (ctas, threads) = (3, 64);
    let x = Data::new(74).reals(ctas * threads, F32);
    let (mut sums, mut bound) = (Vec::new(), Vec::new());
    for i in 0..x.len() {
        let terms = || x[..=i].iter().rev().step_by(threads);
        sums.push(terms().sum());
        bound.push(terms().map(|v| v.abs()).sum::<f64>() * 4.0 * F32.epsilon());
    }
    Setup::new("flag", [ctas as u32, 1, 1])
        .input("x", F32, &x)
        .output("sums", 4 * x.len(), close(F32, &sums, &bound))
        .update("flags", words([0; 3]), Expect::Exact(words([1; 3])))
}

pub(crate) fn split_sum() -> Setup {
    let (programs, splits, threads) = (2, 3, 64);
    let x = Data::new(75).reals(programs * splits * threads, F32);
    let (mut sums, mut bound) = (Vec::new(), Vec::new());
    for i in 0..programs * threads {
        let terms = || x[i / threads * splits * threads + i % threads..].iter().step_by(threads).take(splits);
        sums.push(terms().sum());
        bound.push(terms().map(|v| v.abs()).sum::<f64>() * 4.0 * F32.epsilon());
    }
    Setup::new("split_sum", [(programs * splits) as u32, 1, 1])
        .input("x", F32, &x)
        .update("arrivals", words([0; 2]), Expect::Exact(words([0; 2])))
        .scratch("parts", 4 * x.len())
        .close("sums", F32, &sums, &bound)
}
