//! Kernels as a new user writes them: each equals a plain f64 loop, on every device.
//!
//! Sizes are odd, prime, 1, 0, or views into wider rows. Bounds come from the element type and the lengths of sums.

mod attention;
mod norms;
mod products;
mod rows;
mod sequences;
mod windows;

use atlas_dsl::DType;

/// The largest relative error of rounding to nearest.
fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::Bf16 => 2f64.powi(-8),
        _ => 2f64.powi(-24),
    }
}

/// The bound for `roundings` roundings to `dtype` after sums of `terms` terms in f32 with a few functions of them.
///
/// The terms of a sum may exceed the sum, and a GPU's functions are accurate to a few units: hence 4 and 16.
fn bound(dtype: DType, roundings: usize, terms: usize) -> f64 {
    roundings as f64 * unit(dtype) + 4.0 * (terms + 16) as f64 * unit(DType::F32)
}

/// A row-major table of two axes from a function of its indices.
fn table([m, n]: [usize; 2], f: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..m * n).map(|at| f(at / n, at % n)).collect()
}
