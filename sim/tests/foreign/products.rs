//! Products of matrices: in f32 from shared memory, by `mma.sync`, by `wgmma`, with `cp.async` and with TMA.

use crate::data::Data;
use crate::data::Format::{self, Bf16, E4m3, F32, F64, I8, I32};
use crate::setup::{Matrix, Setup};
use crate::{index, kernels};

kernels!(
    sgemm_tiled,
    mma_cp_async,
    wgmma_tma,
    wgmma_specialised,
    triton_matmul_sm80,
    triton_matmul_tf32_sm80,
    triton_matmul_fp8_sm89,
    triton_matmul_i8_sm80,
    triton_matmul_f64_sm80,
    triton_matmul_tma,
    triton_matmul_fp8,
);

/// Operands of a product and the expected result.
struct Product {
    m: usize,
    n: usize,
    k: usize,
    /// Rows of a.
    a: Vec<f64>,
    /// Columns of b, each in one piece.
    b: Vec<f64>,
    want: Vec<f64>,
    bound: Vec<f64>,
}

impl Product {
    fn new(seed: u64, format: Format, m: usize, n: usize, k: usize) -> Product {
        let mut data = Data::new(seed);
        let mut draw = |n| if format == I8 { data.integers(n) } else { data.reals(n, format) };
        let (a, b) = (draw(m * k), draw(n * k));
        let (mut want, mut bound) = (Vec::new(), Vec::new());
        for row in a.chunks(k) {
            for column in b.chunks(k) {
                let terms = row.iter().zip(column).map(|(x, y)| x * y);
                want.push(terms.clone().sum());
                bound.push(terms.map(f64::abs).sum::<f64>() * k as f64 * F32.epsilon());
            }
        }
        Product { m, n, k, a, b, want, bound }
    }

    /// b as a row-major matrix of k rows.
    fn b_by_rows(&self) -> Vec<f64> {
        (0..self.k).flat_map(|i| (0..self.n).map(move |j| self.b[j * self.k + i])).collect()
    }

    fn sizes(&self, setup: Setup) -> Setup {
        setup.int("m", self.m).int("n", self.n).int("k", self.k)
    }
}

pub(crate) fn sgemm_tiled() -> Setup {
    let p = Product::new(30, F32, 37, 45, 70);
    let setup = Setup::new("sgemm_tiled", [2, 2, 1]).input("a", F32, &p.a).input("b", F32, &p.b_by_rows());
    p.sizes(setup.close("c", F32, &p.want, &p.bound))
}

pub(crate) fn mma_cp_async() -> Setup {
    let p = Product::new(31, Bf16, 64, 128, 96);
    let setup = Setup::new("mma_cp_async", [2, 1, 1]).input("a", Bf16, &p.a).input("b", Bf16, &p.b);
    p.sizes(setup.close("c", F32, &p.want, &p.bound))
}

fn matrix(format: Format, rows: usize, columns: usize, tile: [u32; 2], swizzle_bytes: u32) -> Matrix {
    Matrix { format, rows: rows as u64, columns: columns as u64, tile, swizzle_bytes }
}

pub(crate) fn wgmma_tma() -> Setup {
    let p = Product::new(32, Bf16, 64, 128, 256);
    Setup::new("wgmma_tma", [2, 1, 1])
        .input("a", Bf16, &p.a)
        .input("b", Bf16, &p.b)
        .map("a", matrix(Bf16, p.m, p.k, [64, 64], 128))
        .map("b", matrix(Bf16, p.n, p.k, [64, 64], 128))
        .close("c", F32, &p.want, &p.bound)
        .int("n", p.n)
        .int("k", p.k)
}

/// Ragged sizes: TMA fills the operands with zeros and clips the results.
pub(crate) fn wgmma_specialised() -> Setup {
    let p = Product::new(33, Bf16, 100, 120, 200);
    Setup::new("wgmma_specialised", [3, 1, 1])
        .input("a", Bf16, &p.a)
        .input("b", Bf16, &p.b)
        .close("c", Bf16, &p.want, &p.bound)
        .map("a", matrix(Bf16, p.m, p.k, [64, 64], 128))
        .map("b", matrix(Bf16, p.n, p.k, [64, 64], 128))
        .map("c", matrix(Bf16, p.m, p.n, [64, 64], 128))
        .int("tiles_m", 2)
        .int("tiles_n", 2)
        .int("steps", 4)
}

