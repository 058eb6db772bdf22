//! The Omega rule: a memory that is trained while its sequence is read, on the tokens of a sliding window.
//!
//! Source: ATLAS (arXiv 2505.23735) Eq. 9 to 16 and 56 to 58, with the choices where it is silent. Per sequence and head, with
//! chunks of `b` tokens and the anchor `a(t)`, the state before the chunk of token `t`:
//!
//! ```text
//! u_t = sum of gamma[t, o] grad l(M_a(t); k_(t-o), v_(t-o)) over 0 <= o < c      l = s/2 |M(k) - v|^2, or -s <M(k), v>
//! S_t = theta_t S_(t-1) + u_t
//! M_t = alpha_t M_(t-1) - eta_t S_t
//! y_t = M_t(q_t)                                                                 or M_(t-1)(q_t)
//! ```
//!
//! A chunk of one token is the recurrence itself; a window of one token, with `alpha` for its `1 - alpha`, is the rule of
//! Titans (arXiv 2501.00663). `theta = 0` is the rule without momentum.
//!
//! The tokens of a chunk are mixed by products with zeros for those that a token does not see. A key, value or error that is
//! infinite or no number, as an error beyond 65504 is in f16, therefore reaches earlier tokens of its chunk, too. A gate that is no
//! number reaches the tokens from its own on.
//!
//! Momenta are f32, but the products with queries read them in the element type of tokens. So in f16 a momentum of 65520 or more is
//! infinite there, and what its head reads is infinite or NaN, also at tokens whose gates leave the momentum out (`0 * inf`). Memory and
//! momentum themselves go on in f32 and stay right. Rows of the product with `S1` are not selected by their gate, because that takes a
//! second accumulator of `[L, E]` in the registers of the kernel's inner loop. Use bf16 where momenta
//! may be as large.

pub mod backward;
#[cfg(feature = "verify")]
pub(crate) mod cases;
mod chain_space;
#[cfg(feature = "verify")]
pub mod check;
#[cfg(feature = "verify")]
mod chunk_inputs;
mod chunking;
#[cfg(feature = "verify")]
mod cluster_cases;
pub mod gated;
pub mod gated_wide;
pub mod gates;
pub mod linear;
pub mod linear_wide;
mod loss;
pub mod mix;
pub mod mlp;
pub mod mlp_cluster;
pub mod mlp_split;
pub mod mlp_wide;
pub mod muon;
pub mod normed;
pub mod normed_wide;
mod open_chunk;
pub mod packed;
#[cfg(feature = "verify")]
pub(crate) mod plans;
#[cfg(feature = "verify")]
pub mod problem;
#[cfg(feature = "verify")]
pub mod reference;
mod room;
#[cfg(feature = "verify")]
pub mod rounded;
mod rule;
#[cfg(feature = "verify")]
pub(crate) mod split_cases;
pub mod stream;
mod stream_sizes;
pub(crate) mod two_rooms;

pub use chunking::Chunking;
pub use gated::omega_gated;
pub use gated_wide::omega_gated_wide;
pub use gates::{omega_decay_gates, omega_token_gates};
pub use linear::omega_linear;
pub use linear_wide::omega_linear_wide;
pub use mix::omega_mix;
pub use mlp::omega_mlp;
pub use mlp_cluster::omega_mlp_cluster_train;
pub use mlp_split::{
    omega_mlp_split_errors, omega_mlp_split_hidden, omega_mlp_split_inner, omega_mlp_split_outer,
    omega_mlp_split_train, omega_split_mixed, omega_split_reads,
};
pub use mlp_wide::omega_mlp_wide;
pub use muon::{
    fused_descent, fused_optimization, omega_muon, omega_muon_gated, omega_muon_gated_wide, omega_muon_linear,
    omega_muon_linear_wide, omega_muon_normed, omega_muon_normed_wide, omega_muon_tokens, omega_muon_tokens_gated,
    omega_muon_tokens_gated_wide, omega_muon_tokens_linear, omega_muon_tokens_linear_wide, omega_muon_tokens_normed,
    omega_muon_tokens_normed_wide, omega_muon_tokens_wide, omega_muon_wide,
};
pub use normed::omega_normed;
pub use normed_wide::omega_normed_wide;
pub use packed::OmegaPacked;
pub use rule::{Loss, MemoryForm, OmegaRule, Read, Step};
pub use stream::{OmegaStream, Tokens};
pub(crate) use stream::{copy_tokens, copy_tokens_on};
pub use stream_sizes::StreamSizes;

use atlas_runtime::Chain;

