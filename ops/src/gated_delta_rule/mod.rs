//! Gated DeltaNet: a linear memory that forgets, and that is corrected towards each value. With gates of 0 it is DeltaNet.
//!
//! Sources: Gated DeltaNet (arXiv 2412.06464), DeltaNet (arXiv 2406.06484), and the layouts and conventions of
//! flash-linear-attention. Per sequence and head, with `g` the logarithm of a decay:
//!
//! ```text
//! S  <-  exp(g_t) S                    S [D, E]
//! u_t =  beta_t (v_t - S^T k_t)
//! S  <-  S + k_t u_t^T
//! o_t =  scale S^T q_t                 scale is usually D^-1/2
//! ```
//!
//! A chunk of `L` tokens is exact, whatever its length. With `G_i` the sum of the chunk's `g` up to token `i`, and `S` the memory
//! before the chunk:
//!
//! ```text
//! A[i, m] = beta_i exp(G_i - G_m) k_i . k_m                 for m < i
//! U = (1 + A)^-1 diag(beta) (V - diag(exp G) K S)           the u_t, in rows
//! O = scale (diag(exp G) Q S + P U)                         P[i, m] = exp(G_i - G_m) q_i . k_m for m <= i
//! S <- exp(G_L) S + K^T diag(exp(G_L - G)) U
//! ```
//!
//! [`solve`] has what does not depend on the memory, `t = (1 + A)^-1 diag(beta)` and `P`. Two chains go on from there.
//! [`GATED_DELTA_RULE`] takes each tile of values through all chunks in one launch. [`GATED_DELTA_RULE_SPLIT`] first makes the
//! factors of the WY form, `U = u - w S`, so that less is left to do from chunk to chunk, and reads outputs in a launch of its
//! own: it is for fewer tiles of values than a GPU has multiprocessors, and moves more bytes.
//!
//! Precision: products have operands of `T` and sums of f32, and the memory is f32. `(1 + A)^-1` is built from inverses of
//! diagonal blocks: those of 16 rows are corrected by one step of Newton, and larger blocks follow from them by one product each. The
//! operands of these products are split into a value and a remainder of `T`, so that blocks are about as near as f32 is. What is left, `t` in `T`, is rounded up or
//! down by the place of an element: with steps of 1.9 and one key throughout, a chunk of 64 tokens keeps `0.9^64` of the memory, which
//! is 1 less the sum of all of `t`, and roundings to the nearest would add up to 0.6 of it in bf16. The product `(1 - A)(1 + A^2)(1 + A^4)..` needs no more
//! work, but its factors cancel: with 64 times the same key, powers of `A` reach 1e17 and the inverse has no element above 1.
//! Exponents are differences of sums within a chunk and no quotients of decays are formed; a `g` of minus infinity clears the
//! memory. A `g` above 0 is admitted as long as its exponentials are finite.
//!
//! The tokens of a chunk are mixed by products with zeros for those that a token does not see. So that an input that is infinite or
//! no number reaches no earlier token, 0 stands in its place in these products, and NaN is added to the tokens from it on. The launch
//! of [`GATED_DELTA_RULE`] that goes from chunk to chunk does without, because that takes too many registers: there, a key or a value
//! that is infinite or no number reaches earlier tokens of its own chunk, too.
//!
//! Keys are usually of unit length: [`l2_norm`](crate::l2_norm) gives them. There may be fewer heads `J` of queries and keys than
//! heads `H` of values: head `h` has those of `h / (H / J)`.
//!
//! FLOPs: `2 B N H (3 D E + 2 L E + L D)`, and those of [`solve`]. Bytes: `s B N (2 J D + 2 H E)` for elements of `s` bytes.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
pub mod check;
mod chunks;
pub mod fused;
#[cfg(feature = "verify")]
mod plans;
#[cfg(feature = "verify")]
mod problem;
#[cfg(feature = "verify")]
pub mod reference;
pub mod solve;
pub mod split;

pub use chunks::DeltaChunks;
pub use fused::delta_rule;
pub use solve::{delta_blocks, delta_solve};
pub use split::{delta_factors, delta_outputs, delta_states};

use atlas_runtime::Chain;

/// The rule with outputs in the launch that goes from chunk to chunk. [`DeltaChunks::dims`] gives the dims of the workspace.
pub static GATED_DELTA_RULE: Chain =
    Chain::new("gated_delta_rule", &[&delta_blocks, &delta_solve, &delta_rule], &["x", "t", "p", "reach", "tail"]);

/// The rule with as little as possible in the launch that goes from chunk to chunk. [`DeltaChunks::dims`] gives the dims of the
/// workspace.
pub static GATED_DELTA_RULE_SPLIT: Chain = Chain::new(
    "gated_delta_rule_split",
    &[&delta_blocks, &delta_solve, &delta_factors, &delta_states, &delta_outputs],
    &["x", "t", "p", "reach", "tail", "w", "u", "before", "step"],
);
