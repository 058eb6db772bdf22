//! Newton-Schulz orthogonalisation of small matrices, five quintic steps with the matrix on chip throughout.
//!
//! Source: Muon (Keller Jordan); ATLAS (arXiv 2505.23735) Eq. 32 applies it to the memory's momentum.
//! `X0 = G / (||G||_F + eps)`; five times: `A = X X^T`, `X <- a X + (b A + c A A) X`.
//! `M <= N` is expected: transpose the problem otherwise. The map drives every singular value towards 1 but
//! does not converge: its values end between 0.68 and 1.14 (from 0.01 up). Zero stays zero.
//!
//! Epsilon: 1e-7 is added to the norm of Frobenius, as by Jordan's Muon. `torch.optim.Muon` and `torch.nn.functional.normalize` divide
//! by the greater one of both instead: a matrix of norm 1e-7 is half as long here. Any rule is in [`muon`](crate::muon).
//!
//! The norm is taken in f32 before the cast, so that a large `G` in f16 does not overflow. Domain: the squares of `G` add up to a
//! number of f32, that is, `||G||` is below 1.8e19; beyond it the result is 0. A scale that avoids that costs 3 to 8 % of the time
//! (H100, 512 matrices); [`muon`](crate::muon) takes gradients of any size.
//!
//! In 16 bits most of the error comes from rounding `A` and the polynomial of `A`, whose diagonals are large. So the
//! polynomial is expanded about a number `s` near the middle of `A`'s spectrum, which changes nothing in exact
//! arithmetic: with `E = A - s I`, `a + b A + c A A = (a + b s + c s^2) + (b + 2 c s) E + c E E`. `E` and the polynomial
//! of `E` are small, and so is their rounding: in bf16 the error is a fifth (5e-3 against 3e-2 at 48x192). The first
//! term goes on the diagonal of the last factor, so that each step multiplies `X` once and adds nothing to it. With
//! `X' = c^(1/4) X` the factor `c` of `E E` is one, and the rest is where that product starts from.
//!
//! FLOPs: `B (20 M^2 N + 10 M^3)`. Bytes: `2 s B M N`.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

/// Coefficients (a, b, c) of every step: the classic ones.
pub const CLASSIC: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// Number of steps.
const COUNT: usize = 5;

/// Where each step's polynomial is expanded: about the mean eigenvalue of `A` for Gaussian `G`.
pub(crate) const CENTRES: [f64; COUNT] = [0.0, 0.25, 1.0, 0.75, 0.75];

/// The fourth root of `c`: the kernel iterates `X' = SCALE X`, whose `E' E'` needs no factor.
pub(crate) const SCALE: f64 = 1.193_862_213_355_200_8;

/// Back from `X'` to `X`.
pub(crate) const UNSCALE: f64 = 1.0 / SCALE;

/// The steps as the kernel takes them, for `A' = k A` with `k = sqrt c`: (a + b s + c s^2, (b + 2 c s) / k, k s).
pub(crate) const STEPS: [[f32; 3]; COUNT] = expanded();

/// Added to the Frobenius norm.
pub const EPS: f32 = 1e-7;

/// `2^48`, above which squares and their sums may be no numbers of f32: for the kernels that scale before they square.
pub(crate) const LARGE: f32 = 281_474_976_710_656.0;

/// `2^-80`, by which what is larger is multiplied, without rounding, before it is squared.
pub(crate) const SHRINK: f32 = 1.0 / (1_048_576.0 * 1_048_576.0 * 1_048_576.0 * 1_048_576.0);

const fn expanded() -> [[f32; 3]; COUNT] {
    let mut steps = [[0.0; 3]; COUNT];
    let ([a, b, c], k) = (CLASSIC, SCALE * SCALE);
    let mut i = 0;
    while i < COUNT {
        let s = CENTRES[i];
        steps[i] = [(a + b * s + c * s * s) as f32, ((b + 2.0 * c * s) / k) as f32, (k * s) as f32];
        i += 1;
    }
    steps
}

atlas_kernel! {
    /// Five quintic Newton-Schulz steps with the classic coefficients on each of B matrices of M x N.
    ///
    /// Epsilon: 1e-7 is added to the norm of Frobenius, as by Jordan's Muon.
    pub kernel newton_schulz_small<T: Float>(
        g: &Tensor<T, [B, M, N]>,
        y: &mut Tensor<T, [B, M, N]>,
    )
    tune { warps: [2, 4, 8, 3] }
    {
        for b in grid(B) {
            let g0 = load(g[b, .., ..]).cast::<f32>();
            let norm = sqrt(sum(g0 * g0));
            let mut x = (g0 * (SCALE / (norm + EPS))).cast::<T>();
            for i in 0..5 {
                let mut e = select(iota([M, M], 0) == iota([M, M], 1), -STEPS[i][2], 0.0);
                e += dot(x, x.t());
                let et = e.cast::<T>();
                let linear = STEPS[i][1] * e;
                let mut p = select(iota([M, M], 0) == iota([M, M], 1), linear + STEPS[i][0], linear);
                p += dot(et, et);
                x = dot(p.cast::<T>(), x).cast::<T>();
            }
            store(y[b, .., ..], (x.cast::<f32>() * UNSCALE).cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "newton_schulz_small" }
crate::records::shipped! { "nvidia-h200": "newton_schulz_small" }