/// The names of a workspace: those given, where `mixed` stands for what [`omega_mix`] gives to the kernel behind it, and `iterations` for
/// the matrices by which the steps of two layers are made orthogonal.
macro_rules! workspace {
    ([$($done:literal)*]) => { &[$($done),*] };
    ([$($done:literal)*] mixed $($more:tt)*) => {
        workspace!([
            $($done)* "psi" "lam" "old" "psi_end" "phi_end" "live" "lam_end" "old_end" "beta_end" "steps"
        ] $($more)*)
    };
    ([$($done:literal)*] iterations $($more:tt)*) => {
        workspace!([$($done)* "iterates1" "gram1" "poly1" "iterates2" "gram2" "poly2"] $($more)*)
    };
    ([$($done:literal)*] $name:literal $($more:tt)*) => { workspace!([$($done)* $name] $($more)*) };
    ($($all:tt)+) => { workspace!([] $($all)+) };
}
const MIXED: &[&str] = workspace!(mixed);

/// The order of the parameters of [`OMEGA_MLP`], for chains that take its place.
const AS_MLP: &[&str] =
    &["alpha", "theta", "eta", "gamma", "before", "commit", "q", "k", "v", "rq", "rk", "w1", "w2", "s1", "s2", "y"];

/// The rule on a memory of two layers, with a dense band of gates.
pub static OMEGA_MLP: Chain = Chain::new("omega_mlp", &[&omega_mix, &omega_mlp], MIXED);

/// The rule on a linear memory, with a dense band of gates.
pub static OMEGA_LINEAR: Chain = Chain::new("omega_linear", &[&omega_mix, &omega_linear], MIXED);

/// The rule on a gated memory.
pub static OMEGA_GATED: Chain = Chain::new("omega_gated", &[&omega_mix, &omega_gated], MIXED);

/// The rule on a memory of two layers with a norm inside.
pub static OMEGA_NORMED: Chain = Chain::new("omega_normed", &[&omega_mix, &omega_normed], MIXED);

/// The rule on a memory of two layers with rows of any width. `K` of its workspace is that of [`Chunking::keys`].
pub static OMEGA_MLP_WIDE: Chain =
    Chain::new("omega_mlp_wide", &[&omega_mix, &omega_mlp_wide], workspace!(mixed "errors" "act" "delta" "hidden"));

/// The same, with the passes over a chunk in launches of their own: where sequences times heads are at most half of a GPU's multiprocessors,
/// and chunks have 32 tokens at least.
pub static OMEGA_MLP_SPLIT: Chain = Chain::new(
    "omega_mlp_split",
    &[
        &omega_mix,
        &omega_split_mixed,
        &omega_mlp_split_hidden,
        &omega_mlp_split_errors,
        &omega_mlp_split_train,
        &omega_mlp_split_inner,
        &omega_mlp_split_outer,
        &omega_split_reads,
    ],
    workspace!(
        mixed "mixed" "oldest" "rows" "slopes" "errors" "act" "change" "w1_before" "w2_before" "s1_before" "s2_before" "hidden" "reads"
    ),
)
.repeated(3..5, "C", "at")
.after_each("R")
.ordered(AS_MLP);

/// The same, where a cluster of programs for each sequence and head trains the memory on all chunks of a segment in one launch. A GPU needs
/// clusters for it (compute capability 9.0), and the hidden layer has at most 512 elements.
pub static OMEGA_MLP_CLUSTER: Chain = Chain::new(
    "omega_mlp_cluster",
    &[
        &omega_mix,
        &omega_split_mixed,
        &omega_mlp_cluster_train,
        &omega_mlp_split_inner,
        &omega_mlp_split_outer,
        &omega_split_reads,
    ],
    workspace!(
        mixed "mixed" "oldest" "errors" "act" "change" "w1_before" "w2_before" "s1_before" "s2_before" "hidden" "reads"
    ),
)
.in_segments(2, "C", "at", "R")
.ordered(AS_MLP);

/// The rule on a linear memory with keys of any width.
pub static OMEGA_LINEAR_WIDE: Chain = Chain::new("omega_linear_wide", &[&omega_mix, &omega_linear_wide], MIXED);

/// The rule on a gated memory with rows of any width.
pub static OMEGA_GATED_WIDE: Chain = Chain::new(
    "omega_gated_wide",
    &[&omega_mix, &omega_gated_wide],
    workspace!(mixed "errors" "act" "delta" "delta3" "hidden" "hidden3"),
);

/// The rule on a memory of two layers with a norm inside, with rows of any width.
pub static OMEGA_NORMED_WIDE: Chain = Chain::new(
    "omega_normed_wide",
    &[&omega_mix, &omega_normed_wide],
    workspace!(mixed "errors" "act" "delta" "hidden" "outs"),
);

/// The rule with Muon, one orthogonalised step per chunk, on a memory of two layers.
pub static OMEGA_MUON: Chain = Chain::new("omega_muon", &[&omega_mix, &omega_muon], MIXED);

