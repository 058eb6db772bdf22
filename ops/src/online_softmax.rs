//! The steps of an online softmax, written once for all kernels that take one.
//!
//! A row of logits comes in tiles. What is known of it so far is `top`, its greatest logit, and `total`, the sum of
//! `exp(z - top)`; attention also has `acc`, the sum of `exp(z - top) v`. A greater logit rescales the sums (Milakov and
//! Gimelshein, arXiv 1805.02867).
//!
//! # Promise
//! - Rows do not touch each other. A NaN makes its own row NaN.
//! - Logits of -infinity have weight 0, in whichever tiles they stand. A row of nothing else has a logarithm of -infinity, and
//!   attention gives 0 for it, as for a row without keys. (A softmax that writes its weights has no weights to write then: NaN.)
//! - A logit of +infinity makes the logarithm +infinity and the weights NaN.
//! - Products of queries and keys are numbers of f32 before they are scaled: one that is not is an infinite logit.
//! - `scale` of attention is the factor of logits, `1/sqrt(D)` as a rule, without `log2(e)`: kernels multiply by that themselves
//!   (`base_two`). It may be 0, which gives the mean of the values, and negative. It is at most 2.3e38 in magnitude: a greater one,
//!   an infinite one too, makes logits infinite, and NaN where a product is 0.
//! - Values are weighted and added in f32 before the sum is divided: a value is smaller than 3.4e38 divided by the number of keys.
//!   Weights are rounded as values are, and where their sum is not rounded with them (`attend`), a mean may be above the greatest
//!   value, by 2^-11 of it in f16 and by 2^-8 in bf16: in f16 a value is at most 65472.
//! - Where the sum is of rounded weights (`attend_rounded`), so is the logarithm: it is off by up to 2^-11 in f16 and 2^-8 in bf16.
//!
//! # Argument
//! `top` is what the sums are relative to, but for -infinity, from which nothing can be taken: while no other logit was seen the
//! sums are relative to 0, and are 0, since `exp(-infinity)` is. The next tile multiplies them by `exp(-infinity - base) = 0`.
//! Relative to +infinity the sums are NaN, as weights have to be; `log_sum` reads such a row off `top` instead.
//!
//! # Breaks it
//! `ops/tests/online_softmax.rs`: rows that begin and end with -infinity, hold +infinity or NaN, in tiles of every size.

use atlas_macros::atlas_kernel;
use std::f32::consts::{LN_2, LOG2_E};

atlas_kernel! {
    /// The factor that makes logits of base two of products: the usual `scale` times `log2(e)`. `exponentials`, `attend`,
    /// `attend_rounded` and `log_sum` take such logits, because a power of two is one instruction. In a loop it is computed once.
    pub tile fn base_two(scale) { scale * LOG2_E }

    /// What exponentials are relative to where this logit is the greatest.
    pub tile fn base_of(top) { select(top == f32::NEG_INFINITY, 0.0, top) }

    /// The greatest logit of each row so far, and what its exponentials are relative to.
    pub tile fn greatest(z, top) {
        let higher = max(top, max(z, axis = 1));
        (higher, base_of(higher))
    }

    /// The exponentials of a tile of logits, the greatest so far, and what becomes of the sums before.
    pub tile fn exponentials(z, top) {
        let (higher, base) = greatest(z, top);
        (exp2(z - base), higher, exp2(top - base))
    }

    /// A step of attention: the greatest logit so far, the sum of exponentials, and the weighted values. The logits `z` are of
    /// base two.
    pub tile fn attend(z, v, top, total, acc) {
        let (e, higher, kept) = exponentials(z, top);
        // Before the product, which then keeps no exponentials but rounded ones.
        let all = total * kept + sum(e, axis = 1);
        let mut weighted = acc * kept;
        weighted += dot(e.cast_like(v), v);
        (higher, all, weighted)
    }

    /// The same, where the sum is of the exponentials as the product takes them: rounded.
    pub tile fn attend_rounded(z, v, top, total, acc) {
        let (exact, higher, kept) = exponentials(z, top);
        let e = exact.cast_like(v);
        let mut weighted = acc * kept;
        weighted += dot(e, v);
        (higher, total * kept + sum(e.cast::<f32>(), axis = 1), weighted)
    }

    /// What attention gives: the mean of the values, and 0 where nothing has weight.
    pub tile fn attended(top, total, acc) { select(top == f32::NEG_INFINITY, 0.0, acc / total) }

    /// The natural logarithm of the sum of all powers of two.
    pub tile fn log_sum(top, total) {
        select(top == f32::INFINITY, f32::INFINITY, (top + log(total) * LOG2_E) * LN_2)
    }
}

/// The same in f64, of a whole row.
#[cfg(feature = "verify")]
pub(crate) mod in_f64 {
    /// What exponentials of logits are taken relative to: the greatest, but for -infinity.
    pub(crate) fn base(top: f64) -> f64 {
        if top == f64::NEG_INFINITY { 0.0 } else { top }
    }

    /// The greatest logit; NaN if one is.
    pub(crate) fn greatest(z: &[f64]) -> f64 {
        z.iter().fold(f64::NEG_INFINITY, |m, &v| if m.is_nan() || v <= m { m } else { v })
    }

    /// The logarithm of the sum of the exponentials of logits.
    pub(crate) fn log_sum_exp(z: &[f64]) -> f64 {
        let top = greatest(z);
        if top == f64::INFINITY { top } else { top + z.iter().map(|z| (z - base(top)).exp()).sum::<f64>().ln() }
    }

    /// The mean of values `[N, D]` weighted with the softmax of their logits; 0 where no logit is above -infinity.
    pub(crate) fn attended<'v>(z: &[f64], values: impl Iterator<Item = &'v [f64]>, d: usize) -> Vec<f64> {
        let top = greatest(z);
        let mut out = vec![0.0; d];
        if top == f64::NEG_INFINITY {
            return out;
        }
        let total: f64 = z.iter().map(|z| (z - top).exp()).sum();
        for (z, v) in z.iter().zip(values) {
            let weight = (z - top).exp() / total;
            out.iter_mut().zip(v).for_each(|(o, v)| *o += weight * v);
        }
        out
    }
}
