//! The backward pass of the Omega rule: from the gradients by what is read, and by the memory after the last token, to those by
//! queries, keys, values, residuals, gates, and the memory before the first token.
//!
//! It goes over *segments* of chunks, from the last to the first ([`OmegaTraining`]). For a segment, launch by launch,
//!
//! 1. the mixing weights of its gates are computed again: [`omega_mix`](super::omega_mix);
//! 2. the states before its chunks are computed again from the one that the forward pass kept: `omega_*_states`;
//! 3. the gradients by what is read go through the reads, for all chunks at once: `omega_*_read_backward`, `omega_*_query_backward`;
//! 4. those by the state go from chunk to chunk: `omega_*_train_backward`;
//! 5. the gradients of keys are added up, because a key is seen by several chunks: [`omega_key_backward`];
//! 6. those of the mixing weights become those of the gates: [`omega_mix_backward`].
//!
//! Keys, values and hidden layers that are too wide for the registers and the shared memory of a device take kernels that walk over them
//! in tiles: `omega_*_wide_*`, of the parts in [`walk`].
//!
//! A memory of two layers has a second form of 2 and 4, whose passes over a chunk are launches of their own: [`mlp_split_states`], for few
//! sequences and heads, and [`mlp_split`].
//!
//! Another memory needs kernels for 2, 3 and 4, and a row beside those of [`OmegaTraining`]. A memory with a norm inside shares those
//! of a memory of two layers behind the norm ([`normed`]).
//!
//! With one orthogonalised step for each chunk, 2 and 4 go chunk by chunk, between them steps: `by_chunk` has the launches,
//! [`omega_step_backward`] goes back through a step, and [`omega_step_gate_backward`] to the gates of its length. A chunk has to be read
//! before its step. Its forward pass takes the chain of [`OmegaRule::chain_for_hidden`](super::OmegaRule::chain_for_hidden). A step for
//! each token has no gradients yet.
//!
//! The loss is `s/2 |M(k) - v|^2` or, with `predicts` 0, `-s <M(k), v>`, whose errors do not depend on the memory.
//!
//! Source: the chain rule, on the dual form of a chunk in [`omega_mlp`](super::mlp) and [`omega_linear`](super::linear), which is the
//! rule itself. The references are the rule token by token, differentiated on a tape, which finite differences confirm.
//!
//! `a (*) b` is the product of each two elements. Everything is f32 but the operands of products, which are in the element type of
//! tokens, and what chunks keep of them.

#[cfg(feature = "verify")]
pub(crate) mod backward_cases;
mod by_chunk;
#[cfg(feature = "verify")]
pub mod check;
pub mod gated;
pub mod gated_read;
pub mod gated_train;
pub mod gated_wide;
pub mod keys;
pub mod linear;
pub mod linear_wide;
pub mod mix;
pub mod mlp;
pub mod mlp_read;
pub mod mlp_split;
pub mod mlp_split_states;
pub mod mlp_train;
pub mod mlp_wide;
pub mod normed;
pub mod normed_train;
pub mod normed_wide;
#[cfg(feature = "verify")]
mod plans;
#[cfg(feature = "verify")]
pub(crate) mod problem;
#[cfg(feature = "verify")]
mod problem_train;
#[cfg(feature = "verify")]
pub mod reference;
mod segment;
mod sizes;
#[cfg(feature = "verify")]
pub(crate) mod split_cases;
pub mod step;
#[cfg(feature = "verify")]
pub(crate) mod step_cases;
#[cfg(feature = "verify")]
pub mod tape;
mod trained;
mod training;
pub mod walk;
#[cfg(feature = "verify")]
pub(crate) mod wide_cases;

pub use gated::omega_gated_states;
pub use gated_read::{omega_gated_query_backward, omega_gated_read_backward};
pub use gated_train::omega_gated_train_backward;
pub use gated_wide::{
    omega_gated_wide_query_backward, omega_gated_wide_read_backward, omega_gated_wide_states,
    omega_gated_wide_train_backward,
};
pub use keys::omega_key_backward;
pub use linear::{omega_linear_read_backward, omega_linear_states, omega_linear_train_backward};
pub use linear_wide::{omega_linear_wide_read_backward, omega_linear_wide_states, omega_linear_wide_train_backward};
pub use mix::omega_mix_backward;
pub use mlp::omega_mlp_states;
pub use mlp_read::{omega_mlp_query_backward, omega_mlp_read_backward};
pub use mlp_split::{
    omega_mlp_split_back, omega_mlp_split_back_errors, omega_mlp_split_back_start, omega_mlp_split_ends,
    omega_mlp_split_keys,
};
pub use mlp_split_states::{omega_mlp_split_next_state, omega_mlp_split_state_errors, omega_mlp_split_states};
pub use mlp_train::omega_mlp_train_backward;
pub use mlp_wide::{
    omega_mlp_wide_query_backward, omega_mlp_wide_read_backward, omega_mlp_wide_states, omega_mlp_wide_train_backward,
};
pub use normed::{omega_normed_read_backward, omega_normed_states};
pub use normed_train::omega_normed_train_backward;
pub use normed_wide::{omega_normed_wide_read_backward, omega_normed_wide_states, omega_normed_wide_train_backward};
pub use sizes::TrainingSizes;
pub use step::{omega_step_backward, omega_step_gate_backward};
pub use training::{OmegaGradients, OmegaKept, OmegaTraining};
