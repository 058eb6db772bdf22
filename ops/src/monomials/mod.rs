//! Monomials of a row's numbers up to degree 3, each once: features whose inner product is a polynomial of the inner product.
//!
//! The order is by degree, then `i <= j <= k` lexicographically; `E = C(D + p, p)` of them for degree `p`. Kernel-exact, the
//! monomial `x_i x_j ..` has the factor `c_p sqrt(p! / (repetitions)!)`, so that with `c_p = sqrt(a_p)` on both sides, or `a_p` on
//! one, `phi(q) . phi(k) = sum of a_p (q.k)^p`. Plain, the factor is `c_p` alone. Columns past the last monomial, up to `D - 1`,
//! are 0.
//!
//! [`powers2`] and [`powers3`] are the tensor form, `x (x) x` and `x (x) x (x) x`, with each product as often as it has orders.
//!
//! Source: ATLAS (arXiv 2505.23735) section 3.1, Eq. 5 and Eq. 22. Rows of monomials begin where no vector does. Each run of them,
//! `x_i x_i, x_i x_(i+1), ..`, is written `D` wide; what is too much is 0 and written again by the next run.
//!
//! Domain: products are made in f32, `(c x_i) x_j` and `(c (x_i x_j)) x_k`, and each of them has to be a number of f32 with all of its
//! parts; so have `x_i x_j` and `(x_i x_j) x_k` of [`powers3`]. Where a part is infinite, so is the monomial, or it is NaN.
//!
//! FLOPs: `2 N E`. Bytes: `s N (D + E)`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::{powers, reference};

use atlas_macros::atlas_kernel;
use std::f32::consts::SQRT_2;

atlas_kernel! {
    /// y = (c0, c1 x, c2 x_i x_j): degree 2, with `sqrt 2` for `i < j` unless `plain` is above 0.
    pub kernel monomials2<T: Float>(
        x: &Tensor<T, [N, D]>,
        y: &mut Tensor<T, [N, E]>,
        c0: f32,
        c1: f32,
        c2: f32,
        plain: i32,
    )
    tune { BN: [8, 4], warps: [8] }
    require { 2 * E >= (D + 1) * (D + 2), 2 * E < (D + 1) * (D + 2) + 2 * D }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            store(y[n, span(0, 1)], broadcast(c0, [BN, 1]).cast::<T>());
            store(y[n, span(1, D)], (c1 * xs).cast::<T>());
            let mixed = select(plain > 0, c2, c2 * SQRT_2);
            let mut at = 1 + size(D);
            for i in 0..size(D) {
                let one = load(x[n, span(i, 1)]).cast::<f32>();
                let rest = load(x[n, span(i, D)]).or(0.0).cast::<f32>();
                let column = iota([1, D], 1);
                let factor = select(column == 0, c2, mixed);
                // Past the run's end stands 0, whatever the factors are.
                let run = select(column < size(D) - i, factor * one * rest, 0.0);
                store(y[n, span(at, D)], run.cast::<T>());
                at = at + size(D) - i;
            }
        }
    }

    /// y = (c0, c1 x, c2 x_i x_j, c3 x_i x_j x_k): degree 3, with `sqrt 3` where two of three are one and `sqrt 6` where none are.
    pub kernel monomials3<T: Float>(
        x: &Tensor<T, [N, D]>,
        y: &mut Tensor<T, [N, E]>,
        c0: f32,
        c1: f32,
        c2: f32,
        c3: f32,
        plain: i32,
    )
    tune { BN: [8, 4], warps: [8] }
    require { 6 * E >= (D + 1) * (D + 2) * (D + 3), 6 * E < (D + 1) * (D + 2) * (D + 3) + 6 * D }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            store(y[n, span(0, 1)], broadcast(c0, [BN, 1]).cast::<T>());
            store(y[n, span(1, D)], (c1 * xs).cast::<T>());
            let mixed = select(plain > 0, c2, c2 * SQRT_2);
            let mut at = 1 + size(D);
            for i in 0..size(D) {
                let one = load(x[n, span(i, 1)]).cast::<f32>();
                let rest = load(x[n, span(i, D)]).or(0.0).cast::<f32>();
                let column = iota([1, D], 1);
                let factor = select(column == 0, c2, mixed);
                // Past the run's end stands 0, whatever the factors are.
                let run = select(column < size(D) - i, factor * one * rest, 0.0);
                store(y[n, span(at, D)], run.cast::<T>());
                at = at + size(D) - i;
            }
            let twice = select(plain > 0, c3, c3 * SQRT_3);
            let apart = select(plain > 0, c3, c3 * SQRT_6);
            for i in 0..size(D) {
                let first = load(x[n, span(i, 1)]).cast::<f32>();
                for j in i..size(D) {
                    let second = load(x[n, span(j, 1)]).or(0.0).cast::<f32>();
                    let rest = load(x[n, span(j, D)]).or(0.0).cast::<f32>();
                    let column = iota([1, D], 1);
                    let of_one = select(column == 0, c3, twice);
                    let of_two = select(column == 0, twice, apart);
                    let factor = select(i == j, of_one, of_two);
                    let run = select(column < size(D) - j, factor * (first * second) * rest, 0.0);
                    store(y[n, span(at, D)], run.cast::<T>());
                    at = at + size(D) - j;
                }
            }
        }
    }

    /// y = x (x) x
    pub kernel powers2<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D, D]>)
    tune { BN: [16, 32, 64], warps: [4, 8] }
    {
        for (n, i) in grid(tiles(N, BN), D) {
            let one = load(x[n, span(i, 1)]).cast::<f32>();
            store(y[n, i, ..], (one * load(x[n, ..]).cast::<f32>()).cast::<T>());
        }
    }

    /// y = x (x) x (x) x
    pub kernel powers3<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D, D, D]>)
    tune { BN: [16, 32, 64], warps: [4, 8] }
    {
        for (n, i, j) in grid(tiles(N, BN), D, D) {
            let both = load(x[n, span(i, 1)]).cast::<f32>() * load(x[n, span(j, 1)]).cast::<f32>();
            store(y[n, i, j, ..], (both * load(x[n, ..]).cast::<f32>()).cast::<T>());
        }
    }
}

const SQRT_3: f32 = 1.732_050_8;

const SQRT_6: f32 = 2.449_489_7;

/// Monomials of `d` numbers up to a degree: `C(d + degree, degree)`, or the largest number where these are more.
pub fn count(d: usize, degree: usize) -> usize {
    let with = |all: usize, i: usize| Some(all.checked_mul(d.checked_add(i)?)? / i);
    (1..=degree).try_fold(1, with).unwrap_or(usize::MAX)
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "monomials2" "monomials3" "powers2" "powers3" }
crate::records::shipped! { "nvidia-h200": "monomials2" "monomials3" "powers2" "powers3" }