pub(crate) fn triton_matmul_sm80() -> Setup {
    pointers("triton_matmul_sm80", [2, 1, 1], Bf16, Bf16, F32)
}

pub(crate) fn triton_matmul_sm90() -> Setup {
    pointers("triton_matmul_sm90", [2, 1, 1], Bf16, Bf16, F32)
}

/// Numbers that tf32 holds exactly, because it is not specified which bits the tensor core drops of others.
fn triton_matmul_tf32_sm80() -> Setup {
    pointers("triton_matmul_tf32_sm80", [2, 1, 1], Bf16, F32, F32)
}

pub(crate) fn triton_matmul_tf32_sm90() -> Setup {
    pointers("triton_matmul_tf32_sm90", [2, 1, 1], Bf16, F32, F32)
}

fn triton_matmul_fp8_sm89() -> Setup {
    pointers("triton_matmul_fp8_sm89", [2, 1, 1], E4m3, E4m3, F32)
}

fn triton_matmul_i8_sm80() -> Setup {
    pointers("triton_matmul_i8_sm80", [2, 1, 1], I8, I8, I32)
}

fn triton_matmul_f64_sm80() -> Setup {
    pointers("triton_matmul_f64_sm80", [4, 2, 1], F32, F64, F64)
}

/// Numbers of one format, stored in another.
fn pointers(name: &'static str, grid: [u32; 3], numbers: Format, stored: Format, result: Format) -> Setup {
    let p = Product::new(34, numbers, 64, 128, 96);
    let setup = Setup::new(name, grid).input("a", stored, &p.a).input("b", stored, &p.b_by_rows());
    let scale = result.epsilon() / F32.epsilon();
    let bound: Vec<f64> = p.bound.iter().map(|b| b * scale).collect();
    p.sizes(setup.close("c", result, &p.want, &bound))
}

pub(crate) fn triton_matmul_tma() -> Setup {
    descriptors("triton_matmul_tma", Bf16, Bf16)
}

fn triton_matmul_fp8() -> Setup {
    descriptors("triton_matmul_fp8", E4m3, F32)
}

/// Fewer CTAs than tiles, so that one CTA continues with a second tile. The box of `a` has 64 rows, because the text expects
/// that many bytes: each of two consumers has half of the 128 rows that Triton's own launcher would request.
pub(crate) fn triton_matmul_specialised() -> Setup {
    let p = Product::new(36, Bf16, 176, 80, 144);
    let setup = Setup::new("triton_matmul_specialised", [3, 1, 1])
        .input("a", Bf16, &p.a)
        .input("b", Bf16, &p.b)
        .map("a", matrix(Bf16, p.m, p.k, [64, 64], 128))
        .map("b", matrix(Bf16, p.n, p.k, [64, 64], 128))
        .close("c", Bf16, &p.want, &p.bound);
    p.sizes(setup)
}

/// Ragged sizes, through the tensor maps that the compiler expects.
fn descriptors(name: &'static str, operand: Format, result: Format) -> Setup {
    let p = Product::new(35, operand, 112, 80, 144);
    let maps = index::kernel(name).maps;
    let map = |name: &str, format, rows, columns| {
        let tile = [0, 1].map(|i: usize| maps[name]["box"][i].as_u64().unwrap() as u32);
        matrix(format, rows, columns, tile, maps[name]["swizzle_bytes"].as_u64().unwrap() as u32)
    };
    let setup = Setup::new(name, [2, 2, 1])
        .input("a", operand, &p.a)
        .input("b", operand, &p.b)
        .close("c", result, &p.want, &p.bound)
        .map("a", map("a", operand, p.m, p.k))
        .map("b", map("b", operand, p.n, p.k))
        .map("c", map("c", result, p.m, p.n));
    p.sizes(setup)
}