/// The same on a memory with a gated hidden layer.
pub static OMEGA_MUON_GATED: Chain = Chain::new("omega_muon_gated", &[&omega_mix, &omega_muon_gated], MIXED);

/// The same on a linear memory.
pub static OMEGA_MUON_LINEAR: Chain = Chain::new("omega_muon_linear", &[&omega_mix, &omega_muon_linear], MIXED);

/// The same on a memory of two layers with a norm behind them.
pub static OMEGA_MUON_NORMED: Chain = Chain::new("omega_muon_normed", &[&omega_mix, &omega_muon_normed], MIXED);

/// The rule with Muon, one orthogonalised step per chunk, on a memory of two layers whose matrices are too large for shared memory.
pub static OMEGA_MUON_WIDE: Chain = Chain::new(
    "omega_muon_wide",
    &[&omega_mix, &omega_muon_wide],
    workspace!(mixed "errors" "act" "delta" "hidden" "t1" "t2" iterations),
);

/// The same on a memory with a gated hidden layer.
pub static OMEGA_MUON_GATED_WIDE: Chain = Chain::new(
    "omega_muon_gated_wide",
    &[&omega_mix, &omega_muon_gated_wide],
    workspace!(mixed "errors" "act" "delta" "delta3" "hidden" "t1" "t2" "t3" iterations),
);

/// The same on a linear memory, with keys of any width.
pub static OMEGA_MUON_LINEAR_WIDE: Chain = Chain::new(
    "omega_muon_linear_wide",
    &[&omega_mix, &omega_muon_linear_wide],
    workspace!(mixed "errors" "t" "iterates" "gram" "poly"),
);

/// The same on a memory of two layers with a norm behind them.
pub static OMEGA_MUON_NORMED_WIDE: Chain = Chain::new(
    "omega_muon_normed_wide",
    &[&omega_mix, &omega_muon_normed_wide],
    workspace!(mixed "errors" "act" "delta" "hidden" "t1" "t2" iterations),
);

/// The rule with Muon, one orthogonalised step per token, on a memory of two layers. `K` of its
/// workspace is that of [`Chunking::keys`].
pub static OMEGA_MUON_TOKENS: Chain =
    Chain::new("omega_muon_tokens", &[&omega_muon_tokens], &["errors", "act", "delta"]);

/// The same on a memory with a gated hidden layer.
pub static OMEGA_MUON_TOKENS_GATED: Chain =
    Chain::new("omega_muon_tokens_gated", &[&omega_muon_tokens_gated], &["errors", "act", "delta", "delta3"]);

/// The same on a linear memory.
pub static OMEGA_MUON_TOKENS_LINEAR: Chain =
    Chain::new("omega_muon_tokens_linear", &[&omega_muon_tokens_linear], &["errors"]);

/// The same on a memory of two layers with a norm behind them.
pub static OMEGA_MUON_TOKENS_NORMED: Chain =
    Chain::new("omega_muon_tokens_normed", &[&omega_muon_tokens_normed], &["errors", "act", "delta"]);

/// The rule with Muon, one orthogonalised step per token, on a memory of two layers whose matrices are too large for shared memory.
pub static OMEGA_MUON_TOKENS_WIDE: Chain = Chain::new(
    "omega_muon_tokens_wide",
    &[&omega_muon_tokens_wide],
    workspace!("errors" "act" "delta" "hidden" "t1" "t2" iterations),
);

/// The same on a memory with a gated hidden layer.
pub static OMEGA_MUON_TOKENS_GATED_WIDE: Chain = Chain::new(
    "omega_muon_tokens_gated_wide",
    &[&omega_muon_tokens_gated_wide],
    workspace!("errors" "act" "delta" "delta3" "hidden" "t1" "t2" "t3" iterations),
);

/// The same on a linear memory, with keys of any width.
pub static OMEGA_MUON_TOKENS_LINEAR_WIDE: Chain = Chain::new(
    "omega_muon_tokens_linear_wide",
    &[&omega_muon_tokens_linear_wide],
    &["errors", "t", "iterates", "gram", "poly"],
);

/// The same on a memory of two layers with a norm behind them.
pub static OMEGA_MUON_TOKENS_NORMED_WIDE: Chain = Chain::new(
    "omega_muon_tokens_normed_wide",
    &[&omega_muon_tokens_normed_wide],
    workspace!("errors" "act" "delta" "hidden" "t1" "t2" iterations),
);

crate::records::shipped! {
    "nvidia-h100-80gb-hbm3":
    "fused_descent" "fused_optimization" "omega_linear" "omega_mlp" "omega_pack_tokens"
    "omega_unpack_tokens"
}
crate::records::shipped! { "nvidia-h200":
    "omega_decay_gates"
    "omega_pack_tokens" "omega_token_gates" "omega_unpack_gates" "omega_unpack_tokens"
}
