//! Newton-Schulz orthogonalisation of small matrices, five quintic steps with the matrix on chip throughout.
//!
//! Source: Muon (Keller Jordan); ATLAS (arXiv 2505.23735) Eq. 32 applies it to the memory's momentum.
//! `X0 = G / (||G||_F + eps)`; five times: `A = X X^T`, `X <- a X + (b A + c A A) X`.
//! `M <= N` is expected: transpose the problem otherwise. The map drives every singular value towards 1 but
//! does not converge: its values end between 0.68 and 1.14 (from 0.01 up). Zero stays zero.
//!
//! The norm is taken in f32 before the cast, so that a large `G` in f16 does not overflow.
//!
//! In 16 bits most of the error comes from rounding `A` and the polynomial of `A`, whose diagonals are large. So the
//! polynomial is expanded about a number `s` near the middle of `A`'s spectrum, which changes nothing in exact
//! arithmetic: with `E = A - s I`, `a + b A + c A A = (a + b s + c s^2) + (b + 2 c s) E + c E E`. `E` and the polynomial
//! of `E` are small, and so is their rounding: in bf16 the error is a fifth (5e-3 against 3e-2 at 48x192). The first
//! term goes on the diagonal of the last factor, so that each step multiplies `X` once and adds nothing to it.
//!
//! FLOPs: `B (20 M^2 N + 10 M^3)`. Bytes: `2 s B M N`.

use atlas_macros::atlas_kernel;
use rayon::prelude::*;

/// Coefficients (a, b, c) of each step: the classic ones.
pub const CLASSIC: [[f64; 3]; 5] = [[3.4445, -4.7750, 2.0315]; 5];

/// Where each step's polynomial is expanded: about the mean eigenvalue of `A` for Gaussian `G`.
const CENTRES: [f64; 5] = [0.0, 0.25, 1.0, 0.75, 0.75];

/// The steps as the kernel takes them: (a + b s + c s^2, b + 2 c s, c, s).
const STEPS: [[f32; 4]; 5] = expanded();

/// Added to the Frobenius norm.
pub const EPS: f32 = 1e-7;

const fn expanded() -> [[f32; 4]; 5] {
    let mut steps = [[0.0; 4]; 5];
    let mut i = 0;
    while i < 5 {
        let ([a, b, c], s) = (CLASSIC[i], CENTRES[i]);
        steps[i] = [(a + b * s + c * s * s) as f32, (b + 2.0 * c * s) as f32, c as f32, s as f32];
        i += 1;
    }
    steps
}

atlas_kernel! {
    /// Five quintic Newton-Schulz steps on each of B matrices of M x N.
    pub kernel newton_schulz_small<T: Float>(
        g: &Tensor<T, [B, M, N]>,
        y: &mut Tensor<T, [B, M, N]>,
    )
    tune { warps: [4, 8, 3, 2] }
    {
        for b in grid(B) {
            let g0 = load(g[b, .., ..]).cast::<f32>();
            let norm = sqrt(sum(g0 * g0));
            let mut x = (g0 / (norm + EPS)).cast::<T>();
            for i in 0..5 {
                let mut e = select(iota([M, M], 0) == iota([M, M], 1), -STEPS[i][3], 0.0);
                e += dot(x, x.t());
                let et = e.cast::<T>();
                let p = STEPS[i][1] * e + STEPS[i][2] * dot(et, et);
                let q = select(iota([M, M], 0) == iota([M, M], 1), p + STEPS[i][0], p);
                x = dot(q.cast::<T>(), x).cast::<T>();
            }
            store(y[b, .., ..], x);
        }
    }
}

/// The same polynomial in f64, matrix by matrix, row-major.
pub fn reference(g: &[f64], [m, n]: [usize; 2]) -> Vec<f64> {
    let mut y = g.to_vec();
    if m * n > 0 {
        y.par_chunks_mut(m * n).for_each(|x| orthogonalise(x, m, n));
    }
    y
}

fn orthogonalise(x: &mut [f64], m: usize, n: usize) {
    let norm = x.iter().map(|v| v * v).sum::<f64>().sqrt();
    x.iter_mut().for_each(|v| *v /= norm + f64::from(EPS));
    for [a, b, c] in CLASSIC {
        let gram = product(x, &transposed(x, m, n), [m, n, m]);
        let square = product(&gram, &gram, [m, m, m]);
        let poly: Vec<f64> = gram.iter().zip(&square).map(|(g, s)| b * g + c * s).collect();
        let px = product(&poly, x, [m, m, n]);
        x.iter_mut().zip(&px).for_each(|(x, p)| *x = a * *x + p);
    }
}

fn transposed(x: &[f64], m: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|i| x[(i % m) * n + i / m]).collect()
}

fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for l in 0..k {
            let scale = a[i * k + l];
            for j in 0..n {
                c[i * n + j] += scale * b[l * n + j];
            }
        }
    }
    c
}
